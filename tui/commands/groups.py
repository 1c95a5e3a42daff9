"""Groups on the command line: which one is meant, its sessions, and what `launch`, `wait`, `stop`, `ps`, `logs` and
`diagnose` do with one."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict

from tui.commands.measured import may_replace
from tui.commands.output import emit, error_line, say
from tui.commands.sessions import LOOK_S, diagnosis_json, is_up, run_json
from tui.commands.terminal import TerminalAsker
from tui.core.errors import EagletuiError, HostError, TimedOut
from tui.core.groups import planning
from tui.core.groups.group_state import GroupState, MemberState
from tui.core.groups.membership import member_named
from tui.core.groups.session import GroupPlan, GroupSession
from tui.core.link.retry import until_answered
from tui.core.link.transport import Asker
from tui.core.model.group import Group, Member, Role, group_of
from tui.core.model.job import Job
from tui.core.model.phases import Outcome, Phase
from tui.core.model.run import Run, RunState, short_id
from tui.core.profiles.launch_profile import LaunchProfile
from tui.core.server import launch_records
from tui.core.server.launch_records import LaunchRecord
from tui.core.server.server_state import ServerState
from tui.core.server.session import HostSession, open_session
from tui.core.server.stop import StopProgress
from tui.core.sglang.state import StartupState
from tui.core.text import one_line
from tui.demo.client import register
from tui.job_words import end_words, ending_words, queue_words

_ENDS_FOLLOW_S = 30.0
_PLAN_S = 45.0  # so long is a plan asked for again where a link is lost under it


def group_on_record(reference: str, *, whole: bool = False) -> Group | None:
    """The group that `reference` means by this machine's records of launches: no host need be asked for that.

    Args:
        whole: only where it names the group, and not one member.

    Raises UsageError where several runs or groups fit.
    """
    known = {record.run_id: record for record in launch_records.read_all()}
    run_id = launch_records.match_run(reference, known)
    group = group_of({"group": known[run_id].group}) if run_id is not None else None
    return None if group is not None and whole and member_named(reference, group) is not None else group


@asynccontextmanager
async def group_session(hosts: Iterable[str], *, all_of_them: bool = False) -> AsyncIterator[GroupSession]:
    """Connected sessions with several hosts, one question at a time; one that cannot be reached is said, and tried again.

    Raises HostError where none is reached, or with `all_of_them` where one is not.
    """
    register()
    asker: Asker = TerminalAsker()
    names = list(dict.fromkeys(hosts))
    opened = [await open_session(name, asker) for name in names]
    try:
        errors = await asyncio.gather(*map(_open, opened))
        failed = [error for error in errors if error is not None]
        if failed and (all_of_them or len(failed) == len(opened)):
            raise failed[0]
        for error in failed:
            say(error_line(error))
        yield GroupSession(dict(zip(names, opened, strict=True)))
    finally:
        await asyncio.gather(*(one.close() for one in opened))


async def _open(session: HostSession) -> HostError | None:
    try:
        await session.open()
    except HostError as error:
        return None if await is_up(session, error) else error
    return None


# launch


async def launch_group(
    profile: LaunchProfile,
    host: str,
    sets: Mapping[str, object],
    begun: list[str],
    *,
    group_id: str,
    again: bool,
    replace: bool,
    ask: bool | None,
    wait_ready: bool,
    timeout_s: float,
    as_json: bool,
) -> int:
    """Launches a profile with `[nodes]`, `[group]` or `[slurm]`; the exit code.

    Args:
        host: where a member goes that names none.
        begun: gets "started" once all members run; what is given up before is rolled back.
        again: it may have been launched before; then that launch is reported.
        ask: somebody can be asked whether a measurement may end; None: it may.
    """
    async with group_session(planning.hosts_of(profile, host), all_of_them=True) as hosts:
        group = await _launched_before(hosts, group_id) if again else None
        if group is None:
            link = next(iter(hosts.sessions.values())).transport
            plan = await until_answered(link, lambda: planning.plan(hosts, profile, host, sets, group_id), _PLAN_S)
            for finding in plan.findings:
                if finding.level == "warn":
                    say(str(finding))
            if replace and not await may_replace(ask, plan):
                return 1
            async with aclosing(hosts.launch(plan, replace=replace)) as progress:
                async for step in progress:
                    if not as_json:
                        say(step.text)
            group = plan.group
        begun.append("started")
        if wait_ready:
            return await wait_for_group(hosts, group, "ready", timeout_s, as_json)
        # What dies at once is reported now, not at the next look.
        state = await look_at(hosts, group, end_others=True)
        crashed = state.outcome is Outcome.CRASHED
        if as_json:
            emit(group_json(state))
        elif crashed:
            say_outcome(state)
        else:
            print(group.group_id)
        return 1 if crashed else 0


async def plan_group(profile: LaunchProfile, host: str, sets: Mapping[str, object]) -> GroupPlan:
    """The launch of a profile with `[nodes]` or `[group]`, checked and not made."""
    async with group_session(planning.hosts_of(profile, host), all_of_them=True) as hosts:
        return await planning.plan(hosts, profile, host, sets)


async def _launched_before(hosts: GroupSession, group_id: str) -> Group | None:
    """The group of this id, where a host knows one of its runs, or cannot be asked whether it does."""
    group = group_on_record(group_id)
    return group if group is not None and any((await hosts.runs_of(group)).values()) else None


# wait


async def wait_for_group(
    hosts: GroupSession, group: Group, until: str, timeout_s: float, as_json: bool, progress: bool = False
) -> int:
    """Waits, reports the outcome, and gives the exit code. Raises TimedOut."""
    last: GroupState | None = None
    shown: object = None
    over_at: float | None = None
    try:
        async with asyncio.timeout(max(timeout_s, LOOK_S)), aclosing(hosts.watch(group)) as updates:
            async for update in updates:
                last = update.state
                if update.settled and until == "ready" and last.outcome is Outcome.READY:
                    break
                job = last.job
                if until == "ready" and last.outcome is Outcome.QUEUED and job is not None and job.never is not None:
                    break
                if until == "ready" and last.outcome in (Outcome.CRASHED, Outcome.STOPPED):
                    over_at = over_at or time.monotonic()
                    if time.monotonic() - over_at > _ENDS_FOLLOW_S:  # the end of a member whose host does not answer
                        break
                if (progress or not as_json) and update.settled:
                    shown = _say_progress(last, shown)
    except TimeoutError:
        late = TimedOut(
            f"{group.group_id} {'is not ready' if until == 'ready' else 'has not ended'} after {timeout_s:g} s",
            "it keeps running; use a longer --timeout with eagletui wait",
        )
        late.details = {key: value for key, value in (group_json(last) if last else {}).items() if key != "error"}
        raise late from None
    if last is None:
        raise EagletuiError(f"{group.group_id} gave no state", "see eagletui ps")
    if as_json:
        emit(group_json(last))
    else:
        say_outcome(last)
    if until == "ready":
        return 0 if last.outcome is Outcome.READY else 1
    return 0 if last.outcome is Outcome.STOPPED else 1


async def look_at(hosts: GroupSession, group: Group, *, end_others: bool = False) -> GroupState:
    """What a look shows. Raises EagletuiError."""
    last: GroupState | None = None
    try:
        async with asyncio.timeout(LOOK_S), aclosing(hosts.watch(group, end_others=end_others)) as updates:
            async for update in updates:
                last = update.state
                if update.settled and last.outcome is not Outcome.CRASHED:
                    break
    except TimeoutError:
        pass
    if last is None:
        raise EagletuiError(f"{group.group_id} gave no state", "try again")
    return last


def _say_progress(state: GroupState, shown: object) -> object:
    """Reports how far a start is where that is news; what was reported is the next call's `shown`."""
    if state.outcome is Outcome.QUEUED:
        queued = queue_words(state.job)
        if queued != shown:
            say(f"{time.strftime('%H:%M:%S')} {queued}")
        return queued
    words = [_progress_of(one) for one in state.members]
    steps = [_progress_of(one, tenths=True) for one in state.members]
    suspicions = {one.member.name: one.state.suspicion for one in state.members if one.state and one.state.suspicion}
    waits = state.late or (f"waits for {state.waits_for}" if state.waits_for else None)
    key = (state.outcome, steps, list(suspicions), waits)
    if key != shown and state.outcome in (Outcome.STARTING, Outcome.UNKNOWN):
        hangs = "".join(f"; {name} may hang: {why}" for name, why in suspicions.items())
        say(f"{time.strftime('%H:%M:%S')} {', '.join(words)}{hangs}{f'; {waits}' if waits else ''}")
    return key


def _progress_of(one: MemberState, *, tenths: bool = False) -> str:
    """How far a member is; in `tenths`, so that not each shard is news."""
    if one.state is None:
        return (
            f"{one.member.name} unknown: no answer from {one.member.host}" if one.link_lost else f"{one.member.name} –"
        )
    progress = one.state.startup.progress
    done = f" {progress.what} {progress.done}/{progress.total}" if progress else ""
    if progress and tenths:
        done = f" {progress.what} {progress.done * 10 // max(1, progress.total)}"
    lost = " (link lost)" if one.link_lost else ""
    return f"{one.member.name} {one.state.phase.replace('_', ' ')}{done}{lost}"


def say_outcome(state: GroupState, *, diagnosed: bool = True) -> None:
    """The end of a wait, for a person; with the diagnosis of the member that failed."""
    group, serving = state.group, state.group.serving
    job = state.job
    if state.outcome is Outcome.QUEUED:
        say(f"{queue_words(job)}; eagletui stop {group.group_id} cancels it")
        return
    if (warning := ending_words(job)) is not None:
        say(warning)
    if state.outcome is Outcome.READY:
        took = f" after {state.ready_after_s:.0f} s" if state.ready_after_s is not None else ""
        port = next((one.state.run.port for one in state.members if one.member == serving and one.state), None)
        say(
            f"ready{took}: {group.group_id} on {', '.join(group.hosts)}; {serving.name} on {state.place_of(serving)} serves port {port}"
        )
        return
    failure = state.failure
    code = f", exit code {failure.run.exit_code}" if failure and failure.run.exit_code is not None else ""
    ended = f" ({end})" if (end := end_words(job)) is not None else ""  # no rank's doing
    where = ended or (
        f" by {state.failed.name} on {state.place_of(state.failed)}{code}, in {state.phase.replace('_', ' ')}"
        if state.failed
        else ""
    )
    say(f"{state.outcome}: {group.group_id}{where}")
    if diagnosed and failure is not None and failure.diagnosis is not None:
        say(f"{failure.diagnosis.cause}: {failure.diagnosis.title}")
        if failure.diagnosis.evidence:
            say(f"line {failure.diagnosis.evidence.line}: {one_line(failure.diagnosis.evidence.text, 200)}")
        for advice in failure.diagnosis.advice:
            say(f"- {advice}")


# stop


async def stop_group(hosts: GroupSession, group: Group, grace_s: float, as_json: bool, asked: list[str]) -> int:
    """Stops all members; 1 where one is stuck or cannot be asked. `asked` gets what hosts were told to stop."""
    last: dict[Member, StopProgress] = {}
    async with aclosing(hosts.stop(group, grace_s=grace_s)) as progress:
        async for step in progress:
            asked[:] = [group.group_id]
            if step.member is not None and step.stop is not None:
                last[step.member] = step.stop
            if not as_json:
                say(step.text)
    bad = [member for member, stop in last.items() if stop.step in ("stuck", "unreachable")]
    if as_json:
        found = await hosts.runs_of(group)
        members = [
            {
                **_member_json(member, run if isinstance(run, Run) else None),
                "stop": last[member].step if member in last else None,
                "message": last[member].text if member in last else None,
                "mem_held_mib": last[member].memory_held_mib if member in last else None,
            }
            for member, run in found.items()
        ]
        outcome = Outcome.UNKNOWN if bad else Outcome.STOPPED
        problem = {"error": last[bad[0]].step, "message": last[bad[0]].text, "hint": "see its host"} if bad else {}
        about = {"id": group.group_id, "profile": group.profile, "members": members}
        emit({**_head(group, outcome, None), "group": about, "error": None, **problem})
    return 1 if bad else 0


async def end_group(group: Group) -> None:
    """Stops a group that is in the way of a launch. Raises EagletuiError where a member of it may live on."""
    async with group_session(group.hosts) as hosts:
        if await stop_group(hosts, group, 20.0, False, []):
            raise EagletuiError(
                f"{group.group_id} is in the way and was not stopped whole", f"eagletui stop {group.group_id}"
            )


# ps, diagnose


def state_of_ended(run: Run, outcome: Outcome, record: LaunchRecord | None) -> ServerState:
    """A member that is over as far as its files and this machine's record tell, its log unread."""
    phase = Phase(record.phase) if record is not None and record.phase in list(Phase) else Phase.LAUNCH
    return ServerState(run, outcome, phase, StartupState())


def say_groups(states: Sequence[GroupState]) -> None:
    """The groups below the tables of runs. What a group has come to is known where all its hosts were asked."""
    if not states:
        return
    print(f"{'GROUP':<34} {'OUTCOME':<9} {'PHASE':<20} MEMBERS")
    for state in states:
        group = state.group
        whole = all(one.state is not None for one in state.members)
        outcome, phase = (str(state.outcome), str(state.phase)) if whole or state.failed else ("–", "–")
        if state.outcome is Outcome.READY and group.serving.role is Role.ROUTER:
            outcome, phase = "–", "members ready"  # a look sends no request through a router
        parts = [
            f"{one.member.name} {one.member.host} {one.state.outcome if one.state else 'not asked'}"
            for one in state.members
        ]
        print(f"{f'{group.profile} {short_id(group.group_id)}'[:34]:<34} {outcome:<9} {phase:<20} {', '.join(parts)}")


# JSON


def _head(group: Group, outcome: Outcome, serving: ServerState | None) -> dict[str, object]:
    """What is said of any run, about the whole group: its id, and the host, process and port of the member that serves."""
    if serving is None:
        run = Run(group.group_id, "server", group.profile, group.serving.host, RunState.UNKNOWN)
        return {**run_json(run, outcome, None)}
    return {**run_json(serving.run, outcome, serving.phase), "run": group.group_id}


def _member_json(member: Member, run: Run | None) -> dict[str, object]:
    return {
        "role": member.role,
        "number": member.number,
        "host": member.host,
        "run": member.run_id,
        "pid": run.pid if run is not None else None,
        "port": run.port if run is not None else None,
        "ended": run.ended_at if run is not None else None,
        "exit_code": run.exit_code if run is not None else None,
        **({"node": run.node} if run is not None and run.job is not None else {}),
    }


def group_json(state: GroupState) -> dict[str, object]:
    """A group as `launch`, `wait` and `diagnose` print it: the keys of a run, and `group`."""
    group, failure = state.group, state.failure
    serving = next((one.state for one in state.members if one.member == group.serving), None)
    took = round(state.ready_after_s, 1) if state.ready_after_s is not None else None
    members = [
        {
            **_member_json(one.member, one.state.run if one.state else None),
            "outcome": one.state.outcome if one.state else None,
            "phase": one.state.phase if one.state else None,
            "link_lost": one.link_lost,
            "diagnosis": diagnosis_json(one.state.diagnosis) if one.state else None,
        }
        for one in state.members
    ]
    return {
        **_head(group, state.outcome, serving),
        "phase": state.phase,
        "diagnosis": diagnosis_json(failure.diagnosis) if failure is not None else None,
        "ready_after_s": took,
        "error": None,
        "job": job_json(state.job),
        "group": {
            "id": group.group_id,
            "profile": group.profile,
            "failed": state.failed.name if state.failed else None,
            "late": state.late,
            "conditions": [{"text": one.text, "holds": one.holds, "detail": one.detail} for one in state.conditions],
            "members": members,
        },
    }


def job_json(job: Job | None) -> dict[str, object] | None:
    """A job of Slurm as scripts see it, with what follows from its figures."""
    if job is None:
        return None
    return {**asdict(job), "sentence": job.sentence or None, "ends_soon": job.ends_soon}


def membership_json(run: Run) -> dict[str, object] | None:
    """Of which group a run is, and as what; None where it is of none."""
    group = group_of(run.extra)
    member = next((one for one in group.members if one.run_id == run.run_id), None) if group is not None else None
    if group is None or member is None:
        return None
    return {"id": group.group_id, "role": member.role, "number": member.number, "hosts": list(group.hosts)}
