"""What the launches of an experiment say so far, and what follows from it: stop at a look, measure once more, make up."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from tui.core.experiment.failure import Failure
from tui.core.experiment.record import Cell, ExperimentRecord, driver
from tui.core.experiment.state import knocked_out, results_of, state_of
from tui.core.model.experiment import ArmStatus, ExperimentState
from tui.core.model.profile import REFERENCE, BenchProfile, ExperimentArm
from tui.core.model.result import Result
from tui.core.model.verdict import Verdict, VerdictKind
from tui.core.results import store
from tui.core.server import launch_records
from tui.core.server.launch_records import LaunchRecord
from tui.core.verdicts.comparison import Case, Plan
from tui.core.verdicts.metric import Metric, default_for, metric
from tui.core.verdicts.pairing import Side, launches, noise_of, setting
from tui.core.verdicts.replies import judged

_MAY_PASS = frozenset(["client_cpu", "client_lag", "steady", "foreign", "clocks", "errors"])  # guards
_MADE_UP = 2  # rounds, at most, for pairs that were lost by chance
_DECIDED = (VerdictKind.FASTER, VerdictKind.SLOWER, VerdictKind.EQUIVALENT)


def verdicts_of(record: ExperimentRecord, results: Mapping[str, Result], *, over: bool = False) -> tuple[Verdict, ...]:
    """Each arm against the one it is compared with, at each load; sides are named by their letters.

    Args:
        results: of the experiment, by id.
        over: no launch will follow, whatever `is_over` says.
    """
    stored = store.read_all()
    over = over or is_over(record, results)
    found: list[Verdict] = []
    for point in record.bench.points:
        chosen = metric(default_for(point))
        here = [result for result in measured(record, results) if result.point == point]
        like = next((setting(result) for result in here if result.valid), None)
        noise = noise_of(stored, chosen, like) if like is not None else None
        case = Case(Side("", ""), Side("", ""), chosen, noise, record.launch_s(), record.profile.margin)
        asked = [
            (a, b)
            for a, b in comparisons(record)
            if decisive(record, (a, b)) or any(cell.arm == b and cell.over for cell in record.cells)
        ]
        cases = list(planned_cases(record, here, case, asked, over=over).values())
        found += [replace(verdict, point=point) for verdict in judged(cases)]
    return tuple(found)


def planned_cases(
    record: ExperimentRecord, results: Iterable[Result], like: Case, asked: Iterable[tuple[str, str]], *, over: bool
) -> dict[tuple[str, str], Case]:
    """A case `like` this one for each two arms that are asked about, held to the plan; `results` are of one load."""
    results = tuple(results)
    return {
        (a, b): replace(
            like,
            a=side_of_arm(record, a, of_stage(record, (a, b), results)),
            b=side_of_arm(record, b, of_stage(record, (a, b), results)),
            plan=plan_of(record, (a, b), results, like.metric, over=over),
            screening=not decisive(record, (a, b)),
        )
        for a, b in asked
    }


def decisive(record: ExperimentRecord, letters: tuple[str, str]) -> bool:
    """Whether launches of two arms may give a verdict: of a halving, those of the reference and the arm it chose."""
    return not record.halving or set(letters) == {REFERENCE, record.finalist}


def of_stage(record: ExperimentRecord, letters: tuple[str, str], results: Iterable[Result]) -> tuple[Result, ...]:
    """Those of the results that a comparison of two arms rests on: fresh launches, or those of the screening."""
    if not record.halving:
        return tuple(results)
    counts = decisive(record, letters)
    return tuple(result for result in results if (result.pair_number in record.rounds) == counts)


def stored_state(record: ExperimentRecord) -> ExperimentState:
    """A stored experiment with its stored results, finished as far as this process is concerned.

    Its verdicts are those of the results as they are now: some may have been found not to count since.
    """
    results = {result.result_id: result for result in store.read_all() if result.experiment == record.experiment_id}
    record = replace(record, verdicts=verdicts_of(record, results))
    state = state_of(record, results, finished=True)
    pid = driver(record.experiment_id)
    return state if pid is None else replace(state, message=f"running in another process (PID {pid})", driver=pid)


def comparisons(record: ExperimentRecord) -> list[tuple[str, str]]:
    """What the experiment set out to compare: (the letter of the reference, the arm's), one an arm."""
    return [(arm.against, arm.letter) for arm in record.profile.arms if arm.against]


def measured(record: ExperimentRecord, results: Mapping[str, Result]) -> tuple[Result, ...]:
    """The results of the launches that were measured to their end, in the order of the launches."""
    return results_of((cell for cell in record.cells if cell.status is ArmStatus.MEASURED), results)


def side_of_arm(
    record: ExperimentRecord, letter: str, results: Iterable[Result], name: str | None = None, ref: str | None = None
) -> Side:
    """An arm as a side of a comparison, named by its letter unless given another name; of these results its own."""
    arm = next(arm for arm in record.profile.arms if arm.letter == letter)
    own = tuple(result for result in results if result.arm == letter)
    return Side(name or letter, ref or letter, own, _failures(record, arm))


def plan_of(
    record: ExperimentRecord, letters: tuple[str, str], results: Iterable[Result], chosen: Metric, *, over: bool
) -> Plan | None:
    """What a comparison of two arms has to wait for; None: nothing, as it is a screening.

    Of an experiment that is over, no more pairs than there are: as planned, less those that lack a side.

    Args:
        results: of one load.
    """
    pairs = record.profile.pairs
    if not decisive(record, letters):
        return None
    if over:
        counting = {(run.arm, launch.pair) for launch in launches(results, chosen) for run in launch.results}
        complete = sum({(letter, pair) for letter in letters} <= counting for pair in record.rounds)
        pairs = min(pairs, complete or pairs)
    return Plan(pairs, record.profile.looks)


def is_over(record: ExperimentRecord, results: Mapping[str, Result]) -> bool:
    """Whether no launch will follow: all are made and none is to be made up for, or the budget or a look ended it."""
    if record.outcome in ("budget", "early"):
        return True
    if record.halving and record.finalist is None:
        return record.outcome == "done"
    return all(cell.over for cell in record.cells) and not to_make_up(record, results)


def _failures(record: ExperimentRecord, arm: ExperimentArm) -> tuple[LaunchRecord, ...]:
    """The launches of an arm that gave nothing to measure; those that were refused before they began are among them."""
    return tuple(
        replace(
            launch_records.read(cell.run_id or "")
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
    for pair in record.rounds:
        if not all(cell.over for cell in record.cells if cell.pair == pair):
            break
        at = pair
    if at not in record.profile.looks[:-1]:
        return False
    out = {arm.letter for arm in record.profile.arms if knocked_out(record, arm.letter)}
    return all(verdict.verdict in _DECIDED or bool(out & {verdict.a.ref, verdict.b.ref}) for verdict in record.verdicts)


def worth_repeating(bench: BenchProfile, results: Iterable[Result]) -> bool:
    """Whether a load has no run that counts, for a cause that may have passed: a launch costs far more than its bench."""
    results = tuple(results)
    for point in bench.points:
        here = [result for result in results if result.point == point]
        failed = [{guard.id for guard in result.failed_guards} for result in here]
        if not any(result.valid for result in here) and any(ids <= _MAY_PASS for ids in failed):
            return True
    return False


def to_make_up(record: ExperimentRecord, results: Mapping[str, Result]) -> set[str]:
    """The arms that lack a pair for a cause that has nothing to do with them, with those they are compared with.

    None once there were as many rounds to make up for them as there may be.
    A launch was lost by chance where it failed for a cause that may pass, or none of its runs counts at a load for such
    a cause (`worth_repeating`).
    """
    if record.pairs >= record.profile.pairs + _MADE_UP:
        return set()
    lost: set[str] = set()
    for both in comparisons(record):
        if not decisive(record, both) or any(knocked_out(record, letter) for letter in both):
            continue
        rounds = [[cell for cell in record.cells if cell.pair == pair and cell.arm in both] for pair in record.rounds]
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
