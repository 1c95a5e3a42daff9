"""What of a window is shown, and how: filters, context, folds of repeats and of tracebacks, hits. Data only.

A row is named by the absolute index of its first record in the window, so a cursor on it survives a change of filters
and folds: `rows.row_of(index)` says where a record is shown now.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tui.core.logs.filters import LogFilter, Matcher
from tui.core.logs.folding import FOLD_WINDOW, Folds, Past, RowMaker
from tui.core.logs.window import INSIDE, LogWindow, shape_of
from tui.core.model.log import LogRecord, rank_label


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a view: a record, or several folded into one."""

    index: int  # absolute index of its first record
    record: LogRecord  # the first of the fold; of a bar the newest frame
    shown: LogRecord  # whose text is shown: the newest of a repeat, the exception of a traceback
    count: int = 1  # records folded into this row, itself included (a traceback counts once)
    ranks: tuple[str, ...] = ()  # ranks that logged it, in order of appearance
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


class LogRows(RowMaker):
    """Rows of a window under a filter; call `update()` after the window has changed, it costs what has changed.

    Attributes:
        window, filter, folds: as given; `set` changes them.
        sequence: absolute indices of the rows, ascending. A row whose first record fell out of the window stays while
            newer ones of its fold are loaded.
        hits, errors, phases: the rows of `sequence` with a hit, with an error, that begin a phase; ascending.
        hidden: records that the filter hides, of all that came.
        plain_from: from this index on a line that a rank logs again is a row of its own, unless it is known to be harmless;
            None: repeats fold everywhere.
    """

    def __init__(self, window: LogWindow, filter: LogFilter | None = None, folds: Folds | None = None) -> None:
        super().__init__(window, filter, folds)
        self._reset()
        self.update()

    def _reset(self) -> None:
        self._forget_rows()
        self._tail = 0  # rows at the end of `sequence` that are provisional
        self._first = self._end = self.window.first  # records taken in: [first, end), without provisional ones
        self._serial = -1
        self._cuts = self.window.cuts
        self._before_plain: tuple[Past, int] | None = None  # what was there at `plain_from`, and what was hidden

    def update(self) -> None:
        """Takes in what the window got since."""
        window = self.window
        if window.serial == self._serial:
            return
        seen, self._serial = self._serial, window.serial
        edits = window.edits
        if (
            (window.cuts != self._cuts or window.end < self._end or window.first > self._end)
            # more was replaced than is known
            or (seen >= 0 and edits and edits[0][0] > seen and len(edits) == edits.maxlen)
            # the first records of a fold that was kept may be here again
            or (window.first < self._first and self.sequence and self.sequence[0] < self._first)
        ):
            self._rebuild()
            return
        self._drop_tail()
        if window.first < self._first:
            self._take_before()
        elif window.first > self._first:
            self._drop_before(window.first)
        for serial, index in edits if seen >= 0 else ():
            if serial > seen and index < self._end:
                self._edited(index)
        settled = window.settled_end
        if settled > self._end:
            self._take_on(self._end, settled)
            self._end = settled
        self._take_tail(settled)

    def set(
        self, *, filter: LogFilter | None = None, folds: Folds | None = None, window: LogWindow | None = None
    ) -> None:
        """Another filter, other folds or another window: everything is looked at again (about 100 ms for 100,000 records).

        Raises UsageError where the filter's regular expression is wrong; nothing is changed then.
        """
        if filter is not None:
            self._matcher = Matcher(filter)
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

    def _rebuild(self) -> None:
        self._reset()
        window = self.window
        self._serial = window.serial
        self._first, self._end = window.first, window.settled_end
        if self.plain_from is not None:
            self.plain_from = self._uncut(self.plain_from)
        self._take_stretches(self._first, self._end)
        self._take_tail(self._end)

    def _take_stretches(self, begin: int, end: int) -> None:
        for border in [*self.window.borders, end]:
            if begin < border <= end:
                if begin == self.window.first or begin in self.window.borders:
                    self._close_group()
                    self._past = Past(self.filter.context)
                self._take_on(begin, border)
                begin = border

    def _take_on(self, begin: int, end: int) -> None:
        """`_make`, up to where repeats are rows of their own and from there on."""
        plain = self.plain_from
        if plain is None or end <= plain:
            self._make(begin, end)
            return
        if begin <= plain:
            while plain < end and self.window.traits[plain - self.window.first] & INSIDE:
                plain += 1  # a traceback that began before
            self.plain_from = plain
            self._make(begin, plain)
            if plain == end:
                return
            self._close_group()
            past = replace(self._past, recent=dict(self._past.recent), before=deque(self._past.before))
            self._before_plain = past, self.hidden
        self._make(max(begin, plain), end)

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

    def _drop_tail(self) -> None:
        if self._tail:
            low = self.sequence[-self._tail]
            for found in (self.sequence, self.hits, self.errors):
                del found[bisect_left(found, low) :]
            self._tail = 0

    def _take_tail(self, settled: int) -> None:
        """What is still being written: rows of their own, gone with the next word."""
        window = self.window
        for index in range(settled, window.end):
            record = window.record(index)
            hit = self._has_hit(record)
            if not self._matcher.passes(record, window.traits[index - window.first], record.rank):
                continue
            if self.filter.only_hits and self.filter.text and not hit:
                continue
            self.sequence.append(index)
            self._tail += 1
            if hit:
                self.hits.append(index)
            if record.kind == "error":
                self.errors.append(index)

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

    def _take_before(self) -> None:
        """Records that came in front: rows of their own, so that none of those that are there moves."""
        old, self._first = self._first, self.window.first
        hidden = self.hidden
        later, past = (self.sequence, self.hits, self.errors, self.phases), self._past
        self.sequence, self.hits, self.errors, self.phases = [], [], [], []
        self._past = Past(self.filter.context)
        self._take_stretches(self._first, old)
        self._close_group()
        for found, known in zip((self.sequence, self.hits, self.errors, self.phases), later, strict=True):
            found += known
        self._past = past
        if self._before_plain is not None:
            self._before_plain = self._before_plain[0], self._before_plain[1] + self.hidden - hidden

    def _has_hit(self, record: LogRecord) -> bool:
        return self._matcher.find is not None and self._matcher.find(record)

    def _edited(self, index: int) -> None:
        """A record was replaced by a newer frame of itself."""
        record = self.window.record(index)
        at = bisect_left(self.sequence, index)
        shown = at < len(self.sequence) and self.sequence[at] == index
        trait = self.window.traits[index - self.window.first]
        hit = self._has_hit(record) and self._matcher.passes(record, trait, record.rank)
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
            for place in range(at - 1, max(-1, at - 1 - 2 * FOLD_WINDOW), -1):
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
        return self._matcher.spans(text)
