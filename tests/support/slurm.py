"""A real Slurm for tests (tests/slurm/setup.sh): controller and nodes of its own, ended with everything that it started."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

SETUP = Path(__file__).parents[1] / "slurm/setup.sh"
NODES = ("n1", "n2", "n3")
_OVER = frozenset("BOOT_FAIL CANCELLED COMPLETED DEADLINE FAILED NODE_FAIL OUT_OF_MEMORY PREEMPTED TIMEOUT".split())


class Slurm:
    """One cluster on this machine; every test should leave it without jobs (`end_jobs`).

    Attributes:
        directory: with slurm.conf and the daemons' logs.
        env: what `sbatch`, `srun`, `squeue` and any eagletui need to reach it.
    """

    def __init__(self, directory: Path, port: int) -> None:
        self.directory, self.port = directory, port
        self.env = {"SLURM_CONF": str(directory / "slurm.conf")}

    def __call__(self, *words: str, check: bool = True) -> str:
        """Runs a command of Slurm; its output."""
        env = os.environ | self.env | {"PATH": f"{os.environ['PATH']}:/usr/sbin"}
        done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60)
        assert not check or done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout.strip()

    def submit(self, *options: str, script: str = "exec sleep 1000") -> str:
        """The id of a new batch job of this shell text."""
        out = "" if any(option.startswith(("-o", "--output")) for option in options) else "/dev/null"
        return self("sbatch", "--parsable", *options, *(["-o", out] if out else []), "--wrap", script)

    def show(self, job: str) -> dict[str, str]:
        """The fields of `scontrol show job`; {} where the controller has forgotten it."""
        text = self("scontrol", "show", "job", "-d", "-o", job, check=False)
        return dict(word.split("=", 1) for word in text.split() if "=" in word)

    def state(self, job: str) -> str | None:
        """PENDING, RUNNING, COMPLETED, …; None where the controller has forgotten it."""
        return self.show(job).get("JobState")

    def wait(self, job: str, *states: str, deadline_s: float = 60.0) -> dict[str, str]:
        """The job's fields once it is in one of these states, by default over; fails where it is not in time."""
        wanted = frozenset(states) or _OVER
        return self._until(
            lambda: (f := self.show(job)).get("JobState") in wanted and f, f"{job}: {states}", deadline_s
        )

    def end_jobs(self) -> None:
        """Ends all jobs and waits until their nodes are free."""
        self("scancel", "-u", "root", check=False)
        self._until(lambda: not self("squeue", "-h"), "jobs go on", 150.0)

    def stop_controller(self) -> None:
        """The controller goes away; jobs go on."""
        pid = int((self.directory / "slurmctld.pid").read_text())
        os.kill(pid, signal.SIGTERM)
        self._until(lambda: not _lives(pid), "the controller goes on")

    def start_controller(self) -> None:
        """It comes back with the state that it had."""
        self("slurmctld", "-i")
        self._until(lambda: "is UP" in self("scontrol", "ping", check=False), "no controller")

    def stop_node(self, node: str) -> None:
        """A node's daemon dies; steps that it started go on, as on a node that the network has lost."""
        os.kill(int((self.directory / f"slurmd.{node}.pid").read_text()), signal.SIGKILL)

    def start_node(self, node: str) -> None:
        """It comes back, and takes jobs again."""
        self("slurmd", "-N", node)
        self("scontrol", "update", f"nodename={node}", "state=resume", check=False)
        self._until(lambda: self("sinfo", "-h", "-n", node, "-p", "gpu", "-o", "%T") == "idle", f"{node} is not idle")

    def configure(self, **settings: object) -> None:
        """Changes settings of slurm.conf, as `SlurmdTimeout=5`."""
        path = self.directory / "slurm.conf"
        lines = [line for line in path.read_text().splitlines() if line.partition("=")[0] not in settings]
        path.write_text("\n".join([*(f"{name}={value}" for name, value in settings.items()), *lines]) + "\n")
        self("scontrol", "reconfigure")

    def _until(self, look: Callable[[], Any], what: str, deadline_s: float = 60.0) -> Any:
        end = time.monotonic() + deadline_s
        while not (found := look()):
            if time.monotonic() > end:
                pytest.fail(f"not within {deadline_s:g} s: {what}\n{self('squeue', '-t', 'all', check=False)}")
            time.sleep(0.05)
        return found


def _lives(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    return False


def free_port() -> int:
    """For the ranks of a job to meet at: jobs of several Slurms on one machine have the same numbers."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        port: int = held.getsockname()[1]
        return port


def _free_ports(count: int) -> int:
    """The first of so many free ports in a row, below those that systems give out by themselves."""
    start = 17_000 + os.getpid() % 1000 * 10
    for first in range(start, start + 5000, 10):
        with contextlib.suppress(OSError), contextlib.ExitStack() as held:
            for port in range(first, first + count):
                held.enter_context(socket.create_server(("127.0.0.1", port)))
            return first
    pytest.fail("no free ports for a Slurm")


def a_slurm(nodes: int = len(NODES)) -> Iterator[Slurm]:
    """A running cluster; it ends with the test process, however that ends."""
    if os.geteuid() != 0:
        pytest.skip("needs root: a Slurm of its own")
    if any(shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") is None for name in ("slurmctld", "munged")):
        pytest.skip("no Slurm: apt-get install slurm-wlm munge")
    directory = Path(
        tempfile.mkdtemp(prefix="eagletui-slurm-", dir="/tmp")
    )  # short, for sockets; TMPDIR may be closed to others
    port = _free_ports(nodes + 1)
    words = [SETUP, "run", directory, str(nodes), str(port)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        if not process.stdout.readline():
            pytest.fail("\n".join(file.read_text()[-2000:] for file in directory.glob("*.log")))
        yield Slurm(directory, port)
        process.stdin.close()
        process.stdout.close()
        process.wait(60)
    shutil.rmtree(directory, ignore_errors=True)
