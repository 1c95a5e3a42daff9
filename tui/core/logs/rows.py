"""What of a window is shown, and how: filters, context, folds of repeats and of tracebacks, hits. Data only.

A row is named by the absolute index of its first record in the window, so a cursor on it survives a change of filters
and folds: `lens.row_of(index)` says where a record is shown now.
"""

import copy
import re
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from tui.core.errors import Slug, UsageError
from tui.core.logs.window import ACCESS, INSIDE, RAISED, TRACE, LogWindow, shape_of
from tui.core.model.log import LogRecord, rank_label
from tui.core.model.phases import Phase
from tui.core.text import one_line

NO_RANK = ""  # in LogFilter.ranks: lines without stamp
_FOLD_WINDOW = 24  # rows looked back: lines of eight ranks and two warnings arrive interleaved
_NOTHING = 1 << 62  # higher than any index


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


@dataclass(frozen=True)
class Folds:
    repeats: bool = True  # the same line again, of other ranks or with other figures; never under a filter's text
    tracebacks: bool = True  # to their last line


@dataclass(frozen=True, slots=True)
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
        return rank_label(self.ranks) if self.ranks else self.record.rank or "–"

    @property
    def note(self) -> str:
        """What stands at the right end: "8 ranks", "×214", "bar, 64 frames", "traceback, 34 lines"; "" for a single line."""
        if self.record.kind == "bar":
            return f"bar, {self.record.frames} frames" if self.record.frames > 1 else ""
        times = ""
        if self.count > 1:
            times = f"{self.count} ranks" if len(self.ranks) == self.count else f"×{self.count:,}"
        if self.lines > 1:
            return f"traceback, {self.lines} lines" + (f", {times}" if times else "")
        return times


class _Fold:
    """Several records in one row. Kept beside the sequence, which has plain indices only."""

    __slots__ = ("count", "last", "lines", "raised", "ranks", "record", "tail")

    def __init__(self, index: int, record: LogRecord) -> None:
        self.record = record  # the first
        self.count = 1
        self.ranks: tuple[str, ...] = (record.rank,) if record.rank is not None else ()
        self.last = index  # absolute index of the newest
        self.tail = record  # the newest
        self.lines = 1
        self.raised: LogRecord | None = None  # of a traceback: what is shown

    def add(self, index: int, record: LogRecord) -> None:
        self.count += 1
        if record.rank is not None and record.rank not in self.ranks:
            self.ranks = (*self.ranks, record.rank)
        self.last, self.tail = index, record


@dataclass
class _Past:
    """What was there lately: decides what the next record folds into."""

    context: int
    rows: int = 0  # made so far, to tell how long ago one was
    recent: dict[int, tuple[int, int]] = field(default_factory=dict)  # shape -> (rows when it was made, its index)
    group: int | None = None  # the traceback being read, by its first record, where it is folded
    group_shape: int = 0  # of its exception
    group_shown: bool = False
    group_held: bool = False  # hidden while none of its lines has a hit
    rank: str | None = None  # of the traceback being read, folded or not
    gutter: Phase | None = None
    before: deque[int] = field(default_factory=deque)  # hidden lines that a hit may bring back
    after: int = 0  # lines of context still to be shown


class Lens:
    """Rows of a window under a filter; call `update()` after the window has changed, it costs what has changed.

    Attributes:
        window, filter, folds: as given; `set` changes them.
        sequence: absolute indices of the rows, ascending. A row whose first record fell out of the window stays while
            newer ones of its fold are loaded.
        hits, errors, phases: the rows of `sequence` with a hit, with an error, that begin a phase; ascending.
        hidden: records that the filter hides, of all that came.
        plain_from: from this index on a line that a rank says again is a row of its own, unless it is known to be harmless;
            None: repeats fold everywhere.
    """

    def __init__(self, window: LogWindow, filter: LogFilter | None = None, folds: Folds | None = None) -> None:
        self.window = window
        self.filter = filter or LogFilter()
        self.folds = folds or Folds()
        self._pattern = pattern_of(self.filter.text, self.filter.regex)
        self._find = _finder(self.filter, self._pattern)
        self._open: set[int] = set()  # rows whose fold is opened, by the index of their first record
        self.plain_from: int | None = None
        self._reset()
        self.update()

    def _reset(self) -> None:
        self.sequence: list[int] = []
        self.hits: list[int] = []
        self.errors: list[int] = []
        self.phases: list[int] = []
        self.hidden = 0
        self._folds: dict[int, _Fold] = {}
        self._context: set[int] = set()
        self._tail = 0  # rows at the end of `sequence` that are provisional
        self._first = self._end = self.window.first  # records taken in: [first, end), without provisional ones
        self._serial = -1
        self._cuts = self.window.cuts
        self._past = _Past(self.filter.context)
        self._before_plain: tuple[_Past, int] | None = None  # what was there at `plain_from`, and what was hidden
        self._touched: dict[int, _Fold | None] = {}  # folds as they were there, of those that went on

    def update(self) -> int | None:
        """Takes in what the window got since; the lowest index whose row changed or came, None where none did."""
        window = self.window
        if window.serial == self._serial:
            return None
        seen, self._serial = self._serial, window.serial
        if window.cuts != self._cuts or window.end < self._end or window.first > self._end:
            return self._rebuild()
        if seen >= 0 and window.edits and window.edits[0][0] > seen and len(window.edits) == window.edits.maxlen:
            return self._rebuild()  # more was replaced than is known
        if window.first < self._first and self.sequence and self.sequence[0] < self._first:
            return self._rebuild()  # the first records of a fold that was kept may be here again
        changed = self._drop_tail()
        if window.first < self._first:
            changed = self._take_before()
        elif window.first > self._first:
            self._drop_before(window.first)
        if seen >= 0:
            for serial, index in window.edits:
                if serial > seen and index < self._end:
                    self._edited(index)
                    changed = index if changed is None else min(changed, index)
        settled = window.settled_end
        if settled > self._end:
            low = self._take_on(self._end, settled)
            changed = low if changed is None or (low is not None and low < changed) else changed
            self._end = settled
        low = self._take_tail(settled)
        return low if changed is None else changed

    def set(
        self, *, filter: LogFilter | None = None, folds: Folds | None = None, window: LogWindow | None = None
    ) -> None:
        """Another filter, other folds or another window: everything is looked at again (about 100 ms for 100,000 records).

        Raises UsageError where the filter's regular expression is wrong; nothing is changed then.
        """
        if filter is not None:
            self._pattern = pattern_of(filter.text, filter.regex)
            self._find = _finder(filter, self._pattern)
            self.filter = filter
        self.folds = folds or self.folds
        if window is not None and window is not self.window:
            self.window = window
            self._open.clear()
        self._rebuild()

    def toggle(self, index: int) -> None:
        """Opens the fold that shows a record (its records become rows of their own), or closes it again."""
        row = self.row_of(index)
        if row is None:
            return
        if row in self._folds:
            self._open.add(row)
        elif (head := self._opened(row)) is not None:
            self._open.discard(head)
        else:
            return
        self._rebuild()

    def _opened(self, index: int) -> int | None:
        """The opened fold that a record belongs to, by its first record."""
        window = self.window
        if not window.first <= index < window.end:
            return None
        shape = window.shapes[index - window.first]
        for head in sorted((head for head in self._open if window.first <= head <= index), reverse=True):
            at = head - window.first
            inside = all(trait & INSIDE for trait in window.traits[at + 1 : index - window.first + 1])
            if head == index or inside or (shape and window.shapes[at] == shape):
                return head
        return None

    def _rebuild(self) -> int | None:
        self._reset()
        window = self.window
        self._serial = window.serial
        self._first, self._end = window.first, window.settled_end
        if self.plain_from is not None:
            self.plain_from = self._uncut(self.plain_from)
        self._take_stretches(self._first, self._end)
        self._take_tail(self._end)
        return self.sequence[0] if self.sequence else None

    def _take_stretches(self, begin: int, end: int) -> None:
        for border in [*self.window.borders, end]:
            if begin < border <= end:
                if begin == self.window.first or begin in self.window.borders:
                    self._close_group()
                    self._past = _Past(self.filter.context)
                self._take_on(begin, border)
                begin = border

    def _take_on(self, begin: int, end: int) -> int | None:
        """`_take`, up to where repeats are rows of their own and from there on."""
        plain = self.plain_from
        if plain is None or end <= plain:
            return self._take(begin, end)
        low = None
        if begin <= plain:
            while plain < end and self.window.traits[plain - self.window.first] & INSIDE:
                plain += 1  # a traceback that began before
            self.plain_from = plain
            low = self._take(begin, plain) if begin < plain else None
            if plain == end:
                return low
            closed = self._close_group()
            low = closed if low is None else min(low, closed)
            past = replace(self._past, recent=dict(self._past.recent), before=deque(self._past.before))
            self._before_plain = past, self.hidden
        after = self._take(max(begin, plain), end)
        return after if low is None or low == _NOTHING else low

    def fold_before(self, index: int) -> None:
        """Repeats fold only in front of a record, so that what has just come can be read; costs what lies between.

        Only ever forward: what is folded stays so.
        """
        index = self._uncut(max(self.window.first, min(index, self._end)))
        if self.plain_from is None:
            self.plain_from = index
            if index < self._end:
                self._rebuild()
            return
        begin = max(self.plain_from, self.window.first)
        if index <= begin:
            return
        self.plain_from = index
        if self._before_plain is None or begin >= self._end:
            return
        self._drop_tail()
        self._past, self.hidden = self._before_plain
        self._past.recent = {
            shape: known
            for shape, known in self._past.recent.items()
            if known[1] >= self.window.first or known[1] in self._folds
        }
        for found in (self.sequence, self.hits, self.errors, self.phases):
            del found[bisect_left(found, begin) :]
        for head, fold in self._touched.items():
            if fold is not None:
                self._folds[head] = fold
            else:
                self._folds.pop(head, None)
        self._touched = {}
        for head in [head for head in self._folds if head >= begin]:
            del self._folds[head]
        self._context = {near for near in self._context if near < begin}
        self._take_stretches(begin, self._end)
        self._take_tail(self._end)

    def _uncut(self, index: int) -> int:
        """The index, or where the traceback begins that it lies in."""
        window = self.window
        while window.first < index < window.end and window.traits[index - window.first] & INSIDE:
            index -= 1
        return index

    def _drop_tail(self) -> int | None:
        if not self._tail:
            return None
        low = self.sequence[-self._tail]
        del self.sequence[-self._tail :]
        for found in (self.hits, self.errors):
            del found[bisect_left(found, low) :]
        self._tail = 0
        return low

    def _take_tail(self, settled: int) -> int | None:
        """What is still being written: rows of their own, gone with the next word."""
        window = self.window
        low = None
        for index in range(settled, window.end):
            record = window.record(index)
            hit = self._hits(record)
            if not self._passes(record, window.traits[index - window.first], record.rank):
                continue
            if self.filter.only_hits and self.filter.text and not hit:
                continue
            self.sequence.append(index)
            self._tail += 1
            if hit:
                self.hits.append(index)
            if record.kind == "error":
                self.errors.append(index)
            low = index if low is None else low
        return low

    def _drop_before(self, first: int) -> None:
        """Rows all of whose records are gone."""
        cut = bisect_left(self.sequence, first)
        kept = [head for head in self.sequence[:cut] if (fold := self._folds.get(head)) and fold.last >= first]
        gone = set(self.sequence[:cut]).difference(kept)
        self.sequence[:cut] = kept
        for found in (self.hits, self.errors, self.phases):
            at = bisect_left(found, first)
            found[:at] = [head for head in found[:at] if head not in gone]
        stay = set(kept)
        for head in [head for head in self._folds if head < first and head not in stay]:
            del self._folds[head]
        self._context.difference_update(gone)
        past = self._past
        past.before = deque(index for index in past.before if index >= first)
        past.recent = {
            shape: known for shape, known in past.recent.items() if known[1] >= first or known[1] in self._folds
        }
        if past.group is not None and past.group < first and past.group not in kept:
            past.group = None
        self._first = first

    def _take_before(self) -> int | None:
        """Records that came in front: rows of their own, so that none of those that are there moves."""
        old, self._first = self._first, self.window.first
        hidden = self.hidden
        later = self.sequence, self.hits, self.errors, self.phases, self._past
        self.sequence, self.hits, self.errors, self.phases = [], [], [], []
        self._past = _Past(self.filter.context)
        self._take_stretches(self._first, old)
        self._close_group()
        low = self.sequence[0] if self.sequence else None
        self.sequence += later[0]
        self.hits += later[1]
        self.errors += later[2]
        self.phases += later[3]
        self._past = later[4]
        if self._before_plain is not None:
            self._before_plain = self._before_plain[0], self._before_plain[1] + self.hidden - hidden
        return low

    # -- making rows ----------------------------------------------------------------------------------------------

    def _hits(self, record: LogRecord) -> bool:
        return self._find is not None and self._find(record)

    def _passes(self, record: LogRecord, traits: int, rank: str | None) -> bool:
        if traits & ACCESS and not self.filter.access:
            return False
        wanted = self.filter.ranks
        return wanted is None or record.kind == "marker" or (NO_RANK if rank is None else rank) in wanted

    def _take(self, begin: int, end: int) -> int | None:
        """Makes rows of the records [begin, end); the lowest index of a row that came or changed."""
        window, past = self.window, self._past
        first, records, shapes, traits = window.first, window.records, window.shapes, window.traits
        find = self._find
        everything = self.filter.ranks is None and self.filter.access
        only = self.filter.only_hits and find is not None
        repeats = self.folds.repeats and not only  # who looks for lines wants to see them
        low = _NOTHING
        for index in range(begin, end):
            at = index - first
            record, trait = records[at], traits[at]
            inside = trait & INSIDE
            if not inside:
                if past.group is not None:
                    low = min(low, self._close_group())
                if trait & TRACE:
                    past.rank = record.rank
            passes = everything or self._passes(record, trait, past.rank if inside else record.rank)
            hit = passes and find is not None and find(record)
            if inside and past.group is not None:
                if passes:
                    low = min(low, self._into_group(index, record, trait, hit=hit, only=only))
                else:
                    self.hidden += 1
                continue
            folded = trait & TRACE and not inside and self.folds.tracebacks and index not in self._open
            if folded:
                past.group, past.group_shape = index, 0
                past.group_shown = past.group_held = False
                self._folds[index] = _Fold(index, record)
            if not passes:
                self.hidden += 1
                continue
            context = False
            if only:
                if hit:
                    low = min(low, self._bring_back())
                elif past.after > 0:
                    past.after -= 1
                    context = True
                else:
                    self.hidden += 1
                    if folded:
                        past.group_held = True
                    else:
                        self._keep_near(index)
                    continue
            if folded:
                past.group_shown = True
                self._row(index, record, hit, context)
                low = min(low, index)
                continue
            shape = shapes[at]
            if shape and repeats:
                known = past.recent.get(shape)
                if known is not None and past.rows - known[0] < _FOLD_WINDOW:
                    head = known[1]
                    if self._fold(head, index, record, hit):
                        low = min(low, head)
                        continue
                self._row(index, record, hit, context)
                opened = known is not None and known[1] in self._open
                past.recent[shape] = (past.rows, known[1] if known is not None and opened else index)
                if len(past.recent) > 64 * _FOLD_WINDOW:
                    self._tidy()
            else:
                self._row(index, record, hit, context)
            if index < low:
                low = index
        return low if low < _NOTHING else None

    def _row(self, index: int, record: LogRecord, hit: bool, context: bool) -> None:
        self.sequence.append(index)
        past = self._past
        past.rows += 1
        if hit:
            self.hits.append(index)
        elif context:
            self._context.add(index)
        if record.kind == "error":
            self.errors.append(index)
        phase = record.phase
        if phase is not past.gutter and phase is not None and record.kind != "marker":
            # In the middle of a log the first phase that is known need not begin there.
            if past.gutter is not None or record.kind == "phase" or record.offset == 0:
                self.phases.append(index)
            past.gutter = phase

    def _fold(self, head: int, index: int, record: LogRecord, hit: bool) -> bool:
        """Puts a record into the row of another one; False where they belong apart."""
        fold = self._folds.get(head)
        if head in self._open or (fold is None and head < self.window.first):
            return False
        plain = self.plain_from is not None and index >= self.plain_from
        first = fold.record if fold is not None else self.window.record(head)
        ranks = fold.ranks if fold is not None else (first.rank,)
        if plain and record.kind != "note":
            if record.rank is None or record.rank in ranks or head < (self.plain_from or 0):
                return False
        elif plain:
            self._touched.setdefault(head, copy.copy(fold))
        # A rank that is behind says a line when others have begun the next phase already.
        if first.phase is not record.phase and (record.rank is None or record.rank in ranks):
            return False
        if fold is None:
            fold = self._folds[head] = _Fold(head, first)
        fold.add(index, record)
        if hit:
            self._hit(head)
        return True

    def _hit(self, head: int) -> None:
        self._context.discard(head)
        if not self.hits or self.hits[-1] < head:
            self.hits.append(head)
        elif (at := bisect_left(self.hits, head)) == len(self.hits) or self.hits[at] != head:
            self.hits.insert(at, head)

    def _keep_near(self, index: int) -> None:
        """A hidden line that a hit after it may bring back."""
        before = self._past.before
        if self.filter.context:
            before.append(index)
            if len(before) > self.filter.context:
                before.popleft()

    def _bring_back(self) -> int:
        """Shows the lines before a hit; the lowest of them."""
        past = self._past
        low = past.before[0] if past.before else _NOTHING
        while past.before:
            index = past.before.popleft()
            self.hidden -= 1
            self._row(index, self.window.record(index), False, True)
        past.after = self.filter.context
        return low

    def _into_group(self, index: int, record: LogRecord, trait: int, *, hit: bool, only: bool) -> int:
        """One more line of a folded traceback; the index of its row."""
        past = self._past
        head = past.group
        assert head is not None
        fold = self._folds[head]
        fold.lines += 1
        fold.last, fold.tail = index, record
        if trait & RAISED:
            fold.raised = record
            past.group_shape = self.window.shapes[index - self.window.first]
        if hit and past.group_held:
            past.group_held = False
            self.hidden -= 1
            self._bring_back()
            past.group_shown = True
            self._row(head, fold.record, True, False)
        elif hit:
            if only and head in self._context:
                past.after = self.filter.context
            self._hit(head)
        return head

    def _close_group(self) -> int:
        """The traceback is over: the same one of another rank becomes one row with it. The lowest index that changed."""
        past = self._past
        head, past.group = past.group, None
        if head is not None and past.group_held:
            self._keep_near(head)
        if head is None or not past.group_shown or not past.group_shape or not self.folds.repeats:
            return _NOTHING
        shape = ~past.group_shape
        known = past.recent.get(shape)
        plain = self.plain_from if self.plain_from is not None and head >= self.plain_from else None
        apart = known is None or known[1] in self._open or (plain is not None and known[1] < plain)
        if known is not None and past.rows - known[0] <= _FOLD_WINDOW and not apart:
            into, fold = self._folds[known[1]], self._folds.pop(head)
            into.add(fold.last, fold.tail)
            into.ranks = (*into.ranks, *(rank for rank in fold.ranks if rank not in into.ranks))
            into.raised = fold.raised
            for found in (self.sequence, self.hits, self.errors, self.phases):
                if found and found[-1] == head:
                    found.pop()
                    if found is self.hits:
                        self._hit(known[1])
            self._context.discard(head)
            return known[1]
        past.recent[shape] = (past.rows, head)
        return _NOTHING

    def _tidy(self) -> None:
        past = self._past
        past.recent = {shape: known for shape, known in past.recent.items() if past.rows - known[0] < _FOLD_WINDOW}

    def _edited(self, index: int) -> None:
        """A record was replaced by a newer frame of itself."""
        record = self.window.record(index)
        at = bisect_left(self.sequence, index)
        shown = at < len(self.sequence) and self.sequence[at] == index
        trait = self.window.traits[index - self.window.first]
        hit = self._find is not None and self._find(record) and self._passes(record, trait, record.rank)
        if hit and not shown and self.filter.only_hits:
            self.sequence.insert(at, index)
            self.hidden -= 1
            shown = True
        place = bisect_left(self.hits, index)
        known = place < len(self.hits) and self.hits[place] == index
        if shown and hit and not known:
            self.hits.insert(place, index)
        elif known and not hit:
            del self.hits[place]

    # -- what views ask -------------------------------------------------------------------------------------------

    def row(self, index: int) -> Row:
        """The row with an index of `sequence`. Raises IndexError where its record is not loaded."""
        fold = self._folds.get(index)
        at = bisect_left(self.hits, index)
        hit = at < len(self.hits) and self.hits[at] == index
        context = index in self._context
        if fold is None:
            record = self.window.record(index)
            ranks = (record.rank,) if record.rank is not None else ()
            return Row(index, record, record, 1, ranks, None, 1, hit, context)
        shown = fold.raised or (fold.tail if fold.lines == 1 else fold.record)
        return Row(*(index, fold.record, shown, fold.count, fold.ranks, fold.tail, fold.lines, hit, context))

    def row_of(self, index: int) -> int | None:
        """Index of the row that shows a record, else of the next one shown after it, else the last; None without rows."""
        sequence = self.sequence
        if not sequence:
            return None
        at = bisect_right(sequence, index)
        if at and sequence[at - 1] == index:
            return index
        if self.window.first <= index < self.window.end:
            where = index - self.window.first
            shape = self.window.shapes[where]
            inside = self.window.traits[where] & INSIDE
            for place in range(at - 1, max(-1, at - 1 - 2 * _FOLD_WINDOW), -1):
                fold = self._folds.get(sequence[place])
                if fold is None or fold.last < index:
                    continue
                if (inside and fold.lines > 1) or (fold.lines == 1 and shape and shape_of(fold.record) == shape):
                    return sequence[place]
        return sequence[min(at, len(sequence) - 1)]

    def members(self, index: int) -> Sequence[LogRecord]:
        """All records of a row that are still loaded: what is copied."""
        fold = self._folds.get(index)
        window = self.window
        if fold is None:
            return [window.record(index)] if window.first <= index < window.end else []
        begin = max(index, window.first)
        return [window.record(at) for at in range(begin, min(fold.last + 1, window.end)) if self.row_of(at) == index]

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where the hits are in a text that is shown: (begin, end) in characters."""
        found = self._pattern.finditer(text) if self._pattern is not None else ()
        return [match.span() for match in found if match.end() > match.start()]


def pattern_of(text: str, regex: bool) -> re.Pattern[str] | None:
    """The pattern of a filter's text, None where it is empty. Raises UsageError where it is no regular expression."""
    if not text:
        return None
    flags = re.IGNORECASE if text == text.lower() else re.NOFLAG
    try:
        return re.compile(text if regex else re.escape(text), flags)
    except re.error as error:
        raise UsageError(
            f"{one_line(text, 60)} is no regular expression: {error}",
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
