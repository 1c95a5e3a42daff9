"""Records of tunes, made up: a range that was found, cells with figures."""

from dataclasses import replace
from functools import cache

from tui.core.model.profile import BenchProfile, LoadPoint
from tui.core.tune import decide
from tui.core.tune.record import Bounds, Draft, Phase, Status, Step, Taken, TuneRecord
from tui.demo import model

BASE, BEST = 89.5, Draft(4, 2, 9)
START = Draft(3, 1, 4)


def _ranged() -> TuneRecord:
    bench = BenchProfile("speculation-real-prompts", (LoadPoint(1),))
    record = TuneRecord(
        "tune-x-20261130T100000Z-000001", "x", "demo", "tok_s", bench, START, 0.76, 48, "EAGLE3", 300, 1
    )
    launches = ((0.76, "oom_kv_pool"), (0.84, None), (0.91, "oom_cuda_graph"), (0.88, None), (0.9, None))
    for number, (fraction, cause) in enumerate(launches, 1):
        status = Status.FAILED if cause else Status.DONE
        step = Step(Phase.RANGE, "why", fraction, START)
        record = record.with_step(Taken(number, step, status, cause=cause, spent_s=300.0, kv_tokens=4280))
    return replace(record, bounds=Bounds(0.84, 0.9, 48), started_at="2026-11-30T10:00:00Z")


RANGED = _ranged()


def cell(
    record: TuneRecord, draft: Draft | None, rate: float | None = None, cause: str | None = None, spent_s: float = 800.0
) -> TuneRecord:
    """The record with one more launch of a cell; accept length and cycle are the simulated host's."""
    status = Status.FAILED if cause else Status.DONE
    step = Step(Phase.SPECULATION, "why", 0.87, draft)
    taken = Taken(len(record.steps) + 1, step, status, cause=cause, value=rate, rate=rate, runs=1, spent_s=spent_s)
    if draft is not None and rate is not None:
        accepts = model.expected_accept_length(draft.steps, draft.topk, draft.tokens)
        taken = replace(taken, accept_length=accepts, cycle_ms=1000 * accepts / rate)
    return record.with_step(taken)


def tuned(*cells: tuple[Draft | None, float], spent_s: float = 800.0, full: bool = False) -> TuneRecord:
    """A range and these cells; `full` takes what is left of the launches."""
    record = RANGED
    for draft, rate in cells:
        record = cell(record, draft, rate, spent_s=spent_s)
    while full and record.launches + 1 + decide.CONFIRM_LAUNCHES <= decide.MOST_LAUNCHES:
        record = cell(record, START, cells[1][1])
    return record


@cache
def whole() -> TuneRecord:
    """All cells that a tune of the simulated host takes, without noise, and nothing confirmed yet."""
    record = RANGED
    while isinstance(step := decide.next_step(record), Step) and step.phase is Phase.SPECULATION:
        if step.draft is None:
            record = cell(record, None, BASE)
        elif step.draft.tokens > 9:
            record = cell(record, step.draft, cause="oom_cuda_graph")
        else:
            made = model.Config(
                True,
                8,
                0.87,
                48,
                speculative=True,
                steps=step.draft.steps,
                draft_tokens=step.draft.tokens,
                topk=step.draft.topk,
            )
            accepts = model.expected_accept_length(step.draft.steps, step.draft.topk, step.draft.tokens)
            record = cell(record, step.draft, accepts / made.decode_step_s(1))
    return record
