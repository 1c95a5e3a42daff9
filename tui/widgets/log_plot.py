"""Decode figures over time above the log: tokens a second and accept length, gaps of idleness, the time of the cursor."""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tui import format as fmt
from tui.board import Board
from tui.widgets.paint import Canvas, Painted, Run, width_of

if TYPE_CHECKING:
    from tui.core.log.series import DecodePoint

HEIGHT = 7  # a title, five rows of plot, the times
_ROWS = 5
_LABELS = 6  # cells left of a plot
_TWO = 100  # columns from which on both stand beside each other


@dataclass(frozen=True)
class Axis:
    """A range with three ticks that are easy to read."""

    low: float
    high: float
    places: int  # decimals of its labels

    @property
    def middle(self) -> float:
        """The tick between the ends."""
        return (self.low + self.high) / 2


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

    def draw(self, canvas: Canvas) -> None:
        points = self.points
        if len(points) < 2:
            return
        begin, end = points[0].time_s, points[-1].time_s
        span = [(f"{_clock(begin)} to {_clock(end)}", "muted")]
        two = canvas.width >= _TWO
        width = (canvas.width - 5) // 2 if two else canvas.width - 2
        lengths = [p.accept_len for p in points if p.accept_len is not None]
        facts: list[Run] = []
        if lengths and not two:
            facts = [
                ("accept length ", "muted"),
                (fmt.accept(statistics.fmean(lengths)), "text"),
                (" · ", "muted"),
            ]
        facts += span
        if self.baseline is not None:
            facts += [(" · ", "muted"), ("··", "warn"), (f" baseline {fmt.tok_s(self.baseline)}", "muted")]
        self._one(canvas, 1, width, "tok/s", facts, lambda p: p.tok_s, "accent", self.baseline)
        if not two:
            return
        at = 1 + width + 3
        if lengths:
            facts = [("mean ", "muted"), (fmt.accept(statistics.fmean(lengths)), "strong!"), (f", n = {len(lengths):,}", "muted")]  # fmt: skip
            if self.break_even is not None:
                facts += [
                    (" · ", "muted"),
                    ("··", "warn"),
                    (f" break-even {fmt.accept(self.break_even)}", "muted"),
                ]
            self._one(canvas, at, canvas.width - at - 1, "accept length", facts, lambda p: p.accept_len, "violet", self.break_even)  # fmt: skip
        else:  # no speculation: what a user of this server waits for
            running = [p.running for p in points if p.running is not None]
            queued = max((p.queued or 0 for p in points), default=0)
            facts = [("most ", "muted"), (fmt.whole(max(running, default=None)), "strong!"), (f", queued {queued:,}", "muted")]  # fmt: skip
            self._one(
                canvas, at, canvas.width - at - 1, "running", facts, lambda p: p.running, "violet", None
            )

    def _one(
        self,
        canvas: Canvas,
        x: int,
        width: int,
        title: str,
        facts: Sequence[Run],
        value: "Callable[[DecodePoint], float | None]",
        spec: str,
        reference: float | None,
    ) -> None:
        facts = list(facts)
        while facts and width_of(facts) > width - len(title) - 4:
            facts = facts[:-3]
        canvas.title(x, 0, width, title, facts)
        known = [v for p in self.points if (v := value(p)) is not None]
        if not known:
            return
        axis = axis_of([*known, *([reference] if reference is not None else [])])
        left, columns = x + _LABELS, width - _LABELS
        for row, tick in ((1, axis.high), (1 + _ROWS // 2, axis.middle), (_ROWS, axis.low)):
            canvas.right(left - 1, row, fmt.decimals(tick, axis.places), "muted")
            canvas.put(left, row, "┈" * columns, "line")
        begin, end = self.points[0].time_s, self.points[-1].time_s
        dots = columns * 2

        def dot(time_s: float) -> int:
            return min(dots - 1, max(0, int((time_s - begin) / max(end - begin, 1e-9) * (dots - 1) + 0.5)))

        canvas.plot(left, 1, columns, _ROWS, _columns(self.points, value, dot, dots), axis.low, axis.high, spec, reference)  # fmt: skip
        idle = max((p for p in self.points if p.gap_s), key=lambda p: p.gap_s or 0.0, default=None)
        if idle is not None and idle.gap_s is not None:
            text = f"idle {fmt.duration(idle.gap_s)}"
            middle = (dot(idle.time_s - idle.gap_s) + dot(idle.time_s)) // 4
            if dot(idle.time_s) - dot(idle.time_s - idle.gap_s) >= 4:
                canvas.put(
                    left + max(0, min(columns - len(text), middle - len(text) // 2)), _ROWS + 1, text, "muted"
                )
        if self.cursor_s is not None and begin <= self.cursor_s <= end:
            column = dot(self.cursor_s) // 2
            for row in range(1, _ROWS + 1):
                canvas.put(left + column, row, "┊", "strong")
            text = _clock(self.cursor_s)
            canvas.put(
                left + max(0, min(columns - len(text), column - len(text) // 2)), _ROWS + 1, text, "text"
            )


def _columns(
    points: "Sequence[DecodePoint]",
    value: "Callable[[DecodePoint], float | None]",
    dot: Callable[[float], int],
    dots: int,
) -> list[float | None]:
    """One value a column of dots: the mean of its points, drawn on from its neighbours where they are sparse; none in a gap."""
    sums: list[float] = [0.0] * dots
    counts = [0] * dots
    joined = [False] * dots  # to the column with points before it
    fresh = False
    for point in points:
        fresh = fresh or bool(point.gap_s)
        found = value(point)
        if found is None:
            continue
        column = dot(point.time_s)
        joined[column] = joined[column] or not fresh
        sums[column] += found
        counts[column] += 1
        fresh = False
    out: list[float | None] = [None] * dots
    last: int | None = None
    for column in range(dots):
        if not counts[column]:
            continue
        out[column] = now = sums[column] / counts[column]
        if last is not None and joined[column]:
            before = out[last]
            assert before is not None
            for between in range(last + 1, column):
                out[between] = before + (now - before) * (between - last) / (column - last)
        last = column
    return out


def _clock(stamp_s: float) -> str:
    return datetime.fromtimestamp(stamp_s, UTC).strftime("%H:%M:%S")
