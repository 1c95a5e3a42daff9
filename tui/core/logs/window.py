"""Records of a part of a log: what is loaded, in the order of the file, open at both ends and bounded.

A record has an absolute index that never changes while it is loaded: records in front of the first one loaded get lower
indices (negative ones, too), newer ones higher. So whoever reads is never moved by what comes or goes at either end.
"""

import re
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from tui.core.model.log import LogRecord
from tui.core.model.phases import Phase

# What is known of a record without looking at its text again.
ACCESS = 1  # an access line of the HTTP server
TRACE = 2  # a traceback begins here, or continues with its cause
INSIDE = 4  # it belongs to the traceback that began before it
RAISED = 8  # within a traceback: the line that says what was raised

_VARIABLE = re.compile(r"0x[0-9a-fA-F]+|\d+(?:[.:,]\d+)*")
_TRACE = "Traceback (most recent call last)"
_CHAINS = ("During handling of the above exception", "The above exception was the direct cause")
_TRACE_LINES = 2_000  # a longer one is not a traceback
_EDITS_KEPT = 256
_KEYS_KEPT = 64


def shape_of(record: LogRecord) -> int:
    """A number that lines have in common which differ in figures and ranks alone; 0 for a line that is like no other."""
    # Bars replace by key, our own lines are few, and what is still being written is not over.
    if record.kind in ("bar", "marker") or record.provisional or not record.text.strip():
        return 0
    return hash((record.kind, _VARIABLE.sub("#", record.text[:400]))) or 1


def _access(text: str) -> int:
    return ACCESS if text.startswith("INFO: ") and "HTTP/" in text else 0


@dataclass
class _Traces:
    """Finds tracebacks in records that come one after the other."""

    _lines: int = 0  # of the traceback being read, 0 = none
    _raised: bool = False  # its exception has come
    _spaced: bool = False  # and a blank line after that

    def traits(self, record: LogRecord) -> int:
        """ACCESS, TRACE, INSIDE and RAISED of the next record, added up."""
        text = record.text
        if record.provisional:
            return 0
        if record.rank is not None or record.kind in ("bar", "marker"):
            self._lines = 0
            return self._begin() if record.kind != "plain" and _TRACE in text else _access(text)
        if not self._lines:
            return self._begin() if text.startswith(_TRACE) else _access(text)
        self._lines += 1
        if self._lines > _TRACE_LINES:
            self._lines = 0
            return 0
        if text.startswith((_TRACE, *_CHAINS)):
            self._raised = self._spaced = False
            return INSIDE | (TRACE if text.startswith(_TRACE) else 0)
        if not text or text[0] in " \t":
            self._spaced = self._raised and (self._spaced or not text.strip())
            return INSIDE
        if self._spaced:
            self._lines = 0
            return _access(text)
        if self._raised:
            return INSIDE  # the message continues
        self._raised = True
        return INSIDE | RAISED

    def _begin(self) -> int:
        self._lines, self._raised, self._spaced = 1, False, False
        return TRACE


class LogWindow:
    """A stretch of a log. `records[i - first]` is the record with absolute index i.

    Whoever fills it bounds it.

    Attributes:
        records: in the order of the file; read only. `shapes` (see `shape_of`) and `traits` are of the same length.
        first: absolute index of records[0].
        line_base: added to `LogRecord.number` it gives the line of the file, counted from 1; None while nobody counted
            the lines before this stretch.
        generation_first: absolute index of the first record of the file as it is now; those before it are of a file that
            was replaced or truncated.
        borders: absolute indices where a stretch was put before another; nothing folds across them.
        edits: (serial, index) of the last records that were replaced in place.
        serial: grows with every change, so that a view knows whether to look again.
        cuts: how often records were taken off the end, or all of them were changed.
        warnings: records of kind warning that came so far.
    """

    def __init__(self) -> None:
        self.records: list[LogRecord] = []
        self.shapes: list[int] = []
        self.traits = bytearray()
        self.first = 0
        self.line_base: int | None = 0
        self.generation_first: int | None = None  # None: all of it
        self.borders: list[int] = []
        self.edits: deque[tuple[int, int]] = deque(maxlen=_EDITS_KEPT)
        self.serial = 0
        self.cuts = 0
        self.warnings = 0
        self._keys: dict[int, int] = {}  # key -> absolute index, the newest few
        self._traces = _Traces()

    @property
    def end(self) -> int:
        """Absolute index after the last record."""
        return self.first + len(self.records)

    @property
    def settled_end(self) -> int:
        """Absolute index after the last record that is not an unterminated tail."""
        at = len(self.records)
        while at and self.records[at - 1].provisional:
            at -= 1
        return self.first + at

    @property
    def _generation_begin(self) -> int:
        """Place in `records` of the first one of the file as it is now."""
        return 0 if self.generation_first is None else max(0, self.generation_first - self.first)

    def record(self, index: int) -> LogRecord:
        """The record with an absolute index. Raises IndexError where it is not loaded."""
        if index < self.first:
            raise IndexError(index)
        return self.records[index - self.first]

    def number_of(self, record: LogRecord) -> int | None:
        """Line of the file, counted from 1; None where it is not known yet, and for lines of ours."""
        if self.line_base is None or record.number == 0 or record.kind == "marker":
            return None
        return record.number + self.line_base

    def at_offset(self, offset: int) -> int | None:
        """Absolute index of the record that holds a byte of the file as it is now, None where it is not loaded."""
        begin = self._generation_begin
        found = bisect_right(self.records, offset, lo=begin, key=attrgetter("offset"))
        return self.first + found - 1 if found > begin else None

    def at_line(self, number: int) -> int | None:
        """Absolute index of the first record of a line of the file, else of the one after it; None where not loaded."""
        if self.line_base is None:
            return None
        begin = self._generation_begin
        wanted = number - self.line_base
        found = bisect_right(self.records, wanted - 1, lo=begin, key=attrgetter("number"))
        if found == len(self.records) or (found == begin and self.records[begin].number > wanted):
            return None
        return self.first + found

    def index_of(self, record: LogRecord) -> int | None:
        """Absolute index of a record, None where it is not loaded any more."""
        end = bisect_right(self.records, record.offset, key=attrgetter("offset"))
        for at in range(end - 1, max(-1, end - 64), -1):
            if self.records[at] is record:
                return self.first + at
        return next((self.first + at for at, known in enumerate(self.records) if known is record), None)

    def append(self, records: Iterable[LogRecord]) -> None:
        """Takes newer records; a provisional tail goes, a newer frame of a bar replaces the one before it."""
        fresh = True
        for record in records:
            if fresh:
                fresh = False
                self.serial += 1
                self._keep(self.settled_end)
            known = self._keys.get(record.key) if record.key >= 0 else None
            if known is not None and self.first <= known < self.end:
                self.records[known - self.first] = record
                self.edits.append((self.serial, known))
                continue
            if record.key >= 0:
                self._keys[record.key] = self.end
                if len(self._keys) > _KEYS_KEPT:
                    self._keys.pop(next(iter(self._keys)))
            if record.kind == "warning" and not record.provisional:
                self.warnings += 1
            self.records.append(record)
            self.shapes.append(shape_of(record))
            self.traits.append(self._traces.traits(record))

    def add_marker(self, offset: int, text: str, time: str | None, phase: Phase | None) -> None:
        """Puts a line of ours at the end, before what is still being written; it stays where it is.

        Args:
            offset: byte of the file where the line being written begins.
            phase: of the marker where no record is before it.
        """
        settled = self.settled_end
        before = self.records[settled - self.first - 1] if settled > self.first else None
        phase = before.phase if before is not None else phase
        # In the order of the file, though it is not in it.
        number = before.number if before is not None and settled != self.generation_first else 0
        open_end = self.records[settled - self.first :]
        self.append((LogRecord(number, offset, time, None, text, "marker", phase), *open_end))

    def prepend(self, records: Sequence[LogRecord]) -> None:
        """Takes records that stand right before the first one."""
        if not records:
            return
        block = LogWindow()
        block.append(records)
        if self.records:
            self.borders.insert(0, self.first)
        self.records[:0] = block.records
        self.shapes[:0] = block.shapes
        self.traits[:0] = block.traits
        self.first -= len(block.records)
        self.warnings += block.warnings
        self.serial += 1

    def drop_before(self, index: int) -> None:
        """Forgets the records in front of an absolute index."""
        extra = min(index, self.end) - self.first
        if extra <= 0:
            return
        del self.records[:extra], self.shapes[:extra], self.traits[:extra]
        self.first += extra
        self.borders = [border for border in self.borders if border > self.first]
        self.serial += 1

    def drop_from(self, index: int) -> None:
        """Forgets the records from an absolute index on."""
        if index < self.end:
            self._keep(max(index, self.first))
            self.borders = [border for border in self.borders if border < self.end]
            self._keys.clear()
            self._traces = _Traces()
            self.cuts += 1
            self.serial += 1

    def copy(self) -> "LogWindow":
        """Another window with the same records at the same indices."""
        other = LogWindow()
        other.records, other.shapes, other.traits = self.records[:], self.shapes[:], self.traits[:]
        other.first, other.line_base, other.generation_first = self.first, self.line_base, self.generation_first
        other.borders, other.warnings = self.borders[:], self.warnings
        other._keys, other._traces = dict(self._keys), replace(self._traces)
        return other

    def renumber(self, shift: int) -> None:
        """Adds to the number of every record; the lines of the file stay the same."""
        self.records = [
            replace(record, number=record.number + shift) if record.number else record for record in self.records
        ]
        if self.line_base is not None:
            self.line_base -= shift
        self.cuts += 1
        self.serial += 1

    def begin_generation(self) -> None:
        """What comes next is another file, whose lines are counted from 1 again: `LogRecord.number` of what is here is void."""
        self._keep(self.settled_end)
        if self.line_base:
            self.renumber(self.line_base)
        elif self.line_base is None:
            self.records = [replace(record, number=0) if record.number else record for record in self.records]
        self.line_base = 0
        self.generation_first = self.end
        self.cuts += 1
        self._keys.clear()
        self.serial += 1

    def _keep(self, end: int) -> None:
        """Takes off the end, unannounced: what was there is provisional, or the caller reports it."""
        at = end - self.first
        del self.records[at:], self.shapes[at:], self.traits[at:]
