"""The session with a host, and the workers that put what it reports onto its board."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from tui import format as fmt
from tui.core.errors import EagletuiError, HostError, Slug
from tui.core.link.transport import LinkState
from tui.panel.cluster_view import Cluster
from tui.panel.open_host import OpenHost

if TYPE_CHECKING:
    from tui.core.server.session import HostSession

_RUNS_S = 5.0  # how often the host is asked for servers that others started, at most
_LONGEST_RUNS_S = 300.0  # and at least, where it tells when something changes


def _nothing() -> None: ...


class Connection:
    """Opens a host, keeps reading it, and changes to another one.

    Args:
        opened: called once a session is open.
        runs_read: called after each look at the host's runs.
    """

    def __init__(
        self, host: OpenHost, *, opened: Callable[[], None] = _nothing, runs_read: Callable[[], None] = _nothing
    ) -> None:
        self._host = host
        self._on_open = opened
        self._on_runs = runs_read
        self._opened = False
        self._attempt_over = asyncio.Event()

    def connect(self) -> None:
        """Opens the session with the board's host and starts everything that reads it."""
        self._opened = False
        self._attempt_over.clear()
        self._host.read("connect", self._connect)

    async def _connect(self) -> None:
        host, board = self._host, self._host.board
        board.started_at = time.monotonic()
        board.problem = None
        try:
            session = await host.open_session()
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
        host.touch()
        host.read("facts", self._read_facts, session)
        host.read("gpus", self._follow_gpus, session)
        host.read("runs", self._follow_runs, session)
        self._on_open()

    async def ready(self) -> "HostSession":
        """The session, once an attempt to connect that is under way is over. Raises HostError where there is none."""
        await self._attempt_over.wait()  # a key pressed while it connects is not refused for that
        return self.session()

    def session(self) -> "HostSession":
        """The session, while it is connected. Raises HostError."""
        host = self._host
        if host.session is None or not host.board.connected:
            raise HostError(f"{host.board.host} is not connected", "r connects again")
        return host.session

    # -- what is read all the time ---------------------------------------------------------------------------------

    def follow_link(self, session: "HostSession") -> None:
        """Shows every state of a session's link."""
        self._host.read("link", self._follow_link, session)

    async def _follow_link(self, session: "HostSession") -> None:
        board = self._host.board
        async for status in session.link():
            was = board.link.state if board.link else None
            board.link = status
            if status.state is LinkState.REFUSED and was is not LinkState.REFUSED and status.error is not None:
                self._refuse(status.error)
            if status.state is LinkState.UP:
                board.problem = None
            self._host.touch(soon=status.state is not was)

    async def _read_facts(self, session: "HostSession") -> None:
        self._host.board.facts = await session.facts()
        self._host.touch()

    async def _follow_gpus(self, session: "HostSession") -> None:
        async for sample in session.gpus():
            self._host.board.take_sample(sample)
            self._host.touch()

    async def _follow_runs(self, session: "HostSession") -> None:
        board = self._host.board
        pace = session.pace(_RUNS_S, _LONGEST_RUNS_S)
        hearing = False
        while True:
            try:
                board.runs = await session.runs()
                board.cluster = Cluster.of(session.jobs())
                board.runs_read = True
                self._on_runs()
                self._host.touch()
            except EagletuiError as error:
                if board.connected:
                    self._host.set_problem(error)
            except Exception as error:
                self._host.set_problem(self._host.app.report_fault(error))
            await pace.next_look()
            if (
                not hearing
            ):  # last of all that is followed: where the host opens few sessions, it is the first to make way
                hearing = True
                self._host.read("news", session.hear)

    # -- refused, again, elsewhere ---------------------------------------------------------------------------------

    def _refuse(self, error: HostError) -> None:
        """Every reason is a line; a host key that changed fills the screen of the host, now or once it is displayed."""
        self._host.set_problem(error)
        self.show_refusal()

    def show_refusal(self) -> None:
        """A host key that changed fills the screen, where this host is displayed."""
        app, board, error = self._host.app, self._host.board, self._host.board.problem
        if not isinstance(error, HostError) or error.slug not in (Slug.HOST_KEY_CHANGED, Slug.HOST_KEY_REVOKED):
            return
        if not app.displays(board):
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
        session = self._host.session
        status = session.transport.status() if session is not None else board.link
        app.push_screen(Refused(board.host, error, status, seen), self._after_refusal)

    def _after_refusal(self, choice: str | None) -> None:
        if choice == "reconnect":
            self.reconnect()
        elif choice is not None:  # hosts, leave
            self._host.app.call_later(self._host.app.run_action, choice)

    def reconnect(self) -> None:
        """Connects again, at once."""
        host = self._host
        # The simulated host may be gone for good: it ends by itself, and opening it starts it again.
        if host.session is not None and self._opened and not host.board.simulated:
            host.session.transport.reconnect()
            host.touch()
        else:
            host.board.link = None
            self.change_host(host.board.host)

    def change_host(self, name: str) -> None:
        """Closes this host and opens another one in its place, or the same again."""
        self._host.background("reopen", self._change_host, name)

    async def close(self) -> None:
        """Ends what reads the host, and its session."""
        host = self._host
        host.end_jobs()
        if host.session is not None:
            with contextlib.suppress(Exception):
                await host.session.close()
            host.session = None

    async def _change_host(self, name: str) -> None:
        host = self._host
        await self.close()
        host.board.show_host(name)
        self._opened = False
        host.touch()
        self.connect()
