"""The whole group as one server: its state, the one large figure, who is late, and the phases of all members."""

import time
from collections.abc import Sequence

from tui import format as fmt
from tui.core.model.phases import Outcome
from tui.panel.open_group import GroupPhase, OpenGroup, Seen
from tui.panel.server_view import LONG, SHORT
from tui.panel.widgets.group import job
from tui.panel.widgets.paint import Canvas, Run, cells, clip, join, width_of, words
from tui.panel.widgets.server_lines import ServerLines

MARKS = {"✓": "ok", "◐": "accent", "·": "muted", "✗": "err"}
_SHORTEST = 6  # cells of a column of times


def title_facts(opened: OpenGroup) -> list[Run]:
    """Group, members, port."""
    serving = opened.serving().state
    facts: list[list[Run]] = [
        [("group ", "muted"), (opened.short_id, "text")],
        [(fmt.plural(len(opened.group.members), "rank" if opened.group.job else "member"), "muted")],
    ]
    if (found := opened.job) is not None:
        facts.insert(0, [("job ", "muted"), (found.job_id, "text")])
    if serving is not None and serving.run.port is not None:
        facts.append([("port ", "muted"), (str(serving.run.port), "text")])
    return join(facts)


def draw_headline(canvas: Canvas, x: int, y: int, width: int, opened: OpenGroup) -> None:
    """Badge and name; since when at the right end."""
    begin = canvas.right_runs(x + width, y, when(opened, least=width < 60))
    at = canvas.runs(x, y, opened.badge().runs()) + 1
    canvas.put(at, y, opened.group.profile, "strong!", max(0, begin - at - 2))


def when(opened: OpenGroup, *, least: bool = False) -> list[Run]:
    """Started, ready or ended, and how long ago."""
    state = opened.state
    serving = opened.serving()
    offset = serving.board.utc_offset_s
    if opened.outcome is Outcome.QUEUED and opened.job is not None:
        return job.submitted(opened.job, offset, least=least)
    if state is None or state.started_s is None:
        return []
    clock = fmt.clock(state.started_s, offset)
    if state.outcome is Outcome.STARTING:
        took = fmt.duration(max(0.0, time.time() - state.started_s))
        return [(took, "text")] if least else [(f"started {clock}, ", "muted"), (took, "text"), (" ago", "muted")]
    if state.outcome is Outcome.READY and state.ready_after_s is not None:
        since = state.started_s + state.ready_after_s
        up = fmt.duration(max(0.0, time.time() - since))
        took = fmt.duration(state.ready_after_s)
        if least:
            return [("ready ", "muted"), (up, "text")]
        return [("since ", "muted"), (fmt.clock(since, offset), "muted"), (", ", "muted"), (up, "text"),
                (" · start took ", "muted"), (took, "text")]  # fmt: skip
    return [] if least else [(f"started {clock}", "muted")]


def alert(opened: OpenGroup) -> list[Run]:
    """What deserves a look, most urgent first: a stop or a launch under way, who failed, who is late, a lost link."""
    busy = next((one.board.busy for one in opened.seen() if one.board.busy), None)
    if opened.stop is not None:
        return [("■ ", "warn"), (opened.stop, "text")]
    if busy:
        return [("◌ ", "accent"), (busy, "text")]
    state = opened.state
    if said := job.alert(opened.job):
        return said
    if state is not None and state.failed is not None:
        found = state.failure.diagnosis if state.failure is not None else None
        title = f": {found.title}" if found is not None else ""
        return [("✗ ", "err"), (f"{state.failed.name} on {state.place_of(state.failed)} ended first{title}", "strong!")]
    lost = [one.member for one in opened.seen() if one.link_lost]
    if lost:
        names = ", ".join(f"{member.name} on {member.host}" for member in lost)
        return [("? ", "warn"), (f"{names}: the link is lost; unknown, not dead", "text")]
    if state is not None and state.waits_for is not None and state.outcome is Outcome.STARTING:
        return [("◐ ", "accent"), ("waits for ", "strong!"), (state.waits_for, "text")]
    late = opened.late()
    if late is not None:
        return [("▲ ", "warn"), (late[0], "strong!"), (f" {late[1]}" if late[1] else "", "text")]
    return []


def alive(opened: OpenGroup) -> list[Run]:
    """How one sees that each member is alive: its newest line, its bar, the memory that its GPUs gain."""
    parts = []
    for one in opened.seen():
        if one.state is None or one.state.run.over or one.link_lost:
            continue
        facts: list[Run] = []
        delay = max(0.0, time.monotonic() - one.state.known_at) if one.state.known_at else 0.0
        if one.state.last_progress_age_s is not None and one.state.startup.progress is not None:
            facts += [("bar ", "muted"), (fmt.age(one.state.last_progress_age_s + delay), "text"), (" ago", "muted")]
        elif one.state.last_line_age_s is not None:
            facts += [("log ", "muted"), (fmt.age(one.state.last_line_age_s + delay), "text"), (" ago", "muted")]
        rate = one.gpus.memory_rate([key for key, _ in one.gpus.own_gpus()])
        if rate is not None and rate >= 51 and one in opened.by_host():
            facts += [(", ", "muted"), (f"+{fmt.gib(rate)} GiB/s", "text")]
        if facts:
            parts.append([(f"{one.label}: ", "muted"), *facts])
    return [("● ", "ok"), ("alive  ", "text"), *join(parts)] if parts else []


def wanted_height(opened: OpenGroup) -> int:
    """Rows of the card under its title."""
    if opened.outcome is Outcome.QUEUED:
        return 8
    timed = job.has_time(opened.job)
    if opened.outcome is Outcome.READY:
        return 11 if timed else 8
    return 9 + max(6, len(opened.phases())) + (3 if timed else 1)


def draw_card(canvas: Canvas, x: int, y: int, width: int, height: int, opened: OpenGroup) -> None:
    """Everything of the card below its title."""
    draw_headline(canvas, x, y + 1, width, opened)
    found, offset = opened.job, opened.serving().board.utc_offset_s
    if found is not None and opened.outcome is Outcome.QUEUED:
        job.draw_queued(canvas, x, y + 3, width, found, offset)
        return
    if found is not None and job.has_time(found):
        job.draw_time(canvas, x, y + height - 1, width, found, offset)
        height -= 2
    if opened.outcome is Outcome.READY:
        _ready(canvas, x, y + 3, width, opened)
        return
    figure = _figure(opened)
    after = canvas.figure(x, y + 3, figure) if figure is not None and "h" not in figure else x
    at = max(x + 16, after + 2) if figure is not None else x
    if figure is not None and "h" in figure:
        canvas.put(x, y + 4, figure, "strong!")
    for row, runs in enumerate(_beside(opened, x + width - at)):
        canvas.runs(at, y + 3 + row, words(runs, x + width - at))
    draw_phases(canvas, x, y + 7, width, opened)
    canvas.runs(x, min(y + height - 1, y + 9 + len(opened.phases())), alive(opened), width)


def _figure(opened: OpenGroup) -> str | None:
    if opened.outcome is not Outcome.STARTING:
        return None
    eta = opened.eta_s()
    started = opened.state.started_s if opened.state is not None else None
    return fmt.duration(eta if eta is not None else time.time() - started if started is not None else None)


def _beside(opened: OpenGroup, width: int) -> list[list[Run]]:
    """The lines beside the large figure."""
    said = alert(opened)
    failure = opened.state.failure if opened.state is not None else None
    if opened.outcome is not Outcome.STARTING:
        advice = failure.diagnosis.advice[:1] if failure is not None and failure.diagnosis is not None else ()
        more: list[list[Run]] = [[(text, "muted")] for text in advice]
        keys: list[Run] = [("Enter", "accent!"), (" shows why", "muted")] if failure is not None else []
        if opened.group.job and opened.outcome is Outcome.UNKNOWN:
            return [*job.wrapped(said, width), [("it may be running: its logs are still read", "muted")]]
        return [
            *(job.wrapped(said, width) if opened.group.job else [said]),
            *more,
            join([keys, [("l", "accent!"), (" launches a profile", "muted")]]),
        ]
    eta = opened.eta_s()
    serving = opened.serving()
    usual = serving.state.usual_total if serving.state is not None else None
    if eta is None:
        lines: list[list[Run]] = [[("since the launch", "strong!")], said]
        return [*lines, [("no history yet: no earlier start here reached ready", "muted")]]
    clock = fmt.clock(time.time() + eta, serving.board.utc_offset_s, seconds=False)
    last = f"earlier starts here: {fmt.spread(usual.median_s, usual.low_s, usual.high_s, usual.n)}" if usual else ""
    return [[(f"to ready, at about {clock}", "strong!")], said, [(last, "muted")]]


def _ready(canvas: Canvas, x: int, y: int, width: int, opened: OpenGroup) -> None:
    """What the serving member does, in large figures, and what deserves a look."""
    serving = next((one for one in opened.seen() if one.state and one.state.startup.last_decode), opened.serving())
    state = serving.state
    if state is None:
        return
    lines = ServerLines(serving.board)
    text, spec, said = lines.speed(state)
    decode = state.startup.last_decode
    if decode is None:
        canvas.put(x, y + 1, "no request yet", "strong!", 36)
    else:
        canvas.figure(x, y, text.replace(",", ""), spec)
        canvas.put(x, y + 3, said, "muted", 18)
        if decode.accept_len is not None:
            at = x + max(19, 4 * len(text) + 2)
            canvas.figure(at, y, fmt.accept(decode.accept_len), spec)
            canvas.put(at, y + 3, "accept length", "muted")
    facts = dict(lines.facts(state))
    at = x + 38
    for row, name in enumerate(("running", "queued", "KV pool", "in graph")):
        canvas.put(at, y + row, name, "muted")
        canvas.runs(at + 10, y + row, facts[name], x + width - at - 10)
    canvas.runs(x, y + 5, alert(opened) or alive(opened), width)


# Phases


def draw_phases(canvas: Canvas, x: int, y: int, width: int, opened: OpenGroup) -> None:
    """A row a phase, a column a member, and where each phase lies in the start."""
    seen, rows = opened.seen(), opened.phases()
    late = opened.late_member()
    wide = [min(12, max(_SHORTEST, cells(one.label))) for one in seen]
    fitting = max(1, next((n for n in range(len(seen), 0, -1) if sum(wide[:n]) + 2 * n + 28 <= width), 1))
    usual = any(row.usual_s is not None for row in rows)
    canvas.put(x, y, "phase", "muted")
    at = x + 19
    ends = []
    for one, each in zip(seen[:fitting], wide, strict=False):
        at += each + 1
        ends.append(at)
        canvas.right(at, y, clip(one.label, each), "warn!" if one.member == late else "muted")
    if usual:
        at += 8
        canvas.right(at, y, "usual", "muted")
    begin = at + 3
    for offset, row in enumerate(rows):
        now = row.mark == "◐"
        line = y + 1 + offset
        canvas.put(x, line, row.mark, MARKS[row.mark])
        canvas.put(x + 2, line, LONG[row.phase], "strong!" if now else "text" if row.mark == "✓" else "muted", 17)
        for end, took in zip(ends, row.took_s, strict=False):
            canvas.right(end, line, fmt.duration(took), "strong!" if now and took else "text" if took else "muted")
        if usual:
            canvas.right(at, line, fmt.duration(row.usual_s), "muted")
    if x + width - begin >= 12:
        _bars(canvas, begin, y, x + width - begin, rows)


def _bars(canvas: Canvas, x: int, y: int, width: int, rows: Sequence[GroupPhase]) -> None:
    """Where each phase lies: full where all members are in it, thin where one alone is."""
    spent = max((span[1] for row in rows for span in row.spans_s if span is not None), default=0.0)
    later = sum(row.usual_s or 0.0 for row in rows if row.mark == "·")
    left = max((row.left_s for row in rows if row.mark == "◐"), default=0.0)
    total = spent + left + later or 1.0
    known = any(row.usual_s is not None for row in rows) or left
    if not known:
        total *= 1.5
    canvas.put(x, y, "0:00", "muted")
    if known:
        canvas.right(x + width, y, fmt.duration(total), "muted")
    scale, at = width / total, spent
    for offset, row in enumerate(rows):
        spec = "err" if row.mark == "✗" else "accent" if row.mark == "◐" else "ok"
        spans = [span for span in row.spans_s if span is not None]
        for column in range(width):
            first, last = column / scale, (column + 1) / scale
            inside = sum(begin < last and end > first for begin, end in spans)
            if inside:
                canvas.put(x + column, y + 1 + offset, "▆" if inside == len(spans) == len(row.spans_s) else "▂", spec)
        if row.mark in "◐·":
            rest = row.left_s if row.mark == "◐" else row.usual_s or 0.0
            begin, at = at, at + rest
            cell = min(width - 1, int(begin * scale)), min(width, max(int(begin * scale) + 1, round(at * scale)))
            if rest:
                canvas.put(x + cell[0], y + 1 + offset, "╌" * (cell[1] - cell[0]), "faint")


def draw_phases_across(canvas: Canvas, x: int, y: int, width: int, opened: OpenGroup, rows: int) -> int:
    """The same with the phases across and a row a member, for few columns; returns the rows that it took."""
    seen, phases = opened.seen(), opened.phases()
    late = opened.late_member()
    names = max((cells(one.label) for one in seen), default=0)
    names = min(14, max(5, names)) + 2
    step = max(8, (width - names) // max(1, len(phases)))
    canvas.put(x, y, "phase", "muted")
    for place, row in enumerate(phases):
        now = row.mark == "◐"
        at = canvas.put(x + names + place * step, y, row.mark, MARKS[row.mark])
        canvas.put(at + 1, y, SHORT[row.phase], "strong!" if now else "muted", step - 3)
    shown = seen[: max(1, rows - 2)]
    for line, one in enumerate(shown, 1):
        canvas.put(x, y + line, one.label, "warn!" if one.member == late else "strong!", names - 1)
        for place, row in enumerate(phases):
            took = row.took_s[line - 1]
            at = canvas.put(x + names + 2 + place * step, y + line, fmt.duration(took), "text" if took else "muted")
            bar = bar_of(one) if row.mark == "◐" and took is not None else ""
            if at + 1 + len(bar) < x + names + (place + 1) * step:
                canvas.put(at + 1, y + line, bar, "muted")
    taken = 1 + len(shown)
    if any(row.usual_s is not None for row in phases) and taken < rows:
        canvas.put(x, y + taken, "usual", "muted")
        for place, row in enumerate(phases):
            canvas.put(x + names + 2 + place * step, y + taken, fmt.duration(row.usual_s), "muted")
        taken += 1
    return taken


def bar_of(one: Seen) -> str:
    """How far the bar of a member's log is: `44/64`, empty without one."""
    progress = one.state.startup.progress if one.state is not None else None
    return f"{progress.done}/{progress.total}" if progress is not None else ""


def narrow_headline(canvas: Canvas, x: int, y: int, width: int, opened: OpenGroup) -> None:
    """Badge, name and the figure that counts, in one row."""
    eta = opened.eta_s()
    right = when(opened, least=True)
    if opened.outcome is Outcome.STARTING and eta is not None:
        clock = fmt.clock(time.time() + eta, opened.serving().board.utc_offset_s, seconds=False)
        right = [(fmt.duration(eta), "strong!"), (f" to ready, about {clock}", "muted")]
    elif opened.outcome is Outcome.STARTING and right:
        right = [*right, (" since launch", "muted")]
    at = canvas.runs(x, y, opened.badge().runs()) + 1
    begin = canvas.right_runs(x + width, y, right) if at + width_of(right) < x + width else x + width
    canvas.put(at, y, opened.group.profile, "strong!", max(0, begin - at - 2))
