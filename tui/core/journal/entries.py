"""`entries.jsonl`: one entry a line, only ever added to.

Lines are whole: they are written in one piece under a lock and are on the disk before it is released. What a kill, or a
full disk, left of one is left out when it is read and never hides another. Entries carry id and time, so that two such
files may be joined in any order (git: merge=union).
"""

import contextlib
import dataclasses
import fcntl
import json
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tui.core.config import data_dir, private_dir, write_whole
from tui.core.errors import EagletuiError, Slug
from tui.core.journal.model import Entry
from tui.core.masking.known import hidden
from tui.core.records import from_json, to_json
from tui.core.text import epoch_of, read_json
from tui.core.verdicts.sentences import count

_LONGEST_LINE = 1 << 20  # bytes
_PATIENCE_S = 10.0  # of the lock: who holds it writes for milliseconds
_POLL_S = 0.02
_ATTRIBUTES = "entries.jsonl merge=union\n"


@dataclass(frozen=True)
class Stored:
    """What a file of entries holds, oldest first."""

    entries: tuple[Entry, ...] = ()
    left_out: int = 0  # lines that are no entries


def directory() -> Path:
    """Where the journal is; not created."""
    return data_dir() / "journal"


def path() -> Path:
    """The file of entries."""
    return directory() / "entries.jsonl"


@contextlib.contextmanager
def locked() -> Iterator[None]:
    """Holds the right to write. Raises OSError, and EagletuiError (slug busy) where another process does not let go."""
    where = private_dir(directory())
    attributes = where / ".gitattributes"
    if not attributes.exists():
        write_whole(attributes, _ATTRIBUTES)
        write_whole(where / ".gitignore", ".*\n!.gitignore\n!.gitattributes\n")
    descriptor = os.open(where / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise EagletuiError(
                        f"{where}: another process has been writing for {_PATIENCE_S:g} s", "try again", slug=Slug.BUSY
                    ) from None
                time.sleep(_POLL_S)
        yield
    finally:
        os.close(descriptor)


def append(entries: Iterable[Entry]) -> None:
    """Adds entries; the caller holds the lock. They are on the disk once it returns. Raises OSError."""
    lines = b"".join(_line(entry) for entry in entries)
    descriptor = os.open(path(), os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":  # somebody was killed here
            lines = b"\n" + lines
        while lines:
            lines = lines[os.write(descriptor, lines) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _line(entry: Entry) -> bytes:
    text = json.dumps(hidden(_said(entry)), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "backslashreplace") + b"\n"


def _said(value: Any) -> Any:
    """A JSON value, of a dataclass without the fields that say nothing beyond their defaults."""
    if isinstance(value, list | tuple):
        return [_said(item) for item in value]
    if not dataclasses.is_dataclass(value):
        return to_json(value)
    told = ((each, getattr(value, each.name)) for each in dataclasses.fields(value))
    return {
        each.name: _said(given)
        for each, given in told
        if given != (each.default if each.default_factory is dataclasses.MISSING else each.default_factory())
    }


def load() -> Stored:
    """All entries, in the order of their times; the same id twice is one entry. Raises OSError but for a missing file."""
    try:
        with open(path(), "rb") as file:
            return parse(file)
    except FileNotFoundError:
        return Stored()


def parse(lines: Iterable[bytes]) -> Stored:
    """Entries of lines in any order, whoever wrote them."""
    found: dict[str, Entry] = {}
    left_out = 0
    for line in lines:
        if not line.strip():
            continue
        try:
            if len(line) > _LONGEST_LINE:
                raise ValueError
            entry = from_json(Entry, read_json(line))
        except ValueError:
            left_out += 1
        else:
            found.setdefault(entry.id, entry)
    return Stored(tuple(sorted(found.values(), key=lambda entry: (epoch_of(entry.at) or 0.0, entry.id))), left_out)


def left_out_words(stored: Stored) -> str | None:
    """That lines could not be read; None where all could."""
    if not stored.left_out:
        return None
    return f"{path()}: {count(stored.left_out, 'line')} left out: broken, or of a newer eagletui"
