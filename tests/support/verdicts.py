"""Comparisons as a test asks for them: the cases of `judge_all` from two sides or several."""

from tui.core.model.verdict import Verdict
from tui.core.verdicts.comparison import Case
from tui.core.verdicts.judging import judge_all
from tui.core.verdicts.metric import DEFAULT, metric


def compare(a, b, metric_name=DEFAULT, **of_case) -> Verdict:
    """B against A; `of_case` as of `Case`: noise, launch_s, margin, plan."""
    [verdict] = compare_all([(a, b)], metric_name, **of_case)
    return verdict


def compare_all(pairs, metric_name=DEFAULT, **of_case) -> tuple[Verdict, ...]:
    """Several comparisons at one load, (A, B) each, held to 5 % together."""
    return judge_all([Case(a, b, metric(metric_name), **of_case) for a, b in pairs])
