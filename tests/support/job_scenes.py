"""A job of Slurm on a login host that is a script of states; what Slurm says of it was recorded from Slurm 22.05."""

import time
from collections.abc import Sequence
from dataclasses import replace

from tests.support import fakes, group_scenes
from tui.core.host.gpus import GpuSample
from tui.core.model.group import Group, Member, Role
from tui.core.model.job import Job
from tui.core.model.phases import Outcome, Phase
from tui.core.model.run import RunState
from tui.core.server.run_end import outcome_of_files
from tui.core.server.server_state import RunUpdate, ServerState
from tui.core.sglang.state import StartupState
from tui.core.sglang.tracker import LogTracker
from tui.core.slurm.ends import diagnosis_of
from tui.core.slurm.words import job_at_end, job_of_line

ID = "kimi-k2.5-tp16-20261006T200103Z-7c31d0"
GROUP = Group(ID, "kimi-k2.5-tp16", tuple(Member(Role.RANK, at, "login1", f"{ID}-{at}") for at in range(2)), job=True)
NODES = ("n1", "n2")
# `scontrol show job -d -o` of jobs that were ended in every way, but for fields that say nothing here; one line of sacct.
LAST_WORDS = {
    "time limit": "JobId=7 JobState=TIMEOUT Reason=TimeLimit Requeue=0 Restarts=0 ExitCode=0:0 TimeLimit=04:00:00 "
    "StartTime=1796072192 EndTime=1796086592 Partition=gpu NodeList=n[1-2]",
    "node failure": "JobId=7 JobState=NODE_FAIL Reason=NodeDown Requeue=0 Restarts=0 ExitCode=0:15 TimeLimit=04:00:00 "
    "StartTime=1796072192 EndTime=1796072223 Partition=gpu NodeList=n[1-2] DownNodes=n2 down Not responding",
    "preempted": "JobId=7 JobState=COMPLETED Reason=None Requeue=0 Restarts=0 ExitCode=0:0 TimeLimit=04:00:00 "
    "StartTime=1796072192 EndTime=1796072223 PreemptTime=1796072193 Partition=spot NodeList=n[1-2]",
    "cancelled": f"sacct|eagletui-{ID}|CANCELLED by 1003|0:15|1796072192|1796072223|n[1-2]",
    "out of memory": "JobId=7 JobState=OUT_OF_MEMORY Reason=OutOfMemory Requeue=0 Restarts=0 ExitCode=0:125 "
    "StartTime=1796072192 EndTime=1796072223 Partition=gpu NodeList=n[1-2]",
}


def line(
    word: str, reason: str = "None", *, number: int = 7, starts_s: float = 0.0, left_s: int = 0, **other: str
) -> Job:
    """A job by its line of squeue; `starts_s` and `left_s` from now on."""
    now = time.time()
    nodes, starts, ends, left = "", "N/A", "N/A", "4:00:00"
    if word == "RUNNING":
        nodes, left = "n[1-2]", f"{left_s // 3600}:{left_s // 60 % 60:02d}:{left_s % 60:02d}"
        starts, ends = str(round(now + left_s - 4 * 3600)), str(round(now + left_s))
    elif starts_s:
        starts = str(round(now + starts_s))
    comment, name = other.get("comment", f"eagletui={ID}"), other.get("name", f"eagletui-{ID}")
    submitted = str(round(now - 2500))
    fields = (
        str(number),
        word,
        reason,
        nodes,
        comment,
        name,
        starts,
        ends,
        left,
        "gres:gpu:h200:8",
        "gpu",
        "2",
        submitted,
    )
    job = job_of_line(fields)
    assert job is not None
    return job


def ended(how: str) -> Job:
    """A job that is over, by Slurm's last words."""
    return job_at_end(LAST_WORDS[how], "7", ID, drained_s=None, exit_code=None)


OTHERS = (
    line("RUNNING", number=3, left_s=1800, comment="(null)", name="train-sft"),
    line("PENDING", "Priority", number=5, starts_s=7200, comment="(null)", name="eval-long"),
)


def states(job: Job, base: str = "ready") -> tuple[ServerState, ...]:
    """Both ranks of a job, whose server is `queued`, `starting` or `ready` by itself."""
    found = []
    for at, node in enumerate(NODES):
        state = group_scenes.ready(GROUP, at) if base == "ready" else group_scenes.starting(GROUP, at)
        run = replace(state.run, host="login1", job=job, node=node, directory="/home/u/.local/state/eagletui/slurm/hpc")
        if base == "queued":
            run = replace(run, node=None, pid=None, state=RunState.QUEUED, why=job.sentence)
            state = replace(
                state, outcome=Outcome.QUEUED, phase=Phase.LAUNCH, startup=StartupState(), phase_took_s={},
                eta_s=None, last_line_age_s=None, last_progress_age_s=None,
            )  # fmt: skip
        if job.unknown is not None:
            run, state = replace(run, state=RunState.UNKNOWN, why=job.sentence), replace(state, outcome=Outcome.UNKNOWN)
        if job.end is not None:
            run = replace(run, state=RunState.EXITED, pid=None, why=job.sentence, ended_at="2026-10-06T23:01:03Z")
            state = replace(state, outcome=outcome_of_files(run), diagnosis=diagnosis_of(job))
        found.append(replace(state, run=run))
    return tuple(found)


def updates(state: ServerState) -> tuple[RunUpdate, ...]:
    """What the watch of a rank says: its state, and a log where it has begun."""
    records = () if state.outcome is Outcome.QUEUED else tuple(LogTracker().feed(fakes.log_text()))
    return (RunUpdate(state, records, settled=True),)


def script(found: Sequence[ServerState] = (), others: Sequence[Job] = ()) -> fakes.Script:
    """A login host that has these ranks, and no GPU."""

    def opened(session: fakes.FakeSession) -> None:
        session.entry = replace(session.entry, slurm=True)
        session.sample_queue.put_nowait(GpuSample(time.time(), (), "nvidia-smi", error="nvidia_smi_missing"))

    return fakes.Script(
        runs=tuple(state.run for state in found),
        updates=updates(found[0]) if found else (),
        beside={state.run.run_id: updates(state) for state in found[1:]},
        jobs=fakes.FakeJobs(theirs=tuple(others)),
        on_open=opened,
    )
