"""The column at the right edge of a log: where phases, errors and hits are in all of it, and which part is displayed."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tui.panel.widgets.paint import Canvas

if TYPE_CHECKING:
    from tui.core.logs.rows import LogRows
    from tui.panel.open_log import OpenLog


def draw_overview(canvas: Canvas, log: "OpenLog", log_rows: "LogRows", shown: tuple[int, int] | None) -> None:
    """Draws it; `shown` is the first and the last row on the screen."""
    rows = canvas.height - 1
    sequence = log_rows.sequence
    if rows < 3 or (log.whole and len(sequence) <= rows):
        return
    size = max(1, (log.file.size or 1) if log.file is not None else 1)

    def row_at(offset: int) -> int:
        return 1 + max(0, min(rows - 1, offset * rows // size))

    def row_of(index: int) -> int:
        if log.whole:
            return 1 + min(rows - 1, bisect_left(sequence, index) * rows // len(sequence))
        return row_at(log_rows.row(index).record.offset)  # the first of a fold may be loaded no more

    first, last = map(row_of, shown) if shown is not None else (1, 1)
    hits = [row_of(index) for index in _thinned(log_rows.hits, rows)]
    if log.whole:
        phases = [row_of(index) for index in log_rows.phases]
        errors = [row_of(index) for index in _thinned(log_rows.errors, rows)]
    else:
        hits += [row_at(hit.offset) for hit in log.known_hits(rows * 4)]
        phases = [row_at(mark.offset) for mark in log.known_marks("phase")]
        errors = [row_at(mark.offset) for mark in log.known_marks("error")]
    x = canvas.width - 2
    for y in range(first, last + 1):
        canvas.put(x + 1, y, "▐", "muted")
    for places, char, spec in ((hits, "–", "warn"), (phases, "▸", "accent"), (errors, "✗", "err")):
        for y in places:
            canvas.put(x, y, char, spec)


def _thinned(places: Sequence[int], rows: int) -> Sequence[int]:
    """A sample of many places: more than a few in a row of the screen look the same."""
    return places[:: max(1, len(places) // (rows * 4))]
