"""A halving step by step, on figures that are given: who goes on, who is confirmed, and what is said of the others."""

import random
from dataclasses import replace

import pytest

from tui.core.experiment import record as experiment_record
from tui.core.experiment.course import planned_launches
from tui.core.experiment.planned import verdicts as planned_verdicts
from tui.core.experiment.record import ExperimentRecord
from tui.core.experiment.report import report
from tui.core.experiment.runner import begin
from tui.core.experiment.screening import cut_short, ending, further
from tui.core.experiment.so_far import side_of_arm, stored_state, verdicts_of
from tui.core.experiment.state import left_s, state_of
from tui.core.model.experiment import ArmStatus
from tui.core.model.profile import BenchProfile, ExperimentArm, ExperimentProfile, LoadPoint
from tui.core.model.verdict import VerdictKind
from tui.core.profiles.load import load_launch
from tui.core.results import store
from tui.core.verdicts.metric import metric

BENCH = BenchProfile("b", (LoadPoint(1),), duration_s=60.0, runs=1)


class World:
    """Launches a record's cells: each arm has a true rate, or a cause that it fails with."""

    def __init__(self, tmp_path, make_launch, truths: dict[str, float | str], **changes: object) -> None:
        (tmp_path / "base.toml").write_text('kind = "launch"\n[args]\nmodel-path = "/m"\n')
        self.make_launch, self.truths = make_launch, truths
        arms = tuple(ExperimentArm(x, "base", {"tp": n}, None if x == "A" else "A") for n, x in enumerate(truths, 1))
        profile = replace(ExperimentProfile("x", "b", arms, method="halving"), **changes)
        launches = {arm.letter: load_launch("base", [tmp_path], arm.sets) for arm in arms}
        self.record = begin(profile, BENCH, launches, "gpu1", seed=1)
        self.results: dict[str, object] = {}

    def launch(self, number: int) -> None:
        cell = self.record.cells[number - 1]
        truth, rng = self.truths[cell.arm], random.Random(f"{cell.arm}{number}")
        if isinstance(truth, str):
            failed = replace(cell, status=ArmStatus.FAILED, run_id=f"r{number}", cause=truth, reason="it died")
            self.record = self.record.with_cell(failed)
            return
        place = {"bench": "b", "experiment": self.record.experiment_id, "arm": cell.arm, "pair": cell.pair}
        (result,) = self.make_launch("base", number, [truth * rng.gauss(1, 0.002)], sets={"arm": cell.arm}, **place)
        self.results[result.result_id] = result
        done = replace(
            cell, status=ArmStatus.MEASURED, run_id=f"r{number}", result_ids=(result.result_id,), spent_s=60.0
        )
        self.record = self.record.with_cell(done)

    def step(self) -> bool:
        """One launch, or one decision; False at the end. What is kept is read again, as after a kill."""
        experiment_record.write(self.record)
        again = experiment_record.read(self.record.experiment_id)
        assert again == self.record
        cell = next((cell for cell in self.record.cells if not cell.over), None)
        if cell is not None:
            self.launch(cell.number)
            return True
        decided = further(self.record, self.results)
        if decided is None:
            self.record = replace(
                self.record, outcome="done", message=ending(self.record), ended_at="2026-12-01T00:00:00Z"
            )
            return False
        assert further(again, self.results) == decided  # the same after a kill
        self.record = decided.record
        return True

    def run(self) -> ExperimentRecord:
        while self.step():
            pass
        return self.record


@pytest.fixture
def world(tmp_path, make_launch):
    return lambda truths, **changes: World(tmp_path, make_launch, truths, **changes)


MOTIVATING = {"A": 82.0, "B": 89.5, "C": 38.0, "D": "nccl", "E": "unsupported_arch", "I": 72.3}


def test_the_winner_is_confirmed_on_launches_that_did_not_choose_it(world):
    lab = world({letter: MOTIVATING[letter] for letter in "ABCDEI"})
    record = lab.run()
    assert record.finalist == "B"
    assert [(one.arm, one.rung, one.launches) for one in record.dropped] == [("C", 1, 1), ("I", 2, 2)]
    assert record.dropped[0].reason.startswith("1 launch: 0.46x of A, single run (L0); ")
    assert sum(cell.arm == "D" for cell in record.cells) == 2  # a cause that may pass is tried once more
    assert sum(cell.arm == "E" for cell in record.cells) == 1
    assert [cell.pair for cell in record.cells if cell.rung is None] == [3, 3, 4, 4, 5, 5]
    verdicts = {one.b.ref: one for one in verdicts_of(record, lab.results)}
    b = verdicts["B"]
    assert (b.verdict, b.level, b.n_pairs) == (VerdictKind.FASTER, "L2", 3)
    fresh = {name for cell in record.cells if cell.rung is None for name in cell.result_ids}
    assert set(b.result_ids) == fresh
    assert {letter: verdicts[letter].level for letter in "CI"} == {"C": "L0", "I": "L1"}
    assert verdicts["E"].verdict is VerdictKind.INVALID
    assert b.confidence == 0.95  # screenings take no share of its error

    # `compare` says the same of both sorts.
    for result in lab.results.values():
        store.write(result)
    experiment_record.write(record)
    stored = tuple(lab.results.values())
    sides = {letter: side_of_arm(record, letter, stored) for letter in "ABC"}
    for letter in "BC":
        (said,) = planned_verdicts([(sides["A"], sides[letter])], metric("per_user_tok_s"), stored)
        assert (said.text, said.result_ids) == (verdicts[letter].text, verdicts[letter].result_ids)
    state = stored_state(record)
    assert (state.finalist, state.pairs, state.left_s) == ("B", 3, None)
    text = report(record, state, {"E": "fewer copies"})
    for line in ("## What won, and how sure", "single run (L0)", "## What failed, and why", "Hoped: fewer copies."):
        assert line in text


def test_many_launches_of_a_screening_are_no_verdict(world):
    """Nobody is dropped among equals, so they have three interleaved launches each when the best is chosen."""
    lab = world(dict.fromkeys("ABCDEF", 80.0))
    record = lab.run()
    verdicts = {one.b.ref: one for one in verdicts_of(record, lab.results)}
    others = set("BCDEF") - {record.finalist}
    assert {one.arm for one in record.dropped} == others
    assert {verdicts[letter].n_pairs for letter in others} == {3}
    assert {verdicts[letter].level for letter in others} == {"L1"}
    assert all("not told apart" in one.reason for one in record.dropped)
    assert verdicts[str(record.finalist)].verdict in (VerdictKind.EQUIVALENT, VerdictKind.INDISTINCT)


def test_nothing_is_confirmed_where_all_look_slower(world):
    lab = world({"A": 90.0, "B": 70.0, "C": 60.0, "D": 40.0, "E": 30.0})
    record = lab.run()
    assert record.finalist is None
    assert {one.arm for one in record.dropped} == set("BCDE")
    assert record.message == "no arm looks faster than A: there is nothing to confirm"
    assert all(cell.rung is not None for cell in record.cells)
    assert "## Nothing was confirmed" in report(record, state_of(record, lab.results), {})


def test_without_its_reference_it_ends_after_the_first_rung(world):
    record = world({"A": "oom_kv_pool", "B": 70.0, "C": 60.0, "D": 40.0, "E": 30.0}).run()
    assert (record.finalist, len(record.cells)) == (None, 5)
    assert record.message == "nothing to compare: A or all others gave nothing that counts"
    assert {one.reason for one in record.dropped} == {"A, the reference, has no launch that counts"}


def test_a_budget_keeps_its_rest_for_the_confirmation(world):
    lab = world({"A": 82.0, "B": 89.5, "C": 70.0, "D": 60.0, "E": 50.0})
    for letter in "AB":
        lab.launch(next(cell.number for cell in lab.record.cells if cell.arm == letter))
    lab.record = cut_short(lab.record)
    record = lab.run()
    assert sum(cell.status is ArmStatus.MEASURED for cell in record.cells if cell.rung) == 2
    assert record.finalist == "B"
    assert {cell.cause for cell in record.cells if cell.status is ArmStatus.SKIPPED} == {"budget"}


def test_what_is_planned_is_what_is_made_where_figures_are_clear(world):
    lab = world({"A": 82.0, "B": 89.5} | {letter: 80.0 * 0.8**at for at, letter in enumerate("CDEFGHI")})
    planned = planned_launches(lab.record.profile, lab.record.seed)
    record = lab.run()
    assert [(cell.number, cell.pair, cell.rung) for cell in record.cells] == [
        (one.number, one.pair, one.rung) for one in planned
    ]
    assert all(one.arm in (None, cell.arm) for one, cell in zip(planned, record.cells, strict=True) if one.rung == 1)


def test_what_is_left_counts_the_rungs_and_pairs_to_come(world):
    lab = world({"A": 82.0, "B": 89.5, "C": 38.0, "D": 30.0, "E": 20.0})
    lab.launch(1)
    # Four of this rung, three of the next, six to confirm, a minute each.
    assert left_s(lab.record, None, {}) == pytest.approx(60.0 * (4 + 3 + 6))


def test_pairs_are_added_to_the_confirmation_alone(world):
    record = world({"A": 82.0, "B": 89.5, "C": 38.0, "D": 30.0, "E": 20.0}).run()
    more = record.with_round({"A", record.finalist})
    assert [cell.arm for cell in more.cells[len(record.cells) :]] in (["A", "B"], ["B", "A"])
