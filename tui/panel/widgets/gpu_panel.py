"""GPUs: memory with the budget mark, history on a fixed scale, power against its limit, temperature; one row each."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tui import format as fmt
from tui.core.host.gpus import Gpu, error_words
from tui.core.model.phases import Outcome
from tui.job_words import gpus_words
from tui.panel.host_view import HISTORY_S, Board, GpuPoint, gpu_key
from tui.panel.widgets.jobs import draw_jobs
from tui.panel.widgets.paint import Canvas, Painted, Run

if TYPE_CHECKING:
    from tui.panel.cluster_view import Cluster

_LATE_S = 3.0  # figures are sampled once a second; older ones carry their age
_HEALTH = {"requires_reset": "needs a reset", "lost": "lost", "error": "error"}


class GpuPanel(Painted):
    """Column heads and a row a GPU under a section title (a plain head below 100 columns)."""

    can_focus = True

    def __init__(self, board: Board) -> None:
        super().__init__(id="gpus")
        self.board = board
        self.power = False  # power history instead of utilisation

    def wanted_height(self, *, title: bool) -> int:
        """Rows needed for all GPUs; they are never dropped."""
        if self.shown.cluster is not None:
            return 2 + min(10, len(self.shown.cluster.others)) + (1 if title else 0)
        count = len(self.shown.sample.gpus) if self.shown.sample else 0
        return max(1, count) + 1 + (1 if title else 0)

    @property
    def shown(self) -> Board:
        """Whose GPUs these are: the host's, or those of the node that the displayed run is on."""
        return self.board.on_node or self.board

    def _draw_cluster(self, canvas: Canvas, cluster: "Cluster") -> None:
        """Of a login host: where the GPUs are, and the user's other jobs that have some."""
        run, width = self.board.run, canvas.width
        jobs = cluster.others if run is None or run.job is None else ()
        y = 1 if canvas.height > 2 + min(10, len(jobs)) else 0
        if jobs:
            canvas.title(
                0, 0, width if y else 0, "Your other jobs", [("with GPUs, only shown", "muted")], focus=self.has_focus
            )
            draw_jobs(canvas, 0, y, width, canvas.height - y, jobs, self.board.utc_offset_s)
            return
        said = "on the nodes of the cluster"
        if run is not None and run.job is not None and run.live:
            said = (
                f"{gpus_words(run.job)} on {run.node}; what they do is not read" if run.node else "it has no nodes yet"
            )
        if y:
            canvas.title(0, 0, width, "GPUs", focus=self.has_focus)
        canvas.put(0, y, said, "muted", width)

    def draw(self, canvas: Canvas) -> None:
        board, sample, width = self.shown, self.shown.sample, canvas.width
        if board.cluster is not None:
            self._draw_cluster(canvas, board.cluster)
            return
        gpus = sample.gpus if sample else ()
        titled = canvas.height > len(gpus) + 1 or not gpus
        y = 0
        if titled:
            canvas.title(0, 0, width, "GPUs", self._facts(), focus=self.has_focus)
            y = 1
        if sample is None:
            canvas.put(0, y, "not connected" if not board.connected else "waiting for the first sample", "muted")
            return
        if sample.error is not None:
            canvas.put(0, y, "✗", "err")
            canvas.put(2, y, error_words(sample.error), "text", width - 2)
            canvas.put(2, y + 1, sample.detail or "", "muted", width - 2)
            return
        if not gpus:
            canvas.put(0, y, "no GPU on this host", "muted")
            return
        at = _Columns.of(width)
        self._heads(canvas, y, at, gpus, titled=titled)
        behind = {straggler.position for straggler in board.stragglers()}
        keys = [key for key, _ in board.own_gpus()]
        late = {keys[position] for position in behind if position < len(keys)}
        for position, gpu in enumerate(gpus):
            key = gpu_key(gpu, position)
            self._row(canvas, y + 1 + position, at, gpu, key, late=key in late)

    def _heads(self, canvas: Canvas, y: int, at: "_Columns", gpus: Sequence[Gpu], *, titled: bool) -> None:
        largest = max((gpu.memory_total_mib for gpu in gpus if gpu.memory_total_mib), default=None)
        head, spec = ("#  ", "muted") if titled else ("GPU ", "accent!" if self.has_focus else "strong!")
        canvas.put(0, y, head, spec)
        canvas.put(len(head), y, f"memory of {fmt.gib(largest)}", "muted", at.memory)
        canvas.right(at.gib, y, "GiB", "muted")
        canvas.put(at.history, y, "power, 60 s" if self.power else "util, 60 s", "muted", at.history_width)
        canvas.right(at.percent, y, "%", "muted")
        limits = {gpu.power_limit_w for gpu in gpus}
        limit = limits.pop() if len(limits) == 1 else None
        canvas.right(at.watt, y, f"W / {limit:.0f} W" if limit else "W", "muted")
        canvas.right(at.celsius, y, "°C", "muted")

    def _row(self, canvas: Canvas, y: int, at: "_Columns", gpu: Gpu, key: str, *, late: bool) -> None:
        board = self.shown
        index = fmt.NONE if gpu.index is None else str(gpu.index)
        canvas.put(0, y, index, "warn!" if late else "muted")
        if late:
            canvas.put(len(index), y, "▲", "warn!")
        if gpu.health is not None:
            canvas.put(len(index), y, "✗", "err!")
            canvas.put(3, y, _HEALTH.get(gpu.health, gpu.health), "err!", at.memory)
        else:
            budget = board.state is not None and board.state.outcome is Outcome.STARTING and not board.stale
            self._memory(canvas, 3, y, at.memory, gpu, key, late=late, budget=budget)
            canvas.right(at.gib, y, fmt.gib(gpu.memory_used_mib), "warn!" if late else "text")
        points = list(board.points.get(key, ()))
        canvas.history(at.history, y, bins(points, at.history_width, time.monotonic(), power=self.power))
        canvas.right(at.percent, y, fmt.whole(gpu.utilization_pct), "text")
        if gpu.power_w is not None:
            canvas.bar(at.power, y, 6, gpu.power_w / gpu.power_limit_w if gpu.power_limit_w else None)
        canvas.right(at.watt, y, fmt.whole(gpu.power_w), "text")
        canvas.right(at.celsius, y, fmt.whole(gpu.temperature_c), "text")

    def _memory(
        self, canvas: Canvas, x: int, y: int, width: int, gpu: Gpu, key: str, *, late: bool, budget: bool
    ) -> None:
        used, total = gpu.memory_used_mib, gpu.memory_total_mib
        if used is None or not total:
            canvas.put(x, y, "not reported" if not gpu.unified_memory else "unified memory", "muted", width)
            return
        limit = self.shown.budget_mib(gpu, key) if budget else None
        mark = min(width - 1, round(limit / total * width)) if limit is not None else None
        spec = "warn" if late else ("muted" if self.shown.stale else "data")
        canvas.bar(x, y, width, used / total, spec, mark)

    def _facts(self) -> list[Run]:
        board, sample = self.shown, self.shown.sample
        if sample is not None and sample.stalled_s:
            return [("▲ ", "warn"), (f"the driver has not answered for {fmt.age(sample.stalled_s)}", "text")]
        if board.stale and board.sample_at is not None:
            return [("? ", "warn"), (f"last seen {fmt.age(time.monotonic() - board.sample_at)} ago", "muted")]
        if sample is not None and sample.error is not None:
            return []  # asked for now and then only
        waited = time.monotonic() - board.sample_at if board.sample_at is not None else 0.0
        if waited > _LATE_S:
            return [("▲ ", "warn"), (f"last sample {fmt.age(waited)} ago", "text")]
        fraction = board.budget_fraction()
        if fraction is not None and board.state is not None and board.state.outcome is Outcome.STARTING:
            return [("│", "text"), (f" mem-fraction-static {fraction:g}", "muted")]
        if sample is not None and any(gpu.unified_memory for gpu in sample.gpus):
            return [("unified memory: the host's own", "muted")]
        return []


@dataclass(frozen=True)
class _Columns:
    """Where the figures of a row are: widths of the bars, and columns where figures begin or end."""

    memory: int
    gib: int  # end
    history: int
    history_width: int
    percent: int  # end
    power: int
    watt: int  # end
    celsius: int  # end

    @classmethod
    def of(cls, width: int) -> "_Columns":
        """Memory and history share what the figures leave."""
        free = max(8, width - 40)
        memory = (free - 1) // 2
        gib = 3 + memory + 6
        percent = gib + 2 + free - memory + 5
        watt = percent + 2 + 16
        return cls(memory, gib, gib + 2, free - memory, percent, percent + 2, watt, min(width, watt + 6))


def bins(points: list[GpuPoint], count: int, now: float, *, power: bool) -> list[float | None]:
    """The last minute in `count` cells on 0 to 1, newest last, None where nothing was sampled.

    Cells are cut at fixed moments rather than from `now` back, so that past cells keep their height.
    """
    step = HISTORY_S / count
    newest = int(now / step)
    sums = [0.0] * count
    seen = [0] * count
    for point in points:
        value = point.power_share if power else point.utilization_pct
        cell = count - 1 - (newest - int(point.at / step))
        if value is None or not 0 <= cell < count:
            continue
        sums[cell] += value if power else value / 100
        seen[cell] += 1
    values: list[float | None] = [total / n if n else None for total, n in zip(sums, seen, strict=True)]
    # Sampled once a second, a narrow cell may fall between two samples: that is no gap.
    if step < 1.5:
        for position in range(1, count - 1):
            if values[position] is None and values[position - 1] is not None and values[position + 1] is not None:
                values[position] = values[position - 1]
        if count > 1 and values[-1] is None:
            values[-1] = values[-2]
    return values
