"""Search, counts and marks by the host: grep reads the file there, and only hits travel.

Every scan can be left at any time (the process on the host ends then) and tells how far it has looked.
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass

from tui.core.link.transport import Transport
from tui.core.log.phases import Phase

HITS_KEPT = 2_000  # first ones and last ones of a search that are known by place


@dataclass(frozen=True)
class Needle:
    """What is searched for; case counts only where it has capitals. Bytes are compared: A-Z alone have two cases.

    Raises UsageError where it is empty, has a line break, is too long, or is no expression that both sides understand.
    """

    text: str
    regex: bool = False  # POSIX extended, with \\d \\s \\w \\b; matching the empty text is refused


@dataclass(frozen=True)
class Hit:
    """One line with a hit."""

    offset: int  # byte of the file where the first hit of the line begins
    number: int | None  # line of the file, counted from 1, None where nobody counted


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
        """Whether every hit so far is in `first` or `last`."""


class HostSearch:
    """A search over one file."""

    needle: Needle
    state: SearchState

    def run(self) -> AsyncGenerator[SearchState, None]:
        """Looks at what was not looked at yet: the whole file at first, later what it grew by. Leaving it ends the grep there.

        A file that was replaced or truncated is looked at from its beginning.
        """

    async def next(self, offset: int, step: int) -> Hit | None:
        """The next line with a hit that begins after byte `offset` (step 1), or the last one before it (step -1).

        Answered from what is known where that is complete, else asked of the host. None: there is none that way.
        """

    def place(self, offset: int) -> int | None:
        """Which of all hits the line at `offset` is, counted from 1; None where that is not known or it is none."""


@dataclass(frozen=True)
class Mark:
    """A line of note, anywhere in the file."""

    offset: int
    number: int | None
    kind: str  # phase or error
    phase: Phase | None  # begun by it, or in force
    text: str  # sanitised and masked, its beginning


class LogMarks:
    """Beginnings of phases, and errors, of a whole file; bounded: the first and the last thousands of each."""

    phases: tuple[Mark, ...]
    errors: tuple[Mark, ...]
    state: SearchState

    def run(self) -> AsyncGenerator[SearchState, None]:
        """As `HostSearch.run`."""

    def next(self, kind: str, offset: int, step: int) -> Mark | None:
        """The next (1) or previous (-1) mark of a kind after or before a byte, None where there is none that way."""

    def phase_at(self, offset: int) -> Phase | None:
        """The phase in force at a byte; None before the first mark, and where nothing was looked at."""


async def lines_before(transport: Transport, path: str, offset: int) -> int:
    """How many line ends there are in the first `offset` bytes of a file; cancelling it ends the count there."""


async def offset_of_line(transport: Transport, path: str, number: int) -> int:
    """Byte offset of a line counted from 1; of the last one where there are fewer."""
