"""Reads what `nvidia-smi --query-gpu=... --format=csv` prints: saved files of any age, and the rows of a live sampler.

The format is NVIDIA's: a header row of field names with units (absent with `noheader`), then one row a GPU a tick,
cells separated by ", ", figures with their unit unless `nounits`. What else occurs in the wild is handled as a kind:
markers in brackets instead of a figure, sentences instead of rows, noise between rows, rows cut in half.
Names of the fields: `nvidia-smi --help-query-gpu`.
"""

import csv
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from tui.core.host.gpu_cells import TIMESTAMP, Cells, figure_of, is_missing
from tui.core.host.gpus import FIGURES, Gpu, GpuSample
from tui.core.text import one_line

# Field names of all eras to ours; a field that is not here is read over.
_NUMBERS = {name: figure.name for figure in FIGURES if not figure.word for name in (*figure.smi, *figure.saved)}
_NUMBERS |= {"count": "count", "memory.free": "memory_free_mib"}
_WORDS = {name: figure.name for figure in FIGURES if figure.word for name in figure.smi}
_WORDS |= {"timestamp": "timestamp", "reset_status.reset_required": "reset_required"}
_IDENTITY = ("uuid", "bus_id", "index")

_HEADER_CELL = re.compile(r"([a-z][a-z0-9_]*(?:\.[A-Za-z0-9_]+)*)(?:\s*\[([^\]]*)\])?$")
# Sentences instead of rows, most telling first.
_SENTENCES = tuple(
    (slug, re.compile(pattern, re.I))
    for slug, pattern in (
        ("driver_mismatch", r"driver/library version mismatch"),
        ("no_devices", r"^no (?:nvidia )?devices? (?:were|was)? ?found"),
        ("gpu_lost", r"\bGPU is lost\b|fallen off the bus"),
        ("device_handle", r"unable to determine the device handle"),
        (
            "bad_query",
            r"is not a valid field|is not recognized\. Please run|invalid combination of input|"
            r"^(?:error: )?option .* is not|is not a valid (?:argument|value|option)|missing (?:a )?required",
        ),
        (
            "unreadable",
            r"nvidia-smi\S*: .*(?:permission denied|input/output error|cannot execute|exec format|shared librar)|"
            r"failed to initialize nvml|nvidia-smi has failed|couldn.t (?:find|communicate)|insufficient permissions$|"
            r"driver not loaded",
        ),
        (
            "nvidia_smi_missing",
            r"nvidia-smi\S* ?(?:is |was )?(?:not found|not recognized)|(?:not found|unknown command)\S*:? \S*nvidia-smi|"
            r"no such file or directory:? \S*nvidia-smi|nvidia-smi\S*: (?:command not found|no such file|not found)|"
            r"^(?:-?\S*sh: )(?:(?:line )?\d+: )?\S*nvidia-smi: |'nvidia-smi\S*'.*(?:not found|not recognized)",
        ),
    )
)
# What a line that is one of them holds: looked for first, because a saved log has many lines and few sentences.
_TELLING = (
    *(
        "mismatch",
        "found",
        "lost",
        "fallen",
        "handle",
        "valid",
        "recognized",
        "option",
        "combination",
        "missing",
        "denied",
    ),
    *(
        "input/output",
        "cannot",
        "exec format",
        "shared librar",
        "fail",
        "couldn",
        "insufficient",
        "not loaded",
        "unknown",
    ),
    *("no such", "nvidia-smi: "),
)
_COMMAND = re.compile(r"--query-gpu[= ][\"']?([a-z][a-z_.]*(?:,[a-z_.]+)+)")  # its list of one column fits any line
_EXIT_CODES = {2: "bad_query", 6: "no_devices", 15: "gpu_lost", 18: "driver_mismatch", 127: "nvidia_smi_missing"}
_HANDLE = re.compile(r"device handle for GPU ?\S*?((?:[0-9A-Fa-f]{3,8}:)[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])")


def smi_text(data: bytes) -> str:
    """Decodes a saved output: UTF-8 with or without mark, or UTF-16 as PowerShell's `>` writes it."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", "replace")
    return data.decode("utf-8-sig", "replace")


def query_columns(query: str) -> tuple[str, ...]:
    """Field names of a `--query` text: `index,name`, also with `--query-gpu=` in front or `(nounits)` behind."""
    bare = re.sub(r"\([^)]*\)", "", query).strip().removeprefix("--query-gpu=").removeprefix("query-gpu=")
    return tuple(name.strip().strip("\"'") for name in bare.split(",") if name.strip())


def sentence_slug(line: str) -> str | None:
    """The named error that a line is, or None."""
    low = line[:500].lower()
    if not any(word in low for word in _TELLING):
        return None
    return next((slug for slug, pattern in _SENTENCES if pattern.search(line[:500])), None)


def handle_bus_id(line: str) -> str | None:
    """The bus id in "Unable to determine the device handle for GPU 0000:5E:00.0: ..."."""
    match = _HANDLE.search(line)
    return match.group(1) if match else None


def same_bus(left: str | None, right: str | None) -> bool:
    """Whether two bus ids name one slot; the domain has four digits in some drivers and eight in others."""
    return left is not None and right is not None and _bus(left) == _bus(right)


def _bus(bus_id: str) -> str:
    return bus_id.lower().lstrip("0")


def error_of(lines: Sequence[str], exit_code: int | None) -> tuple[str, str | None]:
    """Slug and words of output without a row: its first telling sentence, else its exit code, else unreadable."""
    said: dict[str | None, str] = {}
    for line in lines:
        said.setdefault(sentence_slug(line), line)
    for slug, _ in _SENTENCES:
        if slug in said:
            return slug, one_line(said[slug])
    words = next((one_line(line) for line in lines if line.strip()), None)
    return _EXIT_CODES.get(exit_code or 0, "unreadable"), words


@dataclass(frozen=True)
class SmiRow:
    """One row: a GPU at a moment."""

    gpu: Gpu
    timestamp: float | None  # seconds since the epoch, the host's clock taken as local time
    count: int | None  # GPUs in the system, where it was asked for
    memory_unsupported: bool  # its memory is "not supported", which means unified memory on a healthy GPU


class SmiColumns:
    """The columns of a query, and how to read one row of it."""

    def __init__(self, names: Sequence[str], units: Sequence[str | None] | None = None) -> None:
        self.names = tuple(names)
        self._units = tuple(units) if units else (None,) * len(self.names)
        self._fields = [_NUMBERS.get(name) or _WORDS.get(name) for name in self.names]
        self.identity = tuple(key for key in _IDENTITY if key in self._fields)
        self.has_name = "name" in self._fields
        self.has_timestamp = "timestamp" in self._fields

    @property
    def readable(self) -> bool:
        """Whether any column is one that we know."""
        return any(self._fields)

    def split(self, line: str) -> list[str]:
        """The cells of a line; surplus commas belong to the name, the only free text."""
        cells = [cell.strip() for cell in next(csv.reader([line], skipinitialspace=True), [])]
        surplus = len(cells) - len(self.names)
        if surplus > 0 and self.has_name:
            at = self._fields.index("name")
            cells[at : at + surplus + 1] = [", ".join(cells[at : at + surplus + 1])]
        return cells

    def row(self, line: str) -> SmiRow | None:
        """A whole row, or None for anything else: noise, a sentence, half a row."""
        try:
            cells = self.split(line)
        except csv.Error:
            return None
        if len(cells) != len(self.names) or (len(cells) == 1 and sentence_slug(line)):
            return None
        read = Cells()
        if not all(map(read.add, self._fields, cells, self._units)):
            return None
        gpu = read.gpu()
        count = int(read.numbers["count"]) if "count" in read.numbers else None
        return SmiRow(gpu, _seconds(read.words.get("timestamp")), count, read.memory_unsupported(gpu))


def _seconds(timestamp: str | None) -> float | None:
    match = TIMESTAMP.match(timestamp or "")
    if not match:
        return None
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    try:
        whole = time.mktime((year, month, day, hour, minute, second, 0, 0, -1))
    except (OverflowError, ValueError):
        return None
    return whole + float(f"0.{match.group(7) or 0}")


def _header(line: str) -> SmiColumns | None:
    """The columns that a header row names, None for any other line."""
    names: list[str] = []
    units: list[str | None] = []
    for cell in line.split(","):
        match = _HEADER_CELL.match(cell.strip())
        if not match:
            return None
        names.append(match.group(1))
        units.append(match.group(2))
    known = any(name in _NUMBERS or name in _WORDS for name in names)
    return SmiColumns(names, units) if known and "pid" not in names else None  # else a row is a process


def _commas(line: str, delimiter: str) -> str:
    return line if delimiter == "," else line.strip("|").replace(delimiter, ",").strip()


def _any_header(line: str) -> tuple[SmiColumns | None, str]:
    """The columns of a header row and what separates them: a spreadsheet's tabs, or the bars of Markdown, too."""
    for delimiter in (",", "\t", ";", "|"):
        if delimiter in (",", *line) and (found := _header(_commas(line, delimiter))):
            return found, delimiter
    return None, ""


def parse_smi(text: str, query: str | None = None, exit_code: int | None = None) -> tuple[GpuSample, int]:
    """Reads saved output of nvidia-smi: its last whole sample, and how many samples it holds.

    Args:
        text: what nvidia-smi (or the shell in its place) printed, decoded (`smi_text`).
        query: the columns, where there is no header row; a header row outranks it. Else a command with `--query-gpu`
            that stands in the text says them.
        exit_code: of nvidia-smi, where it is known; it decides only where the text says nothing.

    Rows that name their GPU (index, uuid or bus id) begin a new sample where one comes again. Rows with a name and a
    timestamp are told apart by the time between them. Rows with neither are samples of one GPU if they carry a
    timestamp, else GPUs. Never raises: what cannot be read is `sample.error`, and then there are 0 samples.
    """
    columns = SmiColumns(query_columns(query)) if query else None
    groups: list[list[SmiRow]] = []
    current: list[SmiRow] = []
    cut_in: set[int] = set()  # numbers of samples that lack half a row
    sentences: list[str] = []
    headers = 0

    def close() -> None:
        nonlocal current
        if current:
            groups.append(current)
        current = []

    delimiter = ","
    for line in filter(None, map(str.strip, text.lstrip("\ufeff").splitlines())):
        found, used = _any_header(line)
        line = _commas(line, used or delimiter)
        if found:
            delimiter = used
            close()
            columns, headers = found, headers + 1
            continue
        if columns is None and (command := _COMMAND.search(line)):
            columns = SmiColumns(query_columns(command[1]))
        row = columns.row(line) if columns and columns.readable else None
        if row is None:
            sentences.append(line)
            if columns and current and sentence_slug(line) is None and _is_cut(columns, line):
                cut_in.add(len(groups))
            continue
        if current and _begins(columns, current, row):
            close()
        current.append(row)
    close()
    if columns and not columns.identity and columns.has_timestamp:
        rows = [row for group in groups for row in group]
        groups = _by_time(rows) if columns.has_name else [[row] for row in rows]
        cut_in = set()
    whole = [group for number, group in enumerate(groups) if number not in cut_in] or groups
    if not whole:
        slug, detail = error_of(sentences, exit_code)
        if slug == "unreadable" and not any(map(sentence_slug, sentences)):
            detail = _why(columns, query is not None, headers, sentences)
        return GpuSample(time.time(), (), "file", slug, detail), 0
    gpus = tuple(replace(row.gpu, unified_memory=row.memory_unsupported) for row in whole[-1])
    return GpuSample(whole[-1][-1].timestamp or time.time(), gpus + lost_gpus(sentences, gpus), "file"), len(whole)


def lost_gpus(lines: Sequence[str], gpus: Sequence[Gpu]) -> tuple[Gpu, ...]:
    """Those that the driver could not open, as its sentences name them, where they are not among `gpus`."""
    lost = {
        bus_id: "lost" if sentence_slug(line) == "gpu_lost" else "error"
        for line in lines
        if (bus_id := handle_bus_id(line)) is not None
    }
    known = {_bus(gpu.bus_id) for gpu in gpus if gpu.bus_id}
    return tuple(Gpu(bus_id=bus_id, health=health) for bus_id, health in lost.items() if _bus(bus_id) not in known)


def _begins(columns: SmiColumns | None, current: list[SmiRow], row: SmiRow) -> bool:
    """Whether `row` belongs to a new sample: its GPU is in the current one already."""
    if columns is None or not columns.identity:
        return False
    for key in columns.identity:
        value = getattr(row.gpu, key)
        if value is not None:
            return any(getattr(other.gpu, key) == value for other in current)
    return False


def _is_cut(columns: SmiColumns, line: str) -> bool:
    """Whether a line looks like the beginning of a row."""
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) > len(columns.names):
        return False
    first = columns.names[0]
    if first in _NUMBERS:
        return figure_of(cells[0]) is not None or is_missing(cells[0])
    if first == "timestamp":
        return cells[0][:4].isdigit()
    return len(cells) > 1


def _by_time(rows: list[SmiRow]) -> list[list[SmiRow]]:
    """Rows of one tick are milliseconds apart, ticks much more."""
    times = [row.timestamp or 0.0 for row in rows]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    apart = min(0.25, max(0.05, max(gaps, default=0.0) / 4))
    groups: list[list[SmiRow]] = []
    for row, gap in zip(rows, [float("inf"), *gaps], strict=False):
        if gap > apart:
            groups.append([])
        groups[-1].append(row)
    return groups


def _why(columns: SmiColumns | None, asked: bool, headers: int, lines: list[str]) -> str:
    """What is wrong with text that has neither rows nor a sentence that we know."""
    if columns is not None and not columns.readable:
        return f"no known field among the columns {one_line(', '.join(columns.names), 120)}"
    if not lines:
        return "no rows" if headers else "empty"
    if columns is None:
        return f"no header row names the columns, and no --query: {one_line(lines[0], 80)}"
    cells = len(lines[0].split(","))
    if asked and not headers and cells != len(columns.names):
        return f"the rows have {cells} cells, the query names {len(columns.names)}"
    return one_line(lines[0])


def with_reserved(gpu: Gpu) -> Gpu:
    """A live row in our definition of used memory: allocated + reserved, which is total - free."""
    if gpu.memory_used_mib is None or gpu.memory_reserved_mib is None:
        return gpu
    return replace(gpu, memory_used_mib=gpu.memory_used_mib + gpu.memory_reserved_mib)


def shared_memory(total: float | None, available: float | None, per_mib: int) -> tuple[float | None, float | None]:
    """Used and total MiB of a host that shares its memory with the GPU; used is what is not available."""
    if total is None:
        return None, None
    return None if available is None else (total - available) / per_mib, total / per_mib
