"""One line about a server: since when, what deserves a look, how one sees that it is alive, its speed."""

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from tui import format as fmt
from tui.core.model.phases import Outcome
from tui.core.text import one_line
from tui.panel.host_view import Board
from tui.panel.server_view import LONG, PhaseRow, bar_left_s, elapsed_s, phase_rows
from tui.panel.widgets.paint import Run, cells, join, width_of

if TYPE_CHECKING:
    from tui.core.server.server_state import ServerState


class ServerLines:
    """Lines about the server on the board, as runs."""

    def __init__(self, board: Board) -> None:
        self.board = board

    def phases(self, state: "ServerState") -> list[PhaseRow]:
        return phase_rows(state, self.board.sglang_version())

    def title_facts(self) -> list[Run]:
        run = self.board.run
        if run is None:
            return []
        facts: list[list[Run]] = [[("run ", "muted"), (run.short_id, "text")]]
        if self.board.group is not None:
            here = [one for one in self.board.group.members if one.run_id == run.run_id]
            facts = [
                [(f"{here[0].name} of {len(self.board.group.members)} members ", "text"), ("m", "accent!")],
                *facts,
            ]
        if run.foreign:
            facts = [[("foreign, read-only", "warn")]]
            if run.container is not None:
                facts.append([(str(run.container), "text")])
                if times := run.container.restarts:
                    facts.append([(f"restarted {fmt.plural(times, 'time')}", "warn")])
                if self.board.state is not None and self.board.state.startup.lost_head:
                    facts.append([("log without its beginning", "warn")])
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

    def when(self, state: "ServerState", *, short: bool, least: bool = False) -> list[Run]:
        board = self.board
        clock = fmt.clock(state.started_s, board.utc_offset_s)
        elapsed = elapsed_s(state)
        if board.stale and state.outcome in (Outcome.STARTING, Outcome.READY):
            seen = fmt.age(time.monotonic() - state.known_at) if state.known_at else fmt.NONE
            return [
                ("last seen ", "muted"),
                (state.outcome, "text"),
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

    def alerts(self, state: "ServerState") -> list[Run]:
        """What deserves a look, most urgent first: a stop in progress, a suspicion, a straggler, an observation."""
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
        payoff = self.payoff(state)
        if state.observations and state.outcome is Outcome.READY:
            seen = state.observations[0]
            # A slow tokenizer stays slow as long as the server lives: a loss is the better news.
            if not payoff or seen.cause != "tokenizer":
                return [("▲ ", "warn"), (seen.title, "strong!")]
        if state.outcome is Outcome.READY and state.startup.restarts:
            return [("▲ ", "warn"), ("this log holds more than one start", "text")]
        return payoff

    def payoff(self, state: "ServerState") -> list[Run]:
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

    def against(self) -> list[Run]:
        """What that sentence rests on."""
        found = self.board.economics()
        if found is None:
            return []
        base = found[1]
        users = f"{fmt.tok_s(base.tok_s)} tok/s at concurrency {base.concurrency} ({base.level})"
        return [("against ", "muted"), (one_line(base.profile, 80), "text"), (f", {users}", "muted")]

    def last_line(self, state: "ServerState", *, both: bool = False) -> list[Run]:
        """An alert with its evidence, else (or, with `both`, and) how one sees that it is alive."""
        alerts = self.alerts(state)
        if alerts and state.suspected is not None and self.board.stop is None:
            return join(
                [alerts, [(", ".join(state.suspected.evidence), "muted")]] if state.suspected.evidence else [alerts]
            )
        alive = self.alive(state, short=True)
        return join([alerts, alive]) if both else alerts or alive

    def alive(self, state: "ServerState", *, short: bool) -> list[Run]:
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

    def progress(self, state: "ServerState", room: int = 200) -> list[Run]:
        """What the present phase's bar says; the less important parts only where there is room."""
        progress = state.startup.progress
        if progress is None or state.outcome is not Outcome.STARTING:
            return []
        took = state.phase_took_s.get(state.phase)
        # the log's bar is rank 0's alone
        what = "shards" if progress.what == "shards" else "graphs"
        runs: list[Run] = [(f"{progress.done}/{progress.total} {what}", "strong!")]
        parts: list[str] = []
        left = bar_left_s(state)
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

    def figure(self, state: "ServerState") -> str:
        return fmt.duration(state.eta_s if state.eta_s is not None else elapsed_s(state))

    def eta_lines(self, state: "ServerState") -> tuple[list[Run], list[Run]]:
        usual = state.usual_total
        if state.eta_s is None or usual is None:
            return [("since the launch", "strong!")], [("no history yet: no earlier start here reached ready", "muted")]
        clock = fmt.clock(time.time() + state.eta_s, self.board.utc_offset_s, seconds=False)
        spread = fmt.spread(usual.median_s, usual.low_s, usual.high_s, usual.n)
        return [(f"to ready, at about {clock}", "strong!")], [
            (f"earlier starts of this profile here: {spread}", "muted")
        ]

    def speed(self, state: "ServerState") -> tuple[str, str, str]:
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

    def facts(self, state: "ServerState") -> list[tuple[str, list[Run]]]:
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
