"""Plots of what a server decodes: means of the last five minutes over a quiet axis, with the baseline it has to beat."""

import time
from collections.abc import Sequence

from tui import format as fmt
from tui.panel.host_view import Board
from tui.panel.widgets.paint import Canvas, cells, join

_PLOT_S = 300.0
_IDLE_S = 5.0  # decode lines come every 40 steps; a plot's line is joined over so long


def accepts(board: Board) -> bool:
    return any(point.accept_len is not None for point in board.decode)


def series(board: Board, columns: int, what: str, now: float) -> list[float | None]:
    """Means of the last five minutes in `columns` places at fixed moments."""
    step = _PLOT_S / columns
    newest = int(now / step)
    sums, seen = [0.0] * columns, [0] * columns
    for point in board.decode:
        value = point.tok_s if what == "tok/s" else point.accept_len
        place = columns - 1 - (newest - int(point.at / step))
        if value is not None and 0 <= place < columns:
            sums[place] += value
            seen[place] += 1
    values: list[float | None] = [total / n if n else None for total, n in zip(sums, seen, strict=True)]
    # Between two decode lines of a busy server lies no gap.
    last: int | None = None
    for place, value in enumerate(values):
        if value is None:
            continue
        if last is not None and 1 < place - last <= _IDLE_S / step + 1:
            for between in range(last + 1, place):
                values[between] = values[last]
        last = place
    return values


def plot(board: Board, canvas: Canvas, y: int, height: int, what: str, x: int = 0) -> None:
    width = canvas.width - x
    found = board.economics() if not board.stale else None
    reference, facts = None, []
    if found is not None:
        economics, base = found
        reference = base.tok_s * base.concurrency if what == "tok/s" else economics.breakeven_tau
        word = f"baseline {fmt.tok_s(reference)}" if what == "tok/s" else f"break-even {fmt.accept(reference)}"
        facts = [[("⠒⠒ ", "warn"), (word, "muted")]]
    canvas.title(x, y, width, what, join([*facts, [("last 5 min", "muted")]]))
    now = time.monotonic()
    if not any(value is not None for value in series(board, 2, what, now)):
        canvas.put(x, y + 1, "nothing decoded in the last 5 min", "muted", width)
        return
    points = [p for p in board.decode if now - p.at <= _PLOT_S]
    low, high = scale([*(p.tok_s if what == "tok/s" else p.accept_len for p in points), reference])
    gutter = axis(canvas, x, y + 1, height, low, high, what)
    values = series(board, (width - gutter) * 2, what, now)
    color = "accent" if what == "tok/s" else "violet"
    canvas.plot(x + gutter, y + 1, width - gutter, height, values, low, high, color, reference)


def axis(canvas: Canvas, x: int, y: int, height: int, low: float, high: float, what: str) -> int:
    """Ticks and dashes; returns the columns that the widest label takes, with its gap."""
    places = 0 if what == "tok/s" and high - low >= 2 else 1
    ticks = {0: high, height - 1: low}
    if height >= 5:
        ticks[height // 2] = (low + high) / 2
    labels = {row: fmt.decimals(value, places) for row, value in ticks.items()}
    gutter = 1 + max(4, *(cells(label) for label in labels.values()))
    for row, label in labels.items():
        canvas.right(x + gutter - 1, y + row, label, "muted")
        canvas.put(x + gutter, y + row, "╌" * (canvas.width - x - gutter), "line")
    return gutter


def scale(values: Sequence[float | None]) -> tuple[float, float]:
    """A quiet axis around values: steps of 1, 2 or 5, wide enough that noise of a few per cent looks like noise."""
    known = [value for value in values if value is not None]
    if not known:
        return 0.0, 1.0
    low, high = min(known), max(known)
    span = max(high - low, 0.4 * abs(high), 0.5)
    power = 10.0 ** len(str(int(span))) / 10
    step = next((factor * power for factor in (0.1, 0.2, 0.5, 1.0, 2.0, 5.0) if factor * power * 4 >= span), span)
    middle = (low + high) / 2
    bottom = max(0.0, int((middle - span / 2) / step) * step)
    top = bottom
    while top < high or top - bottom < span * 0.99:
        top += step
    return bottom, top
