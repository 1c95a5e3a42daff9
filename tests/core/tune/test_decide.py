"""Decisions of the tuner: pure, so hosts are made up, or are the simulated host's stated model."""

import runpy
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.tunes import BASE, BEST, RANGED, cell, tuned, whole
from tui.core.records import from_json, to_json
from tui.core.tune import decide, report
from tui.core.tune.record import Draft, Phase, Status, Step, Taken, TuneRecord, sets_of

SIMULATION = runpy.run_path(str(Path(__file__).parents[3] / "benchmarks" / "tuner.py"))


@pytest.mark.parametrize("seed", [1, 2])
def test_the_simulated_hosts_range_and_best_field_are_found(seed):
    said = SIMULATION["simulate"](seed)
    assert said.right, [(taken.step.title, taken.words) for taken in said.record.steps]
    assert said.range_launches <= 6
    assert said.record.launches <= 25
    assert said.end.outcome == "done"


@pytest.mark.parametrize("world", ["wide", "chains", "steep"])
def test_other_hosts_than_the_model_assumes(world):
    said = SIMULATION["simulate"](1, world)
    best, truth = said.best, SIMULATION["best_rate"](world)
    assert best is not None
    assert SIMULATION["rate_in"](world, best) > 0.97 * truth


def test_the_same_record_gives_the_same_step():
    record = from_json(TuneRecord, to_json(RANGED))
    assert record == RANGED
    assert decide.next_step(record) == decide.next_step(RANGED)


def test_the_baseline_comes_first_then_the_start():
    first = decide.next_step(RANGED)
    assert isinstance(first, Step)
    assert (first.phase, first.draft, first.fraction) == (Phase.SPECULATION, None, 0.87)
    second = decide.next_step(tuned((None, BASE)))
    assert isinstance(second, Step)
    assert second.draft == RANGED.start


def test_a_draft_that_memory_did_not_suffice_for_rules_out_larger_ones():
    big = Draft(5, 4, 12)
    record = cell(tuned((None, BASE), (Draft(3, 1, 4), 72.0)), big, cause="oom_cuda_graph")
    step = decide.next_step(record)
    assert isinstance(step, Step)
    assert step.draft is not None
    assert step.draft.tokens <= 8  # halfway back to what started
    spots = decide.spots(record)
    assert all(spot.draft is None or spot.draft.tokens < 12 for spot in spots.values() if spot.state == "open")


def test_what_cannot_reach_the_best_is_skipped_with_the_reason():
    spots = decide.spots(whole())
    assert spots[1, 1].state == "skipped"
    assert spots[1, 1].why.startswith("at most ")
    assert spots[4, 2].state == "measured"
    said = report.not_tried(whole())
    assert any(line.startswith("even with every draft accepted") and "1×1 (7" in line for line in said)
    assert any(line.startswith("estimated to be slower than the best") and "2×8 (" in line for line in said)
    assert any("other algorithms than EAGLE3" in line for line in said)


def test_the_winner_is_confirmed_on_fresh_launches():
    step = decide.next_step(whole())
    assert isinstance(step, Step)
    assert (step.phase, step.draft) == (Phase.CONFIRM, None)  # no speculation beats every draft
    fast = tuned((None, 60.0), (Draft(3, 1, 4), 72.0), (BEST, 77.0), full=True)
    step = decide.next_step(fast)
    assert isinstance(step, Step)
    assert step.draft == BEST


def test_a_start_that_is_the_best_needs_no_confirming():
    end = decide.next_step(tuned((None, 60.0), (Draft(3, 1, 4), 72.0), full=True))
    assert isinstance(end, decide.End)
    assert end.outcome == "done"
    assert "nothing to confirm" in end.message


def test_the_budget_keeps_a_part_for_the_confirmation():
    record = tuned((None, BASE), (Draft(3, 1, 4), 72.0), spent_s=600.0)
    assert isinstance(decide.next_step(replace(record, budget_h=10.0)), Step)
    spent_h = record.spent_s / 3600
    tight = decide.next_step(replace(record, budget_h=spent_h + 6.5 * 600 / 3600))
    assert isinstance(tight, Step)
    assert tight.phase is Phase.CONFIRM  # one more cell would leave too little for it
    end = decide.next_step(replace(record, budget_h=spent_h + 600 / 3600))
    assert isinstance(end, decide.End)
    assert end.outcome == "budget"


def test_the_first_token_does_not_depend_on_the_draft():
    record = replace(tuned((None, BASE), (Draft(3, 1, 4), 72.0)), goal="ttft")
    assert decide.next_cell(record) is None
    assert any("first token" in line for line in report.not_tried(record))


def test_a_profile_without_a_draft_is_measured_once():
    record = replace(RANGED, start=None, algorithm=None)
    record = cell(record, None, rate=BASE)
    end = decide.next_step(record)
    assert isinstance(end, decide.End)
    assert (end.outcome, end.message) == ("done", "the profile does not speculate: the range alone was looked for")
    assert sets_of(record, Step(Phase.SPECULATION, "", 0.87, None)) == {"mem-fraction-static": 0.87}


def test_nothing_that_starts_is_an_end():
    failed = Taken(
        1, Step(Phase.RANGE, "", 0.76, RANGED.start), Status.FAILED, cause="preflight", reason="no such model"
    )
    end = decide.next_step(replace(RANGED, steps=(failed,)))
    assert isinstance(end, decide.End)
    assert (end.outcome, end.message) == ("failed", "the profile does not start: preflight: no such model")


def test_a_leader_that_is_in_doubt_is_measured_again(monkeypatch):
    close = Draft(4, 2, 9), Draft(5, 2, 9)
    monkeypatch.setattr(decide, "drafts", lambda record: {(one.steps, one.topk): [one] for one in close})
    record = tuned((None, BASE), (Draft(3, 1, 4), 60.0), (close[0], 77.0), (close[1], 77.0))
    step = decide.next_cell(record)
    assert step is not None
    assert step.draft in close
    assert "chance that the second is better" in step.why


def test_levels():
    record = tuned((None, BASE), (Draft(3, 1, 4), 72.0))
    assert report.level_of(record, Draft(3, 1, 4)) == "L0"
    for _ in range(2):
        record = cell(record, Draft(3, 1, 4), rate=72.0)
    assert report.level_of(record, Draft(3, 1, 4)) == "L2"


def test_every_step_says_what_came_of_it_in_one_line():
    for taken in whole().steps:
        assert taken.words
        assert "\n" not in taken.words
    document = report.document(whole())
    assert document["range"]["low"] == 0.84
    assert document["best"] == {"steps": 4, "topk": 2, "draft_tokens": 9}
    assert len(document["steps"]) == len(whole().steps)
