"""Plots: lines and points rasterised by plotext, painted cell by cell in the panel's own colours.

The only importer of plotext, which is loaded with the first plot that is drawn. It gives the pixels of a bare canvas and
nothing else: titles, ticks and labels are the panel's.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tui.panel.widgets.paint import Canvas

Point = tuple[float, float | None]
LINE = "braille"

_SGR = re.compile(r"\x1b\[([0-9;]*)m")
_DASH = 3  # pixels on, and as many off


@dataclass(frozen=True)
class Series:
    """Points of one colour; a missing value is a gap in the line.

    `marker` is `LINE` for braille dots, else one character for each point. `filled` reaches down to zero. `dashed` is a
    level from edge to edge.
    """

    points: tuple[Point, ...]
    spec: str
    marker: str = LINE
    joined: bool = True
    filled: bool = False
    dashed: bool = False


@lru_cache(maxsize=1)
def _plotext() -> Any:
    import plotext

    # It would cut a plot to the size of the terminal that it was imported in, and there it knows of no resize.
    plotext.terminal.limit(False, False)
    return plotext


def plot(
    canvas: Canvas,
    x: int,
    y: int,
    width: int,
    height: int,
    series: Sequence[Series],
    across: tuple[float, float],
    up: tuple[float, float],
) -> None:
    """Draws series into `width` by `height` cells, later ones over earlier ones; what lies outside is left out.

    Args:
        across: values of the first and the last column of dots, two a cell.
        up: values of the lowest and the highest row of dots, four a cell.
    """
    if width < 1 or height < 1 or across[1] <= across[0] or up[1] <= up[0]:
        return
    drawn = _raster(width, height, tuple(series), across, up)
    for number, line in enumerate(drawn.split("\n")[:height]):
        place, spec = x, ""
        at = 0
        for match in _SGR.finditer(line):
            _put(canvas, place, y + number, line[at : match.start()], spec, x + width)
            place += match.start() - at
            at = match.end()
            parts = match.group(1).split(";")
            of = int(parts[2]) if parts[:2] == ["38", "2"] else 0
            spec = series[of - 1].spec if 0 < of <= len(series) else ""
        _put(canvas, place, y + number, line[at:], spec, x + width)


def _put(canvas: Canvas, x: int, y: int, text: str, spec: str, end: int) -> None:
    # What is under a blank stays: grids and labels are drawn first.
    for offset, char in enumerate(text):
        if spec and char not in " \u2800" and x + offset < end:
            canvas.put(x + offset, y, char, spec)


def column(value: float, width: int, across: tuple[float, float]) -> int:
    """The column of cells, from 0, in which `plot` puts a value."""
    return math.floor((value - across[0]) / (across[1] - across[0]) * (2 * width - 1) + 0.5) // 2


def row(value: float, height: int, up: tuple[float, float]) -> int:
    """The row of cells, from 0 at the top, in which `plot` puts a value."""
    return math.floor((up[1] - value) / (up[1] - up[0]) * (4 * height - 1) + 0.5) // 4


@lru_cache(maxsize=32)
def _raster(
    width: int, height: int, series: tuple[Series, ...], across: tuple[float, float], up: tuple[float, float]
) -> str:
    """The plot as text in which the red of a colour is the number of the series, from 1. Most plots of a tick are old.

    plotext puts the limits of an axis into the middle of the outermost cells. One more row and column, which are not
    drawn, and limits moved by the same amount put them onto the outermost dots.
    """
    plotext = _plotext()
    figure = plotext.figure
    figure.clear()
    figure.plot_size(width + 1, height + 1)
    figure.axes(False)
    figure.canvas("default")
    x_span = (across[1] - across[0]) * 2 * width / (2 * width - 1)
    y_span = (up[1] - up[0]) * 4 * height / (4 * height - 1)
    left, top = across[0] + 0.5 * x_span / (2 * width), up[1] - 1.5 * y_span / (4 * height)
    for axis, limits in (("x", (left, left + x_span)), ("y", (top - y_span, top))):
        ruler = figure.ruler(axis, 0)
        ruler.frequency(0)
        ruler.lim(*limits)
    for number, one in enumerate(series, 1):
        marker = plotext.marker(one.marker, (number, 0, 0))
        for stretch in _dashes(one, width, across) if one.dashed else _stretches(one.points):
            signal = figure.signal([p[0] for p in stretch], [p[1] for p in stretch], marker=marker)
            signal.lines(one.joined and len(stretch) > 1)
            signal.fillx(one.filled)
            figure.draw(signal)
    return str(figure.build().string())


def _stretches(points: Sequence[Point]) -> list[list[tuple[float, float]]]:
    """Points between gaps."""
    found: list[list[tuple[float, float]]] = [[]]
    for at, value in points:
        if value is None or not math.isfinite(value) or not math.isfinite(at):
            found.append([])
        else:
            found[-1].append((at, value))
    return [stretch for stretch in found if stretch]


def _dashes(one: Series, width: int, across: tuple[float, float]) -> list[list[tuple[float, float]]]:
    level = next((value for _, value in one.points if value is not None), None)
    if level is None:
        return []
    pixels = width * 2
    step = (across[1] - across[0]) / max(1, pixels - 1)
    dots = [(across[0] + pixel * step, level) for pixel in range(pixels) if pixel % (2 * _DASH) < _DASH]
    return [[dot] for dot in dots]


def ticks(low: float, high: float, most: int) -> tuple[list[float], int]:
    """At most `most` round values from low to high, and the decimals that tell them apart."""
    span = high - low
    if span <= 0 or most < 1 or not math.isfinite(span):
        return [low], 1
    power = 10.0 ** math.floor(math.log10(span / most))
    steps = (factor * power for factor in (1.0, 2.0, 5.0, 10.0, 20.0, 50.0))
    for step in steps:
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first < most:
            places = max(0, -math.floor(math.log10(step) + 1e-9))
            return [number * step for number in range(first, last + 1)], places
    return [low], 1
