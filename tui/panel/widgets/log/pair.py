"""Two logs, or two ranks of one, side by side: lines of one second beside each other, gaps where one side is silent."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType

from tui import format as fmt
from tui.core.logs.filters import LogFilter
from tui.core.logs.folding import Folds
from tui.core.logs.rows import LogRows, Row
from tui.core.logs.timeline import SideBySide
from tui.panel.widgets.log.lines import fresh, line_of, put_text, since
from tui.panel.widgets.log.scroll import LOG_KEYS, Scrolled
from tui.panel.widgets.log.text import width_of
from tui.panel.widgets.paint import Canvas, Run, end_of

if TYPE_CHECKING:
    from tui.panel.open_log import OpenLog

LEAST_WIDTH = 80  # below that neither side can be read
_TIME = 10  # cells of the time and what keeps it apart


@dataclass(frozen=True)
class Side:
    """What one side shows.

    Args:
        name: for its title.
        rank: a rank of the log; None shows all.
    """

    name: str
    log: "OpenLog"
    rank: str | None = None


class LogPair(Scrolled):
    """Rows of two columns on a common time axis; one of them is the one that keys act on."""

    BINDINGS: ClassVar[list[BindingType]] = LOG_KEYS

    def __init__(self, left: Side, right: Side, filter: LogFilter, folds: Folds, *, relative: bool) -> None:
        """`relative`: the axis is time since either log's start, else the time of day."""
        super().__init__(id="pair")
        self.sides = (left, right)
        self.relative = relative
        self.both = (
            LogRows(left.log.file.window, self._filter_of(filter, left), folds),
            LogRows(right.log.file.window, self._filter_of(filter, right), folds),
        )
        self.beside = self._paired()
        self.side = 0  # the one that keys act on
        self._seen_serials: object = None
        self._found: tuple[list[int], list[int], list[int]] = ([], [], [])  # rows with hits, errors, phases
        self._find_marks(0)

    def _paired(self) -> SideBySide:
        starts = [side.log.start_s or 0.0 if self.relative else 0.0 for side in self.sides]
        return SideBySide(self.both[0], self.both[1], starts[0], starts[1])

    @staticmethod
    def _filter_of(filter: LogFilter, side: Side) -> LogFilter:
        return filter if side.rank is None else replace(filter, ranks=frozenset((side.rank,)))

    # -- what there is ---------------------------------------------------------------------------------------------

    def keys(self) -> Sequence[int]:
        self._sync()
        return range(len(self.beside.rows))

    def place_of(self, key: int) -> int:
        return min(max(0, key), len(self.beside.rows) - 1)

    def more(self, step: int) -> bool:
        return any(not (side.log.file.at_begin if step < 0 else side.log.file.at_tail) for side in self.sides)

    def lacking(self, step: int) -> "OpenLog":
        """The log of which less is loaded that way on the common axis, of those that continue there."""
        ends = self._ends(step)
        return self.sides[0 if ends[0] <= ends[1] else 1].log

    def uneven(self, step: int) -> bool:
        """Whether one side is blank that way only because nothing of it is loaded there."""
        ends = self._ends(step)
        return abs(ends[0][1] - ends[1][1]) >= 1 and not min(ends)[0]

    def _ends(self, step: int) -> list[tuple[bool, float]]:
        """Of either side whether there is no more that way, and how far what is loaded reaches, in seconds."""
        ends: list[tuple[bool, float]] = []
        for side in self.sides:
            log = side.log
            start = log.start_s or 0.0 if self.relative else 0.0
            stamp = log.first_stamp() if step < 0 else log.last_stamp()
            reach = (start if stamp is None else stamp) - start
            ends.append((log.file.at_begin if step < 0 else log.file.at_tail, reach * step))
        return ends

    def update(self) -> None:
        """Takes in what the logs got since, and repaints."""
        self._sync()
        if self.following:
            for log_rows in self.both:
                log_rows.fold_before(log_rows.window.settled_end - fresh(self.rows))
            self._pair_rows()
        self.repaint()

    def _sync(self) -> None:
        """Takes in what the logs got since: what is read meanwhile may have pushed out what was there."""
        seen = tuple((side.log.file.window, side.log.file.window.serial) for side in self.sides)
        if seen == self._seen_serials:
            return
        self._seen_serials = seen
        for side, log_rows in zip(self.sides, self.both, strict=True):
            if log_rows.window is not side.log.file.window:
                log_rows.set(window=side.log.file.window)
            log_rows.update()
        self._pair_rows()

    def _pair_rows(self) -> None:
        """Rows of what the logs have now, the reader where they were."""
        rows = self.beside.rows
        kept = [rows[key] if 0 <= key < len(rows) else None for key in (self._top, self.current or 0)]
        changed = self.beside.update()
        if changed >= len(self.beside.rows):
            return
        self._find_marks(changed)
        for name, pair in zip(("_top", "current"), kept, strict=True):
            key = getattr(self, name)
            if pair is not None and key is not None and key >= changed:
                setattr(self, name, self._place_now(pair.left, pair.right, changed, key))

    def _place_now(self, left: int | None, right: int | None, begin: int, key: int) -> int:
        """Where a row is that was elsewhere before."""
        for place in range(begin, len(self.beside.rows)):
            pair = self.beside.rows[place]
            if (left is not None and pair.left == left) or (right is not None and pair.right == right):
                return place
        return min(key, len(self.beside.rows) - 1)

    def _find_marks(self, begin: int) -> None:
        for found in self._found:
            del found[bisect_left(found, begin) :]
        marks = [[set(log_rows.hits), set(log_rows.errors), set(log_rows.phases)] for log_rows in self.both]
        for place in range(begin, len(self.beside.rows)):
            pair = self.beside.rows[place]
            for kind, found in enumerate(self._found):
                if pair.left in marks[0][kind] or pair.right in marks[1][kind]:
                    found.append(place)

    def searching(self) -> bool:
        return any(log_rows.filter.text for log_rows in self.both)

    def set_filter(self, filter: LogFilter) -> None:
        """Another search; which ranks are shown stays. Raises UsageError where its expression is wrong."""
        for side, log_rows in zip(self.sides, self.both, strict=True):
            log_rows.set(filter=self._filter_of(replace(filter, ranks=None), side))
        self.beside.update()
        self._find_marks(0)
        self.moved()

    def index(self, place: int | None = None) -> int | None:
        """Index of the record of the side that keys act on, in a row; the cursor's where none is given."""
        rows = self.beside.rows
        if place is None:
            place = self.place if self.place is not None else len(rows) - 1
        if not rows:
            return None
        pair = rows[place]
        return pair.left if self.side == 0 else pair.right

    def acted_on(self) -> "tuple[LogRows, OpenLog]":
        """What keys act on: rows, and the log they are of."""
        return self.both[self.side], self.sides[self.side].log

    def current_row(self) -> Row | None:
        """The row under the cursor on the side that keys act on."""
        index = self.index()
        return self.both[self.side].row(index) if index is not None else None

    def selected(self) -> list[Row]:
        """Rows of the selection on that side."""
        found = [self.index(place) for place in self.selection()]
        return [self.both[self.side].row(index) for index in found if index is not None]

    def show_time(self, stamp_s: float) -> None:
        """Puts the cursor on the first row that is not older than a stamp of the left log."""
        wanted = stamp_s - (self.sides[0].log.start_s or 0.0) if self.relative else stamp_s
        rows = self.beside.rows
        place = bisect_left(rows, wanted, key=lambda pair: -1e18 if pair.time_s is None else pair.time_s)
        if rows:
            self.show_key(min(place, len(rows) - 1))

    # -- keys ------------------------------------------------------------------------------------------------------

    def action_side(self, step: int) -> None:
        """The other side."""
        self.side = 0 if step < 0 else 1
        self.moved()

    def action_hit(self, step: int) -> None:
        """Next or previous hit on either side."""
        self._go_to_next(self._found[0], step)

    def action_error(self, step: int) -> None:
        """Next or previous error on either side."""
        self._go_to_next(self._found[1], step)

    def action_phase(self, step: int) -> None:
        """Next or previous beginning of a phase on either side."""
        self._go_to_next(self._found[2], step)

    def _go_to_next(self, places: list[int], step: int) -> None:
        found = self.next_of(places, step)
        if found is not None:
            pair = self.beside.rows[found]
            if (pair.right if self.side else pair.left) is None:
                self.side = 1 - self.side
            self.show_key(found)

    def action_folds(self) -> None:
        """Repeats and tracebacks folded, or every line."""
        fold = not self.both[0].folds.repeats
        folds = Folds(repeats=fold, tracebacks=fold)
        with self._rearranged():
            for log_rows in self.both:
                log_rows.set(folds=folds)

    def action_clock(self) -> None:
        """Time of day, or time since either log began."""
        with self._rearranged():
            self.relative = not self.relative
            self.beside = self._paired()

    def action_fold(self) -> None:
        """Opens or closes the fold under the cursor."""
        index = self.index()
        if index is not None:
            with self._rearranged():
                self.both[self.side].toggle(index)

    @contextmanager
    def _rearranged(self) -> Iterator[None]:
        """Other rows, with the cursor on the same lines."""
        pair = self.beside.rows[self.place] if self.place is not None else None
        yield
        self.beside.update()
        self._find_marks(0)
        if pair is not None:
            self.show_key(self._place_now(pair.left, pair.right, 0, self.current or 0))
        self.moved()

    # -- painting --------------------------------------------------------------------------------------------------

    def room(self) -> int:
        return (self.size.width - 2 - _TIME) // 2 - 3

    def longest(self) -> int:
        first, _ = self.first_shown()
        lines = [
            line_of(log_rows.row(index)).text
            for pair in self.beside.rows[first : first + self.rows]
            for log_rows, index in zip(self.both, (pair.left, pair.right), strict=True)
            if index is not None
        ]
        return max(map(width_of, lines), default=0)

    def draw(self, canvas: Canvas) -> None:
        half = (canvas.width - 2 - _TIME) // 2
        columns = (1 + _TIME, 1 + _TIME + half + 1)
        for number, (side, x) in enumerate(zip(self.sides, columns, strict=True)):
            focus = self.has_focus and number == self.side
            canvas.title(x, 0, half - 1, end_of(side.name, half // 2), self._facts(number), focus=focus)
        canvas.put(1, 0, "elapsed" if self.relative else "time", "muted", _TIME - 1)
        if not self.beside.rows:
            canvas.put(columns[0], 1, "no line passes the filter", "muted")
            return
        first, _ = self.first_shown()
        chosen, place = self.selection(), self.place if not self.following else None
        before: float | None = None
        for y, number in enumerate(range(first, min(len(self.beside.rows), first + self.rows)), 1):
            pair = self.beside.rows[number]
            here = number == place
            ground = "/raised" if here else "/accbg" if number in chosen else ""
            if ground:
                canvas.fill(1, y, canvas.width - 2, 1, ground[1:])
            if pair.time_s is not None and (pair.time_s != before or y == 1):
                time = since(pair.time_s) if self.relative else fmt.clock(pair.time_s, 0)
                canvas.put(1, y, time, "muted" + ground, _TIME - 1)
            before = pair.time_s
            canvas.put(columns[1] - 2, y, "│", "line" + ground)
            for at, (log_rows, index) in enumerate(zip(self.both, (pair.left, pair.right), strict=True)):
                if index is not None:
                    strong = here and at == self.side
                    self._cell(canvas, columns[at], y, half - 2, log_rows.row(index), at, strong=strong, ground=ground)
            if here:
                canvas.put(columns[self.side] - 1, y, "▌", ("accent" if self.has_focus else "muted") + ground)

    def _cell(
        self, canvas: Canvas, x: int, y: int, width: int, row: Row, at: int, *, strong: bool, ground: str
    ) -> None:
        line = line_of(row)
        canvas.put(x, y, line.mark[0], line.mark[1] + ground)
        end = x + width
        x += 2
        if self.sides[at].rank is None:
            canvas.put(x, y, line.rank, "muted" + ground, 6)
            x += 7
        if line.note and width > 50:
            end = canvas.right_runs(end, y, [(part, spec + ground) for part, spec in line.note[:1]]) - 2
        put_text(canvas, x, y, end, line, self.both[at], (0, line.text), self.shift, here=strong, ground=ground)

    def _facts(self, number: int) -> list[Run]:
        log, log_rows = self.sides[number].log, self.both[number]
        state = log.state() or log.busy
        facts: list[Run] = [(f"{state} · ", "warn" if log.state() else "muted")] if state else []
        pair = self.beside.rows[self.place] if self.place is not None and not self.following else None
        index = None if pair is None else pair.right if number else pair.left
        line = log_rows.window.number_of(log_rows.row(index).record) if index is not None else None
        if line is not None:
            facts += [("line ", "muted"), (f"{line:,}", "text")]
        elif self.following:
            facts.append(("following", "accent"))
        return facts
