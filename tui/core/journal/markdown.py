"""The journal as Markdown."""

from tui.core.journal.model import Journal


def markdown(journal: Journal) -> str:
    return f"# Journal\n\n{len(journal.entries)} entries\n"
