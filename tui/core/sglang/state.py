"""What a log says, at one moment: frozen, and all that other rooms see of the tracker."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tui.core.model.phases import Outcome, Phase
from tui.core.sglang.traceback import Frame, Line

_LINES_OF_A_HEAD = 50  # warnings of imports and the like may come before the arguments


@dataclass(frozen=True)
class Progress:
    what: str  # shards, capture
    done: int
    total: int


@dataclass(frozen=True)
class DecodeFigures:
    """The last `Decode batch` line of any rank, and the sum over DP ranks."""

    running: int | None = None
    queued: int | None = None
    gen_tok_s: float | None = None
    accept_len: float | None = None
    token_usage: float | None = None
    cuda_graph: bool | None = None
    total_gen_tok_s: float | None = None  # of the last lines of all DP ranks


@dataclass(frozen=True)
class Retracted:
    """Requests that were taken back while they ran, because the KV pool was full."""

    times: int
    requests: int
    line: int  # the newest
    text: str


@dataclass(frozen=True)
class FullPool:
    """A KV pool (or one of its kind) that is full while requests wait: the newest decode lines of a rank in a row."""

    name: str  # "token usage"
    usage: float  # 0 to 1, of the newest line
    queued: int
    queued_before: int  # in the first of the lines
    lines: int
    line: int  # the newest
    text: str


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


# The parts that memory goes to, in the order of a start; each is a field of LedgerRow.
PARTS = {
    "weights_gib": "weights",
    "draft_gib": "draft",
    "state_cache_gib": "state cache",
    "kv_pool_gib": "KV pool",
    "swa_pool_gib": "sliding-window pool",
    "indexer_cache_gib": "indexer cache",
    "draft_cache_gib": "draft cache",
    "lora_gib": "LoRA",
    "graphs_gib": "graphs",
    "other_gib": "other",
}


@dataclass(frozen=True)
class LedgerRow:
    """Memory of one rank in GiB, from its own log lines; None = not in the log. `before` is the sum of PARTS and `free`."""

    rank: str
    before_gib: float | None = None  # free before the load
    weights_gib: float | None = None
    draft_gib: float | None = None
    kv_pool_gib: float | None = (
        None  # of the target's full attention; of all layers where the log does not tell them apart
    )
    graphs_gib: float | None = None
    free_gib: float | None = None
    kv_tokens: int | None = None
    state_cache_gib: float | None = None  # Mamba, GDN, KDA
    swa_pool_gib: float | None = None  # sliding-window layers
    indexer_cache_gib: float | None = None  # of sparse attention, where it has a line of its own
    draft_cache_gib: float | None = None  # the draft model's KV pool
    lora_gib: float | None = None  # adapters loaded while serving
    other_gib: float | None = None  # what no line explains
    draft_peak_gib: float | None = None  # of the draft before it gave back what it shares with the target
    reserved_gib: float | None = None  # of the budget, for what a multimodal model allocates behind its pools
    draft_after_pools: bool = False  # up to 0.5.13 the draft is loaded behind the pools: it lies outside the budget
    contradiction: str | None = None  # the line from which on the parts are more than what is gone: no `other` then


@dataclass(frozen=True)
class Clue:
    """A line that a failure pattern matched, with what was known at that line."""

    id: str  # of the pattern; that of its kind, or "exception", where none matches
    cause: str | None
    level: str  # see tui/data/failures.toml
    line: int
    text: str
    rank: str | None
    phase: Phase
    marked: bool  # in the traceback that a fatal marker opened
    traceback: bool  # in a traceback at all
    fatal: bool
    groups: Mapping[str, str] = field(default_factory=dict)
    quote: str | None = None  # of an exception: what a person would quote; None: `text`
    lines: tuple[str, ...] = ()  # of an exception: every line that tells something
    raised_in: tuple[Frame, ...] = ()  # its own frames, the innermost last
    frames: tuple[Frame, ...] = ()  # of the whole chain, the outermost first
    before: Line | None = None  # the newest logged error before an exception that no pattern knows


@dataclass(frozen=True)
class Paste:
    """What a pasted text is, beside what the log in it says."""

    engine: str | None = None  # "sglang", the id of another engine (`tui/data/engines.toml`); None: no line tells
    wrapping: tuple[str, ...] = ()  # what was around the log, from outside
    container: str | None = None  # of several in one stream the one that was read
    others: tuple[str, ...] = ()  # containers that were left out


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
    host_memory: bool = False  # a server on a CPU: the ledger is of the host's memory
    lines: int = 0
    fired_up: bool = False
    follower_up: bool = False  # of a node above rank 0: its part of the start is done
    uvicorn_port: int | None = None
    server_args: dict[str, object] | None = None
    max_total_num_tokens: int | None = None
    restarts: int = 0  # a second run in the same file resets all of the above
    clues: tuple[Clue, ...] = ()
    ranks_seen: int = 0  # distinct rank tags of any line
    slow_tokenizer: int = 0  # warnings about a slow tokenizer
    slow_tokenizer_line: int | None = None  # of the first
    accept_one: int = 0  # newest decode lines in a row with an accept length of exactly 1.00
    accept_one_line: int | None = None  # the newest of them
    retracted: Retracted | None = None
    full_pool: FullPool | None = None
    decode_lines: int = 0
    batch_line: int | None = None  # the newest prefill or decode line
    capturing: str | None = None  # "target verify CUDA graph": what the newest capture is about
    working: str | None = None  # newest line that names slow work (autotune, JIT) in this phase
    recognised: bool = False  # a line that a server of SGLang writes was seen
    version: str | None = None  # of SGLang, where a line names it
    first_stamp_s: float | None = None  # the log's first dated stamp read as UTC, seconds since the epoch

    @property
    def lost_head(self) -> bool:
        """Whether the log has lost its beginning: every start says its arguments in one of its first lines."""
        return self.recognised and self.server_args is None and self.lines > _LINES_OF_A_HEAD
