"""Following a file on a host by (device, inode, offset): exact bytes over any number of lost links.

The host sends frames (`tui/remote/follow.py`, or `follow.sh` where there is no Python); a frame counts only when its closing
word has come, so what a cut link or a shrinking file leaves half is read again, never merged. After each reconnect the file is
known again by device, inode and the checksum of its first 1 KiB; one that was truncated, rotated or replaced begins a new generation.
"""

import asyncio
import shlex
import zlib
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from secrets import token_hex
from typing import Any

from tui.core.errors import HostError, LinkLost, Slug
from tui.core.link.programs import in_python, shell_program
from tui.core.link.scripts import shell_path
from tui.core.link.transport import ByteStream, Transport
from tui.core.logs.blocks import MAX_BLOCK_BYTES, read_block, refused
from tui.core.text import one_line

LIFE_S = 300  # a sender ends by itself after this; what a dead link leaves behind is bounded
_MAX_FRAME_BYTES = 4 << 20  # as follow.sh: fewer programs are started on the host while much is read
_MAX_CHUNK_BYTES = 65_536  # what a reader takes at once must not hold up its screen
_KINDS = frozenset("OIDSTRGX")
_RETRY_S = 0.2
_MAX_EMPTY_STREAMS = 5


@dataclass(frozen=True)
class Chunk:
    """Bytes of a file, or an event.

    `event` is None for bytes, else: replaced or truncated (what follows is a new generation from offset 0), gone (the
    path names nothing now), link_lost, resumed, ended (the last chunk).
    """

    data: bytes
    offset: int  # of the first byte of `data` in this generation
    generation: int  # grows with each file that takes the place of the one before
    size: int | None  # of the file when this was read, bytes
    event: str | None = None
    identity: str | None = None  # of the file: device:inode:head length:checksum of that head

    @property
    def end(self) -> int:
        """The byte after `data`."""
        return self.offset + len(self.data)

    @property
    def caught_up(self) -> bool:
        """Whether nothing more was written when this was read."""
        return self.end >= (self.size or 0)


@dataclass
class _Known:
    """The file as it was last seen."""

    file: str  # device:inode
    head_bytes: int
    head_sum: int

    def __str__(self) -> str:
        return f"{self.file}:{self.head_bytes}:{self.head_sum:08x}"

    @classmethod
    def parse(cls, text: str | None) -> "_Known | None":
        words = (text or "").rsplit(":", 2)
        try:
            return cls(words[0], int(words[1]), int(words[2], 16))
        except (IndexError, ValueError):
            return None

    def fits(self, file: str, head: bytes) -> bool:
        return (
            file == self.file and len(head) >= self.head_bytes and zlib.crc32(head[: self.head_bytes]) == self.head_sum
        )


@dataclass(frozen=True)
class _Frame:
    kind: str
    offset: int
    size: int
    file: str
    data: bytes


class _Broken(Exception):
    """A frame without its end: the file shrank while it was read, or the sender was killed."""


class _Reader:
    def __init__(self, stream: ByteStream, word: str) -> None:
        self._stream = stream
        self._end = f"\n{word}\n".encode()
        self._data = bytearray()

    async def _more(self) -> None:
        block = await self._stream.read()
        if not block:
            raise EOFError
        self._data += block

    async def frame(self) -> _Frame:
        """The next whole frame. Raises EOFError at the end, _Broken, LinkLost."""
        while (line_end := self._data.find(b"\n")) < 0:
            if len(self._data) > 200:
                raise _Broken
            await self._more()
        words = bytes(self._data[:line_end]).decode("ascii", "replace").split(" ")
        try:
            kind, offset, count, size = words[0], int(words[1]), int(words[2]), int(words[3])
            file = words[4]
        except (IndexError, ValueError):
            raise _Broken from None
        if kind not in _KINDS or not 0 <= count <= _MAX_FRAME_BYTES:
            raise _Broken
        start, stop = line_end + 1, line_end + 1 + count
        while len(self._data) < stop + len(self._end):
            await self._more()
        if self._data[stop : stop + len(self._end)] != self._end:
            raise _Broken
        data = bytes(self._data[start:stop])
        del self._data[: stop + len(self._end)]
        return _Frame(kind, offset, size, file, data)


def _script(path: str, offset: int, known: _Known | None, word: str) -> str:
    return (
        f"EF_PATH={shell_path(path)}\nEF_OFFSET={offset}\n"
        f"EF_FILE={shlex.quote(known.file) if known else ''}\nEF_WORD={word}\nEF_LIFE={LIFE_S}\n"
        + in_python("follow.py", '"$EF_PATH" "$EF_OFFSET" "$EF_FILE" "$EF_WORD" "$EF_LIFE"')
        + f"{shell_program('follow.sh')}ef_main\n"
    )


class _Followed:
    """A file that is being followed: what is known of it, and what each frame of a sender means for it."""

    def __init__(self, transport: Transport, path: str, after: Chunk | None) -> None:
        self._transport, self._path = transport, path
        self.offset, self._generation = (after.end, after.generation) if after is not None else (0, 0)
        self.known = _Known.parse(after.identity) if after is not None else None
        self._goal: int | None = None  # where the file ends, once its writer has
        self.lost = False
        self._gone = False
        self.elsewhere = False  # the sender reads from the middle of another file

    def event(self, name: str, size: int | None = None) -> Chunk:
        """A chunk without bytes."""
        return Chunk(b"", self.offset, self._generation, size, name, str(self.known) if self.known else None)

    def take(self, frame: _Frame) -> Iterator[Chunk]:
        """What a frame brings. Raises UsageError where the file cannot be read, _Broken."""
        if self.lost:
            self.lost = False
            yield self.event("resumed", frame.size)
        if frame.kind == "X":
            raise refused(self._transport.host, self._path, frame.file)
        if frame.kind == "G":
            if not self._gone:
                self._gone = True
                yield self.event("gone")
        elif frame.kind in "TR" or (frame.kind == "O" and self._is_another(frame)):
            self.elsewhere = frame.offset != 0
            self.known, self.offset, self._goal, self._gone = None, 0, None, False
            self._generation += 1
            yield self.event("truncated" if frame.kind == "T" else "replaced", frame.size)
        if self.elsewhere:
            return
        if frame.kind in "OI":
            self._gone = False
            self.known = _Known(frame.file, len(frame.data), zlib.crc32(frame.data))
        elif frame.kind == "D":
            if frame.offset != self.offset:
                raise _Broken
            for begin in range(0, len(frame.data), _MAX_CHUNK_BYTES):
                piece = frame.data[begin : begin + _MAX_CHUNK_BYTES]
                at, self.offset = self.offset, self.offset + len(piece)
                yield Chunk(piece, at, self._generation, frame.size, None, str(self.known))

    def _is_another(self, opened: _Frame) -> bool:
        """Whether what was opened is not what was being read: removed in between, replaced, or rewritten."""
        if self._gone and (self.known is not None or self.offset > 0):
            return True
        return (
            self.known is not None and not self.known.fits(opened.file, opened.data)
        ) or opened.offset != self.offset

    async def read_to_end(self) -> bool:
        """Whether all that a writer who has ended wrote is read."""
        if self._goal is None and self.known is not None and not self._gone:
            now = await read_block(self._transport, self._path, 0, 0)
            if now is not None and now.file == self.known.file:
                self._goal = now.size
        return self._gone or (self._goal is not None and self.offset >= self._goal)


async def follow(
    transport: Transport, path: str, *, after: Chunk | None = None, ended: Callable[[], bool] | None = None
) -> AsyncGenerator[Chunk, None]:
    """The bytes of a file as it grows; nothing lost or doubled, however often the link is lost.

    Args:
        path: a leading `~/` is the home directory there, everything else is literal.
        after: the last chunk that was taken, to continue after it; None: from the first byte. Without identity in it, the
            file that is there now is taken for the same one.
        ended: whether the writer has ended; once it is true and everything is read, an `ended` chunk is the last.

    Raises:
        UsageError: not a regular file, or no permission to read it. A file that is not there is a `gone` chunk, and waited for.
        HostError: the host cannot run the sender; never LinkLost, which is a chunk.
    """
    file = _Followed(transport, path, after)
    empty = 0
    while True:
        word = token_hex(16)
        frames = 0
        file.elsewhere = False
        try:
            async with transport.stream(_script(path, file.offset, file.known, word)) as stream:
                reader = _Reader(stream, word)
                while not file.elsewhere:
                    frame = await reader.frame()
                    frames += 1
                    for chunk in file.take(frame):
                        yield chunk
                    if ended is not None and not file.elsewhere and ended() and await file.read_to_end():
                        yield file.event("ended", frame.size)
                        return
        except LinkLost:
            if not file.lost:
                file.lost = True
                yield file.event("link_lost")
            await asyncio.sleep(_RETRY_S)
        except (EOFError, _Broken, HostError) as error:
            if isinstance(error, HostError) and error.slug != Slug.KILLED:
                raise
            empty = 0 if frames else empty + 1
            if empty >= _MAX_EMPTY_STREAMS:
                raise HostError(
                    f"{transport.host}: {one_line(path)} cannot be followed: the shell there ends at once",
                    "does that host have dd and sleep, and memory left?",
                    slug=Slug.UNSUPPORTED_HOST,
                ) from None
            if not frames:
                await asyncio.sleep(_RETRY_S)


async def before_last_lines(transport: Transport, path: str, lines: int) -> Chunk | None:
    """Where the last lines of a file begin, to be read on from there; None where there is no such file.

    At most the last 4 MiB are looked at. Raises UsageError, HostError, LinkLost.
    """
    length = 65_536
    while (block := await read_block(transport, path, -length, length)) is not None:
        at = len(block.data.removesuffix(b"\n"))
        for _ in range(lines):
            at = block.data.rfind(b"\n", 0, at)
            if at < 0:
                break
        if at >= 0 or block.offset == 0 or length >= MAX_BLOCK_BYTES:
            begin = at + 1 if at >= 0 or block.offset == 0 else block.data.find(b"\n") + 1
            return Chunk(b"", block.offset + begin, 0, block.size, None, f"{block.file}:0:0")
        length *= 8
    return None


async def read_log(
    transport: Transport,
    path: str,
    *,
    after: Chunk | None = None,
    grows: bool = False,
    end: Coroutine[Any, Any, object] | None = None,
) -> AsyncGenerator[Chunk, None]:
    """A log from its first byte: what there is of it now, or what comes of it until its writer has ended.

    Args:
        after: as of `follow`.
        grows: it is followed; else it is read once.
        end: done when the writer of a growing log has ended; None: nobody knows, it is followed until cancelled.

    Raises UsageError where there is no such file (one that is being rotated is waited for), HostError.
    """
    waiting = asyncio.ensure_future(end) if end is not None else None

    def ended() -> bool:
        return not grows or (waiting is not None and waiting.done())

    try:
        async with aclosing(follow(transport, path, after=after, ended=ended)) as chunks:
            async for chunk in chunks:
                if chunk.event == "gone" and (not grows or chunk.identity is None):
                    raise refused(transport.host, path, "gone")
                yield chunk
    finally:
        if waiting is not None:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
