"""What a login host's board knows of its cluster: our jobs, and the user's others, which are watched only. No widget."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tui.core.model.job import Job, JobState

if TYPE_CHECKING:
    from tui.core.model.run import Run
    from tui.core.slurm.board import JobBoard

_HOLDS = (JobState.STARTING, JobState.RUNNING, JobState.ENDING)


@dataclass(frozen=True)
class Cluster:
    """As its login host shows it."""

    name: str | None
    others: tuple[Job, ...] = ()  # with GPUs, not started by eagletui

    @classmethod
    def of(cls, jobs: "JobBoard | None") -> "Cluster | None":
        """By the last look at the queue; None of a host that is none of a cluster."""
        return cls(jobs.cluster, jobs.others()) if jobs is not None else None


@dataclass(frozen=True)
class Use:
    """The user's jobs with GPUs on a cluster, ours and the others."""

    running: int
    queued: int
    gpus: int  # of those that have nodes


def use_of(cluster: Cluster | None, runs: "Iterable[Run]") -> Use | None:
    """Of a cluster with these runs of ours; None of a host that is none of one, and while its controller is away."""
    if cluster is None:
        return None
    ours = {run.job.job_id: run.job for run in runs if run.job is not None}
    jobs = (*ours.values(), *cluster.others)
    if any(job.state is JobState.UNKNOWN for job in jobs):
        return None
    held = [job for job in jobs if job.state in _HOLDS]
    queued = sum(job.state is JobState.QUEUED for job in jobs)
    return Use(len(held), queued, sum(job.gpu_count or 0 for job in held))
