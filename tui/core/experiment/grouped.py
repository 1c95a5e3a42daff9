"""A group brought up for measuring, on one host or several, as `launching` does it with a server."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from tui.core.errors import LinkLost
from tui.core.experiment.failure import Failure, LaunchFailed, failure_of
from tui.core.groups.group_state import GroupState
from tui.core.groups.membership import groups_among
from tui.core.groups.session import GroupPlan, GroupSession
from tui.core.link.retry import Tell, patiently
from tui.core.model.group import Group
from tui.core.model.phases import Outcome
from tui.core.model.run import Run, RunState
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


async def find(groups: GroupSession, group_id: str, tell: Tell) -> LaunchedGroup | None:
    """One of our groups as it is now, None where no host knows it; a host that cannot be asked is waited for."""

    async def look(session: HostSession) -> tuple[Run, ...]:
        return (*await control.list_runs(session.transport), *await session.ranks())

    async def runs_of(session: HostSession) -> tuple[Run, ...]:
        return await patiently(session.transport, lambda: look(session), tell)

    answers = await asyncio.gather(*map(runs_of, groups.sessions.values()))
    for found in groups_among(run for runs in answers for run in runs if run.state is not RunState.STAGED):
        if found.group.group_id == group_id:
            return LaunchedGroup(found.group, tuple(found.runs.values()))
    return None


def taken_up(known: LaunchedGroup) -> LaunchedGroup:
    """A group whose launch was asked for before, the answer being lost. Raises LaunchFailed where it was given up half done."""
    if not known.active:  # no id starts twice
        raise LaunchFailed(
            Failure("unreachable", "a link was lost while it was launched; what had started was stopped")
        )
    return known


async def start(groups: GroupSession, plan: GroupPlan, tell: Tell) -> LaunchedGroup:
    """Launches a group; our servers in its way are stopped first. Raises PreflightFailed, RunBusy and others."""
    runs = []
    async with aclosing(groups.launch(plan, replace=True)) as progress:
        async for step in progress:
            tell(step.text)
            runs += [step.run] if step.run is not None else []
    return LaunchedGroup(plan.group, tuple(runs))


async def until_ready(
    groups: GroupSession, launched: LaunchedGroup, timeout_s: float
) -> AsyncGenerator[GroupState, None]:
    """States of a start, the last one ready; a lost link stops the clock. Raises LaunchFailed."""
    loop = asyncio.get_running_loop()
    left_s, seen_at = timeout_s, loop.time()
    last: GroupState | None = None
    async with aclosing(groups.watch(launched.group)) as updates:
        async for update in updates:
            last = update.state
            now = loop.time()
            queued = last.outcome is Outcome.QUEUED  # which takes as long as it takes
            left_s -= 0.0 if queued or any(one.link_lost for one in last.members) else now - seen_at
            seen_at = now
            yield last
            if last.outcome is Outcome.READY:
                return
            if queued and last.job is not None and last.job.never is not None:
                raise LaunchFailed(Failure("never_runs", last.job.never, str(last.phase)))
            if left_s <= 0 and last.failed is None:
                why = last.waits_for or last.phase.replace("_", " ")
                raise LaunchFailed(Failure("timeout", f"not ready after {timeout_s:g} s: {why}", str(last.phase)))
    raise LaunchFailed(_failure(last))


async def died(groups: GroupSession, launched: LaunchedGroup, patience_s: float) -> Failure | None:
    """Why a group that was ready no longer is; None where it still is after `patience_s`."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience_s
    last: GroupState | None = None
    async with aclosing(groups.watch(launched.group)) as updates:
        async for update in updates:
            last = update.state
            alive = last.outcome in (Outcome.READY, Outcome.STARTING, Outcome.UNKNOWN)
            if update.settled and alive and loop.time() >= deadline:
                return None
    return _failure(last)


async def stop(groups: GroupSession, launched: LaunchedGroup, tell: Tell) -> None:
    """Stops all of it, the router first. Idempotent. Raises LinkLost where a host cannot be asked: it may live on there."""
    unknown: str | None = None
    async with aclosing(groups.stop(launched.group)) as progress:
        async for step in progress:
            tell(step.text)
            unknown = step.text if step.stop is not None and step.stop.step == "unreachable" else unknown
    if unknown is not None:
        raise LinkLost(unknown)


def _failure(state: GroupState | None) -> Failure:
    """What the end of a group says: that of the member that failed."""
    if state is None or state.failed is None:
        stopped = state is not None and state.outcome is Outcome.STOPPED
        return Failure("stopped", "stopped") if stopped else failure_of(None)
    of_member = failure_of(state.failure)
    return Failure(
        of_member.cause, f"{state.failed.name}: {of_member.reason}", of_member.phase, of_member.advice, of_member.change
    )
