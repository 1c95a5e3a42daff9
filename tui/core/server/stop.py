"""Stopping a run: the whole tree, and the wait until its GPU memory is back."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tui.core.errors import EagletuiError, Slug, UsageError
from tui.core.host.gpus import MEMORY_IDLE_MIB, Gpu, GpuSample, error_words
from tui.core.link.retry import patiently
from tui.core.link.transport import Transport
from tui.core.model.group import group_id_of
from tui.core.model.run import Run, RunState, short_id
from tui.core.runs import control

if TYPE_CHECKING:
    from tui.core.slurm.board import JobBoard

_POLL_S = 0.5
_MEMORY_BACK_LIMIT_S = 60.0
_SAMPLE_LIMIT_S = 5.0  # how long a sample of before the stop is waited for behind its end
_TEXTS = {
    "requested": "stop requested",
    "term": "sent SIGTERM to the main process; it is draining",
    "term-all": "SIGTERM to what is left",
    "kill": "SIGKILL to what is left",
    "done": "every process has ended",
}

_JOB_TEXTS = {
    "term": "sent SIGTERM to the main process of rank 0; it is draining",
    "kill": "cancelling the job",
    "stuck": "the job does not end; Slurm has been asked to cancel it again and again",
}
_BY_ITSELF = ("requested", "term", "kill")  # its end is known before its stop has said so

Sampler = Callable[[], Awaitable[GpuSample]]


@dataclass(frozen=True)
class StopProgress:
    """How far a stop has come; the last one has `done` set."""

    step: str  # requested, term, term-all, kill, done, stuck, memory
    text: str  # a sentence
    done: bool = False
    memory_held_mib: float | None = None  # still held on the run's GPUs by anyone


async def stop(
    transport: Transport, run: Run, sample: Sampler, grace_s: float, who: str | None = None
) -> AsyncGenerator[StopProgress, None]:
    """Stops a run with everything below it. Idempotent. Raises UsageError for a server that is not ours."""
    if run.state is RunState.FOREIGN:
        raise UsageError(
            f"{run.run_id} was not started by eagletui; it is watched read-only",
            f"its owner {run.owner or 'unknown'} can stop PID {run.pid}",
            slug=Slug.FOREIGN,
        )
    # Processes must be looked at before they end, but beside the stop: a driver that hangs delays nothing.
    before = None if run.gpus else asyncio.create_task(_sampled(sample))
    try:
        async for progress in _ended(transport, run, grace_s, who):
            yield progress
        if progress.step == "stuck":
            return
        if before is None:
            wanted = _Wanted(indices=frozenset(run.gpus))
        else:
            await asyncio.wait({before}, timeout=_SAMPLE_LIMIT_S)
            wanted = _Wanted(uuids=_held_by(run, before.result() if before.done() else None))
        async for progress in _memory_back(wanted, sample):
            yield progress
    finally:
        if before is not None:
            before.cancel()


async def stop_job(
    board: "JobBoard", transport: Transport, run: Run, grace_s: float, who: str | None
) -> AsyncGenerator[StopProgress, None]:
    """Stops the job that a run is a rank of, as the login host carries it out; GPUs are the scheduler's, and come back with it."""
    whole = group_id_of(run.run_id) or run.run_id
    await patiently(transport, lambda: board.stop(whole, grace_s, who))
    yield StopProgress("requested", f"asked {short_id(whole)} to stop")
    step: str | None = "requested"
    while True:
        now = board.run(run.run_id)
        if now is None or (now.over and now.stop in (None, "done", *_BY_ITSELF)):
            yield StopProgress("done", "stopped, its nodes are free", done=True)
            return
        if now.stop != step and now.stop in _JOB_TEXTS:
            step = now.stop
            yield StopProgress(step, _JOB_TEXTS[step], done=step == "stuck")
            if step == "stuck":
                return
        await asyncio.sleep(_POLL_S)
        await patiently(transport, board.look)


@dataclass(frozen=True)
class _Wanted:
    """GPUs whose memory is to come back: those that the run declared, else those that held some of it before."""

    indices: frozenset[int] = frozenset()
    uuids: frozenset[str] = frozenset()

    def of(self, sample: GpuSample) -> list[Gpu]:
        return [gpu for gpu in sample.gpus if gpu.index in self.indices or gpu.uuid in self.uuids]


async def _ended(transport: Transport, run: Run, grace_s: float, who: str | None) -> AsyncGenerator[StopProgress, None]:
    """The stop as the host carries it out; the last step is `done` or `stuck`."""
    await control.stop(transport, run.run_id, grace_s, who=who)
    yield StopProgress("requested", f"asked {run.short_id} to stop")
    step = "requested"
    while True:
        # The stop continues there, whatever happens to the link.
        now = await patiently(transport, lambda: control.stop_state(transport, run.run_id))
        if now.step and now.step != step:
            step = now.step
            yield StopProgress(step, _TEXTS.get(step, step))
        if now.over:
            break
        await asyncio.sleep(_POLL_S)
    if step == "stuck":
        pids = ", ".join(map(str, now.pids))
        yield StopProgress("stuck", f"PID {pids} does not end; the driver may hold it", done=True)


async def _sampled(take: Sampler) -> GpuSample | None:
    """A sample; None where the host cannot be asked for one."""
    try:
        return await take()
    except EagletuiError:
        return None


def _held_by(run: Run, sample: GpuSample | None) -> frozenset[str]:
    """UUIDs of the GPUs on which a run that declared none holds memory; none where that could not be seen in time."""
    ours = {run.pid, *run.orphans}
    gpus = sample.gpus if sample is not None else ()
    return frozenset(gpu.uuid for gpu in gpus if gpu.uuid and any(p.pid in ours for p in gpu.processes or ()))


async def _memory_back(wanted: _Wanted, take: Sampler) -> AsyncGenerator[StopProgress, None]:
    if not wanted.indices and not wanted.uuids:
        yield StopProgress("done", "stopped", done=True)
        return
    clock = asyncio.get_running_loop().time
    deadline = clock() + _MEMORY_BACK_LIMIT_S
    while True:
        sample = await _sampled(take)
        if sample is None or sample.error:
            why = error_words(sample.error) if sample is not None and sample.error else "the link is lost"
            text = f"stopped; whether the GPU memory is back is not known ({why})"
            yield StopProgress("done", text, done=True)
            return
        held = [gpu for gpu in wanted.of(sample) if (gpu.memory_used_mib or 0) > MEMORY_IDLE_MIB]
        total = sum(gpu.memory_used_mib or 0.0 for gpu in held)
        size = f"{total / 1024:.1f} GiB"
        if not held:
            yield StopProgress("done", "stopped, the GPU memory is back", done=True, memory_held_mib=0.0)
            return
        if clock() > deadline:
            holders = {f"PID {p.pid} ({p.user or '?'})" for gpu in held for p in gpu.processes or ()}
            whom = ", ".join(sorted(holders)) or "no process that can be seen"
            text = f"stopped, but {size} are still held by {whom}"
            yield StopProgress("done", text, done=True, memory_held_mib=total)
            return
        yield StopProgress("memory", f"waiting for {size} to come back", memory_held_mib=total)
        await asyncio.sleep(_POLL_S)
