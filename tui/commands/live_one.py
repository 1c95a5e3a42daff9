"""Which run `stop` and `wait` mean by a name that fits several."""

import asyncio
from collections.abc import Sequence

from tui.commands.groups import group_session
from tui.core.errors import EagletuiError
from tui.core.groups.watcher import DOWN
from tui.core.link.retry import until_answered
from tui.core.model.group import group_id_of
from tui.core.runs import control
from tui.core.server import launch_records
from tui.core.server.session import HostSession

_FIND_S = 30.0


async def live_one(reference: str, host: str | None, *, newest: bool = False) -> str:
    """What is given, or the id of the one run or group that lives where it fits several by this machine's records.

    Their hosts are asked only then. Raises UsageError where not exactly one lives, HostError where no host can be asked.

    Args:
        newest: of those that have all ended, one perhaps just now, the last one launched is meant.
    """
    known = {record.run_id: record for record in launch_records.read_all() if host in (None, record.host)}
    wholes = launch_records.wholes_named(reference, known)
    if len(wholes) < 2:
        return reference
    ids: dict[str, list[str]] = {}  # by host, of those that are not known to have ended
    for run_id in (run_id for members in wholes.values() for run_id in members):
        if known[run_id].ended_at is None:
            ids.setdefault(known[run_id].host, []).append(run_id)
    live: set[str] = set()
    if ids:
        async with group_session(ids) as hosts:
            live.update(*await asyncio.gather(*(_may_live(hosts.sessions[name], ids[name]) for name in ids)))
    if newest and not live:
        return max(wholes, key=lambda whole: max(known[run_id].launched_at for run_id in wholes[whole]))
    meant = launch_records.match_run(reference, known, live)
    assert meant is not None
    return group_id_of(meant) or meant


async def _may_live(session: HostSession, run_ids: Sequence[str]) -> list[str]:
    """Those that live, or whose host does not answer: what is not known is nobody else's end."""
    transport = session.transport
    if transport.status().state in DOWN:
        return list(run_ids)
    try:
        found = await until_answered(transport, lambda: control.status(transport, run_ids), _FIND_S)
        ranks = await until_answered(transport, session.ranks, _FIND_S)
    except EagletuiError:
        return list(run_ids)
    return [run.run_id for run in (*found, *ranks) if run.active]
