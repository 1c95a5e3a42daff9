"""Decode figures over time above the log: tokens a second and accept length, gaps of idleness, the time of the cursor."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tui import format as fmt
from tui.panel.host_view import Board
from tui.panel.widgets.paint import Canvas, Painted, Run, join, width_of

if TYPE_CHECKING:
    from tui.core.sglang.series import DecodePoint

_ROWS = 5
_LABELS = 6  # cells left of a plot
_SEEN = 4  # dots from which on a gap can be seen
_FIGURES = {"tok/s": "tok_s", "accept length": "accept_len", "running": "running"}  # of a DecodePoint
_TWO = 100  # columns from which on both stand beside each other


@dataclass(frozen=True)
class Axis:
    """A range with three ticks that are easy to read."""

    low: float
    high: float
    places: int  # decimals of its labels


def axis_of(values: Sequence[float]) -> Axis:
    """The narrowest axis of two equal steps of 1, 2, 2.5 or 5 times a power of ten around some values."""
    low, high = min(values), max(values)
    if high - low < abs(high) * 0.02:  # a line without ups and downs lies in the middle
        low, high = low - abs(high) * 0.02, high + abs(high) * 0.02
    least = max((high - low) / 2, 1e-3)
    power = 10.0 ** math.floor(math.log10(least))
    for factor in (1, 2, 2.5, 5, 10, 20, 25, 50, 100):
        step = factor * power
        begin = math.floor(low / step * 2 + 1e-9) * step / 2  # half steps: 1.5, 2.5, 3.5
        if begin + 2 * step >= high - step * 1e-9:
            break
    ticks = (begin, begin + step)
    places = next(n for n in range(6) if n == 5 or all(abs(round(t, n) - t) < step * 1e-6 for t in ticks))
    return Axis(begin, begin + 2 * step, places)


class DecodePlot(Painted):
    """Two plots beside each other from 100 columns on, else tokens a second alone."""

    def __init__(self, board: Board) -> None:
        super().__init__(id="logplot")
        self.board = board
        self.points: Sequence[DecodePoint] = ()
        self.cursor_s: float | None = None  # the time of the record under the cursor
        self.baseline: float | None = None  # tok/s of a stored baseline
        self.break_even: float | None = None  # accept length that pays
        self._lines: dict[str, tuple[object, _Line]] = {}  # looked at once for each new point

    def draw(self, canvas: Canvas) -> None:
        points = self.points
        if len(points) < 2:
            return
        two = canvas.width >= _TWO
        width = (canvas.width - 5) // 2 if two else canvas.width - 2
        at = 1 + width + 3
        speed = self._line("tok/s", width - _LABELS)
        accept = self._line("accept length", (canvas.width - at - 1 if two else width) - _LABELS)
        facts: list[list[Run]] = [[(f"{fmt.clock(points[0].time_s, 0)} to {fmt.clock(points[-1].time_s, 0)}", "muted")]]
        if accept.count and not two:
            facts.insert(0, [("accept length ", "muted"), (fmt.accept(accept.mean), "text")])
        if self.baseline is not None:
            facts.append([("⠒⠒ ", "warn"), (f"baseline {fmt.tok_s(self.baseline)}", "muted")])
        self._one(canvas, 1, width, "tok/s", facts, speed, "accent", self.baseline)
        if not two:
            return
        if accept.count:
            facts = [[("mean ", "muted"), (fmt.accept(accept.mean), "strong!"), (f", n = {accept.count:,}", "muted")]]
            if self.break_even is not None:
                facts.append([("⠒⠒ ", "warn"), (f"break-even {fmt.accept(self.break_even)}", "muted")])
            self._one(canvas, at, canvas.width - at - 1, "accept length", facts, accept, "violet", self.break_even)
        else:  # no speculation: how many are served at once
            running = self._line("running", canvas.width - at - 1 - _LABELS)
            facts = [[("most ", "muted"), (fmt.whole(running.high), "strong!")]]
            self._one(canvas, at, canvas.width - at - 1, "running", facts, running, "violet", None)

    def _line(self, what: str, columns: int) -> "_Line":
        """The points of one figure, in so many columns of cells."""
        points = self.points
        key = (len(points), points[0], points[-1], columns)
        known = self._lines.get(what)
        if known is None or known[0] != key:
            known = self._lines[what] = (key, _line_of(points, _FIGURES[what], columns * 2))
        return known[1]

    def _one(
        self,
        canvas: Canvas,
        x: int,
        width: int,
        title: str,
        facts: Sequence[Sequence[Run]],
        line: "_Line",
        spec: str,
        reference: float | None,
    ) -> None:
        while facts and width_of(join(facts)) > width - len(title) - 4:
            facts = facts[:-1]
        canvas.title(x, 0, width, title, join(facts))
        if not line.count:
            return
        axis = axis_of([line.low, line.high, *([reference] if reference is not None else [])])
        left, columns = x + _LABELS, width - _LABELS
        for row, tick in ((1, axis.high), (1 + _ROWS // 2, (axis.low + axis.high) / 2), (_ROWS, axis.low)):
            canvas.right(left - 1, row, fmt.decimals(tick, axis.places), "muted")
            canvas.put(left, row, "┈" * columns, "line")
        canvas.plot(left, 1, columns, _ROWS, line.values, axis.low, axis.high, spec, reference)
        if line.idle is not None:
            begin, end, idle_s = line.idle
            self._under(canvas, left, columns, (begin + end) // 4, f"idle {fmt.duration(idle_s)}", "muted")
        first, last = self.points[0].time_s, self.points[-1].time_s
        if self.cursor_s is not None and first <= self.cursor_s <= last:
            column = _dot(self.cursor_s, first, last, columns * 2) // 2
            for row in range(1, _ROWS + 1):
                canvas.put(left + column, row, "┊", "strong")
            self._under(canvas, left, columns, column, fmt.clock(self.cursor_s, 0), "text")

    @staticmethod
    def _under(canvas: Canvas, left: int, columns: int, middle: int, text: str, spec: str) -> None:
        """A word under a column of the plot."""
        canvas.put(left + max(0, min(columns - len(text), middle - len(text) // 2)), _ROWS + 1, text, spec)


@dataclass(frozen=True)
class _Line:
    """One figure over time."""

    values: list[float | None]  # one a column of dots; None: a gap
    count: int
    mean: float | None
    low: float
    high: float
    idle: tuple[int, int, float] | None  # the longest gap that can be seen: its columns, and seconds


def _dot(time_s: float, begin: float, end: float, dots: int) -> int:
    return min(dots - 1, max(0, round((time_s - begin) / max(end - begin, 1e-9) * (dots - 1))))


def _line_of(points: "Sequence[DecodePoint]", name: str, dots: int) -> _Line:
    """One value a column of dots: the mean of its points, drawn on between columns where they are sparse; none in a gap."""
    begin, end = points[0].time_s, points[-1].time_s
    sums, counts = [0.0] * dots, [0] * dots
    joined = [False] * dots  # to the column with points before it
    fresh = False
    known: list[float] = []
    idle: tuple[int, int, float] | None = None
    for point in points:
        found: float | None = getattr(point, name)
        if point.gap_s:
            fresh = True
            ends = _dot(point.time_s - point.gap_s, begin, end, dots), _dot(point.time_s, begin, end, dots)
            if ends[1] - ends[0] >= _SEEN and (idle is None or point.gap_s > idle[2]):
                idle = (*ends, point.gap_s)
        if found is None:
            continue
        known.append(found)
        column = _dot(point.time_s, begin, end, dots)
        joined[column] = joined[column] or not fresh
        sums[column] += found
        counts[column] += 1
        fresh = False
    values: list[float | None] = [None] * dots
    last: int | None = None
    for column in range(dots):
        if not counts[column]:
            continue
        values[column] = now = sums[column] / counts[column]
        if last is not None and joined[column]:
            before = sums[last] / counts[last]
            for between in range(last + 1, column):
                values[between] = before + (now - before) * (between - last) / (column - last)
        last = column
    if not known:
        return _Line(values, 0, None, 0.0, 0.0, None)
    return _Line(values, len(known), statistics.fmean(known), min(known), max(known), idle)
