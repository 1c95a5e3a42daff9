"""The real SGLang as a job of a real Slurm: tensor parallel 2 over two nodes, launched by command, measured, stopped.

One start for all of it. The nodes are this machine, so their server's parts meet on loopback.
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


@pytest.fixture(scope="module")
def lab(
    tmp_path_factory: pytest.TempPathFactory,
    slurm_cluster: Slurm,
    sglang_module: object,
    free_port: Callable[[], int],
    make_command: Callable[[Path], object],
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
    (profiles / "two.toml").write_text(f'{text}[slurm]\nnodes = 2\ngpus_per_node = 2\ntime = "60"\n')
    (profiles / "short.toml").write_text(BENCH)
    yield Lab(slurm_cluster, sglang_module, eagletui, directory)
    sglang_module.kill()
    slurm_cluster.end_jobs()


@pytest.fixture(scope="module")
def ready(lab: Lab) -> dict[str, object]:
    launched = lab.eagletui.json("launch", "two", timeout=300)
    waited = lab.eagletui.run("wait", str(launched["run"]), timeout=900)
    assert waited.returncode == 0, waited.stderr + lab.eagletui.run("logs", str(launched["run"])).stdout[-4000:]
    return {**lab.eagletui.json("wait", str(launched["run"])), "said": waited.stderr}


def test_it_becomes_ready_and_both_ranks_show_their_phases(lab: Lab, ready: dict[str, object]) -> None:
    said = str(ready["said"])
    assert len(re.findall(r"^ready", said, re.MULTILINE)) == 1
    for rank in (0, 1):
        assert re.search(rf"rank {rank} (distributed init|load weights|memory pool|cuda graph|warmup)", said)
    assert [(one["outcome"], one["node"]) for one in ready["group"]["members"]] == [("ready", "n1"), ("ready", "n2")]
    assert lab.slurm.state(str(ready["job"]["job_id"])) == "RUNNING"


def test_its_gpus_are_those_of_both_nodes(lab: Lab, ready: dict[str, object]) -> None:
    for rank, node in enumerate(("n1", "n2")):
        (lab.directory / f"pids-of-{node}").write_text(str(ready["group"]["members"][rank]["pid"]))
    found = lab.eagletui.json("gpus", "--run", str(ready["run"]))
    assert [(one["host"], len(one["gpus"])) for one in found] == [("n1", 2), ("n2", 2)]


def test_it_is_measured_on_its_nodes(lab: Lab, ready: dict[str, object]) -> None:
    document = lab.eagletui.json("bench", "short", "--run", str(ready["run"]), code=None, timeout=300)
    (result,) = document["results"]
    assert (result["failed"], result["host"], result["run"]) == (0, "local", ready["run"])
    assert result["successful"] >= 2
    assert result["power_w"] == pytest.approx(4 * WATTS)
    assert result["guards"]["foreign"] == "ok"


def test_a_stop_drains_it_and_the_job_is_completed(lab: Lab, ready: dict[str, object]) -> None:
    document = lab.eagletui.json("stop", str(ready["run"]), "--grace", "60", timeout=200)
    assert document["outcome"] == "stopped"
    ended = lab.slurm.wait(str(ready["job"]["job_id"]))
    assert (ended["JobState"], ended["ExitCode"]) == ("COMPLETED", "0:0")
    assert lab.sglang.processes() == []
    over = lab.eagletui.json("wait", str(ready["run"]), "--for", "exit")
    assert [one["exit_code"] for one in over["group"]["members"]] == [0, 0]
