"""Another host: the configured ones, those of ~/.ssh/config, those typed before, or any user@host:port."""

from collections.abc import Iterable
from typing import ClassVar

from textual import on
from textual.binding import BindingType
from textual.widget import Widget
from textual.widgets import Input, OptionList

from tui import format as fmt
from tui.panel.host_names import known_hosts
from tui.panel.keys import bindings
from tui.panel.screens.dialog import Choices, Dialog, entry
from tui.panel.widgets.rows import KeyRow, Prose


class HostPicker(Dialog[str]):
    """A field that narrows the list down; what is typed is taken where nothing is chosen."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("host list")

    def __init__(self, present: str, running: int = 0) -> None:
        """`running`: servers that were seen to run on the present host."""
        super().__init__()
        self._present = present
        self._servers = running
        self._names = known_hosts()

    def head(self) -> Iterable[Widget]:
        yield Prose([[("? HOST", "accent!"), ("   ", "text"), ("Show another host", "strong!")]])
        if self._servers:
            runs = f"{fmt.plural(self._servers, 'server')} on "
            keep = " keeps running." if self._servers == 1 else " keep running."
            yield Prose([[(runs, "muted"), (self._present, "text"), (keep, "muted")]])
        yield Input(placeholder="a name of ~/.ssh/config, or user@host:port")

    def body(self) -> Iterable[Widget]:
        yield Choices()
        yield Prose([[("  connects to what is typed", "muted")]], id="typed")

    def foot(self) -> Iterable[Widget]:
        yield Prose([KeyRow((("Enter", "connect"), ("↓ ↑", "choose"), ("Esc", "back")))], classes="keys")

    def on_mount(self) -> None:
        self.query_one(Choices).can_focus = False
        self._narrow()

    def _shown(self) -> list[tuple[str, str]]:
        typed = self.query_one(Input).value.strip().lower()
        return [known for known in self._names if typed in known[0].lower()]

    @on(Input.Changed)
    def _narrow(self) -> None:
        shown, choices = self._shown(), self.query_one(Choices)
        choices.show([entry(name, whence, wide=40) for name, whence in shown])
        choices.highlighted = None
        choices.display, self.query_one("#typed").display = bool(shown), not shown

    def action_move(self, by: int) -> None:
        """Down or up the list."""
        choices = self.query_one(Choices)
        if by > 0:
            choices.action_cursor_down()
        else:
            choices.action_cursor_up()

    @on(OptionList.OptionSelected)
    def _picked(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._shown()[event.option_index][0])

    def on_input_submitted(self, event: Input.Submitted) -> None:
        at = self.query_one(Choices).highlighted
        if at is not None:
            self.dismiss(self._shown()[at][0])
        elif event.value.strip():
            self.dismiss(event.value.strip())
