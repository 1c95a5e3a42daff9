"""Start-up tracking: from the bytes of a server's log to phase, progress, ranks and readiness."""

from dataclasses import dataclass
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
    STARTING = "starting"
    READY = "ready"
    CRASHED = "crashed"
    HUNG = "hung"
    STOPPED = "stopped"
    FINISHED = "finished"  # a benchmark's end
    LOST = "lost"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Progress:
    what: str  # shards, capture
    done: int
    total: int


@dataclass(frozen=True)
class DecodeFigures:
    """The last `Decode batch` line of any rank, and the sums over DP ranks."""

    running: int | None = None
    queued: int | None = None
    gen_tok_s: float | None = None
    accept_len: float | None = None
    token_usage: float | None = None
    cuda_graph: bool | None = None


@dataclass(frozen=True)
class RankState:
    """How far one scheduler process is."""

    tag: str  # "TP3", "DP1 TP0"; "" for a server without tags
    phase: Phase
    since: str | None  # time stamp of the log line that began it
    weights_gib: float | None = None
    available_gib: float | None = None


@dataclass(frozen=True)
class PhaseSpan:
    """One phase of the furthest rank: when it began and ended, in the log's own clock (seconds from the first stamp)."""

    phase: Phase
    began_s: float | None
    ended_s: float | None


@dataclass(frozen=True)
class LedgerRow:
    """Memory of one rank in GiB, from its own log lines; None = not in the log."""

    rank: str
    before_gib: float | None = None  # free before the load
    weights_gib: float | None = None
    draft_gib: float | None = None
    kv_pool_gib: float | None = None
    graphs_gib: float | None = None
    free_gib: float | None = None
    kv_tokens: int | None = None


@dataclass(frozen=True)
class StartupState:
    """Everything the log alone says, at one moment."""

    phase: Phase = Phase.LAUNCH
    outcome: Outcome = Outcome.STARTING
    progress: Progress | None = None
    ranks: tuple[RankState, ...] = ()
    spans: tuple[PhaseSpan, ...] = ()  # in this log's own order, begun phases only
    last_decode: DecodeFigures | None = None
    ledger: tuple[LedgerRow, ...] = ()
    lines: int = 0
    fired_up: bool = False
    uvicorn_port: int | None = None
    sglang_version: str | None = None
    server_args: dict[str, object] | None = None
    max_total_num_tokens: int | None = None
    unrecognized: str | None = None  # newest line that looked like a milestone of an unknown wording
    restarts: int = 0  # a second run in the same file resets all of the above
