"""Another host: the configured ones, those of ~/.ssh/config, those typed before, or any user@host:port."""

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.binding import BindingType
from textual.widget import Widget
from textual.widgets import Input, OptionList

from tui import format as fmt
from tui.core.text import one_line
from tui.panel.keys import bindings
from tui.panel.screens.dialog import Choices, Dialog, entry
from tui.panel.widgets.rows import KeyRow, Prose

_TYPED_KEPT = 20


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


def known_hosts() -> list[tuple[str, str]]:
    """Names that can be connected to, and where they come from."""
    from tui.core.config import load_settings
    from tui.core.errors import EagletuiError

    found: dict[str, str] = {}
    with contextlib.suppress(EagletuiError):  # a broken config.toml is reported where it matters
        found.update({name: "config.toml" for name in load_settings().hosts})
    try:
        text = (Path.home() / ".ssh" / "config").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    for line in text.splitlines():
        words = line.replace("=", " ", 1).split()
        if len(words) > 1 and words[0].lower() == "host":
            for name in words[1:]:
                if not set(name) & set('*?!"'):
                    found.setdefault(name, "~/.ssh/config")
    for name in _typed_before():
        found.setdefault(name, "typed here before")
    found.setdefault("local", "this machine")
    found.setdefault("demo", "simulated, 8 GPUs")
    return list(found.items())


def _typed_path() -> Path:
    from tui.core.config import state_dir

    return state_dir() / "typed-hosts"


def _typed_before() -> list[str]:
    try:
        lines = _typed_path().read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return []
    return [name for line in lines if (name := one_line(line, 200))]


def remember_host(name: str) -> None:
    """Keeps the name of a host that was connected to and stands in no file of the user; newest first."""
    from tui.core.config import write_whole

    if name in dict(known_hosts()):
        return
    kept = [name, *_typed_before()][:_TYPED_KEPT]
    with contextlib.suppress(OSError):  # remembering is a convenience
        write_whole(_typed_path(), "\n".join(kept) + "\n")
