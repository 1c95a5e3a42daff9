"""Benchmarks in tables: records of SGLang and vLLM a row each, and what evalscope says of a run in two columns."""

import re
from collections.abc import Callable, Sequence
from typing import Any

from tui.core.results.external.found import JSON_KEYS, Posted, number_of
from tui.core.results.external.from_json import EVALSCOPE_FIRST, evalscope, serving

PERCENTILES = "percentiles"  # the kind of what is no record of its own: it belongs to the summary before it

_BARS = str.maketrans("│┃║", "|||")
_RULE = re.compile(r"(?:^|\s)[-+|:=─━═┌┬┐├┼┤└┴┘┏┳┓┡╇┩╞╪╡]{3,}$")  # between rows
_KEY = re.compile(r"[a-z][a-z0-9_]{0,60}")
_RATES = frozenset(["output_throughput", "request_throughput", "total_throughput", "total_token_throughput"])
_FEWEST = 3  # columns of ours, below which a table is somebody else's

_LATENCIES = {"TTFT (s)": "ttft", "ITL (s)": "itl", "TPOT (s)": "tpot", "Latency (s)": "e2e"}
_POINTS = {"50%": "median", "90%": "p90", "95%": "p95", "99%": "p99"}


def table_at(lines: Sequence[str], at: int) -> tuple[list[Posted], int] | None:
    """The records of the table that begins at that line, and how many lines it takes; None where no such table does."""
    head = _cells(lines[at])
    read = _reader(head)
    if read is None:
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
    records = read(head, rows)
    return (records, end - at) if records else None


def _cells(line: str) -> list[str]:
    """None of a rule between rows."""
    line = line.translate(_BARS).strip()
    if "|" not in line or _RULE.search(line):
        return []
    return [cell.strip() for cell in line.strip("|").split("|")]


_Reader = Callable[[Sequence[str], Sequence[Sequence[str]]], list[Posted]]


def _reader(head: Sequence[str]) -> _Reader | None:
    if len(head) < 2:
        return None
    if sum(cell in JSON_KEYS for cell in head) >= _FEWEST and _RATES & set(head):
        return _grid
    if list(head[-2:]) == ["Key", "Value"] or head[-2] == EVALSCOPE_FIRST:
        return _summary
    return _percentiles if "Percentiles" in head and "TTFT (s)" in head else None


def _grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[Posted]:
    records = []
    for row in rows:
        raw: dict[str, Any] = {key: number_of(cell) for key, cell in zip(head, row, strict=True) if _KEY.fullmatch(key)}
        if all(raw.get(key) is None for key in _RATES):
            continue
        posted = serving(raw)
        for key in raw.keys() - JSON_KEYS.keys() - {"request_rate"}:
            posted.put(key, raw[key])
        records.append(posted)
    return records


def _summary(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[Posted]:
    found = evalscope({row[-2]: row[-1] for row in (head, *rows)})
    return [found] if found else []


def _percentiles(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[Posted]:
    posted = Posted("evalscope", PERCENTILES)
    for row in rows:
        of = dict(zip(head, row, strict=True))
        for label, name in _LATENCIES.items():
            number = number_of(of.get(label))
            if number is not None and of["Percentiles"] in _POINTS:
                posted.put(f"{_POINTS[of['Percentiles']]}_{name}_ms", number * 1000)
    return [posted]
