"""How often verdicts are wrong: simulated experiments of known truth, through the code that judges real ones.

A sample of what benchmarks/false_verdicts.py does in full, and what that has no table for. Seeds are fixed, and a sample
fails only where so many wrong verdicts would be one in a thousand if no more than 6 % were (exact binomial).
"""

import itertools
import math
import random
import runpy
from pathlib import Path

import pytest
from scipy import stats as oracle

from tests.support.verdicts import compare, compare_all
from tui.core.experiment.record import schedule
from tui.core.model.verdict import VerdictKind
from tui.core.verdicts import stats
from tui.core.verdicts.comparison import Plan, judge
from tui.core.verdicts.metric import metric
from tui.core.verdicts.pairing import Side, noise_of, setting
from tui.core.verdicts.stats import paired

RUN_CV, RUNS = 0.004, 3
EFFECT = math.log(1.091)
LIMIT = 0.06
SIMULATED = runpy.run_path(str(Path(__file__).parents[3] / "benchmarks" / "false_verdicts.py"))
WRONG = (VerdictKind.FASTER, VerdictKind.SLOWER)


def is_honest(rate) -> bool:
    """Whether so many wrong ones are no reason to doubt that at most 6 % are."""
    return oracle.binomtest(rate.wrong, rate.of, LIMIT, "greater").pvalue > 0.001


def simulate(draw, order, cv, drift, effect=0.0):
    """The logs of the runs of each launch, in order; the effect is that of B."""
    found = []
    for at, letter in enumerate(order):
        launch = draw.gauss(0, cv) + drift * at / (len(order) - 1) + (effect if letter == "B" else 0.0)
        found.append([launch + draw.gauss(0, RUN_CV) for _ in range(RUNS)])
    return found


@pytest.fixture(autouse=True)
def no_power(monkeypatch):
    """A simulation of its own, for a fact beside the verdict."""
    monkeypatch.setattr(stats, "looks_power", lambda *_: 0.0)


@pytest.fixture(scope="module")
def experiment(make_launch):
    """experiment(order, logs): the sides of an experiment by letter."""

    def make(order, logs):
        sides = {letter: [] for letter in sorted(set(order))}
        for at, (letter, runs) in enumerate(zip(order, logs, strict=True)):
            pair = at // len(sides) + 1
            rates = [82.0 * math.exp(value) for value in runs]
            sides[letter] += make_launch(f"p-{letter}", at, rates, experiment="x", arm=letter, pair=pair)
        return {letter: Side(letter, letter, tuple(results)) for letter, results in sides.items()}

    return make


@pytest.mark.parametrize("world", ["normal", "t3", "drift 3 %", "step 3 %", "outliers", "ar −0.5"])
def test_two_of_the_same_are_rarely_called_different(world):
    for cv, pairs in itertools.product((0.01, 0.03), (3, 5)):
        assert is_honest(SIMULATED["of_pairs"](world, cv, pairs, 300)), (cv, pairs)


@pytest.mark.parametrize("world", ["normal", "drift 3 %"])
def test_the_interval_alone_is_honest_without_a_margin(world):
    for cv in (0.01, 0.003):
        assert is_honest(SIMULATED["of_pairs"](world, cv, 3, 600, margin=1e-9))


@pytest.mark.parametrize(
    ("world", "arms", "pairs", "looks"), [("normal", 2, 8, (3, 5, 8)), ("step 3 %", 2, 8, ()), ("normal", 3, 5, (3, 5))]
)
def test_whoever_compares_after_every_pair_and_stops_when_it_is_decided_errs_no_more(world, arms, pairs, looks):
    assert is_honest(SIMULATED["stopped"](world, 0.02, arms, pairs, looks, 30))


def test_without_its_plan_an_experiment_would_be_stopped_when_it_pleases():
    """The simulation can tell: this is what a plan that is not found costs."""
    assert not is_honest(SIMULATED["stopped"]("normal", 0.02, 2, 8, (3, 5, 8), 60, planned_for=False))


def test_all_a_before_all_b_would_be_wrong_most_of_the_time(experiment):
    """The simulation can tell a bad design: judged as pairs, a drift looks like an effect; so it is not judged so."""
    draw = random.Random(1)
    as_pairs = verdicts = 0
    for _ in range(150):
        logs = simulate(draw, "AAABBB", 0.003, 0.03)
        means = [sum(runs) / RUNS for runs in logs]
        interval = paired([b - a for a, b in zip(means[:3], means[3:], strict=True)])
        as_pairs += judge(interval, 0.02) in WRONG
        sides = experiment("AAABBB", logs)
        found = compare(sides["A"], sides["B"])
        assert found.level == "L1"
        verdicts += found.verdict in WRONG
    assert as_pairs / 150 > 0.5
    assert verdicts == 0


@pytest.mark.parametrize("drift", [0.0, 0.03])
def test_three_pairs_find_nine_percent(experiment, drift):
    draw = random.Random(2)
    found = 0
    for number in range(200):
        order = schedule(3, "AB", number)
        sides = experiment(order, simulate(draw, order, 0.01, drift, EFFECT))
        verdict = compare(sides["A"], sides["B"])
        found += verdict.verdict is VerdictKind.FASTER
    assert found / 200 >= 0.95


@pytest.mark.parametrize("drift", [0.0, 0.03])
def test_four_arms_of_the_same_are_held_to_five_percent_together(experiment, drift):
    draw = random.Random(3)
    wrong = 0
    for number in range(120):
        order = schedule(3, "ABCD", number)
        sides = experiment(order, simulate(draw, order, 0.003, drift))
        found = compare_all([(sides["A"], sides[letter]) for letter in "BCD"], margin=1e-9, plan=Plan(3))
        wrong += any(verdict.verdict in WRONG for verdict in found)
    assert is_honest(SIMULATED["Rate"](wrong, 120))


def test_a_screening_is_no_verdict_and_says_how_many_chance_shows():
    alone, nine = SIMULATED["screened"](1, 6, 0.01, 200), SIMULATED["screened"](9, 6, 0.01, 80)
    assert alone.says == nine.says == 0
    assert is_honest(SIMULATED["Rate"](alone.looks, 200))
    assert nine.looks <= 1.3 * nine.expected
    assert nine.expected / 80 == pytest.approx(0.45, abs=0.05)
    # What the noise of before does not hold: launches that differ more by now, a host that slows down meanwhile.
    grown = SIMULATED["screened"](9, 6, 0.01, 40, grown=2.0)
    slower = SIMULATED["screened"](9, 6, 0.01, 40, later=0.03)
    assert grown.says == slower.says == 0
    assert grown.looks > 2 * grown.expected
    assert slower.looks > 2 * slower.expected


def test_one_launch_each_shows_nine_percent(experiment):
    draw = random.Random(4)
    seen = 0
    for _ in range(150):
        same = experiment("A" * 6, simulate(draw, "A" * 6, 0.01, 0.0))["A"]
        noise = noise_of(same.results, metric("per_user_tok_s"), setting(same.results[0]))
        sides = experiment("AB", simulate(draw, "AB", 0.01, 0.0, EFFECT))
        seen += compare(sides["A"], sides["B"], noise=noise).verdict is VerdictKind.LOOKS_FASTER
    assert seen / 150 > 0.9
