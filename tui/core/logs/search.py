"""Search, counts and marks by the host: grep reads the file there, and only hits travel.

Every scan can be abandoned at any time (the process on the host ends then) and reports how far it has looked. Program:
`tui/remote/search.sh`.
"""

import asyncio
import contextlib
import re
import shlex
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import NamedTuple

from tui.core.errors import HostError, Slug, UsageError
from tui.core.link.programs import shell_program
from tui.core.link.scripts import shell_path
from tui.core.link.transport import ByteStream, Transport
from tui.core.logs.blocks import OPEN, line_begin, refused
from tui.core.model.phases import Phase
from tui.core.sglang.tracker import LogTracker
from tui.core.text import one_line

HITS_KEPT = 2_000  # first ones and last ones of a search that are known by place
_NEEDLE_LIMIT = 1_000
_PROGRESS_S = 0.1  # how often progress is handed on
_LINE_LIMIT = 8_192  # of an answer
_MARK_TEXT = 400  # characters of a marked line
_BACK_BYTES = (4 << 20, 32 << 20, 256 << 20, 1 << 30)  # looked at backwards, step by step


# ---- what is looked for -----------------------------------------------------------------------------------------

_CLASSES = {"d": "0-9", "s": "[:space:]", "w": "[:alnum:]_"}
_TOKEN = re.compile(
    r"\\(?P<escape>.)|(?P<set>\[\^?\]?(?:\\.|\[:\w+:\]|[^\]\\])*\])|(?P<group>\(\?(?P<how>:)?)|(?P<lazy>[*+?}][?+])|(?P<other>.)"
)


@dataclass(frozen=True)
class Needle:
    """What is searched for; case counts only where it has capitals. Bytes are compared: A to Z alone have two cases.

    A regular expression is matched against the whole line as it is in the file, stamp included.

    Raises UsageError where it is empty, has a line break, is too long, or is not an expression that both sides understand.
    """

    text: str
    regex: bool = False  # POSIX extended, with \\d \\s \\w \\b and (?:...); one that matches the empty text is refused

    def __post_init__(self) -> None:
        problem = None
        if not self.text:
            problem = "is empty"
        elif len(self.text) > _NEEDLE_LIMIT:
            problem = f"is longer than {_NEEDLE_LIMIT:,} characters"
        elif re.search(r"[\r\n\0]", self.text):
            problem = "has a line break"
        elif any(0xD800 <= ord(letter) <= 0xDFFF for letter in self.text):
            problem = "is not valid text"
        if problem is not None:
            raise UsageError(f"the search text {problem}", "search for a part of one line", slug=Slug.BAD_SEARCH)
        if self.regex:
            self.expression  # noqa: B018  whether both sides understand it

    @property
    def ignore_case(self) -> bool:
        """Whether case does not count."""
        return self.text == self.text.lower()

    @property
    def expression(self) -> str:
        """The text as a POSIX extended expression, where `regex`."""
        try:
            if re.compile(self.text).search("") is not None:
                raise _refused_regex(self.text, "it matches every line")
        except re.error as error:
            raise _refused_regex(self.text, str(error)) from None
        out = []
        for token in _TOKEN.finditer(self.text):
            whole = token.group()
            if token["escape"] is not None:
                out.append(_escaped(token["escape"], self.text))
            elif token["set"] is not None:
                out.append(_set(whole, self.text))
            elif token["group"] is not None:
                if token["how"] is None:
                    raise _refused_regex(self.text, "the host's grep knows no (?...) but (?:...)")
                out.append("(")
            elif token["lazy"] is not None:
                raise _refused_regex(self.text, f"the host's grep knows no {whole}")
            else:
                out.append(whole)
        return "".join(out)


def _refused_regex(text: str, why: str) -> UsageError:
    return UsageError(
        f"{one_line(text, 60)} cannot be searched for: {why}",
        "search for it as plain text, or simplify it",
        slug=Slug.BAD_REGEX,
    )


def _escaped(letter: str, text: str) -> str:
    if letter.lower() in _CLASSES:
        return f"[{'^' if letter.isupper() else ''}{_CLASSES[letter.lower()]}]"
    if letter in "bB":
        return "\\" + letter
    if letter.isalnum():
        raise _refused_regex(text, f"the host's grep knows no \\{letter}")
    return "\\" + letter


def _set(whole: str, text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        letter = match[1]
        if letter in _CLASSES:
            return _CLASSES[letter]
        if letter.isalnum() or letter in "]^-":
            raise _refused_regex(text, f"the host's grep knows no \\{letter} between brackets")
        return letter

    return re.sub(r"\\(.)", plain, whole)


# ---- one run of the program -------------------------------------------------------------------------------------


class _Found(NamedTuple):
    kind: str  # opened, replaced, refused, hit, last, count, progress, end
    number: int | None = None  # line of the file
    offset: int = 0
    text: str = ""
    amount: int = 0  # hits so far; of opened and replaced the file's size; of end the length of the line without an end
    file: str = ""


@dataclass(frozen=True)
class _Order:
    """What one run looks for, and where."""

    needle: str  # lines: texts or expressions
    flags: str
    first: int = HITS_KEPT
    last: int = HITS_KEPT
    text: int = 0
    begin: int = 0
    count: int | None = None
    file: str | None = None

    def script(self, path: str) -> str:
        return (
            f"ES_PATH={shell_path(path)}\nES_FILE={shlex.quote(self.file or '')}\nES_FROM={self.begin}\n"
            f"ES_COUNT={'' if self.count is None else self.count}\nES_NEEDLE={shlex.quote(self.needle)}\n"
            f"ES_FLAGS={self.flags}\nES_FIRST={self.first}\nES_LAST={self.last}\nES_TEXT={self.text}\n"
            f"{shell_program('search.sh')}es_main\n"
        )


class _Answers:
    """What the lines mean that the program writes."""

    def __init__(self, begin: int) -> None:
        self._base: int | None = 0 if begin == 0 else None  # lines before the place that numbers count from
        self._place = begin
        self._newest_line: int | None = None  # line of the newest hit
        self.counted = self._before = 0
        self._answered = False  # awk has reported its count: it was there, and read all that grep wrote

    def read(self, line: bytes) -> _Found | None:
        """Raises ValueError, IndexError where it is not a line of the program."""
        kind, _, rest = line.partition(b" ")
        words = rest.split(b" ", 2)
        match kind:
            case b"H" | b"L":
                number = self._base + int(words[0]) if self._base is not None else None
                self._newest_line = number if number is not None else self._newest_line
                text = words[2].decode("utf-8", "replace") if len(words) > 2 else ""
                return _Found("hit" if kind == b"H" else "last", number, self._place + int(words[1]), text)
            case b"C":
                self.counted, self._answered = self._before + int(words[0]), True
                return _Found("count", amount=self.counted)
            case b"B":
                if int(words[0]) != self._place:
                    self._place, self._base = int(words[0]), self._newest_line
                self._before, self._answered = self.counted, False
                return None
            case b"O":
                return _Found("opened", amount=int(words[1]), file=words[0].decode())
            case b"R":
                return _Found("replaced", amount=int(words[1]), file=words[0].decode())
            case b"E" if self._answered:
                return _Found("end", offset=int(words[0]), amount=int(words[1]))
            case b"X":
                return _Found("refused", text=rest.decode("ascii", "replace"))
        raise ValueError


async def _scan(transport: Transport, path: str, order: _Order) -> AsyncGenerator[_Found, None]:
    """What the program on the host finds, as it comes; its end is always the last.

    Raises UsageError (no file, no permission), HostError, LinkLost.
    """
    async with transport.stream(order.script(path)) as stream:
        reading: asyncio.Task[bytes] | None = None
        held = b""
        answers = _Answers(order.begin)
        seen = -1
        try:
            while True:
                if reading is None:
                    reading = asyncio.create_task(stream.read())
                await asyncio.wait({reading}, timeout=_PROGRESS_S)
                if not reading.done():
                    at = _progress(stream)
                    if at > seen:
                        seen = at
                        yield _Found("progress", offset=at, amount=answers.counted)
                    continue
                data, reading = reading.result(), None
                *lines, held = (held + data).split(b"\n")
                if not data or len(held) > _LINE_LIMIT:
                    raise _broken(transport, stream)
                for line in lines:
                    try:
                        found = answers.read(line)
                    except (ValueError, IndexError):
                        raise _broken(transport, stream) from None
                    if found is None:
                        continue
                    if found.kind == "refused":
                        raise refused(transport.host, path, found.text)
                    yield found
                    if found.kind in ("end", "replaced"):
                        return
        finally:
            if reading is not None:
                reading.cancel()
                with contextlib.suppress(asyncio.CancelledError, HostError):
                    await reading


def _progress(stream: ByteStream) -> int:
    words = stream.stderr_tail().rsplit(b"\n", 2)
    line = words[-2] if len(words) > 1 else b""
    return int(line[2:]) if line[:2] == b"P " and line[2:].isdigit() else -1


def _broken(transport: Transport, stream: ByteStream) -> HostError:
    tail = [line for line in stream.stderr_tail().decode("utf-8", "replace").splitlines() if line[:2] != "P "]
    problem = one_line(tail[-1], 200) if tail else "it ended without an answer"
    return HostError(
        f"{transport.host}: the search failed: {problem}",
        "does that host have grep, awk and dd?",
        slug=Slug.SEARCH_FAILED,
    )


# ---- searches ---------------------------------------------------------------------------------------------------


class Hit(NamedTuple):
    """One line with a hit."""

    offset: int  # byte of the file where the first hit of the line begins
    number: int | None = None  # line of the file, counted from 1, None where nobody counted


@dataclass(frozen=True)
class SearchState:
    """How far a search is. `first` and `last` hold all hits once `complete`, else the ends of a longer list."""

    looked_bytes: int = 0
    size_bytes: int | None = None
    count: int = 0  # lines with a hit, as `grep -c` counts
    first: tuple[Hit, ...] = ()
    last: tuple[Hit, ...] = ()  # ascending; none of `first` is in it
    done: bool = False

    @property
    def complete(self) -> bool:
        """Whether every hit of what was looked at is in `first` or `last`."""
        return self.done and self.count == len(self.first) + len(self.last)


class _Search:
    """Looks over one file again and again, each time at what it grew by."""

    def __init__(self, transport: Transport, path: str, order: _Order) -> None:
        self._transport, self._path, self._order = transport, path, order
        self.state = SearchState()
        self._file: str | None = None
        self._looked = 0  # all lines that begin before this byte were looked at, whole
        self._first: list[_Found] = []
        self._last: deque[_Found] = deque(maxlen=HITS_KEPT)

    async def run(self) -> AsyncGenerator[SearchState, None]:
        """Looks at what was not looked at yet: the whole file at first, later what it grew by.

        Leaving it ends the search on the host. A file that was replaced or truncated is looked at from its beginning.

        Raises UsageError (no file, no permission to read it), HostError, LinkLost; it may be run again then.
        """
        same = False
        while not same:
            same = True
            async with contextlib.aclosing(self._look_at_new()) as look:
                async for state in look:
                    same = state is not None
                    if state is not None:
                        self.state = state
                        yield state

    async def _look_at_new(self) -> AsyncGenerator[SearchState | None, None]:
        """One run over what is new; None where the file is another one now."""
        first, last, before = list(self._first), deque(self._last, HITS_KEPT), self.state.count
        # The line that was being written when the last look ended is looked at again.
        for hits in (last, first):
            while hits and hits[-1].offset >= self._looked:
                hits.pop()
                before -= 1
        room = 0 if last else HITS_KEPT - len(first)
        order = replace(self._order, begin=self._looked, file=self._file, first=room)
        size: int | None = None
        total = new = 0
        at = self._looked

        def state(*, done: bool = False) -> SearchState:
            return SearchState(at, size, before + total, _hits(first), _hits(last), done)

        async with contextlib.aclosing(_scan(self._transport, self._path, order)) as scan:
            async for found in scan:
                match found.kind:
                    case "opened":
                        self._file, size = found.file, found.amount
                    case "replaced":
                        self._file, self._looked = found.file, 0
                        self._first.clear()
                        self._last.clear()
                        self.state = SearchState()
                        yield None
                    case "hit":
                        first.append(found)
                        new += 1
                        total = max(total, new)
                    case "last":
                        last.append(found)
                    case "count" | "progress":
                        total = max(total, found.amount)
                        at = max(at, found.offset)
                        yield state()
                    case "end":
                        at, self._looked = found.offset, found.offset - found.amount
                        self._first, self._last = first, last
                        self._results_changed()
                        yield state(done=True)

    def _results_changed(self) -> None:
        """`_first` and `_last` are others now."""


def _hits(found: Iterable[_Found]) -> tuple[Hit, ...]:
    return tuple(Hit(item.offset, item.number) for item in found)


class HostSearch(_Search):
    """A search over one file; `state` is how far it is."""

    def __init__(self, transport: Transport, path: str, needle: Needle) -> None:
        flags = ("E" if needle.regex else "F") + ("i" if needle.ignore_case else "")
        text = needle.expression if needle.regex else needle.text
        super().__init__(transport, path, _Order(text, flags))

    async def next(self, offset: int, step: int) -> Hit | None:
        """The first line with a hit at or after byte `offset` (step 1), or the last one before it (step -1).

        Answered from what is known where that is enough, else asked of the host. None: there is none that way.

        Args:
            offset: the beginning of a line: of the line after the reader's to go forwards, of the reader's own to go back.
        """
        known = self._known_answer(offset, step)
        if known is not None:
            return known[0]
        if step > 0:
            return await self._single_hit(replace(self._order, begin=offset, first=1, last=0), offset)
        end = offset
        for size in (*_BACK_BYTES, *[_BACK_BYTES[-1]] * 4_096):
            if end <= 0:
                break
            begin = max(0, end - size)
            # A line over the border is looked at whole.
            begin = await line_begin(self._transport, self._path, begin)
            order = replace(self._order, begin=begin, count=end - begin, first=0, last=1)
            hit = await self._single_hit(order, begin)
            if hit is not None:
                return hit
            end = begin
        return None

    def _known_answer(self, offset: int, step: int) -> tuple[Hit | None] | None:
        """The answer where the kept hits have it."""
        state = self.state
        for hits in (state.first, state.last):
            at = bisect_left(hits, (offset,)) if step > 0 else bisect_left(hits, (offset,)) - 1
            inside = hits and hits[0].offset <= offset <= hits[-1].offset
            if inside and 0 <= at < len(hits):
                return (hits[at],)
        if not state.complete:
            return None
        hits = (*state.first, *state.last)
        at = bisect_left(hits, (offset,)) - (step < 0)
        if step > 0 and at == len(hits):
            return None  # the file may have grown since
        return (hits[at] if at >= 0 else None,)

    async def _single_hit(self, order: _Order, begin: int) -> Hit | None:
        hit = None
        async with contextlib.aclosing(_scan(self._transport, self._path, order)) as scan:
            async for found in scan:
                if found.kind in ("hit", "last"):
                    hit = Hit(found.offset, found.number)
        return hit

    def place(self, begin: int, end: int) -> int | None:
        """Which of all hits is the first in a range of bytes, counted from 1; None where that is not known or none is."""
        state = self.state
        for hits, before in ((state.first, 0), (state.last, state.count - len(state.last))):
            at = bisect_left(hits, (begin,))
            if at < len(hits) and hits[at].offset < end:
                return before + at + 1 if before == 0 or state.done else None
        return None


# ---- marks ------------------------------------------------------------------------------------------------------

# One of these is in every line that begins a phase or reports an error, as far as a line alone can show.
_MARKED = (
    *("server_args=", "orch distributed begin", "Init parallel begin", "oad weight begin", "oad weight end"),
    *("KV Cache is allocated", "emory pool end", "max_total_num_tokens=", "graph begin", "graph end", "Capture "),
    *("Started server process", "Uvicorn running on", "The server is fired up", "Dummy health check server"),
    *("Traceback (most recent call last)", "Error: ", "Error(", "Exception: ", "ERROR", "CRITICAL", "FATAL"),
    *("error: ", "hit an exception", "out of memory", "OutOfMemory", "Killed", "Segmentation fault", "Aborted"),
    *("Watchdog", "Fatal Python", "SIGQUIT", "terminate called", "core dumped"),
)


@dataclass(frozen=True)
class Mark:
    """A line of note, anywhere in the file."""

    offset: int
    number: int | None  # line of the file, counted from 1
    kind: str  # phase or error
    phase: Phase | None  # begun by it, or in effect
    text: str  # sanitised and masked, its beginning


class LogMarks(_Search):
    """Beginnings of phases, and errors, of a whole file; bounded: the first and the last thousands of lines of both.

    Attributes:
        phases, errors: ascending.
    """

    def __init__(self, transport: Transport, path: str) -> None:
        super().__init__(transport, path, _Order("\n".join(_MARKED), "F", text=_MARK_TEXT))
        self.phases: tuple[Mark, ...] = ()
        self.errors: tuple[Mark, ...] = ()

    def _results_changed(self) -> None:
        # The lines alone, in their order, tell the tracker what the whole log would have.
        tracker = LogTracker(offset=1)  # what is before the first of them is not known
        phases: list[Mark] = []
        errors: list[Mark] = []
        now: Phase | None = None
        for found in (*self._first, *self._last):
            for record in tracker.feed(found.text.encode() + b"\n"):
                mark = Mark(found.offset, found.number, record.kind, record.phase, record.text)
                if record.kind == "error":
                    errors.append(mark)
                elif record.phase is not now and record.phase is not None:
                    phases.append(replace(mark, kind="phase"))
                now = record.phase
        self.phases, self.errors = tuple(phases), tuple(errors)

    def next(self, kind: str, offset: int, step: int) -> Mark | None:
        """The first mark of a kind at or after a byte (step 1), or the last one before it (step -1)."""
        marks = self.phases if kind == "phase" else self.errors
        at = bisect_left(marks, offset, key=attrgetter("offset")) - (step < 0)
        return marks[at] if 0 <= at < len(marks) else None

    def phase_at(self, offset: int) -> Phase | None:
        """The phase in effect at a byte; None before the first mark, and where nothing was looked at."""
        if offset >= self._looked:
            return None
        at = bisect_right(self.phases, offset, key=attrgetter("offset"))
        return self.phases[at - 1].phase if at else None


# ---- counting lines ---------------------------------------------------------------------------------------------


async def lines_before(transport: Transport, path: str, offset: int) -> int | None:
    """How many line ends there are in the first `offset` bytes of a file; None where it is gone or shorter.

    The host counts; cancelling ends the count there.
    """
    words = await _answer(
        transport,
        f"p={shell_path(path)}\n{OPEN}"
        f'[ "$size" -ge {offset} ] || exit 0\n'
        f"echo lines $({{ dd bs=1048576 count={offset // 1_048_576}; dd bs={max(1, offset % 1_048_576)} "
        f"count={1 if offset % 1_048_576 else 0}; }} <&3 2>/dev/null | wc -l)\n",
    )
    return int(words[1]) if words[:1] == ["lines"] else None


async def offset_of_line(transport: Transport, path: str, number: int) -> int | None:
    """Byte offset of a line counted from 1; the end of the file where there are fewer; None where it is gone.

    The host counts; cancelling ends the count there.
    """
    if number <= 1:
        return 0
    words = await _answer(transport, f"p={shell_path(path)}\n{OPEN}echo at $(head -n {number - 1} <&3 | wc -c)\n")
    return int(words[1]) if words[:1] == ["at"] else None


async def _answer(transport: Transport, script: str) -> Sequence[str]:
    """The words of a short answer that may take long, from a stream: it ends there with the task that waits for it."""
    out = b""
    async with transport.stream(script) as stream:
        while data := await stream.read():
            out += data
    return out.decode("ascii", "replace").split()
