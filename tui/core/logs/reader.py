"""A log being read: its chunks become records, and every step says how far reading has come with them."""

from dataclasses import dataclass

from tui.core.logs.excerpt import Passage
from tui.core.logs.follow import Chunk
from tui.core.model.log import LogRecord
from tui.core.sglang.splitter import LinePlace
from tui.core.sglang.tracker import LogTracker

ANOTHER_FILE = frozenset(("truncated", "replaced"))

EVENTS = {
    "truncated": "the file was truncated; what follows is its new content",
    "replaced": "the file was replaced; what follows is the new one",
    "gone": "the file is gone; waiting for a new one",
    "link_lost": "link lost; what is here was last seen",
    "resumed": "the link is back; reading on at the byte where it was lost",
}


_BEGIN = LinePlace(0, 1)


@dataclass(frozen=True)
class LogStep:
    """What a chunk brought: records, or an event.

    `event` is None, opened, skipped (lines before `place` were not read), replaced or truncated (what follows is another
    file), gone, link_lost, resumed or ended (the last one).
    """

    records: tuple[LogRecord, ...] = ()
    event: str | None = None
    place: LinePlace = _BEGIN
    chunk: Chunk | None = None  # what it is made of; None: nothing was read for it
    problem: str | None = None  # why the log cannot be read at all, one line

    @property
    def text(self) -> str | None:
        """The event in words, one line; None where there is nothing to say."""
        return self.problem or EVENTS.get(self.event or "")

    @property
    def behind_bytes(self) -> int:
        """Bytes written and not read yet."""
        chunk = self.chunk
        return max(0, (chunk.size or 0) - chunk.end) if chunk is not None else 0


class LogReader:
    """Turns the chunks of one log into steps, in their order."""

    def __init__(self, tracker: LogTracker) -> None:
        self.tracker = tracker

    def take(self, chunk: Chunk) -> LogStep:
        """Reads the next chunk."""
        if chunk.event in ANOTHER_FILE:
            self.tracker.reset()
        records = self.tracker.flush() if chunk.event == "ended" else self.tracker.feed(chunk.data)
        return LogStep(records, chunk.event, self.tracker.place, chunk)

    def skip(self, count: int) -> LogStep:
        """Passes over bytes in the middle of an overlong line."""
        return LogStep(self.tracker.skip(count), None, self.tracker.place)

    def glance(self, passage: Passage) -> None:
        """Reads unusual lines further on, of which no records are wanted."""
        self.tracker.go_on_at(
            passage.offset, passage.number, slow_tokenizer=passage.slow_tokenizer, retracted=passage.retracted
        )
        self.tracker.feed(passage.data)

    def go_on_at(self, offset: int, number: int) -> LogStep:
        """Leaves out the lines before a line further on."""
        self.tracker.go_on_at(offset, number)
        return LogStep((), "skipped", self.tracker.place)
