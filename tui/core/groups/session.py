"""One group over its hosts: planned, launched all or nothing, watched and stopped as one.

What is common to every kind of group is here. Which profiles its members run, and what must be checked between them, is
the business of `nodes` (one server over several hosts) and its like: they make a `GroupPlan`.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tui.core.errors import EagletuiError, HostError, Slug, UsageError
from tui.core.groups.group_state import GroupUpdate
from tui.core.groups.membership import FoundGroup, groups_among, starts, stops
from tui.core.groups.merge import mark_of
from tui.core.groups.router import RouterReadiness
from tui.core.groups.watcher import DOWN, ExtraReadiness, GroupWatcher
from tui.core.link.retry import until, until_answered
from tui.core.model.group import Group, Member, Role, group_of
from tui.core.model.phases import Outcome
from tui.core.model.run import Run
from tui.core.profiles.launch_profile import LaunchProfile
from tui.core.runs import control
from tui.core.runs.request import LaunchRequest, new_run_id
from tui.core.server import launch as launching
from tui.core.server import launch_records
from tui.core.server.finding import Finding, Level, ordered
from tui.core.server.launch import LaunchPlan, PreflightFailed
from tui.core.server.launch_records import LaunchRecord
from tui.core.server.run_end import outcome_of_files
from tui.core.server.session import HostSession
from tui.core.server.stop import StopProgress
from tui.core.slurm.script import JobRequest

_ROLLBACK_S = 30.0
_LEFT_GRACE_S = 5.0  # whoever lost a peer has nothing to drain
_FIND_S = 15.0  # so long is a member looked for where its link is lost meanwhile
_FOLLOW_S = 15.0  # rank 0, once stopped, tells the other ranks to end


@dataclass(frozen=True)
class JobLaunch:
    """What a login host is asked to submit, and what is recorded here before."""

    request: JobRequest
    records: tuple[LaunchRecord, ...]  # a rank each


@dataclass(frozen=True)
class GroupPlan:
    """A launch of a group that was checked but not made."""

    group: Group
    plans: tuple[LaunchPlan, ...]  # as `group.members`
    findings: tuple[Finding, ...]  # of all members, and what was checked between them
    job: JobLaunch | None = None  # it is a job of Slurm: `plans` is empty then

    @property
    def blocked(self) -> bool:
        return any(finding.level is Level.BLOCK for finding in self.findings)

    @property
    def replaces(self) -> tuple[Run, ...]:
        """Our live servers in its way, each once."""
        return tuple({(run.host, run.run_id): run for plan in self.plans for run in plan.replaces}.values())

    @property
    def seen(self) -> tuple[Run, ...]:
        """All runs of its hosts when it was checked, each once."""
        return tuple({(run.host, run.run_id): run for plan in self.plans for run in plan.seen}.values())

    def blocked_without(self, runs_gone: Iterable[str]) -> bool:
        """Whether it would be blocked even if these runs were gone."""
        gone = set(runs_gone)
        return any(f.level is Level.BLOCK and f.run not in gone for f in self.findings)


@dataclass(frozen=True)
class GroupProgress:
    """How far a launch or a stop of a group has come."""

    text: str  # a sentence
    member: Member | None = None
    run: Run | None = None  # that was started
    stop: StopProgress | None = None  # of the member


def new_group(
    profile: str, places: Sequence[tuple[Role, int, str]], group_id: str | None = None, *, job: bool = False
) -> Group:
    """A group that does not run yet, of (role, number, host) in the order of their start."""
    group_id = group_id or new_run_id(profile)
    members = (Member(role, number, host, f"{group_id}-{at}") for at, (role, number, host) in enumerate(places))
    return Group(group_id, profile, tuple(members), job)


class GroupSession:
    """Sessions with the hosts of groups. They are opened and closed by whoever gives them."""

    def __init__(self, sessions: Mapping[str, HostSession]) -> None:
        self.sessions = sessions

    def of(self, member: Member) -> HostSession:
        """The session with a member's host. Raises HostError where there is none."""
        session = self.sessions.get(member.host)
        if session is None:
            raise HostError(f"{member.host} is not connected", "connect to it, then try again", slug=Slug.UNREACHABLE)
        return session

    # Finding

    async def find(self) -> list[FoundGroup]:
        """The groups that have runs on these hosts; a host that does not answer is left out."""
        answers = await asyncio.gather(*(one.runs() for one in self.sessions.values()), return_exceptions=True)
        return groups_among(run for runs in answers if not isinstance(runs, BaseException) for run in runs)

    async def runs_of(self, group: Group) -> dict[Member, Run | EagletuiError | None]:
        """Each member's run as it is now; None where its host has none, an error where it cannot be asked."""

        async def run_of(member: Member) -> Run | EagletuiError | None:
            try:
                session = self.of(member)
                if (status := session.transport.status()).state in DOWN:
                    raise status.error or HostError(f"the link to {member.host} is lost")
                return await until_answered(session.transport, lambda: session.run_by_id(member.run_id), _FIND_S)
            except EagletuiError as error:
                return error

        found = await asyncio.gather(*map(run_of, group.members))
        return dict(zip(group.members, found, strict=True))

    # Launching

    async def plan(
        self,
        group: Group,
        profiles: Sequence[LaunchProfile],
        sets: Mapping[str, object] | None = None,
        findings: Iterable[Finding] = (),
    ) -> GroupPlan:
        """The exact commands of all members, with what their hosts say and what else was found.

        Args:
            profiles: of each member, as `group.members`.
            findings: of checks between the members.
        """
        pairs = zip(group.members, profiles, strict=True)
        plans = await asyncio.gather(*(self.of(member).plan(profile, sets) for member, profile in pairs))
        return _with_findings(GroupPlan(group, tuple(plans), ()), findings)

    async def launch(self, plan: GroupPlan, *, replace: bool = False) -> AsyncGenerator[GroupProgress, None]:
        """Starts all members or none; each at most once.

        First every host keeps GPUs and ports for its member, in the order of the hosts' names: of two launches that meet
        anywhere one gets everything, and the other gives back what it had. Then they are started. The last progress of
        each member has its run.

        Raises PreflightFailed, RunBusy, HostError and others; nothing of the group runs then, or the message says what may.
        """
        if plan.job is not None:
            async for progress in self._submit(plan, plan.job):
                yield progress
            return
        if replace and plan.replaces:
            if plan.blocked_without(run.run_id for run in plan.replaces):
                raise PreflightFailed(plan)
            async for progress in self.make_room(plan.replaces):
                yield progress
            plan = await self._again(plan)
        if plan.blocked:
            raise PreflightFailed(plan)
        members = plan.group.members
        requests = {
            member: launching.prepare(one, member.host, member.run_id, plan.group)
            for member, one in zip(members, plan.plans, strict=True)
        }
        asked: list[Member] = []
        begun: list[Member] = []
        started: list[tuple[Member, Run]] = []
        try:
            yield GroupProgress(f"reserving GPUs and ports on {', '.join(plan.group.hosts)}")
            for member in sorted(members, key=lambda one: (one.host, one.run_id)):
                asked.append(member)
                await control.reserve(self.of(member).transport, requests[member])
            for stage in starts(plan.group):
                begun += stage
                started += zip(stage, await self._start(stage, requests), strict=True)
        except BaseException as error:
            left = await self._roll_back(asked, begun)
            if isinstance(error, EagletuiError) and left:
                error.message += f"; on {', '.join(left)} it is not known whether something was started"
            raise
        for member, run in started:
            yield GroupProgress(f"started {run.run_id} on {run.host}", member, run)

    async def _submit(self, plan: GroupPlan, job: JobLaunch) -> AsyncGenerator[GroupProgress, None]:
        """Of a job: recorded here first, so that no answer that is lost loses its id; GPUs and ports are the scheduler's."""
        if plan.blocked:
            raise PreflightFailed(plan)
        for record in job.records:
            launch_records.begin(record)
        session = self.of(plan.group.serving)
        board = session.jobs(launching=True)
        assert board is not None
        yield GroupProgress(f"submitting {plan.group.group_id} to the Slurm of {session.entry.name}")
        number = await board.submit(job.request)
        run = board.run(plan.group.serving.run_id)
        said = run.job.sentence if run is not None and run.job is not None else ""
        yield GroupProgress(f"job {number}" + (f" {said}" if said else ""), plan.group.serving, run)

    async def _start(self, stage: Sequence[Member], requests: Mapping[Member, LaunchRequest]) -> list[Run]:
        """All at once; every answer is waited for, so that nothing starts behind a rollback."""
        answers = await asyncio.gather(
            *(self.of(member).start(requests[member]) for member in stage), return_exceptions=True
        )
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return [answer for answer in answers if not isinstance(answer, BaseException)]

    async def _roll_back(self, asked: Sequence[Member], begun: Sequence[Member]) -> list[str]:
        """Ends what was started, gives back what was reserved; the hosts that could not be told."""

        async def undo(member: Member) -> None:
            transport = self.of(member).transport
            if member in begun:  # also where its start was not heard of: from then on it will not start
                await control.stop(transport, member.run_id, 0.0, timeout_s=_ROLLBACK_S)
            await control.release(transport, [member.run_id])

        async def bounded(member: Member) -> str | None:
            try:
                async with asyncio.timeout(_ROLLBACK_S):
                    await undo(member)
            except (EagletuiError, TimeoutError):
                return member.host if member in begun else None  # a reservation goes by itself
            return None

        told = await asyncio.gather(*map(bounded, asked))
        return list(dict.fromkeys(host for host in told if host is not None))

    async def make_room(self, runs: Sequence[Run]) -> AsyncGenerator[GroupProgress, None]:
        """Stops what is in the way: a member of another group with its whole group.

        Raises UsageError (slug busy) where a part of such a group is on a host without a session.
        """
        stopped: set[str] = set()
        for run in runs:
            other = group_of(run.extra)
            if other is None:
                yield GroupProgress(f"stopping {run.short_id} on {run.host}")
                async for progress in self.sessions[run.host].stop(run):
                    yield GroupProgress(f"stopping {run.short_id} on {run.host}: {progress.text}", stop=progress)
            elif other.group_id not in stopped:
                stopped.add(other.group_id)
                if missing := [host for host in other.hosts if host not in self.sessions]:
                    raise UsageError(
                        f"{run.run_id} is a member of {other.group_id}, which runs on {', '.join(missing)} too",
                        f"stop it first: eagletui stop {other.group_id}",
                        slug=Slug.BUSY,
                    )
                async for told in self.stop(other):
                    yield told

    async def _again(self, plan: GroupPlan) -> GroupPlan:
        """The plan with what is true now, once what was in its way is gone."""
        gone = {run.run_id for run in plan.replaces}
        between = [f for f in plan.findings if f.check in (BETWEEN, ROLES) and f.run not in gone]
        plans = zip(plan.group.members, plan.plans, strict=True)
        checked = await asyncio.gather(*(self.of(member).check(one) for member, one in plans))
        return _with_findings(GroupPlan(plan.group, tuple(checked), ()), between)

    # Watching

    def watch(
        self, group: Group, *, check: ExtraReadiness | None = None, end_others: bool = True
    ) -> AsyncGenerator[GroupUpdate, None]:
        """States and logs of all members to their end; survives links.

        Args:
            check: what must hold besides, before the group is ready; of one with a router what `router` asks.
            end_others: once a member has died, the others are stopped; False only looks. Of a job srun ends them.
        """

        async def end(failed: Member) -> None:
            await self.end_others(group, failed)

        check = check or RouterReadiness.of(self.sessions, group)
        return GroupWatcher(
            self.sessions, group, check=check, end_others=end if end_others and not group.job else None
        ).updates()

    async def end_others(self, group: Group, failed: Member) -> None:
        """Stops what a dead member leaves behind, its own leftovers too, on every host that can be asked."""

        async def end(member: Member) -> None:
            with contextlib.suppress(EagletuiError):
                transport = self.of(member).transport
                await control.stop(transport, member.run_id, _LEFT_GRACE_S, who=mark_of(failed))

        await asyncio.gather(*map(end, group.members))

    # Stopping

    async def stop(self, group: Group, *, grace_s: float = 20.0) -> AsyncGenerator[GroupProgress, None]:
        """Stops every member, in the order that lets all of them drain; says of each what is true. Idempotent.

        The last progress of each member has `stop.done`; of one whose host cannot be asked its step is `unreachable`.
        """
        found = await self.runs_of(group)
        # Of a group that has lost a member by itself, the rest is stopped because of that.
        dead = next((m for m, run in found.items() if isinstance(run, Run) and _died(run)), None)
        for stage in stops(group):
            progress: asyncio.Queue[GroupProgress | None] = asyncio.Queue()
            tasks = [
                asyncio.create_task(
                    self._stop_member(member, found[member], grace_s, dead, progress.put_nowait, group.job)
                )
                for member in stage
            ]
            try:
                async for told in _drained(tasks, progress):
                    yield told
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _stop_member(
        self,
        member: Member,
        run: Run | EagletuiError | None,
        grace_s: float,
        dead: Member | None,
        tell: Callable[[GroupProgress], None],
        job: bool,
    ) -> None:
        def say(progress: StopProgress) -> None:
            tell(GroupProgress(f"{member.name} on {member.host}: {progress.text}", member, stop=progress))

        if run is None and job:  # what Slurm still has of it is not known by its files
            say(
                StopProgress("unreachable", "its files are gone; eagletui ps lists its job, if there is one", done=True)
            )
            return
        if run is None:
            say(StopProgress("done", "is not there", done=True))
            return
        try:
            if isinstance(run, EagletuiError):
                raise run
            if member.follows and dead is None:
                run = await self._followed(member, run, min(grace_s, _FOLLOW_S))
            if run.over and not run.orphans:
                if member.follows and dead is None:  # its host has no mark of that: nobody signalled it
                    await asyncio.to_thread(launch_records.stopped_with_its_group, member.run_id)
                say(StopProgress("done", "has ended", done=True))
                return
            who = mark_of(dead) if dead is not None else None
            async for progress in self.of(member).stop(run, grace_s=grace_s, who=who):
                say(progress)
        except EagletuiError as error:
            say(StopProgress("unreachable", f"it is not known whether it ended ({error.message})", done=True))

    async def _followed(self, member: Member, run: Run, patience_s: float) -> Run:
        """The run once it has ended by itself, as rank 0 told it to; or as it is after a while."""
        session = self.of(member)
        latest = run

        async def look() -> Run:
            nonlocal latest
            latest = await session.run_by_id(member.run_id) or latest
            return latest

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await until(lambda seen: seen.over, look, transport=session.transport)
        return latest


BETWEEN = "nodes"  # the check whose findings are about several hosts
ROLES = "group"  # and about what prefill, decode and router are to each other


def _with_findings(plan: GroupPlan, between: Iterable[Finding]) -> GroupPlan:
    found = [
        replace(finding, host=member.host)
        for member, one in zip(plan.group.members, plan.plans, strict=True)
        for finding in one.findings
    ]
    return replace(plan, findings=ordered([*between, *found]))


def _died(run: Run) -> bool:
    return outcome_of_files(run) in (Outcome.CRASHED, Outcome.LOST)


async def _drained(
    tasks: Sequence["asyncio.Task[None]"], progress: "asyncio.Queue[GroupProgress | None]"
) -> AsyncGenerator[GroupProgress, None]:
    """What the tasks tell, to the end of all of them. Raises what one raised."""
    whole = asyncio.gather(*tasks, return_exceptions=True)  # of one that is given up, nobody asks for its exception
    whole.add_done_callback(lambda _: progress.put_nowait(None))
    while (told := await progress.get()) is not None:
        yield told
    for ended in await whole:
        if isinstance(ended, BaseException):
            raise ended
