"""Tables and label-by-label objects of tools become records; which labels and which shape is data (`benchmarks.toml`)."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tui.core.results.external.labels import Label, figure_of, label_of, point_of
from tui.core.results.external.posted import TOOLS, UNLIMITED, Posted, number_of, times
from tui.core.results.external.tables import Table
from tui.core.text import as_text

_VALUE = re.compile(
    r"(?P<number>[-+]?(?:\d[\d,_]*)?\.?\d+(?:e[-+]?\d+)?|[-+]?inf|nan)\s*(?P<unit>%|ms|seconds|sec|s|[a-z]{1,8}/\S{1,12}|x)?"
    r"(?:\s*[*±(<←].*|\s+[^\w\s.].*)?",  # and a remark
    re.IGNORECASE,
)
_TEXTS = ("tag", "model", "dataset")  # of a record, and no figures
_LONGEST = 80  # characters of a figure and what is said of it
_MOST = 400  # figures of a record


@dataclass(frozen=True)
class TableForm:
    """A tool's table; `tui/data/benchmarks.toml` explains the fields."""

    tool: str
    shape: str
    begins: Sequence[str]
    also: Sequence[str] = ()
    drawn: bool = True
    part: bool = False
    kind: str = "serving"

    def fits(self, head: Sequence[str], drawn: bool) -> bool:
        if drawn is not self.drawn or (first := self._first(head)) is None:
            return False
        cells = [plain(cell[:_LONGEST]) for cell in head]
        begins = cells[first : first + len(self.begins)] == list(self.begins)
        return begins and (self.shape == "pairs" or set(self.also) <= set(cells))

    def _first(self, head: Sequence[str]) -> int | None:
        """Its first column: behind an index, or what a log put before the line."""
        return next((at for at, cell in enumerate(head) if plain(cell[:_LONGEST]) == self.begins[0]), None)

    def read(self, table: Table) -> list[Posted]:
        first = self._first(table.head) or 0
        rows = [row[first:] for row in table.rows]
        if self.shape == "pairs" and not set(self.also) <= {plain(row[0][:_LONGEST]) for row in rows}:
            return []
        records = _SHAPES[self.shape](self, list(table.head[first:]), rows)
        return [posted for posted in records if posted.figures or posted.broken]

    def record(self) -> Posted:
        return Posted(self.tool, self.kind, part=self.part)


@lru_cache(4096)
def plain(cell: str) -> str:
    """A cell of a head as forms name it."""
    return " ".join(cell.replace("*", "").lower().split())


def value_of(cell: str) -> tuple[float | str | None, str]:
    """The figure of a cell and the unit behind it; what follows a figure, as a margin or a remark, is none of it."""
    matched = _VALUE.fullmatch(cell.strip().strip("*`")[:_LONGEST])
    return (matched["number"], (matched["unit"] or "").lower()) if matched else (None, "")


def take(posted: Posted, text: str, value: object, point: str = "", *, unit: str = "", own: bool = True) -> bool:
    """Puts a labelled figure where the tool's names say; whether it was one."""
    label = label_of(text)
    if unit and not label.unit:
        label = Label(label.name, label.point, unit)
    found = figure_of(label, names_of(posted.tool), point, own=own)
    if found is None or len(posted.figures) >= _MOST:
        return False
    key, factor = found
    if key in _TEXTS:
        setattr(posted, key, getattr(posted, key) or as_text(value, 200))
        return True
    if isinstance(value, str):
        value, behind = value_of(value)
        if behind and behind != label.unit and not label.unit and not unit:
            return take(posted, text, value, point, unit=behind, own=own)
    number = number_of(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else None
    if number is None:
        return False
    if key == "request_rate" and number < 0:
        posted.put(key, UNLIMITED)
    elif key != "max_concurrency" or number > 0:  # -1: as many as come
        posted.put(key, times(number, factor))
    return True


def names_of(tool: str | None) -> Mapping[str, Any]:
    names: Mapping[str, Any] = TOOLS.get(tool or "", {}).get("names", {})
    return names


def take_all(posted: Posted, raw: Mapping[str, Any], prefix: str = "") -> None:
    """An object whose keys are labels, and whose values are figures or the statistics of one."""
    for key, value in raw.items():
        text = key.removeprefix(prefix)
        if isinstance(value, Mapping):
            unit = as_text(value.get("unit"), 20)
            for point, number in statistics(value):
                take(posted, text, number, point, unit=unit or "")
        elif not isinstance(value, bool):
            take(posted, text, value)


def statistics(raw: Mapping[str, Any], *, nested: bool = False) -> Iterator[tuple[str, float]]:
    """The statistics of a distribution; percentiles may stand in an object of their own, without a p."""
    for key, value in raw.items():
        if isinstance(value, Mapping) and key in ("percentiles", "quantiles") and not nested:
            yield from statistics(value, nested=True)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            point = point_of(key) or (point_of(f"{key}%") if nested or key[:1].isdigit() else "")
            if point and (number := number_of(value)) is not None:
                yield point, number


def _pairs(form: TableForm, head: list[str], rows: Sequence[Sequence[str]]) -> Iterator[Posted]:
    posted = form.record()
    for row in rows:
        labels, values = row[0].split(" / "), row[-1].split(" / ")
        for label, value in zip(labels, values, strict=False) if len(labels) == len(values) else ((row[0], row[-1]),):
            take(posted, label, value)
    yield posted


def _statistics(form: TableForm, head: list[str], rows: Sequence[Sequence[str]]) -> Iterator[Posted]:
    """Columns before the one of the labels say whose figures follow, until the next row that says it."""
    at = next(number for number, cell in enumerate(head) if cell.strip("*").lower() in ("metric", "statistic"))
    points = [(column, point) for column in range(at + 1, len(head)) if (point := point_of(head[column]))]
    posted: Posted | None = None
    for row in rows:
        if posted is None or any(row[:at]):
            if posted is not None:
                yield posted
            posted = form.record()
            for column in range(at):
                take(posted, head[column], row[column])
        for column, point in points:
            if row[column] not in ("", "-"):
                take(posted, row[at], row[column], point)
    if posted is not None:
        yield posted


def _percentiles(form: TableForm, head: list[str], rows: Sequence[Sequence[str]]) -> Iterator[Posted]:
    posted = form.record()
    for row in rows:
        if point := point_of(row[0]) or point_of(f"{row[0]}%"):
            for label, value in zip(head[1:], row[1:], strict=True):
                take(posted, label, value, point)
    yield posted


def _runs(form: TableForm, head: list[str], rows: Sequence[Sequence[str]]) -> Iterator[Posted]:
    for row in rows:
        posted, last = form.record(), Label("")
        for text, value in zip(head, row, strict=True):
            label = label_of(text)
            if label.point and not label.name and last.name:  # "Median" behind "Mean TPOT (ms)"
                take(posted, f"{last.name} ({last.unit or 'ms'})", value, label.point)
            else:
                last = label
                take(posted, text, value)
        yield posted


_SHAPES = {"pairs": _pairs, "statistics": _statistics, "percentiles": _percentiles, "runs": _runs}
