"""Tables of several runs by the labels of SGLang's and vLLM's blocks: a run a column (before and after), or a run a row."""

import re
from collections.abc import Sequence

from tui.core.results.external.blocks import figure_at, tool_of
from tui.core.results.external.posted import Posted
from tui.core.results.external.shapes import value_of
from tui.core.results.external.tables import Table
from tui.core.text import one_line

_CORNER = re.compile(r"(?:(?:benchmark |key )?metrics?|label|measure(?:ment)?|item|stat(?:istic)?)?", re.IGNORECASE)
_CHANGE = re.compile(
    r"%|\bchanged?\b|\bdiff|\bdelta\b|[Δδ±]|\bimprove|\bspeed.?up\b|\bratio\b|\bgain\b|\bvs\b|\bnotes?\b|\bverdict\b",
    re.IGNORECASE,
)
_RATES = frozenset(["req_per_s", "output_tok_s", "total_tok_s"])
_FEWEST = 3  # figures, of a run in a row
_LATENCY = ("mean_", "median_")


def _bare(cell: str) -> str:
    return " ".join(cell.replace("*", "").replace("`", "").split())


class Columns:
    """A figure a row, a run a column: the comparisons that people write into pull requests."""

    def fits(self, head: Sequence[str], drawn: bool) -> bool:
        return len(head) > 2 and _CORNER.fullmatch(_bare(head[0])) is not None

    def read(self, table: Table) -> list[Posted]:
        units = next((at for at, cell in enumerate(table.head) if _bare(cell).lower() in ("unit", "units")), 0)
        runs = [at for at in range(1, len(table.head)) if at != units and not _CHANGE.search(table.head[at])]
        records = [Posted(tag=one_line(_bare(table.head[at]), 80) or None) for at in runs]
        labels = []
        for row in table.rows:
            label = f"{_bare(row[0])} ({row[units]})" if units and "(" not in row[0] else _bare(row[0])
            for at, posted in zip(runs, records, strict=True):
                value, unit = value_of(_bare(row[at]))
                figure = figure_at(label, f"{value} {unit}".strip()) if value is not None and unit != "%" else None
                if figure is not None:
                    posted.put(*figure)
            labels.append(label.lower())
        for posted in records:
            posted.tool = tool_of(labels)
        return [posted for posted in records if len(posted.figures) > 1 and _has_a_result(posted)]


class Rows:
    """A run a row, a figure a column."""

    def fits(self, head: Sequence[str], drawn: bool) -> bool:
        keys = {figure[0] for cell in head if (figure := figure_at(_bare(cell), "1")) is not None}
        return len(keys) >= _FEWEST and bool(keys & _RATES or any(key.startswith(_LATENCY) for key in keys))

    def read(self, table: Table) -> list[Posted]:
        records = []
        for row in table.rows:
            posted = Posted(tool=tool_of([_bare(cell).lower() for cell in table.head]))
            for label, cell in zip(table.head, row, strict=True):
                value, unit = value_of(_bare(cell))
                figure = figure_at(_bare(label), f"{value} {unit}".strip()) if value is not None else None
                if figure is not None:
                    posted.put(*figure)
                elif value is None and cell.strip():
                    posted.tag = posted.tag or one_line(_bare(cell), 80)
            records.append(posted)
        return [posted for posted in records if _has_a_result(posted)]


def _has_a_result(posted: Posted) -> bool:
    return any(key in _RATES or key.startswith(_LATENCY) for key in posted.figures)
