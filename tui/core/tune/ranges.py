"""Which fractions start: by the ledger's forecast where that is arithmetic, by launches where it is not, halving what lies between.

Nothing here asks a host: all is read from the record.
"""

from dataclasses import dataclass

from tui.core.tune.record import Phase, Status, Step, TuneRecord

MOST_LAUNCHES = 6
_STEP = 0.01
_LOW, _HIGH = 0.3, 0.99  # below it no server of ours was, at it the driver has nothing
_TOO_LOW = frozenset(["oom_kv_pool"])
_TOO_HIGH = frozenset(["oom_cuda_graph", "oom_serving"])


@dataclass(frozen=True)
class Range:
    """What is known of the fractions at one graph batch."""

    low: float | None  # the lowest that starts and serves
    high: float | None
    below: float | None  # the highest that is known to be too low, by a launch or the ledger
    above: float | None  # the lowest that is known to be too high
    batch: int | None

    @property
    def exact(self) -> bool:
        """Whether both ends are found to the step."""
        known = None not in (self.low, self.high, self.below, self.above)
        return known and _apart(self.below, self.low) <= 1 and _apart(self.high, self.above) <= 1

    @property
    def used(self) -> float | None:
        """The fraction for what follows: the middle, which has room for a larger draft and for a longer context."""
        return None if self.low is None or self.high is None else int(round((self.low + self.high) * 50, 3)) / 100

    @property
    def text(self) -> str:
        if self.low is None or self.high is None:
            return "no fraction was found that starts"
        ends = "" if self.exact else "; the ends are not found to 0.01"
        return f"{self.low:.2f} to {self.high:.2f} start and serve the longest prompt{ends}"


def _apart(low: float | None, high: float | None) -> int:
    """Steps between two fractions."""
    return round(((high or 0.0) - (low or 0.0)) / _STEP)


def _tidy(fraction: float) -> float:
    return round(fraction, 2)


def found(record: TuneRecord) -> Range:
    """The range as the launches and the forecast have it, at the graph batch that was tried last."""
    tried = record.of(Phase.RANGE)
    batch = tried[-1].step.batch if tried else None
    same = [taken for taken in tried if taken.step.batch == batch and taken.step.fraction is not None]
    good = [taken.step.fraction or 0.0 for taken in same if taken.status is Status.DONE]
    low = [taken.step.fraction or 0.0 for taken in same if taken.cause in _TOO_LOW]
    high = [taken.step.fraction or 0.0 for taken in same if taken.cause in _TOO_HIGH]
    if record.bounds.least is not None:
        least = min([record.bounds.least, *good])  # a fact beats arithmetic
        low.append(_tidy(least - _STEP))
    return Range(
        min(good, default=None), max(good, default=None), max(low, default=None), min(high, default=None), batch
    )


def failure(record: TuneRecord) -> str | None:
    """A cause that says neither too low nor too high: it ends the search."""
    for taken in record.of(Phase.RANGE):
        if taken.status is Status.FAILED and taken.cause not in _TOO_LOW | _TOO_HIGH:
            return f"{taken.cause}: {taken.reason}"
    return None


def next_launch(record: TuneRecord) -> Step | None:
    """The next fraction to launch; None where the range is known, or the launches for it are used up."""
    left = MOST_LAUNCHES - len(record.of(Phase.RANGE))
    if left <= 0 or failure(record) is not None:
        return None
    known = found(record)
    least = known.below if known.below is not None else _LOW
    most = known.above if known.above is not None else _HIGH
    if _apart(least, most) <= 1:
        return _smaller_graphs(record, known)
    if known.low is None or known.high is None:
        return _first(record, known, least, most)
    if _apart(least, known.low) > 1 and (known.below is None or left > 1):
        lower = known.below is not None and record.bounds.least is not None
        value = _tidy(least + _STEP) if lower else _middle(least, known.low)
        why = "lower end by the ledger" if lower else f"between {least:.2f} and {known.low:.2f}"
        return _launch(record, value, why, known.batch)
    if _apart(known.high, most) > 1:
        return _launch(record, *_upper(record, known.high, most, left), known.batch)
    return None


def _launch(record: TuneRecord, fraction: float, why: str, batch: int | None) -> Step:
    return Step(Phase.RANGE, why, fraction, record.start, batch)


def _first(record: TuneRecord, known: Range, least: float, most: float) -> Step:
    """Nothing has started yet: at the ledger's end where it knows one, else as the profile has it."""
    if not record.of(Phase.RANGE) and record.bounds.least is None:
        own = record.fraction if record.fraction is not None else 0.85
        return _launch(record, _tidy(own), "as the profile has it: a start measures weights and draft too", known.batch)
    if record.bounds.least is not None and record.bounds.least > least:
        return _launch(
            record,
            _tidy(record.bounds.least),
            "lower end by the ledger: nothing is left for the pool below it",
            known.batch,
        )
    return _launch(record, _middle(least, most), f"between {least:.2f} and {most:.2f}", known.batch)


def _middle(low: float, high: float) -> float:
    return int(round((low + high) * 50, 3)) / 100


def _upper(record: TuneRecord, low: float, high: float, left: int) -> tuple[float, str]:
    """Halving, or the ledger's estimate as far as halving can still end in the launches that are left."""
    room = 2 ** (left - 1)  # steps between neighbours that the launches after this one can tell apart
    middle, guess = _middle(low, high), record.bounds.most
    if guess is None or not low < guess < high:
        return middle, f"between {low:.2f} and {high:.2f}"
    least, most = _tidy(high - room * _STEP), _tidy(low + room * _STEP)
    value = min(max(_tidy(guess), least), most) if least <= most else _tidy(guess)
    value = min(max(value, _tidy(low + _STEP)), _tidy(high - _STEP))
    return value, f"the ledger leaves room to about {guess:.2f}" if value == _tidy(
        guess
    ) else f"between {low:.2f} and {high:.2f}"


def _smaller_graphs(record: TuneRecord, known: Range) -> Step | None:
    """Where too low and too high meet, a smaller graph batch makes room; None where something starts, or none is smaller."""
    batch = known.batch or record.batch
    need = max((point.concurrency or 1 for point in record.bench.points), default=1)
    if known.low is not None or batch is None or batch // 2 < need:
        return None
    fraction = known.above if known.above is not None else known.below
    why = f"no fraction has room for graphs up to {batch}: half of it"
    return _launch(record, _tidy(fraction or 0.85), why, batch // 2)
