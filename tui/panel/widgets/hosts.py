"""Several hosts, a row each: link, server, memory of every GPU; below them what happened last on any of them."""

import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual import events

from tui import format as fmt
from tui.core.config import HostKind
from tui.core.host.gpus import error_words
from tui.core.link.transport import LinkState
from tui.core.model.phases import ALIVE, Outcome
from tui.job_words import queue_words
from tui.panel.host_view import Board, gpu_key, run_name
from tui.panel.hosts_view import GpuUse, badge_of, gpu_use, measuring, member_of, newest, servers, state_of
from tui.panel.protocol import panel_of
from tui.panel.server_view import LONG
from tui.panel.widgets.group.job import alert
from tui.panel.widgets.header import Header
from tui.panel.widgets.host_line import short_gpu_name
from tui.panel.widgets.jobs import your_jobs
from tui.panel.widgets.paint import Canvas, Painted, Run, cells, clip_runs, join, width_of
from tui.panel.widgets.server_lines import ServerLines

if TYPE_CHECKING:
    from tui.core.server.server_state import ServerState

_SHAPES = ((3, 1), (2, 1), (2, 0), (1, 0))  # rows of a host, and blank ones below it
_EVENTS = 2  # least, with a title over them, where a looser shape would take their place
_LATE_S = 10.0
_EIGHTHS = " ▁▂▃▄▅▆▇█"


class HostsHeader(Header):
    """Instead of one link, how many there are."""

    def _usual_width(self, *, short: bool, rtt: bool) -> int:
        return width_of(self._link(short=short, rtt=rtt))

    def _link(self, *, short: bool, rtt: bool) -> list[Run]:
        boards = panel_of(self).boards
        up = sum(board.connected for board in boards)
        mark: Run = ("● ", "ok") if up == len(boards) else ("▲ ", "warn") if up else ("◐ ", "accent")
        runs: list[Run] = [mark, (str(up), "text"), (f" of {len(boards)}" + ("" if short else " linked"), "muted")]
        uses = [use for board in boards if board.connected and (use := gpu_use(board)) is not None]
        if uses and not short:
            busy, count = sum(use.busy for use in uses), sum(use.count for use in uses)
            runs += [(" · ", "muted"), (str(busy), "strong!"), (" of ", "muted"), (str(count), "strong!"), (" GPUs busy", "muted")]  # fmt: skip
        simulated: list[Run] = [(" SIMULATED ", "warn!/warnbg"), ("  ", "muted")]
        return [*(simulated if any(board.simulated for board in boards) else []), *runs]


class Hosts(Painted):
    """All hosts in the order in which they were named, which never changes; one of them is under the cursor."""

    def __init__(self) -> None:
        super().__init__(id="hosts")
        self._first = 0  # the topmost host that is visible
        self._shape = _SHAPES[0]
        self._top = 0  # the row where hosts begin

    @property
    def boards(self) -> Sequence[Board]:
        return panel_of(self).boards

    @property
    def at(self) -> int:
        """Place of the host under the cursor."""
        chosen = panel_of(self).board
        return next((place for place, board in enumerate(self.boards) if board is chosen), 0)

    @property
    def page(self) -> int:
        """How many hosts are visible at most."""
        return max(1, (self.size.height - self._top) // sum(self._shape))

    def move(self, to: int) -> None:
        """Puts the cursor on a host; past the ends, on the last one there."""
        panel_of(self).choose(self.boards[min(max(to, 0), len(self.boards) - 1)])
        self.repaint()

    def on_click(self, event: events.Click) -> None:
        """The cursor where the mouse is."""
        place = self._first + (event.y - self._top) // sum(self._shape)
        if event.y >= self._top and place < min(len(self.boards), self._first + self.page):
            self.move(place)

    # -- drawing ---------------------------------------------------------------------------------------------------

    def draw(self, canvas: Canvas) -> None:
        boards, narrow = self.boards, canvas.width < 100
        canvas.runs(1, 0, self._counts(boards), canvas.width - 2)
        self._top = 1 if narrow or canvas.height < 30 else 4
        room = canvas.height - self._top
        self._shape = next(
            (shape for shape in _SHAPES if sum(shape) * len(boards) + (1 + _EVENTS if shape[1] else 0) <= room),
            _SHAPES[-1],
        )
        each, page = sum(self._shape), self.page
        at = self.at
        self._first = min(max(self._first, at - page + 1), at, max(0, len(boards) - page))
        columns = _Columns(canvas.width)
        if self._top > 1:
            canvas.title(1, 2, canvas.width - 2, "Hosts", [("in the order given", "muted")])
            columns.heads(canvas, 3)
        shown = boards[self._first : self._first + page]
        for place, board in enumerate(shown):
            y = self._top + place * each
            _Row(board, columns, self._shape[0], chosen=self._first + place == at).draw(canvas, y)
        if len(shown) < len(boards):
            canvas.right(canvas.width - 1, 0, f"{self._first + 1}–{self._first + len(shown)} of {len(boards)}", "muted")
        self._events(canvas, self._top + len(shown) * each + (0 if self._shape[1] else 1))

    @staticmethod
    def _counts(boards: Sequence[Board]) -> list[Run]:
        badges = [badge_of(board) for board in servers(boards)]
        counts = Counter(badges)
        groups: list[list[Run]] = [
            [(f"{one.glyph} ", one.color), (str(counts[one]), "strong!"), (f" {one.word.lower().rstrip('?')}", "muted")]
            for one in dict.fromkeys(badges)
        ]
        return join(groups)

    def _events(self, canvas: Canvas, y: int) -> None:
        room = canvas.height - y - 1
        found = newest(self.boards, room) if room > 0 else []
        if not found:
            return
        canvas.title(1, y, canvas.width - 2, "Newest on all hosts" if canvas.width >= 100 else "Newest")
        wide = min(20, max(cells(event.host) for event in found))
        day_ago = time.time() - 20 * 3600
        for place, event in enumerate(found):
            x = 1 if canvas.width < 100 else 3
            clock = fmt.clock(event.at) if event.at > day_ago else time.strftime("%d %b", time.localtime(event.at))
            canvas.put(x, y + 1 + place, clock, "muted")
            canvas.put(x + 10, y + 1 + place, event.host, "text", wide)
            canvas.put(x + 12 + wide, y + 1 + place, event.glyph, event.color)
            canvas.put(x + 14 + wide, y + 1 + place, event.text, "text", canvas.width - x - 15 - wide)


class _Columns:
    """Where the parts of a row are at a width of the screen."""

    def __init__(self, width: int) -> None:
        self.wide, self.narrow = width >= 150, width < 100
        self.name = 3 if not self.narrow else 2
        self.server = 38 if self.wide else 29 if not self.narrow else 15
        self.end = width - 1
        self.gpus_width = 24 if self.wide else 16 if not self.narrow else 8
        self.figures = 38 if self.wide else 16 if not self.narrow else 6  # behind the GPUs, with a gap before them
        self.gpus = self.end - self.figures - self.gpus_width
        self.server_end = self.gpus - 2

    def heads(self, canvas: Canvas, y: int) -> None:
        canvas.put(self.name, y, "host, link", "muted")
        canvas.put(self.server, y, "server", "muted")
        canvas.put(self.gpus, y, "memory by GPU", "muted")
        if self.wide:
            canvas.right(self.end - 26, y, "GiB of all", "muted")
            canvas.put(self.end - 24, y, "utilisation", "muted")
            canvas.right(self.end - 8, y, "%", "muted")
            canvas.right(self.end, y, "kW", "muted")
        else:
            canvas.right(self.end - 6, y, "GiB", "muted")
            canvas.right(self.end, y, "%", "muted")


class _Row:
    """One host, over one to three rows."""

    def __init__(self, board: Board, columns: _Columns, rows: int, *, chosen: bool) -> None:
        self._board, self._at, self._rows, self._chosen = board, columns, rows, chosen
        self._lines = ServerLines(board)
        self._use = gpu_use(board)

    def draw(self, canvas: Canvas, y: int) -> None:
        board, at = self._board, self._at
        if self._chosen:
            canvas.fill(1, y, at.server_end, self._rows, "raised")
            if at.narrow and self._rows > 1:
                canvas.fill(1, y, at.end - 1, 1, "raised")
            for row in range(self._rows):
                canvas.put(0, y + row, "▌", "accent")
        room = at.server - at.name - 2
        if self._rows == 1:
            link = self._link(short=True)[:1]
            self._put(canvas, at.name, y, [*link, (board.host, "strong!")], room)
        else:
            free = self._free(" of ") if self._rows == 2 and not at.narrow else []
            begin = at.server - 2 - width_of(free)
            self._put(canvas, begin, y, free, width_of(free))
            simulated: list[Run] = [("  simulated", "warn")] if board.simulated and not at.narrow else []
            self._put(canvas, at.name, y, [(board.host, "strong!"), *simulated], begin - at.name - 1)
            self._put(canvas, at.name, y + 1, self._link(short=at.narrow), room)
            if self._rows > 2 and not at.narrow:
                self._put(canvas, at.name, y + 2, self._gpus(), room)
        self._server(canvas, y)
        self._figures(canvas, y)

    def _put(self, canvas: Canvas, x: int, y: int, runs: Sequence[Run], room: int) -> None:
        ground = "raised" if self._chosen else canvas.ground
        on_it = [(text, spec if "/" in spec else f"{spec}/{ground}") for text, spec in clip_runs(runs, max(0, room))]
        canvas.runs(x, y, on_it)

    def _link(self, *, short: bool) -> list[Run]:
        board, link, now = self._board, self._board.link, time.monotonic()
        if link is None or link.state is LinkState.CONNECTING:
            return [("◐ ", "accent"), ("" if short else "connecting, ", "muted"),
                    (fmt.age(now - (link.since if link else board.started_at)), "text")]  # fmt: skip
        if link.state is LinkState.UP:
            if HostKind.of(board.host) is HostKind.LOCAL:
                return [("● ", "ok"), ("this machine", "muted")]
            age = fmt.age(board.link_age_s(now))
            if short:  # bytes that come once a second say little; what is free says more
                free = self._free("/") if (board.link_age_s(now) or 0.0) < _LATE_S else []
                return [("● ", "ok"), *(free or [(age, "text")])]
            told = link.rtt_s is not None and self._at.wide
            rtt: list[Run] = [(" · rtt ", "muted"), (fmt.milliseconds(link.rtt_s), "text")] if told else []
            return [("● ", "ok"), ("link ", "muted"), (age, "text"), (" ago", "muted"), *rtt]
        if link.state is LinkState.LOST:
            word = "lost" if link.last_byte_at is not None else "not reached"
            return [("▲ ", "warn"), ("" if short else f"{word} ", "muted"), (fmt.age(now - link.since), "text")]
        if link.state is LinkState.WAITING:
            return [("◐ ", "accent"), ("asks you", "muted")]
        return [("✗ ", "err"), ("refused" if link.state is LinkState.REFUSED else "closed", "muted")]

    def _gpus(self) -> list[Run]:
        use, sample = self._use, self._board.sample
        if self._board.cluster is not None:
            return your_jobs(self._board, named=False)
        if use is None:
            if sample is not None and sample.error is not None:
                return [("✗ ", "err"), (error_words(sample.error), "muted")]
            return [("no GPU", "muted")] if sample is not None else []
        name = next((gpu.name for gpu in sample.gpus if gpu.name), None) if sample is not None else None
        return [*self._free(" of "), (f" · {short_gpu_name(name or 'GPU')}", "muted")]

    def _free(self, of: str) -> list[Run]:
        """How many GPUs are free, of how many."""
        use = self._use
        ink = "muted" if self._board.stale else "text"
        if self._board.cluster is not None:
            return your_jobs(self._board, short=True)
        return [(f"{use.count - use.busy}{of}{use.count} free", ink)] if use is not None else []

    # -- the server ------------------------------------------------------------------------------------------------

    def _server(self, canvas: Canvas, y: int) -> None:
        board, at, state = self._board, self._at, self._board.state
        mark, end = badge_of(board), at.server_end
        badge = [(f"{mark.glyph} {mark.word}", f"{mark.color}!")] if at.narrow else mark.runs()
        x = at.server + (13 if at.narrow else 15)
        self._put(canvas, at.server, y, badge, x - at.server)
        name: list[Run] = []
        if state is None or not (board.connected or board.alive):
            figure, sentence = self._without_server()
        else:
            name, figure, sentence = self._name(state), self._figure(), self._sentence()
        if self._rows == 1:
            self._put(canvas, x, y, [*name, *([("  ", "muted")] if name else []), *figure], end - x)
            return
        when = self._when() if name else []
        begin = (at.end if at.narrow else end) - width_of(when)  # columns of one row leave the first one free
        self._put(canvas, begin, y, when, width_of(when))
        self._put(canvas, x, y, name, begin - x - 2)
        left = x if at.narrow else at.server
        self._put(canvas, left, y + 1, figure, end - left)
        if self._rows > 2:
            self._put(canvas, left, y + 2, sentence, end - left)

    def _name(self, state: "ServerState") -> list[Run]:
        """The server; of a group also which member of it is here, and where the others are."""
        member, group = member_of(self._board), self._board.group
        if member is None or group is None:
            return [(run_name(state.run), "strong!")]
        if state.run.job is not None:
            job = state.run.job
            where = f", {job.nodes}" if job.nodes is not None else ""
            return [(group.profile, "strong!"), (f"  job {job.job_id}{where}", "muted")]
        others = ", ".join(host for host in group.hosts if host != member.host)
        with_it = f" with {others}" if others else ""
        return [(group.profile, "strong!"), (f"  {member.name}{with_it}", "muted")]

    def _without_server(self) -> tuple[list[Run], list[Run]]:
        board, link = self._board, self._board.link
        if board.busy:
            return [(board.busy, "text")], []
        if board.connected:
            if not board.runs_read or board.live_servers():
                return [("looking for servers…", "muted")], []
            others = board.cluster.others if board.cluster is not None else ()
            names = ", ".join(job.name for job in others)
            theirs: list[Run] = [("your other jobs: ", "muted"), (names, "text")] if names else []
            return [("No server runs here.", "text")], theirs or [("l", "accent!"), (" launches one", "muted")]
        error = board.problem or (link.error if link is not None else None)
        if error is None:
            return [("waiting for its answer", "muted")], []
        return [(error.message, "text")], self._next_try()

    def _next_try(self) -> list[Run]:
        link, now = self._board.link, time.monotonic()
        again: list[Run] = [("r", "accent!"), (" tries now", "muted")]
        if link is not None and link.retry_at is not None and link.retry_at > now:
            return [
                ("next try in ", "muted"),
                (fmt.age(max(1.0, link.retry_at - now)), "text"),
                (" · ", "muted"),
                *again,
            ]
        return again

    def _when(self) -> list[Run]:
        state, whole = state_of(self._board), self._board.group_state
        assert state is not None
        if whole is not None and whole.outcome is Outcome.STARTING and state.eta_s is None:
            return []  # when its own part is done says nothing
        if state.outcome is Outcome.CRASHED and not self._board.stale:
            ended = [event.at for event in newest([self._board], 20) if event.glyph == "✗"]
            return [(fmt.age(time.time() - ended[0]), "text"), (" ago", "muted")] if ended else []
        known = self._board.stale or state.outcome is not Outcome.STARTING or state.eta_s is not None
        return [*self._lines.when(state, short=True, least=True), *([] if known else [(" since launch", "muted")])]

    def _figure(self) -> list[Run]:
        board, state = self._board, state_of(self._board)
        assert state is not None
        if board.stale and board.alive:
            error = board.problem or (board.link.error if board.link is not None else None)
            return [(error.message if error is not None else "the link is lost", "text")]
        if board.busy or board.stop is not None:
            return self._lines.alerts(state)
        if (measured := measuring(board)) is not None:
            return [(measured, "text")]
        job = state.run.job
        if job is not None and (said := alert(job)):
            return said
        if job is not None and state.outcome is Outcome.QUEUED:
            return [(queue_words(job), "text")]
        if state.outcome is Outcome.STARTING:
            progress = self._lines.progress(state, 60)
            return [
                (LONG.get(state.phase, str(state.phase)), "strong!"),
                *([(" ", "muted"), *progress] if progress else []),
            ]
        member, group = member_of(board), board.group
        if state.outcome is Outcome.READY and member is not None and group is not None and member.follows:
            return [("serves through ", "muted"), (f"{group.serving.name} on {group.serving.host}", "text")]
        if state.outcome is Outcome.READY:
            text, spec, words = self._lines.speed(state)
            facts = dict(self._lines.facts(state))
            figures = [[(f"{name} ", "muted"), *facts[name][:1]] for name in ("running", "queued", "KV pool")]
            return join([[(text, f"{spec}!"), (f" {words}", "muted")], *figures])
        if state.diagnosis is not None:
            return [(state.diagnosis.title, "strong!")]
        return [(state.run.why, "text")] if state.run.why else self._lines.alerts(state)

    def _sentence(self) -> list[Run]:
        board, state = self._board, self._board.state
        assert state is not None
        whole = board.group_state
        if whole is not None and whole.failed is not None:
            return [("✗ ", "err"), (f"{whole.failed.name} on {whole.failed.host} ended first", "strong!")]
        if board.stale and board.alive:
            return [*self._next_try(), ("; the server may be running", "muted")]
        if state.outcome is Outcome.CRASHED and state.diagnosis is not None:
            if not state.diagnosis.set:
                return [(advice, "muted") for advice in state.diagnosis.advice[:1]]
            change = ", ".join(f"{key} = {fmt.value_text(value)}" for key, value in state.diagnosis.set.items())
            return [("a", "accent!"), (f" apply {change} and relaunch", "muted")]
        others = len(board.live_servers()) - 1
        more: list[Run] = [(f"{fmt.plural(others, 'more server')} here", "muted")] if others > 0 else []
        if state.run.foreign:
            who = state.run.owner or "another user"
            more = join(
                [[("started by ", "muted"), (who, "text"), (": watched, never stopped from here", "muted")], more]
            )
        live = state.outcome in ALIVE
        return join([self._lines.alerts(state) or (self._lines.alive(state, short=True) if live else []), more])

    # -- figures ---------------------------------------------------------------------------------------------------

    def _figures(self, canvas: Canvas, y: int) -> None:
        at, use = self._at, self._use
        if use is None:
            return
        self._columns(canvas, y)
        ink = "muted" if self._board.stale else "text"
        row = y + (1 if self._rows > 1 else 0)
        if at.narrow:
            canvas.right(at.end, row, self._percent(use) + " %", ink)
            return
        used, total = _gib(use.used_mib), _gib(use.total_mib)
        if not at.wide:
            canvas.right(at.end - 6, row, used, ink)
            canvas.right(at.end, row, self._percent(use), ink)
            return
        begin = canvas.right(at.end - 26, row, f" of {total}", "muted")
        canvas.right(begin, row, used, ink)
        share = use.utilization_pct / 100 if use.utilization_pct is not None else None
        canvas.bar(at.end - 24, row, 11, share, "hist")
        canvas.right(at.end - 8, row, self._percent(use), ink)
        canvas.right(at.end, row, fmt.decimals(use.power_w / 1000 if use.power_w is not None else None, 2), ink)

    @staticmethod
    def _percent(use: GpuUse) -> str:
        return fmt.whole(use.utilization_pct)

    def _columns(self, canvas: Canvas, y: int) -> None:
        """Memory of each GPU as a column of one or two rows."""
        board, at = self._board, self._at
        gpus = board.sample.gpus if board.sample is not None else ()
        step = next((step for step in (3, 2) if step * len(gpus) <= at.gpus_width), 1)
        rows = 1 if at.narrow else min(2, self._rows)
        y += 1 if at.narrow and self._rows > 1 else 0
        keys = [key for key, _ in board.own_gpus()]
        late = {keys[one.position] for one in board.stragglers() if one.position < len(keys)}
        for place, gpu in enumerate(gpus[: at.gpus_width // step]):
            x, wide = at.gpus + place * step, max(1, step - 1)
            behind = gpu_key(gpu, place) in late
            spec = "warn" if behind else "muted" if board.stale else "data"
            if gpu.health is not None:
                canvas.put(x, y + rows - 1, "✗", "err!")
            elif gpu.memory_used_mib is not None and gpu.memory_total_mib:
                share = gpu.memory_used_mib / gpu.memory_total_mib
                filled = min(8 * rows, max(1, round(share * 8 * rows))) if share > 0 else 0
                for row in range(rows):
                    canvas.put(x, y + rows - 1 - row, _EIGHTHS[min(8, max(0, filled - 8 * row))] * wide, spec)
            if self._rows > 2 and gpu.index is not None and not at.narrow:
                canvas.put(x, y + 2, f"{gpu.index}{'▲' if behind else ''}", "warn!" if behind else "muted", step)


def _gib(mib: float | None) -> str:
    return fmt.whole(mib / fmt.MIB_PER_GIB if mib is not None else None)
