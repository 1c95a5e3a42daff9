"""What was answered, beside the figures of a verdict: reads the stored rows of the launches that it compares. I/O."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache

from tui.core.errors import EagletuiError
from tui.core.model.result import Result
from tui.core.model.verdict import SameText, Verdict, VerdictKind
from tui.core.records import Stamp
from tui.core.results import store
from tui.core.verdicts.comparison import Case
from tui.core.verdicts.judging import judge_all
from tui.core.verdicts.metric import metric
from tui.core.verdicts.pairing import Side, forced_accept_length, launches
from tui.core.verdicts.same_text import fact, mark, reason, replies, same_text

# The runs of each launch: a result's id, with what its file of rows looks like.
Runs = tuple[tuple[tuple[str, Stamp], ...], ...]


def judged(cases: Sequence[Case], beside: Iterable[Case] = ()) -> tuple[Verdict, ...]:
    """The verdicts of cases (`judge_all`), with what was answered; those `beside` them share the 5 % and are not returned."""
    verdicts = judge_all([*cases, *beside])
    return tuple(with_replies(verdict, case.a, case.b) for verdict, case in zip(verdicts, cases, strict=False))


def with_replies(verdict: Verdict, a: Side, b: Side) -> Verdict:
    """The verdict with the share of replies that differ; as it is where temperature, forced acceptance or rows that
    are missing say nothing. Reads megabytes, once for each pair of sides.

    Args:
        a, b: its sides, as they were compared.
    """
    used = set(verdict.result_ids)
    results = [[result for result in side.results if result.result_id in used] for side in (a, b)]
    for result in (*results[0], *results[1]):
        if result.load.temperature != 0 or forced_accept_length(result) is not None:
            return verdict
    try:
        found = _compared(*(_stamped(verdict.metric, side) for side in results))
    except EagletuiError as error:
        return replace(verdict, facts=(*verdict.facts, f"replies: not compared, {error.message}"))
    if found is None:
        return verdict
    verdict = replace(verdict, same_text=found, facts=(*verdict.facts, fact(found, a.name)))
    if not found.changes:
        return verdict
    invalid = verdict.verdict is VerdictKind.INVALID
    return replace(
        verdict,
        text=verdict.text + ("" if invalid else mark(b.name)),
        reasons=(*verdict.reasons, reason(found, a.name, b.name)),
    )


def _stamped(metric_name: str, results: Sequence[Result]) -> Runs:
    return tuple(
        tuple(
            (run.result_id, stamp) for run in launch.results if (stamp := store.rows_stamp(run.result_id)) is not None
        )
        for launch in launches(results, metric(metric_name))
    )


@lru_cache(maxsize=256)
def _compared(a: Runs, b: Runs) -> SameText | None:
    sides = [[[replies(store.row_lines(name)) for name, _ in runs] for runs in side] for side in (a, b)]
    return same_text(*sides)
