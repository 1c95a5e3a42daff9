"""A host among others, as the overview shows it: its badge, its GPUs, what is measured, what happened last. No widget."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

from tui import format as fmt
from tui.core.host.gpus import MEMORY_IDLE_MIB
from tui.core.link.transport import LinkState
from tui.core.model.group import Member
from tui.core.model.phases import Outcome, Phase
from tui.core.model.run import RunState
from tui.core.text import epoch_of, one_line
from tui.panel.host_view import Board, one_server, run_name
from tui.panel.server_view import LONG, Badge, badge

if TYPE_CHECKING:
    from tui.core.server.server_state import ServerState

_RUNS_LOOKED_AT = 8  # the newest of a host; the overview has room for few events
_BUSY_PCT = 5.0

_LINKS = {
    LinkState.CONNECTING: Badge("◐", "CONNECTING", "accent", "accbg"),
    LinkState.LOST: Badge("▲", "NOT REACHED", "warn", "warnbg"),
    LinkState.WAITING: Badge("?", "ASKS YOU", "accent", "accbg"),
    LinkState.REFUSED: Badge("✗", "REFUSED", "err", "errbg"),
    LinkState.CLOSED: Badge("■", "CLOSED", "muted", "raised"),
}
_LAUNCHING = Badge("◌", "LAUNCH", "muted", "raised")
_MEASURING = Badge("◐", "MEASURING", "accent", "accbg")
_LOOKING = Badge("◌", "LOOKING", "muted", "raised")
_NO_SERVER = Badge("○", "NO SERVER", "muted", "raised")


def badge_of(board: Board) -> Badge:
    """What a host's server does; of a host without one, how its link is."""
    state = board.state
    if board.busy:
        return _LAUNCHING
    if state is not None and (board.connected or board.alive):
        if board.group_state is not None:  # one server, however many hosts it is on
            state = replace(state, outcome=board.group_state.outcome, suspicion=None)
        measured = board.connected and state.outcome is Outcome.READY and not board.stopping and measuring(board)
        return _MEASURING if measured else badge(state, stale=board.stale, stopping=board.stopping)
    if not board.connected:
        unheard = LinkState.LOST if board.problem is not None else LinkState.CONNECTING
        return _LINKS[board.link.state if board.link is not None else unheard]
    return _NO_SERVER if board.runs_read and not board.live_servers() else _LOOKING


def member_of(board: Board) -> Member | None:
    """Which member of a group the displayed run is; None where it is a server of its own."""
    members = board.group.members if board.group is not None else ()
    return next((one for one in members if board.run is not None and one.run_id == board.run.run_id), None)


def state_of(board: Board) -> "ServerState | None":
    """The state of the displayed run; of a group's member as the group counts it."""
    member = member_of(board)
    whole = board.group_state
    seen = whole.members if whole is not None else ()
    state = next((one.state for one in seen if one.member == member and one.state is not None), board.state)
    if state is None or whole is None or whole.outcome is not Outcome.STARTING:
        return state
    return replace(state, eta_s=whole.eta_s, started_s=whole.started_s or state.started_s)  # one start, one time


def servers(boards: Sequence[Board]) -> list[Board]:
    """One board for each server: a group counts once, by its serving member where that is among them."""
    found: dict[str, Board] = {}
    for board in boards:
        group = board.group
        key = board.host if group is None else group.group_id
        if group is None or key not in found or member_of(board) == group.serving:
            found[key] = board
    return list(found.values())


@dataclass(frozen=True)
class GpuUse:
    """All GPUs of a host together; memory in MiB, None where no GPU says."""

    count: int
    busy: int
    used_mib: float | None
    total_mib: float | None
    utilization_pct: float | None
    power_w: float | None


def gpu_use(board: Board) -> GpuUse | None:
    """What the GPUs of a host do, as last seen; None where they can't be read."""
    gpus = board.sample.gpus if board.sample is not None else ()
    if not gpus:
        return None
    busy = sum((g.memory_used_mib or 0.0) > MEMORY_IDLE_MIB or (g.utilization_pct or 0.0) >= _BUSY_PCT for g in gpus)
    utilization = _known(g.utilization_pct for g in gpus)
    return GpuUse(
        len(gpus),
        busy,
        _sum(_known(g.memory_used_mib for g in gpus)),
        _sum(_known(g.memory_total_mib for g in gpus)),
        sum(utilization) / len(utilization) if utilization else None,
        _sum(_known(g.power_w for g in gpus)),
    )


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _sum(values: Sequence[float]) -> float | None:
    return sum(values) if values else None


def measuring(board: Board) -> str | None:
    """What is measured on a host now, one line: by this panel, else by whoever runs a load generator there."""
    state = board.experiment
    if state is not None and not state.finished:
        parts = [one_line(state.name, 60)]
        if len(state.order) > 1:
            parts.append(f"launch {min(state.at + 1, len(state.order))} of {len(state.order)}")
        live = next((arm.live for arm in state.arms if arm.live is not None), None)
        if live is not None:
            parts.append(f"run {live.run_index}")
            if live.tok_s is not None:
                parts.append(f"{fmt.tok_s(live.tok_s)} tok/s")
        if state.left_s is not None:
            parts.append(f"{fmt.duration(state.left_s)} left")
        if state.driver is not None:
            parts.append(f"run by PID {state.driver}")
        return " · ".join(parts)
    run = next((run for run in board.runs if run.kind == "bench" and run.active), None)
    return one_line(run.profile or run.run_id, 60) if run is not None else None


@dataclass(frozen=True)
class Event:
    """Something that happened on a host, at a `time.time()` of this machine as far as clocks agree."""

    at: float
    host: str
    glyph: str
    color: str
    text: str


def newest(boards: Sequence[Board], count: int) -> list[Event]:
    """The last events of all hosts, newest first."""
    found = [event for board in boards for event in _events(board)]
    return sorted(found, key=lambda event: -event.at)[:count]


def _events(board: Board) -> list[Event]:
    """What is known of a host's past: nothing is kept for it beside the board."""
    events = []
    state, link = board.state, board.link
    shown = state.run.run_id if state is not None else None

    def add(at: float | None, glyph: str, color: str, text: str) -> None:
        if at is not None:
            events.append(Event(at, board.host, glyph, color, text))

    member = member_of(board)
    follows = member is not None and member.follows  # whose own part of a start says nothing of the whole
    if state is not None and state.started_s is not None and state.ready_after_s is not None and not follows:
        ready_at = state.started_s + state.ready_after_s
        add(ready_at, "●", "ok", f"{run_name(state.run)} ready after {fmt.duration(state.ready_after_s)}")
    stopped = (
        board.group_state is not None and board.group_state.outcome is Outcome.STOPPED
    )  # whoever of it died of that
    if state is not None and state.outcome is Outcome.CRASHED and not stopped:
        found = state.diagnosis
        phase = (found.phase if found is not None else None) or state.phase
        where = " while serving" if phase in (Phase.READY, Phase.SERVING) else f" in {LONG[phase]}"
        rank = f", first rank {found.rank}" if found is not None and found.rank else ""
        code = f", exit code {state.run.exit_code}" if state.run.exit_code is not None else ""
        add(epoch_of(state.run.ended_at), "✗", "err", f"{run_name(state.run)} crashed{where}{rank}{code}")
    mine = {one_server(run): run for run in reversed(board.runs) if run.kind == "server"}  # of a job's ranks the first
    for run in islice(reversed(mine.values()), _RUNS_LOOKED_AT):
        if not run.foreign:
            add(epoch_of(run.started_at), "▸", "accent", f"{run_name(run)} launched, run {run.short_id}")
        if run.run_id != shown and run.state is RunState.EXITED and run.exit_code and not run.stopped_by_us:
            add(epoch_of(run.ended_at), "✗", "err", f"{run_name(run)} crashed, exit code {run.exit_code}")
    if link is not None and link.state is LinkState.LOST and link.last_byte_at is not None:
        last = f"; {run_name(state.run)} was {state.outcome}" if state is not None and board.alive else ""
        add(time.time() - (time.monotonic() - link.since), "?", "warn", f"link lost{last}")
    measured = board.experiment
    if measured is not None and measured.finished:
        words = measured.message or "measured"
        add(epoch_of(measured.started_at), "✓", "ok", f"{one_line(measured.name, 60)}: {one_line(words, 120)}")
    return events
