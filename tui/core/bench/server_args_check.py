"""What a server was asked to be against what it says it is: no baseline that runs something else goes unnoticed.

SGLang resolves its flags: it renames, converts and overrides them. What it is known to override by itself
(`adjusted` in `tui/data/flags.toml`) is reported, every other difference means another server than the one that was meant.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tui.core.sglang.flags import FlagTable, flag_table, normalise
from tui.core.text import one_line, read_json

_SPECULATION = "speculative-algorithm"
_SAME = {"nextn": "eagle", "null": "none", "nsa": "dsa", "compressed": "dsv4", "tokenspeed_mla": "cutedsl_mla"}
_UNIT = {"k": 1000, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


@dataclass(frozen=True)
class Difference:
    """A flag whose resolved value is not the one that was given."""

    flag: str  # no dashes
    asked: object  # None: it was not given
    resolved: object
    adjusted: bool  # SGLang does so by itself

    def __str__(self) -> str:
        return f"{self.flag} is {_shown(self.resolved)}, asked for {_shown(self.asked)}"


def asked_flags(argv: Sequence[str]) -> dict[str, object]:
    """The flags of an SGLang command line by their first names: True for a bare one, texts, or a list of texts."""
    table = flag_table()
    found: dict[str, object] = {}
    words = list(argv)
    for at, word in enumerate(words):
        if not word.startswith("--") or len(word) < 4:
            continue
        name, equals, value = word[2:].partition("=")
        values = [value] if equals else []
        for following in words[at + 1 :] if not equals else ():
            if following.startswith("--"):
                break
            values.append(following)
        name = normalise(name)
        negated = name.startswith("no-") and table.type_of(name[3:]) == "switch"
        if table.type_of(name) == "switch":
            values = []
        found[table.canonical(name[3:] if negated else name)] = (
            not negated if not values else values[0] if len(values) == 1 else values
        )
    return found


def differences(asked: Mapping[str, object], resolved: Mapping[str, object]) -> tuple[Difference, ...]:
    """Where a server's resolved arguments (`/server_info`) differ from the flags it was given.

    Speculative decoding counts even where nobody asked for it.
    """
    table = flag_table()
    found = []
    for flag, value in asked.items():
        if flag in table.secret or flag == "config":
            continue
        known, now = _resolved(table, flag, resolved)
        in_cache = flag.endswith("path") and str(value).replace("/", "--") in str(now)
        if known and not in_cache and not _same(value, now):
            found.append(Difference(flag, value, now, flag in table.adjusted))
    algorithm = resolved.get("speculative_algorithm")
    if _SPECULATION not in asked and algorithm not in (None, "", "NONE"):
        found.append(Difference(_SPECULATION, None, algorithm, False))
    return tuple(found)


def _resolved(table: FlagTable, flag: str, resolved: Mapping[str, object]) -> tuple[bool, object]:
    """Whether the server says anything of a flag, and what."""
    names = [flag, *(rename.old for rename in table.renames if rename.new == flag)]
    for name in names:
        key = name.replace("-", "_")
        if resolved.get(key) is not None:
            return True, resolved[key]
    # Resolved into something that has another name; only what turns speculation off is recognized.
    return flag == _SPECULATION and "speculative_algorithm" in resolved, None


def _same(asked: object, resolved: object) -> bool:
    if isinstance(resolved, list) or isinstance(asked, list):
        left = asked if isinstance(asked, list) else [asked]
        right = resolved if isinstance(resolved, list) else [resolved]
        if len(left) == len(right):
            return all(_same(one, other) for one, other in zip(left, right, strict=True))
        return _words(left) == _words(right)
    if isinstance(resolved, bool) or isinstance(asked, bool):
        return _truth(asked) == _truth(resolved)
    if (one := _number(asked)) is not None and (other := _number(resolved)) is not None:
        return abs(one - other) <= 1e-9 * max(abs(one), abs(other))
    if isinstance(resolved, dict):
        try:
            given = read_json(str(asked))
        except ValueError:
            return False
        # Defaults are filled in: what was given must be there.
        return isinstance(given, dict) and all(
            key in resolved and (resolved[key] == value or isinstance(value, dict)) for key, value in given.items()
        )
    return _text(asked) == _text(resolved)


def _words(values: list[object]) -> set[str]:
    return {word for value in values for word in re.split(r"[,\s]+", _text(value)) if word}


def _text(value: object) -> str:
    text = str(value).strip().lower()
    try:
        text = json.dumps(read_json(text), sort_keys=True)  # JSON that was passed on as text
    except ValueError:
        text = text.rstrip("/")
    return _SAME.get(text, text)


def _truth(value: object) -> object:
    return {"true": True, "false": False, "1": True, "0": False}.get(str(value).lower(), value)


def _number(value: object) -> float | None:
    matched = re.fullmatch(r"(-?\d+(?:\.\d+)?(?:e-?\d+)?)([kmgt]i?)?", str(value).strip().lower())
    return float(matched[1]) * _UNIT.get(matched[2] or "", 1) if matched else None


def _shown(value: object) -> str:
    if value is None:
        return "not set"
    return one_line(json.dumps(value) if isinstance(value, dict | list | bool) else str(value), 60)
