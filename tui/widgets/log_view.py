"""The log: rows of a bounded buffer, phases in a gutter, repeated lines folded; a reader who scrolled up is never moved."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, cast

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message

from tui import format as fmt
from tui.board import Board
from tui.core.log.phases import Phase
from tui.widgets.paint import Canvas, Painted, Run, cells, clip, width_of, wrap
from tui.widgets.server_card import SHORT

if TYPE_CHECKING:
    from tui.core.log.logs import LogBuffer, LogRecord, LogRow

_GUTTER = {**SHORT, Phase.DISTRIBUTED_INIT: "dist init"}
_MARKS = {
    "phase": ("▸", "accent"),
    "marker": ("▸", "accent"),
    "warning": ("▲", "warn"),
    "error": ("✗", "err"),
}
_SHOWN = 4000  # characters of a line that a wrapped row may take
_LONG = 1000  # from here on the length is told


@dataclass(frozen=True)
class LogLine:
    """What one row shows, whether it is one record or a fold of many."""

    record: "LogRecord"  # the one whose text is shown
    mark: tuple[str, str]
    spec: str
    rank: str
    note: tuple[Run, ...]
    time: str | None  # of a fold its first

    @property
    def text(self) -> str:
        """The text, on one line."""
        return self.record.text.expandtabs(4).replace("\n", " ")


def folded(item: "LogRow | LogRecord") -> "LogRow | None":
    """The item where it is a row of the folded view."""
    return cast("LogRow", item) if hasattr(item, "count") else None


def first_number(item: "LogRow | LogRecord") -> int:
    """Line number in the file of the first record of an item."""
    row = folded(item)
    return row.record.number if row is not None else cast("LogRecord", item).number


def line_of(item: "LogRow | LogRecord", *, newest: bool = False) -> LogLine:
    """How a folded row, or a single record, is shown.

    Args:
        newest: a fold shows the text of its newest record; its time stays that of the first.
    """
    row = folded(item)
    if row is not None:
        repeated = row.count > 1 and len(row.ranks) != row.count and row.record.kind != "bar"
        record = row.last if newest and repeated and row.last is not None else row.record
        time = row.record.time
        rank = row.rank_label
        if repeated:
            note: tuple[Run, ...] = ((f"×{row.count:,}", "strong!"),)
            if row.last is not None and row.last.time and row.last.time != time:
                note += ((f"  last {row.last.time}", "muted"),)
        elif row.record.kind == "bar" and row.record.frames > 1:
            note = (("newest frame", "muted"),)
        else:
            note = ((row.note, "muted"),) if row.note else ()
    else:
        record, repeated, note = cast("LogRecord", item), False, ()
        time = record.time
        rank = record.rank or fmt.NONE
    length = len(record.text) + record.cut_bytes
    if length > _LONG and not note:
        note = ((fmt.size(length), "muted"),)
    mark = _MARKS.get(record.kind, ("≡", "muted") if repeated or record.kind == "note" else (" ", "text"))
    if record.kind == "error":
        spec = "err!"
    elif record.kind in ("phase", "marker"):
        spec = "strong"
    else:
        spec = "muted" if repeated or record.kind == "note" else "text"
    return LogLine(record, mark, spec, rank, note, time)


class LogView(Painted):
    """Rows of a `LogBuffer`, a title with facts above them. One column of margin belongs to it on either side."""

    can_focus = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "move(1)", "down", show=False),
        Binding("k,up", "move(-1)", "up", show=False),
        Binding("pagedown,space,ctrl+f", "page(1)", "page down", show=False),
        Binding("pageup,ctrl+b", "page(-1)", "page up", show=False),
        Binding("g,home", "top", "first line", show=False),
        Binding("G,end", "bottom", "last line", show=False),
        Binding("f", "follow", "follow", show=False),
        Binding("n", "hit(1)", "next hit", show=False),
        Binding("N", "hit(-1)", "previous hit", show=False),
        Binding("right_square_bracket", "phase(1)", "next phase", show=False),
        Binding("left_square_bracket", "phase(-1)", "previous phase", show=False),
        Binding("e", "error(1)", "next error", show=False),
        Binding("E", "error(-1)", "previous error", show=False),
        Binding("z", "folds", "folds", show=False),
        Binding("w", "wrap", "wrap", show=False),
        Binding("R", "ranks", "ranks", show=False),
    ]

    class Changed(Message):
        """What is shown, or where the reader is, has changed."""

    def __init__(self, board: Board, *, numbers: bool = False) -> None:
        super().__init__(id="log")
        self.board = board
        self.numbers = numbers  # line numbers and the overview at the right edge: the logs screen
        self.following = True
        self.folded = True
        self.wrapped = False
        self.query_text = ""
        self.filtering = False
        self.rank: str | None = None
        self.current: int | None = None  # absolute index of the cursor row
        self._exact: LogRecord | None = None  # the record under the cursor before its fold took it in
        self._top = 0  # absolute index of the first row on show, while not following
        self._buffer: LogBuffer | None = None
        self._kept: list[int] | None = None  # absolute indices that pass the filters, None = all
        self._hits: list[int] = []
        self._scanned = 0  # absolute index up to which the filters have looked

    # -- the rows --------------------------------------------------------------------------------------------------

    def _line(self, item: "LogRow | LogRecord") -> LogLine:
        # The logs screen quotes the line that its number names; the dashboard tells what goes on.
        return line_of(item, newest=not self.numbers)

    def _source(self) -> "tuple[Sequence[LogRow | LogRecord], int]":
        buffer = self.board.log
        if buffer is None:
            return (), 0
        return (buffer.rows, buffer.first_row) if self.folded else (buffer.records, buffer.first_record)

    def _sequence(self) -> Sequence[int]:
        items, first = self._source()
        return range(first, first + len(items)) if self._kept is None else self._kept

    def update(self) -> None:
        """Takes in what the buffer got since, and repaints."""
        if self.board.log is not self._buffer:
            self._buffer = self.board.log
            self.following, self.current, self._top = True, None, 0
            self._rescan()
        self._scan()
        self.repaint()

    def _rescan(self) -> None:
        self._kept = [] if self.rank is not None or (self.filtering and self.query_text) else None
        self._hits = []
        _, self._scanned = self._source()
        self._scan()

    def _scan(self) -> None:
        """Looks at new rows; the last ones again, as a fold may have grown or a bar moved on."""
        items, first = self._source()
        end = first + len(items)
        if not self.query_text and self._kept is None:
            self._scanned = end
            return
        begin = max(first, self._scanned - 32)
        for found in (self._hits, self._kept):
            if found is not None:
                del found[bisect_left(found, begin) :]
                del found[: bisect_left(found, first)]
        needle = self.query_text
        sensitive = needle != needle.lower()
        for index in range(begin, end):
            item = items[index - first]
            hit = False
            if needle:
                record = self._line(item).record
                hit = needle in (record.text if sensitive else record.text.lower())
                if hit:
                    self._hits.append(index)
            if self._kept is not None and self._passes(item) and (hit or not (self.filtering and needle)):
                self._kept.append(index)
        self._scanned = end

    def _passes(self, item: "LogRow | LogRecord") -> bool:
        if self.rank is None:
            return True
        row = folded(item)
        ranks = row.ranks if row is not None else (cast("LogRecord", item).rank,)
        return self.rank in ranks or (not ranks and self.rank == fmt.NONE)

    def known_ranks(self) -> list[str]:
        """Rank tags seen in the log, `main` first."""
        state = self.board.state
        tags = [rank.tag for rank in state.startup.ranks if rank.tag] if state else []
        return ["main", *tags]

    @property
    def hits(self) -> tuple[int | None, int]:
        """Place of the cursor among the hits (1-based, None where it is not on one), and how many there are."""
        place = None
        if self.current is not None:
            at = bisect_left(self._hits, self.current)
            if at < len(self._hits) and self._hits[at] == self.current:
                place = at + 1
        return place, len(self._hits)

    @property
    def hidden(self) -> int:
        """Rows that the filters hide."""
        items, _ = self._source()
        return 0 if self._kept is None else len(items) - len(self._kept)

    def current_record(self) -> "LogRecord | None":
        """The record under the cursor, else the last one."""
        items, first = self._source()
        if not items:
            return None
        index = self.current if self.current is not None else first + len(items) - 1
        return self._line(items[min(len(items) - 1, max(0, index - first))]).record

    def search(self, text: str, *, filtering: bool | None = None) -> None:
        """Marks a text (case counts where it has capitals), or shows only lines that hold it."""
        self.query_text = text
        if filtering is not None:
            self.filtering = filtering
        self._rescan()
        self.repaint()
        self.post_message(self.Changed())

    # -- moving ----------------------------------------------------------------------------------------------------

    def _rows(self) -> int:
        return max(1, self.size.height - 1)

    def _show(self, index: int) -> None:
        """Puts the cursor on a row and shows it."""
        sequence = self._sequence()
        if not sequence:
            return
        first = bisect_left(sequence, self._first_shown())
        place = min(len(sequence) - 1, max(0, bisect_left(sequence, index)))
        self.current, self._exact = sequence[place], None
        rows = self._rows()
        if self.wrapped:
            self._top = sequence[max(0, place - rows // 4)]
        elif place < first or place >= first + rows:
            first = max(0, min(place - rows // 2, len(sequence) - rows))
            self._top = sequence[first]
        else:
            self._top = sequence[first]
        self.following = False
        self._moved()

    def _moved(self) -> None:
        self.repaint()
        self.post_message(self.Changed())

    def _first_shown(self) -> int:
        sequence = self._sequence()
        if not sequence:
            return 0
        if self.following:
            return sequence[max(0, len(sequence) - self._rows())]
        return self._top

    def action_move(self, step: int) -> None:
        """Moves the cursor; the first time it appears on the last row shown."""
        sequence = self._sequence()
        if not sequence:
            return
        if self.current is None:
            first = bisect_left(sequence, self._first_shown())
            place = min(len(sequence), first + self._rows()) - 1 if step < 0 else first
            self._show(sequence[place])
            return
        place = bisect_left(sequence, self.current) + step
        if place >= len(sequence):
            self.action_bottom()
        else:
            self._show(sequence[max(0, place)])

    def action_page(self, step: int) -> None:
        """A page up or down; past the end it follows again."""
        self._scroll(step * max(1, self._rows() - 1))

    def _scroll(self, rows: int) -> None:
        sequence = self._sequence()
        if not sequence:
            return
        place = bisect_left(sequence, self._first_shown()) + rows
        if (place + self._rows() >= len(sequence) and not self.wrapped) or place >= len(sequence) - 1:
            self.following, self.current = True, None
        else:
            self.following = False
            self._top = sequence[max(0, place)]
            last = sequence[min(len(sequence) - 1, max(0, place) + self._rows() - 1)]
            was = self.current if self.current is not None else last if rows < 0 else self._top
            self.current, self._exact = min(max(was, self._top), last), None
        self._moved()

    def action_top(self) -> None:
        """First row of the buffer."""
        sequence = self._sequence()
        if sequence:
            self._show(sequence[0])

    def action_bottom(self) -> None:
        """Last row, and follow it."""
        self.following, self.current = True, None
        self._moved()

    def action_follow(self) -> None:
        """Follow the newest line, or hold still."""
        sequence = self._sequence()
        if self.following and sequence:
            self._top = self._first_shown()
            self.following, self.current = False, sequence[-1]
            self._moved()
        else:
            self.action_bottom()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self._scroll(-3)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self._scroll(3)

    def on_click(self, event: events.Click) -> None:
        shown = self._shown()
        if 1 <= event.y <= len(shown):
            self._show(shown[event.y - 1][0])

    def _jump(self, places: Sequence[int], step: int) -> None:
        if not places:
            return
        sequence = self._sequence()
        if self.current is not None:
            here = self.current
        elif step > 0:
            here = self._first_shown() - 1
        else:  # back from the end of what is on show
            last = bisect_left(sequence, self._first_shown()) + self._rows()
            here = sequence[last] if last < len(sequence) else sequence[-1] + 1 if sequence else 0
        at = bisect_right(places, here) if step > 0 else bisect_left(places, here) - 1
        self._show(places[at % len(places)])

    def action_hit(self, step: int) -> None:
        """Next or previous hit, around the ends."""
        self._jump(self._hits, step)

    def action_phase(self, step: int) -> None:
        """Next or previous beginning of a phase."""
        if self.folded and self.board.log is not None:
            self._jump([mark.row for mark in self.board.log.phases], step)
        else:
            items, first = self._source()
            self._jump(
                [first + i for i, item in enumerate(items) if self._line(item).record.kind == "phase"], step
            )

    def action_error(self, step: int) -> None:
        """Next or previous error line."""
        if self.folded and self.board.log is not None:
            self._jump(self.board.log.errors, step)
        else:
            items, first = self._source()
            self._jump(
                [first + i for i, item in enumerate(items) if self._line(item).record.kind == "error"], step
            )

    def show_line(self, number: int) -> None:
        """Puts the cursor on a line of the file."""
        items, first = self._source()
        numbers = [first_number(item) for item in items]
        place = bisect_right(numbers, number) - 1 if numbers == sorted(numbers) else -1
        if place < 0:
            place = max(
                (i for i, n in enumerate(numbers) if 0 < n <= number), key=lambda i: numbers[i], default=0
            )
        if items:
            self._show(first + place)

    def action_folds(self) -> None:
        """Repeated lines folded into one, or every line; the cursor stays on its record."""
        buffer = self.board.log
        record = self.current_record() if self.current is not None and not self.following else None
        exact = self._exact
        self.folded = not self.folded
        self.current = None
        self._rescan()
        if record is None or buffer is None:
            self.following = True
        elif self.folded:
            row = buffer.row_of(record)
            self._show(row if row is not None else buffer.first_row)
            self._exact = record
        else:
            wanted = exact if exact is not None else record
            at = next((i for i, found in enumerate(buffer.records) if found is wanted), None)
            self._show(buffer.first_record + (at or 0))
        self._moved()

    def action_wrap(self) -> None:
        """Long lines over several rows, or cut."""
        self.wrapped = not self.wrapped
        self._moved()

    def action_ranks(self) -> None:
        """All ranks, then one after the other."""
        order: list[str | None] = [None, *self.known_ranks()]
        at = order.index(self.rank) if self.rank in order else 0
        self.rank = order[(at + 1) % len(order)]
        self.current, self.following = None, True
        self._rescan()
        self._moved()

    # -- painting --------------------------------------------------------------------------------------------------

    def _shown(self) -> list[tuple[int, list[str]]]:
        """Absolute index and lines of text of each row on show, from the top."""
        sequence = self._sequence()
        items, first = self._source()
        rows = self._rows()
        if not self.wrapped:
            if self.following:
                chosen = sequence[max(0, len(sequence) - rows) :]
            else:
                begin = bisect_left(sequence, self._top)
                # A page at the end stays full while the reader holds still.
                begin = max(0, min(begin, len(sequence) - 1))
                chosen = sequence[begin : begin + rows]
            return [
                (index, [self._line(items[index - first]).text[:_LONG]]) for index in chosen if first <= index
            ]
        width = max(10, self._text_width())
        out: list[tuple[int, list[str]]] = []
        used = 0
        if self.following:
            for index in reversed(sequence):
                lines = wrap(self._line(items[index - first]).text[:_SHOWN], width)
                lines = lines[-(rows - used) :]
                out.append((index, lines))
                used += len(lines)
                if used >= rows:
                    break
            return out[::-1]
        for index in sequence[max(0, min(bisect_left(sequence, self._top), len(sequence) - 1)) :]:
            lines = wrap(self._line(items[index - first]).text[:_SHOWN], width)
            out.append((index, lines[: rows - used]))
            used += len(lines)
            if used >= rows:
                break
        return out

    def _columns(self, width: int) -> tuple[int, int, int, int, int]:
        """Columns of the gutter's right end (0 = none), mark, time, rank and text."""
        if self.numbers and width >= 100:
            return 17, 20, 22, 31, 38
        if self.numbers:
            return 0, 9, 11, 20, 27
        return (10, 13, 15, 24, 31) if width >= 100 else (0, 1, 3, 12, 19)

    def _text_width(self) -> int:
        return self.size.width - self._columns(self.size.width)[4] - (4 if self.numbers else 1)

    def draw(self, canvas: Canvas) -> None:
        width = canvas.width
        canvas.title(1, 0, width - 2, "Log", self._facts(width), focus=self.has_focus)
        items, first = self._source()
        if not items:
            canvas.put(1, 1, self._empty(), "muted", width - 2)
            return
        gutter, mark_at, time_at, rank_at, text_at = self._columns(width)
        end = width - (4 if self.numbers else 1)
        newest = self._line(items[-1]).record.phase
        shown_phase: Phase | None = None
        y = 1
        for index, lines in self._shown():
            item = items[index - first]
            line = self._line(item)
            record = line.record
            begins = index == first or (
                index > first and self._line(items[index - first - 1]).record.phase is not record.phase
            )
            here = index == self.current and not self.following
            if here:
                canvas.fill(1, y, end - 1, len(lines), "raised")
            ground = "/raised" if here else ""
            for offset, text in enumerate(lines):
                row = y + offset
                if gutter:
                    now = record.phase is newest
                    if (
                        record.phase is not None
                        and (begins or shown_phase is not record.phase)
                        and offset == 0
                    ):
                        canvas.right(
                            gutter, row, _GUTTER[record.phase], ("accent!" if now else "muted!") + ground
                        )
                    edge = "accent" if now else "muted" if begins and offset == 0 else "line"
                    canvas.put(gutter + 1, row, "│", edge + ground)
                if offset:
                    self._text(canvas, row, text, text_at, end, line, here=here)
                    continue
                if self.numbers and record.number:
                    number = first_number(item)
                    canvas.right(7, row, f"{number:,}", ("strong!" if here else "muted") + ground)
                canvas.put(mark_at, row, line.mark[0], line.mark[1] + ground)
                canvas.put(time_at, row, line.time or "", "muted" + ground, 8)
                canvas.put(rank_at, row, line.rank, "muted" + ground, text_at - rank_at - 1)
                note = [(part, spec + ground) for part, spec in line.note]
                stop = end
                if note:
                    stop = canvas.right_runs(end, row, note) - 2
                self._text(canvas, row, text, text_at, stop, line, here=here)
            if here:
                canvas.put(0, y, "▌", "accent" if self.has_focus else "muted")
            shown_phase = record.phase
            y += len(lines)
        if self.numbers:
            self._overview(canvas)

    def _text(
        self, canvas: Canvas, y: int, text: str, x: int, end: int, line: LogLine, *, here: bool
    ) -> None:
        ground = "/raised" if here else ""
        room = end - x
        shown = clip(text, room)
        canvas.put(x, y, shown, ("strong" if here and line.spec == "text" else line.spec) + ground, room)
        needle = self.query_text
        if not needle:
            return
        sensitive = needle != needle.lower()
        haystack = shown if sensitive else shown.lower()
        if len(haystack) != len(shown):  # a letter whose lower case is longer: marking would be off
            return
        at = haystack.find(needle)
        while at >= 0:
            column = x + cells(shown[:at])
            canvas.put(
                column, y, shown[at : at + len(needle)], "bg!/warn" if here else "hittext/hit", end - column
            )
            at = haystack.find(needle, at + len(needle))

    def _facts(self, width: int) -> list[Run]:
        buffer = self.board.log
        facts: list[Run] = []
        if buffer is None:
            return facts
        if self.numbers:
            record = self.current_record()
            if record is not None and not self.following:
                if record.number:
                    facts += [("line ", "muted"), (f"{record.number:,}", "text"), (" · ", "muted")]
                if record.phase is not None:
                    facts += [("phase ", "muted"), (_GUTTER[record.phase], "text"), (" · ", "muted")]
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
        if self.board.behind_bytes > 65536:
            facts += [(f"{fmt.size(self.board.behind_bytes)} behind · ", "warn")]
        if self.following:
            facts.append(("following", "accent"))
        else:
            facts += [("not following, ", "muted"), ("f", "accent!"), (" to follow", "muted")]
        return facts if width_of(facts) < width - 8 else facts[-1:]

    def _empty(self) -> str:
        if self.board.run is None:
            return "no server, no log" if self.board.connected else "not connected"
        if self.board.run.log_path is None and self.board.state is not None:
            return "this server's output goes nowhere that can be read"
        if self.hidden:
            return "no line passes the filter"
        return "nothing written yet"

    def _overview(self, canvas: Canvas) -> None:
        """Where phases, errors and hits are in the whole buffer, and which part is on show."""
        sequence = self._sequence()
        _items, _first = self._source()
        rows = canvas.height - 1
        if len(sequence) <= rows or rows < 3:
            return
        x = canvas.width - 2

        def row_of(index: int) -> int:
            return 1 + min(rows - 1, bisect_left(sequence, index) * rows // len(sequence))

        begin = self._first_shown()
        shown = self._shown()
        for y in range(row_of(begin), row_of(shown[-1][0] if shown else begin) + 1):
            canvas.put(x + 1, y, "▐", "muted")
        for hit in self._hits[:: max(1, len(self._hits) // (rows * 4))]:
            canvas.put(x, row_of(hit), "–", "warn")
        if self.folded and self.board.log is not None:
            for mark in self.board.log.phases:
                canvas.put(x, row_of(mark.row), "▸", "accent")
            for error in self.board.log.errors[-400:]:
                canvas.put(x, row_of(error), "✗", "err")
