"""SSH: one connection a host, many channels. The only module that imports asyncssh.

What asyncssh leaves to its user is done here: who a host is (its own check would accept a changed key where a
callback accepts an unknown one), encrypted keys, two-factor prompts, time for a person to answer, jump hosts, the
end of a dead link. Standard input is never logged: it carries scripts with secrets.
"""

import asyncio
import base64
import contextlib
import getpass
import os
import shlex
import signal
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import asyncssh
from asyncssh.config import SSHClientConfig

from tui.core.errors import HostError, LinkLost, Slug, TimedOut
from tui.core.link.host_identity import HostCheck
from tui.core.link.known_hosts import KnownKey, Verdict
from tui.core.link.processes import Child
from tui.core.link.reconnect import Keeper, Timing
from tui.core.link.scripts import COMMAND, ScriptStream, end, put_script, raise_for_put, run_script, shell_path
from tui.core.link.sockets import ProxyCommand, connect_error, first_address, open_tcp, require_ssh
from tui.core.link.ssh_login import Login, LoginClock, NeedsPassphrase, PublicKey, Secrets
from tui.core.link.ssh_target import HostKeyPolicy, SshTarget
from tui.core.link.transport import Asker, ByteStream, Completed, Connection, LinkState, LinkStatus
from tui.core.text import one_line

# Measured: aes-gcm moves 1.4 times what asyncssh's first choice, chacha20, does.
_CIPHERS = [
    "aes128-gcm@openssh.com",
    "aes256-gcm@openssh.com",
    "chacha20-poly1305@openssh.com",
    "aes256-ctr",
    "aes128-ctr",
]
T = TypeVar("T")

_MAX_CHANNELS = 8  # sshd's MaxSessions is 10 unless changed
_REFUSALS = 3  # of a session, while we have none open
_PUT_TIMEOUT_S = 120.0
_ENDED_S = 5.0  # for an exit status that follows the end of the output
_ORPHAN_S = 10.0  # served here: what a lost client left behind is ended after this
_GONE_S = 2.0  # for the loss of a link to be noticed, once a channel has told of it
_FREED_S = 3.0  # for the confirmation that a channel is closed

asyncssh.set_log_level("WARNING")  # its INFO lines name every command and connection


def _words(error: BaseException) -> str:
    """What a library or a host says, as one safe line."""
    number = _errno(error)
    reason = getattr(error, "reason", None) or (os.strerror(number) if number else str(error))
    return one_line(str(reason)) or type(error).__name__


def _errno(error: BaseException) -> int | None:
    return error.errno if isinstance(error, OSError) else None


def _lost(host: str, error: BaseException | None) -> LinkLost:
    why = f": {_words(error)}" if error is not None else ""
    return LinkLost(
        f"{host}: the link was lost{why}",
        "what was asked may or may not have happened; look again when the link is back",
    )


class _KeyTools:
    """`ssh_login.KeyTools` by asyncssh."""

    def public_part(self, path: Path) -> PublicKey | None:
        """The public key of an identity file without its passphrase: from `.pub`, the file itself, or its open part."""
        for name in (f"{path}.pub", str(path)):
            with contextlib.suppress(OSError, ValueError):
                return asyncssh.read_public_key(name)
        with contextlib.suppress(OSError, ValueError, IndexError):
            lines = path.read_bytes().split(b"-----")
            if lines[1] != b"BEGIN OPENSSH PRIVATE KEY":
                return None
            # openssh-key-v1 (PROTOCOL.key of OpenSSH): magic, cipher, kdf, kdf options, number of keys, public key
            data = base64.b64decode(lines[2])
            at = len(b"openssh-key-v1\0")
            for _ in range(3):
                at += 4 + int.from_bytes(data[at : at + 4], "big")
            at += 4
            blob = data[at + 4 : at + 4 + int.from_bytes(data[at : at + 4], "big")]
            name_length = int.from_bytes(blob[:4], "big")
            return asyncssh.import_public_key(blob[4 : 4 + name_length] + b" " + base64.b64encode(blob))
        return None

    def private(self, path: Path, passphrase: str | None) -> asyncssh.SSHKey:
        try:
            return asyncssh.read_private_key(path, passphrase)
        except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError) as error:
            if "bcrypt" in str(error):  # an optional helper of asyncssh
                raise ImportError("encrypted keys need the Python package bcrypt: pip install bcrypt") from None
            if passphrase is None and "assphrase" in str(error):
                raise NeedsPassphrase from None
            raise

    def pairs(
        self,
        source: Any,
        passphrase: Callable[[str], Awaitable[str]],
        certificates: Sequence[Path],
        loop: asyncio.AbstractEventLoop,
    ) -> Sequence[asyncssh.SSHKeyPair]:
        if isinstance(source, tuple):
            source = (str(source[0]), source[1])
        load: Any = asyncssh.load_keypairs  # takes a coroutine function too, which its types leave out
        pairs: Sequence[asyncssh.SSHKeyPair] = load(
            [source], passphrase, [str(file) for file in certificates], True, loop=loop
        )
        return pairs

    async def agent(self, path: str) -> asyncssh.SSHAgentClient:
        return await asyncssh.connect_agent(path)


class _Client(Login, asyncssh.SSHClient):
    """The callbacks of one connection."""


class _Connection:
    """A direct-tcpip channel."""

    def __init__(self, link: "_SshLink", host: str, streams: "tuple[Any, Any]") -> None:
        self._link, self._host = link, host
        self._reader, self._writer = streams

    async def read(self, max_bytes: int = 65_536) -> bytes:
        try:
            data: bytes = await self._reader.read(max_bytes)
        except (OSError, asyncssh.Error) as error:
            raise _lost(self._host, error) from None
        if data:
            self._link.heard_at = time.monotonic()
        elif self._link.lost.done():
            raise _lost(self._host, None)
        return data

    async def write(self, data: bytes) -> None:
        try:
            self._writer.write(data)
            await self._writer.drain()
        except (OSError, asyncssh.Error) as error:
            raise _lost(self._host, error) from None

    async def close(self) -> None:
        self._writer.channel.abort()


class _SshChannel:
    """A session channel with `/bin/sh -s` behind it (`scripts.Channel`)."""

    def __init__(self, link: "_SshLink", host: str, process: "asyncssh.SSHClientProcess[bytes]") -> None:
        self._link, self._host, self._process = link, host, process

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
            raise _lost(self._host, error) from None
        if data:
            self._link.heard_at = time.monotonic()
        return data

    async def read_stdout(self, max_bytes: int) -> bytes:
        return await self._read(self._process.stdout, max_bytes)

    async def read_stderr(self, max_bytes: int) -> bytes:
        return await self._read(self._process.stderr, max_bytes)

    async def ended(self) -> int | str | None:
        with contextlib.suppress(TimeoutError, OSError, asyncssh.Error):
            async with asyncio.timeout(_ENDED_S):
                await self._process.wait_closed()
        by = self._process.exit_signal
        return f"SIG{one_line(by[0])}" if by else self._process.exit_status

    def close(self) -> None:
        self._process.close()

    async def freed(self) -> None:
        """Waits, for a bounded time, until the host has let go of the session."""
        with contextlib.suppress(TimeoutError, OSError, asyncssh.Error):
            async with asyncio.timeout(_FREED_S):
                await self._process.wait_closed()


class _SshLink:
    """One live connection with its jump hosts."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.lost: asyncio.Future[HostError] = asyncio.get_running_loop().create_future()
        self.interactive = False
        self.heard_at = time.monotonic()
        self.notice: str | None = None
        self.hops: list[tuple[SshTarget, asyncssh.SSHClientConnection, _Client]] = []
        self.proxies: list[ProxyCommand] = []
        self.pinging: asyncio.Task[None] | None = None

    @property
    def conn(self) -> asyncssh.SSHClientConnection:
        """The connection to the host itself."""
        return self.hops[-1][1]

    def watch(self) -> None:
        """From now on `lost` is done when the connection is."""

        def on_lost(done: "asyncio.Future[Exception | None]") -> None:
            # The jump host's loss is noticed in the same moment, a little before or after.
            asyncio.get_running_loop().call_soon(self._say_lost, done.result())

        self.hops[-1][2].lost.add_done_callback(on_lost)

    def _say_lost(self, error: Exception | None) -> None:
        if self.lost.done():
            return
        for target, _, client in self.hops[:-1]:
            if client.lost.done():
                self.lost.set_result(LinkLost(f"{self.host}: the link was lost: its jump host {target.label} is gone"))
                return
        self.lost.set_result(_lost(self.host, error))

    async def close(self) -> None:
        """Closes everything, the host first; a dead link is cut."""
        if self.pinging is not None:
            self.pinging.cancel()
        alive = not self.lost.done()
        for _, conn, client in reversed(self.hops):
            client.give_up()
            if alive:
                conn.close()
            else:
                conn.abort()
            with contextlib.suppress(TimeoutError, OSError, asyncssh.Error):
                async with asyncio.timeout(0.5):
                    await conn.wait_closed()
                continue
            conn.abort()
        for proxy in self.proxies:
            proxy.close()
        if not self.lost.done():
            self.lost.set_result(LinkLost(f"{self.host}: the connection was closed"))


class SshTransport:
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
        self._asker = asker
        self._timing = timing or Timing()
        self._secrets = Secrets()
        self._keeper: Keeper[_SshLink] = Keeper(host, self._dial, self._timing)
        self._link: _SshLink | None = None
        self._sessions = asyncio.Semaphore(_MAX_CHANNELS)
        self._open_channels = 0
        self._freed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    # State

    async def connect(self) -> None:
        """See `Transport.connect`."""
        await self._keeper.first()

    def status(self) -> LinkStatus:
        """See `Transport.status`."""
        status = self._keeper.status
        return replace(status, last_byte_at=self._link.heard_at) if self._link else status

    def watch(self) -> AsyncIterator[LinkStatus]:
        """See `Transport.watch`; while the link is up there is a status at least every few seconds."""
        return self._keeper.watch()

    def reconnect(self) -> None:
        """See `Transport.reconnect`."""
        self._keeper.kick()

    async def close(self) -> None:
        """See `Transport.close`."""
        await self._keeper.close()
        for task in tuple(self._tasks):
            task.cancel()

    # Connecting

    async def _dial(self) -> _SshLink:
        target = self._target if isinstance(self._target, SshTarget) else await self._target()
        self._keeper.update(address=target.where)
        link = _SshLink(self.host)
        try:
            await self._open(link, target, None)
        except BaseException:
            await link.close()
            raise
        link.watch()
        link.pinging = asyncio.create_task(self._ping(link))
        self._link = link
        if link.notice:
            self._keeper.update(notice=link.notice)
        return link

    async def _open(self, link: _SshLink, target: SshTarget, hop: str | None) -> None:
        """Opens the jump hosts before a target, then the target."""
        if target.via is not None:
            await self._open(link, target.via, target.via.label)
        where = f"{target.address}:{target.port}"
        accepted = self._secrets.accepted.get(where)
        while True:
            check = await asyncio.to_thread(HostCheck.load, target, accepted)
            try:
                await self._try(link, target, check, hop)
                break
            except asyncssh.HostKeyNotVerifiable as error:
                if check.verdict is not Verdict.UNKNOWN or accepted is not None:
                    raise self._refused_key(check, hop, error) from None
            # The callback of asyncssh cannot wait for a person. So: ask, then connect again and take this very key
            # only.
            if not await self._accepts(check, target, hop):
                raise check.refusal(hop)
            accepted = check.offered
        if accepted is not None and where not in self._secrets.accepted:
            self._secrets.accepted[where] = accepted
            link.notice = await asyncio.to_thread(check.remember) or link.notice

    def _refused_key(self, check: HostCheck, hop: str | None, error: Exception) -> HostError:
        if check.offered is not None:
            return check.refusal(hop)
        return HostError(  # a certificate that its authority's key does not cover
            f"{check.target.label}: the host certificate is not trusted: {_words(error)}",
            "do not connect; ask whoever runs the host",
            slug=Slug.HOST_KEY_REVOKED if "revoked" in str(error) else Slug.HOST_KEY_UNKNOWN,
        )

    async def _accepts(self, check: HostCheck, target: SshTarget, hop: str | None) -> bool:
        if target.policy is HostKeyPolicy.STRICT:
            return False
        if target.policy is HostKeyPolicy.ACCEPT_NEW:
            return True
        direct = target.via is None and target.proxy_command is None
        ip = await first_address(target.address, target.port) if direct else None
        self._show_waiting(True)
        try:
            return await self._asker.host_key(check.question(hop, ip))
        finally:
            self._show_waiting(False)

    def _show_waiting(self, waiting: bool) -> None:
        self._keeper.update(state=LinkState.WAITING if waiting else LinkState.CONNECTING, error=None)

    async def _try(self, link: _SshLink, target: SshTarget, check: HostCheck, hop: str | None) -> None:
        """One connection to one server. Raises HostError, and HostKeyNotVerifiable where the key is the trouble."""
        who = f"jump host {target.label}" if hop else target.label
        where = f"{target.address}:{target.port}"
        tunnel = link.conn if target.via is not None else None
        proxy: ProxyCommand | None = None
        sock: socket.socket | None = None
        clock = LoginClock(self._show_waiting)
        client = _Client(target, check, self._asker, clock, self._secrets, _KeyTools())
        try:
            if target.proxy_command is not None:
                proxy = await ProxyCommand.start(target.proxy_command)
                sock = proxy.sock
            elif tunnel is None:
                family = {"inet": socket.AF_INET, "inet6": socket.AF_INET6}.get(target.family, socket.AF_UNSPEC)
                sock = await open_tcp(
                    target.address,
                    target.port,
                    timeout_s=target.connect_timeout_s,
                    family=family,
                    bind=target.bind_address,
                )
            if sock is not None:
                await require_ssh(sock, self._timing.greeting_s, who, where, proxy)
            async with clock.limit(self._timing.login_s):
                conn = await asyncssh.connect(
                    target.address,
                    target.port,
                    config=None,
                    **({"sock": sock} if sock is not None else {"tunnel": tunnel}),
                    username=target.user or (),
                    client_factory=lambda: client,
                    client_keys=None,
                    agent_path=None,
                    known_hosts=self._authorities(check),
                    host_key_alias=target.host_key_alias,
                    server_host_key_algs=check.algorithms(),
                    encryption_algs=_CIPHERS,
                    compression_algs=None,
                    preferred_auth=list(target.methods),
                    gss_host=None,
                    keepalive_interval=self._timing.keepalive_s,
                    keepalive_count_max=self._timing.keepalive_count,
                    connect_timeout=None,
                    login_timeout=0,
                    utf8_decode_errors="replace",
                )
        except asyncssh.HostKeyNotVerifiable:
            client.give_up()
            if proxy is not None:
                proxy.close()
            raise
        except BaseException as error:
            client.give_up()
            if sock is not None and not client.made:
                sock.close()
            try:
                if isinstance(error, HostError) or not isinstance(error, Exception):
                    raise
                raise await self._explain(error, target, client, who, where, proxy) from None
            finally:
                if proxy is not None:
                    proxy.close()
        link.hops.append((target, conn, client))
        if proxy is not None:
            link.proxies.append(proxy)
        link.interactive = link.interactive or client.interactive

    @staticmethod
    def _authorities(check: HostCheck) -> "tuple[list[asyncssh.SSHKey], ...]":
        """Keys that may sign the host's certificate. Plain keys are not here: `HostCheck` judges those."""

        def load(keys: Sequence[KnownKey]) -> list[asyncssh.SSHKey]:
            found = []
            for key in keys:
                with contextlib.suppress(ValueError):
                    text = f"{key.key_type} {base64.b64encode(key.blob).decode()}"
                    found.append(asyncssh.import_public_key(text))
            return found

        authorities = load(check.keys.authorities)
        return [], authorities, load(check.keys.revoked) if authorities else []

    async def _explain(
        self, error: Exception, target: SshTarget, client: _Client, who: str, where: str, proxy: ProxyCommand | None
    ) -> HostError:
        """The one line for whatever went wrong while connecting."""
        words = _words(error)
        if isinstance(error, TimeoutError) and _errno(error) is None:
            return HostError(
                f"{who}: the login took longer than {self._timing.login_s:g} s",
                "the host or the network is slow; it is tried again",
                slug=Slug.NO_ANSWER,
            )
        if isinstance(error, asyncssh.PermissionDenied) or (client.met and "authentication failures" in words):
            return self._denied(error, target, client, who)
        if isinstance(error, asyncssh.ChannelOpenError):
            via = target.via.label if target.via else "?"
            return HostError(
                f"jump host {via} cannot reach {where}: {words}",
                "check the address as the jump host sees it, and that it allows forwarding",
                slug=Slug.REFUSED if Slug.REFUSED in words.lower() else Slug.UNREACHABLE,
            )
        if isinstance(error, asyncssh.KeyExchangeFailed | asyncssh.ProtocolNotSupported):
            return HostError(
                f"{who}: no common SSH algorithms: {words}", "its SSH server is too old or too new", slug=Slug.NOT_SSH
            )
        if proxy is not None and isinstance(error, OSError | asyncssh.ConnectionLost):
            return await proxy.failure()
        if isinstance(error, OSError):
            return connect_error(error, where)
        if isinstance(error, asyncssh.Error):
            slug = Slug.DROPPED if isinstance(error, asyncssh.ConnectionLost) else Slug.NOT_SSH
            return HostError(f"{who}: the connection ended while logging in: {words}", "try again", slug=slug)
        return HostError(f"{who}: {type(error).__name__}: {words}", "ssh -v shows more", slug=Slug.SSH_CONFIG)

    @staticmethod
    def _denied(error: Exception, target: SshTarget, client: _Client, who: str) -> HostError:
        user = target.user or "you"
        if "authentication failures" in _words(error):
            return HostError(
                f"{who}: too many keys were offered before the right one",
                "set IdentitiesOnly yes and the right IdentityFile for this host in ~/.ssh/config",
                slug=Slug.AUTH_FAILED,
            )
        notes = "; ".join(dict.fromkeys(client.notes))
        return HostError(
            f"{who}: {user} may not log in" + (f": {notes}" if notes else ": no key or password was taken"),
            f"check the user name and the key; ssh -v {target.label} shows what is offered",
            slug=Slug.AUTH_FAILED,
        )

    async def _ping(self, link: _SshLink) -> None:
        """Measures the round trip, so that the age of the link never grows while it lives."""
        while True:
            sent = time.monotonic()
            # asyncssh has no public way to ask for an answer; this is what its own keep-alive sends.
            await link.conn._make_global_request(b"keepalive@openssh.com")
            if link.hops[-1][2].lost.done():
                return  # asyncssh answers for a dead connection
            link.heard_at = time.monotonic()
            self._keeper.update(last_byte_at=link.heard_at, rtt_s=link.heard_at - sent)
            await asyncio.sleep(self._timing.ping_s)

    # Channels

    @contextlib.asynccontextmanager
    async def _shell(self) -> AsyncIterator[_SshChannel]:
        """A session channel, as soon as the link and the host's MaxSessions allow. Ends its script on the way out."""
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
        """Waits for a channel. asyncssh forgets one whose opening is cancelled, and the host keeps its session for
        ever; so the opening goes on by itself, and what comes of it is closed."""
        task = asyncio.ensure_future(opening)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(
                lambda done: None if done.cancelled() or done.exception() else discard(done.result())
            )
            raise

    async def _release(self, channel: _SshChannel) -> None:
        try:
            await channel.freed()
        finally:
            self._open_channels -= 1
            self._sessions.release()
            self._freed.set()
            self._freed = asyncio.Event()

    async def _open_channel(self) -> _SshChannel:
        refused_alone = 0
        while True:
            link = await self._keeper.ready()
            freed = self._freed
            try:
                process = await self._opened(
                    link.conn.create_process(COMMAND, encoding=None), lambda late: late.close()
                )
                return _SshChannel(link, self.host, process)
            except asyncssh.ChannelOpenError as error:
                if link.lost.done():
                    continue
                if error.code not in (asyncssh.OPEN_CONNECT_FAILED, asyncssh.OPEN_RESOURCE_SHORTAGE):
                    raise HostError(
                        f"{self.host}: the host runs no commands for us: {_words(error)}",
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

    async def _next_link(self, link: _SshLink, error: Exception) -> None:
        """Nothing was sent yet, so the next link may be asked; unless this one lives and only the channel failed."""
        try:
            async with asyncio.timeout(_GONE_S):
                await asyncio.shield(link.lost)
        except TimeoutError:
            raise _lost(self.host, error) from None

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

    async def _execute(self, script: str, timeout_s: float, limit: int, data: bytes | None) -> Completed:
        asked_at = time.monotonic()
        try:
            async with asyncio.timeout(timeout_s), self._shell() as channel:
                return await run_script(channel, script, host=self.host, max_output_bytes=limit, data=data)
        except TimeoutError:
            raise self._too_late(timeout_s, asked_at) from None

    async def run(self, script: str, *, timeout_s: float = 30.0, max_output_bytes: int = 8 << 20) -> Completed:
        """See `Transport.run`. Waits for the link within `timeout_s`; never runs a script twice."""
        return await self._execute(script, timeout_s, max_output_bytes, None)

    @contextlib.asynccontextmanager
    async def stream(self, script: str) -> AsyncIterator[ByteStream]:
        """See `Transport.stream`. Waits for the link as long as it takes."""
        async with self._shell() as channel:
            stream = ScriptStream(channel, self.host)
            try:
                await stream.start(script)
                yield stream
            finally:
                await stream.close()

    async def put(self, data: bytes, path: str, *, mode: int = 0o600) -> None:
        """See `Transport.put`."""
        script = put_script(shell_path(path), len(data), mode)
        raise_for_put(await self._execute(script, _PUT_TIMEOUT_S, 65_536, data), self.host, path)

    @contextlib.asynccontextmanager
    async def open_connection(self, host: str, port: int) -> AsyncIterator[Connection]:
        """See `Transport.open_connection`. Not counted in MaxSessions."""
        while True:
            link = await self._keeper.ready()
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
                        f"{self.host}: the host forbids connections through it: {_words(error)}",
                        "set AllowTcpForwarding yes (or local) in its sshd_config",
                        slug=Slug.FORWARDING_PROHIBITED,
                    ) from None
                raise HostError(
                    f"{self.host}: nothing answers on {host}:{port} there: {_words(error)}",
                    "is the server running, and is this its port?",
                    slug=Slug.REFUSED,
                ) from None
            except (OSError, asyncssh.Error) as error:
                await self._next_link(link, error)
        connection = _Connection(link, self.host, streams)
        try:
            yield connection
        finally:
            await connection.close()


def generate_key() -> tuple[str, str]:
    """A new ed25519 key: (private in OpenSSH's format, public as `type base64`)."""
    key = asyncssh.generate_private_key("ssh-ed25519")
    return key.export_private_key().decode(), " ".join(key.export_public_key().decode().split()[:2])


def parse_config(path: Path, host: str, user: str | None, port: int | None) -> dict[str, list[str]]:
    """~/.ssh/config by asyncssh's parser, where there is no `ssh` to ask; keys in lower case as `ssh -G` prints them.

    Raises HostError (slug ssh_config) where the parser, which is stricter than OpenSSH, cannot read the file.
    """
    if not path.is_file():
        return {}
    try:
        options = SSHClientConfig.load(
            None, [path], False, False, False, getpass.getuser(), user or (), host, port or ()
        ).get_options(False)
    except (OSError, ValueError, RecursionError) as error:
        raise HostError(
            f"{host}: the SSH configuration cannot be used: {_words(error)}",
            "mend that line, or give user@host:port with EAGLETUI_SSH_CONFIG=/dev/null",
            slug=Slug.SSH_CONFIG,
        ) from None
    found: dict[str, list[str]] = {}
    for name, value in options.items():
        if isinstance(value, bool):
            found[name.lower()] = ["yes" if value else "no"]
        elif name in ("ProxyJump", "ProxyCommand") and isinstance(value, list):
            found[name.lower()] = [shlex.join(map(str, value))]
        else:
            found[name.lower()] = [str(part) for part in value] if isinstance(value, list) else [str(value)]
    return found


class _Gate(asyncssh.SSHServer):
    """Lets one key in, and through to this machine only."""

    def __init__(
        self, key: asyncssh.SSHKey, clients: Callable[[int], None], connections: set[asyncssh.SSHServerConnection]
    ) -> None:
        self._key, self._clients, self._connections = key, clients, connections
        self._counted = False
        self._connection: asyncssh.SSHServerConnection | None = None

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn
        self._connections.add(conn)

    def begin_auth(self, username: str) -> bool:
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        return key == self._key

    def auth_completed(self) -> None:
        self._counted = True
        self._clients(1)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._connection is not None:
            self._connections.discard(self._connection)
        if self._counted:
            self._counted = False
            self._clients(-1)

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> bool:
        return dest_host in ("127.0.0.1", "localhost", "::1")


class SshServer:
    """An SSH server on 127.0.0.1 (`serve`)."""

    def __init__(self, env: Mapping[str, str], cwd: str, on_clients: Callable[[int], None]) -> None:
        self._env, self._cwd, self._on_clients = dict(env), cwd, on_clients
        self._count = 0
        self._children: set[Child] = set()
        self._connections: set[asyncssh.SSHServerConnection] = set()
        self._acceptor: asyncssh.SSHAcceptor | None = None

    async def start(self, host_key: str, client_public_key: str) -> None:
        """Binds a free port."""
        allowed = asyncssh.import_public_key(client_public_key)
        self._acceptor = await asyncssh.listen(
            "127.0.0.1",
            0,
            server_factory=lambda: _Gate(allowed, self._counted, self._connections),
            server_host_keys=[asyncssh.import_private_key(host_key)],
            process_factory=self._serve,
            encoding=None,
            line_editor=False,
            allow_scp=False,
            agent_forwarding=False,
            x11_forwarding=False,
            encryption_algs=_CIPHERS,
            compression_algs=None,
            keepalive_interval=15,
            keepalive_count_max=2,
        )

    @property
    def port(self) -> int:
        """The port on 127.0.0.1."""
        assert self._acceptor is not None
        return self._acceptor.get_port()

    def close(self) -> None:
        """Takes no more connections, closes the present ones and ends their commands."""
        if self._acceptor is not None:
            self._acceptor.close()
        for connection in tuple(self._connections):
            connection.close()
        for child in tuple(self._children):
            child.signal_group(signal.SIGTERM)

    async def wait_closed(self) -> None:
        """Waits until it is closed."""
        if self._acceptor is not None:
            await self._acceptor.wait_closed()

    def _counted(self, step: int) -> None:
        self._count += step
        self._on_clients(self._count)

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
            # What the shell left in the background may hold the outputs; sshd waits for those too, we not for ever.
            await asyncio.wait(outputs, timeout=_FREED_S)
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
    server = SshServer(env, cwd, on_clients)
    await server.start(host_key, client_public_key)
    return server
