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
from tui.core.link.ssh_channel import SshChannel, SshConnection, error_words
from tui.core.link.ssh_connect import Dialer, SshLink
from tui.core.link.ssh_shells import Shells, next_link
from tui.core.link.ssh_target import SshTarget
from tui.core.link.transport import Asker, Connection, LinkState, LinkStatus

T = TypeVar("T")


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
        self._shells = Shells(host, self._reconnector.ready)

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
        self._shells.close()

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
    async def shell(self, *, for_stream: bool = False) -> AsyncIterator[SshChannel]:
        """See `Transport.shell`: as soon as the link and the host's MaxSessions allow."""
        channel = await self._shells.take(for_stream=for_stream)
        channel.waits = False
        try:
            yield channel
        finally:
            channel.used = True
            (self._shells.give if channel.waits else self._shells.drop)(channel)

    async def _opened(self, opening: Awaitable[T], discard: Callable[[T], None]) -> T:
        """Waits for a connection through the host; one whose opening is cancelled is closed once it is there."""
        task = asyncio.ensure_future(opening)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(
                lambda done: None if done.cancelled() or done.exception() else discard(done.result())
            )
            raise

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
                await next_link(link, self.host, error)
        connection = SshConnection(link, self.host, streams)
        try:
            yield connection
        finally:
            await connection.close()
