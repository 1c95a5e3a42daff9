"""Journal: what was to be shown and what came out, open ideas, dead ends, notes; the one under the cursor in depth."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import ClassVar, TypeVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Horizontal
from textual.widgets import Input

from tui import format as fmt
from tui.core.journal import words
from tui.core.journal.model import DeadEnd, Hypothesis, Idea, Note, Status
from tui.core.journal.model import Journal as Kept
from tui.core.journal.reading import narrowed
from tui.core.text import one_line
from tui.panel.host_view import Board
from tui.panel.keys import bindings, keys
from tui.panel.protocol import Subject
from tui.panel.screens.dialog import Box
from tui.panel.screens.journal_mode import JournalMode
from tui.panel.screens.journal_rows import (
    Item,
    about_words,
    dead_end_heads,
    dead_end_item,
    entry_rows,
    hypothesis_item,
    idea_item,
    note_item,
    settled_item,
)
from tui.panel.screens.journal_start import start_rows
from tui.panel.widgets.footer import Keys
from tui.panel.widgets.paint import Run, join
from tui.panel.widgets.row_list import ListRow, RowList
from tui.panel.widgets.rows import Line, Prose, Single, Title

_WIDE = 150
_WIDTHS = [(0, "-narrow"), (_WIDE, "-wide")]
_WIDTHS = [(0, "-narrow"), (_WIDE, "-wide")]
_BELOW = 0.45  # of the rows, at most, are for dead ends and what is settled


class Journal(JournalMode):
    """Lists at the left and below, the entry at the right; below 150 columns one list, and Enter opens the entry."""

    NAME = "Journal"
    AUTO_FOCUS = "#entries"
    CSS_PATH: ClassVar[list[str]] = ["journal.tcss"]  # type: ignore[assignment]
    BINDINGS: ClassVar[list[BindingType]] = bindings("journal")
    HORIZONTAL_BREAKPOINTS = _WIDTHS

    def __init__(self, board: Board) -> None:
        super().__init__(board)
        self._items: dict[str, list[Item | None]] = {"entries": [], "below": []}  # of each list, None: a title
        self._opened = False  # of a narrow screen: the entry instead of the list
        self._drawn: object = None
        self._found = Kept(None)  # what the search leaves of it
        self._chosen: str | None = None  # id of the entry under the cursor
        self._list = "entries"  # the one whose cursor counts

    def content(self) -> ComposeResult:
        yield Prose(id="journalline")
        yield Input(placeholder="search in hypotheses, ideas, dead ends and notes", id="find")
        with Box(id="start"):
            with Container(id="startparts"):
                yield Prose(id="fills")
                yield Prose(id="example")
            yield Prose(id="steps")
        with Horizontal(id="journal"):
            yield RowList(id="entries")
            with Box(id="entry"):
                yield Prose(id="page")
        yield RowList(id="below", quiet=True)
        yield Prose(id="kept")

    def on_mount(self) -> None:
        self.query_one("#find").display = False

    def on_resize(self) -> None:
        self.call_after_refresh(self.update)

    # -- what is shown ---------------------------------------------------------------------------------------------

    @property
    def _wide(self) -> bool:
        return self.size.width >= _WIDE

    @property
    def item(self) -> Item | None:
        """What the cursor is on."""
        items = self._items[self._list]
        at = self.query_one(f"#{self._list}", RowList).at if items else 0
        return items[at] if at < len(items) else None

    def update(self) -> None:
        if not self.is_mounted or not self.size.width:
            return
        text = self.query_one("#find", Input).value
        focused = getattr(self.focused, "id", None)
        drawn = (self.board.journal, text, self.size, self._opened, focused)
        if drawn != self._drawn:
            self._drawn = drawn
            self._show(text)
        super().update()

    def _show(self, text: str) -> None:
        kept = self.board.journal
        empty = kept is not None and not (kept.hypotheses or kept.ideas or kept.notes or kept.runs)
        self.query_one("#journalline", Prose).show([self._line(kept)])
        start, main, below = self.query_one("#start"), self.query_one("#journal"), self.query_one("#below", RowList)
        start.display, main.display = empty, kept is not None and not empty
        below.display = self._wide and main.display
        self._show_kept(kept)
        self.query_one("#kept").display = not empty  # the page says it
        if kept is None:
            return
        if empty:
            for name, part in zip(("fills", "example", "steps"), start_rows(), strict=True):
                self.query_one(f"#{name}", Prose).show(part)
            return
        self._give_places()
        width = self.query_one("#entries").size.width or self.size.width
        self._found = narrowed(replace(kept, runs=(), entries=()), search=text)
        self._fill("entries", self._sections(kept, width))
        if self._wide:
            rows = self._fill("below", self._below(self.size.width - 2))
            below.styles.height = min(rows, max(4, int((self.size.height - 5) * _BELOW)))
            below.display = rows > 0
        if self._list == "below" and not below.display:
            self._list = "entries"
        self._show_entry()

    def _give_places(self) -> None:
        """Which of list and entry is there, and how wide."""
        listing, entry = self.query_one("#entries"), self.query_one("#entry")
        listing.display = self._wide or not self._opened
        entry.display = self._wide or self._opened
        listing.styles.width = "40%" if self._wide else "100%"

    def _show_kept(self, kept: Kept | None) -> None:
        from tui.core.journal import entries
        from tui.panel.screens.profile_rows import home_path

        line: Line = [("reading…", "muted")]
        if kept is not None and kept.left_out is not None:
            line = [("▲ ", "warn"), (kept.left_out, "text")]
        elif kept is not None:
            where = home_path(entries.directory())
            line = [("kept as Markdown and JSON lines in ", "muted"), (where, "text"),
                    (": readable without eagletui; panels, commands and agents may write at once", "muted")]  # fmt: skip
        self.query_one("#kept", Prose).show([Single(line)])

    def _line(self, kept: Kept | None) -> Single:
        """How many there are of each, and the best that was measured."""
        if kept is None:
            return Single([(self.board.host, "strong!")])
        counts = [
            (sum(1 for _ in kept.settled), "settled"),
            (len(kept.dead_ends), "dead end" + "s" * (len(kept.dead_ends) != 1)),
        ]
        counts += [
            (sum(one.status is status for one in kept.hypotheses), str(status))
            for status in (Status.PARKED, Status.RUNNING)
        ]
        many = len(kept.hypotheses)
        noun = " hypothesis" if many == 1 else " hypotheses"
        parts: list[list[Run]] = (
            [[(str(many), "text"), (noun, "muted")]] if many or kept.runs else [[("nothing recorded yet", "muted")]]
        )
        parts += [[(str(count), "text"), (f" {words}", "muted")] for count, words in counts if count]
        others = (
            Counter(run.host for run in self.board.whole.runs) if self.board.whole is not None and not kept.runs else {}
        )
        if others:
            named = ", ".join(f"{host} ({fmt.plural(count, 'run')})" for host, count in list(others.items())[:4])
            parts.append([("other journals: ", "muted"), (named, "text")])
        best = kept.best
        if best is not None:
            parts.append(
                [
                    ("best so far ", "muted"),
                    (f"{fmt.tok_s(best.tok_s)} tok/s", "strong!"),
                    (f" {words.configured(best.profile, best.sets)}", "text"),
                    (f" ({best.level})", "muted"),
                ]
            )
        return Single([(f"{self.board.host}  ", "strong!"), *join(parts)])

    # -- lists -----------------------------------------------------------------------------------------------------

    def _fill(self, name: str, rows: "Sequence[Placed]") -> int:
        """Shows rows in a list; the cursor stays on its entry. How many there are."""
        listing = self.query_one(f"#{name}", RowList)
        self._items[name] = [item for _, item in rows]
        heads = frozenset(place for place, (_, item) in enumerate(rows) if item is None)
        at = next(
            (place for place, (_, item) in enumerate(rows) if item is not None and item.entry_id == self._chosen), None
        )
        listing.show(len(rows), lambda place: rows[place][0], at=at, heads=heads)
        return len(rows)

    def _sections(self, kept: Kept, width: int) -> "list[Placed]":
        """Hypotheses, ideas and notes; on a narrow screen dead ends too."""
        focus, runs = self.query_one("#entries").has_focus, len(kept.runs)
        facts: Line = [("newest first · ", "muted"), ("R", "accent!"), (f" all {fmt.plural(runs, 'run')}", "muted")]
        rows = _section("Hypotheses", facts, self._found.hypotheses, hypothesis_item, focus=focus)
        if not rows:
            none: Line = [
                ("none yet: ", "muted"),
                ("H", "accent!"),
                (" writes one, an experiment brings its own", "muted"),
            ]
            none = [("none fits", "muted")] if kept.hypotheses else none
            rows = [([], None), (Title("Hypotheses", facts, focus=focus), None), (none, None)]
        done = sum(idea.state != "open" for idea in kept.ideas)
        adds: Line = [(f"{done} of {len(kept.ideas)} done · ", "muted"), ("i", "accent!"), (" adds one", "muted")]
        rows += _section(
            "Open ideas", adds, sorted(self._found.ideas, key=lambda idea: idea.state != "open"), idea_item
        )
        if not self._wide:
            rows += self._dead_ends(width)
        more: Line = [("n", "accent!"), (" adds one from any screen", "muted")]
        return (rows + _section("Notes", more, self._found.notes, note_item))[1:]

    def _dead_ends(self, width: int) -> "list[Placed]":
        facts: Line = [("what was tried on this host and why it was dropped", "muted")]
        return _section("Dead ends", facts, self._found.dead_ends, lambda one: dead_end_item(one, width))

    def _below(self, width: int) -> "list[Placed]":
        rows = self._dead_ends(width)
        if rows:
            rows[2:2] = [(dead_end_heads(width), None)]
        facts: Line = [("verdicts, and what a person settled", "muted")]
        return (rows + _section("Settled", facts, self._found.settled, settled_item))[1:]

    def _show_entry(self) -> None:
        item = self.item
        self._chosen = item.entry_id if item is not None else None
        box = self.query_one("#entry", Box)
        width = box.scrollable_content_region.width or self.size.width * 3 // 5
        self.query_one("#page", Prose).show(entry_rows(item, width) if item is not None else [])

    @on(RowList.Moved)
    def _moved(self, event: RowList.Moved) -> None:
        self._list = str(event.of)
        self.query_one("#entry", Box).scroll_home(animate=False)
        self._show_entry()

    def on_descendant_focus(self) -> None:
        name = getattr(self.focused, "id", None)
        if name in self._items and name != self._list:
            self._list = name
            self._show_entry()
        self.update()

    def footer_keys(self) -> Keys:
        tick = ("space",) if isinstance(self.item, Idea) else ()
        if self._opened and not self._wide:
            return (("Enter", "its runs"), ("Esc", "list"), *keys("n", "?", "^P", "q"))
        names = ("Enter", *tick, "n", "i", "H", "R", "/", "x", "?", "^P", "q")
        if self.board.journal is not None and not self._items["entries"]:
            names = ("l", "H", "i", "n", "R", "?", "^P", "q")
        return keys(*names, where="journal")

    def about(self) -> Subject:
        """The entry under the cursor."""
        item = self.item
        if item is None:
            return Subject(f"host:{self.board.host}", f"host {self.board.host}")
        if isinstance(item, DeadEnd):
            name = f"{words.configured(item.profile, item.sets)} on {item.host}"
            return Subject(f"run:{item.run_id}" if item.run_id else item.entry_id, f"dead end: {one_line(name, 100)}")
        return Subject(item.entry_id, f"{type(item).__name__.lower()}: {one_line(item.text, 100)}")

    # -- actions ---------------------------------------------------------------------------------------------------

    def action_open(self) -> None:
        """On a narrow screen the entry; then, and else at once, its runs."""
        item = self.item
        if not self._wide and not self._opened and item is not None:
            self._opened = True
            self.update()
            self.query_one("#entry").focus()
            return
        if isinstance(item, Hypothesis) and item.runs:
            self.eagle.kept.show(frozenset(run.run_id for run in item.runs), item.text)
        elif isinstance(item, DeadEnd) and item.run_id is not None:
            self.eagle.kept.show(frozenset({item.run_id}), words.configured(item.profile, item.sets))
        elif isinstance(item, Note) and (runs := [ref[4:] for ref in item.about if ref.startswith("run:")]):
            self.eagle.kept.show(frozenset(runs), about_words(item.about))
        elif item is not None:
            self.eagle.say("No run is attached to it")

    def action_back(self) -> None:
        """Out of the search, then of the entry, then the dashboard."""
        find = self.query_one("#find", Input)
        if find.display:
            find.value, find.display = "", False
            self.query_one("#entries").focus()
        elif self._opened and not self._wide:
            self._opened = False
            self.update()
            self.query_one("#entries").focus()
        else:
            self.eagle.show_mode("dashboard")
        self.update()

    def action_search(self) -> None:
        """Only what holds a text."""
        find = self.query_one("#find", Input)
        self._opened = False
        find.display = True
        find.focus()

    def on_input_changed(self) -> None:
        self.update()

    def on_input_submitted(self) -> None:
        self.query_one("#entries").focus()

    def action_tick(self) -> None:
        """Ticks an idea off, or opens it again."""
        from tui.core.journal import writing

        item = self.item
        if not isinstance(item, Idea):
            self.eagle.say("space ticks off an idea: move to one, or write one with i")
            return
        state = "done" if item.state == "open" else "open"
        self.eagle.journal.write(
            lambda: writing.tick(item.entry_id, state), "Ticked off" if state == "done" else "Open again"
        )

    def action_idea(self) -> None:
        """Writes an idea."""
        from tui.panel.screens.journal_dialogs import ask_idea

        ask_idea(self.app, self.eagle)

    def action_hypothesis(self) -> None:
        """Writes a hypothesis; of an idea under the cursor its text."""
        from tui.panel.screens.journal_dialogs import ask_hypothesis

        ask_hypothesis(self.app, self.eagle, self.item.text if isinstance(self.item, Idea) else "")

    def action_export(self) -> None:
        """The journal of this host as Markdown."""
        self.eagle.journal.export()

    def copied_text(self) -> tuple[str, str] | None:
        """The entry under the cursor."""
        from tui.panel.widgets.rows import plain

        return (plain(entry_rows(self.item, 100)), "entry") if self.item is not None else None


AnItem = TypeVar("AnItem", Hypothesis, Idea, DeadEnd, Note)
Placed = tuple[ListRow, Item | None]
"""A row, and what it is about; None of one that only stands over others."""


def _section(
    title: str, facts: Line, items: Iterable[AnItem], row: Callable[[AnItem], Single], *, focus: bool = False
) -> "list[Placed]":
    """A title over the rows of items, a blank row before it; nothing where there are none."""
    rows: list[Placed] = [(row(item), item) for item in items]
    return [([], None), (Title(title, facts, focus=focus), None), *rows] if rows else []
