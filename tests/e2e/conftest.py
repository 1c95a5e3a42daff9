"""A real terminal, a real SGLang and the installed command for the end-to-end tests."""

import getpass
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

SGLANG_CPU = Path(__file__).parents[1] / "sglang_cpu"
COMMAND = Path(sys.executable).parent / "eagletui"
ENVIRONMENT = dict(os.environ)  # of the person who runs the tests; each test has a home of its own

T = TypeVar("T")


def _wait_until(look: Callable[[], T], deadline_s: float, describe: Callable[[], str]) -> T:
    end = time.monotonic() + deadline_s
    while not (found := look()):
        if time.monotonic() > end:
            pytest.fail(describe())
        time.sleep(0.1)
    return found


@pytest.fixture(scope="session")
def wait_until() -> Callable[..., object]:
    """wait_until(look, deadline_s, describe): calls `look` until it is true; fails with `describe()` at the deadline."""
    return _wait_until


# --------------------------------------------------------------------------------------------------- terminal


class Terminal:
    """One program in a tmux of its own, driven by keys and read from the screen."""

    def __init__(
        self, argv: list[str], env: Mapping[str, str], *, cwd: Path | None = None, columns: int = 160, rows: int = 48
    ) -> None:
        self._directory = tempfile.mkdtemp(prefix="et")  # short: a socket's path has at most 108 bytes
        self._tmux = ["tmux", "-S", f"{self._directory}/s", "-f", "/dev/null"]
        environment = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "COLORTERM": "truecolor", **env}
        self._status = Path(self._directory, "status")
        # The shell stays when the program has ended, so that its last screen can be read; tmux itself sometimes never
        # learns how a program ended.
        hold = '"$@"; echo $? > "$0.part"; mv "$0.part" "$0"; exec tail -f /dev/null'
        self._run("start-server", ";", "set", "-g", "default-terminal", "tmux-256color", ";",
                  "set", "-g", "escape-time", "0", ";", "new-session", "-d", "-x", str(columns), "-y", str(rows),
                  "sh", "-c", hold, str(self._status), *argv, env=environment, cwd=cwd)  # fmt: skip

    def _run(self, *arguments: str, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> str:
        done = subprocess.run(
            [*self._tmux, *arguments], env=env and dict(env), cwd=cwd, capture_output=True, text=True, timeout=30
        )
        if done.returncode:
            raise RuntimeError(f"tmux {arguments[0]}: {done.stderr.strip()}")
        return done.stdout

    def keys(self, *names: str) -> None:
        """Presses keys by tmux's names: "l", "Enter", "Escape", "C-p", "Tab"."""
        for name in names:
            self._run("send-keys", name)

    def type(self, text: str) -> None:
        self._run("send-keys", "-l", text)

    def screen(self, *, colours: bool = False) -> str:
        return self._run("capture-pane", "-pN", *(["-e"] if colours else []))

    def exit_status(self) -> int | None:
        """None while the program runs; 128 and more where a signal ended it."""
        try:
            return int(self._status.read_text())
        except FileNotFoundError:
            return None

    def wait_for(self, pattern: str, deadline_s: float = 30.0) -> re.Match[str]:
        """The first match of a regular expression on the screen; fails at once where the program ended without it."""

        def look() -> re.Match[str] | None:
            ended = self.exit_status() is not None
            found = re.search(pattern, self.screen(), re.MULTILINE)
            if ended and not found:
                pytest.fail(f"the program ended ({self.exit_status()}) without {pattern!r}:\n{self.screen()}")
            return found

        found = _wait_until(look, deadline_s, lambda: f"no {pattern!r} in {deadline_s:g} s:\n{self.screen()}")
        assert found is not None
        return found

    def wait_gone(self, pattern: str, deadline_s: float = 30.0) -> None:
        _wait_until(
            lambda: not re.search(pattern, self.screen(), re.MULTILINE),
            deadline_s,
            lambda: f"{pattern!r} still there after {deadline_s:g} s:\n{self.screen()}",
        )

    def wait_exit(self, deadline_s: float = 15.0) -> int:
        _wait_until(lambda: self.exit_status() is not None, deadline_s, lambda: f"still runs:\n{self.screen()}")
        status = self.exit_status()
        assert status is not None
        return status

    def close(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], capture_output=True)
        shutil.rmtree(self._directory, ignore_errors=True)


def _terminals() -> Iterator[Callable[..., Terminal]]:
    if not shutil.which("tmux"):
        pytest.skip("no tmux: apt-get install tmux")
    opened: list[Terminal] = []

    def start(argv: list[str], env: Mapping[str, str], **options: object) -> Terminal:
        opened.append(Terminal(argv, env, **options))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


@pytest.fixture
def terminal() -> Iterator[Callable[..., Terminal]]:
    """terminal(argv, env, cwd=, columns=, rows=) starts a program in a terminal; ended with the test."""
    yield from _terminals()


@pytest.fixture(scope="module")
def terminal_module() -> Iterator[Callable[..., Terminal]]:
    """The same, for tests that share one screen."""
    yield from _terminals()


# ---------------------------------------------------------------------------------------------------- command


@dataclass(frozen=True)
class Eagletui:
    """The installed command with a home of its own."""

    home: Path
    env: Mapping[str, str]
    argv: list[str]

    def run(self, *arguments: str, timeout: float = 120, input: str | None = None) -> subprocess.CompletedProcess[str]:
        """Runs the command to its end, without a terminal; a traceback in what it says fails the test."""
        done = subprocess.run(
            [*self.argv, *arguments],
            env=dict(self.env),
            cwd=self.home,
            input=input,
            stdin=subprocess.DEVNULL if input is None else None,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        assert "Traceback" not in done.stderr + done.stdout, done.stderr + done.stdout
        return done

    def json(self, *arguments: str, code: int | None = 0, timeout: float = 120) -> object:
        """Runs it with --json, checks the exit code, returns the document."""
        done = self.run(*arguments, "--json", timeout=timeout)
        assert code is None or done.returncode == code, f"exit {done.returncode}: {done.stdout}{done.stderr}"
        return json.loads(done.stdout)

    def popen(self, *arguments: str, **options: object) -> subprocess.Popen[bytes]:
        return subprocess.Popen([*self.argv, *arguments], env=dict(self.env), cwd=self.home, **options)


@pytest.fixture
def eagletui(tmp_path: Path) -> Eagletui:
    """The command in a new HOME with an empty ~/.ssh."""
    return make_eagletui(tmp_path / "home")


@pytest.fixture(scope="session")
def make_command() -> Callable[[Path], Eagletui]:
    """make_command(home): the command with that directory as its HOME, for tests that share it."""
    return make_eagletui


def make_eagletui(home: Path) -> Eagletui:
    (home / ".ssh").mkdir(mode=0o700, parents=True, exist_ok=True)
    tried = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}  # a tree that is not installed
    env = {"HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "TERM": "xterm-256color", **tried}
    return Eagletui(home, env, [str(COMMAND)])


# ----------------------------------------------------------------------------------------------------- SGLang


def processes_with(mark: str) -> list[int]:
    """Every live process, whatever it calls itself, whose environment holds `mark`."""
    found = []
    for entry in os.listdir("/proc"):
        environ = Path("/proc", entry, "environ")
        try:
            if entry.isdigit() and mark.encode() in environ.read_bytes():
                found.append(int(entry))
        except OSError:  # gone, or not ours
            continue
    return found


def _kill_marked(mark: str) -> None:
    for pid in processes_with(mark):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


@pytest.fixture(scope="session")
def kill_marked() -> Callable[[str], None]:
    """kill_marked(text): SIGKILL to every process whose environment holds the text."""
    return _kill_marked


@dataclass(frozen=True)
class SglangCpu:
    """The real SGLang on this machine's CPU."""

    directory: Path
    mark: str  # in the environment of every server started from `profile`

    @property
    def python(self) -> str:
        return str(self.directory / "venv/bin/python")

    def model(self, name: str) -> str:
        return str(self.directory / "models" / name)

    def profile(self, port: int, *, eagle3: bool = True, **arguments: object) -> str:
        """A launch profile: the tiny target, with the EAGLE-3 draft unless told otherwise."""
        args: dict[str, object] = {
            "model-path": self.model("tiny-llama"),
            "device": "cpu",
            "host": "127.0.0.1",
            "port": port,
            "mem-fraction-static": 0.2,
            "max-total-tokens": 8192,
            "decode-log-interval": 10,
            "sleep-on-idle": True,  # else its scheduler takes a core while nobody asks
        }
        if eagle3:
            args |= {
                "prefill-attention-backend": "intel_amx",
                "decode-attention-backend": "intel_amx",
                "speculative-algorithm": "EAGLE3",
                "speculative-draft-model-path": self.model("tiny-eagle3-draft"),
                "speculative-num-steps": 3,
                "speculative-eagle-topk": 1,
                "speculative-num-draft-tokens": 4,
            }
        args |= {name.replace("_", "-"): value for name, value in arguments.items()}
        env = {
            "SGLANG_USE_CPU_ENGINE": "1",
            "HF_HUB_OFFLINE": "1",
            "TRANSFORMERS_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
            "EAGLETUI_TEST_MARK": self.mark,
        }
        lines = ['kind = "launch"', 'description = "the tiny model on a CPU"', "startup_timeout_s = 300", "[env]"]
        lines += [f"{name} = {json.dumps(value)}" for name, value in env.items()]
        lines += ["[args]", *(f"{name} = {json.dumps(value)}" for name, value in args.items())]
        return "\n".join(lines) + "\n"

    def processes(self) -> list[int]:
        """Processes of all servers started from `profile`."""
        return processes_with(self.mark)

    def kill(self) -> None:
        _kill_marked(self.mark)


@pytest.fixture(scope="session")
def _sglang_directory() -> Path:
    named = os.environ.get("EAGLETUI_TEST_SGLANG")
    if named:
        directory = Path(named)
    else:
        where = subprocess.run([SGLANG_CPU / "setup.sh", "--where"], capture_output=True, text=True, check=True)
        directory = Path(where.stdout.strip())
    if not (directory / "venv/bin/python").exists():
        pytest.skip(f"no SGLang in {directory}: tests/sglang_cpu/setup.sh builds it (3 GB, some minutes)")
    return directory


def _sglang(directory: Path) -> Iterator[SglangCpu]:
    sglang = SglangCpu(directory, f"eagletui-test-{uuid.uuid4().hex}")
    yield sglang
    sglang.kill()


@pytest.fixture
def sglang_cpu(_sglang_directory: Path) -> Iterator[SglangCpu]:
    """The real SGLang; what a test left running is killed after it."""
    yield from _sglang(_sglang_directory)


@pytest.fixture(scope="module")
def sglang_module(_sglang_directory: Path) -> Iterator[SglangCpu]:
    """The same, for tests that share one server."""
    yield from _sglang(_sglang_directory)


@pytest.fixture(scope="session")
def free_port() -> Callable[[], int]:
    """A port that nothing listens on now, below the range of outgoing connections."""

    worker = int(re.sub(r"\D", "", os.environ.get("PYTEST_XDIST_WORKER", "")) or 0)

    def find() -> int:
        for port in range(21_000 + 700 * (worker % 12) + os.getpid() % 500, 32_000):
            with socket.socket() as probe:
                try:
                    probe.bind(("127.0.0.1", port))
                except OSError:
                    continue
                return port
        raise RuntimeError("no free port")

    return find


# ------------------------------------------------------------------------------------------------------- host


class Link:
    """A TCP proxy in front of sshd that can cut every connection, or stop forwarding without closing any."""

    def __init__(self, target_port: int) -> None:
        self._target = ("127.0.0.1", target_port)
        self._open = threading.Event()
        self._open.set()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.accepted = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
            except OSError:
                return
            self.accepted += 1
            self._pairs.append((client, server))
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._copy, args=(source, sink), daemon=True).start()

    def _copy(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65_536):
                self._open.wait()
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            end.close()

    def cut(self) -> None:
        """Resets every connection, as a router that forgot them does; new ones are taken."""
        for pair in self._pairs:
            for end in pair:
                try:
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue
        self._pairs.clear()

    def freeze(self) -> None:
        """Nothing is forwarded any more, nothing is closed."""
        self._open.clear()

    def thaw(self) -> None:
        self._open.set()

    def close(self) -> None:
        self._listener.close()
        self.thaw()
        self.cut()


class GpuHost:
    """A real sshd on loopback that stands for the GPU host, reached through a `Link`, and a command that knows it.

    The host's side has a home of its own (`remote_home`), so that its ~/.bashrc and state are not the user's.
    """

    name = "gpu1"

    def __init__(self, directory: Path, options: str = "") -> None:
        self.directory = directory
        self.remote_home = directory / "remote"
        self.remote_home.mkdir(parents=True)
        self.eagletui = make_eagletui(directory / "home")
        self.ssh = self.eagletui.home / ".ssh"
        for key in (directory / "host_key", self.ssh / "id_ed25519"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
        shutil.copy(self.ssh / "id_ed25519.pub", directory / "authorized_keys")
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port: int = probe.getsockname()[1]
        (directory / "sshd_config").write_text(
            f"ListenAddress 127.0.0.1\nPort {self.port}\nHostKey {directory}/host_key\nPidFile none\nUsePAM no\n"
            f"AuthorizedKeysFile {directory}/authorized_keys\nStrictModes no\n"
            f"SetEnv HOME={self.remote_home} EAGLETUI_LEASES={self.remote_home}/leases\n{options}"
        )
        sshd = shutil.which("sshd", path="/usr/sbin:/usr/bin:/sbin") or pytest.skip(
            "no sshd: apt-get install openssh-server"
        )
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)  # only the service makes it
        self._log = (directory / "sshd.log").open("wb")
        self._sshd = subprocess.Popen([sshd, "-D", "-e", "-f", directory / "sshd_config"], stderr=self._log)
        self.link = Link(self.port)
        self.trust()
        self.ssh_config()
        _wait_until(self._answers, 10, lambda: (directory / "sshd.log").read_text())

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2) as probe:
                return probe.recv(4) == b"SSH-"
        except OSError:
            return False

    def trust(self, public_key: str | None = None) -> None:
        """Makes known_hosts say that the host has this key (its own, unless told otherwise)."""
        key = public_key or (self.directory / "host_key.pub").read_text()
        (self.ssh / "known_hosts").write_text(f"[127.0.0.1]:{self.link.port} {' '.join(key.split()[:2])}\n")

    def ssh_config(self, **changes: object) -> None:
        """Writes ~/.ssh/config; `changes` are options of the host's entry."""
        options = {
            "HostName": "127.0.0.1",
            "Port": self.link.port,
            "User": getpass.getuser(),
            "IdentityFile": self.ssh / "id_ed25519",
            "IdentitiesOnly": "yes",
            "UserKnownHostsFile": self.ssh / "known_hosts",
        } | changes
        lines = [f"Host {self.name}", *(f"  {name} {value}" for name, value in options.items())]
        (self.ssh / "config").write_text("\n".join(lines) + "\n")

    def python(self, path: str) -> None:
        """Names the interpreter that has sglang in config.toml."""
        config = self.eagletui.home / ".config/eagletui"
        config.mkdir(parents=True, exist_ok=True)
        (config / "config.toml").write_text(
            f'default_host = "{self.name}"\n[hosts.{self.name}]\npython = {json.dumps(path)}\n'
        )

    def profile(self, name: str, text: str) -> None:
        directory = self.eagletui.home / "profiles"
        directory.mkdir(exist_ok=True)
        (directory / f"{name}.toml").write_text(text)

    def close(self) -> None:
        self.link.close()
        self._sshd.terminate()
        self._sshd.wait(10)
        self._log.close()


@pytest.fixture(scope="module")
def gpu_hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., GpuHost]]:
    """gpu_hosts(sshd_options) starts another host; ended with the module."""
    started: list[GpuHost] = []

    def start(options: str = "") -> GpuHost:
        started.append(GpuHost(tmp_path_factory.mktemp("host"), options))
        return started[-1]

    yield start
    for host in started:
        host.close()


@pytest.fixture
def gpu_host(gpu_hosts: Callable[..., GpuHost]) -> GpuHost:
    """A host with nothing special about it."""
    return gpu_hosts()


def _launch_by_keyboard(screen: Terminal, profile: str) -> None:
    screen.keys("l")
    screen.wait_for("Which profile", 30)
    for _ in range(60):
        chosen = screen.wait_for(r"▌\s+(\S+)", 10).group(1)
        if chosen == profile:
            break
        screen.keys("j")
        # Not before the cursor has moved: a key too many would run past it.
        screen.wait_for(rf"▌\s+(?!{re.escape(chosen)}\s)\S+", 10)
    screen.keys("Enter")
    screen.wait_for(rf"LAUNCH\s+{re.escape(profile)}\b", 30)
    screen.wait_for(r"Enter\s+launch", 60)  # after the pre-flight
    screen.keys("Enter")


@pytest.fixture(scope="session")
def launch_by_keyboard() -> Callable[[Terminal, str], None]:
    """launch_by_keyboard(screen, profile): from a panel's dashboard through choice, preview and pre-flight."""
    return _launch_by_keyboard
