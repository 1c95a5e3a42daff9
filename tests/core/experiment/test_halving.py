"""Successive halving where the truth is known: who is dropped, who is chosen, and how often that is wrong."""

import math
import random

import pytest

from tui.core.experiment.halving import ASSUMED_CV, Entrant, choose, rungs, visible
from tui.core.model.verdict import Noise

# As the demo host draws them: docs/demo.md, "Noise".
LAUNCH_CV, RUN_CV = 0.01, 0.004
NOISE = Noise(LAUNCH_CV, RUN_CV, launches=6, df=5)


def screened(truths: dict[str, float], rng: random.Random, noise: Noise | None = NOISE) -> tuple[set[str], str, int]:
    """(who was dropped before the last choice, who was chosen, launches) of a screening with one run a launch."""
    sums, left, dropped, made = dict.fromkeys(truths, 0.0), list(truths), set[str](), 0
    for rung in range(1, len(rungs(len(truths))) + 1):
        for name in left:
            sums[name] += math.log(truths[name]) + rng.gauss(0, LAUNCH_CV) + rng.gauss(0, RUN_CV)
            made += 1
        choice = choose([Entrant(name, sums[name] / rung, rung) for name in left], visible(noise, 1))
        left = [one.name for one in choice.kept]
        dropped |= {one.name for one in choice.dropped}
        if len(left) == 1:
            break
    return dropped, left[0], made


def rates(truths: dict[str, float], noise: Noise | None = NOISE, times: int = 1000) -> tuple[float, float, float]:
    """How often the best is dropped, and is chosen; and the launches, on average."""
    best = max(truths, key=lambda name: truths[name])
    found = [screened(truths, random.Random(seed), noise) for seed in range(times)]
    lost = sum(best in dropped for dropped, _, _ in found) / times
    chosen = sum(name == best for _, name, _ in found) / times
    return lost, chosen, sum(made for _, _, made in found) / times


def test_the_motivating_case_keeps_its_winner_in_every_seed():
    """Three that start: 89.5, 72.3 and 38 tok/s."""
    assert rates({"B": 89.5, "C": 38.0, "I": 72.3}) == (0.0, 1.0, 5.0)


@pytest.mark.parametrize("noise", [NOISE, None], ids=["the host's noise", "an assumed one"])
def test_a_best_by_five_percent_among_sixteen_is_found(noise):
    truths = {f"{number:02}": 100.0 - 5 - number for number in range(16)} | {"best": 100.0}
    lost, chosen, launches = rates(truths, noise)
    assert lost == 0.0
    assert chosen >= 0.99
    assert launches < 17 * len(rungs(17)) * 0.75  # against as many for all


def test_a_best_by_three_percent_survives_in_95_of_100():
    lost, chosen, _ = rates({**{f"{number:02}": 97.0 for number in range(7)}, "best": 100.0})
    assert lost <= 0.001
    assert chosen >= 0.95


def test_nobody_is_dropped_among_equals():
    """What cannot be told apart is not: one of eight equals is dropped by chance in few of 1000 screenings."""
    lost = sum(bool(screened({str(n): 100.0 for n in range(8)}, random.Random(seed))[0]) for seed in range(1000)) / 1000
    assert lost <= 0.05


def test_who_is_within_noise_of_the_cut_goes_on():
    seen = visible(NOISE, 1)
    data = {"a": 0.0, "b": -0.001, "c": -0.001 - 0.9 * seen, "d": -0.001 - 1.1 * seen}
    choice = choose([Entrant(name, datum, 1) for name, datum in data.items()], seen)
    assert [one.name for one in choice.kept] == ["a", "b", "c"]
    assert [one.name for one in choice.dropped] == ["d"]
    # Twice the launches see less: then c is out too.
    choice = choose([Entrant(name, datum, 2) for name, datum in data.items()], seen)
    assert [one.name for one in choice.dropped] == ["c", "d"]


def test_noise_that_rests_on_little_is_not_gone_by():
    assert visible(None, 1) == pytest.approx(3 * ASSUMED_CV)
    assert visible(Noise(0.001, None, 3, 2), 1) == pytest.approx(3 * ASSUMED_CV)
    assert visible(Noise(0.05, None, 3, 2), 1) == pytest.approx(0.15)
    assert visible(NOISE, 1) < 3 * ASSUMED_CV


@pytest.mark.parametrize(
    ("count", "sizes"), [(1, (1,)), (2, (2,)), (3, (3, 2)), (8, (8, 4, 2)), (31, (31, 16, 8, 4, 2))]
)
def test_rungs_halve_down_to_two(count, sizes):
    assert rungs(count) == sizes
