"""The eight simulated GPUs: what they are, and their state as the simulated servers left it in files.

A server writes one small file (`gpu/<pid>.json`, written aside and renamed) whenever its memory or load changes;
`nvidia-smi` reads them all. Nothing else is shared. Temperatures follow the load with a time constant, so that they
need no writer of their own. When a process dies its memory comes back a moment later, as on a real driver.
"""

import json
import math
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

COUNT = 8
NAME = "NVIDIA RTX PRO 6000 Blackwell Workstation Edition"
MEMORY_MIB = 97887
RESERVED_MIB = 637  # by the driver; not part of `memory.used`
POWER_LIMIT_W = 600.0
COMPUTE_CAPABILITY = "12.0"
DRIVER = "590.48.01"
CUDA = "13.1"

IDLE_POWER_W = 17.0
IDLE_TEMP_C = 30.0
LOADED_TEMP_C = 62.0
TEMP_TIME_CONSTANT_S = 40.0
MEMORY_BACK_AFTER_S = 1.2  # a dead process's memory is still held so long after it was first missed

# Small differences between the cards, so that eight rows never look like one.
_POWER_BIAS = (6, -2, 3, -6, 1, -4, 5, -1)
_TEMP_BIAS = (1, -1, 4, 2, -2, -3, 3, 0)
_BUS = ("01", "21", "41", "61", "81", "A1", "C1", "E1")


@dataclass(frozen=True)
class Holder:
    """A process that holds memory of one GPU."""

    gpu: int
    pid: int
    memory_mib: int
    name: str


@dataclass(frozen=True)
class GpuView:
    """One GPU at one moment, as `nvidia-smi` prints it."""

    index: int
    uuid: str
    bus_id: str
    memory_used_mib: int
    utilization_pct: int
    memory_utilization_pct: int
    power_w: float
    temperature_c: int
    sm_clock_mhz: int
    memory_clock_mhz: int
    holders: tuple[Holder, ...] = ()


@dataclass(frozen=True)
class Rank:
    """What one rank of a server does to its GPU."""

    gpu: int
    pid: int
    memory_mib: int
    utilization: float  # 0..1
    power: float  # 0..1, share of what decoding draws


@dataclass
class Board:
    """What a server publishes. `temp0_c` per GPU is the temperature when the present load began."""

    directory: Path
    pid: int
    name: str = "sglang::scheduler"
    temp_c: dict[int, float] = field(default_factory=dict)
    since: float = 0.0
    power: dict[int, float] = field(default_factory=dict)

    def publish(self, ranks: list[Rank]) -> None:
        """Writes the state of all ranks; raises OSError only where the directory itself is gone."""
        now = time.time()
        for rank in ranks:
            before = self.temp_c.get(rank.gpu, IDLE_TEMP_C)
            old = self.power.get(rank.gpu, 0.0)
            self.temp_c[rank.gpu] = _temperature(before, old, now - self.since if self.since else 0.0)
            self.power[rank.gpu] = rank.power
        self.since = now
        body = {
            "pid": self.pid,
            "start": process_start(self.pid),
            "name": self.name,
            "since": now,
            "ranks": [[r.gpu, r.pid, r.memory_mib, r.utilization, r.power, self.temp_c[r.gpu]] for r in ranks],
        }
        target = self.directory / f"{self.pid}.json"
        aside = self.directory / f".{self.pid}.{os.getpid()}"
        aside.write_text(json.dumps(body), encoding="utf-8")
        aside.replace(target)

    def withdraw(self) -> None:
        """Gives the memory back at once; what a clean end does."""
        (self.directory / f"{self.pid}.json").unlink(missing_ok=True)

    def mark_dead(self) -> None:
        """Says when the process died: its memory comes back a moment after that."""
        if (self.directory / f"{self.pid}.json").exists():
            (self.directory / f"{self.pid}.dead").touch()


def process_start(pid: int) -> str | None:
    """Start time of a process in clock ticks since boot, None if it is gone; tells a reused number apart."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        if os.path.isdir("/proc/self"):
            return None
        try:  # no /proc (macOS): existence is all there is
            os.kill(pid, 0)
        except ProcessLookupError:
            return None
        except PermissionError:
            return "?"
        return "?"
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else fields[19]


def _temperature(start_c: float, power: float, after_s: float) -> float:
    goal = IDLE_TEMP_C + (LOADED_TEMP_C - IDLE_TEMP_C) * power
    return goal + (start_c - goal) * math.exp(-max(0.0, after_s) / TEMP_TIME_CONSTANT_S)


def _wobble(index: int, now: float, kind: int) -> float:
    """A repeatable value in -1..1 that changes every half second; measured figures never stand still."""
    x = math.sin((index + 1) * 12.9898 + math.floor(now * 2) * 78.233 + kind * 37.719) * 43758.5453
    return 2.0 * (x - math.floor(x)) - 1.0


def uuid(index: int) -> str:
    """A fixed made-up UUID."""
    return f"GPU-5e2d0b{index:02x}-7a41-4c1e-9f00-0a9be1d{index:05x}"


def bus_id(index: int) -> str:
    """PCI address as nvidia-smi prints it."""
    return f"00000000:{_BUS[index]}:00.0"


def _gone(directory: Path, pid: int, now: float) -> bool:
    """Whether the memory of a dead process has come back; where nobody saw it die, the first who misses it starts the clock."""
    mark = directory / f"{pid}.dead"
    try:
        missed = mark.stat().st_mtime
    except FileNotFoundError:
        mark.touch()
        return False
    if now - missed < MEMORY_BACK_AFTER_S:
        return False
    (directory / f"{pid}.json").unlink(missing_ok=True)
    mark.unlink(missing_ok=True)
    return True


def read(directory: Path) -> list[GpuView]:
    """The state of all eight GPUs now."""
    now = time.time()
    memory = [2] * COUNT  # the driver keeps a little for itself
    utilization = [0.0] * COUNT
    power = [0.0] * COUNT
    temperature = [IDLE_TEMP_C] * COUNT
    holders: list[list[Holder]] = [[] for _ in range(COUNT)]
    try:
        names = sorted(os.listdir(directory))
    except OSError:
        names = []
    for name in names:
        if not name.endswith(".json"):
            continue
        try:
            body = json.loads((directory / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        dead = process_start(body["pid"]) != body["start"]
        if dead and _gone(directory, body["pid"], now):
            continue
        for gpu, pid, mib, load, drawn, temp0 in body["ranks"]:
            if not 0 <= gpu < COUNT:
                continue
            memory[gpu] += mib
            temperature[gpu] = max(temperature[gpu], _temperature(temp0, drawn, now - body["since"]))
            if not dead:
                utilization[gpu] = max(utilization[gpu], load)
                power[gpu] = max(power[gpu], drawn)
                if mib:
                    holders[gpu].append(Holder(gpu, pid, mib, body["name"]))
    views = []
    for i in range(COUNT):
        load, drawn = utilization[i], power[i]
        busy = load > 0
        util = round(100 * load + (3 * _wobble(i, now, 1) if busy else 0))
        held = memory[i] > 1000
        watts = IDLE_POWER_W + (66 if held else 0) + 150 * drawn
        watts += (_POWER_BIAS[i] if held else _POWER_BIAS[i] / 3) + _wobble(i, now, 2) * (6 if busy else 0.6)
        degrees = temperature[i] + _TEMP_BIAS[i] + (6 if held else 0) * (1 - drawn)
        views.append(
            GpuView(
                index=i,
                uuid=uuid(i),
                bus_id=bus_id(i),
                memory_used_mib=min(memory[i], MEMORY_MIB - RESERVED_MIB),
                utilization_pct=max(0, min(100, util)),
                memory_utilization_pct=max(0, min(100, round(55 * load))),
                power_w=round(watts, 2),
                temperature_c=round(degrees),
                sm_clock_mhz=2617 if drawn > 0.3 else (1905 if held else 180),
                memory_clock_mhz=14001 if held else 405,
                holders=tuple(holders[i]),
            )
        )
    return views
