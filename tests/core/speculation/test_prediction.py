"""The estimate from a baseline's sweep: held against every published row, calibrated, from results, the command."""

import gzip
import itertools
import json
import math
from dataclasses import replace

import pytest
from click.testing import CliRunner

from tests.support import published_speedups as published
from tui.cli import cli
from tui.core.errors import UsageError
from tui.core.model.result import Counts, Guard, GuardStatus
from tui.core.results import store
from tui.core.speculation import prediction
from tui.core.speculation.from_results import predictions
from tui.core.speculation.prediction import calibrated, predict
from tui.core.verdicts.pairing import Side


def of(row):
    found = predict(row.steps_ms, row.users, row.draft_tokens, row.steps)
    assert found is not None
    return found


# ---- against published figures --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", published.ROWS, ids=lambda row: f"{row.source}-{row.users}x{row.draft_tokens}")
def test_the_measured_speedup_lies_in_the_range(row):
    low, high = of(row).speedup_range(row.tau)
    assert low <= row.speedup <= high
    assert high / low < 3.6, "a range that holds everything says nothing"
    assert high < row.tau, "a cycle never costs a decode step alone"


def test_what_it_replaced_lay_outside():
    """T(b x N) as the time of a verify step: too rosy for small chains, too gloomy for large trees, neither of them a bound."""
    swept = [row for rows in published.SWEPT.values() for row in rows if row.users * row.draft_tokens <= 64]
    ratios = [row.tau * row.steps_ms[row.users] / (of(row).t_batch_ms * row.speedup) for row in swept]
    assert min(ratios) < 0.35
    assert max(ratios) > 1.6


@pytest.mark.parametrize("held", published.SWEPT)
def test_constants_fitted_on_one_table_hold_on_the_other(held, monkeypatch):
    [fitted_on] = [rows for name, rows in published.SWEPT.items() if name != held]

    def errors(rows, share, fixed):
        monkeypatch.setattr(prediction, "V", share)
        monkeypatch.setattr(prediction, "F", fixed)
        return [math.log(row.tau / of(row).breakeven_tau / row.speedup) for row in rows]

    grid = itertools.product([at / 100 for at in range(0, 31)], [at / 10 for at in range(0, 26)])
    share, fixed = min(grid, key=lambda at: sum(error**2 for error in errors(fitted_on, *at)))
    assert 0.11 <= share <= 0.15
    assert fixed == 1.3
    assert max(map(abs, errors(published.SWEPT[held], share, fixed))) < 0.26
    for row in published.SWEPT[held]:
        low, high = of(row).speedup_range(row.tau)
        assert low <= row.speedup <= high


@pytest.mark.parametrize("tasks", published.BY_TASK.values(), ids=published.BY_TASK)
def test_a_cycle_measured_with_one_text_holds_for_another(tasks):
    for (base, rate, tau), (other_base, other_rate, other_tau) in itertools.permutations(tasks, 2):
        found = calibrated(1, 3, 1000 / base, [1000 * tau / rate])
        low, high = found.speedup_range(other_tau)
        assert low <= other_rate / other_base <= high
        assert high / low < 1.26


# ---- the parts ------------------------------------------------------------------------------------------------------------

STEPS_MS = {1: 11.0, 4: 12.0, 16: 15.0, 64: 30.0}


def test_the_estimate_is_the_sum_of_its_parts():
    found = predict(STEPS_MS, 1)  # a chain of three steps
    assert (found.t_verify_ms, found.t_draft_ms, found.t_fixed_ms) == pytest.approx((11.12, 2.31, 11.0))
    assert found.t_cycle_ms == pytest.approx(24.43)
    assert found.cycle_range_ms == pytest.approx((11 + 0.06 + 1.155, 11 + 2 * 13.43))
    assert found.breakeven_range == pytest.approx((12.215 / 11, 37.86 / 11))
    assert dict(found.speedups) == pytest.approx({tau: tau * 11 / 24.43 for tau in (2.0, 3.0, 4.0)})
    assert found.speedup_range(2.0) == pytest.approx((22 / 37.86, 22 / 12.215))
    known = predict(STEPS_MS, 1, draft_ms=4.0)
    assert known.cycle_range_ms == pytest.approx((15.06, 11 + 0.24 + 22 + 4))
    assert predict(STEPS_MS, 1, 8, steps=2).t_draft_ms == pytest.approx(0.07 * 2 * 11)
    assert predict(STEPS_MS, 1, 3).speedups[-1][0] == 3.0  # four tokens are out of reach


def test_the_sweep_is_a_line_between_its_loads_and_beyond_them():
    between = predict(STEPS_MS, 4, draft_tokens=5)
    assert between.t_batch_ms == pytest.approx(15 + 15 * 4 / 48)
    assert between.reasons == ()
    beyond = predict(STEPS_MS, 16, draft_tokens=5)
    assert beyond.t_batch_ms is None
    assert beyond.t_verify_ms == pytest.approx(15 + 0.12 * (35 - 15))
    assert beyond.reasons == ("the sweep ends at 64 users: the step of 80 is extrapolated",)
    falling = {1: 10.0, 4: 12.0, 16: 11.9}  # noise
    assert predict(falling, 1, draft_tokens=32).t_verify_ms == pytest.approx(10 + 0.12 * 1.9)
    assert predict(falling, 4).t_verify_ms == 12.0
    assert predict(STEPS_MS, 2) is None
    assert predict({1: 11.0}, 1) is None


# ---- from results ---------------------------------------------------------------------------------------------------------


def side(*launches):
    return Side("A", "base", tuple(result for launch in launches for result in launch))


@pytest.fixture
def sweep(make_launch):
    rates = {1: 90.0, 4: 75.0, 64: 30.0}
    return side(*(make_launch("base", 0, (rate,), concurrency=users) for users, rate in rates.items()))


@pytest.fixture
def forced(make_launch):
    def make(at, length, cycle_ms=30.0, users=1, **more):
        guard = Guard("simulated_acceptance", GuardStatus.FAILED, "forced")
        env = {"SGLANG_SIMULATE_ACC_LEN": str(length)}
        runs = make_launch("eagle3", at, (66.0,), tau=length, cycle_ms=cycle_ms, env=env, concurrency=users, **more)
        return tuple(replace(run, valid=False, guards=(guard,)) for run in runs)

    return make


def test_a_sweep_of_the_baseline_is_enough(sweep):
    found = predictions(sweep)
    assert [one.concurrency for one in found] == [1, 4, 64]
    alone = predict({1: 1000 / 90, 4: 1000 / 75, 64: 1000 / 30}, 1)
    assert found[0].cycle_range_ms == pytest.approx(alone.cycle_range_ms)
    assert found[0].probability == pytest.approx(5 / 7)
    with pytest.raises(UsageError, match="concurrency 1: an estimate takes two loads"):
        predictions(replace(sweep, results=sweep.results[:1]))


def test_one_launch_with_forced_acceptance_measures_the_cycle(sweep, forced):
    other_host = forced(4, 2.0, 99.0, host="gpu2")
    estimate = predictions(sweep)
    found = predictions(sweep, stored=[*forced(3, 2.0), *forced(5, 3.0, 31.0), *other_host])
    one = found[0]
    assert one.calibrated
    assert one.probability is None
    assert one.t_cycle_ms == pytest.approx(30.5)
    assert one.cycle_range_ms == pytest.approx((30 / 1.12, 31 * 1.12))
    assert found[1] == estimate[1], "a load at which it was not measured is estimated as before"
    alone = replace(sweep, results=sweep.results[:1])
    assert predictions(alone, stored=forced(3, 2.0))[0].calibrated, "no sweep is needed"


def test_the_draft_of_the_newest_forced_run_is_meant(sweep, forced):
    found = predictions(sweep, stored=[*forced(3, 2.0, 50.0, steps=7), *forced(5, 3.0, steps=5)])
    assert [one.draft_tokens for one in found] == [6, 6, 6]
    assert found[0].t_cycle_ms == pytest.approx(30.0)


def test_what_a_server_with_speculation_runs_at_once(sweep, forced):
    [*_, at_64] = predictions(sweep)
    assert at_64.reasons == (
        "the sweep ends at 64 users: the step of 256 is extrapolated",
        "a server with speculation runs 48 requests at once here (max-running-requests): of 64 users 16 queue, which is not "
        "in the estimate",
    )
    raised = [replace(one, server=replace(one.server, args={"max_running_requests": 64})) for one in sweep.results]
    assert len(predictions(replace(sweep, results=tuple(raised)))[-1].reasons) == 1
    runs = forced(3, 2.0, users=1)
    spec = [replace(run, server=replace(run.server, args={"max_running_requests": 2})) for run in runs]
    assert "runs 2 requests at once here" in predictions(sweep, stored=spec)[1].reasons[0]


def test_a_pool_that_does_not_hold_the_load_is_named(sweep, forced):
    def with_pool(results, tokens, **args):
        return tuple(
            replace(
                one,
                server=replace(one.server, args={"max_total_num_tokens": tokens, **args}),
                counts=Counts(ok=10, input_tokens=2880),
            )
            for one in results
        )

    def said(base, stored=()):
        return [
            reason
            for one in predictions(replace(sweep, results=base), stored=stored)
            for reason in one.reasons
            if "KV cache" in reason
        ]

    assert said(with_pool(sweep.results, 102400)) == []  # 64 x (288 + 512) = 51200
    [text] = said(with_pool(sweep.results, 102399))
    assert text == (
        "64 requests of 800 tokens need 51,200 tokens of KV cache, the baseline has 102,399, a server with speculation fewer: "
        "requests may queue or be retracted, which is not in the estimate"
    )
    spec = with_pool(forced(3, 2.0), 51199, max_running_requests=64)
    [text] = said(with_pool(sweep.results, 10**6), spec)
    assert "need 51,200 tokens of KV cache, the server with speculation has 51,199" in text
    assert said(with_pool(sweep.results, 10**6), with_pool(spec, 51199, dp_size=2)) == []


# ---- the command ----------------------------------------------------------------------------------------------------------


def invoke(*words):
    return CliRunner().invoke(cli, ["breakeven", *words], standalone_mode=False)


def test_breakeven_of_a_baseline_alone(sweep, forced):
    for result in sweep.results:
        store.write(result, gzip.compress(b""))
    document = json.loads(invoke("base", "--json").stdout)
    assert document["predicted"] is True
    assert document["calibrated"] is False
    low, high = document["breakeven_range"]
    assert low < document["breakeven_tau"] < high
    assert document["t_cycle_ms"] == pytest.approx(
        document["t_verify_ms"] + document["t_draft_ms"] + document["t_fixed_ms"]
    )
    assert [tau for tau, *_ in document["speedup_ranges"]] == [2.0, 3.0, 4.0]
    assert [one["point"] for one in document["points"]] == ["c1", "c4", "c64"]
    done = invoke("base", "--concurrency", "1")
    assert done.stdout.splitlines() == [
        "Estimate for 1 user, 4 draft tokens: pays from accept length 2.2, the range is 1.1 … 3.5",
        "   speedup 0.90× at 2 (0.58 … 1.79), 1.34× at 3 (0.87 … 2.69), 1.79× at 4 (1.15 … 3.58)",
        "   a decode step of 11.11 ms, a cycle of 24.8 ms (12.4 … 38.5): verify 11.4, drafts 2.3, fixed 11.1",
        "   the range holds 6 measured setups; another one lies in it in about 5 of 7 cases",
    ]
    assert "SGLANG_SIMULATE_ACC_LEN" in done.stderr
    for result in forced(3, 2.0):
        store.write(result, gzip.compress(b""))
    done = invoke("base", "--concurrency", "1")
    assert done.stdout.splitlines() == [
        "Estimate for 1 user, 4 draft tokens: pays from accept length 2.7, the range is 2.4 … 3.0",
        "   speedup 0.74× at 2 (0.66 … 0.83), 1.11× at 3 (0.99 … 1.24), 1.48× at 4 (1.32 … 1.66)",
        "   a decode step of 11.11 ms, a cycle of 30.0 ms (26.8 … 33.6), measured",
        "   the cycle was measured with forced acceptance; other text moves it by up to 12 %",
    ]
    assert done.stderr == ""
    assert json.loads(invoke("base", "--json").stdout)["t_verify_ms"] is None
    assert "base was not measured at concurrency 7" in str(invoke("base", "--concurrency", "7").exception)
