"""Prefill, decode and router side by side: what each does, as far as it is known."""

import time

from tui import format as fmt
from tui.core.model.group import Role
from tui.core.model.phases import Outcome
from tui.panel.open_group import OpenGroup, Seen
from tui.panel.server_view import LONG, badge
from tui.panel.widgets.group.members import conditions
from tui.panel.widgets.paint import Canvas, Run, join
from tui.panel.widgets.server_lines import ServerLines

_GAP = 3
_LEAST = 34


def columns(opened: OpenGroup, width: int) -> int:
    """How many members stand side by side."""
    return max(1, min(len(opened.group.members), (width + _GAP) // (_LEAST + _GAP)))


def wanted_height(opened: OpenGroup, width: int) -> int:
    """Rows that all members take."""
    across = columns(opened, width)
    return -(-len(opened.group.members) // across) * 9


def draw_roles(canvas: Canvas, x: int, y: int, width: int, rows: int, opened: OpenGroup) -> None:
    """A column a member; below one another where there are too many."""
    across = columns(opened, width)
    each = (width - _GAP * (across - 1)) // across
    for place, one in enumerate(opened.seen()):
        top = y + place // across * 9
        if top + 2 < y + rows:
            _draw(canvas, x + place % across * (each + _GAP), top, each, min(8, y + rows - top), opened, one)


def _draw(canvas: Canvas, x: int, y: int, width: int, rows: int, opened: OpenGroup, one: Seen) -> None:
    state, run = one.state, one.state.run if one.state is not None else None
    facts: list[list[Run]] = [[(one.member.host, "text")]]
    if run is not None and run.port is not None:
        facts.append([("port ", "muted"), (str(run.port), "text")])
    canvas.title(x, y, width, one.member.name.capitalize(), join(facts))
    if state is None or run is None:
        canvas.put(x, y + 1, "? not seen yet", "muted")
        return
    mark = badge(state, stale=one.link_lost, stopping=opened.stopping)
    starting = state.outcome is Outcome.STARTING and not one.link_lost
    phase = f"{LONG.get(state.phase, str(state.phase))}  " if starting else ""
    pid = f" · pid {run.pid}" if run.pid is not None else ""
    canvas.runs(
        x, y + 1, [(f"{mark.glyph} {mark.word}", mark.color), (f"  {phase}run {run.short_id}{pid}", "muted")], width
    )
    pairs = _router(opened) if one.member.role is Role.ROUTER else _server(one)
    for line, (name, value) in enumerate(pairs[: rows - 2], y + 2):
        canvas.put(x, line, name, "muted")
        if name:
            canvas.right_runs(x + width, line, value)
        else:
            canvas.runs(x, line, value, width)


def _server(one: Seen) -> list[tuple[str, list[Run]]]:
    """Figures of its own log, newest first; what it does not say is left out."""
    state = one.state
    assert state is not None
    lines = ServerLines(one.board)
    decode = state.startup.last_decode
    pairs: list[tuple[str, list[Run]]] = []
    if decode is not None:
        text, spec, _ = lines.speed(state)
        pairs.append(("output tok/s", [(text, f"{spec}!")]))
        facts = dict(lines.facts(state))
        pairs.append(("running, queued", [*facts["running"], (", ", "muted"), *facts["queued"]]))
        pairs.append(("KV pool", facts["KV pool"]))
        if decode.accept_len is not None:
            pairs.append(("accept length", [(fmt.accept(decode.accept_len), "text")]))
    elif state.startup.max_total_num_tokens:
        pairs.append(("KV pool", [(f"{state.startup.max_total_num_tokens:,} tokens", "text")]))
    if state.ready_after_s is not None:
        pairs.append(("start took", [(fmt.duration(state.ready_after_s), "text")]))
    delay = max(0.0, time.monotonic() - state.known_at) if state.known_at else 0.0
    if state.last_line_age_s is not None:
        pairs.append(("last log line", [(fmt.age(state.last_line_age_s + delay), "text"), (" ago", "muted")]))
    return pairs


def _router(opened: OpenGroup) -> list[tuple[str, list[Run]]]:
    """A router has no figures of its own in its log: what must hold for it to serve."""
    return [("ready means", []), *(("", runs) for runs in conditions(opened, clocks=True))]
