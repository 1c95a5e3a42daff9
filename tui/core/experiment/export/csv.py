"""One row a result: the flat record, what was launched, and what its configuration rests on."""

import csv
import io
import json
import shlex
from collections.abc import Iterable, Sequence

from tui.core.experiment.export.groups import Group, groups
from tui.core.masking.written import mask_text
from tui.core.model.result import Result
from tui.core.results.flat import flat
from tui.core.results.store import without_secrets
from tui.core.text import one_line

_FORMULA = ("=", "+", "-", "@")


def export(results: Sequence[Result], stored: Iterable[Result] = ()) -> bytes:
    by_result = {result.result_id: group for group in groups(results) for result in group.results}
    rows = [_row(result, by_result[result.result_id]) for result in results]
    columns = list(dict.fromkeys(key for row in rows for key in row))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(row.get(column)) for column in columns] for row in rows)
    return out.getvalue().encode()


def _row(result: Result, group: Group) -> dict[str, object]:
    server = without_secrets(result).server
    low, high = group.interval or (None, None)
    return {
        **flat(result),
        "sets": dict(server.sets),
        "gpus": "; ".join(server.gpus),
        "driver": server.driver,
        "argv": shlex.join(server.argv),
        "level": group.level if result.valid else None,
        "launches": len(group.launches),
        "per_user_tok_s_low": low,
        "per_user_tok_s_high": high,
    }


def _cell(value: object) -> object:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) if value else ""
    text = one_line(mask_text(text), 30_000)
    return f"'{text}" if text.startswith(_FORMULA) else text
