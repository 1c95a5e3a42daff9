"""What many tests share: a home of their own, a real sshd on loopback, a TCP proxy that fails on command."""

import asyncio
import contextlib
import getpass
import os
import shutil
import signal
import socket
import struct
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from tests.support.slurm import Slurm, a_slurm
from tui.core.link.reconnect import Timing
from tui.core.link.ssh_target import SshTarget
from tui.core.link.transport import HostKeyQuestion, Prompt
from tui.demo.client import register

NO_SSHD = "no sshd: apt-get install openssh-server"


def _find_sshd() -> str | None:
    return shutil.which("sshd", path="/usr/sbin:/usr/bin:/sbin:/usr/local/sbin")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "has_sshd: needs a real sshd (the fixtures that start one skip by themselves)")
    register()


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("has_sshd") and _find_sshd() is None:
        pytest.skip(NO_SSHD)


@pytest.fixture(autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """HOME and EAGLETUI_HOME of this test alone; nothing of the user's agent or settings is seen."""
    from tui.core.config import load_settings
    from tui.core.masking.known import forget

    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("EAGLETUI_HOME", str(home / "eagletui"))
    for name in ("SSH_AUTH_SOCK", "EAGLETUI_HOST", "EAGLETUI_SSH_CONFIG", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    load_settings.cache_clear()
    forget()  # secrets of the test before
    return home


async def _until(look: Callable[[], object], deadline_s: float = 60.0) -> None:
    end = time.monotonic() + deadline_s
    while not look():
        if time.monotonic() > end:
            pytest.fail(f"not within {deadline_s:g} s")
        await asyncio.sleep(0.02)


@pytest.fixture(scope="session")
def until() -> Callable[..., object]:
    """await until(look, deadline_s=60): returns as soon as `look()` is true, fails at the deadline."""
    return _until


@pytest.fixture(scope="session")
def gone() -> Callable[[int], bool]:
    """gone(pid): whether the process has ended (a zombie has)."""

    def look(pid: int) -> bool:
        try:
            return ") Z " in Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return True

    return look


class TableAsker:
    """Answers from tables and keeps what was asked."""

    def __init__(self, *, host_keys: bool = False, answers: list[tuple[str, ...] | None] | None = None) -> None:
        self.accept = host_keys
        self.answers = list(answers or [])
        self.host_keys: list[HostKeyQuestion] = []
        self.prompts: list[Prompt] = []
        self.gate: asyncio.Event | None = None  # a person who takes their time
        self.asked = asyncio.Event()

    async def _wait(self) -> None:
        self.asked.set()
        if self.gate is not None:
            await self.gate.wait()

    async def host_key(self, question: HostKeyQuestion) -> bool:
        self.host_keys.append(question)
        await self._wait()
        return self.accept

    async def prompt(self, prompt: Prompt) -> tuple[str, ...] | None:
        self.prompts.append(prompt)
        await self._wait()
        return self.answers.pop(0) if self.answers else None


@pytest.fixture
def make_asker() -> type[TableAsker]:
    """make_asker(host_keys=False, answers=[...]): an Asker that answers from tables."""
    return TableAsker


def make_key(path: Path, *, kind: str = "ed25519", passphrase: str = "") -> Path:
    """A new key pair; returns the private file."""
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-f", path], check=True)
    return path


@pytest.fixture(scope="session")
def new_key() -> Callable[..., Path]:
    """new_key(path, kind="ed25519", passphrase=""): makes a key pair with ssh-keygen."""
    return make_key


class Sshd:
    """A real openssh-server on a high loopback port, with keys and files of its own.

    Attributes:
        port, user: where to log in, and as whom.
        host_key, client_key: private key files (`.pub` beside them).
        known_hosts: a file that knows this server.
        ssh_config: a client configuration whose `Host gpu1` is this server.
        authorized_keys: the server's file; tests may append to it.
    """

    def __init__(self, directory: Path, options: str = "", host_keys: tuple[str, ...] = ("ed25519",)) -> None:
        self.directory = directory
        self.user = getpass.getuser()
        self.host_keys = [make_key(directory / f"host_{kind}", kind=kind) for kind in host_keys]
        self.host_key = self.host_keys[0]
        self.client_key = make_key(directory / "client")
        self.authorized_keys = directory / "authorized_keys"
        shutil.copy(f"{self.client_key}.pub", self.authorized_keys)
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port: int = probe.getsockname()[1]
        self._config = directory / "sshd_config"
        self._config.write_text(
            f"ListenAddress 127.0.0.1\nPort {self.port}\nPidFile none\nUsePAM no\nStrictModes no\n"
            f"AuthorizedKeysFile {self.authorized_keys}\nMaxStartups 100\n"
            + "".join(f"HostKey {key}\n" for key in self.host_keys)
            + options
        )
        self.known_hosts = directory / "known_hosts"
        self.known_hosts.write_text(self.known_line(self.port))
        self.ssh_config = directory / "ssh_config"
        self.ssh_config.write_text(
            f"Host gpu1\n  HostName 127.0.0.1\n  Port {self.port}\n  User {self.user}\n"
            f"  IdentityFile {self.client_key}\n  IdentitiesOnly yes\n  UserKnownHostsFile {self.known_hosts}\n"
        )
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def known_line(self, port: int, key: Path | None = None) -> str:
        """The line of known_hosts for this server's key (or another one) under a port of 127.0.0.1."""
        words = Path(f"{key or self.host_key}.pub").read_text().split()
        return f"[127.0.0.1]:{port} {words[0]} {words[1]}\n"

    def let_in(self, key: Path) -> None:
        """Lets a client key in, besides those that may already."""
        with self.authorized_keys.open("a") as file:
            file.write(Path(f"{key}.pub").read_text())

    def target(self, port: int | None = None, **changes: object) -> SshTarget:
        """A target that logs in; `port` where a proxy stands before the server."""
        port = port or self.port
        known = self.directory / f"known_hosts_{port}"
        known.write_text(self.known_line(port))
        fields: dict[str, object] = {
            "address": "127.0.0.1",
            "port": port,
            "user": self.user,
            "name": "gpu1",
            "identity_files": (self.client_key,),
            "known_hosts": (known,),
        }
        return SshTarget(**{**fields, **changes})  # type: ignore[arg-type]

    def start(self) -> None:
        """Starts the listener and waits until it answers."""
        sshd = _find_sshd() or pytest.skip(NO_SSHD)
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)  # only the service makes it
        log = (self.directory / "sshd.log").open("ab")
        self._process = subprocess.Popen([sshd, "-D", "-e", "-f", self._config], stderr=log)
        log.close()
        deadline = time.monotonic() + 20
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=2) as probe:
                if probe.recv(4) == b"SSH-":
                    return
            if time.monotonic() > deadline or self._process.poll() is not None:
                pytest.fail((self.directory / "sshd.log").read_text())
            time.sleep(0.05)

    def stop(self) -> None:
        """Ends the listener; sessions live on."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(10)
            self._process = None

    def sessions(self) -> list[int]:
        """The sshd processes of live connections, children first: killing only the monitor drops nothing."""
        found: list[int] = []

        def walk(parent: int) -> None:
            for pid in _children(parent):
                if _command(pid).startswith("sshd"):
                    walk(pid)
                    found.append(pid)

        if self._process is not None:
            walk(self._process.pid)
        return found

    def shells(self) -> list[int]:
        """What runs in the sessions: children of their sshd processes that are not sshd."""
        return [child for pid in self.sessions() for child in _children(pid) if not _command(child).startswith("sshd")]

    def kill_sessions(self) -> int:
        """SIGKILL to both processes of every session; how many died."""
        pids = self.sessions()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(pids)


def _children(pid: int) -> list[int]:
    out = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False).stdout
    return [int(word) for word in out.split()]


def _command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text()
    return ""


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """One sshd for all tests of a session (of a worker)."""
    if _find_sshd() is None:
        pytest.skip(NO_SSHD)
    server = Sshd(tmp_path_factory.mktemp("sshd"))
    yield server
    server.kill_sessions()
    server.stop()


@pytest.fixture
def start_sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Sshd]]:
    """start_sshd(options="", host_keys=("ed25519",)): another sshd, ended with the test."""
    if _find_sshd() is None:
        pytest.skip(NO_SSHD)
    started: list[Sshd] = []

    def start(options: str = "", host_keys: tuple[str, ...] = ("ed25519",)) -> Sshd:
        started.append(Sshd(tmp_path_factory.mktemp("sshd"), options, host_keys))
        return started[-1]

    yield start
    for server in started:
        server.kill_sessions()
        server.stop()


class TcpProxy:
    """Forwards a port, until it is told to fail."""

    def __init__(self, target_port: int) -> None:
        self.target_port = target_port
        self.accepted = 0
        self.port = 0
        self._going = asyncio.Event()
        self._going.set()
        self._left: int | None = None
        self._then_stall = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self._writers.add(writer)
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self.target_port)
        except OSError:
            writer.close()
            return
        self._writers.add(back)
        with contextlib.suppress(asyncio.CancelledError):  # the end of the test's loop
            await asyncio.gather(self._pump(reader, back), self._pump(there, writer))
        self._writers -= {writer, back}

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65_536):
                await self._going.wait()
                if self._left is not None:
                    data = data[: self._left]
                    self._left -= len(data)
                sink.write(data)
                await sink.drain()
                if self._left == 0:
                    self._left = None
                    if self._then_stall:
                        self.stall()
                        continue
                    self.reset()
                    return
        sink.close()

    def stall(self) -> None:
        """Takes bytes and forwards none: a dead link, as far as anyone can see."""
        self._going.clear()

    def resume(self) -> None:
        self._going.set()

    def cut_after(self, count: int) -> None:
        """Forwards that many bytes more (both directions together), then resets everything."""
        self._left, self._then_stall = count, False

    def stall_after(self, count: int) -> None:
        """Forwards that many bytes more (what is over is dropped), then stalls."""
        self._left, self._then_stall = count, True

    def reset(self) -> None:
        """Resets every connection; new ones are taken."""
        for writer in tuple(self._writers):
            sock = writer.get_extra_info("socket")
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        self._writers.clear()

    async def stop(self) -> None:
        """Takes no more connections, and resets the present ones."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.resume()
        self.reset()


@pytest.fixture
async def make_tcp_proxy() -> AsyncIterator[Callable[[int], "asyncio.Future[TcpProxy]"]]:
    """await make_tcp_proxy(port): a proxy before any port of this machine."""
    proxies: list[TcpProxy] = []

    async def make(target_port: int) -> TcpProxy:
        proxies.append(TcpProxy(target_port))
        await proxies[-1].start()
        return proxies[-1]

    yield make  # type: ignore[misc]
    for proxy in proxies:
        await proxy.stop()


@pytest.fixture
async def tcp_proxy(sshd: Sshd, make_tcp_proxy) -> TcpProxy:
    """A proxy before the session's sshd."""
    return await make_tcp_proxy(sshd.port)


@pytest.fixture
def fast_timing() -> Timing:
    """Deadlines and back-off in tenths of seconds."""
    return Timing(
        greeting_s=3.0, login_s=20.0, keepalive_s=0.5, keepalive_count=2, ping_s=0.2, backoff_s=(0.05, 0.1, 0.2)
    )


@pytest.fixture
async def make_ssh_transport(fast_timing: Timing, make_asker) -> AsyncIterator[Callable[..., object]]:
    """make_ssh_transport(target, asker=None, timing=None): not connected yet; closed with the test."""
    from tui.core.link.ssh import SshTransport

    made: list[SshTransport] = []

    def make(target: SshTarget, asker: TableAsker | None = None, timing: Timing | None = None) -> SshTransport:
        made.append(SshTransport("gpu1", target, asker or make_asker(), timing=timing or fast_timing))
        return made[-1]

    yield make
    for transport in made:
        await transport.close()


@pytest.fixture
async def ssh_transport(sshd: Sshd, tcp_proxy: TcpProxy, make_ssh_transport):
    """A connected transport to the session's sshd through `tcp_proxy`."""
    transport = make_ssh_transport(sshd.target(tcp_proxy.port))
    await transport.connect()
    return transport


@pytest.fixture(scope="session")
def slurm_cluster() -> Iterator[Slurm]:
    """A real Slurm for all tests of a session (of a worker)."""
    yield from a_slurm()


@pytest.fixture
def slurm(slurm_cluster: Slurm, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slurm]:
    """The session's Slurm, without jobs, and found by everything that this test starts on this machine."""
    monkeypatch.setenv("SLURM_CONF", slurm_cluster.env["SLURM_CONF"])
    yield slurm_cluster
    slurm_cluster.end_jobs()


@pytest.fixture(scope="session")
def router_python() -> str:
    """An interpreter that has the real sglang-router."""
    setup = Path(__file__).parent / "sglang_router/setup.sh"
    named = os.environ.get("EAGLETUI_TEST_ROUTER")
    directory = named or subprocess.run([setup, "--where"], capture_output=True, text=True, check=True).stdout.strip()
    python = Path(directory, "bin/python")
    if not python.exists():
        pytest.skip(f"no sglang-router in {directory}: tests/sglang_router/setup.sh builds it (150 MB, 15 s)")
    return str(python)
