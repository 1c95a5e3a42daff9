"""The one gate for text that a host sent: no control character, escape sequence or bidi override gets through."""

import json
import math
import re
from collections.abc import Container, Sequence
from datetime import UTC, datetime
from typing import Any

# CSI, OSC/DCS/SOS/PM/APC (terminated or not), two-byte escapes, and their 8-bit forms; unterminated ones run to
# the end of the text, as a terminal would swallow them.
_SEQUENCE = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]*[ -/]*(?:[@-~]|$)"
    "|(?:\x1b[\\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\\\|\x9c|$)"
    "|\x1b[ -/]*(?:[0-~]|$)"
)
_SUSPECT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def _picture(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else "\ufffd"


def sanitize(text: str) -> str:
    """Text of a host, safe to print: sequences dropped, other controls shown as pictures, newline and tab kept."""
    if not _SUSPECT.search(text):
        return text
    return _SUSPECT.sub(_picture, _SEQUENCE.sub("", text))


def escaped(json_text: str) -> str:
    """A JSON text in which what `sanitize` would change is written as escapes: the same values, safe to print."""
    return _SUSPECT.sub(lambda match: f"\\u{ord(match.group()):04x}", json_text)


def control_in(text: str) -> tuple[int, str] | None:
    """The first character that `sanitize` would change: its place, from 1, and its name, `U+001B`; None without one."""
    found = _SUSPECT.search(text)
    return (found.start() + 1, f"U+{ord(found.group()):04X}") if found else None


def one_line(text: str, limit: int = 300) -> str:
    """Text of a host as one safe line of at most `limit` characters."""
    flat = sanitize(" ".join(text.split()))
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def as_text(value: object, limit: int = 300) -> str | None:
    """A text that somebody else's JSON holds, as one safe line; None for anything else, and for nothing."""
    return (one_line(value, limit) or None) if isinstance(value, str) else None


def as_number(value: object) -> float | None:
    """A finite number that somebody else's JSON holds; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def as_whole(value: object) -> int | None:
    """A whole number that somebody else's JSON holds; None for anything else, and for what nothing can have counted."""
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= 2**63 else None


def epoch_of(iso: str | None) -> float | None:
    """Seconds since the epoch of an ISO 8601 UTC time, None where it cannot be read."""
    try:
        moment = datetime.fromisoformat(iso or "")
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def aligned(rows: Sequence[Sequence[str]], left: Container[int] = (0,)) -> list[str]:
    """Rows of a table as lines; the cells of the columns `left` begin below each other, all others end so."""
    columns = []
    for at, column in enumerate(zip(*rows, strict=True)):
        width = max(map(len, column))
        columns.append([cell.ljust(width) if at in left else cell.rjust(width) for cell in column])
    return ["  ".join(row).rstrip() for row in zip(*columns, strict=True)]


def read_toml(text: str) -> dict[str, Any]:
    """The tables of a TOML text. ValueError says what is wrong with it, as a predicate."""
    import tomli

    try:
        return tomli.loads(text)
    except tomli.TOMLDecodeError as error:
        raise ValueError(f"is not valid TOML: {one_line(str(error))}") from None
    except ValueError:  # Python converts no number of more than 4,300 digits
        raise ValueError("holds a number of thousands of digits") from None
    except RecursionError:
        raise ValueError("is nested too deeply") from None


def read_json(data: str | bytes) -> Any:
    """The JSON value that a host sent. ValueError where it is none, or nested deeper than Python reads."""
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
