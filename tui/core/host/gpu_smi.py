"""GPU figures through `nvidia-smi` in its loop mode (`tui/remote/gpu_smi.sh`), for hosts without NVML."""

import math
import re
import time
from dataclasses import replace

from tui.core.host.gpu_cells import health_word
from tui.core.host.gpu_csv import (
    SmiColumns,
    SmiRow,
    error_of,
    handle_bus_id,
    same_bus,
    sentence_slug,
    shared_memory,
    with_reserved,
)
from tui.core.host.gpus import FIGURES, PROCESS_PERIOD_S, Gpu, GpuProcess, GpuSample
from tui.core.link.programs import program
from tui.core.text import one_line

_EXTRA = ("count", "reset_status.reset_required")
# Names that mean the same stand together. Memory comes first: the script looks there for a GPU without its own.
_WANTED = " ".join(
    sorted(
        (*_EXTRA, *("|".join(figure.smi) for figure in FIGURES if figure.smi)), key=lambda name: name != "memory.total"
    )
)


class SmiSource:
    """Lines of the script; its head says what each begins with."""

    name = "nvidia-smi"
    kinds = frozenset("EFGLMPQX")
    stalled_in: str | None = None

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

    @staticmethod
    def script(python: str, period_s: float, refused: tuple[str, ...]) -> str:
        return (
            f"period_ms={round(period_s * 1000)} process_ms={round(PROCESS_PERIOD_S * 1000)} without=,{','.join(refused)},\n"
            f"wanted='{_WANTED}'\n{program('gpu_smi.sh')}"
        )

    def line(self, kind: str, rest: str) -> GpuSample | None:
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
            return GpuSample(time.time(), (), self.name, "nvidia_smi_missing", one_line(rest))
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
        if any(_same_gpu(row.gpu, other.gpu) for other in self._rows):  # a GPU is missing: the next frame began
            done = self._frame()
        if row.memory_unsupported and self._host_memory[0]:
            used, total = shared_memory(*self._host_memory, 1024)
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
                seen = {key: getattr(was, key) for key in ("index", "uuid", "name")} if was else {}
                gpus.append(Gpu(**seen, bus_id=bus_id, health=health))
        self._rows, self._failed, self._sentences = [], {}, []
        self._frames += 1
        return GpuSample(time.time(), tuple(gpus), self.name)

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
        return GpuSample(time.time(), (), self.name, slug, detail)


def _same_gpu(left: Gpu, right: Gpu) -> bool:
    if left.uuid and right.uuid:
        return left.uuid == right.uuid
    return left.index is not None and left.index == right.index
