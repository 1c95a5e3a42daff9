"""The economics of speculation: published figures, the motivating case, properties, stored results, the command."""

import gzip
import json
import random
from dataclasses import replace

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from tui.cli import cli
from tui.core.errors import UsageError
from tui.core.model.result import AllReduce, Guard, GuardStatus
from tui.core.results import store
from tui.core.speculation.economics import (
    Economics,
    alpha_of,
    curve,
    fit_simulated,
    of_figures,
    over_launches,
    over_requests,
    tau_of,
)
from tui.core.speculation.from_results import payoff
from tui.core.speculation.prediction import predict
from tui.core.speculation.verify_cost import Weight, verify_cost
from tui.core.verdicts.pairing import Side


def side(name, *launches):
    return Side(name, name, tuple(result for launch in launches for result in launch))


# ---- the equations ------------------------------------------------------------------------------------------------------


def test_the_motivating_case():
    found = of_figures(89.5, 30.0)
    assert found.breakeven_tau == 2.685  # exactly, so that it rounds to 2.69
    assert found.t_base_ms == pytest.approx(11.17, abs=0.01)
    assert found.text == "Speculation pays from accept length 2.69"
    assert [round(of_figures(89.5, 30.0, draft).breakeven_tau, 2) for draft in (2.0, 4.0)] == [2.86, 3.04]
    assert round(of_figures(82.0, 30.0).breakeven_tau, 2) == 2.46  # against the baseline before it was tuned
    has = of_figures(89.5, 30.0, 2.0, 2.31)
    assert has.text == "Speculation pays from accept length 2.86; you have 2.31: 0.81×, a loss, short by 0.55"
    assert of_figures(89.5, 30.0, 2.0, 3.2).text.endswith("you have 3.20: 1.12×, a gain, 0.34 to spare")


@pytest.mark.parametrize(
    ("draft_ms", "speedups"),
    [
        (0.0, [0.74, 0.93, 1.12, 1.30, 1.49, 1.86]),
        (2.0, [0.70, 0.87, 1.05, 1.22, 1.40, 1.75]),
        (4.0, [0.66, 0.82, 0.99, 1.15, 1.31, 1.64]),
    ],
)
def test_speedup_by_accept_length(draft_ms, speedups):
    found = [of_figures(89.5, 30.0, draft_ms, tau).speedup for tau in (2.0, 2.5, 3.0, 3.5, 4.0, 5.0)]
    assert found == pytest.approx(speedups, abs=0.006)


@pytest.mark.parametrize(
    ("speedup", "tau", "rho"),
    [(1.69, 2.17, 1.29), (1.71, 1.91, 1.12), (1.37, 2.04, 1.49), (2.28, 4.68, 2.05), (2.36, 4.34, 1.84)],
)
def test_published_tables_give_their_cost_of_a_cycle(speedup, tau, rho):
    found = Economics(100.0, 10.0 * tau / speedup, tau)
    assert found.breakeven_tau == pytest.approx(rho, abs=0.006)
    assert found.speedup == pytest.approx(speedup)


def test_acceptance_per_draft_token_that_break_even_takes():
    assert tau_of(0.64, 3) == pytest.approx(1 + 0.64 + 0.64**2 + 0.64**3)
    needed = {drafts: round(alpha_of(2.69, drafts) or 0, 2) for drafts in (2, 3, 4, 5, 7)}
    assert needed == {2: 0.89, 3: 0.74, 4: 0.68, 5: 0.66, 7: 0.64}
    assert alpha_of(4.01, 3) is None  # three drafts and the bonus token are four at best
    assert alpha_of(0.9, 3) is None
    assert Economics(89.5, 30.0, ceiling=4, chain=True).best_speedup == pytest.approx(1.49, abs=0.005)


@given(st.floats(0, 1), st.integers(1, 8))
def test_alpha_and_tau_are_inverse(alpha, drafts):
    tau = tau_of(alpha, drafts)
    assert 1 <= tau <= drafts + 1
    back = alpha_of(tau, drafts)
    assert back is not None
    assert tau_of(back, drafts) == pytest.approx(tau, abs=1e-9)


@given(st.floats(1, 500), st.floats(0.5, 200), st.floats(1, 8))
def test_at_break_even_nothing_is_won_or_lost(base_tok_s, cycle_ms, tau):
    found = Economics(base_tok_s, cycle_ms, tau)
    assert found.speedup_at(found.breakeven_tau) == pytest.approx(1)
    assert found.speedup is not None
    assert found.margin is not None
    if abs(found.margin) > 1e-9 * tau:
        assert (found.speedup > 1) == (found.margin > 0)
    assert len(curve(found, 1e12)) == 41  # a break-even out of reach is no table without end
    assert alpha_of(3.0, 10**18) is None
    points = curve(found, 4.0)
    assert points[0][0] == 1
    assert points[-1] == (4.0, pytest.approx(found.speedup_at(4.0)))


def test_a_draft_that_cannot_reach_the_break_even_says_so():
    found = Economics(89.5, 50.0, 2.31, ceiling=4, chain=True)
    assert found.text == (
        "Speculation cannot pay: it needs an accept length of 4.48, its draft reaches 4 at best; "
        "you have 2.31: 0.52×, a loss, short by 2.17"
    )
    assert found.alpha_text == "No acceptance per draft token is enough; it has 64 %"
    assert Economics(89.5, 32.0, 2.31, ceiling=4, chain=True).alpha_text == (
        "It pays from 78 % acceptance per draft token; it has 64 %"
    )


# ---- forced acceptance, intervals -----------------------------------------------------------------------------------------


def test_forced_accept_lengths_give_the_break_even_without_a_draft_model():
    exact = fit_simulated([(4.0, 4 / 2.87), (2.0, 2 / 2.87), (3.0, 3 / 2.87)])
    assert exact is not None
    assert (exact.breakeven_tau, exact.rho, exact.intercept) == pytest.approx((2.87, 2.87, 0.0), abs=1e-9)
    costly = fit_simulated([(2.0, 0.75), (4.0, 1.25)])  # longer accepted drafts cost a little more
    assert costly is not None
    assert costly.breakeven_tau == pytest.approx(3.0)
    assert costly.intercept == pytest.approx(0.25)
    assert fit_simulated([(2.0, 0.7), (2.0, 0.71)]) is None
    assert fit_simulated([(2.0, 1.2), (4.0, 0.7)]) is None


def test_the_interval_over_launches_is_paired():
    pairs = [(11.0, 31.9), (11.2, 32.5), (11.1, 32.2)]
    low, high = over_launches(pairs)
    assert low < 2.9 < high
    assert high - low < 0.05  # slow launches were slow on both sides
    shuffled = over_launches([(11.0, 32.5), (11.2, 32.2), (11.1, 31.9)])
    assert shuffled[1] - shuffled[0] > high - low
    assert over_launches(pairs[:2]) is None


def test_the_bootstrap_over_requests_covers_the_truth():
    draw = random.Random(5)
    covered = 0
    for _ in range(40):
        base, spec = [], []
        for _ in range(60):
            tokens = draw.randint(100, 300)
            base.append({"t_first": 0.0, "t_last": tokens * 0.011 * draw.gauss(1, 0.1), "out": tokens + 1, "k1": 1})
            spec.append({"t_first": 0.0, "t_last": tokens * 0.032 * draw.gauss(1, 0.1), "verify_ct": tokens})
        cycle = sum(row["t_last"] for row in spec) / sum(row["verify_ct"] for row in spec)
        step = sum(row["t_last"] for row in base) / sum(row["out"] - 1 for row in base)
        low, high = over_requests(base, spec, cycle / step)
        covered += low <= 32 / 11 <= high
        low, high = over_requests(base, spec, 5.0)
        assert low < 5 < high, "the interval is around the point it belongs to"
    assert covered >= 35  # of 40; 38 are expected
    assert over_requests(base[:9], spec, 2.9) is None
    assert over_requests([row | {"err": "reset"} for row in base], spec, 2.9) is None
    assert over_requests(base * 20, spec * 20, 2.9) is not None  # in blocks


# ---- from results ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def base(make_launch):
    return side("A", *(make_launch("base", at, (89.4, 89.5, 89.6)) for at in (0, 3, 4)))


@pytest.fixture
def spec(make_launch):
    return side("B", *(make_launch("eagle3", at, (72.1, 72.2, 72.3), tau=2.31, cycle_ms=32.0) for at in (1, 2, 5)))


def test_two_results_say_whether_it_pays(base, spec):
    found = payoff(base, spec).economics
    assert found.text == "Speculation pays from accept length 2.86; you have 2.31: 0.81×, a loss, short by 0.55"
    assert found.measured_speedup == pytest.approx(72.2 / 89.5, abs=1e-4)
    assert found.basis == "3 launch pairs"
    assert found.interval is not None
    assert found.interval[0] <= found.breakeven_tau <= found.interval[1]
    assert (found.ceiling, found.chain, found.steps) == (4, True, 3)


def test_tau_is_a_ratio_of_sums(base, spec):
    uneven = [
        replace(result, speculation=replace(result.speculation, tau=tau, verify_steps=steps))
        for result, (tau, steps) in zip(spec.results[:2], ((2.0, 900), (3.0, 100)), strict=True)
    ]
    found = payoff(base, replace(spec, results=tuple(uneven))).economics
    assert found.tau == pytest.approx(2.1)


def test_a_tree_has_a_ceiling_but_no_acceptance_per_token(base, make_launch):
    tree = side("B", make_launch("eagle3", 1, (72.0,), tau=2.31, cycle_ms=32.0, topk=4))
    found = payoff(base, tree).economics
    assert (found.ceiling, found.alpha, found.alpha_needed, found.alpha_text) == (4, None, None, None)


def test_only_a_baseline_and_a_speculative_result_have_economics(base, spec):
    with pytest.raises(UsageError, match="A speculates"):
        payoff(replace(spec, name="A"), spec)
    with pytest.raises(UsageError, match="B does not speculate"):
        payoff(base, replace(base, name="B"))
    blank = [replace(result, speculation=None) for result in spec.results]
    with pytest.raises(UsageError, match="no run that counts has a time of a cycle"):
        payoff(base, replace(spec, results=tuple(blank)))


def test_random_tokens_leave_the_cycle_but_no_accept_length(make_launch):
    base = side("A", make_launch("base", 0, (89.5,), dataset="random-ids"))
    spec = side("B", make_launch("eagle3", 1, (40.0,), tau=1.3, cycle_ms=32.0, dataset="random-ids"))
    found = payoff(base, spec).economics
    assert found.breakeven_tau == pytest.approx(2.864)
    assert (found.tau, found.speedup, found.measured_speedup) == (None, None, None)
    assert "random tokens say nothing about acceptance" in found.reasons[0]


def test_forced_runs_give_a_curve_although_they_do_not_count(base, make_launch):
    guard = Guard("simulated_acceptance", GuardStatus.FAILED, "forced")

    def forced(at, length, extra=()):
        name = {"SGLANG_SIMULATE_ACC_LEN": str(length)}
        runs = make_launch(
            "eagle3", at, (89.5 * length / 2.87,) * 2, tau=length, cycle_ms=32.0, env=name, sets={"env.X": length}
        )
        return [replace(run, valid=False, guards=(guard, *extra)) for run in runs]

    found = payoff(base, side("B", forced(1, 2.0), forced(2, 3.0), forced(3, 4.0)))
    assert found.simulated is not None
    assert found.simulated.breakeven_tau == pytest.approx(2.87, abs=0.01)
    assert found.simulated.text == (
        "With forced acceptance at 3 lengths: break-even at 2.87, a cycle costs 2.87 decode steps, "
        "whatever the draft model is worth"
    )
    assert found.economics.tau is None
    assert "acceptance was forced" in found.economics.reasons[0]
    broken = Guard("errors", GuardStatus.FAILED, "3 of 40 requests failed")
    with pytest.raises(UsageError):
        payoff(base, side("B", forced(1, 2.0, [broken])))


def test_one_launch_has_an_interval_over_its_requests(make_launch):
    base = side("A", make_launch("base", 0, (89.5,)))
    spec = side("B", make_launch("eagle3", 1, (72.0,), tau=2.3, cycle_ms=32.0))
    draw = random.Random(7)
    rows = {
        base.results[0].result_id: [
            {"t_first": 0.1, "t_last": 0.1 + 2.2 * draw.gauss(1, 0.02), "out": 201, "k1": 1} for _ in range(40)
        ],
        spec.results[0].result_id: [
            {"t_first": 0.1, "t_last": 0.1 + 2.8 * draw.gauss(1, 0.02), "verify_ct": 88} for _ in range(40)
        ],
    }
    found = payoff(base, spec, rows=lambda result_id: rows[result_id]).economics
    assert found.basis == "requests of 1 launch; the next launch is not in it"
    assert found.interval is not None
    assert found.interval[0] < 32.0 * 89.5 / 1000 < found.interval[1]  # around the break-even that is told
    assert payoff(base, spec).economics.interval is None


# ---- why a verify step is dear -------------------------------------------------------------------------------------------


def weights(cost):
    return {suspect.id: suspect.weight for suspect in cost.suspects}


def test_a_dear_verify_step_names_what_to_check():
    cost = verify_cost(of_figures(89.5, 30.0, 2.0), layers=61)
    assert cost is not None
    assert cost.text.startswith("A verify step is 2.7× a decode step; normal is at most 1.5×; check all-reduces, ")
    assert (cost.suspects[0].id, cost.suspects[0].weight) == ("all_reduce", Weight.LIKELY)
    assert cost.suspects[0].evidence == (
        "30.0 ms over 122 of them leaves at most 246 µs each, 92 µs in a decode step; 33 µs is healthy"
    )
    assert verify_cost(of_figures(89.5, 16.0)) is None  # 1.4 decode steps are normal


def test_what_results_rule_out(base, spec):
    calm = Guard("graph", GuardStatus.OK, "0 of 900 decode lines ran without a graph (limit 1%)", 0.0, 0.01)
    results = [
        replace(
            result,
            guards=(calm,),
            load=replace(result.load, temperature=0.0),
            server=replace(result.server, args={"tp_size": 1}),
        )
        for result in spec.results
    ]
    found = payoff(base, spec).economics
    step = predict({1: 11.17, 4: 12.0}, 1)
    cost = verify_cost(found, results, layers=61, predicted=step)
    assert weights(cost) == {
        "all_reduce": Weight.RULED_OUT,
        "graphs": Weight.RULED_OUT,
        "batch": Weight.RULED_OUT,
        "sampling": Weight.RULED_OUT,
        "draft": Weight.POSSIBLE,
    }
    assert cost.text.startswith("A cycle (drafts and verify) is 2.9× a decode step")
    assert cost.text.endswith("check the draft model")
    eager = Guard("graph", GuardStatus.FAILED, "880 of 900 decode lines ran without a graph", 0.98, 0.01)
    broken = [replace(result, guards=(eager,)) for result in results]
    dear = predict({1: 11.17, 4: 28.0}, 1)
    cost = verify_cost(found, broken, predicted=dear)
    assert weights(cost)["graphs"] is Weight.LIKELY
    assert weights(cost)["batch"] is Weight.POSSIBLE  # four users touch more than four tokens of one
    assert cost.suspects[0].weight is Weight.LIKELY
    cost = verify_cost(found, predicted=predict({1: 11.17, 4: 70.0}, 1))
    assert weights(cost)["batch"] is Weight.LIKELY
    cost = verify_cost(found, predicted=predict({1: 11.17, 2: 12.0}, 1))
    assert weights(cost)["batch"] is Weight.POSSIBLE  # the sweep ends before four users


def test_a_measured_all_reduce_says_how_much_it_explains():
    found = of_figures(89.5, 30.0)
    slow = verify_cost(found, layers=61, all_reduce=AllReduce(60.0, 190.0))
    assert weights(slow)["all_reduce"] is Weight.LIKELY
    assert "122 of them explain 84 % of the difference" in slow.suspects[0].evidence
    fast = verify_cost(found, layers=61, all_reduce=AllReduce(20.0, 24.0))
    assert weights(fast)["all_reduce"] is Weight.POSSIBLE


def test_trees_may_cost_more(base, make_launch):
    tree = side("B", make_launch("eagle3", 1, (72.0,), tau=2.31, cycle_ms=24.0, topk=4, steps=6))
    assert verify_cost(payoff(base, tree).economics) is None  # 2.1 decode steps
    chain = side("B", make_launch("eagle3", 1, (72.0,), tau=2.31, cycle_ms=24.0))
    assert verify_cost(payoff(base, chain).economics) is not None


# ---- the command ----------------------------------------------------------------------------------------------------------


def invoke(*words):
    return CliRunner().invoke(cli, ["breakeven", *words], standalone_mode=False)


def test_breakeven_from_figures():
    done = invoke("--base-tok-s", "89.5", "--verify-ms", "30")
    assert done.return_value == 0
    assert done.stdout.splitlines()[0] == "Speculation pays from accept length 2.69"
    document = json.loads(invoke("--base-tok-s", "89.5", "--verify-ms", "30", "--json").stdout)
    keys = ("t_base_ms", "t_cycle_ms", "tau", "breakeven_tau", "speedup")
    assert [document[key] for key in keys] == [pytest.approx(11.173, abs=1e-3), 30.0, None, 2.685, None]
    full = invoke("--base-tok-s", "89.5", "--verify-ms", "30", "--draft-ms", "2", "--accept-len", "2.31", "--json")
    document = json.loads(full.stdout)
    assert (document["t_cycle_ms"], document["tau"]) == (32.0, 2.31)
    assert document["speedup"] == pytest.approx(0.8066, abs=1e-4)
    assert document["verify_cost"]["ratio"] == pytest.approx(2.685)


def test_breakeven_from_results(base, spec, make_launch):
    for result in (*base.results, *spec.results, *make_launch("base", 6, (80.0,), concurrency=4)):
        store.write(result, gzip.compress(b""))
    document = json.loads(invoke("base", "eagle3", "--layers", "61", "--json").stdout)
    assert document["breakeven_tau"] == pytest.approx(2.864, abs=1e-3)
    assert (document["tau"], document["point"], document["error"]) == (pytest.approx(2.31), "c1", None)
    assert document["breakeven_ci"][0] <= document["breakeven_tau"] <= document["breakeven_ci"][1]
    assert document["alpha_needed"] == pytest.approx(0.78, abs=0.01)
    batch = next(s for s in document["verify_cost"]["suspects"] if s["id"] == "batch")
    assert batch["weight"] == "ruled out"  # the baseline's own sweep takes 1.12 steps
    lines = invoke("base", "eagle3").stdout.splitlines()
    assert lines[0].startswith("Speculation pays from accept length 2.86; you have 2.31: 0.81×, a loss")


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--base-tok-s", "89.5"),
        ("--base-tok-s", "89.5", "--verify-ms", "30", "--accept-len", "0.5"),
        ("a", "b", "c"),
        ("base", "--verify-ms", "30"),
        ("nobody",),
        ("base", "base"),
        ("base", "eagle3", "--concurrency", "7"),
    ],
)
def test_breakeven_refuses_in_one_line(base, spec, words):
    for result in (*base.results, *spec.results):
        store.write(result)
    error = invoke(*words).exception
    assert isinstance(error, UsageError)
    assert error.exit_code == 2
    assert "\n" not in error.message


@pytest.mark.parametrize(
    "words", [("--base-tok-s", "0"), ("--verify-ms", "-3"), ("--draft-ms", "x"), ("--layers", "0")]
)
def test_breakeven_values_are_checked(words):
    error = invoke(*words).exception
    assert error is not None
    assert getattr(error, "exit_code", None) == 2
