"""What `eagletui compare` and `eagletui breakeven` do."""

from collections.abc import Sequence

from tui.core import records
from tui.core.errors import UsageError
from tui.core.measure import store
from tui.core.measure.model import ArmFigure, LoadPoint, Verdict, VerdictKind
from tui.core.measure.yardsticks import METRICS, metric
from tui.output import emit, say


def _point(concurrency: int | None, rate: float | None) -> LoadPoint | None:
    if concurrency is not None and rate is not None:
        raise UsageError("--concurrency and --rate exclude each other", "give one of them", slug="bad_value")
    return None if concurrency is None and rate is None else LoadPoint(concurrency, rate)


def compare_command(
    refs: tuple[str, str],
    metric_name: str,
    concurrency: int | None,
    rate: float | None,
    margin: float,
    host: str | None,
    as_json: bool,
) -> int:
    """`eagletui compare`: 0 for any verdict, 1 where nothing that was asked can be compared."""
    from tui.core.measure.pairing import launch_seconds, matched, noise_of, setting
    from tui.core.measure.sides import side_of
    from tui.core.measure.verdicts import compare

    chosen = metric(metric_name)
    results, launched = store.read_all(), records.read_all()
    a, b = (side_of(name, ref, results, launched, host) for name, ref in zip("AB", refs, strict=True))
    both = [(a, b)]
    if a.results and b.results:
        both = matched(a, b, _point(concurrency, rate), host)
    launch_s = launch_seconds((a, b), launched)
    verdicts = []
    for one, other in both:
        like = next((setting(result) for result in (*one.results, *other.results) if result.valid), None)
        noise = noise_of(results, chosen, like) if like is not None else None
        verdicts.append(compare(one, other, metric_name, noise=noise, launch_s=launch_s, margin=margin))
    best = next((v for v in verdicts if v.verdict is not VerdictKind.INVALID), verdicts[0])
    if as_json:
        document = verdict_json(best)
        if len(verdicts) > 1:
            document["points"] = [verdict_json(verdict) for verdict in verdicts]
        emit(document)
    else:
        _print(verdicts)
        if len(verdicts) > 1:
            say("each load is a question of its own: with several, one may miss by chance")
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
        "noise_floor": verdict.noise_floor,
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


def _print(verdicts: Sequence[Verdict]) -> None:
    from tui.core.measure.phrases import count, ref_words

    for number, verdict in enumerate(verdicts):
        if number:
            print()
        print(f"{verdict.text}   [{verdict.level}]")
        for fact in verdict.facts:
            print(f"   {fact}")
        for name, figure in (("A", verdict.a), ("B", verdict.b)):
            launches = count(figure.launches, "launch", "launches")
            print(f"   {name}  {ref_words(figure.ref)}: {launches}, {count(figure.runs, 'run')}")
        for reason in verdict.reasons:
            if reason != verdict.text:
                print(f"   · {reason}")
