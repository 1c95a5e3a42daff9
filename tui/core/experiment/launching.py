"""A server brought up for measuring, and taken down again: everything that can go wrong on the way is an answer."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass

from tui.core.bench import target
from tui.core.errors import EagletuiError, HostError, UsageError
from tui.core.experiment import grouped
from tui.core.experiment.failure import Failure, LaunchFailed, failure_of
from tui.core.experiment.grouped import LaunchedGroup
from tui.core.link.retry import Tell, patiently
from tui.core.model.phases import Outcome
from tui.core.model.run import Run, RunState
from tui.core.profiles.launch_profile import LaunchProfile
from tui.core.runs import control
from tui.core.runs.control import RunBusy
from tui.core.server.launch import PreflightFailed, started
from tui.core.server.server_state import ServerState
from tui.core.server.session import HostSession

_EXIT_FOLLOWS_S = 15.0
_AGAIN_S = 1.0
_BUSY_TRIES = 5

Launched = Run | LaunchedGroup


async def find(session: HostSession, run_id: str, tell: Tell) -> Run | None:
    """One of our runs as it is now, None where the host does not know it."""
    found = await patiently(session.transport, lambda: control.status(session.transport, [run_id]), tell)
    return found[0] if found else None


async def find_server(session: HostSession, run_id: str, tell: Tell) -> Launched | None:
    """A server of ours as it is now, or a group by its id; None where the host does not know it."""
    found = await find(session, run_id, tell)
    return found or await patiently(session.transport, lambda: grouped.find(session, run_id), tell)


async def target_of(session: HostSession, server: Launched) -> target.Target:
    """What is measured of it. Raises EagletuiError where a group is not ready."""
    if isinstance(server, LaunchedGroup):
        return await target.of_group(grouped.on(session), server.group)
    return target.of_run(server)


async def start(
    session: HostSession, profile: LaunchProfile, sets: Mapping[str, object], run_id: str, tell: Tell
) -> Launched:
    """Launches a server, or a group, under this id once, whatever the link does; our servers in its way are stopped first.

    Raises LaunchFailed where it is refused.
    """
    for attempt in range(_BUSY_TRIES):
        try:
            return await patiently(session.transport, lambda: _start_once(session, profile, sets, run_id, tell), tell)
        except PreflightFailed as refused:
            if not refused.ours or attempt + 1 == _BUSY_TRIES:
                raise LaunchFailed(Failure("preflight", refused.message)) from None
            tell(refused.message)  # what we stopped still holds its GPUs
            await asyncio.sleep(_AGAIN_S)
        except RunBusy as busy:
            # Another launch holds the lock, or what we stopped is still leaving.
            if attempt + 1 == _BUSY_TRIES:
                advice = (str(busy.hint),) if busy.hint else ()
                raise LaunchFailed(Failure(busy.slug, busy.message, advice=advice)) from None
            tell(busy.message)
            await asyncio.sleep(_AGAIN_S)
        except (HostError, UsageError):
            raise
        except EagletuiError as error:
            raise LaunchFailed(Failure(error.slug, error.message)) from None
    raise AssertionError("unreachable")


async def _start_once(
    session: HostSession, profile: LaunchProfile, sets: Mapping[str, object], run_id: str, tell: Tell
) -> Launched:
    if profile.several:
        return await grouped.start(session, profile, sets, run_id, tell)
    found = await find(session, run_id, tell)
    if found is not None and found.state is not RunState.STAGED:
        return found  # an earlier try whose answer was lost
    tell("checking the host")
    plan = await session.plan(profile, sets)
    return await started(session.launch(plan, replace=True, run_id=run_id), tell)


@dataclass(frozen=True)
class Start:
    """How far a start is."""

    phase: str
    eta_s: float | None  # to ready
    told: str | None  # what it waits for, or may hang at
    ready_after_s: float | None


async def until_ready(session: HostSession, server: Launched, timeout_s: float) -> AsyncGenerator[Start, None]:
    """States of a start, the last one ready; a lost link stops the clock. Raises LaunchFailed."""
    lost = f"waiting for the link to {session.entry.name}"
    if isinstance(server, LaunchedGroup):
        async with aclosing(grouped.until_ready(session, server, timeout_s)) as states:
            async for seen in states:
                told = lost if any(one.link_lost for one in seen.members) else seen.waits_for
                yield Start(str(seen.phase), None, told, seen.ready_after_s)
        return
    async with aclosing(_ready(session, server, timeout_s)) as states:
        async for state in states:
            told = lost if state.stale else state.suspected.text if state.suspected else None
            yield Start(str(state.phase), state.eta_s, told, state.ready_after_s)


async def _ready(session: HostSession, run: Run, timeout_s: float) -> AsyncGenerator[ServerState, None]:
    loop = asyncio.get_running_loop()
    left_s, seen_at = timeout_s, loop.time()
    crashed_at: float | None = None
    last: ServerState | None = None
    async with aclosing(session.watch(run)) as updates:
        async for update in updates:
            last = state = update.state
            now = loop.time()
            left_s -= 0.0 if state.stale else now - seen_at
            seen_at = now
            yield state
            if state.outcome is Outcome.READY:
                return
            if state.outcome is Outcome.CRASHED and not state.run.over:
                # The exit code follows within seconds; what lingers longer is reported without one.
                crashed_at = crashed_at or now
                if now - crashed_at > _EXIT_FOLLOWS_S:
                    break
            elif left_s <= 0 and not state.run.over:
                phase = state.phase.replace("_", " ")
                raise LaunchFailed(Failure("timeout", f"not ready after {timeout_s:g} s, in {phase}", str(state.phase)))
    raise LaunchFailed(failure_of(last))


async def died(session: HostSession, run: Launched, tell: Tell, patience_s: float = 0.0) -> Failure | None:
    """Why a server that was ready is no longer alive; None where it still is after `patience_s`."""
    if isinstance(run, LaunchedGroup):
        return await grouped.died(session, run, patience_s)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience_s
    last: ServerState | None = None
    async with aclosing(session.watch(run)) as updates:
        async for update in updates:
            last = update.state
            if last.stale:
                tell(f"waiting for the link to {session.entry.name}")
            elif update.settled and last.outcome in (Outcome.READY, Outcome.STARTING) and loop.time() >= deadline:
                return None
            elif last.outcome is Outcome.CRASHED and not last.run.over and loop.time() > deadline + _EXIT_FOLLOWS_S:
                break
    return failure_of(last)


async def stop(session: HostSession, run: Launched, tell: Tell) -> None:
    """Stops a run with all it left behind and waits until its GPU memory is back. Idempotent."""

    async def once() -> None:
        if isinstance(run, LaunchedGroup):
            return await grouped.stop(session, run, tell)
        async for progress in session.stop(run):
            tell(f"stopping {run.short_id}: {progress.text}")

    await patiently(session.transport, once, tell)
