"""Labels by which tools name their figures: which statistic of what, in which unit.

"P99 TTFT (ms)", "Avg TTFT(s)", "results_ttft_s_quantiles_p99", "50.00 percentile first token latency (ns)" and
"Request Latency Sec Mdn" are all read by one grammar; what the name stands for is data (`benchmarks.toml`).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from tui.core.results.external.posted import DATA

Names = Mapping[str, Any]  # a name, lower case and without its unit, to our figure, or to [our figure, factor]

_POINTS: dict[str, str] = {theirs: ours for ours, words in DATA["points"].items() for theirs in words}
_PERCENTILE = re.compile(r"p?(\d{1,3}(?:\.\d+)?)(%|th)?")
MILLISECONDS = {
    "ns": 1e-6,
    "us": 1e-3,
    "µs": 1e-3,
    "ms": 1.0,
    "msec": 1.0,
    "s": 1000.0,
    "sec": 1000.0,
    "seconds": 1000.0,
}
_RATE = re.compile(r"\bper (?:(s)(?:ec|econd)?|(min)(?:ute)?)\b")
_BRACKETS = re.compile(r"\s*[(\[]([^()\[\]]*)[)\]]\s*")
_PERCENT = re.compile(r"(?<=\d)(?:%|th)? percentile\b")
_LONGEST = 200  # characters of a label


@dataclass(frozen=True)
class Label:
    """A label taken apart."""

    name: str  # lower case; "" where the label is a statistic alone
    point: str = ""  # mean, median, p90, max, …
    unit: str = ""
    whole: str = field(default="", compare=False)  # the name, with a statistic that may be a part of it

    @property
    def own(self) -> str:
        """The key of a figure that has no name of ours."""
        words = re.sub(r"\W+", "_", f"{self.name} {self.unit}".replace("%", "pct")).strip("_")
        return words[:60]


def point_of(word: str) -> str:
    """A statistic by any of its names: "avg" -> "mean", "p50" and "50%" -> "median"; "" for another word."""
    word = word.strip().lower()
    if (point := _POINTS.get(word)) is not None:
        return point
    matched = _PERCENTILE.fullmatch(word)
    if matched is None or not (word.startswith("p") or matched[2]):
        return ""
    value = float(matched[1])
    if len(matched[1]) == 3 and value != 100:  # p999, p001
        value /= 10
    return "median" if value == 50 else f"p{value:g}"


@lru_cache(4096)
def _label(text: str) -> Label:
    text = _RATE.sub(r"/\1\2", text.lower().replace("*", "").replace("`", "").replace("_", " "))
    unit, inside = "", ""
    for word in _BRACKETS.findall(text):
        unit, inside = (word, inside) if word in MILLISECONDS or "/" in word or not inside else (unit, word)
        inside = inside or word
    bare = _BRACKETS.sub(" ", text)
    words = _PERCENT.sub("%", re.sub(r"[-\s]+", " ", bare)).strip(" .:").split()
    whole = " ".join(words)
    point = ""
    for at in (0, -1):
        if words and not point and (point := point_of(words[at].rstrip("."))):
            del words[at]
    words = [word for word in words if word not in ("percentiles", "quantiles", "results")]
    if not unit and len(words) > 1 and words[-1] in MILLISECONDS:
        unit = words.pop()
    if not words and inside not in ("", unit):  # [TPOT] AVERAGE
        words = inside.split()
    elif not words and unit not in MILLISECONDS:
        words, unit = unit.split(), ""
    return Label(" ".join(words).strip(" .:"), point, unit, whole)


def label_of(text: str) -> Label:
    """Takes a label apart; text of a file is cut first, and what was seen is remembered."""
    return _label(text[:_LONGEST])


def figure_of(
    label: Label, names: Names, point: str = "", *, own: bool = True, shared: Names | None = None
) -> tuple[str, float] | None:
    """Our key of a figure and the factor to our unit.

    Args:
        names: what the tool calls its figures.
        point: the statistic, where a column says it.
        own: whether a figure without a name of ours keeps its own.
        shared: what every tool means, `SHARED` where it is not given.
    """
    keys = (f"{label.whole} {label.unit}", label.whole, f"{label.name} {label.unit}", label.name)
    tables = (names, SHARED if shared is None else shared)
    key, ours = next(((key, table[key]) for table in tables for key in keys if key in table), ("", None))
    point = point or ("" if label.point and key in keys[:2] else label.point)
    if ours == "":  # no figure
        return None
    if ours is None:
        key = f"{point}_{label.own}" if point else label.own
        return (key, 1.0) if own and label.own else None
    name, factor = (ours, None) if isinstance(ours, str) else ours
    if name.endswith("_ms"):
        return f"{point or 'mean'}_{name}", factor or MILLISECONDS.get(label.unit, 1.0)
    if name == "duration_s":
        return name, factor or MILLISECONDS.get(label.unit, 1000.0) / 1000
    return (name if point in ("", "mean") else f"{point}_{name}"), factor or 1.0


def _anywhere() -> dict[str, str]:
    read = [(label_of(theirs), ours) for ours, labels in DATA["labels"].items() for theirs in labels]
    return {f"{label.whole} {label.unit}".strip(): ours for label, ours in read}


_NAMES = {theirs: ours for ours, words in DATA["names"].items() for theirs in words}
LATENCIES: Names = {
    name: ours for name, ours in _NAMES.items() if ours.endswith("_ms") and name not in ("latency", "lat")
}
# What may stand in any line of a log, and what a table or a tool's own block says.
ANYWHERE: Names = {**_anywhere(), **LATENCIES}
SHARED: Names = {**ANYWHERE, **_NAMES}
