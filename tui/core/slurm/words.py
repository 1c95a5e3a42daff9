"""What Slurm says of a job, in our words. Pure; every text is hostile: it may be anybody's job name or comment.

Formats are those of squeue -o, `scontrol show job -d -o` and sacct -P of Slurm 22.05, with SLURM_TIME_FORMAT=%s; the
words and their meaning are in squeue(1), "JOB STATE CODES" and "JOB REASON CODES".
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from tui.core.model.job import Job, JobEnd, JobState
from tui.core.slurm.script import COMMENT, seconds_of
from tui.core.text import one_line

FIELDS = 13  # of a line of squeue
_STATES = {
    "PENDING": JobState.QUEUED,
    "REQUEUED": JobState.QUEUED,
    "REQUEUE_FED": JobState.QUEUED,
    "REQUEUE_HOLD": JobState.QUEUED,
    "SPECIAL_EXIT": JobState.QUEUED,
    "RESV_DEL_HOLD": JobState.QUEUED,
    "CONFIGURING": JobState.STARTING,
    "RUNNING": JobState.RUNNING,
    "SUSPENDED": JobState.RUNNING,
    "STOPPED": JobState.RUNNING,
    "RESIZING": JobState.RUNNING,
    "SIGNALING": JobState.RUNNING,
    "COMPLETING": JobState.ENDING,
    "STAGE_OUT": JobState.ENDING,
}
_ENDS = {
    "COMPLETED": JobEnd.COMPLETED,
    "FAILED": JobEnd.FAILED,
    "CANCELLED": JobEnd.CANCELLED,
    "REVOKED": JobEnd.CANCELLED,
    "TIMEOUT": JobEnd.TIME_LIMIT,
    "DEADLINE": JobEnd.TIME_LIMIT,
    "PREEMPTED": JobEnd.PREEMPTED,
    "NODE_FAIL": JobEnd.NODE_FAILURE,
    "OUT_OF_MEMORY": JobEnd.OUT_OF_MEMORY,
    "BOOT_FAIL": JobEnd.BOOT_FAILURE,
}
# Reasons that no waiting clears, and what to change.
_NEVER = {
    "PartitionNodeLimit": "the partition gives no job so many nodes",
    "PartitionTimeLimit": "the partition gives no job so much time",
    "PartitionConfig": "the partition cannot give what it asks for",
    "BadConstraints": "no node has what its constraint asks for",
    "AccountNotAllowed": "its account may not use the partition",
    "InvalidAccount": "there is no such account",
    "InvalidQOS": "there is no such QOS",
    "QOSNotAllowed": "its QOS may not be used there",
    "QOSTimeLimit": "its QOS gives no job so much time",
    "AssocMaxWallDurationPerJobLimit": "its account gives no job so much time",
    "QOSMaxWallDurationPerJobLimit": "its QOS gives no job so much time",
    "AssocMaxNodePerJobLimit": "its account gives no job so many nodes",
    "QOSMaxNodePerJobLimit": "its QOS gives no job so many nodes",
    "DependencyNeverSatisfied": "a job that it depends on did not end as it should have",
    "ReservationDeleted": "its reservation is gone",
    "JobHeldUser": "it is held: scontrol release lets it go",
    "JobHeldAdmin": "it is held by an administrator",
    "JobLaunchFailure": "its launch failed, and it is held",
    "launch_failed_requeued_held": "its launch failed, and it is held",
}
_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_NODE_FAILED = re.compile(r"\bNode failure on ([\w.\[\],-]+)")  # srun
_OUT_OF_MEMORY = re.compile(r"exceeded (job |step )?memory limit|oom[-_ ]kill", re.IGNORECASE)
_FORGOTTEN = "sacct|"
_HELD = "held|"
DRAINED_S = 300.0  # the batch script is told this long, at most, before its time is up


def _known(text: str) -> str | None:
    text = one_line(text, 200).strip()
    return None if text in ("", "(null)", "None", "N/A", "Unknown", "n/a") else text


def _epoch(text: str) -> float | None:
    return float(text) if re.fullmatch(r"\d{1,12}", text) else None


def never_of(reason: str | None) -> str | None:
    """Why a job that waits for this reason can never run: a sentence; None where waiting may help."""
    meant = _NEVER.get(reason or "")
    return f"it can never run: {meant} ({reason})" if meant is not None else None


def job_of_line(fields: Sequence[str]) -> Job | None:
    """A job of a line of squeue; None where the line is none."""
    if len(fields) != FIELDS:
        return None
    job_id, word, reason, nodes, comment, name, starts, ends, left, gpus, partition, count, submitted = fields
    state = _STATES.get(word, JobState.OVER if word in _ENDS else JobState.UNKNOWN)
    queued = state is JobState.QUEUED
    reason_text = _known(reason)
    return Job(
        job_id=one_line(job_id, 40),
        state=state,
        word=one_line(word, 40),
        name=one_line(name, 100),
        partition=_known(partition),
        reason=reason_text,
        never=never_of(reason_text) if queued else None,
        nodes=_known(nodes),
        node_count=int(count) if re.fullmatch(r"\d{1,6}", count) else None,
        gpus=_gpus(gpus),
        submitted_s=_epoch(submitted),
        starts_s=_epoch(starts),
        ends_s=_epoch(ends),
        left_s=seconds_of(_with_minutes(left)),
        end=_ENDS.get(word),
        unknown=f"Slurm says {one_line(word, 40)}" if state is JobState.UNKNOWN else None,
        run_id=run_of(comment),
    )


def _with_minutes(left: str) -> str | None:
    """squeue's time left is M:S where sbatch's plain number is minutes."""
    return left if re.fullmatch(r"(\d+-)?\d+(:\d+)+", left) else None


def _gpus(text: str) -> str | None:
    known = _known(text)
    return known.replace("gres:", "").replace("gres/", "") if known is not None else None


def run_of(comment: str) -> str | None:
    """The launch of ours that a comment names."""
    found = comment.removeprefix(COMMENT) if comment.startswith(COMMENT) else ""
    return found if _ID.fullmatch(found) else None


def job_at_end(
    text: str,
    job_id: str,
    run_id: str,
    *,
    drained_s: float | None = None,
    exit_code: int | None = None,
    said: str | None = None,
) -> Job:
    """A job that is over, by Slurm's last words of it, which the host keeps.

    Args:
        text: a line of `scontrol show job -d -o`, or "sacct|" and a line of sacct, which is empty where it has none; of a
            launch in an allocation that goes on "held|", how its step ended and when, "|" and the nodes.
        drained_s: when the batch script was told that its end is near.
        exit_code: of the server's step, as the batch script wrote it down.
        said: what srun and the daemons of the nodes wrote into the logs.
    """
    job = Job(job_id, JobState.OVER, "", run_id=run_id, said=said)
    if text.startswith(_HELD):
        return _of_held(job, text.removeprefix(_HELD))
    if text.startswith(_FORGOTTEN):
        return _of_accounts(job, text.removeprefix(_FORGOTTEN), drained_s, exit_code)
    values = dict(re.findall(r"(?:^|\s)([A-Z][A-Za-z/:]*)=(\S*)", text))
    word = values.get("JobState", "")
    end = _ENDS.get(word, JobEnd.LOST)
    starts_s, ends_s = _epoch(values.get("StartTime", "")), _epoch(values.get("EndTime", ""))
    limit_s = seconds_of(values.get("TimeLimit"))
    if values.get("Restarts", "0") != "0":
        end = JobEnd.REQUEUE_REFUSED  # whether its script came to say so or not
    elif _known(values.get("PreemptTime", "")) is not None:
        end = JobEnd.PREEMPTED  # whatever its server made of the signal
    elif end in (JobEnd.COMPLETED, JobEnd.FAILED) and _ran_out(starts_s, limit_s, drained_s):
        end = JobEnd.TIME_LIMIT
    elif end is JobEnd.FAILED and _OUT_OF_MEMORY.search(said or ""):
        end = JobEnd.OUT_OF_MEMORY  # Slurm's own word for it takes cgroups
    down = text.rpartition(" DownNodes=")[2] if " DownNodes=" in text else ""
    if not down and end is JobEnd.NODE_FAILURE:  # it may be back by the time that anybody asks
        down = ", ".join(dict.fromkeys(_NODE_FAILED.findall(said or "")))
    return replace(
        job,
        word=one_line(word, 40),
        reason=_known(values.get("Reason", "")),
        partition=_known(values.get("Partition", "")),
        nodes=_known(values.get("NodeList", "")),
        starts_s=starts_s,
        ends_s=ends_s,
        end=end,
        by=_known(values.get("CancelledBy", "")),
        exit_code=_exit_code(values.get("ExitCode", "")),
        failed_nodes=one_line(down, 200) or None,
    )


def _of_held(job: Job, text: str) -> Job:
    ended, _, nodes = text.partition("|")
    code, _, at = ended.partition(" ")
    exit_code = int(code) if re.fullmatch(r"\d{1,5}", code) else None
    end = JobEnd.COMPLETED if exit_code == 0 else JobEnd.FAILED
    if end is JobEnd.FAILED and _OUT_OF_MEMORY.search(job.said or ""):
        end = JobEnd.OUT_OF_MEMORY
    return replace(job, end=end, exit_code=exit_code, ends_s=_epoch(at.partition(".")[0]), nodes=_known(nodes))


def _of_accounts(job: Job, text: str, drained_s: float | None, exit_code: int | None) -> Job:
    fields = text.split("|")
    if len(fields) < 6:
        # Forgotten, and no accounts: what our own script wrote down is all there is.
        ended = {None: JobEnd.LOST, 0: JobEnd.COMPLETED}.get(exit_code, JobEnd.FAILED)
        return replace(job, end=ended, exit_code=exit_code)
    _, word, code, starts, ends, nodes = fields[:6]
    first, _, by = word.partition(" by ")
    end = _ENDS.get(first.strip("+ "), JobEnd.LOST)
    return replace(
        job,
        word=one_line(first, 40),
        end=end,
        by=f"user {one_line(by, 40)}" if by else None,
        nodes=_known(nodes),
        starts_s=_epoch(starts),
        ends_s=_epoch(ends),
        exit_code=_exit_code(code),
    )


def _exit_code(text: str) -> int | None:
    """`code:signal`, 128 more than the signal where it was one."""
    found = re.fullmatch(r"(\d{1,5}):(\d{1,5})", text)
    return None if found is None else 128 + int(found[2]) if int(found[2]) else int(found[1])


def _ran_out(starts_s: float | None, limit_s: float | None, drained_s: float | None) -> bool:
    """Whether it was told to drain because its time was up: the server then ends as if somebody had asked it to."""
    if starts_s is None or limit_s is None or drained_s is None:
        return False
    return drained_s >= starts_s + limit_s - DRAINED_S
