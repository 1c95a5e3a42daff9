"""One of the hosts that an app has open: its board and session, the jobs that read it, what connecting to it asks."""

import functools
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, ParamSpec

from tui.core.errors import EagletuiError
from tui.core.link.transport import HostKeyQuestion, Prompt
from tui.panel.host_app import HostApp
from tui.panel.host_view import Board

if TYPE_CHECKING:
    from tui.core.server.session import HostSession

P = ParamSpec("P")
_ENDED_WITH_IT = (
    "connect",
    "link",
    "facts",
    "gpus",
    "news",
    "runs",
    "watch",
    "node",
    "launch",
    "stop",
    "measure",
    "stored",
)


class OpenHost:
    """Hosts share nothing but the app: what one of them waits for, no other does.

    Args:
        name: of the host, as config.toml or the person names it.
    """

    def __init__(self, app: HostApp, name: str) -> None:
        self.app = app
        self.board = Board(name)
        self.session: HostSession | None = None
        self._named = name  # for its jobs: another host may take the place of this one

    async def open_session(self) -> "HostSession":
        """Another session, which may connect now; this host answers what it asks. Raises EagletuiError."""
        self.session = await self.app.open_session(self.board.host, self)
        await self.app.turn()
        return self.session

    def touch(self, *, soon: bool = False) -> None:
        """The board has changed; see `HostApp.touch`. Among others no host is in a hurry: many connect at once."""
        if self.app.shows(self.board):
            self.app.touch(soon=soon and self.app.displays(self.board))

    def show_mode(self, name: str) -> None:
        """One of the modes of this host."""
        self.app.show_mode(name, self.board)

    # -- jobs ------------------------------------------------------------------------------------------------------

    def background(
        self, group: str, job: Callable[P, Coroutine[Any, Any, None]], *args: P.args, **named: P.kwargs
    ) -> None:
        """Runs a job beside the interface, in place of the one that its group runs now; its error is a toast."""
        self.app.run_job(self._group(group), functools.partial(job, *args, **named), self.tell)

    def read(self, group: str, job: Callable[P, Coroutine[Any, Any, None]], *args: P.args, **named: P.kwargs) -> None:
        """The same of what reads the host: its error is shown in the host's line while it lasts."""
        self.app.run_job(self._group(group), functools.partial(job, *args, **named), self.set_problem)

    def end_job(self, group: str) -> None:
        """Ends what a group runs now."""
        self.app.workers.cancel_group(self.app, self._group(group))

    def end_jobs(self) -> None:
        """Ends all that belongs to the present session."""
        for group in _ENDED_WITH_IT:
            self.end_job(group)

    def _group(self, group: str) -> str:
        return f"{group} {self._named}"

    # -- words -----------------------------------------------------------------------------------------------------

    def set_problem(self, error: EagletuiError | None) -> None:
        """What keeps the host from being read just now, for its line."""
        if self.board.problem is not error:
            self.board.problem = error
            self.touch()

    def say(self, text: str, *, severity: str = "information") -> None:
        """A toast; it names the host where another one is displayed."""
        self.app.say(text if self.app.displays(self.board) else f"{self.board.host}: {text}", severity=severity)

    def tell(self, error: EagletuiError) -> None:
        """An error as a toast: what happened, and how to fix it."""
        from tui.panel.hints import in_panel

        self.say(error.message + (f"\n{in_panel(error.hint)}" if error.hint else ""), severity="error")

    # -- questions while connecting (Asker) ------------------------------------------------------------------------

    async def host_key(self, question: HostKeyQuestion) -> bool:
        """Shows an unknown host key and waits for the answer."""
        from tui.panel.screens.connecting import host_key_dialog

        return bool(await self.app.ask(host_key_dialog(question), self.board))

    async def prompt(self, prompt: Prompt) -> tuple[str, ...] | None:
        """Asks for a passphrase, a password or a code."""
        from tui.panel.screens.connecting import PromptDialog

        answer = await self.app.ask(PromptDialog(prompt), self.board)
        return answer if isinstance(answer, tuple) else None
