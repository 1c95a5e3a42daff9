"""What was tried on a host and dropped: configurations that never started again after a crash, and those that a verdict
calls slower."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tui.core.journal.model import DeadEnd, Entry, Kind, Measured, Note, RunRow, Tried
from tui.core.model.verdict import Verdict, VerdictKind
from tui.core.text import one_line

# Ends that say nothing about what was launched.
PASSING = frozenset(
    "port_in_use disk_full hf_download job_time_limit job_preempted job_cancelled job_requeued node_failure".split()
)


def dead_ends(entries: Sequence[Entry], rows: Sequence[RunRow], notes: Sequence[Note]) -> tuple[DeadEnd, ...]:
    """Newest first.

    Args:
        rows: newest first.
        notes: newest first.
    """
    found = [*_never_started(rows, notes), *_slower(entries, rows, notes)]
    return tuple(sorted(found, key=lambda one: (one.at, one.entry_id), reverse=True))


def _never_started(rows: Iterable[RunRow], notes: Sequence[Note]) -> Iterator[DeadEnd]:
    launches: dict[tuple[str, str], list[RunRow]] = {}
    for row in rows:
        launches.setdefault((row.host, row.configuration), []).append(row)
    for tried in launches.values():
        crashed = [at for at, row in enumerate(tried) if row.outcome == "crashed" and row.cause not in PASSING]
        if not crashed or any(row.ready_after_s is not None for row in tried[: crashed[0]]):
            continue
        last = tried[crashed[0]]
        card = last.card
        yield DeadEnd(
            last.entry_id,
            last.host,
            last.profile,
            last.ended_at or last.started_at,
            last.cause or "unknown",
            card.title if card is not None else "it crashed",
            sets=last.sets,
            parent=last.parent,
            difference=last.difference,
            run_id=last.run_id,
            evidence=card.evidence[0] if card is not None and card.evidence else None,
            line=card.line if card is not None else None,
            tries=len(crashed),
            note=_note(notes, tried),
        )


def _slower(entries: Iterable[Entry], rows: Sequence[RunRow], notes: Sequence[Note]) -> Iterator[DeadEnd]:
    measured = {entry.measured.result_id: entry.measured for entry in entries if entry.measured is not None}
    by_id = {row.run_id: row for row in rows}
    latest = {entry.tried.experiment_id: entry for entry in entries if entry.tried and entry.kind == Kind.VERDICT}
    for entry in latest.values():
        tried = entry.tried
        assert tried is not None
        for verdict in tried.verdicts:
            if verdict.verdict is not VerdictKind.SLOWER:
                continue
            runs = [by_id[one] for one in _runs_of(verdict, tried, measured) if one in by_id]
            arm = next((arm for arm in tried.arms if arm.letter == verdict.b.ref), None)
            if arm is None:
                continue
            last = max(runs, key=lambda row: row.started_at, default=None)
            yield DeadEnd(
                entry.id,
                tried.host,
                arm.profile,
                entry.at,
                "slower",
                one_line(verdict.text),
                sets=arm.sets,
                parent=last.parent if last is not None else None,
                difference=last.difference if last is not None else (),
                run_id=last.run_id if last is not None else None,
                level=verdict.level,
                tries=verdict.b.launches,
                note=_note(notes, runs, entry.id, f"experiment:{tried.experiment_id}"),
            )


def _runs_of(verdict: Verdict, tried: Tried, measured: Mapping[str, Measured]) -> Iterator[str]:
    """The launches of the side that a verdict judges."""
    for name in verdict.result_ids:
        one = measured.get(name)
        if one is not None and one.run_id and one.arm == verdict.b.ref and one.experiment == tried.experiment_id:
            yield one.run_id


def _note(notes: Iterable[Note], runs: Iterable[RunRow], *more: str) -> str | None:
    """The newest that is about one of these launches."""
    about = {ref for row in runs for ref in (row.entry_id, f"run:{row.run_id}")} | set(more)
    return next((note.text for note in notes if about.intersection(note.about)), None)
