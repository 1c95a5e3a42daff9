"""The whole log: search in all of it, ranks, phases, errors, decode figures; two logs side by side."""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from textual import events, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.timer import Timer
from textual.widgets import Input

from tui import format as fmt
from tui.board import Board
from tui.commands import keys
from tui.core.errors import EagletuiError, UsageError
from tui.reading import LogSource, Reading, line_text
from tui.screens.base import Mode
from tui.widgets.footer import Keys
from tui.widgets.log_head import HitCount, LogState, Prompt, RankLine, counted
from tui.widgets.log_plot import DecodePlot
from tui.widgets.log_view import LogView
from tui.widgets.paint import Run

if TYPE_CHECKING:
    from tui.core.log.lens import Row
    from tui.core.log.logs import LogRecord

_TYPED_S = 0.06  # what is typed faster is looked for once
_ASKED_S = 0.3  # and the host is asked when typing pauses
_BLOCKS = 4  # loaded at once where a filter hides nearly all of each
_PLOT_FROM = 36  # rows of the terminal
_NOTHING = {"hit": "No hit", "phase": "No phase", "error": "No error"}


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
        self.plotting = True
        self._timer: Timer | None = None
        self._loading = False

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
        self._give_plot()
        super().update()

    def _give_plot(self) -> None:
        plot, reading = self.query_one(DecodePlot), self.view.reading
        plot.points = (reading.series.points if reading is not None else ()) or ()
        plot.cursor_s = self._cursor_s()
        plot.display = self.plotting and self.size.height >= _PLOT_FROM and len(plot.points) > 1

    def _cursor_s(self) -> float | None:
        view = self.view
        row = view.current_row() if view.current is not None and not view.following else None
        return row.record.stamp_s if row is not None else None

    def footer_keys(self) -> Keys:
        if self.view.marked is not None:
            return (*keys("j k g G", "y", "W", where="logs"), ("Esc", "drop"), *keys("?", "q"))
        return keys(
            "/",
            "n N",
            "R",
            "[ ]",
            "e E",
            "z",
            "w",
            "f",
            "V",
            "W",
            "t",
            "|",
            "y",
            "Enter",
            "?",
            "q",
            where="logs",
        )

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
        if view.lens is None:
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

    def on_log_view_changed(self) -> None:
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
            self.board.reading = Reading(source.name, file=source.file, touch=self.eagle.touch)
            self._follow(self.board.reading, source)

    @work(exclusive=True, group="reading", exit_on_error=False)
    async def _follow(self, reading: Reading, source: LogSource) -> None:
        surveying = asyncio.create_task(reading.survey())
        try:
            await reading.follow(source.ended)
            with contextlib.suppress(EagletuiError):
                await surveying
        except EagletuiError as error:
            reading.problem = error.message
        except Exception as error:
            reading.problem = self.eagle.report_fault(error).message
        finally:
            surveying.cancel()
            self.eagle.touch()

    def on_log_view_near(self, event: LogView.Near) -> None:
        if not self._loading:
            self._more(event.step)

    @work(group="more", exit_on_error=False)
    async def _more(self, step: int) -> None:
        view, reading = self.view, self.view.reading
        if reading is None:
            return
        self._loading = True
        try:
            for _ in range(_BLOCKS):
                came = await (reading.earlier() if step < 0 else reading.later())
                view.update()
                if not came or not view.wants(step):
                    break
        except EagletuiError as error:
            reading.problem = error.message
            view.repaint()
        finally:
            self._loading = False

    def on_log_view_beyond(self, event: LogView.Beyond) -> None:
        self._reach(event.what, event.step)

    @work(exclusive=True, group="reach", exit_on_error=False)
    async def _reach(self, what: str, step: int) -> None:
        view, reading = self.view, self.view.reading
        if reading is None:
            return
        try:
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

    # -- searching -------------------------------------------------------------------------------------------------

    def action_search(self) -> None:
        """The search line."""
        search = self.query_one(Search)
        search.select_on_focus = True
        search.focus()

    def action_line(self) -> None:
        """The search line, for the number of a line."""
        search = self.query_one(Search)
        search.value = ":"
        search.select_on_focus = False
        search.focus()
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
        self.set_focus(view)
        if search.value.startswith(":"):
            where, search.value = search.value[1:].strip(), view.filter.text
            self._go_to(where)
            return
        self._look()
        if view.filter.text and counted(view)[0] is None:
            view.action_hit(-1 if view.following else 1)

    @work(exclusive=True, group="reach", exit_on_error=False)
    async def _go_to(self, where: str) -> None:
        """A line of the file, or a place in it in per cent."""
        view, reading = self.view, self.view.reading
        number = where.replace(",", "").removesuffix("%")
        if reading is None or not number.isdigit():
            self.eagle.say(":3318 is line 3,318, :50% the middle of the file", severity="warning")
            return
        try:
            if where.endswith("%"):
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
            view.show_key(index)

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
            self.view.action_hit(1 if event.key == "down" else -1)

    # -- other actions ---------------------------------------------------------------------------------------------

    def action_back(self) -> None:
        """Out of the search line; a selection, a search, a filter is dropped; then the dashboard."""
        view, search = self.view, self.query_one(Search)
        filter = view.filter
        if self.focused is not view and self.focused is not None:
            if search.value.startswith(":"):
                search.value = filter.text
            self.set_focus(view)
        elif view.marked is not None:
            view.action_select()
        elif filter.text:
            search.value = ""
            self._set_filter(text="", only_hits=False, context=0)
        elif filter.ranks is not None or not filter.access:
            view.set_filter(replace(filter, ranks=None, access=True))
        elif self.board.viewing is None:
            self.app.switch_mode("dashboard")

    def action_open(self) -> None:
        """The fold under the cursor, else the whole line."""
        if not self.view.open_fold():
            self.eagle.show_line(self.view.current_record())

    def action_plot(self) -> None:
        """Decode figures over the log, or more rows of it."""
        self.plotting = not self.plotting
        self.update()

    def copied_text(self) -> tuple[str, str] | None:
        """The lines of the selection, else the traceback or the line under the cursor, else the newest."""
        view = self.view
        rows = view.selected()
        if rows:
            view.action_select()
            return "\n".join(map(line_text, _seen(view, rows))), fmt.plural(len(rows), "row")
        row, record = view.current_row(), view.current_record()
        if row is None or record is None:
            return None
        if row.lines > 1:
            return "\n".join(map(line_text, _seen(view, [row]))), "traceback"
        return record.text, "line"

    def action_write(self) -> None:
        """The selection, else every line that passes the filter, into a file."""
        from tui.core.log.lens import Folds, Lens
        from tui.screens.log_dialogs import WriteDialog

        view, lens, reading = self.view, self.view.lens, self.view.reading
        if lens is None or reading is None or not lens.sequence:
            self.eagle.say("Nothing to write here")
            return
        chosen = view.selected()
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


def _seen(view: LogView, rows: "Sequence[Row]") -> "list[LogRecord]":
    """What rows show: a traceback with all its lines, of a line that was said again and again one."""
    records: list[LogRecord] = []
    for row in rows:
        records += view.lens.members(row.index) if row.lines > 1 and view.lens is not None else [row.record]
    return records
