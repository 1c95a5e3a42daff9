"""The shells of one host behind SSH: session channels with a `/bin/sh -s`, opened as scripts need them and kept for the next.

A channel costs two waits for the host and one start of the login shell; a shell that is there already costs one wait and no start. A script
that finds none free does not wait for one of the others: a new one is opened, and whichever is there first takes it.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine

import asyncssh

from tui.core.errors import HostError, Slug
from tui.core.link.scripts import COMMAND, end
from tui.core.link.ssh_channel import SshChannel, error_words, link_lost
from tui.core.link.ssh_connect import SshLink

_MAX_CHANNELS = 8  # sshd's MaxSessions is 10 unless changed
_KEPT = 3  # free shells; each is a process and a session there
_NONE_S = (
    4.0  # for a session, while we have none open: the host counts one until its processes have ended, 2 s after SIGTERM
)
_REFUSED_S = 0.5  # until a refused session is asked for again
_PATIENCE_S = 1.0  # for a session to become free, where the host opens no more of them
_GONE_S = 2.0  # for the loss of a link to be noticed, once a channel has failed

_Waiter = asyncio.Future[SshChannel]


async def next_link(link: SshLink, host: str, error: Exception) -> None:
    """Nothing was sent yet, so the next link may be asked; unless this one lives and only the channel failed."""
    try:
        async with asyncio.timeout(_GONE_S):
            await asyncio.shield(link.lost)
    except TimeoutError:
        raise link_lost(host, error) from None


class Shells:
    """What is open, what is free, who waits.

    Args:
        host: as the user names it.
        ready: the live connection, as soon as there is one.
    """

    def __init__(self, host: str, ready: Callable[[], Awaitable[SshLink]]) -> None:
        self._host, self._ready = host, ready
        self._open: list[SshChannel] = []
        self._free: list[SshChannel] = []
        self._waiting: list[tuple[_Waiter, bool]] = []  # True: for a stream
        self._openers: set[asyncio.Task[None]] = set()
        self._refused = False  # the host opens no more sessions now: one opener goes on asking
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()

    async def take(self, *, for_stream: bool = False) -> SshChannel:
        """A shell that waits for a script, as soon as the link and the host's MaxSessions allow. Raises HostError."""
        link = await self._ready()
        while self._free:
            channel = self._free.pop()
            if channel.link is link and channel.alive:
                channel.streaming = for_stream
                return channel
            self.drop(channel)
        waiter: _Waiter = asyncio.get_running_loop().create_future()
        entry = (waiter, for_stream)
        self._waiting.append(entry)
        self._open_more()
        try:
            channel = await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self.give(waiter.result())
            raise
        finally:
            if entry in self._waiting:
                self._waiting.remove(entry)
        channel.streaming = for_stream
        return channel

    def give(self, channel: SshChannel) -> None:
        """A shell that waits for its next script goes to who waits longest, else it is kept."""
        channel.streaming = False
        while self._waiting:
            waiter, _ = self._waiting.pop(0)
            if not waiter.done():
                waiter.set_result(channel)
                return
        self._free.append(channel)
        if len(self._free) > _KEPT:
            self.drop(self._free.pop(0))

    def drop(self, channel: SshChannel) -> None:
        """Ends a shell with what runs in it; its place is free once the host has let go of it."""
        end(channel)
        self._start(self._released(channel), self._tasks)

    def close(self) -> None:
        """Nothing is opened any more; the channels end with the link."""
        for task in (*self._openers, *self._tasks):
            task.cancel()

    def _start(self, work: Coroutine[None, None, None], kept: "set[asyncio.Task[None]]") -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        kept.add(task)
        task.add_done_callback(kept.discard)
        return task

    async def _released(self, channel: SshChannel) -> None:
        try:
            await channel.freed()
        finally:
            self._open.remove(channel)
            self._changed.set()
            self._changed = asyncio.Event()
            self._open_more()

    def _open_more(self) -> None:
        """As many openers as there are waiters and room. The first shell has another opened beside it: a look at a server
        follows its log and asks beside that, and a slow login is then over for both at once."""
        wanted = len(self._waiting) + (not self._open) if self._waiting else 0
        room = 1 if self._refused else _MAX_CHANNELS - len(self._open)
        for _ in range(min(wanted, room) - len(self._openers)):
            self._start(self._opener(), self._openers).add_done_callback(lambda _: self._open_more())

    async def _opener(self) -> None:
        """Opens one shell for whoever then waits longest."""
        try:
            channel = await self._open_one()
        except HostError as error:
            if self._waiting:
                waiter, _ = self._waiting.pop(0)
                if not waiter.done():
                    waiter.set_exception(error)
            return
        if channel is not None:
            self._open.append(channel)
            self.give(channel)

    async def _open_one(self) -> SshChannel | None:
        """A new shell, None where nobody waits any more. Raises HostError."""
        refused_at: float | None = None
        try:
            while self._waiting or refused_at is None:
                link = await self._ready()
                changed = self._changed
                try:
                    process = await link.conn.create_process(COMMAND, encoding=None)
                    return SshChannel(link, self._host, process)
                except asyncssh.ChannelOpenError as error:
                    if link.lost.done():
                        continue
                    if error.code not in (asyncssh.OPEN_CONNECT_FAILED, asyncssh.OPEN_RESOURCE_SHORTAGE):
                        raise HostError(
                            f"{self._host}: the host runs no commands for us: {error_words(error)}",
                            "the account needs a login shell that may run /bin/sh",
                            slug=Slug.UNSUPPORTED_HOST,
                        ) from None
                except (OSError, asyncssh.Error) as error:
                    await next_link(link, self._host, error)
                    continue
                # MaxSessions of the host is reached.
                if self._refused and refused_at is None:
                    return None  # another opener asks on
                self._refused = True
                refused_at = refused_at or time.monotonic()
                self._make_room(time.monotonic() - refused_at)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_REFUSED_S):
                        await changed.wait()
            return None
        finally:
            if refused_at is not None:
                self._refused = False

    def _make_room(self, waited_s: float) -> None:
        """Where every session is taken by what is followed, the newest of it makes way for a script (a stop, a look)."""
        if not self._open and waited_s > _NONE_S:
            raise HostError(
                f"{self._host}: the host opens no session on this connection",
                "look at MaxSessions in its sshd_config",
                slug=Slug.UNSUPPORTED_HOST,
            )
        followed = [channel for channel in self._open if channel.streaming]
        if not followed or len(followed) < len(self._open) or not self._waiting or waited_s < _PATIENCE_S:
            return  # a script ends by itself
        sessions = "one session" if len(followed) == 1 else f"{len(followed)} sessions"
        error = HostError(
            f"{self._host}: the host opens only {sessions} on a connection, too few to follow logs or GPUs and ask beside that",
            f"set MaxSessions {2 + _MAX_CHANNELS} in its sshd_config",
            slug=Slug.UNSUPPORTED_HOST,
        )
        waiter, for_stream = self._waiting[0]
        if not for_stream:
            followed[-1].give_up(error)
        elif not waiter.done():
            self._waiting.pop(0)
            waiter.set_exception(error)
