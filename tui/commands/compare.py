"""`eagletui compare`: which of two is faster, and how sure that is."""

import string
from collections.abc import Mapping, Sequence

import click

from tui.commands import completing
from tui.commands.options import Number, bench_option, concurrency_option, host_option, json_option
from tui.commands.output import emit, say
from tui.core.errors import Slug, UsageError
from tui.core.experiment import planned
from tui.core.experiment.selection import side_of
from tui.core.model.profile import LoadPoint
from tui.core.model.verdict import ArmFigure, Verdict, VerdictKind
from tui.core.records import picked
from tui.core.results import store
from tui.core.results.flat import SIMULATED, simulated
from tui.core.server import launch_records
from tui.core.text import one_line
from tui.core.verdicts.judging import screened_words
from tui.core.verdicts.metric import METRICS, default_for, metric
from tui.core.verdicts.pairing import Side, launch_seconds, matched, of_bench
from tui.core.verdicts.sentences import count

_NAMES = string.ascii_uppercase


@click.command()
@click.argument("refs", nargs=-1, required=True, metavar="A B [C]...", shell_complete=completing.measured)
@click.option(
    "--metric",
    "metric_name",
    default=None,
    show_default="per_user_tok_s; for searches, what they found",
    metavar="M",
    help="Also output_tok_s, goodput_req_s, ttft_ms, p99_itl_ms, …",
)
@bench_option
@concurrency_option
@click.option("--rate", type=Number(), metavar="R", help="At so many requests a second alone.")
@click.option(
    "--margin", type=Number(100), metavar="%", help="What counts as equivalent: 2, or what an experiment planned."
)
@host_option
@json_option
def command(
    refs: tuple[str, ...],
    metric_name: str | None,
    bench: str | None,
    concurrency: int | None,
    rate: float | None,
    margin: float | None,
    host: str | None,
    as_json: bool,
) -> int:
    """Which of two is faster, and how sure that is: results, runs, profiles, or EXPERIMENT:ARM.

    Each further one is compared with the first too. EXPERIMENT is an id, or a name: the newest of that name on the host.
    """
    share = margin / 100 if margin is not None else None
    if not 2 <= len(refs) <= len(_NAMES):
        raise UsageError(
            f"{count(len(refs), 'name')} given, and it takes 2 to {len(_NAMES)}",
            "name a reference, then what is compared with it",
            slug=Slug.BAD_VALUE,
        )
    if len(set(refs)) < len(refs):
        raise UsageError("a name is given twice", "name different runs, results or profiles", slug=Slug.SAME_LAUNCHES)
    chosen, load = metric(metric_name) if metric_name is not None else None, _point(concurrency, rate)
    results, launched = store.read_all(), launch_records.read_all()
    base, *others = (
        of_bench(side_of(name, ref, results, launched, host), bench) for name, ref in zip(_NAMES, refs, strict=False)
    )
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
            asked, chosen or metric(default_for(point)), results, launch_s=launch_s, margin=share
        )
    ]
    best = next((v for v in verdicts if v.verdict is not VerdictKind.INVALID), verdicts[0])
    on_demo = any(simulated(result) for side in (base, *others) for result in side.results)
    if as_json:
        document = verdict_json(best) | {"simulated_host": on_demo}
        if len(verdicts) > 1:
            document["comparisons" if len(others) > 1 else "points"] = [verdict_json(v) for v in verdicts]
        emit(document)
    else:
        _print(verdicts, dict(zip(refs, _NAMES, strict=False)))
        if len(at_load) > 1:
            say("each load is a question of its own: with several, one may miss by chance")
            if said := screened_words(verdicts):
                say(f"of all loads together, {said}")
        if on_demo:
            print(f"▲ {SIMULATED}")
    return 1 if best.verdict is VerdictKind.INVALID else 0


def _point(concurrency: int | None, rate: float | None) -> LoadPoint | None:
    if concurrency is not None and rate is not None:
        raise UsageError("--concurrency and --rate exclude each other", "give one of them", slug=Slug.BAD_VALUE)
    return None if concurrency is None and rate is None else LoadPoint(concurrency, rate)


def verdict_json(verdict: Verdict) -> dict[str, object]:
    """A verdict as scripts see it."""
    document = picked(
        verdict,
        "metric a b ratio ci confidence n_pairs level verdict conclusion text point=point.label reasons facts mde by_chance noise_floor "
        "same_text results=result_ids",
    )
    document |= {side: _figure_json(getattr(verdict, side), verdict.metric) for side in "ab"}
    return document | {"error": "invalid" if verdict.verdict is VerdictKind.INVALID else None}


def _figure_json(figure: ArmFigure, name: str) -> dict[str, object]:
    rate = METRICS[name].unit == "tok/s"
    return picked(figure, "ref tok_s value=tok_s launches runs") | ({} if rate else {"tok_s": None})


def _print(verdicts: Sequence[Verdict], names: Mapping[str, str]) -> None:
    for number, verdict in enumerate(verdicts):
        if number:
            print()
        print(f"{verdict.text}   [{verdict.level}]")
        for fact in verdict.facts:
            print(f"   {fact}")
        for figure in (verdict.a, verdict.b):
            launches = count(figure.launches, "launch", "launches")
            print(f"   {names[figure.ref]}  {one_line(figure.ref, 80)}: {launches}, {count(figure.runs, 'run')}")
        for reason in verdict.reasons:
            if reason != verdict.text:
                print(f"   · {reason}")
