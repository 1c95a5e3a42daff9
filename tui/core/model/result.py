"""What was measured. `Result` is the record that is stored (docs/measuring.md has every definition).

Missing is None, never 0. Times are seconds, latencies milliseconds, memory MiB, rates tokens a second. Metrics can be
recomputed from the raw rows beside a result.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tui.core.model.profile import Limits, LoadPoint, Search

SCHEMA = 1


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
    """What measured: a bench driver by its name, or the tool of an import."""

    name: str  # eagletui, sglang, command; vllm and others of an import
    version: str | None = None
    backend: str | None = None  # generate, chat; of others as they name it
    sha: str | None = None  # of the load generator's files
    container: str | None = (
        None  # docker:NAME, the server's, in whose image and network it ran; None: the host's Python
    )


@dataclass(frozen=True)
class SpecConfig:
    """Speculative decoding as the server resolved it."""

    algorithm: str
    steps: int | None = None
    topk: int | None = None
    draft_tokens: int | None = None
    draft_model: str | None = None


@dataclass(frozen=True)
class MeasuredMember:
    """A member of a group that was measured."""

    name: str  # prefill 0, decode 0, router
    host: str
    run_id: str
    url: str | None = None  # by which the router reaches it
    argv: tuple[str, ...] = ()
    gpus: tuple[int, ...] = ()  # of its host
    env: Mapping[str, str] = field(default_factory=dict)  # as set at its launch
    gpu_names: tuple[str, ...] = ()  # of these GPUs, () where its host did not say
    driver: str | None = None  # of its host
    version: str | None = None  # of SGLang there


@dataclass(frozen=True)
class MeasuredServer:
    """The server that was measured. The launch is the unit of replication: `run_id` names it, of a group the group."""

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
    members: tuple[MeasuredMember, ...] = ()  # of a group; what it says of itself is then that of the first decode
    nodes: tuple[str, ...] = ()  # of a job of Slurm, whose `host` is the login host


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
        """The lowest load that fails; None where the highest that was tried still holds."""
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
class HostGpuUse:
    """Of the GPUs of one host during the window, where a group has several."""

    host: str
    power_w: float | None = None
    utilization_pct: float | None = None
    memory_peak_mib: float | None = None
    throttle: tuple[str, ...] = ()
    sm_mhz: float | None = None
    missing: str | None = None  # why there are no figures


@dataclass(frozen=True)
class GpuUse:
    """Of the server's GPUs during the window; where one of its hosts was not sampled, there is nothing but `throttle`."""

    power_w: float | None = None  # sum over GPUs, mean over time
    energy_j: float | None = None
    joules_per_token: float | None = None
    utilization_pct: float | None = None
    memory_peak_mib: float | None = None  # of the fullest GPU
    throttle: tuple[str, ...] = ()
    sm_mhz: float | None = None  # SM clock, mean over GPUs and time
    hosts: tuple[HostGpuUse, ...] = ()  # of a group on several


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
    def failed_guards(self) -> tuple[Guard, ...]:
        return tuple(guard for guard in self.guards if guard.status is GuardStatus.FAILED)

    @property
    def point(self) -> LoadPoint:
        if self.capacity is not None:
            return LoadPoint(search=self.capacity.search.kind)
        return LoadPoint(self.load.concurrency, self.load.rate)


@dataclass(frozen=True)
class AllReduce:
    """One all-reduce as measured on the host, at the message sizes of decoding and of verifying; microseconds."""

    decode_us: float
    verify_us: float
