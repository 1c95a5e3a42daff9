"""The real SGLang over two hosts: tensor parallel 2, a rank on each, launched from one profile.

Each host is a network namespace with a process namespace, a host name and an sshd of its own; where the kernel does not allow
that, an sshd on a port of this machine.
"""

import getpass
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(1200)

NAMES = ("gpu3", "gpu4")
NETWORK = "10.83.71"
ENDED_S = 30.0  # from the death of a rank to the end of the group
ASK = """
import json, sys, urllib.request
body = json.dumps({"text": "one two three", "sampling_params": {"max_new_tokens": 8, "ignore_eos": True}}).encode()
request = urllib.request.Request(sys.argv[1], body, {"Content-Type": "application/json"})
print(json.load(urllib.request.urlopen(request, timeout=60))["meta_info"]["completion_tokens"])
"""


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
        found = shutil.which("sshd", path="/usr/sbin:/usr/bin:/sbin") or pytest.skip(
            "no sshd: apt-get install openssh-server"
        )
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

    def profile(self, name: str, hosts: tuple[str, ...]) -> None:
        text = self.sglang.profile(self.port, eagle3=False, tp_size=2)
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


@pytest.fixture(scope="module")
def lab(
    tmp_path_factory: pytest.TempPathFactory,
    sglang_module: object,
    free_port: Callable[[], int],
    make_command: Callable[[Path], object],
    wait_until: Callable[..., object],
) -> Iterator[Lab]:
    directory = tmp_path_factory.mktemp("nodes")
    lab = Lab(directory, sglang_module, free_port, make_command(directory / "desk"))
    try:
        for node in lab.nodes:
            wait_until(node.answers, 15, lambda node=node: (node.directory / "sshd.log").read_text())
        yield lab
    finally:
        sglang_module.kill()
        lab.close()


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


def kill_rank(document: dict[str, object], rank: int) -> str:
    """SIGKILL to the main process of a rank; its run."""
    member = document["group"]["members"][rank]
    os.kill(processes_of(member["run"])[0], signal.SIGKILL)
    return member["run"]


def the_end(lab: Lab, group: str) -> dict[str, object]:
    """What is said of a group once rank 1 is dead: all of it has ended soon after."""
    document = lab.eagletui.json("wait", group, "--for", "exit", code=1, timeout=600)
    first, last = sorted(datetime.fromisoformat(one["ended"]) for one in document["group"]["members"])
    assert (last - first).total_seconds() < ENDED_S
    assert lab.sglang.processes() == []
    return document


@pytest.fixture(scope="module")
def ready(lab: Lab) -> dict[str, object]:
    """Two launches race for both hosts, each beginning with another; the one that got them, once it is ready."""
    with ThreadPoolExecutor(2) as pool:
        race = [pool.submit(lab.eagletui.run, "launch", name, "--json", timeout=600) for name in ("two", "owt")]
        ended = [one.result() for one in race]
    assert sorted(one.returncode for one in ended) == [0, 1], [one.stdout + one.stderr for one in ended]
    lost, won = (json.loads(one.stdout) for one in sorted(ended, key=lambda one: one.returncode, reverse=True))
    assert lost["error"] in ("busy", "preflight")
    waited = lab.eagletui.run("wait", won["run"], timeout=900)
    assert waited.returncode == 0, waited.stderr
    document = lab.eagletui.json("wait", won["run"])
    return {**document, "said": waited.stderr}


def test_it_is_ready_once_and_both_ranks_show_their_phases(lab: Lab, ready: dict[str, object]) -> None:
    said = str(ready["said"])
    assert len(re.findall(r"^ready", said, re.MULTILINE)) == 1
    for rank in (0, 1):
        assert re.search(rf"rank {rank} (distributed init|load weights|memory pool|cuda graph|warmup)", said)
    members = ready["group"]["members"]
    assert [(one["outcome"], one["link_lost"]) for one in members] == [("ready", False)] * 2
    assert all(one["holds"] for one in ready["group"]["conditions"])
    head = lab.node(members[0]["host"])
    tokens = head.run(sys.executable, "-c", ASK, f"http://127.0.0.1:{members[0]['port']}/generate")
    assert int(tokens) == 8


def test_of_the_launch_that_lost_nothing_is_left(lab: Lab, ready: dict[str, object]) -> None:
    rows = lab.eagletui.json("ps", *NAMES)
    ours = [row for row in rows if row["state"] != "foreign"]
    assert sorted(row["run"] for row in ours) == sorted(one["run"] for one in ready["group"]["members"])
    assert {row["group"]["id"] for row in ours} == {ready["group"]["id"]}
    table = lab.eagletui.run("ps", *NAMES).stdout
    assert re.search(
        rf"^{ready['profile']} {ready['run'][-6:]}\s+ready\s+\w+\s+rank 0 gpu. ready, rank 1 gpu. ready$", table, re.M
    )


def test_the_logs_of_both_are_the_group_s(lab: Lab, ready: dict[str, object]) -> None:
    both = lab.eagletui.run("logs", str(ready["run"])[-6:]).stdout
    assert "The server is fired up" in both
    assert "Dummy health check server" in both
    one = lab.eagletui.run("logs", f"{str(ready['run'])[-6:]}-1").stdout
    assert "Dummy health check server" in one
    assert "The server is fired up" not in one


def test_a_stop_of_any_member_drains_all_and_leaves_nothing(lab: Lab, ready: dict[str, object]) -> None:
    document = lab.eagletui.json("stop", ready["group"]["members"][1]["run"], "--grace", "60", timeout=200)
    assert document["outcome"] == "stopped"
    assert [one["exit_code"] for one in document["group"]["members"]] == [0, 0]
    assert lab.sglang.processes() == []
    over = lab.eagletui.json("wait", str(ready["run"]), "--for", "exit")
    assert (over["outcome"], over["group"]["failed"]) == ("stopped", None)


def test_rank_1_killed_while_it_starts_ends_the_group(lab: Lab, wait_until: Callable[..., object]) -> None:
    document = lab.eagletui.json("launch", "two", timeout=600)
    second = document["group"]["members"][1]["run"]

    def begun() -> bool:
        return "Init parallel" in lab.eagletui.run("logs", second).stdout

    wait_until(begun, 600, lambda: lab.eagletui.run("logs", second).stdout)
    kill_rank(document, 1)
    over = the_end(lab, str(document["run"]))
    assert (over["outcome"], over["group"]["failed"]) == ("crashed", "rank 1")
    assert over["diagnosis"] == over["group"]["members"][1]["diagnosis"]


def test_rank_1_killed_while_it_serves_ends_the_group(lab: Lab) -> None:
    document = lab.eagletui.json("launch", "two", "--wait", timeout=900)
    assert document["outcome"] == "ready"
    kill_rank(document, 1)
    over = the_end(lab, str(document["run"]))
    assert (over["outcome"], over["group"]["failed"]) == ("crashed", "rank 1")
    assert over["group"]["members"][1]["exit_code"] == 137
    report = lab.eagletui.json("diagnose", str(document["run"]))
    assert report["group"]["failed"] == "rank 1"
