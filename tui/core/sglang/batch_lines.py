"""What a `Decode batch` or `Prefill batch` line says: pairs of a name and a value, whatever their order and version."""

import re

BATCH = re.compile(r"(Decode|Prefill) batch(?: \[\d+\])?[.,] ")
# Texts of these lines, whatever wraps them, and of the access lines of requests that were answered. One is in each line of
# which a serving server writes millions: where millions are not read, they can be told by it.
DECODES, PREFILLS = (tuple(f"{kind} batch{mark}" for mark in (", ", ". ", " [")) for kind in ("Decode", "Prefill"))
ANSWERS = (' HTTP/1.1" 200', ' HTTP/1.1\\" 200')
SPEED = "gen throughput (token/s)"
_PAIR = re.compile(r"([#A-Za-z][^:,]{0,60}): (True|False|-?\d{1,15}(?:\.\d{1,15})?)")


def pairs(line: str | bytes) -> dict[str, str]:
    """Names and values of a batch line."""
    text = line if isinstance(line, str) else line.decode("utf-8", "replace")
    match = BATCH.search(text)
    return {pair[0].strip(): pair[1] for pair in _PAIR.findall(text, match.end() if match else 0)}


def decimal(text: str | None) -> float | None:
    """A figure of a log line; None where it is none, or absurd."""
    try:
        value = float(text) + 0.0 if text is not None else None  # "-0.00" is 0
    except ValueError:
        return None
    return value if value is not None and abs(value) < 1e15 else None


def whole(text: str | None) -> int | None:
    """The same as a whole number."""
    value = decimal(text)
    return int(value) if value is not None else None
