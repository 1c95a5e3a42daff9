"""Ends of a job that its logs cannot say, as diagnoses: the exit code is 0 where the time was up, 15 where it was preempted."""

from tui.core.model.job import Job, JobEnd
from tui.core.sglang.diagnosis import Diagnosis, Evidence

_WORDS: dict[JobEnd, tuple[str, str, tuple[str, ...]]] = {
    JobEnd.TIME_LIMIT: (
        "job_time_limit",
        "the time of the job was up",
        ("ask for more with time in [slurm]; the partition's limit: scontrol show partition",),
    ),
    JobEnd.PREEMPTED: (
        "job_preempted",
        "another job took its nodes: Slurm preempted it",
        ("launch it again, or use a partition or QOS that is not preempted",),
    ),
    JobEnd.NODE_FAILURE: (
        "node_failure",
        "a node of the job failed",
        ("launch it again: Slurm leaves the node out while it is down; what ran there may still hold memory",),
    ),
    JobEnd.OUT_OF_MEMORY: (
        "job_out_of_memory",
        "the job used more of the host's memory than it had asked for",
        ('ask for more with options = ["--mem=0"] in [slurm] (all of a node), or load less into the host\'s memory',),
    ),
    JobEnd.BOOT_FAILURE: ("node_failure", "a node of the job did not come up", ("launch it again",)),
    JobEnd.REQUEUE_REFUSED: (
        "job_requeued",
        "Slurm started the job again, which was refused: a launch starts once",
        ("launch it again; the first start's log is kept",),
    ),
    JobEnd.CANCELLED: ("job_cancelled", "the job was cancelled", ()),
}


def diagnosis_of(job: Job | None) -> Diagnosis | None:
    """Why a job ended, where Slurm's word counts more than its logs; None where they say it."""
    if job is None or job.end not in _WORDS:
        return None
    cause, title, advice = _WORDS[job.end]
    if job.by is not None:
        title = f"{title} by {job.by}"
    if job.failed_nodes is not None:
        title = f"{title}: {job.failed_nodes}"
    said = f"JobState={job.word}" + (f" Reason={job.reason}" if job.reason else "")
    if job.said is not None:
        said += f"; {job.said}"
    return Diagnosis(cause, title, None, None, Evidence(0, said), advice)
