"""`eagletui breakeven`: whether speculation pays."""

import contextlib
from collections.abc import Sequence
from dataclasses import replace

import click

from tui.commands import completing
from tui.commands.options import MAX_FIGURE, Number, bench_option, concurrency_option, host_option, json_option
from tui.commands.output import emit, say
from tui.core.bench import allreduce
from tui.core.errors import Slug, UsageError
from tui.core.experiment.selection import side_of
from tui.core.model.profile import LoadPoint
from tui.core.records import picked, to_json
from tui.core.results import store
from tui.core.server import launch_records
from tui.core.speculation.economics import Economics, curve, of_figures
from tui.core.speculation.from_results import Payoff, payoff, predictions
from tui.core.speculation.prediction import Prediction
from tui.core.speculation.verify_cost import VerifyCost, Weight, verify_cost
from tui.core.text import one_line
from tui.core.verdicts.pairing import Side, matched, of_bench
from tui.core.verdicts.sentences import load_words, two

_CURVE_TO = 5.0  # accept length that a table without a known draft goes up to


@click.command()
@click.argument("refs", nargs=-1, metavar="[RESULT_BASE [RESULT_SPEC]]", shell_complete=completing.measured)
@click.option("--base-tok-s", type=Number(MAX_FIGURE), metavar="X", help="The baseline's rate of one user.")
@click.option("--verify-ms", type=Number(MAX_FIGURE), metavar="Y", help="One verify step.")
@click.option("--draft-ms", type=Number(MAX_FIGURE, zero=True), metavar="Z", help="The drafts of one cycle.")
@click.option("--accept-len", type=Number(MAX_FIGURE), metavar="T", help="Tokens a cycle, bonus token counted.")
@click.option("--layers", type=click.IntRange(min=1), metavar="N", help="Of the model: for the time of an all-reduce.")
@bench_option
@concurrency_option
@host_option
@json_option
def command(
    refs: tuple[str, ...],
    base_tok_s: float | None,
    verify_ms: float | None,
    draft_ms: float | None,
    accept_len: float | None,
    layers: int | None,
    bench: str | None,
    concurrency: int | None,
    host: str | None,
    as_json: bool,
) -> int:
    """Whether speculation pays: from two results, from figures, or as an estimate from a baseline's sweep alone."""
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
        return _breakeven_of_results(refs, draft_ms, layers, bench, concurrency, host, as_json)
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
    bench: str | None,
    concurrency: int | None,
    host: str | None,
    as_json: bool,
) -> int:
    results, launched = store.read_all(), launch_records.read_all()
    sides = [
        of_bench(side_of(name, ref, results, launched, host), bench) for name, ref in zip("AB", refs, strict=False)
    ]
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
                f"{one_line(refs[0], 80)} was not measured at concurrency {concurrency}",
                f"it was at {loads}",
                slug=Slug.NOT_COMPARABLE,
            )
        return _print_predictions(wanted, as_json)
    both = matched(sides[0], sides[1], LoadPoint(concurrency, None) if concurrency is not None else None, host)
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
    document = picked(
        found,
        "t_base_ms t_cycle_ms tau breakeven_tau speedup margin t_verify_ms t_draft_ms base_tok_s ceiling best_speedup alpha "
        "alpha_needed measured_speedup breakeven_ci=interval ci_over=basis text reasons",
    )
    document |= {"curve": to_json(curve(found, _reach(found))), "verify_cost": to_json(cost), "error": None}
    if of_results is not None:
        document |= picked(of_results, "base=base.ref spec=spec.ref")
    simulated = of_results.simulated if of_results is not None else None
    return document | {
        "point": of_results.point.label if of_results is not None and of_results.point is not None else None,
        "simulated": picked(simulated, "points slope intercept breakeven_tau rho") if simulated is not None else None,
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
        **picked(
            one,
            "draft_tokens t_base_ms t_cycle_ms t_cycle_range_ms=cycle_range_ms t_verify_ms t_draft_ms t_fixed_ms "
            "breakeven_tau breakeven_range speedups range_probability=probability range_basis=basis calibrated text reasons",
        ),
        "tau": None,
        "speedup": None,
        "speedup_ranges": [[tau, *one.speedup_range(tau)] for tau, _ in one.speedups],
        "predicted": True,
        "error": None,
    }
