"""What the launches of an experiment say so far, and what follows from it: stop at a look, measure once more, make up."""

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import replace

from tui.core import records
from tui.core.decide.pairing import Side, noise_of, setting
from tui.core.decide.verdicts import Plan, compare_all
from tui.core.decide.yardsticks import DEFAULT, metric
from tui.core.experiment.launching import Failure
from tui.core.experiment.record import Cell, ExperimentRecord
from tui.core.experiment.state import knocked_out, results_of
from tui.core.measure.model import (
    ArmStatus,
    BenchProfile,
    ExperimentArm,
    GuardStatus,
    Result,
    Verdict,
    VerdictKind,
)
from tui.core.records import LaunchRecord
from tui.core.results import store

_MAY_PASS = frozenset(["client_cpu", "client_lag", "steady", "foreign", "clocks", "errors"])  # guards
_DECIDED = (VerdictKind.FASTER, VerdictKind.SLOWER, VerdictKind.EQUIVALENT)


def verdicts_of(
    record: ExperimentRecord, results: Iterable[Result], *, over: bool = False
) -> tuple[Verdict, ...]:
    """Each arm against the one it is compared with, at each load; sides are named by their letters.

    Args:
        results: of the launches that were measured to their end.
        over: no launch will follow, for a reason that has nothing to do with what was measured.
    """
    results = tuple(results)
    stored = store.read_all()
    took = [cell.spent_s for cell in record.cells if cell.status is ArmStatus.MEASURED and cell.spent_s]
    found: list[Verdict] = []
    for point in record.bench.points:
        here = [result for result in results if result.point == point]
        sides = {
            arm.letter: Side(
                arm.letter,
                arm.letter,
                tuple(result for result in here if result.arm == arm.letter),
                _failures(record, arm),
            )
            for arm in record.profile.arms
        }
        like = next((setting(result) for result in here if result.valid), None)
        judged = compare_all(
            [(sides[arm.against], sides[arm.letter]) for arm in record.profile.arms if arm.against],
            noise=noise_of(stored, metric(DEFAULT), like) if like is not None else None,
            launch_s=statistics.median(took) if took else None,
            margin=record.profile.margin,
            plan=Plan(_planned_pairs(record, here) if over else record.profile.pairs, record.profile.looks),
        )
        found += [replace(verdict, point=verdict.point or point) for verdict in judged]
    return tuple(found)


def _planned_pairs(record: ExperimentRecord, results: Iterable[Result]) -> int:
    """How many pairs there can be at most in an experiment that is over: as planned, less those that lack a side."""
    counting = {(result.arm, result.pair_number) for result in results if result.valid}
    rounds = range(1, record.pairs + 1)
    complete = [
        sum((arm.letter, pair) in counting and (arm.against, pair) in counting for pair in rounds)
        for arm in record.profile.arms
        if arm.against
    ]
    return min([record.profile.pairs, *filter(None, complete)])


def _failures(record: ExperimentRecord, arm: ExperimentArm) -> tuple[LaunchRecord, ...]:
    """The launches of an arm that gave nothing to measure; those that were refused before they began are among them."""
    return tuple(
        replace(
            records.read(cell.run_id or "")
            or LaunchRecord(
                run_id=cell.run_id or "",
                host=record.host,
                kind="server",
                profile=arm.profile,
                launched_at=cell.started_at or "",
                sets=arm.sets,
            ),
            cause=cell.cause,
        )
        for cell in record.cells
        if cell.arm == arm.letter and cell.status is ArmStatus.FAILED
    )


def look_decides(record: ExperimentRecord) -> bool:
    """Whether a look was reached before the last one, and every comparison that is still open is decided."""
    at = 0
    for pair in range(1, record.pairs + 1):
        if not all(cell.over for cell in record.cells if cell.pair == pair):
            break
        at = pair
    if at not in record.profile.looks[:-1]:
        return False
    out = {arm.letter for arm in record.profile.arms if knocked_out(record, arm.letter)}
    return all(
        verdict.verdict in _DECIDED or bool(out & {verdict.a.ref, verdict.b.ref})
        for verdict in record.verdicts
    )


def worth_repeating(bench: BenchProfile, results: Iterable[Result]) -> bool:
    """Whether a load has no run that counts, for a cause that may have passed: a launch costs far more than its bench."""
    results = tuple(results)
    for point in bench.points:
        here = [result for result in results if result.point == point]
        failed = [
            {guard.id for guard in result.guards if guard.status is GuardStatus.FAILED} for result in here
        ]
        if not any(result.valid for result in here) and any(ids <= _MAY_PASS for ids in failed):
            return True
    return False


def to_make_up(record: ExperimentRecord, results: Mapping[str, Result]) -> set[str]:
    """The arms that lack a pair for a cause that has nothing to do with them, with those they are compared with.

    A launch was lost by chance where it failed for a cause that may pass, or none of its runs counts at a load for such
    a cause (`worth_repeating`).
    """
    lost: set[str] = set()
    for arm in record.profile.arms:
        if arm.against is None or knocked_out(record, arm.letter) or knocked_out(record, arm.against):
            continue
        both = (arm.letter, arm.against)
        rounds = [
            [cell for cell in record.cells if cell.pair == pair and cell.arm in both]
            for pair in range(1, record.pairs + 1)
        ]
        by_chance = sum(
            any(_lost(record, cell, results) for cell in cells)
            and not all(_counts(record, cell, results) for cell in cells)
            for cells in rounds
        )
        if sum(len(cells) == 2 for cells in rounds) - by_chance < record.profile.pairs:
            lost.update(both)
    return lost


def _counts(record: ExperimentRecord, cell: Cell, results: Mapping[str, Result]) -> bool:
    valid = {result.point for result in results_of((cell,), results) if result.valid}
    return cell.status is ArmStatus.MEASURED and valid.issuperset(record.bench.points)


def _lost(record: ExperimentRecord, cell: Cell, results: Mapping[str, Result]) -> bool:
    if cell.status is ArmStatus.MEASURED:
        return worth_repeating(record.bench, results_of((cell,), results))
    return cell.status is ArmStatus.FAILED and not Failure(cell.cause or "unknown", "").certain
