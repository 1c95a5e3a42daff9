"""A part of a file that is loaded: a window of records over blocks of bytes, so that either end can be dropped."""

from bisect import bisect_left
from dataclasses import dataclass, replace
from operator import attrgetter

from tui.core.logs.window import LogWindow
from tui.core.model.log import LogRecord
from tui.core.sglang.splitter import LinePlace
from tui.core.sglang.tracker import LogTracker

_BLOCK_RECORDS = 2_000  # of the growing end


@dataclass
class BlockStart:
    """Where a block begins."""

    index: int  # absolute index of its first record
    offset: int  # byte of the file
    number: int  # LogRecord.number of its first line
    generation: int


@dataclass
class Part:
    """What is loaded of a file in one piece."""

    window: LogWindow
    blocks: list[BlockStart]  # ascending, at least one
    end: int = 0  # byte after it; of the growing end, where the line being written begins
    number: int = 1  # LogRecord.number of the line there
    ahead: LogTracker | None = None  # reads on at the end

    @classmethod
    def starting_at(cls, offset: int, number: int, generation: int, *, counted: bool) -> "Part":
        """An empty part. `counted`: `number` is the line of the file."""
        window = LogWindow()
        window.line_base = 0 if counted else None
        return cls(window, [BlockStart(window.first, offset, number, generation)], offset, number)

    @property
    def begin(self) -> int:
        """Its first byte."""
        return self.blocks[0].offset

    def first_of(self, generation: int) -> BlockStart | None:
        """The first block of the file as it is now."""
        return next((block for block in self.blocks if block.generation == generation), None)

    def holds(self, offset: int, generation: int) -> bool:
        """Whether a byte of the file as it is now is loaded here."""
        first = self.first_of(generation)
        return first is not None and first.offset <= offset < self.end

    def grow(self, records: tuple[LogRecord, ...], place: LinePlace, generation: int) -> None:
        """Takes the next records of the growing end; `place` is where the line being written begins after them."""
        self.window.append(records)
        self.end, self.number = place.offset, place.number
        settled = self.window.settled_end
        if settled - self.blocks[-1].index >= _BLOCK_RECORDS and not place.within:
            self.blocks.append(BlockStart(settled, self.end, self.number, generation))

    def first_kept(self, records: int) -> int | None:
        """Index of the first record that stays where about so many are kept; None while there are not too many."""
        if len(self.window.records) <= records * 1.1 or len(self.blocks) < 2:
            return None
        kept = (block.index for block in self.blocks if self.window.end - block.index <= records)
        return next(kept, self.blocks[-1].index)

    def drop_first(self, records: int) -> None:
        """Drops blocks in front until no more than so many records are left; the last block stays."""
        while len(self.blocks) > 1 and self.window.end - self.blocks[1].index >= records:
            del self.blocks[0]
        self.window.drop_before(self.blocks[0].index)

    def drop_last(self, records: int) -> None:
        """The same from the end."""
        while len(self.blocks) > 1 and len(self.window.records) > records:
            block = self.blocks.pop()
            self.window.drop_from(block.index)
            self.end, self.number, self.ahead = block.offset, block.number, None

    def split(self) -> "Part":
        """Another part with the same content to grow on, while this one holds still and ends with a whole line."""
        grows = replace(self, window=self.window.copy(), blocks=list(self.blocks))
        window = self.window
        begin = max(0, len(window.records) - 4 * _BLOCK_RECORDS)
        window.drop_from(window.first + bisect_left(window.records, self.end, lo=begin, key=attrgetter("offset")))
        self.blocks = [block for block in self.blocks if block.index <= window.end]
        self.ahead = None
        return grows

    def edge(self, index: int, step: int) -> int:
        """Byte where the line of a record begins (step -1), or the line after it (step 1)."""
        records = self.window.records
        if not records:
            return self.begin
        at = max(0, min(index - self.window.first, len(records) - 1))
        number = records[at].number
        if step < 0:
            while at > 0 and records[at - 1].number == number and records[at - 1].kind != "marker":
                at -= 1
            return records[at].offset
        while at < len(records) and (records[at].number == number or records[at].kind == "marker"):
            at += 1
        return records[at].offset if at < len(records) else self.end
