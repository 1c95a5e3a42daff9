"""Does speculation pay? Speedup against accept length, the break-even, and where each arm is."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tui import format as fmt
from tui.core.text import one_line
from tui.panel.bench_view import ArmEconomics
from tui.panel.widgets.bench import chart
from tui.panel.widgets.bench.of_comparison import OfComparison
from tui.panel.widgets.paint import Canvas, Run, cells, width_of, words

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

    def end(self, one: ArmEconomics) -> float:
        """Where the line of an arm ends: the longest accept length that its draft allows."""
        return min(self.across[1], float(one.economics.ceiling or self.across[1]))


def frame(y: int, width: int, height: int, found: Sequence[ArmEconomics]) -> Frame:
    """A frame that shows each line from plain decoding to its end, and the break-even of all of them."""
    known = [one.economics for one in found]
    right = max(max(e.ceiling or 0.0, e.breakeven_tau * 1.15, (e.tau or 0.0) * 1.15) for e in known)
    across = (1.0, max(2.0, float(math.ceil(right))))
    ends = [e.speedup_at(min(across[1], float(e.ceiling or across[1]))) for e in known]
    return Frame(y, width, height, across, (min(0.9, *(e.speedup_at(1.0) for e in known)), max(1.2, *ends)))


class EconomicsPlot(OfComparison):
    """One line an arm with speculation."""

    ID = "economics"
    DEFAULT_CSS: ClassVar[str] = "EconomicsPlot { height: 1fr; width: 1fr; }"

    def draw(self, canvas: Canvas) -> None:
        found = self.comparison.economics if self.comparison is not None else ()
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
        canvas.runs(0, canvas.height - 1, summary(found, canvas.width))

    @staticmethod
    def _axes(found: Sequence[ArmEconomics], room: int) -> list[Run]:
        bases = "/".join(dict.fromkeys(one.base.letter for one in found))
        tried = [f"up: speedup over {bases} · right: accept length{more}" for more in (", bonus counted", "")]
        return [(next((text for text in tried if len(text) <= room), f"over {bases}, by accept length"), "muted")]

    def _plot(self, canvas: Canvas, area: Frame, found: Sequence[ArmEconomics]) -> None:
        one = area.row(1.0)
        steps, places = chart.ticks(*area.up, max(3, area.height // 3))
        for tick in steps:
            if area.row(tick) != one:
                canvas.right(_GUTTER - 1, area.row(tick), fmt.decimals(tick, max(2, places)), "muted")
                canvas.put(_GUTTER, area.row(tick), "╌" * area.width, "line")
        canvas.right(_GUTTER - 1, one, "1.00", "strong!")
        canvas.put(_GUTTER, one, "─" * area.width, "muted")
        most = max(2, min(int(area.across[1] - area.across[0]) + 1, area.width // 10))
        steps, places = chart.ticks(*area.across, most)
        for tick in steps:
            label = fmt.decimals(tick, max(1, places))
            at = max(_GUTTER, area.column(tick) - cells(label) // 2)
            canvas.put(min(canvas.width - cells(label), at), area.y + area.height, label, "muted")
        lines = [
            chart.Series(tuple((at, arm.economics.speedup_at(at)) for at in (1.0, area.end(arm))), arm.view.color)
            for arm in found
        ]
        chart.plot(canvas, _GUTTER, area.y, area.width, area.height, lines, area.across, area.up)
        for arm in found:
            canvas.put(area.column(arm.economics.breakeven_tau), one, "◆", arm.view.color)
        for arm in found:
            if arm.economics.tau is not None and arm.economics.speedup is not None:
                canvas.put(area.column(arm.economics.tau), area.row(arm.economics.speedup), "●", "strong!")
        canvas.runs(_GUTTER + 1, one - 1, [("↑", "ok"), (" pays", "muted")])
        if one + 1 < area.y + area.height:
            canvas.runs(_GUTTER + 1, one + 1, [("↓", "warn"), (" loses", "muted")])
        self._labels(canvas, area, found)

    @staticmethod
    def _labels(canvas: Canvas, area: Frame, found: Sequence[ArmEconomics]) -> None:
        """Words beside the marks, each where nothing but grid is; one that finds no place is left out."""
        one = area.row(1.0)
        for arm in found:
            e, letter = arm.economics, (arm.view.letter, f"{arm.view.color}!")
            if e.tau is not None and e.speedup is not None:
                here: list[Run] = [letter, (f" {fmt.ratio(arm.speedup)}", "text")]
                size, x, y = width_of(here), area.column(e.tau), area.row(e.speedup)
                places = ((x - size - 1, y), (x + 2, y), (x + 2, y + 1), (x - size - 1, y + 1), (x + 2, y - 1))
                _place(canvas, area, here, places)
            start: list[Run] = [letter, (f" from {fmt.accept(e.breakeven_tau)}", "text")]
            size, x = width_of(start), area.column(e.breakeven_tau)
            places = ((x - size + 2, one - 1), (x + 1, one + 1), (x - size, one - 1), (x, one + 2), (x - size, one - 2))
            _place(canvas, area, start, places)
        for arm in found:
            if arm.economics.ceiling is not None:
                letter, end = (arm.view.letter, f"{arm.view.color}!"), area.end(arm)
                best: list[Run] = [letter, (f" can reach {arm.economics.ceiling}.0 at best", "muted")]
                size, x, y = width_of(best), area.column(end), area.row(arm.economics.speedup_at(end))
                _place(canvas, area, best, ((x - size - 2, y), (x - size - 2, y - 1), (x - size - 4, y + 1)))

    @staticmethod
    def _table(canvas: Canvas, y: int, found: Sequence[ArmEconomics]) -> None:
        x = 1
        for name, size in _COLUMNS:
            x += size
            canvas.right(x, y, name, "muted")
        for line, arm in enumerate(found, y + 1):
            e, speedup = arm.economics, arm.speedup
            canvas.put(0, line, arm.view.letter, f"{arm.view.color}!")
            color = "muted" if speedup is None else "warn!" if speedup < 1 else "ok!"
            values: tuple[list[Run], ...] = (
                [(fmt.accept(e.tau), "text")],
                [(fmt.decimals(e.t_cycle_ms, 1), "text"), (" ms", "muted")],
                [(fmt.decimals(e.t_base_ms, 2), "text"), (" ms", "muted")],
                [(fmt.accept(e.breakeven_tau), "text")],
                [(fmt.ratio(speedup), color)],
            )
            x = 1
            for (_, size), runs in zip(_COLUMNS, values, strict=True):
                x += size
                canvas.right_runs(x, line, runs)
            if e.margin is None:
                continue
            word = "short by " if e.margin < 0 else "to spare "
            rest: list[Run] = [(word, "muted"), (fmt.accept(abs(e.margin)), "text!")]
            if x + 3 + width_of(rest) <= canvas.width:
                canvas.runs(x + 3, line, rest)


def summary(found: Sequence[ArmEconomics], width: int) -> list[Run]:
    """The one sentence: who pays, and what the best arm lacks; shorter where it has to be."""
    known = [arm for arm in found if arm.economics.margin is not None]
    if not known:
        return words([("· ", "muted"), (one_line(found[0].economics.text), "text")], width)
    best = max(known, key=lambda arm: arm.economics.speedup or 0.0)
    pays = (best.economics.margin or 0.0) >= 0
    glyph: Run = ("✓ ", "ok") if pays else ("▲ ", "warn")
    if len(known) == 1:
        whole = one_line(best.economics.text)
        said = whole if cells(whole) + 2 <= width else whole.rpartition(", ")[0]
        return words([glyph, (said, "text")], width)
    gains = [arm.view.letter for arm in known if (arm.economics.margin or 0.0) >= 0]
    loses = [arm.view.letter for arm in known if arm.view.letter not in gains]
    both = "Both" if len(known) == 2 else f"All {len(known)}"
    if not gains:
        who = f"{both} lose."
    elif not loses:
        who = f"{both} pay."
    else:
        who = f"{', '.join(gains)} {'pays' if len(gains) == 1 else 'pay'}, {', '.join(loses)} {'loses' if len(loses) == 1 else 'lose'}."
    e, letter = best.economics, best.view.letter
    if e.alpha is not None and e.alpha_needed is not None:
        need = (
            f"{letter} pays at {e.alpha_needed * 100:.0f} % acceptance per draft token; it has {e.alpha * 100:.0f} %."
        )
    else:
        need = f"{letter} pays from accept length {fmt.accept(e.breakeven_tau)}; it has {fmt.accept(e.tau)}."
    return words([glyph, (f"{who} {need}", "text")], width)


def _place(canvas: Canvas, area: Frame, runs: Sequence[Run], places: Sequence[tuple[int, int]]) -> None:
    """Writes a word at the first of these places that is free."""
    width = width_of(runs)
    for x, y in places:
        if not area.y <= y < area.y + area.height or x <= _GUTTER or x + width > canvas.width:
            continue
        if all(char in " ╌" for char in canvas.chars[y][x - 1 : x + width + 1]):
            canvas.runs(x, y, runs)
            return
