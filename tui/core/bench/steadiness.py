"""Whether the server kept its pace in the window, and whether it kept up with what arrived: pure functions of rows.

A figure of a window in which the server changed its speed is of two servers. Steps and drifts are looked for in the time
between chunks, which is the server's own step whatever the lengths of replies and however many drafts are accepted.
"""

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import fmean
from typing import Any

from tui.core.model.result import Window

_GAPS = 10  # that a slice must hold
_REPLIES = 3  # that a place in the reply must be known from
_PLAIN = 0.08  # a change that replies of one pace don't differ by
_STALL = 8.0  # times the usual gap: what lasts longer is one event, not a pace
_POINTS = 12  # at which a backlog is read
_EARLY = 10  # requests, that found no queue
_BACKLOG_T = 4.0
_BACKLOG_LEAST = 10.0  # requests
_BACKLOG_SHARE = 0.08  # of those that arrived: what a queue below capacity rarely grows by

# Of slices that differ by chance alone, normally: what the largest |t| over all steps and the drift exceeds in 0.2 % of
# windows, by 200,000 simulations each; by the number of slices.
_CRITICAL = {4: 32.55, 5: 24.37, 6: 13.26, 7: 10.05, 8: 8.04, 9: 7.1, 10: 6.55, 11: 6.1, 12: 5.8}


@dataclass(frozen=True)
class Change:
    """How the time between chunks changed within a window, beyond chance.

    Attributes:
        share: by how much it grew: 0.3 is 30 % longer gaps; 0 where no change stands out from chance.
        at_s: seconds into the window of a step; None of a drift, whose `share` is over the whole window.
    """

    share: float = 0.0
    at_s: float | None = None


@dataclass(frozen=True)
class Backlog:
    """Arrivals against replies in the window of an open loop.

    Attributes:
        growth: requests under way at its end more than at its begin, by a straight line through it.
        grows: whether that is more than chance: the load is above what the server holds.
    """

    offered_req_s: float
    served_req_s: float
    growth: float
    grows: bool


def change(rows: Sequence[Mapping[str, Any]], window: Window) -> Change | None:
    """The largest step or drift of the time between chunks; None where the window holds too little to tell.

    Each gap is held against the usual one at its place in a reply, since a step grows with the context. A slice of the
    window is as long as a reply of one user, so that slices are of different replies.
    """
    replies = [row for row in rows if not row["err"] and row["gaps_us"]]
    within = [(row["t_last"] - row["t_first"]) for row in replies if window.begin_s <= row["t_first"] <= window.end_s]
    if not within:
        return None
    typical_s = sorted(within)[len(within) // 2]
    count = int(window.duration_s / max(typical_s, 1e-3))
    if count < 2:
        return None
    count = max(min(_CRITICAL), min(max(_CRITICAL), count))
    paces = _paces(replies, window, count)
    if paces is None:
        return None
    found, t = _largest_change(paces, window.duration_s)
    if t > _CRITICAL[count]:
        return found
    # Few slices of long replies say little by their spread; a change beyond what replies differ by says it by its size.
    finer = _paces(replies, window, max(_CRITICAL))
    if finer is not None:
        found, t = _largest_change(finer, window.duration_s)
        beyond = abs(found.share) >= _PLAIN and t > _CRITICAL[len(finer)]
        if beyond and _slices_apart(finer, found, window.duration_s):
            return found
    return Change()


def _slices_apart(paces: Sequence[float], found: Change, duration_s: float) -> bool:
    """Whether no slice before a step overlaps one behind it."""
    if found.at_s is None:
        return False
    place = found.at_s / duration_s * len(paces)
    before, after = paces[: int(place)], paces[math.ceil(place) :]
    return max(before) < min(after) if found.share > 0 else min(before) > max(after)


def _paces(replies: Sequence[Mapping[str, Any]], window: Window, count: int) -> list[float] | None:
    """Of each slice the time between chunks, in units of the usual one; None where a slice holds too little."""
    slice_s = window.duration_s / count
    gaps: list[tuple[int, int, int]] = []  # slice, place in the reply, microseconds
    known: dict[int, set[int]] = {}
    for number, row in enumerate(replies):
        at = row["t_first"]
        for index, (gap, passed) in enumerate(zip(row["gaps_us"], accumulate(row["gaps_us"]), strict=True)):
            end = at + passed / 1e6
            if window.begin_s + gap / 1e6 <= end <= window.end_s:
                place = index.bit_length()  # 0, 1, 2-3, 4-7, 8-15, ...
                gaps.append((min(count - 1, int((end - window.begin_s) / slice_s)), place, gap))
                known.setdefault(place, set()).add(number)
    gaps = [each for each in gaps if len(known[each[1]]) >= _REPLIES]
    if not gaps:
        return None
    ordered = sorted(gap for _, _, gap in gaps)
    most = max(_STALL * sum(ordered) / len(ordered), ordered[int(0.99 * (len(ordered) - 1))])
    usual: dict[int, list[float]] = {}
    for _, place, gap in gaps:
        entry = usual.setdefault(place, [0.0, 0])
        entry[0] += min(gap, most)
        entry[1] += 1
    took, expected, held = [0.0] * count, [0.0] * count, [0] * count
    for part, place, gap in gaps:
        took[part] += min(gap, most)
        expected[part] += usual[place][0] / usual[place][1]
        held[part] += 1
    if min(held) < _GAPS or min(took) <= 0:
        return None
    return [a / b for a, b in zip(took, expected, strict=True)]


def _largest_change(paces: Sequence[float], duration_s: float) -> tuple[Change, float]:
    """The step or drift with the largest t, and that t."""
    count = len(paces)
    best = Change(), 0.0
    for left in range(2, count - 1):
        for within in (0, 1):  # the slice in which it happened is of neither pace
            before, after = paces[:left], paces[left + within :]
            if len(after) < 2:
                continue
            means = fmean(before), fmean(after)
            rest = sum((pace - means[0]) ** 2 for pace in before) + sum((pace - means[1]) ** 2 for pace in after)
            known = len(before) + len(after)
            t = _t_value(means[1] - means[0], rest, known - 2, 1 / len(before) + 1 / len(after))
            if t > best[1]:
                best = Change(means[1] / means[0] - 1, duration_s * (left + within / 2) / count), t
    middle = (count - 1) / 2
    spread = sum((i - middle) ** 2 for i in range(count))
    slope = sum((i - middle) * pace for i, pace in enumerate(paces)) / spread
    mean = fmean(paces)
    rest = sum((pace - mean - slope * (i - middle)) ** 2 for i, pace in enumerate(paces))
    t = _t_value(slope, rest, count - 2, 1 / spread)
    if t > best[1]:
        first = mean - slope * count / 2
        best = Change(slope * count / first if first > 0 else math.inf), t
    return best


def _t_value(effect: float, rest: float, df: int, scale: float) -> float:
    # Below a ten-thousandth slices are equal: a server that is paced by a clock has no spread to hold a change against.
    return abs(effect) / max(math.sqrt(rest / df * scale), 1e-4)


def backlog(rows: Sequence[Mapping[str, Any]], window: Window) -> Backlog | None:
    """Of an open loop: whether requests pile up. None where nothing was due in the window."""
    ok = [row for row in rows if not row["err"]]
    due = sorted(row["t_sched"] for row in ok)
    ended = sorted(row["t_last"] for row in ok)
    arrived = sum(window.begin_s <= at <= window.end_s for at in due)
    if not arrived:
        return None
    # A server that is empty at first fills for as long as a request takes, whatever the load: the first ones say how long.
    early = sorted(row["t_last"] - row["t_sched"] for row in sorted(ok, key=lambda row: row["t_sched"])[:_EARLY])
    filled_s = min(1.5 * early[len(early) // 2], window.duration_s / 2)
    step = (window.duration_s - filled_s) / _POINTS
    moments = [window.begin_s + filled_s + step * (i + 0.5) for i in range(_POINTS)]
    waiting = [bisect_right(due, at) - bisect_right(ended, at) for at in moments]
    middle, mean = (_POINTS - 1) / 2, sum(waiting) / _POINTS
    spread = sum((i - middle) ** 2 for i in range(_POINTS))
    slope = sum((i - middle) * n for i, n in enumerate(waiting)) / spread
    rest = sum((n - mean - slope * (i - middle)) ** 2 for i, n in enumerate(waiting))
    error = math.sqrt(max(rest, 1e-9) / (_POINTS - 2) / spread)
    growth = slope * _POINTS
    return Backlog(
        offered_req_s=arrived / window.duration_s,
        served_req_s=sum(window.begin_s <= at <= window.end_s for at in ended) / window.duration_s,
        growth=growth,
        grows=growth >= max(_BACKLOG_LEAST, _BACKLOG_SHARE * arrived) and slope / error > _BACKLOG_T,
    )
