"""What earlier starts of a model on a host show, from this machine's record of launches. Nothing here asks a host."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime

from tui.core.server.launch_records import LaunchRecord
from tui.core.sglang.flags import flag_table
from tui.core.sglang.state import LedgerRow
from tui.core.text import as_number, epoch_of, one_line

FRACTION = "mem-fraction-static"
GRAPH_BATCH = "cuda-graph-max-bs-decode"
# What decides how much weights and draft model take, and what they can be compared by.
_WEIGHTS = [
    "model-path",
    "revision",
    "quantization",
    "dtype",
    "load-format",
    "tp-size",
    "pp-size",
    "dp-size",
    "ep-size",
    "enable-dp-attention",
    "attn-dp-size",
    "cpu-offload-gb",
    "device",
]
_DRAFT = [
    "speculative-algorithm",
    "speculative-draft-model-path",
    "speculative-draft-model-quantization",
    "tp-size",
    "speculative-num-draft-tokens",
]
_PLACE = frozenset(["port", "host", "api-key", "admin-api-key", "log-level", "log-level-http", "nccl-port"])
_SHOWN_FLAGS = 3
_FIGURES = {item.name for item in fields(LedgerRow)} - {"rank", "draft_after_pools", "contradiction"}

Args = Mapping[str, object]  # flags under any of their names, with their values


def canonical(args: Args) -> dict[str, object]:
    """Flags that are set, by their newest names."""
    table = flag_table()
    return {table.canonical(name): value for name, value in args.items() if value is not False and value is not None}


def times_text(count: int) -> str:
    """`once`, `3 times`."""
    return f"{count} times" if count > 1 else "once"


def difference(then: Args, now: Args) -> tuple[tuple[str, object, object], ...]:
    """Flags whose values differ, by their newest names; the place (port, host, keys) does not count."""
    old, new = canonical(then), canonical(now)
    names = sorted((set(old) | set(new)) - _PLACE, key=lambda name: (name != FRACTION, name))
    return tuple((name, old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name))


def ledger_of(record: LaunchRecord) -> tuple[LedgerRow, ...]:
    """The rows of a record; what does not look like one is left out."""
    rows = []
    for raw in record.ledger:
        values = {name: value for name, value in raw.items() if name in _FIGURES and value is not None}
        if isinstance(raw.get("rank"), str) and all(as_number(value) is not None for value in values.values()):
            late = raw.get("draft_after_pools") is True
            rows.append(LedgerRow(rank=str(raw["rank"]), draft_after_pools=late, **values))  # type: ignore[arg-type]
    return tuple(rows)


@dataclass(frozen=True)
class EarlierStart:
    """One start of a model, with its memory ledger."""

    record: LaunchRecord
    args: Mapping[str, object]  # canonical
    rows: tuple[LedgerRow, ...]

    @property
    def fraction(self) -> float | None:
        return self.record.mem_fraction or as_number(self.args.get(FRACTION))

    @property
    def batch(self) -> int | None:
        value = self.record.graph_batch or self.args.get(GRAPH_BATCH)
        return value if type(value) is int else None

    @property
    def ready(self) -> bool:
        return self.record.ready_after_s is not None

    def same_weights(self, args: Mapping[str, object]) -> bool:
        """Whether its ranks held the weights that these canonical flags load."""
        return all(str(self.args.get(name)) == str(args.get(name)) for name in _WEIGHTS)

    def same_draft(self, args: Mapping[str, object]) -> bool:
        """The same of the draft model; also where neither has one."""
        if not speculative(self.args) or not speculative(args):
            return speculative(self.args) == speculative(args)
        return all(str(self.args.get(name)) == str(args.get(name)) for name in _DRAFT)


def speculative(args: Mapping[str, object]) -> bool:
    """Whether canonical flags start a server with a draft."""
    return bool(args.get("speculative-algorithm"))


def starts_of(host: str, model: object, records: Iterable[LaunchRecord]) -> list[EarlierStart]:
    """The starts of a model on a host, in the order of the records."""
    return [
        EarlierStart(record, canonical(record.args), ledger_of(record))
        for record in records
        if record.host == host and record.kind == "server" and model and record.model == model
    ]


def comparable(starts: Iterable[EarlierStart], now: Mapping[str, object]) -> list[EarlierStart]:
    """Starts whose ranks hold the same: same weights, same draft model."""
    return [start for start in starts if start.same_weights(now) and start.same_draft(now)]


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
        when = _minute(self.launched_at, self.ready_after_s or 0.0)
        if not self.difference:
            times = f", {self.times} times so far" if self.times > 1 else ""
            return f"this configuration reached ready here at {when}{times}"
        shown = [f"{name} {_value(then)} (now {_value(now)})" for name, then, now in self.difference[:_SHOWN_FLAGS]]
        more = len(self.difference) - len(shown)
        rest = f" and {more} more difference{'s' if more > 1 else ''}" if more > 0 else ""
        return f"{one_line(self.profile, 60)} at {when} with {', '.join(shown)}{rest}"


def _minute(launched_at: str, after_s: float) -> str:
    """`2026-11-30 12:09`, UTC: so many seconds after a launch."""
    launched_s = epoch_of(launched_at)
    if launched_s is None:
        return one_line(launched_at, 20)
    return datetime.fromtimestamp(launched_s + after_s, UTC).strftime("%Y-%m-%d %H:%M")


def _value(value: object) -> str:
    return "unset" if value is None else one_line(str(value), 60)


def last_ready(host: str, args: Args, records: Iterable[LaunchRecord]) -> LastReady | None:
    """The newest configuration of this model on this host that reached ready, with the difference to `args`.

    Args:
        records: newest first, as `launch_records.read_all` gives them.
    """
    ready = [start for start in starts_of(host, canonical(args).get("model-path"), records) if start.ready]
    if not ready:
        return None
    record = next((start for start in ready if not difference(start.record.args, args)), ready[0]).record
    same = sum(1 for start in ready if not difference(start.record.args, record.args))
    return LastReady(
        record.run_id, record.profile, record.launched_at, record.ready_after_s, same, difference(record.args, args)
    )


@dataclass(frozen=True)
class TriedFractions:
    """Fractions that were tried with the same weights, draft and (for graphs) a batch that proves something."""

    worked: tuple[tuple[float, int], ...]  # (fraction, times), most often first
    pool_failed: float | None  # the largest that gave no pool
    graphs_failed: float | None  # the smallest that gave no room for graphs

    def contradict(self, fraction: float) -> bool:
        """Whether a fraction failed already, or must fail because of one that did."""
        if any(value == fraction for value, _ in self.worked):
            return False
        return self.pool_fails(fraction) or self.graphs_fail(fraction)

    def pool_fails(self, fraction: float) -> bool:
        return self.pool_failed is not None and fraction <= self.pool_failed

    def graphs_fail(self, fraction: float) -> bool:
        return self.graphs_failed is not None and fraction >= self.graphs_failed


def tried_fractions(starts: Sequence[EarlierStart], batch: int | None) -> TriedFractions:
    """What became of each fraction; `batch` is the largest graph batch that is wanted now."""
    worked: Counter[float] = Counter()
    pool: list[float] = []
    graphs: list[float] = []
    for start in starts:
        fraction = start.fraction
        if fraction is None:
            continue
        bigger = start.batch - batch if batch is not None and start.batch is not None else 0
        if start.ready and bigger >= 0:
            worked[round(fraction, 3)] += 1
        elif start.record.cause == "oom_kv_pool":
            pool.append(fraction)
        elif start.record.cause == "oom_cuda_graph" and bigger <= 0:
            graphs.append(fraction)
    return TriedFractions(tuple(worked.most_common()), max(pool, default=None), min(graphs, default=None))
