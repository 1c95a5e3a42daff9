"""Tables of several runs by the labels of SGLang's and vLLM's blocks or names that tools share: a run a column (before and after), or a run a row."""

import re
from collections.abc import Sequence
from functools import lru_cache

from tui.core.results.external.blocks import figure_at, tool_of
from tui.core.results.external.labels import SHARED, label_of, point_of
from tui.core.results.external.posted import Posted
from tui.core.results.external.shapes import take, value_of
from tui.core.results.external.tables import Table
from tui.core.text import one_line

_CORNER = re.compile(r"(?:(?:benchmark |key )?metrics?|label|measure(?:ment)?|item|stat(?:istic)?)?", re.IGNORECASE)
_CHANGE = re.compile(
    r"%|\bchanged?\b|\bdiff|\bdelta\b|[Δδ±]|\bimprove|\bspeed.?up\b|\bratio\b|\bgain\b|\bvs\b|\bnotes?\b|\bverdict\b",
    re.IGNORECASE,
)
_RATES = frozenset(["req_per_s", "output_tok_s", "total_tok_s"])
_LONGEST = 200  # characters of a cell
_FEWEST = 2  # figures of a run
_LATENCY = ("mean_", "median_")
# What every tool means by the same name, which its gaps between tokens are not.
_SAME = frozenset(name for name, ours in SHARED.items() if ours not in ("itl_ms", "tag"))


def _bare(cell: str) -> str:
    return " ".join(cell[:_LONGEST].replace("*", "").replace("`", "").split())


def _put(posted: Posted, text: str, cell: str) -> bool:
    """Whether a cell is a figure; one that the blocks do not have keeps its own name."""
    value, unit = value_of(_bare(cell))
    if value is None or unit == "%":
        return False
    if (figure := figure_at(text, f"{value} {unit}".strip())) is not None:
        posted.put(*figure)
    elif (label := label_of(text)).name in _SAME:
        take(posted, text, f"{value} {unit}".strip())
    elif label.own:
        posted.put(f"{label.point}_{label.own}" if label.point else label.own, value)
    return True


@lru_cache(4096)
def _is_known(text: str) -> bool:
    return figure_at(text, "1") is not None or label_of(text).name in _SAME


class Columns:
    """A figure a row, a run a column: the comparisons that people write into pull requests."""

    def fits(self, head: Sequence[str], drawn: bool) -> bool:
        return len(head) > 2 and _CORNER.fullmatch(_bare(head[0])) is not None

    def read(self, table: Table) -> list[Posted]:
        units = next((at for at, cell in enumerate(table.head) if _bare(cell).lower() in ("unit", "units")), 0)
        runs = [at for at in range(1, len(table.head)) if at != units and not _CHANGE.search(table.head[at])]
        labels = [
            f"{_bare(row[0])} ({row[units]})" if units and "(" not in row[0] else _bare(row[0]) for row in table.rows
        ]
        points = [at for at in runs if point_of(_bare(table.head[at]))]
        if len(points) > 1:
            return self._statistics(table, labels, points)
        records = []
        for at in runs:
            posted = Posted(tool=tool_of(labels), tag=one_line(_bare(table.head[at]), 80) or None)
            for label, row in zip(labels, table.rows, strict=True):
                _put(posted, label, row[at])
            records.append(posted)
        return [posted for posted in records if _has_a_result(posted)] if sum(map(_is_known, labels)) >= _FEWEST else []

    def _statistics(self, table: Table, labels: Sequence[str], points: Sequence[int]) -> list[Posted]:
        """One run, a statistic a column."""
        posted = Posted(tool=tool_of(labels))
        for label, row in zip(labels, table.rows, strict=True):
            for at in points:
                point = point_of(_bare(table.head[at]))
                if _is_known(text := f"{point} {label}") or not _is_known(label) or point == "mean":
                    _put(posted, text if _is_known(text) or not _is_known(label) else label, row[at])
        return [posted] if _has_a_result(posted) else []


class Rows:
    """A run a row, a figure a column; what is no figure says which run it is."""

    def fits(self, head: Sequence[str], drawn: bool) -> bool:
        known = sum(_is_known(_bare(cell)) for cell in head)
        return known >= _FEWEST and known * 2 >= len(head)

    def read(self, table: Table) -> list[Posted]:
        records = []
        for row in table.rows:
            posted = Posted(tool=tool_of(_bare(cell) for cell in table.head))
            texts = [
                _bare(cell)
                for label, cell in zip(table.head, row, strict=True)
                if not _put(posted, _bare(label), cell) and not _is_known(_bare(label))
            ]
            posted.tag = one_line(" ".join(texts), 80) or None
            records.append(posted)
        return [posted for posted in records if _has_a_result(posted)]


def _has_a_result(posted: Posted) -> bool:
    return any(key in _RATES or key.startswith(_LATENCY) for key in posted.figures)
