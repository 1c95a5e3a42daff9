"""Reading a log: filters, folds, hits, phases and errors to jump to; a reader who scrolled up is never moved."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType

from tui.core.logs.filters import LogFilter
from tui.core.logs.folding import Folds
from tui.core.logs.rows import LogRows, Row
from tui.core.logs.window import LogWindow
from tui.core.model.log import LogRecord, rank_order
from tui.panel.host_view import Board
from tui.panel.keys import bindings
from tui.panel.widgets.log.lines import fresh, line_of, note_width
from tui.panel.widgets.log.scroll import LOG_KEYS, Scrolled
from tui.panel.widgets.log.text import flat, width_of

if TYPE_CHECKING:
    from tui.panel.open_log import OpenLog


class LogBrowser(Scrolled):
    """What of the host's log is displayed, and how a reader moves in it; `LogView` paints it.

    A row's key is the absolute index of a record in the window, so the cursor stays on its record whatever folds or
    filters show of it.
    """

    BINDINGS: ClassVar[list[BindingType]] = [*LOG_KEYS, *bindings("logs", "w", "R", "A")]

    def __init__(self, board: Board, *, numbers: bool = False) -> None:
        super().__init__(id="log")
        self.board = board
        self.numbers = numbers  # line numbers and the overview at the right edge: the logs screen
        self.relative = False  # times since the start of the log
        self.log_rows = LogRows(LogWindow())  # of no log
        self._read: OpenLog | None = None

    @property
    def open_log(self) -> "OpenLog | None":
        """The log on display."""
        return self.board.log

    @property
    def filter(self) -> LogFilter:
        """What is looked for and what is hidden."""
        return self.log_rows.filter

    def searching(self) -> bool:
        return bool(self.filter.text)

    def keys(self) -> Sequence[int]:
        self.log_rows.update()  # what is read meanwhile may have pushed out what was there
        return self.log_rows.sequence

    def place_of(self, key: int) -> int:
        row = self.log_rows.row_of(key)
        return bisect_left(self.keys(), row) if row is not None else 0

    def more(self, step: int) -> bool:
        log = self.open_log
        return self.numbers and log is not None and not (log.file.at_begin if step < 0 else log.file.at_tail)

    def update(self) -> None:
        """Takes in what the log got since, and repaints."""
        self.sync()
        self.repaint()

    def sync(self) -> None:
        """Takes in what the log got since."""
        log = self.open_log
        if log is None:
            if self._read is not None:
                self.log_rows, self._read = LogRows(LogWindow()), None
            self.following, self.current, self.marked = True, None, None
            return
        # What the reader has gone to on the logs screen, else the growing end.
        window = log.file.window if self.numbers else log.file.tail
        if window is not self.log_rows.window:
            self.current = self.marked = None
            self.log_rows.plain_from = window.settled_end - fresh(self.rows) if self.numbers else None
            self.log_rows.set(window=window)
        if log is not self._read:
            self._read = log
            self.following, self.current, self.marked, self.shift = True, None, None, 0
            self._hold()
        self.log_rows.update()
        if self.numbers and self.following:  # the newest lines can be read as they come
            self.log_rows.fold_before(window.settled_end - fresh(self.rows))

    def set_filter(self, filter: LogFilter) -> None:
        """Another filter; the reader stays where they are. Raises UsageError where its expression is wrong."""
        self.log_rows.set(filter=filter)
        self.moved()

    def acted_on(self) -> "tuple[LogRows, OpenLog | None]":
        """What keys act on: rows, and the log they are of."""
        return self.log_rows, self.open_log

    def current_row(self) -> Row | None:
        """The row under the cursor, else the last one."""
        if not self.log_rows.sequence:
            return None
        place = self.place
        return self.log_rows.row(self.log_rows.sequence[place if place is not None else -1])

    def current_record(self) -> LogRecord | None:
        """The record that the row under the cursor quotes, else the last row's."""
        row = self.current_row()
        return None if row is None else row.shown if row.lines > 1 or not self.numbers else row.record

    def selected(self) -> list[Row]:
        """Rows of the selection, from the top; none without one."""
        keys = self.keys()
        return [self.log_rows.row(keys[place]) for place in self.selection()]

    def moved(self) -> None:
        self._hold()
        super().moved()

    def _hold(self) -> None:
        """Tells the file what must not go while somebody looks at it."""
        log = self.open_log
        if self.numbers and log is not None:
            log.file.reader = None if self.following else self._top

    def action_hit(self, step: int) -> None:
        """Next or previous hit; in a fold of repeats, which is opened for it."""
        if self.jump("hit", self.log_rows.hits, step) is not None:
            self.open_hit(step)

    def open_hit(self, step: int) -> None:
        """Opens the fold under the cursor for the hit in it, and moves the lines so that the hit can be seen."""
        row, log_rows = self.current_row(), self.log_rows
        if row is None:
            return
        repeated = row.lines == 1 and row.count > 1 and row.count != len(row.ranks)
        if repeated or (row.lines > 1 and not log_rows.spans(flat(row.shown.text))):
            end = log_rows.window.index_of(row.last) if row.last is not None else None
            log_rows.toggle(row.index)
            hits = log_rows.hits
            at = bisect_left(hits, row.index) if step > 0 or end is None else bisect_right(hits, end) - 1
            if 0 <= at < len(hits):
                self.show_key(hits[at])
        self._show_sideways()

    def _show_sideways(self) -> None:
        """Moves the lines so that the first hit of the cursor's row can be seen."""
        row = self.current_row()
        if row is None or self.wrapped:
            return
        line = line_of(row, newest=not self.numbers)
        found = self.log_rows.spans(line.text)
        if not found:
            return
        begin, end = (width_of(line.text[:at]) for at in found[0])
        room = self.room() - note_width(line)
        if end <= room:
            self.shift = 0
        elif not self.shift <= begin < end <= self.shift + room:
            self.shift = max(0, begin - room // 2)
        self.moved()

    def action_phase(self, step: int) -> None:
        """Next or previous beginning of a phase."""
        self.jump("phase", self.log_rows.phases, step)

    def action_error(self, step: int) -> None:
        """Next or previous error line."""
        self.jump("error", self.log_rows.errors, step)

    def show_record(self, index: int) -> None:
        """Puts the cursor on a record; a fold that hides it is opened."""
        self.show_key(index)
        row = self.current_row()
        if row is not None and self.log_rows.window.record(index) not in (row.record, row.shown):
            self.log_rows.toggle(index)
            self.show_key(index)

    def show_line(self, number: int) -> bool:
        """Puts the cursor on a line of the file; False where it is not loaded."""
        index = self.log_rows.window.at_line(number)
        if index is None:
            return False
        self.show_record(index)
        return True

    def action_folds(self) -> None:
        """Repeated lines and tracebacks folded into one row each, or every line; the cursor stays on its record."""
        fold = not self.log_rows.folds.repeats
        top = self.first_shown()[0] if self.current is not None else 0
        place = self.place
        self.log_rows.set(folds=Folds(repeats=fold, tracebacks=fold))
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
        if self.current is not None:
            self.log_rows.toggle(self.current)
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
        if self.open_log is not None:
            seen.update(self.open_log.ranks)
        seen.pop("main", None)
        return ["main", *sorted(seen, key=rank_order)]

    def action_ranks(self) -> None:
        """All ranks, then one after the other."""
        order = [None, *(frozenset((rank,)) for rank in self.known_ranks())]
        present = self.filter.ranks
        at = order.index(present) if present in order else 0
        self.set_ranks(order[(at + 1) % len(order)])

    def set_ranks(self, ranks: frozenset[str] | None) -> None:
        """Shows lines of these ranks only; None shows all."""
        self.set_filter(replace(self.filter, ranks=ranks))

    def action_access(self) -> None:
        """Access lines of the HTTP server, or all but those."""
        self.set_filter(replace(self.filter, access=not self.filter.access))
