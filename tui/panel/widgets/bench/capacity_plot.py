"""What load does it hold? The share of replies within the limits against the load, and the knee of each arm."""

import math
from collections.abc import Sequence
from typing import ClassVar

from tui import format as fmt
from tui.core.model.profile import Limits, LoadPoint
from tui.core.verdicts.sentences import amount_words, answer_words
from tui.panel.bench_view import ArmView, Comparison
from tui.panel.widgets.bench import chart
from tui.panel.widgets.bench.of_comparison import OfComparison
from tui.panel.widgets.paint import Canvas, Run, cells, words

_TITLE = "What load does it hold?"
_GUTTER = 6


class CapacityPlot(OfComparison):
    """A line an arm over the loads that its searches measured; the load grows by doubling."""

    ID = "capacity"
    DEFAULT_CSS: ClassVar[str] = "CapacityPlot { height: 1fr; width: 1fr; }"

    def draw(self, canvas: Canvas) -> None:
        comparison = self.comparison
        search = comparison.state.bench.search if comparison is not None else None
        if comparison is None or search is None:
            return
        unit = "users at once" if search.kind == "concurrency" else "requests/s"
        tried = [f"up: replies within the limits · right: {unit}", f"by {unit}"]
        room = canvas.width - len(_TITLE) - 4
        canvas.title(0, 0, canvas.width, _TITLE, [(next((t for t in tried if len(t) <= room), ""), "muted")])
        last = canvas.height - 1
        canvas.runs(0, last, words(_said(comparison), canvas.width))
        live = _now(comparison)
        loads = sorted({one.load for view in comparison.arms for one in view.loads} | ({live} if live else set()))
        if not loads:
            canvas.put(0, 1, "no load is measured yet", "muted")
            return
        self._plot(canvas, comparison, loads, search.limits, live, last - 2)

    @staticmethod
    def _plot(
        canvas: Canvas, comparison: Comparison, loads: Sequence[float], limits: Limits, live: float | None, height: int
    ) -> None:
        """The curve in `height` rows below the title, the loads under it."""
        width = canvas.width - _GUTTER - 1
        low, high = math.log2(loads[0]), math.log2(loads[-1])
        across = (low - 0.25, max(high, low + 1.0) + 0.25)
        up = (-0.03, 1.03)  # marks at the edges stand on their line

        def column(load: float) -> int:
            return _GUTTER + chart.column(math.log2(load), width, across)

        def row(share: float) -> int:
            return 1 + chart.row(share, height, up)

        for tick in (0.0, 0.25, 0.5, 0.75, 1.0) if height >= 8 else (0.0, 0.5, 1.0):
            if row(tick) == row(limits.share):
                continue
            canvas.right(_GUTTER - 1, row(tick), f"{tick * 100:.0f} %", "muted")
            canvas.put(_GUTTER, row(tick), "╌" * width, "line")
        canvas.right(_GUTTER - 1, row(limits.share), f"{limits.share * 100:g} %", "warn")
        # From the knees outward, each label where it finds room.
        knees = [view.knee for view in comparison.arms if view.knee is not None]
        taken = [False] * (canvas.width + 2)
        nearest = sorted(loads, key=lambda load: min((abs(math.log2(load / knee)) for knee in knees), default=load))
        for load in nearest:
            label = f"{load:g}"
            at = max(_GUTTER, min(canvas.width - cells(label), column(load) - cells(label) // 2))
            if not any(taken[at : at + cells(label) + 1]):
                canvas.put(at, 1 + height, label, "strong!" if load in knees else "muted")
                taken[at : at + cells(label) + 1] = [True] * (cells(label) + 1)
        series = [chart.Series(((0.0, limits.share),), "warn", dashed=True)]
        for view in comparison.arms:
            points = tuple((math.log2(one.load), one.held.share) for one in view.loads)
            series.append(chart.Series(points, view.ink))
        chart.plot(canvas, _GUTTER, 1, width, height, series, across, up)
        for view in comparison.arms:
            for one in view.loads:
                glyph, color = ("●", view.ink) if one.held.holds else ("✗", "err")
                canvas.put(column(one.load), row(one.held.share or 0.0), glyph, color)
        for view in comparison.arms:
            knee = next((one for one in view.loads if one.load == view.knee), None)
            if knee is not None:
                canvas.put(column(knee.load), row(knee.held.share or 0.0), "◆", "strong!")
        if live is not None:
            canvas.put(column(live), row(0.0), "◐", "accent")


def _now(comparison: Comparison) -> float | None:
    """The load that is measured now."""
    live = comparison.live.live if comparison.live is not None else None
    return None if live is None else _amount(live.point)


def _amount(point: LoadPoint) -> float | None:
    return float(point.concurrency) if point.concurrency is not None else point.rate


def _said(comparison: Comparison) -> list[Run]:
    """What is measured now, else what each arm holds."""
    live = comparison.live.live if comparison.live is not None else None
    if live is not None:
        held = [one.load for view in comparison.arms if view.live for one in view.loads if one.held.holds]
        best = f"; {max(held):g} held so far" if held else ""
        now = amount_words(live.point.concurrency, live.point.rate)
        return [("◐ ", "accent"), (f"{now}: {live.phase}", "strong!"), (best, "text")]
    said: list[Run] = []
    for view in comparison.arms:
        said += [("   ", "text")] if said else []
        said += [(f"{view.letter} ", f"{view.color}!"), (_found(view), "text")]
    return said


def _found(view: ArmView) -> str:
    answers = [result.capacity for result in view.results if result.capacity is not None]
    if len(answers) > 1 and view.tok_s is not None:
        return f"holds {fmt.decimals(view.tok_s, 1)}, mean of {len(answers)} searches"
    return answer_words(answers[-1]) if answers else "has no answer yet"
