"""One long-lived GPU sampler a host; no process is started per tick.

Where the figures come from is the business of `gpu_sources`; here is when a sampler is started, replaced, waited for.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field, replace

from tui.core.errors import HostError
from tui.core.host.elsewhere import CONTAINER_PYTHON, Elsewhere, Inside, nowhere
from tui.core.host.gpu_sources import Feed, sampler_script
from tui.core.host.gpus import GpuSample
from tui.core.link.transport import ByteStream, LinkState, Transport
from tui.core.text import one_line

MAX_LINE_BYTES = 1 << 20
MAX_LINES = 4096  # kept for a slow reader; older ones are dropped


@dataclass(frozen=True)
class SamplerTiming:
    """When silence of the driver is reported and acted upon, in seconds."""

    stall_after_s: float = 5.0  # at least three periods
    first_after_s: float = 15.0  # the first sample: without persistence mode the driver initialises every GPU
    replace_after_s: float = 15.0  # of silence, or of silence after `first_after_s`: a new sampler, once
    retry_s: float = 30.0  # after a named error
    restart_s: float = 1.0  # after a sampler that ended; doubled up to `retry_s` while it keeps ending


DEFAULT_TIMING = SamplerTiming()


_MISSING = "nvidia_smi_missing"  # neither NVML nor nvidia-smi: what is in a container may have them


async def sample_gpus(
    transport: Transport,
    python: str,
    period_s: float = 1.0,
    *,
    elsewhere: Elsewhere = nowhere,
    timing: SamplerTiming = DEFAULT_TIMING,
) -> AsyncGenerator[GpuSample]:
    """Samples until the transport is closed; only the newest where the reader is slow.

    A lost link is a pause. A driver that stays silent gives samples with `stalled_s` and the last known GPUs; its
    sampler is replaced once, and when the replacement is silent too, it is waited for. An error of the host is a
    sample with `error`; it is asked again every `retry_s`.

    Args:
        python: the interpreter that has SGLang, as the host entry names it.
        period_s: seconds between samples.
        elsewhere: a place inside the host to sample in where the host itself has no way to the figures.
    """
    state = _State(period_s)
    pause = timing.restart_s
    inside: Inside | None = None
    while transport.status().state is not LinkState.CLOSED:
        began = time.monotonic()
        error = False
        place, inside = inside, None
        try:
            async with contextlib.aclosing(_samples(transport, python, state, timing, place)) as samples:
                async for sample in samples:
                    if sample.error == _MISSING and place is None and (inside := await elsewhere()) is not None:
                        break
                    error = sample.error is not None
                    yield sample
            if inside is not None:
                continue
        except HostError:
            if not await _link_is_up(transport):
                return
            pause = timing.restart_s
        if error:
            pause = timing.retry_s
        elif state.replace_now:
            state.replace_now = False
            continue
        elif time.monotonic() - began > timing.retry_s:
            pause = timing.restart_s
        await asyncio.sleep(pause)
        pause = timing.restart_s if error else min(2 * pause, timing.retry_s)


async def _samples(
    transport: Transport, python: str, state: "_State", timing: SamplerTiming, place: Inside | None
) -> AsyncGenerator[GpuSample]:
    """One sampler process, on the host or inside; of the latter the source names the place."""
    where, program = (transport, python) if place is None else (place.transport, CONTAINER_PYTHON)
    async with contextlib.aclosing(_generation(where, program, state, timing)) as samples:
        async for sample in samples:
            yield sample if place is None else replace(sample, source=f"{sample.source} in {place.name}")


async def one_sample(
    transport: Transport,
    python: str,
    *,
    elsewhere: Elsewhere = nowhere,
    timeout_s: float = 45.0,
    timing: SamplerTiming = DEFAULT_TIMING,
) -> GpuSample:
    """One sample, with the processes on the GPUs where they can be had. Raises HostError, LinkLost.

    A driver that does not answer within `timeout_s` seconds is an `unreadable` sample; `elsewhere` as of `sample_gpus`.
    """
    found = await _one_sample(transport, python, None, timeout_s, timing)
    if found.error == _MISSING and (inside := await elsewhere()) is not None:
        with contextlib.suppress(HostError):  # that may end, or refuse us, at any time
            found = await _one_sample(transport, python, inside, timeout_s, timing)
    return found


async def _one_sample(
    transport: Transport, python: str, place: Inside | None, timeout_s: float, timing: SamplerTiming
) -> GpuSample:
    state = _State(0.5)
    state.replaced = True  # within so short a time a second sampler would not do better
    best: GpuSample | None = None
    try:
        async with (
            asyncio.timeout(timeout_s),
            contextlib.aclosing(_samples(transport, python, state, timing, place)) as samples,
        ):
            async for sample in samples:
                if sample.stalled_s is not None:
                    continue
                # Processes come in a list of their own; a second sample without them means that there is none.
                if sample.error or best or any(gpu.processes is not None for gpu in sample.gpus):
                    return sample
                best = sample
    except TimeoutError:
        pass
    if best:
        return best
    where = f", in {state.stalled_in}" if state.stalled_in else ""
    detail = f"the driver did not answer within {timeout_s:g} s{where}"
    return GpuSample(time.time(), (), state.source, "unreadable", detail)


async def _link_is_up(transport: Transport) -> bool:
    """Waits until the link is up; False when the transport is closed."""
    async for status in transport.watch():
        if status.state is LinkState.UP:
            return True
        if status.state is LinkState.CLOSED:
            return False
    return False


@dataclass
class _State:
    """What outlives a sampler process."""

    period_s: float
    last: GpuSample | None = None  # the last good one
    good_at: float = field(default_factory=time.monotonic)
    replaced: bool = False  # the present sampler stands in for one that hung
    replace_now: bool = False
    stalled_in: str | None = None  # function of the driver, where the probe says it
    source: str = "nvml"
    refused: tuple[str, ...] = ()  # fields that a source lists and does not know


class _Lines:
    """Reads a stream in the background, so that a wait for lines may end early without losing bytes."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._lines: deque[str] = deque(maxlen=MAX_LINES)
        self._news = asyncio.Event()
        self._task = asyncio.create_task(self._pump())

    async def _pump(self) -> None:
        rest = b""
        try:
            while chunk := await self._stream.read():
                *lines, rest = (rest + chunk).split(b"\n")
                if len(rest) > MAX_LINE_BYTES:
                    rest = b""
                self._lines.extend(line.decode("utf-8", "replace") for line in lines if line.strip())
                self._news.set()
        finally:
            self._news.set()

    async def take(self, timeout_s: float) -> list[str] | None:
        """All lines that came; [] where none came in time, None at the end. Raises LinkLost."""
        if not self._task.done():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._news.wait()
        if not self._task.done():
            self._news.clear()
        lines = list(self._lines)
        self._lines.clear()
        if not lines and self._task.done():
            self._task.result()
            return None
        return lines

    async def close(self) -> None:
        """Stops reading."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def _generation(
    transport: Transport, python: str, state: _State, timing: SamplerTiming
) -> AsyncGenerator[GpuSample]:
    """One sampler process from start to end. Raises HostError, LinkLost."""
    period = state.period_s
    tick = max(0.05, min(1.0, period, timing.stall_after_s))
    async with transport.stream(sampler_script(python, period, state.refused)) as stream:
        feed = Feed(state.last)
        lines = _Lines(stream)
        quiet_since = time.monotonic()  # while the link was up and the driver silent
        reported_at = 0.0
        samples = 0
        try:
            while (got := await lines.take(tick)) is not None:
                now = time.monotonic()
                newest = None
                for line in got:
                    newest = feed.line(line) or newest
                if newest is not None:
                    state.source = newest.source
                    if newest.error is None:
                        samples += 1
                        state.last, state.good_at, state.replaced, state.stalled_in = newest, now, False, None
                    quiet_since = now
                    yield newest
                    quiet_since = max(quiet_since, time.monotonic() - period)  # a slow reader is no stall
                    continue
                state.stalled_in = feed.stalled_in or state.stalled_in
                if transport.status().state is not LinkState.UP:
                    quiet_since = now
                    continue
                quiet = now - quiet_since
                grace = 0.0 if samples else timing.first_after_s
                if quiet >= max(timing.stall_after_s, 3 * period, grace) and now - reported_at >= max(tick, 1.0):
                    reported_at = now
                    yield _stalled(state, now)
                if quiet >= max(timing.replace_after_s, 5 * period) + grace and not state.replaced:
                    state.replaced = state.replace_now = True
                    return
        finally:
            await lines.close()
        if feed.refused_field and feed.refused_field not in state.refused:
            state.refused += (feed.refused_field,)
        elif not samples and not feed.named:
            detail = one_line(stream.stderr_tail().decode("utf-8", "replace")) or "the sampler ended without a message"
            yield GpuSample(time.time(), (), state.source, "unreadable", detail)


def _stalled(state: _State, now: float) -> GpuSample:
    last = state.last or GpuSample(time.time(), (), state.source)
    detail = f"no answer from {state.stalled_in}" if state.stalled_in else None
    return replace(last, stalled_s=round(now - state.good_at, 1), detail=detail)
