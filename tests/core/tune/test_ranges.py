"""Which fractions start: the search over made-up hosts, whose ends are known."""

from dataclasses import replace

import pytest

from tui.core.model.profile import BenchProfile, LoadPoint
from tui.core.tune import ranges
from tui.core.tune.record import Bounds, Draft, Status, Taken, TuneRecord

BENCH = BenchProfile("b", (LoadPoint(1),))


def begun(own: float | None, batch: int | None = 48) -> TuneRecord:
    return TuneRecord("t", "p", "h", "tok_s", BENCH, Draft(3, 1, 4), own, batch, "EAGLE3", 300, 1)


def searched(
    record: TuneRecord, low: float, high: float, *, ledger: bool = True, most: float | None = None
) -> TuneRecord:
    """The search to its end on a host where these fractions start."""
    while (step := ranges.next_launch(record)) is not None:
        assert step.fraction is not None
        too_low, too_high = step.fraction < low - 0.001, step.fraction > high + 0.001
        cause = "oom_kv_pool" if too_low else "oom_cuda_graph" if too_high else None
        taken = Taken(len(record.steps) + 1, step, Status.FAILED if cause else Status.DONE, cause=cause)
        record = record.with_step(taken)
        if ledger:
            record = replace(record, bounds=Bounds(low, most))
    return record


@pytest.mark.parametrize("own", [0.5, 0.76, 0.85, 0.88, 0.92, 0.97, None])
@pytest.mark.parametrize("low", [0.84, 0.88])
@pytest.mark.parametrize("above", [0, 1, 4, 8])
@pytest.mark.parametrize("guess", [None, -0.02, 0.0, 0.03])
def test_both_ends_are_found_within_six_launches(own, low, above, guess):
    high = round(low + above / 100, 2)
    most = None if guess is None else high + guess
    record = searched(begun(own), low, high, most=most)
    known = ranges.found(record)
    assert (known.low, known.high, known.exact) == (low, high, True)
    assert len(record.steps) <= ranges.MOST_LAUNCHES
    fractions = [taken.step.fraction for taken in record.steps]
    assert len(set(fractions)) == len(fractions)


def test_a_wide_gap_takes_the_ledgers_estimate_and_says_what_is_left_open():
    known = ranges.found(searched(begun(0.78), 0.78, 0.82, most=0.82))
    assert (known.low, known.high) == (0.78, 0.82)
    blind = ranges.found(searched(begun(0.5), 0.7, 0.75))
    assert blind.low == 0.7
    assert blind.high is not None
    assert blind.high <= 0.75
    assert not blind.exact


def test_what_the_ledger_knows_is_not_launched():
    record = searched(replace(begun(0.76), bounds=Bounds(0.84, 0.9)), 0.84, 0.9, most=0.9)
    assert min(taken.step.fraction or 0 for taken in record.steps) == 0.84
    assert record.steps[0].step.why == "lower end by the ledger: nothing is left for the pool below it"


def test_without_a_ledger_crashes_alone_lead_to_a_range_that_starts():
    known = ranges.found(searched(begun(0.76), 0.84, 0.9, ledger=False))
    assert known.low is not None
    assert known.high is not None
    assert 0.84 <= known.low <= known.high <= 0.9
    assert not known.exact
    assert "not found to 0.01" in known.text


def test_another_cause_ends_the_search():
    record = begun(0.85)
    step = ranges.next_launch(record)
    assert step is not None
    failed = Taken(1, step, Status.FAILED, cause="nccl", reason="NCCL failed")
    record = record.with_step(failed)
    assert ranges.next_launch(record) is None
    assert ranges.failure(record) == "nccl: NCCL failed"


def test_a_server_that_dies_at_the_longest_prompt_is_too_full():
    record = begun(0.9)
    step = ranges.next_launch(record)
    assert step is not None
    record = record.with_step(Taken(1, step, Status.FAILED, cause="oom_serving"))
    after = ranges.next_launch(record)
    assert after is not None
    assert (after.fraction or 1) < 0.9


def test_where_nothing_starts_the_graphs_shrink():
    record = searched(begun(0.85, 64), 0.9, 0.89)
    assert 32 in [taken.step.batch for taken in record.steps]
    assert ranges.found(record).low is None
    # Not below what the workload has at once.
    users = replace(begun(0.85, 64), bench=BenchProfile("b", (LoadPoint(40),)))
    assert [taken.step.batch for taken in searched(users, 0.9, 0.89).steps if taken.step.batch] == []
