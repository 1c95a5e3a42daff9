"""`eagletui launch`: starts a server by a profile."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tui.commands import completing
from tui.commands.measured import may_replace
from tui.commands.options import host_option, json_option, set_option, timeout_option, yes_option
from tui.commands.output import Interrupted, emit, run_async, say
from tui.commands.sessions import session, state_json, state_of
from tui.commands.terminal import interactive
from tui.commands.wait import say_outcome, wait
from tui.core.config import default_host, load_settings, profile_dirs
from tui.core.errors import UsageError, of_system
from tui.core.groups import planning
from tui.core.model.group import group_of
from tui.core.model.phases import Outcome
from tui.core.model.run import Run, short_id
from tui.core.profiles.command import render_command
from tui.core.profiles.launch_profile import LaunchProfile
from tui.core.profiles.load import load_launch
from tui.core.profiles.resolve import read_sets
from tui.core.records import to_json
from tui.core.runs.request import new_run_id
from tui.core.server.launch import LaunchPlan, started
from tui.core.server.launch_requests import run_id_for
from tui.core.server.session import HostSession
from tui.core.text import one_line

if TYPE_CHECKING:
    from tui.core.groups.session import GroupPlan
    from tui.core.journal.model import Known


@dataclass(frozen=True)
class _Order:
    """One launch as it was asked for."""

    profile: LaunchProfile
    where: str  # the host, or where a member of a group goes that names none
    changes: Mapping[str, object]
    run_id: str  # of the run, or the group
    again: bool  # it may have been launched before, by the same request
    replace: bool
    ask: bool | None  # before a measurement ends with what is replaced; None: it may
    wait_ready: bool
    timeout_s: float
    as_json: bool


@click.command()
@click.argument("name", shell_complete=completing.launch_profiles)
@host_option
@set_option
@click.option("--replace", is_flag=True, help="Stop our server on those GPUs first, wait for the memory.")
@yes_option
@click.option("--dry-run", is_flag=True, help="Only the checks and the command, or a job's batch script.")
@click.option("--wait", "wait_ready", is_flag=True, help="Until ready (0), crashed (1) or timed out (4).")
@timeout_option
@click.option("--request-id", metavar="ID", help="Yours: asked again with the same, it is the same launch.")
@json_option
@click.pass_obj
def command(
    directory: Path | None,
    name: str,
    host: str | None,
    sets: tuple[str, ...],
    replace: bool,
    yes: bool,
    dry_run: bool,
    wait_ready: bool,
    timeout: float | None,
    request_id: str | None,
    as_json: bool,
) -> int:
    """Start a server from a profile."""
    profile = load_launch(name, profile_dirs(directory), sets)
    where = host or profile.host or default_host()
    profile = planning.on_host(profile, load_settings().host(where))
    if profile.nodes is not None and host is not None:
        raise UsageError(f"--host and [nodes] of {name} exclude each other", "choose others with --set nodes.hosts=A,B")
    changes = read_sets(sets)
    if dry_run and profile.slurm is not None:
        return _print_script(profile, where, changes, as_json)
    if dry_run:
        return run_async(_check(profile, where, changes, as_json))
    order = _Order(
        profile,
        where,
        changes,
        run_id=run_id_for(request_id, profile.name, where, changes) if request_id else new_run_id(profile.name),
        again=bool(request_id),
        replace=replace,
        ask=None if yes else interactive() and not as_json,
        wait_ready=wait_ready,
        timeout_s=profile.startup_timeout_s if timeout is None else timeout,
        as_json=as_json,
    )
    return _launch_several(order) if profile.several else _launch_one(order)


def _launch_one(order: _Order) -> int:
    begun: list[str] = []

    async def start() -> int:
        async with session(order.where) as opened:
            if order.again and (known := await opened.run_by_id(order.run_id)) is not None:
                return await _report(opened, known, order)
            plan = await opened.plan(order.profile, order.changes)
            for finding in plan.findings:
                if finding.level == "warn":
                    say(str(finding))
            for earlier in _known(order.profile, order.changes, order.where):
                say(_known_words(earlier))
            if order.replace and not await may_replace(order.ask, plan):
                return 1
            if order.replace and await _ends_groups(plan):
                plan = await opened.check(plan)
            begun[:] = ["asked"]
            launching = opened.launch(plan, replace=order.replace, run_id=order.run_id)
            run = await started(launching, None if order.as_json else say)
            begun[:] = ["started"]
            if not order.as_json:
                say(f"started {run.run_id} on {run.host}, port {run.port}")
            return await _report(opened, run, order)

    return _until_interrupted(start, order.run_id, (order.where,), begun)


async def _report(opened: HostSession, run: Run, order: _Order) -> int:
    if order.wait_ready:
        return await wait(opened, run, "ready", order.timeout_s, order.as_json)
    # A launch that dies at once (no such program, a bad flag) is reported now, not at the next look.
    state = await state_of(opened, run)
    crashed = state.outcome is Outcome.CRASHED
    if order.as_json:
        emit(state_json(state))
    elif crashed:
        say_outcome(state)
    else:
        print(run.run_id)
    return 1 if crashed else 0


def _launch_several(order: _Order) -> int:
    """A profile with `[nodes]`, `[group]` or `[slurm]`."""
    from tui.commands.groups import launch_group

    begun: list[str] = []

    async def start() -> int:
        return await launch_group(
            order.profile,
            order.where,
            order.changes,
            begun,
            group_id=order.run_id,
            again=order.again,
            replace=order.replace,
            ask=order.ask,
            wait_ready=order.wait_ready,
            timeout_s=order.timeout_s,
            as_json=order.as_json,
        )

    return _until_interrupted(start, order.run_id, planning.hosts_of(order.profile, order.where), begun)


def _until_interrupted(
    start: Callable[[], Coroutine[Any, Any, int]], run_id: str, hosts: Sequence[str], begun: Sequence[str]
) -> int:
    """The exit code of a launch. Raises Interrupted on Ctrl-C, with the run that goes on; `begun` says how far it was."""
    try:
        return run_async(start())
    except KeyboardInterrupt:
        if not begun:
            raise
        where = ", ".join(one_line(host, 60) for host in hosts)
        goes_on = "keeps running" if "started" in begun else "was being launched, and may run"
        error = Interrupted(
            f"interrupted; {run_id} {goes_on} on {where}",
            f"eagletui wait {short_id(run_id)} waits for it, eagletui stop {short_id(run_id)} ends it",
        )
        error.details = {"run": run_id, "hosts": list(hosts)}
        raise error from None


async def _check(profile: LaunchProfile, where: str, changes: Mapping[str, object], as_json: bool) -> int:
    """What a launch would run and what stands in its way; 1 where it would be refused."""
    plan: LaunchPlan | GroupPlan
    if profile.several:
        from tui.commands.groups import plan_group

        plan = await plan_group(profile, where, changes)
        plans = plan.plans
    else:
        async with session(where) as opened:
            plan = await opened.plan(profile, changes)
        plans = (plan,)
    known = _known(profile, changes, where)
    if as_json:
        commands = [{"argv": list(one.command.argv), "env": dict(one.command.env)} for one in plans]
        found = [finding.json() for finding in plan.findings]
        earlier = [to_json(one) for one in known]
        document = {"host": where, "blocked": plan.blocked, "findings": found, "known": earlier, "commands": commands}
        emit(document | {"error": None})
    else:
        print("\n\n".join(render_command(one.command) for one in plans))
        for finding in plan.findings:
            print(f"{finding.level:<5} {finding}")
        for one in known:
            print(f"known {_known_words(one)}")
    return 1 if plan.blocked else 0


def _known(profile: LaunchProfile, changes: Mapping[str, object], where: str) -> "tuple[Known, ...]":
    """What the journal knows of such a launch; where it cannot be read, that is said and hinders nothing."""
    from tui.core.journal import reading, writing

    writing.sync_quietly()
    try:
        return reading.knows(profile, changes, where)
    except OSError as error:
        say(of_system(error).message)
        return ()


def _known_words(one: "Known") -> str:
    return f"{one.text} (eagletui journal show {short_id(one.run_id)})"


def _print_script(profile: LaunchProfile, host: str, changes: Mapping[str, object], as_json: bool) -> int:
    """The batch script of a launch as its host would be given it."""
    from tui.core.groups.jobs import group_for, job_launch

    request = job_launch(profile, load_settings().host(host), group_for(profile, host), changes).request
    if as_json:
        emit({"run": request.run_id, "host": host, "sbatch": list(request.options), "script": request.script})
    else:
        print(request.script, end="")
    return 0


async def _ends_groups(plan: LaunchPlan) -> bool:
    """Stops the groups whose members are in the way of a launch, on all their hosts; whether there were any."""
    in_the_way = {group.group_id: group for run in plan.replaces if (group := group_of(run.extra)) is not None}
    if not in_the_way or plan.blocked_without(run.run_id for run in plan.replaces):
        return False
    from tui.commands.groups import end_group

    for group in in_the_way.values():
        await end_group(group)
    return True
