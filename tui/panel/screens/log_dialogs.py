"""Dialogs of the log: where to write lines, what to show beside it."""

import os
import re
import time
from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.widgets import Input

from tui import format as fmt
from tui.core.logs.folding import Folds
from tui.core.logs.rows import LogRows, Row
from tui.core.model.log import LogRecord
from tui.core.text import one_line
from tui.panel.open_log import OpenLog
from tui.panel.screens.dialogs import Dialog, Folded, Line, Lines


def to_write(log: OpenLog, log_rows: LogRows, chosen: Sequence[Row]) -> tuple[list[LogRecord], str]:
    """The lines of the chosen rows, else all that pass the filter, and what they are in words."""
    if chosen:
        records = [record for row in chosen for record in log_rows.members(row.index)]
        records.sort(key=lambda record: record.offset)
        return records, fmt.plural(len(records), "line") + " of the selection"
    every = LogRows(log_rows.window, log_rows.filter, Folds(repeats=False, tracebacks=False))
    records = [log_rows.window.record(index) for index in every.sequence]
    what = fmt.plural(len(records), "line") + (" that pass the filter" if log_rows.hidden else "")
    if not log.whole and log.file is not None:
        what += f" of what is loaded, {fmt.size(log.file.end - log.file.begin)} of {fmt.size(log.file.size or 0)}"
    return records, what


class WriteDialog(Dialog[str]):
    """Asks for a path and writes lines there, never over a file that is there already; answers the path."""

    def __init__(self, name: str, what: str, lines: Sequence[str]) -> None:
        super().__init__()
        stem = re.sub(r"[^A-Za-z0-9._-]+", "-", name.rsplit("/", 1)[-1]).strip("-.") or "log"
        self._path = f"eagletui-{stem.removesuffix('.log')}-{time.strftime('%H%M%S')}.log"
        self._what = what
        self._text = lines

    def compose(self) -> ComposeResult:
        with Container(classes="dialog"):
            yield Folded([[("Write ", "strong!"), (self._what, "strong!")], [],
                          [("On this machine; a relative path is taken from ", "muted"), (one_line(os.getcwd(), 200), "text"), (".", "muted")], []])  # fmt: skip
            yield Input(self._path, select_on_focus=False)
            yield Folded(id="problem")
            yield Lines([[("Enter", "accent!"), (" write   ", "muted"), ("Esc", "accent!"), (" back", "muted")]])

    def on_input_submitted(self, event: Input.Submitted) -> None:
        typed = event.value.strip()
        if not typed:
            self._say("give a name")
            return
        path = os.path.abspath(os.path.expanduser(typed))
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
                file.writelines(line + "\n" for line in self._text)
        except FileExistsError:
            self._say(f"{one_line(path, 200)} is there already; give another name")
        except OSError as error:
            self._say(f"{one_line(path, 200)}: {error.strerror}; give another path")
        else:
            self.dismiss(path)

    def _say(self, text: str) -> None:
        self.query_one("#problem", Folded).set_lines([[("▲ ", "warn"), (text, "text")], []])


class BesideDialog(Dialog[int]):
    """What to show beside the log: another rank of it, another run; answers the place in the list."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "move(1)", "down", show=False, priority=True),
        Binding("up,k", "move(-1)", "up", show=False, priority=True),
        Binding("enter", "choose", "choose", show=False, priority=True),
    ]

    def __init__(self, choices: Sequence[tuple[str, str]]) -> None:
        """`choices`: name, and what it is."""
        super().__init__()
        self._choices = choices
        self._at = 0

    def compose(self) -> ComposeResult:
        with Container(classes="dialog"):
            yield Lines([[("Side by side, on a common time axis", "strong!")], []])
            yield Lines(id="beside")
            yield Lines([[], [("Enter", "accent!"), (" show   ", "muted"), ("↓ ↑", "accent!"), (" choose   ", "muted"),
                              ("Esc", "accent!"), (" back", "muted")]])  # fmt: skip

    def on_mount(self) -> None:
        super().on_mount()
        self._draw_list()

    def _draw_list(self) -> None:
        most = max(1, self.app.size.height - 8)
        first = max(0, min(self._at - most // 2, len(self._choices) - most))
        rows: list[Line] = []
        for number, (name, about) in enumerate(self._choices[first : first + most], first):
            here = number == self._at
            ground = "/raised" if here else ""
            rows.append([("▌ " if here else "  ", "accent" + ground), (f"{one_line(name, 40):<40}", ("strong!" if here else "text") + ground),
                         (one_line(about, 46), "muted" + ground)])  # fmt: skip
        self.query_one("#beside", Lines).set_lines(rows)

    def action_move(self, step: int) -> None:
        """Down or up the list."""
        self._at = (self._at + step) % len(self._choices)
        self._draw_list()

    def action_choose(self) -> None:
        """Shows it."""
        self.dismiss(self._at)
