"""The stated model: its windows, its ratios, its noise."""

import math
import random
import statistics

import pytest

from tui.demo import model


def _eagle(fraction: float, **more: object) -> model.Config:
    return model.Config(True, 8, fraction, 48, speculative=True, steps=3, draft_tokens=4, **more)  # type: ignore[arg-type]


def _fits(config: model.Config) -> bool:
    return config.pool_tokens > 0 and config.outside_gib >= config.capture_peak_gib


@pytest.mark.parametrize(
    ("fraction", "pool", "starts"),
    [
        (0.76, False, False),
        (0.83, False, False),
        (0.84, True, True),
        (0.88, True, True),
        (0.90, True, True),
        (0.91, True, False),
    ],
)
def test_memory_window_with_draft_model(fraction: float, pool: bool, starts: bool) -> None:
    config = _eagle(fraction)
    assert (config.pool_tokens > 0) is pool
    assert _fits(config) is starts


@pytest.mark.parametrize(
    ("fraction", "starts"), [(0.75, False), (0.76, True), (0.84, True), (0.94, True), (0.96, False)]
)
def test_memory_window_of_the_baseline(fraction: float, starts: bool) -> None:
    assert _fits(model.Config(True, 8, fraction, 512)) is starts


def test_memory_adds_up_to_what_was_free() -> None:
    config = _eagle(0.88)
    parts = config.weights_gib + config.draft_gib + config.pool_used_gib + config.outside_gib
    assert parts == pytest.approx(model.FREE_BEFORE_LOAD_GIB)
    assert config.pool_used_gib <= config.pool_gib


def test_smaller_graphs_are_worth_nine_percent_for_one_user() -> None:
    large, small = model.Config(True, 8, 0.84, 512), model.Config(True, 8, 0.84, 128)
    assert 1 / large.decode_step_s(1) == pytest.approx(82.0, abs=0.1)
    assert 1 / small.decode_step_s(1) == pytest.approx(89.5, abs=0.1)
    assert large.decode_step_s(1) / small.decode_step_s(1) == pytest.approx(1.0915, abs=0.001)


def test_speculation_loses_and_by_how_much() -> None:
    base, spec = model.Config(True, 8, 0.84, 128), _eagle(0.88)
    cycle_s = spec.decode_step_s(1)
    assert cycle_s == pytest.approx(0.032)
    assert cycle_s / base.decode_step_s(1) == pytest.approx(2.864, abs=0.01)  # break-even with the draft's cost
    assert 0.030 / base.decode_step_s(1) == pytest.approx(2.685, abs=0.005)  # and without
    assert model.expected_accept_length(3) == pytest.approx(2.31, abs=0.005)
    for users in (1, 4, 16):
        assert model.expected_accept_length(3) / spec.decode_step_s(users) < 1 / base.decode_step_s(users)


def test_custom_all_reduce_over_pcie_is_slow() -> None:
    assert 1 / model.Config(True, 8, 0.84, 128, custom_allreduce=True).decode_step_s(1) == pytest.approx(38.0)


def test_drawn_accept_length_is_the_stated_one() -> None:
    config, rng = _eagle(0.88), random.Random(7)
    drawn = [1 + config.draw_accepted(rng, 1.0) for _ in range(40_000)]
    assert statistics.fmean(drawn) == pytest.approx(model.expected_accept_length(3), abs=0.02)
    assert max(drawn) == 4
    random_prompt = [1 + config.draw_accepted(rng, model.RANDOM_PROMPT_ACCEPT) for _ in range(5_000)]
    assert statistics.fmean(random_prompt) < 1.4


def test_simulated_accept_length_and_a_draft_of_the_wrong_kind() -> None:
    rng = random.Random(3)
    forced = _eagle(0.88, simulated_accept=2.5)
    assert statistics.fmean(1 + forced.draw_accepted(rng, 1.0) for _ in range(20_000)) == pytest.approx(2.5, abs=0.02)
    assert _eagle(0.88, matching_draft=False).draw_accepted(rng, 1.0) == 0


def test_launch_and_run_noise_have_the_stated_spread() -> None:
    launches = [math.log(model.launch_factor(seed, "c", n)) for seed in range(100) for n in range(20)]
    runs = [math.log(model.run_factor(1, "c", 1, n)) for n in range(2000)]
    assert statistics.stdev(launches) == pytest.approx(0.01, rel=0.06)
    assert statistics.stdev(runs) == pytest.approx(0.004, rel=0.06)
    assert abs(statistics.fmean(launches)) < 0.001
    assert model.launch_factor(1, "c", 1) == model.launch_factor(1, "c", 1)
    assert len({model.launch_factor(1, "c", 1), model.launch_factor(2, "c", 1), model.launch_factor(1, "d", 1)}) == 3


def test_paired_launches_show_the_effect_on_most_seeds() -> None:
    """What an experiment of three launch pairs sees, without its servers: the interval contains 9.1 % on 19 of 20."""
    true = math.log(
        model.Config(True, 8, 0.84, 512).decode_step_s(1) / model.Config(True, 8, 0.84, 128).decode_step_s(1)
    )
    hits = faster = 0
    for seed in range(1, 201):
        logs = [
            true
            + math.log(model.launch_factor(seed, "512", n) * model.run_factor(seed, "512", n, 1))
            - math.log(model.launch_factor(seed, "128", n) * model.run_factor(seed, "128", n, 1))
            for n in (1, 2, 3)
        ]
        half = 4.3027 * statistics.stdev(logs) / math.sqrt(3)
        middle = statistics.fmean(logs)
        hits += abs(middle - math.log(1.091)) <= half
        faster += middle - half > 0
    assert hits >= 180
    assert faster >= 190


def test_graph_buckets() -> None:
    assert len(model.buckets(512, speculative=False)) == 52
    assert model.buckets(16, speculative=False) == [1, 2, 4, 8, 12, 16]
    assert model.buckets(10, speculative=True) == [1, 2, 3, 4, 5, 6, 7, 8, 10]
    assert model.buckets(48, speculative=True)[-1] == 48


def test_a_configuration_is_the_same_on_another_port() -> None:
    key = model.configuration_key(["--tp", "8", "--port", "1"], [])
    assert key == model.configuration_key(["--tp", "8", "--port", "2", "--api-key=x", "--enable-metrics"], [])
    assert key != model.configuration_key(["--tp", "4", "--port", "1"], [])
    assert key != model.configuration_key(["--tp", "8"], [("NCCL_ALGO", "Ring")])
