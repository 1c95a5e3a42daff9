"""Warm-up: when a server is warm, and whether it answers at all."""

from __future__ import annotations

import statistics
from bisect import bisect_left
from typing import Any, NamedTuple

from tui.remote.loadgen.bench import Bench
from tui.remote.loadgen.counters import counted_by_then
from tui.remote.loadgen.load import GONE, Load
from tui.remote.loadgen.prompts import Workload
from tui.remote.loadgen.protocol import Stop, clock, label_of

SPAN_S = 2.0  # of the spans that must agree before a warm-up counts as steady
SPAN_GAPS = 20  # gaps between chunks that a span must hold, or it says nothing
SPREAD = 0.03
WARM_REQUESTS = 64  # at most, before the spans are looked at
SHORT_OUTPUT = 64  # tokens, of the short warm-up


class Warmth:
    """Says when a warm-up is enough: enough replies, and three spans of time whose median gap between chunks agrees.

    The gap is the step of the server, whatever the replies' lengths and however many drafts are accepted in a step: with
    one user the rate itself never keeps within 3 % over two seconds.
    """

    def __init__(self, requests: int, limit_s: float) -> None:
        self.requests, self.limit_s = requests, limit_s
        self.spans: list[float] = []  # median gap, seconds
        self.begin: float | None = None
        self.stable = False

    def __call__(self, load: Load) -> bool:
        now = clock()
        if now - load.zero >= self.limit_s:
            return True
        if self.begin is None:
            if load.tokens:
                self.begin = now
            return False
        if now - self.begin >= SPAN_S:
            gaps = self.gaps(load, self.begin)
            self.spans = [*self.spans[-2:], statistics.median(gaps)] if len(gaps) >= SPAN_GAPS else []
            self.begin = now
        if len(self.spans) == 3 and max(self.spans) - min(self.spans) <= SPREAD * statistics.mean(self.spans):
            self.stable = load.completed >= self.requests
        return self.stable

    @staticmethod
    def gaps(load: Load, since: float) -> list[float]:
        """Seconds between chunks, of those that came since."""
        found = []
        for exchange in load.all:
            stamps = exchange.stamps
            if stamps and stamps[-1] >= since:
                first = max(1, bisect_left(stamps, since))
                found += [stamps[i] - stamps[i - 1] for i in range(first, len(stamps))]
        return found


class Warmup(NamedTuple):
    """What a warm-up did (`meta`, as a run's file has it), and what the server's counters read once they hold all of it."""

    meta: dict[str, Any]
    least: dict[str, float] | None


async def warm_up(bench: Bench, point: dict[str, Any], run: int) -> Warmup:
    """Long before the first run of a point, short before the others. Raises Stop where nothing works."""
    plan = bench.plan
    settled, _ = await bench.server.at_rest()
    label = label_of(point)
    users = point.get("concurrency") or 4
    if run == 1:
        load = Load(bench, point, run, Workload(plan, label, f"w{run}", fresh=False), "warmup")
        warmth = Warmth(min(2 * users, WARM_REQUESTS), plan.warmup_s)
        await load.go(None, warmth)
        stable = warmth.stable
    else:
        load = Load(bench, {"concurrency": users}, run, Workload(plan, label, f"w{run}", False, SHORT_OUTPUT), "warmup")
        await load.go(users, lambda load: clock() - load.zero >= plan.warmup_s)
        stable = True
    judge(load)
    tokens = sum(x.output or 0 for x in load.all)
    return Warmup(
        {"seconds": round(load.seconds(), 3), "stable": stable, "requests": len(load.all)},
        None if load.failed else counted_by_then(settled, tokens),
    )


def judge(load: Load) -> None:
    """Raises Stop where not one request got through, or the server is gone."""
    reason = next((x.error for x in reversed(load.all) if x.error is not None), None)
    if reason is None:
        return
    if reason.startswith("connect") and (load.failed_in_a_row >= GONE or not load.completed):
        raise Stop("server_lost", reason, "read the end of the server's log")
    if not load.completed:
        raise Stop("refused", reason, "no request got through; read the server's log")
