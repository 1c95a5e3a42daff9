"""Verdicts: two sides, or the arms of an experiment, become sentences with what they rest on.

docs/measuring.md, "Verdicts", states the rules; `comparison` applies them.
"""

import math
import statistics
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from tui.core.model.verdict import ArmFigure, Verdict, VerdictKind
from tui.core.verdicts import stats
from tui.core.verdicts.comparison import Case, noise_floor, screening_bound, settle
from tui.core.verdicts.pairing import mean_of
from tui.core.verdicts.sentences import about, count, load_words, percent, signed
from tui.core.verdicts.stats import Interval

_FINER = (0.01, 0.005, 0.002, 0.001)  # what to see next, once the margin can be seen


def judge_all(cases: Iterable[Case]) -> tuple[Verdict, ...]:
    """The verdicts of cases that are not settled yet, held to 5 % together by Holm's rule.

    A comparison that waits for its pairs is one of the questions: those that are decided before it get no share of its
    error. Raises UsageError where a launch is on both sides.
    """
    settled = [settle(case) for case in cases]
    decided = {at: interval for at, case in enumerate(settled) if case.decides and (interval := case.interval)}
    waiting = sum(case.waiting is not None for case in settled)
    if decided and len(decided) + waiting > 1:
        p_values = [*(interval.p for interval in decided.values()), *[1.0] * waiting]
        levels = stats.holm(p_values, min(settled[at].alpha for at in decided))
        for at, alpha in zip(decided, levels, strict=False):
            settled[at] = replace(settled[at], alpha=alpha, questions=len(p_values))
    verdicts = [_verdict(case) for case in settled]
    said = screened_words(verdicts)
    return tuple(
        replace(verdict, facts=(*verdict.facts, said)) if said and verdict.by_chance is not None else verdict
        for verdict in verdicts
    )


def screened_words(verdicts: Iterable[Verdict]) -> str | None:
    """How many of a list of screenings chance alone would show; None where the list has no two of them."""
    shares = [verdict.by_chance for verdict in verdicts if verdict.by_chance is not None]
    if len(shares) < 2:
        return None
    expected = math.ceil(10 * sum(shares)) / 10
    one = 1 - math.prod(1 - share for share in shares)  # at most: those that share a baseline go together
    return (
        f"{len(shares)} screened: were all the same, chance alone would show {expected:.1f} of them as faster or slower "
        f"(one at least in up to {100 * one:.0f} % of such lists)"
    )


def _verdict(case: Case) -> Verdict:
    interval, difference = case.interval, case.difference
    figures = [
        ArmFigure(side.ref, mean_of(used) if used else None, len(used), sum(len(launch.values) for launch in used))
        for side, used in zip((case.a, case.b), case.used, strict=True)
    ]
    shown = not case.invalid and difference is not None
    final = shown and case.waiting is None  # an interval looked at on the way would be taken for a verdict
    return Verdict(
        metric=case.metric.name,
        a=figures[0],
        b=figures[1],
        ratio=math.exp(difference) if difference is not None and shown else None,
        ci=(math.exp(interval.low), math.exp(interval.high)) if interval and final else None,
        n_pairs=case.n,
        level=case.level,
        verdict=case.kind,
        text=_text(case, figures[0], figures[1]),
        point=next((result.point for result in (*case.a.results, *case.b.results)), None),
        reasons=case.reasons,
        mde=math.expm1(stats.minimum_detectable(case.spread, case.n, case.alpha)) if case.decides else None,
        noise_floor=noise_floor(case.noise, case.runs) if case.noise else None,
        result_ids=tuple(result.result_id for result in case.results),
        confidence=1 - case.alpha,
        by_chance=case.by_chance,
        facts=_facts(case),
    )


def _text(case: Case, a: ArmFigure, b: ArmFigure) -> str:
    if case.invalid:
        return case.reasons[0]
    kind, interval = case.kind, case.interval
    if case.waiting is not None:
        return _unfinished(case, case.waiting)
    if not case.decides:
        return _screening(case, a, b)
    assert interval is not None
    biased = ", may be biased" if case.biased else ""
    pairs = f"{case.n} pairs{biased}"
    names = f"{case.a.name} and {case.b.name}"
    if kind is VerdictKind.EQUIVALENT:
        text = f"{names}: equivalent within {case.margin * 100:g} % ({_span(case, interval)}, {pairs})"
        if interval.low > 0 or interval.high < 0:
            text += f". {case.b.name} is {_way(interval.mean)}, by less than that"
        return text
    if kind is VerdictKind.INDISTINCT:
        return f"{names}: not distinguishable ({_span(case, interval)}, {pairs}){_more(case)}"
    order = "paired ABBA" if case.pairs.balanced else f"paired {case.pairs.order}"
    return _decided(case, a, b, f"{_interval(case, interval)}, {case.n} launch pairs, {order}{biased}")


def _decided(case: Case, a: ArmFigure, b: ArmFigure, basis: str) -> str:
    """B is 9.1 % faster than A   (basis)   82.0 → 89.5 tok/s; of a screening: B looks …"""
    difference = math.expm1(case.difference or 0.0)
    word = "faster" if case.kind in (VerdictKind.FASTER, VerdictKind.LOOKS_FASTER) else "slower"
    verb = "is" if case.decides else "looks"
    change = f"{percent(difference)} %"
    if case.metric.of_search:
        verb = "holds" if case.decides else "looks to hold"
        said = f"{case.b.name} {verb} {change} {'more' if difference > 0 else 'less'} load than {case.a.name}"
    elif case.metric.higher_is_better:
        said = f"{case.b.name} {verb} {change} {word} than {case.a.name}"
    else:
        way = _way(difference)
        said = f"{case.b.name} {verb} {word} than {case.a.name}: {case.metric.title} {change} {way}"
    values = " → ".join(case.metric.show(side.tok_s) for side in (a, b) if side.tok_s is not None)
    return f"{said}   ({basis})   {values} {case.metric.unit}"


def _screening(case: Case, a: ArmFigure, b: ArmFigure) -> str:
    interval = case.interval
    basis = f"ONE {'run' if case.level == 'L0' else 'launch'} each"
    if case.unpaired:
        used = [len(side) for side in case.used]
        each = f"{used[0]} launches each" if used[0] == used[1] else f"{used[0]} and {used[1]} launches"
        basis = f"{each}, not interleaved"
    elif case.n > 1:
        basis = f"{case.n} launch pairs" + (" on different nodes" if case.pairs.apart else "")
    bound = screening_bound(case.noise, case.runs) if case.noise else None
    own = f"launches of this host differ by up to {percent(bound)} %" if bound is not None else None
    if case.kind is not VerdictKind.INDISTINCT:
        spans = f"{_interval(case, interval)}, " if interval else ""
        drift = "a drift would look the same"
        return _decided(case, a, b, f"{spans}{basis} — screening only; {own}; {drift}")
    change = math.expm1(case.difference or 0.0)
    said = f"{case.b.name}: {percent(change)} % {_way(change)}, {basis} — screening only"
    if case.unpaired:
        said += "; a drift of the host would look the same"
    elif case.level == "L0":
        said += "; no error bar"
    else:
        said += f"; {own or 'restart variance unknown'}"
    return f"{said}. Confirm with 3 pairs" + (" on the same nodes" if case.pairs.apart else "")


def _unfinished(case: Case, wanted: int) -> str:
    said = (
        f"{case.b.name} against {case.a.name}: {count(wanted, 'launch pair')} needed for a verdict, {case.n} measured"
    )
    if case.difference is None:
        return said
    change = math.expm1(case.difference)
    return f"{said}. So far {percent(change)} % {_way(change)}: screening only"


def _way(difference: float) -> str:
    return "higher" if difference >= 0 else "lower"


def _confidence(case: Case) -> str:
    return f"{100 * (1 - case.alpha):.3g} % CI"


def _span(case: Case, interval: Interval) -> str:
    level = "" if case.alpha == stats.ALPHA else f"{_confidence(case)} "
    return f"{level}{signed(math.expm1(interval.low))} … {signed(math.expm1(interval.high))} %"


def _interval(case: Case, interval: Interval) -> str:
    """The interval of a change whose direction the sentence has said."""
    low, high = math.expm1(interval.low), math.expm1(interval.high)
    if low <= 0 <= high:
        return f"{_confidence(case)} {signed(low)} … {signed(high)}"
    ends = sorted((abs(low), abs(high)))
    return f"{_confidence(case)} {percent(ends[0])} … {percent(ends[1])}"


def _more(case: Case) -> str:
    """What it takes to see the margin, or, where that is seen, the next finer step."""
    spread = case.spread
    if spread <= 0:
        return ""
    seen = stats.minimum_detectable(spread, case.n, case.alpha)
    steps = [case.margin, *(step for step in _FINER if step < case.margin)]
    effect = next((step for step in steps if math.log1p(step) < seen * 0.95), None)
    if effect is None:
        return ""
    pairs = stats.pairs_needed(math.log1p(effect), spread, case.alpha)
    if pairs is None:
        return f". To see {effect * 100:g} % you need more than 20 pairs."
    cost = f" ({about(2 * pairs * case.launch_s)})" if case.launch_s else ""
    return f". To see {effect * 100:g} % you need {pairs} pairs{cost}."


def _facts(case: Case) -> tuple[str, ...]:
    results = case.results
    if not results:
        return ()
    parts = [case.metric.title, load_words(results[0].point)]
    windows = [result.window for result in results if result.window is not None]
    if windows:
        kind = Counter(window.kind for window in windows).most_common(1)[0][0]
        words = {"steady": "steady state", "full": "whole run"}.get(kind, kind)
        seconds = statistics.median(window.duration_s for window in windows)
        parts.append(f"{words} {seconds:.0f} s × {count(case.runs, 'run')}")
    else:
        parts.append(count(case.runs, "run"))
    first = ", ".join(parts)
    if case.noise is not None:
        first += f"; host noise floor ±{percent(noise_floor(case.noise, case.runs))} %"
    facts = [first]
    if any(case.within):
        facts.append(f"a search ends within {percent(math.expm1(max(case.within)))} %: the interval holds it")
    if case.questions > 1:
        facts.append(f"{case.questions} comparisons, held to 5 % together (Holm)")
    if case.plan is not None and case.plan.looks and case.n >= 2 and case.spread > 0:
        looks = case.plan.looks
        chance = stats.looks_power(math.log1p(case.margin), case.spread, looks)
        at = ", ".join(str(look) for look in looks)
        facts.append(f"looks at {at} pairs, 5 % error in all; {case.margin * 100:g} % is found with power {chance:.2f}")
    return tuple(facts)
