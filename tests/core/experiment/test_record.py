"""The record of an experiment, and the state that is read from it."""

import json
import math
import os
import statistics
import subprocess
import sys
from dataclasses import replace

import pytest

from tui.commands.experiment import conduct
from tui.core.errors import EagletuiError, UsageError
from tui.core.experiment import record as experiment_record
from tui.core.experiment.noise import noise_report
from tui.core.experiment.record import Cell, ExperimentRecord
from tui.core.experiment.runner import begin, resumed
from tui.core.experiment.so_far import look_decides, stored_state, to_make_up, verdicts_of, worth_repeating
from tui.core.experiment.state import UnderWay, knocked_out, left_s, state_of
from tui.core.model.experiment import ArmStatus, LiveRun
from tui.core.model.profile import BenchProfile, ExperimentArm, ExperimentProfile, LoadPoint
from tui.core.model.result import Guard, GuardStatus, Result
from tui.core.model.verdict import VerdictKind
from tui.core.profiles.launch_profile import LaunchProfile
from tui.core.profiles.load import load_launch
from tui.core.profiles.secrets import MASK
from tui.core.server.launch_records import PhaseHistory

BENCH = BenchProfile("b", (LoadPoint(1),), duration_s=60.0, runs=3)
PROFILE = ExperimentProfile(
    "x",
    "b",
    (
        ExperimentArm("A", "base"),
        ExperimentArm("B", "base", {"tp": 4, "api-key": "sk-secret"}, against="A"),
        ExperimentArm("C", "base", {"tp": 2}, against="A"),
    ),
    budget_h=2.0,
)


@pytest.fixture
def launches(tmp_path) -> dict[str, LaunchProfile]:
    (tmp_path / "base.toml").write_text('kind = "launch"\n[args]\nmodel-path = "/m"\n')
    return {arm.letter: load_launch("base", [tmp_path], arm.sets) for arm in PROFILE.arms}


@pytest.fixture
def record(launches) -> ExperimentRecord:
    return begin(PROFILE, BENCH, launches, "gpu1", seed=1)


def with_status(record: ExperimentRecord, *statuses: ArmStatus, **changes: object) -> ExperimentRecord:
    """The first launches with these statuses."""
    for cell, status in zip(record.cells, statuses, strict=False):
        record = record.with_cell(replace(cell, status=status, **changes))
    return record


def test_it_reads_back_as_it_was_written(record):
    cell = Cell(1, "A", 1, ArmStatus.FAILED, "run-1", "bench-1", spent_s=3.5, cause="oom_kv_pool", change={"tp": 8})
    record = record.with_cell(cell)
    experiment_record.write(record)
    assert experiment_record.read(record.experiment_id) == record
    assert experiment_record.read_all() == [record]


def test_each_round_has_every_arm_once(record):
    assert sorted(record.order[:3]) == ["A", "B", "C"]
    assert record.order[3:6] == record.order[:3][::-1]
    assert [cell.pair for cell in record.cells] == [1] * 3 + [2] * 3 + [3] * 3
    assert [cell.number for cell in record.cells] == list(range(1, 10))


def test_no_secret_is_written(record):
    experiment_record.write(record)
    (path,) = experiment_record.FILES.directory.iterdir()
    assert "sk-secret" not in path.read_text()
    assert record.profile.arms[1].sets == {"tp": 4, "api-key": MASK}


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"schema": 2}', '{"experiment_id": 1}', '{"experiment_id": "half", "host": "h"}']
)
def test_a_broken_file_hides_no_other(record, text):
    experiment_record.write(record)
    (experiment_record.FILES.directory / "half.json").write_text(text)
    assert experiment_record.read_all() == [record]
    assert experiment_record.read("half") is None


def test_only_the_newest_of_a_name_and_host_is_taken_up(record):
    early = replace(record, experiment_id="x-1", started_at="2026-01-01T00:00:00Z")
    late = replace(record, experiment_id="x-2", started_at="2026-01-02T00:00:00Z")
    for one in (early, late):
        experiment_record.write(one)
    assert experiment_record.unfinished("x", "gpu1") == late
    assert experiment_record.unfinished("x", "gpu2") is None
    assert experiment_record.unfinished("y", "gpu1") is None
    experiment_record.write(replace(late, outcome="done"))
    assert experiment_record.unfinished("x", "gpu1") is None


def test_what_a_process_runs_is_running_and_not_unfinished(record, tmp_path):
    (tmp_path / "b.toml").write_text('kind = "bench"\nconcurrency = [1]\n')
    experiment_record.write(record)
    with experiment_record.driving(record.experiment_id):
        assert experiment_record.driver(record.experiment_id) == os.getpid()
        assert experiment_record.drivers() == {record.experiment_id: os.getpid()}
        assert experiment_record.driven("x", "gpu1") == record
        assert experiment_record.driven("x", "gpu2") is None
        assert experiment_record.unfinished("x", "gpu1") is None
        assert stored_state(record).message == f"running in another process (PID {os.getpid()})"
        with pytest.raises(EagletuiError, match=f"experiment {record.experiment_id} is already running") as caught:
            conduct(tmp_path, PROFILE, "gpu1", True, None, ())
        assert "--attach" in str(caught.value.hint)
    assert experiment_record.unfinished("x", "gpu1") == record
    assert stored_state(record).message is None
    assert experiment_record.drivers() == {}


def test_one_process_an_experiment(record):
    with experiment_record.driving("x-1"):
        with (
            pytest.raises(EagletuiError, match=rf"x-1 is already running \(PID {os.getpid()} on this mach") as caught,
            experiment_record.driving("x-1"),
        ):
            pass
        assert caught.value.slug == "busy"
        with experiment_record.driving("x-2"):
            pass
    assert experiment_record.driver("x-1") is None
    # Whoever is killed lets go.
    script = "from tui.core.experiment.record import driving\nimport os\nwith driving('x-1'): os._exit(9)"
    assert subprocess.run([sys.executable, "-c", script], env=os.environ, check=False).returncode == 9
    assert experiment_record.drivers() == {}
    with experiment_record.driving("x-1"):
        assert experiment_record.driver("x-1") == os.getpid()


def test_it_is_taken_up_only_where_it_still_measures_the_same(record, launches, tmp_path):
    ended = replace(record, outcome="budget", ended_at="2026-01-01T00:00:00Z", message="no room")
    again = resumed(ended, replace(PROFILE, budget_h=9.0), replace(BENCH, description="other words"), launches)
    assert (again.outcome, again.ended_at, again.message) == ("running", None, None)
    assert again.profile.budget_h == 9.0
    assert again.cells == record.cells
    other = {**launches, "B": load_launch("base", [tmp_path], {"tp": 8, "api-key": "sk-secret"})}
    with pytest.raises(UsageError, match="arm B") as caught:
        resumed(ended, PROFILE, BENCH, other)
    assert caught.value.slug == "changed"
    with pytest.raises(UsageError, match="the bench b"):
        resumed(ended, PROFILE, replace(BENCH, runs=5), launches)
    # Another key is no other configuration.
    same = {**launches, "B": load_launch("base", [tmp_path], {"tp": 4, "api-key": "sk-new"})}
    resumed(ended, PROFILE, BENCH, same)


def test_an_arm_is_out_after_a_certain_failure_or_the_second_of_a_cause(record):
    mine = [cell for cell in record.cells if cell.arm == "B"]

    def failed(*causes: str) -> ExperimentRecord:
        found = record
        for cell, cause in zip(mine, causes, strict=False):
            found = found.with_cell(replace(cell, status=ArmStatus.FAILED, cause=cause))
        return found

    assert knocked_out(record, "B") is None
    assert knocked_out(failed("oom_kv_pool"), "B") is not None
    assert knocked_out(failed("nccl"), "B") is None
    assert knocked_out(failed("nccl", "timeout"), "B") is None
    assert knocked_out(failed("nccl", "nccl"), "B") is not None
    assert knocked_out(failed("oom_kv_pool"), "A") is None


def test_the_state_of_each_arm(record):
    first = record.order[0]
    others = [letter for letter in "ABC" if letter != first]
    record = with_status(record, ArmStatus.MEASURED, spent_s=100.0)
    state = state_of(record, {}, UnderWay(2, 0.0, phase="load_weights"))
    arms = {arm.letter: arm for arm in state.arms}
    assert state.at == 1
    assert (arms[first].status, arms[first].launches_done, arms[first].launches_total) == ("queued", 1, 3)
    second = arms[record.order[1]]
    assert (second.status, second.phase) == ("launching", "load_weights")
    live = LiveRun(LoadPoint(1), 1, "window", left_s=30.0)
    running = state_of(record, {}, UnderWay(2, 0.0, live=live))
    assert {arm.letter: arm.status for arm in running.arms}[record.order[1]] == "running"
    failed = with_status(record, ArmStatus.FAILED, cause="oom_kv_pool", reason="the pool fails", phase="memory_pool")
    told = {arm.letter: arm for arm in state_of(failed, {}).arms}[first]
    assert (told.status, told.cause, told.reason, told.phase) == (
        "failed",
        "oom_kv_pool",
        "the pool fails",
        "memory_pool",
    )
    assert {told.letter for told in state_of(failed, {}).arms if told.status == "queued"} == set(others)


def test_the_time_that_is_left(record):
    nothing = {}
    assert left_s(record, None, nothing) is None
    # Nothing measured yet: starts before this experiment, and the length of the bench.
    history = PhaseHistory(600.0, 590.0, 610.0, 4)
    usual = dict.fromkeys("ABC", history)
    bench_s = 10.0 + 3 * 64.0
    assert left_s(record, None, usual) == pytest.approx(9 * (600.0 + bench_s + 10.0))
    # Measured launches say it better.
    record = with_status(record, ArmStatus.MEASURED, ArmStatus.MEASURED, ArmStatus.MEASURED, spent_s=700.0)
    assert left_s(record, None, usual) == pytest.approx(6 * 700.0)
    starting = UnderWay(4, 0.0, phase="load_weights", eta_s=120.0)
    assert left_s(record, starting, usual) == pytest.approx(120.0 + bench_s + 10.0 + 5 * 700.0)
    measuring = UnderWay(4, 0.0, live=LiveRun(LoadPoint(1), 1, "window", left_s=90.0))
    assert left_s(record, measuring, usual) == pytest.approx(90.0 + 10.0 + 5 * 700.0)
    # An arm that is out takes no time.
    letter = record.order[3]
    out = record.with_cell(replace(record.cells[3], status=ArmStatus.FAILED, cause="bad_flag"))
    assert left_s(out, None, usual) == pytest.approx(700.0 * sum(cell.arm != letter for cell in record.cells[3:]))


def test_the_file_is_plain_json(record):
    experiment_record.write(record)
    document = json.loads(next(experiment_record.FILES.directory.glob("*.json")).read_text())
    assert document["profile"]["name"] == "x"
    assert [cell["arm"] for cell in document["cells"]] == list(record.order)


def test_a_measurement_is_repeated_only_for_what_may_have_passed(make_launch):
    (result,) = make_launch("base", 0, [80.0])

    def failed(*ids: str) -> Result:
        guards = tuple(Guard(name, GuardStatus.FAILED, name) for name in ids)
        return replace(result, guards=guards, valid=not ids)

    assert not worth_repeating(BENCH, [failed()])
    assert worth_repeating(BENCH, [failed("client_lag")])
    assert worth_repeating(BENCH, [failed("window"), failed("client_lag", "foreign")])
    assert not worth_repeating(BENCH, [failed("client_lag"), failed()])
    assert not worth_repeating(BENCH, [failed("client_lag", "tokens")])
    # Each load by itself.
    two = replace(BENCH, points=(LoadPoint(1), LoadPoint(4)))
    other = replace(failed("clocks"), load=replace(result.load, concurrency=4))
    assert worth_repeating(two, [failed(), other])


# --- verdicts of a record ---------------------------------------------------------------------------------------------


@pytest.fixture
def measured(record, make_launch):
    """measured(pairs, B=1.09, C=1.0): the record with so many pairs measured, arms that much faster than A, and results."""

    def make(pairs: int, *, planned: int = 3, looks: tuple[int, ...] = (), **ratios: float):
        profile = replace(record.profile, pairs=planned, looks=looks)
        letters = [arm.letter for arm in profile.arms]
        cells = experiment_record.all_rounds(planned, letters, 1)
        found = replace(record, profile=profile, cells=cells)
        results = []
        wobble = {1: 0.998, 2: 1.0, 3: 1.002, 4: 0.999, 5: 1.001}
        for cell in cells:
            if cell.pair > pairs:
                continue
            rate = 80.0 * ratios.get(cell.arm, 1.0) * wobble[cell.pair] ** (-1 if cell.arm == "A" else 1)
            place = {"bench": "b", "experiment": found.experiment_id, "arm": cell.arm, "pair": cell.pair}
            launch = make_launch("base", cell.number, [rate, rate * 1.001], sets={"arm": cell.arm}, **place)
            results += launch
            names = tuple(result.result_id for result in launch)
            found = found.with_cell(replace(cell, status=ArmStatus.MEASURED, result_ids=names, spent_s=700.0))
        return found, {result.result_id: result for result in results}

    return make


def test_verdicts_wait_for_the_planned_pairs_and_then_decide(measured):
    record, results = measured(2, B=1.09)
    waiting = verdicts_of(record, results)
    assert [(v.a.ref, v.b.ref, v.point) for v in waiting] == [("A", "B", LoadPoint(1)), ("A", "C", LoadPoint(1))]
    assert "3 launch pairs needed for a verdict, 2 measured" in waiting[0].text
    record, results = measured(3, B=1.09)
    b, c = verdicts_of(record, results)
    assert (b.verdict, b.level, b.n_pairs) == (VerdictKind.FASTER, "L2", 3)
    assert b.ratio == pytest.approx(1.09, rel=0.01)
    assert c.verdict is VerdictKind.EQUIVALENT


def test_an_experiment_that_is_over_decides_from_the_pairs_it_has(measured):
    record, results = measured(4, planned=5, B=1.09)
    assert "5 launch pairs needed for a verdict, 4 measured" in verdicts_of(record, results)[0].text
    b, _ = verdicts_of(record, results, over=True)
    assert (b.verdict, b.n_pairs) == (VerdictKind.FASTER, 4)
    # Fewer than three stay a screening.
    record, results = measured(2, planned=5, B=1.09)
    assert verdicts_of(record, results, over=True)[0].level == "L1"


def test_a_pair_without_its_partner_is_not_counted(measured):
    record, results = measured(4, planned=4, B=1.09)
    lost = next(cell for cell in record.cells if cell.arm == "A" and cell.pair == 2)
    record = record.with_cell(replace(lost, status=ArmStatus.FAILED, cause="timeout", result_ids=()))
    b, _ = verdicts_of(record, results, over=True)
    assert b.n_pairs == 3
    assert b.a.launches == b.b.launches == 3


def test_it_may_stop_early_only_at_a_look_that_decides(measured):
    def ended(pairs: int, **ratios: float) -> bool:
        record, results = measured(pairs, planned=5, looks=(3, 5), **ratios)
        return look_decides(replace(record, verdicts=verdicts_of(record, results)))

    assert ended(3, B=1.09, C=1.2)
    assert not ended(2, B=1.09, C=1.2)  # no look
    assert not ended(4, B=1.09, C=1.2)  # no look either
    assert not ended(5, B=1.09, C=1.2)  # the last one: it ends by itself
    assert not ended(3, B=1.09, C=1.02)  # C is not decided
    record, results = measured(3, planned=5, looks=(3, 5), B=1.09, C=1.02)
    first = next(cell for cell in record.cells if cell.arm == "C")
    record = record.with_cell(replace(first, status=ArmStatus.FAILED, cause="bad_flag", result_ids=()))
    verdicts = verdicts_of(record, {name: one for name, one in results.items() if one.arm != "C"})
    assert look_decides(replace(record, verdicts=verdicts))  # nothing more comes of C
    without = replace(record, profile=replace(record.profile, looks=()), verdicts=verdicts)
    assert not look_decides(without)


def test_a_pair_that_was_lost_by_chance_is_made_up_for(measured):
    record, stored = measured(3, B=1.09)
    lost = next(cell for cell in record.cells if cell.arm == "B" and cell.pair == 2)

    def failed(cause: str) -> ExperimentRecord:
        return record.with_cell(replace(lost, status=ArmStatus.FAILED, cause=cause, result_ids=()))

    def not_counting(guard: str) -> dict[str, Result]:
        guards = (Guard(guard, GuardStatus.FAILED, guard),)
        return stored | {name: replace(stored[name], guards=guards, valid=False) for name in lost.result_ids}

    assert to_make_up(record, stored) == set()
    assert to_make_up(failed("timeout"), stored) == {"A", "B"}  # C has its pairs
    assert to_make_up(failed("oom_kv_pool"), stored) == set()  # it would fail again
    assert to_make_up(record, not_counting("client_lag")) == {"A", "B"}
    assert to_make_up(record, not_counting("tokens")) == set()
    # A round of those two; with it, nothing is missing.
    more = failed("timeout").with_round({"A", "B"})
    added = more.cells[9:]
    assert [(cell.number, cell.pair) for cell in added] == [(10, 4), (11, 4)]
    assert {cell.arm for cell in added} == {"A", "B"}
    for cell in added:
        same = next(c for c in record.cells if c.arm == cell.arm and c.pair == 1)
        more = more.with_cell(replace(cell, status=ArmStatus.MEASURED, result_ids=same.result_ids))
    assert to_make_up(more, stored) == set()
    assert [cell.pair for cell in more.with_round().cells[-3:]] == [5, 5, 5]


def test_noise_of_an_a_a_experiment(record, make_launch):
    rates = {1: (89.0, 89.4), 2: (90.1, 90.3), 3: (89.6, 89.5), 4: (88.8, 89.2)}
    results = [
        result
        for number, pair in rates.items()
        for result in make_launch("base", number, pair, bench="b", experiment=record.experiment_id)
    ]
    bench = replace(record.bench, runs=2)
    spent = with_status(replace(record, bench=bench), ArmStatus.MEASURED, ArmStatus.MEASURED, spent_s=600.0)
    (report,) = noise_report(spent, results)
    means = [math.log(a * b) / 2 for a, b in rates.values()]
    within = statistics.fmean((math.log(a) - math.log(b)) ** 2 / 2 for a, b in rates.values())
    assert report.noise.run_cv == pytest.approx(math.sqrt(within), rel=0.01)
    assert report.noise.launch_cv == pytest.approx(math.sqrt(statistics.variance(means) - within / 2), rel=0.01)
    assert report.noise.launches == 4
    needed = dict(report.pairs_needed)
    assert needed[0.05] == 3
    assert (needed[0.01] or 99) > needed[0.02] >= 3
    assert report.text.startswith("launch CV 0.6 %, run CV 0.2 % (4 launches on gpu1, b, conc 1); 1 % needs ")
    hours = 2 * (needed[0.01] or 0) * 600 / 3600
    assert f"{int(hours)} h" in report.text
    assert noise_report(spent, results[:4]) == ()  # two launches say nothing


def test_a_launch_that_is_made_again_is_of_the_same_rung() -> None:
    cell = Cell(3, "C", 1, ArmStatus.RUNNING, run_id="c-1", bench_run_id="b-1", spent_s=12.0, rung=1)
    assert cell.again == Cell(3, "C", 1, spent_s=12.0, rung=1)
