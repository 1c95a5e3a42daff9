"""Ranks while a server starts; memory per rank and the phases of the start once it is ready."""

from typing import TYPE_CHECKING

from tui import format as fmt
from tui.core.model.phases import Outcome, Phase
from tui.core.sglang.state import PARTS
from tui.panel.host_view import Board
from tui.panel.server_view import LONG, SHORT, phase_rows
from tui.panel.widgets.paint import Canvas, Painted, Run

if TYPE_CHECKING:
    from tui.core.server.server_state import ServerState
    from tui.core.sglang.state import LedgerRow


def workable_text(state: "ServerState") -> str:
    """The window of mem-fraction-static that this start's own figures leave; empty where they do not say."""
    from tui.core.server.forecast import workable_now

    bounds = workable_now(state.startup, ready=True)
    if bounds.fraction_least is None or bounds.fraction_most is None or bounds.impossible:
        return ""
    return f"; fraction {bounds.fraction_least:.2f} to {bounds.fraction_most:.2f} fits"


class RanksPanel(Painted):
    """The right column under the GPUs, from 150 columns on."""

    def __init__(self, board: Board) -> None:
        super().__init__(id="ranks")
        self.board = board

    def draw(self, canvas: Canvas) -> None:
        state = self.board.state
        if state is None:
            return
        if state.outcome is Outcome.STARTING:
            self._ranks(canvas)
        elif state.outcome is Outcome.READY:
            y = self._ledger(canvas, 0)
            self._startup(canvas, y)

    def _ranks(self, canvas: Canvas) -> None:
        state = self.board.state
        assert state is not None
        ranks = state.startup.ranks
        loading = state.phase is Phase.LOAD_WEIGHTS
        loaded = self.board.loaded_mib() if loading else []
        facts: list[Run] = (
            [("weights loaded, GiB, by GPU memory", "muted")] if loading else [("free, GiB, from the log", "muted")]
        )
        canvas.title(0, 0, canvas.width, "Ranks", facts)
        if not ranks:
            canvas.put(0, 2, "no rank has written yet", "muted")
            return
        late = {straggler.position for straggler in self.board.stragglers()}
        across = max(1, min(len(ranks), canvas.width // 10))
        step = canvas.width // across
        for position, rank in enumerate(ranks):
            x, y = position % across * step, 2 + position // across * 4
            if y + 2 >= canvas.height + 1:
                break
            slow = position in late
            canvas.put(x, y, "▲" if slow else " ", "warn")
            canvas.put(x + 2, y, rank.tag or "server", "warn!" if slow else "muted", step - 2)
            done = state.phase is not rank.phase and _order(rank.phase) > _order(state.phase)
            canvas.put(x, y + 1, "✓" if done else "◐", "ok" if done else "accent")
            canvas.put(x + 2, y + 1, SHORT.get(rank.phase, str(rank.phase)), "text", step - 2)
            if loading:
                figure = fmt.gib(loaded[position]) if position < len(loaded) else fmt.NONE
            else:
                figure = fmt.gib_of(rank.available_gib)
            canvas.put(x + 2, y + 2, figure, "warn!" if slow else "text", step - 2)

    def _ledger(self, canvas: Canvas, y: int) -> int:
        state = self.board.state
        assert state is not None
        rows = [row for row in state.startup.ledger if row.weights_gib is not None]
        if not rows:
            return y
        row = max(rows, key=lambda r: (r.weights_gib or 0.0) + (r.kv_pool_gib or 0.0))
        total = max((gpu.memory_total_mib or 0.0 for _, gpu in self.board.own_gpus()), default=0.0) / fmt.MIB_PER_GIB
        parts = ledger_parts(row, total or None)
        canvas.title(0, y, canvas.width, "Memory per rank", [(f"GiB · largest rank {row.rank or 'server'}", "muted")])
        draw_ledger(canvas, 0, y + 2, canvas.width, parts, total or sum(value for _, value in parts))
        x, line = 0, y + 3
        for name, value in parts:
            spec, glyph = LEDGER[name]
            figure = fmt.gib_of(value)
            if x + len(name) + len(figure) + 3 > canvas.width:
                x, line = 0, line + 1
            if name != "free":
                canvas.put(x, line, glyph, spec)
                x += 2
            x = canvas.put(x, line, f"{name} ", "muted")
            x = canvas.put(x, line, figure, "strong!" if name == "free" else "text") + 2
        if row.free_gib is None or state.startup.host_memory:
            return line + 2
        free = f"{fmt.gib_of(row.free_gib)} GiB free after start; SGLang advises 5 to 8{workable_text(state)}"
        canvas.put(0, line + 2, free, "muted", canvas.width)
        return line + 4

    def _startup(self, canvas: Canvas, y: int) -> None:
        state = self.board.state
        assert state is not None
        usual = state.usual_total
        facts: list[Run] = [(fmt.duration(state.ready_after_s), "muted")]
        if usual is not None:
            facts.append((f" · usual {fmt.spread(usual.median_s, usual.low_s, usual.high_s, usual.n)}", "muted"))
        canvas.title(0, y, canvas.width, "Start-up", facts)
        done = [row for row in phase_rows(state, self.board.sglang_version()) if row.mark != "·"]
        names = [LONG[row.phase] for row in done]
        times = [fmt.duration(row.took_s) for row in done]
        for columns in range(4, 0, -1):
            widths = [
                (max(map(len, names[c::columns]), default=0), max(map(len, times[c::columns]), default=0))
                for c in range(columns)
            ]
            if sum(name + time + 6 for name, time in widths) - 3 <= canvas.width:
                break
        begin = 0
        for column, (name_width, time_width) in enumerate(widths):
            for line, index in enumerate(range(column, len(done), columns)):
                canvas.put(begin, y + 1 + line, done[index].mark, "ok")
                canvas.put(begin + 2, y + 1 + line, names[index], "muted")
                canvas.right(begin + 3 + name_width + time_width, y + 1 + line, times[index], "text")
            begin += name_width + time_width + 6


def _order(phase: Phase) -> int:
    return list(Phase).index(phase)


LEDGER = {  # names of PARTS in their order, then what a ledger does not hold
    "weights": ("data", "▆"),
    "draft": ("violet", "▄"),
    "state": ("teal", "▄"),
    "KV": ("teal", "▆"),
    "window": ("teal", "▆"),
    "index": ("teal", "▄"),
    "draft KV": ("violet", "▄"),
    "LoRA": ("muted", "▆"),
    "graphs": ("muted", "▄"),
    "other": ("faint", "▄"),
    "runtime": ("faint", "▂"),
    "free": ("track", "▆"),
}


def ledger_parts(row: "LedgerRow", total_gib: float | None) -> list[tuple[str, float]]:
    """Where the memory of one rank went, in GiB by the names of LEDGER; what is not known is left out.

    Args:
        total_gib: of the GPU; what was taken before the load is called runtime.
    """
    known = [(name, getattr(row, field)) for name, field in zip(LEDGER, PARTS, strict=False)]
    parts = [(name, value) for name, value in known if value is not None and value > 0]
    if total_gib is not None and row.free_gib is not None:
        rest = total_gib - row.free_gib - sum(value for _, value in parts)
        if rest > 0.05:
            parts.append(("runtime", rest))
    if row.free_gib is not None:
        parts.append(("free", row.free_gib))
    return parts


def draw_ledger(canvas: Canvas, x: int, y: int, width: int, parts: list[tuple[str, float]], total_gib: float) -> None:
    """One bar of the parts, each at least a cell."""
    if total_gib <= 0:
        return
    at = 0.0
    column = 0
    canvas.put(x, y, "▆" * width, "track")
    for name, value in parts:
        if name == "free":
            break
        at += value
        end = min(width, max(column + 1, round(at / total_gib * width)))
        spec, glyph = LEDGER[name]
        canvas.put(x + column, y, glyph * (end - column), spec)
        column = end
