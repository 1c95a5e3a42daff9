"""What matters of a huge log, picked by the host that has it: the beginning, the end, and what is unusual between them.

A serving server writes millions of lines that differ in their figures only (`batch_lines`). The host's grep leaves those
out and sends the others, so that no pattern decides what arrives; where even they are too many, the texts that the
patterns need decide (`Patterns.search_words`). A tracker that reads an excerpt comes to the answer that the whole log
would give: the few usual lines that count (the newest before a death and before the end) are asked for afterwards. Program: `tui/remote/excerpt.sh`.
"""

import asyncio
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from secrets import token_hex

from tui.core.errors import HostError, Slug
from tui.core.link.programs import shell_program
from tui.core.link.retry import try_again
from tui.core.link.scripts import shell_path
from tui.core.link.transport import ByteStream, Transport
from tui.core.logs.blocks import OPEN, refused
from tui.core.logs.follow import Chunk
from tui.core.sglang.batch_lines import ANSWERS, DECODES, PREFILLS
from tui.core.sglang.figures import RETRACTED
from tui.core.sglang.patterns import patterns
from tui.core.sglang.run_reader import SEARCH_WORDS
from tui.core.sglang.tracker import LogTracker
from tui.core.text import one_line

WHOLE_BYTES = 4 << 20  # a log that is not longer travels whole
HEAD_BYTES = 262_144
TAIL_BYTES = 262_144
BEFORE_BYTES = 4 << 20  # before the end in which the newest batches are looked for at once
MOST_BYTES = 4 << 20  # of unusual lines
CANNOT_PICK = (Slug.SEARCH_FAILED, Slug.CHANGED)  # of errors after which a log can still be read whole
_COUNTED = "Using a slow tokenizer"
_NEWEST = 8  # decode lines that are read for their figures
_PIECE_BYTES = 65_536  # read before others get their turn
_LINE_LIMIT = 131_072  # of an answer
_TRIES = 3
_ROUNDS = 3  # of questions
_DECODES = tuple(text.encode() for text in DECODES)


@dataclass(frozen=True)
class Passage:
    """Lines in a row."""

    number: int  # line of the file, counted from 1
    data: bytes
    slow_tokenizer: int = 0  # warnings of it among the lines left out before it
    retracted: tuple[int, int] = (0, 0)  # lines that say so among those, and the requests that they took back
    offset: int = 0  # byte of the file where that is known

    @property
    def end(self) -> int:
        """The line after it; of one that ends within a line, that line."""
        return self.number + self.data.count(b"\n")


@dataclass(frozen=True)
class Excerpt:
    """What was read of a log."""

    file: str  # device:inode
    size: int  # bytes of the file
    passages: tuple[Passage, ...]  # ascending; the last one is the end of the file
    unread: int = 0  # unusual lines that are neither among the first nor the newest, where there were too many
    newest: bool = False  # the newest decode lines before the last passage are there

    @property
    def last(self) -> Chunk:
        """What a follower continues after."""
        return Chunk(b"", self.size, 0, self.size, None, f"{self.file}:0:0")


class _Refused(Exception):
    """The program says in a word why the file cannot be read."""


class _Changed(Exception):
    """The file was truncated or replaced while it was read."""


class _Answers:
    """What a program writes, read as lines and as bytes."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._data = bytearray()

    async def _more(self) -> None:
        data = await self._stream.read()
        if not data:
            raise EOFError
        self._data += data

    async def line(self) -> bytes:
        """Without its end. Raises EOFError."""
        seen = 0
        while (at := self._data.find(b"\n", seen)) < 0:
            seen = len(self._data)
            if seen > _LINE_LIMIT:
                raise EOFError
            await self._more()
        line = bytes(self._data[:at])
        del self._data[: at + 1]
        return line

    async def take(self, count: int) -> bytes:
        """So many bytes. Raises EOFError."""
        while len(self._data) < count:
            await self._more()
        data = bytes(self._data[:count])
        del self._data[:count]
        return data


async def read_excerpt(
    transport: Transport, path: str, *, begin: int = 0, number: int = 1, tracker: LogTracker | None = None
) -> Excerpt:
    """Reads a log without what is usual in it; a small one whole.

    Args:
        begin, number: byte and line where reading begins.
        tracker: reads along from there; then it knows what it would of the whole log.

    Raises:
        UsageError: there is no such file, or it may not be read.
        HostError: the host cannot pick lines, or the file changes all the time; LinkLost after three tries.
    """
    tracker = tracker or LogTracker(records=False)
    for _ in range(_TRIES):
        try:
            found = await try_again(partial(_read, transport, path, begin, number))
            asked: set[int] = set()
            for _ in range(_ROUNDS):
                tracker.reset(begin, number)
                new = await _read_along(tracker, found.passages) - asked
                if found.newest:
                    new = {line for line in new if line <= found.passages[-1].number}
                if not new:
                    break
                asked |= new
                lines = await try_again(partial(_usual, transport, path, found.file, new))
                found = replace(found, passages=_with(found.passages, lines))
            return found
        except _Changed:
            continue
    raise HostError(f"{transport.host}: {one_line(path)} changes while it is read", "try again", slug=Slug.CHANGED)


# ---- what is unusual ---------------------------------------------------------------------------------------------


async def _read(transport: Transport, path: str, begin: int, number: int) -> Excerpt:
    word = token_hex(16)
    script = (
        f"EX_FROM={begin} EX_WHOLE={WHOLE_BYTES} EX_HEAD={HEAD_BYTES} EX_TAIL={TAIL_BYTES} EX_MOST={MOST_BYTES}\n"
        f"EX_WORD={word} EX_COUNTED={shlex.quote(_COUNTED)} EX_BACK={shlex.quote(RETRACTED)}\n"
        f"EX_DECODES={_lines_of(DECODES)} EX_PREFILLS={_lines_of(PREFILLS)} EX_BEFORE={BEFORE_BYTES}\n"
        f"EX_USUAL={_lines_of((*DECODES, *PREFILLS, *ANSWERS))}\n"
        f"EX_WORDS={_lines_of((*patterns().search_words, *SEARCH_WORDS))}\n{shell_program('excerpt.sh')}ex_main\n"
    )
    found: list[Passage] = []
    newest: list[Passage] = []
    unread = slow = 0
    async with transport.stream(f"p={shell_path(path)}\n{OPEN}{script}") as stream:
        answers = _Answers(stream)
        try:
            file, size = await _opened(answers)
            while (answer := (await answers.line()).split(b" ", 3))[0] != b"Z":
                if answer[0] == b"D":
                    data = await answers.take(int(answer[2]))
                    if await answers.take(len(word) + 2) != f"\n{word}\n".encode():
                        raise _Changed
                    found.append(Passage(number, data, slow, offset=int(answer[1])))
                    number, slow = found[-1].end, 0
                elif answer[0] == b"L":
                    found.append(Passage(number + int(answer[1]) - 1, answer[3] + b"\n", slow + int(answer[2])))
                    slow = 0
                elif answer[0] == b"R":
                    line, _, text = answer[3].partition(b" ")
                    before = (int(answer[1]), int(answer[2]))
                    found.append(Passage(number + int(line) - 1, text + b"\n", retracted=before))
                elif answer[0] == b"U":
                    line, _, text = b" ".join(answer[2:]).partition(b":")
                    newest.append(Passage(number - int(answer[1]) + int(line) - 1, text + b"\n"))
                elif answer[0] == b"S":
                    lines, left, passed = map(int, answer[1:])
                    number, unread, slow = number + lines, unread + left, slow + passed
                    if found[-1] == Passage(number, b"\n", found[-1].slow_tokenizer):  # the program's own
                        slow += found.pop().slow_tokenizer
                else:
                    raise ValueError
            if int(answer[1]) < size:
                raise _Changed
        except (EOFError, ValueError, IndexError):
            raise _failed(transport, path, stream) from None
        except _Refused as why:
            raise refused(transport.host, path, str(why)) from None
    return Excerpt(
        file,
        size,
        _with(found, newest),
        unread,
        sum(any(text in item.data for text in _DECODES) for item in newest) >= _NEWEST,
    )


async def _opened(answers: _Answers) -> tuple[str, int]:
    """File and size. Raises _Refused."""
    words = (await answers.line()).decode("ascii", "replace").split()
    if words[0] != "O":
        raise _Refused(words[0])
    return words[1], int(words[2])


def _failed(transport: Transport, path: str, stream: ByteStream) -> HostError:
    said = one_line(stream.stderr_tail().decode("utf-8", "replace"), 200)
    return HostError(
        f"{transport.host}: lines of {one_line(path)} cannot be picked there" + (f": {said}" if said else ""),
        "does that host have grep, awk and dd?",
        slug=Slug.SEARCH_FAILED,
    )


def _lines_of(texts: Iterable[str]) -> str:
    return shlex.quote("\n".join(texts))


# ---- the usual lines that count ----------------------------------------------------------------------------------


async def _read_along(tracker: LogTracker, passages: Sequence[Passage]) -> set[int]:
    """Feeds the passages; lines before which the newest usual ones are missing: where it died, and the end."""
    at, taken = passages[0].number, 0
    for passage in passages:
        if passage.number > at or passage.slow_tokenizer:  # what was left out before lines that were asked for
            tracker.go_on_at(
                passage.offset, passage.number, slow_tokenizer=passage.slow_tokenizer, retracted=passage.retracted
            )
        for begin in range(0, len(passage.data), _PIECE_BYTES):
            piece = passage.data[begin : begin + _PIECE_BYTES]
            tracker.feed(piece)
            taken += len(piece)
            if taken > _PIECE_BYTES:
                taken = 0
                await asyncio.sleep(0)
        at = passage.end
    died = next((clue.line for clue in tracker.state().clues if clue.fatal), None)
    ends = (at + 1,) if died is None else (died, at + 1)
    return {line for line in ends if _is_figure_missing(passages, line)}


def _is_figure_missing(passages: Sequence[Passage], line: int) -> bool:
    """Whether lines are left out among the newest decode lines before a line."""
    known, begin = 0, None
    for passage in reversed([passage for passage in passages if passage.number < line]):
        if begin is not None and passage.end < begin:
            return True
        known += (
            sum(passage.data.count(text) for text in _DECODES)
            if passage.end <= line
            else _decodes_before(passage, line)
        )
        if known >= _NEWEST:
            return False
        begin = passage.number
    return False


def _decodes_before(passage: Passage, line: int) -> int:
    return sum(any(text in raw for text in _DECODES) for raw in passage.data.split(b"\n")[: line - passage.number])


async def _usual(transport: Transport, path: str, file: str, lines: Iterable[int]) -> list[Passage]:
    """The newest batches before each of these lines. Raises _Changed."""
    script = [
        f"d={_lines_of(DECODES)} f={_lines_of(PREFILLS)}\nexport LC_ALL=C\necho O $file $size\n"
        # Through a place in the file of its own.
        'newest() ( exec 3< /proc/self/fd/3; head -n "$1" <&3 | grep -a -n -F -e "$2" | tail -n "$3" | cut -b 1-8192 )\n'
    ]
    script += [f'newest {line - 1} "$d" {_NEWEST}; newest {line - 1} "$f" 1\n' for line in lines]
    found: list[Passage] = []
    async with transport.stream(f"p={shell_path(path)}\n{OPEN}{''.join(script)}echo end\n") as stream:
        answers = _Answers(stream)
        try:
            if (await _opened(answers))[0] != file:
                raise _Changed
            while (answer := await answers.line()) != b"end":
                number, _, text = answer.partition(b":")
                found.append(Passage(int(number), text + b"\n"))
        except (EOFError, ValueError):
            raise _failed(transport, path, stream) from None
        except _Refused:
            raise _Changed from None
    return found


def _with(passages: Sequence[Passage], lines: Iterable[Passage]) -> tuple[Passage, ...]:
    """The passages, and those lines that none of them has."""
    merged: list[Passage] = []
    at = 0
    for passage in sorted((*passages, *lines), key=attrgetter("number")):
        if passage.number >= at:
            merged.append(passage)
            at = passage.end
    return tuple(merged)
