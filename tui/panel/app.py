"""The panel: its modes and actions, put together from connection, displayed run, launcher and bench control."""

import functools
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast

from textual.app import SystemCommand
from textual.binding import BindingType
from textual.screen import Screen

from tui import format as fmt
from tui.panel.bench_control import Measuring
from tui.panel.connection import Connection
from tui.panel.displayed_run import DisplayedRun
from tui.panel.host_app import HostApp, OpenSession, open_real_session
from tui.panel.host_view import Board, run_name
from tui.panel.keys import bindings
from tui.panel.launcher import Launcher
from tui.panel.screens.base import Mode

if TYPE_CHECKING:
    from tui.core.model.profile import BenchProfile
    from tui.core.model.run import Run
    from tui.core.profiles.launch_profile import LaunchProfile
    from tui.core.profiles.load import ProfileEntry
    from tui.core.server.launch import LaunchPlan
    from tui.panel.open_log import Beside, LogSource
    from tui.panel.protocol import Panel

_MODES = ("dashboard", "logs", "profiles", "bench")


def _mode(name: str, board: Board) -> Mode:
    """A mode's screen; its module is imported when it is first shown."""
    module = import_module(f"tui.panel.screens.{name}")
    return cast("Callable[[Board], Mode]", getattr(module, name.capitalize()))(board)


class EagleApp(HostApp):
    """The panel on one host at a time.

    Args:
        host: name of the host to show.
        profiles_dir: directory searched for profiles before the others.
        open_session, theme, bell: as for `HostApp`.
    """

    BINDINGS: ClassVar[list[BindingType]] = bindings("everywhere", *"1234lrbSoh")

    def __init__(
        self,
        host: str,
        *,
        profiles_dir: Path | None = None,
        open_session: OpenSession = open_real_session,
        theme: str = "dark",
        bell: bool = True,
    ) -> None:
        super().__init__(host, open_session=open_session, theme=theme, bell=bell)
        self.displayed = DisplayedRun(self)
        self.connection = Connection(self, opened=self._session_opened, runs_read=self._runs_read)
        self.launcher = Launcher(self, self.connection, self.displayed.watch)
        self.measure = Measuring(self, self.connection, self.profile_dirs)
        self._profiles_dir = profiles_dir

    def show_first(self) -> None:
        for name in _MODES:
            self.add_mode(name, functools.partial(_mode, name, self.board))
        self.switch_mode("dashboard")

    def connect(self) -> None:
        self.connection.connect()

    def _session_opened(self) -> None:
        self.displayed.forget()
        self.measure.read_stored()

    def _runs_read(self) -> None:
        self.displayed.choose()
        self.measure.resume_following()

    # -- actions ---------------------------------------------------------------------------------------------------

    def action_mode(self, name: str) -> None:
        self.switch_mode(name)
        self.touch()

    def action_launch(self) -> None:
        """Launch: the profile under the cursor, else pick one."""
        self.launcher.preview()

    def action_replace(self) -> None:
        """Stop our server and launch in its place; without a link, connect again."""
        if self.board.connected:
            self.launcher.preview(replace=True)
        else:
            self.connection.reconnect()

    def action_override(self) -> None:
        self.launcher.preview(edit=True)

    def action_apply(self) -> None:
        """The suggested change as an override of the same profile, shown before it is launched."""
        self.launcher.preview_suggested_change()

    def action_stop(self) -> None:
        self.launcher.ask_to_stop()

    def action_server(self, step: int) -> None:
        """The next or previous live server of this host."""
        self.displayed.step(step)

    def action_reconnect(self) -> None:
        self.connection.reconnect()

    def action_hosts(self) -> None:
        from tui.panel.screens.host_picker import HostPicker

        running = len(self.board.live_servers())

        def chosen(name: str | None) -> None:
            if name and name != self.board.host:
                self.connection.change_host(name)

        self.push_screen(HostPicker(self.board.host, running), chosen)

    def action_bench(self) -> None:
        """Measure the running server: choose a bench first; what is measured is on the bench screen."""
        self.action_mode("bench")
        if self.measure.under_way:
            return
        from tui.panel.screens.bench_dialogs import BenchDialog

        def chosen(bench: "BenchProfile | None") -> None:
            if bench is not None:
                self.measure.start_bench(bench)

        self.push_screen(BenchDialog(), chosen)

    def farewell(self) -> str | None:
        state = self.board.state
        parts = []
        if state is not None and self.board.alive:
            run = state.run
            pid = f", PID {run.pid}" if run.pid is not None else ""
            name = "" if self.board.local else f" {self.board.host}"
            where = f"on {self.board.host} (run {run.short_id}{pid})"
            parts.append(f"{run.profile or run.run_id} keeps running {where}. eagletui{name} shows it again.")
        if measured := self.measure.farewell():
            parts.append(measured)
        return " ".join(parts) or None

    # -- what screens ask ------------------------------------------------------------------------------------------

    def profile_dirs(self) -> list[Path]:
        """Directories searched for profiles."""
        from tui.core.config import profile_dirs

        return profile_dirs(self._profiles_dir)

    def profile_entries(self) -> "list[ProfileEntry]":
        """Every profile found, broken ones too."""
        from tui.core.profiles.load import discover

        return discover(self.profile_dirs())

    async def make_plan(self, profile: "LaunchProfile", sets: Sequence[str]) -> "LaunchPlan":
        """The exact command and the findings. Raises EagletuiError."""
        return await self.launcher.make_plan(profile, sets)

    def show_log(self, line: int | None) -> None:
        """The logs mode, at a line of the file."""
        self.switch_mode("logs")

        def at_line() -> None:
            from tui.panel.screens.logs import Logs

            if line is not None and isinstance(self.screen, Logs):
                self.screen.go_to_line(line)

        self.call_after_refresh(at_line)

    def log_source(self) -> "LogSource | None":
        """A log that is displayed without being watched: `eagletui logs` has one."""
        return None

    def logs_beside(self) -> "list[Beside]":
        """What can be shown beside the log: other runs of this host."""
        from tui.panel.open_log import Beside

        present = self.board.run.run_id if self.board.run is not None else None
        return [
            Beside(
                f"run {run.short_id}",
                f"{run_name(run)}, {run.state}, {fmt.day_clock(run.started_at, self.board.utc_offset_s)}",
                source=functools.partial(self._log_of, run),
            )
            for run in self.board.runs
            if run.run_id != present and run.log_path is not None
        ]

    def _log_of(self, run: "Run") -> "LogSource | None":
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

    def show_gpus(self) -> None:
        """Clocks, links, throttling and processes of each GPU."""
        from tui.panel.screens.details import gpu_rows
        from tui.panel.screens.dialog import Facts

        self.push_screen(Facts("GPUs", gpu_rows(self.board)))

    def show_run(self) -> None:
        """The displayed run: command, files, times."""
        import shlex

        from tui.panel.screens.details import run_rows
        from tui.panel.screens.dialog import Facts

        state = self.board.state
        if state is not None:
            self.push_screen(Facts("Run", run_rows(self.board, state), shlex.join(state.run.argv)))

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The palette: every command, the themes, and the newest runs of the host."""
        yield from super().get_system_commands(screen)
        for run in self.board.runs[:20]:
            about = f"{run.profile or run.run_id} on {run.host}, {run.state}"
            yield SystemCommand(f"show run {run.short_id}", about, functools.partial(self.displayed.pick, run))


if TYPE_CHECKING:

    def _offers(app: EagleApp) -> Panel:  # checked here, as no screen may know the app
        return app


def run_panel(host: str, profiles_dir: Path | None) -> int:
    """Opens the panel on a host; returns the exit code."""
    from tui.core.config import load_settings

    settings = load_settings()
    app = EagleApp(host, profiles_dir=profiles_dir, theme=settings.theme, bell=settings.bell)
    app.run()
    return app.return_code or 0
