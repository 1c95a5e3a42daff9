"""What is measured, how far it is, and how: the rows over the arms."""

from typing import ClassVar

from tui import format as fmt
from tui.core.model.experiment import ExperimentState
from tui.core.model.profile import LoadPoint
from tui.core.text import one_line
from tui.core.verdicts.sentences import limits_words
from tui.panel.bench_view import Comparison
from tui.panel.widgets.bench.many_arms import stage
from tui.panel.widgets.bench.of_comparison import OfComparison
from tui.panel.widgets.paint import Canvas, Run, join, width_of, words


def left(seconds: float | None) -> list[Run]:
    """`about 3 min left`."""
    if seconds is None:
        return []
    if seconds < 60:
        return [("less than a minute left", "strong!")]
    minutes = round(seconds / 60)
    text = f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
    return [(f"about {text} left", "strong!")]


def load_words(point: LoadPoint) -> tuple[str, str]:
    """`concurrency` and its value, or `rate`."""
    if point.search is not None:
        return f"highest {point.search}", "search"
    if point.rate is not None:
        return "rate", f"{point.rate:g}/s"
    return "concurrency", str(point.concurrency)


class BenchHead(OfComparison):
    """Name and hypothesis against progress; then the load and the order; then what it waits for, where there is a row."""

    ID = "benchhead"
    DEFAULT_CSS: ClassVar[str] = "BenchHead { height: 2; width: 100%; }"

    def draw(self, canvas: Canvas) -> None:
        comparison = self.comparison
        if comparison is None:
            return
        state = comparison.state
        end = canvas.width - 1
        progress = self._progress(comparison)
        begin = canvas.right_runs(end, 0, words(progress, max(24, end - 24)))
        at = canvas.put(1, 0, one_line(state.name, 80), "strong!", begin - 3)
        room = begin - at - 4
        if state.hypothesis and room >= 20:
            canvas.runs(at + 2, 0, words([(one_line(state.hypothesis), "text")], room))
        said = self.message(state)
        if said and canvas.height < 3:
            canvas.runs(1, 1, words(said, canvas.width - 2))
            return
        facts = self._facts(comparison)
        while len(facts) > 1 and width_of(join(facts)) > canvas.width - 2:
            facts.pop()
        canvas.runs(1, 1, words(join(facts), canvas.width - 2))
        canvas.runs(1, 2, words(said, canvas.width - 2))

    @staticmethod
    def message(state: ExperimentState) -> list[Run]:
        """What it waits for, or how it ended, where that says more than that it is done."""
        if not state.message or (state.finished and state.message == "done"):
            return []
        glyph: Run = ("■ ", "warn") if state.paused else ("· ", "muted") if state.finished else ("◐ ", "accent")
        return [glyph, (one_line(state.message), "text")]

    @staticmethod
    def _progress(comparison: Comparison) -> list[Run]:
        state = comparison.state
        elsewhere: list[Run] = [("run by ", "muted"), (f"PID {state.driver}", "accent")]
        if state.finished and state.driver is not None:
            return elsewhere
        if state.finished:
            when = fmt.day_clock(state.started_at)
            return [("measured ", "muted"), (when, "text")] if when != fmt.NONE else []
        parts: list[list[Run]] = []
        launches = len(state.order)
        if launches > 1:
            now = min(state.at + 1, launches)
            parts.append([("launch ", "muted"), (str(now), "strong!"), (f" of {launches}", "muted")])
        live = next((view.arm.live for view in comparison.arms if view.arm.live is not None), None)
        if live is not None:
            several = len(state.bench.points) > 1 or state.bench.search is not None
            point = f" at {load_words(live.point)[1]}" if several else ""
            parts.append(
                [
                    ("search " if state.bench.search else "run ", "muted"),
                    (str(live.run_index), "strong!"),
                    (f" of {state.bench.runs}{point}", "muted"),
                ]
            )
        parts.append([("■ PAUSED", "warn!")] if state.paused else left(state.left_s))
        if state.driver is not None:
            parts.append(elsewhere)
        return join(parts)

    @staticmethod
    def _facts(comparison: Comparison) -> list[list[Run]]:
        state, bench = comparison.state, comparison.state.bench
        word, value = load_words(comparison.point)
        load: list[Run] = [(f"{word} ", "muted")]
        if len(bench.points) > 1:
            for number, point in enumerate(bench.points):
                here = point == comparison.point
                load += [(" " if number else "", "text"), (load_words(point)[1], "accent!" if here else "muted")]
            load += [(" ", "text"), ("[ ]", "accent!")]
        elif bench.search is not None:
            load.append((f"{bench.search.low:g} … {bench.search.high:g}", "text"))
        else:
            load.append((value, "text"))
        launches = max((len(view.launches) for view in comparison.arms), default=1)
        steady: list[Run] = [
            ("steady ", "muted"),
            (f"{bench.duration_s:g} s", "text"),
            (f" × {fmt.plural(bench.runs, 'run')}" if bench.search is None else " a load", "muted"),
        ]
        screened = any(state.rungs)
        if launches > 1 and not screened:
            steady.append((f" × {launches} launches", "muted"))
        facts: list[list[Run]] = [load, steady]
        if bench.search is None:
            facts.insert(0, [("per-user tok/s", "muted")])
        else:
            facts.insert(1, [(limits_words(bench.search.limits), "text")])
        if screened:
            facts.append([("launches ", "muted"), (str(len(state.order)), "text"), (", ", "muted"), *stage(state)])
        elif len(state.order) > 1:
            each = max(1, len(state.arms))
            rounds = [fmt.order_words(state.order[at : at + each]) for at in range(0, len(state.order), each)]
            if len(rounds) > 6:
                rounds = [*rounds[:5], "…"]
            facts.append([("order ", "muted"), (" ".join(rounds), "text")])
        facts.append([("workload ", "muted"), (one_line(bench.dataset, 60), "text"), *_temperature(comparison)])
        return facts


def _temperature(comparison: Comparison) -> list[Run]:
    for view in comparison.arms:
        for result in view.results:
            if result.load.temperature is not None:
                return [(f", temperature {result.load.temperature:g}", "muted")]
    return []
