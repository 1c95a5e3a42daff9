"""`Decode batch` lines as series: tokens a second, accept length, running and queued requests over time.

A line's throughput is what was generated since the rank's line before it, over the time between the two. So the first
line after idleness counts the idle time and is dropped, and so is the first of all.
"""

import statistics
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from tui.core.model.log import LogRecord
from tui.core.sglang.batch_lines import BATCH, SPEED, decimal, pairs, whole

_DAY_S = 86_400.0
_LEAST_IDLE_S = 2.0  # stamps have whole seconds
_UNKNOWN_IDLE_S = 10.0  # while the rhythm of a rank is not known
_RHYTHM = 9  # lines it is learnt from


@dataclass(frozen=True)
class DecodePoint:
    """Figures of one second, summed over DP ranks; of several lines in that second their mean. None = not in the log."""

    time_s: float  # the stamp read as UTC, seconds since the epoch (since midnight where the log has no date)
    tok_s: float | None
    accept_len: float | None  # weighted by running requests
    running: int | None
    queued: int | None
    gap_s: float | None = None  # seconds without any batch right before this point, None where there were none


@dataclass
class _Share:
    """What one DP rank reported."""

    active_s: float | None = None  # of its newest batch line
    line_s: float | None = None  # of its newest decode line
    gaps: deque[float] = field(default_factory=lambda: deque(maxlen=_RHYTHM))  # between decode lines
    fresh: bool = True  # the next decode line counts time in which nothing was asked for
    second: float | None = None
    tok_s: list[float] = field(default_factory=list)  # of the lines of `second`
    accept_len: list[float] = field(default_factory=list)
    running: int | None = None
    queued: int | None = None
    idle_s: float = _UNKNOWN_IDLE_S  # silence from which on it was idle

    def line(self, now: float) -> None:
        """A decode line came."""
        if self.line_s is not None:
            self.gaps.append(now - self.line_s)
            if len(self.gaps) >= 3:
                self.idle_s = max(_LEAST_IDLE_S, 3 * statistics.median(self.gaps))
        self.line_s = now


class DecodeSeries:
    """Points in order of time, the newest `capacity` of them."""

    def __init__(self, capacity: int = 20_000) -> None:
        self._points: deque[DecodePoint] = deque(maxlen=capacity)
        self.clear()

    @property
    def points(self) -> Sequence[DecodePoint]:
        """Ascending in time; the last one may still change while its second lasts."""
        return self._points

    def clear(self) -> None:
        """Forgets everything: another log."""
        self._points.clear()
        self._shares: dict[str, _Share] = {}
        self._day_s = 0.0
        self._newest_s: float | None = None
        self._gap_s: float | None = None

    def feed(self, records: Iterable[LogRecord]) -> None:
        """Takes records in the order of the log."""
        for record in records:
            if record.stamp_s is not None and not record.provisional and (batch := BATCH.match(record.text)):
                self._batch(record, record.stamp_s, decode=batch[1] == "Decode")

    def _batch(self, record: LogRecord, stamp_s: float, *, decode: bool) -> None:
        now = self._time(stamp_s)
        share = self._shares.setdefault(_dp_tag(record.rank), _Share())
        if share.active_s is not None and now - share.active_s >= share.idle_s:
            share.fresh = True
        if self._newest_s is not None and now - self._newest_s >= share.idle_s:
            self._gap_s = now - self._newest_s
        share.active_s = self._newest_s = max(now, self._newest_s or now)
        if not decode:
            return
        share.line(now)
        if share.fresh:
            share.fresh = False
            share.second = None
            return
        self._add_line(share, now, pairs(record.text))
        self._add_point(now)

    def _time(self, stamp_s: float) -> float:
        """A stamp on an axis that never goes back: clocks without date pass midnight, ranks write a little out of order."""
        now = stamp_s + self._day_s
        newest = self._newest_s
        if newest is None:
            return now
        if stamp_s < _DAY_S + 60 and now < newest - _DAY_S / 2:
            self._day_s += _DAY_S
            now += _DAY_S
        return max(now, newest) if newest - now < 60 else now

    def _add_line(self, share: _Share, now: float, line: dict[str, str]) -> None:
        if share.second != float(int(now)):
            share.second = float(int(now))
            share.tok_s, share.accept_len = [], []
        for name, values in ((SPEED, share.tok_s), ("accept len", share.accept_len)):
            if (value := decimal(line.get(name))) is not None:
                values.append(value)
        share.running, share.queued = whole(line.get("#running-req")), whole(line.get("#queue-req"))

    def _add_point(self, now: float) -> None:
        shares = self._shares.values()
        active = [share for share in shares if share.active_s is not None and now - share.active_s < share.idle_s]
        if any(share.second is None for share in active):
            return  # a sum over a part of the ranks would look like a fall
        speeds = [statistics.fmean(share.tok_s) for share in active if share.tok_s]
        accepts = [
            (statistics.fmean(share.accept_len), max(1, share.running or 1)) for share in active if share.accept_len
        ]
        running = [share.running for share in active if share.running is not None]
        queued = [share.queued for share in active if share.queued is not None]
        weight = sum(count for _, count in accepts)
        point = DecodePoint(
            float(int(now)),
            sum(speeds) if speeds else None,
            sum(value * count for value, count in accepts) / weight if accepts else None,
            sum(running) if running else None,
            sum(queued) if queued else None,
            self._gap_s,
        )
        self._gap_s = None
        if self._points and self._points[-1].time_s == point.time_s:
            self._points[-1] = replace(point, gap_s=point.gap_s or self._points[-1].gap_s)
        else:
            self._points.append(point)


def _dp_tag(rank: str | None) -> str:
    """The DP tag of a rank, "" where it has none: then one rank reports for all."""
    first = (rank or "").partition(" ")[0]
    return first if first.startswith("DP") else ""
