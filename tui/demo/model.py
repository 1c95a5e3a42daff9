"""The stated model of the simulated host: every figure that it reports follows from the numbers in this file.

docs/demo.md says the same in words. Memory is in GiB (SGLang writes GB and means GiB), times in seconds of the model;
`EAGLETUI_DEMO_SPEED` divides loading times and idle times, never the time that tokens take.
"""

import hashlib
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

# --- memory of one GPU, GiB ---------------------------------------------------------------------------------------
TORCH_TOTAL_GIB = 94.97  # what torch reports as capacity
RUNTIME_GIB = 0.47  # CUDA context, NCCL buffers; the driver reserves another 0.62 (memory.reserved)
FREE_BEFORE_LOAD_GIB = 94.5

WEIGHTS_GIB = 71.6  # 595 GB over 8 ranks, with what every rank keeps for itself
DRAFT_GIB = 7.4  # the draft model is not sharded: each rank holds the whole of it
TARGET_KV_BYTES = 61 * (512 + 64) * 2  # MLA: one compressed vector and one rotary key a layer, bfloat16
DRAFT_KV_BYTES = 4096
SMALL_WEIGHTS_GIB_PER_BILLION = 2e9 / 2**30  # any other model: bfloat16, as many parameters as its name says
SMALL_KV_BYTES = 28 * 8 * 128 * 2 * 2

# Capturing needs room for the largest batch beyond what the finished graphs keep.
CAPTURE_BASE_GIB = 2.5
CAPTURE_PER_REQUEST_GIB = 0.0045
CAPTURE_SPEC_BASE_GIB = 6.5
CAPTURE_SPEC_PER_TOKEN_GIB = 0.0125
GRAPH_BASE_GIB = 0.6
GRAPH_PER_BUCKET_GIB = 0.045
VERIFY_GRAPH_PER_BUCKET_GIB = 0.0923
DRAFT_DECODE_GRAPH_GIB = 0.6
DRAFT_EXTEND_GRAPH_GIB = 0.6

DEFAULT_FRACTION = 0.85
CONTEXT_LEN = 131072
SPEC_MAX_RUNNING = 48
MAX_RUNNING = 2048

# --- decoding -----------------------------------------------------------------------------------------------------
# One decode step for one user: 11.173 ms with graphs up to 128 (89.5 tok/s), 12.195 ms up to 512 (82.0 tok/s).
STEP_BASE_MS = 10.8324
STEP_PER_GRAPH_BS_MS = 0.0026615
STEP_PER_USER = 0.035  # each further user in the batch adds this share
VERIFY_MS = 30.0  # one verify step over 4 tokens: 122 all-reduces over PCIe
VERIFY_PER_TOKEN_MS = 1.13  # each draft token beyond 4
DRAFT_STEP_MS = 2.0 / 3.0  # one step of the draft model
DRAFT_PER_BRANCH = 0.3  # each branch beyond the first (top-k) adds this share of a draft step
CUSTOM_ALLREDUCE_STEP_MS = 1000.0 / 38.0  # all-reduce by peer writes over PCIe
EAGER_FACTOR = 2.4  # without a graph for the batch
SMALL_STEP_MS = 9.6
STEP_PER_NODE_MS = 3.4  # each node beyond the first: 122 all-reduces over the network

PREFILL_FIXED_MS = 15.0
PREFILL_PER_TOKEN_MS = 0.095

# Chance that the draft token at each position is accepted, given that those before it were: 1 + .64 + .41 + .26 = 2.31.
ACCEPT_BY_POSITION = (0.64, 0.64, 0.636, 0.63, 0.62, 0.61, 0.60)
COVER_EXPONENT = 0.5  # w candidates at a position miss as often as one does, times w ** -0.5
RANDOM_PROMPT_ACCEPT = 0.3  # token ids at random, not text: the draft was trained on text
PROMPT_ACCEPT_SPREAD = 0.04  # prompts differ

LAUNCH_CV = 0.01  # between launches of one configuration
RUN_CV = 0.004  # between runs on one launch
STEP_CV = 0.01  # between steps; averages out within a run

# --- start-up, seconds of the model --------------------------------------------------------------------------------
LAUNCH_S = 14.0
DIST_INIT_S = 9.0
WEIGHTS_S = 523.0  # rank 0; the slowest rank decides
STRAGGLER_RANK = 5
STRAGGLER_FACTOR = 1.099
SLOW_NODE_FACTOR = 1.22  # of a server over several nodes all but the first read from a slower disk
DRAFT_S = 10.7
POOL_S = 2.0
CAPTURE_PER_BUCKET_S = 1.62
DRAFT_CAPTURE_S = 17.6
WARMUP_S = 12.5
SMALL_WEIGHTS_S = 48.0
SHARDS = 64
SMALL_SHARDS = 4
SLOW_TOKENIZER_EVERY_S = 2.65


def unit_normal(*key: object) -> float:
    """A standard normal deviate that depends on the key alone."""
    digest = hashlib.sha256("\0".join(map(str, key)).encode()).digest()
    return random.Random(int.from_bytes(digest[:8], "big")).gauss(0.0, 1.0)


def launch_factor(seed: int, configuration: str, launch: int) -> float:
    """How much slower (above 1) or faster this launch of a configuration is, as a whole."""
    return math.exp(LAUNCH_CV * unit_normal("launch", seed, configuration, launch))


def run_factor(seed: int, configuration: str, launch: int, run: int) -> float:
    """The same for one run of measurements on a launch."""
    return math.exp(RUN_CV * unit_normal("run", seed, configuration, launch, run))


def buckets(max_bs: int, *, speculative: bool) -> list[int]:
    """Batch sizes that get a graph, ascending, as SGLang chooses them."""
    if speculative:
        sizes = [*range(1, 9), *range(10, 33, 2), *range(40, 65, 4), *range(72, 257, 8), *range(272, 4097, 16)]
    else:
        sizes = [1, 2, 4, *range(8, 257, 8), *range(272, 513, 16), *range(544, 4097, 32)]
        sizes = sorted({*sizes, 12})
    chosen = [size for size in sizes if size <= max_bs]
    if not chosen or chosen[-1] != max_bs:
        chosen.append(max_bs)
    return chosen


def covered(position: int, width: float, scale: float = 1.0) -> float:
    """Chance that one of so many candidates at a position is the right token, given that those before it were."""
    alone = min(1.0, ACCEPT_BY_POSITION[min(position, len(ACCEPT_BY_POSITION) - 1)] * scale)
    return 1.0 - (1.0 - alone) / math.pow(width, COVER_EXPONENT)


def width_of(steps: int, topk: int, draft_tokens: int) -> float:
    """Candidates a position on average: the tokens to verify, without the root, spread over the steps, top-k at most."""
    return min(float(topk), max(1.0, (draft_tokens - 1) / max(1, steps)))


def expected_accept_length(steps: int, topk: int = 1, draft_tokens: int | None = None, *, scale: float = 1.0) -> float:
    """Tokens a verify step, the bonus token included."""
    tokens = steps + 1 if draft_tokens is None else draft_tokens
    total, reach = 1.0, 1.0
    for position in range(min(steps, tokens - 1)):
        reach *= covered(position, width_of(steps, topk, tokens), scale)
        total += reach
    return total


@dataclass(frozen=True)
class Config:
    """What of a launch decides its memory and its speed; everything else is only printed."""

    kimi: bool  # the 8-GPU model; any other path is the small one
    tp: int
    fraction: float
    max_bs: int
    graphs: bool = True
    speculative: bool = False
    steps: int = 0
    draft_tokens: int = 0
    topk: int = 1
    matching_draft: bool = True  # an EAGLE-3 draft under the algorithm EAGLE is accepted but never agrees
    simulated_accept: float | None = None
    wrong_drafts: float = 0.0  # chance of a token to be a draft that was accepted although it is wrong
    custom_allreduce: bool = False
    context_len: int = CONTEXT_LEN
    kv_fp8: bool = False
    max_running: int = MAX_RUNNING
    max_total_tokens: int | None = None
    billions: float = 8.0  # parameters of the small model
    free_gib: float = FREE_BEFORE_LOAD_GIB  # less where somebody else is on the GPUs
    nodes: int = 1  # hosts that it runs on, with as many ranks each

    @property
    def weights_gib(self) -> float:
        return WEIGHTS_GIB * 8 / self.tp if self.kimi else SMALL_WEIGHTS_GIB_PER_BILLION * self.billions / self.tp

    @property
    def draft_gib(self) -> float:
        if not self.speculative:
            return 0.0
        return DRAFT_GIB if self.kimi else 0.8

    @property
    def budget_gib(self) -> float:
        """SGLang's budget: the fraction of what was free before loading."""
        return self.fraction * self.free_gib

    @property
    def pool_gib(self) -> float:
        """What is left of the budget for the KV pool; not positive where it does not start."""
        return self.budget_gib - self.weights_gib - self.draft_gib

    @property
    def kv_bytes(self) -> float:
        """Bytes one token takes in the pool of one rank."""
        target = TARGET_KV_BYTES if self.kimi else SMALL_KV_BYTES / self.tp
        return (target + (DRAFT_KV_BYTES if self.speculative else 0)) * (0.5 if self.kv_fp8 else 1.0)

    @property
    def pool_tokens(self) -> int:
        """Tokens that the pool holds; the draft's own pool has as many."""
        tokens = max(0, int(self.pool_gib * 2**30 / self.kv_bytes) // 64 * 64)
        return min(tokens, self.max_total_tokens) if self.max_total_tokens else tokens

    @property
    def outside_gib(self) -> float:
        """Free memory beside the budget when capture begins, after the pool was rounded down."""
        return self.free_gib - self.weights_gib - self.draft_gib - self.pool_used_gib

    @property
    def pool_used_gib(self) -> float:
        return self.pool_tokens * self.kv_bytes / 2**30

    @property
    def capture_peak_gib(self) -> float:
        """What capturing the largest batch needs for a moment."""
        if not self.graphs:
            return 1.0
        if self.speculative:
            return CAPTURE_SPEC_BASE_GIB + CAPTURE_SPEC_PER_TOKEN_GIB * self.max_bs * self.draft_tokens
        return CAPTURE_BASE_GIB + CAPTURE_PER_REQUEST_GIB * self.max_bs

    @property
    def graph_gib(self) -> float:
        """What the graphs of the target keep."""
        if not self.graphs:
            return 0.0
        count = len(buckets(self.max_bs, speculative=self.speculative))
        return (
            VERIFY_GRAPH_PER_BUCKET_GIB * count if self.speculative else GRAPH_BASE_GIB + GRAPH_PER_BUCKET_GIB * count
        )

    def decode_step_s(self, users: int) -> float:
        """Time of one decode step, or of one cycle (draft and verify) with speculation, without any noise."""
        if self.speculative:
            verify = VERIFY_MS if self.kimi else 1.6 * SMALL_STEP_MS
            verify += VERIFY_PER_TOKEN_MS * (self.draft_tokens - 4)
            step = verify * (1 + STEP_PER_USER * (users - 1))
            step += DRAFT_STEP_MS * self.steps * (1 + DRAFT_PER_BRANCH * (self.topk - 1))
        elif self.custom_allreduce and self.kimi:
            step = CUSTOM_ALLREDUCE_STEP_MS * (1 + STEP_PER_USER * (users - 1))
        else:
            base = STEP_BASE_MS + STEP_PER_GRAPH_BS_MS * self.max_bs if self.kimi else SMALL_STEP_MS
            step = base * (1 + STEP_PER_USER * (users - 1))
        if not self.graphs or users > self.max_bs:
            step *= EAGER_FACTOR
        return (step + STEP_PER_NODE_MS * (self.nodes - 1)) / 1000.0

    def prefill_s(self, tokens: int) -> float:
        """Time of one prefill batch."""
        return (PREFILL_FIXED_MS + PREFILL_PER_TOKEN_MS * tokens) / 1000.0

    def draw_accepted(self, rng: random.Random, scale: float) -> int:
        """Draft tokens accepted in one verify step."""
        if not self.speculative or not self.matching_draft:
            return 0
        if self.simulated_accept is not None:
            wanted = min(max(self.simulated_accept - 1.0, 0.0), float(self.steps))
            return int(wanted) + (1 if rng.random() < wanted - int(wanted) else 0)
        accepted, width = 0, width_of(self.steps, self.topk, self.draft_tokens)
        while accepted < min(self.steps, self.draft_tokens - 1):
            if rng.random() >= covered(accepted, width, scale):
                break
            accepted += 1
        return accepted


_LEFT_OUT = frozenset(
    "--port --host --config --api-key --admin-api-key --enable-metrics --dist-init-addr --nccl-init-addr".split()
)


def configuration_key(argv: Sequence[str], env: Sequence[tuple[str, str]]) -> str:
    """Names a configuration by what was asked for, so that launches of one profile share a launch effect's series.

    The port, secrets and file names that differ from launch to launch are left out.
    """
    kept: list[str] = []
    skip = False
    for word in argv:
        if skip:
            skip = False
            continue
        name = word.split("=", 1)[0]
        if name in _LEFT_OUT:
            skip = "=" not in word and name != "--enable-metrics"
            continue
        kept.append(word)
    text = "\0".join([*kept, "", *(f"{k}={v}" for k, v in sorted(env))])
    return hashlib.sha256(text.encode()).hexdigest()[:16]
