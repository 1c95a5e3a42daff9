"""Records of a part of a log: what is loaded, in the order of the file, open at both ends and bounded.

A record has an absolute index that never changes while it is loaded: records in front of the first one loaded get lower
indices (negative ones, too), newer ones higher. So whoever reads is never moved by what comes or goes at either end.
"""

from collections.abc import Iterable, Sequence

from tui.core.log.logs import LogRecord


class LogWindow:
    """A stretch of a log. `records[i - first]` is the record with absolute index i.

    Attributes:
        records: in the order of the file; read only.
        first: absolute index of records[0].
        line_base: added to `LogRecord.number` it gives the line of the file, counted from 1; None while nobody counted
            the lines before this stretch.
        serial: grows with every change, so that a view knows whether to look again.
    """

    def __init__(self, capacity: int = 100_000) -> None: ...

    @property
    def end(self) -> int:
        """Absolute index after the last record."""

    def record(self, index: int) -> LogRecord:
        """The record with an absolute index. Raises IndexError where it is not loaded."""

    def number_of(self, record: LogRecord) -> int | None:
        """Line of the file, counted from 1; None where it is not known yet, and for lines of ours."""

    def at_offset(self, offset: int) -> int | None:
        """Absolute index of the record that holds a byte of the file, None where it is not loaded."""

    def index_of(self, record: LogRecord) -> int | None:
        """Absolute index of a record, None where it is not loaded any more."""

    def append(self, records: Iterable[LogRecord]) -> None:
        """Takes newer records; a provisional tail goes, a newer frame of a bar replaces the one before it."""

    def prepend(self, records: Sequence[LogRecord]) -> None:
        """Takes records that stand right before the first one."""
