"""One table on top of another: tables merge, everything else is replaced."""

from collections.abc import Mapping
from typing import Any

from tui.core.sglang.flags import flag_table


def merge_value(old: Any, new: Any) -> Any:
    """A value on top of another."""
    if isinstance(old, dict) and isinstance(new, dict):
        return {**old, **{key: merge_value(old.get(key), value) for key, value in new.items()}}
    return new


def merge_flags(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Flags on top of others: the names of one flag are one key, in its first place and by its later spelling."""
    canonical = flag_table().canonical
    spelled = {canonical(key): key for key in over}
    merged: dict[str, Any] = merge_value(
        {spelled.get(canonical(key), key): value for key, value in base.items()}, dict(over)
    )
    return merged
