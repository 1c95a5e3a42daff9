"""The sampler on another host of a group: what it says, and that it never stays."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tui.core.bench.other_hosts import Told
from tui.remote.loadgen.protocol import clock, uptime

pytestmark = pytest.mark.timeout(60)
BIN = Path(__file__).parents[1] / "bin"


@pytest.fixture
def member():
    """A process of the group, whose child is on the GPU; gives both."""
    found = subprocess.Popen(
        ["sh", "-c", "sleep 600 & echo $!; wait"], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    yield found, int(found.stdout.readline())
    if found.returncode is None:
        os.killpg(found.pid, signal.SIGKILL)
        found.wait()


@pytest.fixture
def sampler(tmp_path):
    """sampler(plan, environment...): the program under way."""
    made = []

    def start(path=f"{BIN}:{os.environ['PATH']}", pids=(), most_s=600.0, on_gpus=()):
        (tmp_path / "bench.json").write_text(json.dumps({"gpus": [0, 1], "pids": list(pids), "most_s": most_s}))
        environment = {"PATH": path, "FAKE_PIDS": " ".join(map(str, on_gpus)), "FAKE_SMI_LOG": str(tmp_path / "asked")}
        made.append(
            subprocess.Popen(
                [sys.executable, "-m", "tui.remote.group_gpus", tmp_path / "bench.json"],
                env={**os.environ, **environment},
                stdout=subprocess.PIPE,
            )
        )
        return made[-1]

    yield start
    for process in made:
        process.kill()
        process.wait()


def samplers_of(directory: Path) -> list[int]:
    return [int(line.split()[0]) for line in (directory / "asked").read_text().splitlines()]


def until_both_are_told(process) -> Told:
    told = Told()
    while not (told.samples and told.pids):
        line = process.stdout.readline()
        assert line
        told.take(line)
    return told


def test_samples_and_whose_processes_they_are_by_the_clock_since_boot(sampler, member, tmp_path):
    server, child = member
    begun = uptime()
    process = sampler(pids=[server.pid], on_gpus=[child, os.getpid()])
    told = until_both_are_told(process)
    assert {(sample[1], sample[2], sample[4]) for sample in told.samples} >= {(0, 123.46, 1000.0)}
    assert all(begun <= sample[0] <= uptime() for sample in told.samples)
    assert {(pid, ours) for _, pid, ours in told.pids} == {(child, True), (os.getpid(), False)}
    assert "-i 0,1" in (tmp_path / "asked").read_text()
    # Nobody has to end it: with its part of the group it ends, and what it asked with.
    os.killpg(server.pid, signal.SIGKILL)
    server.wait()
    assert process.wait(30) == 0
    assert not [pid for pid in samplers_of(tmp_path) if Path(f"/proc/{pid}").exists()]


def test_it_ends_when_the_longest_bench_is_over(sampler, member):
    assert sampler(pids=[member[0].pid], most_s=0.0).wait(30) == 0


def test_asked_to_end_it_takes_everything_along(sampler, member, tmp_path):
    process = sampler(pids=[member[0].pid], on_gpus=[member[1]])
    until_both_are_told(process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    assert not [pid for pid in samplers_of(tmp_path) if Path(f"/proc/{pid}").exists()]


def test_without_nvidia_smi_it_says_so(sampler, tmp_path):
    process = sampler(path=str(tmp_path))
    told = Told()
    told.take(process.stdout.readline())
    assert told.error == "there is no nvidia-smi"
    assert process.wait(30) == 0


def test_the_clock_is_that_of_proc_uptime():
    before, moment, now = uptime(), clock(), uptime()
    assert before <= float(Path("/proc/uptime").read_text().split()[0]) + 0.02
    assert before - 0.001 <= uptime(moment) <= now + 0.001
