"""The bench screen before anything was measured on a host: which keys fill it."""

from typing import ClassVar

from tui.core.model.phases import Outcome
from tui.panel.host_view import Board, run_name
from tui.panel.widgets.paint import Canvas, Painted, Run, words


class BenchStart(Painted):
    """What can be measured here and now."""

    DEFAULT_CSS: ClassVar[str] = "BenchStart { height: 1fr; width: 100%; }"

    def __init__(self, board: Board) -> None:
        super().__init__(id="benchstart")
        self.board = board

    def draw(self, canvas: Canvas) -> None:
        board = self.board
        canvas.title(1, 1, canvas.width - 2, "Bench", [("nothing was measured on ", "muted"), (board.host, "text")])
        state = board.state
        ready = state is not None and state.outcome is Outcome.READY and board.connected
        first: list[Run]
        if ready and state is not None:
            first = [
                ("b", "accent!"),
                ("  measures ", "muted"),
                (run_name(state.run), "strong!"),
                (": tok/s, accept length, latencies, with guards", "muted"),
            ]
        else:
            first = [
                ("l", "accent!"),
                ("  launches a server; once it is ready, ", "muted"),
                ("b", "accent!"),
                (" measures it", "muted"),
            ]
        lines: list[list[Run]] = [
            first,
            [
                ("E", "accent!"),
                ("  opens an experiment: configurations launched and measured alternately, with a verdict", "muted"),
            ],
        ]
        for y, line in enumerate(lines, 3):
            canvas.runs(1, y, words(line, canvas.width - 2))
