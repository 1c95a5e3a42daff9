"""The simulated host's `nvidia-smi`: queries with and without a loop, the process list, topology, the plain table.

Run as `python -m tui.demo.smi`. A loop is one process that sleeps between samples and starts nothing.
"""

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tui.demo import gpus
from tui.demo.gpus import GpuView

Column = tuple[str, Callable[[GpuView], str]]  # the heading with its unit, and the value


def _mib(value: float) -> str:
    return f"{value:.0f}"


GPU_FIELDS: dict[str, Column] = {
    "timestamp": ("", lambda g: time.strftime("%Y/%m/%d %H:%M:%S") + f".{int(time.time() * 1000) % 1000:03d}"),
    "driver_version": ("", lambda g: gpus.DRIVER),
    "count": ("", lambda g: str(gpus.COUNT)),
    "index": ("", lambda g: str(g.index)),
    "name": ("", lambda g: gpus.NAME),
    "gpu_name": ("", lambda g: gpus.NAME),
    "uuid": ("", lambda g: g.uuid),
    "gpu_uuid": ("", lambda g: g.uuid),
    "serial": ("", lambda g: f"17960250{g.index:05d}"),
    "pci.bus_id": ("", lambda g: g.bus_id),
    "gpu_bus_id": ("", lambda g: g.bus_id),
    "compute_cap": ("", lambda g: gpus.COMPUTE_CAPABILITY),
    "compute_mode": ("", lambda g: "Default"),
    "persistence_mode": ("", lambda g: "Enabled"),
    "display_active": ("", lambda g: "Disabled"),
    "pstate": ("", lambda g: "P0" if g.holders else "P8"),
    "fan.speed": ("%", lambda g: str(30 + max(0, g.temperature_c - 40))),
    "memory.total": ("MiB", lambda g: _mib(gpus.MEMORY_MIB)),
    "memory.reserved": ("MiB", lambda g: _mib(gpus.RESERVED_MIB)),
    "memory.used": ("MiB", lambda g: _mib(g.memory_used_mib)),
    "memory.free": ("MiB", lambda g: _mib(gpus.MEMORY_MIB - gpus.RESERVED_MIB - g.memory_used_mib)),
    "utilization.gpu": ("%", lambda g: str(g.utilization_pct)),
    "utilization.memory": ("%", lambda g: str(g.memory_utilization_pct)),
    "temperature.gpu": ("", lambda g: str(g.temperature_c)),
    "temperature.memory": ("", lambda g: "N/A"),
    "power.management": ("", lambda g: "Enabled"),
    "power.draw": ("W", lambda g: f"{g.power_w:.2f}"),
    "power.draw.instant": ("W", lambda g: f"{g.power_w:.2f}"),
    "power.draw.average": ("W", lambda g: f"{g.power_w:.2f}"),
    "power.limit": ("W", lambda g: f"{gpus.POWER_LIMIT_W:.2f}"),
    "enforced.power.limit": ("W", lambda g: f"{gpus.POWER_LIMIT_W:.2f}"),
    "power.default_limit": ("W", lambda g: f"{gpus.POWER_LIMIT_W:.2f}"),
    "power.min_limit": ("W", lambda g: "150.00"),
    "power.max_limit": ("W", lambda g: f"{gpus.POWER_LIMIT_W:.2f}"),
    "clocks.gr": ("MHz", lambda g: str(g.sm_clock_mhz)),
    "clocks.sm": ("MHz", lambda g: str(g.sm_clock_mhz)),
    "clocks.mem": ("MHz", lambda g: str(g.memory_clock_mhz)),
    "clocks.max.sm": ("MHz", lambda g: "3090"),
    "clocks.max.mem": ("MHz", lambda g: "14001"),
    "clocks_event_reasons.active": ("", lambda g: "0x0000000000000000" if g.utilization_pct else "0x0000000000000001"),
    "clocks_throttle_reasons.active": (
        "",
        lambda g: "0x0000000000000000" if g.utilization_pct else "0x0000000000000001",
    ),
    "pcie.link.gen.current": ("", lambda g: "5" if g.holders else "1"),
    "pcie.link.gen.gpucurrent": ("", lambda g: "5" if g.holders else "1"),
    "pcie.link.gen.max": ("", lambda g: "5"),
    "pcie.link.width.current": ("", lambda g: "16"),
    "pcie.link.width.max": ("", lambda g: "16"),
    "mig.mode.current": ("", lambda g: "Disabled"),
    "ecc.mode.current": ("", lambda g: "Disabled"),
    "ecc.errors.uncorrected.volatile.total": ("", lambda g: "N/A"),
    "reset_status.reset_required": ("", lambda g: "No"),
}

APP_FIELDS: dict[str, tuple[str, Callable[[GpuView, gpus.Holder], str]]] = {
    "timestamp": ("", lambda g, h: time.strftime("%Y/%m/%d %H:%M:%S.000")),
    "gpu_name": ("", lambda g, h: gpus.NAME),
    "gpu_bus_id": ("", lambda g, h: g.bus_id),
    "gpu_uuid": ("", lambda g, h: g.uuid),
    "pid": ("", lambda g, h: str(h.pid)),
    "process_name": ("", lambda g, h: h.name),
    "name": ("", lambda g, h: h.name),
    "used_gpu_memory": ("MiB", lambda g, h: _mib(h.memory_mib)),
    "used_memory": ("MiB", lambda g, h: _mib(h.memory_mib)),
}


class Wrong(Exception):
    """An option or a field that this version does not know; the text is what it prints."""


def _row(cells: Sequence[tuple[str, str]], units: bool) -> str:
    return ", ".join(
        f"[{value}]" if value == "N/A" else (f"{value} {unit}" if unit and units else value) for value, unit in cells
    )


def _heading(name: str, unit: str) -> str:
    return name + (f" [{unit}]" if unit else "")


def gpu_rows(fields: Sequence[str], views: Sequence[GpuView], *, header: bool, units: bool) -> list[str]:
    """CSV of `--query-gpu`. Raises Wrong for an unknown field."""
    for name in fields:
        if name not in GPU_FIELDS:
            raise Wrong(f'Field "{name}" is not a valid field to query.')
    lines = [", ".join(_heading(name, GPU_FIELDS[name][0]) for name in fields)] if header else []
    lines += [_row([(GPU_FIELDS[n][1](view), GPU_FIELDS[n][0]) for n in fields], units) for view in views]
    return lines


def app_rows(fields: Sequence[str], views: Sequence[GpuView], *, header: bool, units: bool) -> list[str]:
    """CSV of `--query-compute-apps`. Raises Wrong for an unknown field."""
    for name in fields:
        if name not in APP_FIELDS:
            raise Wrong(f'Field "{name}" is not a valid field to query.')
    lines = [", ".join(_heading(name, APP_FIELDS[name][0]) for name in fields)] if header else []
    for view in views:
        for holder in view.holders:
            lines.append(_row([(APP_FIELDS[n][1](view, holder), APP_FIELDS[n][0]) for n in fields], units))
    return lines


def topology() -> str:
    """`topo -m`: four GPUs a socket, everything over PCIe."""
    names = (f"GPU{i}" for i in range(gpus.COUNT))
    lines = ["\t".join(["", *names, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])]
    for i in range(gpus.COUNT):
        cells = [" X " if i == j else ("NODE" if i // 4 == j // 4 else "SYS") for j in range(gpus.COUNT)]
        cpus, node = ("0-47,96-143", "0") if i < 4 else ("48-95,144-191", "1")
        lines.append("\t".join([f"GPU{i}", *cells, cpus, node, "\tN/A"]))
    lines += [
        "",
        "Legend:",
        "",
        "  X    = Self",
        "  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)",
        "  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node",
        "  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)",
        "  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)",
        "  PIX  = Connection traversing at most a single PCIe bridge",
        "  NV#  = Connection traversing a bonded set of # NVLinks",
    ]
    return "\n".join(lines)


def peers() -> str:
    """`topo -p2p r`: peer access works, over PCIe."""
    names = "\t".join(f"GPU{i}" for i in range(gpus.COUNT))
    lines = [f" \t{names}"]
    for i in range(gpus.COUNT):
        lines.append(f" GPU{i}\t" + "\t".join("X" if i == j else "OK" for j in range(gpus.COUNT)))
    lines += [
        "",
        "Legend:",
        "",
        "  X    = Self",
        "  OK   = Status Ok",
        "  CNS  = Chipset not supported",
        "  GNS  = GPU not supported",
        "  TNS  = Topology not supported",
        "  NS   = Not supported",
        "  U    = Unknown",
    ]
    return "\n".join(lines)


def table(views: Sequence[GpuView]) -> str:
    """The plain table."""
    rule = "+-----------------------------------------+------------------------+----------------------+"
    full = "+" + "-" * 89 + "+"
    lines = [
        time.strftime("%a %b %e %H:%M:%S %Y"),
        full,
        f"| {f'NVIDIA-SMI {gpus.DRIVER}':<27}Driver Version: {gpus.DRIVER:<14} CUDA Version: {gpus.CUDA:<16}|",
        rule,
        "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |",
        "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |",
        "|                                         |                        |               MIG M. |",
        rule.replace("-", "="),
    ]
    for g in views:
        fan = 30 + max(0, g.temperature_c - 40)
        perf = "P0" if g.holders else "P8"
        lines += [
            f"| {g.index:3d}  {gpus.NAME[:26]:<26}  {'On':>5} | {g.bus_id} {'Off':>6} | {'Off':>20} |",
            f"| {fan:2d}%  {g.temperature_c:3d}C    {perf}  {g.power_w:12.0f}W / {gpus.POWER_LIMIT_W:4.0f}W |"
            f" {g.memory_used_mib:6d}MiB / {gpus.MEMORY_MIB:6d}MiB | {g.utilization_pct:7d}%      Default |",
            f"|                                         |                        | {'Disabled':>20} |",
            rule,
        ]
    lines += [
        "",
        full,
        f"| {'Processes:':<87} |",
        f"| {' GPU   GI   CI              PID   Type   Process name                        GPU Memory':<87} |",
        f"| {'       ID   ID                                                               Usage':<87} |",
        "|" + "=" * 89 + "|",
    ]
    holders = [holder for g in views for holder in g.holders]
    for h in holders:
        lines.append(f"| {h.gpu:4d}   N/A  N/A {h.pid:16d}      C   {h.name:<32} {h.memory_mib:9d}MiB |")
    if not holders:
        lines.append(f"|  {'No running processes found':<86} |")
    lines.append(full)
    return "\n".join(lines)


def help_query_gpu() -> str:
    """`--help-query-gpu`: names in quotes, aliases after "or"."""
    lines = ['List of valid properties to query for the switch "--query-gpu":', ""]
    for name in GPU_FIELDS:
        lines += [f'"{name}"', "A property of the simulated GPU.", ""]
    return "\n".join(lines)


def chosen(text: str, views: Sequence[GpuView]) -> list[GpuView]:
    """The GPUs of `-i`. Raises Wrong."""
    found = []
    for word in text.split(","):
        match = [g for g in views if word in (str(g.index), g.uuid, g.bus_id)]
        if not match:
            raise Wrong("No devices were found")
        found += match
    return found


def main(argv: Sequence[str], directory: Path) -> int:
    """Runs one call; returns its exit status."""
    query: tuple[str, list[str]] | None = None
    formats: list[str] = []
    loop_s: float | None = None
    only: str | None = None
    listing = False
    words = list(argv)
    if words[:1] == ["topo"]:
        print(peers() if "-p2p" in words else topology())
        return 0
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")

        def operand(equals: str = equals, value: str = value) -> str:
            return value if equals else (words.pop(0) if words else "")

        if name == "--query-gpu":
            query = ("gpu", [f.strip() for f in operand().split(",")])
        elif name in ("--query-compute-apps", "--query-compute-app"):
            query = ("apps", [f.strip() for f in operand().split(",")])
        elif name == "--format":
            formats = operand().split(",")
        elif name in ("-lms", "--loop-ms"):
            loop_s = float(operand()) / 1000
        elif name in ("-l", "--loop"):
            loop_s = float(operand())
        elif name in ("-i", "--id"):
            only = operand()
        elif name in ("-L", "--list-gpus"):
            listing = True
        elif name == "--help-query-gpu":
            print(help_query_gpu())
            return 0
        elif name == "--version":
            print(
                f"NVIDIA-SMI version  : {gpus.DRIVER}\nDRIVER version      : {gpus.DRIVER}\nCUDA Version        : {gpus.CUDA}"
            )
            return 0
        else:
            print(
                f"Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n\nOption {word} is not recognized."
            )
            return 2
    header = "noheader" not in formats
    units = "nounits" not in formats
    due = time.monotonic()
    while True:
        views: Sequence[GpuView] = gpus.read(directory)
        try:
            if only is not None:
                views = chosen(only, views)
            if listing:
                lines = [f"GPU {g.index}: {gpus.NAME} (UUID: {g.uuid})" for g in views]
            elif query is None:
                lines = [table(views)]
            else:
                rows = gpu_rows if query[0] == "gpu" else app_rows
                lines = rows(query[1], views, header=header, units=units)
        except Wrong as wrong:
            print(wrong)
            return 2
        if lines:
            sys.stdout.write("\n".join(lines) + "\n")
            sys.stdout.flush()
        if loop_s is None:
            return 0
        header = False
        due = max(due + loop_s, time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))


if __name__ == "__main__":
    try:
        raise SystemExit(main(sys.argv[1:], Path(os.environ.get("EAGLETUI_DEMO_ROOT", "/nonexistent")) / "gpu"))
    except (BrokenPipeError, KeyboardInterrupt):
        os._exit(0)
