"""What runs over an SSH connection: a session channel with a shell behind it, a connection made by the host.

Every error of the SSH library becomes one of ours here. Standard input is never logged: it carries scripts with secrets.
"""

import asyncio
import contextlib
import os
import time
from typing import Any, Protocol

import asyncssh

from tui.core.errors import HostError, LinkLost
from tui.core.text import one_line

# Measured: aes-gcm moves 1.4 times what asyncssh's first choice, chacha20, does.
CIPHERS = [
    "aes128-gcm@openssh.com",
    "aes256-gcm@openssh.com",
    "chacha20-poly1305@openssh.com",
    "aes256-ctr",
    "aes128-ctr",
]
_ENDED_S = 5.0  # for an exit status that follows the end of the output
_FREED_S = 3.0  # for the confirmation that a channel is closed

asyncssh.set_log_level("WARNING")  # its INFO lines name every command and connection


def error_number(error: BaseException) -> int | None:
    """The errno of an error of the system, None for any other."""
    return error.errno if isinstance(error, OSError) else None


def error_words(error: BaseException) -> str:
    """What a library or a host says, as one safe line."""
    number = error_number(error)
    reason = getattr(error, "reason", None) or (os.strerror(number) if number else str(error))
    return one_line(str(reason)) or type(error).__name__


def link_lost(host: str, error: BaseException | None) -> LinkLost:
    """The loss of a link under way."""
    why = f": {error_words(error)}" if error is not None else ""
    return LinkLost(
        f"{host}: the link was lost{why}",
        "what was asked may or may not have happened; look again when the link is back",
    )


class Heard(Protocol):
    """The link that a channel belongs to."""

    lost: "asyncio.Future[HostError]"
    heard_at: float  # time.monotonic() of the last byte


class SshConnection:
    """A direct-tcpip channel (`transport.Connection`)."""

    def __init__(self, link: Heard, host: str, streams: "tuple[Any, Any]") -> None:
        self._link, self._host = link, host
        self._reader, self._writer = streams

    async def read(self, max_bytes: int = 65_536) -> bytes:
        try:
            data: bytes = await self._reader.read(max_bytes)
        except (OSError, asyncssh.Error) as error:
            raise link_lost(self._host, error) from None
        if data:
            self._link.heard_at = time.monotonic()
        elif self._link.lost.done():
            raise link_lost(self._host, None)
        return data

    async def write(self, data: bytes) -> None:
        try:
            self._writer.write(data)
            await self._writer.drain()
        except (OSError, asyncssh.Error) as error:
            raise link_lost(self._host, error) from None

    async def close(self) -> None:
        self._writer.channel.abort()


class SshChannel:
    """A session channel with `/bin/sh -s` behind it (`scripts.Channel`).

    Attributes:
        link: the connection that it belongs to.
        used, waits: see `Channel`.
        streaming: a stream has its shell.
    """

    def __init__(self, link: Heard, host: str, process: "asyncssh.SSHClientProcess[bytes]") -> None:
        self.link, self._host, self._process = link, host, process
        self.used = self.waits = self.streaming = False
        self._failure: HostError | None = None

    @property
    def alive(self) -> bool:
        """Whether a shell is there, as far as is known."""
        return not (self._failure or self._process.stdout.at_eof() or self._process.is_closing())

    def give_up(self, error: HostError) -> None:
        """Closes it for whoever reads it, who is told why."""
        self._failure = error
        self.write(b"exit\n")
        self._process.close()

    def write(self, data: bytes) -> None:
        with contextlib.suppress(OSError, asyncssh.Error):  # reading tells of a dead link
            self._process.stdin.write(data)

    def write_eof(self) -> None:
        with contextlib.suppress(OSError, asyncssh.Error):
            self._process.stdin.write_eof()

    async def drain(self) -> None:
        with contextlib.suppress(OSError, asyncssh.Error):
            await self._process.stdin.drain()

    async def _read(self, reader: "asyncssh.SSHReader[bytes]", max_bytes: int) -> bytes:
        try:
            data = await reader.read(max_bytes)
        except (OSError, asyncssh.Error) as error:  # a TimeoutError here is the kernel's ETIMEDOUT
            raise self._failure or link_lost(self._host, error) from None
        if data:
            self.link.heard_at = time.monotonic()
        elif self._failure is not None:
            raise self._failure
        return data

    async def read_stdout(self, max_bytes: int) -> bytes:
        return await self._read(self._process.stdout, max_bytes)

    async def read_stderr(self, max_bytes: int) -> bytes:
        return await self._read(self._process.stderr, max_bytes)

    async def ended(self) -> int | str | None:
        await self._closed(_ENDED_S)
        by = self._process.exit_signal
        return f"SIG{one_line(by[0])}" if by else self._process.exit_status

    def close(self) -> None:
        self._process.close()

    async def freed(self) -> None:
        """Waits, for a bounded time, until the host has let go of the session."""
        await self._closed(_FREED_S)

    async def _closed(self, timeout_s: float) -> None:
        with contextlib.suppress(TimeoutError, OSError, asyncssh.Error):
            async with asyncio.timeout(timeout_s):
                await self._process.wait_closed()
