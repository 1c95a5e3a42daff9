"""The journal of a host as the panel keeps it: read in a thread, again when somebody wrote, and written to."""

import asyncio
import os
import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from tui.core.records import Stamp, stamp_of
from tui.panel.open_host import OpenHost

if TYPE_CHECKING:
    from pathlib import Path

    from tui.core.journal.model import Entry, Journal


class JournalControl:
    """Reads and writes; what is read is on the board. Files are touched in threads only, by at most one reader."""

    def __init__(self, host: OpenHost) -> None:
        self._host = host
        self._seen: Stamp | None = None  # of the file of entries, as it was read
        self._due = False  # something happened since the present reading began
        self._reading = False
        self._written = 0
        self._shown = False  # somebody has looked at it: until then nothing is read

    def happened(self) -> None:
        """Something came to an end, or began, that the journal writes down by itself."""
        self._due = True
        self._begin()

    def look(self) -> None:
        """Reads where another panel, a command or an agent wrote since; costs one look at a file.

        The first look writes down what other programs launched meanwhile.
        """
        self._due = self._due or not self._shown
        self._shown = True
        self._begin()

    def _begin(self) -> None:
        if not self._reading:
            self._host.background("journal", self._catch_up)

    async def _catch_up(self) -> None:
        self._reading = True
        try:
            while True:
                if self._due:
                    self._due = False
                    await asyncio.to_thread(_sync)
                if self._shown and (self._host.board.journal is None or await asyncio.to_thread(_stamp) != self._seen):
                    await self._read()
                if not self._due:
                    return
        finally:
            self._reading = False

    async def _read(self) -> None:
        board = self._host.board
        name = board.host
        stamp, whole, own = await asyncio.to_thread(_read, name)
        if board.host == name:
            self._seen, board.whole, board.journal = stamp, whole, own
            self._host.touch(soon=True)

    def write(self, job: "Callable[[], Entry]", said: str, again: "Callable[[], None] | None" = None) -> None:
        """Writes an entry and says so.

        Args:
            again: called where that fails, so that nothing which was typed is lost.
        """
        self._written += 1  # a group of its own: what is written first is not given up for the next one
        self._host.background(f"journal entry {self._written}", self._write, job, said, again)

    async def _write(self, job: "Callable[[], Entry]", said: str, again: "Callable[[], None] | None") -> None:
        try:
            await asyncio.to_thread(job)
        except Exception:
            if again is not None:
                again()
            raise
        self._host.say(said)
        if self._shown:
            await self._read()

    def export(self) -> None:
        """Writes the journal of the host as Markdown into the data directory."""
        self._host.background("export", self._export)

    async def _export(self) -> None:
        path = await asyncio.to_thread(_write_export, self._host.board.host)
        self._host.say(f"Exported to {path}")


def _sync() -> None:
    from tui.core.journal import writing

    writing.sync()


def _stamp() -> Stamp | None:
    from tui.core.journal import entries

    try:
        return stamp_of(os.stat(entries.path()))
    except OSError:
        return None


def _read(host: str) -> "tuple[Stamp | None, Journal, Journal]":
    from tui.core.journal import entries, reading

    stamp = _stamp()  # before it is read: what is written meanwhile is read the next time
    stored = entries.load()
    left_out = entries.left_out_words(stored)
    whole, own = (reading.journal_of(stored.entries, of, left_out) for of in (None, host))
    return stamp, whole, own


def _write_export(host: str) -> "Path":
    from tui.core.config import data_dir, write_whole
    from tui.core.journal import reading
    from tui.core.journal.markdown import markdown

    name = re.sub(r"[^A-Za-z0-9._-]+", "-", host)[:60].strip("-.") or "host"
    path = data_dir() / "exports" / f"journal-{name}-{time.strftime('%Y%m%dT%H%M%S')}.md"
    write_whole(path, markdown(reading.read(host)))
    return path
