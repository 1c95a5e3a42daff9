"""Steps carried out as experiments: what is asked of them, and what is made of their ends."""

from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import replace

import pytest

from tests.support.tunes import RANGED, cell, tuned
from tui.core.errors import UsageError
from tui.core.experiment.record import ExperimentRecord
from tui.core.experiment.state import state_of
from tui.core.groups.session import GroupSession
from tui.core.model.experiment import ArmStatus, ExperimentState
from tui.core.model.profile import BenchProfile, ExperimentProfile, LoadPoint
from tui.core.profiles.launch_profile import LaunchProfile
from tui.core.profiles.load import load_launch
from tui.core.tune import record as tune_record
from tui.core.tune import runner
from tui.core.tune.record import Draft, Phase, Status, Step, TuneRecord
from tui.core.tune.runner import TuneRunner, begin_tune, resumed_tune

PROFILE = """
kind = "launch"
[args]
model-path = "/m"
mem-fraction-static = 0.76
speculative-algorithm = "EAGLE3"
speculative-num-steps = 3
speculative-eagle-topk = 1
speculative-num-draft-tokens = 4
"""
BENCH = BenchProfile("b", (LoadPoint(4), LoadPoint(8)), dataset="prompts", duration_s=60.0)


class FakeRunner:
    """An experiment that ends at once as `ends` says."""

    asked: list[tuple[ExperimentProfile, BenchProfile]]
    ends: Callable[[ExperimentRecord], ExperimentRecord]

    def __init__(
        self,
        hosts: GroupSession,
        record: ExperimentRecord,
        profile: ExperimentProfile,
        launches: Mapping[str, LaunchProfile],
        write: Callable[[ExperimentRecord], None],
    ) -> None:
        self.record, self._write = record, write
        self.stopped = False
        FakeRunner.asked.append((profile, record.bench))

    async def states(self) -> AsyncGenerator[ExperimentState, None]:
        self._write(self.record)
        yield state_of(self.record, {})
        self.record = replace(FakeRunner.ends(self.record), outcome="stopped" if self.stopped else "done")
        self._write(self.record)
        yield state_of(self.record, {}, finished=True)

    def results(self) -> tuple[()]:
        return ()

    def stop(self) -> None:
        self.stopped = True


def measured(record: ExperimentRecord) -> ExperimentRecord:
    cells = tuple(replace(one, status=ArmStatus.MEASURED, run_id="r", spent_s=60.0) for one in record.cells)
    return replace(record, cells=cells)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[FakeRunner]:
    FakeRunner.asked, FakeRunner.ends = [], staticmethod(measured)
    monkeypatch.setattr(runner, "ExperimentRunner", FakeRunner)
    return FakeRunner


@pytest.fixture
def load(tmp_path) -> Callable[[Mapping[str, object]], LaunchProfile]:
    (tmp_path / "x.toml").write_text(PROFILE)
    return lambda sets: load_launch("x", [tmp_path], sets)


@pytest.fixture
def begun(load) -> TuneRecord:
    return begin_tune(load({}), {"port": 31000}, BENCH, "tok_s", "gpu1", 6.0, seed=1)


async def carried_on(record: TuneRecord, load, steps: int = 1) -> TuneRecord:
    """So many steps of a tune."""
    made = TuneRunner(GroupSession({}), record, load, {"port": 31000})
    before = len([taken for taken in record.steps if taken.status is not Status.RUNNING])
    async for state in made.states():
        if len([taken for taken in state.record.steps if taken.status is not Status.RUNNING]) >= before + steps:
            break
    assert tune_record.read(record.tune_id) == made.record
    return made.record


def test_what_a_tune_begins_with(begun):
    assert (begun.start, begun.fraction, begun.algorithm) == (Draft(3, 1, 4), 0.76, "EAGLE3")
    assert (begun.bench.points, begun.loads) == ((LoadPoint(4),), ("c8",))
    assert begun.longest_prompt > 300
    assert begun.sets == {"port": 31000}


async def test_a_fraction_is_launched_with_the_longest_prompts(begun, load, fake):
    record = await carried_on(begun, load)
    ((profile, bench),) = fake.asked
    assert dict(profile.arms[0].sets)["mem-fraction-static"] == 0.76
    assert dict(profile.arms[0].sets)["port"] == 31000
    assert (bench.points, bench.input_len, bench.dataset) == ((LoadPoint(4),), begun.longest_prompt, "random-ids")
    assert (record.steps[0].status, record.steps[0].spent_s) == (Status.DONE, 60.0)


async def test_a_crash_is_data(begun, load, fake):
    def crashed(record: ExperimentRecord) -> ExperimentRecord:
        (one,) = record.cells
        failed = replace(one, status=ArmStatus.FAILED, cause="oom_kv_pool", reason="no room", phase="memory_pool")
        return replace(record, cells=(failed,))

    fake.ends = staticmethod(crashed)
    record = await carried_on(begun, load)
    assert record.steps[0].words == "failed in memory pool: oom_kv_pool: no room"
    assert record.under_way is None


async def test_without_speculation_its_flags_are_taken_out(load, fake):
    record = await carried_on(RANGED, load)
    (arm,) = fake.asked[0][0].arms
    launch = load(arm.sets)
    assert launch.arg("speculative-algorithm") in (None, False)
    assert dict(arm.sets)["mem-fraction-static"] == 0.87
    assert record.steps[-1].reason == "nothing was measured"


async def test_the_step_that_was_cut_short_is_taken_up(load, fake):
    taken = replace(cell(RANGED, None, 89.5).steps[-1], status=Status.RUNNING, experiment_id=None)
    once = await carried_on(RANGED.with_step(taken), load)
    assert len(once.steps) == len(RANGED.steps) + 1
    assert once.steps[-1].step == taken.step


async def test_a_stop_leaves_the_step_to_be_resumed(load, fake):
    made = TuneRunner(GroupSession({}), RANGED, load, {})
    async for state in made.states():
        if state.experiment is not None:
            made.stop()
    assert (made.record.outcome, state.finished) == ("stopped", True)
    assert made.record.steps[-1].status is Status.RUNNING
    assert made.record.under_way is not None
    assert tune_record.unfinished(made.record.profile, "demo", "tok_s") == made.record
    fake.asked.clear()
    again = await carried_on(replace(made.record, outcome="running"), load)
    assert again.steps[-1].experiment_id == made.record.under_way.experiment_id


async def test_pause_waits_between_two_steps(load, fake):
    made = TuneRunner(GroupSession({}), RANGED, load, {})
    seen = 0
    async for state in made.states():
        if state.experiment is not None:
            made.pause()
        elif state.paused:
            seen += 1
            assert made.record.steps[-1].status is not Status.RUNNING
            made.resume()
            made.stop()
    assert seen == 1


async def test_the_winner_is_held_against_the_start(load, fake):
    record = tuned((None, 60.0), (Draft(3, 1, 4), 72.0), (Draft(4, 2, 9), 77.0), full=True)
    record = await carried_on(record, load)
    ((profile, bench),) = fake.asked
    start, best = (dict(arm.sets) for arm in profile.arms)
    assert (profile.pairs, bench) == (3, record.bench)
    assert start["mem-fraction-static"] == best["mem-fraction-static"] == 0.87  # the start's own 0.76 does not start
    assert (start["speculative-num-steps"], best["speculative-num-steps"]) == (3, 4)
    assert best["speculative-eagle-topk"] == 2
    assert (record.steps[-1].status, record.steps[-1].launches) == (Status.FAILED, 6)  # nothing to compare: no results


def test_a_tune_goes_on_only_with_what_it_was_begun_with(begun, load, tmp_path):
    assert resumed_tune(begun, load({}), BENCH, 9.0).budget_h == 9.0
    assert resumed_tune(begun, load({}), BENCH).budget_h == 6.0
    with pytest.raises(UsageError, match="changed since: b"):
        resumed_tune(begun, load({}), replace(BENCH, output_len=99))
    with pytest.raises(UsageError, match="changed since: x"):
        resumed_tune(begun, load({"tp": 8}), BENCH)


def test_a_record_that_is_not_one_is_left_out(begun):
    tune_record.write(begun)
    assert tune_record.tunes() == [begun]
    path = tune_record.FILES.path(begun.tune_id)
    path.write_text(path.read_text().replace('"tok_s"', '"speed"'))
    assert tune_record.tunes() == []
    assert tune_record.FILES.unreadable() == [path.name]


def test_the_steps_of_a_tune_are_numbered(begun):
    step = Step(Phase.RANGE, "why", 0.8, None)
    broken = replace(begun, steps=(tune_record.Taken(2, step),))
    tune_record.write(broken)
    assert tune_record.read(begun.tune_id) is None
