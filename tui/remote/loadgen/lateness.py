"""Whether this program itself was the bottleneck: how late its loop was in the window, and what CPU time it took."""

from __future__ import annotations

import array
import asyncio
import resource
import statistics
import time
from collections.abc import Iterable, Sequence
from typing import Any

from tui.remote.loadgen.protocol import clock

TICK_S = 0.02
LATE_S = 0.05  # what a loop on a busy machine is late by now and then


class Lateness:
    """Of the loop, by ticks of its own; `begin` and `end` are those of the window."""

    def __init__(self) -> None:
        self.lags = array.array("d")
        self.tick_due = float("inf")
        self.cpu_s = 0.0
        self.window: tuple[float, float] | None = None
        self.lost_s = self.mean_s = 0.0

    async def tick(self) -> None:
        """Until the next tick."""
        self.tick_due = clock() + TICK_S
        await asyncio.sleep(TICK_S)
        self.lags.append(clock() - self.tick_due)

    def begin(self) -> None:
        self.cpu_s = time.process_time()
        self.lags = array.array("d")

    def end(self, window: tuple[float, float]) -> None:
        begin, end = self.window = window
        if end > self.tick_due:  # the tick that this end has overtaken
            self.lags.append(end - self.tick_due)
        self.lost_s = sum(lag - LATE_S for lag in self.lags if lag > LATE_S)
        # What comes while the loop is late is stamped at its end: half a lag late on average, for as long as the lag.
        self.mean_s = sum(lag * lag for lag in self.lags) / 2 / (end - begin)
        self.cpu_s = time.process_time() - self.cpu_s

    def document(self, send_lags: Sequence[float]) -> dict[str, Any]:
        """`client` of the meta file; `send_lags`: seconds that the requests of the window were sent late by."""
        window = self.window
        return {
            "cpu_fraction": round(self.cpu_s / (window[1] - window[0]), 4) if window else None,
            "lost_s": round(self.lost_s, 6) if window else None,
            "late_mean_ms": round(self.mean_s * 1e3, 6) if window else None,
            "loop_lag_p99_ms": p99_ms(self.lags),
            "loop_lag_max_ms": round(max(self.lags) * 1e3, 3) if self.lags else None,
            "send_lag_mean_ms": round(statistics.fmean(send_lags) * 1e3, 3) if send_lags else None,
            "send_lag_p99_ms": p99_ms(send_lags),
            "rss_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        }


def p99_ms(seconds: Iterable[float]) -> float | None:
    """99th percentile, in milliseconds."""
    ordered = sorted(seconds)
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] * 1e3, 3) if ordered else None
