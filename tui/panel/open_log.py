"""One open log as the panel reads it: what is loaded of it, what is known of the rest, and what is being done, in words.

Free of Textual, like the board. The file behind it (`LogFile`) holds a part of it and asks the host for the rest. Of the run
that the panel watches, the watch reads the growing end, once for all screens; another file is followed on its own.
"""

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from tui import format as fmt
from tui.core.errors import EagletuiError, LinkLost, Slug, UsageError
from tui.core.link.retry import try_again
from tui.core.logs.log_file import LogFile
from tui.core.logs.reader import ANOTHER_FILE, LogStep
from tui.core.logs.search import Hit, HostSearch, Mark, Needle
from tui.core.logs.window import LogWindow
from tui.core.masking.written import mask_secrets
from tui.core.model.log import LINE_LIMIT, LogRecord
from tui.core.model.phases import Phase
from tui.core.server.server_state import RunUpdate
from tui.core.sglang.series import DecodePoint, DecodeSeries

_CLOCK = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?")
_FIRST_PAGE_S = 0.5  # the host may be this machine: the first page is not held up by greps
_GROWN_S = 2.0  # how often a search looks at what came since
_POINTS_KEPT = 20_000


@dataclass(frozen=True)
class LogSource:
    """A file that can be opened for reading."""

    name: str  # for titles: `run 4f9c2a`, `gpu1:/var/log/x.log`
    file: LogFile
    ended: Callable[[], bool] | None = None  # whether its writer has ended; None: nobody knows
    last_words: Callable[[], tuple[str, str | None] | None] = lambda: None  # a line of ours then, and its time


@dataclass(frozen=True)
class Beside:
    """Something that can be shown beside the log."""

    name: str
    about: str
    ranks: tuple[str, str] | None = None  # two ranks of the displayed log
    source: Callable[[], LogSource | None] = lambda: None  # another log


class OpenLog:
    """A log that screens show: its file, the reader's window of it, ranks, decode figures, search, and what is under way.

    Attributes:
        name: what it is, for titles: `run 4f9c2a`, `gpu1:/var/log/x.log`.
        file: the file behind it.
        busy: what is being fetched, one line; None while nothing is.
        problem: why the last fetch failed; None after the next one that worked.
        search: the search over the whole file, None without one.
        start_s: the stamp that counts as zero of relative time, None while none is known.
    """

    def __init__(self, name: str, file: LogFile, *, touch: Callable[[], object] = lambda: None) -> None:
        self.name = name
        self.file = file
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
        self.opened = asyncio.Event()  # what the file holds has been seen
        self._first = self.file.window.first  # of the window when `series` began
        self._earlier: list[DecodePoint] = []  # of blocks that were loaded before that
        self._looked: object = None
        self._elsewhere = DecodeSeries()  # figures of a part of the file that is not its end
        self._started = False  # the first stamp was asked for
        self._lost_at: float | None = None  # time.monotonic()

    # -- what is loaded --------------------------------------------------------------------------------------------

    @property
    def whole(self) -> bool:
        """Whether all of the log is loaded."""
        return self.file.at_tail and self.file.at_begin

    def points(self) -> Sequence[DecodePoint]:
        """Decode figures of what is loaded, oldest first."""
        window = self.file.window
        if not self.file.at_tail:
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
        last = next((record for record in reversed(self.file.tail.records) if record.kind != "marker"), None)
        return self.file.tail.number_of(last) if last is not None else None

    def phase_at(self, window: LogWindow, index: int) -> Phase | None:
        """The phase in effect at a record of one of its windows."""
        try:
            phase = window.record(index).phase
        except IndexError:  # the first of a fold whose newer ones are still there
            return None
        if phase is None and window is self.file.window:
            return self.file.phase_at(index)
        return phase

    def place_of_hit(self, index: int) -> int | None:
        """Which of all hits of the search a record has, counted from 1; None where that is not known or it has none."""
        window = self.file.window
        if self.search is None or not window.first <= index < window.end:
            return None
        begin = window.record(index).offset
        end = window.record(index + 1).offset if index + 1 < window.end else begin + (1 << 40)
        return self.search.place(begin, end)

    def known_hits(self, count: int) -> Sequence[Hit]:
        """A sample of the hits that the search over the whole file knows by place."""
        state = self.search.state if self.search is not None else None
        hits = (*state.first, *state.last) if state is not None else ()
        return hits[:: max(1, len(hits) // max(1, count))]

    def state(self) -> str | None:
        """What stands between the log and its reader just now, one line; None while all is well."""
        return self.file.problem or self.problem

    # -- following and fetching ------------------------------------------------------------------------------------

    async def follow(self, source: LogSource) -> None:
        """Follows the file until its writer has ended, or this is cancelled. Raises UsageError, HostError."""
        async for step in source.file.updates(source.ended):
            if step.event != "link_lost":
                self.opened.set()
            self._saw(step)
            if self.ended and (words := source.last_words()) is not None:
                self.add_marker(*words)
            self._touch()

    def take(self, update: RunUpdate) -> None:
        """What watching the run brought: its watch reads this log anyway."""
        if update.log is not None:
            self.file.take(update.log)
        self._saw(update.log or LogStep())
        if update.settled:
            self.opened.set()

    def add_marker(self, text: str, time: str | None = None, phase: Phase | None = None) -> None:
        """Puts a line of ours at the growing end; `phase` is its phase where no record is before it."""
        self.file.add_marker(text, time if time != fmt.NONE else None, phase)

    def _saw(self, step: LogStep) -> None:
        """Takes newer records into ranks and figures, and what happened to the file."""
        if step.event in ANOTHER_FILE or step.event == "skipped":
            self.series.clear()
            self._earlier, self._first = [], self.file.window.first
            if step.event != "skipped":
                self.start_s, self._started = None, False
        elif step.event == "resumed":
            self.problem = None
        for record in step.records:
            if record.rank is not None and record.rank not in self.ranks:
                self.ranks[record.rank] = None
            if self.start_s is None and self.file.at_begin:
                self.start_s = record.stamp_s
        self.series.feed(step.records)
        self.behind_bytes = step.behind_bytes
        if step.event == "link_lost":
            self._lost_at = time.monotonic()
        elif self._lost_at is not None and step.event != "gone":
            took = fmt.age(time.monotonic() - self._lost_at)
            self._lost_at = None
            if step.event not in ANOTHER_FILE:
                self.add_marker(f"[eagletui] the link was lost for {took}; no byte of the log is missing")
        self.ended = step.event == "ended"

    async def earlier(self) -> bool:
        """Loads what stands before the window; False where nothing came."""
        if self.file.at_begin:
            return False
        before = min(self.file.begin, 1 << 18)
        return bool(await self._fetch(f"reading {fmt.size(before)} earlier", self.file.load_before))

    async def later(self) -> bool:
        """Loads what stands after the window; False where nothing came."""
        if self.file.at_tail:
            return False
        return bool(await self._fetch("reading on", self.file.load_after))

    async def jump(self, offset: int, number: int | None = None) -> int | None:
        """Loads what is around a byte of the file; index of the record that holds it."""
        file = self.file
        if file.begin <= offset < file.end and (here := file.window.at_offset(offset)) is not None:
            return here
        return await self._fetch("reading there", lambda: file.jump_to(offset, number=number))

    async def go_to(self, where: str) -> int | None:
        """Loads what is around a place as a reader types it: a line, a time of the day, a share of the file in per cent.

        Raises UsageError where it is none of those.
        """
        clock = _CLOCK.fullmatch(where)
        if clock:
            return await self.jump_to_time(self._last_time(clock))
        if (number := line_number(where)) is not None:
            return await self._fetch(f"looking for line {number:,}", lambda: self.file.jump_to_line(number))
        if where.endswith("%") and (share := where.removesuffix("%")).isdigit():
            return await self.jump(min(100, int(share)) * max(0, (self.file.size or 1) - 1) // 100)
        raise UsageError(":3318 is line 3,318, :20:33 a time, :50% the middle of the file", slug=Slug.BAD_VALUE)

    def _last_time(self, clock: re.Match[str]) -> float:
        """The last time before the log's end that a clock on the wall showed that."""
        seconds = int(clock[1]) * 3600 + int(clock[2]) * 60 + int(clock[3] or 0)
        last = self.last_stamp() or 0.0
        day = last // 86_400 * 86_400
        return day + seconds if day + seconds <= last or not day else day - 86_400 + seconds

    async def jump_to_time(self, stamp_s: float) -> int | None:
        """Loads what is around a time, its stamp read as UTC; the first record that is not older.

        The file is halved by reading small pieces of it: a log's times only ever grow.
        """
        file = self.file
        if not self._holds(stamp_s):
            async with self._busy_with("looking for that time"):
                low, high = 0, file.size or 0
                while high - low > LINE_LIMIT:
                    middle = (low + high) // 2
                    stamp = await file.first_stamp_s(middle)
                    if stamp is None or stamp >= stamp_s:
                        high = middle
                    else:
                        low = middle
            await self.jump(low)
        window = self.file.window
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
        return (first <= stamp_s or self.file.at_begin) and (stamp_s <= last or self.file.at_tail)

    def first_stamp(self) -> float | None:
        """The oldest stamp that is loaded, None where there is none."""
        return next((r.stamp_s for r in self.file.window.records if r.stamp_s is not None), None)

    def last_stamp(self) -> float | None:
        """The newest stamp that is loaded, None where there is none."""
        return next((r.stamp_s for r in reversed(self.file.window.records) if r.stamp_s is not None), None)

    async def ready(self) -> None:
        """Once the file is open and its first stamp known."""
        await self.opened.wait()
        if not self.file.at_begin and not self._started:
            self._started = True
            self.start_s = await self.file.first_stamp_s(0)

    async def reach(self, what: str, step: int, index: int | None) -> int | None:
        """Loads what is around the next `hit`, `phase` or `error` after (1) or before (-1) a record, around the ends.

        `begin` and `end` are the first line and the growing end. Returns the index of its record; None where there is none.
        """
        file = self.file
        if what == "begin":
            return await self.jump(0, 1)
        if what == "end":
            file.to_tail()
            return None
        # From the reader on, then around the ends.
        places = [file.edge(index, step)] if index is not None else []
        places.append(0 if step > 0 else file.size or 0)
        found: Hit | Mark | None = None
        if what == "hit":
            search = self.search
            if search is None:
                return None
            async with self._busy_with("looking for the next hit" if step > 0 else "looking for the hit before"):
                for place in places:
                    found = found or await try_again(partial(search.next, place, step))
        else:
            if not file.marks.state.done:
                async with self._busy_with(f"looking for {what}s"):
                    async for _ in file.marks.run():
                        self._touch()
            found = next((mark for place in places if (mark := file.marks.next(what, place, step))), None)
        return await self.jump(found.offset, found.number) if found is not None else None

    async def look_for(self, text: str, regex: bool) -> None:
        """Searches the whole file, and what it grows by, until cancelled. Raises UsageError for a text that can't be searched."""
        file = self.file
        search = self.search = HostSearch(file.transport, file.path, Needle(text, regex))
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
                while (file.size or 0) <= search.state.looked_bytes:  # noqa: ASYNC110  nothing reports growth
                    await asyncio.sleep(_GROWN_S)
        finally:
            self.searching = False

    async def survey(self) -> None:
        """What is not loaded: the number of the first line that is, phases and errors. Once the file is open."""
        await self.ready()
        if self.whole:
            return
        await asyncio.sleep(_FIRST_PAGE_S)
        async for _ in self.file.marks.run():
            self._touch()
        await self.file.count_lines()
        self._touch()

    @contextlib.asynccontextmanager
    async def _busy_with(self, what: str) -> AsyncIterator[None]:
        self.busy, self.problem = what, None
        self._touch()
        try:
            yield
        finally:
            self.busy = None
            self._touch()

    async def _fetch(self, what: str, get: Callable[[], Awaitable[int | None]]) -> int | None:
        async with self._fetching, self._busy_with(what):
            try:
                return await get()
            except LinkLost:
                self.problem = f"{what}: the link is lost"
            return None


def line_number(where: str) -> int | None:
    """The number of a line as a reader types it, None where it is something else."""
    number = where.replace(",", "")
    return int(number) if number.isdigit() else None


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
