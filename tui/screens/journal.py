"""The journal: this version keeps none, and says where launches are recorded."""

from textual.app import ComposeResult

from tui.commands import keys
from tui.config import data_dir
from tui.screens.base import Mode
from tui.screens.empty import Empty
from tui.widgets.footer import Keys


class Journal(Mode):
    """An empty panel says what is true."""

    NAME = "Journal"

    def content(self) -> ComposeResult:
        yield Empty(
            "Journal",
            f"This version keeps no journal. Launches and how they ended are recorded in {data_dir() / 'launches'}.",
        )

    def footer_keys(self) -> Keys:
        return keys("1", "2", "3", "l", "?", "^P", "q")
