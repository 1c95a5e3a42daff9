"""Sessions of commands with a host, and runs as scripts see them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tui.commands.terminal import TerminalAsker
from tui.core.config import default_host
from tui.core.errors import EagletuiError, HostError, Slug
from tui.core.link.transport import Asker, LinkState
from tui.core.model.run import Run
from tui.core.records import to_json
from tui.core.server import launch_records
from tui.core.server.server_state import ServerState
from tui.core.server.session import HostSession, open_session, settled_state
from tui.core.sglang.diagnosis import Diagnosis
from tui.demo.client import register

_DROPPED_WAIT_S = 15.0
LOOK_S = 10.0  # how long a look at a run may take


@asynccontextmanager
async def session(host: str, asker: Asker | None = None) -> AsyncIterator[HostSession]:
    """A connected session, closed at the end.

    Args:
        asker: shared by several sessions, so that one question is asked at a time.
    """
    register()
    opened = await open_session(host, asker or TerminalAsker())
    try:
        try:
            await opened.open()
        except HostError as error:
            if not await is_up(opened, error):
                raise
        yield opened
    finally:
        await opened.close()


async def is_up(opened: HostSession, error: HostError) -> bool:
    """Whether the link came up all the same, after its first try failed.

    sshd drops new connections at random while many are under way (MaxStartups); the link is tried again by itself.
    """
    if error.slug != Slug.DROPPED:
        return False
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_DROPPED_WAIT_S):
            async for status in opened.link():
                if status.state is LinkState.UP:
                    return True
                if status.state in (LinkState.REFUSED, LinkState.WAITING):
                    return False
    return False


def host_of_run(run: str, host: str | None) -> str:
    """Where a run is: this machine's record of launches knows, else the default host."""
    if host:
        return host
    known = launch_records.read_all()
    run_id = launch_records.match_run(run, [record.run_id for record in known])
    return next((record.host for record in known if record.run_id == run_id), default_host())


def raise_if_refused(opened: HostSession) -> None:
    """Raises HostError where the link waits for a person: nobody is here to log in again."""
    status = opened.transport.status()
    if status.error is not None and status.state in (LinkState.WAITING, LinkState.REFUSED):
        raise status.error


async def state_of(opened: HostSession, run: Run, *, fresh: bool = False) -> ServerState:
    """What a look shows; `fresh`: the run is from one just now. Raises EagletuiError."""
    latest = await settled_state(opened, run, LOOK_S, fresh=fresh)
    if latest is None:
        raise EagletuiError(f"{run.run_id} gave no state", "try again")
    return latest


def run_json(run: Run, outcome: str, phase: str | None) -> dict[str, object]:
    """What `launch`, `wait`, `stop` and `ps` print of a run."""
    return {
        "run": run.run_id,
        "host": run.host,
        "profile": run.profile,
        "outcome": outcome,
        "phase": phase,
        "pid": run.pid,
        "port": run.port,
        "started": run.started_at,
        "ended": run.ended_at,
        "exit_code": run.exit_code,
    }


def state_json(state: ServerState) -> dict[str, object]:
    """A server's state as `launch` and `wait` print it."""
    run = state.run
    return {
        **run_json(run, state.outcome, state.phase if run.kind == "server" else None),
        "diagnosis": diagnosis_json(state.diagnosis),
        "ready_after_s": round(state.ready_after_s, 1) if state.ready_after_s is not None else None,
        "error": None,
    }


def diagnosis_json(diagnosis: Diagnosis | None) -> dict[str, object] | None:
    """A diagnosis as scripts see it."""
    names = ("cause", "title", "phase", "rank", "evidence", "source", "advice", "set")
    return {name: to_json(getattr(diagnosis, name)) for name in names} if diagnosis is not None else None
