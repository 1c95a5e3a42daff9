"""The tables of all forms that are read; in each table the first that fits reads it.

Most of them are data: `[[objects]]` and `[[tables]]` in `tui/data/benchmarks.toml`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tui.core.results.external import labelled, serving, tables
from tui.core.results.external.form import ObjectForm, TableReader
from tui.core.results.external.posted import DATA, Posted, number_of
from tui.core.results.external.shapes import TableForm
from tui.core.results.external.tables import Table
from tui.core.text import as_text


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
    posted.kind = as_text(raw.get("task"), 40) or posted.kind
    posted.put("questions", other.get("num_questions", raw.get("num_requests")))
    posted.put("max_concurrency", other.get("parallel"))


_MORE = {"one_batch": _tag, "offline": _tag, "one_batch_server": _one_batch_server, "mtbench": _task}
OBJECTS = (*(ObjectForm(**form, more=_MORE.get(form["kind"])) for form in DATA["objects"]), serving.SERVING)
TABLES: tuple[TableReader, ...] = (
    serving.ServingRows(),
    *(TableForm(**form) for form in DATA["tables"]),
    labelled.Rows(),
    labelled.Columns(),
)


def of_object(raw: Mapping[str, Any]) -> list[Posted]:
    """The records that an object holds; none where it is none that we know."""
    form = next((form for form in OBJECTS if form.fits(raw)), None)
    return form.read(raw) if form else []


def table_at(lines: Sequence[str], at: int) -> tuple[list[Posted], Table] | None:
    """The table that begins at that line and its records; None where none does whose head somebody knows."""
    table = tables.table_at(lines, at, lambda head, drawn: any(form.fits(head, drawn) for form in TABLES))
    return None if table is None else (of_table(table), table)


def of_table(table: Table) -> list[Posted]:
    """Its records; none where its rows are not what its head promised."""
    for form in TABLES:
        if form.fits(table.head, table.drawn) and (records := form.read(table)):
            for posted in records:
                posted.repeats = True
            return records
    return []


def of_rows(items: Sequence[Any]) -> list[Posted]:
    """The records of a list of flat objects with the same keys: what was a table before it was written as JSON."""
    if not items or not all(isinstance(item, dict) for item in items):
        return []
    head = list(items[0])
    rows = [[_text(item.get(key)) for key in head] for item in items if list(item) == head]
    if len(rows) != len(items) or not any(isinstance(form, TableForm) and form.fits(head, True) for form in TABLES):
        return []
    return of_table(Table(head, rows, 0))


def _text(value: object) -> str:
    return str(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else ""
