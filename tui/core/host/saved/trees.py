"""Nested output: `nvidia-smi -q` as text and as XML, amd-smi's text, and JSON of any tool.

All three become the same: a path, as `frames.path_of` writes its parts, and a value. The XML is read tag by tag: no
document type, no entity but the five of XML, and what was cut off at either end is no reason to read nothing.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from tui.core.host.saved.frames import KNOWN, Frames, Paste, Seen, path_of, process

NVIDIA_GPU = re.compile(r"(?<!\S)GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])[^\S\n]*+$", re.M)
AMD_GPU = re.compile(r"(?<!\S)GPU: {1,4}(\d{1,3})[^\S\n]*+$", re.M)
ROCM_LINE = re.compile(r"\bGPU\[(\d{1,3})\]\s*+: ([^:\n]{2,80}):\s*+([^\n]*)")

_ATTACHED = re.compile(r"Attached GPUs\s*+: {1,4}(\d{1,3})\b|<attached_gpus>(\d{1,3})<")
_TAG = re.compile(r"<(/?)([a-z]\w{0,60})((?:\s[^<>]{0,200})?)>([^<]{0,500})")
_BUS_ID = re.compile(r'id="([0-9A-Fa-f:.]{7,20})"')
_ENTITIES = {"&lt;": "<", "&gt;": ">", "&quot;": '"', "&apos;": "'", "&amp;": "&"}
_ENTITY = re.compile("|".join(_ENTITIES))
_DEPTH = 24  # sections in each other; no tool has more than eight
_TRIES = 200  # places where a document of JSON may begin

_THROTTLING = re.compile(
    r"clocks_(?:event|throttle)_reasons\.(?:hw_slowdown\.)?(?:clocks_(?:event|throttle)_reason_)?(\w+)$"
)
_REASONS = {
    "applications_clocks_setting": "application clocks",
    "sw_power_cap": "power cap",
    "hw_slowdown": "hardware slowdown",
    "sync_boost": "sync boost",
    "sw_thermal_slowdown": "thermal, by software",
    "hw_thermal_slowdown": "thermal, by hardware",
    "hw_power_brake_slowdown": "power brake",
    "display_clock_setting": "display clocks",
    "display_clocks_setting": "display clocks",
}
# Errors since the driver was loaded, by the kind of memory: they are added up.
_ECC = re.compile(
    r"ecc_errors\.volatile\.(?:(?:sram|dram)_(?P<un>un)?correctable\w*|(?P<bits>single|double)_bit\.total)$"
)
_INSTANCE = re.compile(r"mig_devices?(?:\.mig_device)?(?:\.(.+))?$")
# What a path below a list of processes says: a new one begins where its PID, or its section, does.
_PROCESS = re.compile(r"process(?:es|_info|_list)(?:\.(?:process_info|process_id))?(?:\.(.+))?$")
_PROCESS_FIELDS = {
    "process_name": "name",
    "name": "name",
    "used_memory": "memory",
    "used_gpu_memory": "memory",
    "memory_usage.vram_mem": "memory",
    "vram_mem": "memory",
    "gpu_memory_usage": "memory",
    "mem_used_mib": "memory",
    "command": "name",
    "username": "user",
    "user": "user",
    "pid": "pid",
}


class _Tree:
    """Takes the paths of one GPU after another."""

    def __init__(self) -> None:
        self.frames = Frames()
        self._gpu: Seen | None = None
        self._instance: Seen | None = None
        self._key = ""
        self._process: dict[str, str] = {}

    def gpu(self, key: str, **values: str) -> None:
        """A GPU begins."""
        self.end()
        self._gpu = self.frames.open(key)
        self._key = key
        self._gpu.values |= values

    def end(self) -> None:
        """The GPU has been told."""
        self._end_process()
        self._gpu = self._instance = None

    def node(self, path: str, value: str) -> None:
        """A section (its value is empty) or a figure of the GPU."""
        if self._gpu is None:
            return
        if found := _INSTANCE.match(path):
            self._of_instance(path, found[1], value)
        elif found := _PROCESS.match(path):
            self._of_process(path, found[1], value)
        elif found := _THROTTLING.match(path):
            self._gpu.throttle = self._gpu.throttle or []
            word = _REASONS.get(found[1])
            if value == "Active" and word and word not in self._gpu.throttle:
                self._gpu.throttle.append(word)
        elif (found := _ECC.match(path)) and value.isdecimal() and len(value) < 10:
            name = "ecc_uncorrected" if found["un"] or found["bits"] == "double" else "ecc_corrected"
            self._gpu.values[name] = str(int(self._gpu.values.get(name, 0)) + int(value))
        elif path in KNOWN:
            self._gpu.values.setdefault(path, value)

    def _of_instance(self, path: str, rest: str | None, value: str) -> None:
        if rest is None:
            if path.endswith("mig_device"):
                self._instance = Seen(values={"index": self._gpu.values.get("index", "")} if self._gpu else {})
        elif self._instance is not None:
            self._instance.values.setdefault(rest.replace("index", "device"), value)  # its index is its GPU's
            if rest == "compute_instance_id":
                ids = [self._instance.values.get(name, "") for name in ("device", "gpu_instance_id", rest)]
                opened = self.frames.at(self._key, "MIG device {} (GI {}, CI {})".format(*ids))
                opened.values, self._instance = self._instance.values, opened

    def _of_process(self, path: str, rest: str | None, value: str) -> None:
        assert self._gpu is not None
        if value == "N/A" and rest is None:
            return
        self._gpu.processes = self._gpu.processes if self._gpu.processes is not None else []
        if rest is None or (rest == "pid" and "pid" in self._process):
            self._end_process()
        if path.endswith("process_id"):
            self._process["pid"] = value
        elif rest in _PROCESS_FIELDS:
            self._process.setdefault(_PROCESS_FIELDS[rest], value)

    def _end_process(self) -> None:
        if self._gpu is not None and self._gpu.processes is not None and self._process:
            told = self._process
            listed = process(told.get("pid", ""), told.get("name", ""), told.get("memory", ""), told.get("user"))
            self._gpu.processes += [listed] if listed else []
        self._process = {}


def _numbered(frames: Frames, attached: str | None) -> Frames:
    """-q names no index; where it told all GPUs, they stand in the order of their indexes."""
    for sample in frames.samples:
        gpus = [key for key, instance in sample if not instance]
        if attached and len(gpus) == int(attached):
            for (key, _), seen in sample.items():
                seen.values["index"] = str(gpus.index(key))
    return frames


def _attached(text: str) -> str | None:
    found = _ATTACHED.search(text)
    return (found[1] or found[2]) if found else None


def _outline(lines: Sequence[str], head: re.Pattern[str], tree: _Tree, name: str) -> None:
    """Sections by indentation; a quotation's mark in front of each line is cut off where that of the head ends."""
    sections: list[tuple[int, str]] = []
    left, flat, inside = 0, False, False
    for at, line in enumerate(lines):
        if found := head.search(line):
            left, sections, inside = found.start(), [], True
            following = next((other for other in lines[at + 1 : at + 4] if other[left:].strip()), "")
            flat = not following[left:].startswith((" ", "\t"))
            tree.gpu(found[1], **{name: found[1]})
            continue
        line = line[left:].expandtabs()
        text = line.strip()
        if not inside or not text or len(text) > 300:
            continue
        indent = len(line) - len(line.lstrip())
        if not indent and not flat:
            tree.end()
            inside = False
            continue
        label, colon, value = text.partition(":")
        while sections and (sections[-1][0] >= indent if not flat else not colon):
            sections.pop()
        path = ".".join([*(section for _, section in sections), path_of(label)])
        tree.node(path, value.strip())
        if (not flat or not colon) and len(sections) < _DEPTH:
            sections.append((indent, path_of(label)))
    tree.end()


def nvidia_text(paste: Paste) -> Frames:
    """`nvidia-smi -q`, in full or some sections of it."""
    tree = _Tree()
    _outline(paste.lines, NVIDIA_GPU, tree, "bus_id")
    return _numbered(tree.frames, _attached(paste.text))


def amd_text(paste: Paste) -> Frames:
    """amd-smi's text: `metric`, `static`, `process`, `list`."""
    tree = _Tree()
    _outline(paste.lines, AMD_GPU, tree, "index")
    return tree.frames


def nvidia_xml(paste: Paste) -> Frames:
    """`nvidia-smi -q -x`."""
    tree = _Tree()
    open_tags: list[str] = []
    for closing, tag, attributes, value in _TAG.findall(paste.text):
        if closing:
            while tag in open_tags and open_tags.pop() != tag:
                pass
            if tag == "gpu":
                tree.end()
            continue
        if tag == "gpu":
            bus_id = _BUS_ID.search(attributes)
            open_tags = []
            if bus_id:
                tree.gpu(bus_id[1], bus_id=bus_id[1])
            continue
        if tag == "nvidia_smi_log":
            open_tags = []
            continue
        value = _ENTITY.sub(lambda found: _ENTITIES[found[0]], value.strip())
        tree.node(".".join([*open_tags, tag]), value)
        if not attributes.endswith("/") and len(open_tags) < _DEPTH:
            open_tags.append(tag)
    tree.end()
    return _numbered(tree.frames, _attached(paste.text))


def rocm_lines(paste: Paste) -> Frames:
    """rocm-smi's "GPU[0] : what: figure"."""
    frames = Frames()
    for index, label, value in ROCM_LINE.findall(paste.text):
        path = path_of(label)
        if path in KNOWN:
            clock = re.search(r"\((\d{1,5}Mhz)\)", value)  # "1: (131Mhz)"
            frames.put(index, path, clock[1] if clock else value.strip())
            frames.at(index).values["index"] = index
    return frames


def documents(text: str) -> Iterator[Any]:
    """The documents of JSON in a text, which may stand in the middle of words."""
    decoder = json.JSONDecoder()
    at, tries = 0, 0
    starts = re.compile(r"^[^\S\n]*([\[{])", re.M)
    while (found := starts.search(text, at)) and tries < _TRIES:
        tries += 1
        try:
            document, at = decoder.raw_decode(text, found.start(1))
            yield document
        except (ValueError, RecursionError):
            at = found.end()


def of_json(paste: Paste) -> Frames:
    """JSON of rocm-smi, amd-smi, gpustat, nvtop and of ours: whatever in it names GPUs with figures that we know."""
    tree = _Tree()
    for document in documents(paste.text):
        tree.frames.begin()
        _walk(document, tree, 0)
    tree.end()
    return tree.frames


def _walk(value: Any, tree: _Tree, depth: int, card: str | None = None) -> None:
    if depth > _DEPTH:
        return
    if isinstance(value, list):
        for at, part in enumerate(value):
            _walk(part, tree, depth + 1, str(at) if isinstance(part, dict) else None)
    elif isinstance(value, dict):
        nodes = list(_nodes(value, ()))
        if any(path in KNOWN and path not in ("index", "name", "power") for path, _ in nodes) and (
            card is not None or "gpu" in value or "index" in value
        ):
            index = next((str(value[key]) for key in ("gpu", "index") if isinstance(value.get(key), int)), card or "")
            tree.gpu(index, index=index)
            for path, figure in nodes:
                tree.node(path, figure)
            tree.end()
            return
        for key, part in value.items():
            found = re.fullmatch(r"card(\d{1,3})", str(key))
            _walk(part, tree, depth + 1, found[1] if found else None)


def _nodes(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """The paths of a GPU's object; {"value": 3, "unit": "MB"} is "3 MB"."""
    if len(path) > _DEPTH:
        return
    if isinstance(value, dict):
        if value.keys() == {"value", "unit"}:
            yield ".".join(path), f"{value['value']} {value['unit']}"
            return
        if path:
            yield ".".join(path), ""
        for key, part in value.items():
            yield from _nodes(part, (*path, path_of(str(key))))
    elif isinstance(value, list):
        for part in value:
            yield from _nodes(part, path)
    elif value is not None:
        yield ".".join(path), str(value).strip().strip("()")
