"""This machine, with the interface of a host behind SSH."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Mapping

from tui.core.config import LOCAL_HOST
from tui.core.errors import HostError, LinkLost, Slug
from tui.core.link.over_shell import OverShell
from tui.core.link.processes import Child
from tui.core.link.scripts import COMMAND, end
from tui.core.link.transport import Connection, LinkState, LinkStatus


class _ProcessChannel:
    """A `/bin/sh -s` of this machine in a session of its own, as sshd gives each of its channels."""

    def __init__(self, child: Child) -> None:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        self._child = child
        self.used = self.waits = False  # every script has a shell of its own here
        self._stdin, self._stdout, self._stderr = child.stdin, child.stdout, child.stderr

    def write(self, data: bytes) -> None:
        if not self._stdin.is_closing():
            self._stdin.write(data)

    def write_eof(self) -> None:
        self._stdin.close()

    async def drain(self) -> None:
        with contextlib.suppress(ConnectionError):
            await self._stdin.drain()

    async def read_stdout(self, max_bytes: int) -> bytes:
        return await self._stdout.read(max_bytes)

    async def read_stderr(self, max_bytes: int) -> bytes:
        return await self._stderr.read(max_bytes)

    async def ended(self) -> int | str | None:
        status = await self._child.exited()
        return status if status >= 0 else signal.Signals(-status).name

    def close(self) -> None:
        # The watcher has its line; the pipes are closed when the shell is gone (`reap`).
        self._stdin.close()

    async def reap(self) -> None:
        """Waits for the shell and closes the pipes; children that outlive it keep their own ends."""
        try:
            await self._child.exited()
        finally:
            self._child.close()


class _SocketConnection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, what: str) -> None:
        self._reader, self._writer, self._what = reader, writer, what

    async def read(self, max_bytes: int = 65_536) -> bytes:
        try:
            return await self._reader.read(max_bytes)
        except OSError as error:
            raise HostError(f"{self._what}: {error.strerror or error}", slug=Slug.REFUSED) from None

    async def write(self, data: bytes) -> None:
        try:
            self._writer.write(data)
            await self._writer.drain()
        except OSError as error:
            raise HostError(f"{self._what}: {error.strerror or error}", slug=Slug.REFUSED) from None

    async def close(self) -> None:
        self._writer.close()


class LocalTransport(OverShell):
    """This machine without SSH.

    Args:
        host: the name shown; `local` unless a test wants another.
        env: the environment of the scripts; this process's own where not given.
    """

    def __init__(self, host: str = LOCAL_HOST, *, env: Mapping[str, str] | None = None) -> None:
        self.host = host
        self._env = dict(env) if env is not None else None
        self._since = time.monotonic()
        self._closed = asyncio.Event()
        self._reapers: set[asyncio.Task[None]] = set()

    async def connect(self) -> None:
        """Nothing to do here."""

    @contextlib.asynccontextmanager
    async def shell(self, *, for_stream: bool = False) -> AsyncIterator[_ProcessChannel]:
        """See `Transport.shell`."""
        if self._closed.is_set():
            raise LinkLost(f"{self.host}: closed")
        try:
            child = await Child.start(*COMMAND.split(), env=self._env)
        except OSError as error:
            raise HostError(
                f"{self.host}: /bin/sh cannot be started: {error.strerror}", slug=Slug.UNSUPPORTED_HOST
            ) from None
        channel = _ProcessChannel(child)
        try:
            yield channel
        finally:
            end(channel)
            if self._closed.is_set():  # the event loop may be about to end: nobody would wait for a task
                child.close()
            else:
                task = asyncio.create_task(channel.reap())
                self._reapers.add(task)
                task.add_done_callback(self._reapers.discard)

    @contextlib.asynccontextmanager
    async def open_connection(self, host: str, port: int) -> AsyncIterator[Connection]:
        """See `Transport.open_connection`."""
        try:
            reader, writer = await asyncio.open_connection(host, port)
        except OSError as error:
            raise HostError(
                f"{self.host}: nothing answers on {host}:{port}: {os.strerror(error.errno or 0)}",
                "is the server running, and is this its port?",
                slug=Slug.REFUSED,
            ) from None
        try:
            yield _SocketConnection(reader, writer, f"{self.host}: {host}:{port}")
        finally:
            writer.transport.abort()

    def status(self) -> LinkStatus:
        """Always up: there is no link to lose."""
        if self._closed.is_set():
            return LinkStatus(self.host, LinkState.CLOSED, self._since)
        return LinkStatus(self.host, LinkState.UP, self._since, last_byte_at=time.monotonic())

    async def watch(self) -> AsyncIterator[LinkStatus]:
        """Up, then closed."""
        if not self._closed.is_set():
            yield self.status()
            await self._closed.wait()
        yield self.status()

    def reconnect(self) -> None:
        """Nothing to do here."""

    async def close(self) -> None:
        """Ends what still runs for us; returns within 2 s."""
        self._closed.set()
        self._since = time.monotonic()
        if self._reapers:
            await asyncio.wait(self._reapers, timeout=1.5)
        for task in self._reapers:
            task.cancel()
        await asyncio.gather(*self._reapers, return_exceptions=True)
