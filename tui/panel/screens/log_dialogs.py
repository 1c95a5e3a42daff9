"""Dialogs of the log: where to write lines, what to show beside it."""

import os
import re
import time
from collections.abc import Iterable, Sequence

from textual import on
from textual.widget import Widget
from textual.widgets import Input, OptionList

from tui import format as fmt
from tui.core.logs.folding import Folds
from tui.core.logs.rows import LogRows, Row
from tui.core.model.log import LogRecord
from tui.core.text import one_line
from tui.panel.open_log import OpenLog
from tui.panel.screens.dialog import Choices, Dialog, entry
from tui.panel.widgets.rows import KeyRow, Prose


def to_write(log: OpenLog, log_rows: LogRows, chosen: Sequence[Row]) -> tuple[list[LogRecord], str]:
    """The lines of the chosen rows, else all that pass the filter, and what they are in words."""
    if chosen:
        records = [record for row in chosen for record in log_rows.members(row.index)]
        records.sort(key=lambda record: record.offset)
        return records, fmt.plural(len(records), "line") + " of the selection"
    every = LogRows(log_rows.window, log_rows.filter, Folds(repeats=False, tracebacks=False))
    records = [log_rows.window.record(index) for index in every.sequence]
    what = fmt.plural(len(records), "line") + (" that pass the filter" if log_rows.hidden else "")
    if not log.whole:
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

    def head(self) -> Iterable[Widget]:
        here = one_line(os.getcwd(), 200)
        yield Prose([[("Write ", "strong!"), (self._what, "strong!")]])
        yield Prose([[("On this machine; a relative path is taken from ", "muted"), (here, "text"), (".", "muted")]])
        yield Input(self._path, select_on_focus=False)

    def body(self) -> Iterable[Widget]:
        yield Prose(id="problem")

    def foot(self) -> Iterable[Widget]:
        yield Prose([KeyRow((("Enter", "write"), ("Esc", "back")))], classes="keys")

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
        self.query_one("#problem", Prose).show([[("▲ ", "warn"), (text, "text")]])


class BesideDialog(Dialog[int]):
    """What to show beside the log: another rank of it, another run; answers the place in the list."""

    AUTO_FOCUS = "Choices"

    def __init__(self, choices: Sequence[tuple[str, str]]) -> None:
        """`choices`: name, and what it is."""
        super().__init__()
        self._choices = choices

    def head(self) -> Iterable[Widget]:
        yield Prose([[("Side by side, on a common time axis", "strong!")]])

    def body(self) -> Iterable[Widget]:
        yield Choices()

    def foot(self) -> Iterable[Widget]:
        yield Prose([KeyRow((("Enter", "show"), ("↓ ↑", "choose"), ("Esc", "back")))], classes="keys")

    def on_mount(self) -> None:
        rows = [entry(one_line(name, 40), one_line(about, 46), wide=40) for name, about in self._choices]
        self.query_one(Choices).show(rows)

    @on(OptionList.OptionSelected)
    def choose(self, event: OptionList.OptionSelected) -> None:
        """Shows it."""
        self.dismiss(event.option_index)
