"""How records become rows: what folds into one row, what a filter hides and a hit brings back.

Rows are named by the absolute index of their first record in the window.
"""

from bisect import bisect_left
from collections import deque
from copy import copy
from dataclasses import dataclass, field

from tui.core.logs.filters import LogFilter, Matcher
from tui.core.logs.window import INSIDE, RAISED, TRACE, LogWindow
from tui.core.model.log import LogRecord
from tui.core.model.phases import Phase

FOLD_WINDOW = 24  # rows looked back: lines of eight ranks and two warnings arrive interleaved


@dataclass(frozen=True)
class Folds:
    repeats: bool = True  # the same line again, of other ranks or with other figures; never under a filter's text
    tracebacks: bool = True  # to their last line


class Fold:
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
class Past:
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


class RowMaker:
    """Makes rows of the records of a window, one after the other; see `LogRows`, which keeps them up to date."""

    def __init__(self, window: LogWindow, filter: LogFilter | None, folds: Folds | None) -> None:
        self.window = window
        self.filter = filter or LogFilter()
        self.folds = folds or Folds()
        self._matcher = Matcher(self.filter)
        self._open: set[int] = set()  # rows whose fold is opened, by the index of their first record
        self.plain_from: int | None = None
        self._forget_rows()

    def _forget_rows(self) -> None:
        self.sequence: list[int] = []
        self.hits: list[int] = []
        self.errors: list[int] = []
        self.phases: list[int] = []
        self.hidden = 0
        self._folds: dict[int, Fold] = {}
        self._context: set[int] = set()
        self._past = Past(self.filter.context)
        self._touched: dict[int, Fold | None] = {}  # folds as they were at `plain_from`, of those that continued

    def _make(self, begin: int, end: int) -> None:
        """Makes rows of the records [begin, end)."""
        window, past, matcher = self.window, self._past, self._matcher
        first, records, shapes, traits = window.first, window.records, window.shapes, window.traits
        find, everything = matcher.find, matcher.everything
        only = self.filter.only_hits and find is not None
        repeats = self.folds.repeats and not only  # who looks for lines wants to see them
        for index in range(begin, end):
            at = index - first
            record, trait = records[at], traits[at]
            inside = trait & INSIDE
            if not inside:
                self._close_group()
                if trait & TRACE:
                    past.rank = record.rank
            passes = everything or matcher.passes(record, trait, past.rank if inside else record.rank)
            hit = passes and find is not None and find(record)
            if inside and past.group is not None:
                if passes:
                    self._into_group(index, record, trait, hit=hit, only=only)
                else:
                    self.hidden += 1
                continue
            folded = bool(trait & TRACE) and not inside and self.folds.tracebacks and index not in self._open
            if folded:
                past.group, past.group_shape, past.group_shown, past.group_held = index, 0, False, False
                self._folds[index] = Fold(index, record)
            if not passes:
                self.hidden += 1
                continue
            context = False
            if only and hit:
                self._bring_back()
            elif only:
                context = past.after > 0
                if not context:
                    self.hidden += 1  # a hit that comes may show it
                    past.group_held = past.group_held or folded
                    if not folded:
                        self._keep_near(index)
                    continue
                past.after -= 1
            if not folded and repeats and shapes[at]:
                self._row_or_repeat(shapes[at], index, record, hit, context)
                continue
            past.group_shown = past.group_shown or folded
            self._row(index, record, hit, context)

    def _row_or_repeat(self, shape: int, index: int, record: LogRecord, hit: bool, context: bool) -> None:
        """Folds a record into the row of one like it, else makes a row of it."""
        past = self._past
        known = past.recent.get(shape)
        if known is not None and past.rows - known[0] < FOLD_WINDOW and self._fold(known[1], index, record, hit):
            return
        self._row(index, record, hit, context)
        opened = known is not None and known[1] in self._open
        past.recent[shape] = (past.rows, known[1] if known is not None and opened else index)
        if len(past.recent) > 64 * FOLD_WINDOW:
            past.recent = {key: at for key, at in past.recent.items() if past.rows - at[0] < FOLD_WINDOW}

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
            self._touched.setdefault(head, copy(fold))
        # A rank that is behind logs a line when others have begun the next phase already.
        if first.phase is not record.phase and (record.rank is None or record.rank in ranks):
            return False
        if fold is None:
            fold = self._folds[head] = Fold(head, first)
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

    def _bring_back(self) -> None:
        past = self._past
        while past.before:
            index = past.before.popleft()
            self.hidden -= 1
            self._row(index, self.window.record(index), False, True)
        past.after = self.filter.context

    def _into_group(self, index: int, record: LogRecord, trait: int, *, hit: bool, only: bool) -> None:
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

    def _close_group(self) -> None:
        """The traceback is over, if there is one: the same one of another rank becomes one row with it."""
        past = self._past
        head, past.group = past.group, None
        if head is not None and past.group_held:
            self._keep_near(head)
        if head is None or not past.group_shown or not past.group_shape or not self.folds.repeats:
            return
        shape = ~past.group_shape
        known = past.recent.get(shape)
        plain = self.plain_from if self.plain_from is not None and head >= self.plain_from else None
        apart = known is None or known[1] in self._open or (plain is not None and known[1] < plain)
        if known is not None and past.rows - known[0] <= FOLD_WINDOW and not apart:
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
        else:
            past.recent[shape] = (past.rows, head)
