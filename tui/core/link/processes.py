"""Processes of this machine whose end is known apart from the end of their pipes.

`asyncio.subprocess.Process.wait` returns, before Python 3.12, only when the pipes are closed too; a child that
inherited one, or a reader that stopped reading, holds it up forever.
"""

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import PIPE, SubprocessStreamProtocol
from collections.abc import Mapping

_LIMIT_BYTES = 262_144  # half of what is read ahead before the pipe is left to fill


class _Protocol(SubprocessStreamProtocol):
    def __init__(self) -> None:
        super().__init__(limit=_LIMIT_BYTES, loop=asyncio.get_running_loop())
        self.exited = asyncio.Event()

    def process_exited(self) -> None:
        super().process_exited()
        self.exited.set()


class Child:
    """A process in a session of its own, so that its process group is its own too.

    Attributes:
        stdin, stdout, stderr: its pipes; stdin and stdout are closed streams where it was given other files.
    """

    def __init__(self, transport: asyncio.SubprocessTransport, protocol: _Protocol) -> None:
        self._transport, self._protocol = transport, protocol
        self.pid = transport.get_pid()
        self.stdin = protocol.stdin
        self.stdout = protocol.stdout
        self.stderr = protocol.stderr

    @classmethod
    async def start(
        cls,
        *argv: str,
        stdin: int = PIPE,
        stdout: int = PIPE,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> "Child":
        """Starts a process; `stdin` and `stdout` may be file descriptors. Raises OSError."""
        transport, protocol = await asyncio.get_running_loop().subprocess_exec(
            _Protocol, *argv, stdin=stdin, stdout=stdout, stderr=PIPE, env=env, cwd=cwd, start_new_session=True
        )
        return cls(transport, protocol)

    @property
    def exit_status(self) -> int | None:
        """The exit status, negative for a signal, None while it runs."""
        return self._transport.get_returncode()

    async def exited(self) -> int:
        """Waits for the process itself, whoever holds its pipes."""
        await self._protocol.exited.wait()
        status = self._transport.get_returncode()
        assert status is not None
        return status

    def signal_group(self, number: int) -> None:
        """Sends a signal to the process group, as long as the process itself lives."""
        if self.exit_status is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def close(self) -> None:
        """Closes the pipes; a process that still runs is killed with its group."""
        self.signal_group(signal.SIGKILL)
        self._transport.close()
