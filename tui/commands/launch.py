"""`eagletui launch`: starts a server by a profile."""

from pathlib import Path

import click

from tui.commands.options import host_option, json_option, set_option, timeout_option
from tui.commands.output import emit, run_async, say
from tui.commands.sessions import session, state_json, state_of
from tui.commands.wait import say_outcome, wait
from tui.core.config import default_host, profile_dirs
from tui.core.errors import UsageError
from tui.core.model.group import group_of
from tui.core.model.phases import Outcome
from tui.core.model.run import Run
from tui.core.profiles.load import load_launch
from tui.core.server.launch import LaunchPlan, started
from tui.core.server.launch_requests import run_id_for
from tui.core.server.session import HostSession


@click.command()
@click.argument("name")
@host_option
@set_option
@click.option("--replace", is_flag=True, help="Stop our server on those GPUs first, wait for the memory.")
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
    wait_ready: bool,
    timeout: float | None,
    request_id: str | None,
    as_json: bool,
) -> int:
    """Start a server from a profile."""
    profile = load_launch(name, profile_dirs(directory), sets)
    timeout_s = profile.startup_timeout_s if timeout is None else timeout
    changes = dict(item.split("=", 1) for item in sets)
    run_id = run_id_for(request_id, profile.name) if request_id is not None else None
    if profile.several:
        if profile.nodes is not None and host is not None:
            raise UsageError(
                f"--host and [nodes] of {name} exclude each other", "choose others with --set nodes.hosts=A,B"
            )
        from tui.commands.groups import launch_group

        where = host or default_host()
        return run_async(
            launch_group(
                profile, where, changes, replace=replace, wait_ready=wait_ready, timeout_s=timeout_s, as_json=as_json
            )
        )

    async def start() -> int:
        async with session(host or profile.host or default_host()) as opened:
            asked = await opened.run_by_id(run_id) if run_id is not None else None
            if asked is not None:
                return await report(opened, asked)
            plan = await opened.plan(profile, changes)
            for finding in plan.findings:
                if finding.level == "warn":
                    say(str(finding))
            if replace and await _ends_groups(plan):
                plan = await opened.check(plan)
            run = await started(opened.launch(plan, replace=replace, run_id=run_id), None if as_json else say)
            if not as_json:
                say(f"started {run.run_id} on {run.host}, port {run.port}")
            return await report(opened, run)

    async def report(opened: HostSession, run: Run) -> int:
        if wait_ready:
            return await wait(opened, run, "ready", timeout_s, as_json)
        # A launch that dies at once (no such program, a bad flag) is reported now, not at the next look.
        state = await state_of(opened, run)
        crashed = state.outcome is Outcome.CRASHED
        if as_json:
            emit(state_json(state))
        elif crashed:
            say_outcome(state)
        else:
            print(run.run_id)
        return 1 if crashed else 0

    return run_async(start())


async def _ends_groups(plan: LaunchPlan) -> bool:
    """Stops the groups whose members are in the way of a launch, on all their hosts; whether there were any."""
    in_the_way = {group.group_id: group for run in plan.replaces if (group := group_of(run.extra)) is not None}
    if not in_the_way or plan.blocked_without(run.run_id for run in plan.replaces):
        return False
    from tui.commands.groups import end_group

    for group in in_the_way.values():
        await end_group(group)
    return True
