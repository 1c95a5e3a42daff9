"""Before the first launch: order and times, what so many pairs can see, and what can never give a verdict."""

from dataclasses import asdict, replace
from types import SimpleNamespace

import pytest

from tests.support.profiles import BASE
from tui.core.errors import UsageError
from tui.core.experiment.ahead import ArmAhead, arm_json
from tui.core.experiment.overrides import Overrides
from tui.core.experiment.plan import ASSUMED_START_S, PlanRefused, known_of, plan, refused_plan
from tui.core.experiment.runner import begin, resumed
from tui.core.experiment.wanted import wanted
from tui.core.model.run import Run, RunState
from tui.core.results import store
from tui.core.server import launch_records
from tui.core.server.finding import Finding, Level
from tui.core.server.launch_records import LaunchRecord
from tui.core.sglang.state import LedgerRow

EAGLE = 'kind = "launch"\nextends = "base"\n[args]\nspeculative-algorithm = "NGRAM"\nmem-fraction-static = 0.76\n'
ARMS = '[[arms]]\nprofile = "base"\n[[arms]]\nprofile = "base"\nset = { cuda-graph-max-bs = 128 }\n'
MODEL = "/m"


@pytest.fixture
def asked(tmp_path):
    """asked(*texts of overrides, experiment=…, bench=…, sets…): an experiment of two arms as it was asked for."""
    (tmp_path / "base.toml").write_text(BASE)
    (tmp_path / "eagle.toml").write_text(EAGLE)
    (tmp_path / "random.toml").write_text(
        'kind = "bench"\ndataset = "random-ids"\ninput_len = 4000\noutput_len = 512\n'
    )

    def make(*sets, experiment="", arms=ARMS, bench="", bench_profile=None, **overrides):
        (tmp_path / "decode-bs1.toml").write_text(f'kind = "bench"\nruns = 2\n{bench}')
        (tmp_path / "x.toml").write_text(f'kind = "experiment"\nbench = "decode-bs1"\n{experiment}\n{arms}')
        return wanted("x", [tmp_path], None, "gpu1", Overrides(sets, bench=bench_profile, **overrides))

    return make


def planned(asked, ahead=(), **options):
    record = begin(asked.profile, asked.bench, asked.launches, asked.host, 1, asked.overrides)
    return plan(asked, record, known_of(asked), ahead, **options)


def said(made, check):
    return [finding for finding in made.findings if finding.check == check]


def started(number, profile="base", sets=None, args=None, **changes):
    record = LaunchRecord(
        f"{profile}-2026100{number}T200103Z-4f9c2{number}", "gpu1", "server", profile, f"2026-10-0{number}T20:01:03Z",
        sets or {}, MODEL, args or {}, outcome="ready",
    )  # fmt: skip
    launch_records.write(replace(record, **changes))


def two(b='profile = "eagle"'):
    return f'[[arms]]\nprofile = "base"\n[[arms]]\n{b}\n'


# --- times -----------------------------------------------------------------------------------------------------------


def test_every_launch_in_order_with_its_times_and_the_total(asked):
    started(1, ready_after_s=100.0)
    started(2, sets={"cuda-graph-max-bs": "128"}, ready_after_s=200.0)
    made = planned(asked())
    measure, stop = 10.0 + 2 * 64.0, 10.0
    assert "".join(one.arm for one in made.launches) in ("ABBAAB", "BAABBA")
    assert [one.number for one in made.launches] == [1, 2, 3, 4, 5, 6]
    for one, after in zip(made.launches, (*made.launches[1:], None), strict=True):
        assert one.ready_s - one.begins_s == (100.0 if one.arm == "A" else 200.0)
        assert (one.measured_s - one.ready_s, one.ends_s - one.measured_s) == (measure, stop)
        assert after is None or after.begins_s == one.ends_s
    assert made.total_s == 3 * (300.0 + 2 * (measure + stop))
    assert made.starting_s == 900.0
    assert not made.estimated
    assert [(sight.pairs, sight.level) for sight in made.sights] == [
        (1, "L1"), (2, "L1"), (3, "L2"), (4, "L2"), (5, "L2"), (8, "L2"),
    ]  # fmt: skip
    assert made.sight.total_s == made.total_s


def test_a_start_that_was_never_seen_is_an_estimate_that_says_so(asked):
    assert [arm.start.seconds for arm in planned(asked()).arms] == [ASSUMED_START_S] * 2
    started(1, profile="cousin", ready_after_s=80.0)
    starts = [arm.start for arm in planned(asked()).arms]
    assert [(one.seconds, one.starts, one.estimate) for one in starts] == [(80.0, 1, "other profiles of its model")] * 2
    started(2, ready_after_s=100.0)
    a, b = (arm.start for arm in planned(asked()).arms)
    assert (a.seconds, a.estimate) == (100.0, None)
    assert (b.seconds, b.estimate) == (100.0, "the profile with other overrides")


def test_starts_are_known_again_however_their_overrides_were_typed(asked):
    for number, typed in enumerate(({"cuda-graph-max-bs": "128"}, {"args.cuda_graph_max_bs_decode": 128}), 1):
        started(number, sets=typed, ready_after_s=100.0 * number)
    assert planned(asked()).arm("B").start.starts == 2
    started(3, sets={"disable-cuda-graph": "true", "gpus": "[0,1]"}, ready_after_s=50.0)
    assert launch_records.usual("gpu1", "base", {"gpus": [0, 1], "disable-cuda-graph": True})[1] is not None


# --- what it can see -------------------------------------------------------------------------------------------------


def measured(make_launch, b=1.0, wobble=0.003, dataset="prompts", launches=3, **more):
    for at in range(launches):
        for letter, sets in enumerate(({}, {"cuda-graph-max-bs": 128})):
            rate = 80.0 * (b if letter else 1.0) * (1 + wobble * (at - 1))
            number = 10 * letter + at
            for result in make_launch("base", number, [rate, rate], model=MODEL, dataset=dataset, sets=sets, **more):
                store.write(result)


def test_the_smallest_effect_comes_from_the_noise_of_the_host(asked, make_launch):
    made = planned(asked())
    assert (made.noise, [sight.sees for sight in made.sights]) == (None, [None] * 6)
    measured(make_launch)
    made = planned(asked())
    sees = [sight.sees for sight in made.sights]
    assert sees[:2] == [None, None]
    assert 0.01 < sees[2] < 0.03
    assert sees[2:] == sorted(sees[2:], reverse=True)
    three = planned(asked(arms=ARMS + '[[arms]]\nprofile = "eagle"\n'))
    assert three.sight.sees > sees[2]  # two comparisons share the error


def test_of_another_bench_or_load_no_noise_is_known(asked, make_launch):
    measured(make_launch)
    assert planned(asked(bench="concurrency = [2]")).noise is None
    assert planned(asked("output_len=64")).noise is None
    assert planned(asked(bench='dataset = "random-ids"')).noise is None


@pytest.mark.parametrize(("b", "seen"), [(0.81, True), (1.004, False)])
def test_what_is_expected_and_whether_the_pairs_would_see_it(asked, make_launch, b, seen):
    measured(make_launch, b)
    made = planned(asked())
    (one,) = made.expected
    assert (one.a, one.b, one.level, one.seen) == ("A", "B", "L2", seen)
    assert one.ratio == pytest.approx(b, rel=0.01)
    assert made.arm("A").tok_s == pytest.approx(80.0, rel=0.01)
    assert planned(asked(pairs=2)).expected[0].seen is False  # never a verdict


# --- what can never give a verdict -----------------------------------------------------------------------------------


def test_a_draft_on_random_tokens_is_not_begun(asked):
    made = planned(asked(arms=two(), bench='dataset = "random-ids"\n'))
    assert [(finding.check, finding.arm) for finding in made.blocking] == [("draft", "B")]
    assert "random token ids" in made.blocking[0].text
    assert made.blocking[0].hint == "choose a bench with real prompts"
    assert planned(asked(arms=two())).blocking == ()


def test_made_up_acceptance_is_never_compared(asked):
    (finding,) = planned(asked("B:env.SGLANG_SIMULATE_ACC_LEN=3", arms=two())).blocking
    assert "SGLANG_SIMULATE_ACC_LEN" in finding.text


def test_what_dooms_one_arm_of_three_warns_the_others_go_on(asked):
    made = planned(asked(arms=ARMS + '[[arms]]\nprofile = "eagle"\n', bench='dataset = "random-ids"\n'))
    assert made.blocking == ()
    assert [(finding.level, finding.arm) for finding in said(made, "draft")] == [(Level.WARN, "C")]


@pytest.mark.parametrize(
    ("changes", "certain"),
    [
        ({"cause": "oom_kv_pool", "outcome": "crashed"}, True),
        ({"cause": "no_kernel_image", "outcome": "crashed", "sglang": "0.5.23"}, True),
        ({"cause": "nccl", "outcome": "crashed"}, False),
        ({"cause": "oom_kv_pool", "outcome": "crashed", "ready_after_s": 90.0}, False),  # it did start
        ({"cause": "oom_kv_pool", "outcome": "crashed", "host": "gpu2"}, False),
        ({"cause": "oom_kv_pool", "outcome": "crashed", "args": {"tp": 4}}, False),
    ],
)
def test_a_configuration_that_crashed_for_certain_is_not_launched_again(asked, changes, certain):
    arms = asked().launches
    started(1, sets={"cuda-graph-max-bs": 128}, **{"args": arms["B"].args, **changes})
    blocking = planned(asked()).blocking
    assert [(finding.check, finding.arm) for finding in blocking] == ([("crashed", "B")] if certain else [])


def test_a_crash_before_a_start_that_got_ready_says_nothing(asked):
    args = asked().launches["B"].args
    for number, changes in ((1, {"cause": "oom_kv_pool", "outcome": "crashed"}), (2, {"ready_after_s": 60.0})):
        started(number, sets={"cuda-graph-max-bs": 128}, args=args, **changes)
    assert planned(asked()).blocking == ()


def test_an_arm_that_the_memory_forecast_knows_to_fail(asked):
    row = LedgerRow("TP0", before_gib=94.5, weights_gib=75.0, kv_pool_gib=8.16, graphs_gib=3.0, free_gib=8.34)
    launch = asked(arms=two()).launches["B"]
    args = {**launch.args, "mem-fraction-static": 0.88}
    started(1, "other", args=args, ledger=(asdict(row),), mem_fraction=0.88, ready_after_s=60.0)
    (finding,) = planned(asked(arms=two())).blocking
    assert (finding.check, finding.arm) == ("memory", "B")
    assert "mem-fraction-static 0.76 will fail by" in finding.text
    assert finding.hint == "set mem-fraction-static=0.88"
    assert planned(asked("B:mem-fraction-static=0.88", arms=two())).blocking == ()


def test_a_bench_that_the_server_refuses_or_queues(asked):
    assert planned(asked("context-length=4096")).blocking == ()
    long = planned(asked("context-length=4096", "output_len=5000"))
    assert [(finding.check, finding.arm) for finding in long.blocking] == [("context", "A"), ("context", "B")]
    prompts = planned(asked("context-length=4096", bench_profile="random"))  # 4000 in, 512 out
    assert {finding.check for finding in prompts.blocking} == {"context"}
    (users,) = said(planned(asked("concurrency=64", arms=two())), "users")
    assert (users.level, users.arm) == (Level.WARN, "B")
    assert "48 requests at once: of 64 users" in users.text


def test_windows_too_short_to_count(asked, make_launch):
    assert [finding.check for finding in planned(asked("duration_s=8")).blocking] == ["window"]
    for number, letter_sets in enumerate(({}, {"cuda-graph-max-bs": 128})):
        for result in make_launch("base", number, [5.0], model=MODEL, sets=letter_sets):
            store.write(result)
    made = planned(asked("duration_s=10"))
    assert [finding.check for finding in made.blocking] == ["feasible", "feasible"]
    assert "250 tokens, 500 count" in made.blocking[0].text
    assert [finding.level for finding in said(planned(asked()), "feasible")] == [Level.OK] * 2


def test_arms_that_are_equal_are_only_meant_in_an_a_a(asked):
    equal = two('profile = "base"\nset = { tp = 8 }')
    made = planned(asked(arms=equal))
    assert [finding.check for finding in made.blocking] == ["same"]
    assert planned(asked(arms=equal), aa=True).blocking == ()


def test_arms_that_differ_in_more_than_flags_are_told(asked):
    (models,) = said(planned(asked("B:model-path=/other", "A:gpus=[0,1]", "B:gpus=[0]")), "unlike")[:1]
    assert (models.level, models.text) == (Level.WARN, "the arms differ in models: A /m, B /other")


def test_few_pairs_and_a_small_budget_are_told(asked):
    made = planned(asked(pairs=1, budget_h=0.2))
    assert [finding.level for finding in (*said(made, "pairs"), *said(made, "budget"))] == [Level.WARN] * 2
    assert "enough for 1 of 2 launches" in said(made, "budget")[0].text


# --- pre-flight and refusal ------------------------------------------------------------------------------------------


def ahead(letter, *findings, replaces=()):
    runs = tuple(
        Run(run_id=name, host="gpu1", kind="server", profile="base", state=RunState.RUNNING) for name in replaces
    )
    return ArmAhead(letter, "base", ("gpu1",), SimpleNamespace(findings=findings, replaces=runs))


def test_what_is_called_blocked_and_its_findings_agree():
    ours = Finding("port", Level.BLOCK, "30000 is held by run 4f9c2a", run="base-1")
    model = Finding("model", Level.BLOCK, "/m is not there")
    free = arm_json(ahead("A", ours, replaces=["base-1"]))
    assert (free["blocked"], [finding["level"] for finding in free["findings"]]) == (False, ["warn"])
    assert "it is stopped first" in free["findings"][0]["text"]
    held = arm_json(ahead("A", ours, model, replaces=["base-1"]))
    assert (held["blocked"], [finding["level"] for finding in held["findings"]]) == (True, ["warn", "block"])


def test_a_refused_plan_is_one_error_with_all_findings(asked):
    equal = asked(arms=two('profile = "base"'))
    record = begin(equal.profile, equal.bench, equal.launches, equal.host, 1)
    with pytest.raises(PlanRefused, match="nothing was launched: same: B launches exactly what A does") as refused:
        refused_plan(equal, record)((ahead("A"), ahead("B")))
    assert refused.value.slug == "preflight"
    assert refused.value.details["findings"][0]["level"] == "block"
    good = asked()
    refused_plan(good, begin(good.profile, good.bench, good.launches, good.host, 1))((ahead("A"), ahead("B")))


# --- for this once ---------------------------------------------------------------------------------------------------


def test_overrides_reach_arms_bench_pairs_and_budget_and_are_kept(asked):
    made = asked(
        "tp=4", "B:env.HF_TOKEN=hf_abcdefghijklmnopqrst", "duration_s=20", "concurrency=[1,4]", pairs=5, budget_h=2.0
    )
    assert [launch.args["tp"] for launch in made.launches.values()] == [4, 4]
    assert ["HF_TOKEN" in launch.env for launch in made.launches.values()] == [False, True]
    assert (made.bench.duration_s, [point.concurrency for point in made.bench.points]) == (20.0, [1, 4])
    assert (made.profile.pairs, made.profile.budget_h) == (5, 2.0)
    record = begin(made.profile, made.bench, made.launches, made.host, 1, made.overrides)
    assert str(record.overrides).startswith("--pairs 5 --budget 2 --set tp=4 --set")
    assert "hf_abc" not in str(record)
    assert planned(made).overrides == str(record.overrides)


@pytest.mark.parametrize(
    ("sets", "words"),
    [(["C:tp=4"], "has no arm C"), (["tp"], "needs a value"), (["tpp=4"], "unknown flag"), (["runs=many"], "runs")],
)
def test_an_override_that_is_none_is_named(asked, sets, words):
    with pytest.raises(UsageError) as refused:
        asked(*sets)
    assert words in f"{refused.value.message} {[str(fault) for fault in getattr(refused.value, 'errors', [])]}"


def test_looks_keep_their_pairs(asked):
    with pytest.raises(UsageError, match="looks at 3, 5 pairs"):
        asked(experiment="looks = [3, 5]", pairs=4)


def test_what_was_begun_with_overrides_is_resumed_with_them(asked):
    first = asked("B:tp=4", "duration_s=20", pairs=2)
    record = begin(first.profile, first.bench, first.launches, first.host, 1, first.overrides)
    later = asked("B:tp=4", "duration_s=20", pairs=2, budget_h=3.0)
    assert Overrides(budget_h=3.0).after(record.overrides) == later.overrides
    assert resumed(record, later.profile, later.bench, later.launches).profile.budget_h == 3.0
    other = asked("B:tp=2", "duration_s=30", pairs=2)
    with pytest.raises(UsageError) as refused:
        resumed(record, other.profile, other.bench, other.launches)
    assert "arm B (tp 4, now 2)" in refused.value.message
    assert "the bench decode-bs1 (duration_s 20.0, now 30.0)" in refused.value.message
    plain = asked()
    with pytest.raises(UsageError, match=r"the number of pairs \(2, now 3\)"):
        resumed(record, plain.profile, plain.bench, plain.launches)


def test_a_halving_says_its_rungs_and_who_is_left_open(asked):
    arms = ARMS + "".join(
        f'[[arms]]\nprofile = "base"\nset = {{ cuda-graph-max-bs = {size} }}\n' for size in (64, 32, 16)
    )
    made = planned(asked(experiment='method = "halving"', arms=arms))
    rungs = [(one.rung, one.arm is None) for one in made.launches]
    assert rungs[:5] == [(1, False)] * 5
    assert (2, True) in rungs
    assert rungs[-6:].count((None, True)) == 3  # the best of them against A, in pairs
    assert made.sight.total_s == made.total_s
    assert [finding for finding in made.blocking if finding.check != "same"] == []
