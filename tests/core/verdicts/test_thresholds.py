"""Conditions under which a bench fails a script."""

import pytest

from tests.support.bench_states import results
from tui.core.errors import UsageError
from tui.core.verdicts.thresholds import breaches, threshold

RUNS = results("A")
MEDIAN = threshold("per_user_tok_s < 0").figure(RUNS)


@pytest.mark.parametrize(
    ("compare", "by", "holds"), [("<", 1, True), ("<", -1, False), (">", -1, True), (">=", 0, True)]
)
def test_the_median_of_the_runs_at_a_load_decides(compare, by, holds):
    found = breaches([threshold(f"per_user_tok_s{compare}{MEDIAN + by}")], [RUNS])
    assert len(found) == holds
    if holds:
        assert str(found[0]).endswith(f": it is {MEDIAN:g} at {RUNS[0].point.label}")


def test_a_figure_that_no_run_has_fails_too():
    (breach,) = breaches([threshold("accept_length < 2")], [RUNS])
    assert str(breach) == "accept_length < 2: no run that counts has accept_length"
    assert breaches([threshold("per_user_tok_s < 2")], [[]])[0].figure is None


@pytest.mark.parametrize("text", ["", "tok_s", "per_user_tok_s < x", "per_user_toks < 8", "per_user_tok_s < 85 or 1"])
def test_what_is_no_condition_is_refused(text):
    with pytest.raises(UsageError):
        threshold(text)
