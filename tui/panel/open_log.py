"""One open log as the panel reads it: what is loaded of it, what is known of the rest, and what goes on, in words.

Free of Textual, like the board. A log that the panel watches anyway is read from the watcher's window; a file of any size
is read through `LogFile`, which holds a part of it and asks the host for the rest.
"""

import asyncio
import contextlib
import time
from bisect import bisect_left
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tui import format as fmt
from tui.core.errors import EagletuiError, LinkLost
from tui.core.logs.blocks import read_block
from tui.core.logs.window import LogWindow
from tui.core.masking import mask_secrets
from tui.core.model.log import LogRecord
from tui.core.model.phases import Phase
from tui.core.sglang.series import DecodeSeries
from tui.core.sglang.tracker import LogTracker

if TYPE_CHECKING:
    from tui.core.logs.log_file import LogFile
    from tui.core.logs.search import Hit, HostSearch, Mark
    from tui.core.sglang.series import DecodePoint

_FIRST_PAGE_S = 0.5  # the host may be this machine: the first page is not held up by greps
_GROWN_S = 2.0  # how often a search looks at what came since
_POINTS_KEPT = 20_000
_PIECE_BYTES = 65_536  # read to learn what time it is there


@dataclass(frozen=True)
class LogSource:
    """A file that can be opened for reading."""

    name: str  # for titles: `run 4f9c2a`, `gpu1:/var/log/x.log`
    file: "LogFile"
    ended: Callable[[], bool] | None = None  # whether its writer has ended; None: nobody knows
    last_words: Callable[[], tuple[str, str | None] | None] = lambda: None  # a line of ours then, and its time


class Reading:
    """One log on show.

    Attributes:
        name: what it is, for titles: `run 4f9c2a`, `gpu1:/var/log/x.log`.
        file: the file behind it; None where only what is watched can be read.
        busy: what is being fetched, one line; None while nothing is.
        problem: why the last fetch failed; None after the next one that worked.
        search: the search over the whole file, None without one.
        start_s: the stamp that counts as zero of relative time, None while none is known.
    """

    def __init__(
        self,
        name: str,
        window: LogWindow | None = None,
        file: "LogFile | None" = None,
        *,
        touch: Callable[[], object] = lambda: None,
    ) -> None:
        self.name = name
        self.file = file
        self._own = window if window is not None else LogWindow()
        self.series = DecodeSeries()
        self.ranks: dict[str, None] = {}  # tags seen, in order of appearance
        self.busy: str | None = None
        self.problem: str | None = None
        self.search: HostSearch | None = None
        self.searching = False
        self.start_s: float | None = None
        self.behind_bytes = 0
        self.ended = False
        self._touch = touch
        self._fetching = asyncio.Lock()
        self._opened = asyncio.Event()
        self._first = self.window.first  # of the window when `series` began
        self._earlier: list[DecodePoint] = []  # of blocks that were loaded before that
        self._looked: object = None
        self._elsewhere = DecodeSeries()  # figures of a part of the file that is not its end
        self._started = False  # the first stamp was asked for

    # -- what is loaded --------------------------------------------------------------------------------------------

    @property
    def window(self) -> LogWindow:
        """What is loaded around the reader."""
        return self.file.window if self.file is not None else self._own

    @property
    def opened(self) -> bool:
        """Whether what the file holds has been seen."""
        return self._opened.is_set()

    @property
    def at_tail(self) -> bool:
        """Whether the window is the growing end."""
        return self.file is None or self.file.at_tail

    @property
    def at_begin(self) -> bool:
        """Whether nothing can be loaded before the window."""
        return self.file is None or self.file.at_begin

    @property
    def whole(self) -> bool:
        """Whether all of the log is loaded."""
        return self.at_tail and self.at_begin

    def points(self) -> "Sequence[DecodePoint]":
        """Decode figures of what is loaded, oldest first."""
        window = self.window
        if not self.at_tail:
            key = (window, window.serial)
            if key != self._looked:
                self._looked, self._elsewhere = key, DecodeSeries()
                self._elsewhere.feed(window.records)
            return self._elsewhere.points
        if window.first < self._first:  # blocks came before what is followed
            block = DecodeSeries()
            block.feed(window.records[: self._first - window.first])
            self._earlier = [*block.points, *self._earlier][-_POINTS_KEPT:]
            self._first = window.first
        return [*self._earlier, *self.series.points] if self._earlier else self.series.points

    def last_line(self) -> int | None:
        """Number of the newest line, None where nobody counted."""
        tail = self.file.tail if self.file is not None else self._own
        last = next((record for record in reversed(tail.records) if record.kind != "marker"), None)
        return tail.number_of(last) if last is not None else None

    def phase_at(self, index: int) -> Phase | None:
        """The phase in force at a record of the window."""
        try:
            phase = self.window.record(index).phase
        except IndexError:  # the first of a fold whose newer ones are still there
            return None
        if phase is None and self.file is not None:
            return self.file.phase_at(index)
        return phase

    def place_of_hit(self, index: int) -> int | None:
        """Which of all hits of the search a record has, counted from 1; None where that is not known or it has none."""
        window = self.window
        if self.search is None or not window.first <= index < window.end:
            return None
        begin = window.record(index).offset
        end = window.record(index + 1).offset if index + 1 < window.end else begin + (1 << 40)
        state = self.search.state
        for hits, before in ((state.first, 0), (state.last, state.count - len(state.last))):
            at = bisect_left(hits, begin, key=lambda hit: hit.offset)
            if at < len(hits) and hits[at].offset < end and (before == 0 or state.done):
                return before + at + 1
        return None

    def known_hits(self, count: int) -> "Sequence[Hit]":
        """A sample of the hits that the search over the whole file knows by place."""
        state = self.search.state if self.search is not None else None
        hits = (*state.first, *state.last) if state is not None else ()
        return hits[:: max(1, len(hits) // max(1, count))]

    def known_marks(self, kind: str) -> "Sequence[Mark]":
        """Phases or errors of the whole file, as far as the host has told."""
        if self.file is None:
            return ()
        return self.file.marks.phases if kind == "phase" else self.file.marks.errors

    def state(self) -> str | None:
        """What stands between the log and its reader just now, one line; None while all is well."""
        return (self.file.problem if self.file is not None else None) or self.problem

    def saw(self, records: "tuple[LogRecord, ...] | list[LogRecord]") -> None:
        """Takes newer records of the log into ranks and figures."""
        for record in records:
            if record.rank is not None and record.rank not in self.ranks:
                self.ranks[record.rank] = None
            if self.start_s is None and self.at_begin:
                self.start_s = record.stamp_s
        self.series.feed(records)

    # -- following and fetching ------------------------------------------------------------------------------------

    async def follow(self, source: LogSource) -> None:
        """Follows the file until its writer has ended, or this is cancelled. Raises UsageError, HostError."""
        file = source.file
        lost_at: float | None = None
        async for update in file.updates(source.ended):
            if update.event != "link_lost":  # before the file was seen, what is watched is all there is
                self._opened.set()
            if update.event in ("truncated", "replaced"):  # another log
                self.series.clear()
                self._earlier, self._first, self.start_s, self._started = [], file.window.first, None, False
            elif update.event == "resumed":
                self.problem = None
            self.saw(update.records)
            self.behind_bytes = update.behind_bytes
            if update.event == "link_lost":
                lost_at = time.monotonic()
            elif lost_at is not None and update.event != "gone":
                took = fmt.age(time.monotonic() - lost_at)
                lost_at = None
                if update.event not in ("truncated", "replaced"):
                    file.add_marker(f"[eagletui] the link was lost for {took}; no byte of the log is missing")
            self.ended = update.event == "ended"
            if self.ended and (words := source.last_words()) is not None:
                file.add_marker(*words)
            self._touch()

    async def earlier(self) -> bool:
        """Loads what stands before the window; False where nothing came."""
        file = self.file
        if file is None or file.at_begin:
            return False
        before = min(file.begin, 1 << 18)
        return bool(await self._fetch(f"reading {fmt.size(before)} earlier", file.load_before))

    async def later(self) -> bool:
        """Loads what stands after the window; False where nothing came."""
        if self.file is None or self.file.at_tail:
            return False
        return bool(await self._fetch("reading on", self.file.load_after))

    async def jump(self, offset: int, number: int | None = None) -> int | None:
        """Loads what is around a byte of the file; index of the record that holds it."""
        file = self.file
        if file is None:
            return None
        if file.begin <= offset < file.end and (here := file.window.at_offset(offset)) is not None:
            return here
        return await self._fetch("reading there", lambda: file.jump_to(offset, number=number))

    async def jump_to_line(self, number: int) -> int | None:
        """The same for a line of the file, counted from 1."""
        file = self.file
        if file is None:
            return None
        return await self._fetch(f"looking for line {number:,}", lambda: file.jump_to_line(number))

    async def jump_to_share(self, share: float) -> int | None:
        """The same for a place in the file, 0 its beginning and 1 its end."""
        if self.file is None:
            window = self._own
            return window.first + int(share * max(0, len(window.records) - 1)) if window.records else None
        return await self.jump(int(share * max(0, (self.file.size or 1) - 1)))

    async def jump_to_time(self, stamp_s: float) -> int | None:
        """Loads what is around a time, its stamp read as UTC; the first record that is not older.

        The file is halved by reading small pieces of it: a log's times only ever grow.
        """
        file = self.file
        if file is not None and not self._holds(stamp_s):
            async with self._told("looking for that time"):
                low, high = 0, file.size or 0
                while high - low > _PIECE_BYTES:
                    middle = (low + high) // 2
                    block = await read_block(file.transport, file.path, middle, _PIECE_BYTES)
                    stamp = stamp_in(block.data) if block is not None else None
                    if stamp is None or stamp >= stamp_s:
                        high = middle
                    else:
                        low = middle
            await self.jump(low)
        window = self.window
        for index in range(window.first, window.end):
            stamp = window.record(index).stamp_s
            if stamp is not None and stamp >= stamp_s:
                return index
        return window.end - 1 if window.records else None

    def _holds(self, stamp_s: float) -> bool:
        """Whether a time lies in what is loaded, or beyond an end where there is no more."""
        first, last = self.first_stamp(), self.last_stamp()
        if first is None or last is None:
            return True
        return (first <= stamp_s or self.at_begin) and (stamp_s <= last or self.at_tail)

    def first_stamp(self) -> float | None:
        """The oldest stamp that is loaded, None where there is none."""
        return next((r.stamp_s for r in self.window.records if r.stamp_s is not None), None)

    def last_stamp(self) -> float | None:
        """The newest stamp that is loaded, None where there is none."""
        return next((r.stamp_s for r in reversed(self.window.records) if r.stamp_s is not None), None)

    async def ready(self) -> None:
        """Once the file is open and its first stamp known."""
        await self._opened.wait()
        file = self.file
        if file is not None and not file.at_begin and not self._started:
            self._started = True
            block = await read_block(file.transport, file.path, 0, _PIECE_BYTES)
            self.start_s = stamp_in(block.data) if block is not None else None

    async def reach(self, what: str, step: int, index: int | None) -> int | None:
        """Loads what is around the next `hit`, `phase` or `error` after (1) or before (-1) a record, around the ends.

        `begin` and `end` are the first line and the growing end. Returns the index of its record; None where there is none.
        """
        file = self.file
        if file is None:
            return None
        if what == "begin":
            return await self.jump(0, 1)
        if what == "end":
            file.to_tail()
            return None
        around = 0 if step > 0 else file.size or 0
        found: Hit | Mark | None = None
        if what == "hit":
            search = self.search
            if search is None:
                return None
            async with self._told("looking for the next hit" if step > 0 else "looking for the hit before"):
                found = await file.next_hit(index, step) if index is not None else None
                found = found or await search.next(around, step)
        else:
            if not file.marks.state.done:
                async with self._told(f"looking for {what}s"):
                    async for _ in file.marks.run():
                        self._touch()
            found = file.next_mark(what, index, step) if index is not None else None
            found = found or file.marks.next(what, around, step)
        return await self.jump(found.offset, found.number) if found is not None else None

    async def look_for(self, text: str, regex: bool) -> None:
        """Searches the whole file, and what it grows by, until cancelled. Raises UsageError for a text that can't be searched."""
        from tui.core.logs.search import Needle

        file = self.file
        assert file is not None
        search = file.begin_search(Needle(text, regex))
        self.search = search
        try:
            while True:
                self.searching = True
                try:
                    async for _ in search.run():
                        self._touch()
                    self.problem = None
                except EagletuiError as error:
                    self.problem = f"search: {error.message}"
                self.searching = False
                self._touch()
                await asyncio.sleep(_GROWN_S)
                while (file.size or 0) <= search.state.looked_bytes:  # noqa: ASYNC110  nobody tells of growth
                    await asyncio.sleep(_GROWN_S)
        finally:
            self.searching = False

    async def survey(self) -> None:
        """What is not loaded: the number of the first line that is, phases and errors. Once the file is open."""
        file = self.file
        assert file is not None
        await self.ready()
        if file.at_begin and file.at_tail:
            return
        await asyncio.sleep(_FIRST_PAGE_S)
        async for _ in file.marks.run():
            self._touch()
        await file.count_lines()
        self._touch()

    @contextlib.asynccontextmanager
    async def _told(self, what: str) -> AsyncIterator[None]:
        self.busy, self.problem = what, None
        self._touch()
        try:
            yield
        finally:
            self.busy = None
            self._touch()

    async def _fetch(self, what: str, get: Callable[[], Awaitable[int | None]]) -> int | None:
        async with self._fetching, self._told(what):
            try:
                return await get()
            except LinkLost:
                self.problem = f"{what}: the link is lost"
            return None


def stamp_in(data: bytes) -> float | None:
    """The first stamp in a piece of a log, read as UTC; None where there is none."""
    records = LogTracker(offset=1, number=1 << 48).feed(data)
    return next((record.stamp_s for record in records if record.stamp_s is not None), None)


def line_text(record: LogRecord) -> str:
    """A record as the server wrote it, with secrets masked; what cannot be printed stays replaced."""
    text = mask_secrets(record.text.encode("utf-8", "replace")).decode("utf-8", "replace")
    if record.time is None:
        return text
    day = ""
    if record.stamp_s is not None and record.stamp_s >= 86_400:
        day = datetime.fromtimestamp(record.stamp_s, UTC).strftime("%Y-%m-%d ")
    tags = f" {record.rank}" if record.rank and record.rank != "main" else ""
    return f"[{day}{record.time}{tags}] {text}"
