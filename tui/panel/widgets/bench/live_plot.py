"""The current run: tok/s of every second since it began."""

from typing import ClassVar

from tui import format as fmt
from tui.panel.bench_view import ArmView
from tui.panel.widgets.bench import chart
from tui.panel.widgets.bench.arm_card import seconds
from tui.panel.widgets.bench.of_comparison import OfComparison
from tui.panel.widgets.paint import Canvas, Run, cells, join


class LivePlot(OfComparison):
    """Output tokens a second against time, with what the measured runs of the same arm gave as a dashed line."""

    ID = "liveplot"
    DEFAULT_CSS: ClassVar[str] = "LivePlot { height: 1fr; width: 1fr; }"

    def draw(self, canvas: Canvas) -> None:
        view = self.comparison.live if self.comparison else None
        live = view.live if view is not None else None
        if view is None or live is None:
            canvas.title(0, 0, canvas.width, "Now")
            canvas.put(0, 1, "no run is in progress", "muted")
            return
        before = self._before(view)
        one = live.point.concurrency == 1
        canvas.title(0, 0, canvas.width, "Now, tok/s" if one else "Now, tok/s in all", self._facts(view, before))
        values = list(live.series)
        known = [value for value in values if value is not None]
        if not known or canvas.height < 4:
            canvas.put(0, 1, f"{live.phase}: nothing was decoded yet", "muted")
            return
        low, high = 0.0, max([*known, before or 0.0]) * 1.06
        height = canvas.height - 2
        steps, places = chart.ticks(low, high, max(2, height // 3))
        labels = [fmt.decimals(tick, places) for tick in steps]
        gutter = max(cells(label) for label in labels) + 1
        width = canvas.width - gutter
        for tick, label in zip(steps, labels, strict=True):
            y = 1 + chart.row(tick, height, (low, high))
            canvas.right(gutter - 1, y, label, "muted")
            canvas.put(gutter, y, "╌" * width, "line")
        span = seconds(live, self.comparison.state.bench.duration_s if self.comparison else 0.0)
        series = [chart.Series(tuple(enumerate(values)), view.ink)]
        if before is not None:
            series.insert(0, chart.Series(((0.0, before),), "warn", dashed=True))
        chart.plot(canvas, gutter, 1, width, height, series, (0.0, span), (low, high))
        steps, _ = chart.ticks(0.0, span, max(2, width // 14))
        for tick in steps:
            label = f"{tick:.0f} s"
            at = gutter + chart.column(tick, width, (0.0, span)) - cells(label) // 2
            canvas.put(max(gutter, min(canvas.width - cells(label), at)), canvas.height - 1, label, "muted")

    @staticmethod
    def _before(view: ArmView) -> float | None:
        """Output tok/s of the windows that are done: what `live` shows is of all users together."""
        rates = [r.throughput.output_tok_s for r in view.results if r.valid and r.throughput.output_tok_s]
        return sum(rates) / len(rates) if rates else None

    @staticmethod
    def _facts(view: ArmView, before: float | None) -> list[Run]:
        live = view.live
        assert live is not None
        facts: list[list[Run]] = [[(f"{view.letter} run {live.run_index}, {live.phase}", "muted")]]
        if before is not None:
            facts.append([("⠒⠒ ", "warn"), (f"earlier runs {fmt.tok_s(before)}", "muted")])
        return join(facts)
