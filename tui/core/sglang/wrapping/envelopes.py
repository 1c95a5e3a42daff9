"""Layers of programs that keep a log as records of their own: JSON lines of Docker and of loggers, lines of CRI.

Formats: Docker's json-file (`log` ends with a newline unless a long line goes on in the next object), the CRI log format
(`TIME stream P|F text`), and objects of any logger: its message is the field that holds what a log holds.
"""

import json
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from tui.core.model.log import LINE_LIMIT
from tui.core.sglang.lineshape import FRAME
from tui.core.sglang.wrapping.line import (
    HEAD,
    LONE_RANK,
    STAMP,
    Line,
    Maker,
    is_of_a_log,
    message_at,
    record_at,
    written,
)

_MOST = 0.8
_DEEP = 3  # objects in objects that are looked into
_OBJECTS = 1_000  # of one line
_USUAL = ("log", "message", "msg", "MESSAGE", "text", "line", "textPayload")
_TIMES = ("asctime", "@timestamp", "timestamp", "time", "ts", "date", "created")
_CRI = re.compile(r"\d{4}-\S{8,36} (?P<stream>stdout|stderr) (?P<part>[PF])(?::\S*)?(?: |$)")
ENVELOPE = re.compile(r'\{"|' + _CRI.pattern)
_MORE = ("exc_info", "exception", "stack_trace", "stack", "traceback", "error.stack_trace")


def envelope_at(text: str) -> int | None:
    """Where an object, or a line of CRI, begins that goes on to the end of the line."""
    match = ENVELOPE.search(text[:HEAD])
    return match.start() if match is not None and (match["stream"] or text.rstrip().endswith("}")) else None


def flat(table: dict[str, Any], deep: int = _DEEP) -> dict[str, Any]:
    """Values of an object and of those in it, by dotted names."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict) and deep:
            found |= {f"{key}.{name}": inner for name, inner in flat(value, deep - 1).items()}
        else:
            found[key] = value
    return found


def objects(text: str) -> list[dict[str, Any]]:
    """The JSON objects of a line, one after the other; none where anything else stands there."""
    decoder, at = json.JSONDecoder(), 0
    found: list[dict[str, Any]] = []
    text = text.strip().strip("[],")
    while at < len(text) and len(found) < _OBJECTS:
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return []
        if not isinstance(value, dict):
            return []
        found.append(flat(value))
        while at < len(text) and text[at] in " ,\t":
            at += 1
    return found


def stamp_of(value: object) -> str | None:
    """A time as SGLang's stamp has it; None where it is none."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        seconds = value / 1000 if value > 1e11 else float(value)
        if not 1e9 < seconds < 1e10:
            return None
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
    match = re.match(r"(\d{4})[-/](\d\d)[-/](\d\d)[T ](\d\d:\d\d:\d\d)", value) if isinstance(value, str) else None
    return "{}-{}-{} {}".format(*match.groups()) if match is not None else None


class Objects:
    """Lines that are JSON objects.

    Args:
        key: of the message.
        pieces: a message without newline at its end goes on in the next object of the same stream.
        stamped: give each message a stamp: the logger's own, that SGLang's format has no part in.
    """

    def __init__(self, key: str, pieces: bool, stamped: bool) -> None:
        self._key, self._pieces, self._stamped = key, pieces, stamped
        self._held: dict[str, Line] = {}  # by stream

    def take(self, lines: Iterable[Line]) -> list[Line]:
        found = []
        for line in lines:
            tables = objects(line.text) if "{" in line.text else []
            if not tables:
                found.append(line)
            for table in tables:
                found += self._message(line.number, table)
        return found

    def _message(self, number: int, table: dict[str, Any]) -> list[Line]:
        text = table.get(self._key)
        if not isinstance(text, str):
            return []
        more = [value for key in _MORE if isinstance(value := table.get(key), str) and value not in text]
        stream = str(table.get("stream"))
        goes_on = self._pieces and not text.endswith("\n")
        if (held := self._held.pop(stream, None)) is not None:
            number, text = held.number, (held.text + text)[:LINE_LIMIT]
        if goes_on:
            self._held[stream] = Line(number, text)
            return []
        if self._stamped and record_at(text) is None:
            time = next((stamp for key in _TIMES if (stamp := stamp_of(table.get(key)))), None)
            text = f"[{time}] {text}" if time is not None else text
        parts = [text.removesuffix("\n").removesuffix("\r"), *more]
        return [Line(number, row) for part in parts for row in part.split("\n")]

    def end(self) -> list[Line]:
        held, self._held = self._held, {}
        return [Line(line.number, row) for line in held.values() for row in line.text.split("\n")]


def json_lines(lines: Sequence[Line]) -> Maker | None:
    """Each line is an object of Docker, or of a logger."""
    rows = written(lines)
    tables = [objects(line.text) if line.text.lstrip()[:1] in ("{", "[") else [] for line in rows]
    share = sum(map(bool, tables)) / max(1, len(rows))
    every = [table for row in tables for table in row]
    texts: dict[str, list[str]] = {}
    for table in every:
        for key, value in table.items():
            if isinstance(value, str):
                texts.setdefault(key, []).append(value)
    if not texts:
        return None

    known = {
        key: sum(any(map(is_of_a_log, value.split("\n", 5)[:5])) for value in values) for key, values in texts.items()
    }

    def worth(key: str) -> tuple[float, ...]:
        return (key not in _MORE, known[key], key.rsplit(".")[-1] in _USUAL, len(texts[key]), sum(map(len, texts[key])))

    key = max(texts, key=worth)
    if share < _MOST and known[key] < 2:  # bars and warnings of others stand between the objects of a logger
        return None
    values = texts[key]
    whole = sum(value.endswith("\n") for value in values)
    pieces = whole > len(values) / 2 or (whole > 0 and key == "log" and "stream" in texts)
    # A logger's message holds a traceback whole; where frames are messages, each is a line of a stream.
    stamped = not any(STAMP.search(value[:HEAD]) or LONE_RANK.match(value) or FRAME.match(value) for value in values)
    return partial(Objects, key, pieces, stamped and any(message_at(value) is not None for value in values))


class Cri:
    """Lines as a container runtime keeps them; long ones in pieces."""

    def __init__(self) -> None:
        self._held: dict[str, Line] = {}

    def take(self, lines: Iterable[Line]) -> list[Line]:
        found = []
        for line in lines:
            match = _CRI.match(line.text)
            if match is None:
                found.append(line)
                continue
            number, text = line.number, line.text[match.end() :]
            if (held := self._held.pop(match["stream"], None)) is not None:
                number, text = held.number, (held.text + text)[:LINE_LIMIT]
            if match["part"] == "P":
                self._held[match["stream"]] = Line(number, text)
            else:
                found.append(Line(number, text))
        return found

    def end(self) -> list[Line]:
        held, self._held = self._held, {}
        return list(held.values())


def cri_lines(lines: Sequence[Line]) -> Maker | None:
    """Lines of containerd or CRI-O."""
    rows = written(lines)
    return Cri if rows and sum(_CRI.match(line.text) is not None for line in rows) >= _MOST * len(rows) else None
