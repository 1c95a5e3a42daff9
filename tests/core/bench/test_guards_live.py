"""Each guard through a live measurement: one just inside every limit counts, one just outside fails all of them.

The load generator, its files and the judgement are the real ones; the server knows the truth, and the GPUs are a stand-in.
"""

import asyncio
import gzip
import json
import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import truth_server as truth
from tests.support.generator import generator
from tui.core.bench.collect import Asked
from tui.core.bench.loadgen_driver import assemble
from tui.core.model.profile import BenchProfile, LoadPoint
from tui.core.model.result import GuardStatus, MeasuredServer

pytestmark = pytest.mark.timeout(600)  # the first takes all measurements

PROMPT_TOKENS = 201
# The generator's clock of CPU time goes at this share of a core: a real one depends on what else the machine does.
CPU_CLOCK = """
import os, time
if "CPU_SHARE" in os.environ:
    time.process_time = lambda: float(os.environ["CPU_SHARE"]) * time.perf_counter()
"""
SMI = """#!/bin/sh
case "$*" in
*--query-gpu*) while :; do echo "0, 250.5, 97, 70000, 1980, {mask}"; sleep 0.2; done ;;
*) while :; do printf '{pids}'; sleep 0.2; done ;;
esac
"""


@dataclass(frozen=True)
class Setting:
    """What one measurement meets."""

    counts: float = 1.0  # factor on the server's counter
    cached: int = 0  # of each prompt
    slower: float = 1.0  # factor on the time between chunks, from the middle of the window on
    freeze_s: float = 0.0  # of the generator
    cpu_share: float = 0.1  # of a core
    mask: str = "0x4"  # reasons for a lower clock
    foreign: bool = False
    forced: str = "-1"
    eager: int = 0  # of 100 decode lines
    duration_s: float = 10.0
    restarted: bool = False  # the server answers with another seed after the window's middle
    lies: bool = False  # about a reply's length
    fails: bool = False  # one prompt
    rate: float | None = None


# What a limit lets pass, and what it does not: 0.5 %, (cached - 64) of 201 tokens, 2 %, 50 ms, 80 %, 1 %.
INSIDE = Setting(counts=1.0045, cached=66, slower=1.005, freeze_s=0.08, cpu_share=0.795, eager=1)
OUTSIDE = Setting(
    counts=1.012, cached=67, slower=1.3, freeze_s=0.3, cpu_share=0.805, eager=2, mask="0x44", foreign=True, forced="2.5",
    duration_s=9.9, restarted=True, lies=True, fails=True,
)  # fmt: skip
GUARDS = (
    "errors", "window", "tokens", "chunks", "cache", "client_cpu", "client_lag", "steady", "foreign", "clocks", "server",
    "graph", "simulated_acceptance",
)  # fmt: skip


def measured(directory: Path, setting: Setting):
    """The result of a live measurement."""
    directory.mkdir()
    (directory / "sitecustomize.py").write_text(CPU_CLOCK)
    log = directory / "server.log"
    log.touch()
    with ExitStack() as stack:
        server_process = stack.enter_context(process(SGLANG_SIMULATE_ACC_LEN=setting.forced))
        pids = f"{server_process.pid}\\n" + ("1\\n" if setting.foreign else "")
        smi = directory / "nvidia-smi"
        smi.write_text(SMI.replace("{mask}", setting.mask).replace("{pids}", pids))
        smi.chmod(0o755)
        port, server = stack.enter_context(
            truth.truth_server(tick_ms=20, first_ms=5, cached=setting.cached, counts=setting.counts)
        )
        if setting.rate is not None:
            server.gate = asyncio.Semaphore(1)
        prompts = [f"tokens=24 {'word ' * (PROMPT_TOKENS - 3)}p{number}" for number in range(99)]
        if setting.lies:
            prompts[0] += " lie=1"
        if setting.fails:
            prompts[1] += " fault=cut"
        plan = {
            "version": 1, "base_url": f"http://127.0.0.1:{port}", "api": "generate", "runs": 1, "output_len": 64, "seed": 7,
            "points": [{"rate": setting.rate} if setting.rate else {"concurrency": 4}],
            "duration_s": setting.duration_s, "warmup_s": 0.2,
            "dataset": {"kind": "jsonl", "items": [{"prompt": prompt} for prompt in prompts]},
            "server": {"log": str(log), "pid": server_process.pid, "gpus": [0]},
        }  # fmt: skip
        (directory / "bench.json").write_text(json.dumps(plan))
        bench = subprocess.Popen(
            generator(directory),
            cwd=directory,
            env={
                **os.environ,
                "PYTHONPATH": str(directory),
                "CPU_SHARE": str(setting.cpu_share),
                "PATH": f"{directory}:{os.environ['PATH']}",
            },
            stdout=subprocess.PIPE,
            text=True,
        )
        label = f"r{setting.rate:g}" if setting.rate else "c4"
        for line in bench.stdout:
            event = json.loads(line)
            if event.get("phase") == "window" and event["tokens"] > 20:
                break
        with open(log, "a") as lines:
            for number in range(100):
                lines.write(f"Decode batch, #running-req: 4, cuda graph: {number >= setting.eager}\n")
        if setting.restarted:
            server.settings["seed"] = 2
        if setting.freeze_s:
            bench.send_signal(signal.SIGSTOP)
            time.sleep(setting.freeze_s)
            bench.send_signal(signal.SIGCONT)
        for line in bench.stdout:
            event = json.loads(line)
            if event.get("phase") == "window" and event["t"] > setting.duration_s / 2:
                server.settings.update(tick_ms=20 * setting.slower)
        assert bench.wait(120) == 0
    rows = gzip.decompress((directory / f"{label}-1.rows.jsonl.gz").read_bytes()).splitlines()
    asked = Asked(
        bench=BenchProfile("live", (LoadPoint(concurrency=4),)), server=MeasuredServer("local"), api="generate", seed=7,
        dataset="jsonl", dataset_sha=None, input_len=None, ignore_eos=False, gpus=1, version_meant=None, from_profile=True,
        experiment=None, arm=None, launch_number=None, pair_number=None,
    )  # fmt: skip
    meta = json.loads((directory / f"{label}-1.json").read_text())
    server_file = json.loads((directory / "server.json").read_text())
    return assemble("run", asked, meta, [json.loads(row) for row in rows], server_file)


@contextmanager
def process(**environment: str):
    """A process that stands for the server's on the GPUs, with these variables."""
    found = subprocess.Popen(["sleep", "600"], env={**os.environ, **environment})
    try:
        yield found
    finally:
        found.kill()
        found.wait()


@pytest.fixture(scope="module", autouse=True)
def peculiar_server():
    """A truth server that lies where a prompt says so, and serves one at a time where it has a gate."""
    patch = pytest.MonkeyPatch()
    generate, send = truth.Reply._generate, truth.TruthServer._send

    def lying(self):
        for frame in generate(self):
            if self.options.get("lie") and frame["meta_info"]["finish_reason"]:
                frame["meta_info"]["completion_tokens"] -= 9
            yield frame

    async def gated(self, *arguments):
        async with getattr(self, "gate", None) or asyncio.Semaphore():
            return await send(self, *arguments)

    patch.setattr(truth.Reply, "_generate", lying)
    patch.setattr(truth.TruthServer, "_send", gated)
    yield
    patch.undo()


@pytest.fixture(scope="module")
def results(peculiar_server, tmp_path_factory):
    """All four at once: they wait most of their time. Where other work on the machine shows, they are measured anew."""
    settings = {
        "inside": INSIDE,
        "outside": OUTSIDE,
        "below": Setting(rate=1.0),  # of some two a second that it can serve
        "above": Setting(rate=4.0),
    }
    for _ in range(6):
        directory = tmp_path_factory.mktemp("live")
        with ThreadPoolExecutor(4) as pool:
            found = {name: pool.submit(measured, directory / name, each) for name, each in settings.items()}
        results = {name: result.result() for name, result in found.items()}
        outside = guards_of(results["outside"])
        if results["inside"].valid and all(outside[name].status is GuardStatus.FAILED for name in GUARDS):
            break
    return results


def guards_of(result):
    return {guard.id: guard for guard in result.guards}


@pytest.mark.parametrize("name", GUARDS)
def test_just_inside_a_limit(results, name):
    guard = guards_of(results["inside"])[name]
    assert guard.status is GuardStatus.OK, guard.text


@pytest.mark.parametrize("name", GUARDS)
def test_just_outside_a_limit(results, name):
    guard = guards_of(results["outside"])[name]
    assert guard.status is GuardStatus.FAILED, guard.text


def test_a_run_inside_all_limits_counts(results):
    result = results["inside"]
    assert result.valid, [guard.text for guard in result.guards if guard.status is GuardStatus.FAILED]
    assert not results["outside"].valid


@pytest.mark.parametrize(("name", "status"), [("below", GuardStatus.OK), ("above", GuardStatus.FAILED)])
def test_a_load_that_the_server_holds_or_not(results, name, status):
    guard = guards_of(results[name])["overload"]
    assert guard.status is status, guard.text
