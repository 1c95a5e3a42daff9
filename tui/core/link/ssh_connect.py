"""Making one SSH connection: its jump hosts, who each host is, the login, and the one line for whatever goes wrong.

What asyncssh leaves to its user is done here: its own check of host keys would accept a changed key where a callback
accepts an unknown one, it cannot wait for a person, and it knows nothing of jump hosts that ask.
"""

import asyncio
import base64
import contextlib
import socket
import time
from collections.abc import Callable, Sequence

import asyncssh

from tui.core.errors import HostError, LinkLost, Slug
from tui.core.link.host_identity import HostCheck
from tui.core.link.known_hosts import KnownKey, Verdict
from tui.core.link.reconnect import Timing
from tui.core.link.sockets import ProxyCommand, connect_error, first_address, open_tcp, require_ssh
from tui.core.link.ssh_channel import CIPHERS, error_number, error_words, link_lost
from tui.core.link.ssh_login import Login, LoginClock, Secrets
from tui.core.link.ssh_target import HostKeyPolicy, SshTarget
from tui.core.link.transport import Asker, LinkState

_CLOSE_S = 0.5
_FAMILIES = {"inet": socket.AF_INET, "inet6": socket.AF_INET6}


class SshLink:
    """One live connection with its jump hosts."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.lost: asyncio.Future[HostError] = asyncio.get_running_loop().create_future()
        self.interactive = False
        self.heard_at = time.monotonic()
        self.notice: str | None = None
        self.hops: list[tuple[SshTarget, asyncssh.SSHClientConnection, Login]] = []
        self.proxies: list[ProxyCommand] = []
        self._pinging: asyncio.Task[None] | None = None

    @property
    def conn(self) -> asyncssh.SSHClientConnection:
        """The connection to the host itself."""
        return self.hops[-1][1]

    def watch(self, ping_s: float, update: Callable[..., None]) -> None:
        """From now on `lost` is done when the connection is, and the link's age and round trip are kept up to date."""

        def on_lost(done: "asyncio.Future[Exception | None]") -> None:
            # The jump host's loss is noticed in the same moment, a little before or after.
            asyncio.get_running_loop().call_soon(self._report_loss, done.result())

        self.hops[-1][2].lost.add_done_callback(on_lost)
        self._pinging = asyncio.create_task(self._ping(ping_s, update))

    def _report_loss(self, error: Exception | None) -> None:
        if self.lost.done():
            return
        for target, _, login in self.hops[:-1]:
            if login.lost.done():
                self.lost.set_result(LinkLost(f"{self.host}: the link was lost: its jump host {target.label} is gone"))
                return
        self.lost.set_result(link_lost(self.host, error))

    async def _ping(self, every_s: float, update: Callable[..., None]) -> None:
        """Measures the round trip, so that the age of the link never grows while it lives."""
        while True:
            sent = time.monotonic()
            # asyncssh has no public way to ask for an answer; this is what its own keep-alive sends.
            await self.conn._make_global_request(b"keepalive@openssh.com")
            if self.hops[-1][2].lost.done():
                return  # asyncssh answers for a dead connection
            self.heard_at = time.monotonic()
            update(last_byte_at=self.heard_at, rtt_s=self.heard_at - sent)
            await asyncio.sleep(every_s)

    async def close(self) -> None:
        """Closes everything, the host first; a dead link is cut."""
        if self._pinging is not None:
            self._pinging.cancel()
        alive = not self.lost.done()
        for _, conn, login in reversed(self.hops):
            login.give_up()
            if alive:
                conn.close()
            else:
                conn.abort()
            with contextlib.suppress(TimeoutError, OSError, asyncssh.Error):
                async with asyncio.timeout(_CLOSE_S):
                    await conn.wait_closed()
                continue
            conn.abort()
        for proxy in self.proxies:
            proxy.close()
        if not self.lost.done():
            self.lost.set_result(LinkLost(f"{self.host}: the connection was closed"))


class Dialer:
    """Makes connections to one host, and keeps what a person answered for the next.

    Args:
        host: as the user names it.
        asker: answers questions about host keys, passphrases, passwords and codes.
        timing: deadlines.
        update: is given the state while a person is asked (`Reconnector.update`).
    """

    def __init__(self, host: str, asker: Asker, timing: Timing, update: Callable[..., None]) -> None:
        self._host, self._asker, self._timing, self._update = host, asker, timing, update
        self._secrets = Secrets()

    async def dial(self, target: SshTarget) -> SshLink:
        """A connection, logged in. Raises HostError."""
        link = SshLink(self._host)
        try:
            await self._open(link, target, jump=False)
        except BaseException:
            await link.close()
            raise
        return link

    async def _open(self, link: SshLink, target: SshTarget, *, jump: bool) -> None:
        """Opens the jump hosts before a target, then the target."""
        if target.via is not None:
            await self._open(link, target.via, jump=True)
        hop = target.label if jump else None
        where = f"{target.address}:{target.port}"
        accepted = self._secrets.accepted.get(where)
        while True:
            check = await asyncio.to_thread(HostCheck.load, target, accepted)
            try:
                await self._connect(link, target, check, f"jump host {target.label}" if jump else target.label)
                break
            except asyncssh.HostKeyNotVerifiable as error:
                if check.verdict is not Verdict.UNKNOWN or accepted is not None:
                    raise _refused_key(check, hop, error) from None
            # The callback of asyncssh cannot wait for a person. So: ask, then connect again and take this very key
            # only.
            if not await self._accepts(check, target, hop):
                raise check.refusal(hop)
            accepted = check.offered
        if accepted is not None and where not in self._secrets.accepted:
            self._secrets.accepted[where] = accepted
            link.notice = await asyncio.to_thread(check.remember) or link.notice

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
        self._update(state=LinkState.WAITING if waiting else LinkState.CONNECTING, error=None)

    async def _connect(self, link: SshLink, target: SshTarget, check: HostCheck, who: str) -> None:
        """One connection to one server. Raises HostError, and HostKeyNotVerifiable where the key is the trouble."""
        where = f"{target.address}:{target.port}"
        proxy: ProxyCommand | None = None
        sock: socket.socket | None = None
        clock = LoginClock(self._show_waiting)
        login = Login(target, check, self._asker, clock, self._secrets)
        try:
            if target.proxy_command is not None:
                proxy = await ProxyCommand.start(target.proxy_command)
                sock = proxy.sock
            elif target.via is None:
                sock = await open_tcp(
                    target.address,
                    target.port,
                    timeout_s=target.connect_timeout_s,
                    family=_FAMILIES.get(target.family, socket.AF_UNSPEC),
                    bind=target.bind_address,
                )
            if sock is not None:
                await require_ssh(sock, self._timing.greeting_s, who, where, proxy)
            async with clock.limit(self._timing.login_s):
                conn = await self._log_in(target, check, login, sock, None if sock else link.conn)
        except BaseException as error:
            login.give_up()
            unverified = isinstance(error, asyncssh.HostKeyNotVerifiable)
            if sock is not None and not login.made and not unverified:
                sock.close()
            try:
                if unverified or isinstance(error, HostError) or not isinstance(error, Exception):
                    raise
                raise await self._explain(error, target, login, who, where, proxy) from None
            finally:
                if proxy is not None:
                    proxy.close()
        link.hops.append((target, conn, login))
        if proxy is not None:
            link.proxies.append(proxy)
        link.interactive = link.interactive or login.interactive

    async def _log_in(
        self,
        target: SshTarget,
        check: HostCheck,
        login: Login,
        sock: socket.socket | None,
        tunnel: asyncssh.SSHClientConnection | None,
    ) -> asyncssh.SSHClientConnection:
        return await asyncssh.connect(
            target.address,
            target.port,
            config=None,
            **({"sock": sock} if sock is not None else {"tunnel": tunnel}),
            username=target.user or (),
            client_factory=lambda: login,
            client_keys=None,
            agent_path=None,
            known_hosts=_authorities(check),
            host_key_alias=target.host_key_alias,
            server_host_key_algs=check.algorithms(),
            encryption_algs=CIPHERS,
            compression_algs=None,
            preferred_auth=list(target.methods),
            gss_host=None,
            keepalive_interval=self._timing.keepalive_s,
            keepalive_count_max=self._timing.keepalive_count,
            connect_timeout=None,
            login_timeout=0,
            utf8_decode_errors="replace",
        )

    async def _explain(
        self, error: Exception, target: SshTarget, login: Login, who: str, where: str, proxy: ProxyCommand | None
    ) -> HostError:
        """The one line for whatever went wrong while connecting."""
        words = error_words(error)
        if isinstance(error, TimeoutError) and error_number(error) is None:
            return HostError(
                f"{who}: the login took longer than {self._timing.login_s:g} s",
                "the host or the network is slow; it is tried again",
                slug=Slug.NO_ANSWER,
            )
        if isinstance(error, asyncssh.PermissionDenied) or (login.met and "authentication failures" in words):
            return _denied(words, target, login, who)
        if isinstance(error, asyncssh.ChannelOpenError):
            via = target.via.label if target.via else "?"
            return HostError(
                f"Jump host {via} cannot reach {where}: {words}",
                "check the address as the jump host sees it, and that it allows forwarding",
                slug=Slug.REFUSED if "refused" in words.lower() else Slug.UNREACHABLE,
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


def _denied(words: str, target: SshTarget, login: Login, who: str) -> HostError:
    if "authentication failures" in words:
        return HostError(
            f"{who}: too many keys were offered before the right one",
            "set IdentitiesOnly yes and the right IdentityFile for this host in ~/.ssh/config",
            slug=Slug.AUTH_FAILED,
        )
    notes = "; ".join(dict.fromkeys(login.notes))
    return HostError(
        f"{who}: {target.user or 'you'} may not log in: {notes or 'no key or password was accepted'}",
        f"check the user name and the key; ssh -v {target.label} shows what is offered",
        slug=Slug.AUTH_FAILED,
    )


def _refused_key(check: HostCheck, hop: str | None, error: Exception) -> HostError:
    if check.offered is not None:
        return check.refusal(hop)
    return HostError(  # a certificate that its authority's key does not cover
        f"{check.target.label}: the host certificate is not trusted: {error_words(error)}",
        "do not connect; ask whoever runs the host",
        slug=Slug.HOST_KEY_REVOKED if "revoked" in str(error) else Slug.HOST_KEY_UNKNOWN,
    )


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
