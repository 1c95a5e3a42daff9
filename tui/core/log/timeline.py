"""Times of a log: absolute, since a start, and two logs (or two ranks of one) side by side on a common axis."""

from collections.abc import Callable
from dataclasses import dataclass

from tui.core.log.lens import Lens
from tui.core.log.logs import LogRecord


def time_of(record: LogRecord) -> float | None:
    """The stamp read as UTC, seconds since the epoch; below 86,400 where it has no date; None without stamp."""


@dataclass(frozen=True)
class Pair:
    """One row of two columns. Indices are rows of the lenses (`Lens.row`); None: nothing on that side."""

    time_s: float | None  # on the common axis; None before the first stamp
    left: int | None
    right: int | None


class SideBySide:
    """Rows of two lenses on a common time axis; lines without stamp stay with the line before them.

    Lines of the same time and shape stand beside each other.

    Args:
        left_start_s, right_start_s: what counts as zero on either side (0.0 both: absolute time, for two ranks or nodes;
            the starts of two runs: time since the start).
    """

    rows: list[Pair]

    def __init__(
        self, left: Lens, right: Lens, left_start_s: float = 0.0, right_start_s: float = 0.0
    ) -> None: ...

    def update(self) -> int:
        """Takes in what the lenses got (update those first); from which row on something changed."""
