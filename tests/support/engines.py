"""Real container engines for tests: a dockerd on a socket of its own, a podman with storage of its own, one small image.

Both run as root in a sandbox without systemd: a bridge only where a test makes one, no cgroups for podman. The image is BusyBox alone; programs of this
machine run in it through read-only mounts of /usr and /lib.
"""

import contextlib
import ctypes
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

IMAGE = "eagletest:1"
SERVER = Path(__file__).with_name("container_server.py")
MOUNTS = ("-v", "/usr:/usr:ro", "-v", "/lib:/lib:ro", "-v", "/lib64:/lib64:ro", "-v", f"{SERVER.parent}:/t:ro")
SERVER_WORDS = ("/usr/bin/python3", "/t/container_server.py")
_APPLETS = (
    "sh sleep cat ls echo id ps env true false kill tail grep mkdir touch wc dd printf seq sed tr head cut sort".split()
)


class Engine:
    """One engine: `words` call it, `env` is what they need."""

    def __init__(self, name: str, words: tuple[str, ...], env: dict[str, str]) -> None:
        self.name, self.words, self.env = name, words, env
        self.networks: list[str] = []

    def __call__(self, *args: str, check: bool = True) -> str:
        done = subprocess.run(
            [*self.words, *args], env={**os.environ, **self.env}, capture_output=True, text=True, timeout=60
        )
        assert not check or done.returncode == 0, done.stderr
        return done.stdout.strip()

    def run_words(self, *options: str, server: tuple[str, ...] = (), network: str = "host") -> tuple[str, ...]:
        """A command line that starts the test server in a container."""
        return (*self.words, "run", "--network", network, *MOUNTS, *options, IMAGE, *SERVER_WORDS, *server)

    def bridge(self) -> str:
        """A network with a bridge, made once; it goes with the engine."""
        name = f"{self.name[0]}tb{os.getpid()}"
        if name not in self.networks:
            if self.name == "podman" and not Path("/usr/lib/cni/bridge").exists():
                pytest.skip("podman makes no bridge: apt-get install containernetworking-plugins")
            third = os.getpid() % 100 + (100 if self.name == "podman" else 0)
            self("network", "create", "--driver", "bridge", "--subnet", f"10.85.{third}.0/24", name)
            self.networks.append(name)
        return name

    def without_containers(self) -> None:
        if names := self("ps", "-aq", check=False).split():
            self("rm", "-f", *names, check=False)
        for name in self.networks:
            self("network", "rm", name, check=False)

    def names(self) -> list[str]:
        return self("ps", "-a", "--format", "{{.Names}}").split()

    def idle(self, name: str, *options: str) -> str:
        """Starts a container that does nothing; its id."""
        return self("run", "-d", "--name", name, "--network", "host", *MOUNTS, *options, IMAGE, "sleep", "100000")

    def output(self, name: str) -> bytes:
        """What `logs` prints, of both streams."""
        return subprocess.run([*self.words, "logs", name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout

    def processes(self, name: str, *, dead: bool = False) -> list[str]:
        """Command lines of what lives in a container, its first process left out; or PIDs of its zombies."""
        first = self("inspect", "-f", "{{.State.Pid}}", name)
        found = _commands_inside(first)
        others = {pid: line for pid, line in found.items() if pid != first}
        return [pid for pid, line in others.items() if not line] if dead else [line for line in others.values() if line]


def _commands_inside(first: str) -> dict[str, str]:
    """PIDs, as this machine counts them, and command lines of what is in the PID namespace of a process; "" of zombies."""
    space = os.readlink(f"/proc/{first}/ns/pid")
    found = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and os.readlink(entry / "ns/pid") == space:
                found[entry.name] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    return found


def _need(*programs: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: a container engine of its own")
    for program in programs:
        if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None:
            pytest.skip(f"no {program}: apt-get install docker.io runc podman crun conmon busybox-static")


def _rootfs(directory: Path) -> Path:
    root = directory / "rootfs"
    for name in "bin tmp proc sys dev etc usr lib lib64 root".split():
        (root / name).mkdir(parents=True)
    shutil.copy("/bin/busybox", root / "bin/busybox")
    for name in _APPLETS:
        (root / "bin" / name).symlink_to("busybox")
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    archive = directory / "rootfs.tar"
    subprocess.run(["tar", "-C", root, "-cf", archive, "."], check=True)
    return archive


PYTHON_IMAGE = "eagletest:python"


def add_python_image(engine: Engine, directory: Path) -> None:
    """An image with this machine's own Python in it, as images of SGLang have one."""
    program = Path("/usr/bin/python3").resolve()
    library = Path(f"/usr/lib/{program.name}")
    if not (program.exists() and library.is_dir()):
        pytest.skip("no /usr/bin/python3: apt-get install python3")
    root = directory / "rootfs"
    shutil.copytree(
        library, root / library.relative_to("/"), ignore=shutil.ignore_patterns("__pycache__", "config-*", "test")
    )
    libraries = subprocess.run(
        ["ldd", program, *library.glob("lib-dynload/*.so")], capture_output=True, text=True, check=True
    )
    for path in {program, *map(Path, re.findall(r"(/\S+\.so\S*) \(", libraries.stdout))}:
        (root / path.parent.relative_to("/")).mkdir(parents=True, exist_ok=True)
        shutil.copy(path, root / path.relative_to("/"))
    (root / "usr/bin/python3").symlink_to(program.name)
    archive = directory / "python.tar"
    subprocess.run(["tar", "-C", root, "-cf", archive, "."], check=True)
    engine("import", str(archive), PYTHON_IMAGE)


def without_python(directory: Path) -> str:
    """A PATH with what this machine has, but no Python."""
    directory.mkdir()
    for place in os.environ["PATH"].split(":"):
        for program in Path(place).glob("*"):
            if not program.name.startswith(("python", "pypy")) and not (directory / program.name).is_symlink():
                (directory / program.name).symlink_to(program)
    return str(directory)


class Dockerd:
    """A dockerd of its own, which can be killed and started again."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.socket = directory / "sock"
        self.engine = Engine("docker", ("docker", "-H", f"unix://{self.socket}"), {})
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        where = self.directory
        with (where / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [shutil.which("dockerd", path="/usr/sbin:/usr/bin:/sbin"), "--data-root", where / "data", "--exec-root", where / "exec",
                 "--pidfile", where / "pid", "-H", f"unix://{self.socket}", "--bridge=none", "--iptables=false", "--ip-forward=false",
                 "--ip-masq=false", "--storage-driver=vfs", *options],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=_end_with_the_tests,
            )  # fmt: skip
        deadline = time.monotonic() + 60
        while subprocess.run([*self.engine.words, "version"], capture_output=True).returncode:
            if time.monotonic() > deadline or self.process.poll() is not None:
                pytest.fail((where / "log").read_text()[-2000:])
            time.sleep(0.1)

    def stop(self, with_signal: int = signal.SIGTERM) -> None:
        assert self.process is not None
        containerd = Path("/proc", (self.directory / "exec/containerd/containerd.pid").read_text().strip())
        self.process.send_signal(with_signal)
        self.process.wait(60)
        deadline = time.monotonic() + 60
        while containerd.exists() and time.monotonic() < deadline:  # a dockerd that starts would take it for a live one
            time.sleep(0.05)


def _end_with_the_tests() -> None:
    """Tests that are killed take their dockerd with them: SIGTERM at the death of its parent."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)


def _sweep() -> None:
    """What a dockerd of earlier, killed tests has left mounted."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        where = Path(line.split()[1])
        if found := re.search(r"^(.*/docker\d+)/(exec/netns/default|data)$", str(where)):
            try:
                name = Path(f"/proc/{int(Path(found[1], 'pid').read_text())}/comm").read_text().strip()
            except (OSError, ValueError):
                name = ""
            if name != "dockerd":
                subprocess.run(["umount", where], capture_output=True)


def docker_engine(directory: Path) -> Iterator[Dockerd]:
    """A dockerd with the image; ended with everything in it."""
    _need("docker", "dockerd", "runc")
    _sweep()
    daemon = Dockerd(directory)
    daemon.start()
    daemon.engine("import", str(_rootfs(directory)), IMAGE)
    yield daemon
    daemon.engine.without_containers()
    daemon.stop()
    _sweep()


def podman_engine(directory: Path) -> Iterator[Engine]:
    """A podman with the image and storage of its own."""
    _need("podman", "crun", "conmon")
    limit = 10_000
    (directory / "storage.conf").write_text(
        f'[storage]\ndriver = "vfs"\ngraphroot = "{directory}/root"\nrunroot = "{directory}/run"\n'
    )
    (directory / "containers.conf").write_text(
        '[containers]\ncgroups = "disabled"\nlog_driver = "k8s-file"\nnetns = "host"\n'
        f'default_ulimits = ["nofile={limit}:{limit}", "nproc=20000:20000"]\n'
        '[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\nruntime = "crun"\n'
        f'[network]\nnetwork_config_dir = "{directory}/networks"\n'
    )
    # crun refuses a hybrid cgroup tree, so the program sees none of its second version. All calls share one tree of mounts, since
    # podman finds the network of a container by one.
    hidden = "umount /sys/fs/cgroup/unified 2>/dev/null; echo; exec sleep infinity"
    mounts = subprocess.Popen(
        ["unshare", "-m", "sh", "-c", hidden], stdout=subprocess.PIPE, preexec_fn=_end_with_the_tests
    )
    assert mounts.stdout is not None
    mounts.stdout.readline()
    program = directory / "podman"
    program.write_text(
        f"#!/bin/sh\nexport CONTAINERS_STORAGE_CONF={directory}/storage.conf CONTAINERS_CONF={directory}/containers.conf\n"
        f'exec nsenter --mount=/proc/{mounts.pid}/ns/mnt --wd="$PWD" podman "$@"\n'
    )
    program.chmod(0o755)
    engine = Engine("podman", (str(program),), {})
    engine("import", str(_rootfs(directory)), IMAGE)
    yield engine
    engine.without_containers()
    mounts.kill()
    mounts.wait()
