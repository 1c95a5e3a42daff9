"""What the panel and the log view have in common: the displayed host, repainting, toasts, questions, the palette."""

import asyncio
import contextlib
import functools
import gc
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from textual.app import App, SystemCommand
from textual.binding import BindingType
from textual.filter import LineFilter
from textual.screen import Screen
from textual.timer import Timer, TimerCallback
from textual.widgets import Input

from tui import format as fmt
from tui.core.config import THEMES as CHOICES
from tui.core.config import HostKind, keep_theme
from tui.core.errors import EagletuiError
from tui.core.link.transport import Asker
from tui.core.masking.known import shown
from tui.panel.gate import Gate
from tui.panel.host_view import Board
from tui.panel.keys import Key, bindings
from tui.panel.screens.base import Mode
from tui.panel.server_view import badge
from tui.panel.terminal import Terminal
from tui.panel.theme import THEMES, choice_of, textual_theme, theme_for

if TYPE_CHECKING:
    from rich.text import Text

    from tui.core.model.log import LogRecord
    from tui.core.server.session import HostSession
    from tui.panel.open_group import OpenGroup

OpenSession = Callable[[str, Asker], "Awaitable[HostSession]"]
Question = Screen[bool] | Screen[tuple[str, ...]]

_FLUSH_S = 0.25  # changes are shown together: figures and the log move at 4 Hz at most
_SOON_S = 0.02  # but a state that changed is shown at once
_TICK_S = 1.0  # ages
_SETTLED_S = 3.0  # everything is imported and composed
_CLOSE_S = 2.5
_ASK_AGAIN_S = 0.2  # how soon a question that waits for a dialog to end looks again
_BETWEEN_S, _LONGEST_TURN_S, _LATE_S = 0.03, 0.3, 0.005  # between the first steps of two connections
_TOAST_S = {"information": 2.0, "warning": 4.0, "error": 8.0}  # an error carries a hint that must be read


async def open_real_session(host: str, asker: Asker) -> "HostSession":
    """`open_session`, imported not before the first frame: SSH alone costs as much as the rest of the start."""
    await asyncio.to_thread(_import_session, HostKind.of(host))  # meanwhile keys are answered
    from tui.core.server.session import open_session
    from tui.demo.client import register

    register()
    return await open_session(host, asker)


def _import_session(kind: HostKind) -> None:
    import tui.core.server.session

    if kind is not HostKind.LOCAL:
        import tui.core.link.ssh  # noqa: F401 - the transport of these hosts
    gc.freeze()  # as once all is settled: connections make many objects, and a whole collection would hold up the keys


class HostApp(App[None]):
    """An app about hosts, one of which is displayed. Reads go down to widgets through boards; intents come up as actions.

    Args:
        open_session: makes the session with a host; tests hand in their own.
        theme: one of `config.THEMES`; which palette that is, depends on the colours that the terminal has.
        bell: rings on ready and on crash.
    """

    TITLE = "eagletui"
    CSS_PATH = "app.tcss"
    ENABLE_COMMAND_PALETTE = True
    COMMAND_PALETTE_BINDING = "ctrl+p"
    BINDINGS: ClassVar[list[BindingType]] = bindings("everywhere", "/", "y", "Enter", "Esc", "?", "^Z", "q", "^C ^Q")

    def __init__(
        self, *, open_session: OpenSession = open_real_session, theme: str = "dark", bell: bool = True
    ) -> None:
        self._gate = Gate()
        super().__init__()
        self.open_session = open_session
        self._bell = bell
        self._terminal = Terminal(self._to_terminal)
        self._asking = asyncio.Lock()
        self._beginning = asyncio.Lock()
        self._flush_timer: Timer | None = None
        self._due = 0.0
        self._shown_at = 0.0
        self._leaving = False
        for name in THEMES:
            self.register_theme(textual_theme(name))
        self.theme = theme_for(theme, self.console.color_system)

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Whatever a widget draws passes the gate last."""
        return [*super().get_line_filters(), self._gate]

    # -- hosts -----------------------------------------------------------------------------------------------------

    @property
    def board(self) -> Board:
        """The board of the displayed host."""
        raise NotImplementedError

    @property
    def group(self) -> "OpenGroup | None":
        """The group of the run that is displayed."""
        return None

    @property
    def session(self) -> "HostSession | None":
        """The session with the displayed host."""
        raise NotImplementedError

    @property
    def boards(self) -> Sequence[Board]:
        """Those of all hosts that are open, in the order in which they were named."""
        return [self.board]

    def sessions(self) -> "Iterable[HostSession]":
        """All that are open."""
        return [self.session] if self.session is not None else []

    def shows(self, board: Board) -> bool:
        """Whether what changes on a board is on the screen."""
        return board is self.board

    def displays(self, board: Board) -> bool:
        """Whether the panel of this host is on the screen."""
        return board is self.board

    def show_mode(self, name: str, board: Board | None = None) -> None:
        """One of the modes, of the displayed host or of another one."""
        self.switch_mode(name)

    def get_default_screen(self) -> Screen[None]:
        """The first mode is the first screen, so that nothing else is ever composed for the first frame."""
        return Screen()

    def on_mount(self) -> None:
        self.show_first()
        self.set_interval(_TICK_S, self._tick)
        # What is there by then stays: without it a whole collection, which stops everything, takes a third of the time.
        self.set_timer(_SETTLED_S, gc.freeze)
        self.call_after_refresh(self.connect)

    def show_first(self) -> None:
        """Adds the modes and shows the first of them."""

    def connect(self) -> None:
        """Opens the host and starts what reads it."""

    # -- repainting ------------------------------------------------------------------------------------------------

    def touch(self, *, soon: bool = False) -> None:
        """The board has changed: the screen is repainted, together with all that changes until then.

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

    def set_timer(
        self, delay: float, callback: TimerCallback | None = None, *, name: str | None = None, pause: bool = False
    ) -> Timer:
        """As Textual's; but where the machine is busy as it begins, it fires late. Textual's own is skipped and never fires
        (8.2: `Timer._run` with `skip`), and then nothing is repainted, or laid out for another size, ever again.
        """
        timer = super().set_timer(delay, callback, name=name, pause=pause)
        timer._skip = False
        return timer

    def _show_changes(self) -> None:
        self._flush_timer = None
        self._shown_at = time.monotonic()
        if self._leaving or not self.is_running or not self.screen_stack:
            return
        for screen in self.screen_stack:  # a mode shows through under a dialog
            if isinstance(screen, Mode) and screen.is_mounted:
                screen.update()
        self._terminal.title(shown(self.window_title()))

    def _tick(self) -> None:
        # Samples come once a second too; ages ride on their repaint where they can.
        if time.monotonic() - self._shown_at > _TICK_S * 0.9:
            self.touch()

    def _watch_theme(self, theme_name: str) -> None:
        super()._watch_theme(theme_name)
        self.call_later(self.touch)

    # -- toasts, faults, jobs --------------------------------------------------------------------------------------

    def say(self, text: str, *, severity: str = "information") -> None:
        """A toast; its text may come from a host."""
        self.notify(shown(text), markup=False, severity=severity, timeout=_TOAST_S[severity])  # type: ignore[arg-type]

    def tell(self, error: EagletuiError) -> None:
        """An error as a toast: what happened, and how to fix it."""
        from tui.panel.hints import in_panel

        self.say(error.message + (f"\n{in_panel(error.hint)}" if error.hint else ""), severity="error")

    def report_fault(self, error: Exception) -> EagletuiError:
        """An unexpected error in one line; its details are in a file, unless it is the system's (a full disk)."""
        from tui.panel.reports import recorded_fault

        return recorded_fault(error)

    def run_job(
        self, group: str, job: Callable[[], Coroutine[Any, Any, None]], failed: Callable[[EagletuiError], None]
    ) -> None:
        """Runs a job beside the interface, in place of the one that its group runs now."""

        async def guarded() -> None:
            try:
                await job()
            except EagletuiError as error:
                failed(error)
            except Exception as error:
                failed(self.report_fault(error))

        # A function, not a coroutine: a job that is cancelled before it begins is never made.
        self.run_worker(guarded, group=group, exclusive=True, exit_on_error=False)  # type: ignore[arg-type]

    def ring(self, text: str) -> None:
        """The terminal's bell, where the settings want it; where another window is looked at, a notification."""
        if self._bell:
            self.bell()
            if not self.app_focus:
                self._terminal.notify(shown(text))

    def window_title(self) -> str:
        """What the window is called: the state of what is displayed."""
        state = self.board.state
        if state is None:
            return f"eagletui {self.board.host}"
        mark = badge(state, stale=not self.board.connected, stopping=self.board.stopping)
        return f"{mark.glyph} {mark.word} {state.run.profile or state.run.run_id} on {self.board.host}"

    def _to_terminal(self, text: str) -> None:
        if self._driver is not None and not self.is_headless:
            self._driver.write(text)

    def copy_text(self, text: str, what: str) -> None:
        """Puts a text into the terminal's clipboard (OSC 52) and into a file, as many terminals refuse the first."""
        from tui.panel.reports import keep_copy

        text = shown(text)
        self.copy_to_clipboard(text)
        path = keep_copy(text)
        self.say(f"Copied the {what}" + (f", also in {path}" if path else ""))

    # -- connecting ------------------------------------------------------------------------------------------------

    async def turn(self) -> None:
        """Returns when a host may begin to connect: one after the other, each once the loop answers at once again.

        The first steps of a connection take the loop's time, and keys come first.
        """
        if len(self.boards) == 1:
            return
        clock = asyncio.get_running_loop().time
        async with self._beginning:
            give_up, due = clock() + _LONGEST_TURN_S, 0.0
            while clock() - due > _LATE_S and clock() < give_up:
                due = clock() + _BETWEEN_S
                await asyncio.sleep(_BETWEEN_S)

    # -- questions while connecting --------------------------------------------------------------------------------

    async def ask(self, dialog: Question, board: Board) -> object:
        """The answer to a question about a host; one is asked at a time.

        One about a host that is not displayed waits until no dialog is open: it would take what is typed there.
        """
        while True:
            async with self._asking:
                if board is self.board or isinstance(self.screen, Mode):
                    return await self._ask(dialog)
            await asyncio.sleep(_ASK_AGAIN_S)

    async def _ask(self, dialog: Question) -> object:
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

    # -- actions ---------------------------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A text field keeps its slashes."""
        if action != "search":
            return True
        from textual.widgets import TextArea  # of one dialog only

        return not isinstance(self.focused, (Input, TextArea))

    async def action_search(self) -> None:
        """Search where there is a list, else in the log."""
        if search := getattr(self.screen, "action_search", None):
            search()
            return
        self.show_mode("logs")
        await asyncio.sleep(0)
        if search := getattr(self.screen, "action_search", None):
            self.call_after_refresh(search)

    def action_copy(self) -> None:
        """The line or selection under the cursor, the report of a crash, else the command of the server."""
        from tui.panel.reports import server_report

        own = getattr(self.screen, "copied_text", None)
        found = (own() if callable(own) else None) or server_report(self.board)
        if found is None:
            self.say("Nothing to copy here")
        else:
            self.copy_text(*found)

    def action_help(self) -> None:
        from tui.panel.screens.dialog import Help

        self.push_screen(Help())

    async def action_leave(self) -> None:
        """Quits; servers keep running."""
        message = self.farewell()
        self._leaving = True  # nothing is painted on the way out
        self._terminal.restore()
        self.workers.cancel_all()
        await asyncio.gather(*(_closed(session) for session in self.sessions()))
        self.exit(message=_plain(message) if message else None)

    def farewell(self) -> str | None:
        """What keeps running when the app is quit."""
        return None

    def show_line(self, record: "LogRecord", number: int | None) -> None:
        """One line of the log, whole; `number` is its line of the file where that is known."""
        from tui.panel.screens.dialog import Facts

        parts = (record.time, record.rank, f"line {number:,}" if number is not None else None)
        head = " · ".join(part for part in parts if part)
        lines = [[(head, "muted")], [], [(record.text.expandtabs(4), "text")]]
        if record.cut_bytes:
            lines.append([(f"{fmt.size(record.cut_bytes)} more were left out", "warn")])
        self.push_screen(Facts("Line", lines, record.text))

    # -- the palette -----------------------------------------------------------------------------------------------

    def offers(self, command: Key) -> bool:
        """Whether a command works here at all."""
        return True

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The palette: every command that has an action, and the themes."""
        from tui.panel.keys import COMMANDS

        here = type(screen).__name__.lower()
        for command in COMMANDS:
            action = command.command
            if action is None or not self.offers(command):
                continue
            if command.where not in ("everywhere", here) and action.startswith("screen."):
                continue
            if command.where == "refused or lost link" and self.board.connected:
                continue
            run = functools.partial(self.call_later, self.run_action, action)
            yield SystemCommand(f"{command.verb} ({command.key})", command.about, run)
        for choice in CHOICES:
            if choice != choice_of(self.theme):
                about = "Switch the colour theme; kept for the next time"
                yield SystemCommand(f"theme {choice}", about, functools.partial(self.choose_theme, choice))

    def choose_theme(self, choice: str) -> None:
        """Another palette, from now on."""
        self.theme = theme_for(choice, self.console.color_system)
        if not keep_theme(choice):
            self.say("config.toml names the theme of the next time")

    def _handle_exception(self, error: Exception) -> None:
        # A fault in a handler would print its traceback over the person's terminal; in tests it must surface.
        if self.is_headless:
            super()._handle_exception(error)
            return
        fault = self.report_fault(error)
        self.exit(return_code=1, message=_plain(f"{fault.message}; {fault.hint}. Servers keep running."))


async def _closed(session: "HostSession") -> None:
    with contextlib.suppress(Exception):
        async with asyncio.timeout(_CLOSE_S):
            await session.close()


def _plain(text: str) -> "Text":
    # Rich would read `[...]` in a message as markup.
    from rich.text import Text

    return Text(text)
