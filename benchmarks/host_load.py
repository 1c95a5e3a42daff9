"""What eagletui costs a host with thousands of processes, eight GPUs and a server that serves, while a panel is open on it.

    .venv/bin/python benchmarks/host_load.py [--smoke] [--against TREE] [--processes 3000] [--seconds 60] [--rounds 5]

The host is an sshd on loopback, as root in a PID namespace of its own (without root it sees this machine's processes too, and what is
started cannot be counted): sleeping processes, the NVML stand-in of `nvml_eight.c` (needs cc and nvidia-ml-py), and a server
launched by eagletui that logs a line a second. Counted is everything below the sessions of sshd, and the run's supervisor: CPU with
that of ended children, resident memory (RSS counts what processes share in each of them, PSS once), processes started; sshd
itself apart. Then the seconds of `eagletui ps`, with all processes and with a hundred. --against measures another tree of eagletui (a
`git worktree`) on the same host, in turns.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from loopback import Loopback, free_port
from pty_program import PtyProgram

HERE = Path(__file__).parent
HZ = os.sysconf("SC_CLK_TCK")
SETTLE_S = 45.0  # what is asked after an opening, and more and more rarely then, is over


@dataclass(frozen=True)
class Seen:
    """One process: CPU seconds of its own and of its ended children."""

    parent: int
    name: str
    own_s: float
    children_s: float


def processes() -> dict[int, Seen]:
    """All of this machine, those of the host's namespace too."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            head, _, rest = (entry / "stat").read_text(errors="replace").rpartition(") ")
        except OSError:
            continue
        f = rest.split()
        cpu = [int(value) / HZ for value in f[11:15]]
        found[int(entry.name)] = Seen(int(f[1]), head.partition("(")[2], sum(cpu[:2]), sum(cpu[2:]))
    return found


def below(root: int, table: dict[int, Seen]) -> Iterator[int]:
    """Everything below a process."""
    for pid, seen in table.items():
        if seen.parent == root:
            yield pid
            yield from below(pid, table)


@dataclass
class Host:
    """The host, and the processes of it that are ours."""

    loopback: Loopback
    alone: bool
    supervisor: int = 0

    def root(self) -> int:
        """sshd itself, below what gave it its namespace."""
        table = processes()
        pid = self.loopback.sshd.pid
        while not table[pid].name.startswith("sshd"):
            pid = next(p for p, seen in table.items() if seen.parent == pid)
        return pid

    def ours(self) -> tuple[dict[int, Seen], list[int]]:
        """(sshd's processes, those below them that are ours)"""
        table = processes()
        root = self.root()
        found = {pid: table[pid] for pid in (root, *below(root, table))}
        sshd = {pid: seen for pid, seen in found.items() if seen.name.startswith("sshd")}
        sessions = [pid for pid in sshd if pid != root]
        own = {pid for session in sessions for pid in below(session, table)} - set(sshd)
        return sshd, [*own, *([self.supervisor] if self.supervisor in table else [])]

    def cpu_s(self) -> tuple[float, float]:
        """CPU seconds of ours, and of sshd."""
        sshd, own = self.ours()
        table = processes()
        mine = sum(table[pid].own_s + table[pid].children_s for pid in own if pid in table)
        ended = sum(seen.children_s for pid, seen in sshd.items() if pid != self.root())
        return mine + ended, sum(seen.own_s for seen in sshd.values())

    def memory_mib(self) -> tuple[float, float, list[str]]:
        """RSS and PSS of ours, and each of them in words."""
        rss = pss = 0.0
        words = []
        for pid in self.ours()[1]:
            try:
                text = Path(f"/proc/{pid}/smaps_rollup").read_text()
                command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode()
            except OSError:
                continue
            kib = {line.split(":")[0]: int(line.split()[1]) for line in text.splitlines()[1:]}
            rss, pss = rss + kib["Rss"] / 1024, pss + kib["Pss"] / 1024
            words.append(f"{Path(command).name} {kib['Rss'] / 1024:.1f}")
        return rss, pss, sorted(words)

    def started(self) -> int | None:
        """The number of processes that were started there; None where it shares this machine's."""
        if not self.alone:
            return None
        enter = ["nsenter", "-t", str(self.root()), "-p", "-m", "cat", "/proc/loadavg"]
        return int(subprocess.run(enter, capture_output=True, text=True, check=True).stdout.split()[-1])

    def sleep(self, count: int) -> subprocess.Popen[bytes]:
        """So many sleeping processes there, until it is ended."""
        program = (
            "import os, sys, time\n"
            f"pids = [os.posix_spawn('/bin/sleep', ['sleep', '100000'], {{}}) for _ in range({count})]\n"
            "print('there', flush=True); sys.stdin.read()\n"
            "for pid in pids: os.kill(pid, 9)\n"
        )
        enter = ["nsenter", "-t", str(self.root()), "-p", "-m"] if self.alone else []
        started = subprocess.Popen(
            [*enter, sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert started.stdout is not None
        started.stdout.readline()
        return started


class Tree:
    """One version of eagletui."""

    def __init__(self, path: Path, home: Path) -> None:
        self.path = path
        self.command = [sys.executable, "-m", "tui"]
        self.environment = {
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "PYTHONPATH": str(path),
            "PYTHONPYCACHEPREFIX": str(home / "pycache"),
        }
        self.cwd = str(home)

    def call(self, *arguments: str) -> str:
        done = subprocess.run(
            [*self.command, *arguments, "--json"], env=self.environment, cwd=self.cwd, capture_output=True, text=True
        )
        if done.returncode:
            raise SystemExit(done.stdout + done.stderr)
        return done.stdout

    def ps_s(self) -> float:
        """Seconds of `eagletui ps`."""
        began = time.monotonic()
        self.call("ps", "loopback")
        return time.monotonic() - began


def panel_open(host: Host, tree: Tree, settle_s: float, seconds: float) -> dict[str, object]:
    """What is used while a panel is open."""
    panel = PtyProgram([*tree.command, "loopback"], tree.environment, cwd=tree.cwd)
    try:
        panel.wait_for("READY", 60)
        panel.run_for(settle_s)
        (cpu, sshd), count = host.cpu_s(), host.started()
        began = time.monotonic()
        panel.run_for(seconds)
        took = time.monotonic() - began
        more, later = host.cpu_s(), host.started()
        rss, pss, words = host.memory_mib()
    finally:
        panel.close()
    return {
        "CPU, % of a core": f"{100 * (more[0] - cpu) / took:.2f}",
        "sshd, %": f"{100 * (more[1] - sshd) / took:.2f}",
        "started a minute": "?" if count is None or later is None else f"{max(0, later - count - 1) * 60 / took:.0f}",
        "RSS, MiB": f"{rss:.1f}",
        "PSS, MiB": f"{pss:.1f}",
        "processes": ", ".join(words),
    }


def launch(tree: Tree, loopback: Loopback) -> dict[str, object]:
    """A server that serves."""
    settings = loopback.home / ".config/eagletui/config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text("[hosts.loopback]\npython = '/nonexistent'\n")  # without GPUs, whose memory is not ours
    port = free_port()
    go = loopback.directory / "go"
    go.touch()
    command = [sys.executable, str(HERE / "ready_stand_in.py"), str(port), str(go), f"{go}-written", "serves"]
    (loopback.home / "profiles").mkdir(exist_ok=True)
    profile = f'kind = "launch"\ncommand = {json.dumps(command)}\n[args]\nport = {port}\n'
    (loopback.home / "profiles/serving.toml").write_text(profile)
    run: dict[str, object] = json.loads(tree.call("launch", "serving", "--host", "loopback"))
    settings.write_text(f"[hosts.loopback]\npython = {json.dumps(sys.executable)}\n")
    return run


def supervisor_of(run: str, loopback: Loopback) -> int:
    """The pid here of a run's supervisor: the parent of its main process, whose environment has the run's name."""
    table = processes()
    for pid, seen in table.items():
        try:
            if f"EAGLETUI_RUN={run}".encode() in Path(f"/proc/{pid}/environ").read_bytes():
                return seen.parent
        except OSError:
            continue
    return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", type=Path, action="append", default=[], help="another tree of eagletui")
    parser.add_argument("--processes", type=int, default=3000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--settle", type=float, default=SETTLE_S, help="seconds before the window")
    parser.add_argument("--rounds", type=int, default=5, help="of ps")
    parser.add_argument("--smoke", action="store_true", help="a hundred processes and seconds")
    options = parser.parse_args()
    few = 100
    if options.smoke:
        options.processes, options.seconds, options.settle, options.rounds, few = 100, 2.0, 1.0, 1, 10
    alone = os.geteuid() == 0 and shutil.which("unshare") is not None and shutil.which("nsenter") is not None
    library = Path(os.environ.get("TMPDIR", "/tmp")) / f"eagletui-nvml-{os.getpid()}"
    library.mkdir()
    try:
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-o", library / "libnvidia-ml.so.1", HERE / "nvml_eight.c"], check=True
        )
        with Loopback(alone=True, environment=f"LD_LIBRARY_PATH={library}") as loopback:
            trees = [Tree(path, loopback.home) for path in (HERE.parent, *options.against)]
            measure(Host(loopback, alone), trees, options, few)
    finally:
        shutil.rmtree(library)


def measure(host: Host, trees: list[Tree], options: argparse.Namespace, few: int) -> None:
    """All figures of all trees, in turns."""
    run = launch(trees[0], host.loopback)
    host.supervisor = supervisor_of(str(run["run"]), host.loopback)
    asleep = host.sleep(options.processes)
    print(f"{options.processes} sleeping processes, a panel open for {options.seconds:g} s:")
    for tree in trees:
        for what, value in panel_open(host, tree, options.settle, options.seconds).items():
            print(f"  {tree.path}: {what}: {value}", flush=True)
    seconds: dict[tuple[Path, int], list[float]] = {}
    for count in (options.processes, few):
        for _ in range(options.rounds):
            for tree in trees:
                seconds.setdefault((tree.path, count), []).append(tree.ps_s())
        asleep.communicate()
        if count != few:
            asleep = host.sleep(few)
    for (path, count), times in seconds.items():
        print(f"  {path}: eagletui ps with {count} processes: median {statistics.median(times):.2f} s")
    trees[0].call("stop", str(run["run"]), "--yes")


if __name__ == "__main__":
    main()
