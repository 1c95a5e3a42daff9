"""From the rows of the load generator to figures: pure functions, so that a definition can change and be computed again.

`docs/measuring.md` has every definition. What belongs to the window is decided chunk by chunk: a chunk counts where it
and the one before it arrived inside, so that neither the ramp nor the drain, when fewer users are busy, is in a rate.
Times of rows are seconds since the run began; the formats of rows and meta are those of docs/load-generator.md.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import accumulate
from typing import Any

from tui.core.bench.steadiness import Backlog, Change, backlog, change
from tui.core.host.gpu_cells import throttle_words
from tui.core.model.profile import Limits
from tui.core.model.result import (
    ClientLoad,
    Counts,
    Distribution,
    GpuUse,
    Held,
    HostGpuUse,
    Latencies,
    Speculation,
    Throughput,
    Window,
)
from tui.remote.loadgen.limits import within

Row = Mapping[str, Any]
Meta = Mapping[str, Any]

P95_NEEDS = 100
P99_NEEDS = 1000


@dataclass(frozen=True)
class Figures:
    """Everything that one run gives."""

    window: Window | None
    duration_s: float | None
    counts: Counts
    throughput: Throughput
    latencies: Latencies
    speculation: Speculation | None
    gpu: GpuUse | None
    client: ClientLoad | None
    change: Change | None = None  # of the server's pace, closed loops
    backlog: Backlog | None = None  # open loops
    slo: Held | None = None


def figures(rows: Sequence[Row], meta: Meta, *, gpus: int | None = None, limits: Limits | None = None) -> Figures:
    """All figures of a run; a few hundred thousand chunks take about a second.

    Args:
        gpus: how many the server uses, for the rate of one.
        limits: what its replies are held against.
    """
    window = window_of(rows, meta)
    decode = Decode(rows, window)
    steady = window if window is not None and window.kind == "steady" else None
    is_open = _is_open(meta)
    slo = held(rows, meta, window, limits) if limits is not None else None
    return Figures(
        window=window,
        duration_s=_duration(rows),
        counts=_counts(rows, meta, window, decode),
        throughput=_throughput(rows, window, decode, gpus, slo),
        latencies=_latencies(rows, meta, window, decode),
        speculation=_speculation(rows, meta, decode),
        gpu=_gpu_use(meta, window, decode.tokens_in_window),
        client=_client(meta),
        change=change(rows, steady) if steady and not is_open else None,
        backlog=backlog(rows, steady) if steady and is_open else None,
        slo=slo,
    )


def _is_open(meta: Meta) -> bool:
    """Whether requests came at a rate, however many were under way."""
    return (meta.get("point") or {}).get("rate") is not None


def window_of(rows: Sequence[Row], meta: Meta) -> Window | None:
    """The steady window; without one the whole run (kind full); None where no reply came."""
    given = meta.get("window")
    if isinstance(given, Sequence) and len(given) == 2 and given[1] > given[0]:
        return Window(float(given[0]), float(given[1]))
    begin = min((row["t_send"] for row in rows if row["t_send"] is not None), default=None)
    end = max((row["t_last"] for row in rows if row["t_last"] is not None), default=None)
    return Window(begin, end, "full") if begin is not None and end is not None and end > begin else None


class Decode:
    """What the chunks tell: tokens by the time they came, and the pace after the first chunk.

    Attributes:
        tokens_in_window: tokens of chunks that arrived in the window.
        paced_tokens, paced_s: of chunks that arrived in it like the one before them, in replies without error.
        steps: verify steps of those, by each reply's own tokens per step; None without speculation.
        gaps_ms: their gaps.
    """

    def __init__(self, rows: Sequence[Row], window: Window | None) -> None:
        self.tokens_in_window = 0.0
        self.paced_tokens = 0.0
        self.paced_s = 0.0
        self.gaps_ms: list[float] = []
        self.steps: float | None = None
        if window is None:
            return
        for row in rows:
            if row["t_first"] is not None:
                self._add(row, window)

    def _add(self, row: Row, window: Window) -> None:
        gaps: Sequence[int] = row["gaps_us"] or ()
        first, tokens = chunk_tokens(row)
        begin, end = window.begin_s, window.end_s
        t_first = row["t_first"]
        if begin <= t_first <= end:
            self.tokens_in_window += first
        if begin <= t_first and (row["t_last"] or t_first) <= end:
            inside, paced, paced_s = sum(tokens), sum(tokens), sum(gaps) / 1e6
            kept: Iterable[int] = gaps
        else:
            inside, paced, paced_us = 0.0, 0.0, 0
            some = []
            before = t_first
            for gap, passed, count in zip(gaps, accumulate(gaps), tokens, strict=False):
                at = t_first + passed / 1e6
                if begin <= at <= end:
                    inside += count
                    if before >= begin:
                        paced += count
                        paced_us += gap
                        some.append(gap)
                before = at
            kept, paced_s = some, paced_us / 1e6
        self.tokens_in_window += inside
        if row["err"]:
            return
        self.paced_tokens += paced
        self.paced_s += paced_s
        self.gaps_ms += [gap / 1000 for gap in kept]
        if row["verify_ct"] is not None and (row["out"] or 0) > 1:
            self.steps = (self.steps or 0.0) + row["verify_ct"] * paced / (row["out"] - 1)

    @property
    def per_user_tok_s(self) -> float | None:
        return self.paced_tokens / self.paced_s if self.paced_s else None


def chunk_tokens(row: Row) -> tuple[float, Sequence[float]]:
    """Tokens of the first chunk, and of each later one.

    Where the server counts only at the end the first chunk has one, which prefill makes alone, and the others are spread
    evenly over the later chunks; of a reply that broke off before its count, each chunk has one.
    """
    if row["toks"] is not None and row["k1"] is not None:
        return row["k1"], row["toks"]
    later = len(row["gaps_us"] or ())
    out = row["out"] if row["out"] is not None else later + 1
    if not later:
        return out, ()
    first = min(1, out)
    return first, [(out - first) / later] * later


def _without_error(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if not row["err"]]


def _tokens_of(row: Row) -> float:
    if row["out"] is not None:
        return float(row["out"])
    first, later = chunk_tokens(row) if row["t_first"] is not None else (0, ())
    return first + sum(later)


def _sum_known(rows: Iterable[Row], key: str) -> int | None:
    values = [row[key] for row in rows if row[key] is not None]
    return sum(values) if values else None


def counter(meta: Meta, *names: str) -> float | None:
    """By how much a counter of the server's /metrics grew over the run; None where it isn't served.

    Args:
        names: without the prefix of the server; the first one that is there counts.
    """
    counters = meta.get("counters") or {}
    before, after = (counters.get(key) or {} for key in ("before", "after"))
    for name in names:
        for key, value in after.items():
            if key.partition(":")[2] == name:
                return float(value) - float(before.get(key) or 0.0)
    return None


def _duration(rows: Sequence[Row]) -> float | None:
    sent = [row["t_send"] for row in rows if row["t_send"] is not None]
    ended = [row["t_last"] for row in rows if row["t_last"] is not None]
    return max(ended) - min(sent) if sent and ended else None


def _within(rows: Iterable[Row], window: Window, key: str) -> list[Row]:
    """Rows whose moment `key` lies in the window."""
    return [row for row in rows if row[key] is not None and window.begin_s <= row[key] <= window.end_s]


def _counts(rows: Sequence[Row], meta: Meta, window: Window | None, decode: Decode) -> Counts:
    ok = _without_error(rows)
    server = counter(meta, "generation_tokens_total")
    return Counts(
        ok=len(ok),
        errors=len(rows) - len(ok),
        input_tokens=_sum_known(ok, "in"),
        output_tokens=round(sum(_tokens_of(row) for row in rows)),
        server_output_tokens=round(server) if server is not None else None,
        cached_tokens=_sum_known(ok, "cached"),
        chunks=sum(row["chunks"] or 0 for row in rows),
        begun_in_window=len(_within(rows, window, "t_first")) if window else 0,
        tokens_in_window=round(decode.tokens_in_window),
    )


def held(rows: Sequence[Row], meta: Meta, window: Window | None, limits: Limits) -> Held:
    """The replies that were due in the steady window against limits, as the load generator judges them in a search."""
    if window is None or window.kind != "steady":
        return Held(limits, 0, 0)
    due = _within(rows, window, "t_sched")
    named = {"ttft_ms": limits.ttft_ms, "tpot_ms": limits.tpot_ms, "e2e_ms": limits.e2e_ms}
    return Held(limits, len(due), sum(within(row, _waits_since(meta), named) for row in due))


def _waits_since(meta: Meta) -> str:
    """From when a request waits: in an open loop one that had to wait for its turn has waited since it was due."""
    return "t_sched" if _is_open(meta) else "t_send"


def _throughput(
    rows: Sequence[Row], window: Window | None, decode: Decode, gpus: int | None, slo: Held | None
) -> Throughput:
    duration = _duration(rows)
    if window is None or not duration:
        return Throughput()
    span = window.duration_s
    ok = _without_error(rows)
    output = decode.tokens_in_window / span
    prompt_tokens = _sum_known(_within(ok, window, "t_first"), "in")
    input_rate = prompt_tokens / span if prompt_tokens is not None else None
    return Throughput(
        per_user_tok_s=decode.per_user_tok_s,
        output_tok_s=output,
        output_tok_s_full=sum(_tokens_of(row) for row in rows) / duration,
        input_tok_s=input_rate,
        total_tok_s=output + input_rate if input_rate is not None else None,
        req_s=len(_within(ok, window, "t_last")) / span,
        output_tok_s_per_gpu=output / gpus if gpus else None,
        goodput_req_s=slo.met / span if slo is not None else None,
    )


def _latencies(rows: Sequence[Row], meta: Meta, window: Window | None, decode: Decode) -> Latencies:
    if window is None:
        return Latencies()
    ok = _without_error(rows)
    begin = _waits_since(meta)
    # Those of the ramp wait for each other's prefill: their time to the first token is not the steady one.
    begun = _within(ok, window, begin)
    tpot = []
    for row in _within(ok, window, "t_first"):
        first, later = chunk_tokens(row)
        if later and (rest := (row["out"] or 0) - first) > 0:
            tpot.append((row["t_last"] - row["t_first"]) * 1000 / rest)
    return Latencies(
        ttft=distribution([(row["t_first"] - row[begin]) * 1000 for row in begun]),
        tpot=distribution(tpot),
        gap=distribution(decode.gaps_ms),
        e2e=distribution([(row["t_last"] - row[begin]) * 1000 for row in begun]),
    )


def distribution(values: Sequence[float]) -> Distribution:
    """Mean and percentiles (linear between neighbours); p95 from 100 values on, p99 from a thousand on."""
    ordered = sorted(values)
    if not ordered:
        return Distribution(0)

    def at(share: float) -> float:
        place = share * (len(ordered) - 1)
        low = int(place)
        high = min(low + 1, len(ordered) - 1)
        return ordered[low] + (ordered[high] - ordered[low]) * (place - low)

    n = len(ordered)
    return Distribution(
        n=n,
        mean=sum(ordered) / n,
        p50=at(0.5),
        p90=at(0.9),
        p95=at(0.95) if n >= P95_NEEDS else None,
        p99=at(0.99) if n >= P99_NEEDS else None,
        max=ordered[-1],
    )


def _speculation(rows: Sequence[Row], meta: Meta, decode: Decode) -> Speculation | None:
    ok = [row for row in _without_error(rows) if row["verify_ct"] is not None]
    steps: float = sum(row["verify_ct"] for row in ok)
    calls = counter(meta, "spec_verify_calls_total", "spec_decode_num_drafts_total")
    made = counter(meta, "generation_tokens_total")
    by_counters = made / calls if made is not None and calls else None
    correct: int | None = None
    if steps:
        if all(row["correct_drafts"] is not None for row in ok):
            correct = sum(row["correct_drafts"] for row in ok)
            tau = (correct + steps) / steps
        else:
            tau = sum(row["out"] - 1 for row in ok) / steps
        cycle_ms = decode.paced_s * 1000 / decode.steps if decode.steps else None
    elif calls:  # the replies don't say; the counters cover the same requests, idle to idle
        steps = calls
        tau = sum(row["out"] - 1 for row in _without_error(rows)) / steps
        # Near, not exact: tau is of the whole run, the last step of a reply, which may be cut short, included.
        cycle_ms = decode.paced_s * 1000 * tau / decode.paced_tokens if decode.paced_tokens else None
    else:
        return None
    return Speculation(
        verify_steps=round(steps),
        correct_drafts=correct,
        proposed_drafts=_sum_known(ok, "proposed_drafts"),
        tau=tau,
        cycle_ms=cycle_ms,
        server_accept_length=meta.get("accept_length"),
        counter_accept_length=by_counters,
    )


def _gpu_use(meta: Meta, window: Window | None, tokens: float) -> GpuUse | None:
    gpu = meta.get("gpu")
    if not gpu or window is None:
        return None
    if "hosts" not in gpu:
        return _use_of({"": gpu["samples"]}, window, tokens)
    sampled = {host: told["samples"] for host, told in gpu["hosts"].items() if "missing" not in told}
    whole = _use_of(sampled, window, tokens) or GpuUse()
    hosts = tuple(_use_of_host(host, told, window) for host, told in gpu["hosts"].items())
    if any(one.missing for one in hosts):  # a part of a sum is no sum
        whole = GpuUse(throttle=whole.throttle)
    return replace(whole, hosts=hosts)


def _use_of_host(host: str, told: Mapping[str, Any], window: Window) -> HostGpuUse:
    if "missing" in told:
        return HostGpuUse(host, missing=told["missing"])
    use = _use_of({host: told["samples"]}, window, 0)
    if use is None:
        return HostGpuUse(host, missing="there is no sample in the window")
    return HostGpuUse(host, use.power_w, use.utilization_pct, use.memory_peak_mib, use.throttle, use.sm_mhz)


def _use_of(sampled: Mapping[str, Sequence[Sequence[Any]]], window: Window, tokens: float) -> GpuUse | None:
    """Of the samples of all hosts; None where there are none in the window."""
    samples = [(host, s) for host, told in sampled.items() for s in told if window.begin_s <= s[0] <= window.end_s]
    if not samples:
        return None

    def means(column: int) -> list[float]:
        """Of each GPU that reports the column."""
        found: dict[tuple[str, int], list[float]] = {}
        for host, sample in samples:
            if sample[column] is not None:
                found.setdefault((host, sample[1]), []).append(sample[column])
        return [sum(values) / len(values) for values in found.values()]

    power, utilization, clocks = means(2), means(3), means(5)
    memory = [sample[4] for _, sample in samples if sample[4] is not None]
    energy = sum(power) * window.duration_s if power else None
    mask = 0
    for _, sample in samples:
        mask |= sample[6] or 0
    return GpuUse(
        power_w=sum(power) if power else None,
        energy_j=energy,
        joules_per_token=energy / tokens if energy is not None and tokens else None,
        utilization_pct=sum(utilization) / len(utilization) if utilization else None,
        memory_peak_mib=max(memory, default=None),
        throttle=throttle_words(mask),
        sm_mhz=sum(clocks) / len(clocks) if clocks else None,
    )


def _client(meta: Meta) -> ClientLoad | None:
    client = meta.get("client")
    return ClientLoad(**{each.name: client.get(each.name) for each in fields(ClientLoad)}) if client else None
