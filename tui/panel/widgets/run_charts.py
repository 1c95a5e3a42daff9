"""Below all runs: what crashes were of, and how long starts took, a dot each."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from tui import format as fmt
from tui.panel.widgets.paint import Canvas, Painted

if TYPE_CHECKING:
    from tui.core.journal.model import RunRow

_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600)
_ROWS = 5


class RunCharts(Painted):
    """Causes at the left, start-up times at the right."""

    DEFAULT_CSS: ClassVar[str] = "RunCharts { height: 7; width: 100%; }"

    def __init__(self) -> None:
        super().__init__()
        self._causes: list[tuple[str, int, str]] = []
        self._starts: list[tuple[str, list[float]]] = []
        self._host = ""

    def show(self, runs: "Sequence[RunRow]", host: str) -> None:
        """Other runs; `host`: whose starts are drawn."""
        profiles: dict[str, Counter[str]] = defaultdict(Counter)
        starts: dict[str, list[float]] = {}
        for run in runs:
            if run.outcome == "crashed":
                profiles[run.cause or "unknown"][run.profile] += 1
            if run.host == host and run.ready_after_s is not None:
                starts.setdefault(run.profile, []).append(run.ready_after_s)
        causes = sorted(profiles, key=lambda cause: (-profiles[cause].total(), cause))[:_ROWS]
        self._causes = [(cause, profiles[cause].total(), _named(profiles[cause])) for cause in causes]
        self._starts = list(starts.items())[: _ROWS - 1]  # as they come, newest first
        self._host = host
        self.repaint()

    def wanted_height(self) -> int:
        """Rows with the title; 0 where there is nothing to draw."""
        return 1 + max(len(self._causes), len(self._starts) + 1) if self._causes or self._starts else 0

    def draw(self, canvas: Canvas) -> None:
        half = (canvas.width - 5) // 2
        self._draw_causes(canvas, 1, half)
        self._draw_starts(canvas, half + 4, canvas.width - half - 5)

    def _draw_causes(self, canvas: Canvas, x: int, width: int) -> None:
        crashes = fmt.plural(sum(count for _, count, _ in self._causes), "crash").replace("crashs", "crashes")
        canvas.title(x, 0, width, "Causes", [(crashes, "muted")])
        bar = width // 4
        most = max((count for _, count, _ in self._causes), default=1)
        for y, (cause, count, names) in enumerate(self._causes, 1):
            canvas.put(x, y, cause, "text", 22)
            canvas.bar(x + 23, y, bar, count / most)
            canvas.right(x + 23 + bar + 4, y, str(count), "strong")
            canvas.put(x + 23 + bar + 7, y, names, "muted", width - bar - 30)

    def _draw_starts(self, canvas: Canvas, x: int, width: int) -> None:
        canvas.title(x, 0, width, "Start-up time", [(f"of runs that reached ready on {self._host}, min:s", "muted")])
        if not self._starts:
            canvas.put(x, 1, "none of these", "muted")
            return
        values = [value for _, each in self._starts for value in each]
        at, wide = x + 25, width - 25 - 9
        low, high, step = _axis(min(values), max(values), max(1, wide // 12))
        for y, (name, each) in enumerate(self._starts, 1):
            canvas.put(x, y, name, "text", 23)
            canvas.put(at, y, "┈" * wide, "line")
            for value in each:
                canvas.put(at + round((value - low) / (high - low) * (wide - 1)), y, "●", "text")
            canvas.right(x + width, y, f"n = {len(each)}", "muted")
        for tick in range(low, high + 1, step):
            label = fmt.duration(tick)
            place = at + round((tick - low) / (high - low) * (wide - 1))
            canvas.put(min(place, at + wide - len(label)), len(self._starts) + 1, label, "muted")


def _named(profiles: Counter[str]) -> str:
    """`eagle3-mem076 and 1 more`."""
    (first, _), *more = profiles.most_common()
    return first + (f" and {len(more)} more" if more else "")


def _axis(low_s: float, high_s: float, most: int) -> tuple[int, int, int]:
    """Ends of an axis of whole seconds on its ticks, and the step between at most `most` of them."""
    step = next((step for step in _STEPS_S if (high_s - low_s) / step <= most - 1), None)
    step = step if step is not None else max(1, round((high_s - low_s) / max(1, most - 1)))
    first = int(low_s // step) * step
    return first, max(first + step, -int(-high_s // step) * step), step
