"""The session with the displayed host, and the workers that put what it reports onto the board."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from tui import format as fmt
from tui.core.errors import EagletuiError, HostError, Slug
from tui.core.link.transport import LinkState
from tui.panel.host_app import HostApp

if TYPE_CHECKING:
    from tui.core.server.session import HostSession

_RUNS_S = 5.0  # how often the host is asked for servers that others started
# Of one host: none of them outlives it.
_GROUPS = ("connect", "link", "facts", "gpus", "runs", "watch", "launch", "stop", "measure", "stored")


def _nothing() -> None: ...


class Connection:
    """Opens a host, keeps reading it, and changes to another one.

    Args:
        opened: called once a session is open.
        runs_read: called after each look at the host's runs.
    """

    def __init__(
        self, app: HostApp, *, opened: Callable[[], None] = _nothing, runs_read: Callable[[], None] = _nothing
    ) -> None:
        self._app = app
        self._on_open = opened
        self._on_runs = runs_read
        self._opened = False
        self._attempt_over = asyncio.Event()

    def connect(self) -> None:
        """Opens the session with the board's host and starts everything that reads it."""
        self._opened = False
        self._attempt_over.clear()
        self._app.read_host("connect", self._connect)

    async def _connect(self) -> None:
        app, board = self._app, self._app.board
        board.started_at = time.monotonic()
        board.problem = None
        try:
            session = app.session = await app.open_session(board.host, app)
            self.follow_link(session)
            try:
                await session.open()
            except HostError as error:
                self._refuse(error)
                return
            self._opened = True
        finally:
            self._attempt_over.set()
        from tui.panel.host_names import remember_host

        remember_host(board.host)
        app.touch()
        app.read_host("facts", self._read_facts, session)
        app.read_host("gpus", self._follow_gpus, session)
        app.read_host("runs", self._follow_runs, session)
        self._on_open()

    async def ready(self) -> "HostSession":
        """The session, once an attempt to connect that is under way is over. Raises HostError where there is none."""
        await self._attempt_over.wait()  # a key pressed while it connects is not refused for that
        return self.session()

    def session(self) -> "HostSession":
        """The session, while it is connected. Raises HostError."""
        app = self._app
        if app.session is None or not app.board.connected:
            raise HostError(f"{app.board.host} is not connected", "r connects again")
        return app.session

    # -- what is read all the time ---------------------------------------------------------------------------------

    def follow_link(self, session: "HostSession") -> None:
        """Shows every state of a session's link."""
        self._app.read_host("link", self._follow_link, session)

    async def _follow_link(self, session: "HostSession") -> None:
        board = self._app.board
        async for status in session.link():
            was = board.link.state if board.link else None
            board.link = status
            if status.state is LinkState.REFUSED and was is not LinkState.REFUSED and status.error is not None:
                self._refuse(status.error)
            if status.state is LinkState.UP:
                board.problem = None
            self._app.touch(soon=status.state is not was)

    async def _read_facts(self, session: "HostSession") -> None:
        self._app.board.facts = await session.facts()
        self._app.touch()

    async def _follow_gpus(self, session: "HostSession") -> None:
        async for sample in session.gpus():
            self._app.board.take_sample(sample)
            self._app.touch()

    async def _follow_runs(self, session: "HostSession") -> None:
        board = self._app.board
        while True:
            try:
                board.runs = await session.runs()
                self._on_runs()
                self._app.touch()
            except EagletuiError as error:
                if board.connected:
                    self._app.set_problem(error)
            except Exception as error:
                self._app.set_problem(self._app.report_fault(error))
            await asyncio.sleep(_RUNS_S)

    # -- refused, again, elsewhere ---------------------------------------------------------------------------------

    def _refuse(self, error: HostError) -> None:
        """A host key that changed fills the screen; every other reason is a line."""
        app, board = self._app, self._app.board
        if error.slug not in (Slug.HOST_KEY_CHANGED, Slug.HOST_KEY_REVOKED):
            app.set_problem(error)
            return
        from tui.panel.screens.connecting import Refused

        if any(isinstance(screen, Refused) for screen in app.screen_stack):
            return
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
        status = app.session.transport.status() if app.session is not None else board.link
        app.push_screen(Refused(board.host, error, status, seen), self._after_refusal)

    def _after_refusal(self, choice: str | None) -> None:
        if choice == "reconnect":
            self.reconnect()
        elif choice is not None:  # hosts, leave
            self._app.call_later(self._app.run_action, choice)

    def reconnect(self) -> None:
        """Connects again, at once."""
        app = self._app
        # The simulated host may be gone for good: it ends by itself, and opening it starts it again.
        if app.session is not None and self._opened and not app.board.simulated:
            app.session.transport.reconnect()
            app.touch()
        else:
            app.board.link = None
            self.change_host(app.board.host)

    def change_host(self, host: str) -> None:
        """Closes this host and opens another one, or the same again."""
        self._app.background("reopen", self._change_host, host)

    async def _change_host(self, host: str) -> None:
        app = self._app
        for group in _GROUPS:
            app.workers.cancel_group(app, group)
        if app.session is not None:
            with contextlib.suppress(Exception):
                await app.session.close()
            app.session = None
        app.board.show_host(host)
        self._opened = False
        app.touch()
        self.connect()
