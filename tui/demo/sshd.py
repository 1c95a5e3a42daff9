"""The simulated host's SSH server: on 127.0.0.1, for one key, running `/bin/sh -s` and nothing else."""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Mapping

import asyncssh

from tui.core.link.processes import Child
from tui.core.link.scripts import COMMAND
from tui.core.link.ssh_channel import CIPHERS

_OUTPUT_S = 3.0  # for what still holds the outputs after the shell has ended
_ORPHAN_S = 10.0  # what a lost client left behind is ended after this


class _Gate(asyncssh.SSHServer):
    """One connection: lets one key in, and through to this machine only."""

    def __init__(self, server: "SshServer") -> None:
        self._server = server
        self._connection: asyncssh.SSHServerConnection | None = None
        self._counted = False

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn
        self._server.connections.add(conn)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._connection is not None:
            self._server.connections.discard(self._connection)
        if self._counted:
            self._server.count(-1)

    def begin_auth(self, username: str) -> bool:
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        return key == self._server.allowed

    def auth_completed(self) -> None:
        self._counted = True
        self._server.count(1)

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> bool:
        return dest_host in ("127.0.0.1", "localhost", "::1")


class SshServer:
    """An SSH server on 127.0.0.1 (`serve`)."""

    def __init__(self, allowed: str, env: Mapping[str, str], cwd: str, on_clients: Callable[[int], None]) -> None:
        self.allowed = asyncssh.import_public_key(allowed)
        self.connections: set[asyncssh.SSHServerConnection] = set()
        self._env, self._cwd, self._on_clients = dict(env), cwd, on_clients
        self._clients = 0
        self._children: set[Child] = set()
        self._acceptor: asyncssh.SSHAcceptor | None = None

    async def start(self, host_key: str) -> None:
        """Binds a free port."""
        self._acceptor = await asyncssh.listen(
            "127.0.0.1",
            0,
            server_factory=lambda: _Gate(self),
            server_host_keys=[asyncssh.import_private_key(host_key)],
            process_factory=self._serve,
            encoding=None,
            line_editor=False,
            allow_scp=False,
            agent_forwarding=False,
            x11_forwarding=False,
            encryption_algs=CIPHERS,
            compression_algs=None,
            keepalive_interval=15,
            keepalive_count_max=2,
        )

    @property
    def port(self) -> int:
        """The port on 127.0.0.1."""
        assert self._acceptor is not None
        return self._acceptor.get_port()

    def count(self, step: int) -> None:
        """A client came or left."""
        self._clients += step
        self._on_clients(self._clients)

    def close(self) -> None:
        """Takes no more connections, closes the present ones and ends their commands."""
        if self._acceptor is not None:
            self._acceptor.close()
        for connection in tuple(self.connections):
            connection.close()
        for child in tuple(self._children):
            child.signal_group(signal.SIGTERM)

    async def wait_closed(self) -> None:
        """Waits until it is closed."""
        if self._acceptor is not None:
            await self._acceptor.wait_closed()

    async def _serve(self, process: "asyncssh.SSHServerProcess[bytes]") -> None:
        if process.command != COMMAND:
            process.stderr.write(f"only {COMMAND} is served here\n".encode())
            process.exit(127)
            return
        child = await Child.start(*COMMAND.split(), env=self._env, cwd=self._cwd)
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        self._children.add(child)
        feeding = asyncio.create_task(self._feed(process, child, child.stdin))
        outputs = [
            asyncio.create_task(self._drain(child.stdout, process.stdout)),
            asyncio.create_task(self._drain(child.stderr, process.stderr)),
        ]
        try:
            status = await child.exited()
            # What the shell left in the background may hold the outputs; sshd waits for those too, but not we forever.
            await asyncio.wait(outputs, timeout=_OUTPUT_S)
            with contextlib.suppress(OSError, asyncssh.Error):
                if status < 0:
                    process.exit_with_signal(signal.Signals(-status).name.removeprefix("SIG"))
                else:
                    process.exit(status)
        finally:
            self._children.discard(child)
            for task in (feeding, *outputs):
                task.cancel()
            child.close()

    async def _feed(
        self, process: "asyncssh.SSHServerProcess[bytes]", child: Child, sink: asyncio.StreamWriter
    ) -> None:
        """The client's bytes and signals to the shell; a channel that is gone ends what still runs there."""
        while True:
            try:
                data = await process.stdin.read(65_536)
                if not data:
                    break
                sink.write(data)
                await sink.drain()
            except asyncssh.SignalReceived as received:
                with contextlib.suppress(AttributeError):
                    child.signal_group(getattr(signal, f"SIG{received.signal}"))
            except (OSError, asyncssh.Error):
                break
        sink.close()
        with contextlib.suppress(OSError, asyncssh.Error):
            await process.channel.wait_closed()
        # The end of its input ended most scripts already; a launch or a stop gets time to come to its end.
        await asyncio.sleep(_ORPHAN_S)
        child.signal_group(signal.SIGTERM)

    @staticmethod
    async def _drain(source: asyncio.StreamReader, sink: "asyncssh.SSHWriter[bytes]") -> None:
        with contextlib.suppress(OSError, asyncssh.Error):
            while data := await source.read(65_536):
                sink.write(data)
                await sink.drain()
        # The channel is gone, the shell must not block on a full pipe before it sees that.
        while await source.read(65_536):
            pass


async def serve(
    *, host_key: str, client_public_key: str, env: Mapping[str, str], cwd: str, on_clients: Callable[[int], None]
) -> SshServer:
    """Starts an SSH server on a free port of 127.0.0.1 that runs `/bin/sh -s` for one key and forwards to 127.0.0.1.

    Args:
        host_key, client_public_key: as `generate_key` returns them (its first and second text).
        env, cwd: of every shell.
        on_clients: called with the number of clients whenever it changes.
    """
    server = SshServer(client_public_key, env, cwd, on_clients)
    await server.start(host_key)
    return server
