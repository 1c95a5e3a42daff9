"""The memory ledger of a rank: lines as the released packages write them, figures of ours that are added up by hand."""

from pathlib import Path

import pytest

from tests.support.ledger import assert_adds_up, parts
from tui.core.server.forecast import workable_now
from tui.core.sglang.memory import loaded_gib
from tui.core.sglang.report import report_of, report_text
from tui.core.sglang.state import LedgerRow, StartupState
from tui.core.sglang.tracker import LogTracker

LOGS = sorted((Path(__file__).parents[2] / "data" / "logs").rglob("*.log"))
LOAD = ["Load weight begin. avail mem=94.00 GB"]
LOADED = [*LOAD, "Load weight end. elapsed=9.10 s, type=M, quant=fp8, avail mem=54.00 GB, mem usage=40.00 GB."]
DRAFT = "Load weight end. elapsed=1.90 s, type=LlamaForCausalLMEagle3"
TOKENS = "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 100000"


def start(*lines: str, tag: str = " TP0") -> StartupState:
    tracker = LogTracker(records=False)
    tracker.feed("".join(f"[2026-10-06 20:01:03{tag}] {line}\n" for line in lines).encode())
    return tracker.state()


def ledger(*lines: str) -> LedgerRow:
    (row,) = start(*lines).ledger
    assert_adds_up(row)
    return row


# ---- whole logs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", LOGS, ids=[path.stem for path in LOGS])
def test_every_rank_of_every_log_adds_up(path: Path) -> None:
    tracker = LogTracker(records=False)
    tracker.feed(path.read_bytes())
    state = tracker.state()
    for row in state.ledger:
        assert_adds_up(row)
        assert row.contradiction is None
        loaded = row.before_gib is not None and row.before_gib != row.free_gib
        assert (row.other_gib is not None) == (loaded and not state.host_memory)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("log-hybrid-state-cache", "TP1: before 22.93, weights 8.85, state cache 4.48, KV pool 5.00, graphs 0.26, other 0.55, free 3.79"),
        ("log-ling3-new-format-ready", "GPU: before 109.98, weights 80.31, state cache 8.35, KV pool 9.21, graphs 0.79, other 0.93, free 10.39"),
        ("log-5090-sm120-rmsnorm-no-kernel", "GPU: before 30.13, weights 23.23, KV pool 3.28, other 0.77, free 2.85"),
    ],
)  # fmt: skip
def test_what_posted_starts_took(name: str, text: str) -> None:
    tracker = LogTracker(records=False)
    tracker.feed(next(path for path in LOGS if path.stem == name).read_bytes())
    assert f"  memory    {text} GiB" in report_text(report_of(tracker)).split("\n")


@pytest.mark.parametrize("name", ["normal_start", "fail_mem_fraction_too_small"])
def test_the_memory_of_a_server_on_a_cpu_is_the_host_s(name: str) -> None:
    """Everything on the host shares it: no fraction of it is said to fit, and no GPU is named."""
    tracker = LogTracker(records=False)
    tracker.feed((Path(__file__).parents[2] / "data" / "logs" / "recorded" / f"{name}.log").read_bytes())
    tracker.flush()
    assert "  memory    host: before 2" in report_text(report_of(tracker))
    assert workable_now(tracker.state(), ready=True).fraction_least is None


# ---- pools and caches, by release ---------------------------------------------------------------------------------------

END = "Memory pool end. avail mem=20.00 GB"
WINDOW = ["KV Cache is allocated. #tokens: 80000, K size: 4.00 GB, V size: 4.00 GB",
          "KV Cache is allocated. #tokens: 100000, K size: 13.00 GB, V size: 12.50 GB"]  # fmt: skip
CASES: dict[str, tuple[list[str], dict[str, float]]] = {
    "0.4.6": (
        ["KV Cache is allocated. #tokens: 100000, K size: 16.75 GB, V size: 16.75 GB", END],
        {"kv_pool_gib": 33.5, "other_gib": 0.5},
    ),
    "0.4.6 MLA": (
        ["KV Cache is allocated. #tokens: 100000, KV size: 33.50 GB", END],
        {"kv_pool_gib": 33.5, "other_gib": 0.5},
    ),
    "0.5.2 Mamba": (
        ["Mamba Cache is allocated. conv_state size: 0.25GB, ssm_state size: 10.00GB ",
         f"{TOKENS}, K size: 11.50 GB, V size: 11.50 GB", END],
        {"state_cache_gib": 10.25, "kv_pool_gib": 23.0, "other_gib": 0.75},
    ),
    "0.5.9 Mamba and MTP": (
        ["Mamba Cache is allocated. max_mamba_cache_size: 96, conv_state size: 0.25GB, ssm_state size: 6.00GB "
         "intermediate_ssm_state_cache size: 4.00GB intermediate_conv_window_cache size: 0.15GB ",
         f"{TOKENS}, K size: 11.50 GB, V size: 11.50 GB", END],
        {"state_cache_gib": 10.4, "kv_pool_gib": 23.0, "other_gib": 0.6},
    ),
    "0.5.23 ReplaySSM and int8 checkpoints": (
        ["int8 mamba checkpoint pool: 64 slots, 2.00GB (qdata 1.50 + scale 0.40 + conv 0.10); active mamba pool 96 slots",
         "Mamba Cache is allocated. max_mamba_cache_size: 96, conv_state size: 0.25GB, ssm_state size: 6.00GB ",
         "GDN ReplaySSM ring buffers allocated (record_len=8, fold=False): d=0.500GB, k=0.250GB, g=0.010GB rawv=0.200GB, rawk=0.100GB, ",
         f"{TOKENS}, K size: 12.00 GB, V size: 12.00 GB", END],
        {"state_cache_gib": 9.31, "kv_pool_gib": 24.0, "other_gib": 0.69},
    ),
    "0.5.5 sliding window, told behind the pools": (
        [*WINDOW, "SWAKVPool mem usage: 33.5 GB, swa size: 80000, full size: 100000", END],
        {"kv_pool_gib": 25.5, "swa_pool_gib": 8.0, "other_gib": 0.5},
    ),
    "0.5.9 sliding window, told before the pools": (
        ["Use sliding window memory pool. full_layer_tokens=100000, swa_layer_tokens=80000", *WINDOW,
         "SWAKVPool mem usage: 33.50 GB, swa size: 80000, full size: 100000", END],
        {"kv_pool_gib": 25.5, "swa_pool_gib": 8.0, "other_gib": 0.5},
    ),
    "0.5.6 sliding window of as many tokens: not told apart": (
        [WINDOW[0].replace("80000", "100000"), WINDOW[1],
         "SWAKVPool mem usage: 33.50 GB, swa size: 100000, full size: 100000", END],
        {"kv_pool_gib": 33.5, "other_gib": 0.5},
    ),
    "0.5.23 sliding window, by its label": (
        [f"Full {TOKENS}, K size: 13.00 GB, V size: 12.50 GB",
         "SWA KV Cache is allocated. dtype: torch.bfloat16, #tokens: 80000, K size: 4.00 GB, V size: 4.00 GB", END],
        {"kv_pool_gib": 25.5, "swa_pool_gib": 8.0, "other_gib": 0.5},
    ),
    "0.5.15 sparse attention: keys alone are the indexer's": (
        [f"{TOKENS}, K size: 15.00 GB, V size: 15.00 GB", f"{TOKENS}, K size: 3.00 GB, V size: 0.00 GB", END],
        {"kv_pool_gib": 30.0, "indexer_cache_gib": 3.0, "other_gib": 1.0},
    ),
    "0.5.20 sparse attention, by its label": (
        [f"MiniMax MSA-v1 main NVFP4 {TOKENS}, K size: 15.00 GB, V size: 15.00 GB",
         f"MiniMax MSA-v1 index {TOKENS}, KV size: 3.00 GB", END],
        {"kv_pool_gib": 30.0, "indexer_cache_gib": 3.0, "other_gib": 1.0},
    ),
    "0.5.12 a pool without a size (DeepSeek V4) is what went meanwhile": (
        ["Initialize DeepSeekV4TokenToKVPool with max_num_reqs=256 swa_size=329472 c4_size=0 c4_logical_size=0 c128_size=0", END],
        {"kv_pool_gib": 34.0, "other_gib": 0.0},
    ),
    "0.5.15 one pool for all": (
        ["[unified-memory-pool] UnifiedKVPool allocated: total_bytes=33.25 GB (=35701915648 B), 2 sub-pool(s)",
         f"{TOKENS}, K size: 0.00 GB, V size: 0.00 GB", END],
        {"kv_pool_gib": 33.25, "other_gib": 0.75},
    ),
    "0.5.23 a pool that gets its memory behind the graphs": (
        ["KV Cache VA upper bound. dtype: torch.bfloat16, #tokens: 900000, K size: 200.00 GB, V size: 200.00 GB",
         "Memory pool end. avail mem=53.50 GB",
         "Capture target decode CUDA graph end. bs=[1, 2], elapsed=9.00 s, mem usage=1.50 GB, avail mem=52.00 GB.",
         "Post-capture KV sizing: full_layer_tokens=100000, swa_layer_tokens=0",
         "Post-capture KV sizing: KV cache allocated. dtype: torch.bfloat16, #tokens: 100000, KV size: 40.00 GB, avail mem=8.00 GB",
         "Post-capture KV sizing: draft KV cache allocated. dtype: torch.bfloat16, #tokens: 100000, KV size: 3.75 GB"],
        {"kv_pool_gib": 40.0, "draft_cache_gib": 3.75, "graphs_gib": 1.5, "other_gib": 0.75},
    ),
    "0.5.16 the same, of which only the free memory is told": (
        ["KV Cache VA upper bound. dtype: torch.bfloat16, #tokens: 900000, K size: 200.00 GB, V size: 200.00 GB",
         "Memory pool end. avail mem=53.50 GB",
         "Post-capture KV sizing: max_total_num_tokens=100000, free memory=8.00 GB"],
        {"kv_pool_gib": 45.5, "other_gib": 0.5},
    ),
    "memory of the host does not count": (
        [f"{TOKENS}, K size: 16.75 GB, V size: 16.75 GB", END,
         "Allocating 128.00 GB host memory for hierarchical KV cache.",
         "Allocating swa hierarchical KV host pool: 80000 tokens, 64.00 GB host memory.",
         "Allocating 12.00 GB host memory for hierarchical Mamba cache (layout=page_first).",
         "HiCache memory headroom: host 900.0 GiB, cgroup 512.0 GiB"],
        {"kv_pool_gib": 33.5, "other_gib": 0.5},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_pools_and_caches(case: str) -> None:
    lines, expected = CASES[case]
    row = ledger(*LOADED, *lines)
    assert parts(row) == pytest.approx({"weights_gib": 40.0, **expected}, abs=0.005)
    assert row.kv_tokens in (100000, None)


def test_a_draft_before_the_pools_and_one_behind_them() -> None:
    """0.5.14 loads it before the pools, 0.5.13 and earlier behind the graphs; its pool is the second either way."""
    draft = ["Load weight begin. avail mem={} GB", f"{DRAFT}, avail mem={{}} GB, mem usage=2.00 GB."]
    target = f"{TOKENS}, K size: 10.00 GB, V size: 10.00 GB"
    own = f"{TOKENS}, K size: 0.50 GB, V size: 0.50 GB"
    new = ledger(
        *LOADED,
        *(line.format(free) for line, free in zip(draft, ("54.00", "52.00"), strict=True)),
        *(target, "Memory pool end. avail mem=31.75 GB", own, "Memory pool end. avail mem=30.75 GB"),
        "Capture target verify CUDA graph end. elapsed=9.00 s, mem usage=1.00 GB, avail mem=29.50 GB.",
    )
    old = ledger(
        *LOADED,
        *(target, "Memory pool end. avail mem=33.75 GB"),
        "Capture cuda graph end. Time elapsed: 9.00 s. mem usage=1.00 GB. avail mem=32.50 GB.",
        *(line.format(free) for line, free in zip(draft, ("32.50", "30.50"), strict=True)),
        *(own, "Memory pool end. avail mem=29.50 GB"),
    )
    assert parts(new) == parts(old)
    assert parts(new) == {"weights_gib": 40.0, "draft_gib": 2.0, "kv_pool_gib": 20.0, "draft_cache_gib": 1.0, "graphs_gib": 1.0,
                          "other_gib": 0.5}  # fmt: skip
    assert (new.draft_after_pools, old.draft_after_pools) == (False, True)


def test_what_a_draft_shares_with_the_target_it_gives_back_behind_its_pools() -> None:
    row = ledger(
        *LOADED,
        *("Load weight begin. avail mem=54.00 GB", f"{DRAFT}, avail mem=50.00 GB, mem usage=4.00 GB."),
        *(f"{TOKENS}, K size: 14.75 GB, V size: 14.75 GB", "Memory pool end. avail mem=20.00 GB"),
        *(f"{TOKENS}, K size: 0.50 GB, V size: 0.50 GB", "Memory pool end. avail mem=19.00 GB"),
        "Capture target verify CUDA graph begin. backend=full, num_tokens_per_req=4, avail mem=20.75 GB",
        "Capture target verify CUDA graph end. bs=[1, 2], elapsed=9.00 s, mem usage=1.00 GB, avail mem=19.75 GB.",
        "max_total_num_tokens=100000, chunked_prefill_size=8192, available_gpu_mem=20.25 GB",
    )
    # 1.75 came back; 0.50 of other kinds did later, and is taken off the rest
    assert (row.draft_gib, row.draft_peak_gib, row.draft_cache_gib) == (2.25, 4.0, 1.0)
    assert (row.other_gib, row.free_gib) == (0.0, 20.25)
    assert loaded_gib(row) == 44.0  # what was there when the pools were sized


def test_what_is_reserved_is_no_part() -> None:
    row = ledger(*LOADED, "Reserving 1.10 GB of the KV budget for post-sizing multimodal allocations (x).",
                 f"{TOKENS}, K size: 16.75 GB, V size: 16.75 GB", END)  # fmt: skip
    assert (row.reserved_gib, row.other_gib) == (1.1, 0.5)


def test_weights_that_no_line_measures_are_the_rest() -> None:
    """--startup-weight-load-mode overlap: the load says neither what it took nor what is free."""
    row = ledger(*LOAD, "Prepared capture-safe model in 3.10 s", f"{TOKENS}, K size: 16.75 GB, V size: 16.75 GB", END)
    assert parts(row) == {"kv_pool_gib": 33.5, "other_gib": 40.5}


def test_weights_without_a_size_are_what_went_meanwhile() -> None:
    assert ledger(*LOAD, "Load weight end. type=M, dtype=torch.bfloat16, avail mem=54.00 GB").weights_gib == 40.0


def test_adapters_of_a_server_that_runs() -> None:
    begins, ends = (
        f"LoRA adapter {{}} {what}: LoRARef(lora_name=sql). avail mem={{}} GB" for what in ("starts", "completes")
    )
    lines = [*LOADED, f"{TOKENS}, K size: 16.75 GB, V size: 16.75 GB", END,
             begins.format("loading", "19.00"), ends.format("loading", "18.25")]  # fmt: skip
    assert parts(ledger(*lines)) == {"weights_gib": 40.0, "kv_pool_gib": 33.5, "lora_gib": 0.75, "other_gib": 1.5}
    unloaded = ledger(*lines, begins.format("unloading", "18.25"), ends.format("unloading", "19.00"))
    assert (unloaded.lora_gib, unloaded.other_gib, unloaded.free_gib) == (0.0, 1.5, 19.0)


def test_what_was_named_behind_the_last_figure_of_free_memory_is_taken_off_it() -> None:
    row = ledger(*LOADED, f"{TOKENS}, K size: 16.75 GB, V size: 16.75 GB")
    assert (row.kv_pool_gib, row.other_gib, row.free_gib) == (33.5, 0.0, 20.5)


@pytest.mark.parametrize(
    "line",
    [
        "Capture cuda graph end. Time elapsed: 9.00 s. avail mem=18.40 GB. mem usage=1.60 GB.",  # 0.4.6
        "Capture cuda graph end. Time elapsed: 9.00 s. mem usage=1.60 GB. avail mem=18.40 GB.",
        "Capture target decode CUDA graph end. bs=[1, 2], elapsed=9.00 s, mem usage=1.60 GB, avail mem=18.40 GB.",
    ],
)
def test_graphs(line: str) -> None:
    row = ledger(*LOADED, f"{TOKENS}, K size: 16.75 GB, V size: 16.75 GB", END, line, line.replace("18.40", "16.80"))
    assert (row.graphs_gib, row.other_gib, row.free_gib) == (3.2, 0.5, 16.8)


def test_each_rank_has_its_own_rest() -> None:
    """From 0.5.12 on rank 0 alone tells of the draft's graphs; what the others took for theirs is not lost."""
    tracker = LogTracker(records=False)
    pool = [*LOADED, f"{TOKENS}, K size: 16.75 GB, V size: 16.75 GB", END]
    for rank in range(2):
        tracker.feed("".join(f"[2026-10-06 20:01:03 TP{rank}] {line}\n" for line in pool).encode())
    graphs = "Capture draft extend CUDA graph end. elapsed=1.00 s, mem usage=0.60 GB, avail mem=19.40 GB."
    tracker.feed(f"[2026-10-06 20:01:04 TP0] {graphs}\n".encode())
    first, second = tracker.state().ledger
    assert (first.graphs_gib, first.other_gib, first.free_gib) == (0.6, 0.5, 19.4)
    assert (second.graphs_gib, second.other_gib, second.free_gib) == (None, 0.5, 20.0)


# ---- figures that are not there, or wrong -------------------------------------------------------------------------------


def test_a_load_that_goes_on_has_no_rest() -> None:
    row = ledger(*LOAD)
    assert (row.before_gib, row.free_gib, row.other_gib) == (94.0, 94.0, None)


def test_a_log_that_begins_behind_the_load_has_no_rest() -> None:
    row = ledger(f"{TOKENS}, K size: 16.75 GB, V size: 16.75 GB", END)
    assert (row.before_gib, row.kv_pool_gib, row.free_gib, row.other_gib) == (None, 33.5, 20.0, None)


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        ([f"{TOKENS}, K size: 16.75 GB, V size: 16.75 GB", "Memory pool end. avail mem=21.20 GB"], 4),  # 0.70 too many
        ([f"{TOKENS}, K size: 30.00 GB, V size: 30.00 GB"], 3),  # more than was free
    ],
)
def test_figures_that_contradict_each_other_are_said_and_not_made_up(lines: list[str], line: int) -> None:
    state = start(*LOADED, *lines)
    (row,) = state.ledger
    assert row.other_gib is None
    assert row.contradiction == f"line {line}: {lines[-1]}"
    tracker = LogTracker(records=False)
    tracker.feed("".join(f"[2026-10-06 20:01:03 TP0] {text}\n" for text in (*LOADED, *lines)).encode())
    assert f"its parts are more than what is gone from line {line}: " in report_text(report_of(tracker))


def test_a_contradiction_that_a_later_line_clears_is_none() -> None:
    row = ledger(*LOADED, f"{TOKENS}, K size: 16.75 GB, V size: 16.75 GB", "Memory pool end. avail mem=21.20 GB",
                 "Capture cuda graph end. Time elapsed: 9.00 s. mem usage=0.10 GB. avail mem=20.30 GB.")  # fmt: skip
    assert (row.other_gib, row.contradiction) == (0.1, None)


def test_rounding_is_no_contradiction() -> None:
    row = ledger(*LOADED, f"{TOKENS}, K size: 16.75 GB, V size: 16.75 GB", "Memory pool end. avail mem=20.53 GB")
    assert (row.other_gib, row.contradiction) == (0.0, None)


CPU_READY = "max_total_num_tokens=100000, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=48, context_len=4096, available_cpu_mem=18.00 GB"


@pytest.mark.parametrize("lines", [["server_args={'device': 'cpu'}", *LOADED, END], [*LOADED, END, CPU_READY]])
def test_a_server_on_a_cpu_has_no_rest_and_no_window(lines: list[str]) -> None:
    """Its free memory is the host's: what else runs there moves it."""
    state = start(*lines)
    (row,) = state.ledger
    assert state.host_memory
    assert (row.before_gib, row.weights_gib, row.other_gib, row.contradiction) == (94.0, 40.0, None, None)
    bounds = workable_now(state, ready=True)
    assert (bounds.fraction_least, bounds.fraction_most, bounds.batch_most) == (None, None, None)


@pytest.mark.parametrize("figure", ["1.2.3", "....", "9" * 400, "-1", ""])
def test_figures_that_are_none(figure: str) -> None:
    """A log may hold anything."""
    state = start(
        *LOADED,
        f"Mamba Cache is allocated. conv_state size: {figure}GB, ssm_state size: 1.00GB",
        f"{TOKENS}, K size: {figure} GB, V size: {figure} GB",
        f"Memory pool end. avail mem={figure} GB",
        f"LoRA adapter loading completes: x. avail mem={figure} GB",
    )
    assert_adds_up(state.ledger[0])
