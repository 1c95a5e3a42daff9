"""What of a window is shown, and how: filters, context, folds of repeats and of tracebacks, hits. Data only.

A row is named by the absolute index of its first record in the window, so a cursor on it survives a change of filters
and folds: `lens.row_of(index)` says where a record is shown now.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tui.core.log.logs import LogRecord
from tui.core.log.window import LogWindow

NO_RANK = ""  # in LogFilter.ranks: lines without stamp


@dataclass(frozen=True)
class LogFilter:
    """What is looked for and what is hidden.

    `text` is found in what a row shows: time, rank and text; case counts only where it has capitals.
    """

    text: str = ""
    regex: bool = False  # `text` is a regular expression (Python's)
    only_hits: bool = False  # hide lines without a hit; else hits are only marked
    context: int = 0  # lines shown on either side of a hit, with only_hits
    ranks: frozenset[str] | None = None  # LogRecord.rank: "TP3", "main", NO_RANK; None = all
    access: bool = True  # show uvicorn's access lines


@dataclass(frozen=True)
class Folds:
    repeats: bool = True  # the same line again, of other ranks or with other figures
    tracebacks: bool = True  # to their last line


@dataclass(frozen=True)
class Row:
    """One row of a view: a record, or several folded into one."""

    index: int  # absolute index of its first record
    record: LogRecord  # the first of the fold; of a bar the newest frame
    shown: LogRecord  # whose text is shown: the newest of a repeat, the exception of a traceback
    count: int = 1  # records folded into this row, itself included (a traceback counts once)
    ranks: tuple[str, ...] = ()  # ranks that said it, in order of appearance
    last: LogRecord | None = None  # the newest of a fold, None for a single record
    lines: int = 1  # lines of a folded traceback
    hit: bool = False  # one of its records has a hit
    context: bool = False  # shown only because a hit is near

    @property
    def rank_label(self) -> str:
        """ "TP0–7" for neighbouring ranks, "TP0 +3" else; "–" for a line without stamp."""

    @property
    def note(self) -> str:
        """What stands at the right end: "8 ranks", "×214", "bar, 64 frames", "traceback, 34 lines"; "" for a single line."""


class Lens:
    """Rows of a window under a filter; call `update()` after the window has changed, it costs what has changed.

    Attributes:
        sequence: absolute indices of the rows, ascending. A row whose first record fell out of the window stays while
            newer ones of its fold are loaded.
        hits, errors, phases: the rows of `sequence` with a hit, with an error, that begin a phase; ascending.
        hidden: records that the filter hides.
    """

    def __init__(
        self, window: LogWindow, filter: LogFilter = LogFilter(), folds: Folds = Folds()
    ) -> None: ...

    def update(self) -> int | None:
        """Takes in what the window got since; the lowest index whose row changed or came, None where none did."""

    def set(
        self, *, filter: LogFilter | None = None, folds: Folds | None = None, window: LogWindow | None = None
    ) -> None:
        """Another filter, other folds or another window: everything is looked at again (about 100 ms for 100,000 records).

        Raises UsageError where the filter's regular expression is wrong; nothing is changed then.
        """

    def row(self, index: int) -> Row:
        """The row with an index of `sequence`."""

    def row_of(self, index: int) -> int | None:
        """Index of the row that shows a record, else of the next one shown after it, else the last; None without rows."""

    def toggle(self, index: int) -> None:
        """Opens one fold (its records become rows of their own), or closes it again."""

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where the hits are in a text that is shown: (begin, end) in characters."""

    def members(self, index: int) -> Sequence[LogRecord]:
        """All records of a row that are still loaded: what is copied."""
