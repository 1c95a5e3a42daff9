"""Every way in which a job of a real Slurm ends or stands still, as our words: the table of docs/slurm.md, row by row."""

import asyncio
import os
from pathlib import Path

import pytest

from tests.core.slurm.conftest import Lab, run_of
from tui.core.groups.group_state import GroupState
from tui.core.model.group import Group
from tui.core.model.job import Job, JobEnd, JobState
from tui.core.model.phases import Outcome
from tui.core.model.run import RunState
from tui.core.slurm import ends


def job_of(state: GroupState) -> Job:
    job = run_of(state).job
    assert job is not None
    return job


def cause_of(state: GroupState) -> str | None:
    return state.failure.diagnosis.cause if state.failure is not None and state.failure.diagnosis else None


async def ready(lab: Lab, group: Group) -> str:
    """The number of its job, once it serves."""
    return job_of(await lab.until(group, Outcome.READY)).job_id


async def test_what_can_never_run_is_said(lab: Lab) -> None:
    group = await lab.launch(partition="single")
    while job_of(state := await lab.until(group, Outcome.QUEUED)).never is None:
        pass
    job = job_of(state)
    assert job.state is JobState.QUEUED
    assert job.sentence in (
        "it can never run: the partition gives no job so many nodes (PartitionNodeLimit)",
        "it can never run: the partition cannot give what it asks for (PartitionConfig)",
    )


async def test_a_rank_that_is_killed_is_named_with_its_node(lab: Lab) -> None:
    state = await lab.end(await lab.launch({"DIE": "1"}))
    assert state.outcome is Outcome.CRASHED
    assert state.failed is not None
    assert (state.failed.name, run_of(state, 1).node, run_of(state, 1).exit_code) == ("rank 1", "n2", 137)
    assert job_of(state).end is JobEnd.FAILED
    assert "n2: task 1" in (job_of(state).said or "")


async def test_the_log_of_the_rank_that_failed_first_is_the_diagnosis(lab: Lab) -> None:
    state = await lab.end(await lab.launch({"FAIL": "1"}))
    assert (state.outcome, state.failed and state.failed.name) == (Outcome.CRASHED, "rank 1")
    assert (cause_of(state) or "").startswith("oom")


async def test_a_node_that_fails(lab: Lab) -> None:
    group = await lab.launch()
    await ready(lab, group)
    lab.slurm.stop_node("n2")
    lab.slurm("scontrol", "update", "nodename=n2", "state=down", "reason=pulled")
    state = await lab.end(group)
    lab.slurm.start_node("n2")
    assert (state.outcome, job_of(state).end, cause_of(state)) == (Outcome.CRASHED, JobEnd.NODE_FAILURE, "node_failure")
    # A node whose last answer comes late is back before anybody asks; srun has named it.
    assert (job_of(state).failed_nodes or "").split()[0] == "n2"


async def test_preemption_is_told_from_a_failure(lab: Lab) -> None:
    group = await lab.launch(partition="spot")
    await ready(lab, group)
    lab.slurm.submit("-N3", "--gres=gpu:8", "-p", "gpu")
    state = await lab.end(group)
    assert (state.outcome, job_of(state).end, cause_of(state)) == (Outcome.CRASHED, JobEnd.PREEMPTED, "job_preempted")


@pytest.mark.parametrize("by", ["root", None])
async def test_somebody_cancels_it(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str | None) -> None:
    """By whom is in the accounts, where the cluster keeps some."""
    if by is not None:
        (tmp_path / "sacct").write_text("#!/bin/sh\necho 'CANCELLED by 0'\n")
        (tmp_path / "sacct").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    group = await lab.launch()
    lab.slurm("scancel", await ready(lab, group))
    state = await lab.end(group)
    assert (state.outcome, job_of(state).end, job_of(state).by) == (Outcome.STOPPED, JobEnd.CANCELLED, by)


async def test_more_memory_than_was_asked_for(lab: Lab) -> None:
    group = await lab.launch({"HOG": "1"}, options=("--mem=100",))
    state = await lab.end(group)
    assert (state.outcome, job_of(state).end, cause_of(state)) == (
        Outcome.CRASHED,
        JobEnd.OUT_OF_MEMORY,
        "job_out_of_memory",
    )


async def test_a_job_that_is_started_again_refuses(lab: Lab) -> None:
    group = await lab.launch()
    number = await ready(lab, group)
    lab.slurm("scontrol", "update", f"jobid={number}", "requeue=1")
    lab.slurm("scontrol", "requeue", number)
    lab.slurm.wait(number, "PENDING")
    while job_of(state := await lab.until(group, Outcome.QUEUED)).never is None:
        pass
    assert "a launch starts once" in job_of(state).sentence
    lab.slurm("scontrol", "update", f"jobid={number}", "starttime=now")
    state = await lab.end(group)
    assert (job_of(state).end, cause_of(state)) == (JobEnd.REQUEUE_REFUSED, "job_requeued")


async def test_the_controller_away_is_unknown_and_never_an_end(lab: Lab) -> None:
    group = await lab.launch()
    await ready(lab, group)
    lab.slurm.stop_controller()
    state = await lab.until(group, Outcome.UNKNOWN)
    assert run_of(state).state is RunState.UNKNOWN
    assert "the controller does not answer" in (run_of(state).why or "")
    lab.slurm.start_controller()
    await ready(lab, group)
    await lab.stop(group)
    # Slurm 22.05 refuses GPUs to the first step on these nodes after a restart: not to the next test's.
    lab.slurm.wait(lab.slurm.submit("-N3", "--gres=gpu:1", script="srun -N3 true"))


async def test_a_job_that_ends_while_nobody_looks_and_is_forgotten_keeps_our_exit_code(lab: Lab) -> None:
    group = await lab.launch()
    number = await ready(lab, group)
    pid = run_of(await lab.until(group, Outcome.READY)).pid
    lab.slurm("srun", "--quiet", "--overlap", f"--jobid={number}", "-N1", "-n1", "kill", "-TERM", str(pid))
    lab.slurm.wait(number)
    files = lab.files(group)
    (files / "claim/job").write_text("99999999\n")  # as after MinJobAge: Slurm knows no such job
    lab.session = lab.new_session()
    state = await lab.end(group)
    assert (state.outcome, job_of(state).exit_code) == (Outcome.STOPPED, 0)


def test_each_end_has_its_words() -> None:
    silent = {end for end in JobEnd if ends.diagnosis_of(Job("1", JobState.OVER, "X", end=end)) is None}
    assert silent == {JobEnd.COMPLETED, JobEnd.FAILED, JobEnd.LOST}  # of these the logs say why, or nobody can


async def test_time_that_is_up_is_no_success(lab: Lab) -> None:
    """The batch script is told before the time is up, so the server ends well, and the job is COMPLETED."""
    group = await lab.launch(time="1", options=("--signal=B:TERM@50",))
    state = await asyncio.wait_for(lab.end(group), 90)
    assert (lab.slurm.show(job_of(state).job_id)["JobState"], run_of(state).exit_code) == ("COMPLETED", 0)
    assert (state.outcome, job_of(state).end, cause_of(state)) == (Outcome.CRASHED, JobEnd.TIME_LIMIT, "job_time_limit")
    assert Path(lab.files(group) / "term").exists()
