"""Log bytes to records: splitting on newlines and carriage returns, folding, a bounded buffer.

Line structure as measured in SGLang's output: Python log lines, tqdm bars whose frames are separated by carriage
returns alone (weights from 0.5.10 on, graph capture always), CRLF where the log came from a terminal.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tui.core.log.phases import Phase

LINE_LIMIT = 65_536  # bytes of one line that are kept


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One line of a log, ready to be shown; a progress bar's newer frame has the number of the frame it replaces."""

    number: int  # 1-based line of what was read (`LogWindow.number_of` makes it one of the file); 0 for lines of ours
    offset: int  # byte offset of its first byte
    time: str | None  # "20:01:03" as the line says
    rank: str | None  # "TP3", "DP1 TP0"; "main" for a stamped line without tag, None for a line without stamp
    text: str  # sanitised, without stamp and tags; at most 64 KiB
    kind: str  # plain, phase, warning, error, bar, note (known harmless), marker (ours)
    phase: Phase | None  # in force at this line, begun by it where kind is "phase"; None = not known
    cut_bytes: int = 0  # bytes of an overlong line left out
    key: int = -1  # a record whose key (>= 0) is known replaces that one: newer bar frame, completed tail
    frames: int = 1  # frames of a bar so far
    provisional: bool = False  # an unterminated tail; gone as soon as anything newer comes
    stamp_s: float | None = (
        None  # its stamp read as UTC, seconds since the epoch; below 86,400 where it has no date
    )


class Piece(NamedTuple):
    """One line, or one frame between two carriage returns."""

    raw: bytes  # without its terminator, at most LINE_LIMIT bytes
    number: int  # 1-based line of the file
    offset: int  # byte offset of its first byte
    cut: int  # bytes left out


class LineSplitter:
    r"""Splits a byte stream on \n, \r and \r\n; the result does not depend on how the stream is cut into chunks.

    A line number counts \n alone, as editors and `sed -n Np` do, so the frames of a bar share a number.
    Memory is bounded: of a longer line the first LINE_LIMIT bytes are kept and the rest counted.
    """

    def __init__(self, offset: int = 0, number: int = 1) -> None:
        self.number = number  # of the line being read
        self.line_offset = offset  # of its first byte
        self.offset = offset  # of the first byte of `tail`
        self.tail = b""  # what is read of the piece that has no terminator yet
        self.tail_cut = 0  # bytes of it left out
        self._touched = False  # a piece of the line being read was given out already

    @property
    def begun(self) -> bool:
        """Whether the line being read is not whole: a piece was given out already, or bytes were left out."""
        return self._touched or self.tail_cut > 0

    def plain(self, data: bytes) -> bytes | None:
        """The fast way for data without carriage return or overlong line: the whole lines, None where it is not open.

        `number` is still that of the first of them: whoever reads them counts them, and sets it.
        """
        if self.begun or b"\r" in data:
            return None
        text = self.tail + data if self.tail else data
        at = 0
        while len(text) - at > LINE_LIMIT:  # whether a line end comes in time, wherever one looks
            at = text.rfind(b"\n", at, at + LINE_LIMIT + 1) + 1
            if at == 0:
                return None
        end = text.rfind(b"\n") + 1
        self.offset += end
        self.line_offset = self.offset
        self.tail = text[end:]
        return text[:end] if self.tail else text

    def feed(self, data: bytes) -> list[Piece]:
        """Pieces completed by `data`."""
        pieces: list[Piece] = []
        head, *lines = data.split(b"\n")
        self._extend(head, pieces)
        for line in lines:
            if self.tail or self.tail_cut or not self._touched:
                pieces.append(Piece(self.tail, self.number, self.offset, self.tail_cut))
            self.offset += len(self.tail) + self.tail_cut + 1
            self.tail, self.tail_cut, self._touched = b"", 0, False
            self.number += 1
            self.line_offset = self.offset
            self._extend(line, pieces)
        return pieces

    def skip(self, count: int) -> None:
        """Passes over bytes of the line being read that nobody needs: they count as left out."""
        self.tail_cut += count

    def flush(self) -> list[Piece]:
        """The unterminated tail as a piece: the stream has ended."""
        if not self.tail and not self.tail_cut:
            return []
        piece = Piece(self.tail, self.number, self.offset, self.tail_cut)
        self.offset += len(self.tail) + self.tail_cut
        self.tail, self.tail_cut, self._touched = b"", 0, True
        return [piece]

    def _extend(self, part: bytes, pieces: list[Piece]) -> None:
        *frames, rest = part.split(b"\r") if b"\r" in part else (part,)
        for frame in frames:
            self._grow(frame)
            if self.tail or self.tail_cut:
                pieces.append(Piece(self.tail, self.number, self.offset, self.tail_cut))
                self._touched = True
            self.offset += len(self.tail) + self.tail_cut + 1
            self.tail, self.tail_cut = b"", 0
        self._grow(rest)

    def _grow(self, part: bytes) -> None:
        room = LINE_LIMIT - len(self.tail)
        self.tail += part[:room]
        self.tail_cut += max(0, len(part) - room)


# ---- the buffer behind the log view ----------------------------------------------------------------------------

_VARIABLE = re.compile(r"0x[0-9a-fA-F]+|\d+(?:[.:,]\d+)*")
_FOLD_WINDOW = 24  # rows looked back: lines of eight ranks and two warnings arrive interleaved


@dataclass(frozen=True)
class LogRow:
    """A row of the view: one record, or several folded into one."""

    record: LogRecord  # the first of the fold; of a bar the newest frame
    count: int = 1  # records folded into this row, itself included
    ranks: tuple[str, ...] = ()  # ranks that said it, in order of appearance
    last: LogRecord | None = None  # the newest of the fold, None for a single record

    @property
    def rank_label(self) -> str:
        """ "TP0–7" for neighbouring ranks, "TP0,TP3" else; "–" for a line without stamp."""
        return rank_label(self.ranks) if self.ranks else self.record.rank or "–"

    @property
    def note(self) -> str:
        """What stands at the right end: "8 ranks", "×214", "newest frame of 64"; "" for a single record."""
        if self.record.kind == "bar":
            return f"bar, {self.record.frames} frames" if self.record.frames > 1 else ""
        if self.count > 1 and len(self.ranks) == self.count:
            return f"{self.count} ranks"
        return f"×{self.count}" if self.count > 1 else ""


def rank_label(ranks: Sequence[str]) -> str:
    """Many rank tags as one short text."""
    if len(ranks) == 1:
        return ranks[0]
    split = [re.fullmatch(r"(.*?)(\d+)", rank) for rank in ranks]
    heads = {match.group(1) for match in split if match}
    if all(split) and len(heads) == 1:
        numbers = sorted(int(match.group(2)) for match in split if match)
        if numbers == list(range(numbers[0], numbers[-1] + 1)):
            return f"{heads.pop()}{numbers[0]}–{numbers[-1]}"
    return ranks[0] + f" +{len(ranks) - 1}"


@dataclass
class _Slot:
    row: LogRow
    template: str


@dataclass(frozen=True)
class PhaseMark:
    """Where a phase begins in the buffer."""

    phase: Phase
    row: int  # absolute row index: subtract LogBuffer.first_row
    number: int  # line of the file


@dataclass
class LogBuffer:
    """The newest records of a log and the folded rows made of them; both bounded, with the number dropped.

    Indices given out are absolute (they never change); `rows[i - first_row]` is the row with index i. `append` says from
    which index on rows changed, so a view repaints only those.
    """

    capacity: int = 100_000  # rows, and records
    rows: list[LogRow] = field(default_factory=list)
    records: list[LogRecord] = field(default_factory=list)
    first_row: int = 0  # rows dropped at the front
    first_record: int = 0  # records dropped at the front
    phases: list[PhaseMark] = field(default_factory=list)
    errors: list[int] = field(default_factory=list)  # absolute row indices
    warnings: int = 0

    def __post_init__(self) -> None:
        self._templates: list[str] = []
        self._keys: dict[int, tuple[int, int]] = {}  # key -> (record index, row index), the newest few
        self._gutter: Phase | None = None

    @property
    def dropped(self) -> int:
        """Records that fell out at the front."""
        return self.first_record

    def clear(self) -> None:
        """Forgets everything: another file."""
        self.__init__(self.capacity)  # type: ignore[misc]

    def append(self, records: Iterable[LogRecord]) -> int:
        """Takes records in; returns the absolute index of the first row that changed (len of all where none did)."""
        changed = self.first_row + len(self.rows)
        fresh = False
        for record in records:
            if not fresh:
                fresh = True
                changed = min(changed, self._drop_provisional())
            changed = min(changed, self._add(record))
        if len(self.rows) > self.capacity * 1.1 or len(self.records) > self.capacity * 1.1:
            self._trim()
        return changed

    def phase_at(self, row: int) -> Phase | None:
        """The phase in force at an absolute row index."""
        return self.rows[row - self.first_row].record.phase

    def row_of(self, record: LogRecord) -> int | None:
        """Absolute index of the row that a record is shown in, None where it fell out at the front."""
        template = _template(record)
        for index in range(len(self.rows) - 1, -1, -1):
            row = self.rows[index]
            if row.record is record or row.last is record:
                return self.first_row + index
            last = row.last or row.record
            if (
                template
                and self._templates[index] == template
                and row.record.number <= record.number <= last.number
            ):
                return self.first_row + index
        return None

    def _drop_provisional(self) -> int:
        while self.records and self.records[-1].provisional:
            self.records.pop()
            row = self.rows.pop()
            self._templates.pop()
            self._count(row.record, self.first_row + len(self.rows), -1)
        return self.first_row + len(self.rows)

    def _add(self, record: LogRecord) -> int:
        known = self._keys.get(record.key) if record.key >= 0 else None
        if known is not None:
            at, row = known
            if at >= self.first_record and row >= self.first_row:
                return self._replace(record, at, row)
        self.records.append(record)
        row = self._fold(record)
        if record.key >= 0:
            self._keys[record.key] = (self.first_record + len(self.records) - 1, row)
            if len(self._keys) > 64:
                self._keys.pop(next(iter(self._keys)))
        return row

    def _replace(self, record: LogRecord, at: int, row: int) -> int:
        old = self.records[at - self.first_record]
        self.records[at - self.first_record] = record
        slot = self.rows[row - self.first_row]
        if slot.count == 1:
            self._count(old, row, -1)
            self.rows[row - self.first_row] = _single(record)
            self._templates[row - self.first_row] = _template(record)
            self._count(record, row, 1)
        elif slot.last is old:
            self.rows[row - self.first_row] = replace(slot, last=record)
        return row

    def _fold(self, record: LogRecord) -> int:
        template = _template(record)
        if template:
            stop = max(-1, len(self.rows) - 1 - _FOLD_WINDOW)
            for index in range(len(self.rows) - 1, stop, -1):
                if self._templates[index] == template and _folds(self.rows[index], record):
                    row = self.rows[index]
                    ranks = row.ranks
                    if record.rank is not None and record.rank not in ranks:
                        ranks = (*ranks, record.rank)
                    self.rows[index] = replace(row, count=row.count + 1, ranks=ranks, last=record)
                    return self.first_row + index
        self.rows.append(_single(record))
        self._templates.append(template)
        row_index = self.first_row + len(self.rows) - 1
        self._count(record, row_index, 1)
        return row_index

    def _count(self, record: LogRecord, row: int, step: int) -> None:
        if record.kind == "warning":
            self.warnings += step
        elif record.kind == "error":
            if step > 0:
                self.errors.append(row)
            elif row in self.errors[-8:]:
                self.errors.remove(row)
        if record.phase is not None and record.phase != self._gutter and step > 0 and not record.provisional:
            self._gutter = record.phase
            self.phases.append(PhaseMark(record.phase, row, record.number))

    def _trim(self) -> None:
        extra = max(0, len(self.rows) - self.capacity)
        if extra:
            del self.rows[:extra], self._templates[:extra]
            self.first_row += extra
            self.phases = [mark for mark in self.phases if mark.row >= self.first_row]
            self.errors = [row for row in self.errors if row >= self.first_row]
        extra = max(0, len(self.records) - self.capacity)
        if extra:
            del self.records[:extra]
            self.first_record += extra


def _folds(row: LogRow, record: LogRecord) -> bool:
    # A rank that is behind says a line when others have begun the next phase already.
    return row.record.phase == record.phase or (record.rank is not None and record.rank not in row.ranks)


def _single(record: LogRecord) -> LogRow:
    return LogRow(record, ranks=(record.rank,) if record.rank is not None else ())


def _template(record: LogRecord) -> str:
    # Bars replace by key, our own markers are few, and a phase that another rank begins folds like any other line.
    if record.kind in ("bar", "marker") or record.provisional or not record.text.strip():
        return ""
    return record.kind + _VARIABLE.sub("#", record.text[:400])
