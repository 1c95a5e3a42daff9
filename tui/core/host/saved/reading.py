"""Reads saved or pasted output of a GPU tool: finds which form it is, wherever it stands in the text, and what it says.

`FORMS` has a recogniser and a reader for each form. Where a text holds several, the one with the most figures counts, and
the others are named. Whatever the text, nothing is raised, and time and memory are linear in its length.
"""

import html
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tui.core.host.gpu_csv import lost_gpus, parse_smi, sentence_slug
from tui.core.host.gpus import FIGURES, Gpu, GpuSample
from tui.core.host.saved import columns, grids, trees
from tui.core.host.saved.frames import Frames, Paste
from tui.core.host.saved.named import Named, named
from tui.core.text import sanitize

CSV_KIND = "nvidia-smi --query-gpu"
_LINE = 2000  # characters; no line of a table is longer
_BARS = str.maketrans("│┃║\xa0", "||| ", "\u200b\ufeff")
_BREAK = re.compile(r"<br {0,2}/?>", re.I)
_ESCAPED = re.compile(r"&(?:nbsp|lt|gt|amp|quot|#\d{1,5});")
_QUOTED = re.compile(r"^[^\S\n]{0,8}(?:>[^\S\n]?)+", re.M)
# What containers, ranks, CI, schedulers and grep put before a line; one blank behind it is theirs.
_PREFIX = re.compile(
    r"^[^\S\n]{0,8}(?:(?P<name>\[[^\[\]\n]{1,60}\]:|[\w.-]{1,60}[^\S\n]{0,8}\|(?=[^\S\n]*+\S))|"
    r"\d{4}-\d\d-\d\d[T ][\d:.]{5,20}(?:,\d{3})?(?:Z|[+-]\d\d:?\d\d)?(?=[^\S\n])|\d{1,6}:(?=[\s|+<]))[^\S\n]?",
    re.M,
)
_HOST = re.compile(r"^([\w.-]{1,60}): ", re.M)  # of pdsh and its kind
_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"')
_NUMBERED = re.compile(r"[^\S\n]{0,8}(\d{1,6})[ \t:|]")


@dataclass(frozen=True)
class Form:
    """One form of output.

    Attributes:
        kind: the command that prints it, as it is typed.
        words: without one of them in a text it cannot be this, which is told quickly.
        mark: what it is recognised by where the words are too common.
        read: its reader.
    """

    kind: str
    words: tuple[str, ...]
    mark: re.Pattern[str] | None
    read: Callable[[Paste], Frames]


# Of those that find the same figures, the first is what it is called.
FORMS = (
    Form("nvidia-smi -q -x", ("<nvidia_smi_log", "<gpu id=", "<fb_memory_usage>"), None, trees.nvidia_xml),
    Form("nvidia-smi -q", ("GPU 0",), trees.NVIDIA_GPU, trees.nvidia_text),
    Form("nvitop", ("NVITOP ",), None, grids.nvidia),
    Form("hl-smi", ("HL-SMI Version",), None, grids.nvidia),
    Form("nvidia-smi", ("|",), grids.NVIDIA_GPU, grids.nvidia),
    Form("nvidia-smi dmon", ("# ", "#gpu", "#Date"), columns.DMON, columns.dmon),
    Form("nvidia-smi pmon", ("# ", "#gpu", "#Date"), columns.PMON, columns.pmon),
    Form("nvidia-smi --query-compute-apps", ("gpu_uuid", "gpu_bus_id", "gpu_name"), columns.APPS, columns.apps),
    Form("nvtop", ("Device ",), grids.NVTOP, grids.nvtop),
    Form("gpustat", ("'C",), grids.GPUSTAT, grids.gpustat),
    Form("amd-smi", ("AMD-SMI", "GPU-Name", " W |"), grids.AMD_GPU, grids.amd),
    Form("amd-smi monitor", ("VRAM_US", "GFX_", "GFX%"), columns.AMD_MONITOR, columns.amd_monitor),
    Form("amd-smi", ("GPU: ",), trees.AMD_GPU, trees.amd_text),
    Form("rocm-smi", ("VRAM%",), columns.ROCM, columns.rocm),
    Form("rocm-smi", ("GPU[",), trees.ROCM_LINE, trees.rocm_lines),
    Form("rocm-smi --json", ('"card',), re.compile(r'"card\d{1,3}"\s*:'), trees.of_json),
    Form("gpustat --json", ('"memory.used"',), None, trees.of_json),
    Form("nvtop --snapshot", ('"device_name"',), None, trees.of_json),
    Form("eagletui gpus --json", ('"mem_used_mib"',), None, trees.of_json),
    Form("amd-smi --json", ('"gpu"', '"gpu_data"'), None, trees.of_json),
    Form("rocm-smi --csv", ("device,",), columns.CSV, columns.separated),
    Form("xpu-smi dump", ("DeviceId,",), columns.CSV, columns.separated),
    Form("amd-smi --csv", ("gpu,",), columns.CSV, columns.separated),
    Form("npu-smi info", ("Hugepages-Usage", "npu-smi"), None, grids.npu),
    Form("tpu-info", ("TPU Runtime Utilization", "Duty cycle"), None, grids.tpu),
    Form("nvidia-smi -L", ("(UUID: ",), grids.LISTED, grids.listed),
)
_READABLE = (
    "give what `nvidia-smi`, `rocm-smi` or `amd-smi` printed, in any form; --query LIST names the columns of CSV that has no "
    "header"
)
_OF_TEXT = {trees.nvidia_xml, trees.of_json}  # a document may be one line


def unpasted(text: str) -> str:
    """A text without what pasting did to it: colours, quotation, HTML, boxes, prefixes that lines share, numbers."""
    for _ in range(2):  # a page's source that was escaped again
        text = html.unescape(text) if _ESCAPED.search(text) else text
    if text.count("\\n") >= max(3, text.count("\n")):
        text = _strings(text)
    text = _BREAK.sub("\n", text.replace("\r\n", "\n").replace("\r", "\n"))
    text = _without_host(_without_numbers(_QUOTED.sub("", sanitize(text).translate(_BARS))))
    often = Counter(found["name"] for found in _PREFIX.finditer(text))
    return _PREFIX.sub(lambda found: "" if often[found["name"]] > 1 else found[0], text)


def _strings(text: str) -> str:
    """What the strings of JSON hold that have several lines, or a line each."""
    try:
        strings = [json.loads(found[0], strict=False) for found in _STRING.finditer(text) if "\\n" in found[0]]
    except ValueError:
        strings = []
    if not strings:
        return text.replace("\\n", "\n")
    return "".join(each if each.endswith("\n") else f"{each}\n" for each in strings)


def _without_host(text: str) -> str:
    """Without the name that a tool for many hosts puts before each line."""
    host, times = next(iter(Counter(_HOST.findall(text)).most_common(1)), ("", 0))
    return text.replace(f"{host}: ", "") if times > 2 and times >= 0.8 * len(text.split("\n")) else text


def _without_numbers(text: str) -> str:
    """Without the numbers of its lines, where all have one."""
    lines = [line for line in text.split("\n") if line.strip()]
    numbered = [found for line in lines if (found := _NUMBERED.match(line))]
    first = int(numbered[0][1]) if numbered else 0
    if len(lines) < 3 or [int(found[1]) for found in numbered] != list(range(first, first + len(lines))):
        return text
    return "\n".join(line[found.end() :] for line, found in zip(lines, numbered, strict=True))


def read_saved(text: str, query: str | None = None, exit_code: int | None = None) -> tuple[GpuSample, int]:
    """The last whole sample that a text holds, and how many samples it holds.

    Args:
        text: what a tool (or the shell in its place) printed, with whatever stands around it.
        query: the columns of nvidia-smi's CSV, where it has no header row.
        exit_code: of the tool, where it is known.

    Never raises: what cannot be read is `sample.error`, then there are 0 samples. `sample.kind` says which form it is.
    """
    text = unpasted(text)
    lines = [line for line in text.split("\n") if len(line) <= _LINE]
    paste, short = Paste(text, lines), "\n".join(lines)
    sample, samples = parse_smi(short, query, exit_code)
    found = [(replace(sample, kind=CSV_KIND), samples)] if sample.error is None else []
    asked: set[Callable[[Paste], Frames]] = set()
    for form in FORMS:
        whole = text if form.read in _OF_TEXT else short
        if form.read in asked or not any(word in whole for word in form.words):
            continue
        if form.mark is not None and not form.mark.search(whole):
            continue
        asked.add(form.read)
        frames = form.read(paste)
        if gpus := frames.gpus():
            found.append((GpuSample(time.time(), gpus, "file", kind=form.kind), frames.count()))
    others = named(short)
    if found:
        best, samples = _most_told(found, others, csv_is_sure=query is None or "," in query)
        return replace(best, gpus=best.gpus + lost_gpus(lines, best.gpus)), samples
    if sample.error != "unreadable" or any(map(sentence_slug, lines)):
        return sample, 0
    if not others:
        return replace(sample, instead=_READABLE), 0
    it = others[0]
    words = f"it is `{it.kind}`: {it.what}"
    return GpuSample(time.time(), (), "file", "no_figures", words, kind=it.kind, instead=it.instead), 0


def _most_told(
    found: Sequence[tuple[GpuSample, int]], others: Sequence[Named], csv_is_sure: bool
) -> tuple[GpuSample, int]:
    """The sample with the most figures; the rest, and what has none, is named in it."""
    if not csv_is_sure and len(found) > 1:  # any line is a row of one column
        found = [each for each in found if each[0].kind != CSV_KIND]
    best, samples = max(found, key=lambda each: _told(each[0].gpus))
    for other, _ in found:  # parts of one form: an overview, and the memory below it
        if other is not best and other.kind == best.kind:
            best = replace(best, gpus=_joined(best.gpus, other.gpus))
    kinds = [sample.kind or "" for sample, _ in found]
    tools = {kind.partition(" ")[0] for kind in kinds}
    also = (*kinds, *(other.kind for other in others if other.kind not in tools))
    return replace(best, also=tuple(kind for kind in dict.fromkeys(also) if kind != best.kind)), samples


def _joined(gpus: Sequence[Gpu], others: Sequence[Gpu]) -> tuple[Gpu, ...]:
    """GPUs with what only the others of the same index tell."""
    by_index: dict[int | None, Gpu] = {
        gpu.index: gpu for gpu in others if gpu.index is not None and not gpu.is_instance
    }
    joined = []
    for gpu in gpus:
        other = None if gpu.is_instance else by_index.pop(gpu.index, None)
        missing = [figure.name for figure in FIGURES if getattr(gpu, figure.name) is None]
        joined.append(replace(gpu, **{name: getattr(other, name) for name in missing}) if other else gpu)
    return (*joined, *by_index.values())


def _told(gpus: Sequence[Gpu]) -> int:
    """How many figures are reported."""
    return sum(getattr(gpu, figure.name) not in (None, False) for gpu in gpus for figure in FIGURES)
