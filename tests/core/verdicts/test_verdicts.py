"""Sentences of verdicts word for word, the rules behind them, and what `eagletui compare` makes of stored results."""

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from tests.support.verdicts import compare, compare_all
from tui.cli import cli
from tui.core.errors import UsageError
from tui.core.model.profile import LoadPoint
from tui.core.model.result import Counts, Distribution, GpuUse, Guard, GuardStatus, Latencies
from tui.core.model.verdict import Noise
from tui.core.results import store
from tui.core.server import launch_records
from tui.core.server.launch_records import LaunchRecord
from tui.core.verdicts.comparison import Plan, screening_bound
from tui.core.verdicts.metric import metric
from tui.core.verdicts.pairing import Side, launch_seconds, matched, noise_of, setting

A_RUNS = [(81.6, 81.9, 82.3), (82.2, 82.2, 82.6), (81.8, 81.8, 82.6)]
B_RUNS = [(89.8, 89.8, 90.2), (89.2, 89.5, 89.5), (89.4, 89.4, 89.4)]
QUIET = Noise(launch_cv=0.003, run_cv=0.004, launches=12, df=10)
ABBAAB = ((0, 3, 4), (1, 2, 5))


@pytest.fixture
def arm(make_launch):
    """arm(name, places, runs of each launch, …): a side of a comparison."""

    def make(name, places, rates, ref=None, **more):
        ref = ref or {"A": "baseline-bs512", "B": "baseline-bs128"}.get(name, name)
        found = [make_launch(ref, at, runs, **more) for at, runs in zip(places, rates, strict=True)]
        return Side(name, ref, tuple(result for launch in found for result in launch))

    return make


@pytest.fixture
def a(arm):
    return arm("A", ABBAAB[0], A_RUNS)


@pytest.fixture
def b(arm):
    return arm("B", ABBAAB[1], B_RUNS)


# ---- nodes of a cluster ------------------------------------------------------------------------------------------------


def on(side: Side, *nodes: tuple[str, ...]) -> Side:
    """The same, its launches on these nodes, a launch each."""
    launches = dict.fromkeys(result.server.run_id for result in side.results)
    where = dict(zip(launches, nodes, strict=True))
    moved = (replace(r, server=replace(r.server, nodes=where[r.server.run_id])) for r in side.results)
    return replace(side, results=tuple(moved))


def test_a_pair_on_different_nodes_is_a_screening_and_says_so(a, b):
    n1, n2, both = ("n1",), ("n2",), ("n1", "n2")
    same = compare(on(a, n1, n2, n1), on(b, n1, n2, n1), noise=QUIET)
    assert (same.level, same.verdict) == ("L2", "faster")  # from pair to pair they may change
    assert compare(on(a, n1, n1, n1), on(b, both, both, both), noise=QUIET).level == "L2"  # one arm has two
    moved = compare(on(a, n1, n1, n1), on(b, n1, n2, n1), noise=QUIET)
    assert (moved.level, moved.verdict) == ("L1", "looks_faster")
    assert "3 launch pairs on different nodes — screening only" in moved.text
    assert moved.reasons[0] == (
        "the launches of 1 of 3 pairs ran on different nodes (A n1, B n2): a difference between nodes would look like an effect; "
        "hold = true in [slurm] keeps an experiment on the same"
    )
    unclear = compare(on(a, n1, n1, n1), on(b, n2, n2, n2))  # without the noise of the host
    assert unclear.text.endswith("Confirm with 3 pairs on the same nodes")


# ---- three pairs in interleaved order ----------------------------------------------------------------------------------


def test_faster_and_slower(a, b):
    found = compare(a, b, noise=QUIET)
    assert (
        found.text == "B is 9.1 % faster than A   (95 % CI 7.6 … 10.6, 3 launch pairs, paired ABBA)   82.1 → 89.6 tok/s"
    )
    assert found.facts == ("per-user tok/s, conc 1, steady state 60 s × 3 runs; host noise floor ±0.5 %",)
    assert (found.level, found.verdict, found.n_pairs, found.confidence) == ("L2", "faster", 3, 0.95)
    assert found.ci is not None
    assert found.ci[0] < found.ratio < found.ci[1]
    assert (found.a.launches, found.a.runs, found.reasons) == (3, 9, ())
    turned = compare(replace(b, name="A"), replace(a, name="B"))
    assert (
        turned.text == "B is 8.3 % slower than A   (95 % CI 7.1 … 9.6, 3 launch pairs, paired ABBA)   89.6 → 82.1 tok/s"
    )
    assert turned.ratio == pytest.approx(1 / found.ratio)
    assert turned.ci == pytest.approx((1 / found.ci[1], 1 / found.ci[0]))


def test_not_distinguishable_says_what_it_takes(a, arm):
    b = arm("B", ABBAAB[1], [(84.0, 83.9, 84.1), (82.0, 81.8, 82.2), (82.1, 82.0, 82.5)])
    found = compare(a, b, noise=QUIET, launch_s=310.0)
    # By what the pairs differ, not by the smaller noise of before.
    assert (
        found.text
        == "A and B: not distinguishable (−3.0 … +4.7 %, 3 pairs). To see 2 % you need 9 pairs (~1 h 35 min)."
    )
    assert (found.verdict, found.level) == ("indistinct", "L2")
    assert compare(a, b).text.endswith("To see 2 % you need 9 pairs.")
    assert found.mde == compare(a, b).mde
    loud = compare(a, b, noise=replace(QUIET, launch_cv=0.02))
    assert loud.text.endswith("To see 2 % you need more than 20 pairs.")
    assert found.mde is not None
    assert loud.mde is not None
    assert loud.mde > found.mde


def test_what_can_be_seen_already_is_followed_by_the_next_finer_step(arm):
    a = arm("A", ABBAAB[0], [(80.0, 80.0)] * 3)
    b = arm("B", ABBAAB[1], [(rate, rate) for rate in (80.47, 80.8, 81.14)])
    found = compare(a, b, launch_s=1200.0)
    assert found.text.endswith("(0.0 … +2.0 %, 3 pairs). To see 1 % you need 5 pairs (~3 h 20 min).")
    assert compare(a, b, margin=0.002).text.endswith(". To see 0.2 % you need more than 20 pairs.")


def test_equivalent_is_a_claim_of_its_own(a, arm):
    b = arm("B", ABBAAB[1], [(82.4, 82.1, 82.5), (82.0, 82.2, 82.2), (81.9, 82.0, 82.1)])
    found = compare(a, b)
    assert found.text == "A and B: equivalent within 2 % (−0.9 … +1.0 %, 3 pairs)"
    assert compare(a, b, margin=0.01).verdict == "indistinct"


def test_a_real_difference_inside_the_margin_is_equivalent_and_said(a, arm):
    b = arm("B", ABBAAB[1], [[rate * 1.008 for rate in runs] for runs in A_RUNS])
    found = compare(a, b)
    assert found.text == "A and B: equivalent within 2 % (+0.8 … +0.8 %, 3 pairs). B is higher, by less than that"
    assert compare(a, b, margin=0.005).verdict == "faster"


def test_a_latency_is_better_when_lower(a, b):
    def timed(side, *medians):
        results = [
            replace(result, latencies=Latencies(ttft=Distribution(50, p50=medians[at // 3], p99=900.0)))
            for at, result in enumerate(side.results)
        ]
        return replace(side, results=tuple(results))

    found = compare(timed(a, 214.0, 215.0, 213.0), timed(b, 188.0, 189.0, 187.0), "ttft_ms")
    assert found.verdict == "faster"
    assert found.text == (
        "B is faster than A: median TTFT 12.1 % lower   (95 % CI 12.0 … 12.3, 3 launch pairs, paired ABBA)   214 → 188 ms"
    )
    few = [replace(result, counts=Counts(ok=50)) for result in timed(a, 214.0, 215.0, 213.0).results]
    tail = compare(replace(a, results=tuple(few)), timed(b, 188.0, 189.0, 187.0), "p99_ttft_ms")
    assert tail.text == "A: no result — n too small for p99 TTFT: it needs 1,000 requests a run"


# ---- fewer, or not interleaved -----------------------------------------------------------------------------------------


def test_one_launch_each_is_screening(arm):
    a, b = arm("A", (0,), A_RUNS[:1]), arm("B", (1,), B_RUNS[:1])
    found = compare(a, b)
    assert (
        found.text
        == "B: 9.8 % higher, ONE launch each — screening only; restart variance unknown. Confirm with 3 pairs"
    )
    assert (found.level, found.verdict, found.ci, found.mde) == ("L1", "indistinct", None, None)
    known = compare(a, b, noise=replace(QUIET, measured_at="2026-11-29T08:00:00Z"))
    assert known.verdict == "looks_faster"
    assert known.level == "L1"
    assert known.text == (
        "B looks 9.8 % faster than A   (ONE launch each — screening only; launches of this host differ by up to 1.2 %; "
        "a drift would look the same)   81.9 → 89.9 tok/s"
    )
    assert known.reasons[1].startswith("the noise is as of its last launch (2026-11-29): a host that drifts")
    assert compare(replace(b, name="A"), replace(a, name="B"), noise=QUIET).verdict == "looks_slower"
    loud = compare(a, b, noise=replace(QUIET, launch_cv=0.04))
    assert loud.verdict == "indistinct"
    assert "differ by up to 12.6 %" in loud.text


def test_the_screening_bound_is_three_launch_cvs_or_what_so_few_launches_allow():
    assert screening_bound(Noise(0.01, 0.0, 100, 99), 3) == pytest.approx(0.03)
    assert screening_bound(Noise(0.01, 0.0, 4, 3), 3) == pytest.approx(0.045, abs=1e-4)  # 3.18 x root 2
    assert screening_bound(Noise(0.0, 0.006, 100, 99), 4) == pytest.approx(0.0084, abs=1e-4)


def test_a_list_of_screenings_says_how_many_chance_alone_would_show(arm):
    a = arm("A", (0,), A_RUNS[:1])
    others = [arm(name, (at,), B_RUNS[:1]) for at, name in enumerate("BCDEFGHIJ", 1)]
    found = compare_all([(a, other) for other in others], noise=replace(QUIET, launch_cv=0.01))
    assert found[0].by_chance == pytest.approx(0.05)
    assert all(
        verdict.facts[-1] == "9 screened: were all the same, chance alone would show 0.5 of them as faster or slower "
        "(one at least in up to 37 % of such lists)"
        for verdict in found
    )
    assert compare(a, others[0], noise=QUIET).facts == compare(a, others[0], noise=QUIET).facts[:1]
    # Three launch pairs are no screening.
    pairs = compare(arm("A", ABBAAB[0], A_RUNS), arm("B", ABBAAB[1], B_RUNS), noise=QUIET)
    assert pairs.by_chance is None


def test_a_single_run_has_no_error_bar(arm):
    a, b = arm("A", (0,), [A_RUNS[0][:1]]), arm("B", (1,), B_RUNS[:1])
    found = compare(a, b, noise=QUIET)
    assert found.text == "B: 10.2 % higher, ONE run each — screening only; no error bar. Confirm with 3 pairs"
    assert (found.level, found.verdict) == ("L0", "indistinct")


@pytest.mark.parametrize(
    ("places", "order", "level"),
    [
        (((0, 3, 4), (1, 2, 5)), "paired ABBA", "L2"),
        (((1, 2, 5), (0, 3, 4)), "paired ABBA", "L2"),
        (((0, 2, 4), (1, 3, 5)), "paired ABABAB", "L2"),
        (((0, 1, 2), (3, 4, 5)), "not interleaved", "L1"),
        (((0, 1, 4), (2, 3, 5)), "not interleaved", "L1"),
    ],
)
def test_pairs_count_where_each_was_measured_before_the_next(arm, places, order, level):
    found = compare(arm("A", places[0], A_RUNS), arm("B", places[1], B_RUNS), noise=QUIET)
    assert (found.level, found.verdict) == (level, "faster" if level == "L2" else "looks_faster")
    assert order in found.text
    reasons = " ".join(found.reasons)
    assert ("a drift of the host would look like an effect" in reasons) == (level == "L1")
    assert ("A went first in 3 of 3 pairs" in reasons) == (order == "paired ABABAB")


def test_not_interleaved_is_compared_unpaired_and_never_beyond_screening(arm):
    a = arm("A", (0, 1, 2, 3), [*A_RUNS, A_RUNS[0]])
    b = arm("B", (4, 5, 6), [(82.9, 83.0, 83.2), (83.6, 83.1, 83.0), (82.8, 83.0, 83.1)])
    found = compare(a, b, noise=QUIET)
    assert found.text == (
        "B: 1.2 % higher, 4 and 3 launches, not interleaved — screening only; a drift of the host would look the same."
        " Confirm with 3 pairs"
    )
    assert found.verdict == "indistinct"
    assert (found.a.launches, found.b.launches, found.n_pairs) == (4, 3, 3)
    assert found.ci is not None
    assert "not interleaved (AAAABBB)" in " ".join(found.reasons)


def test_an_experiment_says_nothing_before_its_pairs_are_complete(arm):
    a = arm("A", ABBAAB[0][:2], A_RUNS[:2])
    b = arm("B", ABBAAB[1][:2], [[rate * 0.92 for rate in runs] for runs in A_RUNS[:2]])
    found = compare(a, b, noise=QUIET, plan=Plan(3))
    assert (
        found.text == "B against A: 3 launch pairs needed for a verdict, 2 measured. So far 8.0 % lower: screening only"
    )
    assert (found.verdict, found.ci) == ("indistinct", None)
    assert compare(a, b, noise=QUIET).verdict == "looks_slower"  # nobody planned more
    waiting = compare(a, Side("B", "B"), plan=Plan(3))
    assert waiting.text == "B against A: 3 launch pairs needed for a verdict, 0 measured"
    assert waiting.verdict == "indistinct"
    assert "more than planned" in " ".join(compare(a, b, plan=Plan(1)).reasons)


def test_looks_have_their_own_intervals_and_nothing_in_between(arm):
    places = (0, 3, 4, 7, 8, 11), (1, 2, 5, 6, 9, 10)
    runs = [A_RUNS[0], A_RUNS[1], A_RUNS[2], A_RUNS[0], A_RUNS[1], A_RUNS[2]]
    faster = [[rate * (1.09 + 0.002 * (at % 3)) for rate in runs[at]] for at in range(6)]
    plan = Plan(8, (3, 5, 8))

    def after(pairs):
        a, b = arm("A", places[0][:pairs], runs[:pairs]), arm("B", places[1][:pairs], faster[:pairs])
        return compare(a, b, plan=plan, noise=QUIET)

    assert after(2).verdict == "indistinct"
    assert "3 launch pairs needed for a verdict, 2 measured" in after(2).text
    first, between, second = after(3), after(4), after(5)
    assert "99 % CI" in first.text
    assert "3 launch pairs" in first.text
    assert "98 % CI" in second.text
    assert (between.text, between.n_pairs) == (first.text, 3)
    assert "as of 3 pairs, 4 are measured: the next look is at 5" in between.reasons
    assert any(
        fact.startswith("looks at 3, 5, 8 pairs, 5 % error in all; 2 % is found with power") for fact in first.facts
    )


# ---- several comparisons ------------------------------------------------------------------------------------------------


def test_arms_of_one_experiment_are_held_to_five_percent_together(arm):
    a = arm("A", (0, 5, 6), A_RUNS)
    b = arm("B", (1, 4, 7), B_RUNS)
    close = [(84.2, 84.1, 84.3), (83.6, 83.9, 84.0), (85.2, 85.0, 84.9)]
    c = arm("C", (2, 3, 8), close)
    alone = compare(a, c)
    assert alone.verdict == "faster"
    with_b, with_c = compare_all([(a, b), (a, c)])
    assert with_b.verdict == "faster"
    assert "(97.5 % CI" in with_b.text
    assert with_c.confidence == 0.95  # the last that stands is held to 5 % alone
    assert with_c.verdict == "faster"
    noisy = arm("D", (9, 10, 11), [(82.0, 82.1, 82.3), (84.5, 84.2, 84.6), (82.1, 82.0, 82.6)])
    three = compare_all([(a, b), (a, c), (a, replace(noisy, name="D"))])
    assert "3 comparisons" not in " ".join(three[0].facts)  # D was not interleaved, so two are decided
    assert "2 comparisons, held to 5 % together (Holm)" in three[0].facts


def test_holm_takes_back_what_one_alone_would_have_said(arm):
    a = arm("A", (0, 5, 6), A_RUNS)
    weak = [(83.4, 83.9, 84.3), (85.7, 85.7, 86.1), (85.1, 85.1, 85.9)]
    sides = [arm(name, (1, 4, 7), weak, ref=name) for name in "BC"]
    assert all(compare(a, side).verdict == "faster" for side in sides)
    both = compare_all([(a, side) for side in sides])
    assert [verdict.verdict for verdict in both] == ["indistinct", "indistinct"]
    assert "(97.5 % CI −" in both[0].text


# ---- what may not be compared -------------------------------------------------------------------------------------------


def test_runs_that_do_not_count_are_left_out_and_said(a, b):
    guard = Guard("client", GuardStatus.FAILED, "client used 93 % of a core, limit 80 %", 0.93, 0.8)
    results = [
        replace(result, valid=False, guards=(guard,)) if result.run_index == 1 else result for result in b.results
    ]
    found = compare(a, replace(b, results=tuple(results)))
    assert found.verdict == "faster"
    assert found.b.runs == 6
    assert found.reasons == ("B: 3 of 9 runs left out: client used 93 % of a core, limit 80 % (3 runs)",)
    none = compare(a, replace(b, results=tuple(replace(r, valid=False, guards=(guard,)) for r in b.results)))
    assert none.verdict == "invalid"
    assert none.text == "B: no result — 9/9 runs do not count: client used 93 % of a core, limit 80 % (9 runs)"
    assert none.ratio is None


def test_runs_that_one_arm_may_lose_more_often_are_counted_by_arm(a, b):
    slow = Guard("clocks", GuardStatus.FAILED, "GPUs were slowed down: power brake")

    def throttled(side, *launches):
        return replace(
            side,
            results=tuple(
                replace(result, valid=False, guards=(slow,)) if at // 3 in launches else result
                for at, result in enumerate(side.results)
            ),
        )

    found = compare(a, throttled(b, 0))
    assert found.reasons[1] == (
        "B: clocks were slowed down in 1 of 3 launches; those runs are left out, so an arm that throttles more often "
        "looks better than in use"
    )
    one_run = replace(b, results=(replace(b.results[0], valid=False, guards=(slow,)), *b.results[1:]))
    assert ", paired ABBA, may be biased)" in compare(a, one_run).text
    late = Guard("client_cpu", GuardStatus.FAILED, "client used 93 % of a core")
    other = replace(b, results=(replace(b.results[0], valid=False, guards=(late,)), *b.results[1:]))
    assert "biased" not in compare(a, other).text


def test_clocks_that_differ_between_the_arms_are_told(a, b):
    def at(side, *mhz):
        results = tuple(
            replace(result, gpu=GpuUse(sm_mhz=clock)) for result, clock in zip(side.results, mhz, strict=True)
        )
        return replace(side, results=results)

    fast, slow = at(a, *[1980.0] * 9), at(b, *[1410.0] * 9)
    assert "SM clocks differ: A 1980 MHz, B 1410 MHz" in compare(fast, slow).reasons
    assert compare(fast, at(b, *[1925.0] * 9)).reasons == ()  # 2.9 %
    assert len(compare(fast, at(b, *[1921.0] * 9)).reasons) == 1
    assert compare(fast, b).reasons == ()  # nothing reported


def failed_launches(*causes):
    ledger = [{"rank": "TP0", "before_gib": 94.5, "weights_gib": 71.6, "draft_gib": 7.4}]
    return tuple(
        LaunchRecord(
            f"eagle3-mem076-20261129T08000{at}Z-00000{at}",
            "gpu1",
            "server",
            "eagle3-mem076",
            f"2026-11-29T08:00:0{at}Z",
            outcome="crashed",
            cause=cause,
            mem_fraction=0.76,
            ledger=ledger,
        )
        for at, cause in enumerate(causes)
    )


def test_launches_that_failed_are_a_result_too(a, b):
    found = compare(a, Side("B", "eagle3-mem076", failures=failed_launches(*["oom_kv_pool"] * 3)))
    assert found.text == "B: no result — 3/3 launches out of memory at mem-fraction-static 0.76 (need ≥ 0.84)"
    assert found.verdict == "invalid"
    mixed = compare(a, Side("B", "x", failures=failed_launches("nccl", "oom_kv_pool", "nccl")))
    assert mixed.text.startswith("B: no result — 2/3 launches failed (nccl), 1/3 launches out of memory")
    some = compare(a, replace(b, failures=failed_launches("nccl")))
    assert some.verdict == "faster"
    assert some.reasons == ("B: 1/4 launches failed (nccl)",)


def test_random_tokens_judge_no_draft_model(arm):
    a = arm("A", ABBAAB[0], A_RUNS, dataset="random-ids")
    b = arm("B", ABBAAB[1], B_RUNS, dataset="random-ids", tau=2.3)
    found = compare(a, b)
    assert found.verdict == "invalid"
    assert "random tokens make its acceptance meaningless" in found.text
    assert compare(a, arm("B", ABBAAB[1], B_RUNS, dataset="random-ids")).verdict == "faster"


def test_simulated_acceptance_is_no_result(a, arm):
    forced = arm("B", ABBAAB[1], B_RUNS, tau=3.0, env={"SGLANG_SIMULATE_ACC_LEN": "3.0"})
    found = compare(a, forced)
    assert found.verdict == "invalid"
    assert "SGLANG_SIMULATE_ACC_LEN=3" in found.text
    for value in ("-1", "0", "", "many"):
        off = arm("B", ABBAAB[1], B_RUNS, tau=3.0, env={"SGLANG_SIMULATE_ACC_LEN": value})
        assert compare(a, off).verdict == "faster"


def test_a_missing_figure_names_what_there_is(a, b):
    found = compare(a, b, "ttft_ms")
    assert found.text == "A: no result — its runs have no ttft_ms; there is per_user_tok_s"
    with pytest.raises(UsageError, match="no metric 'tpot'") as raised:
        compare(a, b, "tpot")
    assert raised.value.hint == "did you mean tpot_ms?"


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"bench": "other"}, "bench decode-bs1 against other"),
        ({"concurrency": 4}, "load conc 1 against conc 4"),
        ({"dataset": "random-ids"}, "dataset prompts against random-ids"),
        ({"host": "gpu2"}, "host gpu1 against gpu2"),
        ({"model": "/m"}, "model /data/models/Kimi-K2.5 against /m"),
        ({"model": None}, "model /data/models/Kimi-K2.5 against unknown"),
    ],
)
def test_only_like_is_compared_with_like(a, arm, change, what):
    with pytest.raises(UsageError) as raised:
        matched(a, arm("B", ABBAAB[1], B_RUNS, **change))
    assert raised.value.slug == "not_comparable"
    assert raised.value.message == f"A and B cannot be compared: {what}"


def test_each_shared_load_is_a_question_and_a_host_must_be_chosen(a, b, arm):
    sweep = [
        arm(name, place, runs, concurrency=4)
        for name, place, runs in (("A", ABBAAB[0], A_RUNS), ("B", ABBAAB[1], B_RUNS))
    ]
    elsewhere = [
        arm(name, place, runs, host="gpu2")
        for name, place, runs in (("A", ABBAAB[0], A_RUNS), ("B", ABBAAB[1], B_RUNS))
    ]
    both = [replace(side, results=side.results + more.results) for side, more in zip((a, b), sweep, strict=True)]
    assert [one.results[0].point.label for one, _ in matched(*both)] == ["c1", "c4"]
    [(only, _)] = matched(*both, point=LoadPoint(4))
    assert {result.point for result in only.results} == {LoadPoint(4)}
    with pytest.raises(UsageError, match="conc 2"):
        matched(*both, point=LoadPoint(2))
    hosts = [replace(side, results=side.results + more.results) for side, more in zip((a, b), elsewhere, strict=True)]
    with pytest.raises(UsageError, match="gpu1, gpu2"):
        matched(*hosts)
    assert matched(*hosts, host="gpu2")[0][0].results[0].server.host == "gpu2"


def test_the_same_launches_on_both_sides_are_refused(a):
    with pytest.raises(UsageError, match="share 3 launches"):
        compare(a, replace(a, name="B"))


def test_rounds_of_an_experiment_stay_pairs_when_a_launch_is_missing(make_launch):
    def side(name, launches):
        found = [make_launch(name, at, runs, experiment="x1", arm=name, pair=pair) for at, pair, runs in launches]
        return Side(name, name, tuple(result for launch in found for result in launch))

    # The second launch of B failed: its third must not be paired with the second of A.
    a = side("A", [(0, 1, (80.0,) * 2), (3, 2, (90.0,) * 2), (4, 3, (100.0,) * 2), (7, 4, (110.0,) * 2)])
    b = side("B", [(1, 1, (80.8,) * 2), (5, 3, (101.0,) * 2), (6, 4, (111.1,) * 2)])
    found = compare(a, b)
    assert found.n_pairs == 3
    assert found.ratio == pytest.approx(1.01)
    assert found.ci == pytest.approx((1.01, 1.01))


def test_runs_of_other_overrides_are_not_mixed_in(a, arm):
    plain = arm("B", ABBAAB[1], B_RUNS)
    other = arm("B", (7,), [(50.0, 50.0)], sets={"cuda-graph-max-bs": 16})
    found = compare(a, replace(plain, results=plain.results + other.results))
    assert found.ratio == pytest.approx(1.0909, abs=1e-4)
    assert found.reasons == ("B: 2 runs of other configurations left out (cuda-graph-max-bs=16); name a run for them",)


def test_servers_that_nobody_knows_the_start_of_are_one_launch(a, b):
    unknown = [replace(r, server=replace(r.server, run_id=None, launched_at=None)) for r in b.results]
    found = compare(a, replace(b, results=tuple(unknown)))
    assert (found.level, found.n_pairs, found.b.launches) == ("L1", 1, 1)
    assert "runs on servers whose start is not known count as one launch" in found.reasons


def test_text_of_others_is_made_safe(a, b):
    hostile = "B\x1b[31m\u202e[link=x]"
    guard = Guard("x", GuardStatus.FAILED, f"bad {hostile}\nsecond line")
    bad = replace(b, ref=hostile, results=tuple(replace(r, valid=False, guards=(guard,)) for r in b.results))
    found = compare(a, bad)
    assert "\x1b" not in found.text
    assert "\u202e" not in found.text
    assert "\n" not in found.text
    with pytest.raises(UsageError) as raised:
        matched(a, replace(bad, results=tuple(replace(r, bench=hostile) for r in b.results)))
    assert "\x1b" not in raised.value.message


# ---- noise and cost -----------------------------------------------------------------------------------------------------


def test_noise_is_what_launches_of_one_configuration_differ_by(a, b, arm):
    stored = (*a.results, *b.results)
    found = noise_of(stored, metric("per_user_tok_s"), setting(stored[0]))
    assert found is not None
    assert (found.launches, found.df) == (6, 4)
    assert 0.001 < found.launch_cv < 0.003
    assert found.run_cv == pytest.approx(0.0034, abs=3e-4)
    assert found.measured_at == max(result.started_at for result in stored)
    assert noise_of(a.results[:6], metric("per_user_tok_s"), setting(a.results[0])) is None  # two launches
    other = arm("A", (7,), A_RUNS[:1], concurrency=4).results
    assert noise_of((*stored, *other), metric("per_user_tok_s"), setting(other[0])) is None


def test_what_a_launch_costs_is_its_start_and_its_runs(a):
    run_ids = dict.fromkeys(result.server.run_id for result in a.results)
    launched = [
        LaunchRecord(run_id, "gpu1", "server", "p", "2026", ready_after_s=ready)
        for run_id, ready in zip(run_ids, (600.0, 700.0, None), strict=True)
    ]
    assert launch_seconds([a], launched) == pytest.approx(650 + 183)
    assert launch_seconds([a], []) is None


# ---- the command --------------------------------------------------------------------------------------------------------


@pytest.fixture
def stored(a, b):
    for result in (*a.results, *b.results):
        store.write(result)


def invoke(*words):
    return CliRunner().invoke(cli, ["compare", *words], standalone_mode=False)


def test_compare_prints_the_sentence_first(stored):
    done = invoke("baseline-bs512", "baseline-bs128")
    assert done.exception is None
    lines = done.stdout.splitlines()
    assert lines[0].startswith("B is 9.1 % faster than A   (95 % CI 7.6 … 10.6, 3 launch pairs, paired ABBA)")
    assert lines[0].endswith("[L2]")
    assert lines[2:4] == ["   A  baseline-bs512: 3 launches, 9 runs", "   B  baseline-bs128: 3 launches, 9 runs"]


def test_compare_as_json(stored):
    done = invoke("baseline-bs512", "baseline-bs128", "--json")
    document = json.loads(done.stdout)
    assert done.return_value == 0
    assert document["a"] == {
        "ref": "baseline-bs512",
        "tok_s": pytest.approx(82.11, abs=0.01),
        "value": pytest.approx(82.11, abs=0.01),
        "launches": 3,
        "runs": 9,
    }
    assert (document["verdict"], document["level"], document["n_pairs"]) == ("faster", "L2", 3)
    assert document["ci"][0] < document["ratio"] < document["ci"][1]
    assert (document["metric"], document["point"], document["error"]) == ("per_user_tok_s", "c1", None)
    assert "points" not in document


def test_compare_names_results_runs_and_arms(make_launch):
    one = make_launch("p", 0, (80.0, 80.2), experiment="exp-1", arm="A", pair=1)
    two = make_launch("p", 1, (88.0, 88.2), experiment="exp-1", arm="B", pair=1)
    for result in (*one, *two):
        store.write(result)
    for refs in (
        (one[0].server.run_id, two[0].server.run_id),
        ("exp-1:A", "exp-1:b"),
        (one[0].result_id, two[0].result_id),
    ):
        document = json.loads(invoke(*refs, "--json").stdout)
        assert document["ratio"] == pytest.approx(1.1, abs=1e-3)
    assert document["level"] == "L0"


def test_compare_of_several_loads_gives_one_verdict_each(stored, arm):
    for name, place, runs in (("A", ABBAAB[0], A_RUNS), ("B", ABBAAB[1], B_RUNS)):
        for result in arm(name, place, runs, concurrency=16).results:
            store.write(result)
    document = json.loads(invoke("baseline-bs512", "baseline-bs128", "--json").stdout)
    assert [verdict["point"] for verdict in document["points"]] == ["c1", "c16"]
    assert document["point"] == "c1"
    alone = json.loads(invoke("baseline-bs512", "baseline-bs128", "--concurrency", "16", "--json").stdout)
    assert alone["point"] == "c16"


def test_compare_exit_codes(stored, a):
    assert invoke("baseline-bs512", "baseline-bs128", "--metric", "ttft_ms").return_value == 1
    for words in (
        ("nobody", "baseline-bs128"),
        ("baseline-bs512", "baseline-bs512"),
        ("baseline-bs512", "baseline-bs128", "--metric", "speed"),
        ("baseline-bs512", "baseline-bs128", "--concurrency", "2"),
        ("baseline-bs512", "baseline-bs128", "--concurrency", "1", "--rate", "1"),
    ):
        error = invoke(*words).exception
        assert isinstance(error, UsageError), words
        assert error.exit_code == 2
    for record in failed_launches("oom_kv_pool", "oom_kv_pool", "oom_kv_pool"):
        launch_records.write(record)
    done = invoke("baseline-bs512", "eagle3-mem076", "--json")
    assert done.return_value == 1
    assert json.loads(done.stdout)["error"] == "invalid"
    assert "3/3 launches out of memory" in json.loads(done.stdout)["text"]
