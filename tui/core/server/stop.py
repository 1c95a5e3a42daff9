"""Stopping a run: the whole tree, and the wait until its GPU memory is back."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass

from tui.core.errors import LinkLost, Slug, TimedOut, UsageError
from tui.core.host.gpus import MEMORY_IDLE_MIB, GpuSample, error_words
from tui.core.link.transport import LinkState, Transport
from tui.core.model.run import Run, RunState
from tui.core.runs import control

_POLL_S = 0.5
_MEMORY_BACK_LIMIT_S = 60.0
_TEXTS = {
    "requested": "stop requested",
    "term": "sent SIGTERM to the main process; it is draining",
    "term-all": "SIGTERM to what is left",
    "kill": "SIGKILL to what is left",
    "done": "every process has ended",
}

Sampler = Callable[[], Awaitable[GpuSample]]


@dataclass(frozen=True)
class StopProgress:
    """How far a stop has come; the last one has `done` set."""

    step: str  # requested, term, term-all, kill, done, stuck, memory
    text: str  # a sentence
    done: bool = False
    memory_held_mib: float | None = None  # still held on the run's GPUs by anyone


async def stop(transport: Transport, run: Run, sample: Sampler, grace_s: float) -> AsyncGenerator[StopProgress, None]:
    """Stops a run with everything below it. Idempotent. Raises UsageError for a server that is not ours."""
    if run.state is RunState.FOREIGN:
        raise UsageError(
            f"{run.run_id} was not started by eagletui; it is watched read-only",
            f"its owner {run.owner or 'unknown'} can stop PID {run.pid}",
            slug=Slug.FOREIGN,
        )
    held = _held_by(run, await sample())
    await control.stop(transport, run.run_id, grace_s)
    yield StopProgress("requested", f"asked {run.short_id} to stop")
    step = "requested"
    while True:
        try:
            now = await control.stop_state(transport, run.run_id)
        except (LinkLost, TimedOut):
            if transport.status().state is LinkState.CLOSED:
                raise
            await asyncio.sleep(_POLL_S)
            continue  # the stop continues there; the next call waits for the link
        if now.step and now.step != step:
            step = now.step
            yield StopProgress(step, _TEXTS.get(step, step))
        if now.over:
            break
        await asyncio.sleep(_POLL_S)
    if step == "stuck":
        pids = ", ".join(map(str, now.pids))
        yield StopProgress("stuck", f"PID {pids} does not end; the driver may hold it", done=True)
        return
    async for progress in _memory_back(held, sample):
        yield progress


def _held_by(run: Run, sample: GpuSample) -> set[str]:
    """UUIDs of the GPUs that hold memory now and belong to the run: those it named, else those its processes are on."""
    ours = {run.pid, *run.orphans}
    return {
        gpu.uuid
        for gpu in sample.gpus
        if gpu.uuid
        and (gpu.index in run.gpus if run.gpus else any(p.pid in ours for p in gpu.processes or ()))
        and (gpu.memory_used_mib or 0.0) > MEMORY_IDLE_MIB
    }


async def _memory_back(uuids: set[str], take: Sampler) -> AsyncGenerator[StopProgress, None]:
    if not uuids:
        yield StopProgress("done", "stopped", done=True)
        return
    clock = asyncio.get_running_loop().time
    deadline = clock() + _MEMORY_BACK_LIMIT_S
    while True:
        sample = await take()
        if sample.error:
            why = error_words(sample.error)
            yield StopProgress("done", f"stopped; whether the GPU memory is back is not known ({why})", done=True)
            return
        held = [gpu for gpu in sample.gpus if gpu.uuid in uuids and (gpu.memory_used_mib or 0) > MEMORY_IDLE_MIB]
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
