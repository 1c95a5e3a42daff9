"""A host with all that the panel does on it: it is read, a run is displayed, servers launched, stopped and measured."""

import functools
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from tui import format as fmt
from tui.core.model.run import short_id
from tui.panel.bench_control import Measuring
from tui.panel.connection import Connection
from tui.panel.displayed_run import DisplayedRun
from tui.panel.host_app import HostApp
from tui.panel.host_view import run_name
from tui.panel.launcher import Launcher
from tui.panel.open_host import OpenHost
from tui.panel.tuning import Tuning

if TYPE_CHECKING:
    from pathlib import Path

    from tui.core.groups.session import GroupPlan, GroupSession
    from tui.core.model.run import Run
    from tui.panel.open_log import Beside, LogSource


class PanelHost(OpenHost):
    """Put together from connection, displayed run, launcher and bench control.

    Args:
        profile_dirs: directories searched for profiles.
        launch_group: carries out the launch of a group, which is about several hosts.
        reach: a session over several hosts; those that are not open are opened.
    """

    def __init__(
        self,
        app: HostApp,
        name: str,
        profile_dirs: "Callable[[], list[Path]]",
        launch_group: "Callable[[GroupPlan, bool], None]",
        reach: "Callable[[Sequence[str]], Awaitable[GroupSession]]",
    ) -> None:
        super().__init__(app, name)
        self.displayed = DisplayedRun(self)
        self.connection = Connection(self, opened=self._session_opened, runs_read=self._runs_read)
        self.launcher = Launcher(self, self.connection, self.displayed.watch, launch_group)
        self.measure = Measuring(self, self.connection, profile_dirs, reach)
        self.tuning = Tuning(self, self.measure, profile_dirs, reach)
        self._stored_due = False

    def _session_opened(self) -> None:
        self.displayed.forget()
        self._stored_due = True

    def look(self) -> None:
        """Its own panel is on the screen from now on: reads what nobody needs before."""
        self.connection.show_refusal()
        if self._stored_due:
            self._stored_due = False
            self.measure.read_stored()

    def _runs_read(self) -> None:
        if self.app.displays(self.board):
            self.look()
        self.displayed.choose()
        self.measure.resume_following()

    def farewell(self) -> str | None:
        """What keeps running on this host when the panel is quit."""
        board, parts = self.board, []
        if board.state is not None and board.alive:
            run = board.state.run
            pid = f", PID {run.pid}" if run.pid is not None else ""
            name = "" if board.local else f" {board.host}"
            where = f"on {board.host} (run {run.short_id}{pid})"
            if board.group is not None:
                where = f"on {', '.join(board.group.hosts)} (group {short_id(board.group.group_id)})"
            if board.group is None or run.run_id == board.group.serving.run_id:  # which says it for all
                does = "is being stopped, which the host does by itself," if board.stopping else "keeps running"
                parts.append(f"{run.profile or run.run_id} {does} {where}. eagletui{name} shows it again.")
        if measured := self.measure.farewell():
            parts.append(measured)
        return " ".join(parts) or None

    def logs_beside(self) -> "list[Beside]":
        """What can be shown beside the log: other runs of this host."""
        from tui.panel.open_log import Beside

        board = self.board
        present = board.run.run_id if board.run is not None else None
        return [
            Beside(
                f"run {run.short_id}",
                f"{run_name(run)}, {run.state}, {fmt.day_clock(run.started_at, board.utc_offset_s)}",
                source=functools.partial(self.log_of, run),
            )
            for run in board.runs
            if run.run_id != present and run.log_path is not None
        ]

    def log_of(self, run: "Run") -> "LogSource | None":
        """The log of one of its runs; None without a session."""
        from tui.panel.open_log import LogSource

        file = self.session.open_log(run) if self.session is not None else None
        if file is None:
            return None

        def now() -> "Run":
            known = [self.board.run, *self.board.runs]
            return next((one for one in known if one is not None and one.run_id == run.run_id), run)

        def last_words() -> tuple[str, str | None] | None:
            return self.board.end_of(now())

        return LogSource(f"run {run.short_id}", file, lambda: now().over, last_words)
