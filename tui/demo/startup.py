"""The start of a simulated server up to the point where its HTTP port opens: log, memory of each GPU, failures.

The course is a list of (second of the model, action), played against the clock; `EAGLETUI_DEMO_SPEED` divides the
seconds. Durations that the log prints (`elapsed=`, bars) are the ones that really passed, so that the log agrees with
its own time stamps.
"""

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tui.demo import gpus, model
from tui.demo.failures import Failure, peer_gone
from tui.demo.launch import Launch
from tui.demo.nodes import Nodes, PeerGone
from tui.demo.output import capture_bar, weight_bar

Action = Callable[[], None]
SLOW_TOKENIZER = (
    "Using a slow tokenizer. This might cause a significant slowdown. Consider using a fast tokenizer instead."
)

NO_CUSTOM_ALLREDUCE = (
    "Custom allreduce is disabled because it's not supported on more than two PCIe-only GPUs. "
    "To silence this warning, specify disable_custom_all_reduce=True explicitly."
)


class SchedulerFailed(Exception):
    """A scheduler raised: the server is about to kill itself."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.error)
        self.failure = failure


@dataclass
class Timings:
    """What `Engine startup timings` and /server_info tell; seconds that really passed."""

    load_weight: float = 0.0
    kv_cache_allocation: float = 0.0
    scheduler_e2e: float = 0.0
    cuda_graph: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(
            ("prefill", "decode", "target_verify", "draft_prefill", "draft_decode", "draft_extend"), 0.0
        )
    )
    tokenizer_e2e: float = 0.0


@dataclass
class Memory:
    """What the start took per rank, GiB; for the ledger that the server itself reports."""

    weight: float = 0.0
    kv_cache: float = 0.0
    graph: dict[str, float] = field(default_factory=dict)
    available: float = 0.0


class Startup:
    """One start of the ranks of this node. `run` returns when the schedulers are ready, or raises SchedulerFailed.

    Ranks are named by their place on this node; bars and what the main process says are those of the node with rank 0.
    """

    def __init__(self, launch: Launch, board: gpus.Board, pids: list[int], nodes: Nodes | None = None) -> None:
        self.launch, self.board, self.pids, self.nodes = launch, board, pids, nodes
        self.ranks, self.leads = launch.ranks, launch.leads
        self.args, self.config, self.out, self.speed = launch.args, launch.config, launch.out, launch.speed
        self.failure = launch.failure
        self.timings = Timings()
        self.memory = Memory()
        self.clock = time.monotonic()  # at which the present stage began
        self.rng = random.Random(launch.seed)
        self.used = [0.0] * len(self.ranks)  # GiB on each rank
        self.bias = [0.1 if rank == 0 and self.config.tp > 1 else 0.0 for rank in self.ranks]
        self.last_tokenizer = 0.0

    # --- the clock --------------------------------------------------------------------------------------------------

    async def play(self, events: list[tuple[float, Action]], length: float) -> None:
        """Plays one stage of `length` model seconds; slow-tokenizer warnings come in between, as they do."""
        if self.leads and (self.args["tokenizer_mode"] == "slow" or self.config.kimi):
            at = model.SLOW_TOKENIZER_EVERY_S - self.last_tokenizer
            while at < length:
                events.append((at, self._slow_tokenizer))
                at += model.SLOW_TOKENIZER_EVERY_S
            self.last_tokenizer = length - (at - model.SLOW_TOKENIZER_EVERY_S)
        events.append((length, lambda: None))
        events.sort(key=lambda event: event[0])
        begin = self.clock
        for at, action in events:
            wait = begin + at / self.speed - time.monotonic()
            if wait > 0.0005:
                await asyncio.sleep(wait)
            action()
        self.clock = max(begin + length / self.speed, time.monotonic() - 0.05)

    def _slow_tokenizer(self) -> None:
        if self.warn_tokenizer:
            self.out.record(SLOW_TOKENIZER)

    warn_tokenizer = False

    def publish(self, utilization: float = 0.0, power: float = 0.0) -> None:
        """Tells the GPUs what every rank holds and does."""
        self.board.publish(
            [
                gpus.Rank(gpu, pid, round(self.used[rank] * 1024), utilization, power)
                for rank, (gpu, pid) in enumerate(zip(self.launch.gpu_of_rank, self.pids, strict=True))
            ]
        )

    def available(self, rank: int) -> float:
        """Free memory as SGLang sees it, GiB."""
        return self.config.free_gib + model.RUNTIME_GIB - self.used[rank]

    def each(self, message: Callable[[int], str]) -> None:
        """Logs one line on every rank, in an order that is not quite theirs."""
        places = list(range(len(self.ranks)))
        self.rng.shuffle(places)
        for place in places:
            self.out.record(message(place), self.ranks[place])

    def bar(self, text: str) -> None:
        """A frame of a bar: rank 0's."""
        if self.leads:
            self.out.raw(text)

    async def all_nodes(self) -> None:
        """Waits until every node has come as far as this one. Raises SchedulerFailed where one is gone."""
        if self.nodes is not None:
            try:
                await self.nodes.together()
            except PeerGone as peer:
                raise SchedulerFailed(peer_gone(peer.address, "starting")) from None
            self.clock = time.monotonic()

    def fails(self, stage: str) -> bool:
        """Whether this stage is the one that fails."""
        return self.failure is not None and self.failure.stage == stage

    def fail_if(self, stage: str) -> None:
        """Raises where this stage is the one that fails."""
        if self.failure is not None and self.failure.stage == stage:
            raise SchedulerFailed(self.failure)

    # --- the stages -------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Everything from the first scheduler line to `max_total_num_tokens=`."""
        begun = time.monotonic()
        await self.dist_init()
        self.fail_if("dist_init")
        await self.load_target()
        if self.config.speculative:
            await self.load_draft()
        await self.all_nodes()  # the smallest rank decides how large all pools are
        await self.pools()
        await self.capture()
        await self.all_nodes()
        self.timings.scheduler_e2e = time.monotonic() - begun
        c = self.config
        kind = f"available_gpu_mem={self.available(0):.2f} GB"
        if self.leads:
            self.out.record(
                f"max_total_num_tokens={c.pool_tokens}, chunked_prefill_size={self.args['chunked_prefill_size']}, "
                f"max_prefill_tokens={self.args['max_prefill_tokens']}, max_running_requests={c.max_running}, "
                f"context_len={c.context_len}, {kind}",
                0,
            )
        first = self.ranks[0]
        self.out.record(
            "Init Unified Radix Cache. Components: (<ComponentType.FULL: 0>,). Tree Core: RustUnifiedTreeCore", first
        )
        self.out.record(
            "Tree cache initialized: source=default impl=UnifiedRadixCache hybrid_swa=False hybrid_ssm=False "
            "hicache_attached=False",
            first,
        )
        self.memory.available = self.available(0)

    async def dist_init(self) -> None:
        """Process groups, NCCL, the context on every GPU."""
        out, tp = self.out, self.config.tp
        begun = time.monotonic()
        self.each(lambda _: "Init parallel begin.")
        events: list[tuple[float, Action]] = []
        if self.nodes is not None:
            await self.nodes.meet()
            self.clock = time.monotonic()
        if tp > 1:

            def gloo() -> None:
                for rank in self.ranks:
                    out.raw(
                        f"[Gloo] Rank {rank} is connected to {tp - 1} peer ranks. "
                        f"Expected number of connected peer ranks is : {tp - 1}\n"
                    )

            events.append((1.0, gloo))
            if self.leads:
                events.append((1.2, lambda: out.record("sglang is using nccl==2.29.3", 0)))
            if self.launch.env.get("NCCL_DEBUG", "").upper() in ("VERSION", "WARN", "INFO"):
                events.append((1.4, lambda: out.raw("NCCL version 2.29.3+cuda13.1\n")))
            if not (self.args["disable_custom_all_reduce"] or self.config.custom_allreduce):
                events.append((4.0, lambda: self.each(lambda _: NO_CUSTOM_ALLREDUCE)))
        length = model.DIST_INIT_S if tp > 1 else 2.0

        def context() -> None:
            self.used = [model.RUNTIME_GIB] * len(self.ranks)
            self.publish(0.0, 0.0)

        events.append((length * 0.5, context))
        if self.fails("dist_init"):
            await self.play(events, length * 0.6)
            return
        await self.play(events, length)
        elapsed = time.monotonic() - begun
        self.each(lambda rank: f"Init parallel ends. elapsed={max(0.01, elapsed - 0.01 * (rank % 3)):.2f} s")
        self.each(lambda _: "Memory baseline taken. mem usage=0.00 GB")
        # Every start prints some of these; they mean nothing.
        out.record(
            "Ignore import error when loading sglang.srt.models.midashenglm: No module named 'torchaudio'",
            self.ranks[0],
        )

    async def load_target(self) -> None:
        """Weights from disk; one rank reads slower, and everybody waits for it."""
        c, out = self.config, self.out
        length = model.WEIGHTS_S if c.kimi else model.SMALL_WEIGHTS_S
        shards = model.SHARDS if c.kimi else model.SMALL_SHARDS
        factor = [1.0 + 0.004 * abs(model.unit_normal("rank", self.launch.seed, rank)) for rank in self.ranks]
        if not self.leads:
            factor = [model.SLOW_NODE_FACTOR * each for each in factor]
        elif c.nodes == 1 and c.kimi and c.tp > model.STRAGGLER_RANK:
            factor[model.STRAGGLER_RANK] = model.STRAGGLER_FACTOR
        begun = time.monotonic()
        self.each(lambda rank: f"Load weight begin. avail mem={self.available(rank):.2f} GB")
        start = list(self.used)
        self.bar(weight_bar(0, shards, 0.0))

        def frame(shard: int) -> Action:
            def act() -> None:
                end = "\n" if shard == shards else ""
                self.bar(weight_bar(shard, shards, time.monotonic() - begun) + end)

            return act

        def grow(at: float) -> Action:
            def act() -> None:
                for rank in range(len(factor)):
                    share = min(1.0, at / (length * factor[rank]))
                    self.used[rank] = start[rank] + (c.weights_gib + self.bias[rank]) * share
                self.publish(0.04, 0.06)

            return act

        def end(rank: int) -> Action:
            def act() -> None:
                self.used[rank] = start[rank] + c.weights_gib + self.bias[rank]
                quant = "quant=compressed-tensors, " if c.kimi else ""
                out.record(
                    f"Load weight end. elapsed={time.monotonic() - begun:.2f} s, type={self.launch.architecture}, {quant}"
                    f"avail mem={self.available(rank):.2f} GB, mem usage={c.weights_gib + self.bias[rank]:.2f} GB.",
                    self.ranks[rank],
                )

            return act

        events: list[tuple[float, Action]] = [(length * (i + 1) / shards, frame(i + 1)) for i in range(shards)]
        longest = length * max(factor)
        step = max(0.5 * self.speed, longest / 120)
        events += [(at * step, grow(at * step)) for at in range(1, int(longest / step) + 1)]
        events += [(length * factor[rank] + 0.2, end(rank)) for rank in range(len(factor))]
        if self.leads and (c.kimi or c.tp == 1):
            events.append((5.0, self._chat_template))
        if self.fails("load"):
            share = self._share_loaded()
            events = [event for event in events if event[0] <= length * share]
            await self.play(events, length * share + 1.0)
            self.bar("\n")
            self.fail_if("load")
        await self.play(events, longest + 0.3)
        self.publish()
        self.memory.weight = c.weights_gib + self.bias[0]
        self.timings.load_weight = time.monotonic() - begun

    def _share_loaded(self) -> float:
        """Of the weights, where loading fails: none (an assertion before that), or as much as there is memory for."""
        if self.failure is None or not self.failure.out_of_memory:
            return 0.0
        return max(0.02, min(0.98, (self.config.free_gib - 0.9) / self.config.weights_gib))

    def _chat_template(self) -> None:
        self.out.record("Using default HuggingFace chat template with detected content format: openai")
        self.warn_tokenizer = True

    async def load_draft(self) -> None:
        """The draft model: not sharded, so that each rank reads the whole of it."""
        c = self.config
        begun = time.monotonic()
        self.out.record("SPECULATIVE_MOE_RUNNER_BACKEND is not initialized, using auto backend", self.ranks[0])
        self.each(lambda _: "Memory baseline taken. mem usage=0.00 GB")
        self.each(lambda rank: f"Load weight begin. avail mem={self.available(rank):.2f} GB")
        length = model.DRAFT_S if c.kimi else 2.0
        self.bar(weight_bar(0, 1, 0.0))
        start = list(self.used)

        def grow(share: float) -> Action:
            def act() -> None:
                self.used = [before + c.draft_gib * share for before in start]
                self.publish(0.04, 0.06)

            return act

        events: list[tuple[float, Action]] = [
            (length * 0.5, grow(0.5)),
            (length * 0.95, lambda: self.bar(weight_bar(1, 1, time.monotonic() - begun) + "\n")),
            (length, grow(1.0)),
        ]
        await self.play(events, length + 0.1)
        elapsed = time.monotonic() - begun
        self.each(
            lambda rank: (
                f"Load weight end. elapsed={max(0.01, elapsed - 0.01 * (rank % 4)):.2f} s, type={self.launch.draft_architecture}, "
                f"avail mem={self.available(rank):.2f} GB, mem usage={c.draft_gib:.2f} GB."
            )
        )
        self.timings.load_weight += elapsed

    async def pools(self) -> None:
        """The KV pool of the target, then the draft's."""
        c = self.config
        begun = time.monotonic()
        await self.play([], model.POOL_S / 2)
        self.fail_if("pool")
        dtype = "torch.float8_e4m3fn" if c.kv_fp8 else "torch.bfloat16"
        shrink = 0.5 if c.kv_fp8 else 1.0
        target = model.TARGET_KV_BYTES if c.kimi else model.SMALL_KV_BYTES / c.tp
        target_gib = c.pool_tokens * target * shrink / 2**30
        draft_gib = c.pool_tokens * model.DRAFT_KV_BYTES * shrink / 2**30 if c.speculative else 0.0

        def allocate(gib: float, mla: bool) -> None:
            self.used = [before + gib for before in self.used]
            size = f"KV size: {gib:.2f} GB" if mla else f"K size: {gib / 2:.2f} GB, V size: {gib / 2:.2f} GB"
            self.each(lambda _: f"KV Cache is allocated. dtype: {dtype}, #tokens: {c.pool_tokens}, {size}")
            self.each(lambda rank: f"Memory pool end. avail mem={self.available(rank):.2f} GB")

        allocate(target_gib, c.kimi)
        if c.speculative:
            await self.play([], model.POOL_S / 2)
            allocate(draft_gib, mla=False)
        self.fail_if("draft_pool")
        self.publish()
        self.memory.kv_cache = target_gib + draft_gib
        self.timings.kv_cache_allocation = time.monotonic() - begun

    async def capture(self) -> None:
        """CUDA graphs: target (decode or verify), then draft decode and draft extend."""
        c, out = self.config, self.out
        out.record(
            "Disable prefill CUDA graph because cuda_graph_config resolved prefill.backend='disabled' "
            "(e.g. via --cuda-graph-backend-prefill=disabled or auto-disable rules).",
            self.ranks[0],
        )
        if not c.graphs:
            self.fail_if("capture")
            return
        sizes = model.buckets(c.max_bs, speculative=c.speculative)
        what, tokens = ("target verify", c.draft_tokens) if c.speculative else ("target decode", 1)
        seconds = model.CAPTURE_PER_BUCKET_S * len(sizes) if c.kimi else 6.0
        await self.capture_set(
            what, "target_verify" if c.speculative else "decode", sizes, tokens, c.graph_gib, seconds
        )
        if not c.speculative:
            return
        seconds = model.DRAFT_CAPTURE_S if c.kimi else 2.0
        if c.steps > 1:
            gib = model.DRAFT_DECODE_GRAPH_GIB if c.kimi else 0.1
            await self.capture_set("draft decode", "draft_decode", sizes, 1, gib, seconds)
        gib = model.DRAFT_EXTEND_GRAPH_GIB if c.kimi else 0.1
        await self.capture_set("draft extend", "draft_extend", sizes, c.draft_tokens, gib, seconds)

    async def capture_set(
        self, what: str, phase: str, sizes: list[int], tokens: int, gib: float, seconds: float
    ) -> None:
        """One set of graphs between its two log lines: every rank's for the target, the first one's for a draft."""
        target = what.startswith("target")
        batches = "" if target else f"bs={sizes}, "

        def log(words: str, end: str) -> None:
            def line(rank: int) -> str:
                return f"Capture {what} CUDA graph {words}avail mem={self.available(rank):.2f} GB{end}"

            if target:
                self.each(line)
            elif self.leads:
                self.out.record(line(0), 0)

        log(f"begin. backend=full, num_tokens_per_req={tokens}, {batches}", "")
        took = await self.capture_one(sizes, gib, seconds, failing=target)
        log(f"end. bs={sizes}, elapsed={took:.2f} s, mem usage={gib:.2f} GB, ", ".")
        self.timings.cuda_graph[phase], self.memory.graph[phase] = took, gib

    async def capture_one(self, sizes: list[int], gib: float, seconds: float, *, failing: bool = False) -> float:
        """The bar of one set of graphs, large to small; returns the seconds it took."""
        begun = time.monotonic()
        start = list(self.used)
        order = sizes[::-1]
        total = len(order)
        self.bar(capture_bar("", 0, total, 0.0))

        def title(at: int) -> str:
            return f"Capturing batches (bs={order[at]} avail_mem={self.available(0):.2f} GB)"

        def begin(at: int) -> Action:
            return lambda: self.bar(capture_bar(title(at), at, total, time.monotonic() - begun))

        def end(at: int) -> Action:
            def act() -> None:
                self.used = [before + gib * (at + 1) / total for before in start]
                self.bar(capture_bar(title(at), at + 1, total, time.monotonic() - begun))

            return act

        events: list[tuple[float, Action]] = []
        for at in range(total):
            events += [(seconds * at / total, begin(at)), (seconds * (at + 1) / total - 1e-3, end(at))]
        step = max(0.5 * self.speed, seconds / 20)
        events += [(at * step, lambda: self.publish(0.3, 0.35)) for at in range(1, int(seconds / step) + 1)]
        if failing and self.fails("capture"):
            await self.play(events[:1], seconds / total)
            self.bar("\n")
            self.fail_if("capture")
        await self.play(events, seconds)
        self.bar("\n")
        self.publish()
        return time.monotonic() - begun

    # --- what the server says of it ---------------------------------------------------------------------------------

    def report_timings(self) -> None:
        """The summary of an engine that is ready."""
        t = self.timings
        t.tokenizer_e2e = time.monotonic() - self.launch.began
        graphs = ", ".join(f"{name}={took:.2f}" for name, took in t.cuda_graph.items())
        self.out.record(
            f"Engine startup timings (s): load_weight={t.load_weight:.2f}, kv_cache_allocation={t.kv_cache_allocation:.2f}, "
            f"scheduler_e2e={t.scheduler_e2e:.2f}, cuda_graph={{{graphs}}}, tokenizer_e2e={t.tokenizer_e2e:.2f}"
        )


def report_failure(start: Startup, failure: Failure) -> None:
    """The end of a start: the exceptions of the schedulers, and what the main process makes of them."""
    report_exceptions(start, failure)
    start.out.record("Received sigquit from a child process. It usually means the child failed.")
    start.out.killed_tree(include_parent=True)


def report_exceptions(start: Startup, failure: Failure) -> None:
    """Every rank hits its exception, the first one being the root of it."""
    ranks = list(range(len(start.ranks)))
    if not failure.out_of_memory:
        others = ranks[1:]
        start.rng.shuffle(others)
        ranks = ranks[:1] + others
    for rank in ranks:
        gpu = start.launch.gpu_of_rank[rank]
        start.out.raw(failure.before.format(pid=start.pids[rank], gpu=gpu))
        text = failure.traceback.replace("{site}", str(start.out.site))
        if rank:
            text = text.replace("GPU 0 has", f"GPU {gpu} has")
        start.out.record("Scheduler hit an exception: " + text, start.ranks[rank])
