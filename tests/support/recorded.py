"""Replies of the real server as `record_frames.py` recorded them, and what their events look like."""

import json
import re
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

PLACE = Path(__file__).parents[1] / "data" / "http"
NAMES = sorted(path.stem for path in PLACE.glob("*.jsonl"))


@dataclass(frozen=True)
class Recording:
    """One reply: the request, and each read of its bytes with the seconds since the request was sent."""

    path: str
    request: dict[str, Any]
    reads: tuple[tuple[float, bytes], ...]

    @property
    def wire(self) -> bytes:
        return b"".join(data for _, data in self.reads)


def recordings(name: str) -> list[Recording]:
    """Those of one file: several were sent together."""
    found: list[tuple[dict[str, Any], list[tuple[float, bytes]]]] = []
    for line in (PLACE / f"{name}.jsonl").read_text().splitlines():
        said = json.loads(line)
        if "path" in said:
            found.append((said, []))
        else:
            found[-1][1].append((said["t"], said["text"].encode("utf-8", "surrogateescape")))
    return [Recording(head["path"], head["request"], tuple(reads)) for head, reads in found]


def pieces(data: bytes) -> list[Any]:
    """What bytes of a reply hold, in order: "head", an event's document, "[DONE]", "end".

    Raises ValueError where they hold a part of something, or an HTTP chunk that is not exactly one event.
    """
    found: list[Any] = []
    while data:
        if data.startswith(b"HTTP/"):
            _, end, data = data.partition(b"\r\n\r\n")
            piece: Any = "head"
        else:
            size, _, rest = data.partition(b"\r\n")
            length = int(size, 16)
            event, end, data = rest[:length], rest[length : length + 2], rest[length + 2 :]
            whole = re.fullmatch(rb"data: (.+)\n\n", event)
            if length and not whole:
                raise ValueError(f"not one event: {event[:80]!r}")
            piece = "end" if not whole else "[DONE]" if whole[1] == b"[DONE]" else json.loads(whole[1])
        if not end:
            raise ValueError("a part of something")
        found.append(piece)
    return found


def shape(value: Any) -> Any:
    """A document without its values: keys in their order, what is null, and the kinds of the rest."""
    if isinstance(value, dict):
        return tuple((key, shape(inner)) for key, inner in value.items())
    if isinstance(value, list):
        return [shape(value[0])] if value and isinstance(value[0], dict) else "empty" if not value else "list"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "number"
    return value if value is None or value in ("head", "end", "[DONE]") else "text"


def shapes(found: list[Any]) -> list[Any]:
    """Of the pieces, neighbours that look alike once: how many chunks of text there are is the reply's own matter."""
    return [key for key, _ in groupby(map(shape, found))]
