"""Runs of all entries: a row a launch, with how it ended, what was measured on it and what was written about it."""

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import replace

from tui.core.journal.model import Ended, Entry, Environment, Kind, Measured, Note, RunRow
from tui.core.journal.sources import seconds_between
from tui.core.journal.words import lowest_load

_SAME = "run_id host profile model configuration sets args env parent difference environment".split()  # of a launch


def run_rows(entries: Iterable[Entry], notes: Iterable[Note] = ()) -> tuple[RunRow, ...]:
    """Newest first.

    Args:
        entries: in the order of their times.
    """
    rows: dict[str, RunRow] = {}
    measured: dict[str, dict[str, Measured]] = {}
    experiments: dict[str, str] = {}
    levels: dict[str, str] = {}
    ends: list[Ended] = []
    for entry in entries:
        if (launched := entry.launched) is not None:
            rows[launched.run_id] = RunRow(
                **{name: getattr(launched, name) for name in _SAME},
                started_at=entry.at,
                outcome="starting",
                entry_id=entry.id,
            )
        elif entry.ended is not None:
            ends.append(entry.ended)
        elif (one := entry.measured) is not None and one.run_id:
            measured.setdefault(one.run_id, {})[one.result_id] = one
        elif (tried := entry.tried) is not None and entry.kind == Kind.VERDICT:
            experiments |= dict.fromkeys(tried.runs, tried.experiment_id)
            levels |= {name: verdict.level for verdict in tried.verdicts for name in verdict.result_ids}
    for ended in sorted(ends, key=lambda ended: ended.outcome != "ready"):  # whatever the clocks said
        if (row := rows.get(ended.run_id)) is not None:
            rows[ended.run_id] = _ended(row, ended)
    about = _about_runs(notes)
    found = (
        replace(
            _measured(row, tuple(measured.get(row.run_id, {}).values()), levels),
            experiment=experiments.get(row.run_id),
            notes=about.get(row.run_id, ()),
        )
        for row in rows.values()
    )
    return tuple(sorted(found, key=lambda row: (row.started_at, row.run_id), reverse=True))


def _ended(row: RunRow, ended: Ended) -> RunRow:
    same = ("outcome", "cause", "phase", "card", "exit_code", "ended_at", "stopped_by")
    return replace(
        row,
        **{name: getattr(ended, name) for name in same},
        ready_after_s=ended.ready_after_s if ended.ready_after_s is not None else row.ready_after_s,
        ran_s=seconds_between(row.started_at, ended.ended_at),
    )


def _measured(row: RunRow, results: tuple[Measured, ...], levels: Mapping[str, str]) -> RunRow:
    """With the figure of its lightest load, and the level of what rests on it."""
    valid = [one for one in results if one.valid and one.tok_s]
    if not valid:
        return replace(row, results=tuple(one.result_id for one in results))
    lightest = min((one.load or "" for one in valid), key=lowest_load)
    figures = [math.log(one.tok_s) for one in valid if one.load == lightest and one.tok_s]
    own = "L1" if len(figures) > 1 else "L0"
    return replace(
        row,
        environment=row.environment if row.environment != Environment() else valid[-1].environment,
        tok_s=math.exp(statistics.fmean(figures)),
        level=max((levels.get(one.result_id, own) for one in valid), default=own),
        results=tuple(one.result_id for one in results),
    )


def _about_runs(notes: Iterable[Note]) -> dict[str, tuple[Note, ...]]:
    found: dict[str, tuple[Note, ...]] = {}
    for note in notes:
        for reference in note.about:
            if reference.startswith("run:"):
                run_id = reference.removeprefix("run:")
                found[run_id] = (*found.get(run_id, ()), note)
    return found
