"""The Slurm of the tests is a real one: jobs run on its nodes, and what breaks it can be mended."""

from pathlib import Path

from tests.support.slurm import Slurm


def test_a_job_runs_on_its_nodes_with_gpus_of_its_own(slurm: Slurm, tmp_path: Path) -> None:
    job = slurm.submit("-N2", "--gres=gpu:2", script=f"srun -o {tmp_path}/out.%n sh -c 'echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES'")  # fmt: skip
    assert slurm.wait(job)["JobState"] == "COMPLETED"
    assert [(tmp_path / f"out.{rank}").read_text() for rank in (0, 1)] == ["n1 0,1\n", "n2 0,1\n"]
    assert slurm.show(job)["ExitCode"] == "0:0"


def test_the_controller_goes_and_comes_back_with_its_jobs(slurm: Slurm) -> None:
    job = slurm.submit()
    slurm.wait(job, "RUNNING")
    slurm.stop_controller()
    assert slurm("squeue", "-h", check=False) == ""
    slurm.start_controller()
    assert slurm.state(job) == "RUNNING"


def test_a_node_that_dies_ends_its_job_and_comes_back(slurm: Slurm) -> None:
    job = slurm.submit("-N2", "--no-requeue")
    slurm.wait(job, "RUNNING")
    slurm.stop_node("n2")
    slurm("scontrol", "update", "nodename=n2", "state=down", "reason=test")
    assert slurm.wait(job)["JobState"] == "NODE_FAIL"
    slurm.start_node("n2")
    assert slurm.wait(slurm.submit("-w", "n2", script="true"))["JobState"] == "COMPLETED"


def test_too_much_memory_is_said_in_the_output_and_nowhere_else(slurm: Slurm, tmp_path: Path) -> None:
    """As without cgroups; with them the state is OUT_OF_MEMORY."""
    hog = "srun python3 -c 'import time; x = bytearray(200 << 20); time.sleep(30)'"
    ended = slurm.wait(slurm.submit("--mem=50", "-o", str(tmp_path / "out"), script=hog))
    assert (ended["JobState"], ended["ExitCode"]) == ("FAILED", "137:0")
    assert "exceeded memory limit" in (tmp_path / "out").read_text()
