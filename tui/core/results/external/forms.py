"""The tables of all forms that are read; in each table the first that fits reads it."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tui.core.results.external import evalscope, serving, sglang_tools, vllm_tools
from tui.core.results.external.form import LineForm, ObjectForm, TableForm
from tui.core.results.external.posted import Posted

OBJECTS: tuple[ObjectForm, ...] = (*sglang_tools.OBJECTS, serving.SERVING, evalscope.SUMMARY, *vllm_tools.OBJECTS)
TABLES: tuple[TableForm, ...] = (serving.SERVING_ROWS, *evalscope.TABLES)
LINES: tuple[LineForm, ...] = (*sglang_tools.LINES, *vllm_tools.LINES)

_BARS = str.maketrans("│┃║", "|||")
_RULE = re.compile(r"(?:^|\s)[-+|:=─━═┌┬┐├┼┤└┴┘┏┳┓┡╇┩╞╪╡]{3,}$")  # between rows


def of_object(raw: Mapping[str, Any]) -> Posted | None:
    """The record that an object holds; None where it is none that we know."""
    form = next((form for form in OBJECTS if form.fits(raw)), None)
    return form.read(raw) if form else None


def of_line(line: str) -> Posted | None:
    """The record that a line by itself is."""
    for form in LINES:
        if (matched := form.pattern.search(line)) is not None:
            return form.read(matched)
    return None


def table_at(lines: Sequence[str], at: int) -> tuple[list[Posted], int] | None:
    """The records of the table that begins at that line, and how many lines it takes; None where no such table does."""
    head = _cells(lines[at])
    form = next((form for form in TABLES if form.fits(head)), None) if len(head) > 1 else None
    if form is None:
        return None
    rows: list[list[str]] = []
    end = at + 1
    while end < len(lines):
        cells = _cells(lines[end])
        if len(cells) == len(head):
            rows.append(cells)
        elif _RULE.search(lines[end]) is None:
            break
        end += 1
    records = form.read(head, rows)
    return (records, end - at) if records else None


def _cells(line: str) -> list[str]:
    """None of a rule between rows."""
    line = line.translate(_BARS).strip()
    if "|" not in line or _RULE.search(line):
        return []
    return [cell.strip() for cell in line.strip("|").split("|")]
