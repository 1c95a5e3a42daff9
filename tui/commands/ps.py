"""`eagletui ps`: runs on hosts, and servers that others started."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import click

from tui import format as written
from tui.commands.groups import job_json, membership_json, say_groups, state_of_ended
from tui.commands.options import all_option, hosts_argument, json_option
from tui.commands.output import emit, run_async, say
from tui.commands.sessions import run_json, session, state_of
from tui.commands.several import ask_all, error_entry, exit_code, hosts_of, report
from tui.commands.terminal import TerminalAsker
from tui.core.errors import EagletuiError
from tui.core.groups.group_state import GroupState, MemberState
from tui.core.groups.membership import groups_among
from tui.core.groups.merge import merge
from tui.core.model.job import Job
from tui.core.model.phases import Outcome, Phase
from tui.core.model.run import Run, RunState, short_id
from tui.core.server import launch_records
from tui.core.server.earlier_starts import times_text
from tui.core.server.run_end import outcome_of_files
from tui.core.server.server_state import ServerState
from tui.core.server.session import HostSession
from tui.core.sglang.state import StartupState
from tui.core.text import one_line

_AT_ONCE = 4  # runs of a host
_DEATHS_READ = (
    4  # logs of servers whose end nobody watched, of a host and a call: the newest; later calls read the others
)
_NAME_WIDTH = 34
_NAME_MAX = 72


@click.command()
@hosts_argument
@all_option
@json_option
def command(hosts: tuple[str, ...], everywhere: bool, as_json: bool) -> int:
    """Runs on a host, and servers that others started."""
    names = hosts_of(hosts, everywhere)

    async def look() -> list[list[_Row] | EagletuiError]:
        asker = TerminalAsker()

        async def rows_of(name: str) -> list[_Row]:
            async with session(name, asker) as opened:
                rows = await _rows(opened, await opened.heard_runs())
                board = opened.jobs()
                return rows + [_job_row(name, job) for job in (board.others() if board is not None else ())]

        return await ask_all(names, rows_of)

    answers = run_async(look())
    if len(names) == 1 and isinstance(answers[0], EagletuiError):
        raise answers[0]
    rows: list[dict[str, object]] = []
    seen = [row for found in answers if not isinstance(found, EagletuiError) for row in found]
    _stopped_with_their_group(seen)
    for name, found in zip(names, answers, strict=True):
        if isinstance(found, EagletuiError):
            report(name, found)
            rows.append(error_entry(name, found))
        else:
            rows += [row.document for row in found]
            if not as_json:
                _print(name, [row.document for row in found], headed=len(names) > 1)
    if as_json:
        emit(rows)
    else:
        say_groups(_groups(seen))
    return exit_code(answers)


@dataclass(frozen=True)
class _Row:
    run: Run
    document: dict[str, object]
    state: ServerState


def _groups(rows: list[_Row]) -> list[GroupState]:
    """The groups of these runs; a member on a host that was not asked is not known."""
    states = {row.run.run_id: row.state for row in rows}
    found = groups_among(row.run for row in rows)
    return [merge(one.group, [MemberState(m, states.get(m.run_id)) for m in one.group.members]) for one in found]


def _stopped_with_their_group(rows: list[_Row]) -> None:
    """A rank that ended because its group was stopped did not crash, whatever its exit code."""
    outcomes = {
        one.member.run_id: one.state.outcome
        for group in _groups(rows)
        for one in group.members
        if one.state is not None and one.state.outcome is Outcome.STOPPED
    }
    for row in rows:
        if row.run.run_id in outcomes and row.document["outcome"] == Outcome.CRASHED:
            row.document.update(outcome=Outcome.STOPPED, cause=None)


def _print(host: str, rows: list[dict[str, object]], *, headed: bool) -> None:
    """The runs of a host as a table, under its name where there are several."""
    if headed:
        print(f"{host}:")
    if not rows:
        say(f"no runs on {host}; eagletui launch NAME starts one")
        return
    names = [_name(row) for row in rows]
    width = max(_NAME_WIDTH, *map(len, names))
    print(f"{'RUN':<{width}} {'OUTCOME':<10} {'PHASE OR CAUSE':<20} {'PID':>8} {'PORT':>6}  STARTED")
    for row, name in zip(rows, names, strict=True):
        box = row["container"] if isinstance(row["container"], dict) else {}
        explained = row["outcome"] in (Outcome.LOST, Outcome.UNKNOWN, Outcome.QUEUED) or row["kind"] == "job"
        why = row["why"] if explained else None
        starting = row["outcome"] == Outcome.STARTING
        outcome = "running" if starting and row["kind"] == "bench" else row["outcome"]  # it never becomes ready
        print(
            f"{name:<{width}} {outcome!s:<10} {row['cause'] or why or row['phase'] or '–'!s:<20} "
            f"{row['pid'] or '–':>8} {row['port'] or '–':>6}  {row['started'] or '–'}"
        )
        if box.get("unasked"):
            print(f"  {box['unasked']}")
        if isinstance(job := row.get("job"), dict) and job["ends_soon"]:
            print(f"  {job['left_s'] / 60:.0f} min of its job's time left")
        if box.get("restarts"):
            print(f"  restarted {times_text(box['restarts'])} by its engine")


def _name(row: dict[str, object]) -> str:
    """What a person knows a run by: its profile with what the launch changed, and its digits."""
    box = row["container"] if isinstance(row["container"], dict) else {}
    known = written.configured(str(row["profile"]), row["sets"]) if row["profile"] else box.get("log") or row["owner"]
    if row.get("kind") == "job" and isinstance(row["job"], dict):
        return one_line(f"{row['job']['name']} job {row['job']['job_id']}", _NAME_MAX)
    digits = short_id(str(row["run"])) if row["group"] else str(row["run"])[-6:]
    return f"{one_line(str(known or written.NONE), _NAME_MAX)} {digits}"


def _job_row(host: str, job: Job) -> "_Row":
    """A job of the user that is none of our launches: watched only."""
    run = Run(f"job-{job.job_id}", "job", None, host, RunState.FOREIGN, job=job)
    state = ServerState(run, Outcome.UNKNOWN, Phase.LAUNCH, StartupState())
    document = {
        **run_json(run, job.state, None),
        **{"kind": "job", "sets": {}, "cause": None, "why": job.sentence or job.nodes, "state": run.state},
        **{"owner": None, "container": None, "orphans": [], "group": None, "job": job_json(job)},
    }
    return _Row(run, document, state)


async def _rows(opened: HostSession, runs: Sequence[Run]) -> list[_Row]:
    """A few are asked about at once; where the host has too few sessions for that, one after the other."""
    at_once = asyncio.Semaphore(_AT_ONCE)
    unwatched = [run.run_id for run in runs if _died_unwatched(run)][:_DEATHS_READ]

    async def row_of(run: Run) -> _Row:
        async with at_once:
            if run.run_id in unwatched:
                with contextlib.suppress(EagletuiError):  # what its log ends with is kept in the record of its launch
                    await state_of(opened, run)
            return await _row(opened, run)

    rows = await asyncio.gather(*map(row_of, runs), return_exceptions=True)
    return [
        await _row(opened, run) if isinstance(row, BaseException) else row for run, row in zip(runs, rows, strict=True)
    ]


def _died_unwatched(run: Run) -> bool:
    """Whether a server of ours crashed while nobody watched: the record of its launch has no end."""
    if run.kind != "server" or outcome_of_files(run) is not Outcome.CRASHED:
        return False
    known = launch_records.read(run.run_id)
    return known is not None and known.ended_at is None and not known.stopped_with_group


async def _row(opened: HostSession, run: Run) -> _Row:
    """Outcome, phase and cause: of an ended run by its files and this machine's record, of a live one by a look."""
    phase: str | None = None
    cause: str | None = None
    outcome = outcome_of_files(run)
    if outcome is None:
        latest = state = await state_of(opened, run, fresh=True)
        outcome, phase = latest.outcome, latest.phase if run.kind == "server" else None
        cause = latest.diagnosis.cause if latest.diagnosis else None
    else:
        known = launch_records.read(run.run_id)
        if known is not None and known.stopped_with_group and outcome is Outcome.CRASHED:
            outcome, known = Outcome.STOPPED, replace(known, cause=None)
        state = state_of_ended(run, outcome, known)
        phase, cause = (known.phase, known.cause) if known is not None else (None, None)
    document = {
        **run_json(run, outcome, phase),
        "kind": run.kind,
        "sets": dict(sets) if isinstance(sets := run.extra.get("sets"), Mapping) else {},
        "cause": cause,
        "why": run.why,
        "state": run.state,
        "owner": run.owner,
        "container": None if run.container is None else {"log": str(run.container), **asdict(run.container)},
        "orphans": list(run.orphans),
        "group": membership_json(run),
        "job": job_json(run.job),
    }
    return _Row(run, document, state)
