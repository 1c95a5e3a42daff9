"""Names of what a server does: the phases of a start-up and the outcomes of a run."""

from enum import StrEnum


class Phase(StrEnum):
    """Phases in the order of SGLang 0.5.14 and later; earlier versions run memory_pool and cuda_graph twice."""

    LAUNCH = "launch"
    DISTRIBUTED_INIT = "distributed_init"
    LOAD_WEIGHTS = "load_weights"
    MEMORY_POOL = "memory_pool"
    DRAFT_MODEL = "draft_model"
    CUDA_GRAPH = "cuda_graph"
    WARMUP = "warmup"
    READY = "ready"
    SERVING = "serving"


class Outcome(StrEnum):
    QUEUED = "queued"  # a job that waits for its nodes
    STARTING = "starting"
    RESTARTING = "restarting"  # it died, and its container engine starts it again
    READY = "ready"
    CRASHED = "crashed"
    HUNG = "hung"
    STOPPED = "stopped"
    FINISHED = "finished"  # a benchmark's end
    LOST = "lost"
    UNKNOWN = "unknown"


ALIVE = frozenset({Outcome.QUEUED, Outcome.STARTING, Outcome.RESTARTING, Outcome.READY, Outcome.HUNG})
