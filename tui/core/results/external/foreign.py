"""Benchmarks that are not read: recognised by a line or by the keys of an object that only they print, refused by name.

The forms are data: `[[foreign]]` in `tui/data/benchmarks.toml`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tui.core.results.external.form import has
from tui.core.results.external.posted import DATA
from tui.core.results.external.tables import BARS

_LINE_LIMIT = 2000  # characters of a line that are looked at


@dataclass(frozen=True)
class Foreign:
    """One form of one tool; `tui/data/benchmarks.toml` explains the fields."""

    what: str  # as it is named to a reader
    examples: Sequence[str]
    lines: Mapping[str, str] = field(default_factory=dict)
    objects: Sequence[Sequence[str]] = ()
    advice: str = "{other}"
    tool: str | None = None  # of one that is read


FOREIGN = tuple(Foreign(**form) for form in DATA["foreign"])
_LINES = [(word, re.compile(pattern), form) for form in FOREIGN for word, pattern in form.lines.items()]


def of_line(line: str) -> Foreign | None:
    """The tool that alone prints such a line."""
    line = line[:_LINE_LIMIT]
    if not line.isascii():
        line = line.translate(BARS)
    return next((form for word, pattern, form in _LINES if word in line and pattern.search(line)), None)


def of_object(raw: Mapping[str, Any]) -> Foreign | None:
    """The tool that alone writes such a JSON object."""
    for form in FOREIGN:
        if any(all(has(raw, path) for path in paths) for paths in form.objects):
            return form
    return None
