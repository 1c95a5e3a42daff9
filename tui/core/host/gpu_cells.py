"""What one cell of a GPU figure says, whichever tool printed it: a figure with its unit, a word, "not reported", an illness.

Each tool has its markers for a figure that it cannot give: `[N/A]`, `Not Supported`, `ERR!`, `-`. They are missing, never 0.
"""

import re
from typing import Any

from tui.core.host.gpus import FIGURES, Gpu
from tui.core.text import one_line

_WORDS = {figure.name for figure in FIGURES if figure.word} | {
    "timestamp",
    "reset_required",
    "retirement_pending",
    "remap_failed",
}
_NOT_VITAL = {figure.name for figure in FIGURES if not figure.vital}

_FIGURE = re.compile(r"([-+]?[0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([A-Za-z%°/']{0,5})$")
_MARKER = re.compile(
    r"\[.*\]|\(.*\)|N/?A|ERR!?|ERROR|Not Supported|Unsupported|Unknown Error|GPU is lost|GPU requires reset|None|-|\?+",
    re.I,
)
TIMESTAMP = re.compile(r"([0-9]{4})/([0-9]{2})/([0-9]{2}) ([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9}))?$")
_BUS_ID = re.compile(r"(?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]$")
_SHAPES = {"timestamp": TIMESTAMP, "bus_id": _BUS_ID}
# KB and MB are what drivers count in powers of 1024.
_IN_MIB = {"B": 1 / (1 << 20)} | {
    prefix + rest: factor
    for prefix, factor in (("K", 1 / 1024), ("M", 1.0), ("G", 1024.0))
    for rest in ("B", "I", "IB")
}

# Words that say "yes": memory that failed is left out at the next reset.
_ILL = {"reset_required": "requires_reset", "retirement_pending": "requires_reset", "remap_failed": "error"}
# Bits of the mask of active clock event reasons (nvml.h); bit 0, idle, is no throttling and is left out.
_THROTTLE = {
    0x2: "application clocks",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal, by software",
    0x40: "thermal, by hardware",
    0x80: "power brake",
    0x100: "display clocks",
}


def throttle_words(mask: int) -> tuple[str, ...]:
    """The active reasons of NVML's bit mask as words; a bit of a newer driver as its number."""
    unknown = mask & ~sum(_THROTTLE) & ~1
    words = [word for bit, word in _THROTTLE.items() if mask & bit]
    return (*words, f"reason {unknown:#x}") if unknown else tuple(words)


def health_word(marker: str) -> str | None:
    """The health that a marker such as `[GPU requires reset]` or `ERR!` tells, None for a plain "not reported"."""
    low = marker.lower()
    if "reset" in low:
        return "requires_reset"
    if "lost" in low or "fallen off" in low:
        return "lost"
    return "error" if re.search(r"\berr|error", low) else None


def is_missing(cell: str) -> bool:
    """Whether a cell says that there is no figure."""
    return not cell or _MARKER.fullmatch(cell) is not None


def figure_of(cell: str) -> tuple[float, str] | None:
    """A figure and its unit, None for anything else."""
    match = _FIGURE.match(cell)
    return (float(match[1]), match[2]) if match else None


def in_mib(cell: str, unit: str | None = None) -> float | None:
    """An amount of memory in MiB; `unit` where the cell has none."""
    found = figure_of(cell)
    if found is None:
        return None
    return found[0] * _IN_MIB.get((found[1] or unit or "MiB").upper().removesuffix("/S"), 1.0)


class Cells:
    """The cells of one GPU, read one after another."""

    def __init__(self) -> None:
        self.numbers: dict[str, float] = {}
        self.words: dict[str, str] = {}
        self.health: set[str] = set()
        self._unsupported = False

    def add(self, field: str | None, cell: str, unit: str | None = None) -> bool:
        """Reads a cell of a field of `Gpu`, None for one that we don't show; False where it is not what belongs there."""
        if is_missing(cell):
            word = health_word(cell)
            # A fan or an encoder that errs says nothing about the GPU; a reset or a loss does, wherever it stands.
            if word and (word != "error" or (field and field not in _NOT_VITAL)):
                self.health.add(word)
            if field == "memory_total_mib" and re.search("N/?A|not supported", cell, re.I):
                self._unsupported = True
        elif field in _WORDS:
            if field in _SHAPES and not _SHAPES[field].match(cell):
                return False
            self.words.setdefault(field, cell)
        elif field:
            found = figure_of(cell)
            if found is None:
                return False
            value = in_mib(cell, unit) if field.endswith(("_mib", "_mib_s")) else found[0]
            self.numbers.setdefault(field, value or 0.0)
        return True

    def gpu(self) -> Gpu:
        """The GPU whose cells these are."""
        for word, health in _ILL.items():
            if self.words.get(word, "").lower() == "yes":
                self.health.add(health)
        if self.numbers.get("ecc_uncorrected"):
            self.health.add("memory_errors")
        figures: dict[str, Any] = {
            figure.name: int(self.numbers[figure.name]) if figure.whole else self.numbers[figure.name]
            for figure in FIGURES
            if figure.name in self.numbers
        }
        figures |= {name: one_line(self.words[name], 100) for name in ("uuid", "name", "bus_id") if name in self.words}
        if "memory_used_mib" not in figures and {"memory_total_mib", "memory_free_mib"} <= self.numbers.keys():
            figures["memory_used_mib"] = self.numbers["memory_total_mib"] - self.numbers["memory_free_mib"]
        mask = self.words.get("throttle_reasons", "")
        if re.fullmatch("0x[0-9A-Fa-f]{1,16}", mask):
            figures["throttle_reasons"] = throttle_words(int(mask, 16))
        mig = {"enabled": True, "disabled": False}.get(self.words.get("mig_mode", "").lower())
        worst = next(
            (word for word in ("lost", "requires_reset", "error", "memory_errors") if word in self.health), None
        )
        return Gpu(**figures, mig_mode=mig, health=worst)

    def memory_unsupported(self, gpu: Gpu) -> bool:
        """Whether its memory is "not supported", which means unified memory on a healthy GPU that is not divided."""
        return self._unsupported and not gpu.mig_mode and gpu.health is None
