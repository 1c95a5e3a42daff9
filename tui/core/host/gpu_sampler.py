"""One long-lived GPU sampler a host; no process is started per tick.

Two sources, tried in this order by one script: NVML through `pynvml` in the host entry's Python
(`tui/remote/gpu_probe.py`), else `nvidia-smi` in its loop mode (`tui/remote/gpu_smi.sh`). docs/gpus.md says what
each figure means.
"""

import asyncio
import contextlib
import json
import math
import re
import time
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field, replace

from tui.core.errors import HostError
from tui.core.host.gpu_csv import (
    SmiColumns,
    SmiRow,
    error_of,
    handle_bus_id,
    health_word,
    same_bus,
    sentence_slug,
    throttle_words,
    with_reserved,
)
from tui.core.host.gpus import MIB, Gpu, GpuProcess, GpuSample
from tui.core.link.programs import program
from tui.core.link.scripts import shell_path
from tui.core.link.transport import ByteStream, LinkState, Transport
from tui.core.text import one_line

PROCESS_PERIOD_S = 5.0
MAX_LINE_BYTES = 1 << 20
MAX_LINES = 4096  # kept for a slow reader; older ones are dropped


@dataclass(frozen=True)
class SamplerTiming:
    """When silence of the driver is told and acted upon, in seconds."""

    stall_after_s: float = 5.0  # at least three periods
    first_after_s: float = 15.0  # the first sample: without persistence mode the driver initialises every GPU
    replace_after_s: float = 15.0  # of silence, or of silence after `first_after_s`: a new sampler, once
    retry_s: float = 30.0  # after a named error
    restart_s: float = 1.0  # after a sampler that ended; doubled up to `retry_s` while it keeps ending


DEFAULT_TIMING = SamplerTiming()


async def sample_gpus(
    transport: Transport, python: str, period_s: float = 1.0, *, timing: SamplerTiming = DEFAULT_TIMING
) -> AsyncGenerator[GpuSample]:
    """Samples until the transport is closed; only the newest where the reader is slow.

    A lost link is a pause. A driver that stays silent gives samples with `stalled_s` and the last known GPUs; its
    sampler is replaced once, and when the replacement is silent too, it is waited for. An error of the host is a
    sample with `error`; it is asked again every `retry_s`.

    Args:
        python: the interpreter that has SGLang, as the host entry names it.
        period_s: seconds between samples.
    """
    state = _State(period_s)
    pause = timing.restart_s
    while transport.status().state is not LinkState.CLOSED:
        began = time.monotonic()
        error = False
        try:
            async with contextlib.aclosing(_generation(transport, python, state, timing)) as samples:
                async for sample in samples:
                    error = sample.error is not None
                    yield sample
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


async def one_sample(
    transport: Transport, python: str, *, timeout_s: float = 45.0, timing: SamplerTiming = DEFAULT_TIMING
) -> GpuSample:
    """One sample, with the processes on the GPUs where they can be had. Raises HostError, LinkLost.

    A driver that does not answer within `timeout_s` seconds is an `unreadable` sample.
    """
    state = _State(0.5)
    state.replaced = True  # within so short a time a second sampler would not do better
    best: GpuSample | None = None
    try:
        async with (
            asyncio.timeout(timeout_s),
            contextlib.aclosing(_generation(transport, python, state, timing)) as samples,
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


gpus_once = one_sample


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
    refused: tuple[str, ...] = ()  # fields that nvidia-smi lists and does not know


def sampler_script(python: str, period_s: float, refused: tuple[str, ...] = ()) -> str:
    """The script of a sampler; its lines are read by `NvmlFeed` and `SmiFeed`."""
    interpreter = shell_path(python)
    return (
        "export LC_ALL=C\nstatus=3\n"
        f"if command -v {interpreter} >/dev/null 2>&1; then\n"
        f"{interpreter} -u - {period_s:g} {PROCESS_PERIOD_S:g} <<'EAGLETUI_PROBE'\n{program('gpu_probe.py')}EAGLETUI_PROBE\nstatus=$?\nfi\n"
        '[ "$status" -eq 0 ] && exit 0\n'
        f"period_ms={round(period_s * 1000)} process_ms={round(PROCESS_PERIOD_S * 1000)} without=,{','.join(refused)},\n"
        f"{program('gpu_smi.sh')}"
    )


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
        told_at = 0.0
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
                if quiet >= max(timing.stall_after_s, 3 * period, grace) and now - told_at >= max(tick, 1.0):
                    told_at = now
                    yield _stalled(state, now)
                if quiet >= max(timing.replace_after_s, 5 * period) + grace and not state.replaced:
                    state.replaced = state.replace_now = True
                    return
        finally:
            await lines.close()
        field_name = feed.refused_field()
        if field_name and field_name not in state.refused:
            state.refused += (field_name,)
        elif not samples and not feed.named:
            detail = one_line(stream.stderr_tail().decode("utf-8", "replace")) or "the sampler ended without a word"
            yield GpuSample(time.time(), (), state.source, "unreadable", detail)


def _stalled(state: _State, now: float) -> GpuSample:
    last = state.last or GpuSample(time.time(), (), state.source)
    detail = f"no answer from {state.stalled_in}" if state.stalled_in else None
    return replace(last, stalled_s=round(now - state.good_at, 1), detail=detail)


class Feed:
    """Lines of a sampler, of either source, to samples."""

    def __init__(self, last: GpuSample | None = None) -> None:
        self._nvml = _NvmlFeed()
        self._smi = _SmiFeed(last)
        self.stalled_in: str | None = None
        self.named = False  # an error was told

    def line(self, line: str) -> GpuSample | None:
        """The sample that a line completes, if any."""
        if line.startswith("{"):
            try:
                document = json.loads(line)
            except (ValueError, RecursionError):
                return None
            if not isinstance(document, dict):
                return None
            if "stalled" in document:
                self.stalled_in = one_line(str(document.get("in")), 60)
                return None
            sample = self._nvml.document(document)
        else:
            sample = self._smi.line(line)
        if sample is not None and sample.error is not None:
            self.named = True
        return sample

    def refused_field(self) -> str | None:
        """The field over which nvidia-smi ended."""
        return self._smi.refused_field


# NVML's codes (nvml.h) as words.
_LOST, _RESET, _UNKNOWN = 15, 16, 999
_HEALTH = {_LOST: "lost", _RESET: "requires_reset", _UNKNOWN: "error"}
_FATAL = {6: "no_devices", _LOST: "gpu_lost", 18: "driver_mismatch"}


class _NvmlFeed:
    """Documents of `tui/remote/gpu_probe.py`."""

    def __init__(self) -> None:
        self._processes: dict[str, tuple[GpuProcess, ...]] = {}

    def document(self, document: dict[str, object]) -> GpuSample | None:
        taken_at = _number(document.get("t")) or time.time()
        if "fatal" in document:
            code = _number(document["fatal"])
            words = one_line(f"NVML: {document.get('text') or f'error {code}'}")
            return GpuSample(taken_at, (), "nvml", _FATAL.get(int(code or 0), "unreadable"), words)
        gpus = document.get("gpus")
        if not isinstance(gpus, list):
            return None
        found = tuple(self._gpu(gpu) for gpu in gpus if isinstance(gpu, dict))
        if not found:
            return GpuSample(taken_at, (), "nvml", "no_devices", "NVML: no devices were found")
        return GpuSample(taken_at, found, "nvml")

    def _gpu(self, gpu: dict[str, object]) -> Gpu:
        def number(key: str, scale: float = 1.0) -> float | None:
            value = _number(gpu.get(key))
            return None if value is None else value * scale

        def whole(key: str) -> int | None:
            value = number(key)
            return None if value is None else int(value)

        codes = gpu.get("na")
        told = [*codes.values()] if isinstance(codes, dict) else []
        refused = {code for code in (*told, gpu.get("failed")) if isinstance(code, int)}
        health = next((word for code, word in _HEALTH.items() if code in refused), None)
        if "failed" in gpu and health is None:
            health = "error"
        used, total, reserved = number("used", 1 / MIB), number("total", 1 / MIB), number("reserved", 1 / MIB)
        if used is not None and reserved is not None:
            used += reserved
        host = gpu.get("host_memory")
        unified = isinstance(host, list) and len(host) == 2 and health is None
        if isinstance(host, list) and unified:
            used, total = _host_memory(_number(host[0]), _number(host[1]), MIB)
        traffic = gpu.get("rx_tx")
        rx, tx = traffic if isinstance(traffic, list) and len(traffic) == 2 else (None, None)
        reasons = whole("reasons")
        uuid = _text(gpu.get("uuid"))
        mig = gpu.get("mig")
        return Gpu(
            index=whole("i"),
            uuid=uuid,
            name=_text(gpu.get("name")),
            bus_id=_text(gpu.get("bus")),
            memory_used_mib=used,
            memory_total_mib=total,
            memory_reserved_mib=reserved,
            utilization_pct=number("util"),
            power_w=number("power_mw", 1e-3),
            power_limit_w=number("limit_mw", 1e-3),
            temperature_c=number("temp"),
            sm_clock_mhz=number("sm_mhz"),
            memory_clock_mhz=number("mem_mhz"),
            throttle_reasons=None if reasons is None or reasons < 0 else throttle_words(reasons),
            pcie_link_gen=whole("gen"),
            pcie_link_width=whole("width"),
            pcie_rx_mib_s=_kib_s(rx),
            pcie_tx_mib_s=_kib_s(tx),
            mig_mode=mig if isinstance(mig, bool) else None,
            parent_uuid=_text(gpu.get("parent")),
            unified_memory=unified,
            health=health,
            processes=self._held(uuid, gpu, codes),
        )

    def _held(self, uuid: str | None, gpu: dict[str, object], codes: object) -> tuple[GpuProcess, ...] | None:
        """Processes come with every fifth second or so and hold until the next list; a refusal ends them."""
        key = uuid or str(gpu.get("i"))
        listed = gpu.get("processes")
        if isinstance(listed, list):
            self._processes[key] = tuple(
                GpuProcess(int(pid), _text(user), _text(name), None if used is None else used / MIB)
                for pid, used, user, name in (
                    (_number(each[0]), _number(each[1]), each[2], each[3])
                    for each in listed
                    if isinstance(each, list) and len(each) == 4
                )
                if pid is not None
            )
        elif "failed" in gpu or (isinstance(codes, dict) and "processes" in codes):
            self._processes.pop(key, None)
        return self._processes.get(key)


class _SmiFeed:
    """Lines of `tui/remote/gpu_smi.sh`."""

    def __init__(self, last: GpuSample | None) -> None:
        self._columns: SmiColumns | None = None
        self._rows: list[SmiRow] = []
        self._host_memory: tuple[float | None, float | None] = (None, None)
        self._known = {gpu.bus_id: gpu for gpu in (last.gpus if last else ()) if gpu.bus_id}
        self._failed: dict[str, str] = {}  # bus id to health, of this frame
        self._sentences: list[str] = []
        self._listed = False  # processes are known
        self._processes: dict[tuple[str, int], tuple[float, GpuProcess]] = {}
        self._instances: list[tuple[int, str, str]] = []  # index of the parent, name, uuid
        self._index = 0
        self._frames = 0
        self.refused_field: str | None = None

    def line(self, line: str) -> GpuSample | None:
        kind, _, rest = line.partition(" ")
        if kind == "G":
            return self._row(rest)
        if kind == "F":
            self._columns = SmiColumns(rest.split(","))
        elif kind == "M":
            values = [float(word) if re.fullmatch("[0-9]{1,15}", word) else None for word in (*rest.split(), "", "")]
            self._host_memory = (values[0], values[1])
        elif kind == "P":
            self._process(rest)
        elif kind == "Q":
            self._listed = rest.strip() == "0"
        elif kind == "L":
            self._instance(rest)
        elif kind == "E":
            return GpuSample(time.time(), (), "nvidia-smi", "nvidia_smi_missing", one_line(rest))
        elif kind == "X":
            return self._end(int(rest) if re.fullmatch("[0-9]{1,3}", rest) else None)
        return None

    def _row(self, line: str) -> GpuSample | None:
        row = self._columns.row(line) if self._columns else None
        if row is None:
            bus_id = handle_bus_id(line)
            if bus_id:
                self._failed[bus_id] = "lost" if health_word(line) == "lost" else "error"
            if len(self._sentences) < 100:
                self._sentences.append(line)
            return None
        done = None
        if any(_same(row.gpu, other.gpu) for other in self._rows):  # a GPU is missing: the next frame began
            done = self._frame()
        if row.memory_unsupported and self._host_memory[0]:
            used, total = _host_memory(*self._host_memory, 1024)
            row = replace(row, gpu=replace(row.gpu, memory_used_mib=used, memory_total_mib=total, unified_memory=True))
        self._rows.append(row)
        if len(self._rows) + len(self._failed) >= (row.count or math.inf):
            done = self._frame()
        return done

    def _frame(self) -> GpuSample:
        now = time.monotonic()
        # The list has no mark at its end: what was not listed again is gone.
        fresh = 2.2 * PROCESS_PERIOD_S
        self._processes = {key: held for key, held in self._processes.items() if now - held[0] < fresh}
        gpus: list[Gpu] = []
        for row in self._rows:
            gpu = with_reserved(row.gpu)
            if gpu.bus_id:
                self._known[gpu.bus_id] = gpu
            gpus.append(replace(gpu, processes=self._held(gpu.uuid)))
            for index, name, uuid in self._instances:
                if gpu.mig_mode and index == gpu.index:
                    gpus.append(Gpu(index, uuid, name, mig_mode=True, parent_uuid=gpu.uuid, processes=self._held(uuid)))
        for bus_id, health in self._failed.items():
            if not any(same_bus(bus_id, gpu.bus_id) for gpu in gpus):
                was = next((gpu for known, gpu in self._known.items() if same_bus(known, bus_id)), None)
                gpus.append(
                    Gpu(was.index if was else None, was.uuid if was else None, was.name if was else None, bus_id)
                )
                gpus[-1] = replace(gpus[-1], health=health)
        self._rows, self._failed, self._sentences = [], {}, []
        self._frames += 1
        return GpuSample(time.time(), tuple(gpus), "nvidia-smi")

    def _held(self, uuid: str | None) -> tuple[GpuProcess, ...] | None:
        if not self._listed:
            return None
        found = (process for (gpu, _), (_, process) in self._processes.items() if gpu == uuid)
        return tuple(sorted(found, key=lambda process: process.pid))

    def _process(self, rest: str) -> None:
        user, _, row = rest.partition("|")
        cells = [cell.strip() for cell in row.split(",", 3)]
        if len(cells) != 4 or not re.fullmatch("[0-9]{1,10}", cells[1]):
            return
        uuid, pid = one_line(cells[0], 80), int(cells[1])
        used = float(cells[2]) if re.fullmatch(r"[0-9]{1,15}(\.[0-9]+)?", cells[2]) else None
        name = None if cells[3].startswith("[") else one_line(cells[3].rsplit("/", 1)[-1], 80)
        process = GpuProcess(pid, one_line(user, 40) or None, name, used)
        self._processes[uuid, pid] = (time.monotonic(), process)

    def _instance(self, line: str) -> None:
        parent = re.match(r"GPU (\d+): ", line)
        if parent:
            self._index = int(parent.group(1))
        found = re.match(r"\s*(MIG .*?)\s+Device\s+\d+: \(UUID: (MIG-[^)]+)\)", line)
        if found:
            self._instances.append((self._index, one_line(found.group(1), 80), one_line(found.group(2), 80)))

    def _end(self, exit_code: int | None) -> GpuSample | None:
        if self._frames:
            return None
        if self._rows and (self._failed or not self._rows[0].count):  # all that it could tell before it ended
            return self._frame()
        slug, detail = error_of(self._sentences, exit_code)
        if slug == "bad_query":
            found = re.search(r'"([a-z_.]+)"', " ".join(line for line in self._sentences if sentence_slug(line)))
            if found and self._columns and found.group(1) in self._columns.names:
                self.refused_field = found.group(1)
                return None
        return GpuSample(time.time(), (), "nvidia-smi", slug, detail)


def _same(left: Gpu, right: Gpu) -> bool:
    if left.uuid and right.uuid:
        return left.uuid == right.uuid
    return left.index is not None and left.index == right.index


def _number(value: object) -> float | None:
    """A finite number of a host, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def _text(value: object) -> str | None:
    return (one_line(value, 100) or None) if isinstance(value, str) else None


def _kib_s(value: object) -> float | None:
    number = _number(value)
    return None if number is None else number / 1024


def _host_memory(total: float | None, available: float | None, per_mib: int) -> tuple[float | None, float | None]:
    """Used and total MiB of a host that shares its memory with the GPU; used is what is not available."""
    if total is None:
        return None, None
    return None if available is None else (total - available) / per_mib, total / per_mib
