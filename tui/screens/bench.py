"""Benchmarks: this version measures nothing, and says so."""

from textual.app import ComposeResult

from tui.commands import keys
from tui.screens.base import Mode
from tui.screens.empty import Empty
from tui.widgets.footer import Keys


class Bench(Mode):
    """An empty panel says what is true."""

    NAME = "Bench"

    def content(self) -> ComposeResult:
        yield Empty(
            "Bench",
            "This version measures nothing. The speed that the server itself reports is on the dashboard (1).",
        )

    def footer_keys(self) -> Keys:
        return keys("1", "2", "3", "l", "?", "^P", "q")
