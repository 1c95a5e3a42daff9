"""Every run as a dot: tok/s across, a row a launch. A mean hides a run that fell out; a dot doesn't."""

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import ClassVar

from tui import format as fmt
from tui.core.verdicts.metric import Metric
from tui.core.verdicts.pairing import launches as measured_launches
from tui.panel.bench_view import ArmView, Comparison, Launch, Mark, RunMark, launch_means
from tui.panel.widgets.bench import chart
from tui.panel.widgets.bench.of_comparison import OfComparison
from tui.panel.widgets.paint import Canvas, Run, words

_GLYPHS = {Mark.MEASURED: "●", Mark.INVALID: "✗", Mark.LIVE: "◐"}
_GUTTER = 9  # letter and number of the launch


def spread(launches: Sequence[Launch], yardstick: Metric) -> tuple[float | None, float | None]:
    """Standard deviation of the log of the figure between runs of a launch, and between launches, each as a share."""
    results = [result for launch in launches for result in launch.results]
    found = measured_launches(results, yardstick)
    repeated = [launch.values for launch in found if len(launch.values) > 1]
    freedom = sum(len(values) - 1 for values in repeated)
    within = sum(statistics.variance(values) * (len(values) - 1) for values in repeated)
    means = launch_means(launches, yardstick)
    return (math.sqrt(within / freedom) if freedom else None, statistics.stdev(means) if len(means) > 1 else None)


class RunDots(OfComparison):
    """The runs of all arms on one axis."""

    ID = "rundots"
    DEFAULT_CSS: ClassVar[str] = "RunDots { height: 1fr; width: 1fr; }"

    def draw(self, canvas: Canvas) -> None:
        comparison = self.comparison
        if comparison is None:
            return
        values = [run.tok_s for view in comparison.arms for launch in view.launches for run in launch.runs]
        known = [value for value in values if value is not None]
        rows, apart = self._rows(comparison, canvas.height - 2)
        each = "one row per launch" if any(len(row[1]) == 1 for row in rows) and rows else "one row per arm"
        canvas.title(0, 0, canvas.width, "Every run", [(f"{comparison.metric.unit}, {each}", "muted")])
        if not known:
            canvas.put(0, 1, "no run is done yet", "muted")
            return
        low, high = axis(known)
        width = canvas.width - _GUTTER - 2
        ticks, places = chart.ticks(low, high, max(2, width // 8))
        height = min(canvas.height - 2, len(rows) + apart * len({view.letter for view, _ in rows}))
        height = max(1, height)
        for tick in ticks:
            at = _GUTTER + chart.column(tick, width, (low, high))
            for y in range(1, 1 + height):
                canvas.put(at, y, "┊", "line")
            label = fmt.decimals(tick, places)
            canvas.put(max(0, min(canvas.width - len(label), at - len(label) // 2)), 1 + height, label, "muted")
        y = 1
        before: ArmView | None = None
        points: dict[tuple[str, str], list[chart.Point]] = {}
        for view, launches in rows:
            if before is not None and view is not before:
                y += apart
            if y > height:
                break
            self._label(canvas, y, view, launches, first=view is not before)
            runs = [run for _, launch in launches for run in launch.runs if run.tok_s is not None]
            place = _apart if len(launches) == 1 else _stacked
            for run, column, dot in place(runs, width, (low, high)):
                stacked = place is _stacked and run.mark is Mark.MEASURED
                glyph = chart.LINE if stacked else _GLYPHS[run.mark]
                # four rows of dots a cell, from the top
                points.setdefault((glyph, _color(view, run.mark)), []).append((column, -(4.0 * (y - 1) + dot)))
            before = view
            y += 1
        series = [chart.Series(tuple(own), color, glyph, joined=False) for (glyph, color), own in points.items()]
        chart.plot(canvas, _GUTTER, 1, width, height, series, (0.0, 2 * width - 1.0), (1.0 - 4 * height, 0.0))
        if y + 1 < canvas.height - 1:
            self._words(canvas, height + 3, comparison)

    @staticmethod
    def _rows(comparison: Comparison, room: int) -> tuple[list[tuple[ArmView, list[tuple[int, Launch]]]], int]:
        """What each row holds, and blank rows between arms."""
        single = [
            (view, [(number, launch)])
            for view in comparison.arms
            for number, launch in enumerate(view.launches, 1)
            if any(run.tok_s is not None for run in launch.runs)
        ]
        if len(single) + len(comparison.arms) - 1 <= room:
            return single, 1
        if len(single) <= room:
            return single, 0
        merged = [(view, list(enumerate(view.launches, 1))) for view in comparison.arms if view.launches]
        return merged, 0

    @staticmethod
    def _label(canvas: Canvas, y: int, view: ArmView, launches: list[tuple[int, Launch]], *, first: bool) -> None:
        if first:
            canvas.put(0, y, view.letter, f"{view.color}!")
        if len(launches) == 1:
            canvas.right(_GUTTER - 3, y, str(launches[0][0]), "muted")

    @staticmethod
    def _words(canvas: Canvas, y: int, comparison: Comparison) -> None:
        """How far runs and launches of one arm are apart, the worst arm."""
        spreads = [spread(view.launches, comparison.metric) for view in comparison.arms]
        run = max((value for value, _ in spreads if value is not None), default=None)
        launch = max((value for _, value in spreads if value is not None), default=None)
        line: list[Run] = []
        if run is not None:
            line += [("Within a launch the runs spread by ", "muted"), (f"±{run * 100:.1f} %", "text")]
        if launch is not None:
            lead = ", between launches by " if line else "Launches spread by "
            line += [(lead, "muted"), (f"±{launch * 100:.1f} %", "text")]
        if line:
            canvas.runs(0, y, words([*line, (".", "muted")], canvas.width))


def _color(view: ArmView, mark: Mark) -> str:
    return {Mark.INVALID: "err", Mark.LIVE: "accent"}.get(mark, view.ink)


def _apart(runs: Sequence[RunMark], width: int, across: tuple[float, float]) -> Iterator[tuple[RunMark, float, float]]:
    """A cell a run: its column in dots, and its row of dots in the cell.

    Runs that would share a cell stand side by side, less than the width of a glyph from their place.
    """
    taken: set[int] = set()
    for run in sorted(runs, key=lambda run: run.tok_s or 0.0):
        at = chart.column(run.tok_s or 0.0, width, across)
        free = [place for place in range(width) if place not in taken]
        if free:
            place = min(free, key=lambda place: abs(place - at))
            taken.add(place)
            yield run, 2.0 * place, 1.5


def _stacked(
    runs: Sequence[RunMark], width: int, across: tuple[float, float]
) -> Iterator[tuple[RunMark, float, float]]:
    """All runs of an arm in one row: a dot each, four of the same place one over the other."""
    heights: Counter[int] = Counter()
    for run in runs:
        column = round(((run.tok_s or 0.0) - across[0]) / (across[1] - across[0]) * (2 * width - 1))
        yield run, float(column), float(max(0, 3 - heights[column])) if run.mark is Mark.MEASURED else 1.5
        heights[column] += run.mark is Mark.MEASURED


def axis(values: Sequence[float]) -> tuple[float, float]:
    """An axis around values with a little room; a few parts in a thousand look like what they are."""
    low, high = min(values), max(values)
    span = max(high - low, 0.04 * abs(high), 0.5)
    middle = (low + high) / 2
    return middle - 0.56 * span, middle + 0.56 * span
