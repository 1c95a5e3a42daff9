"""What is looked for in a log, and what is hidden of it."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from tui.core.errors import Slug, UsageError
from tui.core.logs.window import ACCESS
from tui.core.model.log import LogRecord
from tui.core.text import one_line

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
    access: bool = True  # show the access lines of the HTTP server


class Matcher:
    """A filter, ready to be asked. Raises UsageError where its text is not a regular expression."""

    def __init__(self, filter: LogFilter) -> None:
        self._filter = filter
        self._pattern = _pattern_of(filter.text, filter.regex)
        self.find = _finder(filter, self._pattern)  # whether a record has a hit; None: nothing is looked for
        self.everything = filter.ranks is None and filter.access  # whether every record passes

    def passes(self, record: LogRecord, traits: int, rank: str | None) -> bool:
        """Whether a record is of what is not hidden; `rank` is the one that logged it."""
        if traits & ACCESS and not self._filter.access:
            return False
        wanted = self._filter.ranks
        return wanted is None or record.kind == "marker" or (NO_RANK if rank is None else rank) in wanted

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where the hits are in a text that is shown: (begin, end) in characters."""
        found = self._pattern.finditer(text) if self._pattern is not None else ()
        return [match.span() for match in found if match.end() > match.start()]


def _pattern_of(text: str, regex: bool) -> re.Pattern[str] | None:
    """The pattern of a filter's text, None where it is empty. Raises UsageError where it is not a regular expression."""
    if not text:
        return None
    flags = re.IGNORECASE if text == text.lower() else re.NOFLAG
    try:
        return re.compile(text if regex else re.escape(text), flags)
    except re.error as error:
        raise UsageError(
            f"{one_line(text, 60)} is not a regular expression: {error}",
            "search for it as plain text, or put a backslash before special characters",
            slug=Slug.BAD_REGEX,
        ) from None


def _finder(wanted: LogFilter, pattern: re.Pattern[str] | None) -> Callable[[LogRecord], bool] | None:
    if pattern is None:
        return None
    if wanted.regex:
        search = pattern.search
        return lambda record: bool(search(record.text) or search(record.rank or "") or search(record.time or ""))
    needle = wanted.text
    if needle != needle.lower():
        return lambda record: needle in record.text or needle in (record.rank or "") or needle in (record.time or "")
    # Several times faster than an expression that ignores case.
    return lambda record: (
        needle in record.text.lower() or needle in (record.rank or "").lower() or needle in (record.time or "")
    )
