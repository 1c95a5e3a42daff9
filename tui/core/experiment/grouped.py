"""A group brought up for measuring on one host, as `launching` does it with a server: prefill, decode and router."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass

from tui.core.experiment.failure import Failure, LaunchFailed, failure_of
from tui.core.groups import planning
from tui.core.groups.group_state import GroupState
from tui.core.groups.membership import groups_among
from tui.core.groups.session import GroupSession
from tui.core.link.retry import Tell
from tui.core.model.group import Group
from tui.core.model.phases import Outcome
from tui.core.model.run import Run
from tui.core.profiles.launch_profile import LaunchProfile
from tui.core.runs import control
from tui.core.server.session import HostSession


@dataclass(frozen=True)
class LaunchedGroup:
    """A group with its runs as last seen."""

    group: Group
    runs: tuple[Run, ...]

    @property
    def run_id(self) -> str:
        return self.group.group_id

    @property
    def active(self) -> bool:
        """Whether all of it lives: what has lost a member serves no more."""
        return len(self.runs) == len(self.group.members) and all(run.active and not run.over for run in self.runs)

    @property
    def stop(self) -> str | None:
        """How far a stop of it has come; None where nobody asked for one."""
        return next((run.stop for run in self.runs if run.stop is not None), None)


def on(session: HostSession) -> GroupSession:
    """Groups of which every member is on this host."""
    return GroupSession({session.entry.name: session})


async def find(session: HostSession, group_id: str) -> LaunchedGroup | None:
    """One of our groups as it is now, None where the host does not know it."""
    for found in groups_among(await control.list_runs(session.transport)):
        if found.group.group_id == group_id:
            return LaunchedGroup(found.group, tuple(found.runs.values()))
    return None


async def start(
    session: HostSession, profile: LaunchProfile, sets: Mapping[str, object], group_id: str, tell: Tell
) -> LaunchedGroup:
    """Launches a group under this id once. Raises PreflightFailed, RunBusy and others."""
    known = await find(session, group_id)
    if known is not None and known.active:
        return known  # an earlier try whose answer was lost
    tell("checking the host")
    groups = on(session)
    plan = await planning.plan(groups, profile, session.entry.name, sets, group_id)
    runs = []
    async with aclosing(groups.launch(plan, replace=True)) as progress:
        async for step in progress:
            tell(step.text)
            runs += [step.run] if step.run is not None else []
    return LaunchedGroup(plan.group, tuple(runs))


async def until_ready(
    session: HostSession, launched: LaunchedGroup, timeout_s: float
) -> AsyncGenerator[GroupState, None]:
    """States of a start, the last one ready; a lost link stops the clock. Raises LaunchFailed."""
    loop = asyncio.get_running_loop()
    left_s, seen_at = timeout_s, loop.time()
    last: GroupState | None = None
    async with aclosing(on(session).watch(launched.group)) as updates:
        async for update in updates:
            last = update.state
            now = loop.time()
            left_s -= 0.0 if any(one.link_lost for one in last.members) else now - seen_at
            seen_at = now
            yield last
            if last.outcome is Outcome.READY:
                return
            if left_s <= 0 and last.failed is None:
                why = last.waits_for or last.phase.replace("_", " ")
                raise LaunchFailed(Failure("timeout", f"not ready after {timeout_s:g} s: {why}", str(last.phase)))
    raise LaunchFailed(_failure(last))


async def died(session: HostSession, launched: LaunchedGroup, patience_s: float) -> Failure | None:
    """Why a group that was ready no longer is; None where it still is after `patience_s`."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience_s
    last: GroupState | None = None
    async with aclosing(on(session).watch(launched.group)) as updates:
        async for update in updates:
            last = update.state
            alive = last.outcome in (Outcome.READY, Outcome.STARTING, Outcome.UNKNOWN)
            if update.settled and alive and loop.time() >= deadline:
                return None
    return _failure(last)


async def stop(session: HostSession, launched: LaunchedGroup, tell: Tell) -> None:
    """Stops all of it, the router first. Idempotent."""
    async with aclosing(on(session).stop(launched.group)) as progress:
        async for step in progress:
            tell(step.text)


def _failure(state: GroupState | None) -> Failure:
    """What the end of a group says: that of the member that failed."""
    if state is None or state.failed is None:
        stopped = state is not None and state.outcome is Outcome.STOPPED
        return Failure("stopped", "stopped") if stopped else failure_of(None)
    of_member = failure_of(state.failure)
    return Failure(
        of_member.cause, f"{state.failed.name}: {of_member.reason}", of_member.phase, of_member.advice, of_member.change
    )
