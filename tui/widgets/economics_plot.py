"""Does speculation pay? Speedup against accept length, the break-even, and where each arm is."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tui import format as fmt
from tui.comparison import Comparison, Payoff, payoffs
from tui.widgets import chart
from tui.widgets.paint import Canvas, Painted, Run, cells, width_of, words

_TITLE = "Does speculation pay?"
_TABLE_FROM = 18  # rows, of which the table takes some
_GUTTER = 5
_COLUMNS = (("accept", 13), ("cycle", 10), ("decode step", 13), ("break-even", 12), ("speedup", 9))


@dataclass(frozen=True)
class Frame:
    """Where the plot lies on its canvas, and what its edges mean."""

    y: int
    width: int
    height: int
    across: tuple[float, float]  # accept length
    up: tuple[float, float]  # speedup

    def column(self, accept: float) -> int:
        """Of an accept length."""
        return _GUTTER + chart.column(accept, self.width, self.across)

    def row(self, speedup: float) -> int:
        """Of a speedup."""
        return self.y + chart.row(speedup, self.height, self.up)

    def end(self, payoff: Payoff) -> float:
        """Where the line of an arm ends: the longest accept length that its draft allows."""
        return min(self.across[1], float(payoff.ceiling or self.across[1]))


def frame(y: int, width: int, height: int, found: Sequence[Payoff]) -> Frame:
    """A frame that shows each line from plain decoding to its end, and the break-even of all of them."""
    right = max(max(p.ceiling or 0.0, p.breakeven * 1.15, p.accept * 1.15) for p in found)
    across = (1.0, max(2.0, float(int(right + 0.999))))
    ends = [min(across[1], float(p.ceiling or across[1])) / p.breakeven for p in found]
    return Frame(y, width, height, across, (min(0.9, *(1 / p.breakeven for p in found)), max(1.2, *ends)))


class EconomicsPlot(Painted):
    """One line an arm with speculation."""

    DEFAULT_CSS: ClassVar[str] = "EconomicsPlot { height: 1fr; width: 1fr; }"

    def __init__(self) -> None:
        super().__init__(id="economics")
        self.comparison: Comparison | None = None

    def show(self, comparison: Comparison | None) -> None:
        """Another state of the arms."""
        self.comparison = comparison
        self.repaint()

    def draw(self, canvas: Canvas) -> None:
        found = payoffs(self.comparison) if self.comparison is not None else ()
        if not found:
            canvas.title(0, 0, canvas.width, _TITLE)
            canvas.put(0, 1, "no arm with speculation beside one without it yet", "muted", canvas.width)
            return
        canvas.title(0, 0, canvas.width, _TITLE, self._axes(found, canvas.width - len(_TITLE) - 4))
        table = len(found) + 2 if canvas.height >= _TABLE_FROM else 0
        rows = max(3, canvas.height - 2 - table - (1 if table else 0))
        self._plot(canvas, frame(1, canvas.width - _GUTTER, rows - 1, found), found)
        if table:
            self._table(canvas, canvas.height - 3 - len(found), found)
        canvas.runs(0, canvas.height - 1, words(summary(found), canvas.width))

    @staticmethod
    def _axes(found: Sequence[Payoff], room: int) -> list[Run]:
        bases = "/".join(dict.fromkeys(payoff.base.letter for payoff in found))
        tried = [f"up: speedup over {bases} · right: accept length{more}" for more in (", bonus counted", "")]
        return [
            (next((text for text in tried if len(text) <= room), f"over {bases}, by accept length"), "muted")
        ]

    def _plot(self, canvas: Canvas, area: Frame, found: Sequence[Payoff]) -> None:
        one = area.row(1.0)
        steps, places = chart.ticks(*area.up, max(3, area.height // 3))
        for tick in steps:
            if area.row(tick) != one:
                canvas.right(_GUTTER - 1, area.row(tick), fmt.decimals(tick, max(2, places)), "muted")
                canvas.put(_GUTTER, area.row(tick), "╌" * area.width, "line")
        canvas.right(_GUTTER - 1, one, "1.00", "strong!")
        canvas.put(_GUTTER, one, "─" * area.width, "muted")
        most = max(2, min(int(area.across[1] - area.across[0]), area.width // 10))
        steps, places = chart.ticks(*area.across, most)
        for tick in steps:
            label = fmt.decimals(tick, max(1, places))
            at = max(_GUTTER, area.column(tick) - cells(label) // 2)
            canvas.put(min(canvas.width - cells(label), at), area.y + area.height, label, "muted")
        lines = [
            chart.Series([(1.0, 1 / p.breakeven), (area.end(p), area.end(p) / p.breakeven)], p.view.color)
            for p in found
        ]
        chart.plot(canvas, _GUTTER, area.y, area.width, area.height, lines, area.across, area.up)
        for payoff in found:
            canvas.put(area.column(payoff.breakeven), one, "◆", payoff.view.color)
            canvas.put(area.column(payoff.accept), area.row(payoff.speedup), "●", "strong!")
        canvas.runs(_GUTTER + 1, one - 1, [("↑", "ok"), (" pays", "muted")])
        if one + 1 < area.y + area.height:
            canvas.runs(_GUTTER + 1, one + 1, [("↓", "warn"), (" loses", "muted")])
        self._labels(canvas, area, found)

    @staticmethod
    def _labels(canvas: Canvas, area: Frame, found: Sequence[Payoff]) -> None:
        """Words beside the marks, each where nothing but grid is; one that finds no place is left out."""
        one = area.row(1.0)
        for p in found:
            here: list[Run] = [
                (p.view.letter, f"{p.view.color}!"),
                (f" {fmt.ratio(shown_speedup(p))}", "text"),
            ]
            size = width_of(here)
            x, y = area.column(p.accept), area.row(p.speedup)
            _place(
                canvas,
                area,
                here,
                ((x - size - 1, y), (x + 2, y), (x + 2, y + 1), (x - size - 1, y + 1), (x + 2, y - 1)),
            )
            start: list[Run] = [
                (p.view.letter, f"{p.view.color}!"),
                (f" from {fmt.accept(p.breakeven)}", "text"),
            ]
            size, x = width_of(start), area.column(p.breakeven)
            _place(
                canvas,
                area,
                start,
                (
                    (x - size + 2, one - 1),
                    (x + 1, one + 1),
                    (x - size, one - 1),
                    (x, one + 2),
                    (x - size, one - 2),
                ),
            )
        for p in found:
            if p.ceiling is not None:
                best: list[Run] = [
                    (p.view.letter, f"{p.view.color}!"),
                    (f" can reach {p.ceiling}.0 at best", "muted"),
                ]
                size, end = width_of(best), area.end(p)
                x, y = area.column(end), area.row(end / p.breakeven)
                _place(canvas, area, best, ((x - size - 2, y), (x - size - 2, y - 1), (x - size - 4, y + 1)))

    @staticmethod
    def _table(canvas: Canvas, y: int, found: Sequence[Payoff]) -> None:
        x = 1
        for name, size in _COLUMNS:
            x += size
            canvas.right(x, y, name, "muted")
        for line, payoff in enumerate(found, y + 1):
            canvas.put(0, line, payoff.view.letter, f"{payoff.view.color}!")
            speedup = shown_speedup(payoff)
            values: tuple[list[Run], ...] = (
                [(fmt.accept(payoff.accept), "text")],
                [(fmt.decimals(payoff.cycle_ms, 1), "text"), (" ms", "muted")],
                [(fmt.decimals(payoff.base_ms, 2), "text"), (" ms", "muted")],
                [(fmt.accept(payoff.breakeven), "text")],
                [(fmt.ratio(speedup), "warn!" if speedup < 1 else "ok!")],
            )
            x = 1
            for (_, size), runs in zip(_COLUMNS, values, strict=True):
                x += size
                canvas.right_runs(x, line, runs)
            short = payoff.breakeven - payoff.accept
            word = "short by " if short > 0 else "spare "
            rest: list[Run] = [(word, "muted"), (fmt.accept(abs(short)), "text!")]
            if x + 3 + width_of(rest) <= canvas.width:
                canvas.runs(x + 3, line, rest)


def shown_speedup(payoff: Payoff) -> float:
    """The measured ratio where there is one to the same arm, so that one screen does not show two figures."""
    same = payoff.view.arm.against == payoff.base.letter
    return payoff.view.ratio if same and payoff.view.ratio is not None else payoff.speedup


def summary(found: Sequence[Payoff]) -> list[Run]:
    """The one sentence: from which accept length it pays, and what there is."""
    payoff = max(found, key=lambda p: p.speedup)
    pays = payoff.speedup >= 1
    name = payoff.view.letter if len(found) > 1 else "Speculation"
    said = (
        f"{name} pays from accept length {fmt.accept(payoff.breakeven)}; it has {fmt.accept(payoff.accept)}"
    )
    return [("✓ ", "ok") if pays else ("▲ ", "warn"), (said, "text")]


def _place(canvas: Canvas, area: Frame, runs: Sequence[Run], places: Sequence[tuple[int, int]]) -> None:
    """Writes a word at the first of these places that is free."""
    width = width_of(runs)
    for x, y in places:
        if not area.y <= y < area.y + area.height or x <= _GUTTER or x + width > canvas.width:
            continue
        if all(char in " ╌" for char in canvas.chars[y][x - 1 : x + width + 1]):
            canvas.runs(x, y, runs)
            return
