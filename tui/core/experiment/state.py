"""What a record of an experiment looks like, under way or stored: arms, results, failures, the time that is left."""

import statistics
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tui.core.experiment import halving
from tui.core.experiment.failure import Failure
from tui.core.experiment.record import Cell, ExperimentRecord
from tui.core.model.experiment import ArmState, ArmStatus, ExperimentState, LiveRun
from tui.core.model.profile import BenchProfile, ExperimentArm
from tui.core.model.result import Result
from tui.core.server.launch_records import PhaseHistory

STOP_S = 10.0  # a stop takes about that long, memory and all
BUDGET = "budget"  # why a launch of a screening was skipped


@dataclass
class UnderWay:
    """The launch that is being made or measured now."""

    number: int
    began: float  # time.monotonic(), less what it had spent before
    phase: str | None = None  # of the start-up
    eta_s: float | None = None  # to ready
    live: LiveRun | None = None


Usual = Mapping[str, PhaseHistory | None]  # by letter: how long starts took before this experiment, launch to ready


def state_of(
    record: ExperimentRecord,
    results: Mapping[str, Result],
    under_way: UnderWay | None = None,
    usual: Usual | None = None,
    *,
    paused: bool = False,
    finished: bool | None = None,
    message: str | None = None,
) -> ExperimentState:
    """The state of an experiment.

    Args:
        results: by id, those that the record names.
        message: what it waits for; at the end the record's own.
    """
    finished = record.ended_at is not None if finished is None else finished
    same = (
        "experiment_id",
        "name",
        "host",
        "bench",
        "order",
        "pairs",
        "verdicts",
        "started_at",
        "hosts",
        "finalist",
        "notes",
    )
    return ExperimentState(
        **{name: getattr(record, name) for name in same},
        arms=tuple(_arm(record, arm, results, under_way) for arm in record.profile.arms),
        at=sum(cell.over for cell in record.cells),
        rungs=tuple(cell.rung for cell in record.cells),
        statuses=tuple(cell.status for cell in record.cells),
        hypothesis=record.profile.hypothesis,
        left_s=None if finished else left_s(record, under_way, usual or {}),
        paused=paused,
        finished=finished,
        message=record.message if finished else message,
    )


def _arm(
    record: ExperimentRecord, arm: ExperimentArm, results: Mapping[str, Result], under_way: UnderWay | None
) -> ArmState:
    cells = [cell for cell in record.cells if cell.arm == arm.letter]
    measured = [cell for cell in cells if cell.status is ArmStatus.MEASURED]
    now = under_way if any(under_way and cell.number == under_way.number for cell in cells) else None
    out = knocked_out(record, arm.letter)
    failed = out or next((cell for cell in cells if cell.status is ArmStatus.FAILED), None)
    if now is not None:
        status = ArmStatus.RUNNING if now.live is not None else ArmStatus.LAUNCHING
    elif out is None and not all(cell.over for cell in cells):
        status = ArmStatus.QUEUED
    elif out is None and measured:
        status = ArmStatus.MEASURED
    else:
        status = ArmStatus.FAILED if failed is not None else ArmStatus.SKIPPED
    failure = failed if status is ArmStatus.FAILED else None
    shown = [*measured, *(cell for cell in cells if now is not None and cell.number == now.number)]
    return ArmState(
        letter=arm.letter,
        profile=arm.profile,
        sets=arm.sets,
        against=arm.against,
        status=status,
        phase=now.phase if now is not None else failure.phase if failure else None,
        cause=failure.cause if failure else None,
        reason=failure.reason if failure else None,
        launches_done=len(measured),
        launches_total=len(measured) + sum(not cell.over for cell in cells),
        results=results_of(shown, results),
        live=now.live if now is not None else None,
        dropped=next((one.reason for one in record.dropped if one.arm == arm.letter), None),
    )


def results_of(cells: Iterable[Cell], results: Mapping[str, Result]) -> tuple[Result, ...]:
    """The results of these launches, as far as they are stored."""
    return tuple(results[name] for cell in cells for name in cell.result_ids if name in results)


def knocked_out(record: ExperimentRecord, letter: str) -> Cell | None:
    """The failure after which every further launch of this arm would fail: a certain one, or the second of a cause."""
    seen: set[str | None] = set()
    for cell in record.cells:
        if cell.arm == letter and cell.status is ArmStatus.FAILED:
            if Failure(cell.cause or "unknown", "").certain or cell.cause in seen:
                return cell
            seen.add(cell.cause)
    return None


def still_in(record: ExperimentRecord) -> set[str]:
    """The arms of a halving that no rung dropped and no failure put out; the reference is among them."""
    dropped = {one.arm for one in record.dropped}
    letters = {arm.letter for arm in record.profile.arms} - dropped
    return {letter for letter in letters if knocked_out(record, letter) is None}


def confirmation_s(record: ExperimentRecord, usual: Usual) -> float | None:
    """How long the confirmation of a halving takes; None where nothing says how long a launch does."""
    length = _any_length_s(record, usual)
    return 2 * record.profile.pairs * length if length is not None else None


def _any_length_s(record: ExperimentRecord, usual: Usual) -> float | None:
    known = [usual_length_s(start, record.bench) for start in usual.values() if start is not None]
    return record.launch_s() or (statistics.median(known) if known else None)


def bench_length_s(bench: BenchProfile) -> float:
    """How long a bench takes, roughly: warm-up once a load, then each run with its ramp and drain."""
    if bench.search is not None:
        return bench.runs * bench.search.most_points * (10.0 + bench.duration_s + 4.0)
    return len(bench.points) * (10.0 + bench.runs * (bench.duration_s + 4.0))


def launch_length_s(record: ExperimentRecord, letter: str, usual: Usual) -> float | None:
    """How long a launch of this arm takes with its measuring: as those before, else as starts before this experiment."""
    if (took := record.launch_s(letter)) is not None:
        return took
    before = usual.get(letter)
    return usual_length_s(before, record.bench) if before else None


def together_s(record: ExperimentRecord, cell: Cell, usual: Usual) -> float:
    """What this launch takes, at the beginning of a pair what the pair does."""
    earlier = record.cells[: cell.number - 1]
    begins = not any(other.pair == cell.pair and other.status is ArmStatus.MEASURED for other in earlier)
    of_pair = (other for other in record.cells if other.pair == cell.pair and not other.over)
    wanted = (other for other in of_pair if begins or other.number == cell.number)
    ahead = [cell] if cell.rung is not None else [one for one in wanted if knocked_out(record, one.arm) is None]
    return sum(launch_length_s(record, other.arm, usual) or 0.0 for other in ahead)


def usual_length_s(start: PhaseHistory, bench: BenchProfile) -> float:
    """How long a launch takes with its measuring, by how long starts took before."""
    return start.median_s + bench_length_s(bench) + STOP_S


def left_s(record: ExperimentRecord, under_way: UnderWay | None, usual: Usual) -> float | None:
    """Seconds to the end, None where nothing says how long a launch takes."""
    left = 0.0
    for cell in record.cells:
        if cell.over or knocked_out(record, cell.arm):
            continue
        length = launch_length_s(record, cell.arm, usual)
        if under_way is not None and cell.number == under_way.number:
            if under_way.live is not None and under_way.live.left_s is not None:
                length = under_way.live.left_s + STOP_S
            elif under_way.eta_s is not None:
                length = under_way.eta_s + bench_length_s(record.bench) + STOP_S
            elif length is not None:
                length = max(0.0, length - (time.monotonic() - under_way.began))
        if length is None:
            return None
        left += length
    if record.halving and record.finalist is None:
        length = _any_length_s(record, usual)
        later = sum(1 + size for size in halving.rungs(len(still_in(record)) - 1)[1:])
        return None if length is None else left + (later + 2 * record.profile.pairs) * length
    return left
