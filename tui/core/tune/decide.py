"""What to do next, by what is on record and nothing else: no host, no clock. The same record gives the same step."""

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from tui.core.tune import ranges
from tui.core.tune.record import Draft, Phase, Status, Step, Taken, TuneRecord
from tui.core.tune.surface import Estimate, Measured, Surface

MOST_LAUNCHES = 25
PAIRS = 3  # of the experiment at the end: the fewest that a verdict takes
CONFIRM_LAUNCHES = 2 * PAIRS
TOPKS = (1, 2, 4, 8)
STEPS = 5
_MOST_TOKENS = 32
_WORTH = 0.001  # a gain, as a log, below which a cell is not worth a launch
_DOUBT = 0.05  # a chance to be the best above which a cell is measured again
_MOST_REPEATS = 4  # launches of one cell
_OUT_OF_MEMORY = ("oom_kv_pool", "oom_cuda_graph", "oom_serving")


@dataclass(frozen=True)
class End:
    """There is nothing more to do."""

    outcome: str  # done, failed, budget
    message: str


@dataclass(frozen=True)
class Spot:
    """One field of the map, steps by top-k: the best number of draft tokens that is known, or why there is none."""

    steps: int
    topk: int
    draft: Draft | None = None
    state: str = "open"  # measured, failed, skipped, open
    launches: int = 0
    estimate: Estimate | None = None  # of what was not measured it is estimated
    why: str = ""  # skipped, failed


def next_step(record: TuneRecord) -> Step | End:
    """The step that should be taken now."""
    if (why := ranges.failure(record)) is not None and ranges.found(record).low is None:
        return End("failed", f"the profile does not start: {why}")
    if not record.of(Phase.SPECULATION) and (launch := ranges.next_launch(record)) is not None:
        return launch if _affordable(record, 1, 0) else _out(record)
    known = ranges.found(record)
    if known.used is None:
        return End("failed", f"no fraction was found that starts in {len(record.of(Phase.RANGE))} launches")
    if confirmed := record.of(Phase.CONFIRM):
        return _verdict(confirmed[-1])
    cell = next_cell(record)
    return cell if cell is not None and _affordable(record, 1, CONFIRM_LAUNCHES) else _confirm(record)


def next_cell(record: TuneRecord) -> Step | None:
    """The next launch for the speculation: the baseline, the start, then what can still change the answer; None: none."""
    tried = {taken.step.draft: taken for taken in record.of(Phase.SPECULATION)}
    first = [
        (None, "what a draft has to beat, and what break-even is counted by"),
        (record.start, "as the profile has it"),
    ]
    for draft, why in first:
        if draft not in tried:
            return _cell(record, draft, why)
    surface = surface_of(record)
    if record.start is None or record.goal == "ttft" or surface is None:
        return None
    best = _best_measured(record, surface)
    hopes = {draft: _gain(surface.of(draft), best.rate) for draft in _open(record)}
    draft = max(hopes, key=lambda one: hopes[one], default=None)
    if draft is not None and hopes[draft] > _WORTH:
        at = surface.of(draft)
        return _cell(
            record, draft, f"forecast {at.rate:.1f} ± {at.rate * at.deviation:.1f} tok/s, the best has {best.rate:.1f}"
        )
    return _again(record, surface)


def _cell(record: TuneRecord, draft: Draft | None, why: str) -> Step:
    known = ranges.found(record)
    return Step(Phase.SPECULATION, why, known.used, draft, known.batch)


def _again(record: TuneRecord, surface: Surface) -> Step | None:
    """The leader or its closest rival once more, on a fresh launch, while it is open which is better."""
    cells = measured(record)
    if len(cells) < 2 or record.goal != "tok_s":
        return None
    estimates = {draft: surface.of(draft) for draft in cells}
    leader = max(estimates, key=lambda draft: estimates[draft].rate)
    doubts = {draft: _beats(estimates[draft], estimates[leader]) for draft in cells if draft != leader}
    rival = max(doubts, key=lambda draft: doubts[draft])
    if doubts[rival] < _DOUBT:
        return None
    fewer = min((leader, rival), key=lambda draft: cells[draft].launches)
    if cells[fewer].launches >= _MOST_REPEATS:
        return None
    return _cell(record, fewer, f"{leader} or {rival}: {doubts[rival] * 100:.0f} % chance that the second is better")


def _gain(cell: Estimate, best: float) -> float:
    """By how much a cell is expected to better the best, as a log: nothing where it turns out worse."""
    z = math.log(cell.rate / best) / cell.deviation
    normal = statistics.NormalDist()
    return cell.deviation * (normal.pdf(z) + z * normal.cdf(z))


def _beats(cell: Estimate, leader: Estimate) -> float:
    spread = math.hypot(cell.deviation, leader.deviation)
    return statistics.NormalDist().cdf(math.log(cell.rate / leader.rate) / spread)


# -- what is known of the cells ---------------------------------------------------------------------------------------


def measured(record: TuneRecord) -> dict[Draft, Measured]:
    """The cells with a figure that counts, over their launches."""
    found: dict[Draft, list[Taken]] = {}
    for taken in record.of(Phase.SPECULATION):
        if taken.step.draft is not None and taken.rate and taken.accept_length and taken.cycle_ms:
            found.setdefault(taken.step.draft, []).append(taken)
    return {
        draft: Measured(
            draft,
            statistics.geometric_mean(taken.rate or 0.0 for taken in launches),
            statistics.fmean(taken.accept_length or 0.0 for taken in launches),
            statistics.geometric_mean(taken.cycle_ms or 0.0 for taken in launches),
            len(launches),
        )
        for draft, launches in found.items()
    }


def baseline(record: TuneRecord) -> float | None:
    """tok/s per user without speculation; None where it was not measured."""
    rates = [taken.rate for taken in record.of(Phase.SPECULATION) if taken.step.draft is None and taken.rate]
    return statistics.geometric_mean(rates) if rates else None


def surface_of(record: TuneRecord) -> Surface | None:
    """The fitted model; None without a baseline and a cell."""
    cells, base = measured(record), baseline(record)
    return _fitted(tuple(cells.values()), base) if cells and base else None


@lru_cache(maxsize=8)
def _fitted(cells: tuple[Measured, ...], base: float) -> Surface:
    return Surface(cells, base)


def _best_measured(record: TuneRecord, surface: Surface) -> Estimate:
    return max((surface.of(draft) for draft in measured(record)), key=lambda cell: cell.rate)


def drafts(record: TuneRecord) -> dict[tuple[int, int], list[Draft]]:
    """By steps and top-k, the numbers of draft tokens that say something: a chain has one, a tree from one branch to all."""
    most = max(STEPS, record.start.steps if record.start else 0)
    fields: dict[tuple[int, int], list[Draft]] = {}
    for steps in range(1, most + 1):
        for topk in TOPKS:
            tokens = [steps + 1] if topk == 1 else range(steps + 2, min(steps * topk + 1, _MOST_TOKENS) + 1)
            fields[steps, topk] = [Draft(steps, topk, count) for count in tokens]
    if record.start is not None and record.start.tokens > 1:
        own = fields.setdefault((record.start.steps, record.start.topk), [])
        own += [record.start] if record.start not in own else []
    return fields


def _too_many(record: TuneRecord) -> Taken | None:
    """The launch with the fewest draft tokens for which memory did not suffice."""
    died = [t for t in record.of(Phase.SPECULATION) if t.cause in _OUT_OF_MEMORY and t.step.draft is not None]
    return min(died, key=lambda taken: taken.step.draft.tokens if taken.step.draft else 0, default=None)


def _tokens_most(record: TuneRecord) -> int:
    """The most draft tokens worth a launch: after one that died, halfway back to the most that started."""
    died = _too_many(record)
    if died is None or died.step.draft is None:
        return _MOST_TOKENS
    started = [draft.tokens for draft in measured(record) if draft.tokens < died.step.draft.tokens]
    return (max(started, default=1) + died.step.draft.tokens) // 2


def _open(record: TuneRecord) -> list[Draft]:
    """The drafts that were not tried and may still be: there is memory for them."""
    tried = {taken.step.draft for taken in record.of(Phase.SPECULATION)}
    most = _tokens_most(record)
    return [draft for some in drafts(record).values() for draft in some if draft not in tried and draft.tokens <= most]


def spots(record: TuneRecord) -> Mapping[tuple[int, int], Spot]:
    """The map, steps by top-k: each field with its best draft, or why it is not tried."""
    surface = surface_of(record)
    if surface is None:
        return {place: Spot(*place) for place in drafts(record)} if record.start is not None else {}
    cells = measured(record)
    best = _best_measured(record, surface)
    hopeful = set(_open(record))
    found = {}
    for place, some in drafts(record).items():
        here = [draft for draft in some if draft in cells]
        if here:
            draft = max(here, key=lambda one: surface.of(one).rate)
            found[place] = Spot(*place, draft, "measured", cells[draft].launches, surface.of(draft))
        else:
            found[place] = _unmeasured(record, surface, place, [one for one in some if one in hopeful], best)
    return found


def _unmeasured(
    record: TuneRecord, surface: Surface, place: tuple[int, int], left: list[Draft], best: Estimate
) -> Spot:
    died = [
        t for t in record.of(Phase.SPECULATION) if t.step.draft and (t.step.draft.steps, t.step.draft.topk) == place
    ]
    if not left:
        if died:
            return Spot(*place, died[-1].step.draft, "failed", 1, None, str(died[-1].cause or "no run counts"))
        limit = _too_many(record)
        why = f"{limit.step.draft.tokens} draft tokens: {limit.cause}" if limit and limit.step.draft else "not tried"
        return Spot(*place, state="skipped", why=why)
    draft = max(left, key=lambda one: surface.of(one).rate)
    at = surface.of(draft)
    reachable = (place[0] + 1) * 1000 / at.cycle_ms
    if reachable < best.rate:
        why = f"at most {reachable:.1f} tok/s"  # with every draft accepted
        return Spot(*place, draft, "skipped", 0, at, why)
    if _gain(at, best.rate) <= _WORTH:
        return Spot(*place, draft, "skipped", 0, at, f"estimate {at.rate:.1f} ± {at.rate * at.deviation:.1f}")
    return Spot(*place, draft, "open", 0, at)


# -- the end ----------------------------------------------------------------------------------------------------------


def best_cell(record: TuneRecord) -> Draft | None:
    """The draft that is best by what was measured; None where none was."""
    surface, cells = surface_of(record), measured(record)
    if surface is None or not cells:
        return None
    if record.goal == "tok_s":
        return max(cells, key=lambda draft: surface.of(draft).rate)
    values = {draft: value for draft in cells if (value := goal_value(record, draft)) is not None}
    pick = min if record.goal == "ttft" else max
    return pick(values, key=lambda draft: values[draft]) if values else None


def goal_value(record: TuneRecord, draft: Draft | None) -> float | None:
    """The goal's figure of a cell, or without speculation: the median of its launches; None where none counts."""
    values = [t.value for t in record.of(Phase.SPECULATION) if t.step.draft == draft and t.value is not None]
    return statistics.median(values) if values else None


def winner(record: TuneRecord) -> Draft | None:
    """The best setting; None: no speculation."""
    best = best_cell(record)
    own, base = (goal_value(record, one) for one in (best, None))
    if best is None or base is None or own is None:
        return best if base is None else None
    return best if (own < base if record.goal == "ttft" else own > base) else None


def _confirm(record: TuneRecord) -> Step | End:
    if not any(taken.value is not None for taken in record.of(Phase.SPECULATION)):
        causes = {taken.cause or "no run counts" for taken in record.of(Phase.SPECULATION)}
        said = ", ".join(sorted(causes)) or "no launch was left for it"
        return End("failed", f"{ranges.found(record).text}; nothing was measured: {said}")
    best = winner(record)
    if best == record.start:
        none = "the profile does not speculate: the range alone was looked for"
        own = "the start is the best of what was measured: there is nothing to confirm"
        return End("done", own if record.start is not None else none)
    if not _affordable(record, CONFIRM_LAUNCHES, 0):
        return _out(record)
    known = ranges.found(record)
    why = f"{PAIRS} launch pairs: nothing is called faster before that"
    return Step(Phase.CONFIRM, why, known.used, best, known.batch)


def _verdict(confirmed: Taken) -> End:
    if confirmed.status is Status.FAILED:
        return End("failed", f"not confirmed: {confirmed.reason}")
    return End("done", confirmed.verdict or "no verdict")


def launch_length_s(record: TuneRecord) -> float | None:
    """What one more launch takes: as the measured ones here, else as earlier starts say."""
    spent = [taken.spent_s for taken in record.of(Phase.SPECULATION) if taken.spent_s and taken.status is Status.DONE]
    spent = spent or [taken.spent_s for taken in record.of(Phase.RANGE) if taken.status is Status.DONE]
    return statistics.median(spent) if spent else record.launch_s


def kept_s(record: TuneRecord) -> float:
    """What the budget keeps for the experiment at the end."""
    return CONFIRM_LAUNCHES * (launch_length_s(record) or 0.0)


def _affordable(record: TuneRecord, launches: int, kept: int) -> bool:
    if record.launches + launches + kept > MOST_LAUNCHES:
        return False
    if record.budget_h is None:
        return True
    return record.spent_s + (launches + kept) * (launch_length_s(record) or 0.0) <= record.budget_h * 3600


def _out(record: TuneRecord) -> End:
    hours = f"the budget of {record.budget_h:g} h" if record.budget_h is not None else f"{MOST_LAUNCHES} launches"
    return End("budget", f"{hours} leave no room for more after {record.launches} launches, nothing is confirmed")
