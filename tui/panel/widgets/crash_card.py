"""A crash: one red sentence, ledger and suggested difference side by side, advice, evidence, how far it got."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tui import format as fmt
from tui.core.sglang.memory import loaded_gib, pools_gib
from tui.panel.host_view import Board, run_name
from tui.panel.server_view import LONG, lived_s, phase_rows
from tui.panel.widgets.log.lines import line_of
from tui.panel.widgets.paint import Canvas, Painted, Run, cells, clip, join, wrap
from tui.panel.widgets.ranks import LEDGER, ledger_parts
from tui.panel.widgets.reasons import reasons, written

if TYPE_CHECKING:
    from tui.core.logs.rows import Row
    from tui.core.logs.window import LogWindow
    from tui.core.server.server_state import ServerState
    from tui.core.sglang.diagnosis import Diagnosis
    from tui.core.sglang.state import LedgerRow

_LINES_QUOTED = 6  # of an exception, beside what a person would quote
_LOOK_BACK = 1200  # records before the evidence: tracebacks of eight ranks
_FRAME = re.compile(r'\s+File ".{1,400}", line \d+')
_INSIDE = re.compile(r"\s{2,}\S")  # source, carets, "[Previous line repeated …]"
_SOURCE = re.compile(r"\s{4,}[^\s~^]")


class CrashCard(Painted):
    """The report that stands in the place of the panels once a server has crashed."""

    def __init__(self, board: Board) -> None:
        super().__init__(id="crash")
        self.board = board
        self._looked_at: object = None
        self._pieces: list[_Piece] = []  # what stands around the evidence

    def wanted_height(self, width: int, height: int) -> int:
        """Rows of the report; what is left is the log's."""
        return max(8, height - 3 - (1 if height >= 40 else 0))

    def draw(self, canvas: Canvas) -> None:
        state = self.board.state
        if state is None or state.diagnosis is None:
            return
        y = self._band(canvas, state)
        wide = canvas.width >= 130
        airy = 1 if canvas.height >= 34 else 0
        y += airy
        left = (canvas.width - 2) * 61 // 100 if wide else canvas.width - 2
        rows = self._ledger_rows(state)
        room = canvas.height - y
        if wide:
            right_at = 1 + left + 3
            end_right = self._suggestion(canvas, right_at, y, canvas.width - right_at - 1, state)
            end_left = y
            if rows:
                end_left = self._ledger(canvas, 1, y, left, rows, state) + airy
            end_left = self._advice(canvas, 1, end_left, left, state)
            y = max(end_left, end_right) + airy
        else:
            y = self._suggestion(canvas, 1, y, left, state) + airy
            if rows and room > 22:
                y = self._ledger(canvas, 1, y, left, rows, state) + airy
            if canvas.height - y > 8:
                y = self._advice(canvas, 1, y, left, state) + airy
        foot = 3 if canvas.height - y > 7 else 0
        self._evidence(canvas, y, canvas.height - foot, state)
        if foot:
            self._progress(canvas, canvas.height - foot + 1, state)

    def _band(self, canvas: Canvas, state: "ServerState") -> int:
        diagnosis = state.diagnosis
        assert diagnosis is not None
        tall = canvas.height >= 34
        run = state.run
        # The sentence gives way to the name of what died, so that neither cuts the other.
        name = clip(run_name(run), canvas.width // 2 - 17)
        beside = max(29, cells(name)) + 2 if canvas.width >= 100 else 0
        lines = wrap(diagnosis.title, max(20, canvas.width - 17 - beside))[:3]
        height = len(lines) + (3 if tall else 1)
        canvas.fill(0, 0, canvas.width, height, "errbg")
        for row in range(height):
            canvas.put(0, row, "▌", "err/errbg")
        y = 1 if tall else 0
        canvas.put(3, y, "✗ CRASHED", "err!/errbg")
        for offset, line in enumerate(lines):
            canvas.put(15, y + offset, line, "strong!/errbg")
        end = canvas.width - 2
        if canvas.width >= 100:
            canvas.right(end, y, name, "strong!/errbg")
            canvas.right_runs(
                end,
                y + 1,
                [("run ", "muted/errbg"), (run.short_id, "text/errbg"),
                 (f" · {fmt.clock(state.started_s, self.board.utc_offset_s)}", "muted/errbg")],
            )  # fmt: skip
        facts: list[list[Run]] = [[(diagnosis.cause, "text/errbg")]]
        if canvas.width < 100:
            facts.append([(name, "strong!/errbg")])
        if diagnosis.phase is not None:
            facts.append([("in ", "muted/errbg"), (LONG[diagnosis.phase], "text/errbg")])
        if diagnosis.rank:
            facts.append([("first rank ", "muted/errbg"), (diagnosis.rank, "text/errbg")])
        if lived := lived_s(state):
            facts.append([("after ", "muted/errbg"), (fmt.duration(lived), "text/errbg")])
        if run.exit_code is not None:
            facts.append([("exit code ", "muted/errbg"), (str(run.exit_code), "text/errbg")])
        used = [gpu.memory_used_mib for _, gpu in self.board.own_gpus() if gpu.memory_used_mib is not None]
        if used:
            facts.append([("GPU memory now ", "muted/errbg"), (f"{fmt.gib(max(used))} GiB", "text/errbg")])
        runs = [(text, spec if "/" in spec else f"{spec}/errbg") for text, spec in join(facts)]
        canvas.runs(
            15, y + len(lines), runs, canvas.width - 17 - (30 if canvas.width >= 100 and len(lines) == 1 else 0)
        )
        return height

    # -- memory ----------------------------------------------------------------------------------------------------

    def _ledger_rows(self, state: "ServerState") -> "list[LedgerRow]":
        if state.diagnosis is None or not state.diagnosis.cause.startswith("oom"):
            return []
        return [row for row in state.startup.ledger if row.weights_gib is not None]

    def _ledger(self, canvas: Canvas, x: int, y: int, width: int, rows: "list[LedgerRow]", state: "ServerState") -> int:
        fraction = self.board.budget_fraction()
        total = max((gpu.memory_total_mib or 0.0 for _, gpu in self.board.own_gpus()), default=0.0) / fmt.MIB_PER_GIB
        total = total or max((row.before_gib or 0.0) for row in rows)
        canvas.title(x, y, width, "Memory ledger", [("GiB per rank at the crash", "muted")])
        ends = (x + 14, x + 21, x + 29, x + 37)
        for end, head in zip(ends, ("weights", "draft", "budget", "left"), strict=True):
            canvas.right(end, y + 1, head, "muted")
        canvas.put(x, y + 1, "rank", "muted")
        bar_at = x + 40
        bar = width - 40
        least = min(row.weights_gib or 0.0 for row in rows)
        # bars that differ in their last part only begin a little below the least one
        start = max(0.0, float(int(least * 0.9 / 4) * 4)) if total and least > 0.5 * total else 0.0
        canvas.put(bar_at, y + 1, f"{start:g}", "muted")
        canvas.right(x + width, y + 1, f"{fmt.gib_of(total)} GiB", "muted")

        def column(value: float) -> int:
            return min(bar, max(0, round((value - start) / (total - start) * bar))) if total > start else 0

        budgets = [fraction * row.before_gib for row in rows if fraction is not None and row.before_gib is not None]
        if budgets:
            mark = column(min(budgets))
            canvas.right(bar_at + mark, y + 1, "budget", "text")
            canvas.put(bar_at + mark, y + 1, "│", "strong")
        line = y + 2
        for row in rows[: max(1, min(len(rows), canvas.height - y - 12))]:
            first = state.diagnosis is not None and row.rank == state.diagnosis.rank
            canvas.put(x, line, row.rank or "server", "err!" if first else "muted", 8)
            if first:
                canvas.put(x + len(row.rank) + 1, line, "✗", "err!")
            budget = fraction * row.before_gib if fraction is not None and row.before_gib is not None else None
            spent = loaded_gib(row) or 0.0
            pools = (pools_gib(row) or 0.0) + (row.state_cache_gib or 0.0)
            left = budget - spent - pools if budget is not None else None
            canvas.right(ends[0], line, fmt.gib_of(row.weights_gib), "text")
            canvas.right(ends[1], line, fmt.gib_of(row.draft_gib), "text")
            canvas.right(ends[2], line, fmt.gib_of(budget), "text")
            canvas.right(ends[3], line, fmt.gib_of(left), "err!" if left is not None and left < 0 else "text")
            _ledger_bar(
                canvas, bar_at, line, bar, row, column, budget if budget is not None and spent > budget else None
            )
            line += 1
        if budgets and fraction is not None:
            before = min(row.before_gib for row in rows if row.before_gib is not None)
            canvas.put(x, line + 1, f"budget = {fraction:g} × {fmt.gib_of(before)} GiB free before load", "muted", 48)
            legend: list[Run] = [("▆", "data"), (" weights  ", "muted"), ("▄", "violet"), (" draft  ", "muted"),
                                 ("▞", "err"), (" over the budget", "muted")]  # fmt: skip
            canvas.right_runs(x + width, line + 1, legend)
            line += 2
        return line

    # -- what to do ------------------------------------------------------------------------------------------------

    def _suggestion(self, canvas: Canvas, x: int, y: int, width: int, state: "ServerState") -> int:
        diagnosis = state.diagnosis
        assert diagnosis is not None
        canvas.title(x, y, width, "Suggested change")
        if not diagnosis.set:
            canvas.put(x, y + 1, "none that can be computed; see the advice", "muted", width)
            canvas.runs(x, y + 2, [("l", "accent!"), (" launches another profile", "muted")], width)
            return self._last_ready(canvas, x, y + 3, width, state)
        line = y + (2 if canvas.height >= 34 else 1)
        canvas.put(x, line, f"{state.run.profile or 'this profile'}  [args]", "muted", width)
        line += 1
        arguments = state.startup.server_args or {}
        for key, value in diagnosis.set.items():
            old = arguments.get(key.replace("-", "_"))
            signs = [("-", old, "err")] if old is not None else []
            for sign, shown, color in (*signs, ("+", value, "ok")):
                ground = f"{color}bg"
                canvas.fill(x, line, width, 1, ground)
                canvas.put(x, line, sign, f"{color}!/{ground}")
                at = canvas.put(x + 2, line, f"{key} = ", f"text/{ground}", width - 2)
                canvas.put(at, line, written(shown), f"{color}!/{ground}", x + width - at)
                line += 1
        # Where there are rows; the whole advice stands below.
        for reason in reasons(state, self.board.host) if canvas.height >= 24 else ():
            for part in wrap(reason, width):
                canvas.put(x, line, part, "muted", width)
                line += 1
        line += 1 if canvas.height >= 24 else 0
        runs: list[Run] = [(" a ", "accent!/accbg"), (" apply and relaunch", "text")]
        if state.usual_total is not None:
            runs.append((f"   about {fmt.duration(state.usual_total.median_s)} to ready", "muted"))
        canvas.runs(x, line, runs, width)
        return self._last_ready(canvas, x, line + 1, width, state)

    def _last_ready(self, canvas: Canvas, x: int, y: int, width: int, state: "ServerState") -> int:
        """The last configuration of this model that worked here, with its difference, where there are rows."""
        if state.last_ready is None or canvas.height < 24:
            return y
        y += 1
        head = "Last ready here: "
        for offset, part in enumerate(wrap(head + state.last_ready.text, width)):
            at = x
            if offset == 0 and part.startswith(head):
                at, part = canvas.put(x, y, head, "strong!"), part[len(head) :]
            canvas.put(at, y, part, "muted")
            y += 1
        return y

    def _advice(self, canvas: Canvas, x: int, y: int, width: int, state: "ServerState") -> int:
        diagnosis = state.diagnosis
        assert diagnosis is not None
        if not diagnosis.advice:
            return y
        canvas.title(x, y, width, "Advice")
        line = y + 1
        for position, text in enumerate(diagnosis.advice):
            for part in wrap(text, width):
                if line >= canvas.height - 4:
                    return line
                canvas.put(x, line, part, "text" if position == 0 else "muted")
                line += 1
        return line

    # -- evidence --------------------------------------------------------------------------------------------------

    def _evidence(self, canvas: Canvas, y: int, end: int, state: "ServerState") -> None:
        diagnosis = state.diagnosis
        assert diagnosis is not None
        if end - y < 2:
            return
        evidence = diagnosis.evidence
        facts: list[Run] = []
        if evidence is not None:
            facts = [("line ", "muted"), (f"{evidence.line:,}", "text"), (f" of {state.startup.lines:,}", "muted"),
                     (" · ", "muted"), ("Enter", "accent!"), (" opens the log there", "muted")]  # fmt: skip
        canvas.title(1, y, canvas.width - 2, "Evidence", facts)
        if evidence is None:
            canvas.put(1, y + 1, "no line of the log says why", "muted")
            return
        rows = end - y - 1
        narrow = canvas.width < 100
        text_at = 10 if narrow else 30
        line = y + 1
        shown = False
        quoted = {text.strip() for text in evidence.lines}
        rows = max(3, rows - sum(1 + len(part.lines) for part in diagnosis.source))
        for piece in self._around(evidence.line, rows):
            if not shown and piece.number >= evidence.line > 0:
                here = piece.number == evidence.line
                rank = piece.rank if here and piece.rank != fmt.NONE else diagnosis.rank or fmt.NONE
                line = self._quote(canvas, line, end, text_at, diagnosis, piece.time if here else None, rank)
                shown = True
                if here:
                    continue
            if line >= end:
                break
            if shown and piece.text.strip() in quoted:
                continue
            canvas.right(7, line, f"{piece.number:,}" if piece.number else "", "muted")
            if not narrow:
                canvas.put(10, line, *piece.mark)
                canvas.put(12, line, piece.time or "", "muted", 8)
                canvas.put(21, line, piece.rank, "muted", 8)
            stop = canvas.width - 1
            if piece.note:
                stop = canvas.right_runs(stop, line, list(piece.note)) - 2
            canvas.put(text_at, line, piece.text[:1000], piece.spec, stop - text_at)
            line += 1
        if not shown:
            self._quote(canvas, line, end, text_at, diagnosis)

    def _around(self, number: int, rows: int) -> "list[_Piece]":
        """What stands around a line of the log, the frames of a traceback as one row."""
        log = self.board.log.file.tail if self.board.log is not None else None
        if log is None or number <= 0:
            return []
        key = (log, log.serial, number, rows)
        if key != self._looked_at:
            self._looked_at, self._pieces = key, _near(log, number, rows)
        pieces = self._pieces
        if not pieces:
            return []
        here = next((i for i, piece in enumerate(pieces) if piece.number >= number), len(pieces) - 1)
        begin = max(0, min(here - rows // 2, len(pieces) - rows + 2))
        return pieces[begin : begin + rows]

    def _quote(
        self, canvas: Canvas, y: int, end: int, x: int, diagnosis: "Diagnosis", time: str | None = None, rank: str = ""
    ) -> int:
        """The evidence itself, wrapped, never cut as long as there are rows; every line of it, and its source below."""
        evidence = diagnosis.evidence
        assert evidence is not None
        width = canvas.width - x - 1
        more = [text for text in evidence.lines if text.strip() not in evidence.text][:_LINES_QUOTED]
        parts = [part for text in (evidence.text, *more) for part in wrap(text.expandtabs(4), width)]
        for offset, part in enumerate(parts[: max(1, end - y)]):
            canvas.fill(1, y, canvas.width - 2, 1, "errbg")
            if offset == 0:
                canvas.right(7, y, f"{evidence.line:,}", "err!/errbg")
                if x > 20:
                    canvas.put(10, y, "✗", "err/errbg")
                    canvas.put(12, y, time or "", "muted/errbg", 8)
                    canvas.put(21, y, rank, "muted/errbg", 8)
            canvas.put(x, y, part, "err!/errbg" if offset == 0 else "text/errbg")
            y += 1
        for source in diagnosis.source:
            rows = [(f"{source.file}:{source.line}", "muted")]
            for number, text in enumerate(source.lines, source.first):
                rows.append((f"{number:>6} {text.expandtabs(4)}", "strong" if number == source.line else "muted"))
            for text, spec in rows[: max(0, end - y)]:
                canvas.put(x, y, text, spec, width)
                y += 1
        return y

    def _progress(self, canvas: Canvas, y: int, state: "ServerState") -> None:
        canvas.title(1, y, canvas.width - 2, "How far it got")
        runs: list[Run] = []
        for row in phase_rows(state, self.board.sglang_version()):
            failed = row.mark == "✗"
            runs.append((f"{row.mark} ", "err!" if failed else "ok" if row.mark == "✓" else "muted"))
            runs.append((LONG[row.phase], "err!" if failed else "muted"))
            if row.took_s is not None:
                runs.append((f" {fmt.duration(row.took_s)}", "text"))
            runs.append(("    " if canvas.width >= 130 else "  ", "muted"))
        canvas.runs(1, y + 1, runs[:-1], canvas.width - 2)


def _ledger_bar(
    canvas: Canvas, x: int, y: int, width: int, row: "LedgerRow", column: Callable[[float], int], over: float | None
) -> None:
    """Parts of one rank's memory; what is over the budget of `over` GiB is hatched. `column` is the place of a value."""
    canvas.put(x, y, "▆" * width, "track")
    used = 0.0
    end = 0
    for name, value in ledger_parts(row, None):
        if name == "free":
            break
        spec, glyph = LEDGER[name]
        used += value
        begin, place = end, column(used)
        end = max(begin + 1, place) if place else begin
        canvas.put(x + begin, y, glyph * (end - begin), spec if glyph == "▆" else f"{spec}/track")
    if over is not None:
        first = column(over)
        canvas.put(x + first, y, "▞" * max(1, end - first), "err")


@dataclass(frozen=True)
class _Piece:
    """A row of the evidence."""

    number: int  # of its first line in the file
    mark: tuple[str, str]
    time: str | None
    rank: str
    text: str
    spec: str
    note: tuple[Run, ...]


def _near(log: "LogWindow", number: int, rows: int) -> list[_Piece]:
    from tui.core.logs.folding import Folds
    from tui.core.logs.rows import LogRows
    from tui.core.logs.window import LogWindow

    at = log.at_line(number)
    if at is None:
        return []
    near = LogWindow()
    near.append(log.records[max(0, at - log.first - _LOOK_BACK) : at - log.first + 4 * rows])
    log_rows = LogRows(near, folds=Folds(tracebacks=False))
    return _pieces([log_rows.row(index) for index in log_rows.sequence])


def _pieces(rows: "Sequence[Row]") -> list[_Piece]:
    """Rows of a log; of each traceback's frames only the last line of source stands for itself."""
    pieces: list[_Piece] = []
    frames: list[Row] = []

    def put(row: "Row") -> None:
        item = line_of(row)
        pieces.append(_Piece(row.record.number, item.mark, item.time, item.rank, item.text, item.spec, item.note))

    def close() -> None:
        raising = max((i for i, row in enumerate(frames) if _SOURCE.match(row.record.text)), default=None)
        hidden = frames[:raising] if raising is not None else frames
        # The log folds frames of one file into one row: what is called tells them apart then.
        heads = sum(1 for row in hidden if _FRAME.match(row.record.text))
        calls = sum(1 for row in hidden if _SOURCE.match(row.record.text))
        if max(heads, calls) < 2:
            hidden = []
        if hidden:
            lines = sum(row.count for row in hidden)
            first = hidden[0].record
            note = ((f"≡ {lines:,} lines", "muted"),)
            pieces.append(
                _Piece(
                    first.number,
                    ("≡", "muted"),
                    None,
                    first.rank or fmt.NONE,
                    f"  … {max(heads, calls)} frames",
                    "muted",
                    note,
                )
            )
        for row in frames[len(hidden) :]:
            put(row)
        frames.clear()

    for row in rows:
        text = row.record.text
        if not text.strip():
            continue
        if _FRAME.match(text) or (frames and _INSIDE.match(text)):
            frames.append(row)
            continue
        close()
        put(row)
    close()
    return pieces
