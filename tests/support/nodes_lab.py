"""Two hosts for one server: each a network namespace with a process namespace, a host name and an sshd of its own; where the
kernel does not allow that, an sshd on a port of this machine.
"""

import getpass
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

NAMES = ("gpu3", "gpu4")
NETWORK = f"10.83.{os.getpid() % 200 + 20}"  # two labs at a time share no address


# Memory is shared within a host alone: by that SGLang tells its nodes apart.
SETTLE_IN = 'hostname "$0" && mount -t tmpfs shm /dev/shm && mount --bind "$1" /etc/hosts && shift && exec "$@"'


def command(*argv: object) -> None:
    subprocess.run([str(word) for word in argv], check=True, capture_output=True)


@dataclass
class Node:
    """A host: its sshd, and how a program is run there."""

    name: str
    directory: Path
    address: str
    inside: list[str] = field(default_factory=list)  # words in front of a program of this host's network
    whole: list[str] = field(default_factory=list)  # words in front of its first process
    port: int = 2222
    sshd: subprocess.Popen[bytes] | None = None

    def start(self, public_key: str) -> None:
        (self.directory / "home").mkdir(parents=True)
        (self.directory / "authorized_keys").write_text(public_key)
        command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.directory / "host_key")
        (self.directory / "sshd_config").write_text(
            f"ListenAddress {self.address}\nPort {self.port}\nHostKey {self.directory}/host_key\nPidFile none\n"
            f"UsePAM no\nAuthorizedKeysFile {self.directory}/authorized_keys\nStrictModes no\n"
            f"SetEnv HOME={self.directory}/home\n"
        )
        found = shutil.which("sshd", path="/usr/sbin:/usr/bin:/sbin")
        if not found:
            raise FileNotFoundError("no sshd: apt-get install openssh-server")
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        self.sshd = subprocess.Popen([*self.whole, found, "-D", "-e", "-f", self.directory / "sshd_config"],
                                     stderr=(self.directory / "sshd.log").open("wb"))  # fmt: skip

    def known_host(self) -> str:
        key = (self.directory / "host_key.pub").read_text().split()[:2]
        return f"[{self.address}]:{self.port} {' '.join(key)}\n"

    def answers(self) -> bool:
        try:
            with socket.create_connection((self.address, self.port), timeout=2) as probe:
                return probe.recv(4) == b"SSH-"
        except OSError:
            return False

    def cut(self, *, cut: bool = True) -> None:
        """Lets nothing through to the desk any more, or again; the other host is reached all the same. A lab of namespaces only."""
        command(*self.inside, "ip", "route", "add" if cut else "del", "blackhole", f"{NETWORK}.1/32")

    def run(self, *argv: str) -> str:
        return subprocess.run([*self.inside, *argv], check=True, capture_output=True, text=True, timeout=120).stdout


def namespaces(directory: Path) -> list[Node]:
    """Two hosts behind a bridge. Raises CalledProcessError where that is not allowed."""
    bridge = f"etb{os.getpid()}"
    command("ip", "link", "add", bridge, "type", "bridge")
    command("ip", "addr", "add", f"{NETWORK}.1/24", "dev", bridge)
    command("ip", "link", "set", bridge, "up")
    nodes = []
    others = "".join(f"{NETWORK}.{number} {name}\n" for number, name in enumerate(NAMES, 3))
    for number, name in enumerate(NAMES, 3):
        space, outer, address = f"et{os.getpid()}{name}", f"etv{os.getpid()}{number}", f"{NETWORK}.{number}"
        command("ip", "netns", "add", space)
        command("ip", "link", "add", outer, "type", "veth", "peer", "name", "fabric0", "netns", space)
        command("ip", "link", "set", outer, "master", bridge, "up")
        hosts = directory / f"hosts.{name}"
        hosts.write_text(f"127.0.0.1 localhost\n127.0.1.1 {name}\n{others}")  # as Debian's installer writes it
        inside = ["ip", "netns", "exec", space]
        command(*inside, "ip", "addr", "add", f"{address}/24", "dev", "fabric0")
        command(*inside, "ip", "link", "set", "fabric0", "up")
        command(*inside, "ip", "link", "set", "lo", "up")
        first = ["unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
        first += ["sh", "-c", SETTLE_IN, name, hosts]
        command(*inside, *first, "true")
        nodes.append(Node(name, directory / name, address, inside, [*inside, *first]))
    return nodes


def remove_namespaces() -> None:
    for name in NAMES:
        subprocess.run(["ip", "netns", "del", f"et{os.getpid()}{name}"], capture_output=True)
    subprocess.run(["ip", "link", "del", f"etb{os.getpid()}"], capture_output=True)


class Lab:
    """Both hosts, and a command that knows them."""

    def __init__(self, directory: Path, sglang: object, free_port: Callable[[], int], eagletui: object) -> None:
        self.sglang, self.eagletui = sglang, eagletui
        self.port, self.dist_port = free_port(), free_port() + 301
        try:
            self.nodes = namespaces(directory)
        except (OSError, subprocess.CalledProcessError):
            remove_namespaces()
            self.nodes = [
                Node(name, directory / name, "127.0.0.1", port=free_port() + at) for at, name in enumerate(NAMES)
            ]
        ssh = eagletui.home / ".ssh"
        command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", ssh / "id_ed25519")
        for node in self.nodes:
            node.start((ssh / "id_ed25519.pub").read_text())
        (ssh / "known_hosts").write_text("".join(node.known_host() for node in self.nodes))
        entries = [
            f"Host {node.name}\n  HostName {node.address}\n  Port {node.port}\n  User {getpass.getuser()}\n"
            f"  IdentityFile {ssh}/id_ed25519\n  IdentitiesOnly yes\n  UserKnownHostsFile {ssh}/known_hosts\n"
            for node in self.nodes
        ]
        (ssh / "config").write_text("".join(entries))
        config = eagletui.home / ".config/eagletui"
        config.mkdir(parents=True)
        python = json.dumps(sglang.python)
        (config / "config.toml").write_text("".join(f"[hosts.{name}]\npython = {python}\n" for name in NAMES))
        (eagletui.home / "profiles").mkdir()
        self.profile("two", NAMES)
        self.profile("owt", NAMES[::-1])

    def profile(self, name: str, hosts: tuple[str, ...], *, eagle3: bool = False) -> None:
        text = self.sglang.profile(self.port, eagle3=eagle3, tp_size=2)
        text = text.replace("[env]\n", '[env]\nSGLANG_CPU_OMP_THREADS_BIND = "0|1"\n')
        text = text.replace("startup_timeout_s = 300", "startup_timeout_s = 900")
        text += f"[nodes]\nhosts = {json.dumps(hosts)}\ndist_port = {self.dist_port}\n"
        (self.eagletui.home / "profiles" / f"{name}.toml").write_text(text)

    def node(self, name: str) -> Node:
        return next(node for node in self.nodes if node.name == name)

    def close(self) -> None:
        for node in self.nodes:
            if node.sshd is not None:
                node.sshd.kill()  # unshare ignores SIGTERM
                node.sshd.wait(10)
        remove_namespaces()


def processes_of(run_id: str) -> list[int]:
    """Of a run, as this machine numbers them; the main process first."""
    found: list[tuple[int, int]] = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"EAGLETUI_RUN={run_id}\0".encode() in environ.read_bytes() + b"\0":
                started = int((environ.parent / "stat").read_text().rpartition(") ")[2].split()[19])
                found.append((started, int(environ.parent.name)))
        except OSError:
            continue
    return [pid for _, pid in sorted(found)]
