"""The economics of speculation from stored results: a baseline and a speculative configuration of one bench and load."""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tui.core.errors import Slug, UsageError
from tui.core.hints import Action, Hint
from tui.core.model.profile import LoadPoint
from tui.core.model.result import Result, SpecConfig
from tui.core.speculation import economics, prediction
from tui.core.speculation.economics import Economics, SimulatedCurve
from tui.core.speculation.prediction import DRAFT_TOKENS, Prediction
from tui.core.verdicts import pairing
from tui.core.verdicts.comparison import one_configuration
from tui.core.verdicts.metric import DEFAULT, METRICS
from tui.core.verdicts.pairing import Launch, Side
from tui.core.verdicts.sentences import count

Rows = Callable[[str], Sequence[dict[str, Any]]]
_FORCED = "simulated_acceptance"  # the guard that fails on purpose here
_MAX_RUNNING = 48  # what SGLang takes with speculation unless it is set otherwise
_ROOMY = 0.5  # of the baseline's KV pool: what needs less is taken to fit beside a draft, which nobody has measured


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
    own = [result for result in spec.results if pairing.forced_accept_length(result) is None]
    if own:
        spec = one_configuration(replace(spec, results=tuple(own)), reasons)
    else:
        spec = replace(spec, results=tuple(result for group in forced.values() for result in group))
    _check_roles(base, spec)
    rate = METRICS[DEFAULT]
    base_launches = pairing.launches(base.results, rate)
    spec_launches = [launch for launch in pairing.launches(spec.results, rate) if _cycle(launch) is not None]
    for side, having, what in ((base, base_launches, "rate per user"), (spec, spec_launches, "time of a cycle")):
        if not having:
            raise UsageError(
                f"{side.name}: no run that counts has a {what}", Hint(Action.BENCH), slug=Slug.NOT_COMPARABLE
            )
    base_tok_s = pairing.mean_of(base_launches)
    cycle_ms = statistics.geometric_mean(cycle for launch in spec_launches if (cycle := _cycle(launch)) is not None)
    spec_tok_s = pairing.mean_of(spec_launches)
    tau, why_not = _usable_tau(spec, forced=not own)
    reasons += why_not
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
    point = next((result.point for result in base.results), None)
    return Payoff(base, spec, found, _simulated(forced, base_tok_s), point)


def _usable_tau(spec: Side, *, forced: bool) -> tuple[float | None, list[str]]:
    """The accept length of a side, or why it says nothing."""
    if any(pairing.random_tokens(result) for result in spec.results):
        return None, ["random tokens say nothing about acceptance: the cycle and the break-even hold, tau is left out"]
    if forced:
        return None, [
            "acceptance was forced: the cycle and the break-even hold, tau says nothing about the draft model"
        ]
    return _tau(spec.results), []


def _simulated(forced: Mapping[float, Sequence[Result]], base_tok_s: float) -> SimulatedCurve | None:
    found = {length: pairing.launches(group, METRICS[DEFAULT]) for length, group in forced.items()}
    return economics.fit_simulated(
        [(length, pairing.mean_of(group) / base_tok_s) for length, group in found.items() if group]
    )


def predictions(
    base: Side, draft_ms: float | None = None, config: SpecConfig | None = None, stored: Iterable[Result] = ()
) -> list[Prediction]:
    """What speculation would do at each load of a baseline of one bench: calibrated where that can be, else from its sweep.

    Args:
        draft_ms: of one cycle's drafts, where it is known.
        config: of the draft; that of the newest run with forced acceptance, else a chain of three steps, where it is not said.
        stored: results among which runs with forced acceptance in the baseline's setting are looked for.

    Raises UsageError where neither is possible at any load.
    """
    base = one_configuration(base, [])
    _no_speculation(base)
    by_load: dict[int, list[Result]] = {}
    steps_ms: dict[int, float] = {}
    for result in base.results:
        if result.load.concurrency:
            by_load.setdefault(result.load.concurrency, []).append(result)
    for load, runs in sorted(by_load.items()):
        if found := pairing.launches(runs, METRICS[DEFAULT]):
            steps_ms[load] = 1000 / pairing.mean_of(found)
    forced = _forced_in_settings(base, stored)
    spec = forced[-1] if forced else None
    config = config or (spec.server.spec if spec else None)
    tokens = (config.draft_tokens if config else None) or DRAFT_TOKENS
    made = []
    for load, step_ms in steps_ms.items():
        here = [result for result in forced if result.load.concurrency == load]
        cycles = [cycle for launch in pairing.launches(here, METRICS[DEFAULT]) if (cycle := _cycle(launch)) is not None]
        one = (
            prediction.calibrated(load, tokens, step_ms, cycles)
            if cycles
            else prediction.predict(steps_ms, load, tokens, config.steps if config else None, draft_ms)
        )
        if one is not None:
            made.append(replace(one, reasons=(*one.reasons, *_limits(load, by_load[load], spec))))
    if not made:
        loads = ", ".join(str(load) for load in steps_ms) or "none"
        raise UsageError(
            f"{base.name} was measured at concurrency {loads}: an estimate takes two loads",
            f"measure the baseline at concurrency 1 and {tokens}, or name a result with speculation too",
            slug=Slug.NOT_COMPARABLE,
        )
    return made


def _forced_in_settings(base: Side, stored: Iterable[Result]) -> list[Result]:
    """Runs with forced acceptance on the same host, model, bench and loads, of the draft measured last; by time."""
    settings = {pairing.setting(result) for result in base.results}
    side = replace(base, results=tuple(result for result in stored if pairing.setting(result) in settings))
    runs = sorted(
        (result for group in _forced(side).values() for result in group),
        key=lambda result: pairing.when(result.started_at),
    )
    return [result for result in runs if result.server.spec == runs[-1].server.spec]


def _limits(users: int, base: Sequence[Result], spec: Result | None) -> list[str]:
    """What would keep so many requests from running at once on a server with speculation.

    Both limits are a replica's (`dp_size`). `spec` is a run on such a server; without one SGLang's default cap holds, unless
    the baseline was given another, and of the pool no more is known than that it is smaller than the baseline's.
    """
    server = (spec or base[0]).server
    said = []
    cap = server.args.get("max_running_requests", _MAX_RUNNING)
    if isinstance(cap, int) and users > cap:
        said.append(
            f"a server with speculation runs {cap} requests at once here (max-running-requests): of {users} users "
            f"{users - cap} queue, which is not in the estimate"
        )
    pool, replicas = server.args.get("max_total_num_tokens"), server.args.get("dp_size")
    tokens = next((each for result in base if (each := _tokens_a_request(result)) is not None), None)
    if not isinstance(pool, int) or tokens is None:
        return said
    pool *= replicas if isinstance(replicas, int) and replicas > 0 else 1
    need = users * tokens
    if spec is not None and need > pool:
        said.append(
            f"{users} requests of {tokens} tokens need {need:,} tokens of KV cache, the server with speculation has {pool:,}: "
            "requests queue or are retracted, which is not in the estimate"
        )
    if spec is None and need > pool * _ROOMY:
        said.append(
            f"{users} requests of {tokens} tokens need {need:,} tokens of KV cache, the baseline has {pool:,}, a server with "
            "speculation fewer: requests may queue or be retracted, which is not in the estimate"
        )
    return said


def _tokens_a_request(result: Result) -> int | None:
    """Prompt, by its mean where lengths differ, and the longest reply; None where either is not known."""
    prompt = result.load.input_len
    if prompt is None and result.counts.input_tokens is not None and result.counts.ok:
        prompt = round(result.counts.input_tokens / result.counts.ok)
    longest = result.load.output_len
    return prompt + longest if prompt is not None and longest is not None else None


def _forced(side: Side) -> dict[float, list[Result]]:
    """Runs with forced acceptance by length; the guard that says so does not count against them here."""
    found: dict[float, list[Result]] = {}
    for result in side.results:
        length = pairing.forced_accept_length(result)
        failed = {guard.id for guard in result.failed_guards}
        if length is not None and (result.valid or failed == {_FORCED}):
            found.setdefault(length, []).append(replace(result, valid=True))
    return dict(sorted(found.items()))


def _check_roles(base: Side, spec: Side) -> None:
    _no_speculation(base)
    if not any(result.server.spec is not None or result.speculation is not None for result in spec.results):
        raise UsageError(
            f"{spec.name} does not speculate: there is no cycle to compare",
            "name the baseline first, then a result with speculation",
            slug=Slug.NOT_COMPARABLE,
        )


def _no_speculation(base: Side) -> None:
    if any(result.server.spec is not None for result in base.results):
        raise UsageError(
            f"{base.name} speculates: a decode step of it is not a baseline",
            "name a result without speculation first",
            slug=Slug.NOT_COMPARABLE,
        )


def _cycle(launch: Launch) -> float | None:
    """Geometric mean of the cycle over the runs of a launch, ms."""
    cycles = [result.speculation.cycle_ms for result in launch.results if result.speculation]
    known = [cycle for cycle in cycles if cycle]
    return statistics.geometric_mean(known) if known else None


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
    pairs = pairing.pair_up(base_launches, spec_launches).pairs
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
