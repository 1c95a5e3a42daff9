"""A log file of any size on a host: the tail first, then whatever is asked for, never the whole file over the link."""

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

from tui.core.host.log_search import HostSearch, LogMarks, Needle
from tui.core.link.transport import Transport
from tui.core.log.logs import LogRecord
from tui.core.log.phases import Phase
from tui.core.log.window import LogWindow

BLOCK_BYTES = 262_144


@dataclass(frozen=True)
class FileUpdate:
    """What following brought: newer records, already in the window, or an event.

    `event` is None, opened, replaced, truncated, gone, link_lost, resumed or ended (the last one).
    """

    records: tuple[LogRecord, ...] = ()
    event: str | None = None
    text: str | None = None  # the event in words, one line
    behind_bytes: int = 0  # written and not read yet


class LogFile:
    """One file; `window` is what a view shows, and is another object after a jump, and after coming back to the tail.

    Run `updates()` in one task for as long as the file is on show; everything else may be called meanwhile, from the same
    event loop. All loading calls raise UsageError (no right to read it), HostError, LinkLost after three tries.

    Attributes:
        window: what is loaded around the reader.
        tail: the growing end; the same object as `window` while `at_tail`.
        size: bytes of the file when it was last heard of, None before.
        begin, end: bytes of the file that `window` holds, [begin, end); end is the line being written where at the tail.
        generation: how often the file was replaced or truncated while it was followed.
        problem: why it cannot be read on just now (link lost, file gone), one line; None while all is well.
        search: the last search that was begun on this file.
        marks: phases and errors of the whole file, empty until `marks.run()`.
    """

    window: LogWindow
    tail: LogWindow
    size: int | None
    begin: int
    end: int
    generation: int
    problem: str | None
    search: HostSearch | None
    marks: LogMarks

    def __init__(self, transport: Transport, path: str, *, capacity: int = 100_000) -> None: ...

    @property
    def at_tail(self) -> bool:
        """Whether `window` is the growing end."""

    @property
    def at_begin(self) -> bool:
        """Whether nothing can be loaded before `window`: it begins at the file's first byte, or what was before is gone."""

    async def updates(self, ended: Callable[[], bool] | None = None) -> AsyncGenerator[FileUpdate, None]:
        """Opens the file at its tail and follows it. A file that is not there is waited for.

        Args:
            ended: whether the writer has ended; then an `ended` update is the last. None: until cancelled.
        """
        yield FileUpdate()

    async def load_before(self) -> int:
        """Loads the block before `window`; how many records came (0: there is none, see `at_begin`).

        What is too much then goes at the far end: `at_tail` may become false.
        """

    async def load_after(self) -> int:
        """Loads the block after `window` where that is in the middle of the file; reaching the end makes it the tail again."""

    async def jump_to(self, offset: int, *, number: int | None = None) -> int | None:
        """Makes `window` hold a byte of the file; absolute index in it of the record with that byte, None in an empty file.

        Args:
            number: line of the file that holds the byte where that is known, so that line numbers are exact at once.
        """

    async def jump_to_line(self, number: int) -> int | None:
        """The same for a line of the file, counted from 1; the last one where there are fewer. The host counts."""

    def to_tail(self) -> None:
        """`window` is the growing end again."""

    async def count_lines(self) -> bool:
        """Makes line numbers of `window` exact: the host counts the lines before it. False where it changed meanwhile."""

    def begin_search(self, needle: Needle) -> HostSearch:
        """A search over the whole file, to be run by `HostSearch.run()`; the one before it is forgotten."""

    def phase_at(self, index: int) -> Phase | None:
        """The phase in force at a record of `window`, by what is loaded and by `marks`; None while that is not known."""
