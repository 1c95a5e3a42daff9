"""Dashboard: the host, its GPUs, the server and the newest lines of its log."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container

from tui.core.model.phases import Outcome
from tui.panel.host_view import Board
from tui.panel.keys import bindings, keys, moving
from tui.panel.screens.base import Mode
from tui.panel.widgets.crash_card import CrashCard
from tui.panel.widgets.footer import Keys
from tui.panel.widgets.gpu_panel import GpuPanel
from tui.panel.widgets.host_line import HostLine
from tui.panel.widgets.log.view import LogView
from tui.panel.widgets.ranks import RanksPanel
from tui.panel.widgets.server_card import ServerCard

_HEIGHTS = [(0, "-short"), (40, "-tall")]
_LOG_ROWS = 5  # title and four lines: below that the panels give way


class Dashboard(Mode):
    """Two panels over a full-width log from 150 columns on; stacked below; one column below 100."""

    NAME = "Dashboard"
    VERTICAL_BREAKPOINTS = _HEIGHTS
    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings("dashboard"),
        *moving(*(f"log('{action}')" for action in ("move(1)", "move(-1)", "page(1)", "page(-1)", "top", "bottom"))),
    ]

    def __init__(self, board: Board) -> None:
        super().__init__(board)
        self._arrangement: tuple[object, ...] = ()
        self._aside: str | None = None  # id of a crashed run whose report was put aside

    def content(self) -> ComposeResult:
        yield HostLine(self.board)
        yield CrashCard(self.board)
        with Container(id="top"):
            yield ServerCard(self.board)
            with Container(id="right"):
                yield GpuPanel(self.board)
                yield RanksPanel(self.board)
        yield LogView(self.board)

    @property
    def crashed(self) -> bool:
        """True where the report of a crash takes the place of the panels."""
        state = self.board.state
        return (
            state is not None
            and state.outcome is Outcome.CRASHED
            and state.diagnosis is not None
            and state.run.run_id != self._aside
            and self.board.stop is None
            and self.board.busy is None  # what takes its place is being launched
        )

    @property
    def put_aside(self) -> bool:
        """True where there is a report of a crash that is not displayed."""
        state = self.board.state
        return state is not None and state.outcome is Outcome.CRASHED and state.run.run_id == self._aside

    def footer_keys(self) -> Keys:
        state = self.board.state
        if not self.board.connected and self.board.link is not None:
            return keys("r", "h", "?", "^P", "q", where="refused or lost link")
        if self.crashed:
            suggested = keys("a", where="dashboard") if state and state.diagnosis and state.diagnosis.set else ()
            report = (
                ("Enter", "evidence"),
                ("y", "copy report"),
                ("l", "launch"),
                ("2", "full log"),
                ("Esc", "panels"),
            )
            return (*suggested, *report, *keys("?", "^P", "q"))
        if state is None:
            return keys("l", "3", "h", "p", "?", "^P", "q", where="dashboard")
        back = (("Esc", "report"),) if self.put_aside else ()
        ended = state.outcome in (Outcome.CRASHED, Outcome.STOPPED, Outcome.FINISHED, Outcome.LOST)
        running = () if ended and not state.run.orphans else ("r", "S")
        place, count = self.board.place()
        others = ("[ ]",) if count > (1 if place is not None else 0) else ()
        measurable = ("b",) if state.outcome is Outcome.READY else ()
        shown = keys("l", *measurable, *running, *others, "/", "f", "Enter", "?", "^P", "q", where="dashboard")
        return (*back, *shown)

    def update(self) -> None:
        if not self.is_mounted:
            return
        self.give_heights()
        self.query_one(LogView).update()
        super().update()

    def on_resize(self) -> None:
        self.give_heights()

    def give_heights(self) -> None:
        """Gives each panel its height and the screen the classes of its layout; nothing is laid out again while that stays the same."""
        width, height = self.size
        if not width or not height:
            return
        server, gpus = self.query_one(ServerCard), self.query_one(GpuPanel)
        crash, log = self.query_one(CrashCard), self.query_one(LogView)
        layout, rows, (gap_over_gpus, gap_over_log) = self._layout(width, height, server, gpus)
        wide = layout == "wide"
        gpu_rows = gpus.wanted_height(title=layout != "narrow")
        crash_rows = min(height - 3, crash.wanted_height(width, height)) if self.crashed else 0
        wanted = (layout, rows, gap_over_gpus, gap_over_log, crash_rows, gpu_rows, width, height)
        if wanted == self._arrangement:
            return
        self._arrangement = wanted
        self.set_class(wide, "-wide")
        self.set_class(bool(crash_rows), "-crashed")
        self.set_class(bool(gap_over_gpus), "-gap-over-gpus")
        self.set_class(bool(gap_over_log), "-gap-over-log")
        server.styles.height = rows
        gpus.styles.height = gpu_rows
        crash.styles.height = crash_rows
        self.query_one("#top").styles.height = rows if wide else rows + gap_over_gpus + gpu_rows
        self.query_one("#right").styles.height = rows if wide else gpu_rows
        self.query_one(RanksPanel).display = wide and rows - gpu_rows - 2 >= 4
        log.display = not crash_rows or height - 3 - crash_rows - (1 if height >= 40 else 0) >= 3

    def _layout(self, width: int, height: int, server: ServerCard, gpus: GpuPanel) -> tuple[str, int, tuple[int, int]]:
        """Layout, rows of the server card, and blank rows over GPUs and log."""
        room = height - 3 - _LOG_ROWS
        if width >= 150 and room - 2 >= 18:
            rows = max(server.wanted_height("wide", room=room - 2), gpus.wanted_height(title=True))
            return "wide", min(rows, room - 2), (0, 1)
        if width >= 100:
            rows, under = server.wanted_height("mid"), gpus.wanted_height(title=True)
            if rows + under <= room:
                spare = room - rows - under
                return "mid", rows, (1 if spare else 0, 1 if spare > 1 else 0)
        rows, under = 4, gpus.wanted_height(title=False)
        return "narrow", rows, (1 if rows + under < height - 7 else 0, 1 if rows + under < height - 14 else 0)

    def copied_text(self) -> tuple[str, str] | None:
        """The log line under the cursor, where there is one."""
        view = self.query_one(LogView)
        record = view.current_record() if view.has_focus and view.current is not None else None
        return (record.text, "line") if record is not None else None

    # -- actions ---------------------------------------------------------------------------------------------------

    async def action_log(self, action: str) -> None:
        """Moves in the log, wherever the focus is."""
        await self.app.run_action(action, self.query_one(LogView))

    def action_follow(self) -> None:
        """Follow the newest line, or hold still."""
        self.query_one(LogView).action_follow()

    def action_power(self) -> None:
        """Utilisation or power in the history."""
        panel = self.query_one(GpuPanel)
        panel.power = not panel.power
        panel.repaint()

    def action_back(self) -> None:
        """Puts the report of a crash aside, or shows it again; else leaves the panel that has the focus."""
        state = self.board.state
        if self.focused is not None:
            self.set_focus(None)
        elif state is not None and state.outcome is Outcome.CRASHED:
            self._aside = None if self._aside == state.run.run_id else state.run.run_id
            self.update()

    def action_open(self) -> None:
        """The evidence of a crash, the log at the current line, or more about the panel that has the focus."""
        state = self.board.state
        if isinstance(self.focused, GpuPanel):
            self.eagle.show_gpus()
        elif isinstance(self.focused, ServerCard) and state is not None:
            self.eagle.show_run()
        else:
            line = None
            if self.crashed and state and state.diagnosis and state.diagnosis.evidence:
                line = state.diagnosis.evidence.line
            else:
                view = self.query_one(LogView)
                record = view.current_record() if view.current is not None else None
                log = self.board.log.file.tail if self.board.log is not None else None
                line = log.number_of(record) if record is not None and log is not None else None
            self.eagle.show_log(line)
