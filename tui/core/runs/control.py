"""Runs: one process tree on a host, started at most once, found again by any later eagletui, stopped as a whole.

The host does the work (`helper`) and holds the truth; here is what may be asked of it, and what its refusals mean.
docs/runs.md describes the files of a run, its states, and what is guaranteed.
"""

from collections.abc import Sequence
from dataclasses import replace

from tui.core.errors import EagletuiError, Slug, UsageError
from tui.core.hints import Action, Hint
from tui.core.link.retry import until_answered
from tui.core.link.transport import Transport
from tui.core.model.conflict import in_use
from tui.core.model.run import PortHolder, Run, RunState, StopState, short_id
from tui.core.runs import leases
from tui.core.runs.adopted import ask_engines
from tui.core.runs.foreign import ID_PREFIX, LOOPING_ENGINES, foreign_of, foreign_servers, listener, with_answers
from tui.core.runs.helper import Fields, call, knows_commands, number, runs_of, stop_state_of
from tui.core.runs.request import LaunchRequest, check, launch_arguments, launch_variables, requester
from tui.core.text import one_line

RESERVED_S = (
    180  # of the host's uptime: longer than a launch on all hosts of a group takes, short for who waits for a dead one
)


class RunBusy(EagletuiError):
    """The launch was refused because a GPU or the port is taken, or somebody is launching there right now.

    Attributes:
        what: gpus, port, listener or lock.
        run_id: our run that has it, if it is one.
        by: who stops that run or holds the lock, user@machine.
        holder: who listens, for `listener`.
    """

    slug = Slug.BUSY

    def __init__(
        self,
        message: str,
        hint: str | Hint,
        *,
        what: str,
        run_id: str | None = None,
        by: str | None = None,
        holder: PortHolder | None = None,
    ) -> None:
        super().__init__(message, hint)
        self.what = what
        self.run_id = run_id
        self.by = by
        self.holder = holder


async def launch(
    transport: Transport, request: LaunchRequest, *, who: str | None = None, timeout_s: float = 120.0
) -> Run:
    """Starts a run at most once, however often it is called with one id; a run that is there already is returned.

    A link that is lost meanwhile is waited for, and the launch repeated, until its outcome is known.

    Args:
        timeout_s: after so long the last LinkLost or TimedOut is raised; the run may then exist all the same, and the
            same request finds out.

    Raises:
        UsageError: a value that cannot be passed.
        RunBusy: the port or a GPU is taken; nothing was started.
        Held: somebody's experiment has one of the GPUs; nothing was started.
        EagletuiError: the files could not be written; nothing was started.
    """
    check(request)
    who = requester(who)
    arguments = launch_arguments(request, who)
    variables = {**launch_variables(request, who), "ER_LEASE": leases.holding.get()}

    async def ask() -> tuple[Run, ...]:
        answer = await call(transport, "launch", *arguments, variables=variables)
        for busy in answer.named("busy"):
            raise await _busy(transport, busy)
        return await runs_of(transport, answer)

    found = await until_answered(transport, ask, timeout_s)
    if not found or found[0].state is RunState.STAGED:
        raise EagletuiError(
            f"{transport.host}: {request.run_id} did not start within 10 s",
            "the host is very busy; launch again, it starts at most once",
            slug=Slug.NOT_STARTED,
        )
    return found[0]


async def reserve(transport: Transport, request: LaunchRequest, *, who: str | None = None) -> None:
    """Keeps GPUs and port of a launch for `RESERVED_S`, so that nobody else is started on them; the launch of the same id takes
    them over. A reservation ends by itself at that time, at `release`, and when the host is restarted.

    Raises what `launch` raises; nothing is reserved then.
    """
    check(request)
    who = requester(who)
    variables = {"ER_CMD": launch_variables(request, who)["ER_CMD"], "ER_LEASE": leases.holding.get()}

    async def ask() -> None:
        answer = await call(transport, "reserve", str(RESERVED_S), *launch_arguments(request, who), variables=variables)
        for busy in answer.named("busy"):
            raise await _busy(transport, busy)

    await until_answered(transport, ask, RESERVED_S / 3)


async def release(transport: Transport, run_ids: Sequence[str]) -> None:
    """Gives back what was reserved for runs that were not started; of others nothing changes."""
    await call(transport, "release", *run_ids)


async def _busy(transport: Transport, busy: Fields) -> EagletuiError:
    what = busy.get("what", "")
    if what == "lease":
        return leases.Held(transport.host, leases.Lease.of(busy))
    by = one_line(busy.get("by", ""), 80) or None
    run_id = one_line(busy.get("run", ""), 100) or None
    if what == "listener":
        port = number(busy.get("port")) or 0
        holder = await listener(transport, port)
        return RunBusy(
            f"{transport.host}: {in_use(f'port {port}', holder or 'a process that has just ended')}",
            "stop it or choose another port",
            what=what,
            run_id=holder.run_id if holder else None,
            holder=holder,
        )
    if what == "lock":
        return RunBusy(
            f"{transport.host}: {by or 'somebody'} is launching on {busy.get('name', '').replace('-', ' ')} right now",
            "try again in a moment",
            what=what,
            by=by,
        )
    if what == "measured":
        return EagletuiError(
            f"{transport.host}: the server is being measured by {run_id}",
            Hint(Action.WAIT_OR_STOP, short_id(run_id or "")),
            slug=Slug.BUSY,
        )
    thing = f"port {busy.get('port')}" if what == "port" else f"GPU {busy.get('gpus')}"
    stopping = busy.get("stop") not in ("", "done", "stuck", None)
    return RunBusy(
        f"{transport.host}: {in_use(thing, run_id)}" + (f", which {by or 'somebody'} is stopping" if stopping else ""),
        "wait until it is gone" if stopping else Hint(Action.STOP_OR_REPLACE, run_id or ""),
        what=what,
        run_id=run_id,
        by=by if stopping else None,
    )


async def status(transport: Transport, ids: Sequence[str]) -> tuple[Run, ...]:
    """These runs as they are now, newest first; those that are not on the host are left out."""
    return await runs_of(transport, await call(transport, "status", *ids)) if ids else ()


async def refresh(transport: Transport, run: Run) -> Run | None:
    """The same run as it is now, None where its files are gone; a foreign server that ended is EXITED.

    A foreign container that its engine has started again stays the same run, with another pid (None while it is dead).
    """
    if run.foreign or run.run_id.startswith(ID_PREFIX):
        return await _foreign_now(transport, run)
    found = await status(transport, [run.run_id])
    return found[0] if found else None


async def _foreign_now(transport: Transport, run: Run) -> Run:
    box = run.container
    for dead in (False, True) if box is not None else (False,):
        for other in await foreign_servers(transport, dead=dead):
            if run.pid is not None and (other.pid, other.start_ticks) == (
                run.pid,
                run.start_ticks or other.start_ticks,
            ):
                return other
            if box is not None and other.container is not None and other.container.container_id == box.container_id:
                return replace(other, run_id=run.run_id, host=run.host)
    code = None
    if box is not None and box.engine is not None:
        now = (await ask_engines(transport, [box.container_id]))[box.container_id]
        if now.looping and now.status == "running":  # its first process is no server yet
            return replace(run, pid=None, start_ticks=None, container=now)
        code = None if now.status == "running" else now.exit_code
    return replace(run, state=RunState.EXITED, exit_code=code)


async def list_runs(transport: Transport) -> tuple[Run, ...]:
    """All runs of this user on the host, newest first; of those that are over, the host keeps the newest 200."""
    return await runs_of(transport, await call(transport, "list" if knows_commands(transport) else "all"))


async def look(transport: Transport) -> tuple[Run, ...]:
    """What `list_runs` and `foreign_servers` tell, in one call: over a far link it waits once, and the process table is read once."""
    answer = await call(transport, "look", LOOPING_ENGINES, *([] if knows_commands(transport) else ["all"]))
    return *with_answers(await runs_of(transport, answer), answer), *await foreign_of(transport, answer)


async def stop(
    transport: Transport, run_id: str, grace_s: float = 20.0, *, who: str | None = None, timeout_s: float = 120.0
) -> StopState:
    """Asks for the end of a run's whole tree; the host carries it out by itself, so a lost link cannot cut it short.

    Returns as soon as the host has it; a link that is lost before that is waited for, up to `timeout_s`.

    First SIGTERM to the main process alone, up to `grace_s` seconds; then SIGTERM, then SIGKILL to what is left.
    Asking again changes nothing, except that a shorter patience is heard. Follow it with `stop_state`.

    Raises:
        UsageError: a foreign server.
        EagletuiError: the run is in another PID namespace; no signal was sent.
    """
    if run_id.startswith(ID_PREFIX):
        raise UsageError(
            f"{run_id} was not started by eagletui; it is watched only",
            "stop it the way it was started",
            slug=Slug.FOREIGN,
        )
    grace = str(max(0, -int(-grace_s // 1)))

    async def ask() -> StopState:
        return await stop_state_of(transport, await call(transport, "stop", run_id, grace, requester(who)))

    return await until_answered(transport, ask, timeout_s)


async def stop_state(transport: Transport, run_id: str) -> StopState:
    """How far the stop of a run has come."""
    return await stop_state_of(transport, await call(transport, "status", run_id))
