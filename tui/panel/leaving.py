"""What is asked before the panel is quit: what becomes of what it launches one after the other."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tui.panel.screens.dialog import Ask
from tui.panel.widgets.rows import facts_of

if TYPE_CHECKING:
    from textual.screen import Screen

    from tui.panel.panel_host import PanelHost


def question(open_hosts: "Sequence[PanelHost]", screen: "Screen[object]") -> Ask[str] | None:
    """A dialog whose answer is stay, quit, background or last launch; None where nothing is lost by quitting."""
    hosts = [host for host in open_hosts if host.measure.launches]
    driven = [state for host in hosts if host.measure.can_detach and (state := host.board.experiment) is not None]
    held = [words for host in hosts if not host.measure.can_detach and (words := host.measure.farewell())]
    if not (driven or held) or isinstance(screen, Ask):  # asked for once more: no second question
        return None
    mark = ("◌ QUIT", "accent!")
    if held:  # a tune: its command resumes it
        lines = facts_of([("then", words) for words in held])
        return Ask(mark, "A tune is under way. Quit all the same?", lines, ("No", "stay"), ("Quit", "quit"))
    return Ask(
        mark,
        "Quit. What becomes of the experiment?",
        facts_of(
            [("runs", f"{state.name} on {state.host}, launch {state.at + 1} of {len(state.order)}") for state in driven]
        ),
        ("Stay", "stay"),
        ("Keep running in background", "background"),
        ("Stop after this launch", "last launch"),
    )
