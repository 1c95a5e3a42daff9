"""Memory before a launch, from earlier starts of the same model on the same host; and what worked there before.

SGLang's budget is `fraction x memory free before the load`; what comes out of it and what lives beside it is told in
`core/sglang/memory.py`. What a rank needs is measured by each start, a crashed one included, and kept in this machine's record
of launches. Nothing here asks a host.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from tui.core.server.earlier_starts import (
    FRACTION,
    GRAPH_BATCH,
    Args,
    EarlierStart,
    LastReady,
    TriedFractions,
    canonical,
    comparable,
    last_ready,
    speculative,
    starts_of,
    times_text,
    tried_fractions,
)
from tui.core.server.finding import Finding, Level
from tui.core.server.launch_records import LaunchRecord
from tui.core.sglang.diagnosis import Diagnosis
from tui.core.sglang.memory import beside_gib, fixed_states, fraction_window, pool_left_gib
from tui.core.sglang.state import LedgerRow, StartupState
from tui.core.text import as_number, one_line

_MARGIN_SHARE, _MARGIN_LIMIT_GIB = 0.06, 6.0  # beside budget and graphs, for activations; SGLang's docs: 5 to 8 GB
_EXACT_GIB = 0.3  # figures of two starts differ by as much


@dataclass(frozen=True)
class Workable:
    """Bounds for one configuration; fractions have two decimals, None = the figures do not say."""

    fraction_least: float | None = None  # leaves any pool on the tightest rank
    fraction_most: float | None = None  # leaves room for graphs and activations; below `fraction_least`: no value works
    batch_most: int | None = None  # largest graph batch beside the present fraction; 0 = none fits
    measured: bool = False  # the graphs were measured in a start that reached ready; else a rule of thumb

    @property
    def impossible(self) -> bool:
        """Whether no fraction can work."""
        least, most = self.fraction_least, self.fraction_most
        return least is not None and most is not None and least > most


@dataclass(frozen=True)
class Forecast:
    """What earlier starts say about a launch."""

    fits: bool | None  # None: they say nothing about this fraction
    text: str  # one sentence
    fraction: float | None  # that was asked for
    workable: Workable
    short_gib: float | None = None  # by how much the tightest rank misses its budget; negative: what the pool gets
    short_ranks: tuple[str, ...] = ()
    suggestion: float | None = None  # a fraction instead; one that worked here, where there is one
    last_ready: LastReady | None = None


def graph_batches(largest: int, speculative: bool) -> list[int]:
    """The batch sizes that SGLang captures up to `largest` (server_args.py, 0.5.10 to 0.5.23)."""
    if speculative:
        sizes = [*range(1, 9), *range(10, 33, 2), *range(40, 65, 8), *range(72, 257, 8), *range(272, 4097, 16)]
    else:
        sizes = [1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 513, 16), *range(544, 4097, 32)]
    return [size for size in sizes if size < largest] + [largest]


def _scaled(beside: float, graphs: float | None, measured: int | None, batch: int | None, speculative: bool) -> float:
    """`beside` of a start whose largest graph batch was `measured`, for another one."""
    if graphs is None or not measured or not batch or batch == measured:
        return beside
    ratio = len(graph_batches(batch, speculative)) / len(graph_batches(measured, speculative))
    return max(0.0, beside + graphs * (ratio - 1))


def workable(
    ledger: Iterable[LedgerRow],
    fraction: float | None,
    batch: int | None,
    speculative: bool,
    *,
    ready: bool,
    batch_measured: int | None = None,
    fixed: bool = False,
) -> Workable:
    """Bounds from the ledger of one start.

    Args:
        fraction: the present mem-fraction-static, for the graph batch.
        batch: the largest graph batch wanted, None = as measured.
        ready: that start went all the way, so that what is free counts for the graphs.
        batch_measured: the largest graph batch of that start, None = the same.
        fixed: flags say what state caches take (`memory.fixed_states`).
    """
    rows = tuple(ledger)
    window = fraction_window(rows, fixed=fixed)
    if window is None:
        return Workable()
    measured = batch_measured or batch
    most: list[float] = []  # of each rank
    batches: list[int] = []
    for row in rows if ready else ():
        beside, before = beside_gib(row), row.before_gib
        if beside is None or before is None:
            continue
        taken = partial(_scaled, beside, row.graphs_gib, measured, speculative=speculative)
        margin = min(_MARGIN_LIMIT_GIB, _MARGIN_SHARE * before)
        most.append(_down(1 - (taken(batch) + margin) / before))
        if fraction is not None and row.graphs_gib and measured:
            room = before * (1 - fraction) - margin
            sizes = graph_batches(4096, speculative)
            batches.append(max((size for size in sizes if taken(size) <= room), default=0))
    return Workable(window.least, min(most, default=window.most), min(batches, default=None), bool(most))


def _down(value: float) -> float:
    return math.floor(round(value * 100, 6)) / 100


def workable_now(state: StartupState, ready: bool) -> Workable:
    """Bounds from what the log of a running or failed start says; none for a CPU, whose memory others share."""
    args = canonical(state.server_args or {})
    ledger = () if state.host_memory else state.ledger
    batch, drafts = graph_batch(state), speculative(args)
    return workable(ledger, mem_fraction(state), batch, drafts, ready=ready, fixed=fixed_states(args))


def mem_fraction(state: StartupState) -> float | None:
    """mem-fraction-static in effect, as given or as SGLang chose it."""
    return as_number((state.server_args or {}).get("mem_fraction_static"))


def graph_batch(state: StartupState) -> int | None:
    """The largest batch whose graph is captured; None where the log does not say."""
    args = state.server_args or {}
    running = args.get("max_running_requests")
    for name in ("cuda_graph_max_bs_decode", "cuda_graph_max_bs"):
        value = args.get(name)
        if type(value) is int:
            return _clamped(value, running, bool(args.get("speculative_algorithm")))
    return None


def _clamped(batch: int, running: object, speculative: bool) -> int:
    """No graph is larger than the running requests, which speculation lowers to 48 where nobody says otherwise (0.5.5 on)."""
    limit = running if type(running) is int and running > 0 else 48 if speculative else batch
    return min(batch, limit)


def _measured_rows(starts: Sequence[EarlierStart], now: Mapping[str, object]) -> tuple[tuple[LedgerRow, ...], bool]:
    """(what each rank will hold, whether the draft model's size is among it)."""
    weighed = (s for s in starts if any(row.weights_gib is not None and row.before_gib for row in s.rows))
    weights = next((start for start in weighed if start.same_weights(now)), None)
    if weights is None:
        return (), False
    drafted = None
    if speculative(now):
        measured = (s for s in starts if any(row.draft_gib is not None for row in s.rows))
        drafted = next((start for start in measured if start.same_draft(now)), None)
    if drafted is None:
        return tuple(replace(r, draft_gib=None, draft_peak_gib=None) for r in weights.rows), not speculative(now)
    sizes = {row.rank: row.draft_peak_gib or row.draft_gib for row in drafted.rows}
    largest = max((size for size in sizes.values() if size is not None), default=None)
    late = any(row.draft_after_pools for row in drafted.rows)
    held = [(row, sizes.get(row.rank) or largest) for row in weights.rows]
    return tuple(replace(r, draft_gib=size, draft_peak_gib=None, draft_after_pools=late) for r, size in held), True


def _effective_batch(now: Mapping[str, object], same: Iterable[EarlierStart]) -> int | None:
    """The largest graph batch that these flags lead to; None where only a start shows it."""
    asked = now.get(GRAPH_BATCH)
    for start in same:
        if start.batch is not None and start.args.get(GRAPH_BATCH) == asked:
            return start.batch
    if type(asked) is not int:
        return None
    return _clamped(asked, now.get("max-running-requests"), speculative(now))


def forecast(host: str, args: Args, records: Iterable[LaunchRecord]) -> Forecast | None:
    """What earlier starts of the same model on the same host say about a launch with `args`.

    Args:
        args: the flags that will be given.
        records: this machine's launches, newest first.

    Returns:
        None where no earlier start of this model is known here.
    """
    records = tuple(records)
    now = canonical(args)
    past = starts_of(host, now.get("model-path"), records)
    if not past:
        return None
    same = comparable(past, now)
    ready = last_ready(host, args, records)
    given = as_number(now.get(FRACTION))
    fraction = given
    if fraction is None:  # SGLang chooses: as it chose before
        fraction = next((item.fraction for item in same if FRACTION not in item.args and item.fraction), None)
    batch = _effective_batch(now, same)
    tried = tried_fractions(same, batch)
    rows, whole = _measured_rows(past, now)
    bounds = _bounds(rows, same, fraction, batch, now, tried)
    made = Forecast(None, "", fraction, bounds, last_ready=ready)
    made = _shortage(made, rows, fixed_states(now)) if fraction is not None else made
    fits, text = _outlook(made, tried, rows, whole, given)
    return replace(made, fits=fits, text=text, suggestion=_suggest(made, tried, rows, whole, fixed_states(now)))


def _bounds(
    rows: Sequence[LedgerRow],
    same: Sequence[EarlierStart],
    fraction: float | None,
    batch: int | None,
    now: Mapping[str, object],
    tried: TriedFractions,
) -> Workable:
    complete = next((item for item in same if item.ready and any(beside_gib(r) is not None for r in item.rows)), None)
    measured = complete.batch if complete is not None else None
    bounds = workable(
        complete.rows if complete is not None else rows,
        fraction,
        batch,
        speculative(now),
        ready=complete is not None,
        batch_measured=measured,
        fixed=fixed_states(now),
    )
    least, most = bounds.fraction_least, bounds.fraction_most
    if tried.pool_failed is not None and least is not None:
        least = max(least, _down(tried.pool_failed + 0.01))
    if tried.graphs_failed is not None:
        most = min(most if most is not None else 1.0, _down(tried.graphs_failed - 0.001))
    for value, _ in tried.worked:  # a fact beats arithmetic
        least = min(least, value) if least is not None else None
        most = max(most, value) if most is not None else None
    return replace(bounds, fraction_least=least, fraction_most=most)


def _shortage(made: Forecast, rows: Sequence[LedgerRow], fixed: bool) -> Forecast:
    left = {row.rank: pool_left_gib(row, made.fraction or 0.0, fixed) for row in rows}
    lacks = {rank: -gib for rank, gib in left.items() if gib is not None}
    if not lacks:
        return made
    return replace(
        made,
        short_gib=round(max(lacks.values()), 2),
        short_ranks=tuple(rank for rank, lack in lacks.items() if lack > 0),
    )


def _suggest(
    made: Forecast, tried: TriedFractions, rows: Sequence[LedgerRow], whole: bool, fixed: bool
) -> float | None:
    if tried.worked:
        return tried.worked[0][0]
    window = fraction_window(rows, fixed=fixed)
    if window is None or window.suggested is None or not whole or made.workable.impossible:
        return None
    most = made.workable.fraction_most
    wanted = window.suggested if most is None else min(window.suggested, most)
    return None if tried.contradict(wanted) else wanted


def _window_text(bounds: Workable) -> str:
    if bounds.impossible:
        return "no value works"
    if bounds.fraction_least is None:
        return ""
    if not bounds.measured or bounds.fraction_most is None:
        return f"at least {bounds.fraction_least:.2f} is needed, what the graphs leave is not measured yet"
    if bounds.fraction_least == bounds.fraction_most:
        return f"only {bounds.fraction_least:.2f} fits"
    return f"{bounds.fraction_least:.2f} to {bounds.fraction_most:.2f} fits"


def _outlook(
    made: Forecast, tried: TriedFractions, rows: Sequence[LedgerRow], whole: bool, given: float | None
) -> tuple[bool | None, str]:
    """Whether it fits, and one sentence: what happened here before what is calculated."""
    fraction, bounds = made.fraction, made.workable
    window = _window_text(bounds)
    behind = f"; {window}" if window else ""
    if fraction is None:
        return None, f"SGLang will choose {FRACTION}{behind}" if window else "nothing was measured yet"
    name = f"{FRACTION} {fraction:g}" + ("" if given is not None else " (SGLang's own choice)")
    if times := dict(tried.worked).get(round(fraction, 3), 0):
        return True, f"{name} reached ready here {times_text(times)}{behind}"
    if made.short_gib is not None and made.short_gib > 0:
        return False, f"{name} will fail {_shortage_text(made, rows)}{behind}"
    if tried.pool_fails(fraction):
        return False, f"{name} fails in the memory pool, as {tried.pool_failed:g} did here{behind}"
    if tried.graphs_fail(fraction):
        return False, f"{name} fails in graph capture, as {tried.graphs_failed:g} did here{behind}"
    most = bounds.fraction_most
    if most is not None and fraction > most:
        if not bounds.measured:
            return None, f"{name} leaves little beside the pool{behind}"
        lacks = (fraction - most) * max((row.before_gib or 0.0 for row in rows), default=0.0)
        by = f" by about {lacks:.1f} GiB" if lacks else ""
        smaller = f", or graphs up to batch {bounds.batch_most}" if bounds.batch_most else ""
        return False, f"{name} leaves too little for the graphs{by}{behind}{smaller}"
    if made.short_gib is None:
        return None, f"nothing was measured yet for {name}"
    pool = f"about {-made.short_gib:.1f} GiB for the KV pool"
    if not whole:
        return None, f"{name} leaves {pool} and the draft model, whose size is not known here yet"
    return True if bounds.measured else None, f"{name} leaves {pool}{behind}"


def _shortage_text(made: Forecast, rows: Sequence[LedgerRow]) -> str:
    short, ranks = made.short_gib or 0.0, made.short_ranks
    all_ranks = sum(1 for row in rows if row.before_gib)
    where = ""
    if all_ranks > 1:
        named = ", ".join(ranks[:4]) + ("…" if len(ranks) > 4 else "")
        where = " on every rank" if len(ranks) == all_ranks else f" on {named}"
    return (f"by {short:.1f} GiB" if short >= _EXACT_GIB else "by a little") + where


def findings(host: str, args: Args, records: Iterable[LaunchRecord]) -> tuple[Finding, ...]:
    """The forecast as lines of a pre-flight: `memory`, and `history` where this model reached ready here. Never blocks.

    Args:
        records: newest first.
    """
    records = tuple(records)
    made = forecast(host, args, records)
    if made is None:
        return ()
    level = Level.WARN if made.fits is False else Level.OK
    instead = made.suggestion
    advice = f" (try {instead:g})" if made.fits is False and instead is not None else ""
    found = [Finding("memory", level, one_line(made.text + advice))]
    if made.last_ready is not None:
        found.append(Finding("history", Level.OK, one_line("last ready: " + made.last_ready.text)))
    return tuple(found)


def prefer_worked(
    found: Diagnosis, state: StartupState, host: str, args: Args, records: Iterable[LaunchRecord]
) -> Diagnosis:
    """A diagnosis whose mem-fraction-static is one that worked here, rather than a computed one.

    Args:
        args: the flags of the run that died.
        records: this machine's launches, newest first; the run itself may be among them.
    """
    if found.cause not in ("oom_kv_pool", "oom_cuda_graph") or found.observation:
        return found
    now = canonical(args)
    current = mem_fraction(state) or as_number(now.get(FRACTION))
    batch = graph_batch(state)
    same = comparable(starts_of(host, now.get("model-path"), records), now)
    tried = tried_fractions(same, batch)
    computed = as_number(found.set.get(FRACTION))
    raise_it = found.cause == "oom_kv_pool" and (computed is None or current is None or computed > current)

    def advised(first: str, rest: Sequence[str], value: float | None = None) -> Diagnosis:
        return replace(found, advice=(first, *rest), set={FRACTION: value} if value is not None else {})

    for value, times in tried.worked:
        if current is not None and not (value > current if raise_it else value < current):
            continue
        often = f"with it this model and draft reached ready here {times_text(times)}."
        kept = found.advice[1:] if computed is not None else found.advice
        return advised(f"{'Raise' if raise_it else 'Lower'} --{FRACTION} to {value:g}: {often}", kept, value)
    low, high = tried.pool_failed, tried.graphs_failed
    if computed is None or not tried.contradict(computed) or low is None or high is None:
        return found
    both = f"here {low:g} failed in the memory pool and {high:g} in graph capture."
    middle = round((low + high) / 2, 2)
    if low < middle < high:
        return advised(f"Set --{FRACTION} to {middle:.2f}: {both}", found.advice[1:], middle)
    nothing = f"No value works: {both} Shrink the draft model, the graphs or the weights."
    return advised(nothing, found.advice[1:])
