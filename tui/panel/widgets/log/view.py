"""The log as it is painted: rows of what is loaded, phases in a gutter, folds, hits, an overview at the right edge."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tui import format as fmt
from tui.core.model.phases import Phase
from tui.panel.widgets.log.browse import LogBrowser
from tui.panel.widgets.log.lines import GUTTER, LogLine, line_of, note_width, put_text, since
from tui.panel.widgets.log.text import width_of, wrapped
from tui.panel.widgets.paint import Canvas, Run
from tui.panel.widgets.paint import width_of as runs_width

if TYPE_CHECKING:
    from tui.panel.open_log import OpenLog

_SHOWN = 4000  # characters of a line that a wrapped row may take


@dataclass(frozen=True)
class _Shown:
    """A row on the screen."""

    index: int
    line: LogLine
    first: int  # which of its rows the first piece is; 0 unless its beginning is above the edge
    pieces: list[tuple[int, str]]  # each with the index of its first character


class LogView(LogBrowser):
    """Rows of a log, a title with facts above them. One column of margin belongs to it on either side."""

    def height(self, place: int) -> int:
        if not self.wrapped:
            return 1
        return len(self._wrapped(line_of(self.log_rows.row(self.keys()[place]), newest=not self.numbers)))

    def longest(self) -> int:
        return max((width_of(shown.line.text) + note_width(shown.line) for shown in self._shown()), default=0)

    def room(self) -> int:
        return self.size.width - self._columns(self.size.width)[-1] - (4 if self.numbers else 1)

    def _wrapped(self, line: LogLine) -> list[tuple[int, str]]:
        return wrapped(line.text[:_SHOWN], max(10, self.room()))

    def here(self, step: int) -> int | None:
        """Where the reader is, for what comes next (1) or before (-1): the cursor's record, else an end of what is displayed."""
        if self.current is not None:
            return self.current
        shown = self._shown()
        return shown[0 if step > 0 else -1].index if shown else None

    def _shown(self) -> list[_Shown]:
        if not self.log_rows.sequence:
            return []
        place, skip = self.first_shown()
        left = self.rows
        out: list[_Shown] = []
        for index in self.log_rows.sequence[place : place + left]:
            line = line_of(self.log_rows.row(index), newest=not self.numbers)
            pieces = self._wrapped(line)[skip : skip + left] if self.wrapped else [(0, line.text)]
            out.append(_Shown(index, line, skip, pieces))
            left -= len(pieces)
            skip = 0
            if left <= 0:
                break
        return out

    def _columns(self, width: int) -> tuple[int, int, int, int, int, int]:
        """Columns: the number's end, the gutter's right end (0 = none), mark, time, rank and text."""
        if not self.numbers:
            return (0, 10, 13, 15, 24, 31) if width >= 100 else (0, 0, 1, 3, 12, 19)
        digits = max(6, self._digits())
        if width >= 100:
            return digits + 1, digits + 11, digits + 14, digits + 16, digits + 25, digits + 32
        return digits + 1, 0, digits + 3, digits + 5, digits + 14, digits + 21

    def _digits(self) -> int:
        """Cells of the highest line number; what is likely, while nobody has counted."""
        log = self.open_log
        number = log.last_line() if log is not None else None
        if number is None and log is not None:
            number = (log.file.size or 0) // 150
        return len(f"{number or 0:,}")

    def draw(self, canvas: Canvas) -> None:
        width = canvas.width
        keys, log = self.keys(), self.open_log
        canvas.title(1, 0, width - 2, "Log", self._facts(width), focus=self.has_focus)
        if log is None or not keys:
            canvas.put(1, 1, self._empty(), "muted", width - 2)
            return
        number_at, gutter, mark_at, time_at, rank_at, text_at = self._columns(width)
        end = width - (4 if self.numbers else 1)
        loaded = self.log_rows.window
        newest = log.phase_at(loaded, loaded.end - 1) if loaded is log.file.tail else None
        own = self.log_rows.row_of(self.current) if self.current is not None and not self.following else None
        chosen = self.selection()
        marked = range(keys[chosen[0]], keys[chosen[-1]] + 1) if chosen else range(0)
        before: Phase | None = None
        y = 1
        for shown in self._shown():
            line = shown.line
            here = shown.index == own
            ground = "/raised" if here else "/accbg" if shown.index in marked else ""
            if ground:
                canvas.fill(1, y, end - 1, len(shown.pieces), ground[1:])
            phase = log.phase_at(loaded, shown.index)
            begins = y == 1 or phase is not before
            for offset, piece in enumerate(shown.pieces):
                row = y + offset
                if gutter:
                    now = phase is not None and phase is newest
                    if begins and offset == 0 and phase is not None:
                        spec = ("accent!" if now else "muted!") + ground
                        canvas.right(gutter, row, GUTTER[phase], spec)
                    edge = "accent" if now else "muted" if begins and offset == 0 and y > 1 else "line"
                    canvas.put(gutter + 1, row, "│", edge + ground)
                stop = end
                if not offset and not shown.first:
                    record = self.log_rows.row(shown.index).record
                    if number_at and record.kind != "marker":  # a line of ours is not in the file
                        number = loaded.number_of(record)
                        spec = ("strong!" if here else "muted") + ground
                        canvas.right(number_at, row, f"{number:,}" if number is not None else "…", spec)
                    canvas.put(mark_at, row, line.mark[0], line.mark[1] + ground)
                    canvas.put(time_at, row, self._clock(shown.index, line), "muted" + ground, 8)
                    canvas.put(rank_at, row, line.rank, "muted" + ground, text_at - rank_at - 1)
                    if line.note:
                        stop = canvas.right_runs(end, row, [(part, spec + ground) for part, spec in line.note]) - 2
                shift = None if self.wrapped else self.shift
                put_text(canvas, text_at, row, stop, line, self.log_rows, piece, shift, here=here, ground=ground)
            if here:
                canvas.put(0, y, "▌", "accent" if self.has_focus else "muted")
            before = phase
            y += len(shown.pieces)
        if self.numbers:
            self._draw_overview(canvas, log)

    def _draw_overview(self, canvas: Canvas, log: "OpenLog") -> None:
        """The column at the right edge: where phases, errors and hits are in all of the log, and which part is displayed."""
        rows = canvas.height - 1
        log_rows, shown = self.log_rows, self._shown()
        sequence = log_rows.sequence
        if rows < 3 or (log.whole and len(sequence) <= rows):
            return
        size = log.file.size or 1

        def row_at(offset: int) -> int:
            return 1 + max(0, min(rows - 1, offset * rows // size))

        def row_of(index: int) -> int:
            if log.whole:
                return 1 + min(rows - 1, bisect_left(sequence, index) * rows // len(sequence))
            return row_at(log_rows.row(index).record.offset)  # the first of a fold may be loaded no more

        first, last = (row_of(shown[0].index), row_of(shown[-1].index)) if shown else (1, 1)
        hits = [row_of(index) for index in _thinned(log_rows.hits, rows)]
        if log.whole:
            phases = [row_of(index) for index in log_rows.phases]
            errors = [row_of(index) for index in _thinned(log_rows.errors, rows)]
        else:
            hits += [row_at(hit.offset) for hit in log.known_hits(rows * 4)]
            phases = [row_at(mark.offset) for mark in log.file.marks.phases]
            errors = [row_at(mark.offset) for mark in log.file.marks.errors]
        x = canvas.width - 2
        for y in range(first, last + 1):
            canvas.put(x + 1, y, "▐", "muted")
        for places, char, spec in ((hits, "–", "warn"), (phases, "▸", "accent"), (errors, "✗", "err")):
            for y in places:
                canvas.put(x, y, char, spec)

    def _clock(self, index: int, line: LogLine) -> str:
        start = self.open_log.start_s if self.open_log is not None else None
        if not self.relative or start is None:
            return line.time or ""
        stamp = self.log_rows.row(index).record.stamp_s
        return since(stamp - start) if stamp is not None else ""

    def _facts(self, width: int) -> list[Run]:
        log = self.open_log
        if log is None:
            return []
        facts: list[Run] = []
        state = log.state() if self.numbers else None
        if state is not None:
            facts += [("▲ ", "warn"), (state, "text"), (" · ", "muted")]
        elif log.busy is not None and self.numbers:
            facts += [(f"{log.busy}… · ", "muted")]
        selected = len(self.selection())
        if selected:
            facts += [(f"{selected:,}", "strong!"), (" rows selected, ", "muted"), ("y", "accent!"), (" copies, ", "muted"),
                      ("W", "accent!"), (" writes · ", "muted")]  # fmt: skip
        elif self.numbers:
            row = self.current_row()
            if row is not None and not self.following:
                number = log.file.window.number_of(row.record) if row.record.number else None
                if number is not None:
                    facts += [("line ", "muted"), (f"{number:,}", "text"), (" · ", "muted")]
                phase = log.phase_at(log.file.window, row.index)
                if phase is not None:
                    facts += [("phase ", "muted"), (GUTTER[phase], "text"), (" · ", "muted")]
            if self.shift:
                facts += [("column ", "muted"), (f"{self.shift + 1:,}", "text"), (" · ", "muted")]
        else:
            lines = self.board.state.startup.lines if self.board.state else 0
            facts += [(f"{lines:,} lines", "muted"), (" · ", "muted")]
            if width >= 150:
                facts += [
                    ("▸", "accent"),
                    (" phase · ", "muted"),
                    ("▲", "warn"),
                    (" warning · ", "muted"),
                    ("≡ folded · ", "muted"),
                ]
        behind = log.behind_bytes if self.numbers else self.board.behind_bytes
        if behind > 65536:
            facts += [(f"{fmt.size(behind)} behind · ", "warn")]
        if self.following:
            facts.append(("following", "accent"))
        else:
            facts += [("not following, ", "muted"), ("f", "accent!"), (" to follow", "muted")]
        return facts if runs_width(facts) < width - 8 else facts[-1:]

    def _empty(self) -> str:
        board, log = self.board, self.open_log
        if log is not None and self.log_rows.hidden:
            return "no line passes the filter"
        if self.numbers and log is not None:
            return log.state() or ("the file is empty" if log.file.window.serial or log.ended else "reading…")
        if board.run is None:
            return "no server, no log" if board.connected else "not connected"
        if board.run.log_path is None and board.state is not None:
            return "this server's output goes nowhere that can be read"
        return "nothing written yet"


def _thinned(places: Sequence[int], rows: int) -> Sequence[int]:
    """A sample of many places: more than a few in a row of the screen look the same."""
    return places[:: max(1, len(places) // (rows * 4))]
