"""The panel: modes, keys, palette, and the workers that fill the board from one host."""

import asyncio
import contextlib
import functools
import gc
import os
import time
import traceback
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual import work
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.timer import Timer
from textual.widgets import Input

from tui import format as fmt
from tui.core.errors import EagletuiError, HostError, Slug, of_system
from tui.core.link.transport import Asker, HostKeyQuestion, LinkState, Prompt
from tui.panel.bench_control import Measuring
from tui.panel.host_view import Board, run_name
from tui.panel.keys import Command
from tui.panel.screens.base import Mode
from tui.panel.theme import THEMES, textual_theme

if TYPE_CHECKING:
    from rich.text import Text

    from tui.core.model.log import LogRecord
    from tui.core.model.profile import BenchProfile
    from tui.core.profiles.launch_profile import LaunchProfile
    from tui.core.profiles.load import ProfileEntry
    from tui.core.runs.control import Run
    from tui.core.server.launch_records import PhaseHistory
    from tui.core.server.session import HostSession, LaunchPlan
    from tui.panel.open_log import LogSource
    from tui.panel.screens.log_pair import Beside

OpenSession = Callable[[str, Asker], "Awaitable[HostSession]"]

_FLUSH_S = 0.25  # changes are shown together: figures and the log move at 4 Hz at most
_SOON_S = 0.02  # but a state that changed is shown at once
_TICK_S = 1.0  # ages
_SETTLED_S = 3.0  # everything is imported and composed
_RUNS_S = 5.0  # how often the host is asked for servers that others started
_LIVE = ("staged", "starting", "running", "finishing")
_ALIVE = ("starting", "ready", "hung")
_TOAST_S = {"information": 2.0, "warning": 4.0, "error": 8.0}  # an error carries a hint that must be read


async def _open_session(host: str, asker: Asker) -> "HostSession":
    # Not before the first frame: SSH alone costs as much as the rest of the start.
    from tui.core.server.session import open_session

    return await open_session(host, asker)


def _dashboard(app: "EagleApp") -> Mode:
    from tui.panel.screens.dashboard import Dashboard

    return Dashboard(app.board)


def _logs(app: "EagleApp") -> Mode:
    from tui.panel.screens.logs import Logs

    return Logs(app.board)


def _profiles(app: "EagleApp") -> Mode:
    from tui.panel.screens.profiles import Profiles

    return Profiles(app.board)


def _bench(app: "EagleApp") -> Mode:
    from tui.panel.screens.bench import Bench

    return Bench(app.board)


def _journal(app: "EagleApp") -> Mode:
    from tui.panel.screens.journal import Journal

    return Journal(app.board)


_MODES: dict[str, Callable[["EagleApp"], Mode]] = {
    "dashboard": _dashboard,
    "logs": _logs,
    "profiles": _profiles,
    "bench": _bench,
    "journal": _journal,
}


class EagleApp(App[None]):
    """One host at a time. Reads go down to widgets through the board; intents come up as actions.

    Args:
        host: name of the host to show.
        profiles_dir: directory searched for profiles before the others.
        open_session: makes the session with a host; tests hand in their own.
        theme: `dark` or `light`.
        bell: rings on ready and on crash.
    """

    TITLE = "eagletui"
    CSS_PATH = "app.tcss"
    ENABLE_COMMAND_PALETTE = True
    COMMAND_PALETTE_BINDING = "ctrl+p"
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(number), f"mode('{name}')", name, show=False) for number, name in enumerate(_MODES, 1)),
        Binding("l", "launch", "launch", show=False),
        Binding("r", "replace", "replace", show=False),
        Binding("b", "bench", "bench", show=False),
        Binding("S", "stop", "stop", show=False),
        # At once, before the keys that came with it are sent to a widget: they are for the search line.
        Binding("slash", "search", "search", show=False, priority=True),
        Binding("o", "override", "override", show=False),
        Binding("h", "hosts", "other host", show=False),
        Binding("y", "copy", "copy", show=False),
        Binding("question_mark", "help", "help", show=False),
        Binding("q", "leave", "leave", show=False),
        Binding("ctrl+c,ctrl+q", "leave", "leave", show=False, priority=True),
    ]

    def __init__(
        self,
        host: str,
        *,
        profiles_dir: Path | None = None,
        open_session: OpenSession = _open_session,
        theme: str = "dark",
        bell: bool = True,
    ) -> None:
        super().__init__()
        self.board = Board(host, simulated=host == "demo")
        self.session: HostSession | None = None
        self.measure = Measuring(self)
        self._connect_ended = asyncio.Event()
        self._profiles_dir = profiles_dir
        self._open_session = open_session
        self._bell = bell
        self._flush_timer: Timer | None = None
        self._due = 0.0
        self._shown_at = 0.0
        self._opened = False
        self._chosen: str | None = None  # run id that a person asked to see
        self._seen_runs: set[str] = set()  # known while the run on show was alive: none of them takes its place
        self._rung: set[str] = set()
        self._leaving = False
        self._faults: set[str] = set()
        for name in THEMES:
            self.register_theme(textual_theme(name))
        self.theme = f"eagle-{theme}"

    def get_default_screen(self) -> Screen[None]:
        """The dashboard is the first screen, so that nothing else is ever composed for the first frame."""
        return Screen()

    def on_mount(self) -> None:
        self.show_first()
        self.set_interval(_TICK_S, self._tick)
        # What is there by then stays: without it a whole collection, which stops everything, takes a third of the time.
        self.set_timer(_SETTLED_S, gc.freeze)
        self.call_after_refresh(self.connect)

    def show_first(self) -> None:
        """All modes, and the first of them."""
        for name, make in _MODES.items():
            self.add_mode(name, functools.partial(make, self))
        self.switch_mode("dashboard")

    # -- being told ------------------------------------------------------------------------------------------------

    def touch(self, *, soon: bool = False) -> None:
        """The board has changed: what is on show is repainted together with all that changes until then.

        Args:
            soon: a state changed that a person waits for; it is shown within a frame.
        """
        now = time.monotonic()
        due = now + _SOON_S if soon else max(now + _SOON_S, self._shown_at + _FLUSH_S)
        if self._flush_timer is not None:
            if due >= self._due:
                return
            self._flush_timer.stop()
        self._due = due
        self._flush_timer = self.set_timer(due - now, self._show_changes)

    def _show_changes(self) -> None:
        self._flush_timer = None
        self._shown_at = time.monotonic()
        if self._leaving or not self.is_running or not self.screen_stack:
            return
        for screen in self.screen_stack:  # a mode shows through under a dialog
            if isinstance(screen, Mode) and screen.is_mounted:
                screen.update()

    def _tick(self) -> None:
        # Samples come once a second too; ages ride on their repaint where they can.
        if time.monotonic() - self._shown_at > _TICK_S * 0.9:
            self.touch()

    def _watch_theme(self, theme_name: str) -> None:
        super()._watch_theme(theme_name)
        self.call_later(self.touch)

    def say(self, text: str, *, severity: str = "information") -> None:
        """A toast; its text may come from a host."""
        level = "error" if severity == "error" else "warning" if severity == "warning" else "information"
        self.notify(text, markup=False, severity=level, timeout=_TOAST_S[level])  # type: ignore[arg-type]

    def tell(self, error: EagletuiError) -> None:
        """An error as a toast: what, and how to mend it."""
        from tui.panel.hints import in_panel

        text = error.message + (f"\n{in_panel(error.hint)}" if error.hint else "")
        self.say(text, severity="error")

    # -- workers ---------------------------------------------------------------------------------------------------

    def connect(self) -> None:
        """Opens the session with the board's host and starts everything that reads it."""
        self._connect_worker()

    @work(exclusive=True, group="connect", exit_on_error=False)
    async def _connect_worker(self) -> None:
        board = self.board
        board.started_at = time.monotonic()
        board.problem = None
        self._opened = False
        self._connect_ended.clear()
        session: HostSession | None = None
        try:
            session = self.session = await self._open_session(board.host, self)
            self._follow_link(session, board)
            await session.open()
            self._opened = True
            self._remember_host(board.host)
        except HostError as error:
            if session is None:
                self._set_problem(board, error)
            else:
                self._refused(error)
            return
        except EagletuiError as error:
            self._set_problem(board, error)
            return
        except Exception as error:
            self._set_problem(board, self.report_fault(error))
            return
        finally:
            self._connect_ended.set()
        self.touch()
        self._follow_facts(session, board)
        self._follow_gpus(session, board)
        self._follow_runs(session, board)
        self.measure.read_stored()

    @staticmethod
    def _remember_host(name: str) -> None:
        from tui.panel.screens.dialogs import remember_host

        remember_host(name)

    def _set_problem(self, board: Board, error: EagletuiError | None) -> None:
        if board.problem is not error:
            board.problem = error
            self.touch()

    def report_fault(self, error: Exception) -> EagletuiError:
        """A fault of ours: kept in a file (once each), told in one line. A full disk is none."""
        from tui.core.config import private_dir, state_dir

        if isinstance(error, OSError) and error.filename:
            return of_system(error)
        where = "not written"
        last = traceback.extract_tb(error.__traceback__)[-1:]
        key = f"{type(error).__name__} {last}"
        with contextlib.suppress(OSError):
            path = private_dir(state_dir()) / "panel-errors.log"
            if key not in self._faults:
                with path.open("a", encoding="utf-8") as file:
                    file.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S')}\n")
                    traceback.print_exception(error, file=file)
                self._faults.add(key)
            where = str(path)
        return EagletuiError(f"a fault of eagletui: {type(error).__name__}", f"details in {where}")

    @work(exclusive=True, group="link", exit_on_error=False)
    async def _follow_link(self, session: "HostSession", board: Board) -> None:
        try:
            async for status in session.link():
                was = board.link.state if board.link else None
                board.link = status
                if status.state is LinkState.REFUSED and was is not LinkState.REFUSED and status.error is not None:
                    self._refused(status.error)
                if status.state is LinkState.UP:
                    board.problem = None
                self.touch(soon=status.state is not was)
        except EagletuiError as error:
            self._set_problem(board, error)
        except Exception as error:
            self._set_problem(board, self.report_fault(error))

    @work(exclusive=True, group="facts", exit_on_error=False)
    async def _follow_facts(self, session: "HostSession", board: Board) -> None:
        try:
            board.facts = await session.facts()
            self.touch()
        except EagletuiError as error:
            self._set_problem(board, error)
        except Exception as error:
            self._set_problem(board, self.report_fault(error))

    @work(exclusive=True, group="gpus", exit_on_error=False)
    async def _follow_gpus(self, session: "HostSession", board: Board) -> None:
        try:
            async for sample in session.gpus():
                board.take_sample(sample)
                self.touch()
        except EagletuiError as error:
            self._set_problem(board, error)
        except Exception as error:
            self._set_problem(board, self.report_fault(error))

    @work(exclusive=True, group="runs", exit_on_error=False)
    async def _follow_runs(self, session: "HostSession", board: Board) -> None:
        while True:
            try:
                board.runs = await session.runs()
                self._choose_run()
                self.measure.take_up()
                self.touch()
            except EagletuiError as error:
                if board.connected:
                    self._set_problem(board, error)
            except Exception as error:
                self._set_problem(board, self.report_fault(error))
            await asyncio.sleep(_RUNS_S)

    def _choose_run(self) -> None:
        """The run on show: the newest live server, else a foreign one, else the last ended.

        One that a person picked stays, and so does the report of a crash, until a server is launched that was not
        there before.
        """
        board = self.board
        servers = [run for run in board.runs if run.kind == "server"]
        live = [run for run in servers if str(run.state) in _LIVE]
        foreign = [run for run in servers if str(run.state) == "foreign"]
        present, outcome = board.run, str(board.state.outcome) if board.state else "starting"
        best: Run | None = None
        if present is None:
            best = next(iter([*live, *foreign, *servers]), None)
        elif outcome in _ALIVE:
            if present.run_id != self._chosen:
                fresh = [run for run in live if run.run_id not in self._seen_runs]
                best = next(iter(live if str(present.state) == "foreign" else fresh), None)
        else:
            fresh = [run for run in live if run.run_id not in self._seen_runs]
            moved_on = outcome != "crashed" and present.run_id != self._chosen
            best = next(iter([*fresh, *live] if moved_on else fresh), None)
            if best is None and moved_on:
                best = next(iter(foreign), None)
        if best is not None and (present is None or best.run_id != present.run_id):
            self.watch_run(best)
        elif outcome in _ALIVE:
            self._seen_runs.update(run.run_id for run in servers)

    def watch_run(self, run: "Run") -> None:
        """Shows a run and follows its log."""
        from tui.panel.open_log import OpenLog

        file = self.session.open_log(run) if self.session is not None else None
        self.board.watch_run(run, OpenLog(f"run {run.short_id}", file, touch=self.touch))
        self._seen_runs = {run.run_id, *(known.run_id for known in self.board.runs)}
        if self.session is not None:
            self._follow_run(self.session, self.board, run)
        self.touch()

    @work(exclusive=True, group="watch", exit_on_error=False)
    async def _follow_run(self, session: "HostSession", board: Board, run: "Run") -> None:
        from tui.core.model.phases import Phase

        log = board.log
        assert log is not None
        started = False
        was_alive = False  # what had happened before we came is no news
        try:
            async for update in session.watch(run):
                if board.run is None or board.run.run_id != run.run_id:
                    return
                before = board.state
                board.take_update(update)
                news = before is None or (before.outcome, before.phase) != (update.state.outcome, update.state.phase)
                if not started and update.state.run.state != "foreign":
                    started = True
                    stamp = fmt.clock(update.state.started_s, board.utc_offset_s)
                    log.add_marker(f"[eagletui] start {run.run_id}", stamp, Phase.LAUNCH)
                log.take(update)
                outcome = str(update.state.outcome)
                if was_alive and before is not None and before.outcome is not update.state.outcome:
                    self._ring(update.state.run.run_id, outcome)
                was_alive = was_alive or (update.settled and outcome in _ALIVE)
                self.touch(soon=news)
            state = board.state
            if state is not None and state.run.exit_code is not None:
                stamp = fmt.clock(fmt.epoch_of(state.run.ended_at), board.utc_offset_s)
                log.add_marker(f"[eagletui] exit={state.run.exit_code}", stamp)
                self.touch()
        except EagletuiError as error:
            self._set_problem(board, error)
        except Exception as error:
            self._set_problem(board, self.report_fault(error))

    def _ring(self, run_id: str, outcome: str) -> None:
        key = f"{run_id} {outcome}"
        if outcome in ("ready", "crashed") and key not in self._rung:
            self._rung.add(key)
            self.ring()

    def ring(self) -> None:
        """The terminal's bell, where the settings want it."""
        if self._bell:
            self.bell()

    # -- questions while connecting (Asker) ------------------------------------------------------------------------

    async def host_key(self, question: HostKeyQuestion) -> bool:
        """Shows an unknown host key and waits for the answer."""
        from tui.panel.screens.dialogs import host_key_dialog

        width = max(30, min(96, int(self.size.width * 0.96)) - 8)
        return bool(await self._ask(host_key_dialog(question, width)))

    async def prompt(self, prompt: Prompt) -> tuple[str, ...] | None:
        """Asks for a passphrase, a password or a code."""
        from tui.panel.screens.dialogs import PromptDialog

        answer = await self._ask(PromptDialog(prompt))
        return answer if isinstance(answer, tuple) else None

    async def _ask(self, dialog: Screen[object] | Screen[bool] | Screen[tuple[str, ...]]) -> object:
        # Called from the transport's tasks, which are no workers: a future instead of push_screen_wait.
        answered: asyncio.Future[object] = asyncio.get_running_loop().create_future()

        def take(result: object) -> None:
            if not answered.done():
                answered.set_result(result)

        self.push_screen(dialog, take)
        try:
            return await answered
        finally:
            if not answered.done():  # the connection attempt was given up: the question is moot
                with contextlib.suppress(Exception):
                    dialog.dismiss()

    def _refused(self, error: HostError) -> None:
        if error.slug not in (Slug.HOST_KEY_CHANGED, Slug.HOST_KEY_REVOKED):
            self._set_problem(self.board, error)
            return
        from tui.panel.screens.dialogs import Refused

        if any(isinstance(screen, Refused) for screen in self.screen_stack):
            return
        board = self.board
        seen: list[list[tuple[str, str]]] = []
        if board.state is not None:
            age = fmt.age(time.monotonic() - board.state.known_at) if board.state.known_at else fmt.NONE
            run = board.state.run
            seen = [
                [(f"Last seen on {board.host}, ", "text"), (age, "strong!"), (" ago:", "text")],
                [("? ", "muted"), (run.profile or run.run_id, "strong!"), (f"  run {run.short_id} · pid {run.pid} · was ", "muted"),
                 (str(board.state.outcome), "text")],
                [("  Its state now is not known.", "muted")],
            ]  # fmt: skip
        status = self.session.transport.status() if self.session is not None else board.link
        self.push_screen(Refused(board.host, error, status, seen), self._after_refusal)

    def _after_refusal(self, choice: str | None) -> None:
        if choice == "reconnect":
            self.action_reconnect()
        elif choice == "hosts":
            self.action_hosts()
        elif choice == "leave":
            self.call_later(self.action_leave)

    # -- what dialogs ask of the app -------------------------------------------------------------------------------

    def profile_dirs(self) -> list[Path]:
        """Directories searched for profiles."""
        from tui.core.config import profile_dirs

        return profile_dirs(self._profiles_dir)

    def profile_entries(self) -> "list[ProfileEntry]":
        """Every profile found, broken ones too."""
        from tui.core.profiles.load import discover

        return discover(self.profile_dirs())

    async def load_profile(self, name: str, sets: Sequence[str]) -> "LaunchProfile":
        """A launch profile with overrides. Raises UsageError."""
        from tui.core.profiles.load import load_launch

        return load_launch(name, self.profile_dirs(), sets)

    def live_session(self) -> "HostSession":
        """The session, while it is connected. Raises HostError."""
        if self.session is None or not self.board.connected:
            raise HostError(f"{self.board.host} is not connected", "r connects again")
        return self.session

    async def make_plan(self, profile: "LaunchProfile", sets: Sequence[str]) -> "LaunchPlan":
        """The exact command and the findings. Raises EagletuiError."""
        from tui.core.profiles.overrides import parse_set_value

        await self._connect_ended.wait()  # a key pressed while it connects is not refused for that
        session = self.live_session()
        values = {}
        for item in sets:
            key, _, value = item.partition("=")
            values[key.strip()] = parse_set_value(key.strip(), value)
        try:
            return await session.plan(profile, values)
        except EagletuiError:
            raise
        except Exception as error:
            raise self.report_fault(error) from None

    async def replaced_by(self, plan: "LaunchPlan") -> "tuple[Run, ...]":
        """Our live servers that are in the way of a plan."""
        return await self.live_session().replaced_by(plan)

    def usual_total(self, profile: str) -> "PhaseHistory | None":
        """Launch to ready in earlier starts of a profile here."""
        from tui.core.server.launch_records import usual

        return usual(self.board.host, profile)[1]

    def _preview(self, profile: str | None, *, replace: bool = False, sets: str = "", edit: bool = False) -> None:
        """The launch dialog; what it answers is launched in the background and shown on the dashboard."""
        from tui.panel.screens.launch import LaunchDialog

        def chosen(answer: "tuple[LaunchPlan, bool] | None") -> None:
            if answer is not None:
                self.switch_mode("dashboard")
                self._launch_worker(*answer)

        dialog = LaunchDialog(profile, self._last_profile(), replace=replace, sets=sets, edit=edit)
        self.push_screen(dialog, chosen)

    @work(exclusive=True, group="launch", exit_on_error=False)
    async def _launch_worker(self, plan: "LaunchPlan", replace: bool) -> None:
        from tui.core.server.session import PreflightFailed, StopProgress

        board = self.board
        name = plan.profile.name
        board.busy = f"launching {name}" if not replace else f"stopping what runs, then launching {name}"
        self.touch(soon=True)
        try:
            session = self.live_session()
            if replace:
                # Asked anew: what the dialog showed may be old, and a server is stopped only for a launch that can be.
                plan = await session.plan(plan.profile, plan.sets)
                leaving = await session.replaced_by(plan)
                if plan.blocked_without(run.run_id for run in leaving):
                    raise PreflightFailed(plan)
                for run in leaving:
                    board.stop = StopProgress("requested", f"asking {run.short_id} to stop")
                    self.touch(soon=True)
                    async for progress in session.stop(run):
                        board.stop = progress
                        self.touch(soon=True)
                board.busy = f"launching {name}"
                self.touch(soon=True)
                if leaving:  # what stood in its way is gone
                    plan = await session.plan(plan.profile, plan.sets)
                run = await session.launch(plan, replace=True)
            else:
                run = await session.launch(plan)
        except EagletuiError as error:
            self.tell(error)
        except Exception as error:
            self.tell(self.report_fault(error))
        else:
            board.stop = None
            self.watch_run(run)
        finally:
            board.busy = None
            self.touch()

    @work(exclusive=True, group="stop", exit_on_error=False)
    async def _stop_worker(self, run: "Run") -> None:
        from tui.core.server.session import StopProgress

        board = self.board
        board.stop = StopProgress("requested", f"asking {run.short_id} to stop")
        self.touch(soon=True)
        try:
            async for progress in self.live_session().stop(run):
                if board.run is None or board.run.run_id == run.run_id:
                    board.stop = progress
                self.touch(soon=True)
                if progress.done:
                    self.say(f"{run.profile or run.short_id}: {progress.text}")
        except EagletuiError as error:
            board.stop = None
            self.tell(error)
        except Exception as error:
            board.stop = None
            self.tell(self.report_fault(error))
        self.touch()

    def copy_text(self, text: str, what: str) -> None:
        """Puts a text into the terminal's clipboard (OSC 52) and into a file, as many terminals refuse the first."""
        from tui.core.config import private_dir, state_dir

        self.copy_to_clipboard(text)
        where = ""
        with contextlib.suppress(OSError):
            path = private_dir(state_dir()) / "copied.txt"
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text + "\n")
            where = f", also in {path}"
        self.say(f"copied the {what}{where}")

    # -- actions ---------------------------------------------------------------------------------------------------

    def action_mode(self, name: str) -> None:
        """Shows one of the modes."""
        self.switch_mode(name)
        self.touch()

    def action_launch(self) -> None:
        """Launch: the profile under the cursor, else pick one."""
        self._preview(self._profile_at_cursor())

    def action_replace(self) -> None:
        """Stop our server and launch in its place; without a link, connect again."""
        if not self.board.connected:
            self.action_reconnect()
            return
        self._preview(self._profile_at_cursor() or self._last_profile(), replace=True)

    def action_override(self) -> None:
        """Launch with other values."""
        self._preview(self._profile_at_cursor() or self._last_profile(), edit=True)

    def action_apply(self) -> None:
        """The suggested change as an override of the same profile, shown before it is launched."""
        state = self.board.state
        diagnosis = state.diagnosis if state else None
        if state is None or diagnosis is None or not diagnosis.set or not state.run.profile:
            self.say("Nothing to apply: no change is suggested here")
            return
        from tui.core.profiles.overrides import parse_set_value
        from tui.core.profiles.toml_text import toml_value
        from tui.core.server import launch_records

        known = launch_records.read(state.run.run_id)
        earlier = known.sets if known else state.run.extra.get("sets") or {}
        # The command line keeps its overrides as they were typed.
        typed = {
            key: parse_set_value(key, value) if isinstance(value, str) else value for key, value in earlier.items()
        }
        sets = {**typed, **diagnosis.set}
        line = " ".join(_quoted(f"{key}={toml_value(value)}") for key, value in sets.items())
        self._preview(state.run.profile, sets=line)

    def _profile_at_cursor(self) -> str | None:
        chosen = getattr(self.screen, "chosen_launch", None)
        return chosen() if callable(chosen) else None

    def _last_profile(self) -> str | None:
        board = self.board
        if board.run is not None and board.run.profile:
            return board.run.profile
        return next((run.profile for run in board.runs if run.profile), None)

    def action_stop(self) -> None:
        """Asks, then stops the server on show."""
        from tui.panel.screens.dialogs import Confirm, facts_of
        from tui.panel.screens.launch import gpus_text

        run = self.board.run
        if run is None or (
            self.board.state and self.board.state.outcome in ("stopped", "crashed", "finished") and not run.orphans
        ):
            self.say("No server to stop")
            return
        if str(run.state) == "foreign":
            self.say(
                f"PID {run.pid} was not started by eagletui; its owner {run.owner or 'unknown'} can stop it",
                severity="warning",
            )
            return
        facts = [
            ("host", self.board.host),
            ("server", f"{run_name(run)}, run {run.short_id}"),
            ("PID", str(run.pid) if run.pid is not None else fmt.NONE),
            ("GPUs", gpus_text(getattr(run, "gpus", None))),
            ("port", str(run.port) if run.port is not None else fmt.NONE),
        ]
        lines = [
            *facts_of(facts),
            [],
            [("It is asked to drain first; what is left after 20 s is killed. Nothing else is touched.", "muted")],
        ]
        dialog = Confirm(
            ("■ STOP", "warn!"), f"Stop this server on {self.board.host}?", lines, "No, let it run", "Yes, stop it"
        )

        def answered(yes: bool | None) -> None:
            if yes:
                self._stop_worker(run)

        self.push_screen(dialog, answered)

    def action_server(self, step: int) -> None:
        """The next or previous live server of this host."""
        board = self.board
        live = board.live_servers()
        place, _ = board.place()
        others = [run for run in live if board.run is None or run.run_id != board.run.run_id]
        if not others:
            self.say("No other server runs here")
            return
        if place is None:  # what is on show has ended
            self._show_run(live[0 if step > 0 else -1])
        else:
            self._show_run(live[(place - 1 + step) % len(live)] if place <= len(live) else others[0])

    def action_reconnect(self) -> None:
        """Connects again, at once."""
        # The simulated host may be gone for good: it ends by itself, and opening it starts it anew.
        if self.session is not None and self._opened and not self.board.simulated:
            self.session.transport.reconnect()
            self.touch()
        else:
            self.board.link = None
            self._reopen(self.board.host)

    def action_hosts(self) -> None:
        """Another host."""
        from tui.panel.screens.dialogs import HostPicker

        running = sum(1 for run in self.board.runs if run.active)

        def chosen(name: str | None) -> None:
            if name and name != self.board.host:
                self._reopen(name)

        self.push_screen(HostPicker(self.board.host, running), chosen)

    @work(exclusive=True, group="reopen", exit_on_error=False)
    async def _reopen(self, host: str) -> None:
        for group in ("connect", "link", "facts", "gpus", "runs", "watch", "launch", "stop", "measure", "stored"):
            self.workers.cancel_group(self, group)
        if self.session is not None:
            with contextlib.suppress(Exception):
                await self.session.close()
            self.session = None
        fresh = Board(host, simulated=host == "demo")
        # Widgets hold the board itself, so its contents are replaced, not the object.
        self.board.__dict__.update(fresh.__dict__)
        self._chosen = None
        self._seen_runs = set()
        self._opened = False
        self.touch()
        self.connect()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A text field keeps its slashes."""
        if action != "search":
            return True
        from textual.widgets import TextArea  # of one dialog only

        return not isinstance(self.focused, (Input, TextArea))

    async def action_search(self) -> None:
        """Search where there is a list, else in the log."""
        search = getattr(self.screen, "action_search", None)
        if callable(search):
            search()
            return
        self.switch_mode("logs")
        await asyncio.sleep(0)
        search = getattr(self.screen, "action_search", None)
        if callable(search):
            self.call_after_refresh(search)

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

    def action_copy(self) -> None:
        """The line or selection under the cursor, the report of a crash, else the command of the server."""
        own = getattr(self.screen, "copied_text", None)
        found = own() if callable(own) else None
        if found is None:
            found = self._report()
        if found is None:
            self.say("Nothing to copy here")
            return
        self.copy_text(*found)

    def _report(self) -> tuple[str, str] | None:
        state = self.board.state
        if state is None:
            return None
        diagnosis = state.diagnosis
        command = " ".join(_quoted(word) for word in state.run.argv)
        if diagnosis is None:
            return (command, "command") if command else None
        lines = [
            f"{state.run.profile or ''} run {state.run.run_id} on {self.board.host}: {state.outcome}",
            f"{diagnosis.cause}: {diagnosis.title}",
        ]
        if diagnosis.evidence is not None:
            lines.append(f"line {diagnosis.evidence.line}: {diagnosis.evidence.text}")
        lines += [f"- {advice}" for advice in diagnosis.advice]
        lines += [f"set {key} = {value}" for key, value in diagnosis.set.items()]
        return "\n".join([*lines, command]), "report"

    def action_help(self) -> None:
        """Every key."""
        from tui.panel.screens.dialogs import Help

        self.push_screen(Help())

    async def action_leave(self) -> None:
        """Leaves; servers go on, and it says so."""
        state = self.board.state
        message = None
        if state is not None and str(state.outcome) in ("starting", "ready", "hung"):
            run = state.run
            pid = f", PID {run.pid}" if run.pid is not None else ""
            name = "" if self.board.host == "local" else f" {self.board.host}"
            message = f"{run.profile or run.run_id} goes on on {self.board.host} (run {run.short_id}{pid}). eagletui{name} takes it up again."
        measured = self.measure.goes_on()
        message = " ".join(part for part in (message, measured) if part) or None
        self._leaving = True  # nothing is painted on the way out
        self.workers.cancel_all()
        if self.session is not None:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(2.5):
                    await self.session.close()
        self.exit(message=_plain(message) if message else None)

    # -- what screens ask of the app -------------------------------------------------------------------------------

    def show_log(self, line: int | None) -> None:
        """The logs mode, at a line of the file."""
        self.switch_mode("logs")

        def at_line() -> None:
            from tui.panel.screens.logs import Logs

            if line is not None and isinstance(self.screen, Logs):
                self.screen.go_to_line(line)

        self.call_after_refresh(at_line)

    def show_line(self, record: "LogRecord", number: int | None) -> None:
        """One line of the log, whole; `number` is its line of the file where that is known."""
        from tui.panel.screens.dialogs import Facts
        from tui.panel.widgets.paint import wrap

        width = max(20, min(96, int(self.size.width * 0.96)) - 9)
        parts = (record.time, record.rank, f"line {number:,}" if number is not None else None)
        head = " · ".join(part for part in parts if part)
        lines = [[(head, "muted")], [], *[[(part, "text")] for part in wrap(record.text.expandtabs(4), width)]]
        if record.cut_bytes:
            lines.append([(f"{fmt.size(record.cut_bytes)} more were left out", "warn")])
        self.push_screen(Facts("Line", lines, record.text))

    def log_source(self) -> "LogSource | None":
        """A log that is displayed without being watched: `eagletui logs` has one."""
        return None

    def logs_beside(self) -> "list[Beside]":
        """What can be shown beside the log: other runs of this host."""
        from tui.panel.screens.log_pair import Beside

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
        from tui.core.server.watch import is_over
        from tui.panel.open_log import LogSource

        file = self.session.open_log(run) if self.session is not None else None
        if file is None:
            return None

        def now() -> "Run":
            known = [self.board.run, *self.board.runs]
            return next((one for one in known if one is not None and one.run_id == run.run_id), run)

        def last_words() -> tuple[str, str | None] | None:
            ended = now()
            stamp = fmt.clock(fmt.epoch_of(ended.ended_at), self.board.utc_offset_s)
            return (f"[eagletui] exit={ended.exit_code}", stamp) if ended.exit_code is not None else None

        return LogSource(f"run {run.short_id}", file, lambda: is_over(now()), last_words)

    def offers(self, command: Command) -> bool:
        """Whether a command works here at all."""
        return True

    def show_gpus(self) -> None:
        """Clocks, links, throttling and processes of each GPU."""
        from tui.panel.screens.details import gpu_lines
        from tui.panel.screens.dialogs import Facts

        self.push_screen(Facts("GPUs", gpu_lines(self.board)))

    def show_run(self) -> None:
        """The run on show: command, files, times."""
        from tui.panel.screens.details import run_lines
        from tui.panel.screens.dialogs import Facts

        state = self.board.state
        if state is not None:
            width = max(20, min(96, int(self.size.width * 0.96)) - 8)
            command = " ".join(_quoted(word) for word in state.run.argv)
            self.push_screen(Facts("Run", run_lines(self.board, state, width), command))

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The palette: every command that has an action, and the themes."""
        from tui.panel.keys import COMMANDS

        here = type(screen).__name__.lower()
        for command in COMMANDS:
            action = command.action
            if (
                action is None
                or not self.offers(command)
                or (command.where not in ("everywhere", here) and action.startswith("screen."))
            ):
                continue
            if command.where == "refused or lost link" and self.board.connected:
                continue
            yield SystemCommand(f"{command.verb} ({command.keys})", command.says, self._runner(action))
        other = "light" if self.theme == "eagle-dark" else "dark"
        yield SystemCommand(f"{other} theme", "The other palette", lambda: setattr(self, "theme", f"eagle-{other}"))
        for run in self.board.runs[:20]:
            label = f"show run {run.short_id}"
            about = f"{run.profile or run.run_id} on {run.host}, {run.state}"
            yield SystemCommand(label, about, lambda run=run: self._show_run(run))

    def _runner(self, action: str) -> Callable[[], None]:
        def run() -> None:
            self.call_later(self.run_action, action)

        return run

    def _show_run(self, run: "Run") -> None:
        self._chosen = run.run_id
        self.watch_run(run)
        self.switch_mode("dashboard")

    def check_consume_input(self) -> bool:
        """True while a text field takes the keys."""
        return isinstance(self.focused, Input)

    def _handle_exception(self, error: Exception) -> None:
        # A fault in a handler would print its traceback over the person's terminal; in tests it must surface.
        if self.is_headless:
            super()._handle_exception(error)
            return
        told = self.report_fault(error)
        self.exit(return_code=1, message=_plain(f"{told.message}; {told.hint}. Servers keep running."))


def _quoted(word: str) -> str:
    import shlex

    return shlex.quote(word)


def _plain(text: str) -> "Text":
    # Rich would read `[...]` in a message as markup.
    from rich.text import Text

    return Text(text)


def run_panel(host: str, profiles_dir: Path | None) -> int:
    """Opens the panel on a host; returns the exit code."""
    from tui.core.config import load_settings

    settings = load_settings()
    app = EagleApp(host, profiles_dir=profiles_dir, theme=settings.theme, bell=settings.bell)
    app.run()
    return app.return_code or 0
