"""Overview: every host that is open, a row each. Enter opens the panel of one; keys are about the one under the cursor."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from tui.core.model.phases import Outcome
from tui.panel.keys import bindings, keys, moving
from tui.panel.protocol import Subject
from tui.panel.screens.base import Mode
from tui.panel.widgets.footer import Keys
from tui.panel.widgets.header import Header
from tui.panel.widgets.hosts import Hosts, HostsHeader


class Overview(Mode):
    """What several hosts do."""

    NAME = "Hosts"
    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings("overview", "Enter", "a", "x"),
        *moving("move(1)", "move(-1)", "page(1)", "page(-1)", "first", "last"),
    ]

    def header(self) -> Header:
        return HostsHeader(self.board, self.NAME)

    def content(self) -> ComposeResult:
        yield Hosts()

    def footer_keys(self) -> Keys:
        board = self.eagle.board  # under the cursor
        state = board.state
        if not board.connected:
            again = keys("r", where="refused or lost link")
            off = keys("x", where="overview") if board is not self.eagle.boards[0] else ()
            return (*keys("Enter", where="overview"), *again, *off, *keys("l", "h", "?", "^P", "q", where="overview"))
        ready = ("b",) if state is not None and state.outcome is Outcome.READY else ()
        alive = ("S",) if board.alive else ()
        suggested = ("a",) if state is not None and state.diagnosis and state.diagnosis.set else ()
        return keys("Enter", "l", *suggested, *ready, *alive, "h", "?", "^P", "q", where="overview")

    def about(self) -> Subject:
        """The host under the cursor."""
        host = self.eagle.board.host
        return Subject(f"host:{host}", f"host {host}")

    @property
    def _hosts(self) -> Hosts:
        return self.query_one(Hosts)

    def action_open(self) -> None:
        """The dashboard of the host under the cursor."""
        self.eagle.show_mode("dashboard", self.eagle.board)

    def action_close(self) -> None:
        """Takes the host under the cursor off, where it is not reached."""
        self.eagle.close_host()
        self.update_footer()

    def action_move(self, by: int) -> None:
        """Down or up by some hosts."""
        self._go(self._hosts.at + by)

    def action_page(self, by: int) -> None:
        """A screenful down or up."""
        self._go(self._hosts.at + by * self._hosts.page)

    def action_first(self) -> None:
        self._go(0)

    def action_last(self) -> None:
        self._go(len(self.eagle.boards) - 1)

    def _go(self, to: int) -> None:
        self._hosts.move(to)
        self.update_footer()
