"""The server: its state, the one large figure, the waterfall of its start, and what it does when ready."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tui import format as fmt
from tui.core.model.phases import Outcome, Phase
from tui.core.text import one_line
from tui.panel.host_view import Board, argument, overrides_of, run_name
from tui.panel.widgets.paint import Canvas, Painted, Run, cells, join, width_of, wrap

if TYPE_CHECKING:
    from tui.core.server.server_state import ServerState

LONG = {
    Phase.LAUNCH: "launch",
    Phase.DISTRIBUTED_INIT: "distributed init",
    Phase.LOAD_WEIGHTS: "load weights",
    Phase.MEMORY_POOL: "memory pool",
    Phase.DRAFT_MODEL: "draft model",
    Phase.CUDA_GRAPH: "CUDA graphs",
    Phase.WARMUP: "warm-up",
    Phase.READY: "ready",
    Phase.SERVING: "serving",
}
SHORT = {
    **LONG,
    Phase.DISTRIBUTED_INIT: "dist",
    Phase.LOAD_WEIGHTS: "weights",
    Phase.MEMORY_POOL: "pool",
    Phase.DRAFT_MODEL: "draft",
    Phase.CUDA_GRAPH: "graphs",
}
_STARTUP = tuple(phase for phase in Phase if phase not in (Phase.READY, Phase.SERVING))
_PLOT_S = 300.0
_IDLE_S = 5.0  # decode lines come every 40 steps; a plot's line is joined over so long


@dataclass(frozen=True)
class Badge:
    """Glyph, word and colours of a state."""

    glyph: str
    word: str
    color: str
    ground: str

    def runs(self) -> list[Run]:
        """The badge as it stands before a name."""
        return [(f" {self.glyph} {self.word} ", f"{self.color}!/{self.ground}")]


_BADGES = {
    Outcome.READY: Badge("●", "READY", "ok", "okbg"),
    Outcome.CRASHED: Badge("✗", "CRASHED", "err", "errbg"),
    Outcome.HUNG: Badge("▲", "HUNG?", "warn", "warnbg"),
    Outcome.STOPPED: Badge("■", "STOPPED", "muted", "raised"),
    Outcome.FINISHED: Badge("■", "FINISHED", "muted", "raised"),
    Outcome.LOST: Badge("?", "LOST", "muted", "raised"),
    Outcome.UNKNOWN: Badge("?", "UNKNOWN", "muted", "raised"),
}


def badge(state: "ServerState", *, stale: bool, stopping: bool = False) -> Badge:
    """How a state is shown; a live one over a lost link is not known, one that was asked to end is on its way."""
    if state.outcome in (Outcome.STARTING, Outcome.READY, Outcome.HUNG):
        if stale:
            return _BADGES[Outcome.UNKNOWN]
        if stopping:
            return Badge("■", "STOPPING", "warn", "warnbg")
        if state.suspicion is not None:
            return _BADGES[Outcome.HUNG]
    if state.outcome is Outcome.STARTING:
        if not state.startup.lines:
            return Badge("◌", "LAUNCH", "muted", "raised")
        return Badge("◐", "STARTING", "accent", "accbg")
    return _BADGES[state.outcome]


@dataclass(frozen=True)
class PhaseRow:
    """One phase of the waterfall."""

    phase: Phase
    mark: str  # glyph
    took_s: float | None
    usual_s: float | None


def expected_order(version: str | None) -> tuple[Phase, ...]:
    """Phases in the order of an SGLang version; since 0.5.14 the draft model is loaded before any pool is made.

    Earlier versions bring up the target whole, with its graphs, and the draft model after it.
    """
    from tui.core.sglang.flags import version_at_least

    order: list[Phase] = [phase for phase in _STARTUP if phase is not Phase.DRAFT_MODEL]
    earlier = version is not None and not version_at_least(version, "0.5.14")
    order.insert(order.index(Phase.CUDA_GRAPH) + 1 if earlier else order.index(Phase.MEMORY_POOL), Phase.DRAFT_MODEL)
    return tuple(order)


def phase_rows(state: "ServerState", version: str | None = None) -> list[PhaseRow]:
    """Begun phases in this log's own order, then those still expected in that of the version."""
    begun = list(dict.fromkeys([Phase.LAUNCH, *(span.phase for span in state.startup.spans)]))
    begun = [phase for phase in begun if phase in _STARTUP]
    over = state.outcome is not Outcome.STARTING
    present = state.phase if not over and state.phase in _STARTUP else None
    if present is not None and present not in begun:
        begun.append(present)
    speculative = _speculative(state)
    later = [phase for phase in expected_order(version) if phase not in begun]
    if state.usual:
        later = [phase for phase in later if phase in state.usual]
    elif not speculative:
        later = [phase for phase in later if phase is not Phase.DRAFT_MODEL]
    failed = None
    if state.outcome is Outcome.CRASHED:
        failed = state.diagnosis.phase if state.diagnosis and state.diagnosis.phase else state.phase
    rows = []
    for phase in dict.fromkeys([*begun, *later]):
        usual = state.usual.get(phase)
        if phase is failed:
            mark = "✗"
        elif phase is present:
            mark = "◐"
        elif phase in begun:
            mark = "✓"
        else:
            mark = "·"
        took = state.phase_took_s.get(phase) if phase in begun else None
        rows.append(PhaseRow(phase, mark, took, usual.median_s if usual else None))
    if state.outcome is Outcome.CRASHED and failed in (Phase.READY, Phase.SERVING):
        rows.append(PhaseRow(failed, "✗", None, None))
    return rows


def _speculative(state: "ServerState") -> bool:
    arguments = state.startup.server_args or {}
    return bool(
        arguments.get("speculative_algorithm") or argument(state.run.argv, "--speculative-algorithm") is not None
    )


_MARK = {"✓": "ok", "◐": "accent", "·": "muted", "✗": "err"}


class ServerCard(Painted):
    """State, figure, phases; at three widths."""

    can_focus = True

    def __init__(self, board: Board) -> None:
        super().__init__(id="server")
        self.board = board

    def wanted_height(self, layout: str, *, room: int = 24) -> int:
        """Rows of the card in a layout: `narrow`, `mid` or `wide`."""
        if layout == "narrow":
            return 4
        state = self.board.state
        starting = state is not None and state.outcome is Outcome.STARTING
        phases = len(self._phases(state)) if state is not None and starting else 7
        if state is None or state.outcome not in (Outcome.STARTING, Outcome.READY):
            return min(room, 6)
        if layout == "mid":
            return min(room, 4 + max(7, phases))
        if state is not None and state.outcome is Outcome.READY:
            return min(room, 24)
        suspected = state.suspected is not None and bool(state.suspected.evidence)
        return min(room, 11 + max(7, phases) + (2 if suspected else 0))

    def _phases(self, state: "ServerState") -> list[PhaseRow]:
        return phase_rows(state, self.board.sglang_version())

    def draw(self, canvas: Canvas) -> None:
        layout = "narrow" if canvas.height <= 4 else ("mid" if canvas.width >= 90 else "wide")
        state = self.board.state
        if layout != "narrow":
            canvas.title(0, 0, canvas.width, "Server", self._title_facts(), focus=self.has_focus)
        if state is None:
            self._empty(canvas, 0 if layout == "narrow" else 2)
            return
        row = {"narrow": 0, "mid": 1, "wide": 2}[layout]
        self._headline(canvas, row, state, layout)
        if state.outcome is Outcome.STARTING:
            getattr(self, f"_starting_{layout}")(canvas, state)
        elif state.outcome is Outcome.READY:
            getattr(self, f"_ready_{layout}")(canvas, state)
        else:
            self._ended(canvas, state, row + (1 if layout == "narrow" else 2))

    # -- parts that all layouts share ------------------------------------------------------------------------------

    def _title_facts(self) -> list[Run]:
        run = self.board.run
        if run is None:
            return []
        facts: list[list[Run]] = [[("run ", "muted"), (run.short_id, "text")]]
        if run.foreign:
            facts = [[("foreign, read-only", "warn")]]
        place, count = self.board.place()
        if place is None and count:
            facts.insert(0, [(f"{fmt.plural(count, 'server')} alive, ", "text"), ("[ ]", "accent!")])
        elif count > 1:
            facts.insert(0, [(f"{place} of {count} servers ", "text"), ("[ ]", "accent!")])
            if run.owner:
                facts.append([("user ", "muted"), (run.owner, "text")])
        if run.pid is not None:
            facts.append([("pid ", "muted"), (str(run.pid), "text")])
        if run.port is not None:
            facts.append([("port ", "muted"), (str(run.port), "text")])
        return join(facts)

    def _empty(self, canvas: Canvas, y: int) -> None:
        board = self.board
        if board.busy:
            canvas.runs(0, y, [("◌ ", "accent"), (board.busy, "text")], canvas.width)
        elif not board.connected:
            canvas.put(0, y, "not connected", "muted")
        elif board.run is not None:
            canvas.put(0, y, f"reading {board.run.profile or board.run.run_id}", "muted", canvas.width)
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
        # A configuration is told by its name: times give way to it, as far as they are said elsewhere.
        facts = self._when(state, short=short)
        if width_of(facts) > end - x - cells(name if short else state.run.profile or name) - 2:
            facts = self._when(state, short=True, least=True)
        begin = canvas.right_runs(end, y, facts)
        room = max(0, begin - x - 2)
        overrides = overrides_of(state.run.extra.get("sets"))
        if layout == "wide" and overrides and cells(name) > room:
            name = state.run.profile or state.run.run_id
            canvas.put(x, y + 1, " ".join(f"+{text}" for text in overrides), "text", end - x)
        canvas.put(x, y, name, "strong!", room)

    def _when(self, state: "ServerState", *, short: bool, least: bool = False) -> list[Run]:
        board = self.board
        clock = fmt.clock(state.started_s, board.utc_offset_s)
        elapsed = _elapsed(state)
        if board.stale and state.outcome in (Outcome.STARTING, Outcome.READY):
            seen = fmt.age(time.monotonic() - state.known_at) if state.known_at else fmt.NONE
            return [
                ("last seen ", "muted"),
                (str(state.outcome), "text"),
                (", ", "muted"),
                (seen, "text"),
                (" ago", "muted"),
            ]
        if state.outcome is Outcome.STARTING:
            if short:
                usual = state.usual_total
                tail = f" (usual {fmt.duration(usual.median_s)})" if usual else " since launch, no history yet"
                figure = state.eta_s if state.eta_s is not None else elapsed
                word = " to ready" if state.eta_s is not None else ""
                if least:
                    return [(fmt.duration(figure), "strong!"), (word, "text")]
                return [(fmt.duration(figure), "strong!"), (word, "text"), (tail, "muted")]
            return [(f"started {clock}, ", "muted"), (fmt.duration(elapsed), "text"), (" ago", "muted")]
        if state.outcome is Outcome.READY:
            since = None
            if state.started_s is not None and state.ready_after_s is not None:
                since = state.started_s + state.ready_after_s
            up = time.time() - since if since is not None else None
            took = [("start took ", "muted"), (fmt.duration(state.ready_after_s), "text")]
            if short:
                since_ready: list[Run] = [("ready ", "muted"), (fmt.duration(up), "text")]
                return since_ready if least else [*since_ready, (", ", "muted"), *took]
            return [("since ", "muted"), (fmt.clock(since, board.utc_offset_s), "muted"), (", ", "muted"),
                    (fmt.duration(up), "text"), (" · ", "muted"), *took]  # fmt: skip
        return [(f"started {clock}", "muted")]

    def _alerts(self, state: "ServerState") -> list[Run]:
        """What deserves a look, most urgent first: a stop under way, a suspicion, a straggler, an observation."""
        board = self.board
        if board.stop is not None:
            return [("■ ", "warn"), (board.stop.text, "text")]
        if board.busy:
            return [("◌ ", "accent"), (board.busy, "text")]
        if state.suspicion is not None:
            return [("▲ ", "warn"), (state.suspicion, "strong!")]
        if state.slower is not None:
            slow = state.slower
            why = f": {slow.reasons[0]}" if slow.reasons else ""
            return [
                ("▲ ", "warn"),
                (
                    f"{LONG[slow.phase]} takes longer than ever here (at most {fmt.duration(slow.slowest_s)}){why}",
                    "text",
                ),
            ]
        late = board.stragglers()
        if late:
            worst = max(late, key=lambda straggler: straggler.behind_s or 0.0)
            first = next((p for p in range(len(late) + 1) if p not in {s.position for s in late}), 0)
            amount = f"about {fmt.duration(worst.behind_s)} " if worst.behind_s is not None else ""
            return [("▲ ", "warn"), (f"TP{worst.position} is {amount}behind TP{first}; all ranks wait for it", "text")]
        payoff = self._payoff(state)
        if state.observations and state.outcome is Outcome.READY:
            seen = state.observations[0]
            # What is said of a tokenizer holds as long as the server lives: it is no news beside a loss.
            if not payoff or seen.cause != "tokenizer":
                return [("▲ ", "warn"), (seen.title, "strong!")]
        if state.outcome is Outcome.READY and state.startup.restarts:
            return [("▲ ", "warn"), ("this log holds more than one start", "text")]
        return payoff

    def _payoff(self, state: "ServerState") -> list[Run]:
        """Whether speculation pays, where a baseline of this model at this load is stored."""
        found = self.board.economics() if state.outcome is Outcome.READY and not self.board.stale else None
        if found is None or not self.board.decodes_now():
            return []
        economics, _ = found
        name = str((state.startup.server_args or {}).get("speculative_algorithm") or "speculation")
        gain = (economics.margin or 0.0) >= 0
        said = (
            f"{one_line(name, 20)} pays from accept length {fmt.accept(economics.breakeven_tau)}; you have "
            f"{fmt.accept(economics.tau)} → {fmt.ratio(economics.speedup)}, a {'gain' if gain else 'loss'}"
        )
        return [("✓ ", "ok") if gain else ("▲ ", "warn"), (said, "strong!")]

    def _against(self) -> list[Run]:
        """What that sentence rests on."""
        found = self.board.economics()
        if found is None:
            return []
        base = found[1]
        users = f"{fmt.tok_s(base.tok_s)} tok/s at concurrency {base.concurrency} ({base.level})"
        return [("against ", "muted"), (one_line(base.profile, 80), "text"), (f", {users}", "muted")]

    def _last_line(self, state: "ServerState", *, both: bool = False) -> list[Run]:
        """An alert with its evidence, else (or, with `both`, and) how one sees that it is alive."""
        alerts = self._alerts(state)
        if alerts and state.suspected is not None and self.board.stop is None:
            return join(
                [alerts, [(", ".join(state.suspected.evidence), "muted")]] if state.suspected.evidence else [alerts]
            )
        alive = self._alive(state, short=True)
        return join([alerts, alive]) if both else alerts or alive

    def _alive(self, state: "ServerState", *, short: bool) -> list[Run]:
        board = self.board
        if board.stale:
            return [
                ("? ", "warn"),
                ("what it does now is not known; ", "muted"),
                ("r", "accent!"),
                (" connects again", "muted"),
            ]
        runs: list[Run] = [("● ", "ok"), ("alive" + (", " if short else "  "), "text")]
        facts: list[list[Run]] = []
        if state.busy is not None:
            facts.append([(state.busy, "text")])
        delay = max(0.0, time.monotonic() - state.known_at) if state.known_at else 0.0
        progress = state.startup.progress
        if progress is not None and state.last_progress_age_s is not None:
            what = "shard" if progress.what == "shards" else "graph"
            facts.append(
                [(f"{what} ", "muted"), (fmt.age(state.last_progress_age_s + delay), "text"), (" ago", "muted")]
            )
        if state.last_line_age_s is not None and not (short and facts):
            facts.append([("log line ", "muted"), (fmt.age(state.last_line_age_s + delay), "text"), (" ago", "muted")])
        rate = board.memory_rate([key for key, _ in board.own_gpus()])
        if rate is not None and abs(rate) >= 51:
            sign = "+" if rate > 0 else ""
            facts.append([("memory " if short else "GPU memory ", "muted"), (f"{sign}{fmt.gib(rate)} GiB/s", "text")])
        return runs + join(facts, ", " if short else " · ")

    def _bar_left(self, state: "ServerState") -> float | None:
        """Seconds that the present phase still takes by its own bar, None where it has none."""
        progress, took = state.startup.progress, state.phase_took_s.get(state.phase)
        if progress is None or not took or not 0 < progress.done <= progress.total:
            return None
        return took * (progress.total - progress.done) / progress.done

    def _progress(self, state: "ServerState", room: int = 200) -> list[Run]:
        """What the present phase's bar says; the less important parts only where there is room."""
        progress = state.startup.progress
        if progress is None or state.outcome is not Outcome.STARTING:
            return []
        took = state.phase_took_s.get(state.phase)
        # the log's bar is rank 0's alone
        what = "shards" if progress.what == "shards" else "graphs"
        runs: list[Run] = [(f"{progress.done}/{progress.total} {what}", "strong!")]
        parts: list[str] = []
        left = self._bar_left(state)
        if state.eta_s is None and left is not None:
            parts.append(f", about {fmt.duration(left)} left")
        if took and progress.done > 1:
            parts.append(f", {fmt.decimals(took / progress.done, 1)} s each")
        if len(state.startup.ranks) > 1:
            parts.append(", by TP0's bar")
        for part in parts:
            if width_of(runs) + cells(part) <= room:
                runs.append((part, "muted"))
        return runs

    def _waterfall(
        self, canvas: Canvas, y: int, state: "ServerState", *, name: int, took: int, usual: int, begin: int, head: str
    ) -> None:
        """Rows of phases from row y on: mark, name, time taken, usual time, and where it lies in the start."""
        rows = self._phases(state)
        width = canvas.width - begin
        spent = sum(row.took_s or 0.0 for row in rows)
        expected = 0.0
        for row in rows:
            if row.mark == "◐":
                expected += self._left(state, row)
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
                    rest = self._left(state, row)
                    at += rest
                    canvas.put(begin + last, line, "╌" * (min(width, round(at * scale)) - last), "faint")
            elif row.usual_s is not None and row.mark == "·":
                at += row.usual_s
                last = min(width, max(first + 1, round(at * scale)))
                canvas.put(begin + first, line, "╌" * (last - first), "faint")
        if label is not None:
            told = self._progress(state, width)
            canvas.runs(max(begin, min(label[0], canvas.width - width_of(told))), label[1], told)

    def _left(self, state: "ServerState", row: PhaseRow) -> float:
        """Seconds that the present phase still takes: what the estimate says beyond the later phases."""
        if row.usual_s is None:
            return self._bar_left(state) or 0.0
        if state.eta_s is not None:
            later = sum(other.usual_s or 0.0 for other in self._phases(state) if other.mark == "·")
            return max(0.0, state.eta_s - later)
        return max(0.0, row.usual_s - (row.took_s or 0.0))

    # -- starting --------------------------------------------------------------------------------------------------

    def _figure(self, state: "ServerState") -> str:
        return fmt.duration(state.eta_s if state.eta_s is not None else _elapsed(state))

    def _starting_wide(self, canvas: Canvas, state: "ServerState") -> None:
        spec = "muted" if self.board.stale else "strong"
        figure = self._figure(state)
        after = canvas.figure(0, 4, figure, spec) if "h" not in figure else canvas.put(0, 5, figure, "strong!")
        x = max(17, after + 4)
        room = canvas.width - x
        lines = [*self._eta_lines(state)]
        alerts = self._alerts(state)
        canvas.runs(x, 4, lines[0], room)
        if alerts:
            canvas.runs(x, 5, alerts, room)
        canvas.runs(x, 6 if alerts else 5, lines[1], room)
        self._waterfall(canvas, 8, state, name=0, took=24, usual=31, begin=34, head="phase")
        y = min(canvas.height - 1, 10 + len(self._phases(state)))
        if state.suspected is not None and state.suspected.evidence:
            self._evidence(canvas, y, canvas.height, state)
        else:
            canvas.runs(0, y, self._alive(state, short=False), canvas.width)

    def _evidence(self, canvas: Canvas, y: int, end: int, state: "ServerState") -> None:
        """What speaks for a suspicion, as far as there are rows."""
        assert state.suspected is not None
        text = "evidence: " + ", ".join(state.suspected.evidence)
        parts = wrap(text, canvas.width)
        shown = parts[: max(1, end - y)]
        for offset, part in enumerate(shown):
            rest = part if offset < len(shown) - 1 else " ".join(parts[offset:])
            canvas.put(0, y + offset, rest, "text", canvas.width)

    def _eta_lines(self, state: "ServerState") -> tuple[list[Run], list[Run]]:
        usual = state.usual_total
        if state.eta_s is None or usual is None:
            return [("since the launch", "strong!")], [("no history yet: no earlier start here reached ready", "muted")]
        clock = fmt.clock(time.time() + state.eta_s, self.board.utc_offset_s, seconds=False)
        spread = fmt.spread(usual.median_s, usual.low_s, usual.high_s, usual.n)
        return [(f"to ready, at about {clock}", "strong!")], [
            (f"earlier starts of this profile here: {spread}", "muted")
        ]

    def _starting_mid(self, canvas: Canvas, state: "ServerState") -> None:
        figure = self._figure(state)
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
        canvas.runs(0, canvas.height - 1, self._last_line(state, both=True), canvas.width)

    def _starting_narrow(self, canvas: Canvas, state: "ServerState") -> None:
        rows = self._phases(state)
        spent = sum(row.took_s or 0.0 for row in rows)
        label = self._progress(state)[:2]
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
        canvas.runs(0, 3, self._last_line(state, both=True), canvas.width)

    # -- ready -----------------------------------------------------------------------------------------------------

    def _speed(self, state: "ServerState") -> tuple[str, str, str]:
        """The newest tok/s with its spec, and the words under it; an idle server has no speed now."""
        decode = state.startup.last_decode
        age = self.board.decode_age_s()
        if decode is not None and decode.total_gen_tok_s is not None:
            decode = replace(decode, gen_tok_s=decode.total_gen_tok_s)
        if decode is None:
            return fmt.NONE, "muted", "tok/s, no reply yet"
        if self.board.stale:
            return fmt.tok_s(decode.gen_tok_s), "muted", "tok/s, last seen"
        if not self.board.decodes_now():
            words = f"tok/s, {fmt.age(age)} ago" if age is not None else "tok/s, last seen"
            return fmt.tok_s(decode.gen_tok_s), "muted", words
        return fmt.tok_s(decode.gen_tok_s), "strong", "tok/s now"

    def _facts(self, state: "ServerState") -> list[tuple[str, list[Run]]]:
        # What was read over a link that is gone keeps its place under "last seen"; what an idle server did is over.
        decode = state.startup.last_decode if self.board.stale or self.board.decodes_now() else None
        arguments = state.startup.server_args or {}
        most = arguments.get("max_running_requests")
        running: list[Run] = [(fmt.whole(decode.running if decode else None), "strong!")]
        if isinstance(most, int):
            running.append((f" of {most}", "muted"))
        used = decode.token_usage if decode else None
        pool: list[Run] = [(fmt.NONE if used is None else f"{used * 100:.0f} %", "text")]
        tokens = state.startup.max_total_num_tokens
        if tokens:
            pool.append((f" of {tokens:,} tokens", "muted"))
        graph = {True: "yes", False: "no", None: fmt.NONE}[decode.cuda_graph if decode else None]
        cycle = None
        if decode and decode.accept_len and decode.gen_tok_s and decode.running:
            cycle = decode.accept_len * decode.running / decode.gen_tok_s * 1000
        return [
            ("running", running),
            ("queued", [(fmt.whole(decode.queued if decode else None), "strong!")]),
            ("KV pool", pool),
            ("in graph", [(graph, "text" if graph != "no" else "warn")]),
            ("cycle", [(fmt.decimals(cycle, 1), "text"), (" ms", "muted")] if cycle else []),
        ]

    def _ready_wide(self, canvas: Canvas, state: "ServerState") -> None:
        self._figures(canvas, 4, state)
        facts = dict(self._facts(state))
        for row, (left, right) in enumerate((("running", "queued"), ("KV pool", ""), ("in graph", "cycle"))):
            canvas.put(38, 4 + row, left, "muted")
            canvas.runs(48, 4 + row, facts[left])
            if right and facts[right]:
                canvas.put(59, 4 + row, right, "muted")
                canvas.runs(66, 4 + row, facts[right])
        alerts = self._alerts(state)
        if alerts:
            (glyph, color), (text, spec) = alerts[0], alerts[1]
            canvas.put(0, 9, glyph, color)
            parts = wrap(text, canvas.width - 2)
            canvas.put(2, 9, parts[0], spec)
            if state.suspected is not None and state.suspected.evidence:
                self._evidence(canvas, 10, 12, state)
            elif len(parts) > 1:
                canvas.put(2, 10, " ".join(parts[1:]), spec, canvas.width - 2)
            elif alerts == self._payoff(state):
                canvas.runs(2, 10, self._against(), canvas.width - 2)
            elif state.observations and state.observations[0].advice:
                canvas.put(2, 10, state.observations[0].advice[0], "muted", canvas.width - 2)
        else:
            canvas.runs(0, 9, self._alive(state, short=False), canvas.width)
        if canvas.height >= 18:
            self._plot(canvas, 12, 5 if canvas.height >= 24 else 4, "tok/s")
        if canvas.height >= 24 and self._accepts():
            self._plot(canvas, 18, 5, "accept length")

    def _figures(self, canvas: Canvas, y: int, state: "ServerState") -> None:
        text, spec, words = self._speed(state)
        decode = state.startup.last_decode
        if decode is None:
            canvas.put(0, y + 1, "no request yet", "strong!", 36)
            what = "tok/s and accept length come" if _speculative(state) else "tok/s comes"
            for line, part in enumerate(wrap(f"{what} with the first", 36)):
                canvas.put(0, y + 2 + line, part, "muted")
            return
        canvas.figure(0, y, text.replace(",", ""), spec)
        canvas.put(0, y + 3, words, "muted", 18)
        if decode is not None and decode.accept_len is not None:
            canvas.figure(max(19, 4 * len(text) + 2), y, fmt.accept(decode.accept_len), spec)
            canvas.put(max(19, 4 * len(text) + 2), y + 3, "accept length", "muted")

    def _accepts(self) -> bool:
        return any(point.accept_len is not None for point in self.board.decode)

    def _series(self, columns: int, what: str, now: float) -> list[float | None]:
        """Means of the last five minutes in `columns` places at fixed moments."""
        step = _PLOT_S / columns
        newest = int(now / step)
        sums, seen = [0.0] * columns, [0] * columns
        for point in self.board.decode:
            value = point.tok_s if what == "tok/s" else point.accept_len
            place = columns - 1 - (newest - int(point.at / step))
            if value is not None and 0 <= place < columns:
                sums[place] += value
                seen[place] += 1
        values: list[float | None] = [total / n if n else None for total, n in zip(sums, seen, strict=True)]
        # Between two decode lines of a busy server lies no gap.
        last: int | None = None
        for place, value in enumerate(values):
            if value is None:
                continue
            if last is not None and 1 < place - last <= _IDLE_S / step + 1:
                for between in range(last + 1, place):
                    values[between] = values[last]
            last = place
        return values

    def _plot(self, canvas: Canvas, y: int, height: int, what: str, x: int = 0) -> None:
        width = canvas.width - x
        found = self.board.economics() if not self.board.stale else None
        reference, facts = None, []
        if found is not None:
            economics, base = found
            reference = base.tok_s * base.concurrency if what == "tok/s" else economics.breakeven_tau
            word = f"baseline {fmt.tok_s(reference)}" if what == "tok/s" else f"break-even {fmt.accept(reference)}"
            facts = [[("⠒⠒ ", "warn"), (word, "muted")]]
        canvas.title(x, y, width, what, join([*facts, [("last 5 min", "muted")]]))
        now = time.monotonic()
        if not any(value is not None for value in self._series(2, what, now)):
            canvas.put(x, y + 1, "nothing decoded in the last 5 min", "muted", width)
            return
        points = [p for p in self.board.decode if now - p.at <= _PLOT_S]
        low, high = scale([*(p.tok_s if what == "tok/s" else p.accept_len for p in points), reference])
        gutter = self._axis(canvas, x, y + 1, height, low, high, what)
        values = self._series((width - gutter) * 2, what, now)
        color = "accent" if what == "tok/s" else "violet"
        canvas.plot(x + gutter, y + 1, width - gutter, height, values, low, high, color, reference)

    def _axis(self, canvas: Canvas, x: int, y: int, height: int, low: float, high: float, what: str) -> int:
        """Ticks and dashes; returns the columns that the widest label takes, with its gap."""
        places = 0 if what == "tok/s" and high - low >= 2 else 1
        ticks = {0: high, height - 1: low}
        if height >= 5:
            ticks[height // 2] = (low + high) / 2
        labels = {row: fmt.decimals(value, places) for row, value in ticks.items()}
        gutter = 1 + max(4, *(cells(label) for label in labels.values()))
        for row, label in labels.items():
            canvas.right(x + gutter - 1, y + row, label, "muted")
            canvas.put(x + gutter, y + row, "╌" * (canvas.width - x - gutter), "line")
        return gutter

    def _ready_mid(self, canvas: Canvas, state: "ServerState") -> None:
        self._figures(canvas, 3, state)
        facts = dict(self._facts(state))
        canvas.runs(0, 8, [("running ", "muted"), *facts["running"], ("   queued ", "muted"), *facts["queued"]], 37)
        line: list[Run] = [("KV ", "muted"), facts["KV pool"][0], ("  in graph ", "muted"), *facts["in graph"]]
        if facts["cycle"]:
            line += [("  cycle ", "muted"), *facts["cycle"]]
        canvas.runs(0, 9, line, 37)
        self._plot(canvas, 2, 3, "tok/s", 38)
        if self._accepts():
            self._plot(canvas, 6, 3, "accept length", 38)
        canvas.runs(0, canvas.height - 1, self._last_line(state), canvas.width)

    def _ready_narrow(self, canvas: Canvas, state: "ServerState") -> None:
        text, spec, words = self._speed(state)
        facts = dict(self._facts(state))
        decode = state.startup.last_decode
        runs: list[Run] = [(text, f"{spec}!"), (" " + words.replace(" now", ""), "muted")]
        if decode is not None and decode.accept_len is not None:
            runs += [("   accept ", "muted"), (fmt.accept(decode.accept_len), "strong!")]
        for name in ("running", "queued"):
            runs += [(f"   {name} ", "muted"), facts[name][0]]
        runs += [("   KV ", "muted"), facts["KV pool"][0], ("   in graph ", "muted"), *facts["in graph"]]
        canvas.runs(0, 1, runs, canvas.width)
        values = self._series(canvas.width - 20, "tok/s", time.monotonic())
        if not any(value is not None for value in values):
            canvas.put(0, 2, "nothing decoded in the last 5 min", "muted")
            canvas.runs(0, 3, self._last_line(state), canvas.width)
            return
        low, high = scale(values)
        at = max(14, canvas.put(0, 2, f"tok/s {low:,.0f}–{high:,.0f}", "muted") + 1)
        canvas.history(at, 2, [None if v is None else (v - low) / (high - low) for v in values], "accent")
        canvas.runs(0, 3, self._last_line(state), canvas.width)

    # -- ended -----------------------------------------------------------------------------------------------------

    def _ended(self, canvas: Canvas, state: "ServerState", y: int) -> None:
        run = state.run
        facts: list[list[Run]] = []
        if run.exit_code is not None:
            facts.append([("exit code ", "muted"), (str(run.exit_code), "text")])
        if run.ended_at:
            facts.append(
                [("ended ", "muted"), (fmt.clock(fmt.epoch_of(run.ended_at), self.board.utc_offset_s), "text")]
            )
        if run.why:
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
        keys: list[Run] = [("l", "accent!"), (" launches a profile", "muted")]
        if state.diagnosis is not None:
            canvas.put(0, y + 1, state.diagnosis.title, "strong!", canvas.width)
            if state.diagnosis.set:
                keys = [("a", "accent!"), (" applies the suggested change, ", "muted"), *keys]
        canvas.runs(0, y + 2, keys, canvas.width)


def _elapsed(state: "ServerState") -> float | None:
    """Seconds since the launch, by the host's clock where the phases carry it."""
    if state.phase_took_s:
        return sum(state.phase_took_s.values())
    return max(0.0, time.time() - state.started_s) if state.started_s is not None else None


def scale(values: Sequence[float | None]) -> tuple[float, float]:
    """A quiet axis around values: steps of 1, 2 or 5, wide enough that noise of a few per cent looks like noise."""
    known = [value for value in values if value is not None]
    if not known:
        return 0.0, 1.0
    low, high = min(known), max(known)
    span = max(high - low, 0.4 * abs(high), 0.5)
    power = 10.0 ** len(str(int(span))) / 10
    step = next((factor * power for factor in (0.1, 0.2, 0.5, 1.0, 2.0, 5.0) if factor * power * 4 >= span), span)
    middle = (low + high) / 2
    bottom = max(0.0, int((middle - span / 2) / step) * step)
    top = bottom
    while top < high or top - bottom < span * 0.99:
        top += step
    return bottom, top
