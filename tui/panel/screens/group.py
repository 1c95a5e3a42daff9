"""Dashboard of a group: one server that is several runs, on one or several hosts."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from tui.core.model.phases import Outcome
from tui.panel.keys import bindings, keys
from tui.panel.screens.base import Mode
from tui.panel.widgets.footer import Keys
from tui.panel.widgets.group.panel import GroupHeader, GroupPanel
from tui.panel.widgets.header import Header


class Group(Mode):
    """The whole of a group; `m` goes through its members, each with the dashboard of its own."""

    NAME = "Dashboard"
    BINDINGS: ClassVar[list[BindingType]] = bindings("group")

    def header(self) -> Header:
        return GroupHeader(self.board, self.NAME)

    def content(self) -> ComposeResult:
        yield GroupPanel()

    def footer_keys(self) -> Keys:
        opened = self.eagle.group
        if opened is None:
            return keys("l", "?", "^P", "q")
        ready = ("b",) if opened.outcome is Outcome.READY else ()
        failure = opened.state.failure if opened.state is not None else None
        suggested = failure is not None and failure.diagnosis is not None and bool(failure.diagnosis.set)
        stop = (("S", opened.stop_verb),) if opened.alive else ()
        others = ("[ ]",) if self.board.place()[1] > 1 else ()
        change = ("a",) if suggested else ()
        return (
            *keys(*change, "l", *ready, where="group"),
            *stop,
            *keys(*others, "m", "/", "Enter", "?", "^P", "q", where="group"),
        )

    # -- actions ---------------------------------------------------------------------------------------------------

    def action_open(self) -> None:
        """Why it ended, on the dashboard of the member that did; else the log of the serving member."""
        self.eagle.open_member()
