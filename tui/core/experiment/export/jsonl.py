"""Whole records, one a line: `eagletui results import` reads them."""

import json
from collections.abc import Iterable

from tui.core.model.result import Result
from tui.core.records import to_json
from tui.core.results.store import without_secrets


def export(results: Iterable[Result], stored: Iterable[Result] = ()) -> bytes:
    lines = [json.dumps(to_json(without_secrets(result)), ensure_ascii=False) + "\n" for result in results]
    return "".join(lines).encode("utf-8", "backslashreplace")
