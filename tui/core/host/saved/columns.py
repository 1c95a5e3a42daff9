"""Figures in columns below a head: `nvidia-smi dmon` and `pmon`, rocm-smi's overview, `amd-smi monitor`, and CSV of AMD's
and Intel's tools. Columns are found by the head, because versions have different ones.
"""

import csv
import re

from tui.core.host.saved.frames import KNOWN, Frames, Paste, path_of, process

DMON = re.compile(r"# {0,2}(?:Date[\s,]++Time[\s,]++)?gpu[\s,]++(?!pid\b)[^\n]+", re.I)
PMON = re.compile(r"# {0,2}(?:Date[\s,]++Time[\s,]++)?gpu[\s,]++pid\b[^\n]+", re.I)
ROCM = re.compile(r"\b(?:GPU|Device)\s[^\n]{0,120}\bSCLK\s++MCLK\b[^\n]{0,80}\bVRAM%\s++GPU%")
AMD_MONITOR = re.compile(
    r"\bGPU\s++(?:[A-Z_%]+\s[^\n]{0,40})?\b(?:GFX%|GFX_CLK|GFX_CLOCK|GFX_UTIL|VRAM_USED|VRAM_USAGE)[^\n]*"
)
CSV = re.compile(
    r"^[^\n,]{0,60}?((?:\btimestamp, ?)?\b(?:device|DeviceId|gpu), ?[^\n]*(?:GPU use \(%\)|VRAM Total|gfx_activity|used_vram|"
    r"GPU Utilization|GPU Memory Used|GPU Power|Temperature \(|Power \(W\)|socket_power)[^\n]*)",
    re.I | re.M,
)
APPS = re.compile(r"^(?=[^\n]*\bgpu_(?:uuid|bus_id|name)\b)(?=[^\n]*\bpid\b)[^\S\n]*([a-z_]++(?:,[^\n,]++)+)$", re.M)

# A figure may stand apart from its unit.
_AMD_CELL = re.compile(r"(?:N/A|-?[\d.]+(?:/[\d.]+)?)(?:\s(?:W|°C|C|%|MHz|[KMG]?B|[KMG]b/s|ns)(?!\S))?|\S+")
_ROCM_NAME = re.compile(r"[A-Za-z][^|=]{1,60}")
_DEGREES = re.compile(r"[\d.]{1,8}°?[cC]$")
_WATTS = re.compile(r"[\d.]{1,8}W$")


def dmon(paste: Paste) -> Frames:
    """`nvidia-smi dmon`, in columns or with `--format csv`: a line a GPU a tick; "-" is not reported."""
    frames = Frames()
    names: list[str] = []
    left = 0
    for line in paste.lines:
        if found := DMON.search(line):
            left = found.start()
            names = [name.lower() for name in found[0].replace(",", " ").lstrip("# ").split()]
            continue
        cells = line[left:].replace(",", " ").lstrip("#").split()
        at = names.index("gpu") if "gpu" in names else 0
        if not names or len(cells) != len(names) or not re.fullmatch(r"\d{1,3}", cells[at]):
            continue
        seen = frames.open(cells[at])
        seen.values["index"] = cells[at]
        for name, cell in zip(names, cells, strict=True):
            seen.values[f"dmon.{name}"] = cell
    return frames


def pmon(paste: Paste) -> Frames:
    """`nvidia-smi pmon`: who uses each GPU; its shares are the processes', so the GPU's utilisation is not reported."""
    frames = Frames()
    names: list[str] = []
    left, last = 0, -1
    told: set[tuple[str, int]] = set()  # GPUs and processes of this tick
    for line in paste.lines:
        if found := PMON.search(line):
            left = found.start()
            names = [name.lower() for name in found[0].replace(",", " ").lstrip("# ").split()]
            continue
        cells = line[left:].replace(",", " ").split(None, len(names) - 1) if names else []
        row = dict(zip(names, cells, strict=False))
        if "pid" not in row or not re.fullmatch(r"\d{1,3}", gpu := row["gpu"]):
            continue
        listed = process(row["pid"], row.get("command", row.get("name", "")), row.get("fb", ""))
        one = (gpu, listed.pid if listed else -1)
        if int(gpu) < last or one in told:
            frames.begin()
            told = set()
        told.add(one)
        last = int(gpu)
        seen = frames.at(gpu)
        seen.values["index"] = gpu
        seen.processes = seen.processes or []
        if listed:
            seen.add(listed)
    return frames


def apps(paste: Paste) -> Frames:
    """`nvidia-smi --query-compute-apps`: a process a row, with its GPU's UUID, bus id or name."""
    frames = Frames()
    names: list[str] = []
    for line in paste.lines:
        if found := APPS.match(line):
            names = [cell.partition("[")[0].strip() for cell in found[1].split(",")]
            frames.begin()
            continue
        cells = [cell.strip() for cell in line.split(",")]
        at = names.index("process_name") if "process_name" in names else -1
        if at >= 0 and len(cells) > len(names):  # commas of its arguments
            cells[at : at + 1 + len(cells) - len(names)] = [" ".join(cells[at : at + 1 + len(cells) - len(names)])]
        if not names or len(cells) != len(names):
            continue
        row = dict(zip(names, cells, strict=True))
        listed = process(
            row["pid"],
            row.get("process_name", row.get("name", "")),
            row.get("used_gpu_memory", row.get("used_memory", "")),
        )
        if listed:
            words = {ours: row[name] for ours in ("uuid", "bus_id", "name") if (name := f"gpu_{ours}") in row}
            seen = frames.at(next(iter(words.values())))
            seen.values |= words
            seen.add(listed)
    return frames


def rocm(paste: Paste) -> Frames:
    """rocm-smi's overview. Some columns hold blanks, so it is read from its end, and temperature and power by their unit."""
    frames = Frames()
    names: list[str] = []
    named, unnamed = False, ""  # whether names stand on lines of their own; the GPU whose name comes next
    for line in paste.lines:
        if found := ROCM.search(line):
            names, named = found[0].split(), False
            frames.begin()
            continue
        if unnamed and _ROCM_NAME.fullmatch(name := line.strip("> |\t")):
            frames.at(unnamed).values["name"] = name
        unnamed = ""
        named = named or "Name (20 chars)" in line
        cells = line.lstrip(">| \t").split()
        if not names or len(cells) < 8 or not re.fullmatch(r"\d{1,3}", cells[0]):
            continue
        row = dict(zip(reversed(names), reversed(cells), strict=False))
        if not row["GPU%"].endswith("%") and row["GPU%"] != "N/A":
            continue
        values = {"index": cells[0], "utilization_pct": row["GPU%"], "power_limit_w": row.get("PwrCap", "")}
        values |= {"sm_clock_mhz": row.get("SCLK", ""), "memory_clock_mhz": row.get("MCLK", "")}
        limit_at = len(cells) - (len(names) - names.index("PwrCap")) if "PwrCap" in names else len(cells)
        for path, pattern in (("temperature_c", _DEGREES), ("power_w", _WATTS)):
            values[path] = next((cell for cell in cells[1:limit_at] if pattern.match(cell)), "N/A")
        values["memory_used_pct"] = row.get("VRAM%", "")
        frames.open(cells[0]).values |= values
        unnamed = cells[0] if named else ""
    return frames


def amd_monitor(paste: Paste) -> Frames:
    """`amd-smi monitor`; a partition of a GPU (XCP) is an instance of it."""
    frames = Frames()
    names: list[str] = []
    left = 0
    for line in paste.lines:
        if found := AMD_MONITOR.search(line):
            left, names = found.start(), [path_of(name) for name in found[0].split()]
            continue
        cells = _AMD_CELL.findall(line[left:]) if names else []
        if not cells or len(cells) != len(names) or not re.fullmatch(r"\d{1,3}", cells[0]):
            continue
        row = dict(zip(names, cells, strict=True))
        partition = row.get("xcp", "0")
        seen = frames.open(cells[0], "" if partition in ("0", "N/A") else f"XCP {partition}")
        seen.values["index"] = cells[0]
        for name, cell in row.items():
            if name == "vram_usage" and (pair := re.fullmatch(r"([\d.]+)/([\d.]+) ?(\w+)", cell)):
                seen.values |= {"vram_used": pair[1] + pair[3], "vram_total": pair[2] + pair[3]}
            elif name in KNOWN:
                seen.values[name] = cell
    return frames


def separated(paste: Paste) -> Frames:
    """CSV of rocm-smi, amd-smi and xpu-smi: a head, then a row a GPU."""
    frames = Frames()
    names: list[str] = []
    left = 0
    for line in paste.lines:
        if found := CSV.search(line):
            left = found.start(1)
            names = [path_of(cell) for cell in found[1].split(",")]
            frames.begin()
            continue
        if not names or "," not in line:
            continue
        try:
            cells = [cell.strip() for cell in next(csv.reader([line[left:]], skipinitialspace=True))]
        except (csv.Error, StopIteration):
            continue
        if len(cells) != len(names):
            continue
        row = dict(zip(names, cells, strict=True))
        index = next((row[name] for name in ("device", "deviceid", "gpu") if name in row), "").removeprefix("card")
        if re.fullmatch(r"\d{1,3}", index):
            seen = frames.open(index)
            seen.values |= {"index": index} | {name: cell.strip("()") for name, cell in row.items() if name in KNOWN}
    return frames
