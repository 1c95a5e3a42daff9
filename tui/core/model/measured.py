"""What a benchmark is, what it measured and what that says: the frozen dataclasses that cross boundaries.

Missing is None, never 0. Times are seconds, latencies milliseconds, memory MiB, rates tokens a second. `Result` is the
record that is stored (docs/measuring.md has every definition); metrics can be recomputed from the raw rows beside it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

SCHEMA = 1
WARMUP_S = 30.0  # at most, until the rate is steady; never longer than the window
GROWTH = 5  # times its duration that a window may take
ARM_LETTERS = "ABCD"  # as many arms as the panel shows side by side


@dataclass(frozen=True)
class LoadPoint:
    """One load: so many users at once (closed loop), or so many requests a second (open loop).

    Or the highest of either that a search finds, whatever it is: the "load" of a search's answer.
    """

    concurrency: int | None = None
    rate: float | None = None  # requests a second
    search: str | None = None  # concurrency, rate

    @property
    def label(self) -> str:
        """ "c4", "r2.5" or "max": part of a result id."""
        if self.search is not None:
            return "max"
        return f"c{self.concurrency}" if self.concurrency is not None else f"r{self.rate:g}"


@dataclass(frozen=True)
class Limits:
    """What a load must hold: this share of its replies within each of the limits that are given."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2e_ms: float | None = None
    share: float = 0.95

    @property
    def tail(self) -> str:
        """The percentile of a latency that says most of the share: p95, or p90."""
        return "p95" if self.share >= 0.95 else "p90"

    @property
    def replies(self) -> int:
        """How many a load needs for its share to be judged: some five of them may miss."""
        return math.ceil(round(5 / (1 - self.share), 6))


@dataclass(frozen=True)
class Search:
    """The question for the highest load of a kind that holds limits, between two bounds."""

    limits: Limits
    kind: str  # concurrency, rate
    low: float
    high: float

    @property
    def most_points(self) -> int:
        """Loads it measures at most: doubling from `low` to `high`, then five halvings, fewer where neighbours come first."""
        halvings = 5 if self.kind == "rate" else min(5, math.ceil(math.log2(max(1.0, self.high / 2))))
        return 1 + math.ceil(math.log2(self.high / self.low)) + halvings


@dataclass(frozen=True)
class BenchProfile:
    """A `kind = "bench"` profile."""

    name: str
    points: tuple[LoadPoint, ...]
    driver: str = "eagletui"  # eagletui, sglang (the referee), command
    dataset: str = "prompts"  # prompts, random-ids, or a path ending in .jsonl
    input_len: int | None = None  # tokens, of random-ids
    output_len: int = 512  # tokens at most
    duration_s: float = 60.0  # of the measured window, at least; at most `duration_max_s`
    runs: int = 3  # on each launch, at each point
    search: Search | None = None  # `points` then is its answer alone
    command: tuple[str, ...] = ()
    description: str | None = None
    hypothesis: str | None = None
    known: str | None = None
    path: Path | None = None

    @property
    def duration_max_s(self) -> float:
        """The longest that a window grows to until it holds the tokens and replies that its figures need."""
        return GROWTH * self.duration_s

    @property
    def warmup_s(self) -> float:
        """The longest that a warm-up takes."""
        return min(WARMUP_S, self.duration_s)


@dataclass(frozen=True)
class ExperimentArm:
    """One configuration of an experiment: a launch profile with overrides."""

    letter: str  # A is the reference
    profile: str
    sets: Mapping[str, object] = field(default_factory=dict)
    against: str | None = None  # letter of the arm it is compared with, None for the reference


@dataclass(frozen=True)
class ExperimentProfile:
    """A `kind = "experiment"` profile."""

    name: str
    bench: str  # name of the bench profile
    arms: tuple[ExperimentArm, ...]
    pairs: int = 3  # launches of each arm, interleaved
    looks: tuple[int, ...] = ()  # numbers of pairs after which it may stop early; the last one is `pairs`
    margin: float = 0.02  # "equivalent" means within this share
    budget_h: float | None = None  # hours of launches and measuring
    hypothesis: str | None = None
    description: str | None = None
    known: str | None = None
    path: Path | None = None


@dataclass(frozen=True)
class Distribution:
    """Of one latency over the requests that count, milliseconds; p95 needs 100 of them, p99 a thousand, else None."""

    n: int
    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None


@dataclass(frozen=True)
class Tool:
    """What measured."""

    name: str  # eagletui, sglang, vllm, command
    version: str | None = None
    backend: str | None = None  # generate, chat; of others as they name it
    sha: str | None = None  # of the load generator's file


@dataclass(frozen=True)
class SpecConfig:
    """Speculative decoding as the server resolved it."""

    algorithm: str
    steps: int | None = None
    topk: int | None = None
    draft_tokens: int | None = None
    draft_model: str | None = None


@dataclass(frozen=True)
class MeasuredServer:
    """The server that was measured. The launch is the unit of replication: `run_id` names it."""

    host: str
    profile: str | None = None  # None: not launched by us
    run_id: str | None = None
    launched_at: str | None = None  # ISO 8601 UTC
    url: str | None = None
    sets: Mapping[str, object] = field(default_factory=dict)
    argv: tuple[str, ...] = ()
    args: Mapping[str, object] = field(default_factory=dict)  # as the server resolved them, without secrets
    args_sha: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)  # NCCL_*, SGLANG_*, CUDA_* and the like
    model: str | None = None
    version: str | None = None  # of SGLang (or of the other server)
    gpus: tuple[str, ...] = ()  # names
    driver: str | None = None
    spec: SpecConfig | None = None


@dataclass(frozen=True)
class Load:
    """What was asked of the server."""

    kind: str  # closed, open, search
    concurrency: int | None
    rate: float | None
    dataset: str
    dataset_sha: str | None = None
    seed: int | None = None
    requests: int | None = None  # begun, warm-up not counted
    input_len: int | None = None
    output_len: int | None = None
    ignore_eos: bool | None = None
    temperature: float | None = None


@dataclass(frozen=True)
class Window:
    """The span that counts, seconds since the run began: all users busy, neither ramp nor drain."""

    begin_s: float
    end_s: float
    kind: str = "steady"  # steady, full

    @property
    def duration_s(self) -> float:
        return self.end_s - self.begin_s


@dataclass(frozen=True)
class Counts:
    """Over the whole run but warm-up, idle to idle."""

    ok: int | None = None
    errors: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None  # as each reply said
    server_output_tokens: int | None = None  # difference of the server's own counter
    cached_tokens: int | None = None
    chunks: int | None = None
    begun_in_window: int | None = None
    tokens_in_window: int | None = None


@dataclass(frozen=True)
class Throughput:
    """Rates; `per_user_tok_s` is the headline: tokens after the first chunk over the time they took."""

    per_user_tok_s: float | None = None
    output_tok_s: float | None = None  # in the window
    output_tok_s_full: float | None = None  # over the whole run, ramp and drain included: what referees print
    input_tok_s: float | None = None
    total_tok_s: float | None = None
    req_s: float | None = None
    output_tok_s_per_gpu: float | None = None
    goodput_req_s: float | None = None  # replies that met all limits; None without limits


@dataclass(frozen=True)
class Latencies:
    """TTFT, TPOT, chunk gap and end-to-end; the gap is between chunks, TPOT is per token."""

    ttft: Distribution | None = None
    tpot: Distribution | None = None
    gap: Distribution | None = None
    e2e: Distribution | None = None


@dataclass(frozen=True)
class Held:
    """A load against limits: how many of the replies due in the window met all of them; one that failed met none."""

    limits: Limits
    replies: int
    met: int

    @property
    def share(self) -> float | None:
        return self.met / self.replies if self.replies else None

    @property
    def holds(self) -> bool:
        """By the share itself; without a reply, or time with all users busy, nothing holds."""
        return self.share is not None and self.share >= self.limits.share

    @property
    def interval(self) -> tuple[float, float]:
        """95 % of the share (Wilson's score interval)."""
        if not self.replies:
            return 0.0, 1.0
        n, share, z2 = self.replies, self.met / self.replies, 1.96**2
        middle = (share + z2 / (2 * n)) / (1 + z2 / n)
        half = math.sqrt(z2 * (share * (1 - share) / n + z2 / (4 * n * n))) / (1 + z2 / n)
        return middle - half, middle + half

    @property
    def sure(self) -> bool:
        """Whether the interval leaves no doubt on which side of the limit the share is."""
        low, high = self.interval
        return not low < self.limits.share < high


@dataclass(frozen=True)
class SearchPoint:
    """One load that a search measured."""

    load: float  # users at once, or requests a second
    held: Held
    result_id: str


@dataclass(frozen=True)
class Capacity:
    """What a search found: the highest load that holds the limits."""

    search: Search
    points: tuple[SearchPoint, ...]  # in the order in which they were measured

    @property
    def found(self) -> float | None:
        """The highest load below the lowest that fails; None where not even the lowest holds."""
        fails = self.fails_from
        holding = [at.load for at in self.points if at.held.holds and (fails is None or at.load < fails)]
        return max(holding, default=None)

    @property
    def fails_from(self) -> float | None:
        """The lowest load that fails; None where the highest that was asked about still holds."""
        return min((at.load for at in self.points if not at.held.holds), default=None)

    @property
    def at_least(self) -> bool:
        """Whether it may hold more: the highest load that was asked about still does."""
        return self.found is not None and self.fails_from is None


@dataclass(frozen=True)
class Speculation:
    """Stored as counts, so that every rate can be derived; tau counts the bonus token (plain decoding is 1.00)."""

    verify_steps: int | None = None
    correct_drafts: int | None = None
    proposed_drafts: int | None = None
    tau: float | None = None
    cycle_ms: float | None = None
    server_accept_length: float | None = None  # the server's own figure, under its own definition
    counter_accept_length: float | None = None  # difference of its counters: tokens by verify calls


@dataclass(frozen=True)
class GpuUse:
    """Of the server's GPUs during the window."""

    power_w: float | None = None  # sum over GPUs, mean over time
    energy_j: float | None = None
    joules_per_token: float | None = None
    utilization_pct: float | None = None
    memory_peak_mib: float | None = None  # of the fullest GPU
    throttle: tuple[str, ...] = ()
    sm_mhz: float | None = None  # SM clock, mean over GPUs and time


@dataclass(frozen=True)
class ClientLoad:
    """Whether the load generator itself was the bottleneck."""

    cpu_fraction: float | None = None  # of one core
    # In the window: the sum of what its loop was late by, 50 ms each time left out.
    lost_s: float | None = None
    late_mean_ms: float | None = None  # of the stamp of a chunk at any moment of the window
    loop_lag_p99_ms: float | None = None
    loop_lag_max_ms: float | None = None
    send_lag_mean_ms: float | None = None  # from when a request was due to when it was sent
    send_lag_p99_ms: float | None = None
    rss_mib: float | None = None


class GuardStatus(StrEnum):
    """What became of a guard."""

    OK = "ok"
    FAILED = "failed"
    NOT_APPLICABLE = "not_applicable"  # its input does not exist here


@dataclass(frozen=True)
class Guard:
    """One condition without which a run does not count."""

    id: str
    status: GuardStatus
    text: str  # one sentence with the figure and the limit
    value: float | str | None = None
    limit: float | str | None = None


@dataclass(frozen=True)
class Result:
    """One measured run at one load on one launch, or the answer of one search, as it is stored."""

    result_id: str  # <bench run id>-<point label>-<run number>, so that collecting twice writes one file
    bench: str  # name of the bench profile
    started_at: str | None  # ISO 8601 UTC; None of an import that does not say it
    tool: Tool
    server: MeasuredServer
    load: Load
    run_index: int = 1  # from 1, within this launch and point
    bench_run_id: str | None = None  # the run of the load generator
    window: Window | None = None
    duration_s: float | None = None  # first request sent to last reply ended
    counts: Counts = field(default_factory=Counts)
    throughput: Throughput = field(default_factory=Throughput)
    latencies: Latencies = field(default_factory=Latencies)
    speculation: Speculation | None = None
    gpu: GpuUse | None = None
    client: ClientLoad | None = None
    guards: tuple[Guard, ...] = ()
    valid: bool = True
    suspicious: tuple[str, ...] = ()  # what a reader should know although it counts
    slo: Held | None = None  # without limits None
    capacity: Capacity | None = None  # of the answer of a search: its figures are those of the load it found
    experiment: str | None = None  # id
    arm: str | None = None  # letter
    launch_number: int | None = None  # place in the experiment's order, from 1
    pair_number: int | None = None  # the round of the experiment that the launch belongs to, from 1
    posted: Mapping[str, object] = field(default_factory=dict)  # figures of an import, as its source names them
    notes: tuple[str, ...] = ()
    schema: int = SCHEMA

    @property
    def point(self) -> LoadPoint:
        if self.capacity is not None:
            return LoadPoint(search=self.capacity.search.kind)
        return LoadPoint(self.load.concurrency, self.load.rate)


@dataclass(frozen=True)
class Noise:
    """How much launches of one configuration differ on a host, and runs on one launch: standard deviations of logs."""

    launch_cv: float  # between launches, the runs' own spread taken out
    run_cv: float | None  # between runs on one launch; None: no launch has two
    launches: int
    df: int  # launches less configurations: what the figure rests on
    measured_at: str | None = None  # ISO 8601 UTC, of the newest run


class VerdictKind(StrEnum):
    """What a comparison says. A screening (fewer than three launch pairs) `looks`; it is never a verdict."""

    FASTER = "faster"
    SLOWER = "slower"
    LOOKS_FASTER = "looks_faster"
    LOOKS_SLOWER = "looks_slower"
    EQUIVALENT = "equivalent"
    INDISTINCT = "indistinct"
    INVALID = "invalid"


@dataclass(frozen=True)
class ArmFigure:
    """One side of a comparison."""

    ref: str  # as the user named it
    tok_s: float | None  # geometric mean over launches of the metric
    launches: int
    runs: int = 0


@dataclass(frozen=True)
class Alike:
    """Replies to equal prompts, held against each other."""

    replies: int  # compared
    differ: int  # of them
    prompts: int
    prompts_differ: int  # whose first comparison differs
    first_token: int | None = None  # the earliest that differs, counted from 1
    median_token: float | None = None  # over the replies that differ


@dataclass(frozen=True)
class TextExample:
    """Where two replies part: what both say there, or their token ids."""

    item: int | None  # of the dataset
    token: int
    a: str
    b: str


@dataclass(frozen=True)
class SameText:
    """Whether B answers as A does at temperature 0, and A as A does."""

    between: Alike  # B against A
    own: Alike | None  # A against itself
    own_of: str | None  # launches, runs (of one launch): what `own` compares
    p: float | None  # that B differs so much by chance, as A differs from itself
    changes: bool | None  # more than A by itself; None: nothing says how much that is
    examples: tuple[TextExample, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """B against A: the level of replication is always stated."""

    metric: str
    a: ArmFigure
    b: ArmFigure
    ratio: float | None  # b / a
    ci: tuple[float, float] | None  # of the ratio, 95 % unless the profile asks for looks
    n_pairs: int
    level: str  # L0, L1, L2
    verdict: VerdictKind
    text: str  # worded by docs/measuring.md
    point: LoadPoint | None = None
    reasons: tuple[str, ...] = ()  # why invalid, or why the level is no higher
    mde: float | None = None  # smallest effect that so many pairs find, as a share
    noise_floor: float | None = None  # of the host: how far two launches of the same are apart, as a share
    confidence: float = 0.95  # of `ci`
    by_chance: float | None = None  # of a screening: how often two of the same would look different, at most
    facts: tuple[str, ...] = ()  # what was measured and how, one line each
    result_ids: tuple[str, ...] = ()
    same_text: SameText | None = None  # None: no replies that can be compared


# --- live -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LiveRun:
    """A run that is being measured, as the generator's last aggregate says (4 Hz or less)."""

    point: LoadPoint
    run_index: int  # from 1
    phase: str  # warmup, window, drain
    tok_s: float | None = None  # output tokens a second, over the last second
    series: tuple[float | None, ...] = ()  # of it, one a second, newest last
    ttft_ms: float | None = None  # median so far
    tpot_ms: float | None = None
    accept_length: float | None = None
    power_w: float | None = None
    memory_used_mib: float | None = None
    active: int | None = None
    completed: int = 0
    errors: int = 0
    left_s: float | None = None


class ArmStatus(StrEnum):
    """Where an arm is."""

    QUEUED = "queued"
    LAUNCHING = "launching"
    RUNNING = "running"
    MEASURED = "measured"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class ArmState:
    """One configuration of a comparison."""

    letter: str
    profile: str
    sets: Mapping[str, object] = field(default_factory=dict)
    against: str | None = None  # letter of the arm it is compared with, None for the reference
    status: ArmStatus = ArmStatus.QUEUED
    phase: str | None = None  # of the launch that is under way
    cause: str | None = None  # slug of a failure
    reason: str | None = None  # one sentence of it
    launches_done: int = 0
    launches_total: int = 1
    results: tuple[Result, ...] = ()
    live: LiveRun | None = None


@dataclass(frozen=True)
class ExperimentState:
    """A comparison under way or done; a bench of one running server is one with a single arm."""

    experiment_id: str
    name: str
    host: str
    bench: BenchProfile
    arms: tuple[ArmState, ...]
    order: tuple[str, ...] = ()  # letters, one a launch
    at: int = 0  # launches done
    pairs: int = 1
    hypothesis: str | None = None
    verdicts: tuple[Verdict, ...] = ()
    left_s: float | None = None
    paused: bool = False
    finished: bool = False
    message: str | None = None  # what it waits for, or how it ended
    started_at: str | None = None
