"""Bench: the arms of a comparison side by side, live; its verdicts, every run, and whether speculation pays."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal

from tui.board import Board
from tui.commands import keys
from tui.comparison import ArmView, Comparison, compare, payoffs
from tui.core.measure.model import ExperimentState, LoadPoint
from tui.screens.base import Mode
from tui.widgets.arm_card import CARDS_FROM, Arms
from tui.widgets.bench_head import BenchHead
from tui.widgets.bench_start import BenchStart
from tui.widgets.economics_plot import EconomicsPlot
from tui.widgets.footer import Keys
from tui.widgets.live_plot import LivePlot
from tui.widgets.paint import Painted
from tui.widgets.run_dots import RunDots
from tui.widgets.verdict_strip import VerdictStrip

_LEAST_PLOT = 4  # rows: below that a plot says nothing


class Bench(Mode):
    """Cards from 100 columns on, rows below; two plots side by side, one below 100 columns."""

    NAME = "Bench"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab,right,l", "arm(1)", "next arm", show=False),
        Binding("shift+tab,left", "arm(-1)", "previous arm", show=False),
        Binding("j,down", "arm(1)", "next arm", show=False),
        Binding("k,up", "arm(-1)", "previous arm", show=False),
        Binding("left_square_bracket", "load(-1)", "previous load", show=False),
        Binding("right_square_bracket", "load(1)", "next load", show=False),
        Binding("p", "plot", "other plot", show=False),
        Binding("enter", "open", "run record", show=False),
        Binding("v", "verdict", "verdict", show=False),
        Binding("space", "pause", "pause", show=False),
        Binding("P", "pair", "one more pair", show=False),
        Binding("x", "export", "export", show=False),
        Binding("E", "experiments", "experiments", show=False),
        Binding("c", "choose", "choose arms", show=False),
    ]

    def __init__(self, board: Board) -> None:
        super().__init__(board)
        self.comparison: Comparison | None = None
        self.selected: str | None = None
        self._point: LoadPoint | None = None
        self._plot = 0
        self._drawn: tuple[object, ...] = ()
        self._arrangement: tuple[object, ...] = ()

    def content(self) -> ComposeResult:
        yield BenchStart(self.board)
        yield BenchHead()
        yield Arms()
        yield VerdictStrip()
        with Horizontal(id="plots"):
            yield RunDots()
            yield EconomicsPlot()
            yield LivePlot()

    # -- what is shown ---------------------------------------------------------------------------------------------

    @property
    def state(self) -> ExperimentState | None:
        """What is measured now, else the newest that is stored."""
        return self.board.experiment or self.board.measured

    @property
    def running(self) -> bool:
        """True while this panel measures."""
        return self.board.experiment is not None and not self.board.experiment.finished

    @property
    def view(self) -> ArmView | None:
        """The selected arm."""
        return self.comparison.arm(self.selected) if self.comparison is not None else None

    def update(self) -> None:
        if not self.is_mounted:
            return
        self._derive()
        self.give_heights()
        super().update()

    def _derive(self) -> None:
        """The comparison anew where the state is another one; and an arm that is selected."""
        state = self.state
        if self._drawn and self._drawn[0] is state and self._drawn[1] == self._point:
            return
        self._drawn = (state, self._point)
        self.comparison = compare(state, self._point) if state is not None else None
        if self.comparison is not None and self.view is None:
            live = self.comparison.live
            self.selected = (live or self.comparison.arms[0]).letter if self.comparison.arms else None
        self._show()

    def _show(self) -> None:
        comparison = self.comparison
        self.query_one(BenchHead).show(comparison)
        self.query_one(Arms).show(comparison, self.selected)
        self.query_one(VerdictStrip).show(comparison, self.selected)
        self.query_one(RunDots).show(comparison)
        self.query_one(EconomicsPlot).show(comparison)
        self.query_one(LivePlot).show(comparison)

    def on_resize(self) -> None:
        self.give_heights()

    def plots(self) -> list[type[Painted]]:
        """Plots that have something to show, the one that a person asked for first."""
        comparison = self.comparison
        if comparison is None:
            return []
        others: list[type[Painted]] = []
        if payoffs(comparison):
            others.append(EconomicsPlot)
        if comparison.live is not None and comparison.live.live is not None:
            others.append(LivePlot)
        if self.size.width < CARDS_FROM:
            others.insert(0, RunDots)
        turn = self._plot % len(others) if others else 0
        return [*others[turn:], *others[:turn]]

    def give_heights(self) -> None:
        """Gives each part its rows; nothing is laid out anew while they stay the same."""
        width, height = self.size
        if not width or not height:
            return
        comparison = self.comparison
        start, plots = self.query_one(BenchStart), self.query_one("#plots")
        shown = self.plots()
        wide = width >= CARDS_FROM
        visible = ([RunDots] if wide else []) + shown[:1]
        rows = self._rows(width, height, comparison) if comparison is not None else (0, 0, 0, 0, 0)
        wanted = (comparison is None, tuple(visible), rows, width, height)
        if wanted == self._arrangement:
            return
        self._arrangement = wanted
        head, arms, verdicts = self.query_one(BenchHead), self.query_one(Arms), self.query_one(VerdictStrip)
        start.display = comparison is None
        for part in (head, arms, verdicts, plots):
            part.display = comparison is not None
        if comparison is None:
            return
        head_rows, gap, arm_rows, verdict_rows, plot_rows = rows
        head.styles.height = head_rows
        arms.styles.height = arm_rows
        arms.styles.margin = (gap, 0, 0, 0)
        verdicts.styles.height = verdict_rows
        verdicts.styles.margin = (gap, 0, 0, 0)
        plots.display = plot_rows >= _LEAST_PLOT
        plots.styles.height = max(1, plot_rows)
        plots.styles.margin = (gap, 1, 0, 1)
        for kind in (RunDots, EconomicsPlot, LivePlot):
            self.query_one(kind).display = kind in visible
        second = self.query_one(visible[1]) if len(visible) > 1 else None
        self.query_one(RunDots).styles.margin = (0, 3 if second is not None else 0, 0, 0)

    def _rows(self, width: int, height: int, comparison: Comparison) -> tuple[int, int, int, int, int]:
        """Rows of head, gaps, arms, verdicts and plots."""
        body = height - 2
        gap = 1 if body >= 40 else 0
        head = 3 if body >= 30 and comparison.state.message else 2
        verdicts = min(VerdictStrip.wanted_height(comparison), max(2, body // 5))
        arms = self.query_one(Arms).wanted_height(comparison, width, max(3, body - head - verdicts - 2 * gap))
        plots = body - head - arms - verdicts - 3 * gap
        return head, gap, arms, verdicts, plots

    def footer_keys(self) -> Keys:
        names: tuple[str, ...]
        if self.state is None:
            names = ("b", "E", "l", "1", "3", "?", "^P", "q")
        elif self.running:
            names = ("space", "v", "Enter", "P", "x", "S", "p", "?", "^P", "q")
        else:
            names = ("b", "E", "v", "Enter", "x", "c", "p", "?", "^P", "q")
        return keys(*names, where="bench")

    # -- actions ---------------------------------------------------------------------------------------------------

    def action_arm(self, step: int) -> None:
        """The next or previous arm."""
        if self.comparison is None or not self.comparison.arms:
            return
        letters = [view.letter for view in self.comparison.arms]
        at = letters.index(self.selected) if self.selected in letters else 0
        self.selected = letters[(at + step) % len(letters)]
        self._show()

    def action_load(self, step: int) -> None:
        """The next or previous load of the bench."""
        comparison = self.comparison
        if comparison is None:
            return
        points = comparison.state.bench.points
        if len(points) < 2:
            self.eagle.say("This bench has one load")
            return
        self._point = points[(points.index(comparison.point) + step) % len(points)]
        self.update()

    def action_plot(self) -> None:
        """The next of the plots that share a place."""
        self._plot += 1
        self.update()
