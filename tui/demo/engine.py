"""The simulated scheduler: continuous batching in real time, token by token, with counters that add up.

Decoding keeps an absolute schedule: a step that was woken late does not push the next one, so that the average time of
a step is the model's and not the event loop's.
"""

import asyncio
import bisect
import hashlib
import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from tui.demo import model
from tui.demo.output import Output

CHARS_PER_TOKEN = 4.2
VOCABULARY = (
    " the", " a", " of", " and", " to", " in", " is", " that", " it", " for", " as", " with", " on", " be", " by", " this",
    " each", " one", " two", " first", " step", " model", " layer", " token", " value", " memory", " rank", " batch", " cache",
    " time", " result", " function", " returns", " list", " when", " then", " so", " because", " which", " we", " can", " use",
    " data", " same", " more", " less", " than", " from", " between", " after", " before", " every", " all", " only", " where",
    " number", " small", " large", " fast", " slow", " order", " change", " keep", " read", " write", " case", " point", " line",
    " if", " not", " no", " are", " was", " has", " have", " its", " they", " at", " or", " but", " how", " what", " there",
    ",", ".", ",", ".", " (", ")", ":", "\n", " code", " graph", " kernel", " host", " device", " queue", " draft", " verify",
)  # fmt: skip
MATCHED_STOP = 163585
RUN_GAP_S = 1.0  # idle for so long, or a flushed cache: the next request begins another run of measurements


@dataclass(eq=False)
class Request:
    """One sequence. Times are time.time() seconds, as the real server reports them."""

    rid: str
    prompt: str
    prompt_tokens: int
    max_new_tokens: int
    ignore_eos: bool
    stream: bool
    random_prompt: bool = False
    received: float = 0.0
    queued: float = 0.0  # monotonic
    forward_entry: float = 0.0
    prefill_finished: float = 0.0
    first_token: float = 0.0
    finished: float = 0.0
    queue_s: float = 0.0
    cached_tokens: int = 0
    natural_length: int = 0
    accept_scale: float = 1.0
    output_ids: list[int] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    verify_steps: int = 0
    correct_drafts: int = 0
    proposed_drafts: int = 0
    histogram: list[int] = field(default_factory=list)
    finish: dict[str, object] | None = None
    aborted: bool = False
    notify: Callable[[], None] = lambda: None  # called after every step that brought tokens, and at the end
    # Both are seeded by the prompt alone: at temperature 0 every server answers alike.
    text_rng: random.Random = field(default_factory=random.Random)
    draft_rng: random.Random = field(default_factory=random.Random)

    @property
    def reserved(self) -> int:
        return self.prompt_tokens + self.max_new_tokens


TTFT = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0, 200.0, 400.0)
ITL = (
    0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0,
    2.0, 4.0, 6.0, 8.0,
)  # fmt: skip


class Histogram:
    """Counts an observation into the bucket it falls in."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        self.counts[bisect.bisect_left(self.bounds, value)] += times
        self.sum += value * times


@dataclass
class Counters:
    """What /metrics counts; keyed by whether the request streamed where the real one has that label."""

    prompt_tokens: dict[bool, int] = field(default_factory=lambda: {False: 0, True: 0})
    generation_tokens: dict[bool, int] = field(default_factory=lambda: {False: 0, True: 0})
    requests: dict[bool, int] = field(default_factory=lambda: {False: 0, True: 0})
    cached_tokens: int = 0
    verify_calls: int = 0
    aborted: int = 0
    decode_tokens: int = 0
    prefill_tokens: int = 0
    prefill_cached: int = 0
    prefill_passes: int = 0
    decode_graph_passes: int = 0
    decode_eager_passes: int = 0
    ttft: dict[bool, Histogram] = field(default_factory=lambda: {False: Histogram(TTFT), True: Histogram(TTFT)})
    e2e: dict[bool, Histogram] = field(default_factory=lambda: {False: Histogram(TTFT), True: Histogram(TTFT)})
    itl: Histogram = field(default_factory=lambda: Histogram(ITL))
    queue: Histogram = field(default_factory=lambda: Histogram(TTFT))


class Engine:
    """Schedules requests on the simulated GPUs; `run` is its task."""

    def __init__(
        self,
        config: model.Config,
        out: Output,
        *,
        seed: int,
        configuration: str,
        launch: int,
        log_interval: int = 40,
        on_load: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.config, self.out, self.seed = config, out, seed
        self.configuration, self.launch = configuration, launch
        self.log_interval = log_interval
        self.on_load = on_load
        self.launch_factor = model.launch_factor(seed, configuration, launch)
        self.run_index = 0
        self.run_factor = model.run_factor(seed, configuration, launch, 0)
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.counters = Counters()
        self.rng = random.Random(f"{seed}/{configuration}/{launch}")
        self.wake = asyncio.Event()
        self.seen: deque[str] = deque(maxlen=256)
        self.last_busy = 0.0
        # since the last decode line
        self.steps = 0
        self.interval_tokens = 0
        self.interval_verify = 0
        self.interval_correct = 0
        self.interval_began = time.monotonic()
        # since the cache was flushed; kept per logged interval, as the real one does
        self.accept_tokens = 0
        self.accept_verify = 0
        self.gen_throughput = 0.0
        self.accept_length = 0.0
        self.accept_rate = 0.0
        self.cache_hit_rate = 0.0
        self.in_graph = False

    # --- what the HTTP side asks ------------------------------------------------------------------------------------

    def used_tokens(self) -> int:
        """Tokens in the KV pool that belong to running requests."""
        return sum(r.prompt_tokens + len(r.output_ids) for r in self.running)

    @property
    def average_accept_length(self) -> float | None:
        """Since start or flush, from whole log intervals only; None before the first."""
        return self.accept_tokens / self.accept_verify if self.accept_verify else None

    def submit(self, request: Request) -> None:
        """Queues a request."""
        request.queued = time.monotonic()
        digest = hashlib.sha256(request.prompt.encode()).digest()
        request.text_rng, request.draft_rng = random.Random(digest), random.Random(digest[::-1])
        request.natural_length = 120 + int(request.text_rng.gammavariate(2.2, 170.0))
        spread = model.PROMPT_ACCEPT_SPREAD * model.unit_normal("prompt", digest.hex())
        request.accept_scale = model.RANDOM_PROMPT_ACCEPT if request.random_prompt else 1.0 + spread / 3
        if self.config.speculative:
            request.histogram = [0] * (self.config.steps + 1)
        self.waiting.append(request)
        self.wake.set()

    def abort(self, request: Request) -> None:
        """The client went away, or asked for it."""
        if request.finish is not None:
            return
        request.aborted = True
        if request in self.waiting:
            self.waiting.remove(request)
            self._finish(
                request, {"type": "abort", "message": "Abort in waiting queue", "status_code": None, "err_type": None}
            )
        self.wake.set()

    def flush(self) -> bool:
        """Empties the cache and begins another run of measurements; refused while requests are there."""
        if self.running or self.waiting:
            return False
        self.seen.clear()
        self.accept_tokens = self.accept_verify = 0
        self.next_run()
        return True

    def next_run(self) -> None:
        """Draws the run's own effect."""
        self.run_index += 1
        self.run_factor = model.run_factor(self.seed, self.configuration, self.launch, self.run_index)

    @property
    def factor(self) -> float:
        return self.launch_factor * self.run_factor

    # --- the scheduler ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serves forever."""
        while True:
            self.wake.clear()
            if not self.waiting and not self.running:
                self.last_busy = time.monotonic()
                self.on_load(0)
                await self.wake.wait()
                if not self.waiting:
                    continue
                if time.monotonic() - self.last_busy > RUN_GAP_S:
                    self.next_run()
            due = time.monotonic()
            while self.waiting or self.running:
                due = await self._prefill(due)
                if self.running:
                    due = await self._decode(due)
                elif self.waiting:
                    await asyncio.sleep(0.005)

    async def _until(self, due: float) -> float:
        now = time.monotonic()
        if due > now:
            await asyncio.sleep(due - now)
            return due
        # The machine was busy elsewhere: catch up on a little, forgive the rest.
        if now - due > 0.25:
            return now
        await asyncio.sleep(0)
        return due

    async def _prefill(self, due: float) -> float:
        admitted: list[Request] = []
        room = self.config.pool_tokens - sum(r.reserved for r in self.running)
        budget = 8192
        while self.waiting and len(self.running) + len(admitted) < self.config.max_running:
            request = self.waiting[0]
            if request.reserved > room or (admitted and request.prompt_tokens > budget):
                break
            self.waiting.popleft()
            room -= request.reserved
            request.cached_tokens = self._cached(request)
            budget -= request.prompt_tokens - request.cached_tokens
            admitted.append(request)
        if not admitted:
            return due
        running, now = len(self.running), time.monotonic()
        new = sum(r.prompt_tokens - r.cached_tokens for r in admitted)
        cached = sum(r.cached_tokens for r in admitted)
        for request in admitted:
            request.queue_s = now - request.queued
            request.forward_entry = time.time()
            self.counters.queue.observe(request.queue_s)
        seconds = self.config.prefill_s(new) * self.factor
        self.on_load(len(admitted) + running)
        due = await self._until(max(due, now) + seconds)
        c = self.counters
        c.prefill_tokens += new
        c.prefill_cached += cached
        c.prefill_passes += 1
        self.cache_hit_rate = cached / (new + cached) if new + cached else 0.0
        usage = self.used_tokens() / max(1, self.config.pool_tokens)
        self.out.record(
            f"Prefill batch, #new-seq: {len(admitted)}, #new-token: {new}, #cached-token: {cached}, "
            f"token usage: {usage:.2f}, #running-req: {running}, #queue-req: {len(self.waiting)}, #pending-token: "
            f"{sum(r.prompt_tokens for r in self.waiting)}, cuda graph: False, "
            f"input throughput (token/s): {new / max(seconds, 1e-6):.2f}",
            0,
        )
        for request in admitted:
            request.prefill_finished = request.first_token = time.time()
            self.running.append(request)
            self.seen.append(request.prompt)
            self._emit(request, 1)
        return due

    async def _decode(self, due: float) -> float:
        users = len(self.running)
        config = self.config
        seconds = config.decode_step_s(users) * self.factor * (1.0 + model.STEP_CV * self.rng.gauss(0.0, 1.0))
        began = time.monotonic()
        due = await self._until(due + seconds)
        self.in_graph = config.graphs and users <= config.max_bs
        if self.in_graph:
            self.counters.decode_graph_passes += 1
        else:
            self.counters.decode_eager_passes += 1
        took = time.monotonic() - began
        for request in list(self.running):
            accepted = config.draw_accepted(self.rng, request.accept_scale)
            if config.speculative:
                request.verify_steps += 1
                request.correct_drafts += accepted
                request.proposed_drafts += config.draft_tokens - 1
                request.histogram[accepted] += 1
                self.interval_verify += 1
                self.interval_correct += accepted
            produced = self._emit(request, accepted + 1)
            self.interval_tokens += produced
            self.counters.decode_tokens += produced
            if produced:
                self.counters.itl.observe(took / produced, produced)
        self.steps += 1
        if self.steps >= self.log_interval:
            self._log_decode(users)
        return due

    def _log_decode(self, users: int) -> None:
        now = time.monotonic()
        self.gen_throughput = self.interval_tokens / max(1e-6, now - self.interval_began)
        used = self.used_tokens()
        accept = ""
        if self.config.speculative and self.interval_verify:
            self.accept_length = (self.interval_correct + self.interval_verify) / self.interval_verify
            self.accept_rate = self.interval_correct / (self.interval_verify * max(1, self.config.draft_tokens - 1))
            self.accept_tokens += self.interval_correct + self.interval_verify
            self.accept_verify += self.interval_verify
            accept = f"accept len: {self.accept_length:.2f}, accept rate: {self.accept_rate:.2f}, "
        self.out.record(
            f"Decode batch, #running-req: {users}, #token: {used}, token usage: "
            f"{used / max(1, self.config.pool_tokens):.2f}, {accept}cuda graph: {self.in_graph}, "
            f"gen throughput (token/s): {self.gen_throughput:.2f}, #queue-req: {len(self.waiting)}",
            0,
        )
        self.steps = self.interval_tokens = self.interval_verify = self.interval_correct = 0
        self.interval_began = now

    def _emit(self, request: Request, wanted: int) -> int:
        """Adds up to `wanted` tokens to a request and ends it where it ends; returns how many were added."""
        if request.aborted:
            self.running.remove(request)
            self._finish(request, {"type": "abort", "message": "Aborted", "status_code": None, "err_type": None})
            return 0
        added = 0
        for _ in range(wanted):
            count = len(request.output_ids)
            if count + 1 == request.natural_length and not request.ignore_eos:
                request.output_ids.append(MATCHED_STOP)
                request.words.append("")
                added += 1
                self.running.remove(request)
                self._finish(request, {"type": "stop", "matched": MATCHED_STOP})
                return added
            if self.config.speculative and request.draft_rng.random() < self.config.wrong_drafts:
                request.text_rng.random()  # from here on it is another text
            token = request.text_rng.randrange(len(VOCABULARY))
            request.output_ids.append(1000 + token)
            request.words.append(VOCABULARY[token])
            added += 1
            if count + 1 >= request.max_new_tokens:
                self.running.remove(request)
                self._finish(request, {"type": "length", "length": count + 1})
                return added
        request.notify()
        return added

    def _finish(self, request: Request, why: dict[str, object]) -> None:
        request.finish = why
        request.finished = time.time()
        c = self.counters
        if why["type"] == "abort":
            c.aborted += 1
        else:
            c.requests[request.stream] += 1
            c.prompt_tokens[request.stream] += request.prompt_tokens
            c.generation_tokens[request.stream] += len(request.output_ids)
            c.cached_tokens += request.cached_tokens
            c.verify_calls += request.verify_steps
            c.ttft[request.stream].observe(request.first_token - request.received)
            c.e2e[request.stream].observe(request.finished - request.received)
        request.notify()

    def _cached(self, request: Request) -> int:
        best = 0
        for old in self.seen:
            if old[:16] == request.prompt[:16]:
                best = max(best, _common(old, request.prompt))
        return min(request.prompt_tokens - 1, int(best / CHARS_PER_TOKEN))


def _common(a: str, b: str) -> int:
    """Characters that two prompts share from the start, by halving: slices compare fast."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[:middle] == b[:middle]:
            low = middle
        else:
            high = middle - 1
    return low
