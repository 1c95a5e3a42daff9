"""The members of a group, a row each, and what must hold before it is ready."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tui import format as fmt
from tui.core.model.group import Role
from tui.core.model.phases import Outcome
from tui.job_words import end_words
from tui.panel.open_group import OpenGroup, Seen
from tui.panel.server_view import LONG, badge
from tui.panel.widgets.paint import Canvas, Run, cells, clip_runs, join, width_of

if TYPE_CHECKING:
    from tui.core.groups.group_state import Condition

_HOLDS = {True: ("✓ ", "ok"), False: ("✗ ", "err"), None: ("◌ ", "muted")}


def ready_means(opened: OpenGroup) -> str:
    """What ready is for this group, in words."""
    if opened.roles:
        return "ready = every member ready, the router knows them, one reply through it"
    return "ready = every member alive, no fatal line in any log, rank 0 answers"


def fatal_line(opened: OpenGroup) -> str:
    """What a fatal line does, and what a lost link does not do."""
    if opened.roles:
        return "Stop order: router, prefill, decode. The first member that ends is the diagnosis; a lost link is UNKNOWN, not dead"
    if opened.group.job and not opened.alive:
        return ""
    if opened.group.job:
        return "Once a rank ends, Slurm ends the others. S lets all ranks drain, so that the job ends COMPLETED 0:0"
    return (
        "At the first fatal line in any log the other members are stopped, and that line is the diagnosis. "
        "A lost link makes a member UNKNOWN, not dead"
    )


def conditions(opened: OpenGroup, *, clocks: bool = False) -> list[list[Run]]:
    """The checks, a group of runs each."""
    known: Sequence[Condition] = opened.state.conditions if opened.state is not None else ()
    offset = opened.serving().board.utc_offset_s
    found = []
    for one in known:
        holds = one.holds is True
        expected = one.holds is False and opened.outcome is Outcome.STARTING  # it does not hold yet
        runs: list[Run] = [_HOLDS[None if expected else one.holds], (one.text, "text" if holds else "muted")]
        if expected:
            runs.append((f": not yet, {one.detail}" if one.detail else ": not yet", "muted"))
        elif one.detail and not holds:
            runs.append((f": {one.detail}", "muted"))
        elif clocks and one.since_s is not None:
            runs.append((f"  {fmt.clock(one.since_s, offset)}", "muted"))
        found.append(runs)
    return found


def wanted_height(opened: OpenGroup) -> int:
    """Rows under the title: heads, members, and the checks over one or two rows."""
    return 1 + len(opened.group.members) + 2


def draw_members(
    canvas: Canvas, x: int, y: int, width: int, rows: int, opened: OpenGroup, *, checked: bool = True
) -> int:
    """Heads, a row a member, and (with `checked`) the checks below; returns the rows that it took."""
    seen = opened.seen()
    wide = width >= 100
    hosts = min(20, max([4, *(cells(one.place) for one in seen)])) + 2
    where = "node" if opened.group.job else "host"
    at = {"member": 0, where: 11, "state": 11 + hosts, "run": 11 + hosts + (27 if wide else 14)}
    at |= {"pid": at["run"] + 21, "log": at["run"] + 32}
    for name, column in at.items():
        if name in ("pid", "log"):
            canvas.right(x + column, y, name, "muted")
        else:
            canvas.put(x + column, y, name, "muted")
    checks = x + at["log"] + 3
    if wide and checks + 30 < x + width:
        canvas.put(checks, y, "checks", "muted")
    shown = seen[: max(1, rows - (2 if checked else 1))]
    for line, one in enumerate(shown, 1):
        _draw_member(canvas, x, y + line, at, opened, one, wide=wide)
        if wide and checks + 30 < x + width:
            canvas.runs(checks, y + line, _of_member(opened, one), x + width - checks)
    line = y + 1 + len(shown)
    parts = conditions(opened) if checked else []
    while parts and line < y + rows:
        fitting = len(parts)
        while fitting > 1 and width_of(join(parts[:fitting])) > width:
            fitting -= 1
        canvas.runs(x, line, clip_runs(join(parts[:fitting]), width))
        parts, line = parts[fitting:], line + 1
    return line - y


def _draw_member(
    canvas: Canvas, x: int, y: int, at: dict[str, int], opened: OpenGroup, one: Seen, *, wide: bool
) -> None:
    late = one.member == opened.late_member()
    failed = opened.state is not None and opened.state.failed == one.member and end_words(one.job) is None
    canvas.put(x, y, one.member.name, "strong!" if one.member == opened.group.serving else "text", 10)
    canvas.put(x + 11, y, one.place, "warn!" if late else "text", at["state"] - 12)
    state = one.state
    if state is None:
        canvas.put(x + at["state"], y, "? not seen yet", "muted")
        return
    mark = badge(state, stale=one.link_lost, stopping=opened.stopping)
    end = canvas.put(x + at["state"], y, f"{mark.glyph} {mark.word}", mark.color)
    starting = state.outcome is Outcome.STARTING and not one.link_lost
    phase = LONG.get(state.phase, str(state.phase)) if starting else "ended first" if failed else ""
    if wide:
        canvas.put(max(end + 1, x + at["state"] + 12), y, phase, "err" if failed else "muted", 14)
    run = state.run
    canvas.put(x + at["run"], y, run.short_id, "muted", 12)
    canvas.right(x + at["pid"], y, str(run.pid) if run.pid is not None else fmt.NONE, "text")
    canvas.right(x + at["log"], y, f"{state.startup.lines:,}", "text")


def _of_member(opened: OpenGroup, one: Seen) -> list[Run]:
    """The checks that concern one member."""
    state = one.state
    if state is None:
        return []
    alive = None if one.link_lost else not state.run.over
    fatal = state.startup.outcome is Outcome.CRASHED
    ready: list[Run]
    if state.run.over:
        ready = []
    elif one.member.follows:
        ready = [("– not asked: its /health is 200 whatever it does", "muted")]
    else:
        answers = None if one.link_lost else state.outcome is Outcome.READY
        mark = _HOLDS[answers or None]
        only = "   only rank 0's health counts" if one.member.role is Role.RANK else ""
        ready = [mark, ("answers" if answers else "answers: not yet", "text" if answers else "muted"), (only, "muted")]
    parts: list[list[Run]] = [
        [_HOLDS[alive], ("alive" if alive else "ended" if alive is False else "not known", "text")],
        [_HOLDS[not fatal], ("no fatal line" if not fatal else "fatal line", "text")],
        ready,
    ]
    return join(parts, "   ")
