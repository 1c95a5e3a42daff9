"""The whole log: search in all of it, ranks, phases, errors, decode figures; two logs side by side."""

import asyncio
import contextlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from textual import events, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.timer import Timer
from textual.widgets import Input

from tui import format as fmt
from tui.core.errors import EagletuiError, UsageError
from tui.panel.host_view import Board
from tui.panel.keys import keys
from tui.panel.open_log import LogSource, Reading, line_text
from tui.panel.screens.base import Mode
from tui.panel.widgets.footer import Keys
from tui.panel.widgets.log.head import HitCount, LogState, Prompt, RankLine, counted
from tui.panel.widgets.log.pair import LEAST_WIDTH, LogPair, Side
from tui.panel.widgets.log.plot import DecodePlot
from tui.panel.widgets.log.scroll import Scrolled
from tui.panel.widgets.log.view import LogView
from tui.panel.widgets.paint import Run

if TYPE_CHECKING:
    from tui.core.logs.rows import Row
    from tui.core.model.log import LogRecord

_TYPED_S = 0.06  # what is typed faster is looked for once
_ASKED_S = 0.3  # and the host is asked when typing pauses
_BLOCKS = 4  # loaded at once where a filter hides nearly all of each
_FILLED = 3  # times that many, for a first page
_PLOT_FROM = 36  # rows of the terminal
_CLOCK = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?")
_NOTHING = {"hit": "No hit", "phase": "No phase", "error": "No error"}


@dataclass(frozen=True)
class Beside:
    """Something that can be shown beside the log."""

    name: str
    about: str
    ranks: tuple[str, str] | None = None  # two ranks of the log on show
    source: Callable[[], LogSource | None] = lambda: None  # another log


def apart(left: Reading, right: Reading) -> bool:
    """Whether two logs were written at different times, so that only the time since their starts is common to them."""
    spans = [(reading.start_s or 0.0, reading.last_stamp() or 0.0) for reading in (left, right)]
    return spans[0][1] < spans[1][0] or spans[1][1] < spans[0][0]


class Search(Input):
    """The search line; Tab turns marking into filtering."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "screen.toggle_filter", "filter", show=False, priority=True),
        Binding("ctrl+r", "screen.toggle_regex", "expression", show=False, priority=True),
    ]


class Logs(Mode):
    """Search line and ranks, decode figures, the log."""

    NAME = "Logs"
    AUTO_FOCUS = "LogView"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "back", show=False),
        Binding("enter", "open", "open", show=False),
        Binding("p", "plot", "plot", show=False),
        Binding("W", "write", "write", show=False),
        Binding("plus", "context(1)", "more context", show=False),
        Binding("minus", "context(-1)", "less context", show=False),
        Binding("colon", "line", "line", show=False),
        Binding("vertical_line", "beside", "side by side", show=False),
    ]

    def __init__(self, board: Board) -> None:
        super().__init__(board)
        self.view = LogView(board, numbers=True)
        self.pair: LogPair | None = None
        self.plotting = True
        self._timer: Timer | None = None
        self._loading = False
        self._filled = 0

    def content(self) -> ComposeResult:
        yield LogState(self.board)
        with Horizontal(id="searchline"):
            yield Prompt(id="prompt")
            yield Search(placeholder="search", id="search")
            yield HitCount(self.board)
            yield RankLine(self.board)
        yield DecodePlot(self.board)
        yield self.view

    def on_mount(self) -> None:
        view = self.view
        self.query_one(LogState).view = view
        self.query_one(RankLine).view = view
        self.query_one(HitCount).view = view

    def on_resize(self) -> None:
        self.set_class(self.size.width < 100, "-narrow")
        self.set_class(self.size.height < 30, "-short")
        self._give_plot()

    def update(self) -> None:
        if not self.is_mounted:
            return
        self.open()
        self.view.sync()
        if self.pair is not None:
            self.pair.update()
        self._fill()
        self._give_plot()
        super().update()

    def _give_plot(self) -> None:
        plot, reading = self.query_one(DecodePlot), self.view.reading
        plot.points = reading.points() if reading is not None else ()
        plot.cursor_s = self._cursor_s()
        found = self.board.economics() if not self.board.stale else None
        plot.baseline = found[1].tok_s * found[1].concurrency if found is not None else None
        plot.break_even = found[0].breakeven_tau if found is not None else None
        plot.display = self.plotting and self.size.height >= _PLOT_FROM and len(plot.points) > 1

    @property
    def front(self) -> LogView | LogPair:
        """What is on show: the log, or two of them."""
        return self.pair or self.view

    def _cursor_s(self) -> float | None:
        view = self.front
        row = view.current_row() if view.current is not None and not view.following else None
        return row.record.stamp_s if row is not None else None

    def footer_keys(self) -> Keys:
        if self.front.marked is not None:
            return (*keys("j k g G", "y", "W", where="logs"), ("Esc", "drop"), *keys("?", "q"))
        if self.pair is not None:
            return (
                ("|", "one log"),
                ("← →", "side"),
                *keys("/", "n N", "t", "[ ]", "e E", "z", "f", "V", "y", "?", "q", where="logs"),
            )
        names = ("/", "n N", "R", "[ ]", "e E", "z", "f", "W", "V", "w", "t", "|", "y", "Enter", "?", "q")
        return keys(*names, where="logs")

    def field_keys(self) -> Keys:
        turned = "highlight" if self.view.filter.only_hits else "filter"
        return (
            ("Enter", "done"),
            ("Tab", turned),
            ("↑ ↓", "hits"),
            ("Esc", "back"),
            ("^R", "expression"),
            (":318", "line"),
        )

    def footer_note(self) -> list[Run]:
        view = self.view
        if view.lens is None or view.lens.hidden:  # of a part of the log they would say little
            return []
        reading = view.reading
        told = len(reading.known_marks("error")) if reading is not None and not reading.whole else 0
        return [
            ("▲ ", "warn"),
            (f"{fmt.plural(view.lens.window.warnings, 'warning')}", "muted"),
            (" · ", "muted"),
            ("✗ ", "err"),
            (f"{fmt.plural(max(told, len(view.lens.errors)), 'error')}", "muted"),
        ]

    def on_scrolled_changed(self) -> None:
        for painted in (self.query_one(LogState), self.query_one(RankLine), self.query_one(HitCount)):
            painted.repaint()
        plot = self.query_one(DecodePlot)
        plot.cursor_s = self._cursor_s()
        plot.repaint()
        self.update_footer()

    # -- the file behind the log -----------------------------------------------------------------------------------

    def open(self) -> None:
        """Opens the file of the run on show, once."""
        source = self.eagle.log_source() if self.board.reading is None else None
        if source is not None:
            self._filled = 0
            self.board.reading = Reading(source.name, file=source.file, touch=self.eagle.touch)
            self._follow(self.board.reading, source)

    @work(exclusive=True, group="reading", exit_on_error=False)
    async def _follow(self, reading: Reading, source: LogSource) -> None:
        surveying = asyncio.create_task(reading.survey())
        try:
            await reading.follow(source)
            with contextlib.suppress(EagletuiError):
                await surveying
        except EagletuiError as error:
            reading.problem = error.message
        except Exception as error:
            reading.problem = self.eagle.report_fault(error).message
        finally:
            surveying.cancel()
            self.eagle.touch()

    def _fill(self) -> None:
        """Loads blocks, but not for ever, while what is loaded does not fill the first page."""
        view, reading = self.view, self.view.reading
        if reading is None or reading.file is None or self._loading or self._filled >= _FILLED:
            return
        if view.following and view.wants(-1) and view.keys():
            self._filled += 1
            self._more(-1)

    def on_scrolled_near(self, event: Scrolled.Near) -> None:
        if not self._loading:
            self._more(event.step)

    @work(group="more", exit_on_error=False)
    async def _more(self, step: int) -> None:
        front = self.front
        self._loading = True
        try:
            for _ in range(_BLOCKS):
                reading = front.lacking(step) if isinstance(front, LogPair) else front.reading
                if reading is None:
                    break
                came = await (reading.earlier() if step < 0 else reading.later())
                front.update()
                blank = isinstance(front, LogPair) and front.uneven(step)
                if not came or not (blank or front.wants(step)):
                    break
        except EagletuiError as error:
            self.eagle.tell(error)
        finally:
            self._loading = False

    def on_scrolled_beyond(self, event: Scrolled.Beyond) -> None:
        self._reach(event.what, event.step)

    @work(exclusive=True, group="reach", exit_on_error=False)
    async def _reach(self, what: str, step: int) -> None:
        view, reading = self.view, self.view.reading
        if reading is None:
            return
        try:
            if self.pair is not None:
                await self._reach_both(self.pair, what, step)
                return
            index = await reading.reach(what, step, view.here(step))
        except EagletuiError as error:
            self.eagle.tell(error)
            return
        view.sync()
        if what == "end":
            view.action_bottom()
        elif index is not None:
            view.show_key(index)
            if what == "hit":
                view.open_hit(step)
        elif reading.problem is None:
            self.eagle.say(_NOTHING.get(what, "Nothing") + " in the whole log")

    @staticmethod
    async def _reach_both(pair: LogPair, what: str, step: int) -> None:
        """The beginning or the end of both logs."""
        for reading in {side.reading for side in pair.sides}:
            await reading.reach(what, step, None)
        pair.update()
        if what == "end":
            pair.action_bottom()
        elif pair.keys():
            pair.show_key(0)

    # -- searching -------------------------------------------------------------------------------------------------

    def action_search(self) -> None:
        """The search line."""
        search = self.query_one(Search)
        search.select_on_focus = True
        self.set_focus(search)  # at once: what is typed next is for it

    def action_line(self) -> None:
        """The search line, for the number of a line."""
        search = self.query_one(Search)
        search.value = ":"
        search.select_on_focus = False
        self.set_focus(search)
        search.cursor_position = 1

    def on_input_changed(self) -> None:
        if self._timer is not None:
            self._timer.stop()
        self._timer = self.set_timer(_TYPED_S, self._look)

    def _look(self) -> None:
        """Looks for what the search line holds: at once in what is loaded, then in the whole file."""
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        text = self.query_one(Search).value
        if not text.startswith(":") and text != self.view.filter.text:
            self._set_filter(text=text)

    def _set_filter(self, **changes: object) -> None:
        view = self.view
        before = view.filter
        count = self.query_one(HitCount)
        try:
            view.set_filter(replace(before, **changes))  # type: ignore[arg-type]
        except UsageError as error:  # half an expression is typed
            count.tell(error.message)
            return
        count.tell(None)
        now = view.filter
        if self.pair is not None:
            self.pair.set_filter(now)
        if (now.text, now.regex) != (before.text, before.regex):
            self._search_file(now.text, now.regex)
        self.update_footer()

    @work(exclusive=True, group="search", exit_on_error=False)
    async def _search_file(self, text: str, regex: bool) -> None:
        reading = self.view.reading
        if reading is None or reading.file is None:
            return
        reading.search = None
        if not text:
            return
        await asyncio.sleep(_ASKED_S)
        try:
            await reading.look_for(text, regex)
        except UsageError as error:
            self.query_one(HitCount).tell(error.message)

    def on_input_submitted(self) -> None:
        search, view = self.query_one(Search), self.view
        self.set_focus(self.front)
        if search.value.startswith(":"):
            where, search.value = search.value[1:].strip(), view.filter.text
            self._go_to(where)
            return
        self._look()
        if view.filter.text and (self.pair is not None or counted(view)[0] is None):
            self.front.action_hit(-1 if self.front.following else 1)

    @work(exclusive=True, group="reach", exit_on_error=False)
    async def _go_to(self, where: str) -> None:
        """A line of the file, a time, or a place in it in per cent."""
        view, reading = self.view, self.view.reading
        number = where.replace(",", "").removesuffix("%")
        clock = _CLOCK.fullmatch(where)
        if reading is None or not (number.isdigit() or clock):
            self.eagle.say(":3318 is line 3,318, :20:33 a time, :50% the middle of the file", severity="warning")
            return
        try:
            if clock:
                index = await reading.jump_to_time(self._stamp_of(reading, clock))
            elif where.endswith("%"):
                index = await reading.jump_to_share(min(100, int(number)) / 100)
            elif view.show_line(int(number)):
                return
            else:
                index = await reading.jump_to_line(int(number))
        except EagletuiError as error:
            self.eagle.tell(error)
            return
        view.sync()
        if index is not None:
            view.show_record(index)

    def go_to_line(self, number: int) -> None:
        """Puts the cursor on a line of the file, as soon as that can be."""
        self.view.sync()
        if not self.view.show_line(number):
            self._go_to(str(number))

    def _stamp_of(self, reading: Reading, clock: re.Match[str]) -> float:
        """The last time before the log's end that a clock on the wall said that."""
        seconds = int(clock[1]) * 3600 + int(clock[2]) * 60 + int(clock[3] or 0)
        last = reading.last_stamp() or 0.0
        day = last // 86_400 * 86_400
        return day + seconds if day + seconds <= last or not day else day - 86_400 + seconds

    def action_toggle_filter(self) -> None:
        """Marks hits among all lines, or shows only lines with hits."""
        self._look()
        self._set_filter(only_hits=not self.view.filter.only_hits)

    def action_toggle_regex(self) -> None:
        """The text is looked for as it is, or is a regular expression."""
        self._look()
        self._set_filter(regex=not self.view.filter.regex)

    def action_context(self, step: int) -> None:
        """More or fewer lines around each hit while only hits are shown."""
        filter = self.view.filter
        if not (filter.text and filter.only_hits):
            self.eagle.say("Lines of context are for a filter: / searches, Tab there shows only hits")
            return
        self._set_filter(context=max(0, min(50, filter.context + step)))

    def on_key(self, event: events.Key) -> None:
        if event.key in ("down", "up") and isinstance(self.focused, Search):
            event.stop()
            self._look()
            self.front.action_hit(1 if event.key == "down" else -1)

    # -- other actions ---------------------------------------------------------------------------------------------

    def action_back(self) -> None:
        """Out of the search line; a selection, a search, a filter is dropped; then the dashboard."""
        view, front, search = self.view, self.front, self.query_one(Search)
        filter = view.filter
        if self.focused is not front and self.focused is not None:
            if search.value.startswith(":"):
                search.value = filter.text
            self.set_focus(front)
        elif front.marked is not None:
            front.action_select()
        elif self.pair is not None:
            self.close_pair()
        elif filter.text:
            search.value, front.shift = "", 0  # a hit far to the right had moved all lines
            self._set_filter(text="", only_hits=False, context=0)
        elif filter.ranks is not None or not filter.access:
            view.set_filter(replace(filter, ranks=None, access=True))
        elif self.board.viewing is None:
            self.app.switch_mode("dashboard")

    def action_open(self) -> None:
        """The fold under the cursor, else the whole line."""
        front = self.front
        if isinstance(front, LogView):
            if front.open_fold() or (record := front.current_record()) is None or front.lens is None:
                return
            self.eagle.show_line(record, front.lens.window.number_of(record))
        elif (row := front.current_row()) is not None:
            if row.count > 1 or row.lines > 1:
                front.action_fold()
            else:
                self.eagle.show_line(row.record, front.lenses[front.side].window.number_of(row.record))

    def action_plot(self) -> None:
        """Decode figures over the log, or more rows of it."""
        self.plotting = not self.plotting
        self.update()

    def copied_text(self) -> tuple[str, str] | None:
        """The lines of the selection, else the traceback or the line under the cursor, else the newest."""
        front = self.front
        rows = front.selected()
        if rows:
            front.action_select()
            return "\n".join(map(line_text, self._seen(rows))), fmt.plural(len(rows), "row")
        row = front.current_row()
        if row is None:
            return None
        if row.lines > 1:
            return "\n".join(map(line_text, self._seen([row]))), "traceback"
        return row.record.text, "line"

    def _seen(self, rows: "Sequence[Row]") -> "list[LogRecord]":
        """What rows show: a traceback with all its lines, of a line that was said again and again one."""
        front = self.front
        lens = front.lens if isinstance(front, LogView) else front.lenses[front.side]
        records: list[LogRecord] = []
        for row in rows:
            records += lens.members(row.index) if row.lines > 1 and lens is not None else [row.record]
        return records

    def action_write(self) -> None:
        """The selection, else every line that passes the filter, into a file."""
        from tui.core.logs.rows import Folds, Lens
        from tui.panel.screens.log_dialogs import WriteDialog

        front = self.front
        if isinstance(front, LogView):
            lens, reading = front.lens, front.reading
        else:
            lens, reading = front.lenses[front.side], front.sides[front.side].reading
        if lens is None or reading is None or not lens.sequence:
            self.eagle.say("Nothing to write here")
            return
        chosen = front.selected()
        if chosen:
            records = [record for row in chosen for record in lens.members(row.index)]
            records.sort(key=lambda record: record.offset)
        else:
            every = Lens(lens.window, lens.filter, Folds(repeats=False, tracebacks=False))
            records = [lens.window.record(index) for index in every.sequence]
        what = fmt.plural(len(records), "line") + (" of the selection" if chosen else "")
        if not chosen and lens.hidden:
            what += " that pass the filter"
        if not chosen and not reading.whole and reading.file is not None:
            loaded, size = reading.file.end - reading.file.begin, reading.file.size or 0
            what += f" of what is loaded, {fmt.size(loaded)} of {fmt.size(size)}"

        def done(path: str | None) -> None:
            if path is not None:
                self.eagle.say(f"wrote {fmt.plural(len(records), 'line')} to {path}")

        self.app.push_screen(WriteDialog(reading.name, what, list(map(line_text, records))), done)

    # -- two logs --------------------------------------------------------------------------------------------------

    def action_beside(self) -> None:
        """Another rank, or another run, beside the log; one log again."""
        from tui.panel.screens.log_dialogs import BesideDialog

        if self.pair is not None:
            self.close_pair()
            return
        if self.size.width < LEAST_WIDTH:
            self.eagle.say(
                f"Side by side needs {LEAST_WIDTH} columns; this terminal has {self.size.width}", severity="warning"
            )
            return
        choices = self._choices()
        if not choices:
            self.eagle.say("Nothing to show beside it: one rank, and no other run on this host")
            return

        def chosen(number: int | None) -> None:
            if number is not None:
                self.show_beside(choices[number])

        self.app.push_screen(BesideDialog([(choice.name, choice.about) for choice in choices]), chosen)

    def _choices(self) -> list[Beside]:
        view = self.view
        row = view.current_row()
        ranks = [rank for rank in view.known_ranks() if rank != "main"]
        own = row.record.rank if row is not None and row.record.rank in ranks else next(iter(ranks), None)
        choices = [
            Beside(f"{left} | {right}", "ranks of this log", ranks=(left, right))
            for rank in [*ranks, "main"]
            if own is not None and rank != own
            for left, right in [sorted((own, rank), key=["main", *ranks].index)]
        ]
        return [*choices, *self.eagle.logs_beside()]

    def show_beside(self, choice: Beside) -> None:
        """Shows two logs, where there is room for them."""
        if self.size.width >= LEAST_WIDTH:
            self._show_pair(choice)

    @work(exclusive=True, group="beside", exit_on_error=False)
    async def _show_pair(self, choice: Beside) -> None:
        """Follows the other log for as long as both are on show."""
        view, reading = self.view, self.view.reading
        if reading is None:
            return
        row = view.current_row() if not view.following else None
        stamp = row.record.stamp_s if row is not None else None
        try:
            if choice.ranks is not None:
                left, right = (Side(rank, reading, rank) for rank in choice.ranks)
                await self._put_pair(LogPair(left, right, view.filter, view.folds, relative=False), stamp)
                return
            source = choice.source()
            if source is None:
                return
            other = Reading(source.name, file=source.file, touch=self.eagle.touch)
            following = asyncio.create_task(other.follow(source))
            try:
                await asyncio.wait(
                    (asyncio.ensure_future(asyncio.gather(reading.ready(), other.ready())), following),
                    return_when=asyncio.FIRST_COMPLETED,
                )
                relative = apart(reading, other)
                if stamp is not None:
                    start, zero = reading.start_s or 0.0, other.start_s or 0.0
                    await other.jump_to_time(stamp - start + zero if relative else stamp)
                sides = Side(reading.name, reading), Side(other.name, other)
                await self._put_pair(LogPair(*sides, view.filter, view.folds, relative=relative), stamp)
                await following
                self.eagle.touch()
                await asyncio.Event().wait()  # it is on show until somebody closes it
            finally:
                following.cancel()
        except EagletuiError as error:
            self.eagle.tell(error)

    async def _put_pair(self, pair: LogPair, stamp_s: float | None) -> None:
        self.pair = pair
        self.view.display = False
        await self.mount(pair, after=self.view)
        self.set_focus(pair)
        if stamp_s is not None:
            pair.call_after_refresh(pair.show_time, stamp_s)
        elif pair.uneven(-1) and not self._loading:
            self._more(-1)
        self.update()

    def close_pair(self) -> None:
        """One log again."""
        pair, self.pair = self.pair, None
        if pair is not None:
            self.workers.cancel_group(self, "beside")
            pair.remove()
            self.view.display = True
            self.set_focus(self.view)
            self.update()
