"""evalscope's summary of a run, as JSON or in two columns, and the table of its percentiles."""

import re
from collections.abc import Mapping
from typing import Any

from tui.core.results.external.form import Head, ObjectForm, Rows, TableForm
from tui.core.results.external.posted import EVALSCOPE, UNLIMITED, Posted, number_of

PERCENTILES = "percentiles"  # the kind of what is no record of its own: it belongs to the summary before it

_FIRST, _SUCCEEDED = "Time taken for tests (s)", "Succeed requests"
_LATENCIES = {"TTFT (s)": "ttft", "ITL (s)": "itl", "TPOT (s)": "tpot", "Latency (s)": "e2e"}
_POINTS = {"50%": "median", "90%": "p90", "95%": "p95", "99%": "p99"}


def _summary(posted: Posted, raw: Mapping[str, Any]) -> None:
    for label, value in raw.items():
        number = number_of(value)
        if label == "Request rate (req/s)":
            posted.put("request_rate", UNLIMITED if number == -1 else value)
        elif number is not None:  # else the path of its database, and the like
            key = EVALSCOPE.get(label, re.sub(r"\W+", "_", label.lower()).strip("_")[:60])
            posted.put(key, number * 1000 if key.endswith("_ms") and label in EVALSCOPE else number)


SUMMARY = ObjectForm("evalscope", "serving", ([_FIRST, _SUCCEEDED],), more=_summary)


def _read_summary(head: Head, rows: Rows) -> list[Posted]:
    raw = {row[-2]: row[-1] for row in (head, *rows)}
    return [SUMMARY.read(raw)] if SUMMARY.fits(raw) else []


def _read_percentiles(head: Head, rows: Rows) -> list[Posted]:
    posted = Posted("evalscope", PERCENTILES)
    for row in rows:
        cells = dict(zip(head, row, strict=True))
        for label, name in _LATENCIES.items():
            number = number_of(cells.get(label))
            if number is not None and cells["Percentiles"] in _POINTS:
                posted.put(f"{_POINTS[cells['Percentiles']]}_{name}_ms", number * 1000)
    return [posted]


TABLES = (
    TableForm(lambda head: list(head[-2:]) == ["Key", "Value"] or head[-2] == _FIRST, _read_summary),
    TableForm(lambda head: "Percentiles" in head and "TTFT (s)" in head, _read_percentiles),
)
