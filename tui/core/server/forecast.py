"""Memory before a launch, from earlier starts of the same model on the same host; and what worked there before.

SGLang's budget is `fraction x memory free before the load`; weights, draft model and KV pool come out of it, CUDA graphs
and activations live beside it (tui/core/log/memory.py). What a rank needs is measured by each start, a crashed one included,
and kept in this machine's record of launches. Nothing here asks a host.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace

from tui.core.server.launch_records import LaunchRecord
from tui.core.server.preflight import Finding, Level
from tui.core.sglang.diagnosis import Diagnosis
from tui.core.sglang.flags import flag_table
from tui.core.sglang.memory import fraction_window
from tui.core.sglang.state import LedgerRow, StartupState
from tui.core.text import one_line

_MARGIN_SHARE, _MARGIN_LIMIT_GIB = (0.06, 6.0)  # beside budget and graphs, for activations; SGLang's docs: 5 to 8 GB
_EXACT_GIB = 0.3  # figures of two starts differ by as much
_FRACTION = "mem-fraction-static"
_GRAPH_BATCH = "cuda-graph-max-bs-decode"
# What decides how much weights and draft model take, and what they can be compared by.
_WEIGHTS = (
    *("model-path", "revision", "quantization", "dtype", "load-format", "tp-size", "pp-size", "dp-size"),
    *("ep-size", "enable-dp-attention", "attn-dp-size", "cpu-offload-gb", "device"),
)
_DRAFT = (
    *("speculative-algorithm", "speculative-draft-model-path", "speculative-draft-model-quantization"),
    *("tp-size", "speculative-num-draft-tokens"),
)
_PLACE = frozenset(("port", "host", "api-key", "admin-api-key", "log-level", "log-level-http", "nccl-port"))

Args = Mapping[str, object]  # flags under any of their names, with their values


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
class LastReady:
    """The newest configuration of a model on a host that reached ready."""

    run_id: str
    profile: str
    launched_at: str  # ISO 8601 UTC
    ready_after_s: float | None
    times: int  # starts of exactly this configuration that reached ready
    difference: tuple[tuple[str, object, object], ...]  # (flag, value then, value now); None = not set

    @property
    def text(self) -> str:
        """One line for people."""
        when = one_line(self.launched_at, 20).replace("T", " ").rstrip("Z")[:16]
        if not self.difference:
            times = f", {self.times} times so far" if self.times > 1 else ""
            return f"this configuration reached ready here at {when}{times}"
        shown = [f"{name} {_value(then)} (now {_value(now)})" for name, then, now in self.difference[:_SHOWN_FLAGS]]
        more = len(self.difference) - len(shown)
        return (
            f"{one_line(self.profile, 60)} at {when} with {', '.join(shown)}"
            + (f" and {more} more differences" if more > 0 else "")
        )  # fmt: skip


_SHOWN_FLAGS = 3


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
    starts: int = 0  # earlier starts that the figures are from


# ---- flags ------------------------------------------------------------------------------------------------------------


def _canonical(args: Args) -> dict[str, object]:
    table = flag_table()
    return {table.canonical(name): value for name, value in args.items() if value is not False and value is not None}


def _key(args: Mapping[str, object], names: Sequence[str]) -> tuple[object, ...]:
    return tuple(str(args.get(name)) for name in names)


def _speculative(args: Mapping[str, object]) -> bool:
    return bool(args.get("speculative-algorithm"))


def _draft_key(args: Mapping[str, object]) -> tuple[object, ...]:
    return _key(args, _DRAFT) if _speculative(args) else ()


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _value(value: object) -> str:
    return "unset" if value is None else one_line(str(value), 60)


def difference(then: Args, now: Args) -> tuple[tuple[str, object, object], ...]:
    """Flags whose values differ, by their newest names; the place (port, host, keys) does not count."""
    old, new = _canonical(then), _canonical(now)
    names = sorted((set(old) | set(new)) - _PLACE, key=lambda name: (name != _FRACTION, name))
    return tuple((name, old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name))


# ---- ledgers ----------------------------------------------------------------------------------------------------------


def ledger_of(record: LaunchRecord) -> tuple[LedgerRow, ...]:
    """The rows of a record; what does not look like one is left out."""
    known = {item.name for item in fields(LedgerRow)}
    rows = []
    for raw in record.ledger:
        values = {name: value for name, value in raw.items() if name in known and name != "rank"}
        if isinstance(raw.get("rank"), str) and all(v is None or _number(v) is not None for v in values.values()):
            rows.append(LedgerRow(rank=str(raw["rank"]), **values))  # type: ignore[arg-type]
    return tuple(rows)


def _loaded(row: LedgerRow) -> float | None:
    return None if row.weights_gib is None else row.weights_gib + (row.draft_gib or 0.0)


def margin_gib(before_gib: float) -> float:
    """GiB that should be free beside budget and graphs, for activations."""
    return min(_MARGIN_LIMIT_GIB, _MARGIN_SHARE * before_gib)


def _beside(row: LedgerRow) -> float | None:
    """What a start took beside weights, draft and pool (graphs, workspaces), of a rank that went all the way."""
    loaded = _loaded(row)
    if row.before_gib is None or loaded is None or row.kv_pool_gib is None or row.free_gib is None:
        return None
    return max(0.0, row.before_gib - loaded - row.kv_pool_gib - row.free_gib)


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
) -> Workable:
    """Bounds from the ledger of one start.

    Args:
        fraction: the present mem-fraction-static, for the graph batch.
        batch: the largest graph batch wanted, None = as measured.
        ready: that start went all the way, so that what is free counts for the graphs.
        batch_measured: the largest graph batch of that start, None = the same.
    """
    rows = tuple(ledger)
    window = fraction_window(rows)
    if window is None:
        return Workable()
    measured = batch_measured or batch
    most, batches, known = window.most, None, False
    for row in rows if ready else ():
        beside, before, loaded = _beside(row), row.before_gib, _loaded(row)
        if beside is None or before is None or loaded is None:
            continue
        most = most if known else 1.0
        known = True
        margin = margin_gib(before)
        most = min(most, _down(1 - (_scaled(beside, row.graphs_gib, measured, batch, speculative) + margin) / before))
        if fraction is not None and row.graphs_gib and measured:
            room = before * (1 - fraction) - margin
            fitting = [
                size
                for size in graph_batches(4096, speculative)
                if _scaled(beside, row.graphs_gib, measured, size, speculative) <= room
            ]
            most_batch = fitting[-1] if fitting else 0
            batches = most_batch if batches is None else min(batches, most_batch)
    return Workable(window.least, most, batches, known)


def _down(value: float) -> float:
    return math.floor(round(value * 100, 6)) / 100


def workable_now(state: StartupState, ready: bool) -> Workable:
    """Bounds from what the log of a running or failed start says."""
    args = state.server_args or {}
    return workable(
        state.ledger, mem_fraction(state), graph_batch(state), bool(args.get("speculative_algorithm")), ready=ready
    )


def mem_fraction(state: StartupState) -> float | None:
    """mem-fraction-static in force, as given or as SGLang chose it."""
    return _number((state.server_args or {}).get("mem_fraction_static"))


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


# ---- earlier starts ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Past:
    record: LaunchRecord
    args: Mapping[str, object]  # canonical
    rows: tuple[LedgerRow, ...]

    @property
    def fraction(self) -> float | None:
        return self.record.mem_fraction or _number(self.args.get(_FRACTION))

    @property
    def batch(self) -> int | None:
        value = self.record.graph_batch or self.args.get(_GRAPH_BATCH)
        return value if type(value) is int else None

    @property
    def ready(self) -> bool:
        return self.record.ready_after_s is not None


def _past(host: str, model: object, records: Iterable[LaunchRecord]) -> list[_Past]:
    return [
        _Past(record, _canonical(record.args), ledger_of(record))
        for record in records
        if record.host == host and record.kind == "server" and model and record.model == model
    ]


def _comparable(past: Iterable[_Past], now: Mapping[str, object]) -> list[_Past]:
    """Starts whose ranks hold the same: same weights, same draft model."""
    return [
        item
        for item in past
        if _key(item.args, _WEIGHTS) == _key(now, _WEIGHTS) and _draft_key(item.args) == _draft_key(now)
    ]


def last_ready(host: str, args: Args, records: Iterable[LaunchRecord]) -> LastReady | None:
    """The newest configuration of this model on this host that reached ready, with the difference to `args`.

    Args:
        records: newest first, as `records.read_all` gives them.
    """
    ready = [item for item in _past(host, _canonical(args).get("model-path"), records) if item.ready]
    if not ready:
        return None
    newest = next((item for item in ready if not difference(item.record.args, args)), ready[0])
    same = sum(1 for item in ready if not difference(item.record.args, newest.record.args))
    record = newest.record
    return LastReady(
        record.run_id, record.profile, record.launched_at, record.ready_after_s, same, difference(record.args, args)
    )


@dataclass(frozen=True)
class _Tried:
    """Fractions that were tried with the same weights, draft and (for graphs) a batch that proves something."""

    worked: tuple[tuple[float, int], ...]  # (fraction, times), most often first
    pool_failed: float | None  # the largest that left no pool
    graphs_failed: float | None  # the smallest that left no room for graphs

    def contradicts(self, fraction: float) -> bool:
        """Whether a fraction failed already, or must fail because of one that did."""
        if any(value == fraction for value, _ in self.worked):
            return False
        return (self.pool_failed is not None and fraction <= self.pool_failed) or (
            self.graphs_failed is not None and fraction >= self.graphs_failed
        )


def _tried(past: Iterable[_Past], batch: int | None) -> _Tried:
    worked: Counter[float] = Counter()
    pool: list[float] = []
    graphs: list[float] = []
    for item in past:
        fraction = item.fraction
        if fraction is None:
            continue
        smaller = batch is not None and item.batch is not None and item.batch < batch
        larger = batch is not None and item.batch is not None and item.batch > batch
        if item.ready and not smaller:
            worked[round(fraction, 3)] += 1
        elif item.record.cause == "oom_kv_pool":
            pool.append(fraction)
        elif item.record.cause == "oom_cuda_graph" and not larger:
            graphs.append(fraction)
    return _Tried(
        tuple(worked.most_common()), max(pool, default=None), min(graphs, default=None)
    )  # fmt: skip


def _measured_rows(past: Sequence[_Past], now: Mapping[str, object]) -> tuple[tuple[LedgerRow, ...], int, bool]:
    """(what each rank will hold, starts it is from, whether the draft model's size is among it)."""
    weights = next(
        (
            item
            for item in past
            if _key(item.args, _WEIGHTS) == _key(now, _WEIGHTS)
            and any(row.weights_gib is not None and row.before_gib for row in item.rows)
        ),
        None,
    )
    if weights is None:
        return (), 0, False
    drafted = next(
        (
            item
            for item in past
            if _draft_key(item.args) == _draft_key(now) and any(row.draft_gib is not None for row in item.rows)
        ),
        None,
    )
    if not _speculative(now):
        return tuple(replace(row, draft_gib=None) for row in weights.rows), 1, True
    if drafted is None:
        return tuple(replace(row, draft_gib=None) for row in weights.rows), 1, False
    sizes = {row.rank: row.draft_gib for row in drafted.rows}
    largest = max((size for size in sizes.values() if size is not None), default=None)
    rows = tuple(replace(row, draft_gib=sizes.get(row.rank) or largest) for row in weights.rows)
    return rows, 1 if drafted is weights else 2, True


def _batch_in_force(now: Mapping[str, object], same: Iterable[_Past]) -> int | None:
    """The largest graph batch that these flags lead to; None where only a start can tell."""
    asked = now.get(_GRAPH_BATCH)
    for item in same:
        if item.batch is not None and item.args.get(_GRAPH_BATCH) == asked:
            return item.batch
    if type(asked) is not int:
        return None
    return _clamped(asked, now.get("max-running-requests"), _speculative(now))


def forecast(host: str, args: Args, records: Iterable[LaunchRecord]) -> Forecast | None:
    """What earlier starts of the same model on the same host say about a launch with `args`.

    Args:
        args: the flags that will be given.
        records: this machine's launches, newest first.

    Returns:
        None where no earlier start of this model is known here.
    """
    records = tuple(records)
    now = _canonical(args)
    past = _past(host, now.get("model-path"), records)
    if not past:
        return None
    same = _comparable(past, now)
    ready = last_ready(host, args, records)
    given = _number(now.get(_FRACTION))
    fraction = given
    if fraction is None:  # SGLang chooses: as it chose before
        fraction = next((item.fraction for item in same if _FRACTION not in item.args and item.fraction), None)
    batch = _batch_in_force(now, same)
    tried = _tried(same, batch)
    rows, starts, whole = _measured_rows(past, now)
    bounds = _bounds(rows, whole, same, fraction, batch, _speculative(now), tried)
    made = Forecast(None, "", fraction, bounds, last_ready=ready, starts=starts)
    made = _shortage(made, rows) if fraction is not None else made
    made = replace(made, suggestion=_suggest(made, tried, rows, whole))
    return _worded(made, tried, rows, whole, given)


def _bounds(
    rows: Sequence[LedgerRow],
    whole: bool,
    same: Sequence[_Past],
    fraction: float | None,
    batch: int | None,
    speculative: bool,
    tried: _Tried,
) -> Workable:
    complete = next((item for item in same if item.ready and any(_beside(r) is not None for r in item.rows)), None)
    if complete is not None:
        bounds = workable(complete.rows, fraction, batch, speculative, ready=True, batch_measured=complete.batch)
    else:
        bounds = workable(rows, fraction, batch, speculative, ready=False)
    least, most = bounds.fraction_least, bounds.fraction_most
    if tried.pool_failed is not None and least is not None:
        least = max(least, _down(tried.pool_failed + 0.01))
    if tried.graphs_failed is not None:
        most = min(most if most is not None else 1.0, _down(tried.graphs_failed - 0.001))
    for value, _ in tried.worked:  # a fact beats arithmetic
        least = min(least, value) if least is not None else None
        most = max(most, value) if most is not None else None
    return replace(bounds, fraction_least=least, fraction_most=most)


def _shortage(made: Forecast, rows: Sequence[LedgerRow]) -> Forecast:
    fraction = made.fraction or 0.0
    lacks = {
        row.rank: loaded - fraction * row.before_gib
        for row in rows
        if row.before_gib and (loaded := _loaded(row)) is not None
    }
    if not lacks:
        return made
    return replace(
        made,
        short_gib=round(max(lacks.values()), 2),
        short_ranks=tuple(rank for rank, lack in lacks.items() if lack > 0),
    )


def _suggest(made: Forecast, tried: _Tried, rows: Sequence[LedgerRow], whole: bool) -> float | None:
    if tried.worked:
        return tried.worked[0][0]
    window = fraction_window(rows)
    if window is None or window.suggested is None or not whole or made.workable.impossible:
        return None
    most = made.workable.fraction_most
    wanted = window.suggested if most is None else min(window.suggested, most)
    return None if tried.contradicts(wanted) else wanted


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


def _worded(made: Forecast, tried: _Tried, rows: Sequence[LedgerRow], whole: bool, given: float | None) -> Forecast:
    fraction, bounds = made.fraction, made.workable
    window = _window_text(bounds)
    behind = f"; {window}" if window else ""
    if fraction is None:
        text = f"SGLang will choose {_FRACTION}" + behind if window else "nothing was measured yet"
        return replace(made, text=text)
    name = f"{_FRACTION} {fraction:g}" + ("" if given is not None else " (SGLang's own choice)")
    times = dict(tried.worked).get(round(fraction, 3), 0)
    if times:
        often = f"{times} times" if times > 1 else "once"
        return replace(made, fits=True, text=f"{name} reached ready here {often}{behind}")
    if made.short_gib is not None and made.short_gib > 0:
        return replace(made, fits=False, text=_short_text(made, rows, name, behind))
    if tried.pool_failed is not None and fraction <= tried.pool_failed:
        return replace(
            made, fits=False, text=f"{name} fails in the memory pool, as {tried.pool_failed:g} did here{behind}"
        )
    if tried.graphs_failed is not None and fraction >= tried.graphs_failed:
        return replace(
            made, fits=False, text=f"{name} fails in graph capture, as {tried.graphs_failed:g} did here{behind}"
        )
    most = bounds.fraction_most
    if most is not None and fraction > most:
        if bounds.measured:
            lacks = (fraction - most) * max(row.before_gib or 0.0 for row in rows) if rows else None
            by = f" by about {lacks:.1f} GiB" if lacks else ""
            smaller = f", or graphs up to batch {bounds.batch_most}" if bounds.batch_most else ""
            return replace(made, fits=False, text=f"{name} leaves too little for the graphs{by}{behind}{smaller}")
        return replace(made, text=f"{name} leaves little beside the pool{behind}")
    if made.short_gib is None:
        return replace(made, text=f"nothing was measured yet for {name}")
    pool = f"about {-made.short_gib:.1f} GiB for the KV pool"
    if not whole:
        return replace(made, text=f"{name} leaves {pool} and the draft model, whose size is not known here yet")
    return replace(made, fits=True if bounds.measured else None, text=f"{name} leaves {pool}{behind}")


def _short_text(made: Forecast, rows: Sequence[LedgerRow], name: str, behind: str) -> str:
    short = made.short_gib or 0.0
    ranks = len([row for row in rows if row.before_gib])
    where = ""
    if ranks > 1:
        some = len(made.short_ranks)
        where = " on every rank" if some == ranks else f" on {', '.join(made.short_ranks[:4])}" + ("…" if some > 4 else "")  # fmt: skip
    by = f"by {short:.1f} GiB" if short >= _EXACT_GIB else "by a little"
    return f"{name} will fail {by}{where}{behind}"


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


# ---- advice -----------------------------------------------------------------------------------------------------------


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
    now = _canonical(args)
    current = mem_fraction(state) or _number(now.get(_FRACTION))
    batch = graph_batch(state)
    same = _comparable(_past(host, now.get("model-path"), records), now)
    tried = _tried(same, batch)
    computed = _number(found.set.get(_FRACTION))
    raise_it = found.cause == "oom_kv_pool" and (computed is None or current is None or computed > current)
    fitting = [
        (value, times)
        for value, times in tried.worked
        if current is None or (value > current if raise_it else value < current)
    ]
    if fitting:
        value, times = fitting[0]
        often = f"{times} times" if times > 1 else "once"
        verb = "Raise" if raise_it else "Lower"
        first = f"{verb} --{_FRACTION} to {value:g}: with it this model and draft reached ready here {often}."
        rest = found.advice[1:] if computed is not None else found.advice
        return replace(found, advice=(first, *rest), set={_FRACTION: value})
    if computed is not None and tried.contradicts(computed):
        low, high = tried.pool_failed, tried.graphs_failed
        if low is not None and high is not None:
            middle = round((low + high) / 2, 2)
            if low < middle < high:
                first = f"Set --{_FRACTION} to {middle:.2f}: here {low:g} failed in the memory pool and {high:g} in graph capture."
                return replace(found, advice=(first, *found.advice[1:]), set={_FRACTION: middle})
            first = (
                f"No value works: here {low:g} failed in the memory pool and {high:g} in graph capture."
                " Shrink the draft model, the graphs or the weights."
            )
            return replace(found, advice=(first, *found.advice[1:]), set={})
    return found
