"""How often verdicts are wrong: simulated experiments of known truth, through the code that judges real ones.

Model: log rate = arm + launch + drift + run. Launch CV 1 % or 0.3 %, run CV 0.4 %, three runs on a launch; a drift is
linear, 3 % over the whole experiment. Seeds are fixed.
"""

import math
import random

import pytest

from tui.core.decide.cases import judge
from tui.core.decide.pairing import Side, noise_of, setting
from tui.core.decide.schedule import schedule
from tui.core.decide.stats import paired
from tui.core.decide.verdicts import Plan, compare, compare_all
from tui.core.decide.yardsticks import metric
from tui.core.measure.model import VerdictKind

RUN_CV, RUNS = 0.004, 3
EFFECT = math.log(1.091)
CONDITIONS = [(cv, drift, pairs) for cv in (0.01, 0.003) for drift in (0.0, 0.03) for pairs in (3, 4, 5)]
EACH = 1000  # through stored results, in each condition: 12,000 experiments in all
MANY = 5000  # through the interval and the rule alone, in each condition
WRONG = (VerdictKind.FASTER, VerdictKind.SLOWER)


def simulate(draw, order, cv, drift, effect=0.0):
    """The logs of the runs of each launch, in order; the effect is that of B."""
    found = []
    for at, letter in enumerate(order):
        launch = draw.gauss(0, cv) + drift * at / (len(order) - 1) + (effect if letter == "B" else 0.0)
        found.append([launch + draw.gauss(0, RUN_CV) for _ in range(RUNS)])
    return found


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


@pytest.mark.parametrize(("cv", "drift", "pairs"), CONDITIONS)
def test_two_of_the_same_are_rarely_called_different(experiment, cv, drift, pairs):
    draw = random.Random(f"{cv} {drift} {pairs}")
    wrong = 0
    for number in range(EACH):
        order = schedule(pairs, "AB", number)
        sides = experiment(order, simulate(draw, order, cv, drift))
        found = compare(sides["A"], sides["B"], plan=Plan(pairs))
        assert found.level == "L2"
        wrong += found.verdict in WRONG
    assert wrong / EACH <= 0.06


@pytest.mark.parametrize(("cv", "drift", "pairs"), CONDITIONS)
def test_the_interval_alone_is_honest_without_a_margin(cv, drift, pairs):
    draw = random.Random(f"{cv} {drift} {pairs} alone")
    wrong = 0
    for number in range(MANY):
        order = schedule(pairs, "AB", number)
        means = [sum(runs) / RUNS for runs in simulate(draw, order, cv, drift)]
        a = [mean for mean, letter in zip(means, order, strict=True) if letter == "A"]
        b = [mean for mean, letter in zip(means, order, strict=True) if letter == "B"]
        interval = paired([y - x for x, y in zip(a, b, strict=True)])
        wrong += judge(interval, 1e-9) in WRONG
    assert wrong / MANY <= 0.06


def test_all_a_before_all_b_would_be_wrong_most_of_the_time(experiment):
    """The simulation can tell a bad design: judged as pairs, a drift looks like an effect; so it is not judged so."""
    draw = random.Random(1)
    as_pairs = verdicts = 0
    for _ in range(300):
        logs = simulate(draw, "AAABBB", 0.003, 0.03)
        means = [sum(runs) / RUNS for runs in logs]
        interval = paired([b - a for a, b in zip(means[:3], means[3:], strict=True)])
        as_pairs += judge(interval, 0.02) in WRONG
        sides = experiment("AAABBB", logs)
        found = compare(sides["A"], sides["B"])
        assert found.level == "L1"
        verdicts += found.verdict in WRONG
    assert as_pairs / 300 > 0.5
    assert verdicts == 0


@pytest.mark.parametrize("drift", [0.0, 0.03])
def test_three_pairs_find_nine_percent(experiment, drift):
    draw = random.Random(2)
    found = 0
    for number in range(500):
        order = schedule(3, "AB", number)
        sides = experiment(order, simulate(draw, order, 0.01, drift, EFFECT))
        verdict = compare(sides["A"], sides["B"])
        found += verdict.verdict is VerdictKind.FASTER
    assert found / 500 >= 0.95


@pytest.mark.parametrize("drift", [0.0, 0.03])
def test_four_arms_of_the_same_are_held_to_five_percent_together(experiment, drift):
    draw = random.Random(3)
    wrong = 0
    for number in range(800):
        order = schedule(3, "ABCD", number)
        sides = experiment(order, simulate(draw, order, 0.003, drift))
        found = compare_all([(sides["A"], sides[letter]) for letter in "BCD"], margin=1e-9, plan=Plan(3))
        wrong += any(verdict.verdict in WRONG for verdict in found)
    assert wrong / 800 <= 0.06


@pytest.mark.parametrize("cv", [0.01, 0.003])
def test_single_launches_are_rarely_called_different_by_the_noise_of_an_a_a(experiment, cv):
    draw = random.Random(f"{cv} single")
    wrong = seen = 0
    for number in range(600):
        order = schedule(3, "AB", number)
        logs = simulate(draw, order, cv, 0.0)
        same = experiment("A" * 6, logs)["A"]
        noise = noise_of(same.results, metric("per_user_tok_s"), setting(same.results[0]))
        sides = experiment("AB", simulate(draw, "AB", cv, 0.0))
        wrong += compare(sides["A"], sides["B"], noise=noise, margin=1e-9).verdict in WRONG
        sides = experiment("AB", simulate(draw, "AB", cv, 0.0, EFFECT))
        seen += compare(sides["A"], sides["B"], noise=noise).verdict is VerdictKind.FASTER
    assert wrong / 600 <= 0.06
    assert seen / 600 > 0.9
