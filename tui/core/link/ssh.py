"""A host behind SSH (`transport.Transport`): one connection, renewed by itself, and many channels over it.

`ssh_connect` makes the connection, `reconnect` decides when; here is what runs over it, within the host's limits.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

import asyncssh

from tui.core.errors import HostError, LinkLost, Slug, TimedOut
from tui.core.link.over_shell import OverShell
from tui.core.link.reconnect import Reconnector, Timing
from tui.core.link.scripts import COMMAND, end
from tui.core.link.ssh_channel import SshChannel, SshConnection, error_words, link_lost
from tui.core.link.ssh_connect import Dialer, SshLink
from tui.core.link.ssh_target import SshTarget
from tui.core.link.transport import Asker, Connection, LinkState, LinkStatus

T = TypeVar("T")

_MAX_CHANNELS = 8  # sshd's MaxSessions is 10 unless changed
_REFUSALS = 3  # of a session, while we have none open
_GONE_S = 2.0  # for the loss of a link to be noticed, once a channel has failed


class SshTransport(OverShell):
    """One host behind SSH.

    Args:
        host: as the user names it.
        target: where it is, or what finds that out before every first try and reconnect (raises HostError).
        asker: answers questions about host keys, passphrases, passwords and codes.
        timing: deadlines and back-off; the defaults are measured choices.
    """

    def __init__(
        self,
        host: str,
        target: SshTarget | Callable[[], Awaitable[SshTarget]],
        asker: Asker,
        *,
        timing: Timing | None = None,
    ) -> None:
        self.host = host
        self._target = target
        self._timing = timing or Timing()
        self._reconnector: Reconnector[SshLink] = Reconnector(host, self._dial, self._timing)
        self._dialer = Dialer(host, asker, self._timing, self._reconnector.update)
        self._link: SshLink | None = None
        self._sessions = asyncio.Semaphore(_MAX_CHANNELS)
        self._open_channels = 0
        self._freed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    # The link

    async def connect(self) -> None:
        """See `Transport.connect`."""
        await self._reconnector.first()

    def status(self) -> LinkStatus:
        """See `Transport.status`."""
        status = self._reconnector.status
        return replace(status, last_byte_at=self._link.heard_at) if self._link else status

    def watch(self) -> AsyncIterator[LinkStatus]:
        """See `Transport.watch`; while the link is up there is a status at least every few seconds."""
        return self._reconnector.watch()

    def reconnect(self) -> None:
        """See `Transport.reconnect`."""
        self._reconnector.kick()

    async def close(self) -> None:
        """See `Transport.close`."""
        await self._reconnector.close()
        for task in tuple(self._tasks):
            task.cancel()

    async def _dial(self) -> SshLink:
        target = self._target if isinstance(self._target, SshTarget) else await self._target()
        self._reconnector.update(address=target.where)
        link = await self._dialer.dial(target)
        link.watch(self._timing.ping_s, self._reconnector.update)
        self._link = link
        if link.notice:
            self._reconnector.update(notice=link.notice)
        return link

    # Channels

    @contextlib.asynccontextmanager
    async def shell(self) -> AsyncIterator[SshChannel]:
        """See `Transport.shell`: a session channel, as soon as the link and the host's MaxSessions allow. Ends its script on the way out."""
        async with contextlib.AsyncExitStack() as undo:
            await self._sessions.acquire()
            undo.callback(self._sessions.release)
            channel = await self._open_channel()
            self._open_channels += 1
            undo.pop_all()
        try:
            yield channel
        finally:
            end(channel)
            task = asyncio.create_task(self._release(channel))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _opened(self, opening: Awaitable[T], discard: Callable[[T], None]) -> T:
        """Waits for a channel. asyncssh forgets one whose opening is cancelled, and the host keeps its session
        forever; so the opening continues by itself, and what comes of it is closed."""
        task = asyncio.ensure_future(opening)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(
                lambda done: None if done.cancelled() or done.exception() else discard(done.result())
            )
            raise

    async def _release(self, channel: SshChannel) -> None:
        try:
            await channel.freed()
        finally:
            self._open_channels -= 1
            self._sessions.release()
            self._freed.set()
            self._freed = asyncio.Event()

    async def _open_channel(self) -> SshChannel:
        refused_alone = 0
        while True:
            link = await self._reconnector.ready()
            freed = self._freed
            try:
                process = await self._opened(
                    link.conn.create_process(COMMAND, encoding=None), lambda late: late.close()
                )
                return SshChannel(link, self.host, process)
            except asyncssh.ChannelOpenError as error:
                if link.lost.done():
                    continue
                if error.code not in (asyncssh.OPEN_CONNECT_FAILED, asyncssh.OPEN_RESOURCE_SHORTAGE):
                    raise HostError(
                        f"{self.host}: the host runs no commands for us: {error_words(error)}",
                        "the account needs a login shell that may run /bin/sh",
                        slug=Slug.UNSUPPORTED_HOST,
                    ) from None
            except (OSError, asyncssh.Error) as error:
                await self._next_link(link, error)
                continue
            # MaxSessions of the host is reached: wait for one of ours to end.
            refused_alone += self._open_channels == 0
            if refused_alone > _REFUSALS:
                raise HostError(
                    f"{self.host}: the host opens no session on this connection",
                    "look at MaxSessions in its sshd_config",
                    slug=Slug.UNSUPPORTED_HOST,
                )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    await freed.wait()

    async def _next_link(self, link: SshLink, error: Exception) -> None:
        """Nothing was sent yet, so the next link may be asked; unless this one lives and only the channel failed."""
        try:
            async with asyncio.timeout(_GONE_S):
                await asyncio.shield(link.lost)
        except TimeoutError:
            raise link_lost(self.host, error) from None

    def _too_late(self, timeout_s: float, asked_at: float) -> HostError | TimedOut:
        """Our own deadline passed; a link that has gone quiet is a dead link, not a slow command."""
        status = self.status()
        quiet = 2 * self._timing.ping_s
        if status.state is not LinkState.UP:
            return LinkLost(
                f"{self.host}: no link within {timeout_s:g} s" + (f": {status.error}" if status.error else ""),
                "it is tried again by itself",
            )
        if status.last_byte_at is not None and time.monotonic() - max(status.last_byte_at, asked_at) > quiet:
            return LinkLost(
                f"{self.host}: the host has not answered for {time.monotonic() - status.last_byte_at:.0f} s",
                "what was asked may or may not have happened; look again when the link is back",
            )
        return TimedOut(
            f"{self.host}: a command gave no result within {timeout_s:g} s", "the host is busy; look at its load"
        )

    @contextlib.asynccontextmanager
    async def open_connection(self, host: str, port: int) -> AsyncIterator[Connection]:
        """See `Transport.open_connection`. Not counted in MaxSessions."""
        while True:
            link = await self._reconnector.ready()
            try:
                streams = await self._opened(
                    link.conn.open_connection(host, port, encoding=None), lambda late: late[1].channel.abort()
                )
                break
            except asyncssh.ChannelOpenError as error:
                if link.lost.done():
                    continue
                if error.code == asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED:
                    raise HostError(
                        f"{self.host}: the host forbids connections through it: {error_words(error)}",
                        "set AllowTcpForwarding yes (or local) in its sshd_config",
                        slug=Slug.FORWARDING_PROHIBITED,
                    ) from None
                raise HostError(
                    f"{self.host}: nothing answers on {host}:{port} there: {error_words(error)}",
                    "is the server running, and is this its port?",
                    slug=Slug.REFUSED,
                ) from None
            except (OSError, asyncssh.Error) as error:
                await self._next_link(link, error)
        connection = SshConnection(link, self.host, streams)
        try:
            yield connection
        finally:
            await connection.close()
