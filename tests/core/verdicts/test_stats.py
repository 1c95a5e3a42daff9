"""The statistics against scipy, a printed table, and what must hold whatever the numbers."""

import math
import random
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tui.core.experiment.record import schedule
from tui.core.verdicts.stats import (
    components,
    holm,
    look_alphas,
    looks_power,
    minimum_detectable,
    paired,
    pairs_needed,
    t_power,
    t_quantile,
    t_tail,
    welch,
)

# Two-sided 5 % and 1 % points of Student's t: NIST/SEMATECH e-Handbook of Statistical Methods, table 1.3.6.7.2.
NIST = {1: (12.706, 63.657), 2: (4.303, 9.925), 3: (3.182, 5.841), 4: (2.776, 4.604), 7: (2.365, 3.499)}
REAL = st.floats(-1, 1).map(lambda x: round(x, 6))


@pytest.mark.parametrize("df", NIST)
def test_quantiles_are_those_of_the_printed_table(df):
    assert t_quantile(0.975, df) == pytest.approx(NIST[df][0], abs=5e-4)
    assert t_quantile(0.995, df) == pytest.approx(NIST[df][1], abs=5e-4)


@pytest.mark.parametrize("df", [1, 2, 2.7, 4, 11.3, 400])
def test_quantiles_and_tails_are_those_of_scipy(df):
    oracle = pytest.importorskip("scipy.stats")
    for p in (0.005, 0.1, 0.5, 0.9, 0.975, 0.99, 0.9975, 0.9999):
        assert t_quantile(p, df) == pytest.approx(oracle.t.ppf(p, df), rel=1e-9, abs=1e-9)
    for t in (-3.0, 0.0, 0.4, 2.0, 25.0):
        assert t_tail(t, df) == pytest.approx(oracle.t.sf(t, df), rel=1e-9)


def test_intervals_are_those_of_scipy():
    oracle = pytest.importorskip("scipy.stats")
    a, b = [0.10, 0.12, 0.09, 0.14], [0.15, 0.13, 0.19, 0.17]
    differences = [y - x for x, y in zip(a, b, strict=True)]
    mine, theirs = paired(differences), oracle.ttest_rel(b, a)
    ends = theirs.confidence_interval(0.95)
    assert (mine.low, mine.high, mine.p) == pytest.approx((ends.low, ends.high, theirs.pvalue))
    mine, theirs = welch(a[:3], b, 0.01), oracle.ttest_ind(b, a[:3], equal_var=False)
    ends = theirs.confidence_interval(0.99)
    assert (mine.low, mine.high, mine.p, mine.df) == pytest.approx((ends.low, ends.high, theirs.pvalue, theirs.df))


@pytest.mark.parametrize("df", [2, 3, 4, 7, 30])
@pytest.mark.parametrize("alpha", [0.05, 0.02, 0.01, 0.05 / 3])
def test_power_is_the_tail_of_the_noncentral_t(df, alpha):
    oracle = pytest.importorskip("scipy.stats")
    critical = oracle.t.ppf(1 - alpha / 2, df)
    assert t_power(0.0, df, alpha) == pytest.approx(alpha, abs=2e-6)
    for shift in (0.3, 1.0, 2.5, 5.0):
        exact = oracle.nct.sf(critical, df, shift) + oracle.nct.cdf(-critical, df, shift)
        assert t_power(shift, df, alpha) == pytest.approx(exact, abs=2e-6)


def test_what_can_be_seen_with_so_many_pairs():
    """Launch CV 1 % (0.3 %), run CV 0.4 %, three runs a launch."""
    wide = math.sqrt(2 * (0.01**2 + 0.004**2 / 3))
    narrow = math.sqrt(2 * (0.003**2 + 0.004**2 / 3))

    def power(effect: float, pairs: int) -> float:
        return t_power(effect * math.sqrt(pairs) / wide, pairs - 1, 0.05)

    assert power(math.log(1.091), 3) > 0.99
    assert pairs_needed(math.log(1.02), wide) == 8
    assert pairs_needed(math.log(1.01), narrow) == 6
    assert pairs_needed(math.log(1.01), wide) is None  # more than twenty
    for pairs in (3, 4, 5, 8):
        assert power(minimum_detectable(wide, pairs), pairs) == pytest.approx(0.9, abs=1e-4)


@given(st.lists(REAL, min_size=2, max_size=9), REAL)
@settings(max_examples=60, deadline=None)
def test_an_interval_moves_with_its_data_and_holds_its_mean(values, shift):
    one, moved = paired(values), paired([value + shift for value in values])
    assert one.low <= one.mean <= one.high
    assert moved.low - one.low == pytest.approx(shift, abs=1e-9)
    assert moved.high - one.high == pytest.approx(shift, abs=1e-9)
    wider = paired(values, 0.01)
    assert wider.low <= one.low
    assert one.high <= wider.high
    turned = paired([-value for value in values])
    assert (turned.low, turned.high) == pytest.approx((-one.high, -one.low))


def test_launch_and_run_spread_are_told_apart():
    draw = random.Random(4)
    group = []
    for _ in range(600):
        launch = draw.gauss(0, 0.01)
        group.append([launch + draw.gauss(0, 0.01) for _ in range(draw.choice((1, 2, 3, 4)))])
    halves = [[[value + 7 for value in runs] for runs in group[:300]], group[300:]]
    found = components(halves)  # two configurations; their own difference is no spread
    assert found is not None
    assert found.launch == pytest.approx(0.01, rel=0.06)
    assert found.run == pytest.approx(0.01, rel=0.06)
    assert (found.launches, found.df) == (600, 598)


def test_spread_where_it_cannot_be_known():
    assert components([[[1.0, 1.1]], [[2.0, 2.2]]]) is None  # one launch of each
    alone = components([[[1.0], [1.2]]])
    assert alone is not None
    assert alone.run is None  # not zero: no launch has two runs
    assert alone.launch == pytest.approx(0.2 / math.sqrt(2))
    equal = components([[[1.0, 1.2], [1.0, 1.2]]])
    assert equal is not None
    assert equal.launch == 0.0


def test_holm_steps_down_and_stops_at_the_first_that_fails():
    assert holm([0.03, 0.001, 0.02]) == pytest.approx([0.05, 0.05 / 3, 0.025])  # all three
    assert holm([0.03, 0.001, 0.04]) == pytest.approx([0.025, 0.05 / 3, 0.025])  # 0.03 fails, and 0.04 with it
    assert holm([0.03, 0.03]) == [0.025, 0.025]  # neither, although each alone would
    assert holm([0.04]) == [0.05]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_holm_is_between_bonferroni_and_nothing(p_values):
    levels = holm(p_values)
    assert all(0.05 / len(p_values) <= level <= 0.05 for level in levels)
    found = [p < level for p, level in zip(p_values, levels, strict=True)]
    ranked = sorted(range(len(p_values)), key=lambda at: p_values[at])
    assert [found[at] for at in ranked] == sorted((found[at] for at in ranked), reverse=True)


@pytest.mark.parametrize("looks", [(3, 5, 8), (3, 6), (4,), (3, 4, 5, 6)])
def test_looks_spend_five_percent_in_all_and_keep_it(looks):
    alphas = look_alphas(looks)
    assert sum(alphas.values()) == pytest.approx(0.05)
    assert look_alphas((3, 5, 8)) == {3: 0.01, 5: 0.02, 8: 0.02}
    assert looks_power(0.0, 0.01, looks, 40_000) < 0.054
    assert looks_power(0.08, 0.01, looks) > 0.99


def test_every_round_has_each_arm_once_and_every_second_one_is_mirrored():
    starts = set()
    for seed in range(40):
        for arms in ("AB", "ABC", "ABCD"):
            order = schedule(5, arms, seed)
            rounds = [order[at : at + len(arms)] for at in range(0, len(order), len(arms))]
            assert all(sorted(one) == list(arms) for one in rounds)
            assert all(one == rounds[number % 2] for number, one in enumerate(rounds))
            assert rounds[1] == rounds[0][::-1]
            assert schedule(3, arms, seed) == order[: 3 * len(arms)]
            starts.add((arms, order[0]))
    assert len(starts) == 2 + 3 + 4  # any arm may begin


def test_no_heavy_import_before_a_verdict_is_asked_for():
    script = "import sys, tui.core.verdicts.judging as v; print({'mpmath', 'numpy', 'scipy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
