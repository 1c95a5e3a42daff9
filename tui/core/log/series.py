"""`Decode batch` lines as series: tokens a second, accept length, running and queued requests over time."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tui.core.log.logs import LogRecord


@dataclass(frozen=True)
class DecodePoint:
    """Figures of one second, summed over DP ranks; of several lines in that second their mean. None = not in the log."""

    time_s: float  # the stamp read as UTC, seconds since the epoch (of the day where the log has no date)
    tok_s: float | None
    accept_len: float | None  # weighted by running requests
    running: int | None
    queued: int | None
    gap_s: float | None = None  # seconds of idleness right before this point, None where there was none


class DecodeSeries:
    """Points in order of time, the newest `capacity` of them. The first line of a rank after idleness is dropped:
    its throughput counts the idle time."""

    def __init__(self, capacity: int = 20_000) -> None: ...

    @property
    def points(self) -> Sequence[DecodePoint]:
        """Ascending in time; the last one may still change while its second lasts."""

    def feed(self, records: Iterable[LogRecord]) -> bool:
        """Takes records in the order of the log; True where a point came or changed."""

    def clear(self) -> None: ...
