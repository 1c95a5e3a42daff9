"""Kills rank 1 of a real SGLang over two hosts in each phase of its start, and while it serves: how long until the group has ended.

    .venv/bin/python benchmarks/nodes_killed.py [--smoke] [--phase PHASE]…

The two hosts are those of tests/e2e/test_nodes.py (root, network namespaces; tests/sglang_cpu/setup.sh builds the SGLang). Both logs are read
where they lie, many times a second, so that the kill meets phases that last a moment; which phase it met is what the tracker then says of
rank 1. `eagletui wait` follows the group over SSH as a person's would. Fails where a group has not ended within 30 s, where it did
not end by rank 1, or where processes are left.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from loopback import free_port

from tests.e2e.conftest import Eagletui, SglangCpu, make_eagletui, processes_with
from tests.support.nodes_lab import NAMES, Lab, processes_of
from tui.core.model.phases import Phase
from tui.core.sglang.tracker import LogTracker

ROOT = Path(__file__).parents[1]
LIMIT_S = 30.0
LOOK_S = 0.003
START_S = 600.0
TRIES = 3  # a phase of a moment may be over before the signal is there
PHASES = [
    phase for phase in Phase if phase not in (Phase.CUDA_GRAPH, Phase.READY)
]  # a CPU has no graphs; ready is a moment


class Followed:
    """A log where it lies, read as it grows."""

    def __init__(self, home: Path, run_id: str) -> None:
        (self.path,) = home.glob(f".local/state/eagletui/*/runs/{run_id}/log")
        self.tracker, self.at = LogTracker(records=False), 0

    def phase(self) -> Phase:
        with self.path.open("rb") as file:
            file.seek(self.at)
            data = file.read()
        self.at += len(data)
        self.tracker.feed(data)
        return self.tracker.state().phase


@dataclass(frozen=True)
class Killed:
    """What came of one kill."""

    met: str  # the phase that the tracker says of rank 1 at its end
    ended_s: float  # from the signal until no process of the group was left
    told_s: float  # until `eagletui wait` had said so
    said: dict[str, object]  # its document

    def faults(self) -> list[str]:
        group = self.said["group"]
        assert isinstance(group, dict)
        member = group["members"][1]
        wrong = []
        if self.ended_s > LIMIT_S:
            wrong.append(f"ended after {self.ended_s:.0f} s")
        if (self.said["outcome"], group["failed"]) != ("crashed", "rank 1"):
            wrong.append(f"{self.said['outcome']} by {group['failed']}")
        if not self.said["diagnosis"] or self.said["diagnosis"] != member["diagnosis"]:
            wrong.append("its cause is not that of rank 1's log")
        return wrong


def killed_in(lab: Lab, sglang: SglangCpu, phase: Phase) -> Killed:
    """Launches the group, kills the main process of rank 1 once it is there, waits for the end of both."""
    launched = lab.eagletui.json("launch", "drafted" if phase is Phase.DRAFT_MODEL else "two", timeout=START_S)
    group, members = str(launched["run"]), launched["group"]["members"]
    waiting = lab.eagletui.popen(
        "wait", group, "--for", "exit", "--json", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    logs = [Followed(lab.node(member["host"]).directory / "home", member["run"]) for member in members]
    asked = time.monotonic()

    def there() -> bool:
        head, own = (log.phase() for log in logs)
        if phase in (Phase.WARMUP, Phase.SERVING):  # what a node above rank 0 is in, rank 0's log tells
            return head in ((Phase.READY, Phase.SERVING) if phase is Phase.SERVING else (Phase.WARMUP,))
        return own is phase

    while not there():
        if time.monotonic() - asked > START_S or waiting.poll() is not None:
            raise SystemExit(f"{phase}: never came; {lab.eagletui.run('diagnose', group).stdout}")
        time.sleep(LOOK_S)
    os.kill(processes_of(members[1]["run"])[0], signal.SIGKILL)
    began = time.monotonic()
    while processes_with(sglang.mark) and time.monotonic() - began < 2 * LIMIT_S:
        time.sleep(0.05)
    ended = time.monotonic() - began
    out, _ = waiting.communicate(timeout=120)
    told = time.monotonic() - began
    if left := processes_with(sglang.mark):
        raise SystemExit(f"{phase}: {len(left)} processes are left")
    said = json.loads(out)
    return Killed(said["group"]["members"][1]["phase"], ended, told, said)


@contextmanager
def two_hosts(sglang: SglangCpu) -> Iterator[Lab]:
    directory = Path(tempfile.mkdtemp(prefix="eagletui-nodes-"))
    desk = make_eagletui(directory / "desk")
    tree = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    lab = Lab(directory, sglang, free_port, Eagletui(desk.home, {**desk.env, **tree}, [sys.executable, "-m", "tui"]))
    try:
        end = time.monotonic() + 15
        while not all(node.answers() for node in lab.nodes):
            if time.monotonic() > end:
                raise SystemExit("an sshd does not answer")
            time.sleep(0.1)
        yield lab
    finally:
        sglang.kill()
        lab.close()
        shutil.rmtree(directory, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--phase", action="append", choices=[str(phase) for phase in PHASES], help="all of them without"
    )
    parser.add_argument("--smoke", action="store_true", help="the first phase alone")
    given = parser.parse_args()
    where = subprocess.run([ROOT / "tests/sglang_cpu/setup.sh", "--where"], capture_output=True, text=True, check=True)
    sglang = SglangCpu(
        Path(os.environ.get("EAGLETUI_TEST_SGLANG") or where.stdout.strip()), f"eagletui-nodes-{uuid.uuid4().hex}"
    )
    if not Path(sglang.python).exists() or os.geteuid() != 0:
        raise SystemExit(print("left out: needs root, and the SGLang of tests/sglang_cpu/setup.sh"))
    phases = [Phase.LAUNCH] if given.smoke else [Phase(name) for name in given.phase or PHASES]
    faults = []
    print("| killed in the phase | group ended after, s | told after, s | cause |\n|---|---|---|---|")
    with two_hosts(sglang) as lab:
        lab.profile("drafted", NAMES, eagle3=True)
        for phase in phases:
            for _ in range(TRIES):
                killed = killed_in(lab, sglang, phase)
                if killed.met == phase:
                    break
            diagnosis = killed.said["diagnosis"]
            cause = diagnosis["cause"] if isinstance(diagnosis, dict) else None
            aimed = "" if killed.met == phase else f" (aimed at {phase})"
            print(f"| {killed.met}{aimed} | {killed.ended_s:.1f} | {killed.told_s:.1f} | {cause} |", flush=True)
            faults += [f"{phase}: {fault}" for fault in killed.faults()]
    if faults:
        raise SystemExit("; ".join(faults))


if __name__ == "__main__":
    main()
