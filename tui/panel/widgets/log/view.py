"""The log as it is painted: rows of what is loaded, phases in a gutter, folds, hits, an overview at the right edge."""

from dataclasses import dataclass

from tui import format as fmt
from tui.core.model.phases import Phase
from tui.panel.widgets.log.browse import LogBrowser
from tui.panel.widgets.log.lines import GUTTER, LONG, LogLine, line_of, note_width, since
from tui.panel.widgets.log.overview import draw_overview
from tui.panel.widgets.log.text import width_of, window, wrapped
from tui.panel.widgets.paint import Canvas, Run
from tui.panel.widgets.paint import width_of as runs_width

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

    # -- what fits -------------------------------------------------------------------------------------------------

    def height(self, place: int) -> int:
        if not self.wrapped or self.log_rows is None:
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

    # -- painting --------------------------------------------------------------------------------------------------

    def _shown(self) -> list[_Shown]:
        """The rows on the screen, from the top."""
        if self.log_rows is None or not self.log_rows.sequence:
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
        if number is None and log is not None and log.file is not None:
            number = (log.file.size or 0) // 150
        return len(f"{number or 0:,}")

    def draw(self, canvas: Canvas) -> None:
        width = canvas.width
        keys, log = self.keys(), self.open_log
        canvas.title(1, 0, width - 2, "Log", self._facts(width), focus=self.has_focus)
        if self.log_rows is None or log is None or not keys:
            canvas.put(1, 1, self._empty(), "muted", width - 2)
            return
        number_at, gutter, mark_at, time_at, rank_at, text_at = self._columns(width)
        end = width - (4 if self.numbers else 1)
        loaded = self._loaded(log)
        newest = log.phase_at(loaded, loaded.end - 1) if loaded is log.tail else None
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
            for offset, (at, text) in enumerate(shown.pieces):
                row = y + offset
                if gutter:
                    now = phase is not None and phase is newest
                    if begins and offset == 0 and phase is not None:
                        spec = ("accent!" if now else "muted!") + ground
                        canvas.right(gutter, row, GUTTER[phase], spec)
                    edge = "accent" if now else "muted" if begins and offset == 0 and y > 1 else "line"
                    canvas.put(gutter + 1, row, "│", edge + ground)
                if offset or shown.first:
                    self._text(canvas, row, line, at, text, text_at, end, here=here, ground=ground)
                    continue
                if number_at:
                    self._number(canvas, number_at, row, shown.index, here=here, ground=ground)
                canvas.put(mark_at, row, line.mark[0], line.mark[1] + ground)
                canvas.put(time_at, row, self._clock(shown.index, line), "muted" + ground, 8)
                canvas.put(rank_at, row, line.rank, "muted" + ground, text_at - rank_at - 1)
                stop = end
                if line.note:
                    stop = canvas.right_runs(end, row, [(part, spec + ground) for part, spec in line.note]) - 2
                self._text(canvas, row, line, at, text, text_at, stop, here=here, ground=ground)
            if here:
                canvas.put(0, y, "▌", "accent" if self.has_focus else "muted")
            before = phase
            y += len(shown.pieces)
        if self.numbers:
            rows = self._shown()
            draw_overview(canvas, log, self.log_rows, (rows[0].index, rows[-1].index) if rows else None)

    def _number(self, canvas: Canvas, end: int, y: int, index: int, *, here: bool, ground: str) -> None:
        assert self._window is not None
        assert self.log_rows is not None
        record = self.log_rows.row(index).record
        if record.kind == "marker":  # a line of ours, it is not in the file
            return
        number = self._window.number_of(record)
        text = f"{number:,}" if number is not None else "…"
        canvas.right(end, y, text, ("strong!" if here else "muted") + ground)

    def _clock(self, index: int, line: LogLine) -> str:
        start = self.open_log.start_s if self.open_log is not None else None
        if not self.relative or start is None or self.log_rows is None:
            return line.time or ""
        stamp = self.log_rows.row(index).record.stamp_s
        return since(stamp - start) if stamp is not None else ""

    def _text(
        self, canvas: Canvas, y: int, line: LogLine, at: int, text: str, x: int, end: int, *, here: bool, ground: str
    ) -> None:
        room = end - x
        if room <= 0:
            return
        spec = ("strong" if here and line.spec == "text" else line.spec) + ground
        visible, begin = (text, at) if self.wrapped else window(text, self.shift, room)
        canvas.put(x, y, visible, spec, room)
        if not self.wrapped:
            if self.shift and text:
                canvas.put(x, y, "…", "muted" + ground)
            if begin + len(visible) < len(text):
                canvas.put(end - 1, y, "…", spec)
        assert self.log_rows is not None
        if not self.filter.text:
            return
        hit = "bg!/warn" if here else "hittext/hit"
        for first, last in self.log_rows.spans(line.text[: begin + len(visible) + LONG]):
            first, last = max(first, begin), min(last, begin + len(visible))
            if first < last:
                column = x + width_of(line.text[begin:first])
                canvas.put(column, y, line.text[first:last], hit, end - column)

    def _facts(self, width: int) -> list[Run]:
        log = self.open_log
        if log is None or self.log_rows is None:
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
                number = log.window.number_of(row.record) if row.record.number else None
                if number is not None:
                    facts += [("line ", "muted"), (f"{number:,}", "text"), (" · ", "muted")]
                phase = log.phase_at(log.window, row.index)
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
        if log is not None and self.log_rows is not None and self.log_rows.hidden:
            return "no line passes the filter"
        if self.numbers and log is not None and log.file is not None:
            return log.state() or ("the file is empty" if log.window.serial or log.ended else "reading…")
        if board.run is None:
            return "no server, no log" if board.connected else "not connected"
        if board.run.log_path is None and board.state is not None:
            return "this server's output goes nowhere that can be read"
        return "nothing written yet"
