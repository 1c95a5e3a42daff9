"""The texts of `--set k=v` and the values they mean."""

import re
from collections.abc import Iterable, Mapping
from datetime import date, datetime, time
from typing import Any

from tui.core.profiles.checks import is_number
from tui.core.profiles.errors import SETS, ProfileError
from tui.core.sglang.flags import flag_table
from tui.core.text import one_line


def parse_sets(sets: Mapping[str, object] | Iterable[str], errors: list[ProfileError]) -> tuple[tuple[str, Any], ...]:
    """Keys and values of overrides; what is not one is added to `errors`."""
    if isinstance(sets, Mapping):
        return tuple(sets.items())
    items = []
    for text in sets:
        key, equals, value = text.partition("=")
        key = key.strip()
        if not equals or not key:
            errors.append(
                ProfileError(SETS, one_line(text) or None, "needs a value", f"write {one_line(key) or 'key'}=VALUE")
            )
            continue
        items.append((key, parse_set_value(key, value)))
    return tuple(items)


def parse_set_value(key: str, text: str) -> Any:
    """The value of `--set key=text`: TOML where it is TOML, else text. Flags that take text keep their spelling."""
    import tomli

    try:
        table = tomli.loads(f"v = {text}")
    except tomli.TOMLDecodeError:
        if key == "gpus" and re.fullmatch(r"\d+(,\d+)*", text.replace(" ", "")):
            return [int(part) for part in text.split(",")]
        return text
    value = table["v"]
    if len(table) != 1 or isinstance(value, date | datetime | time):
        return text
    if is_number(value) and (key.startswith("env.") or flag_table().type_of(key) == "text"):
        return text.strip()
    return value
