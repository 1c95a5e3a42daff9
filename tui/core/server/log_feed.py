"""The log of a watched run as a queue of pieces: from its first byte to its end, through lost links."""

import contextlib
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, replace

from tui.core.errors import HostError
from tui.core.link.retry import follow_through
from tui.core.link.transport import Transport
from tui.core.logs.excerpt import CANNOT_PICK, Excerpt, Passage, read_excerpt
from tui.core.logs.follow import Chunk, follow
from tui.core.logs.reader import ANOTHER_FILE
from tui.core.sglang.splitter import LinePlace

_HUGE_BYTES = 16 << 20  # of a log that is longer when the watch begins, the middle is not read whole:
_HEAD_BYTES = 4 << 20  # the start-up stands in its beginning


@dataclass(frozen=True)
class SkippedLines:
    """Lines of which only the unusual ones were read."""

    begin: int  # byte
    end: int
    number: int  # line that begins at `end`


async def read_log(
    transport: Transport, path: str, ended: Callable[[], bool], link_news: Callable[[], None]
) -> AsyncGenerator[Chunk | Passage | SkippedLines, None]:
    """All pieces of a log until its writer has ended; of the middle of a huge one passages with what is unusual there.

    Args:
        ended: whether the writer has ended.
        link_news: called where the link needs a person before the log is read on.
    """
    last: Chunk | None = None
    whole: bool | None = None  # whether all of it is read; None while that is not decided
    line = LinePlace(0, 1)  # that is being read

    async def rest() -> AsyncGenerator[Chunk | Passage | SkippedLines, None]:
        nonlocal last, whole, line
        while True:
            if whole is False and last is not None:
                excerpt = await _middle(transport, path, last, line)
                whole = True
                if excerpt is not None:
                    *passages, tail = excerpt.passages
                    last = replace(last, data=b"", offset=tail.offset)
                    for passage in passages:
                        yield passage
                    yield SkippedLines(line.offset, tail.offset, tail.number)
            async with contextlib.aclosing(follow(transport, path, after=last, ended=ended)) as following:
                async for chunk in following:
                    last = chunk
                    line = _line_after(line, chunk)
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


def _line_after(line: LinePlace, chunk: Chunk) -> LinePlace:
    """Where the line that is being read begins, once a chunk is read."""
    if chunk.event in ANOTHER_FILE:
        return LinePlace(0, 1)
    end = chunk.data.rfind(b"\n") + 1
    return LinePlace(chunk.offset + end, line.number + chunk.data.count(b"\n")) if end else line


async def _middle(transport: Transport, path: str, last: Chunk, line: LinePlace) -> Excerpt | None:
    """What is unusual from a line on; None where it is another file by now, or the host cannot tell."""
    try:
        excerpt = await read_excerpt(transport, path, begin=line.offset, number=line.number)
    except HostError as error:
        if error.slug not in CANNOT_PICK:
            raise
        return None
    same = excerpt.file == (last.identity or "").rsplit(":", 2)[0]
    return excerpt if same and len(excerpt.passages) > 1 else None
