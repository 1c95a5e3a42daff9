"""What Slurm says, in our words: lines as Slurm 22.05 wrote them."""

import pytest

from tui.core.model.job import Job, JobEnd, JobState
from tui.core.slurm.words import job_at_end, job_of_line, never_of, run_of

RUNNING = (
    "6|RUNNING|None|n[1-2]|eagletui=two-1-ab|eagletui-two-1-ab|1796070875|1796071475|9:24|gres:gpu:1|gpu|2|1796070875"
)
END = (
    "JobId=6 JobName=eagletui-x UserId=root(0) JobState={} Reason={} Requeue=0 ExitCode={} RunTime=00:00:55 TimeLimit=00:10:00"
    " StartTime=1000 EndTime=1055 {}Partition=gpu AllocNode:Sid=l:1 NodeList=n[1-2] BatchHost=n1 Comment=eagletui=x "
)


def line(**changes: str) -> Job:
    names = "id word reason nodes comment name starts ends left gpus partition count submitted".split()
    fields = dict(zip(names, RUNNING.split("|"), strict=True)) | changes
    job = job_of_line(list(fields.values()))
    assert job is not None
    return job


def ended(state: str, reason: str = "None", code: str = "0:0", more: str = "", **about: object) -> Job:
    return job_at_end(END.format(state, reason, code, more), "6", "x", **about)  # type: ignore[arg-type]


def test_a_running_job() -> None:
    assert line() == Job(
        job_id="6",
        state=JobState.RUNNING,
        word="RUNNING",
        name="eagletui-two-1-ab",
        partition="gpu",
        nodes="n[1-2]",
        node_count=2,
        gpus="gpu:1",
        submitted_s=1796070875,
        starts_s=1796070875,
        ends_s=1796071475,
        left_s=564,
        run_id="two-1-ab",
    )


@pytest.mark.parametrize(
    ("left", "soon"), [("15:00", True), ("15:01", False), ("1-00:00:00", False), ("UNLIMITED", False)]
)
def test_a_warning_comes_15_minutes_before_the_end(left: str, soon: bool) -> None:
    assert line(left=left).ends_soon == soon


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("PENDING", JobState.QUEUED),
        ("CONFIGURING", JobState.STARTING),
        ("COMPLETING", JobState.ENDING),
        ("TIMEOUT", JobState.OVER),
        ("LEVITATING", JobState.UNKNOWN),
    ],
)
def test_a_word_that_is_not_known_is_unknown(word: str, state: JobState) -> None:
    assert line(word=word).state is state


def test_a_reason_that_clears_and_one_that_never_does() -> None:
    waits, never = line(word="PENDING", reason="Priority"), line(word="PENDING", reason="PartitionTimeLimit")
    assert (waits.sentence, waits.never) == ("waits: other jobs come first (Priority)", None)
    assert never.sentence == "it can never run: the partition gives no job so much time (PartitionTimeLimit)"
    assert never_of("Resources") is None


@pytest.mark.parametrize("comment", ["", "mine", "eagletui=", "eagletui=../x", "eagletui=a b", "x eagletui=a"])
def test_a_comment_that_is_not_ours(comment: str) -> None:
    assert run_of(comment) is None


def test_names_of_jobs_are_hostile() -> None:
    job = line(name="\x1b[2J[red]x[/red]", reason="\x07", gpus="\x9b1m")
    assert "\x1b" not in job.name + (job.reason or "") + (job.gpus or "")


def test_a_line_that_is_none() -> None:
    assert job_of_line(["slurm_load_jobs error: Invalid job id specified"]) is None


@pytest.mark.parametrize(
    ("job", "end", "code"),
    [
        (ended("COMPLETED"), JobEnd.COMPLETED, 0),
        (ended("FAILED", "NonZeroExitCode", "1:0"), JobEnd.FAILED, 1),
        (ended("FAILED", "NonZeroExitCode", "137:0"), JobEnd.FAILED, 137),
        (ended("TIMEOUT", "TimeLimit"), JobEnd.TIME_LIMIT, 0),
        (ended("COMPLETED", drained_s=1500.0), JobEnd.TIME_LIMIT, 0),
        (ended("COMPLETED", drained_s=1055.0), JobEnd.COMPLETED, 0),
        (ended("CANCELLED", code="0:15"), JobEnd.CANCELLED, 143),
        (ended("NODE_FAIL", "NodeDown", "0:15"), JobEnd.NODE_FAILURE, 143),
        (ended("COMPLETED", more="PreemptTime=1050 "), JobEnd.PREEMPTED, 0),
        (ended("FAILED", "NonZeroExitCode", "15:0", "PreemptTime=1050 "), JobEnd.PREEMPTED, 15),
        (ended("COMPLETED", more="PreemptTime=None "), JobEnd.COMPLETED, 0),
        (ended("OUT_OF_MEMORY", "OutOfMemory", "0:125"), JobEnd.OUT_OF_MEMORY, 253),
        (ended("FAILED", code="137:0", said="error: Exceeded job memory limit"), JobEnd.OUT_OF_MEMORY, 137),
        (ended("FAILED", code="1:0", said="error: Detected 1 oom-kill event(s)"), JobEnd.OUT_OF_MEMORY, 1),
        (ended("FAILED", "NonZeroExitCode", "1:0", "Restarts=1 "), JobEnd.REQUEUE_REFUSED, 1),
        (ended("COMPLETED", more="Restarts=0 "), JobEnd.COMPLETED, 0),
        (ended("BOOT_FAIL"), JobEnd.BOOT_FAILURE, 0),
        (ended("LEVITATED"), JobEnd.LOST, 0),
    ],
)  # fmt: skip
def test_ends_are_what_happened_and_not_the_exit_code(job: Job, end: JobEnd, code: int) -> None:
    assert (job.state, job.end, job.exit_code) == (JobState.OVER, end, code)


def test_a_node_that_failed_is_named() -> None:
    text = END.format("NODE_FAIL", "NodeDown", "0:15", "") + " DownNodes=n2 down* Not responding"
    assert job_at_end(text, "6", "x").failed_nodes == "n2 down* Not responding"


def test_a_node_that_is_back_already_is_named_by_srun() -> None:
    text = END.format("NODE_FAIL", "NodeDown", "0:15", "") + " DownNodes="
    said = "srun: error: Node failure on n2 srun: error: Slurm job 6 has expired"
    assert job_at_end(text, "6", "x", said=said).failed_nodes == "n2"
    assert job_at_end(text, "6", "x", said="srun: error: Slurm job 6 has expired").failed_nodes is None


@pytest.mark.parametrize(
    ("ended", "said", "end", "code"),
    [
        ("0 1796082368.846186568", None, JobEnd.COMPLETED, 0),
        ("137 1796082368", None, JobEnd.FAILED, 137),
        ("137 1796082368", "error: Exceeded job memory limit", JobEnd.OUT_OF_MEMORY, 137),
        ("x", None, JobEnd.FAILED, None),
    ],
)
def test_a_launch_that_ends_before_its_allocation(ended: str, said: str | None, end: JobEnd, code: int | None) -> None:
    job = job_at_end(f"held|{ended}|n[1-2]", "6", "x", said=said)
    assert (job.state, job.end, job.exit_code, job.nodes) == (JobState.OVER, end, code, "n[1-2]")
    assert job.ends_s == (1796082368.0 if code is not None else None)


@pytest.mark.parametrize(
    ("accounts", "exit_code", "end", "by"),
    [
        ("eagletui-x|CANCELLED by 1001|0:0|1000|1055|n[1-2]", None, JobEnd.CANCELLED, "user 1001"),
        ("eagletui-x|NODE_FAIL|0:0|1000|1055|n[1-2]", None, JobEnd.NODE_FAILURE, None),
        ("eagletui-x|COMPLETED|0:0|1000|1055|n[1-2]", 0, JobEnd.COMPLETED, None),
        ("", 0, JobEnd.COMPLETED, None),
        ("", 1, JobEnd.FAILED, None),
        ("", None, JobEnd.LOST, None),
    ],
)
def test_what_slurm_has_forgotten_is_in_its_accounts_or_in_our_exit_code(
    accounts: str, exit_code: int | None, end: JobEnd, by: str | None
) -> None:
    job = job_at_end(f"sacct|{accounts}", "6", "x", exit_code=exit_code)
    assert (job.end, job.by) == (end, by)
