"""GPU probe: runs on the GPU host, in the Python that has SGLang, and prints one JSON object a line.

Sent as `python -u - PERIOD_S PROCESS_PERIOD_S FIGURES`, the figures as JSON: [name, functions of which the first that the
library has is called with the handle, further arguments, part of the result that is meant, whether the code of a refusal
is reported]; needs Python 3.8 and the module `pynvml` (nvidia-ml-py, which SGLang and
torch bring along). Units are NVML's own: bytes, milliwatts, KiB/s; `tui.core.host.gpu_sampler` turns them into ours.

Lines, each behind `N `: {"t": host time, "gpus": [...]}; {"fatal": NVML code, "text": words}; {"stalled": seconds, "in": function} while
the driver does not return from a call. A GPU has only the keys that the driver reported; `na` holds the NVML code of
each that it refused. Exit status 3: no pynvml or no NVML here, try nvidia-smi.
"""

from __future__ import annotations

import json
import os
import pwd
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

NO_NVML = 3
NOT_SUPPORTED = 3
FUNCTION_NOT_FOUND = 13
# The library is not there, is too old to be spoken to, or no driver tells it anything.
NO_LIBRARY = (12, FUNCTION_NOT_FOUND)
STALL_S = 5.0

_writing = threading.Lock()


def say(document: dict[str, Any]) -> None:
    """Prints a line; a leading newline keeps it apart from whatever a library printed."""
    with _writing:
        sys.stdout.write("\nN " + json.dumps(document, separators=(",", ":")) + "\n")
        sys.stdout.flush()


class Driver:
    """NVML, one call at a time, with the function in progress on record for the watchdog."""

    def __init__(self, nvml: Any, period_s: float) -> None:
        self.nvml = nvml
        self.since = time.monotonic()
        self.function = "init"
        self.limit_s = max(STALL_S, 3 * period_s)
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        # A wedged driver blocks inside an ioctl; this thread says so, and ends the process when nobody listens any more.
        while True:
            time.sleep(1)
            silent = time.monotonic() - self.since
            if silent > self.limit_s:
                say({"stalled": round(silent, 1), "in": self.function})

    def idle(self) -> None:
        """Between two ticks: nothing is under way."""
        self.since, self.function = float("inf"), "sleep"

    def ask(self, function: str, *arguments: Any) -> tuple[Any, int]:
        """Result and 0, or None and the NVML code (-1 where binding and library misunderstand each other)."""
        self.since, self.function = time.monotonic(), function
        call: Callable[..., Any] | None = getattr(self.nvml, function, None)
        if call is None:
            return None, FUNCTION_NOT_FOUND
        try:
            return call(*arguments), 0
        except self.nvml.NVMLError as error:
            return None, int(getattr(error, "value", -1))
        except Exception:
            return None, -1

    def ask_first(self, functions: list[str], *arguments: Any) -> tuple[Any, int]:
        """The same of the first of several functions that the library has."""
        for function in functions:
            result, code = self.ask(function, *arguments)
            if code != FUNCTION_NOT_FOUND:
                break
        return result, code


def text(value: Any) -> str | None:
    """Old bindings give bytes."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else None


def owner(pid: int) -> tuple[str | None, str | None]:
    """User and program of a process; never its arguments, which may hold secrets."""
    user = program = None
    try:
        uid = os.stat(f"/proc/{pid}").st_uid
        try:
            user = pwd.getpwuid(uid).pw_name
        except KeyError:
            user = str(uid)
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = [word.decode("utf-8", "replace") for word in file.read(4096).split(b"\0")]
        program = os.path.basename(words[0])
        if program.startswith("python") and len(words) > 1:
            if words[1] == "-m" and len(words) > 2:
                program += " -m " + words[2]
            elif words[1] and not words[1].startswith("-"):
                program += " " + os.path.basename(words[1])
    except OSError:
        pass  # it ended, or it lives in another PID namespace
    return user, program


def host_memory() -> list[int] | None:
    """Total and available bytes of the host."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            found = dict(line.split(":", 1) for line in file)
        return [int(found[key].split()[0]) * 1024 for key in ("MemTotal", "MemAvailable")]
    except (OSError, KeyError, ValueError):
        return None


def processes(driver: Driver, handle: Any) -> tuple[list[list[Any]] | None, int]:
    """[pid, bytes or None, user, program] of each, and the code of the refusal."""
    held: dict[int, int | None] = {}
    code = 0
    for kind in ("Compute", "Graphics"):
        # Version 2 first: the struct of version 3 differed in bindings and drivers of the 535 series (scrambled pids).
        name = f"nvmlDeviceGet{kind}RunningProcesses"
        found, code = driver.ask_first([f"{name}_v2", name], handle)
        if kind == "Compute" and code:
            return None, code
        for process in found or ():
            held.setdefault(int(process.pid), process.usedGpuMemory)
    return [[pid, used, *owner(pid)] for pid, used in sorted(held.items())], 0


def memory(driver: Driver, handle: Any, gpu: dict[str, Any]) -> int:
    """Fills total, allocated and reserved bytes; without version 2 the reserved ones are part of the allocated."""
    version = getattr(driver.nvml, "nvmlMemory_v2", None)
    code = FUNCTION_NOT_FOUND
    if version is not None:
        found, code = driver.ask("nvmlDeviceGetMemoryInfo", handle, version)
        if code == 0:
            gpu["reserved"] = found.reserved
    if code:
        found, code = driver.ask("nvmlDeviceGetMemoryInfo", handle)
    if code == 0:
        gpu["total"], gpu["used"] = found.total, found.used
    return code


class Traffic(threading.Thread):
    """PCIe traffic of all GPUs; a thread, because each figure takes the driver 20 ms."""

    def __init__(self, driver: Driver, period_s: float) -> None:
        super().__init__(daemon=True)
        self.driver = driver
        self.period_s = max(1.0, period_s)
        self.handles: dict[int, Any] = {}
        self.figures: dict[int, list[int]] = {}

    def add(self, index: int, handle: Any) -> None:
        """Keeps the traffic of a GPU up to date; the first figure is there on return."""
        new = index not in self.handles
        self.handles[index] = handle
        if new:
            self.measure(index, handle)

    def measure(self, index: int, handle: Any) -> None:
        """Received and sent KiB/s; takes 40 ms."""
        nvml = self.driver.nvml
        try:
            self.figures[index] = [
                int(nvml.nvmlDeviceGetPcieThroughput(handle, counter))
                for counter in (nvml.NVML_PCIE_UTIL_RX_BYTES, nvml.NVML_PCIE_UTIL_TX_BYTES)
            ]
        except Exception:
            self.figures.pop(index, None)

    def run(self) -> None:
        """Measures forever."""
        while True:
            time.sleep(self.period_s)
            for index, handle in list(self.handles.items()):
                self.measure(index, handle)


class Probe:
    """The GPUs of this host."""

    def __init__(self, driver: Driver, period_s: float, figures: list[Any]) -> None:
        self.driver, self.figures = driver, figures
        self.seen: dict[int, dict[str, Any]] = {}  # who was at an index: reported again when its handle is gone
        self.traffic = Traffic(driver, period_s)
        self.traffic.start()

    def gpu(self, index: int, with_processes: bool) -> list[dict[str, Any]]:
        """One GPU, and its MIG instances behind it."""
        driver = self.driver
        handle, code = driver.ask("nvmlDeviceGetHandleByIndex", index)
        if code:
            self.traffic.handles.pop(index, None)
            return [dict(self.seen.get(index, {}), i=index, failed=code)]
        gpu: dict[str, Any] = {"i": index}
        refused: dict[str, int] = {}

        for name, functions, arguments, part, vital in self.figures:
            value, code = driver.ask_first(functions, handle, *arguments)
            if code == 0:
                if part is not None:
                    value = value[part] if isinstance(part, int) else getattr(value, part)
                gpu[name] = text(value) if isinstance(value, (bytes, str)) else value
            elif vital:
                refused[name] = code
        self.seen[index] = {key: gpu[key] for key in ("uuid", "name", "bus_id") if key in gpu}
        code = memory(driver, handle, gpu)
        if code:
            refused["memory"] = code
            if code == NOT_SUPPORTED and not gpu.get("mig_mode"):
                gpu["host_memory"] = host_memory()
        self.traffic.add(index, handle)
        if index in self.traffic.figures:
            gpu["rx_tx"] = self.traffic.figures[index]
        instances = self._instances(index, handle, gpu, with_processes) if gpu.get("mig_mode") else []
        if with_processes:
            found, code = processes(driver, handle)
            if code:
                refused["processes"] = code
                # Without the right to ask the GPU as a whole, its instances still tell.
                known = [i["processes"] for i in instances if "processes" in i]
                each = {process[0]: process for listed in known for process in listed}
                found = list(each.values()) if known else None
            if found is not None:
                gpu["processes"] = found
        if refused:
            gpu["na"] = refused
        return [gpu, *instances]

    def _instances(self, index: int, parent: Any, gpu: dict[str, Any], with_processes: bool) -> list[dict[str, Any]]:
        driver = self.driver
        count, code = driver.ask("nvmlDeviceGetMaxMigDeviceCount", parent)
        found: list[dict[str, Any]] = []
        for number in range(count if code == 0 else 0):
            handle, code = driver.ask("nvmlDeviceGetMigDeviceHandleByIndex", parent, number)
            if code:
                continue
            instance: dict[str, Any] = {"i": index, "parent": gpu.get("uuid") or "", "mig_mode": True}
            for key, function in (("uuid", "nvmlDeviceGetUUID"), ("name", "nvmlDeviceGetName")):
                value, code = driver.ask(function, handle)
                if code == 0:
                    instance[key] = text(value)
            code = memory(driver, handle, instance)
            if code:
                instance["na"] = {"memory": code}
            if with_processes:
                held, code = processes(driver, handle)
                if held is not None:
                    instance["processes"] = held
            found.append(instance)
        return found


def main(period_s: float, process_period_s: float, figures: list[Any]) -> int:
    """Prints samples until nobody reads them. Never catches up after a stall."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        import pynvml
    except Exception:
        return NO_NVML
    driver = Driver(pynvml, period_s)
    _, code = driver.ask("nvmlInit")
    if code in NO_LIBRARY or code == -1:
        return NO_NVML
    if code:
        words, _ = driver.ask("nvmlErrorString", code)
        say({"fatal": code, "text": text(words) or ""})
        return 0
    probe = Probe(driver, period_s, figures)
    tick = time.monotonic()
    processes_at = float("-inf")
    while True:
        count, code = driver.ask("nvmlDeviceGetCount")
        if code:
            words, _ = driver.ask("nvmlErrorString", code)
            say({"fatal": code, "text": text(words) or ""})
            return 0
        now = time.monotonic()
        due = now - processes_at >= process_period_s
        if due:
            processes_at = now
        gpus = [gpu for index in range(count) for gpu in probe.gpu(index, due)]
        driver.idle()
        say({"t": time.time(), "gpus": gpus})
        tick = max(tick + period_s, time.monotonic() - period_s / 2)
        time.sleep(max(0.0, tick - time.monotonic()))


if __name__ == "__main__":
    # Nothing is imported from the caller's directory.
    sys.path = [path for path in sys.path if path]
    sys.exit(main(float(sys.argv[1]), float(sys.argv[2]), json.loads(sys.argv[3])))
