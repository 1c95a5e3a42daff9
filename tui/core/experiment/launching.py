"""A server brought up for measuring, and taken down again: everything that can go wrong on the way is an answer."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TypeVar

from tui.core.bench import target
from tui.core.errors import EagletuiError, HostError, LinkLost, Slug, TimedOut, UsageError
from tui.core.experiment import grouped
from tui.core.experiment.failure import Failure, LaunchFailed, failure_of
from tui.core.experiment.grouped import LaunchedGroup
from tui.core.groups import planning
from tui.core.groups.session import GroupPlan, GroupSession
from tui.core.groups.watcher import DOWN
from tui.core.link import retry
from tui.core.link.retry import Tell
from tui.core.model.group import group_of
from tui.core.model.phases import Outcome
from tui.core.model.run import Run, RunState
from tui.core.profiles.launch_profile import LaunchProfile
from tui.core.runs import control
from tui.core.runs.control import RunBusy
from tui.core.server.launch import LaunchPlan, PreflightFailed, started
from tui.core.server.server_state import ServerState
from tui.core.server.session import HostSession

_EXIT_FOLLOWS_S = 15.0
_AGAIN_S = 1.0
_BUSY_TRIES = 5
_DEATH_S = 20.0  # within which the log of a server says why its client lost it
_LOOKS = 5  # at a server that was ready and is not seen to be

Launched = Run | LaunchedGroup
T = TypeVar("T")


@dataclass(frozen=True)
class Site:
    """What an arm launches, and where."""

    profile: LaunchProfile
    sets: Mapping[str, object]
    host: str  # where a member, or a server, goes that names none
    groups: GroupSession  # sessions with the hosts of the arm, and no others
    everywhere: GroupSession  # with those of all arms: a group that is in the way may be on any
    into: str | None = None  # the allocation of Slurm that is held for it

    @classmethod
    def of(cls, everywhere: GroupSession, profile: LaunchProfile, sets: Mapping[str, object], host: str) -> "Site":
        """Raises HostError where there is no session with one of its hosts."""
        names = planning.hosts_of(profile, host)
        if missing := [name for name in names if name not in everywhere.sessions]:
            raise HostError(
                f"{', '.join(missing)}: not connected", "connect to it, then try again", slug=Slug.UNREACHABLE
            )
        return cls(profile, sets, host, GroupSession({name: everywhere.sessions[name] for name in names}), everywhere)

    @property
    def home(self) -> HostSession:
        """With the host where it is measured."""
        return self.groups.sessions[planning.home_of(self.profile, self.host)]

    async def plan(self) -> LaunchPlan | GroupPlan:
        """What would be launched, with the findings of all its hosts; errors as of `planning.plan`."""
        return await (self.group_plan() if self.profile.several else self.home.plan(self.profile, self.sets))

    async def group_plan(self, group_id: str | None = None) -> GroupPlan:
        """The same of a group, which may be given its id."""
        plan = await planning.plan(self.groups, self.profile, self.host, self.sets, group_id)
        if self.into is None or plan.job is None:
            return plan
        return replace(plan, job=replace(plan.job, request=replace(plan.job.request, into=self.into)))

    async def patiently(self, call: Callable[[], Awaitable[T]], tell: Tell | None = None) -> T:
        """As `retry.patiently`, over the links to all its hosts: the one that is down is waited for."""
        while True:
            try:
                return await call()
            except (LinkLost, TimedOut) as error:
                links = [session.transport for session in self.groups.sessions.values()]
                down = next((link for link in links if link.status().state in DOWN), self.home.transport)
                await retry.patiently(down, _once(error), tell)


def _once(error: Exception) -> Callable[[], Awaitable[None]]:
    """A call that raises this, and succeeds when it is made again."""
    left = [error]

    async def call() -> None:
        if left:
            raise left.pop()

    return call


async def find(site: Site, run_id: str, tell: Tell) -> Run | None:
    """A run of ours on the host where the arm is measured, as it is now; None where that does not know it."""
    link = site.home.transport
    found = await retry.patiently(link, lambda: control.status(link, [run_id]), tell)
    return found[0] if found else None


async def find_server(site: Site, run_id: str, tell: Tell) -> Launched | None:
    """A server of ours as it is now, or a group by its id; None where no host of the arm knows it."""
    return await find(site, run_id, tell) or await grouped.find(site.groups, run_id, tell)


async def target_of(site: Site, server: Launched) -> target.Target:
    """What is measured of it. Raises EagletuiError where a group is not ready."""
    if isinstance(server, LaunchedGroup):
        return await target.of_group(site.groups, server.group)
    return target.of_run(server)


async def start(site: Site, run_id: str, tell: Tell) -> Launched:
    """Launches a server, or a group, under this id once, whatever the links do; our servers in its way are stopped first.

    Raises LaunchFailed where it is refused.
    """
    for attempt in range(_BUSY_TRIES):
        try:
            return await site.patiently(lambda: _start_once(site, run_id, tell), tell)
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
        except EagletuiError as error:
            # A group of ours that is in the way, part of it on another host, is like whatever else is in the way.
            if isinstance(error, HostError) or (isinstance(error, UsageError) and error.slug != Slug.BUSY):
                raise
            raise LaunchFailed(Failure(error.slug, error.message)) from None
    raise AssertionError("unreachable")


async def _start_once(site: Site, run_id: str, tell: Tell) -> Launched:
    if site.profile.several:
        if (known := await grouped.find(site.groups, run_id, tell)) is not None:
            return grouped.taken_up(known)
        tell(f"checking {', '.join(site.groups.sessions)}")
        return await grouped.start(site.everywhere, await site.group_plan(run_id), tell)
    found = await find(site, run_id, tell)
    if found is not None and found.state is not RunState.STAGED:
        return found  # an earlier try whose answer was lost
    tell("checking the host")
    plan = await site.home.plan(site.profile, site.sets)
    possible = not plan.blocked_without(run.run_id for run in plan.replaces)
    if possible and any(group_of(run.extra) is not None for run in plan.replaces):
        async for step in site.everywhere.make_room(plan.replaces):
            tell(step.text)
        plan = await site.home.check(plan)
    return await started(site.home.launch(plan, replace=True, run_id=run_id), tell)


@dataclass(frozen=True)
class Start:
    """How far a start is."""

    phase: str
    eta_s: float | None  # to ready
    told: str | None  # what it waits for, or may hang at
    ready_after_s: float | None


async def until_ready(site: Site, server: Launched) -> AsyncGenerator[Start, None]:
    """States of a start, the last one ready; a lost link stops the clock. Raises LaunchFailed."""
    timeout_s = site.profile.startup_timeout_s
    if isinstance(server, LaunchedGroup):
        async with aclosing(grouped.until_ready(site.groups, server, timeout_s)) as states:
            async for seen in states:
                lost = dict.fromkeys(one.member.host for one in seen.members if one.link_lost)
                queued = seen.job.waits if seen.outcome is Outcome.QUEUED and seen.job is not None else None
                told = _waits(*lost) if lost else queued or seen.waits_for
                yield Start(str(seen.phase), None, told, seen.ready_after_s)
        return
    async with aclosing(_ready(site.home, server, timeout_s)) as states:
        async for state in states:
            told = _waits(site.home.entry.name) if state.stale else state.suspected.text if state.suspected else None
            yield Start(str(state.phase), state.eta_s, told, state.ready_after_s)


def _waits(*hosts: str) -> str:
    return f"waiting for the link to {', '.join(hosts)}"


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


async def died(site: Site, run: Launched, tell: Tell, patience_s: float = 0.0) -> Failure | None:
    """Why a server that was ready is no longer alive; None where it still is after `patience_s`."""
    if isinstance(run, LaunchedGroup):
        return await grouped.died(site.groups, run, patience_s)
    session = site.home
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience_s
    last: ServerState | None = None
    async with aclosing(session.watch(run)) as updates:
        async for update in updates:
            last = update.state
            if last.stale:
                tell(_waits(session.entry.name))
            elif update.settled and last.outcome in (Outcome.READY, Outcome.STARTING) and loop.time() >= deadline:
                return None
            elif last.outcome is Outcome.CRASHED and not last.run.over and loop.time() > deadline + _EXIT_FOLLOWS_S:
                break
    return failure_of(last)


async def stop(site: Site, run: Launched, tell: Tell) -> None:
    """Stops a run with all it left behind and waits until its GPU memory is back. Idempotent."""

    async def once() -> None:
        if isinstance(run, LaunchedGroup):
            return await grouped.stop(site.groups, run, tell)
        async for progress in site.home.stop(run):
            tell(f"stopping {run.short_id}: {progress.text}")

    await site.patiently(once, tell)


async def end(site: Site, run_ids: Iterable[str | None], tell: Tell) -> None:
    """Stops those of these runs that its hosts know, in this order."""
    for run_id in run_ids:
        if run_id is not None and (run := await find_server(site, run_id, tell)):
            await stop(site, run, tell)


async def begun(site: Site, run: Launched, start: Callable[[], Awaitable[Run]], tell: Tell) -> Run:
    """The generator's run; on a busy host it may take several looks to see that the server is ready."""
    for look in range(_LOOKS):
        try:
            return await site.patiently(start, tell)
        except EagletuiError as error:
            last = look + 1 == _LOOKS
            if error.slug != Slug.NOT_READY or last or await died(site, run, tell):
                raise
            tell(error.message)
    raise AssertionError("unreachable")


async def reason_of(site: Site, run: Launched, error: EagletuiError, tell: Tell) -> Failure:
    """Why a measurement failed: the server's own end says more than its client's view of it."""
    patience_s = _DEATH_S if error.slug in (Slug.SERVER_LOST, Slug.UNREACHABLE) else 0.0
    death = await died(site, run, tell, patience_s)
    return death or Failure(error.slug, error.message, advice=(str(error.hint),) if error.hint else ())
