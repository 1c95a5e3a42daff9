"""A log file of any size on a host: the tail first, then whatever is asked for, never the whole file over the link.

What is loaded is one or two parts of the file: the growing end, and after a jump, or when there is too much between
a reader far up and the end, another one around the reader. Either is bounded; blocks of it go at its far end.
"""

import asyncio
from bisect import bisect_left
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace
from operator import attrgetter

from tui.core.errors import HostError
from tui.core.link.retry import follow_through, try_again
from tui.core.link.transport import LinkState, Transport
from tui.core.logs.follow import Chunk, follow
from tui.core.logs.parts import BlockStart, Part
from tui.core.logs.reader import ANOTHER_FILE, EVENTS, LogReader, LogStep
from tui.core.logs.search import LogMarks, lines_before, offset_of_line
from tui.core.logs.stretches import PIECE_BYTES, HostFile, parse
from tui.core.logs.window import LogWindow
from tui.core.model.log import LINE_LIMIT, LogRecord
from tui.core.model.phases import Phase
from tui.core.sglang.splitter import LinePlace
from tui.core.sglang.tracker import LogTracker

BLOCK_BYTES = 262_144  # read at once; shown at once
_WHOLE_BYTES = 2 * BLOCK_BYTES  # a file that small is read from its beginning
_REST_S = 0.001  # long enough for all that waits: from a key to its paint it is many steps of the event loop
# Lines are numbered from here while nobody counted those before: numbers stay above 0 on the way to the beginning.
_SOMEWHERE = 1 << 48


class LogFile:
    """One file; `window` is what a view shows, and is another object after a jump, and after coming back to the tail.

    Run `updates()` in one task for as long as the file is displayed, or `take` the steps of somebody who reads it anyway;
    everything else may be called meanwhile, from the same event loop. All loading calls raise UsageError (no permission), HostError, LinkLost after three tries.

    Attributes:
        generation: how often the file was replaced or truncated while it was followed.
        reader: to be set by a view that holds still: the lowest index it shows; None while it follows. What is at it or
            after it is not dropped.
        marks: phases and errors of the whole file, empty until `marks.run()`.
    """

    def __init__(self, transport: Transport, path: str, *, capacity: int = 100_000) -> None:
        self.transport, self.path, self.capacity = transport, path, capacity
        self.generation = 0
        self._problem: str | None = None
        self.reader: int | None = None
        self.marks = LogMarks(transport, path)
        self._tail = Part.starting_at(0, 1, 0, counted=True)
        self._here = self._tail
        self._reader = LogReader(LogTracker())
        self._opened = False
        self._lost = False  # what was before is not in this file any more
        self._host_file = HostFile(transport, path)
        self._last: Chunk | None = None  # that was followed
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
    def size(self) -> int | None:
        """Bytes of the file when it was last heard of, None before."""
        return self._host_file.size

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
            return EVENTS["link_lost"]
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

    async def updates(self, ended: Callable[[], bool] | None = None) -> AsyncGenerator[LogStep, None]:
        """Opens the file at its tail and follows it. A file that is not there is waited for; a lost link, too.

        Args:
            ended: whether the writer has ended; then an `ended` step is the last. None: until cancelled.

        Raises:
            UsageError: it is not a file, or may not be read.
            HostError: the host cannot run the sender.
        """
        async with aclosing(follow_through(self.transport, lambda: self._open_and_follow(ended))) as found:
            async for step in found:
                if not isinstance(step, HostError):
                    yield step
                elif self._problem is None:  # else its chunk said so
                    lost = LogStep(event="link_lost")
                    self.take(lost)
                    yield lost

    async def _open_and_follow(self, ended: Callable[[], bool] | None) -> AsyncGenerator[LogStep, None]:
        if not self._opened:
            records = await self._open()
            if records is not None:
                yield LogStep(records, "opened")
        async with aclosing(follow(self.transport, self.path, after=self._last, ended=ended)) as chunks:
            async for chunk in chunks:
                self._last = chunk
                for at in range(0, max(1, len(chunk.data)), PIECE_BYTES):
                    piece = replace(chunk, data=chunk.data[at : at + PIECE_BYTES], offset=chunk.offset + at)
                    step = self._reader.take(piece)
                    self.take(step)
                    yield step
                    if piece.data:
                        await asyncio.sleep(_REST_S)

    def take(self, step: LogStep) -> None:
        """Puts what following brought at the growing end: of `updates`, or of somebody else who reads all of this file."""
        chunk = step.chunk
        if step.event in ANOTHER_FILE and chunk is not None:
            self._host_file.identity = None
            self._new_generation(chunk.generation)
            self.add_marker(f"[eagletui] {step.text}")
        elif step.event == "skipped":
            self._begin_tail(step.place, counted=True)
        elif chunk is not None and chunk.data and chunk.identity is not None:
            self._host_file.identity = chunk.identity.rsplit(":", 2)[0]
        self._problem = step.text if step.problem or step.event in ("gone", "link_lost") else None
        if chunk is not None and chunk.size is not None:
            self._host_file.size = chunk.size
        if step.records or (chunk is not None and chunk.data):
            self._append(step.records, step.place)

    async def _open(self) -> tuple[LogRecord, ...] | None:
        """Reads the tail; None where there is no file yet."""
        block = await self._host_file.block(-BLOCK_BYTES, BLOCK_BYTES)
        self._opened = True
        if block is None:
            return None
        self._host_file.identity = block.file
        if block.offset > 0 and block.size <= _WHOLE_BYTES:
            before = await self._host_file.block(0, block.offset)
            if before is not None and len(before.data) == block.offset:
                block = replace(block, data=before.data + block.data, offset=0)
        stretch = await self._host_file.whole_lines(block.data, block.offset)
        number = 1 if stretch.begin == 0 else _SOMEWHERE
        self._reader = LogReader(LogTracker(offset=stretch.begin, number=number))
        self._begin_tail(self._reader.tracker.place, counted=stretch.begin == 0)
        self._lost = False
        self._last = Chunk(b"", stretch.end, self.generation, block.size, None, f"{block.file}:0:0")
        records: list[LogRecord] = []
        for piece in stretch.small_pieces():
            if isinstance(piece, int):
                step = self._reader.skip(piece)
            else:
                step = self._reader.take(Chunk(piece, 0, self.generation, None))
                records.extend(step.records)
                await asyncio.sleep(0)
            self._append(step.records, step.place)
        return tuple(records)

    def _begin_tail(self, place: LinePlace, *, counted: bool) -> None:
        here = self._tail is self._here
        self._tail = Part.starting_at(place.offset, place.number, self.generation, counted=counted)
        if here:
            self._here = self._tail

    def _append(self, records: tuple[LogRecord, ...], place: LinePlace) -> None:
        tail = self._tail
        tail.grow(records, place, self.generation)
        first = tail.first_kept(self.capacity)
        if first is None:
            return
        if self._here is tail and self.reader is not None and self.reader < first:
            self._tail = tail.split()  # the reader's window continues by itself
        self._tail.drop_first(self.capacity)

    def _new_generation(self, generation: int) -> None:
        self.generation = generation
        self._lost = False
        window = self._tail.window
        window.begin_generation()
        self._tail.end, self._tail.number = 0, 1
        self._tail.blocks.append(BlockStart(window.end, 0, 1, generation))
        self.marks = LogMarks(self.transport, self.path)

    def add_marker(self, text: str, time: str | None = None, phase: Phase | None = None) -> None:
        """Puts a line of ours at the growing end; `phase` is its phase where no record is before it."""
        self.tail.add_marker(self._tail.end, text, time, phase)

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
            block = await self._host_file.block(begin, end - begin)
            if block is None or len(block.data) < end - begin:
                self._lost = self._lost or generation == self.generation
                return 0
            stretch = await self._host_file.whole_lines(block.data, begin)
            number -= stretch.lines
            records = await parse(LogTracker(offset=stretch.begin, number=number), stretch)
            if part is not self._here or generation != self.generation:
                return 0
            if part is self._tail and len(part.window.records) + len(records) > self.capacity:
                self._tail = part.split()
            window = part.window
            before = window.first
            window.prepend(records)
            part.blocks.insert(0, BlockStart(window.first, stretch.begin, number, generation))
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
            first = self._tail.first_of(generation)
            if first is None or part.end >= first.offset:
                self._take_from_tail(part)
            else:
                await self._read_on(part, first.offset)
            return part.window.end - before if part is self._here else 0

    async def _read_on(self, part: Part, limit: int) -> None:
        generation = self.generation
        block = await self._host_file.block(part.end, min(BLOCK_BYTES, limit - part.end))
        if block is None or not block.data:
            self._lost = self._lost or generation == self.generation
            return
        stretch = await self._host_file.lines_from(block.data, part.end)
        tracker = part.ahead or LogTracker(offset=part.end, number=part.number)
        begin = BlockStart(part.window.end, part.end, part.number, generation)
        records = await parse(tracker, stretch)
        if part is self._here and generation == self.generation:
            part.window.append(records)
            part.blocks.append(begin)
            part.end, part.number, part.ahead = stretch.end, tracker.place.number, tracker
            part.drop_first(self.capacity)

    def _take_from_tail(self, part: Part) -> None:
        """Continues with what the growing end has already; with the last of it, `part` is the growing end."""
        tail = self._tail
        base = tail.window.generation_first or tail.window.first
        low = max(0, base - tail.window.first)
        begin = bisect_left(tail.window.records, part.end, lo=low, key=attrgetter("offset")) + tail.window.first
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
        part.blocks.append(BlockStart(part.window.end, part.end, part.number, self.generation))
        if block is not None:
            part.window.append(records)
            part.end, part.number, part.ahead = block.offset, block.number + shift, None
            part.drop_first(self.capacity)
            return
        if shift:
            # The tracker continues with the tail's numbers: the other records take those.
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

    async def _part_around(self, offset: int) -> Part | None:
        tail = self._tail.first_of(self.generation)
        limit = tail.offset if tail is not None and tail.offset > offset else None
        stretch = await self._host_file.lines_around(offset, BLOCK_BYTES, limit)
        if stretch is None:
            return None
        first = 1 if stretch.begin == 0 else _SOMEWHERE
        tracker = LogTracker(offset=stretch.begin, number=first)
        part = Part.starting_at(stretch.begin, first, self.generation, counted=stretch.begin == 0)
        part.window.append(await parse(tracker, stretch))
        part.end, part.number, part.ahead = stretch.end, tracker.place.number, tracker
        return part

    async def jump_to_line(self, number: int) -> int | None:
        """The same for a line of the file, counted from 1; the last one where there are fewer. The host counts."""
        for part in (self._here, self._tail):
            index = part.window.at_line(number)
            if index is not None:
                self._here = part
                return index
        offset = await try_again(lambda: offset_of_line(self.transport, self.path, number))
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

    async def _count_before(self, part: Part) -> bool:
        generation = self.generation
        if part.window.line_base is not None:
            return True
        begin, number = part.begin, part.blocks[0].number
        count = await try_again(lambda: lines_before(self.transport, self.path, begin))
        if count is None or generation != self.generation:
            return False
        part.window.line_base = count + 1 - number
        part.window.serial += 1
        return True

    async def first_stamp_s(self, offset: int) -> float | None:
        """The first stamp (`LogRecord.stamp_s`) in the 64 KiB from a byte on; None where there is none."""
        block = await self._host_file.block(offset, LINE_LIMIT)
        records = LogTracker(offset=max(1, offset), number=_SOMEWHERE).feed(block.data) if block is not None else ()
        return next((record.stamp_s for record in records if record.stamp_s is not None), None)

    def edge(self, index: int, step: int) -> int:
        """Byte where the line of a record of `window` begins (step -1), or the line after it (step 1)."""
        return self._here.edge(index, step)

    def phase_at(self, index: int) -> Phase | None:
        """The phase in effect at a record of `window`, by what is loaded and by `marks`; None while that is not known."""
        record = self.window.record(index)
        marked = self.marks.phase_at(record.offset)
        if marked is None or marked is Phase.READY:  # marks know no line of a serving server
            return record.phase or marked
        return marked
