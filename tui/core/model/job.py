"""A job of a Slurm cluster, as screens and JSON know it. Imports nothing of ours.

Times are seconds since 1970 by the clock of the cluster; None is not known.
"""

import re
from dataclasses import dataclass
from enum import StrEnum


class JobState(StrEnum):
    """Where a job stands, in our words; `Job.word` has Slurm's."""

    QUEUED = "queued"
    STARTING = "starting"  # it has nodes, which are made ready
    RUNNING = "running"
    ENDING = "ending"
    OVER = "over"
    UNKNOWN = "unknown"  # the controller does not answer, or says a word that we do not know


class JobEnd(StrEnum):
    """Why a job is over."""

    COMPLETED = "completed"
    FAILED = "failed"  # its program ended with an error: the logs of its ranks say which
    CANCELLED = "cancelled"
    TIME_LIMIT = "time limit"
    PREEMPTED = "preempted"
    NODE_FAILURE = "node failure"
    OUT_OF_MEMORY = "out of memory"  # of the host's memory, by its cgroup
    BOOT_FAILURE = "boot failure"
    REQUEUE_REFUSED = "requeue refused"
    LOST = "lost"  # the cluster has forgotten it and keeps no accounts, and it left no exit code


# Reasons that time clears, as squeue(1) has them under "JOB REASON CODES".
_WAITS = {
    "Priority": "other jobs come first",
    "Resources": "the nodes that it needs are in use",
    "Dependency": "a job that it depends on has not ended",
    "BeginTime": "the time that it asks for has not come",
    "Licenses": "a license that it needs is in use",
    "ReqNodeNotAvail": "a node that it asks for is not available",
    "Reservation": "its reservation has not begun",
    "QOSMaxGRESPerUser": "you use as many GPUs as its QOS allows",
    "QOSMaxJobsPerUserLimit": "you run as many jobs as its QOS allows",
    "QOSGrpGRES": "the GPUs of its QOS are in use",
    "AssocGrpGRES": "the GPUs of its account are in use",
    "AssocMaxJobsLimit": "its account runs as many jobs as it may",
}

ENDS_SOON_S = 900.0  # of an allocation's time: worth a warning


@dataclass(frozen=True)
class Job:
    """One job as last seen."""

    job_id: str
    state: JobState
    word: str  # Slurm's: PENDING, RUNNING, …
    name: str = ""
    partition: str | None = None
    reason: str | None = None  # why it waits, as Slurm says it
    never: str | None = None  # why it can never run: a sentence
    nodes: str | None = None  # as Slurm writes a list of them: n[1-2]
    node_count: int | None = None
    gpus: str | None = None  # a node's, as it was asked for: gpu:h200:8
    submitted_s: float | None = None
    starts_s: float | None = None  # when it began; of one that is queued the scheduler's estimate
    ends_s: float | None = None  # when its time is up; of one that is over when it ended
    left_s: float | None = None  # of its time, at `seen_s`
    end: JobEnd | None = None
    exit_code: int | None = None  # of the batch script
    by: str | None = None  # who cancelled it
    failed_nodes: str | None = None  # what sinfo says of its nodes that are down
    said: str | None = None  # by srun and the daemons of the nodes at the end, one line
    unknown: str | None = None  # why nothing is known of it now, one line
    run_id: str | None = None  # the launch of ours that it is

    @property
    def ends_soon(self) -> bool:
        """Whether it runs, and little of its time is left."""
        return self.state is JobState.RUNNING and self.left_s is not None and self.left_s <= ENDS_SOON_S

    @property
    def with_gpus(self) -> bool:
        return self.gpus is not None and "gpu" in self.gpus

    @property
    def gpu_count(self) -> int | None:
        """On all its nodes together; None where it asks for none, or that is not known."""
        kinds = re.findall(r"(?:^|,)gpu(?::[^:,()]*[^:,()\d][^:,()]*)?(?::(\d{1,6}))?(?=[,(]|$)", self.gpus or "")
        return (self.node_count or 1) * sum(int(count or 1) for count in kinds) if kinds else None

    @property
    def waits(self) -> str:
        """Why it is queued, in words and in Slurm's."""
        if self.reason is None:
            return "waits"
        meant = _WAITS.get(self.reason)
        return self.never or (f"waits: {meant} ({self.reason})" if meant else f"waits: {self.reason}")

    @property
    def sentence(self) -> str:
        """What there is to say of it beside its state; "" where there is nothing."""
        if self.unknown is not None:
            return self.unknown
        if self.state is JobState.QUEUED:
            return self.waits
        if self.end is JobEnd.CANCELLED and self.by is not None:
            return f"cancelled by {self.by}"
        if self.end is not None:
            return str(self.end)
        return ""
