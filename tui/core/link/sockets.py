"""The way to an SSH server before SSH starts: a TCP connection, or the pipe of a ProxyCommand."""

import asyncio
import contextlib
import errno
import os
import signal
import socket
from typing import Any

from tui.core.errors import HostError, Slug
from tui.core.link.processes import Child
from tui.core.text import one_line

USER_TIMEOUT_MS = 20_000  # unacknowledged data: the kernel gives up after this
_STAGGER_S = 0.25  # RFC 8305: the next address is tried beside a slow one
_GREETING_BYTES = 4096


def _set_options(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_MS)


def connect_error(error: OSError, where: str) -> HostError:
    """The one-line form of a failed connection to `where` (host:port)."""
    if isinstance(error, ConnectionRefusedError):
        return HostError(
            f"Nothing listens on {where}", "is sshd running there, and is this its port?", slug=Slug.REFUSED
        )
    if error.errno == errno.ETIMEDOUT or isinstance(error, TimeoutError):
        return HostError(
            f"No answer from {where}",
            "is the host up, and does a VPN or a firewall stand between?",
            slug=Slug.NO_ANSWER,
        )
    if isinstance(error, ConnectionResetError | BrokenPipeError):
        return HostError(
            f"{where} closed the connection at once",
            "it may be limiting new connections (MaxStartups) or barring this address; try again",
            slug=Slug.DROPPED,
        )
    said = os.strerror(error.errno) if error.errno else one_line(str(error))
    return HostError(f"{where} cannot be reached: {said}", "check the network, VPN and routes", slug=Slug.UNREACHABLE)


async def _resolve(host: str, port: int, family: int) -> list[tuple[Any, ...]]:
    loop = asyncio.get_running_loop()
    try:
        return list(await loop.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM))
    except (socket.gaierror, UnicodeError) as error:
        temporary = isinstance(error, socket.gaierror) and error.errno == socket.EAI_AGAIN
        raise HostError(
            f"The name {one_line(host)} cannot be resolved",
            "check the network" if temporary else "check the spelling, ~/.ssh/config and the network",
            slug=Slug.HOST_UNKNOWN,
        ) from None


async def _connect_one(info: tuple[Any, ...], bind: str | None) -> socket.socket:
    sock = socket.socket(info[0], info[1], info[2])
    try:
        sock.setblocking(False)
        _set_options(sock)
        if bind:
            sock.bind((bind, 0))
        await asyncio.get_running_loop().sock_connect(sock, info[4])
    except BaseException:
        sock.close()
        raise
    return sock


async def open_tcp(
    host: str, port: int, *, timeout_s: float, family: int = socket.AF_UNSPEC, bind: str | None = None
) -> socket.socket:
    """A connected, non-blocking socket; several addresses are tried side by side. Raises HostError."""
    where = f"{host}:{port}"
    tasks: set[asyncio.Task[socket.socket]] = set()
    failure: OSError | None = None
    try:
        async with asyncio.timeout(timeout_s):
            waiting = await _resolve(host, port, family)
            while waiting or tasks:
                if waiting:
                    tasks.add(asyncio.create_task(_connect_one(waiting.pop(0), bind)))
                done, _ = await asyncio.wait(
                    tasks, timeout=_STAGGER_S if waiting else None, return_when=asyncio.FIRST_COMPLETED
                )
                for task in done:
                    if task.exception() is None:
                        tasks.discard(task)
                        return task.result()
                    tasks.discard(task)
                    error = task.exception()
                    if not isinstance(error, OSError):
                        raise error or OSError("failed")
                    failure = error
    except TimeoutError:
        failure = TimeoutError(errno.ETIMEDOUT, "timed out")
    finally:
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, socket.socket):
                result.close()
    raise connect_error(failure or OSError(errno.EHOSTUNREACH, "no address"), where) from None


async def greeting(sock: socket.socket, timeout_s: float) -> bytes:
    """The first bytes that the server says, left in the socket; b"" if it closes. Raises TimeoutError, OSError.

    An SSH server speaks first (RFC 4253, 4.2), so this tells an SSH server from anything else, with its own words.
    """
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(timeout_s):
        while True:
            readable = asyncio.Event()
            loop.add_reader(sock, readable.set)
            try:
                await readable.wait()
            finally:
                loop.remove_reader(sock)
            with contextlib.suppress(BlockingIOError):
                return sock.recv(_GREETING_BYTES, socket.MSG_PEEK)


class ProxyCommand:
    """A ProxyCommand with its pipe.

    We run it ourselves, because its standard error must not reach the SSH protocol: asyncssh feeds it in, and takes
    a closed one for the loss of the connection. The last of it is kept for messages.
    """

    def __init__(self, child: Child, sock: socket.socket) -> None:
        self.sock = sock
        self._child = child
        self._said = bytearray()
        self._reader = asyncio.create_task(self._keep_stderr())

    @classmethod
    async def start(cls, command: str) -> "ProxyCommand":
        """Starts the command as OpenSSH does, by the user's shell. Raises HostError."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        shell = os.environ.get("SHELL") or "/bin/sh"
        try:
            child = await Child.start(shell, "-c", f"exec {command}", stdin=theirs.fileno(), stdout=theirs.fileno())
        except OSError as error:
            ours.close()
            raise HostError(
                f"The ProxyCommand cannot be started: {error.strerror}", f"check {shell}", slug=Slug.PROXY_FAILED
            ) from None
        finally:
            theirs.close()
        return cls(child, ours)

    async def _keep_stderr(self) -> None:
        assert self._child.stderr is not None
        while chunk := await self._child.stderr.read(4096):
            self._said += chunk
            del self._said[:-4096]

    async def failure(self) -> HostError:
        """Why the command ended, in its own words."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                await self._child.exited()
                await asyncio.wait([self._reader])
        said = one_line(self._said.decode("utf-8", "replace").strip().rsplit("\n", 1)[-1])
        status = self._child.exit_status
        how = "gives no SSH connection" if status is None else f"ended with status {status}"
        return HostError(
            f"The ProxyCommand {how}" + (f": {said}" if said else ""),
            "run the command by hand; it is in ~/.ssh/config",
            slug=Slug.PROXY_FAILED,
        )

    def close(self) -> None:
        """Ends the command; whoever was given `sock` closes that."""
        self._child.signal_group(signal.SIGTERM)
        self._reader.cancel()
        self._child.close()


async def require_ssh(sock: socket.socket, timeout_s: float, who: str, where: str, proxy: ProxyCommand | None) -> None:
    """Waits for the server's first words, left in the socket. Raises HostError unless they are those of SSH."""
    try:
        said = await greeting(sock, timeout_s)
    except TimeoutError as error:
        if error.errno is not None:
            raise connect_error(error, where) from None
        raise HostError(
            f"{who}: {where} takes connections but does not say a word of SSH",
            "is this the port of an SSH server?",
            slug=Slug.NOT_SSH,
        ) from None
    except OSError as error:
        raise (connect_error(error, where) if proxy is None else await proxy.failure()) from None
    if b"SSH-" in said:
        return
    if not said and proxy is not None:
        raise await proxy.failure()
    if not said or said.startswith((b"Exceeded MaxStartups", b"Not allowed at this time")):
        raise connect_error(ConnectionResetError(), where)
    raise HostError(
        f"{who}: {where} is not an SSH server; it says: {one_line(said.decode('utf-8', 'replace'), 80)}",
        "check the port",
        slug=Slug.NOT_SSH,
    )


async def first_address(host: str, port: int) -> str | None:
    """The IP address that a name stands for, None where it stands for none."""
    with contextlib.suppress(HostError):
        return str((await _resolve(host, port, socket.AF_UNSPEC))[0][4][0])
    return None
