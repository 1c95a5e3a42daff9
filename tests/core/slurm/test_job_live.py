"""A server as a job of a real Slurm: started once, followed to ready, stopped so that the job ends COMPLETED 0:0."""

import asyncio
import os
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.core.slurm.conftest import Lab, run_of
from tui.core.errors import EagletuiError, HostError, Slug
from tui.core.groups.jobs import group_for, job_launch
from tui.core.groups.session import GroupPlan
from tui.core.model.job import JobState
from tui.core.model.phases import Outcome
from tui.core.model.run import RunState
from tui.core.slurm import helper


async def test_two_nodes_are_one_server_from_submit_to_completed(lab: Lab) -> None:
    plan = await lab.plan(lab.profile({"API_TOKEN": "sekret", "X": "a'b $(touch oh) `id`"}))
    assert [finding.level for finding in plan.findings] == ["ok"]
    job = await lab.submitted(plan)
    group = plan.group
    state = await lab.until(group, Outcome.READY)
    assert [run_of(state, rank).node for rank in (0, 1)] == ["n1", "n2"]
    assert [one.state.phase for one in state.members if one.state] == ["serving", "serving"]
    assert "sekret" not in (lab.files(group) / "job.sh").read_text() + (lab.files(group) / "cmd.json").read_text()
    for rank in (0, 1):
        environ = Path(f"/proc/{run_of(state, rank).pid}/environ").read_text().split("\0")
        assert {"API_TOKEN=sekret", "X=a'b $(touch oh) `id`"} <= set(environ)
    assert (await lab.stop(group))[-1] == "done"
    ended = lab.slurm.show(job)
    assert (ended["JobState"], ended["ExitCode"]) == ("COMPLETED", "0:0")
    state = await lab.end(group)
    assert state.outcome is Outcome.STOPPED
    assert [run_of(state, rank).exit_code for rank in (0, 1)] == [0, 0]
    assert not (lab.files(group) / "secret").exists()


async def test_two_launches_of_one_id_at_once_are_one_job(lab: Lab) -> None:
    profile = lab.profile()
    group = group_for(profile, "login")
    plan = GroupPlan(group, (), (), job_launch(profile, lab.session.entry, group))
    other = lab.new_session()
    assert plan.job is not None
    board = other.jobs()
    assert board is not None
    numbers = await asyncio.gather(lab.submitted(plan), board.submit(plan.job.request))
    assert len(set(numbers)) == 1
    assert len(lab.slurm("squeue", "-h", "-o", "%i").split()) == 1


async def test_a_second_job_of_one_id_ends_before_it_starts_a_server(lab: Lab) -> None:
    group = await lab.launch()
    await lab.until(group, Outcome.READY)
    files = lab.files(group)
    again = lab.slurm("sbatch", "--parsable", "-o", f"{files}/again.log", f"{files}/job.sh", str(files))
    assert lab.slurm.wait(again)["ExitCode"] == "75:0"
    assert "was started already" in (files / "again.log").read_text()
    state = await lab.until(group, Outcome.READY)
    job = run_of(state).job
    assert job is not None
    assert job.job_id != again


@pytest.mark.parametrize("taken", [True, False])
async def test_an_answer_of_sbatch_that_is_lost_is_looked_for(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: bool
) -> None:
    sbatch = tmp_path / "bin/sbatch"
    sbatch.parent.mkdir()
    sbatch.write_text(
        "#!/bin/sh\n"
        + ('/usr/bin/sbatch "$@" >/dev/null\n' if taken else "")
        + "echo 'sbatch: error: Batch job submission failed: Socket timed out on send/recv operation' >&2\nexit 1\n"
    )
    sbatch.chmod(0o755)
    monkeypatch.setenv("PATH", f"{sbatch.parent}:{os.environ['PATH']}")
    if taken:
        group = await lab.launch()
        await lab.until(group, Outcome.READY)
        assert len(lab.slurm("squeue", "-h", "-o", "%i").split()) == 1
    else:
        with pytest.raises(EagletuiError, match=r"does not answer; nothing was submitted: .*Socket timed out"):
            await lab.launch()
        assert lab.slurm("squeue", "-h") == ""


async def test_what_slurm_does_not_take_is_said_before_and_at_the_submit(lab: Lab) -> None:
    plan = await lab.plan(lab.profile(partition="nope"))
    assert [str(finding.level) for finding in plan.findings] == ["block"]
    assert "invalid partition" in plan.findings[0].text
    with pytest.raises(EagletuiError, match=r"refused the job: .*nope") as error:
        await lab.launch(partition="nope")
    assert error.value.slug == "refused"
    assert list(lab.directory.glob("slurm/*/runs/*")) == []


async def test_a_queued_job_says_why_and_begins_once_there_is_room(lab: Lab) -> None:
    holder = lab.slurm.submit("-N3", "--gres=gpu:8")
    lab.slurm.wait(holder, "RUNNING")
    group = await lab.launch()
    job = None
    while job is None or job.reason != "Resources" or job.starts_s is None:  # which Slurm estimates by and by
        state = await lab.until(group, Outcome.QUEUED)
        job = run_of(state).job
    assert (job.state, job.sentence, job.never) == (
        JobState.QUEUED,
        "waits: the nodes that it needs are in use (Resources)",
        None,
    )
    assert state.conditions[0].detail == "the job is queued"
    lab.slurm("scancel", holder)
    await lab.until(group, Outcome.READY)


async def test_a_queued_job_is_cancelled_by_a_stop(lab: Lab) -> None:
    group = await lab.launch(partition="single", time="59")
    (run,) = lab.directory.glob("slurm/*/runs/*")
    (run / "secret").write_text("")
    assert (await lab.stop(group))[-1] == "done"
    assert (await lab.end(group)).outcome is Outcome.STOPPED
    assert not (run / "secret").exists()
    assert lab.slurm("squeue", "-h") == ""


async def test_a_server_that_does_not_drain_is_cancelled_after_its_grace(lab: Lab) -> None:
    group = await lab.launch({"IGNORE_TERM": "1"})
    state = await lab.until(group, Outcome.READY)
    assert "done" in await lab.stop(group, grace_s=1.0)
    assert (await lab.end(group)).outcome is Outcome.STOPPED
    assert not Path(f"/proc/{run_of(state).pid}").exists()


async def test_a_stop_goes_on_where_whoever_carried_it_out_was_killed(lab: Lab, until: Callable[..., Any]) -> None:
    group = await lab.launch({"IGNORE_TERM": "1"})
    await lab.until(group, Outcome.READY)
    (run,) = lab.directory.glob("slurm/*/runs/*")
    first = asyncio.create_task(lab.stop(group, grace_s=600.0))
    by = run / "stopping" / "by"
    await until(lambda: by.exists() and (run / "stop").read_text().split()[0] == "term")
    os.killpg(int(by.read_text().split()[0]), signal.SIGKILL)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert (await lab.stop(group, grace_s=1.0))[-1] == "done"
    assert lab.slurm("squeue", "-h") == ""


async def test_a_job_whose_files_are_gone_is_listed_and_not_said_to_be_stopped(lab: Lab) -> None:
    group = await lab.launch()
    await lab.until(group, Outcome.READY)
    (run,) = lab.directory.glob("slurm/*/runs/*")
    run.rename(lab.directory / "gone")
    assert set(await lab.stop(group)) == {"unreachable"}
    board = lab.session.jobs()
    await board.look(fresh=True)
    assert [job.run_id for job in board.others()] == [group.group_id]
    (lab.directory / "gone").rename(run)
    await lab.stop(group)


async def test_what_outlives_the_server_is_ended_on_its_nodes(lab: Lab) -> None:
    group = await lab.launch({"WORKER": "1"})
    await lab.until(group, Outcome.READY)

    def workers() -> str:
        words = ["grep", "-lsxz", f"EAGLETUI_RUN={group.group_id}", *map(str, Path("/proc").glob("[0-9]*/environ"))]
        return subprocess.run(words, capture_output=True, text=True, check=False).stdout

    assert len(workers().split()) >= 4
    await lab.stop(group)
    assert workers() == ""


async def test_another_eagletui_finds_it_by_the_shared_disk_and_the_queue(lab: Lab) -> None:
    group = await lab.launch()
    await lab.until(group, Outcome.READY)
    ranks = await lab.new_session().ranks()
    assert [(run.run_id, run.state, run.log_path) for run in ranks] == [
        (member.run_id, RunState.RUNNING, f"{lab.files(group)}/log.{member.number}") for member in group.members
    ]


async def test_the_users_other_jobs_with_gpus_are_seen_and_those_without_are_not(lab: Lab) -> None:
    lab.slurm.submit("-J", "train\x1b[31m", "--gres=gpu:h200:4")
    lab.slurm.submit("-J", "plain")
    await lab.board.look(fresh=True)
    assert [(job.name.startswith("train"), "\x1b" in job.name, job.gpus) for job in lab.board.others()] == [
        (True, False, "gpu:h200:4")
    ]


async def test_one_squeue_a_cycle_however_many_watch(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    look = helper.look

    async def counted(*args: object, ask: bool) -> helper.Answer:
        asked.append(ask)
        return await look(*args, ask=ask)  # type: ignore[arg-type]

    monkeypatch.setattr(helper, "look", counted)
    group = await lab.launch()
    await asyncio.gather(*(lab.session.run_by_id(member.run_id) for member in group.members * 20))
    assert len(asked) <= 1


async def test_without_slurm_it_is_said(lab: Lab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("sh", "cat", "id", "printf", "tr", "cut"):
        (tmp_path / name).symlink_to(f"/usr/bin/{name}")
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(tmp_path))
        with pytest.raises(EagletuiError, match="there is no Slurm: squeue is not on the PATH"):
            await lab.plan(lab.profile())


async def test_a_server_that_says_it_is_ready_and_serves_nobody_is_not_ready(lab: Lab) -> None:
    """Rank 0's log alone says little: who listens is asked on its node."""
    group = await lab.launch({"DEAF": "1"})
    # A watch that begins now asks before it is settled.
    while (seen := (await lab.until(group, Outcome.STARTING)).members[0].state) is None or not seen.startup.fired_up:
        pass
    assert (await lab.until(group, Outcome.STARTING, Outcome.READY)).outcome is Outcome.STARTING
    await lab.stop(group)


async def test_a_node_that_lets_nobody_in_is_ready_by_its_log(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    srun = tmp_path / "bin/srun"
    srun.parent.mkdir()
    srun.write_text("#!/bin/sh\necho 'srun: error: Access/permission denied' >&2\nexit 1\n")
    srun.chmod(0o755)
    group = await lab.launch()
    with monkeypatch.context() as patch:
        patch.setenv("PATH", f"{srun.parent}:{os.environ['PATH']}")
        await lab.until(group, Outcome.READY)
    await lab.stop(group)


async def test_a_controller_that_is_away_at_launch_is_no_refusal(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it is away all the time, or comes back right after: nothing was submitted, and it may be tried again."""
    profile = lab.profile()
    group = group_for(profile, "login")
    plan = GroupPlan(group, (), (), job_launch(profile, lab.session.entry, group))
    sbatch = tmp_path / "bin/sbatch"
    sbatch.parent.mkdir()
    sbatch.write_text(
        "#!/bin/sh\necho 'sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect "
        "failure)' >&2\nexit 1\n"
    )
    sbatch.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", f"{sbatch.parent}:{os.environ['PATH']}")
        (finding,) = (await lab.plan(profile)).findings
        assert (finding.level, "does not answer" in finding.text) == ("warn", True)
        with pytest.raises(HostError, match="controller does not answer; nothing was submitted") as raised:
            await lab.submitted(plan)
        assert raised.value.slug == Slug.NO_ANSWER
    assert not lab.files(group).exists()
    number = await lab.submitted(plan)  # of the same id
    assert lab.slurm("squeue", "-h", "-o", "%i").split() == [number]
    await lab.stop(group)


async def test_a_port_that_is_taken_on_the_node_is_not_where_the_ranks_meet(lab: Lab) -> None:
    first = await lab.launch(dist_port=None)
    number = await lab.submitted(await lab.plan(lab.profile()))
    await lab.until(first, Outcome.READY)
    taken = 20000 + (int(number) + 1) % 10000
    with socket.create_server(("127.0.0.1", taken)):
        group = await lab.launch(dist_port=None)
        state = await lab.until(group, Outcome.READY)
    pid = run_of(state).pid
    words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    assert words[words.index("--dist-init-addr") + 1].endswith(f":{taken + 1}")
    lab.slurm.end_jobs()
