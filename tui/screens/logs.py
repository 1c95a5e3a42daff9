"""The whole log: search with highlight or filter, ranks, phases, errors."""

from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widgets import Input

from tui import format as fmt
from tui.board import Board, run_name
from tui.commands import keys
from tui.screens.base import Mode
from tui.widgets.footer import Keys
from tui.widgets.log_view import LogView
from tui.widgets.paint import Canvas, Painted, Run, join
from tui.widgets.server_card import badge


class LogState(Painted):
    """State of the server and what the filters hide, in one line."""

    def __init__(self, board: Board) -> None:
        super().__init__(id="logstate")
        self.board = board
        self.view: LogView | None = None

    def draw(self, canvas: Canvas) -> None:
        state = self.board.state
        if state is None:
            canvas.put(1, 0, "no server is watched", "muted")
            return
        mark = badge(state, stale=self.board.stale, stopping=self.board.stopping)
        right: list[Run] = []
        if self.view is not None and self.view.rank is not None:
            right = [(f"{self.view.rank} only", "accent"), (f", {self.view.hidden:,} rows hidden", "muted")]
        elif self.view is not None and self.view.hidden:
            right = [(f"{self.view.hidden:,}", "text"), (" rows hidden by the filter", "muted")]
        elif self.view is not None and not self.view.folded:
            right = [("every line, ", "muted"), ("z", "accent!"), (" folds", "muted")]
        end = canvas.right_runs(canvas.width - 1, 0, right) - 2
        run = state.run
        facts = join(
            [
                [
                    (f"{mark.glyph} ", mark.color),
                    (mark.word, "strong!"),
                    (f"  {run_name(run)}", "muted"),
                ],
                [("run ", "muted"), (run.short_id, "text")],
                [(f"{state.startup.lines:,} lines", "muted")],
                [("read to the end", "muted")] if not self.board.behind_bytes else [("reading", "warn")],
            ]
        )
        canvas.runs(1, 0, facts, end - 1)


class RankLine(Painted):
    """Which ranks are on show."""

    def __init__(self, board: Board) -> None:
        super().__init__(id="ranksline")
        self.board = board
        self.view: LogView | None = None

    def draw(self, canvas: Canvas) -> None:
        view = self.view
        if view is None:
            return
        x = canvas.put(1, 0, "ranks", "muted") + 2
        for rank in (None, *view.known_ranks()):
            label = rank or "all"
            chosen = rank == view.rank
            if x + len(label) + 3 > canvas.width:
                canvas.put(x, 0, "…", "muted")
                return
            if chosen:
                canvas.put(x, 0, f" ✓{label} ", "accent!/accbg")
            else:
                canvas.put(x + 1, 0, label, "muted")
            x += len(label) + 3


class Search(Input):
    """The search line; Tab turns marking into filtering."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "screen.toggle_filter", "filter", show=False, priority=True)
    ]


class Logs(Mode):
    """Search line and ranks over the log."""

    NAME = "Logs"
    AUTO_FOCUS = "LogView"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "back", show=False),
        Binding("enter", "open", "open", show=False),
    ]

    def content(self) -> ComposeResult:
        yield LogState(self.board)
        with Horizontal(id="searchline"):
            yield Search(placeholder="/ search", id="search")
            yield HitCount(self.board)
            yield RankLine(self.board)
        yield LogView(self.board, numbers=True)

    def on_mount(self) -> None:
        view = self.query_one(LogView)
        self.query_one(LogState).view = view
        self.query_one(RankLine).view = view
        self.query_one(HitCount).view = view

    def on_resize(self) -> None:
        self.set_class(self.size.width < 100, "-narrow")
        self.set_class(self.size.height < 30, "-short")

    def update(self) -> None:
        if self.is_mounted:
            self.query_one(LogView).update()
            super().update()

    def footer_keys(self) -> Keys:
        return keys("/", "n N", "R", "[ ]", "e E", "z", "w", "f", "y", "Enter", "?", "q", where="logs")

    def field_keys(self) -> Keys:
        turned = "highlight" if self.query_one(LogView).filtering else "filter"
        return (("Enter", "done"), ("Tab", turned), ("↑ ↓", "hits"), ("Esc", "back"))

    def footer_note(self) -> list[Run]:
        buffer = self.board.log
        if buffer is None:
            return []
        return [
            ("▲ ", "warn"),
            (f"{fmt.plural(buffer.warnings, 'warning')}", "muted"),
            (" · ", "muted"),
            ("✗ ", "err"),
            (f"{fmt.plural(len(buffer.errors), 'error')}", "muted"),
        ]

    def on_log_view_changed(self) -> None:
        for painted in (self.query_one(LogState), self.query_one(RankLine), self.query_one(HitCount)):
            painted.repaint()

    def copied_text(self) -> tuple[str, str] | None:
        """The line under the cursor, else the newest."""
        record = self.query_one(LogView).current_record()
        return (record.text, "line") if record is not None else None

    def action_search(self) -> None:
        """The search line."""
        self.query_one(Search).focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        view = self.query_one(LogView)
        view.search(event.value)

    def on_input_submitted(self) -> None:
        view = self.query_one(LogView)
        self.set_focus(view)
        if view.query_text and view.hits[1] and view.hits[0] is None:
            view.action_hit(-1 if view.following else 1)

    def action_toggle_filter(self) -> None:
        """Marks hits among all lines, or shows only lines with hits."""
        view = self.query_one(LogView)
        view.search(view.query_text, filtering=not view.filtering)
        self.update_footer()

    def action_back(self) -> None:
        """Out of the search line; then the search is forgotten; then the dashboard."""
        view = self.query_one(LogView)
        search = self.query_one(Search)
        if self.focused is search:
            self.set_focus(view)
        elif view.query_text:
            search.value = ""
            view.search("", filtering=False)
        elif view.rank is not None:
            view.rank = None
            view.search(view.query_text)
        else:
            self.app.switch_mode("dashboard")

    def action_open(self) -> None:
        """The whole line under the cursor."""
        self.eagle.show_line(self.query_one(LogView).current_record())

    def on_key(self, event: events.Key) -> None:
        if event.key in ("down", "up") and isinstance(self.focused, Search):
            event.stop()
            self.query_one(LogView).action_hit(1 if event.key == "down" else -1)


class HitCount(Painted):
    """How many hits, and what Tab does."""

    GROUND = "raised"

    def __init__(self, board: Board) -> None:
        super().__init__(id="hits")
        self.board = board
        self.view: LogView | None = None

    def draw(self, canvas: Canvas) -> None:
        view = self.view
        if view is None:
            return
        runs: list[Run] = []
        if view.query_text:
            place, count = view.hits
            if place is not None:
                runs += [(f"{place:,}", "strong!"), (" of ", "muted")]
            runs += [(f"{count:,}", "strong!"), (" hits · ", "muted")]
            runs.append(("filter (Tab: highlight)" if view.filtering else "highlight (Tab: filter)", "muted"))
        canvas.right_runs(canvas.width - 1, 0, runs)
