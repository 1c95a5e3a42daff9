"""Overview: every host that is open, a row each. Enter opens the panel of one; keys are about the one under the cursor."""

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from tui import format as fmt
from tui.core.model.phases import Outcome
from tui.panel.host_view import Board, run_name
from tui.panel.hosts_view import badge_of, gpu_use
from tui.panel.keys import bindings, keys, moving
from tui.panel.screens.base import Mode
from tui.panel.screens.dialog import Picker, entry
from tui.panel.widgets.footer import Keys
from tui.panel.widgets.header import Header
from tui.panel.widgets.hosts import Hosts, HostsHeader
from tui.panel.widgets.rows import AnyRow, KeyRow, Single


class Overview(Mode):
    """What several hosts do."""

    NAME = "Hosts"
    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings("overview", "Enter", "a"),
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
            return (*keys("Enter", where="overview"), *again, *keys("l", "h", "?", "^P", "q", where="overview"))
        ready = ("b",) if state is not None and state.outcome is Outcome.READY else ()
        alive = ("S",) if board.alive else ()
        suggested = ("a",) if state is not None and state.diagnosis and state.diagnosis.set else ()
        return keys("Enter", "l", *suggested, *ready, *alive, "h", "?", "^P", "q", where="overview")

    @property
    def _hosts(self) -> Hosts:
        return self.query_one(Hosts)

    def action_open(self) -> None:
        """The dashboard of the host under the cursor."""
        self.eagle.show_mode("dashboard", self.eagle.board)

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


class LaunchHost(Picker[Board]):
    """Where to launch: the hosts that are open, with what is free there; the profile is asked for next."""

    def __init__(self, boards: Sequence[Board], at: Board) -> None:
        super().__init__()
        self._boards, self._first = list(boards), at

    def on_mount(self) -> None:
        self.show(next(place for place, board in enumerate(self._boards) if board is self._first))

    def summary(self) -> Sequence[AnyRow]:
        return [[("◌ LAUNCH", "accent!"), ("   ", "text"), ("On which host?", "strong!")]]

    def entries(self) -> Sequence[Single]:
        wide = min(30, max(len(board.host) for board in self._boards)) + 2
        return [entry(board.host, self._about(board), wide=wide) for board in self._boards]

    @staticmethod
    def _about(board: Board) -> str:
        use, state = gpu_use(board), board.state
        parts = [f"{use.count - use.busy} of {use.count} GPUs free"] if use is not None and board.connected else []
        parts.append(badge_of(board).word.lower())
        if state is not None and board.alive:
            parts[-1] += f": {run_name(state.run)}"
        return " · ".join(parts) + (
            "" if board.alive or len(board.runs) < 2 else f" · {fmt.plural(len(board.runs), 'run')}"
        )

    def keys(self) -> KeyRow:
        return KeyRow((("Enter", "choose a profile"), ("↓ ↑", "choose"), ("Esc", "back")))

    def action_go(self) -> None:
        self.dismiss(self._boards[self.at])
