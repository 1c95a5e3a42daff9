"""A job of Slurm in words, wherever a person reads them: `wait`, `launch`, `ps` and the panel."""

from tui import format as fmt
from tui.core.model.job import Job, JobEnd


def starts_words(job: Job, utc_offset_s: float | None = None) -> str | None:
    """From when on a queued job could run, as the scheduler estimates it; None where it says nothing."""
    if job.starts_s is None or job.never is not None:
        return None
    return f"could start at {fmt.clock(job.starts_s, utc_offset_s, seconds=False)}"


def queue_words(job: Job | None) -> str:
    """What a job waits for, and from when on it could run."""
    if job is None:
        return "queued"
    begins = starts_words(job)
    return f"job {job.job_id} is queued: {job.sentence}" + (f", {begins}" if begins else "")


def ending_words(job: Job | None) -> str | None:
    """That little of a job's time is left; None where there is enough, or that is not known."""
    if job is None or not job.ends_soon or job.left_s is None:
        return None
    return f"job {job.job_id} has {job.left_s / 60:.0f} min of its time left"


def end_words(job: Job | None) -> str | None:
    """How Slurm ended a job; None where it did not, or where the logs say it."""
    if job is None or job.end in (None, JobEnd.COMPLETED, JobEnd.FAILED):
        return None
    where = f": {job.failed_nodes}" if job.failed_nodes is not None else ""
    return f"job {job.job_id}: {job.sentence}{where}"


def gpus_words(job: Job) -> str:
    """`8 × h200`: the GPUs that a job has on each of its nodes."""
    name, _, count = (job.gpus or "").removeprefix("gpu").strip(":").rpartition(":")
    if not count.isdigit():
        return job.gpus or "no GPU"
    return f"{count} × {name}" if name else fmt.plural(int(count), "GPU")


def asks_words(job: Job) -> str:
    """`2 nodes with 8 × h200 each, partition gpu`: what a job has, or asks for."""
    nodes = fmt.plural(job.node_count, "node") if job.node_count is not None else None
    gpus = f"{gpus_words(job)} each" if (job.node_count or 1) > 1 else gpus_words(job)
    size = f"{nodes} with {gpus}" if nodes else gpus
    return ", ".join(part for part in (size, f"partition {job.partition}" if job.partition else None) if part)
