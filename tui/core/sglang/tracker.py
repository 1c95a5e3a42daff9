"""From the bytes of a server's log to records for a view, and to what they say about the server."""

from tui.core.masking.written import mask_text
from tui.core.model.log import LogRecord
from tui.core.sglang.lineshape import Segment, segments, stamp_seconds
from tui.core.sglang.patterns import patterns
from tui.core.sglang.run_reader import MATCHED, RunReader
from tui.core.sglang.skim import Skimmer
from tui.core.sglang.splitter import LinePlace, LineSplitter, Piece
from tui.core.sglang.start import Bar
from tui.core.sglang.state import Paste, StartupState


class LogTracker:
    """Follows one log. The result depends on the bytes alone, never on how they were cut into chunks.

    Args:
        records: make a LogRecord of every line (for a view). Without, `feed` returns nothing and steady decode lines cost
            next to nothing.
        offset, number: byte and line where the first bytes fed stand in the file. Other than at the beginning, the phase
            is not known before a line tells it.
    """

    paste = Paste()  # not asked where nobody pasted anything

    def __init__(self, records: bool = True, *, offset: int = 0, number: int = 1) -> None:
        self._wants_records = records
        self._tables = patterns()
        self.reset(offset, number)

    def reset(self, offset: int = 0, number: int = 1) -> None:
        """Another file, or the same one replaced: everything starts again."""
        self._splitter = LineSplitter(offset, number)
        self._reader = RunReader(self._tables, fragment=offset > 0)
        self._skimmer = Skimmer(self._reader, self._tables)
        self._ended = False
        self._state: StartupState | None = None

    def feed(self, data: bytes) -> tuple[LogRecord, ...]:
        """Takes the next bytes; returns the records they completed or replaced, and the unterminated tail as a provisional one."""
        if not data:
            return ()
        self._state = None
        self._ended = False
        if not self._wants_records:
            self._skimmer.feed(self._splitter, data)
            return ()
        out = [record for piece in self._splitter.feed(data) for record in self._records(piece)]
        return (*out, *self._provisional())

    def take_line(self, text: str, number: int) -> None:
        """Takes a line without its terminator, of which no record is wanted; numbers are the caller's."""
        self._state = None
        if text:
            self._reader.line(text.encode("utf-8", "replace"), number)

    def skip(self, count: int) -> tuple[LogRecord, ...]:
        """Passes over bytes in the middle of an overlong line; returns it as it is so far, as a provisional record."""
        self._splitter.skip(count)
        return tuple(self._provisional())

    def flush(self) -> tuple[LogRecord, ...]:
        """The writer is gone: the unterminated tail is a line, and an open traceback is final."""
        self._state = None
        self._ended = True
        return tuple(record for piece in self._splitter.flush() for record in self._records(piece))

    def go_on_at(
        self, offset: int, number: int, *, slow_tokenizer: int = 0, retracted: tuple[int, int] = (0, 0)
    ) -> None:
        """Usual lines between here and a line further on are not read; what is known stays.

        Args:
            offset, number: byte and line where reading goes on.
            slow_tokenizer: how many of those not read warn of a slow tokenizer.
            retracted: how many of them say that requests were taken back, and how many requests.
        """
        if number > self._splitter.number or slow_tokenizer or retracted[0]:
            self._reader.passed_over(self._splitter.number, slow_tokenizer, retracted)
        self._splitter = LineSplitter(offset, number)
        self._state = None

    def state(self) -> StartupState:
        """Everything known now; cheap, and the same object while nothing came."""
        if self._state is None:
            tail = self._splitter.tail
            frames = [segment.bar for segment in segments(tail) if segment.bar is not None] if b"%" in tail else []
            self._state = self._reader.state(self._splitter.lines, frames, self._ended)
        return self._state

    @property
    def place(self) -> LinePlace:
        """How far reading has come."""
        return self._splitter.place

    def _records(self, piece: Piece) -> list[LogRecord]:
        """Takes a piece of the log in; its records where they are wanted."""
        raw, number, offset, cut = piece
        if not self._wants_records:
            if raw:
                self._reader.line(raw, number)
            return []
        if not raw:
            return [LogRecord(number, offset, None, None, "", "plain", self._reader.phase, cut)]
        out = []
        for part, segment in enumerate(segments(raw)):
            begin = offset + segment.at if part else offset  # what wraps a line belongs to its first record
            if segment.bar is not None:
                bar = self._reader.bar(segment, segment.bar, number, begin)
                out.append(self._bar(bar, bar.frames, segment, cut))
            else:
                kind = self._reader.text(segment, number) or self._tables.kind_of(segment.body[:MATCHED])
                out.append(self._text(segment, kind, number, begin, cut))
        return out

    def _provisional(self) -> list[LogRecord]:
        splitter = self._splitter
        tail, cut = splitter.tail, splitter.tail_cut
        out = []
        for part, segment in enumerate(segments(tail) if tail else ()):
            bar = self._reader.start.same_bar(segment.bar) if segment.bar is not None else None
            if bar is not None:
                out.append(self._bar(bar, bar.frames + 1, segment, cut))
                continue
            begin = splitter.offset + segment.at if part else splitter.offset
            kind = "bar" if segment.bar is not None else self._tables.kind_of(segment.body[:MATCHED])
            out.append(self._text(segment, kind, splitter.number, begin, cut, provisional=True))
        return out

    def _text(
        self, segment: Segment, kind: str, number: int, offset: int, cut: int, *, provisional: bool = False
    ) -> LogRecord:
        return LogRecord(
            number,
            offset,
            segment.time,
            segment.rank or ("main" if segment.rank is not None else None),
            mask_text(segment.body),
            kind,
            self._reader.phase,
            cut,
            provisional=provisional,
            stamp_s=stamp_seconds(segment.stamp),
        )

    def _bar(self, bar: Bar, frames: int, segment: Segment, cut: int) -> LogRecord:
        key, rank = bar.offset, self._reader.rank_of_bars
        return LogRecord(
            bar.number, key, None, rank, mask_text(segment.body), "bar", self._reader.phase, cut, key, frames
        )
