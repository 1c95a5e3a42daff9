"""`eagletui wait`: until a run is ready, or has ended; also what `launch --wait` does."""

import asyncio
import shlex
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager

import click

from tui.commands import completing
from tui.commands.groups import group_on_record, group_session, wait_for_group
from tui.commands.live_one import live_one
from tui.commands.options import host_option, json_option, timeout_option
from tui.commands.output import emit, run_async, say
from tui.commands.sessions import LOOK_S, host_of_run, raise_if_refused, session, state_json
from tui.core.errors import EagletuiError, TimedOut
from tui.core.model.group import group_of
from tui.core.model.phases import Outcome
from tui.core.model.run import Run
from tui.core.profiles.secrets import MASK
from tui.core.profiles.toml_text import toml_value
from tui.core.server import launch_records
from tui.core.server.server_state import ServerState
from tui.core.server.session import HostSession
from tui.core.text import one_line
from tui.core.verdicts.sentences import count

_EXIT_FOLLOWS_S = 15.0
_PATIENCE_S = 3600.0


@click.command()
@click.argument("run", shell_complete=completing.runs)
@click.option("--for", "until", type=click.Choice(["ready", "exit"]), default="ready", show_default=True)
@timeout_option
@click.option("--progress", is_flag=True, help="Say how far it is on stderr, with --json too.")
@host_option
@json_option
def command(run: str, until: str, timeout: float | None, progress: bool, host: str | None, as_json: bool) -> int:
    """Wait until a run is ready, or has ended."""

    async def find_and_wait() -> int:
        timeout_s = _PATIENCE_S if timeout is None else timeout
        meant = await live_one(run, host, newest=True)
        group = group_on_record(meant)
        if group is None:
            async with session(host_of_run(meant, host)) as opened:
                found = await opened.find_run(meant, prefer_live=True)
                group = group_of(found.extra)
                if group is None:
                    return await wait(opened, found, until, timeout_s, as_json, progress)
        async with group_session(group.hosts) as hosts:
            return await wait_for_group(hosts, group, until, timeout_s, as_json, progress)

    return run_async(find_and_wait())


async def wait(
    opened: HostSession, run: Run, until: str, timeout_s: float, as_json: bool, progress: bool = False
) -> int:
    """Waits, reports the outcome, and gives the exit code. Raises TimedOut."""
    seen: list[ServerState] = []
    try:
        last = await _watch(opened, run, until, timeout_s, seen, quiet=as_json and not progress)
    except TimeoutError:
        late = TimedOut(
            f"{run.run_id} {'is not ready' if until == 'ready' else 'has not ended'} after {timeout_s:g} s",
            "it keeps running; use a longer --timeout with eagletui wait",
        )
        late.details = {key: value for key, value in (state_json(seen[-1]) if seen else {}).items() if key != "error"}
        raise late from None
    measured = await _measured(opened, last.run)
    if as_json:
        emit(state_json(last) | measured)
    else:
        say_outcome(last)
    if until == "ready":
        return 0 if last.outcome is Outcome.READY else 1
    return 0 if last.run.exit_code == 0 or last.run.stopped_by_us else 1


async def _watch(
    opened: HostSession, run: Run, until: str, timeout_s: float, seen: list[ServerState], *, quiet: bool
) -> ServerState:
    """The state that ends the wait; `seen` holds the last one. Raises TimeoutError, HostError."""
    shown: object = None
    crashed_at: float | None = None
    now = asyncio.get_running_loop().time
    began = now()
    # However short the patience: what the host says at present is heard.
    async with asyncio.timeout(max(timeout_s, LOOK_S)) as limit, aclosing(opened.watch(run)) as updates:
        async for update in updates:
            state = update.state
            seen[:] = [state]
            over = state.run.over  # of such a run the last update has the whole log, and the diagnosis
            if not over and until == "ready" and state.outcome in (Outcome.READY, Outcome.FINISHED):
                break
            if state.outcome is Outcome.CRASHED and until == "ready" and not over:
                # The exit code follows within seconds; what lingers longer is reported without one.
                crashed_at = crashed_at or now()
                if now() - crashed_at > _EXIT_FOLLOWS_S:
                    break
            raise_if_refused(opened)
            if not quiet and update.settled and state.outcome is Outcome.STARTING:
                shown = say_progress(state, shown)
            if over:
                limit.reschedule(now() + LOOK_S)  # the rest of its log is all that is missing
            elif update.settled:
                limit.reschedule(max(now(), began + timeout_s))
        limit.reschedule(None)
    if not seen:
        raise EagletuiError(f"{run.run_id} gave no state", "see eagletui ps")
    return seen[-1]


@asynccontextmanager
async def _others(hosts: Sequence[str]) -> AsyncIterator[Mapping[str, HostSession]]:
    """Sessions with these hosts, none where none of them is reached: it is said then, and no reason to fail."""
    async with AsyncExitStack() as stack:
        found: Mapping[str, HostSession] = {}
        if hosts:
            try:
                found = (await stack.enter_async_context(group_session(hosts))).sessions
            except EagletuiError as error:
                say(error.message)
        yield found


async def _measured(opened: HostSession, run: Run) -> dict[str, object]:
    """What a measurement has left on the host, stored here: nobody may have looked while it ran."""
    if run.kind != "bench" or not run.over:
        return {}
    from tui.core.bench import bench_run

    try:
        async with _others(bench_run.other_hosts(run)) as others:
            found = await bench_run.collect(opened, run, others)
    except EagletuiError as error:
        say(error.message)
        return {"results": []}
    say(f"{count(len(found), 'result')} of {run.run_id} stored")
    return {"results": [result.result_id for result in found]}


def say_progress(state: ServerState, shown: object) -> object:
    """Reports how far a start is where that is news; what was reported is the next call's `shown`."""
    progress = state.startup.progress
    suspected, slower = state.suspected, state.slower
    key = (
        (state.phase, state.stale, progress and progress.done * 10 // max(1, progress.total)),
        (suspected and (suspected.kind, suspected.hard), state.suspicion is None, slower and slower.phase),
    )
    if key == shown:
        return shown
    line = state.phase.replace("_", " ")
    if progress:
        line += f" {progress.what} {progress.done}/{progress.total}"
    if state.suspicion is not None:
        evidence = f" ({'; '.join(suspected.evidence)})" if suspected and suspected.evidence else ""
        line += f": it may hang: {state.suspicion}{evidence}"
    elif slower is not None:
        line += f": slower than ever here ({slower.took_s:.0f} s, at most {slower.slowest_s:.0f} s before); perhaps {slower.reasons[0]}"
    say(f"{time.strftime('%H:%M:%S')} {'link lost, was at ' if state.stale else ''}{line}")
    return key


def say_outcome(state: ServerState) -> None:
    """The end of a wait, for a person."""
    run = state.run
    if state.outcome is Outcome.READY:
        took = f" after {state.ready_after_s:.0f} s" if state.ready_after_s is not None else ""
        say(f"ready{took}: {run.run_id} on {run.host}, port {run.port}")
        return
    code = f", exit code {run.exit_code}" if run.exit_code is not None else ""
    where = f" in {state.phase.replace('_', ' ')}" if run.kind == "server" else ""
    say(f"{state.outcome}{code}: {run.run_id}{where}")
    if state.diagnosis:
        say(f"{state.diagnosis.cause}: {state.diagnosis.title}")
        if state.diagnosis.evidence:
            say(f"line {state.diagnosis.evidence.line}: {one_line(state.diagnosis.evidence.text, 200)}")
        for advice in state.diagnosis.advice:
            say(f"- {advice}")
        if state.diagnosis.set:
            say(f"try: {_launch_again(run, state.diagnosis.set)}")


def _launch_again(run: Run, change: Mapping[str, object]) -> str:
    """The command that launches a run's profile as it was, with a change; secrets of the first launch are left out."""
    known = launch_records.read(run.run_id)
    sets = {**(known.sets if known else {}), **change}
    words = ["eagletui", "launch", run.profile or "NAME", "--host", run.host]
    for key, value in sets.items():
        if value != MASK:
            words += ["--set", f"{key}={value if isinstance(value, str) else toml_value(value)}"]
    return shlex.join(words)
