"""A job of Slurm on the dashboard of its group: what it waits for, the time that it has left, how it ended."""

import time

from tui import format as fmt
from tui.core.model.job import ENDS_SOON_S, Job, JobState
from tui.job_words import asks_words, end_words, ending_words, gpus_words, starts_words
from tui.panel.open_group import OpenGroup
from tui.panel.widgets.jobs import your_jobs
from tui.panel.widgets.paint import Canvas, Run, clip, join, words, wrap


def alert(job: Job | None) -> list[Run]:
    """What Slurm says that deserves a look: its end, its silence, that the job never runs, little time left."""
    if job is None:
        return []
    if (ended := end_words(job)) is not None:
        return [("✗ " if job.by is None else "■ ", "err" if job.by is None else "muted"), (ended, "strong!")]
    if job.unknown is not None:
        return [("? ", "warn"), (job.unknown, "text")]
    if job.state is JobState.QUEUED and job.never is not None:
        return [("✗ ", "err"), (job.never, "strong!")]
    if (soon := ending_words(job)) is not None:
        return [("▲ ", "warn"), (soon, "strong!")]
    return []


def wrapped(runs: list[Run], width: int) -> list[list[Run]]:
    """An alert over at most two rows."""
    if len(runs) != 2:
        return [runs]
    (glyph, color), (text, spec) = runs
    rows = wrap(text, max(10, width - 2))
    second = clip(" ".join(rows[1:]), width - 2)
    return [[(glyph, color), (rows[0], spec)], *([[("  ", color), (second, spec)]] if second else [])]


def submitted(job: Job, offset: float | None, *, least: bool = False) -> list[Run]:
    """When a queued job was submitted."""
    if job.submitted_s is None:
        return []
    ago = fmt.age(max(0.0, time.time() - job.submitted_s))
    if least:
        return [("queued ", "muted"), (ago, "text")]
    return [("submitted ", "muted"), (fmt.clock(job.submitted_s, offset), "muted"), (", ", "muted"), (ago, "text"),
            (" ago", "muted")]  # fmt: skip


def queue_lines(job: Job, offset: float | None, width: int) -> list[list[Run]]:
    """What a queued job waits for, and what it asks for."""
    if job.never is not None:
        cancel: list[Run] = [("S", "accent!"), (" cancels it", "muted")]
        return [*wrapped(alert(job), width), cancel, [("asks for ", "muted"), (asks_words(job), "text")]]
    begins = starts_words(job, offset)
    left = job.starts_s - time.time() if job.starts_s is not None else 0.0
    about = f", in about {fmt.duration(left)}" if left > 0 else ""
    start: Run = (begins + about, "text") if begins else ("Slurm gives no estimate of its start yet", "muted")
    return [
        [(job.sentence[:1].upper() + job.sentence[1:], "strong!")],
        [start],
        [("asks for ", "muted"), (asks_words(job), "text")],
    ]


def draw_queued(canvas: Canvas, x: int, y: int, width: int, job: Job, offset: float | None) -> None:
    """The estimated start as the large figure, and the rest beside it."""
    figure = fmt.clock(job.starts_s, offset, seconds=False) if starts_words(job) is not None else None
    at = x
    if figure is not None:
        at = canvas.figure(x, y, figure) + 3
        canvas.put(x, y + 3, "Slurm's estimate", "muted")
    for row, runs in enumerate(queue_lines(job, offset, x + width - at)):
        canvas.runs(at, y + row, words(runs, x + width - at))


def has_time(job: Job | None) -> bool:
    """Whether it runs, and for how long it may is known."""
    known = job is not None and None not in (job.left_s, job.starts_s, job.ends_s)
    return known and job is not None and job.state is JobState.RUNNING


def draw_time(canvas: Canvas, x: int, y: int, width: int, job: Job, offset: float | None) -> None:
    """What is left of its allocation: a bar with a mark where the warning begins."""
    left, begin, end = job.left_s, job.starts_s, job.ends_s
    if left is None or begin is None or end is None or end <= begin:
        return
    at = canvas.put(x, y, "allocation", "muted") + 2
    minutes = fmt.duration(left) if left >= 3600 else f"{left / 60:.0f} min"
    tail: list[Run] = [(minutes, "warn!" if job.ends_soon else "strong!"), (" left, ends ", "muted"),
                       (fmt.clock(end, offset, seconds=False), "text")]  # fmt: skip
    bar = canvas.right_runs(x + width, y, tail) - 2 - at
    if bar >= 6:
        soon = round((1 - ENDS_SOON_S / (end - begin)) * bar) if end - begin > ENDS_SOON_S else None
        canvas.bar(at, y, bar, 1 - left / (end - begin), "warn" if job.ends_soon else "data", soon)


def host_line(opened: OpenGroup, width: int) -> list[Run]:
    """The cluster, what the job is given there, and what the user has on it."""
    job, board = opened.job, opened.serving().board
    parts: list[list[Run]] = []
    if board.cluster is not None and board.cluster.name:
        parts.append([("cluster " if width >= 100 else "", "muted"), (board.cluster.name, "text")])
    if job is not None and width >= 100 and job.state is not JobState.OVER:
        parts.append([(asks_words(job), "text")])
    if job is not None and job.nodes is not None:
        parts.append([("on ", "muted"), (job.nodes, "text")])
    return join([*parts, your_jobs(board)])


def where_words(opened: OpenGroup) -> str:
    """Where the GPUs of a job are, whose use is not read."""
    job = opened.job
    if job is None or job.state is JobState.OVER:
        return "its nodes are the cluster's again"
    if job.nodes is None:
        return "it has no nodes yet"
    each = "each of " if (job.node_count or 1) > 1 else ""
    return f"{gpus_words(job)} on {each}{job.nodes}; what they do is not read"
