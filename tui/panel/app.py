"""The panel: its hosts, their modes, and the actions of the displayed one."""

import functools
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast

from textual.app import SystemCommand
from textual.binding import BindingType
from textual.screen import Screen

from tui.panel.gate import as_markup
from tui.panel.group_control import GroupControl
from tui.panel.group_watch import Groups
from tui.panel.host_app import HostApp, OpenSession, open_real_session
from tui.panel.host_view import Board
from tui.panel.kept_runs import KeptRuns
from tui.panel.keys import Key, bindings
from tui.panel.panel_host import PanelHost
from tui.panel.screens.base import Mode

if TYPE_CHECKING:
    from tui.core.groups.session import GroupPlan
    from tui.core.model.profile import BenchProfile
    from tui.core.profiles.launch_profile import LaunchProfile
    from tui.core.profiles.load import ProfileEntry
    from tui.core.server.launch import LaunchPlan
    from tui.core.server.session import HostSession
    from tui.panel.bench_control import Measuring
    from tui.panel.bench_view import Preview
    from tui.panel.connection import Connection
    from tui.panel.displayed_run import DisplayedRun
    from tui.panel.journal_control import JournalControl
    from tui.panel.launcher import Launcher
    from tui.panel.open_group import OpenGroup
    from tui.panel.open_log import Beside, LogSource
    from tui.panel.protocol import Panel
    from tui.panel.tuning import Tuning

_MODES = ("dashboard", "group", "logs", "profiles", "bench", "tune", "journal", "runs")


def _mode(name: str, board: Board) -> Mode:
    """A mode's screen; its module is imported when it is first shown."""
    module = import_module(f"tui.panel.screens.{name}")
    return cast("Callable[[Board], Mode]", getattr(module, name.capitalize()))(board)


class EagleApp(HostApp):
    """The panel of a host; of several, one panel each, and over them the overview.

    Args:
        hosts: their names, in the order in which they are listed.
        profiles_dir: directory searched for profiles before the others.
        open_session, theme, bell: as for `HostApp`.
    """

    BINDINGS: ClassVar[list[BindingType]] = bindings("everywhere", *"012345nlrbSomh")

    def __init__(
        self,
        *hosts: str,
        profiles_dir: Path | None = None,
        open_session: OpenSession = open_real_session,
        theme: str = "dark",
        bell: bool = True,
    ) -> None:
        super().__init__(open_session=open_session, theme=theme, bell=bell)
        self._profiles_dir = profiles_dir
        self._handed_over: list[str] = []  # experiments that go on without this panel, a sentence each
        self.hosts: list[PanelHost] = []
        self.groups = Groups(lambda: self.hosts, self.open_beside, self.ring)
        self.group_control = GroupControl(self, self.groups)
        self.kept = KeptRuns(self, lambda: self.hosts)
        self.hosts += [self._host(name) for name in dict.fromkeys(hosts)]
        self.shown = self.hosts[0]  # the host that keys and dialogs are about

    def show_first(self) -> None:
        for host in self.hosts:
            self._add_modes(host)
        self.add_mode("overview", self._overview)
        self.switch_mode("overview" if self._several else "dashboard")

    def _host(self, name: str) -> PanelHost:
        return PanelHost(self, name, self.profile_dirs, self.group_control.launch, self.group_control.reach)

    @property
    def _several(self) -> bool:
        return len(self.hosts) > 1

    def _add_modes(self, host: PanelHost) -> None:
        for name in _MODES:
            self.add_mode(self._mode_name(name, host), functools.partial(_mode, name, host.board))

    def _overview(self) -> Mode:
        from tui.panel.screens.overview import Overview

        return Overview(self.board)

    def _mode_name(self, name: str, host: PanelHost) -> str:
        return f"{name} {host.board.host}" if host is not self.hosts[0] else name

    def connect(self) -> None:
        for host in self.hosts:
            host.connection.connect()

    # -- hosts -----------------------------------------------------------------------------------------------------

    @property
    def board(self) -> Board:
        return self.shown.board

    @property
    def boards(self) -> Sequence[Board]:
        return [host.board for host in self.hosts]

    @property
    def session(self) -> "HostSession | None":
        return self.shown.session

    def sessions(self) -> "Iterable[HostSession]":
        return [host.session for host in self.hosts if host.session is not None]

    @property
    def connection(self) -> "Connection":
        """Of the displayed host, as all that follows."""
        return self.shown.connection

    @property
    def displayed(self) -> "DisplayedRun":
        return self.shown.displayed

    @property
    def launcher(self) -> "Launcher":
        return self.shown.launcher

    @property
    def measure(self) -> "Measuring":
        return self.shown.measure

    @property
    def journal(self) -> "JournalControl":
        return self.shown.journal

    @property
    def tuning(self) -> "Tuning":
        return self.shown.tuning

    @property
    def _overlooks(self) -> bool:
        return self.current_mode == "overview"

    def shows(self, board: Board) -> bool:
        return self._overlooks or board is self.board

    def displays(self, board: Board) -> bool:
        return board is self.board and not self._overlooks

    def choose(self, board: Board) -> None:
        """Keys and dialogs are about this host from now on."""
        self.shown = next(host for host in self.hosts if board.host == host.board.host)

    def show_mode(self, name: str, board: Board | None = None) -> None:
        if board is not None:
            self.choose(board)
        if name == "bench":
            self.shown = self._measures_for(self.shown)
        if name in ("dashboard", "group"):
            name = "group" if self._whole_group else "dashboard"
        self.switch_mode(name if name == "overview" else self._mode_name(name, self.shown))
        if name != "overview":
            self.shown.look()

    def _measures_for(self, host: PanelHost) -> PanelHost:
        """The host whose measurements are those of this one: of a server over several, where it is measured."""
        name, group = host.board.host, self.groups.of(host.board)
        if host.measure.under_way:
            return host
        for other in self.hosts:
            if other.measure.under_way and (state := other.board.experiment) is not None and name in state.hosts:
                return other
        return self.groups.host(group.group.serving.host) if group is not None else host

    @property
    def _whole_group(self) -> bool:
        """Whether the dashboard is that of a group, rather than of one member or of a server of its own."""
        return self.group is not None and self.group.at is None

    @property
    def group(self) -> "OpenGroup | None":
        """The group of the run that is displayed."""
        return self.groups.of(self.board)

    def _tick(self) -> None:
        self._look_at_groups()
        super()._tick()

    def _look_at_groups(self) -> None:
        """Takes up what is new of groups; the dashboard becomes that of a group, and back, where its run does."""
        self.groups.look()
        shown = self.current_mode.partition(" ")[0]
        if shown in ("dashboard", "group") and (shown == "group") is not self._whole_group:
            self.show_mode("dashboard")
        elif shown == "bench" and len(self.screen_stack) == 1 and self._measures_for(self.shown) is not self.shown:
            self.show_mode("bench")

    def _show_changes(self) -> None:
        self._look_at_groups()
        super()._show_changes()

    def offers(self, command: Key) -> bool:
        if command.key == "m" and command.where == "everywhere":
            return self.group is not None
        return self._several or (command.where != "overview" and command.key != "0")

    # -- actions ---------------------------------------------------------------------------------------------------

    def action_mode(self, name: str) -> None:
        if name == "overview" and not self._several:
            self.say("One host is open here; eagletui HOST HOST shows several")
            return
        self.show_mode(name)
        self.touch()

    def action_launch(self) -> None:
        """Launch: the profile under the cursor, else pick one; from the overview on a host that is picked first."""
        if not self._overlooks:
            self.launcher.preview()
            return
        from tui.panel.screens.launch_host import LaunchHost

        def chosen(board: Board | None) -> None:
            if board is not None:
                self.choose(board)
                self.launcher.preview()

        self.push_screen(LaunchHost(self.boards, self.board), chosen)

    def action_replace(self) -> None:
        """Stop our server and launch in its place; without a link, connect again."""
        if self.board.connected:
            self.launcher.preview(replace=True)
        else:
            self.connection.reconnect()

    def action_note(self) -> None:
        """A note for the journal on what is shown."""
        from tui.panel.screens.journal_dialogs import note_on

        note_on(self, self)

    def action_override(self) -> None:
        self.launcher.preview(edit=True)

    def action_apply(self) -> None:
        """The suggested change as an override of the same profile, shown before it is launched."""
        state = self.group.state if self.group is not None else None
        if state is not None and state.failed is not None:
            self.group_control.display(state.failed)
            self.choose(self.groups.board_of(state.failed))
        self.launcher.preview_suggested_change()

    def action_stop(self) -> None:
        if self.group is not None:
            self.group_control.ask_to_stop(self.group)
        else:
            self.launcher.ask_to_stop()

    def action_member(self) -> None:
        """The next member of the group, and after the last one the whole of it; in the logs the log of the next one."""
        self.group_control.next_member(self.current_mode.partition(" ")[0])

    def action_server(self, step: int) -> None:
        """The next or previous live server of this host."""
        self.displayed.step(step)

    def action_reconnect(self) -> None:
        self.connection.reconnect()

    def action_hosts(self) -> None:
        from tui.panel.screens.host_picker import HostPicker

        running = len(self.board.live_servers())

        def chosen(name: str | None) -> None:
            if not name or name == self.board.host:
                return
            if self._several:
                self._show_beside(name)
            else:
                self.connection.change_host(name)

        self.push_screen(HostPicker(self.board.host, running), chosen)

    def _show_beside(self, name: str) -> None:
        """The panel of a host that is open, else of another one beside those."""
        host = next((one for one in self.hosts if one.board.host == name), None)
        (host or self.open_beside(name)).show_mode("dashboard")

    def open_beside(self, name: str) -> PanelHost:
        host = self._host(name)
        self.hosts.append(host)
        self._add_modes(host)
        host.connection.connect()
        return host

    def close_host(self) -> None:
        """Takes the host under the cursor off the overview: a name that was mistyped, or a host that is gone."""
        host = self.shown
        if host is self.hosts[0] or host.board.connected or host.measure.under_way:
            why = "it was named first" if host is self.hosts[0] else "it is in use"
            self.say(f"{host.board.host} stays: {why}; only a host that is not reached is taken off")
            return
        modes = [self._mode_name(name, host) for name in _MODES]
        self.hosts.remove(host)
        self.choose(self.hosts[0].board)
        for mode in modes:
            self.remove_mode(mode)
        self.run_job(f"close {host.board.host}", host.connection.close, host.tell)
        self.touch(soon=True)

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

    def start_experiment(self, preview: "Preview", *, resume: bool) -> None:
        """On the host that it is begun on, whose bench screen shows it."""
        host = self.groups.host(preview.host)
        self.show_mode("bench", host.board)
        host.measure.start_experiment(preview, resume=resume)

    async def action_leave(self) -> None:
        """Quits; servers keep running. Asks first what becomes of an experiment that this panel runs."""
        from tui.panel.leaving import question

        if (dialog := question(self.hosts, self.screen)) is None:
            await super().action_leave()
            return

        def answered(answer: str | None) -> None:
            if answer == "quit":
                self.call_later(super(EagleApp, self).action_leave)
            elif answer in ("background", "last launch"):
                self.run_job("detach", functools.partial(self._hand_over, answer == "last launch"), self.tell)

        self.push_screen(dialog, answered)

    async def _hand_over(self, last_launch: bool) -> None:
        """Quits once a process of its own goes on with each experiment of this panel."""
        for host in self.hosts:
            if host.measure.can_detach:
                self.say("Handing the experiment over to a process in the background")
                self._handed_over.append(await host.measure.detach(self._profiles_dir, last_launch=last_launch))
        self.call_later(super().action_leave)

    def farewell(self) -> str | None:
        found = [words for host in self.hosts if (words := host.farewell())]
        return "\n".join([*found, *self._handed_over]) or None

    # -- what screens ask ------------------------------------------------------------------------------------------

    def profile_dirs(self) -> list[Path]:
        """Directories searched for profiles."""
        from tui.core.config import profile_dirs

        return profile_dirs(self._profiles_dir)

    def profile_entries(self) -> "list[ProfileEntry]":
        """Every profile found, broken ones too."""
        from tui.core.profiles.load import discover

        return discover(self.profile_dirs())

    async def make_plan(
        self, profile: "LaunchProfile", sets: Sequence[str], *, reach: bool = True
    ) -> "LaunchPlan | GroupPlan":
        """The exact command and the findings; of a group, of all its members. Raises EagletuiError."""
        if profile.several:
            return await self.group_control.make_plan(profile, sets, reach=reach)
        return await self.launcher.make_plan(profile, sets)

    def show_log(self, line: int | None) -> None:
        """The logs mode, at a line of the file."""
        self.show_mode("logs")

        def at_line() -> None:
            from tui.panel.screens.logs import Logs

            if line is not None and isinstance(self.screen, Logs):
                self.screen.go_to_line(line)

        self.call_after_refresh(at_line)

    def log_source(self) -> "LogSource | None":
        """A log that is displayed without being watched: `eagletui logs` has one."""
        return None

    def logs_beside(self) -> "list[Beside]":
        """What can be shown beside the log: of a group the other members, and other runs of the displayed host."""
        return [*self.group_control.logs_beside(), *self.shown.logs_beside()]

    def open_member(self) -> None:
        """Why a group ended, on the dashboard of the member that did; else the log of the one that serves."""
        self.group_control.open_member()

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
        """The palette: every command, the themes, the other hosts, and the newest runs of the displayed one."""
        yield from super().get_system_commands(screen)
        for host in self.hosts if self._several else ():
            about = "Its dashboard"
            yield SystemCommand(
                as_markup(f"open {host.board.host}"), about, functools.partial(host.show_mode, "dashboard")
            )
        for run in self.board.runs[:20]:
            about = f"{run.profile or run.run_id} on {run.host}, {run.state}"
            yield SystemCommand(
                as_markup(f"show run {run.short_id}"), as_markup(about), functools.partial(self.displayed.pick, run)
            )


if TYPE_CHECKING:

    def _offers(app: EagleApp) -> Panel:  # checked here, as no screen may know the app
        return app


def run_panel(hosts: Sequence[str], profiles_dir: Path | None) -> int:
    """Opens the panel on hosts; returns the exit code."""
    from tui.core.config import chosen_theme, load_settings

    settings = load_settings()
    app = EagleApp(*hosts, profiles_dir=profiles_dir, theme=chosen_theme(), bell=settings.bell)
    app.run()
    return app.return_code or 0
