"""The simulated host's `nvidia-smi`: queries with and without a loop, the process list, topology, the plain table.

Run as `python -m tui.demo.smi`. A loop is one process that sleeps between samples and starts nothing.
"""

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tui.demo import gpus
from tui.demo.gpus import GpuView, Holder

# What it prints: of each query, values (as formats) by field, names that mean the same joined by |, the unit behind a
# colon; the legends of its matrices.
_DATA = json.loads((Path(__file__).with_name("data") / "nvidia_smi.json").read_text(encoding="utf-8"))


def _fields(query: str) -> dict[str, tuple[str, str]]:
    """Unit and value, as a format, by field."""
    named = ((name.partition(":"), value) for names, value in _DATA[query].items() for name in names.split("|"))
    return {name: (unit, value) for (name, _, unit), value in named}


def _values(g: GpuView, h: Holder | None = None) -> dict[str, object]:
    """What the formats of fields may name."""
    busy = bool(g.holders)
    return {
        "g": g,
        "h": h,
        "gpus": gpus,
        "now": time.strftime("%Y/%m/%d %H:%M:%S"),
        "ms": int(time.time() * 1000) % 1000,
        "pstate": "P0" if busy else "P8",
        "fan": _fan(g),
        "free": gpus.MEMORY_MIB - gpus.RESERVED_MIB - g.memory_used_mib,
        "reasons": "0x0000000000000000" if g.utilization_pct else "0x0000000000000001",
        "link": 5 if busy else 1,
    }


def _fan(g: GpuView) -> int:
    return 30 + max(0, g.temperature_c - 40)


class Wrong(Exception):
    """An option or a field that this version does not know; the text is what it prints."""


def rows(query: str, names: Sequence[str], views: Sequence[GpuView], *, header: bool, units: bool) -> list[str]:
    """CSV of a query, of "gpu" or of "apps". Raises Wrong for an unknown field."""
    known = _fields(query)
    for name in names:
        if name not in known:
            raise Wrong(f'Field "{name}" is not a valid field to query.')
    fields = [known[name] for name in names]
    heading = [f"{name} [{unit}]" if unit else name for name, (unit, _) in zip(names, fields, strict=True)]
    lines = [", ".join(heading)] if header else []
    for view in views:
        for holder in [None] if query == "gpu" else view.holders:
            values = _values(view, holder)
            cells = [(value.format(**values), unit) for unit, value in fields]
            lines.append(
                ", ".join(
                    "[N/A]" if cell == "N/A" else f"{cell} {unit}" if unit and units else cell for cell, unit in cells
                )
            )
    return lines


def topology() -> str:
    """`topo -m`: four GPUs a socket, everything over PCIe."""
    names = (f"GPU{i}" for i in range(gpus.COUNT))
    lines = ["\t".join(["", *names, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])]
    for i in range(gpus.COUNT):
        cells = [" X " if i == j else ("NODE" if i // 4 == j // 4 else "SYS") for j in range(gpus.COUNT)]
        cpus, node = ("0-47,96-143", "0") if i < 4 else ("48-95,144-191", "1")
        lines.append("\t".join([f"GPU{i}", *cells, cpus, node, "\tN/A"]))
    return "\n".join([*lines, "", *_DATA["topology legend"]])


def peers() -> str:
    """`topo -p2p r`: peer access works, over PCIe."""
    lines = [" \t" + "\t".join(f"GPU{i}" for i in range(gpus.COUNT))]
    for i in range(gpus.COUNT):
        lines.append(f" GPU{i}\t" + "\t".join("X" if i == j else "OK" for j in range(gpus.COUNT)))
    return "\n".join([*lines, "", *_DATA["peers legend"]])


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
        perf = "P0" if g.holders else "P8"
        lines += [
            f"| {g.index:3d}  {gpus.NAME[:26]:<26}  {'On':>5} | {g.bus_id} {'Off':>6} | {'Off':>20} |",
            f"| {_fan(g):2d}%  {g.temperature_c:3d}C    {perf}  {g.power_w:12.0f}W / {gpus.POWER_LIMIT_W:4.0f}W |"
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
    for name in _fields("gpu"):
        lines += [f'"{name}"', "A property of the simulated GPU.", ""]
    return "\n".join(lines)


def chosen(text: str | None, views: list[GpuView]) -> list[GpuView]:
    """The GPUs of `-i`, all without it. Raises Wrong."""
    if text is None:
        return views
    found = []
    for word in text.split(","):
        match = [g for g in views if word in (str(g.index), g.uuid, g.bus_id)]
        if not match:
            raise Wrong("No devices were found")
        found += match
    return found


_ALIASES = {
    "--query-compute-app": "--query-compute-apps",
    "-lms": "--loop-ms",
    "-l": "--loop",
    "-i": "--id",
    "-L": "--list-gpus",
}
_WITH_OPERAND = ("--query-gpu", "--query-compute-apps", "--format", "--loop-ms", "--loop", "--id")


def main(argv: Sequence[str], directory: Path) -> int:
    """Runs one call; returns its exit status."""
    words = list(argv)
    if words[:1] == ["topo"]:
        print(peers() if "-p2p" in words else topology())
        return 0
    query: tuple[str, list[str]] | None = None
    formats: list[str] = []
    loop_s: float | None = None
    only: str | None = None
    listing = False
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        name = _ALIASES.get(name, name)
        if name in _WITH_OPERAND and not equals:
            value = words.pop(0) if words else ""
        match name:
            case "--query-gpu" | "--query-compute-apps":
                query = (name.rpartition("-")[2], [field.strip() for field in value.split(",")])
            case "--format":
                formats = value.split(",")
            case "--loop-ms":
                loop_s = float(value) / 1000
            case "--loop":
                loop_s = float(value)
            case "--id":
                only = value
            case "--list-gpus":
                listing = True
            case "--help-query-gpu":
                print(help_query_gpu())
                return 0
            case "--version":
                print(f"NVIDIA-SMI version  : {gpus.DRIVER}\nCUDA Version        : {gpus.CUDA}")
                return 0
            case _:
                print("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n")
                print(f"Option {word} is not recognized.")
                return 2
    header, units = "noheader" not in formats, "nounits" not in formats
    due = time.monotonic()
    while True:
        try:
            views = chosen(only, gpus.read(directory))
            if listing:
                lines = [f"GPU {g.index}: {gpus.NAME} (UUID: {g.uuid})" for g in views]
            else:
                lines = rows(*query, views, header=header, units=units) if query else [table(views)]
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
