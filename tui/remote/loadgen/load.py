"""Requests at one load, from the first one sent to the last reply, and what came of them."""

from __future__ import annotations

import asyncio
import gc
import gzip
import hashlib
import random
import statistics
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from tui.remote.loadgen.bench import Bench
from tui.remote.loadgen.exchange import Exchange, Owner
from tui.remote.loadgen.lateness import Lateness
from tui.remote.loadgen.limits import within
from tui.remote.loadgen.prompts import Workload
from tui.remote.loadgen.protocol import clock, dumps, label_of, say
from tui.remote.loadgen.search import Search
from tui.remote.loadgen.server_log import LogSpan

PROGRESS_S = 0.25
GONE = 10  # refused connections in a row: the server has ended


class Load(Owner):
    """Requests at one load: a closed loop of users, or arrivals at a rate. `go` carries it out.

    Nothing here is a task or a coroutine a request: the end of one begins the next.
    """

    def __init__(self, bench: Bench, point: dict[str, Any], run: int, workload: Workload, phase: str) -> None:
        self.bench, self.plan, self.loop = bench, bench.plan, bench.loop
        self.point, self.run, self.phase = point, run, phase
        self.users: int | None = point.get("concurrency")
        self.rate: float | None = point.get("rate")
        self.workload = workload
        self.prompts = iter(workload)
        self.ready: deque[Exchange] = deque()
        self.all: list[Exchange] = []
        self.under_way = 0
        self.completed = 0
        self.failed = 0
        self.failed_in_a_row = 0
        self.opened = True  # new requests may begin
        self.window: tuple[float, float] | None = None
        self.window_begin: float | None = None
        self.tokens_before = 0  # tokens that had come when the window began
        self.begun_in_window = 0  # replies
        self.busy: set[int] = set()
        self.over: asyncio.Future[None] = self.loop.create_future()
        self.recent: deque[tuple[float, float | None]] = deque(maxlen=400)  # TTFT in s and TPOT in ms of replies
        self.history: deque[tuple[float, int]] = deque(maxlen=64)  # clock, tokens
        self.verify = self.accepted = 0
        self.lateness = Lateness()
        self.log = LogSpan(bench.plan.log)
        self.zero = clock()
        self.started_at = time.time()
        self.ended_at = self.zero
        self.ramp_s = self.plan.limits["ramp_s"]
        self.limit: int | None = None  # requests
        self.timers: list[asyncio.TimerHandle] = []
        self.arrival = 0.0
        self.arrivals = random.Random(f"{self.plan.seed}/{label_of(point)}/{run}/arrivals")

    # Requests

    def _next_request(self) -> Exchange:
        fields, length = next(self.prompts)
        path, document = self.bench.server.request(fields, length)
        exchange = Exchange(self, "POST", path, dumps(document), True)
        exchange.length = length
        exchange.pieces = self.bench.server.pieces
        exchange.item = self.workload.item
        exchange.prompt = hashlib.sha256(dumps([fields, length])).hexdigest()[:16]
        return exchange

    def _begin(self, user: int, due: float) -> None:
        if not self.opened:
            return
        if self.limit is not None and len(self.all) >= self.limit:
            self.stop()
            return
        exchange = self.ready.popleft() if self.ready else self._next_request()
        exchange.index, exchange.user, exchange.sched = len(self.all), user, due
        self.all.append(exchange)
        self.under_way += 1
        self.bench.client.send(exchange)

    def _arrive(self) -> None:
        assert self.rate is not None
        # The time that counts is when a request was due, however late this loop is.
        while self.opened and self.arrival <= clock():
            self._begin(0, self.arrival)
            self.arrival += self.arrivals.expovariate(self.rate)
        if self.opened:
            self.timers.append(self.loop.call_later(max(0.0, self.arrival - clock()), self._arrive))
            del self.timers[:-8]

    def first(self, exchange: Exchange) -> None:
        if self.window_begin is not None:
            self.begun_in_window += 1
        if self.users is not None and self.window_begin is None and self.phase == "window":
            self.busy.add(exchange.user)
            if len(self.busy) == self.users:
                self._open_window()

    def ended(self, exchange: Exchange) -> None:
        self.under_way -= 1
        now = clock()
        if exchange.error is None:
            self.completed += 1
            self.failed_in_a_row = 0
            self._remember(exchange)
            if self.rate is not None and self.window_begin is None and self.phase == "window":
                self._open_window()
        else:
            self.failed += 1
            self.failed_in_a_row += 1
            gone = exchange.error.startswith("connect")
            if self.failed_in_a_row >= (GONE if gone else max(20, 4 * (self.users or 1))) and (
                gone or not self.completed
            ):
                self.stop()
        if self.users is not None and self.opened:
            if exchange.error is None:
                self._begin(exchange.user, now)
            else:
                pause = min(1.0, 0.05 * 2 ** min(self.failed_in_a_row, 5))
                self.loop.call_later(pause, self._begin, exchange.user, now + pause)
        self._finish_if_drained()

    def _remember(self, exchange: Exchange) -> None:
        stamps = exchange.stamps
        k1 = exchange.counts[0] if exchange.exact else 1
        rest = (exchange.output or 0) - k1
        tpot = (stamps[-1] - stamps[0]) / rest * 1e3 if rest > 0 and len(stamps) > 1 else None
        self.recent.append((stamps[0] - exchange.sched, tpot))
        if exchange.verify:
            self.verify += exchange.verify
            correct = exchange.correct
            self.accepted += (exchange.output or 0) - 1 if correct is None else correct + exchange.verify

    # Phases

    def _open_window(self) -> None:
        self.window_begin = clock()
        self.lateness.begin()
        self.log.begin = self.log.mark()
        self.tokens_before = self.tokens
        self.timers.append(self.loop.call_later(self.plan.duration_s, self._stop_if_enough))

    def _stop_if_enough(self) -> None:
        """Ends the window once it holds what is needed, or has been as long as it may."""
        if not self.opened or self.window_begin is None:
            return
        plan = self.plan
        tokens, replies = plan.needs
        passed = clock() - self.window_begin
        enough = self.tokens - self.tokens_before >= tokens and self.begun_in_window >= replies
        if enough or passed >= plan.duration_max_s:
            self.stop()
        else:
            pause = min(PROGRESS_S, plan.duration_max_s - passed)
            self.timers.append(self.loop.call_later(pause, self._stop_if_enough))
            del self.timers[:-8]

    def stop(self) -> None:
        """No new request from here on; the window ends."""
        if not self.opened:
            return
        self.opened = False
        now = clock()
        if self.window_begin is not None:
            self.window = self.window_begin, now
            self.lateness.end(self.window)
            self.log.end = self.log.mark()
        if self.phase == "window":
            self.phase = "drain"
        self.timers.append(self.loop.call_later(self.plan.limits["drain_s"], self._give_up))
        self._finish_if_drained()

    def _give_up(self) -> None:
        self.bench.client.abandon(f"drain: not ended {self.plan.limits['drain_s']:g} s after the window")

    def _finish_if_drained(self) -> None:
        if not self.opened and not self.under_way and not self.over.done():
            self.over.set_result(None)

    async def go(self, limit: int | None, warm: Callable[[Load], bool] | None = None) -> None:
        """Until drained. limit: requests at most; warm: of a warm-up, says when it is enough."""
        self.limit = limit
        count = self.users or 4
        self.ready.extend(self._next_request() for _ in range(min(count, limit or count)))
        self.zero = clock()
        self.started_at = time.time()
        gc.collect()
        gc.freeze()
        gc.disable()
        helpers = [self.loop.create_task(self._tick()), self.loop.create_task(self._supervise(warm))]
        try:
            if self.users is not None:
                for user in range(self.users):
                    self._begin(user, self.zero)
            else:
                assert self.rate is not None
                self.arrival = self.zero + self.arrivals.expovariate(self.rate)
                self._arrive()
            done, _ = await asyncio.wait([self.over, *helpers], return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                each.result()  # a helper ends only by a fault of its own
        finally:
            self.opened = False
            for helper in helpers:
                helper.cancel()
            for timer in self.timers:
                timer.cancel()
            gc.enable()
            gc.unfreeze()
            self.ended_at = clock()
        self._progress(self.ended_at)

    async def _tick(self) -> None:
        """How late the loop is, and prompts made ahead so that users who end together don't wait for them."""
        while True:
            await self.lateness.tick()
            if self.opened and len(self.ready) < min(256, self.users or 4):
                self.ready.append(self._next_request())

    async def _supervise(self, warm: Callable[[Load], bool] | None) -> None:
        while True:
            await asyncio.sleep(PROGRESS_S)
            now = clock()
            self.bench.client.watch()
            self.history.append((now, self.tokens))
            self._progress(now)
            if self.opened and (warm(self) if warm else self.window_begin is None and now - self.zero > self.ramp_s):
                self.stop()

    def _progress(self, now: float) -> None:
        then, tokens = next(((t, n) for t, n in self.history if now - t <= 1.05), (self.zero, 0))
        plan = self.plan
        ttft = statistics.median(entry[0] for entry in self.recent) * 1e3 if self.recent else None
        tpots = [entry[1] for entry in self.recent if entry[1] is not None]
        power, memory = self.bench.gpus.now()
        end = (self.window_begin or now) + plan.duration_s if self.phase == "window" else now
        say(
            "progress",
            label=label_of(self.point),
            point=self.point,
            run=self.run,
            runs=plan.runs,
            phase=self.phase,
            t=round(now - (self.window_begin or self.zero), 2),
            tok_s=round((self.tokens - tokens) / (now - then), 1) if now > then else None,
            tokens=self.tokens,
            active=self.under_way,
            completed=self.completed,
            errors=self.failed,
            ttft_ms=None if ttft is None else round(ttft, 2),
            tpot_ms=round(statistics.median(tpots), 3) if tpots else None,
            accept_length=round(self.accepted / self.verify, 3) if self.verify else None,
            power_w=None if power is None else round(power, 1),
            memory_used_mib=memory,
            left_s=round(self.bench.left_s + max(0.0, end - now), 1),
        )

    # What came of it

    def seconds(self) -> float:
        """From the first request to the last reply."""
        return self.ended_at - self.zero

    def client(self) -> dict[str, Any]:
        """Whether this program was the bottleneck."""
        begin, end = self.window or (self.zero, self.ended_at)
        return self.lateness.document(
            [x.sent - x.sched for x in self.all if x.sent is not None and begin <= x.sched <= end]
        )

    def errors(self) -> dict[str, int]:
        """Reasons and how often; at most 20 of them."""
        found: dict[str, int] = {}
        for exchange in self.all:
            if exchange.error is not None:
                reason = exchange.error if exchange.error in found or len(found) < 20 else exchange.error.split(":")[0]
                found[reason] = found.get(reason, 0) + 1
        return found

    def held(self, search: Search) -> tuple[int, int]:
        """Replies that were due in the window, and how many of them are within the limits; none without a window."""
        zero, (begin, end) = self.zero, self.window or (1.0, 0.0)
        # By the figures of the files, so that whoever reads them comes to the same.
        begin, end = round(begin - zero, 6), round(end - zero, 6)
        rows = [x.row(zero) for x in self.all if begin <= round(x.sched - zero, 6) <= end]
        since = "t_sched" if self.rate is not None else "t_send"
        return len(rows), sum(within(row, since, search.limits) for row in rows)

    def rows(self) -> bytes:
        """rows.jsonl.gz"""
        text = b"".join(dumps(exchange.row(self.zero)) + b"\n" for exchange in self.all)
        return gzip.compress(text, 6)
