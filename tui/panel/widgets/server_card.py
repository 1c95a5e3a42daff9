"""The server: its state, the one large figure, the waterfall of its start, and what it does when ready."""

import time
from typing import TYPE_CHECKING

from tui import format as fmt
from tui.core.model.phases import Outcome
from tui.core.text import epoch_of
from tui.job_words import queue_words
from tui.panel.host_view import Board, run_name
from tui.panel.server_view import LONG, SHORT, badge, left_s, speculative
from tui.panel.widgets import decode_history
from tui.panel.widgets.paint import Canvas, Painted, Run, cells, join, width_of, wrap
from tui.panel.widgets.server_lines import ServerLines

if TYPE_CHECKING:
    from tui.core.server.server_state import ServerState

_MARK = {"✓": "ok", "◐": "accent", "·": "muted", "✗": "err"}


_LAYOUTS = ("narrow", "mid", "wide")


class ServerCard(Painted):
    """State, figure, phases; at three widths."""

    can_focus = True

    def __init__(self, board: Board) -> None:
        super().__init__(id="server")
        self.board = board
        self.lines = ServerLines(board)

    def wanted_height(self, layout: str, *, room: int = 24) -> int:
        """Rows of the card in a layout: `narrow`, `mid` or `wide`."""
        if layout == "narrow":
            return 4
        state = self.board.state
        starting = state is not None and state.outcome is Outcome.STARTING
        phases = len(self.lines.phases(state)) if state is not None and starting else 7
        if state is None or state.outcome not in (Outcome.STARTING, Outcome.READY):
            return min(room, 6)
        if layout == "mid":
            return min(room, 4 + max(7, phases))
        if state is not None and state.outcome is Outcome.READY:
            return min(room, 24)
        suspected = state.suspected is not None and bool(state.suspected.evidence)
        return min(room, 11 + max(7, phases) + (2 if suspected else 0))

    def draw(self, canvas: Canvas) -> None:
        layout = "narrow" if canvas.height <= 4 else ("mid" if canvas.width >= 90 else "wide")
        state = self.board.state
        if layout != "narrow":
            canvas.title(0, 0, canvas.width, "Server", self.lines.title_facts(), focus=self.has_focus)
        if state is None:
            self._empty(canvas, 0 if layout == "narrow" else 2)
            return
        row = {"narrow": 0, "mid": 1, "wide": 2}[layout]
        self._headline(canvas, row, state, layout)
        layouts = {
            Outcome.STARTING: (self._starting_narrow, self._starting_mid, self._starting_wide),
            Outcome.READY: (self._ready_narrow, self._ready_mid, self._ready_wide),
        }.get(state.outcome)
        if layouts is not None:
            layouts[_LAYOUTS.index(layout)](canvas, state)
        else:
            self._ended(canvas, state, row + (1 if layout == "narrow" else 2))

    def _empty(self, canvas: Canvas, y: int) -> None:
        board = self.board
        if board.busy:
            canvas.runs(0, y, [("◌ ", "accent"), (board.busy, "text")], canvas.width)
        elif not board.connected:
            canvas.put(0, y, "not connected", "muted")
        elif board.run is not None:
            canvas.put(0, y, f"reading {board.run.profile or board.run.run_id}", "muted", canvas.width)
        elif not board.runs_read:
            canvas.put(0, y, "looking for servers…", "muted")
        else:
            canvas.put(0, y, "No server runs here.", "text")
            canvas.runs(0, y + 1, [("l", "accent!"), (" launches one from a profile, ", "muted"), ("3", "accent!"),
                                   (" shows them", "muted")], canvas.width)  # fmt: skip

    def _headline(self, canvas: Canvas, y: int, state: "ServerState", layout: str) -> None:
        board, end, short = self.board, canvas.width, layout == "narrow"
        x = canvas.runs(0, y, badge(state, stale=board.stale, stopping=board.stopping).runs()) + 1
        place, count = board.place()
        if short and place is not None and count > 1:
            x = canvas.runs(x, y, [(f"{place}/{count} ", "muted")])
        name = run_name(state.run)
        # A configuration is known by its name: times give way to it where they stand elsewhere, too.
        facts = self.lines.when(state, short=short)
        if width_of(facts) > end - x - cells(name if short else state.run.profile or name) - 2:
            facts = self.lines.when(state, short=True, least=True)
        begin = canvas.right_runs(end, y, facts)
        room = max(0, begin - x - 2)
        overrides = fmt.overrides_of(state.run.extra.get("sets"))
        if layout == "wide" and overrides and cells(name) > room:
            name = state.run.profile or state.run.run_id
            canvas.put(x, y + 1, " ".join(f"+{text}" for text in overrides), "text", end - x)
        canvas.put(x, y, name, "strong!", room)

    def _waterfall(
        self, canvas: Canvas, y: int, state: "ServerState", *, name: int, took: int, usual: int, begin: int, head: str
    ) -> None:
        """Rows of phases from row y on: mark, name, time taken, usual time, and where it lies in the start."""
        rows = self.lines.phases(state)
        width = canvas.width - begin
        spent = sum(row.took_s or 0.0 for row in rows)
        expected = 0.0
        for row in rows:
            if row.mark == "◐":
                expected += left_s(state, row, rows)
            elif row.mark == "·":
                expected += row.usual_s or 0.0
        # Where nothing says how much is left, a third of the axis stays empty: a full bar would say that it is done.
        total = spent + (expected or 0.5 * spent)
        canvas.put(name, y, head, "muted")
        canvas.right(took, y, "took", "muted")
        if state.usual:
            canvas.right(usual, y, "usual", "muted")
        canvas.put(begin, y, "0:00", "muted")
        if state.usual:
            canvas.right(canvas.width, y, fmt.duration(total), "muted")
        scale = width / total if total > 0 else 0.0
        at = 0.0
        label: tuple[int, int] | None = None
        for offset, row in enumerate(rows):
            line = y + 1 + offset
            now = row.mark == "◐"
            canvas.put(name, line, row.mark, _MARK[row.mark])
            canvas.put(name + 2, line, LONG[row.phase], "strong!" if now else "text" if row.mark == "✓" else "muted")
            canvas.right(took, line, fmt.duration(row.took_s), "strong!" if now else "text" if row.took_s else "muted")
            if state.usual:
                canvas.right(usual, line, fmt.duration(row.usual_s), "muted")
            first = min(width - 1, int(at * scale)) if width > 0 else 0
            if row.took_s is not None:
                at += row.took_s
                last = min(width, max(first + 1, round(at * scale)))
                spec = "accent" if now else ("err" if row.mark == "✗" else "ok")
                canvas.put(begin + first, line, "▆" * (last - first), spec)
                if now:
                    label = (begin + first, line + 1)
                    rest = left_s(state, row, rows)
                    at += rest
                    canvas.put(begin + last, line, "╌" * (min(width, round(at * scale)) - last), "faint")
            elif row.usual_s is not None and row.mark == "·":
                at += row.usual_s
                last = min(width, max(first + 1, round(at * scale)))
                canvas.put(begin + first, line, "╌" * (last - first), "faint")
        if label is not None:
            progress = self.lines.progress(state, width)
            canvas.runs(max(begin, min(label[0], canvas.width - width_of(progress))), label[1], progress)

    def _starting_wide(self, canvas: Canvas, state: "ServerState") -> None:
        spec = "muted" if self.board.stale else "strong"
        figure = self.lines.figure(state)
        after = canvas.figure(0, 4, figure, spec) if "h" not in figure else canvas.put(0, 5, figure, "strong!")
        x = max(17, after + 4)
        room = canvas.width - x
        lines = [*self.lines.eta_lines(state)]
        alerts = self.lines.alerts(state)
        canvas.runs(x, 4, lines[0], room)
        if alerts:
            canvas.runs(x, 5, alerts, room)
        canvas.runs(x, 6 if alerts else 5, lines[1], room)
        self._waterfall(canvas, 8, state, name=0, took=24, usual=31, begin=34, head="phase")
        y = min(canvas.height - 1, 10 + len(self.lines.phases(state)))
        if state.suspected is not None and state.suspected.evidence:
            self._evidence(canvas, y, canvas.height, state)
        else:
            canvas.runs(0, y, self.lines.alive(state, short=False), canvas.width)

    def _evidence(self, canvas: Canvas, y: int, end: int, state: "ServerState") -> None:
        """The evidence of a suspicion, as far as there are rows."""
        assert state.suspected is not None
        text = "evidence: " + ", ".join(state.suspected.evidence)
        parts = wrap(text, canvas.width)
        shown = parts[: max(1, end - y)]
        for offset, part in enumerate(shown):
            rest = part if offset < len(shown) - 1 else " ".join(parts[offset:])
            canvas.put(0, y + offset, rest, "text", canvas.width)

    def _starting_mid(self, canvas: Canvas, state: "ServerState") -> None:
        figure = self.lines.figure(state)
        spec = "muted" if self.board.stale else "strong"
        if "h" in figure:
            canvas.put(0, 3, figure, "strong!", 17)
        else:
            canvas.figure(0, 3, figure, spec)
        usual = state.usual_total
        if state.eta_s is not None and usual is not None:
            canvas.put(0, 6, "to ready", "strong!")
            clock = fmt.clock(time.time() + state.eta_s, self.board.utc_offset_s, seconds=False)
            canvas.put(0, 7, f"about {clock}", "muted")
            canvas.put(0, 8, f"usual {fmt.duration(usual.median_s)}", "muted")
            half = (usual.high_s - usual.low_s) / 2
            canvas.put(0, 9, f"± {fmt.duration(half)} (n = {usual.n})" if usual.n > 1 else "(n = 1)", "muted", 17)
        else:
            canvas.put(0, 6, "since launch", "strong!")
            canvas.put(0, 7, "no history yet", "muted")
        self._waterfall(canvas, 2, state, name=18, took=42, usual=49, begin=52, head="")
        canvas.runs(0, canvas.height - 1, self.lines.last_line(state, both=True), canvas.width)

    def _starting_narrow(self, canvas: Canvas, state: "ServerState") -> None:
        rows = self.lines.phases(state)
        spent = sum(row.took_s or 0.0 for row in rows)
        label = self.lines.progress(state)[:2]
        bar = canvas.width - 1 - max(24, sum(len(text) for text, _ in label) + len(label))
        if state.eta_s is not None:
            canvas.bar(0, 1, bar, spent / (spent + state.eta_s) if spent + state.eta_s > 0 else 0.0, "accent")
        elif state.startup.progress and state.startup.progress.total:
            canvas.bar(0, 1, bar, state.startup.progress.done / state.startup.progress.total, "accent")
        else:
            canvas.put(0, 1, LONG.get(state.phase, str(state.phase)), "strong!", bar)
        canvas.right_runs(canvas.width, 1, [(text.replace(", ", " · "), spec) for text, spec in label])
        x = 0
        for row in rows:
            now = row.mark == "◐"
            x = canvas.put(x, 2, row.mark, _MARK[row.mark])
            x = canvas.put(x + 1, 2, SHORT[row.phase], "strong!" if now else "muted")
            if row.took_s is not None:
                x = canvas.put(x + 1, 2, fmt.duration(row.took_s), "strong!" if now else "text")
            x += 1
        canvas.runs(0, 3, self.lines.last_line(state, both=True), canvas.width)

    def _ready_wide(self, canvas: Canvas, state: "ServerState") -> None:
        self._figures(canvas, 4, state)
        facts = dict(self.lines.facts(state))
        for row, (left, right) in enumerate((("running", "queued"), ("KV pool", ""), ("in graph", "cycle"))):
            canvas.put(38, 4 + row, left, "muted")
            canvas.runs(48, 4 + row, facts[left])
            if right and facts[right]:
                canvas.put(59, 4 + row, right, "muted")
                canvas.runs(66, 4 + row, facts[right])
        alerts = self.lines.alerts(state)
        if alerts:
            (glyph, color), (text, spec) = alerts[0], alerts[1]
            canvas.put(0, 9, glyph, color)
            parts = wrap(text, canvas.width - 2)
            canvas.put(2, 9, parts[0], spec)
            if state.suspected is not None and state.suspected.evidence:
                self._evidence(canvas, 10, 12, state)
            elif len(parts) > 1:
                canvas.put(2, 10, " ".join(parts[1:]), spec, canvas.width - 2)
            elif alerts == self.lines.payoff(state):
                canvas.runs(2, 10, self.lines.against(), canvas.width - 2)
            elif state.observations and state.observations[0].advice:
                canvas.put(2, 10, state.observations[0].advice[0], "muted", canvas.width - 2)
        else:
            canvas.runs(0, 9, self.lines.alive(state, short=False), canvas.width)
        if canvas.height >= 18:
            decode_history.plot(self.board, canvas, 12, 5 if canvas.height >= 24 else 4, "tok/s")
        if canvas.height >= 24 and decode_history.accepts(self.board):
            decode_history.plot(self.board, canvas, 18, 5, "accept length")

    def _figures(self, canvas: Canvas, y: int, state: "ServerState") -> None:
        text, spec, words = self.lines.speed(state)
        decode = state.startup.last_decode
        if decode is None:
            canvas.put(0, y + 1, "no request yet", "strong!", 36)
            what = "tok/s and accept length come" if speculative(state) else "tok/s comes"
            for line, part in enumerate(wrap(f"{what} with the first", 36)):
                canvas.put(0, y + 2 + line, part, "muted")
            return
        canvas.figure(0, y, text.replace(",", ""), spec)
        canvas.put(0, y + 3, words, "muted", 18)
        if decode is not None and decode.accept_len is not None:
            canvas.figure(max(19, 4 * len(text) + 2), y, fmt.accept(decode.accept_len), spec)
            canvas.put(max(19, 4 * len(text) + 2), y + 3, "accept length", "muted")

    def _ready_mid(self, canvas: Canvas, state: "ServerState") -> None:
        self._figures(canvas, 3, state)
        facts = dict(self.lines.facts(state))
        canvas.runs(0, 8, [("running ", "muted"), *facts["running"], ("   queued ", "muted"), *facts["queued"]], 37)
        line: list[Run] = [("KV ", "muted"), facts["KV pool"][0], ("  in graph ", "muted"), *facts["in graph"]]
        if facts["cycle"]:
            line += [("  cycle ", "muted"), *facts["cycle"]]
        canvas.runs(0, 9, line, 37)
        decode_history.plot(self.board, canvas, 2, 3, "tok/s", 38)
        if decode_history.accepts(self.board):
            decode_history.plot(self.board, canvas, 6, 3, "accept length", 38)
        canvas.runs(0, canvas.height - 1, self.lines.last_line(state), canvas.width)

    def _ready_narrow(self, canvas: Canvas, state: "ServerState") -> None:
        text, spec, words = self.lines.speed(state)
        facts = dict(self.lines.facts(state))
        decode = state.startup.last_decode
        runs: list[Run] = [(text, f"{spec}!"), (" " + words.replace(" now", ""), "muted")]
        if decode is not None and decode.accept_len is not None:
            runs += [("   accept ", "muted"), (fmt.accept(decode.accept_len), "strong!")]
        for name in ("running", "queued"):
            runs += [(f"   {name} ", "muted"), facts[name][0]]
        runs += [("   KV ", "muted"), facts["KV pool"][0], ("   in graph ", "muted"), *facts["in graph"]]
        canvas.runs(0, 1, runs, canvas.width)
        values = decode_history.series(self.board, canvas.width - 20, "tok/s", time.monotonic())
        if not any(value is not None for value in values):
            canvas.put(0, 2, "nothing decoded in the last 5 min", "muted")
            canvas.runs(0, 3, self.lines.last_line(state), canvas.width)
            return
        low, high = decode_history.scale(values)
        at = max(14, canvas.put(0, 2, f"tok/s {low:,.0f}–{high:,.0f}", "muted") + 1)
        canvas.history(at, 2, [None if v is None else (v - low) / (high - low) for v in values], "accent")
        canvas.runs(0, 3, self.lines.last_line(state), canvas.width)

    def _ended(self, canvas: Canvas, state: "ServerState", y: int) -> None:
        run = state.run
        facts: list[list[Run]] = []
        if run.exit_code is not None:
            facts.append([("exit code ", "muted"), (str(run.exit_code), "text")])
        if run.ended_at:
            facts.append([("ended ", "muted"), (fmt.clock(epoch_of(run.ended_at), self.board.utc_offset_s), "text")])
        if state.outcome is Outcome.QUEUED:
            facts.append([(queue_words(run.job), "text")])
        elif run.why:
            facts.append([(run.why, "text")])
        if run.orphans:
            facts.append(
                [
                    ("▲ ", "warn"),
                    (f"{len(run.orphans)} processes are left: PID {', '.join(map(str, run.orphans[:4]))}", "text"),
                ]
            )
        canvas.runs(0, y, join(facts), canvas.width)
        if self.board.busy:
            canvas.runs(0, y + 1, [("◌ ", "accent"), (self.board.busy, "text")], canvas.width)
            return
        if self.board.stop is not None:
            canvas.runs(0, y + 1, [("■ ", "muted"), (self.board.stop.text, "text")], canvas.width)
        queued = state.outcome is Outcome.QUEUED
        keys: list[Run] = [("S", "accent!"), (" cancels it", "muted")] if queued else [
            ("l", "accent!"), (" launches a profile", "muted")]  # fmt: skip
        if state.diagnosis is not None:
            canvas.put(0, y + 1, state.diagnosis.title, "strong!", canvas.width)
            if state.diagnosis.set:
                keys = [("a", "accent!"), (" applies the suggested change, ", "muted"), *keys]
        canvas.runs(0, y + 2, keys, canvas.width)
