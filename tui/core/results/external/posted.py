"""A benchmark as somebody else's tool printed or wrote it, on its way into a `Result`.

Figures have the flat record's keys (`flat.py`): milliseconds, seconds, tokens a second. A figure that was `nan` is left
out and remembered in `broken`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

import tomli

from tui.core.model.result import SpecConfig
from tui.core.text import one_line

UNLIMITED = "inf"  # a request rate: everything at once

DATA: dict[str, Any] = tomli.loads(resources.files("tui.data").joinpath("benchmarks.toml").read_text(encoding="utf-8"))


def _ours(table: Mapping[str, Sequence[str]]) -> dict[str, str]:
    return {theirs: ours for ours, names in table.items() for theirs in names}


# Our name of a figure, by the name that tools give it.
JSON_KEYS = _ours(DATA["json_keys"])
TOOLS: dict[str, dict[str, Any]] = DATA["tools"]

_COUNTS = frozenset(
    """max_concurrency num_prompts successful failed input_tokens input_text_tokens input_vision_tokens output_tokens
retokenized_tokens drafts draft_tokens accepted_tokens input_len output_len batch_size steps topk
num_draft_tokens questions peak_concurrent""".split()
)
_SMALLEST, _LARGEST = 1e-12, 1e15  # what a clock or a counter can give, but 0
_NOTHING = frozenset(("", "none", "null", "not set", "n/a", "na", "-"))

Figure = float | int | str


@dataclass
class Posted:
    """One record of a file, being gathered."""

    tool: str | None = None  # sglang, vllm, tensorrt_llm and the keys of TOOLS; None: nothing says it
    kind: str = "serving"  # serving, offline, speculative, mtbench, one_batch, one_batch_server, throughput, latency
    part: bool = False  # of a record that several tables make
    repeats: bool = False  # in a table of runs, which the tool may have printed one by one before
    verdict: str | None = None  # the tool's own, of the ones that give one
    against: str | None = None  # why the tool itself says that it does not count
    figures: dict[str, Figure] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)  # keys of figures that are not numbers
    dataset: str | None = None
    seed: int | None = None
    temperature: float | None = None
    ignore_eos: bool | None = None
    model: str | None = None
    server_version: str | None = None
    server_args: dict[str, object] = field(default_factory=dict)
    spec: SpecConfig | None = None
    started_at: str | None = None
    tag: str | None = None
    token_times: tuple[float, int] | None = None  # seconds after first tokens, and tokens that came in them
    rows: list[dict[str, object]] = field(default_factory=list)

    def put(self, key: str, value: object) -> None:
        """Takes a figure as JSON or text gives it; the first of a name stays."""
        if key in self.figures or key in self.broken:
            return
        if key in ("backend", "request_rate") and isinstance(value, str):
            value = one_line(value, 60)
            if key == "backend" or value in (UNLIMITED, "trace"):
                if value.lower() not in _NOTHING:
                    self.figures[key] = value
                return
        if value is None or isinstance(value, bool | list | dict):
            return
        if isinstance(value, str) and value.strip().lower() in _NOTHING:
            return
        number = number_of(value)
        if number is not None and math.isinf(number) and key in ("request_rate", "max_concurrency"):
            if key == "request_rate":
                self.figures[key] = UNLIMITED
        elif number is None or not measurable(number):
            self.broken.add(key)
        else:
            self.figures[key] = int(number) if key in _COUNTS and number.is_integer() else number

    def number(self, key: str) -> float | None:
        value = self.figures.get(key)
        return None if isinstance(value, str) else value

    def count(self, key: str) -> int | None:
        value = self.figures.get(key)
        return value if isinstance(value, int) else None


def measurable(number: float) -> bool:
    """Whether it can have been measured: neither nan nor inf, nor so large or small that computing with it ends there."""
    return number == 0 or _SMALLEST <= abs(number) <= _LARGEST


def times(number: float, factor: float) -> float:
    """In another unit, without what binary fractions add behind the figure's own digits."""
    return float(f"{number * factor:.12g}") if factor != 1 else number


def number_of(value: object) -> float | None:
    """A figure as a number, thousands separators dropped; nan and inf stay what they are; None for anything else."""
    if isinstance(value, str):
        value = value.replace(",", "").replace("_", "")
    try:
        return float(value)  # type: ignore[arg-type]  # whatever it cannot take is a TypeError
    except (ValueError, TypeError, OverflowError):
        return None
