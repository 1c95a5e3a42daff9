"""Verdicts between stored results. Where both sides are launches of an experiment, its plan holds, whoever asks.

The plan is its pairs, its looks, its margin and its other comparisons, with which the error is shared: asked between
two looks, or arm by arm, the answer is that of the experiment itself.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tui.core.experiment import record as experiment_record
from tui.core.experiment.record import ExperimentRecord
from tui.core.experiment.so_far import comparisons, is_over, measured, of_stage, plan_of, planned_cases
from tui.core.model.result import Result
from tui.core.model.verdict import Verdict
from tui.core.verdicts.comparison import MARGIN, Case, Plan, one_configuration
from tui.core.verdicts.metric import Metric
from tui.core.verdicts.pairing import Setting, Side, noise_of, setting, when
from tui.core.verdicts.replies import judged
from tui.core.verdicts.sentences import count

Records = Callable[[str], ExperimentRecord | None]
_Question = tuple[str, frozenset[str]]  # an experiment, and two letters


@dataclass(frozen=True)
class _Experiment:
    """An experiment with what it measured at one load."""

    record: ExperimentRecord
    results: tuple[Result, ...]
    over: bool


def verdicts(
    asked: Sequence[tuple[Side, Side]],
    chosen: Metric,
    stored: Sequence[Result],
    *,
    launch_s: float | None = None,
    margin: float | None = None,
    record_of: Records = experiment_record.read,
) -> tuple[Verdict, ...]:
    """What is asked at one load, (A, B) each, held to 5 % together with what the experiments behind it compare.

    Args:
        stored: everything there is: the noise of the host, and the other arms of an experiment, are taken from it.
        launch_s: what one launch with its runs takes.
        margin: instead of the experiment's, or of the usual one.
        record_of: the record of an experiment by its id.

    Raises UsageError where a launch is on both sides.
    """
    cases: list[Case] = []
    questions: set[_Question] = set()
    others: dict[_Question, Case] = {}
    for a, b in asked:
        like = next((setting(result) for result in (*a.results, *b.results) if result.valid), None)
        noise = noise_of(stored, chosen, like) if like is not None else None
        case = Case(a, b, chosen, noise, launch_s, MARGIN if margin is None else margin)
        shared = {r.experiment for r in a.results if r.experiment} & {r.experiment for r in b.results}
        if like is not None and shared:
            behind = [_measured(record, stored, like) for name in shared if (record := record_of(str(name)))]
            case = _obeying(case, behind, len(shared), given=margin is not None)
            if behind:
                newest = max(behind, key=lambda one: when(one.record.started_at or ""))
                questions.add(_question(case, newest.record))
                others |= _compared(case, newest)
        cases.append(case)
    shares = [case for question, case in others.items() if question not in questions]
    return judged(cases, shares)


def _measured(record: ExperimentRecord, stored: Sequence[Result], like: Setting) -> _Experiment:
    of_it = {result.result_id: result for result in stored if result.experiment == record.experiment_id}
    here = tuple(result for result in measured(record, of_it) if result.point == like.point)
    return _Experiment(record, here, is_over(record, of_it))


def _letter(side: Side, record: ExperimentRecord) -> str:
    """The arm that a side is; "" where it is several."""
    own = one_configuration(side, []).results
    letters = {result.arm for result in own if result.experiment == record.experiment_id}
    return (letters.pop() or "") if len(letters) == 1 else ""


def _question(case: Case, record: ExperimentRecord) -> _Question:
    return record.experiment_id, frozenset((_letter(case.a, record), _letter(case.b, record)))


def _obeying(case: Case, behind: Sequence[_Experiment], shared: int, *, given: bool) -> Case:
    """The case as the experiments behind it planned it; `given`: its margin was asked for."""
    reasons: list[str] = []
    if len(behind) < shared:
        missing = count(shared - len(behind), "experiment")
        reasons.append(
            f"the record of {missing} cannot be read here (on another machine, damaged or of a newer version): what "
            "was planned is not known"
        )
    if not behind:
        return replace(case, reasons=tuple(reasons))
    names = {one.record.experiment_id for one in behind}
    letters = [(_letter(case.a, one.record), _letter(case.b, one.record)) for one in behind]
    complete = {
        result.result_id
        for one, both in zip(behind, letters, strict=True)
        for result in of_stage(one.record, both, one.results)
    }

    def cut(side: Side) -> Side:
        """Without launches that are under way, as on the screen."""
        kept = (r for r in side.results if r.experiment not in names or r.result_id in complete)
        return replace(side, results=tuple(kept))

    plans = [
        plan_of(one.record, both, one.results, case.metric, over=one.over)
        for one, both in zip(behind, letters, strict=True)
    ]
    screening = None in plans
    plan = plans[0]
    if len(plans) > 1:
        plan = None if screening else Plan(sum(one.pairs for one in plans if one is not None))
        reasons.append(
            f"pairs of {len(plans)} experiments: where one was begun because of what another showed, errors exceed 5 %"
        )
    margins = {one.record.profile.margin for one in behind}
    margin = case.margin if given else max(margins)
    if margins != {margin}:
        meant = ", ".join(f"{one * 100:g}" for one in sorted(margins))
        reasons.append(f"a margin of {margin * 100:g} %, where {meant} % was planned")
    a, b = cut(case.a), cut(case.b)
    return replace(case, a=a, b=b, margin=margin, plan=plan, screening=screening, reasons=tuple(reasons))


def _compared(case: Case, one: _Experiment) -> dict[_Question, Case]:
    """All that an experiment compares at this load: as it planned, or each pair of arms, where `case` is none it planned."""
    record = one.record
    asked = comparisons(record)
    if _question(case, record)[1] not in map(frozenset, asked):
        asked = list(itertools.combinations([arm.letter for arm in record.profile.arms], 2))
    cases = planned_cases(record, one.results, replace(case, reasons=()), asked, over=one.over)
    return {(record.experiment_id, frozenset(letters)): planned for letters, planned in cases.items()}
