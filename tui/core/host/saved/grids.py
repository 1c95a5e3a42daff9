"""Tables with one to three lines a GPU: nvidia-smi's own, those that follow its layout, and one-line lists.

Lines are recognised wherever they begin, so a quotation or a log's prefix in front changes nothing, and a table of which
only a part was pasted is read. Bars of box drawings are `|` by then.
"""

import re
from collections.abc import Iterator, Sequence

from tui.core.host.saved.frames import Frames, Paste, Seen, process

_BUS = r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]"
# nvidia-smi, nvitop, hl-smi.
NVIDIA_GPU = re.compile(
    rf"\|\s*+(\d{{1,3}})\s++([^|]++)\|\s*+({_BUS}|N/A|ERR!)\s++[^|\s]++\s*+\|(?:\s*+(\d{{1,9}})\s*+\|)?"
)
_NVIDIA_FIGURES = re.compile(
    r"\|\s*+[^|\s]++\s++([^|\s]++)\s++[^|\s]++\s++(ERR!|N/A|\d+\s?W)\s*+/\s*+(ERR!|N/A|\d+\s?W)\s*+\|([^|]++)"
    r"\|\s*+(ERR!|N/A|[\d.]+\s?%)"
)
_NVIDIA_MIG = re.compile(r"\|\s*+\|\s*+\|\s*+(Enabled|Disabled)\b")
_NVIDIA_INSTANCE = re.compile(r"\|\s*+(\d{1,3})\s++(\d{1,3})\s++(\d{1,3})\s++(\d{1,3})\s*+\|([^|]++)\|")
_NVIDIA_PROCESS = re.compile(
    r"\|\s*+(\d{1,3})\s++(?:(\d{1,3}|N/A)\s++(\d{1,3}|N/A)\s++)?(\d{1,10})\s++[CGM+]{1,5}\s++([^|]++)\|"
)
_NVIDIA_UNTOLD = re.compile(r"\|\s*+(\d{1,3})\s++(?:N/A\s++N/A\s++)?Not Supported\s*+\|")
_NVITOP_LINE = re.compile(
    r"\|\s*+(\d{1,3})\s++[^|\s]++\s++(\d+C|N/A)\s++[^|\s]++\s++(\d+W|N/A)\s*+/\s*+(\d+W|N/A)\s*+\|([^|]++)"
    r"\|\s*+(N/A|[\d.]+\s?%)"
)
_BANNER = re.compile(r"NVIDIA-SMI \d|NVITOP \d|HL-SMI Version")
_PERSISTENCE = {"On", "Off", "N/A", "ERR!", "TCC", "WDDM", "MCDM"}
_PAIR = re.compile(r"\s*+(N/A|[\d.]+\s?[A-Za-z]*)\s*+/\s*+(N/A|[\d.]+\s?[A-Za-z]*)")
_LAST_WORD = re.compile(r"(?<!\S)(\d{1,9}\s?[KMG]i?B|N/A)\s*+$")

AMD_GPU = re.compile(
    rf"\|\s*+({_BUS})\s++([^|]++)\|\s*+[^|\s]++(?: %)?\s++(N/A|\d+\s?°?C)\s++([^|\s]++)\s++(N/A|\d+)/(N/A|\d+)\s*+W"
)
_AMD_FIGURES = re.compile(
    r"\|\s*+(\d{1,3})\s++[^|\s]++\s++[^|\s]++\s++[^|\s]++\s*+\|\s*+(N/A|\d+ ?%)\s++[^|\s]++(?: %)?"
    r"\s++(N/A|\d+)/(N/A|\d+) ([MG]B)\s*+\|"
)
_AMD_PROCESS = re.compile(r"\|\s*+(\d{1,3})\s++(\d{1,10})\s++([^|\s]++)\s++[\d.]++ \w++\s++([\d.]++ [KMG]?B)\s")

NPU = re.compile(
    r"\|\s*+(\d{1,3})\s++([^|]++)\|\s*+([A-Za-z]++)\s*+\|\s*+(-|NA|[\d.]+)\s++(-|NA|\d+)\s++\d++\s*+/\s*+\d++\s*+\|"
)
_NPU_FIGURES = re.compile(
    r"\|\s*+(\d{1,3})(?:\s++(\d{1,3}))?\s*+\|\s*+([0-9A-Fa-fNx:.]++)\s*+\|\s*+(\d+|NA)\s++(\d++)\s*+/\s*+(\d++)\s++"
    r"(\d++)\s*+/\s*+(\d++)\s*+\|"
)

TPU = re.compile(r"\|\s*+(\d{1,4})\s*+\|\s*+([\d.]++ GiB) / ([\d.]++ GiB)\s*+\|\s*+([\d.]++%|N/A)\s*+\|")

GPUSTAT = re.compile(
    r"\[(\d{1,3})\]\s*([^|\[\]]{1,100})\|([^|]{1,100}'C[^|]{0,100})\|\s*(\d+|\?+)\s*/\s*(\d+|\?+)\s*MB"
)
_GPUSTAT_PROCESS = re.compile(r"(?:\b([\w.-]{1,40}):)?([\w.-]{1,60})/(\d{1,10})\((\d{1,9}|\?)M\)")

# Each matches once a GPU, with nothing where it has no figure, so that those of GPUs beside each other stay apart.
NVTOP = re.compile(r"\bDevice (\d{1,3}) \[([^\[\]]{1,100})\]")
_NVTOP_FIGURES = {
    "pcie_gen": re.compile(r"\bDevice \d{1,3} \[[^\[\]]{1,100}\](?: PCIe GEN (\d)@)?"),
    "pcie_width": re.compile(r"\bDevice \d{1,3} \[[^\[\]]{1,100}\](?: PCIe GEN \d@ {0,3}(\d{1,3})x)?"),
    "gpu_clock": re.compile(r"\bGPU (\d+MHz|N/A)\b"),
    "mem_clock": re.compile(r"\bMEM (\d+MHz|N/A)\b"),
    "temp": re.compile(r"\bTEMP {1,4}(\d+°?C|N/A)"),
    "power_w": re.compile(r"\bPOW {1,4}(\d+|N/A)\b"),
    "power_limit_w": re.compile(r"\bPOW {1,4}(?:\d+|N/A)(?: {1,4}/ {1,4}(\d+))? W"),
    "utilization_pct": re.compile(r"\bGPU\[(?:[^\[\]]{0,300}?(\d{1,3}%)|[^\[\]]{0,300})\]"),
    "memory_used_mib": re.compile(r"\bMEM\[(?:[^\[\]/]{0,300}?([\d.]{1,9}[KMG]i)/[^\[\]]{1,12}|[^\[\]]{0,300})\]"),
    "memory_total_mib": re.compile(r"\bMEM\[(?:[^\[\]/]{0,300}[KMG]i/([\d.]{1,9}[KMG]i)|[^\[\]]{0,300})\]"),
}

LISTED = re.compile(r"\bGPU (\d{1,3}): ([^()]{1,100}) \(UUID: (GPU-[0-9A-Za-z-]{1,40})")
_LISTED_INSTANCE = re.compile(r"\b(MIG \S{1,30})\s+Device\s+\d+: \(UUID: (MIG-[^()]{1,100})")


def _name(cell: str) -> str:
    """A name without the persistence mode (or the driver model of Windows) behind it."""
    name, _, last = cell.strip().rpartition(" ")
    return name.strip() if last in _PERSISTENCE else cell.strip()


def _unwrapped(lines: Sequence[str]) -> Iterator[str]:
    """Rows that a narrow terminal broke, in one piece."""
    row = ""
    for line in lines:
        if line.count("|") == 1 and line.rstrip().endswith("|") and row.count("|") in (1, 3, 4):  # all but the last bar
            yield row + line
            row = ""
            continue
        yield row
        row = line
    yield row


def _memory(seen: Seen, cell: str) -> None:
    """ "0MiB / 81559MiB", or one marker for both."""
    pair = _PAIR.match(cell)
    used, total = pair.groups() if pair else (cell, cell)
    seen.values |= {"memory_used_mib": used.strip(), "memory_total_mib": total.strip()}


def nvidia(paste: Paste) -> Frames:
    """nvidia-smi's table, with its divided GPUs and its processes; the same of nvitop and hl-smi."""
    frames = Frames()
    seen: Seen | None = None  # whose lines these are
    for line in _unwrapped(paste.lines):
        if "|" not in line:
            continue
        if _BANNER.search(line):
            frames.begin()
            seen = None
        elif found := NVIDIA_GPU.search(line):
            seen = frames.open(found[1])
            seen.values |= {"index": found[1], "name": _name(found[2]), "bus_id": found[3]}
            if found[4]:
                seen.values["ecc_uncorrected"] = found[4]
        elif seen and "memory_used_mib" not in seen.values and (found := _NVIDIA_FIGURES.search(line)):
            seen.values |= {"temperature_c": found[1], "power_w": found[2], "power_limit_w": found[3]}
            seen.values["utilization_pct"] = found[5]
            _memory(seen, found[4])
        elif seen and "mig_mode" not in seen.values and (found := _NVIDIA_MIG.search(line)):
            seen.values["mig_mode"] = found[1]
        elif found := _NVIDIA_INSTANCE.search(line):
            seen = frames.open(found[1], f"GI {found[2]}, CI {found[3]}")
            seen.instance = f"MIG device {found[4]} (GI {found[2]}, CI {found[3]})"
            seen.values["index"] = found[1]
            _memory(seen, found[5])
        elif "Processes:" in line:
            seen = None
            for gpu in frames.close():
                gpu.processes = []
        elif found := _NVIDIA_PROCESS.search(line):
            _add_process(frames, found)
        elif found := _NVIDIA_UNTOLD.search(line):
            if holder := frames.get(found[1]):
                holder.processes = None
        elif found := _NVITOP_LINE.search(line):
            whole = frames.open(found[1])
            whole.values |= {
                "index": found[1],
                "temperature_c": found[2],
                "power_w": found[3],
                "power_limit_w": found[4],
            }
            whole.values["utilization_pct"] = found[6]
            _memory(whole, found[5])
    return frames


def _add_process(frames: Frames, found: re.Match[str]) -> None:
    index, gpu_instance, compute_instance, pid, rest = found.groups()
    amount = _LAST_WORD.search(rest)
    listed = process(pid, rest[: amount.start()] if amount else rest, amount[1] if amount else "")
    holder = frames.get(index, f"GI {gpu_instance}, CI {compute_instance}") or frames.get(index)
    if holder and listed:
        holder.add(listed)


def amd(paste: Paste) -> Frames:
    """What amd-smi 7 prints without a subcommand."""
    frames = Frames()
    first: re.Match[str] | None = None
    for line in paste.lines:
        if found := AMD_GPU.search(line):
            first = found
        elif first and (found := _AMD_FIGURES.search(line)):
            seen = frames.open(found[1])
            seen.values |= {"index": found[1], "bus_id": first[1], "name": first[2].strip(), "temperature_c": first[3]}
            seen.values |= {"power_w": first[5], "power_limit_w": first[6], "utilization_pct": found[2]}
            seen.values["ecc_uncorrected"] = first[4]
            seen.values |= {"memory_used_mib": found[3] + found[5], "memory_total_mib": found[4] + found[5]}
            first = None
        elif "Processes:" in line:
            for gpu in frames.close():
                gpu.processes = []
        elif found := _AMD_PROCESS.search(line):
            holder = frames.get(found[1])
            if holder and (listed := process(found[2], found[3], found[4])):
                holder.add(listed)
    return frames


def npu(paste: Paste) -> Frames:
    """`npu-smi info`: a chip a pair of lines; its own memory where it has any (HBM), else the host's part of it."""
    frames = Frames()
    first: re.Match[str] | None = None
    for line in paste.lines:
        if found := NPU.search(line):
            first = found
        elif first and (found := _NPU_FIGURES.search(line)):
            seen = frames.open(f"{first[1]}.{found[1]}")
            used, total = (found[7], found[8]) if found[8] != "0" else (found[5], found[6])
            seen.values |= {"index": found[2] or first[1], "name": first[2].strip(), "bus_id": found[3]}
            seen.values |= {"power_w": first[4], "temperature_c": first[5], "utilization_pct": found[4]}
            seen.values |= {"memory_used_mib": used, "memory_total_mib": total}
            seen.health = None if first[3] == "OK" else "error"
            first = None
    return frames


def tpu(paste: Paste) -> Frames:
    """The table "TPU Runtime Utilization" of tpu-info."""
    frames = Frames()
    for line in paste.lines:
        if found := TPU.search(line):
            names = ("index", "memory_used_mib", "memory_total_mib", "utilization_pct")
            frames.open(found[1]).values |= dict(zip(names, found.groups(), strict=True))
    return frames


def gpustat(paste: Paste) -> Frames:
    """gpustat's line a GPU."""
    frames = Frames()
    for line in paste.lines:
        if found := GPUSTAT.search(line):
            seen = frames.open(found[1])
            seen.values |= {"index": found[1], "name": found[2].strip()}
            seen.values |= {"memory_used_mib": found[4], "memory_total_mib": found[5]}
            for name, pattern in (("temp", r"(\d+|\?+)'C"), ("utilization_pct", r"(\d+|\?+) %(?!.*%)")):
                if cell := re.search(pattern, found[3]):
                    seen.values[name] = cell[1]
            if power := re.search(r"(\d+|\?+)(?: / +(\d+|\?+))? W", found[3]):
                seen.values |= {"power_w": power[1], "power_limit_w": power[2] or ""}
            listed = [process(p[2], p[1], f"{p[3]}M", p[0]) for p in _GPUSTAT_PROCESS.findall(line, found.end())]
            if listed:
                seen.processes = [each for each in listed if each]
    return frames


def nvtop(paste: Paste) -> Frames:
    """nvtop's screen; where it is wide, GPUs stand beside each other."""
    frames = Frames()
    beside: list[Seen] = []
    for line in paste.lines:
        if devices := NVTOP.findall(line):
            beside = [frames.open(index) for index, _ in devices]
            for seen, (index, name) in zip(beside, devices, strict=True):
                seen.values |= {"index": index, "name": name}
        for path, pattern in _NVTOP_FIGURES.items() if beside else ():
            for seen, cell in zip(beside, pattern.findall(line), strict=False):
                if cell:
                    seen.values.setdefault(path, cell)
    return frames


def listed(paste: Paste) -> Frames:
    """`nvidia-smi -L`: which GPUs there are, without figures."""
    frames = Frames()
    index = ""
    for line in paste.lines:
        if found := LISTED.search(line):
            index = found[1]
            frames.open(index).values |= {"index": index, "name": found[2].strip(), "uuid": found[3]}
        elif found := _LISTED_INSTANCE.search(line):
            seen = frames.open(index, f"{found[1]} {found[2]}")
            seen.values |= {"index": index, "uuid": found[2]}
            seen.instance = found[1]
    return frames
