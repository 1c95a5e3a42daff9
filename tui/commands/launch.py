"""`eagletui launch`: starts a server by a profile."""

from pathlib import Path

import click

from tui.commands.options import host_option, json_option, set_option, timeout_option
from tui.commands.output import emit, run_async, say
from tui.commands.sessions import session, state_json, state_of
from tui.commands.wait import say_outcome, wait
from tui.core.config import default_host, profile_dirs
from tui.core.model.phases import Outcome
from tui.core.profiles.load import load_launch
from tui.core.server.launch import started


@click.command()
@click.argument("name")
@host_option
@set_option
@click.option("--replace", is_flag=True, help="Stop our server on those GPUs first, wait for the memory.")
@click.option("--wait", "wait_ready", is_flag=True, help="Until ready (0), crashed (1) or timed out (4).")
@timeout_option
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
    as_json: bool,
) -> int:
    """Start a server from a profile."""
    profile = load_launch(name, profile_dirs(directory), sets)

    async def start() -> int:
        async with session(host or profile.host or default_host()) as opened:
            plan = await opened.plan(profile, dict(item.split("=", 1) for item in sets))
            for finding in plan.findings:
                if finding.level == "warn":
                    say(str(finding))
            run = await started(opened.launch(plan, replace=replace), None if as_json else say)
            if not as_json:
                say(f"started {run.run_id} on {run.host}, port {run.port}")
            if wait_ready:
                return await wait(
                    opened, run, "ready", profile.startup_timeout_s if timeout is None else timeout, as_json
                )
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
