"""Times of a log: absolute, since a start, and two logs (or two ranks of one) side by side on a common axis."""

import math
from bisect import bisect_left
from itertools import zip_longest
from typing import NamedTuple

from tui.core.logs.rows import LogRows

_DAY_S = 86_400.0
_AHEAD = 32  # lines looked ahead for one of the same shape
_SURE = 64  # rows at the end that are compared one by one


class Pair(NamedTuple):
    """One row of two columns. Indices are rows of the logs (`LogRows.row`); None: nothing on that side."""

    time_s: float | None  # on the common axis, whole seconds; None before the first stamp
    left: int | None
    right: int | None


class _Side:
    """The rows of one log and the second each belongs to."""

    def __init__(self, log_rows: LogRows, start_s: float) -> None:
        self.log_rows, self.start_s = log_rows, start_s
        self.rows: list[int] = []
        self.seconds: list[float] = []

    def update(self) -> float | None:
        """Takes in the rows of the log; the earliest second that is another now, None where none is."""
        new = self.log_rows.sequence
        same = min(len(new), len(self.rows))
        sure = max(0, same - _SURE)
        if new[:sure] != self.rows[:sure]:
            sure = same = 0
        while sure < same and new[sure] == self.rows[sure]:
            sure += 1
        if sure == len(new) == len(self.rows):
            return None
        changed = self.seconds[sure : sure + 1]
        del self.rows[sure:], self.seconds[sure:]
        newest = self.seconds[-1] if self.seconds else -math.inf
        day_s = 0.0
        window = self.log_rows.window
        for index in new[sure:]:
            stamp_s = window.records[index - window.first].stamp_s if index >= window.first else None
            if stamp_s is not None:
                now = stamp_s - self.start_s + day_s
                if stamp_s < _DAY_S + 60 and now < newest - _DAY_S / 2:
                    day_s = _DAY_S * math.ceil((newest - _DAY_S / 2 - now) / _DAY_S)
                    now = stamp_s - self.start_s + day_s
                newest = max(newest, math.floor(now))  # ranks write a little out of order
            self.seconds.append(newest)
        self.rows += new[sure:]
        return min(changed + self.seconds[sure : sure + 1])

    def shape(self, at: int) -> int:
        window = self.log_rows.window
        place = self.rows[at] - window.first
        return window.shapes[place] if place >= 0 else 0


class SideBySide:
    """Rows of two logs on a common time axis; lines without stamp stay with the line before them.

    Lines of one second stand beside each other, those of the same shape on the same row.

    Args:
        left_start_s, right_start_s: what counts as zero on either side (0.0 both: absolute time, for two ranks or nodes;
            the first stamps of two runs: time since the start).
    """

    def __init__(self, left: LogRows, right: LogRows, left_start_s: float = 0.0, right_start_s: float = 0.0) -> None:
        self.rows: list[Pair] = []
        self._left, self._right = _Side(left, left_start_s), _Side(right, right_start_s)
        # A second, and the row and the places in both sides where it begins.
        self._marks: list[tuple[float, int, int, int]] = []
        self._done = 0, 0  # places up to which both sides have rows
        self.update()

    def update(self) -> int:
        """Takes in what the logs got (update those first); from which row on something changed."""
        changed = [second for side in (self._left, self._right) if (second := side.update()) is not None]
        if not changed:
            return len(self.rows)
        at = bisect_left(self._marks, (min(changed),))
        if at < len(self._marks):
            _, row, left, right = self._marks[at]
        else:
            row, left, right = len(self.rows), self._done[0], self._done[1]
        del self._marks[at:], self.rows[row:]
        self._pair(left, right)
        return row

    def _pair(self, i: int, j: int) -> None:
        left, right = self._left, self._right
        while i < len(left.rows) or j < len(right.rows):
            second = min(side.seconds[at] for side, at in ((left, i), (right, j)) if at < len(side.rows))
            ends = []
            for side, at in ((left, i), (right, j)):
                while at < len(side.rows) and side.seconds[at] == second:
                    at += 1
                ends.append(at)
            self._marks.append((second, len(self.rows), i, j))
            self._pair_second(None if second == -math.inf else second, range(i, ends[0]), range(j, ends[1]))
            i, j = ends
        self._done = i, j

    def _pair_second(self, second: float | None, lefts: range, rights: range) -> None:
        """Rows of one second: those of a shape on one row, the others between them as they come."""
        left, right = self._left, self._right
        i, j = lefts.start, rights.start
        shapes = [right.shape(at) for at in rights]
        for at in lefts:
            shape = left.shape(at)
            near = shapes[j - rights.start : j - rights.start + _AHEAD] if shape else []
            if shape not in near:
                continue
            match = j + near.index(shape)
            self._add_pairs(second, range(i, at), range(j, match))
            self._add_pairs(second, range(at, at + 1), range(match, match + 1))
            i, j = at + 1, match + 1
        self._add_pairs(second, range(i, lefts.stop), range(j, rights.stop))

    def _add_pairs(self, second: float | None, lefts: range, rights: range) -> None:
        rows, left, right = self.rows, self._left.rows, self._right.rows
        for i, j in zip_longest(lefts, rights):
            rows.append(Pair(second, None if i is None else left[i], None if j is None else right[j]))
