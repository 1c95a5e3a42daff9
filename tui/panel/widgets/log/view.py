"""The log: rows of what is loaded, phases in a gutter, folds, hits; a reader who scrolled up is never moved."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType

from tui import format as fmt
from tui.core.model.phases import Phase
from tui.panel.host_view import Board
from tui.panel.widgets.log.scroll import Scrolled
from tui.panel.widgets.log.text import flat, width_of, window, wrapped
from tui.panel.widgets.paint import Canvas, Run
from tui.panel.widgets.paint import width_of as runs_width
from tui.panel.widgets.server_card import SHORT

if TYPE_CHECKING:
    from tui.core.logs.rows import Folds, Lens, LogFilter, Row
    from tui.core.logs.window import LogWindow
    from tui.core.model.log import LogRecord
    from tui.panel.open_log import Reading

GUTTER = {**SHORT, Phase.DISTRIBUTED_INIT: "dist init"}
_MARKS = {"phase": ("▸", "accent"), "marker": ("▸", "accent"), "warning": ("▲", "warn"), "error": ("✗", "err")}
_SHOWN = 4000  # characters of a line that a wrapped row may take
_LONG = 1000  # from here on the length is told


@dataclass(frozen=True)
class LogLine:
    """What one row shows, whether it is one record or a fold of many."""

    record: "LogRecord"  # the one whose text is shown
    text: str  # on one line, without tabs
    mark: tuple[str, str]
    spec: str
    rank: str
    note: tuple[Run, ...]
    time: str | None  # of a fold its first


def line_of(row: "Row", *, newest: bool = False) -> LogLine:
    """How a row is shown.

    Args:
        newest: a fold of repeats shows the text of its newest record; its time stays that of the first.
    """
    record = row.record
    repeated = row.lines == 1 and row.count > 1 and len(row.ranks) != row.count and record.kind != "bar"
    shown = row.shown if newest or row.lines > 1 else record
    note: tuple[Run, ...] = ()
    if repeated:
        note = ((f"×{row.count:,}", "strong!"),)
        if row.last is not None and row.last.time and row.last.time != record.time:
            note += ((f"  last {row.last.time}", "muted"),)
    elif row.note:
        note = ((row.note, "muted"),)
    length = len(shown.text) + shown.cut_bytes
    if length > _LONG and not note:
        note = ((fmt.size(length), "muted"),)
    folded = repeated or shown.kind == "note"
    mark = _MARKS.get(shown.kind, ("≡", "muted") if folded else (" ", "text"))
    if shown.kind == "error":
        spec = "err!"
    elif shown.kind in ("phase", "marker"):
        spec = "strong"
    else:
        spec = "muted" if folded or row.context else "text"
    return LogLine(shown, flat(shown.text), mark, spec, row.rank_label, note, record.time)


def _beside(line: LogLine) -> int:
    """Cells that the note at the right end takes from the text."""
    return runs_width(line.note) + 2 if line.note else 0


@dataclass(frozen=True)
class _Shown:
    """A row on show."""

    index: int
    line: LogLine
    first: int  # which of its rows the first piece is; 0 unless its beginning is above the edge
    pieces: list[tuple[int, str]]  # each with the index of its first character


class LogView(Scrolled):
    """Rows of a log, a title with facts above them. One column of margin belongs to it on either side.

    A row's key is the absolute index of a record in the window, so the cursor stays on its record whatever folds or
    filters show of it.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "hit(1)", "next hit", show=False),
        Binding("N", "hit(-1)", "previous hit", show=False),
        Binding("right_square_bracket", "phase(1)", "next phase", show=False),
        Binding("left_square_bracket", "phase(-1)", "previous phase", show=False),
        Binding("e", "error(1)", "next error", show=False),
        Binding("E", "error(-1)", "previous error", show=False),
        Binding("z", "folds", "folds", show=False),
        Binding("space", "fold", "open or close", show=False),
        Binding("w", "wrap", "wrap", show=False),
        Binding("t", "clock", "time", show=False),
        Binding("R", "ranks", "ranks", show=False),
        Binding("A", "access", "access lines", show=False),
    ]

    def __init__(self, board: Board, *, numbers: bool = False) -> None:
        super().__init__(id="log")
        self.board = board
        self.numbers = numbers  # line numbers and the overview at the right edge: the logs screen
        self.relative = False  # times since the start of the log
        self.lens: Lens | None = None
        self._window: LogWindow | None = None
        self._read: Reading | None = None

    # -- what there is ---------------------------------------------------------------------------------------------

    @property
    def reading(self) -> "Reading | None":
        """The log on show: the whole file on the logs screen, once it is open, else what is watched."""
        whole, tail = self.board.reading if self.numbers else None, self.board.tail
        return whole if whole is not None and (whole.opened or tail is None) else tail

    @property
    def filter(self) -> "LogFilter":
        """What is looked for and what is hidden."""
        from tui.core.logs.rows import LogFilter

        return self.lens.filter if self.lens is not None else LogFilter()

    @property
    def folds(self) -> "Folds":
        """Which folds are made."""
        from tui.core.logs.rows import Folds

        return self.lens.folds if self.lens is not None else Folds()

    @property
    def folded(self) -> bool:
        """Whether repeats and tracebacks are folded."""
        return self.folds.repeats

    def keys(self) -> Sequence[int]:
        if self.lens is None:
            return ()
        self.lens.update()  # what is read meanwhile may have pushed out what was there
        return self.lens.sequence

    def place_of(self, key: int) -> int:
        row = self.lens.row_of(key) if self.lens is not None else None
        return bisect_left(self.keys(), row) if row is not None else 0

    def more(self, step: int) -> bool:
        reading = self.reading
        return reading is not None and not (reading.at_begin if step < 0 else reading.at_tail)

    def update(self) -> None:
        """Takes in what the log got since, and repaints."""
        self.sync()
        self.repaint()

    def sync(self) -> None:
        """Takes in what the log got since."""
        reading = self.reading
        if reading is None:
            if self._window is not None:
                self._window = self._read = None
                if self.lens is not None:
                    self.lens = None
            self.following, self.current, self.marked = True, None, None
            return
        if reading.window is not self._window:
            self._take(reading.window)
        if reading is not self._read:
            self._read = reading
            self.following, self.current, self.marked, self.shift = True, None, None, 0
            self._hold()
        assert self.lens is not None
        self.lens.update()
        if self.numbers and self.following:  # the newest lines can be read as they come
            self.lens.fold_before(reading.window.settled_end - fresh(self.rows))

    def _take(self, window: "LogWindow") -> None:
        from tui.core.logs.rows import Lens

        self._window = window
        self.current = self.marked = None
        if self.lens is None:
            self.lens = Lens(window)
        else:
            self.lens.plain_from = window.settled_end - fresh(self.rows) if self.numbers else None
            self.lens.set(window=window)

    def set_filter(self, filter: "LogFilter") -> None:
        """Another filter; the reader stays where they are. Raises UsageError where its expression is wrong."""
        if self.lens is not None:
            self.lens.set(filter=filter)
        self.moved()

    def current_row(self) -> "Row | None":
        """The row under the cursor, else the last one."""
        if self.lens is None or not self.lens.sequence:
            return None
        place = self.place
        return self.lens.row(self.lens.sequence[place if place is not None else -1])

    def current_record(self) -> "LogRecord | None":
        """The record that the row under the cursor quotes, else the last row's."""
        row = self.current_row()
        return None if row is None else row.shown if row.lines > 1 or not self.numbers else row.record

    def selected(self) -> "list[Row]":
        """Rows of the selection, from the top; none without one."""
        keys = self.keys()
        return [self.lens.row(keys[place]) for place in self.selection()] if self.lens is not None else []

    def here(self, step: int) -> int | None:
        """Where the reader is, for what comes next (1) or before (-1): the cursor's record, else an end of what is on show."""
        if self.current is not None:
            return self.current
        shown = self._shown()
        return shown[0 if step > 0 else -1].index if shown else None

    # -- moving ----------------------------------------------------------------------------------------------------

    def height(self, place: int) -> int:
        if not self.wrapped or self.lens is None:
            return 1
        return len(self._wrapped(line_of(self.lens.row(self.keys()[place]), newest=not self.numbers)))

    def longest(self) -> int:
        return max((width_of(shown.line.text) + _beside(shown.line) for shown in self._shown()), default=0)

    def room(self) -> int:
        return self.size.width - self._columns(self.size.width)[-1] - (4 if self.numbers else 1)

    def _wrapped(self, line: LogLine) -> list[tuple[int, str]]:
        return wrapped(line.text[:_SHOWN], max(10, self.room()))

    def moved(self) -> None:
        self._hold()
        super().moved()

    def _hold(self) -> None:
        """Tells the file what must not go while somebody looks at it."""
        reading = self.reading
        if reading is not None and reading.file is not None:
            reading.file.reader = None if self.following else self._top

    def action_hit(self, step: int) -> None:
        """Next or previous hit; in a fold of repeats, which is opened for it."""
        if self.lens is not None and self.jump("hit", self.lens.hits, step) is not None:
            self.open_hit(step)

    def open_hit(self, step: int) -> None:
        """Opens the fold under the cursor for the hit in it, and moves the lines so that the hit can be seen."""
        row, lens = self.current_row(), self.lens
        if row is None or lens is None or self._window is None:
            return
        repeated = row.lines == 1 and row.count > 1 and row.count != len(row.ranks)
        if repeated or (row.lines > 1 and not lens.spans(flat(row.shown.text))):
            end = self._window.index_of(row.last) if row.last is not None else None
            lens.toggle(row.index)
            at = bisect_left(lens.hits, row.index) if step > 0 or end is None else bisect_right(lens.hits, end) - 1
            if 0 <= at < len(lens.hits):
                self.show_key(lens.hits[at])
        self._show_sideways()

    def _show_sideways(self) -> None:
        """Moves the lines so that the first hit of the cursor's row can be seen."""
        row = self.current_row()
        if row is None or self.lens is None or self.wrapped:
            return
        line = line_of(row, newest=not self.numbers)
        found = self.lens.spans(line.text)
        if not found:
            return
        begin, end = (width_of(line.text[:at]) for at in found[0])
        room = self.room() - _beside(line)
        if end <= room:
            self.shift = 0
        elif not self.shift <= begin < end <= self.shift + room:
            self.shift = max(0, begin - room // 2)
        self.moved()

    def action_phase(self, step: int) -> None:
        """Next or previous beginning of a phase."""
        if self.lens is not None:
            self.jump("phase", self.lens.phases, step)

    def action_error(self, step: int) -> None:
        """Next or previous error line."""
        if self.lens is not None:
            self.jump("error", self.lens.errors, step)

    def show_record(self, index: int) -> None:
        """Puts the cursor on a record; a fold that hides it is opened."""
        self.show_key(index)
        row = self.current_row()
        if row is not None and self.lens is not None and self._window is not None:
            record = self._window.record(index)
            if record is not row.record and record is not row.shown:
                self.lens.toggle(index)
                self.show_key(index)

    def show_line(self, number: int) -> bool:
        """Puts the cursor on a line of the file; False where it is not loaded."""
        index = self._window.at_line(number) if self._window is not None else None
        if index is None:
            return False
        self.show_record(index)
        return True

    # -- how it is shown -------------------------------------------------------------------------------------------

    def action_folds(self) -> None:
        """Repeated lines and tracebacks folded into one row each, or every line; the cursor stays on its record."""
        if self.lens is None:
            return
        from tui.core.logs.rows import Folds

        fold = not self.folded
        top = self.first_shown()[0] if self.current is not None else 0
        place = self.place
        self.lens.set(folds=Folds(repeats=fold, tracebacks=fold))
        if place is not None and (now := self.place) is not None:  # its row stays where it is on the screen
            self.put_top(now - (place - top))
        self.moved()

    def open_fold(self) -> bool:
        """Opens the fold under the cursor; False where its row is a single line."""
        row = self.current_row() if self.current is not None else None
        if row is None or (row.count == 1 and row.lines == 1):
            return False
        self.action_fold()
        return True

    def action_fold(self) -> None:
        """Opens the fold under the cursor, or closes the one that its line is of."""
        if self.lens is None or self.current is None:
            return
        self.lens.toggle(self.current)
        self.show_key(self.current)

    def action_wrap(self) -> None:
        """Long lines over several rows, or cut."""
        self.wrapped = not self.wrapped
        self.shift = self._skip = 0
        self.moved()

    def action_clock(self) -> None:
        """Time of day, or time since the log began."""
        self.relative = not self.relative
        self.moved()

    def known_ranks(self) -> list[str]:
        """Rank tags seen in the log, `main` first."""
        state = self.board.state
        seen = dict.fromkeys(rank.tag for rank in state.startup.ranks if rank.tag) if state else {}
        if self.reading is not None:
            seen.update(self.reading.ranks)
        seen.pop("main", None)
        return ["main", *sorted(seen, key=_natural)]

    def action_ranks(self) -> None:
        """All ranks, then one after the other."""
        order = [None, *(frozenset((rank,)) for rank in self.known_ranks())]
        present = self.filter.ranks
        at = order.index(present) if present in order else 0
        self.set_ranks(order[(at + 1) % len(order)])

    def set_ranks(self, ranks: "frozenset[str] | None") -> None:
        """Shows lines of these ranks only; None shows all."""
        self.set_filter(replace(self.filter, ranks=ranks))

    def action_access(self) -> None:
        """Access lines of the HTTP server, or all but those."""
        self.set_filter(replace(self.filter, access=not self.filter.access))

    # -- painting --------------------------------------------------------------------------------------------------

    def _shown(self) -> list[_Shown]:
        """The rows on show, from the top."""
        if self.lens is None or not self.lens.sequence:
            return []
        place, skip = self.first_shown()
        left = self.rows
        out: list[_Shown] = []
        for index in self.lens.sequence[place : place + left]:
            line = line_of(self.lens.row(index), newest=not self.numbers)
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
        reading = self.reading
        number = reading.last_line() if reading is not None else None
        if number is None and reading is not None and reading.file is not None:
            number = (reading.file.size or 0) // 150
        return len(f"{number or 0:,}")

    def draw(self, canvas: Canvas) -> None:
        width = canvas.width
        keys, reading = self.keys(), self.reading
        canvas.title(1, 0, width - 2, "Log", self._facts(width), focus=self.has_focus)
        if self.lens is None or reading is None or not keys:
            canvas.put(1, 1, self._empty(), "muted", width - 2)
            return
        number_at, gutter, mark_at, time_at, rank_at, text_at = self._columns(width)
        end = width - (4 if self.numbers else 1)
        newest = reading.phase_at(reading.window.end - 1) if reading.at_tail else None
        own = self.lens.row_of(self.current) if self.current is not None and not self.following else None
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
            phase = reading.phase_at(shown.index)
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
            self._overview(canvas)

    def _number(self, canvas: Canvas, end: int, y: int, index: int, *, here: bool, ground: str) -> None:
        assert self._window is not None
        assert self.lens is not None
        record = self.lens.row(index).record
        if record.kind == "marker":  # a line of ours, it is not in the file
            return
        number = self._window.number_of(record)
        text = f"{number:,}" if number is not None else "…"
        canvas.right(end, y, text, ("strong!" if here else "muted") + ground)

    def _clock(self, index: int, line: LogLine) -> str:
        start = self.reading.start_s if self.reading is not None else None
        if not self.relative or start is None or self.lens is None:
            return line.time or ""
        stamp = self.lens.row(index).record.stamp_s
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
        assert self.lens is not None
        if not self.filter.text:
            return
        hit = "bg!/warn" if here else "hittext/hit"
        for first, last in self.lens.spans(line.text[: begin + len(visible) + _LONG]):
            first, last = max(first, begin), min(last, begin + len(visible))
            if first < last:
                column = x + width_of(line.text[begin:first])
                canvas.put(column, y, line.text[first:last], hit, end - column)

    def _facts(self, width: int) -> list[Run]:
        reading = self.reading
        if reading is None or self.lens is None:
            return []
        facts: list[Run] = []
        whole = self.board.reading if self.numbers else None
        state = reading.state() or (whole.problem if whole is not None else None)
        if state is not None:
            facts += [("▲ ", "warn"), (state, "text"), (" · ", "muted")]
        elif reading.busy is not None and self.numbers:
            facts += [(f"{reading.busy}… · ", "muted")]
        selected = len(self.selection())
        if selected:
            facts += [(f"{selected:,}", "strong!"), (" rows selected, ", "muted"), ("y", "accent!"), (" copies, ", "muted"),
                      ("W", "accent!"), (" writes · ", "muted")]  # fmt: skip
        elif self.numbers:
            row = self.current_row()
            if row is not None and not self.following:
                number = reading.window.number_of(row.record) if row.record.number else None
                if number is not None:
                    facts += [("line ", "muted"), (f"{number:,}", "text"), (" · ", "muted")]
                phase = reading.phase_at(row.index)
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
        behind = reading.behind_bytes if reading.file is not None else self.board.behind_bytes
        if behind > 65536:
            facts += [(f"{fmt.size(behind)} behind · ", "warn")]
        if self.following:
            facts.append(("following", "accent"))
        else:
            facts += [("not following, ", "muted"), ("f", "accent!"), (" to follow", "muted")]
        return facts if runs_width(facts) < width - 8 else facts[-1:]

    def _empty(self) -> str:
        board, reading = self.board, self.reading
        if reading is not None and self.lens is not None and self.lens.hidden:
            return "no line passes the filter"
        if reading is not None and reading.file is not None:
            return reading.state() or ("the file is empty" if reading.window.serial or reading.ended else "reading…")
        if board.run is None:
            return "no server, no log" if board.connected else "not connected"
        if board.run.log_path is None and board.state is not None:
            return "this server's output goes nowhere that can be read"
        return "nothing written yet"

    def _overview(self, canvas: Canvas) -> None:
        """Where phases, errors and hits are in the whole log, and which part is on show."""
        reading = self.reading
        rows = canvas.height - 1
        assert reading is not None
        assert self.lens is not None
        sequence = self.lens.sequence
        if rows < 3 or (reading.whole and len(sequence) <= rows):
            return
        x = canvas.width - 2
        shown = self._shown()
        if reading.whole:
            count = len(sequence)

            def row_of(index: int) -> int:
                return 1 + min(rows - 1, bisect_left(sequence, index) * rows // count)

            first, last = (row_of(shown[end].index) for end in (0, -1)) if shown else (1, 1)
            hits = [row_of(index) for index in _thinned(self.lens.hits, rows)]
            phases = [row_of(index) for index in self.lens.phases]
            errors = [row_of(index) for index in _thinned(self.lens.errors, rows)]
        else:
            size = max(1, (reading.file.size or 1) if reading.file is not None else 1)

            def row_at(offset: int) -> int:
                return 1 + max(0, min(rows - 1, offset * rows // size))

            lens = self.lens

            def row_of_record(index: int) -> int:
                return row_at(lens.row(index).record.offset)  # the first of a fold may be loaded no more

            first, last = (row_of_record(shown[end].index) for end in (0, -1)) if shown else (1, 1)
            hits = [row_at(hit.offset) for hit in reading.known_hits(rows * 4)]
            hits += [row_of_record(index) for index in _thinned(lens.hits, rows)]
            phases = [row_at(mark.offset) for mark in reading.known_marks("phase")]
            errors = [row_at(mark.offset) for mark in reading.known_marks("error")]
        for y in range(first, last + 1):
            canvas.put(x + 1, y, "▐", "muted")
        for rows_of, char, spec in ((hits, "–", "warn"), (phases, "▸", "accent"), (errors, "✗", "err")):
            for y in rows_of:
                canvas.put(x, y, char, spec)


def fresh(rows: int) -> int:
    """So many of the newest lines are not folded with those before them, on a view of so many rows."""
    return max(4, rows // 3)


def since(seconds: float) -> str:
    """Time since a start in eight cells: `+0:31:58`, `−0:00:04`."""
    total = round(abs(seconds))
    text = f"{total // 3600}:{total % 3600 // 60:02d}:{total % 60:02d}"
    return (("−" if seconds < 0 and total else "+") + text) if total < 36_000 else text


def _thinned(places: Sequence[int], rows: int) -> Sequence[int]:
    """A sample of many places: more than a few in a row of the screen look the same."""
    return places[:: max(1, len(places) // (rows * 4))]


def _natural(tag: str) -> list[tuple[str, int]]:
    parts = []
    for word in tag.split():
        head = word.rstrip("0123456789")
        parts.append((head, int(word[len(head) :] or -1)))
    return parts
