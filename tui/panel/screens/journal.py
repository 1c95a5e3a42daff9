"""The journal: this version keeps none, and says where launches are recorded."""

from textual.app import ComposeResult

from tui.core.config import data_dir
from tui.panel.keys import keys
from tui.panel.screens.base import Mode
from tui.panel.screens.empty import Empty
from tui.panel.widgets.footer import Keys


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
