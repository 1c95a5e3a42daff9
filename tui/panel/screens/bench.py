"""Bench: the arms of a comparison side by side, live; its verdicts, every run, and whether speculation pays."""

from typing import TYPE_CHECKING, ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal

from tui.core.model.experiment import ExperimentState
from tui.core.model.profile import LoadPoint
from tui.core.text import one_line
from tui.panel.bench_view import ArmView, Comparison, compare
from tui.panel.host_view import Board
from tui.panel.keys import bindings, keys
from tui.panel.protocol import Subject
from tui.panel.screens.base import Mode
from tui.panel.widgets.bench.arm_card import CARDS_FROM, Arms
from tui.panel.widgets.bench.capacity_plot import CapacityPlot
from tui.panel.widgets.bench.economics_plot import EconomicsPlot
from tui.panel.widgets.bench.head import BenchHead
from tui.panel.widgets.bench.live_plot import LivePlot
from tui.panel.widgets.bench.many_arms import ManyArms, many
from tui.panel.widgets.bench.run_dots import RunDots
from tui.panel.widgets.bench.start import BenchStart
from tui.panel.widgets.bench.verdict_strip import VerdictStrip
from tui.panel.widgets.footer import Keys
from tui.panel.widgets.paint import Painted

if TYPE_CHECKING:
    from tui.panel.bench_view import Preview

_LEAST_PLOT = 4  # rows: below that a plot says nothing


class Bench(Mode):
    """Cards from 100 columns on, rows below; two plots side by side, one below 100 columns."""

    NAME = "Bench"
    BINDINGS: ClassVar[list[BindingType]] = bindings("bench")

    def __init__(self, board: Board) -> None:
        super().__init__(board)
        self.comparison: Comparison | None = None
        self.selected: str | None = None
        self._followed = True  # the selection goes with what is measured until a person selects
        self._point: LoadPoint | None = None
        self._plot = 0
        self._drawn: tuple[object, ...] = ()
        self._arrangement: tuple[object, ...] = ()

    def content(self) -> ComposeResult:
        yield BenchStart(self.board)
        yield BenchHead()
        yield Arms()
        yield ManyArms()
        yield VerdictStrip()
        with Horizontal(id="plots"):
            yield CapacityPlot()
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
        """Compares again where the state is another one, and selects an arm."""
        state = self.state
        if self._drawn and self._drawn[0] is state and self._drawn[1] == self._point:
            return
        self._drawn = (state, self._point)
        self.comparison = compare(state, self._point or self._live_point()) if state is not None else None
        if self.comparison is not None and self.comparison.arms:
            live = self.comparison.live
            if live is not None and self._followed:
                self.selected = live.letter
            elif self.view is None:
                self.selected = self.comparison.arms[0].letter
        self._show()

    def _live_point(self) -> LoadPoint | None:
        """The load that is measured now, or was shown before: until a person asks for another one, the screen follows it."""
        live = next((arm.live for arm in self.state.arms if arm.live is not None), None) if self.state else None
        if live is not None:
            return live.point
        return self.comparison.point if self.comparison is not None else None

    def _show(self) -> None:
        comparison = self.comparison
        self.query_one(BenchHead).show(comparison)
        self.query_one(Arms).show(comparison, self.selected)
        table = self.query_one(ManyArms)
        table.selected = self.selected
        table.show(comparison)
        self.query_one(VerdictStrip).show(comparison, self.selected)
        self.query_one(RunDots).show(comparison)
        self.query_one(CapacityPlot).show(comparison)
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
        if comparison.economics:
            others.append(EconomicsPlot)
        if comparison.live is not None and comparison.live.live is not None:
            others.append(LivePlot)
        if comparison.point.search is not None:
            if sum(len(view.results) for view in comparison.arms) > 1:
                others.append(RunDots)
            if self.size.width < CARDS_FROM:
                others.insert(0, CapacityPlot)
        elif self.size.width < CARDS_FROM and not many(comparison):
            # the runs first, but of a single arm what it does now
            others.insert(1 if len(comparison.arms) == 1 and others else 0, RunDots)
        turn = self._plot % len(others) if others else 0
        return [*others[turn:], *others[:turn]]

    @staticmethod
    def _lead(comparison: Comparison | None) -> type[Painted]:
        """The plot that has a place of its own on a wide screen."""
        return CapacityPlot if comparison is not None and comparison.point.search else RunDots

    def give_heights(self) -> None:
        """Gives each part its rows; nothing is laid out again while they stay the same."""
        width, height = self.size
        if not width or not height:
            return
        comparison = self.comparison
        start, plots = self.query_one(BenchStart), self.query_one("#plots")
        shown = self.plots()
        wide = width >= CARDS_FROM
        table = many(comparison)
        visible = shown[: 2 if wide else 1] if table else ([self._lead(comparison)] if wide else []) + shown[:1]
        rows = self._rows(width, height, comparison) if comparison is not None else (0, 0, 0, 0, 0)
        wanted = (comparison is None, table, tuple(visible), rows, width, height)
        if wanted == self._arrangement:
            return
        self._arrangement = wanted
        head, verdicts = self.query_one(BenchHead), self.query_one(VerdictStrip)
        arms: Painted = self.query_one(ManyArms) if table else self.query_one(Arms)
        start.display = comparison is None
        for part in (head, self.query_one(Arms), self.query_one(ManyArms), verdicts, plots):
            part.display = comparison is not None and (part is arms or not isinstance(part, Arms | ManyArms))
        if comparison is None:
            return
        head_rows, gap, arm_rows, verdict_rows, plot_rows = rows
        head.styles.height = head_rows
        arms.styles.height = arm_rows
        arms.styles.margin = (gap, 0, 0, 0)
        verdicts.styles.height = verdict_rows
        verdicts.styles.margin = (gap, 0, 0, 0)
        plots.display = plot_rows >= (2 * _LEAST_PLOT if table else _LEAST_PLOT) and bool(visible)
        plots.styles.height = max(1, plot_rows)
        plots.styles.margin = (gap, 1, 0, 1)
        for kind in (RunDots, CapacityPlot, EconomicsPlot, LivePlot):
            self.query_one(kind).display = kind in visible
            self.query_one(kind).styles.margin = (0, 3 if kind is visible[0] and len(visible) > 1 else 0, 0, 0)

    def _rows(self, width: int, height: int, comparison: Comparison) -> tuple[int, int, int, int, int]:
        """Rows of head, gaps, arms, verdicts and plots."""
        body = height - 2
        gap = 1 if body >= 40 else 0
        head = 3 if body >= 30 and BenchHead.message(comparison.state) else 2
        verdicts = min(VerdictStrip.wanted_height(comparison), max(2, body // 5))
        shown = self.query_one(ManyArms) if many(comparison) else self.query_one(Arms)
        arms = shown.wanted_height(comparison, width, max(3, body - head - verdicts - 2 * gap))
        plots = body - head - arms - verdicts - 3 * gap
        return head, gap, arms, verdicts, plots

    def footer_keys(self) -> Keys:
        names: tuple[str, ...]
        if self.state is None:
            names = ("b", "E", "l", "?", "^P", "q")
        elif self.running and self.eagle.measure.launches:
            names = ("space", "v", "Enter", "P", "x", "S", "p", "?", "^P", "q")
        elif self.running and self.state.driver is not None:
            names = ("v", "Enter", "x", "p", "?", "^P", "q")
        elif self.running:
            names = ("Enter", "x", "S", "p", "?", "^P", "q")
        else:
            pair = ("P",) if self.state.experiment_id and len(self.state.arms) > 1 else ()
            names = ("b", "E", "v", "Enter", *pair, "x", "c", "p", "?", "^P", "q")
        return keys(*names, where="bench")

    # -- actions ---------------------------------------------------------------------------------------------------

    def action_arm(self, step: int) -> None:
        """The next or previous arm."""
        if self.comparison is None or not self.comparison.arms:
            return
        letters = [view.letter for view in self.comparison.arms]
        at = letters.index(self.selected) if self.selected in letters else 0
        self._followed = False
        self.selected = letters[(at + step) % len(letters)]
        self._show()
        self.update()

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

    def action_open(self) -> None:
        """The runs of the selected arm with their guards; on an empty screen, the experiments."""
        view = self.view
        if view is None:
            self.action_experiments()
            return
        from tui.panel.screens.bench_details import record_rows
        from tui.panel.screens.dialog import Facts

        self.app.push_screen(Facts(f"Runs of {view.letter}", record_rows(view)))

    def action_verdict(self) -> None:
        """What the selected arm's verdict says and rests on."""
        view = self.view
        if view is None or self.comparison is None:
            self.eagle.say("Nothing was measured here yet")
            return
        from tui.panel.screens.bench_details import verdict_rows
        from tui.panel.screens.dialog import Facts

        self.app.push_screen(Facts("Verdict", verdict_rows(self.comparison, self._compared(view))))

    def _compared(self, view: ArmView) -> ArmView:
        """The arm whose verdict is shown: of a reference, the first that is compared with it."""
        assert self.comparison is not None
        if view.arm.against is not None:
            return view
        return next((other for other in self.comparison.arms if other.arm.against == view.letter), view)

    def action_pause(self) -> None:
        """Pauses once the current launch is measured, or continues."""
        if self._is_read_only():
            return
        paused = self.eagle.measure.pause()
        if paused is None:
            self.eagle.say("No experiment is running: nothing to pause")
        elif paused:
            self.eagle.say("Pauses when this launch is measured; space continues")

    def _is_read_only(self) -> bool:
        """Whether another process runs what is shown; says so."""
        state = self.board.experiment
        if state is None or not self.running or state.driver is None:
            return False
        from tui.panel.bench_control import read_only

        self.eagle.say(read_only(state))
        return True

    def action_pair(self) -> None:
        """One more launch pair of each comparison."""
        self.eagle.measure.one_more_pair(self.state)

    def action_stop(self) -> None:
        """Ends what is measured; else stops the current server, as everywhere."""
        if self._is_read_only():
            return
        state = self.board.experiment
        if state is None or not self.running:
            self.app.run_worker(self.app.run_action("app.stop"))
            return
        from tui.panel.screens.dialog import Confirm
        from tui.panel.widgets.rows import facts_of

        view = self.comparison.live if self.comparison is not None else None
        own = self.eagle.measure.launches
        facts = [("host", self.board.host), ("measures", state.name)]
        if view is not None:
            facts.append(("now", f"{view.letter}, {view.arm.profile}"))
        run = self.board.run
        if run is not None and own:
            facts += [("server", f"run {run.short_id}, PID {run.pid if run.pid is not None else '–'}")]
        after = (
            "The measurement and the server that was launched for it end. What was measured stays; E, then r, resumes."
            if own
            else "The load generator ends, the server keeps running. Completed runs stay."
        )
        dialog = Confirm(
            ("■ STOP", "warn!"),
            f"End this measurement on {self.board.host}?",
            [*facts_of(facts), [], [(after, "muted")]],
            "No, let it run",
            "Yes, end it",
        )
        self.app.push_screen(dialog, lambda yes: self.eagle.measure.stop() if yes else None)

    def action_experiments(self) -> None:
        """Experiment profiles, with their order and time."""
        from tui.panel.screens.bench_dialogs import ExperimentDialog

        def chosen(answer: "tuple[Preview, bool] | None") -> None:
            if answer is None:
                return
            preview, resume = answer
            if resume:
                self.eagle.start_experiment(preview, resume=True)
            else:
                from tui.panel.screens.plan import Plan

                self.app.push_screen(Plan(self.board, preview))

        self.app.push_screen(ExperimentDialog(), chosen)

    @work(exclusive=True, group="choose", exit_on_error=False)
    async def action_choose(self) -> None:
        """Stored configurations, up to four side by side."""
        if self.running:
            self.eagle.say("A measurement is running; stored results can be chosen when it is done")
            return
        found = await self.eagle.measure.configurations()
        if not found:
            self.eagle.say(f"Nothing is stored of {self.board.host} yet")
            return
        from tui.panel.screens.bench_dialogs import ArmsDialog

        chosen = await self.app.push_screen_wait(ArmsDialog(found))
        if chosen:
            await self.eagle.measure.show(chosen)

    def action_export(self) -> None:
        """Writes the current results as CSV and Markdown into the data directory."""
        if self.state is None:
            self.eagle.say("Nothing was measured here yet")
            return
        self.eagle.measure.export(self.state)

    def about(self) -> Subject:
        """The experiment, else the newest result of the selected arm."""
        state, view = self.state, self.view
        if state is not None and len(state.arms) > 1 and state.experiment_id:
            return Subject(f"experiment:{state.experiment_id}", f"experiment {one_line(state.name, 80)}")
        if view is None or not view.arm.results:
            return super().about()
        result = view.arm.results[-1]
        return Subject(f"result:{result.result_id}", f"result {result.result_id} of {view.arm.profile}")

    def copied_text(self) -> tuple[str, str] | None:
        """The selected arm's verdict, else nothing."""
        view = self.view
        if view is None or view.verdict is None:
            return None
        return view.verdict.text, "verdict"

    def on_screen_resume(self) -> None:
        if self.board.measured is None and not self.running:
            self.eagle.measure.read_stored()
