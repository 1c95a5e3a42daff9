"""`eagletui stop`: ends a run with everything it started."""

import asyncio

import click

from tui.commands import completing
from tui.commands.groups import group_on_record, group_session, stop_group
from tui.commands.live_one import live_one
from tui.commands.measured import may_stop, measurement_of_one, run_words
from tui.commands.options import SECONDS, host_option, json_option
from tui.commands.output import emit, run_async, say
from tui.commands.sessions import LOOK_S, host_of_run, run_json, session
from tui.commands.terminal import interactive
from tui.core.errors import EagletuiError, Slug
from tui.core.groups.session import GroupSession
from tui.core.model.group import Group, group_of
from tui.core.model.phases import Outcome
from tui.core.model.run import Run
from tui.core.server import launch_records
from tui.core.server.run_end import outcome_of_files


@click.command()
@click.argument("run", shell_complete=completing.runs)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--grace", type=SECONDS, metavar="S", default=20.0, show_default=True, help="Seconds to drain first.")
@host_option
@json_option
def command(run: str, yes: bool, grace: float, host: str | None, as_json: bool) -> int:
    """Stop a run with everything it started; reports when the GPU memory is free again."""
    asked: list[str] = []  # runs that the host has been told to stop
    ask = None if yes else interactive() and not as_json

    async def stop_all_of(group: Group) -> int:
        async with group_session(group.hosts) as hosts:
            what = f"{group.group_id}, all of it, on {', '.join(group.hosts)}"
            if not await may_stop(ask, what, None if yes else await _measures_group(hosts, group)):
                return 1
            return await stop_group(hosts, group, grace, as_json, asked)

    async def stop() -> int:
        meant = await live_one(run, host)
        if (group := group_on_record(meant)) is not None:
            return await stop_all_of(group)
        async with session(host_of_run(meant, host)) as opened:
            runs = await opened.heard_runs()
            found = await opened.find_run(meant, prefer_live=True, among=runs)
            group = group_of(found.extra)
            if group is not None:
                return await stop_all_of(group)
            if found.over and not found.orphans:
                if as_json:
                    emit(_json(found, None))
                else:
                    say(f"{found.run_id} has ended already")
                return 0
            if not await may_stop(ask, run_words(found), measurement_of_one(found, runs)):
                return 1
            last = None
            async for last in opened.stop(found, grace_s=grace):
                asked.append(found.run_id)
                if not as_json:
                    say(last.text)
            stuck = last is not None and last.step == "stuck"
            if as_json:
                document = _json(await opened.find_run(found.run_id), last.memory_held_mib if last else None)
                if stuck and last:
                    document |= {"error": "stuck", "message": last.text, "hint": "look at the host's dmesg"}
                emit(document)
            return 1 if stuck else 0

    try:
        return run_async(stop())
    except KeyboardInterrupt:
        if not asked:
            raise
        hint = f"the host keeps stopping {asked[0]} by itself"
        raise EagletuiError("interrupted", hint, slug=Slug.INTERRUPTED) from None


async def _measures_group(hosts: GroupSession, group: Group) -> Run | None:
    """The measurement of a group, as far as the host of the member that serves answers."""
    from tui.core.bench.collect import measurement_of

    try:
        async with asyncio.timeout(LOOK_S):
            runs = await hosts.of(group.serving).runs()
    except (EagletuiError, TimeoutError):
        return None  # the stop itself says what cannot be asked
    return measurement_of(runs, group.group_id, None)


def _json(run: Run, held_mib: float | None) -> dict[str, object]:
    known = launch_records.read(run.run_id)
    return {
        **run_json(run, outcome_of_files(run) or Outcome.STOPPED, known.phase if known else None),
        "diagnosis": None,
        "orphans": list(run.orphans),
        "mem_held_mib": held_mib,
        "error": None,
    }
