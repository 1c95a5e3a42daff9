"""The user's jobs on a cluster, in one line and in rows; those that eagletui did not start are only shown."""

from collections.abc import Sequence

from tui import format as fmt
from tui.core.model.job import Job, JobState
from tui.panel.cluster_view import use_of
from tui.panel.host_view import Board
from tui.panel.widgets.paint import Canvas, Run, clip

_GLYPHS = {
    JobState.QUEUED: ("◌", "muted"),
    JobState.STARTING: ("◐", "accent"),
    JobState.RUNNING: ("◐", "accent"),
    JobState.ENDING: ("■", "muted"),
}


def your_jobs(board: Board, *, short: bool = False, named: bool = True) -> list[Run]:
    """How many jobs with GPUs the user has on a cluster; [] where that is not known."""
    use = use_of(board.cluster, board.runs)
    if use is None:
        return []
    gpus: list[Run] = [(f", {fmt.plural(use.gpus, 'GPU')}", "muted")] if use.gpus else []
    if short:
        return [("◐ ", "accent"), (str(use.running), "text"), (" ◌ ", "muted"), (str(use.queued), "text")]
    counts: list[Run] = [("◐ ", "accent"), (f"{use.running} running", "text"), (", ◌ ", "muted"),
                         (f"{use.queued} queued", "text")]  # fmt: skip
    return [*([("your jobs ", "muted")] if named else []), *counts, *gpus]


def draw_jobs(canvas: Canvas, x: int, y: int, width: int, rows: int, jobs: Sequence[Job], offset: float | None) -> None:
    """Heads, and a row a job; they are watched only."""
    if rows < 2:
        return
    at = {
        "job": 0,
        "name": 9,
        "GPUs": width - (36 if width >= 60 else 18),
        "state": width - (29 if width >= 60 else 14),
    }
    for name, column in at.items():
        canvas.put(x + column, y, name, "muted")
    fitting = len(jobs) if len(jobs) < rows else rows - 2
    for line, job in enumerate(jobs[:fitting], y + 1):
        canvas.put(x, line, job.job_id, "text", 8)
        canvas.put(x + at["name"], line, job.name, "text", at["GPUs"] - at["name"] - 1)
        canvas.put(x + at["GPUs"], line, fmt.NONE if job.gpu_count is None else str(job.gpu_count), "text")
        glyph, spec = _GLYPHS.get(job.state, ("?", "warn"))
        end = canvas.put(canvas.put(x + at["state"], line, glyph, spec) + 1, line, clip(job.word, 14), spec)
        until = ""
        if job.state is JobState.QUEUED and job.starts_s is not None:
            until = f"starts {fmt.clock(job.starts_s, offset, seconds=False)}"
        elif job.ends_s is not None:
            until = f"ends {fmt.clock(job.ends_s, offset, seconds=False)}"
        if end + len(until) < x + width:
            canvas.right(x + width, line, until, "muted")
    if fitting < len(jobs):
        canvas.put(x, y + 1 + fitting, f"and {len(jobs) - fitting} more", "muted")
