"""The journal: not in this version; the screen says so and where launches are recorded meanwhile."""

from textual.app import ComposeResult

from tui.commands import keys
from tui.config import data_dir
from tui.screens.base import Mode
from tui.screens.empty import Empty
from tui.widgets.footer import Keys


class Journal(Mode):
    """An empty panel says which key fills it."""

    NAME = "Journal"

    def content(self) -> ComposeResult:
        yield Empty(
            "Journal",
            "Hypotheses and verdicts are not part of this version yet.",
            f"Launches and how they ended are recorded in {data_dir() / 'launches'}; eagletui ps lists runs.",
        )

    def footer_keys(self) -> Keys:
        return keys("1", "2", "3", "l", "?", "^P", "q")
