"""GPUs of the hosts of a group side by side: the same number of each host on one row."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from tui import format as fmt
from tui.core.host.gpus import Gpu, error_words
from tui.core.model.phases import Outcome, Phase
from tui.panel.host_view import gpu_key
from tui.panel.open_group import OpenGroup, Seen
from tui.panel.widgets.gpu_panel import bins
from tui.panel.widgets.group import job
from tui.panel.widgets.paint import Canvas, Run, join

_GAP = 3
_LEAST = 17  # cells of a host: a bar and its figure


@dataclass(frozen=True)
class _Columns:
    """Where the figures of a GPU are in the column of its host."""

    memory: int  # cells of the bar
    gib: int  # end
    history: int  # cells, 0 = none
    percent: int  # end, 0 = none

    @classmethod
    def of(cls, width: int) -> "_Columns":
        history = min(14, (width - 22) // 2) if width >= 32 else 0
        percent = width if width >= 24 else 0
        gib = (width - 5 if percent else width) - (history + 2 if history else 0)
        return cls(max(4, gib - 7), gib, history, percent)


def wanted_height(opened: OpenGroup) -> int:
    """Rows under the title: heads and as many GPUs as the host with most has."""
    if not opened.gpus_read:
        return 1
    return 1 + max((len(one.gpus.sample.gpus) if one.gpus.sample else 0 for one in opened.by_host()), default=0)


def draw_gpus(canvas: Canvas, x: int, y: int, width: int, rows: int, opened: OpenGroup) -> None:
    """Heads, and a row a GPU."""
    if not opened.gpus_read:
        canvas.put(x, y, job.where_words(opened), "muted", width)
        return
    hosts = opened.by_host()
    if not hosts:
        return
    fitting = max(1, min(len(hosts), (width - 2 + _GAP) // (_LEAST + _GAP)))
    each = (width - 2 - _GAP * (fitting - 1)) // fitting
    late = opened.late_member()
    numbers = max((len(one.gpus.sample.gpus) if one.gpus.sample else 0 for one in hosts[:fitting]), default=0)
    for row in range(min(numbers, rows - 1)):
        canvas.put(x, y + 1 + row, str(row), "muted")
    for place, one in enumerate(hosts[:fitting]):
        left = x + 2 + place * (each + _GAP)
        _draw_host(canvas, left, y, each, rows, opened, one, late=one.member == late)
    if fitting < len(hosts):
        more = f"+{fmt.plural(len(hosts) - fitting, 'host')}"
        canvas.right(x + width, y, more, "muted")


def _draw_host(
    canvas: Canvas, x: int, y: int, width: int, rows: int, opened: OpenGroup, one: Seen, *, late: bool
) -> None:
    board, at = one.gpus, _Columns.of(width)
    end = canvas.put(x, y, f"{'▲' if late else ''}{one.place}", "warn!" if late else "strong!", max(4, at.gib - 4))
    canvas.put(
        end + 1, y, opened.rank_span(one) if not opened.roles else one.member.name, "muted", x + at.gib - 4 - end - 1
    )
    canvas.right(x + at.gib, y, "GiB", "muted")
    if at.history:
        canvas.put(x + at.gib + 2, y, "60 s", "muted", at.history)
    if at.percent:
        canvas.right(x + at.percent, y, "%", "muted")
    sample = board.sample
    if sample is None or sample.error is not None:
        words = error_words(sample.error) if sample is not None and sample.error is not None else "no sample yet"
        canvas.put(x, y + 1, words if board.connected else "not connected", "muted", width)
        return
    behind = {straggler.position for straggler in board.stragglers()}
    keys = [key for key, _ in board.own_gpus()]
    slow = {keys[position] for position in behind if position < len(keys)}
    for row, gpu in enumerate(sample.gpus[: rows - 1]):
        key = gpu_key(gpu, row)
        _draw_gpu(canvas, x, y + 1 + row, at, one, gpu, key, spec="warn" if late or key in slow else "data")


def _draw_gpu(canvas: Canvas, x: int, y: int, at: _Columns, one: Seen, gpu: Gpu, key: str, *, spec: str) -> None:
    board = one.gpus
    used, total = gpu.memory_used_mib, gpu.memory_total_mib
    if gpu.health is not None:
        canvas.put(x, y, f"✗ {gpu.health}", "err!", at.memory)
    elif used is None or not total:
        canvas.put(x, y, "not reported", "muted", at.memory)
    else:
        starting = one.state is not None and one.state.outcome is Outcome.STARTING and not board.stale
        limit = board.budget_mib(gpu, key) if starting else None
        mark = min(at.memory - 1, round(limit / total * at.memory)) if limit is not None else None
        canvas.bar(x, y, at.memory, used / total, "muted" if board.stale else spec, mark)
    canvas.right(x + at.gib, y, fmt.gib(used), "text")
    if at.history:
        points = list(board.points.get(key, ()))
        canvas.history(x + at.gib + 2, y, bins(points, at.history, time.monotonic(), power=False))
    if at.percent:
        canvas.right(x + at.percent, y, fmt.whole(gpu.utilization_pct), "text")


def title_facts(opened: OpenGroup) -> list[Run]:
    """The budget mark, while the group starts."""
    serving = opened.serving()
    shown = opened.outcome is Outcome.STARTING and opened.gpus_read
    fraction = serving.board.budget_fraction() if shown else None
    return [("│", "text"), (f" mem-fraction-static {fraction:g}", "muted")] if fraction is not None else []


def power_line(opened: OpenGroup) -> list[Run]:
    """Power of each host and the hottest GPU of all."""
    watts: list[list[Run]] = []
    hottest: list[float] = []
    for one in opened.by_host():
        gpus = one.gpus.sample.gpus if one.gpus.sample is not None else ()
        known = [gpu.power_w for gpu in gpus if gpu.power_w is not None]
        hottest += [gpu.temperature_c for gpu in gpus if gpu.temperature_c is not None]
        if known:
            watts.append([(f"{one.place} ", "muted"), (f"{sum(known) / 1000:.2f} kW", "text")])
    if not watts:
        return []
    warm: list[Run] = [("hottest ", "muted"), (f"{max(hottest):.0f} °C", "text")] if hottest else []
    return [("power  ", "muted"), *join([join(watts, ", "), warm])]


def draw_ranks(canvas: Canvas, x: int, y: int, width: int, height: int, opened: OpenGroup) -> None:
    """What each rank has loaded by the memory of its GPU: a host over two rows."""
    late = opened.late_member()
    canvas.title(x, y, width, "Ranks", [("weights loaded, GiB, by GPU memory", "muted")])
    line = y + 1
    for one in opened.by_host():
        if line + 1 >= y + height:
            break
        tags = [rank.tag or "" for rank in one.state.startup.ranks] if one.state is not None else []
        loaded = one.gpus.loaded_mib()
        slow = one.member == late
        canvas.put(x, line, f"{'▲' if slow else ''}{one.place}", "warn!" if slow else "strong!", 9)
        progress = one.state.startup.progress if one.state is not None else None
        told = f"{progress.done}/{progress.total}" if progress is not None else ""
        canvas.put(x, line + 1, f"◐ {told}".rstrip(), "accent", 9)
        count = max(1, len(loaded), len(tags))
        step = max(6, (width - 9) // count)
        for place in range(min(count, (width - 9) // step)):
            right = x + 9 + (place + 1) * step
            canvas.right(right, line, tags[place] if place < len(tags) else str(place), "muted")
            canvas.right(right, line + 1, fmt.gib(loaded[place]) if place < len(loaded) else fmt.NONE, "text")
        line += 2


def loading(seen: Sequence[Seen]) -> bool:
    """Whether weights are being loaded somewhere."""
    return any(one.state is not None and one.state.phase is Phase.LOAD_WEIGHTS for one in seen)
