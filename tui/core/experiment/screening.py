"""What follows once every launch of an experiment is made: another try, the next rung, the confirmation, or nothing.

A halving goes on rung by rung (`halving`) until one arm is left. That one is confirmed against the reference on fresh
launch pairs: a winner was chosen for its figures, which therefore flatter it, so none of them is in the verdict.
Every decision is in the record with its reason, and is not made again when the experiment is resumed.
"""

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from tui.core.experiment import halving
from tui.core.experiment.halving import Entrant
from tui.core.experiment.record import Dropped, ExperimentRecord
from tui.core.experiment.so_far import measured, to_make_up
from tui.core.experiment.state import BUDGET, still_in
from tui.core.model.experiment import ArmStatus
from tui.core.model.profile import REFERENCE
from tui.core.model.result import Result
from tui.core.model.verdict import Noise
from tui.core.results import store
from tui.core.verdicts.metric import default_for, metric
from tui.core.verdicts.pairing import launches, noise_of, setting
from tui.core.verdicts.sentences import count, percent

_TRIES = 2  # launches of an arm on one rung, where the first gave nothing for a cause that may pass


@dataclass(frozen=True)
class Step:
    """The record with what was decided, and with the launches that follow from it."""

    record: ExperimentRecord
    said: str  # one sentence


@dataclass(frozen=True)
class _Measured:
    """What the launches of a screening say, at the first load of the bench."""

    entrants: Mapping[str, Entrant]  # by letter, those with a launch that counts
    visible: float  # by one launch each, as a log ratio
    known: bool  # whether that is from the noise of the host
    runs: int

    def seen(self, one: str, other: str) -> float:
        """What the launches of two arms can see between them."""
        return self.visible * math.sqrt(sum(1 / self.entrants[name].launches for name in (one, other)) / 2)

    def ratio(self, one: str, other: str = REFERENCE) -> float:
        return math.exp(self.entrants[one].datum - self.entrants[other].datum)


def further(record: ExperimentRecord, results: Mapping[str, Result]) -> Step | None:
    """What follows where every launch is made; None: the experiment is over. `results` are its own, by id."""
    if record.halving and record.finalist is None:
        return _after_rung(record, results)
    if arms := to_make_up(record, results):
        said = f"one more round of {' and '.join(sorted(arms))} for a pair that does not count"
        return Step(record.with_round(arms), said)
    return None


def ending(record: ExperimentRecord) -> str:
    """How an experiment ended that has no launch left to make."""
    if not record.halving or record.finalist is not None:
        return "done"
    if any(one.ratio is not None for one in record.dropped):
        return f"no arm looks faster than {REFERENCE}: there is nothing to confirm"
    return f"nothing to compare: {REFERENCE} or all others gave nothing that counts"


def cut_short(record: ExperimentRecord) -> ExperimentRecord:
    """Without the launches of the screening that are not begun: what is left of the budget is for the confirmation."""
    why = "the rest of the budget is kept for the confirmation"
    cells = (
        cell if cell.over or cell.rung is None else replace(cell, status=ArmStatus.SKIPPED, cause=BUDGET, reason=why)
        for cell in record.cells
    )
    return replace(record, cells=tuple(cells))


def _after_rung(record: ExperimentRecord, results: Mapping[str, Result]) -> Step | None:
    left = still_in(record)
    if left <= {REFERENCE}:
        return None
    rung = max(cell.rung or 0 for cell in record.cells)
    cut = any(cell.cause == BUDGET for cell in record.cells)
    if not cut and (again := _once_more(record, results, rung, left)):
        said = f"one more launch of {' and '.join(sorted(again))}: the first on this rung gave nothing that counts"
        return Step(record.with_round(again, rung), said)
    found = _figures(record, results)
    others = sorted(left - {REFERENCE})
    if REFERENCE not in left or REFERENCE not in found.entrants:
        why = f"{REFERENCE}, the reference, has no launch that counts"
        return Step(_without(record, rung, {letter: why for letter in others}, found), why)
    reasons = {letter: "no launch that counts" for letter in others if letter not in found.entrants}
    entrants = [found.entrants[letter] for letter in others if letter in found.entrants]
    if not entrants:
        return Step(_without(record, rung, reasons, found), "nothing of the screening counts")
    choice = halving.choose(entrants, found.visible)
    worst = choice.kept[math.ceil(len(entrants) / 2) - 1].name
    for one in choice.dropped:
        reasons[one.name] = (
            f"{_short(found, one.name, worst)} {worst}, the worst of the better half, {_seen(found, one.name, worst)}"
        )
    if len(choice.kept) > 1 and not cut and rung < len(halving.rungs(len(record.profile.arms) - 1)):
        record = _without(record, rung, reasons, found)
        names = ", ".join(sorted(one.name for one in choice.kept))
        said = f"rung {rung}: {names} go on with another launch each; {_basis(found)}"
        return Step(record.with_round(still_in(record), rung + 1), said)
    best, *close = (one.name for one in choice.kept)
    for letter in close:
        reasons[letter] = (
            f"{_short(found, letter, best)} {best}, {_seen(found, letter, best)}: not the best, and not told apart from it for sure"
        )
    return _to_confirm(record, rung, best, reasons, found)


def _to_confirm(record: ExperimentRecord, rung: int, best: str, reasons: dict[str, str], found: _Measured) -> Step:
    """The best one goes on to fresh pairs with the reference, unless it is visibly worse."""
    if -math.log(found.ratio(best)) > found.seen(best, REFERENCE):
        reasons[best] = f"the best, but {_short(found, best, REFERENCE)} {REFERENCE}, {_seen(found, best, REFERENCE)}"
        return Step(_without(record, rung, reasons, found), f"{best} is the best, and looks slower than {REFERENCE}")
    record = _without(record, rung, reasons, found)
    for _ in range(record.profile.pairs):
        record = record.with_round({REFERENCE, best})
    pairs = count(record.profile.pairs, "fresh launch pair")
    return Step(
        record,
        f"{best} is the best of the screening, {found.ratio(best):.2f}x of {REFERENCE}: {pairs} confirm or refute it",
    )


def _once_more(record: ExperimentRecord, results: Mapping[str, Result], rung: int, left: Iterable[str]) -> set[str]:
    """The arms without a launch that counts on this rung, which have a try left."""
    again = set()
    for letter in left:
        cells = [cell for cell in record.cells if cell.rung == rung and cell.arm == letter]
        names = {name for cell in cells if cell.status is ArmStatus.MEASURED for name in cell.result_ids}
        counts = any(name in results and results[name].valid for name in names)
        if cells and not counts and len(cells) < _TRIES:
            again.add(letter)
    return again


def _figures(record: ExperimentRecord, results: Mapping[str, Result]) -> _Measured:
    point = record.bench.points[0]
    chosen = metric(default_for(point))
    of_screening = {name for cell in record.cells if cell.rung is not None for name in cell.result_ids}
    here = [r for r in measured(record, results) if r.point == point and r.result_id in of_screening]
    by_arm: dict[str, list[Result]] = {}
    for result in here:
        by_arm.setdefault(result.arm or "", []).append(result)
    entrants = {}
    for letter, own in by_arm.items():
        if found := launches(own, chosen):
            entrants[letter] = Entrant(letter, statistics.fmean(launch.datum for launch in found), len(found))
    like = next((setting(result) for result in here if result.valid), None)
    noise: Noise | None = noise_of(store.read_all(), chosen, like) if like is not None else None
    runs = record.bench.runs
    return _Measured(entrants, halving.visible(noise, runs), halving.is_known(noise), runs)


def _without(record: ExperimentRecord, rung: int, reasons: Mapping[str, str], found: _Measured) -> ExperimentRecord:
    """Less these arms, each with why."""
    out = []
    for letter, reason in sorted(reasons.items()):
        entrant = found.entrants.get(letter)
        compared = entrant is not None and REFERENCE in found.entrants
        times = entrant.launches if entrant is not None else 0
        single = ", single run (L0)" if times == 1 and found.runs == 1 else ""
        ratio = found.ratio(letter) if compared else None
        head = (
            f"{count(times, 'launch', 'launches')}: {ratio:.2f}x of {REFERENCE}{single}; " if ratio is not None else ""
        )
        out.append(Dropped(letter, rung, times, ratio, head + reason))
    return replace(record, dropped=(*record.dropped, *out))


def _short(found: _Measured, letter: str, other: str) -> str:
    return f"{percent(1 - found.ratio(letter, other))} % below"


def _seen(found: _Measured, one: str, other: str) -> str:
    return f"where so many launches see {percent(math.expm1(found.seen(one, other)))} %"


def _basis(found: _Measured) -> str:
    shown = f"one launch each sees {percent(math.expm1(found.visible))} %"
    source = "by the noise of this host" if found.known else f"a launch CV of {halving.ASSUMED_CV * 100:g} % assumed"
    return f"{shown}, {source}"
