"""The log of a watched run as a queue of pieces: from its first byte to its end, through lost links."""

import contextlib
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, replace

from tui.core.errors import HostError
from tui.core.link.retry import follow_through
from tui.core.link.transport import Transport
from tui.core.logs.blocks import first_line, read_block
from tui.core.logs.follow import Chunk, follow
from tui.core.logs.search import lines_before

_HUGE_BYTES = 16 << 20  # of a log that is longer when the watch begins, the middle is not read:
_HEAD_BYTES = 4 << 20  # the start-up stands in its beginning,
_TAIL_BYTES = 262_144  # what happens now at its end


@dataclass(frozen=True)
class SkippedLines:
    """Lines that are not read."""

    begin: int  # byte
    end: int
    number: int  # line that begins at `end`


async def read_log(
    transport: Transport, path: str, ended: Callable[[], bool], link_news: Callable[[], None]
) -> AsyncGenerator[Chunk | SkippedLines, None]:
    """All pieces of a log until its writer has ended; of a huge one the middle is left out.

    Args:
        ended: whether the writer has ended.
        link_news: called where the link needs a person before the log is read on.
    """
    last: Chunk | None = None
    whole: bool | None = None  # whether all of it is read; None while that is not decided

    async def rest() -> AsyncGenerator[Chunk | SkippedLines, None]:
        nonlocal last, whole
        while True:
            if whole is False and last is not None:
                skipped = await _middle(transport, path, last)
                whole = True
                if skipped is not None:
                    last = replace(last, data=b"", offset=skipped.end)
                    yield skipped
            async with contextlib.aclosing(follow(transport, path, after=last, ended=ended)) as following:
                async for chunk in following:
                    last = chunk
                    yield chunk
                    if whole is None and chunk.end >= _HEAD_BYTES:
                        whole = (chunk.size or 0) <= _HUGE_BYTES
                        if not whole:
                            break
                else:
                    return

    async with contextlib.aclosing(follow_through(transport, rest)) as pieces:
        async for piece in pieces:
            if isinstance(piece, HostError):
                link_news()
            else:
                yield piece


async def _middle(transport: Transport, path: str, last: Chunk) -> SkippedLines | None:
    """From where to where a huge log is not read; None where it is another file by now."""
    file = (last.identity or "").rsplit(":", 2)[0]
    block = await read_block(transport, path, -_TAIL_BYTES, _TAIL_BYTES, file=file)
    begin = last.end
    if block is None or block.file != file or block.offset <= begin:
        return None
    end = block.offset + (first_line(block.data, block.offset) or 0)
    before = await lines_before(transport, path, end)
    return SkippedLines(begin, end, before + 1) if before is not None else None
