"""What `eagletui compare` and `eagletui breakeven` do."""

import contextlib
import string
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tui.commands.output import emit, say
from tui.core.bench import allreduce
from tui.core.errors import Slug, UsageError
from tui.core.experiment import planned
from tui.core.experiment.selection import side_of
from tui.core.model.profile import LoadPoint
from tui.core.model.verdict import ArmFigure, Verdict, VerdictKind
from tui.core.results import store
from tui.core.results.codec import to_json
from tui.core.server import launch_records
from tui.core.speculation.economics import Economics, curve, of_figures
from tui.core.speculation.from_results import Payoff, payoff, predictions
from tui.core.speculation.prediction import Prediction
from tui.core.speculation.verify_cost import VerifyCost, Weight, verify_cost
from tui.core.verdicts.judging import screened_words
from tui.core.verdicts.metric import METRICS, default_for, metric
from tui.core.verdicts.pairing import Side, launch_seconds, matched
from tui.core.verdicts.sentences import count, load_words, ref_words, two

_NAMES = string.ascii_uppercase
_CURVE_TO = 5.0  # accept length that a table without a known draft goes up to


def _point(concurrency: int | None, rate: float | None) -> LoadPoint | None:
    if concurrency is not None and rate is not None:
        raise UsageError("--concurrency and --rate exclude each other", "give one of them", slug=Slug.BAD_VALUE)
    return None if concurrency is None and rate is None else LoadPoint(concurrency, rate)


def compare_command(
    refs: tuple[str, ...],
    metric_name: str | None,
    concurrency: int | None,
    rate: float | None,
    margin: float | None,
    host: str | None,
    as_json: bool,
) -> int:
    """`eagletui compare`: 0 for any verdict, 1 where nothing that was asked can be compared."""

    if not 2 <= len(refs) <= len(_NAMES):
        raise UsageError(
            f"{count(len(refs), 'name')} given, and it takes 2 to {len(_NAMES)}",
            "name a reference, then what is held against it",
            slug=Slug.BAD_VALUE,
        )
    if len(set(refs)) < len(refs):
        raise UsageError("a name is given twice", "name different runs, results or profiles", slug=Slug.SAME_LAUNCHES)
    chosen, load = metric(metric_name) if metric_name is not None else None, _point(concurrency, rate)
    results, launched = store.read_all(), launch_records.read_all()
    base, *others = (side_of(name, ref, results, launched, host) for name, ref in zip(_NAMES, refs, strict=False))
    at_load: dict[LoadPoint | None, list[tuple[Side, Side]]] = {}
    for other in others:
        both = [(base, other)]
        if base.results and other.results:
            both = matched(base, other, load, host)
        for one, against in both:
            point = next((result.point for result in one.results or against.results), None)
            at_load.setdefault(point, []).append((one, against))
    launch_s = launch_seconds((base, *others), launched)
    verdicts = [
        verdict
        for point, asked in at_load.items()
        for verdict in planned.verdicts(
            asked, chosen or metric(default_for(point)), results, launch_s=launch_s, margin=margin
        )
    ]
    best = next((v for v in verdicts if v.verdict is not VerdictKind.INVALID), verdicts[0])
    if as_json:
        document = verdict_json(best)
        if len(verdicts) > 1:
            document["comparisons" if len(others) > 1 else "points"] = [verdict_json(v) for v in verdicts]
        emit(document)
    else:
        _print(verdicts, dict(zip(refs, _NAMES, strict=False)))
        if len(at_load) > 1:
            say("each load is a question of its own: with several, one may miss by chance")
            if said := screened_words(verdicts):
                say(f"of all loads together, {said}")
    return 1 if best.verdict is VerdictKind.INVALID else 0


def verdict_json(verdict: Verdict) -> dict[str, object]:
    """A verdict as scripts see it."""
    return {
        "metric": verdict.metric,
        "a": _figure_json(verdict.a, verdict.metric),
        "b": _figure_json(verdict.b, verdict.metric),
        "ratio": verdict.ratio,
        "ci": list(verdict.ci) if verdict.ci else None,
        "confidence": verdict.confidence,
        "n_pairs": verdict.n_pairs,
        "level": verdict.level,
        "verdict": verdict.verdict.value,
        "text": verdict.text,
        "point": verdict.point.label if verdict.point else None,
        "reasons": list(verdict.reasons),
        "facts": list(verdict.facts),
        "mde": verdict.mde,
        "by_chance": verdict.by_chance,
        "noise_floor": verdict.noise_floor,
        "same_text": to_json(verdict.same_text),
        "results": list(verdict.result_ids),
        "error": "invalid" if verdict.verdict is VerdictKind.INVALID else None,
    }


def _figure_json(figure: ArmFigure, name: str) -> dict[str, object]:
    rate = METRICS[name].unit == "tok/s"
    return {
        "ref": figure.ref,
        "tok_s": figure.tok_s if rate else None,
        "value": figure.tok_s,
        "launches": figure.launches,
        "runs": figure.runs,
    }


def _print(verdicts: Sequence[Verdict], names: Mapping[str, str]) -> None:
    for number, verdict in enumerate(verdicts):
        if number:
            print()
        print(f"{verdict.text}   [{verdict.level}]")
        for fact in verdict.facts:
            print(f"   {fact}")
        for figure in (verdict.a, verdict.b):
            launches = count(figure.launches, "launch", "launches")
            print(f"   {names[figure.ref]}  {ref_words(figure.ref)}: {launches}, {count(figure.runs, 'run')}")
        for reason in verdict.reasons:
            if reason != verdict.text:
                print(f"   · {reason}")


def breakeven_command(
    refs: tuple[str, ...],
    base_tok_s: float | None,
    verify_ms: float | None,
    draft_ms: float | None,
    accept_len: float | None,
    layers: int | None,
    concurrency: int | None,
    host: str | None,
    as_json: bool,
) -> int:
    """`eagletui breakeven`: from two results, from figures, or, before anything speculates, from a baseline's sweep."""

    if len(refs) > 2:
        raise UsageError(
            f"{len(refs)} results are too many", "name a baseline, then a result with speculation", slug=Slug.BAD_VALUE
        )
    if refs and (base_tok_s, verify_ms, accept_len) != (None, None, None):
        raise UsageError(
            "results have their own --base-tok-s, --verify-ms and --accept-len",
            "name results or give figures",
            slug=Slug.BAD_VALUE,
        )
    if refs:
        return _breakeven_of_results(refs, draft_ms, layers, concurrency, host, as_json)
    if base_tok_s is None or verify_ms is None:
        raise UsageError(
            "two results are needed, or --base-tok-s and --verify-ms",
            "for example: eagletui breakeven --base-tok-s 89.5 --verify-ms 30 --draft-ms 2 --accept-len 2.31",
            slug=Slug.BAD_VALUE,
        )
    found = of_figures(base_tok_s, verify_ms, draft_ms, accept_len)
    cost = verify_cost(found, layers=layers)
    if as_json:
        emit(_economics_json(found, cost))
    else:
        _print_economics(found, cost)
    return 0


def _breakeven_of_results(
    refs: tuple[str, ...],
    draft_ms: float | None,
    layers: int | None,
    concurrency: int | None,
    host: str | None,
    as_json: bool,
) -> int:

    results, launched = store.read_all(), launch_records.read_all()
    sides = [side_of(name, ref, results, launched, host) for name, ref in zip("AB", refs, strict=False)]
    for side in sides:
        if not side.results:
            raise UsageError(
                f"{side.name}: no launch of it got as far as a measurement",
                "eagletui compare says how they failed",
                slug=Slug.NOT_COMPARABLE,
            )
    # The answer of a search is a load of its own on each side: a cycle is held against a step at one load.
    sides = [replace(side, results=tuple(r for r in side.results if r.capacity is None)) for side in sides]
    if len(sides) == 1:
        estimates = predictions(_one_bench(sides[0], host), draft_ms, stored=results)
        wanted = [one for one in estimates if concurrency in (None, one.concurrency)]
        if not wanted:
            loads = ", ".join(str(one.concurrency) for one in estimates)
            raise UsageError(
                f"{ref_words(refs[0])} was not measured at concurrency {concurrency}",
                f"it was at {loads}",
                slug=Slug.NOT_COMPARABLE,
            )
        return _print_predictions(wanted, as_json)
    both = matched(sides[0], sides[1], _point(concurrency, None), host)
    made = _made_of_sweep(_one_bench(sides[0], both[0][0].results[0].server.host), both[0][1])
    found = []
    for base, spec in both:
        one = payoff(base, spec, draft_ms=draft_ms, rows=store.rows)
        predicted = made.get(one.point.concurrency or 0) if one.point else None
        of_model, measured = allreduce.of_results(spec.results, layers)
        cost = verify_cost(one.economics, spec.results, layers=of_model, all_reduce=measured, predicted=predicted)
        found.append((one, cost))
    if as_json:
        documents = [_economics_json(one.economics, cost, one) for one, cost in found]
        emit(documents[0] | ({"points": documents} if len(documents) > 1 else {}))
        return 0
    for number, (one, cost) in enumerate(found):
        if number:
            print()
        _print_economics(one.economics, cost, one)
    return 0


def _made_of_sweep(sweep: Side, spec: Side) -> dict[int, Prediction]:
    """What the baseline's sweep predicts for drafts like these, by concurrency; a single load predicts nothing."""
    config = next((result.server.spec for result in spec.results if result.server.spec), None)
    with contextlib.suppress(UsageError):
        return {one.concurrency: one for one in predictions(sweep, config=config)}
    return {}


def _one_bench(side: Side, host: str | None) -> Side:
    """A side cut to the bench that was measured last, at all its loads."""
    kept = [result for one, _ in matched(side, side, None, host) for result in one.results]
    return replace(side, results=tuple(kept))


def _economics_json(found: Economics, cost: VerifyCost | None, of_results: Payoff | None = None) -> dict[str, object]:
    """The economics as scripts see them; missing is null."""
    document: dict[str, object] = {
        "t_base_ms": found.t_base_ms,
        "t_cycle_ms": found.t_cycle_ms,
        "tau": found.tau,
        "breakeven_tau": found.breakeven_tau,
        "speedup": found.speedup,
        "margin": found.margin,
        "t_verify_ms": found.t_verify_ms,
        "t_draft_ms": found.t_draft_ms,
        "base_tok_s": found.base_tok_s,
        "ceiling": found.ceiling,
        "best_speedup": found.best_speedup,
        "alpha": found.alpha,
        "alpha_needed": found.alpha_needed,
        "measured_speedup": found.measured_speedup,
        "breakeven_ci": list(found.interval) if found.interval else None,
        "ci_over": found.basis,
        "curve": [list(point) for point in curve(found, _reach(found))],
        "verify_cost": _cost_json(cost) if cost else None,
        "simulated": None,
        "text": found.text,
        "reasons": list(found.reasons),
        "point": None,
        "error": None,
    }
    if of_results is not None:
        document["point"] = of_results.point.label if of_results.point else None
        document["base"], document["spec"] = of_results.base.ref, of_results.spec.ref
        if (simulated := of_results.simulated) is not None:
            document["simulated"] = {
                "points": [list(point) for point in simulated.points],
                "slope": simulated.slope,
                "intercept": simulated.intercept,
                "breakeven_tau": simulated.breakeven_tau,
                "rho": simulated.rho,
            }
    return document


def _cost_json(cost: VerifyCost) -> dict[str, object]:
    return {
        "ratio": cost.ratio,
        "normal": cost.normal,
        "text": cost.text,
        "suspects": [
            {
                "id": suspect.id,
                "title": suspect.title,
                "weight": suspect.weight.value,
                "evidence": suspect.evidence,
                "check": suspect.check,
            }
            for suspect in cost.suspects
        ],
    }


def _reach(found: Economics) -> float:
    return float(found.ceiling) if found.ceiling is not None else max(_CURVE_TO, found.breakeven_tau)


def _print_economics(found: Economics, cost: VerifyCost | None, of_results: Payoff | None = None) -> None:
    at = f"   [{load_words(of_results.point)}]" if of_results and of_results.point else ""
    print(found.text + at)
    drafts = f", drafts {found.t_draft_ms:.1f} ms of it" if found.t_draft_ms else ""
    print(
        f"   baseline {found.t_base_ms:.2f} ms a token ({found.base_tok_s:.1f} tok/s per user), "
        f"cycle {found.t_cycle_ms:.1f} ms{drafts}"
    )
    if found.interval is not None:
        low, high = found.interval
        print(f"   break-even 95 % CI {two(low)} … {two(high)} (over {found.basis})")
    if found.alpha_text:
        print(f"   {found.alpha_text}")
    if found.best_speedup is not None:
        print(f"   with every draft accepted: {found.ceiling} tokens a cycle, {two(found.best_speedup)}×")
    if found.measured_speedup is not None:
        print(f"   measured: {two(found.measured_speedup)}× the baseline's rate (eagletui compare says how sure)")
    points = curve(found, _reach(found))
    print("   accept length " + " ".join(f"{tau:>5.2g}" for tau, _ in points))
    print("   speedup       " + " ".join(f"{two(speedup):>5}" for _, speedup in points))
    if of_results is not None and of_results.simulated is not None:
        print(f"   {of_results.simulated.text}")
    for reason in found.reasons:
        print(f"   · {reason}")
    if cost is not None:
        print(f"\n▲ {cost.text}")
        for suspect in cost.suspects:
            print(f"   {suspect.weight.value:<9}  {suspect.title}: {suspect.evidence}")
            if suspect.weight is not Weight.RULED_OUT:
                print(f"   {'':<9}  {suspect.check}")


def _print_predictions(made: Sequence[Prediction], as_json: bool) -> int:
    """What speculation would do, from the baseline alone or with a cycle measured under forced acceptance."""
    if as_json:
        documents = [_prediction_json(one) for one in made]
        emit(documents[0] | ({"points": documents} if len(documents) > 1 else {}))
        return 0
    for one in made:
        print(one.text)
        print(f"   speedup {one.speedups_text}")
        print(f"   {_made_of(one)}")
        print(f"   {one.basis}")
        for reason in one.reasons:
            print(f"   · {reason}")
    if not all(one.calibrated for one in made):
        say(
            "to narrow it, measure one launch with speculation and --set env.SGLANG_SIMULATE_ACC_LEN=2 with the same bench: "
            "its cycle is used in place of the estimate"
        )
    return 0


def _made_of(one: Prediction) -> str:
    base = f"a decode step of {one.t_base_ms:.2f} ms, a cycle of {one.t_cycle_ms:.1f} ms"
    low, high = one.cycle_range_ms
    if one.t_verify_ms is None:
        return f"{base} ({low:.1f} … {high:.1f}), measured"
    return (
        f"{base} ({low:.1f} … {high:.1f}): verify {one.t_verify_ms:.1f}, drafts {one.t_draft_ms:.1f}, "
        f"fixed {one.t_fixed_ms:.1f}"
    )


def _prediction_json(one: Prediction) -> dict[str, object]:
    """An estimate as scripts see it; parts of a cycle that was measured are null."""
    return {
        "point": f"c{one.concurrency}",
        "draft_tokens": one.draft_tokens,
        "t_base_ms": one.t_base_ms,
        "t_cycle_ms": one.t_cycle_ms,
        "t_cycle_range_ms": list(one.cycle_range_ms),
        "t_verify_ms": one.t_verify_ms,
        "t_draft_ms": one.t_draft_ms,
        "t_fixed_ms": one.t_fixed_ms,
        "tau": None,
        "breakeven_tau": one.breakeven_tau,
        "breakeven_range": list(one.breakeven_range),
        "speedup": None,
        "speedups": [list(speedup) for speedup in one.speedups],
        "speedup_ranges": [[tau, *one.speedup_range(tau)] for tau, _ in one.speedups],
        "range_probability": one.probability,
        "range_basis": one.basis,
        "calibrated": one.calibrated,
        "predicted": True,
        "text": one.text,
        "reasons": list(one.reasons),
        "error": None,
    }
