"""Boxes over a mode: what all have in common, questions, facts to read, lists to pick from, and the help."""

from collections.abc import Iterable, Sequence
from typing import ClassVar, Generic, TypeVar

from rich.segment import Segment
from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.geometry import Size
from textual.screen import ModalScreen
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Button, OptionList
from textual.widgets.option_list import Option

from tui.panel.keys import COMMANDS, Key, bindings
from tui.panel.protocol import Panel, panel_of
from tui.panel.widgets.paint import Run
from tui.panel.widgets.rows import AnyRow, KeyRow, Line, Prose, Row, Rows, Single, plain

T = TypeVar("T")

_HEIGHTS = [(0, "-short"), (30, "-tall")]  # a short screen has no rows for blank ones


class Box(VerticalScroll):
    """The frame of a dialog; what is between its head and its foot scrolls."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("text")


class Dialog(ModalScreen[T], Generic[T]):
    """A box over the mode; `Esc` leaves it with the safe answer."""

    CSS_PATH: ClassVar[list[str]] = ["lists.tcss", "dialog.tcss"]  # type: ignore[assignment]
    BINDINGS: ClassVar[list[BindingType]] = bindings("dialog", "Esc")
    VERTICAL_BREAKPOINTS = _HEIGHTS
    AUTO_FOCUS = "Button, Input"
    WIDE = False  # for commands, which are read better on one row

    @property
    def panel(self) -> Panel:
        """The panel around it."""
        return panel_of(self)

    def compose(self) -> ComposeResult:
        with Box(classes="dialog -wide" if self.WIDE else "dialog"):
            with Vertical(classes="head"):
                yield from self.head()
            yield from self.body()
            with Vertical(classes="foot"):
                yield from self.foot()

    def head(self) -> Iterable[Widget]:
        """What never scrolls, above."""
        return ()

    def body(self) -> Iterable[Widget]:
        """What scrolls where it doesn't fit."""
        return ()

    def foot(self) -> Iterable[Widget]:
        """What never scrolls, below: answers and keys."""
        return ()

    def action_cancel(self) -> None:
        """The safe answer."""
        self.dismiss(None)


class Ask(Dialog[T], Generic[T]):
    """A question; its first answer, the safe one, is in focus.

    Args:
        answers: what stands on each button, and what it means.
    """

    BINDINGS: ClassVar[list[BindingType]] = bindings("question")

    def __init__(self, mark: Run, title: str, lines: Sequence[AnyRow], *answers: tuple[str, T]) -> None:
        super().__init__()
        self._title: Line = [mark, ("   ", "text"), (title, "strong!")]
        self._lines = lines
        self._answers = [words for words, _ in answers]
        self._meanings = [meaning for _, meaning in answers]

    def head(self) -> Iterable[Widget]:
        yield Prose([self._title])

    def body(self) -> Iterable[Widget]:
        yield Prose(self._lines)

    def foot(self) -> Iterable[Widget]:
        yield Horizontal(*(Button(Content(answer)) for answer in self._answers), classes="answers")
        yield Prose(classes="keys")

    def on_descendant_focus(self) -> None:
        answers = [answer.split(",")[0].lower() for answer in self._answers]
        chosen = next((at for at, button in enumerate(self.query(Button)) if button.has_focus), 0)
        row: Line = [("Enter", "accent!"), (f" {answers[chosen]} (chosen)   ", "muted"), ("Esc", "accent!"),
                     (f" {answers[0]}   ", "muted"), ("Tab", "accent!"),
                     (" to the other, then " if len(answers) == 2 else " to the next, then ", "muted"),
                     ("Enter", "accent!")]  # fmt: skip
        self.query_one(".keys", Prose).show([Row(row, hang=0)])

    @on(Button.Pressed)
    def answer(self, event: Button.Pressed) -> None:
        """The answer that was pressed."""
        self.dismiss(self._meanings[list(self.query(Button)).index(event.button)])

    def action_cancel(self) -> None:
        self.dismiss(self._meanings[0])


class Confirm(Ask[bool]):
    """A yes-no question. No is in focus."""

    def __init__(self, mark: Run, title: str, lines: Sequence[AnyRow], no: str, yes: str) -> None:
        super().__init__(mark, title, lines, (no, False), (yes, True))


class Facts(Dialog[None]):
    """Facts to read: processes on the GPUs, a run's command."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("dialog", "Enter", "y")
    AUTO_FOCUS = "Box"

    def __init__(self, title: str, rows: Sequence[AnyRow], copied: str | None = None) -> None:
        """`copied`: what `y` copies, instead of the rows as text."""
        super().__init__()
        self._title = title
        self._rows = rows
        self._copied = copied

    def head(self) -> Iterable[Widget]:
        yield Prose([KeyRow((("Esc", "back"), ("y", "copy")), lead=[(self._title, "strong!")])])

    def body(self) -> Iterable[Widget]:
        yield Prose(self._rows)

    def action_copy(self) -> None:
        """The facts as text."""
        self.panel.copy_text(self._copied or plain(self._rows), self._title.lower())


class Help(Dialog[None]):
    """Every key, by where it works: this screen, then everywhere, then the rest."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("help")
    AUTO_FOCUS = "Box"

    def head(self) -> Iterable[Widget]:
        yield Prose([KeyRow((("j k", "scroll"), ("Esc", "back")), lead=[("Keys", "strong!")])])

    def body(self) -> Iterable[Widget]:
        offered = [key for key in COMMANDS if self.panel.offers(key)]
        rows: list[AnyRow] = []
        here = type(self.app.screen_stack[-2]).__name__.lower()
        places = dict.fromkeys((here, "everywhere", *(key.where for key in offered)))
        for where in places:
            keys = [self._row(key) for key in offered if key.where == where]
            rows += [*([[]] if rows else []), [(where, "muted")], *keys] if keys else []
        yield Prose(rows)

    @staticmethod
    def _row(key: Key) -> Row:
        return Row([(f"{key.key:<11}", "accent!"), (f"{key.verb:<20}", "text"), (key.about, "muted")], hang=31)


class Choices(OptionList):
    """A list of rows; the chosen one has a bar before it."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("list")
    COMPONENT_CLASSES: ClassVar[set[str]] = {"choices--bar"}

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._rows: tuple[Single, ...] = ()

    def show(self, rows: Sequence[Single], at: int | None = None, heads: frozenset[int] = frozenset()) -> None:
        """Other rows, which one is chosen, and which only stand over others."""
        here = self.highlighted if at is None else at
        with self.prevent(OptionList.OptionHighlighted):
            if tuple(rows) != self._rows:
                self._rows = tuple(rows)
                self.set_options([Option(Rows([row]), disabled=place in heads) for place, row in enumerate(rows)])
            self.highlighted = min(here or 0, len(rows) - 1) if rows else None

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return self.option_count  # also before there is a width to lay them out in

    def _get_left_gutter_width(self) -> int:
        return 2

    def render_line(self, y: int) -> Strip:
        strip = super().render_line(y)
        here = self.scroll_offset.y + y == self.highlighted
        style = self.get_component_rich_style("choices--bar" if here else "option-list--option")
        return Strip([Segment("▌ " if here else "  ", style), *strip])


class Picker(Dialog[T], Generic[T]):
    """A list, and below it what is chosen, in depth; Enter takes it."""

    AUTO_FOCUS = "Choices"
    WIDE = True

    def head(self) -> Iterable[Widget]:
        yield Prose(id="title")
        yield Choices()

    def body(self) -> Iterable[Widget]:
        yield Prose(id="chosen")

    def foot(self) -> Iterable[Widget]:
        yield Prose(classes="keys")

    def on_mount(self) -> None:
        self.show()

    @property
    def at(self) -> int:
        """Place of what is chosen."""
        return self.query_one(Choices).highlighted or 0

    # -- what a dialog says ----------------------------------------------------------------------------------------

    def summary(self) -> Sequence[AnyRow]:
        """Rows over the list."""
        raise NotImplementedError

    def entries(self) -> Sequence[Single]:
        """Rows of the list."""
        raise NotImplementedError

    def chosen(self) -> Sequence[AnyRow]:
        """What is under the cursor, in depth."""
        return ()

    def keys(self) -> KeyRow:
        """Keys and their verbs."""
        raise NotImplementedError

    def show(self, at: int | None = None) -> None:
        """Everything as it is now; `at`: another place to choose."""
        if not self.is_attached:
            return
        self.query_one(Choices).show(self.entries(), at)
        self.show_chosen()

    def show_chosen(self) -> None:
        """What is not the list."""
        self.query_one("#title", Prose).show(self.summary())
        self.query_one("#chosen", Prose).show(self.chosen())
        self.query_one(".keys", Prose).show([self.keys()])

    def moved(self) -> None:
        """Another row is under the cursor."""

    @on(OptionList.OptionHighlighted)
    def _moved(self) -> None:
        self.moved()
        self.show_chosen()

    @on(OptionList.OptionSelected)
    def _taken(self) -> None:
        self.action_go()

    def action_go(self) -> None:
        """Takes what is under the cursor."""
        raise NotImplementedError


def entry(name: str, about: str, *, wide: int, mark: str = "", broken: bool = False) -> Single:
    """A row of a list: a mark, a name in a column `wide` cells wide, and what it is."""
    room = max(0, wide - Content(name).cell_length)
    return Single(
        [(f"{mark} " if mark else "", "accent!"), (name + " " * room, ""), (about, "err" if broken else "muted")]
    )
