"""GPU figures through NVML: `pynvml` in the host entry's Python runs `tui/remote/gpu_probe.py`."""

import json
import math
import shlex
import time
from typing import Any

from tui.core.host.gpu_cells import throttle_words
from tui.core.host.gpu_csv import shared_memory
from tui.core.host.gpus import FIGURES, MIB, PROCESS_PERIOD_S, Gpu, GpuProcess, GpuSample
from tui.core.link.programs import program
from tui.core.link.scripts import shell_path
from tui.core.text import one_line

# NVML's codes (nvml.h) as words.
_LOST, _RESET, _UNKNOWN = 15, 16, 999
_HEALTH = {_LOST: "lost", _RESET: "requires_reset", _UNKNOWN: "error"}
_FATAL = {6: "no_devices", _LOST: "gpu_lost", 18: "driver_mismatch"}
_ASKED = [[figure.name, figure.nvml, figure.args, figure.part, figure.vital] for figure in FIGURES if figure.nvml]


class NvmlSource:
    """Lines `N document` of the probe."""

    name = "nvml"
    kinds = frozenset("N")
    refused_field: str | None = None

    def __init__(self, last: GpuSample | None) -> None:
        self.stalled_in: str | None = None
        self._processes: dict[str, tuple[GpuProcess, ...]] = {}

    @staticmethod
    def script(python: str, period_s: float, refused: tuple[str, ...]) -> str:
        interpreter = shell_path(python)
        return (
            f"if command -v {interpreter} >/dev/null 2>&1; then\n"
            f"{interpreter} -u - {period_s:g} {PROCESS_PERIOD_S:g} {shlex.quote(json.dumps(_ASKED))} "
            f"<<'EAGLETUI_PROBE' && exit 0\n{program('gpu_probe.py')}EAGLETUI_PROBE\nfi\n"
        )

    def line(self, kind: str, rest: str) -> GpuSample | None:
        try:
            document = json.loads(rest)
        except (ValueError, RecursionError):
            return None
        if not isinstance(document, dict):
            return None
        if "stalled" in document:
            self.stalled_in = one_line(str(document.get("in")), 60)
            return None
        taken_at = _number(document.get("t")) or time.time()
        if "fatal" in document:
            code = _number(document["fatal"])
            words = one_line(f"NVML: {document.get('text') or f'error {code}'}")
            return GpuSample(taken_at, (), self.name, _FATAL.get(int(code or 0), "unreadable"), words)
        gpus = document.get("gpus")
        if not isinstance(gpus, list):
            return None
        found = tuple(self._gpu(gpu) for gpu in gpus if isinstance(gpu, dict))
        if not found:
            return GpuSample(taken_at, (), self.name, "no_devices", "NVML: no devices were found")
        return GpuSample(taken_at, found, self.name)

    def _gpu(self, gpu: dict[str, object]) -> Gpu:
        codes = gpu.get("na")
        listed = [*codes.values()] if isinstance(codes, dict) else []
        refused = {code for code in (*listed, gpu.get("failed")) if isinstance(code, int)}
        health = next((word for code, word in _HEALTH.items() if code in refused), None)
        if "failed" in gpu and health is None:
            health = "error"
        used, total, reserved = (_scaled(gpu.get(key), 1 / MIB) for key in ("used", "total", "reserved"))
        if used is not None and reserved is not None:
            used += reserved
        host = gpu.get("host_memory")
        unified = isinstance(host, list) and len(host) == 2 and health is None
        if isinstance(host, list) and unified:
            used, total = shared_memory(_number(host[0]), _number(host[1]), MIB)
        traffic = gpu.get("rx_tx")
        rx, tx = traffic if isinstance(traffic, list) and len(traffic) == 2 else (None, None)
        index, reasons = _number(gpu.get("i")), _number(gpu.get("throttle_reasons"))
        uuid = _text(gpu.get("uuid"))
        mig = gpu.get("mig_mode")
        figures: dict[str, Any] = {
            figure.name: int(value) if figure.whole else value
            for figure in FIGURES
            if figure.nvml and not figure.word
            if (value := _scaled(gpu.get(figure.name), figure.scale)) is not None
        }
        return Gpu(
            index=None if index is None else int(index),
            uuid=uuid,
            name=_text(gpu.get("name")),
            bus_id=_text(gpu.get("bus_id")),
            memory_used_mib=used,
            memory_total_mib=total,
            memory_reserved_mib=reserved,
            throttle_reasons=None if reasons is None or reasons < 0 else throttle_words(int(reasons)),
            pcie_rx_mib_s=_scaled(rx, 1 / 1024),
            pcie_tx_mib_s=_scaled(tx, 1 / 1024),
            mig_mode=bool(mig) if isinstance(mig, int) else None,
            parent_uuid=_text(gpu.get("parent")),
            unified_memory=unified,
            health=health,
            processes=self._held(uuid, gpu, codes),
            **figures,
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


def _number(value: object) -> float | None:
    """A finite number of a host, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def _scaled(value: object, scale: float) -> float | None:
    number = _number(value)
    return None if number is None else number * scale


def _text(value: object) -> str | None:
    return (one_line(value, 100) or None) if isinstance(value, str) else None
