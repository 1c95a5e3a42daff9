"""What the load generator's modules share: how it speaks, ends, and writes files (docs/load-generator.md has their format).

python3 -m tui.remote.loadgen bench.json        (working directory: where the files go)
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

VERSION = 1
clock = time.perf_counter


def uptime(at: float | None = None) -> float:
    """Seconds since this host booted, as /proc/uptime has them, at a moment of `clock`; by default now."""
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    return now if at is None else now - (clock() - at)


def optional(name: str) -> Any:
    """A module that may be missing here: None then."""
    try:
        return importlib.import_module(name)
    except Exception:
        return None


uvloop = optional("uvloop")
orjson = optional("orjson")
loads: Callable[[bytes | bytearray], Any] = orjson.loads if orjson else json.loads


def dumps(document: Any) -> bytes:
    """JSON without spaces."""
    if orjson:
        with contextlib.suppress(TypeError):  # half a surrogate pair, which a server may send
            return bytes(orjson.dumps(document))
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


class Stop(Exception):
    """Ends the bench with an `error` event."""

    def __init__(self, slug: str, text: str, hint: str) -> None:
        super().__init__(text)
        self.slug, self.text, self.hint = slug, text, hint


def label_of(point: dict[str, Any]) -> str:
    """c4 or r2.5: how files name a load."""
    return f"c{point['concurrency']}" if "concurrency" in point else f"r{point['rate']:g}"


def say(event: str, **fields: Any) -> None:
    """One line of the protocol."""
    with contextlib.suppress(BrokenPipeError, ValueError):
        sys.stdout.write(json.dumps({"event": event, **fields}, separators=(",", ":")) + "\n")
        sys.stdout.flush()


def short(text: str) -> str:
    """One line of at most 200 characters: what becomes part of a reason."""
    return " ".join(text.split())[:200]


def write_whole(name: str, content: bytes) -> str:
    """A file that has its name only when it is whole; returns its SHA-256."""
    part = f".{name}.part"
    try:
        with open(part, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, name)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise Stop("disk", f"{name}: {error.strerror}", "make room on the host, then measure again") from None
    return hashlib.sha256(content).hexdigest()
