"""A log file of any size on a host: the tail first, then whatever is asked for, never the whole file over the link.

What is loaded is one or two stretches of the file: the growing end, and after a jump, or when there is too much between
a reader far up and the end, another one around the reader. Either is bounded; blocks of it go at its far end.
"""

import asyncio
from bisect import bisect_left
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from tui.core.errors import HostError, LinkLost
from tui.core.link.transport import LinkState, Transport
from tui.core.logs.blocks import Block, first_line, line_begin, line_end, read_block
from tui.core.logs.follow import Chunk, follow
from tui.core.logs.search import Hit, HostSearch, LogMarks, Mark, Needle, lines_before, offset_of_line
from tui.core.logs.window import LogWindow
from tui.core.model.log import LINE_LIMIT, LogRecord
from tui.core.model.phases import Phase
from tui.core.sglang.tracker import LogTracker

BLOCK_BYTES = 262_144  # read at once; shown at once
_WHOLE_BYTES = 2 * BLOCK_BYTES  # a file that small is read from its beginning
_PIECE_BYTES = 32_768  # parsed before others get their turn
_BLOCK_RECORDS = 2_000  # of the growing end
_REST_S = 0.001  # long enough for all that waits: from a key to its paint it is many steps of the event loop
_TRIES = 3
_RETRY_S = 0.2
# Lines are numbered from here while nobody counted those before: numbers stay above 0 on the way to the beginning.
_SOMEWHERE = 1 << 48
_T = TypeVar("_T")

_EVENTS = {
    "truncated": "the file was truncated; what follows is its new content",
    "replaced": "the file was replaced; what follows is the new one",
    "gone": "the file is gone; waiting for a new one",
    "link_lost": "link lost; what is here was last seen",
    "resumed": "the link is back; reading on at the byte where it was lost",
}


@dataclass(frozen=True)
class FileUpdate:
    """What following brought: newer records, already in the window, or an event.

    `event` is None, opened, replaced, truncated, gone, link_lost, resumed or ended (the last one).
    """

    records: tuple[LogRecord, ...] = ()
    event: str | None = None
    text: str | None = None  # the event in words, one line
    behind_bytes: int = 0  # written and not read yet


@dataclass
class _Block:
    """Where a block begins."""

    index: int  # absolute index of its first record
    offset: int  # byte of the file
    number: int  # LogRecord.number of its first line
    generation: int


@dataclass
class _Part:
    """A stretch of the file."""

    window: LogWindow
    blocks: list[_Block]  # ascending, at least one
    end: int = 0  # byte after it; of the growing end, where the line being written begins
    number: int = 1  # LogRecord.number of the line there
    ahead: LogTracker | None = None  # reads on at the end

    @property
    def begin(self) -> int:
        return self.blocks[0].offset

    def holds(self, offset: int, generation: int) -> bool:
        first = next((block for block in self.blocks if block.generation == generation), None)
        return first is not None and first.offset <= offset < self.end

    def drop_first(self, records: int) -> None:
        """Drops blocks in front until no more than so many records are left, the last block stays."""
        while len(self.blocks) > 1 and self.window.end - self.blocks[1].index >= records:
            del self.blocks[0]
        self.window.drop_before(self.blocks[0].index)

    def drop_last(self, records: int) -> None:
        while len(self.blocks) > 1 and len(self.window.records) > records:
            block = self.blocks.pop()
            self.window.drop_from(block.index)
            self.end, self.number, self.ahead = block.offset, block.number, None


@dataclass
class _Stretch:
    """Bytes of whole lines, read from a file."""

    begin: int
    end: int
    pieces: list[bytes | int]  # a number: so many bytes in the middle of an overlong line were not read

    @property
    def lines(self) -> int:
        return sum(piece.count(b"\n") for piece in self.pieces if isinstance(piece, bytes))


class LogFile:
    """One file; `window` is what a view shows, and is another object after a jump, and after coming back to the tail.

    Run `updates()` in one task for as long as the file is on show; everything else may be called meanwhile, from the same
    event loop. All loading calls raise UsageError (no right to read it), HostError, LinkLost after three tries.

    Attributes:
        size: bytes of the file when it was last heard of, None before.
        generation: how often the file was replaced or truncated while it was followed.
        reader: to be set by a view that holds still: the lowest index it shows; None while it follows. What is at it or
            after it is not dropped.
        search: the last search that was begun on this file.
        marks: phases and errors of the whole file, empty until `marks.run()`.
    """

    def __init__(self, transport: Transport, path: str, *, capacity: int = 100_000) -> None:
        self.transport, self.path, self.capacity = transport, path, capacity
        self.size: int | None = None
        self.generation = 0
        self._problem: str | None = None
        self.reader: int | None = None
        self.search: HostSearch | None = None
        self.marks = LogMarks(transport, path)
        self._tail = _Part(_empty(0), [_Block(0, 0, 1, 0)])
        self._here = self._tail
        self._tracker = LogTracker()
        self._opened = False
        self._lost = False  # what was before is not in this file any more
        self._file: str | None = None  # device:inode
        self._next = 0  # byte to be followed from
        self._identity: str | None = None
        self._loading = asyncio.Lock()

    @property
    def window(self) -> LogWindow:
        """What is loaded around the reader."""
        return self._here.window

    @property
    def tail(self) -> LogWindow:
        """The growing end; the same object as `window` while `at_tail`."""
        return self._tail.window

    @property
    def begin(self) -> int:
        """The first byte of the file that `window` holds."""
        return self._here.begin

    @property
    def end(self) -> int:
        """The byte after the last one that `window` holds; at the tail, where the line being written begins."""
        return self._here.end

    @property
    def problem(self) -> str | None:
        """Why it cannot be read on just now (link lost, file gone), one line; None while all is well."""
        if self._problem is None and self.transport.status().state is not LinkState.UP:
            return _EVENTS["link_lost"]
        return self._problem

    @property
    def at_tail(self) -> bool:
        """Whether `window` is the growing end."""
        return self._here is self._tail

    @property
    def at_begin(self) -> bool:
        """Whether nothing can be loaded before `window`: it begins at the file's first byte, or what was before is gone."""
        first = self._here.blocks[0]
        return first.offset == 0 or first.generation != self.generation or self._lost

    # -- following ------------------------------------------------------------------------------------------------

    async def updates(self, ended: Callable[[], bool] | None = None) -> AsyncGenerator[FileUpdate, None]:
        """Opens the file at its tail and follows it. A file that is not there is waited for; a lost link, too.

        Args:
            ended: whether the writer has ended; then an `ended` update is the last. None: until cancelled.

        Raises:
            UsageError: it is no file, or may not be read.
            HostError: the host cannot run the sender.
        """
        while True:
            try:
                if not self._opened:
                    records = await self._open()
                    if records is not None:
                        yield FileUpdate(records, "opened")
                async for chunk in follow(
                    self.transport,
                    self.path,
                    offset=self._next,
                    generation=self.generation,
                    identity=self._identity,
                    ended=ended,
                ):
                    if chunk.event is not None:
                        yield self._event(chunk)
                        continue
                    self._took(chunk)
                    for at in range(0, len(chunk.data), _PIECE_BYTES):
                        piece = chunk.data[at : at + _PIECE_BYTES]
                        behind = max(0, (chunk.size or 0) - chunk.offset - at - len(piece))
                        yield FileUpdate(self._feed(piece), None, None, behind)
                        await asyncio.sleep(_REST_S)
                return
            except HostError as error:
                # A link that needs a person (a code, a password) comes back when they connect again.
                lost = isinstance(error, LinkLost)
                if not lost and self.transport.status().state is LinkState.UP:
                    raise
                if self._problem is None:
                    self._problem = _EVENTS["link_lost"]
                    yield FileUpdate(event="link_lost", text=self._problem)
                await self._link_is_back(error)

    async def _link_is_back(self, error: HostError) -> None:
        async for status in self.transport.watch():
            if status.state is LinkState.UP:
                await asyncio.sleep(_RETRY_S)
                return
        raise error

    async def _open(self) -> tuple[LogRecord, ...] | None:
        """Reads the tail; None where there is no file yet."""
        block = await self._block(-BLOCK_BYTES, BLOCK_BYTES)
        self._opened = True
        if block is None:
            return None
        self._file, self.size = block.file, block.size
        if block.offset > 0 and block.size <= _WHOLE_BYTES:
            before = await self._block(0, block.offset)
            if before is not None and len(before.data) == block.offset:
                block = replace(block, data=before.data + block.data, offset=0)
        stretch = await self._whole_lines(block.data, block.offset, open_end=True)
        number = 1 if stretch.begin == 0 else _SOMEWHERE
        window = _empty(None if stretch.begin else 0)
        self._tracker = LogTracker(offset=stretch.begin, number=number)
        here = self._tail is self._here
        self._tail = _Part(window, [_Block(window.first, stretch.begin, number, self.generation)])
        if here:
            self._here = self._tail
        self._next = stretch.end
        self._lost = False
        self._identity = f"{block.file}:0:0"
        records: list[LogRecord] = []
        for piece in _small(stretch.pieces):
            if isinstance(piece, int):
                self._append(self._tracker.skip(piece))
            else:
                records.extend(self._feed(piece))
                await asyncio.sleep(0)
        return tuple(records)

    def _feed(self, data: bytes) -> tuple[LogRecord, ...]:
        records = self._tracker.feed(data)
        self._append(records)
        return records

    def _append(self, records: tuple[LogRecord, ...]) -> None:
        tail, tracker = self._tail, self._tracker
        tail.window.append(records)
        tail.end, tail.number = tracker.line_offset, tracker.line_number
        settled = tail.window.settled_end
        if settled - tail.blocks[-1].index >= _BLOCK_RECORDS and not tracker.within_line:
            tail.blocks.append(_Block(settled, tail.end, tail.number, self.generation))
        if len(tail.window.records) <= self.capacity * 1.1 or len(tail.blocks) < 2:
            return
        first = next(
            (block.index for block in tail.blocks if tail.window.end - block.index <= self.capacity),
            tail.blocks[-1].index,
        )
        if self._here is tail and self.reader is not None and self.reader < first:
            self._split()
        self._tail.drop_first(self.capacity)

    def _split(self) -> None:
        """The reader's window goes on by itself; the growing end gets another one."""
        here = self._tail
        self._tail = replace(here, window=here.window.copy(), blocks=list(here.blocks))
        # What is of the line being written is not whole.
        offsets = here.window.records[max(0, len(here.window.records) - 4 * _BLOCK_RECORDS) :]
        whole = bisect_left(offsets, here.end, key=_offset)
        here.window.drop_from(here.window.end - len(offsets) + whole)
        here.blocks = [block for block in here.blocks if block.index <= here.window.end]
        here.ahead = None

    def _took(self, chunk: Chunk) -> None:
        self._next = chunk.offset + len(chunk.data)
        self.size, self._identity = chunk.size, chunk.identity
        if chunk.identity is not None:
            self._file = chunk.identity.rsplit(":", 2)[0]
        self._problem = None

    def _event(self, chunk: Chunk) -> FileUpdate:
        event = chunk.event
        assert event is not None
        text = _EVENTS.get(event)
        records: tuple[LogRecord, ...] = ()
        if event in ("truncated", "replaced"):
            self._next, self._identity, self._file = 0, None, None
            self._new_generation(chunk.generation)
            records = (self.add_marker(f"[eagletui] {text}"),)
            self._problem = None
        elif event in ("gone", "link_lost"):
            self._problem = text
        elif event == "resumed":
            self._problem = None
        elif event == "ended":
            records = self._tracker.flush()
            self._append(records)
        return FileUpdate(records, event, text)

    def _new_generation(self, generation: int) -> None:
        self.generation = generation
        self._lost = False
        window = self._tail.window
        window.begin_generation()
        self._tracker = LogTracker()
        self._tail.end, self._tail.number = 0, 1
        self._tail.blocks.append(_Block(window.end, 0, 1, generation))
        self.marks = LogMarks(self.transport, self.path)

    def add_marker(self, text: str, time: str | None = None) -> LogRecord:
        """Puts a line of ours at the growing end: it has no number, and stays where it is."""
        window = self._tail.window
        open_end = window.records[window.settled_end - window.first :]
        phase = window.records[-1].phase if window.records else None
        marker = LogRecord(0, self._tail.end, time, None, text, "marker", phase)
        window.append((marker, *open_end))
        return marker

    # -- loading --------------------------------------------------------------------------------------------------

    async def load_before(self) -> int:
        """Loads the block before `window`; how many records came (0: there is none, see `at_begin`).

        What is too much then goes at the far end: `at_tail` may become false.
        """
        async with self._loading:
            part, generation = self._here, self.generation
            if self.at_begin:
                return 0
            end, number = part.begin, part.blocks[0].number
            begin = max(0, end - BLOCK_BYTES)
            block = await self._block(begin, end - begin)
            if block is None or len(block.data) < end - begin:
                self._lost = self._lost or generation == self.generation
                return 0
            stretch = await self._whole_lines(block.data, begin)
            number -= stretch.lines
            records = await self._parse(LogTracker(offset=stretch.begin, number=number), stretch)
            if part is not self._here or generation != self.generation:
                return 0
            if part is self._tail and len(part.window.records) + len(records) > self.capacity:
                self._split()
            window = part.window
            before = window.first
            window.prepend(records)
            part.blocks.insert(0, _Block(window.first, stretch.begin, number, generation))
            if stretch.begin == 0:
                window.line_base = 1 - number
            if part is not self._tail:
                part.drop_last(self.capacity)
            return before - window.first

    async def load_after(self) -> int:
        """Loads the block after `window` where that is in the middle of the file; reaching the end makes it the tail again."""
        async with self._loading:
            part, generation = self._here, self.generation
            if part is self._tail or part.blocks[-1].generation != generation:
                return 0
            before = part.window.end
            first = next(block for block in self._tail.blocks if block.generation == generation)
            if part.end >= first.offset:
                self._take_from_tail(part)
            else:
                await self._read_on(part, first.offset)
            return part.window.end - before if part is self._here else 0

    async def _read_on(self, part: _Part, limit: int) -> None:
        generation = self.generation
        block = await self._block(part.end, min(BLOCK_BYTES, limit - part.end))
        if block is None or not block.data:
            self._lost = self._lost or generation == self.generation
            return
        stretch = await self._lines_from(block.data, part.end)
        tracker = part.ahead or LogTracker(offset=part.end, number=part.number)
        begin = _Block(part.window.end, part.end, part.number, generation)
        records = await self._parse(tracker, stretch)
        if part is self._here and generation == self.generation:
            part.window.append(records)
            part.blocks.append(begin)
            part.end, part.number, part.ahead = stretch.end, tracker.line_number, tracker
            part.drop_first(self.capacity)

    def _take_from_tail(self, part: _Part) -> None:
        """Goes on with what the growing end has already; with the last of it, `part` is the growing end."""
        tail = self._tail
        base = tail.window.generation_first or tail.window.first
        low = max(0, base - tail.window.first)
        begin = bisect_left(tail.window.records, part.end, lo=low, key=_offset) + tail.window.first
        block = next(
            (
                block
                for block in tail.blocks
                if block.generation == self.generation and block.offset > part.end and block.index > begin
            ),
            None,
        )
        end = block.index if block is not None else tail.window.end
        records = tail.window.records[begin - tail.window.first : end - tail.window.first]
        shift = part.number - next((r.number for r in records if r.number), part.number)
        if shift:
            records = [replace(r, number=r.number + shift) if r.number else r for r in records]
        part.blocks.append(_Block(part.window.end, part.end, part.number, self.generation))
        if block is not None:
            part.window.append(records)
            part.end, part.number, part.ahead = block.offset, block.number + shift, None
            part.drop_first(self.capacity)
            return
        if shift:
            # The tracker goes on with the tail's numbers: the other records take those.
            window = part.window
            window.renumber(-shift)
            if window.line_base is None and tail.window.line_base is not None:
                window.line_base = tail.window.line_base
            records = tail.window.records[begin - tail.window.first :]
            for known in part.blocks:
                known.number -= shift
        part.window.append(records)
        part.end, part.number = tail.end, tail.number
        self._tail = part

    async def jump_to(self, offset: int, *, number: int | None = None) -> int | None:
        """Makes `window` hold a byte of the file; absolute index in it of the record with that byte, None in an empty file.

        Args:
            number: line of the file that holds the byte where that is known, so that line numbers are exact at once.
        """
        async with self._loading:
            generation = self.generation
            offset = max(0, min(offset, (self.size or 1) - 1))
            for part in (self._here, self._tail):
                if part.holds(offset, generation) or (part is self._tail and offset >= part.end > 0):
                    self._here = part
                    break
            else:
                around = await self._part_around(offset)
                if around is None or generation != self.generation:
                    return None
                part = self._here = around
            index = part.window.at_offset(offset)
            if index is None:
                return part.window.first if part.window.records else None
            if number is not None and part.window.line_base is None:
                part.window.line_base = number - part.window.record(index).number
            return index

    async def _part_around(self, offset: int) -> _Part | None:
        tail = next((b.offset for b in self._tail.blocks if b.generation == self.generation), None)
        limit = tail if tail is not None and tail > offset else None

        async def lines_from(begin: int) -> _Stretch | None:
            length = BLOCK_BYTES if limit is None else min(BLOCK_BYTES, limit - begin)
            block = await self._block(begin, length)
            if block is None or not block.data:
                return None
            self._file, self.size = self._file or block.file, block.size
            at = 0 if begin in whole else first_line(block.data, begin)
            if at is None or begin + at > offset:
                return _Stretch(begin, begin, [])
            return await self._lines_from(block.data[at:], begin + at)

        whole: set[int] = set()  # bytes where a line begins
        begin = max(0, offset - BLOCK_BYTES // 2)
        stretch = await lines_from(begin)
        if stretch is not None and stretch.end <= offset:
            # The line with that byte is longer than what was read.
            begin = stretch.end if stretch.pieces else await line_begin(self.transport, self.path, offset)
            whole.add(begin)
            stretch = await lines_from(begin)
        if stretch is None:
            return None
        first = 1 if stretch.begin == 0 else _SOMEWHERE
        tracker = LogTracker(offset=stretch.begin, number=first)
        window = _empty(None if stretch.begin else 0)
        window.append(await self._parse(tracker, stretch))
        blocks = [_Block(window.first, stretch.begin, first, self.generation)]
        return _Part(window, blocks, stretch.end, tracker.line_number, tracker)

    async def jump_to_line(self, number: int) -> int | None:
        """The same for a line of the file, counted from 1; the last one where there are fewer. The host counts."""
        for part in (self._here, self._tail):
            index = part.window.at_line(number)
            if index is not None:
                self._here = part
                return index
        offset = await self._tried(lambda: offset_of_line(self.transport, self.path, number))
        if offset is None:
            return None
        known = self.size is None or offset < self.size
        return await self.jump_to(offset, number=number if known else None)

    def to_tail(self) -> None:
        """`window` is the growing end again."""
        self._here = self._tail

    async def count_lines(self) -> bool:
        """Makes line numbers exact: the host counts the lines before what is loaded, the growing end and, after a jump, what is
        around the reader. False where the file changed meanwhile."""
        tail, here = self._tail, self._here
        return await self._count_before(tail) and (here is tail or await self._count_before(here))

    async def _count_before(self, part: _Part) -> bool:
        generation = self.generation
        if part.window.line_base is not None:
            return True
        begin, number = part.begin, part.blocks[0].number
        count = await self._tried(lambda: lines_before(self.transport, self.path, begin))
        if count is None or generation != self.generation:
            return False
        part.window.line_base = count + 1 - number
        part.window.serial += 1
        return True

    async def first_stamp_s(self) -> float | None:
        """The first stamp of the file (`LogRecord.stamp_s`), from its first 64 KiB; None where there is none in it."""
        block = await self._block(0, LINE_LIMIT)
        records = LogTracker().feed(block.data) if block is not None else ()
        return next((record.stamp_s for record in records if record.stamp_s is not None), None)

    # -- finding --------------------------------------------------------------------------------------------------

    def begin_search(self, needle: Needle) -> HostSearch:
        """A search over the whole file, to be run by `HostSearch.run()`; the one before it is forgotten."""
        self.search = HostSearch(self.transport, self.path, needle)
        return self.search

    async def next_hit(self, index: int, step: int) -> Hit | None:
        """The next (1) or previous (-1) line with a hit of `search`, seen from a record of `window`; None: none that way."""
        search = self.search
        if search is None:
            return None
        return await self._tried(lambda: search.next(self._edge(index, step), step))

    def next_mark(self, kind: str, index: int, step: int) -> Mark | None:
        """The next or previous phase or error of `marks`, seen from a record of `window`."""
        return self.marks.next(kind, self._edge(index, step), step)

    def phase_at(self, index: int) -> Phase | None:
        """The phase in force at a record of `window`, by what is loaded and by `marks`; None while that is not known."""
        record = self.window.record(index)
        marked = self.marks.phase_at(record.offset)
        if marked is None or marked is Phase.READY:  # marks know no line of a serving server
            return record.phase or marked
        return marked

    def _edge(self, index: int, step: int) -> int:
        """Where the line of a record begins (step -1), or the line after it (step 1)."""
        part = self._here
        records = part.window.records
        at = max(0, min(index - part.window.first, len(records) - 1))
        if not records:
            return part.begin
        number = records[at].number
        if step < 0:
            while at > 0 and records[at - 1].number == number and records[at - 1].kind != "marker":
                at -= 1
            return records[at].offset
        while at < len(records) and (records[at].number == number or records[at].kind == "marker"):
            at += 1
        return records[at].offset if at < len(records) else part.end

    # -- reading --------------------------------------------------------------------------------------------------

    async def _tried(self, ask: Callable[[], Awaitable[_T]]) -> _T:
        """Asks again where the link was lost under the question: nothing of it changes anything there."""
        for left in range(_TRIES - 1, -1, -1):
            try:
                return await ask()
            except LinkLost:
                if not left:
                    raise
                await asyncio.sleep(_RETRY_S)
        raise AssertionError

    async def _block(self, offset: int, length: int) -> Block | None:
        """Bytes of the file that is followed; None where it is gone or another one."""
        block = await self._tried(lambda: read_block(self.transport, self.path, offset, length, file=self._file))
        return block if block is None or self._file in (None, block.file) else None

    async def _whole_lines(self, data: bytes, offset: int, *, open_end: bool = False) -> _Stretch:
        """What of a block begins with a line; of a line longer than that, its beginning and its end.

        Args:
            open_end: the last line may still be written.
        """
        end = offset + len(data)
        at = first_line(data, offset)
        if at is not None:
            return _Stretch(offset + at, end, [data[at:]])
        begin = await line_begin(self.transport, self.path, offset)
        close = data[-1:] if data.endswith((b"\n", b"\r")) else b""
        lead = await self._block(begin, min(LINE_LIMIT, end - begin - len(close)))
        text = lead.data if lead is not None else b""
        return _Stretch(begin, end, [text, end - begin - len(text) - len(close), close])

    async def _lines_from(self, data: bytes, offset: int) -> _Stretch:
        """The whole lines at the beginning of a block; the first one, however long, where there is none."""
        cut = data.rfind(b"\n") + 1 or data.rfind(b"\r", 0, len(data) - 1) + 1
        if cut:
            return _Stretch(offset, offset + cut, [data[:cut]])
        end, closed = await line_end(self.transport, self.path, offset)
        text = data[:LINE_LIMIT]
        return _Stretch(offset, end, [text, end - offset - len(text) - closed, b"\n" if closed else b""])

    async def _parse(self, tracker: LogTracker, stretch: _Stretch) -> list[LogRecord]:
        records: list[LogRecord] = []
        for piece in _small(stretch.pieces):
            if isinstance(piece, int):
                tracker.skip(piece)
            else:
                records.extend(r for r in tracker.feed(piece) if not r.provisional)
                await asyncio.sleep(0)
        return records


def _small(pieces: list[bytes | int]) -> list[bytes | int]:
    out: list[bytes | int] = []
    for piece in pieces:
        if isinstance(piece, int):
            out.append(piece)
        else:
            out += [piece[at : at + _PIECE_BYTES] for at in range(0, len(piece), _PIECE_BYTES)]
    return out


def _empty(base: int | None) -> LogWindow:
    window = LogWindow(None)
    window.line_base = base
    return window


def _offset(record: LogRecord) -> int:
    return record.offset
