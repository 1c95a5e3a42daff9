"""The tables of all forms that are read; in each table the first that fits reads it.

A record of one object or one line is data: `[[objects]]` and `[[lines]]` in `tui/data/benchmarks.toml`.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tui.core.results.external import evalscope, serving
from tui.core.results.external.form import ObjectForm, TableForm
from tui.core.results.external.posted import DATA, Posted, number_of
from tui.core.text import as_text

_BARS = str.maketrans("│┃║", "|||")
_RULE = re.compile(r"(?:^|\s)[-+|:=─━═┌┬┐├┼┤└┴┘┏┳┓┡╇┩╞╪╡]{3,}$")  # between rows
_SWEPT = re.compile(r"\bFinish i=\d+:\s*(.*)")  # a line of a speculation sweep
_SWEPT_ITEM = re.compile(r"(\w+)=([\d.eE+-]+|nan|None)")


def _tag(posted: Posted, raw: Mapping[str, Any]) -> None:
    posted.tag = as_text(raw.get("run_name"), 200)


def _one_batch_server(posted: Posted, raw: Mapping[str, Any]) -> None:
    _tag(posted, raw)
    if (number_of(raw.get("acc_length")) or 0) > 0:  # -1 where there is no speculation
        posted.put("accept_length", raw["acc_length"])


def _task(posted: Posted, raw: Mapping[str, Any]) -> None:
    other = raw.get("other")
    other = other if isinstance(other, dict) else {}
    posted.dataset = as_text(raw.get("task"), 200)
    posted.put("questions", other.get("num_questions", raw.get("num_requests")))
    posted.put("max_concurrency", other.get("parallel"))


_MORE = {"one_batch": _tag, "one_batch_server": _one_batch_server, "mtbench": _task}
OBJECTS = (
    *(ObjectForm(**form, more=_MORE.get(form["kind"])) for form in DATA["objects"]),
    serving.SERVING,
    evalscope.SUMMARY,
)
TABLES: tuple[TableForm, ...] = (serving.SERVING_ROWS, *evalscope.TABLES)
_LINES = [(re.compile(form["pattern"]), form) for form in DATA["lines"]]


def of_object(raw: Mapping[str, Any]) -> Posted | None:
    """The record that an object holds; None where it is none that we know."""
    form = next((form for form in OBJECTS if form.fits(raw)), None)
    return form.read(raw) if form else None


def of_line(line: str) -> Posted | None:
    """The record that a line by itself is."""
    for pattern, form in _LINES:
        if (matched := pattern.search(line)) is not None:
            posted = Posted(form["tool"], form["kind"], dataset=form.get("dataset"))
            for key, value in matched.groupdict().items():
                posted.put(key, value)
            return posted
    if (matched := _SWEPT.search(line)) is None:
        return None
    posted = Posted("sglang", "speculative")
    for key, value in _SWEPT_ITEM.findall(matched[1]):
        posted.put("step_time_ms" if key == "step_time" else key, value)
    return posted if "speed" in posted.figures or "speed" in posted.broken else None


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
