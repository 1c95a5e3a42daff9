"""A batch script of Slurm as a profile with `[slurm]`."""

import tomllib

import pytest

from tui.core.profiles.importing.shell_command import ImportedCommand, import_command

SERVER = "python3 -m sglang.launch_server --model-path /m --tp 16"


def imported(options: str, call: str = f"srun {SERVER}") -> ImportedCommand:
    lines = "\n".join(f"#SBATCH {option}" for option in options.split("\n")) if options else ""
    return import_command(f"#!/bin/bash\n{lines}\n{call}\n", "/home/u")


@pytest.mark.parametrize(
    ("options", "table"),
    [
        ("-N 2\n--gres=gpu:8\n-t 4:00:00", {"nodes": 2, "gpus_per_node": 8, "time": "4:00:00"}),
        ("--nodes=2-4 --gpus-per-node=h200:8 # all", {"nodes": 2, "gpus_per_node": 8}),
        ("-N2\n-G 16\n-p gpu -A me", {"nodes": 2, "gpus_per_node": 8, "partition": "gpu", "account": "me"}),
        ('--partition "gpu" --qos=high -C h200', {"partition": "gpu", "qos": "high", "constraint": "h200"}),
        ("--exclusive\n--mem=0\n-c 8", {"options": ["--exclusive", "--mem=0", "-c8"]}),
        ("--job-name=x\n--output=%j.log\n--requeue", {}),
        ("--partition='a b'\n--time=soon\n--gres=shard:2", {}),
    ],
)
def test_options_become_keys(options: str, table: dict[str, object]) -> None:
    assert tomllib.loads(imported(options).profile)["slurm"] == table


def test_what_has_no_place_is_said() -> None:
    said = " ".join(imported("--job-name=x\n--gpus-per-node=h200:8\n--partition='a b'").warnings)
    assert "of the job these were left out: --job-name=x, --gpus-per-node=h200:8, --partition=a b" in said


NODES = '--nnodes $SLURM_NNODES --node-rank {} --dist-init-addr "$HEAD:5000"'


@pytest.mark.parametrize(
    ("call", "mistaken"),
    [
        (f"srun {SERVER} {NODES.format('$SLURM_NODEID')}", True),
        (f"srun -N2 {SERVER} \\\n  {NODES.format(chr(34) + '${SLURM_PROCID}' + chr(34))}", True),
        (f"srun bash -c '{SERVER} {NODES.format('$SLURM_NODEID')}'", False),
        (f"{SERVER} {NODES.format('$SLURM_NODEID')}", False),
    ],
)
def test_a_rank_that_the_batch_shell_expands_is_named(call: str, mistaken: bool) -> None:
    found = imported("-N2", call)
    assert any("all nodes would have one rank" in text for text in found.warnings) == mistaken
    assert not {"nnodes", "node-rank", "dist-init-addr"} & tomllib.loads(found.profile)["args"].keys()
    assert found.unresolved == ()


def test_the_image_of_pyxis_comes_along() -> None:
    call = f"srun --container-image=lmsysorg/sglang:latest --container-mounts=/data:/data,/m:/m {SERVER}"
    assert tomllib.loads(imported("-N2", call).profile)["slurm"] == {
        "nodes": 2,
        "image": "lmsysorg/sglang:latest",
        "mounts": ["/data:/data", "/m:/m"],
    }


def test_nodes_are_those_of_the_flags_where_the_job_says_none() -> None:
    found = imported("--gres=gpu:8", f"srun sh -c '{SERVER} --nnodes 2 --node-rank $SLURM_NODEID'")
    assert tomllib.loads(found.profile)["slurm"] == {"gpus_per_node": 8, "nodes": 2}
