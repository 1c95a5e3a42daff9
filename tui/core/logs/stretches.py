"""Whole lines of a file on a host, by range, and the records in them; overlong lines are read at their ends only."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from tui.core.link.retry import try_again
from tui.core.link.transport import Transport
from tui.core.logs.blocks import Block, first_line, line_begin, line_end, read_block
from tui.core.model.log import LINE_LIMIT, LogRecord
from tui.core.sglang.tracker import LogTracker

PIECE_BYTES = 32_768  # parsed before others get their turn


@dataclass
class Stretch:
    """Bytes of whole lines, read from a file."""

    begin: int
    end: int
    pieces: list[bytes | int]  # a number: so many bytes in the middle of an overlong line were not read

    @property
    def lines(self) -> int:
        """Line ends in it."""
        return sum(piece.count(b"\n") for piece in self.pieces if isinstance(piece, bytes))

    def small_pieces(self) -> Iterator[bytes | int]:
        """The pieces, none longer than `PIECE_BYTES`."""
        for piece in self.pieces:
            if isinstance(piece, int):
                yield piece
            else:
                yield from (piece[at : at + PIECE_BYTES] for at in range(0, len(piece), PIECE_BYTES))


class HostFile:
    """A file on a host, read by ranges; once `identity` (device:inode) is known, another file's bytes are never read.

    Whatever reads raises UsageError (no permission), HostError, and LinkLost after three tries.
    """

    def __init__(self, transport: Transport, path: str) -> None:
        self.transport, self.path = transport, path
        self.identity: str | None = None
        self.size: int | None = None  # bytes, when it was last read

    async def block(self, offset: int, length: int) -> Block | None:
        """Bytes of the file; None where it is gone or another one."""
        block = await try_again(lambda: read_block(self.transport, self.path, offset, length, file=self.identity))
        if block is None or self.identity not in (None, block.file):
            return None
        self.size = block.size
        return block

    async def whole_lines(self, data: bytes, offset: int) -> Stretch:
        """What of a block begins with a line; of a line longer than that, its beginning and its end."""
        end = offset + len(data)
        at = first_line(data, offset)
        if at is not None:
            return Stretch(offset + at, end, [data[at:]])
        begin = await line_begin(self.transport, self.path, offset)
        close = data[-1:] if data.endswith((b"\n", b"\r")) else b""
        lead = await self.block(begin, min(LINE_LIMIT, end - begin - len(close)))
        text = lead.data if lead is not None else b""
        return Stretch(begin, end, [text, end - begin - len(text) - len(close), close])

    async def lines_from(self, data: bytes, offset: int) -> Stretch:
        """The whole lines at the beginning of a block; the first one, however long, where there is none."""
        cut = data.rfind(b"\n") + 1 or data.rfind(b"\r", 0, len(data) - 1) + 1
        if cut:
            return Stretch(offset, offset + cut, [data[:cut]])
        end, closed = await line_end(self.transport, self.path, offset)
        text = data[:LINE_LIMIT]
        return Stretch(offset, end, [text, end - offset - len(text) - closed, b"\n" if closed else b""])

    async def lines_around(self, offset: int, length: int, limit: int | None) -> Stretch | None:
        """Whole lines, one of them with a byte, of about so many bytes before `limit`; None where there is nothing."""
        begin = max(0, offset - length // 2)
        stretch = await self._lines_after(begin, length, limit, upto=offset, whole=False)
        if stretch is not None and stretch.end <= offset:
            # The line with that byte is longer than what was read.
            begin = stretch.end if stretch.pieces else await line_begin(self.transport, self.path, offset)
            stretch = await self._lines_after(begin, length, limit, upto=offset, whole=True)
        return stretch

    async def _lines_after(
        self, begin: int, length: int, limit: int | None, *, upto: int, whole: bool
    ) -> Stretch | None:
        """`whole`: a line begins at `begin`. Without pieces where none begins up to a byte."""
        block = await self.block(begin, length if limit is None else min(length, limit - begin))
        if block is None or not block.data:
            return None
        self.identity = self.identity or block.file
        at = 0 if whole else first_line(block.data, begin)
        if at is None or begin + at > upto:
            return Stretch(begin, begin, [])
        return await self.lines_from(block.data[at:], begin + at)


async def parse(tracker: LogTracker, stretch: Stretch) -> list[LogRecord]:
    """The records of a stretch; others get their turn meanwhile."""
    records: list[LogRecord] = []
    for piece in stretch.small_pieces():
        if isinstance(piece, int):
            tracker.skip(piece)
        else:
            records.extend(record for record in tracker.feed(piece) if not record.provisional)
            await asyncio.sleep(0)
    return records
