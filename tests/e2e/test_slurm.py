"""The real SGLang as a job of a real Slurm: tensor parallel 2 over two nodes, launched, measured and stopped by keyboard.

One start for all of it; what commands say of it beside. The nodes are this machine, so their server's parts meet on loopback.
"""

import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.slurm import Slurm

pytestmark = pytest.mark.timeout(1200)
SMI = Path(__file__).parents[1] / "bin/nvidia-smi"
WATTS = 123.46  # of each GPU of the stand-in
BENCH = """
kind = "bench"
description = "short, for a CPU"
dataset = "prompts"
concurrency = [2]
output_len = 32
duration_s = 6
runs = 1
"""


@dataclass
class Lab:
    slurm: Slurm
    sglang: object
    eagletui: object
    directory: Path
    screen: object  # the panel, to the end of all tests


@pytest.fixture(scope="module")
def lab(
    tmp_path_factory: pytest.TempPathFactory,
    slurm_cluster: Slurm,
    sglang_module: object,
    free_port: Callable[[], int],
    make_command: Callable[[Path], object],
    terminal_module: Callable[..., object],
) -> Iterator[Lab]:
    directory = tmp_path_factory.mktemp("slurm")
    eagletui = make_command(directory / "desk")
    smi = directory / "bin/nvidia-smi"  # each node has processes of its own on its GPUs
    smi.parent.mkdir()
    smi.write_text(f'#!/bin/sh\nFAKE_PIDS_FILE={directory}/pids-of-$SLURMD_NODENAME exec {SMI} "$@"\n')
    smi.chmod(0o755)
    eagletui.env.update(slurm_cluster.env, PATH=f"{smi.parent}:{os.environ['PATH']}")
    config = eagletui.home / ".config/eagletui"
    config.mkdir(parents=True)
    python = json.dumps(sglang_module.python)
    (config / "config.toml").write_text(f'default_host = "local"\n[hosts.local]\npython = {python}\nslurm = true\n')
    port = free_port()
    text = sglang_module.profile(port, eagle3=False, tp_size=2)
    loopback = "".join(f'{kind}_SOCKET_IFNAME = "lo"\n' for kind in ("GLOO", "NCCL"))
    text = text.replace("[env]\n", f'[env]\nSGLANG_CPU_OMP_THREADS_BIND = "0|1"\n{loopback}')
    text = text.replace("startup_timeout_s = 300", "startup_timeout_s = 900")
    profiles = eagletui.home / "profiles"
    profiles.mkdir()
    (profiles / "aa-two.toml").write_text(f'{text}[slurm]\nnodes = 2\ngpus_per_node = 2\ntime = "60"\n')
    (profiles / "aa-short.toml").write_text(BENCH)
    screen = terminal_module([*eagletui.argv, "local"], eagletui.env, cwd=eagletui.home)
    yield Lab(slurm_cluster, sglang_module, eagletui, directory, screen)
    sglang_module.kill()
    slurm_cluster.end_jobs()


@pytest.fixture(scope="module")
def ready(lab: Lab, launch_by_keyboard: Callable[..., None]) -> dict[str, object]:
    launch_by_keyboard(lab.screen, "aa-two")
    for phase in ("distributed init", "load weights"):
        lab.screen.wait_for(phase, 300)
    lab.screen.wait_for(r"READY\s+aa-two", 900)
    (run,) = {one["group"]["id"] for one in lab.eagletui.json("ps", "local") if one["profile"] == "aa-two"}
    return lab.eagletui.json("wait", str(run))


def test_it_becomes_ready_and_both_ranks_show_their_phases(lab: Lab, ready: dict[str, object]) -> None:
    lab.screen.wait_for(r"rank 0\s+n1\s+● READY", 30)
    lab.screen.wait_for(r"rank 1\s+n2\s+● READY", 30)
    lab.screen.wait_for(r"allocation.* min left", 10)
    assert [(one["outcome"], one["node"]) for one in ready["group"]["members"]] == [("ready", "n1"), ("ready", "n2")]
    assert lab.slurm.state(str(ready["job"]["job_id"])) == "RUNNING"


def test_its_gpus_are_those_of_both_nodes(lab: Lab, ready: dict[str, object]) -> None:
    for rank, node in enumerate(("n1", "n2")):
        (lab.directory / f"pids-of-{node}").write_text(str(ready["group"]["members"][rank]["pid"]))
    found = lab.eagletui.json("gpus", "--run", str(ready["run"]))
    assert [(one["host"], len(one["gpus"])) for one in found] == [("n1", 2), ("n2", 2)]


def test_it_is_measured_on_its_nodes(lab: Lab, ready: dict[str, object]) -> None:
    lab.screen.keys("b")
    lab.screen.wait_for("Measure the running server", 20)
    while (chosen := lab.screen.wait_for(r"▌\s+(\S+)", 10).group(1)) != "aa-short":
        lab.screen.keys("k")
        lab.screen.wait_for(rf"▌\s+(?!{re.escape(chosen)}\s)\S+", 10)
    lab.screen.keys("Enter")
    lab.screen.wait_for("1 of 1 run", 180)
    lab.screen.wait_for("✓ DONE|NONE COUNTS", 60)  # its window is too short to count
    lab.screen.keys("1")
    lab.screen.wait_for(r"READY\s+aa-two", 20)
    (result,) = lab.eagletui.json("results")
    assert (result["failed"], result["host"], result["run"]) == (0, "local", ready["run"])
    assert result["successful"] >= 2
    assert result["power_w"] == pytest.approx(4 * WATTS)
    assert result["guards"]["foreign"] == "ok"
    (stored,) = [json.loads(path.read_text()) for path in lab.eagletui.home.rglob("results/*.json")]
    assert stored["server"]["nodes"] == ["n1", "n2"]


def test_a_stop_by_keyboard_drains_it_and_the_job_is_completed(lab: Lab, ready: dict[str, object]) -> None:
    lab.screen.keys("S")
    lab.screen.wait_for(r"Stop .*\?", 20)
    lab.screen.keys("Tab", "Enter")
    lab.screen.wait_for(r"STOPPED\s+aa-two", 120)
    ended = lab.slurm.wait(str(ready["job"]["job_id"]))
    assert (ended["JobState"], ended["ExitCode"]) == ("COMPLETED", "0:0")
    assert lab.sglang.processes() == []
    over = lab.eagletui.json("wait", str(ready["run"]), "--for", "exit")
    assert [one["exit_code"] for one in over["group"]["members"]] == [0, 0]
