"""The whole log: search in all of it, ranks, phases, errors, decode figures; two logs side by side."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import ClassVar

from textual import events, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.timer import Timer
from textual.widgets import Input

from tui import format as fmt
from tui.core.errors import EagletuiError, UsageError
from tui.core.logs.rows import Row
from tui.core.model.log import LogRecord
from tui.panel.host_view import Board
from tui.panel.keys import bindings, keys
from tui.panel.open_log import Beside, OpenLog, line_number, line_text
from tui.panel.screens.log_dialogs import BesideDialog, WriteDialog, to_write
from tui.panel.screens.log_following import LogFollowing
from tui.panel.widgets.footer import Keys
from tui.panel.widgets.log.head import HitCount, LogState, Prompt, RankLine, counted
from tui.panel.widgets.log.pair import LEAST_WIDTH, LogPair, Side
from tui.panel.widgets.log.plot import DecodePlot
from tui.panel.widgets.log.view import LogView
from tui.panel.widgets.paint import Run

_TYPED_S = 0.06  # what is typed faster is looked for once
_ASKED_S = 0.3  # and the host is asked when typing pauses
_PLOT_FROM = 36  # rows of the terminal


class Search(Input):
    """The search line; Tab turns marking into filtering."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("search field")


class Logs(LogFollowing):
    """Search line and ranks, decode figures, the log."""

    NAME = "Logs"
    AUTO_FOCUS = "LogView"
    BINDINGS: ClassVar[list[BindingType]] = bindings("logs", "p", "W", "+ -", ":", "|")

    def __init__(self, board: Board) -> None:
        super().__init__(board)
        self.plotting = True
        self._timer: Timer | None = None

    def content(self) -> ComposeResult:
        yield LogState(self.view, id="logstate")
        with Horizontal(id="searchline"):
            yield Prompt(id="prompt")
            yield Search(placeholder="search", id="search")
            yield HitCount(self.view, id="hits")
            yield RankLine(self.view, id="ranksline")
        yield DecodePlot(self.board)
        yield self.view

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
        plot, log = self.query_one(DecodePlot), self.view.open_log
        plot.points = log.points() if log is not None else ()
        plot.cursor_s = self._cursor_s()
        found = self.board.economics() if not self.board.stale else None
        plot.baseline = found[1].tok_s * found[1].concurrency if found is not None else None
        plot.break_even = found[0].breakeven_tau if found is not None else None
        plot.display = self.plotting and self.size.height >= _PLOT_FROM and len(plot.points) > 1

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
        if view.log_rows.hidden:  # of a part of the log they would say little
            return []
        log = view.open_log
        told = len(log.file.marks.errors) if log is not None and not log.whole else 0
        return [
            ("▲ ", "warn"),
            (f"{fmt.plural(view.log_rows.window.warnings, 'warning')}", "muted"),
            (" · ", "muted"),
            ("✗ ", "err"),
            (f"{fmt.plural(max(told, len(view.log_rows.errors)), 'error')}", "muted"),
        ]

    def on_scrolled_changed(self) -> None:
        for painted in (self.query_one(LogState), self.query_one(RankLine), self.query_one(HitCount)):
            painted.repaint()
        plot = self.query_one(DecodePlot)
        plot.cursor_s = self._cursor_s()
        plot.repaint()
        self.update_footer()

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
        self._timer = self.set_timer(_TYPED_S, self._apply_search)

    def _apply_search(self) -> None:
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
        log = self.view.open_log
        if log is None:
            return
        log.search = None
        if not text:
            return
        await asyncio.sleep(_ASKED_S)
        try:
            await log.look_for(text, regex)
        except UsageError as error:
            self.query_one(HitCount).tell(error.message)

    def on_input_submitted(self) -> None:
        search, view = self.query_one(Search), self.view
        self.set_focus(self.front)
        if search.value.startswith(":"):
            where, search.value = search.value[1:].strip(), view.filter.text
            self._go_to(where)
            return
        self._apply_search()
        if view.filter.text and (self.pair is not None or counted(view)[0] is None):
            self.front.action_hit(-1 if self.front.following else 1)

    @work(exclusive=True, group="reach", exit_on_error=False)
    async def _go_to(self, where: str) -> None:
        """A line of the file, a time, or a place in it in per cent."""
        view, log = self.view, self.view.open_log
        if log is None or ((number := line_number(where)) is not None and view.show_line(number)):
            return
        try:
            index = await log.go_to(where)
        except UsageError as error:
            self.eagle.say(error.message, severity="warning")
            return
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

    def action_toggle_filter(self) -> None:
        """Marks hits among all lines, or shows only lines with hits."""
        self._apply_search()
        self._set_filter(only_hits=not self.view.filter.only_hits)

    def action_toggle_regex(self) -> None:
        """The text is looked for as it is, or is a regular expression."""
        self._apply_search()
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
            self._apply_search()
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
            if front.open_fold() or (record := front.current_record()) is None:
                return
            self.eagle.show_line(record, front.log_rows.window.number_of(record))
        elif (row := front.current_row()) is not None:
            if row.count > 1 or row.lines > 1:
                front.action_fold()
            else:
                self.eagle.show_line(row.record, front.both[front.side].window.number_of(row.record))

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
            return "\n".join(map(line_text, self._records_shown(rows))), fmt.plural(len(rows), "row")
        row = front.current_row()
        if row is None:
            return None
        if row.lines > 1:
            return "\n".join(map(line_text, self._records_shown([row]))), "traceback"
        return row.record.text, "line"

    def _records_shown(self, rows: Sequence[Row]) -> list[LogRecord]:
        """What rows show: a traceback with all its lines, of a line that was logged again and again one."""
        log_rows, _ = self.front.acted_on()
        records: list[LogRecord] = []
        for row in rows:
            records += log_rows.members(row.index) if row.lines > 1 else [row.record]
        return records

    def action_write(self) -> None:
        """The selection, else every line that passes the filter, into a file."""
        front = self.front
        log_rows, log = front.acted_on()
        if log is None or not log_rows.sequence:
            self.eagle.say("Nothing to write here")
            return
        records, what = to_write(log, log_rows, front.selected())

        def done(path: str | None) -> None:
            if path is not None:
                self.eagle.say(f"wrote {fmt.plural(len(records), 'line')} to {path}")

        self.app.push_screen(WriteDialog(log.name, what, list(map(line_text, records))), done)

    # -- two logs --------------------------------------------------------------------------------------------------

    def action_beside(self) -> None:
        """Another rank, or another run, beside the log; one log again."""
        if self.pair is not None:
            self.close_pair()
            return
        if self.size.width < LEAST_WIDTH:
            self.eagle.say(
                f"Side by side needs {LEAST_WIDTH} columns; this terminal has {self.size.width}", severity="warning"
            )
            return
        found = _choices(self.view, self.eagle.logs_beside())
        if not found:
            self.eagle.say("Nothing to show beside it: one rank, and no other run on this host")
            return

        def chosen(number: int | None) -> None:
            if number is not None:
                self.show_beside(found[number])

        self.app.push_screen(BesideDialog([(choice.name, choice.about) for choice in found]), chosen)

    def show_beside(self, choice: Beside) -> None:
        """Shows two logs, where there is room for them."""
        if self.size.width >= LEAST_WIDTH:
            self._show_pair(choice)

    @work(exclusive=True, group="beside", exit_on_error=False)
    async def _show_pair(self, choice: Beside) -> None:
        try:
            await _show_pair(self.view, choice, self._put_pair, self.eagle.touch)
        except EagletuiError as error:
            self.eagle.tell(error)

    async def _put_pair(self, pair: LogPair, stamp_s: float | None) -> None:
        """Puts two logs in the place of one; the cursor goes to a time of the left one."""
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


def _choices(view: LogView, others: Sequence[Beside]) -> list[Beside]:
    """What can be shown beside the log of a view: its ranks, and others."""
    row = view.current_row()
    ranks = [rank for rank in view.known_ranks() if rank != "main"]
    own = row.record.rank if row is not None and row.record.rank in ranks else next(iter(ranks), None)
    of_ranks = [
        Beside(f"{left} | {right}", "ranks of this log", ranks=(left, right))
        for rank in [*ranks, "main"]
        if own is not None and rank != own
        for left, right in [sorted((own, rank), key=["main", *ranks].index)]
    ]
    return [*of_ranks, *others]


async def _show_pair(
    view: LogView, choice: Beside, put: Callable[[LogPair, float | None], Awaitable[None]], touch: Callable[[], object]
) -> None:
    """Shows two logs, and follows the other one until this is cancelled. Raises EagletuiError where it cannot be read.

    Args:
        put: puts them on the screen, with the cursor at a time of the left one.
        touch: called where something of the other one is new.
    """
    log = view.open_log
    source = choice.source()
    if log is None or (source is None and choice.ranks is None):
        return
    row = view.current_row() if not view.following else None
    stamp = row.record.stamp_s if row is not None else None
    if source is None or choice.ranks is not None:
        left, right = (Side(rank, log, rank) for rank in choice.ranks or ())
        await put(LogPair(left, right, view.filter, view.log_rows.folds, relative=False), stamp)
        return
    other = OpenLog(source.name, source.file, touch=touch)
    following = asyncio.create_task(other.follow(source))
    try:
        both_ready = asyncio.ensure_future(asyncio.gather(log.ready(), other.ready()))
        await asyncio.wait((both_ready, following), return_when=asyncio.FIRST_COMPLETED)
        relative = _apart(log, other)
        if stamp is not None:
            start, zero = log.start_s or 0.0, other.start_s or 0.0
            await other.jump_to_time(stamp - start + zero if relative else stamp)
        sides = Side(log.name, log), Side(other.name, other)
        await put(LogPair(*sides, view.filter, view.log_rows.folds, relative=relative), stamp)
        await following
        touch()
        await asyncio.Event().wait()  # it is displayed until somebody closes it
    finally:
        following.cancel()


def _apart(left: OpenLog, right: OpenLog) -> bool:
    """Whether two logs were written at different times, so that only the time since their starts is common to them."""
    spans = [(log.start_s or 0.0, log.last_stamp() or 0.0) for log in (left, right)]
    return spans[0][1] < spans[1][0] or spans[1][1] < spans[0][0]
