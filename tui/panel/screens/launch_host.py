"""Launching from the overview: on which host."""

from collections.abc import Sequence

from tui import format as fmt
from tui.panel.host_view import Board, run_name
from tui.panel.hosts_view import badge_of, gpu_use
from tui.panel.screens.dialog import Picker, entry
from tui.panel.widgets.rows import AnyRow, KeyRow, Single


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
