"""Dialogs of the journal: a text to write, with what it will be attached to."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from textual.app import App
from textual.widget import Widget
from textual.widgets import Input

from tui.panel.protocol import Panel
from tui.panel.screens.base import Mode
from tui.panel.screens.dialog import Dialog
from tui.panel.widgets.rows import AnyRow, KeyRow, Prose, facts_of

if TYPE_CHECKING:
    from tui.core.journal.model import Entry

_LONGEST_TEXT = 4000  # characters, as the journal takes


class Write(Dialog[str]):
    """Asks for a text; answers it, and nothing where it is blank."""

    def __init__(self, title: tuple[str, str], facts: Sequence[tuple[str, str]], example: str, text: str = "") -> None:
        """`title`: a word for what is written, and a question; `facts`: labels with values."""
        super().__init__()
        self._title: AnyRow = [(f"≡ {title[0]}", "accent!"), ("   ", "text"), (title[1], "strong!")]
        self._facts = facts
        self._example = example
        self._text = text

    def head(self) -> Iterable[Widget]:
        yield Prose([self._title])
        yield Prose(facts_of(self._facts))

    def body(self) -> Iterable[Widget]:
        yield Input(self._text, placeholder=self._example, max_length=_LONGEST_TEXT, select_on_focus=False)

    def foot(self) -> Iterable[Widget]:
        yield Prose([KeyRow((("Enter", "save"), ("Esc", "back, nothing is written")))], classes="keys")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip() or None)


def ask(
    app: App[Any],
    panel: Panel,
    make: Callable[[str], Write],
    write: "Callable[[str], Entry]",
    said: str,
    text: str = "",
) -> None:
    """Asks for a text and writes it; where that fails it is asked for again, as it was typed."""

    def answered(typed: str | None) -> None:
        if typed is not None:
            panel.journal.write(lambda: write(typed), said, lambda: ask(app, panel, make, write, said, typed))

    app.push_screen(make(text), answered)


def note_on(app: App[Any], panel: Panel) -> None:
    """A note on what the screen is about."""
    from tui.core.journal import writing

    if not isinstance(app.screen, Mode):
        return
    subject = app.screen.about()

    facts = [
        ("attached to", subject.words),
        ("kept in", "the journal (5): found by / there, and with what it is attached to"),
    ]
    title = "NOTE", "What is worth knowing about it?"
    ask(
        app,
        panel,
        lambda text: Write(title, facts, "our prompts are German; the draft learned English", text),
        lambda text: writing.note(text, [subject.about]),
        f"Noted on {subject.words}",
    )


def ask_idea(app: App[Any], panel: Panel) -> None:
    """An open idea on the displayed host."""
    from tui.core.journal import writing

    host = panel.board.host
    ask(
        app,
        panel,
        lambda text: Write(
            ("IDEA", "What could be tried?"), [("about", host)], "fp8 KV cache: room for a larger batch", text
        ),
        lambda text: writing.idea(text, [f"host:{host}"]),
        "Kept among the open ideas; space ticks it off",
    )


def ask_hypothesis(app: App[Any], panel: Panel, text: str = "") -> None:
    """A hypothesis on the displayed host."""
    from tui.core.journal import writing

    host = panel.board.host
    facts = [("about", host), ("settled by", "an experiment that asks for it, or a person: eagletui journal settle")]
    ask(
        app,
        panel,
        lambda typed: Write(
            ("HYPOTHESIS", "What is to be shown?"), facts, "graphs up to 128 are faster than 512", typed
        ),
        lambda typed: writing.hypothesis(typed, [f"host:{host}"]),
        "Kept as an open hypothesis",
        text,
    )
