"""The economics of speculation from stored results: a baseline and a speculative configuration of one bench and load."""

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tui.core.decide import economics
from tui.core.decide.cases import one_configuration
from tui.core.decide.economics import Economics, Prediction, SimulatedCurve
from tui.core.decide.pairing import Launch, Side, forced_accept_length, launches, pair_up, random_tokens
from tui.core.decide.phrases import count
from tui.core.decide.yardsticks import DEFAULT, METRICS
from tui.core.errors import UsageError
from tui.core.measure.model import GuardStatus, LoadPoint, Result, SpecConfig

Rows = Callable[[str], Sequence[dict[str, Any]]]
_FORCED = "simulated_acceptance"  # the guard that fails on purpose here


@dataclass(frozen=True)
class Payoff:
    """What results say about speculation at one load."""

    base: Side
    spec: Side
    economics: Economics
    simulated: SimulatedCurve | None = None
    point: LoadPoint | None = None


def payoff(base: Side, spec: Side, *, draft_ms: float | None = None, rows: Rows | None = None) -> Payoff:
    """The economics of two sides of one setting (`pairing.matched`).

    Args:
        draft_ms: of one cycle's drafts, where it is known, to tell the verify step from the cycle.
        rows: gives a result's raw rows (`store.rows`), for an interval where there are no three launch pairs.

    Raises UsageError (slug not_comparable) where the baseline speculates, the other does not, or figures are missing.
    """
    reasons: list[str] = []
    base = one_configuration(base, reasons)
    forced = _forced(spec)
    own = [result for result in spec.results if forced_accept_length(result) is None]
    if own:
        spec = one_configuration(replace(spec, results=tuple(own)), reasons)
    else:
        spec = replace(spec, results=tuple(result for group in forced.values() for result in group))
    _check_roles(base, spec)
    rate = METRICS[DEFAULT]
    base_launches = launches(base.results, rate)
    spec_launches = [launch for launch in launches(spec.results, rate) if _cycle(launch) is not None]
    for side, having, what in (
        (base, base_launches, "rate per user"),
        (spec, spec_launches, "time of a cycle"),
    ):
        if not having:
            raise UsageError(
                f"{side.name}: no run that counts has a {what}",
                "measure it with eagletui bench",
                slug="not_comparable",
            )
    base_tok_s = _geometric(launch.datum for launch in base_launches)
    cycle_ms = _geometric(math.log(_cycle(launch) or 0.0) for launch in spec_launches)
    spec_tok_s = _geometric(launch.datum for launch in spec_launches)
    tau: float | None = _tau(spec.results)
    if any(random_tokens(result) for result in spec.results):
        tau = None
        reasons.append(
            "random tokens say nothing about acceptance: the cycle and the break-even hold, tau is left out"
        )
    elif not own:
        tau = None
        reasons.append(
            "acceptance was forced: the cycle and the break-even hold, tau says nothing about the draft model"
        )
    ratio = cycle_ms * base_tok_s / 1000
    interval, basis = _interval(base, spec, base_launches, spec_launches, rows, ratio)
    config = next((result.server.spec for result in spec.results if result.server.spec), None)
    steps, ceiling, chain = _draft(config)
    found = Economics(
        base_tok_s,
        cycle_ms,
        tau,
        t_verify_ms=cycle_ms - draft_ms if draft_ms is not None else None,
        t_draft_ms=draft_ms,
        steps=steps,
        ceiling=ceiling,
        chain=chain,
        interval=interval,
        basis=basis,
        measured_speedup=spec_tok_s / base_tok_s if tau is not None else None,
        reasons=tuple(reasons),
    )
    curve = economics.fit_simulated(
        [
            (length, _geometric(launch.datum for launch in group_launches) / base_tok_s)
            for length, group in forced.items()
            if (group_launches := launches(group, rate))
        ]
    )
    point = next((result.point for result in base.results), None)
    return Payoff(base, spec, found, curve, point)


def predictions(
    base: Side, draft_ms: float = 0.0, draft_tokens: int = economics.DRAFT_TOKENS
) -> list[Prediction]:
    """What speculation would do at each load that the baseline's concurrency sweep reaches far enough for.

    Raises UsageError where it reaches for none.
    """
    base = one_configuration(base, [])
    _no_speculation(base)
    steps_ms: dict[int, float] = {}
    for concurrency in sorted(
        {result.load.concurrency for result in base.results if result.load.concurrency}
    ):
        here = [result for result in base.results if result.load.concurrency == concurrency]
        if found := launches(here, METRICS[DEFAULT]):
            steps_ms[concurrency] = 1000 / _geometric(launch.datum for launch in found)
    made = [
        prediction
        for concurrency in steps_ms
        if (prediction := economics.predict(steps_ms, concurrency, draft_tokens, draft_ms)) is not None
    ]
    if not made:
        loads = ", ".join(str(load) for load in steps_ms) or "none"
        raise UsageError(
            f"{base.name} was measured at concurrency {loads}: not at one load and at {draft_tokens} times it",
            f"measure the baseline at concurrency 1 and {draft_tokens}, or name a result with speculation too",
            slug="not_comparable",
        )
    return made


def _geometric(logs: Iterable[float]) -> float:
    return math.exp(statistics.fmean(logs))


def _forced(side: Side) -> dict[float, list[Result]]:
    """Runs with forced acceptance by length; the guard that says so does not count against them here."""
    found: dict[float, list[Result]] = {}
    for result in side.results:
        length = forced_accept_length(result)
        failed = {guard.id for guard in result.guards if guard.status is GuardStatus.FAILED}
        if length is not None and (result.valid or failed == {_FORCED}):
            found.setdefault(length, []).append(replace(result, valid=True))
    return dict(sorted(found.items()))


def _check_roles(base: Side, spec: Side) -> None:
    _no_speculation(base)
    if not any(result.server.spec is not None or result.speculation is not None for result in spec.results):
        raise UsageError(
            f"{spec.name} does not speculate: there is no cycle to compare",
            "name the baseline first, then a result with speculation",
            slug="not_comparable",
        )


def _no_speculation(base: Side) -> None:
    if any(result.server.spec is not None for result in base.results):
        raise UsageError(
            f"{base.name} speculates: a decode step of it is no baseline",
            "name a result without speculation first",
            slug="not_comparable",
        )


def _cycle(launch: Launch) -> float | None:
    """Geometric mean of the cycle over the runs of a launch, ms."""
    cycles = [result.speculation.cycle_ms for result in launch.results if result.speculation]
    known = [cycle for cycle in cycles if cycle]
    return _geometric(math.log(cycle) for cycle in known) if known else None


def _tau(results: Sequence[Result]) -> float | None:
    """Over all runs that count: a ratio of sums where the counts are there, else the mean."""
    runs = [result.speculation for result in results if result.valid and result.speculation]
    counted = [run for run in runs if run.verify_steps and run.tau is not None]
    if counted and len(counted) == len(runs):
        steps = sum(run.verify_steps or 0 for run in counted)
        return sum((run.tau or 0.0) * (run.verify_steps or 0) for run in counted) / steps
    taus = [run.tau for run in runs if run.tau is not None]
    return statistics.fmean(taus) if taus else None


def _draft(config: SpecConfig | None) -> tuple[int | None, int | None, bool]:
    """(steps, longest accept length, whether it is a chain): one token a step and the bonus token."""
    if config is None:
        return None, None, False
    if config.steps is not None:
        return config.steps, config.steps + 1, config.topk in (None, 1)
    return None, config.draft_tokens, False


def _interval(
    base: Side,
    spec: Side,
    base_launches: Sequence[Launch],
    spec_launches: Sequence[Launch],
    rows: Rows | None,
    ratio: float,
) -> tuple[tuple[float, float] | None, str | None]:
    """Of the break-even: over launch pairs where there are three, else over requests."""
    pairs = pair_up(base_launches, spec_launches).pairs
    over = economics.over_launches([(1000 / math.exp(a.datum), _cycle(b) or 0.0) for a, b in pairs])
    if over is not None:
        return over, f"{len(pairs)} launch pairs"
    if rows is None:
        return None, None
    of_requests = economics.over_requests(_raw(base, rows), _raw(spec, rows), ratio)
    if of_requests is None:
        return None, None
    launched = count(min(len(base_launches), len(spec_launches)), "launch", "launches")
    return of_requests, f"requests of {launched}; the next launch is not in it"


def _raw(side: Side, rows: Rows) -> list[dict[str, Any]]:
    return [row for result in side.results if result.valid for row in rows(result.result_id)]
