"""Keeps one link to a host: makes it, watches it, renews it with back-off, and tells about its state.

What a link is made of is the business of `tui.core.link.ssh`; here is when to try, when to wait and when to stop.
"""

import asyncio
import contextlib
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

from tui.core.errors import HostError, LinkLost, Slug
from tui.core.link.transport import LinkState, LinkStatus
from tui.core.text import one_line

# No retry without a person: the same question would be answered the same way, or the account be locked.
FINAL = frozenset(
    {
        Slug.AUTH_FAILED,
        Slug.HOST_KEY_UNKNOWN,
        Slug.HOST_KEY_CHANGED,
        Slug.HOST_KEY_REVOKED,
        Slug.SSH_CONFIG,
        Slug.UNSUPPORTED_HOST,
    }
)
_HISTORY = 256  # states kept for a watcher that is slow


@dataclass(frozen=True)
class Timing:
    """Seconds, and how often. The defaults are measured choices; tests shorten them."""

    greeting_s: float = 15.0  # TCP is there, and nobody says "SSH-"
    login_s: float = 30.0  # key exchange and authentication, without the time a person takes
    keepalive_s: float = 5.0
    keepalive_count: int = 2  # dead after keepalive_s x (count + 1)
    ping_s: float = 2.0  # round trip and age of the link
    backoff_s: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)  # upper bounds, full jitter
    healthy_s: float = 60.0  # up for this long: back-off starts over from its first step


def _fault(host: str, error: BaseException) -> HostError:
    """A fault of ours ends in a message too."""
    return HostError(
        f"{host}: cannot connect: {type(error).__name__}: {one_line(str(error))}",
        "this is a fault of the program; please report it",
        slug=Slug.SSH_CONFIG,
    )


class Link(Protocol):
    """One live connection."""

    lost: "asyncio.Future[HostError]"  # done when it is dead
    interactive: bool  # a person answered questions for it, so it cannot be renewed alone

    async def close(self) -> None: ...


L = TypeVar("L", bound=Link)


class Reconnector(Generic[L]):
    """The one task that makes and renews the link to a host.

    Args:
        host: the name shown.
        dial: makes a connection; raises HostError.
        timing: back-off.
    """

    def __init__(self, host: str, dial: Callable[[], Awaitable[L]], timing: Timing) -> None:
        self._dial = dial
        self._timing = timing
        self._status = LinkStatus(host, LinkState.CONNECTING, time.monotonic())
        self._watchers: list[tuple[deque[LinkStatus], asyncio.Event]] = []
        self._changed = asyncio.Event()
        self._kick = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._link: L | None = None
        self._outcome: asyncio.Future[None] | None = None

    # State

    @property
    def status(self) -> LinkStatus:
        """The present state."""
        return self._status

    def update(self, **changes: object) -> None:
        """Changes fields of the status and tells the watchers; `since` follows the state."""
        if changes.get("state", self._status.state) is not self._status.state:
            changes["since"] = time.monotonic()
        status = replace(self._status, **changes)  # type: ignore[arg-type]
        same_state = status.state is self._status.state
        self._status = status
        for seen, event in self._watchers:
            if same_state and len(seen) > 1:
                seen.pop()  # only the age moved: the newest is enough
            seen.append(status)
            event.set()
        self._changed.set()
        self._changed = asyncio.Event()

    async def watch(self) -> AsyncIterator[LinkStatus]:
        """The present status, then every change; ends when closed."""
        seen: deque[LinkStatus] = deque([self._status], maxlen=_HISTORY)
        event = asyncio.Event()
        watcher = (seen, event)
        self._watchers.append(watcher)
        try:
            while True:
                while seen:
                    status = seen.popleft()
                    yield status
                    if status.state is LinkState.CLOSED:
                        return
                event.clear()
                await event.wait()
        finally:
            self._watchers.remove(watcher)

    # Use

    def start(self) -> None:
        """Begins to connect, once."""
        if self._task is None and self._status.state is not LinkState.CLOSED:
            self._expect()
            self._task = asyncio.create_task(self._keep())
            self._task.add_done_callback(self._stopped)

    def _expect(self) -> "asyncio.Future[None]":
        """The outcome of the try under way or next."""
        if self._outcome is None or self._outcome.done():
            self._outcome = asyncio.get_running_loop().create_future()
            # Nobody need look at it.
            self._outcome.add_done_callback(lambda done: done.cancelled() or done.exception())
        return self._outcome

    def _needs_person(self) -> bool:
        return self._status.error is not None and self._status.state in (LinkState.REFUSED, LinkState.WAITING)

    async def first(self) -> None:
        """Waits for the outcome of the try under way, or of one made now. Raises HostError."""
        self.start()
        if self._status.state is LinkState.CLOSED or self._status.state is LinkState.UP:
            await self.ready()
            return
        if self._needs_person() and self._status.error is not None:
            raise self._status.error
        if self._status.retry_at is not None:
            self._kick.set()
        await asyncio.shield(self._expect())

    async def ready(self) -> L:
        """The live connection, as soon as there is one. Raises HostError where nobody will make one."""
        self.start()
        while True:
            changed, status = self._changed, self._status
            if self._link is not None and not self._link.lost.done():
                return self._link
            if status.state is LinkState.CLOSED:
                raise LinkLost(f"{status.host}: the connection was closed")
            if self._needs_person() and status.error is not None:
                raise status.error
            await changed.wait()

    def kick(self) -> None:
        """The next try now; also the way out of WAITING and REFUSED."""
        if self._needs_person():
            self.update(state=LinkState.CONNECTING, error=None)
        if self._status.state is not LinkState.UP:
            self._kick.set()
        self.start()

    async def close(self) -> None:
        """Ends the task and the connection, at once where the link is dead."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task], timeout=1.5)
        self._settle(LinkLost(f"{self._status.host}: the connection was closed"))
        if self._status.state is not LinkState.CLOSED:
            self.update(state=LinkState.CLOSED, retry_at=None)

    # The task

    def _stopped(self, task: "asyncio.Task[None]") -> None:
        """Nobody may wait for a link that nobody makes any more."""
        if not task.cancelled() and (fault := task.exception()) is not None:
            error = _fault(self._status.host, fault)
            self._settle(error)
            self.update(state=LinkState.REFUSED, error=error, retry_at=None)

    def _settle(self, error: HostError | None) -> None:
        if self._outcome is not None and not self._outcome.done():
            if error is None:
                self._outcome.set_result(None)
            else:
                self._outcome.set_exception(error)

    async def _keep(self) -> None:
        attempt = 0
        while True:
            self._kick.clear()
            attempt += 1
            self.update(attempt=attempt, retry_at=None)
            try:
                link = await self._dial_once()
            except HostError as error:
                self._settle(error)
                if error.slug in FINAL:
                    await self._wait_for_person(LinkState.REFUSED, error)
                    attempt = 0
                elif await self._back_off(attempt, error):
                    attempt = 0
                continue
            self._link = link
            up_at = time.monotonic()
            self.update(state=LinkState.UP, error=None, attempt=0)
            self._settle(None)
            try:
                loss = await asyncio.shield(link.lost)
            finally:
                self._link = None
                await link.close()
            # A link that came up is worth quick tries (a killed sshd), but not a storm of them.
            attempt = 0 if time.monotonic() - up_at >= self._timing.healthy_s else min(attempt, 1)
            if link.interactive:
                await self._wait_for_person(
                    LinkState.WAITING,
                    HostError(loss.message, "connecting again asks for your answers again", slug=loss.slug),
                )
                attempt = 0
            else:
                await self._back_off(attempt + 1, loss)

    async def _dial_once(self) -> L:
        try:
            return await self._dial()
        except HostError:
            raise
        except Exception as error:
            raise _fault(self._status.host, error) from error

    async def _wait_for_person(self, state: LinkState, error: HostError) -> None:
        self.update(state=state, error=error, retry_at=None)
        await self._kick.wait()

    async def _back_off(self, attempt: int, error: HostError) -> bool:
        """Waits for the next try; whether a person asked for it."""
        steps = self._timing.backoff_s
        delay = random.uniform(0, steps[min(max(attempt, 1), len(steps)) - 1])
        self.update(state=LinkState.LOST, error=error, retry_at=time.monotonic() + delay)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay):
                await self._kick.wait()
        return self._kick.is_set()
