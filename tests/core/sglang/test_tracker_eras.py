"""Synthetic starts, one per era of SGLang's wording and per layout of ranks, after reference facts of the released packages."""

import itertools

import pytest

from tui.core.model.phases import Outcome, Phase
from tui.core.sglang.state import Progress
from tui.core.sglang.tracker import LogTracker

ERAS = ("0.4.6", "0.4.10", "0.5.5", "0.5.10", "0.5.14", "0.5.23")
LAYOUTS = ("tp1", "tp4", "dp2tp2", "eagle3")


def at_least(era: str, version: str) -> bool:
    return tuple(map(int, era.split("."))) >= tuple(map(int, version.split(".")))


class Log:
    """Writes a start as a server of one era does."""

    def __init__(self, era: str, layout: str) -> None:
        self.era, self.layout = era, layout
        self.new = at_least(era, "0.5.14")
        self.eagle = layout == "eagle3"
        self.tags = {
            "tp1": [""],
            "tp4": [f" TP{n}" for n in range(4)],
            "dp2tp2": [f" DP{d} TP{t}" for d in range(2) for t in range(2)],
            "eagle3": [f" TP{n}" for n in range(2)],
        }[layout]
        self.clock = itertools.count()
        self.parts: list[tuple[str, Phase | None]] = []

    def line(self, text: str, tag: str = "", phase: Phase | None = None) -> None:
        second = next(self.clock)
        stamp = f"2026-10-06 20:{second // 60:02d}:{second % 60:02d}"
        self.parts.append((f"[{stamp}{tag}] {text}\n", phase))

    def ranks(self, text: str, phase: Phase | None = None) -> None:
        for at, tag in enumerate(self.tags):
            self.line(text, tag, phase if at == 0 else None)

    def bar(self, done: int, total: int) -> None:
        text = f"Loading safetensors checkpoint shards: {100 * done // total:3d}% Completed | {done}/{total} [00:01<00:41,  1.42s/it]"
        self.parts.append((f"\r{text}" + ("" if at_least(self.era, "0.5.10") else "\n"), None))

    def load(self, phase: Phase, kind: str, shards: int) -> None:
        self.ranks("Load weight begin. avail mem=94.50 GB", phase)
        for done in range(shards + 1):
            self.bar(done, shards)
        self.parts.append(("\n", None))
        elapsed = "elapsed=45.90 s, " if at_least(self.era, "0.5.9") else ""
        quant = "" if at_least(self.era, "0.5.10") else "dtype=torch.bfloat16, "
        self.ranks(f"Load weight end. {elapsed}type={kind}, {quant}avail mem=22.80 GB, mem usage=71.70 GB.")

    def pool(self, phase: Phase) -> None:
        dtype = "dtype: torch.bfloat16, " if at_least(self.era, "0.5.13") else ""
        self.ranks(
            f"KV Cache is allocated. {dtype}#tokens: 147840, K size: 4.85 GB, V size: 4.84 GB"
            + ("" if at_least(self.era, "0.5.5") else "."),
            phase,
        )
        self.ranks("Memory pool end. avail mem=11.30 GB")

    def graphs(self, role: str, phase: Phase, total: int) -> None:
        if self.new:
            what = {"target": "target verify" if self.eagle else "target decode", "draft": "draft decode"}[role]
            begin = f"Capture {what} CUDA graph begin. backend=full, num_tokens_per_req=1, avail mem=11.30 GB"
            end = f"Capture {what} CUDA graph end. bs=[1, 2], elapsed=11.02 s, mem usage=0.61 GB, avail mem=10.69 GB."
        else:
            draft = "draft " if role == "draft" else ""
            begin = f"Capture {draft}cuda graph begin. This can take up to several minutes. avail mem=11.30 GB"
            end = f"Capture {draft}cuda graph end. Time elapsed: 11.02 s. mem usage=0.61 GB. avail mem=10.69 GB."
        tags = self.tags if role == "target" or not at_least(self.era, "0.5.12") else self.tags[:1]
        for at, tag in enumerate(tags):
            self.line(begin, tag, phase if at == 0 else None)
        arg = "bs=512 avail_mem=3.10 GB" if at_least(self.era, "0.4.10") else "avail_mem=3.10 GB"
        self.parts.append((f"\r  0%|          | 0/{total} [00:00<?, ?it/s]", None))
        for done in range(total + 1):
            self.parts.append(
                (f"\rCapturing batches ({arg}):  {done}%|███   | {done}/{total} [00:01<00:02,  1.1it/s]", None)
            )
        self.parts.append(("\n", None))
        for tag in tags:
            self.line(end, tag)

    def build(self) -> list[tuple[str, Phase | None]]:
        spec = "'EAGLE3'" if self.eagle else "None"
        args = (
            f"model_path='/m', tp_size=2, mem_fraction_static=0.88, speculative_algorithm={spec}, watchdog_timeout=300"
        )
        as_dict = "{" + ", ".join("'" + part.replace("=", "': ", 1) for part in args.split(", ")) + "}"
        self.line(f"server_args={as_dict}" if at_least(self.era, "0.5.19") else f"server_args=ServerArgs({args})")
        dist = "parallel" if at_least(self.era, "0.5.21") else "torch distributed"
        self.ranks(f"Init {dist} begin.", Phase.DISTRIBUTED_INIT)
        self.line("sglang is using nccl==2.29.3", self.tags[0])
        self.ranks(f"Init {dist} ends. mem usage=0.00 GB")
        self.load(Phase.LOAD_WEIGHTS, "DeepseekV3ForCausalLM", 4)
        if self.new and self.eagle:
            self.load(Phase.DRAFT_MODEL, "LlamaForCausalLMEagle3", 1)
        self.pool(Phase.MEMORY_POOL)
        if self.new and self.eagle:
            self.pool(Phase.MEMORY_POOL)
        self.graphs("target", Phase.CUDA_GRAPH, 3)
        if self.eagle and not self.new:
            self.ranks(f"Init {dist} begin.", Phase.DRAFT_MODEL)
            self.ranks(f"Init {dist} ends. mem usage=0.00 GB")
            self.load(Phase.DRAFT_MODEL, "LlamaForCausalLMEagle3", 1)
            self.pool(Phase.MEMORY_POOL)
        if self.eagle:
            self.graphs("draft", Phase.CUDA_GRAPH, 2)
        tail = ", available_gpu_mem=9.80 GB" if at_least(self.era, "0.4.10") else ""
        for tag in [tag for tag in self.tags if not tag or tag.endswith("TP0")]:
            self.line(
                f"max_total_num_tokens=147840, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=48, context_len=131072{tail}",
                tag,
            )
        self.line("INFO:     Started server process [4242]", "", Phase.WARMUP)
        self.line("INFO:     Waiting for application startup.")
        self.line("INFO:     Application startup complete.")
        self.line("INFO:     Uvicorn running on http://127.0.0.1:30000 (Press CTRL+C to quit)")
        info = "model_info" if at_least(self.era, "0.5.9") else "get_model_info"
        self.line(f'INFO:     127.0.0.1:50214 - "GET /{info} HTTP/1.1" 200 OK')
        dot = "," if at_least(self.era, "0.5.5") else "."
        prefill = f"Prefill batch{dot} #new-seq: 1, #new-token: 6, #cached-token: 0, token usage: 0.00, #running-req: 0, #queue-req: 0"
        self.line(prefill, self.tags[0])
        self.line('INFO:     127.0.0.1:50216 - "POST /generate HTTP/1.1" 200 OK')
        self.line("The server is fired up and ready to roll!", "", Phase.READY)
        self.line(prefill, self.tags[0], Phase.SERVING)
        accept = "accept len: 2.24, accept rate: 0.41, " if self.eagle else ""
        for at, tag in enumerate([tag for tag in self.tags if not tag or tag.endswith("TP0")]):
            self.line(
                f"Decode batch{dot} #running-req: {at + 1}, #token: 52, token usage: 0.02, {accept}cuda graph: True, gen throughput (token/s): 89.50, #queue-req: 0",
                tag,
            )
        return self.parts


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("era", ERAS)
def test_every_phase_in_the_order_of_the_era(era: str, layout: str) -> None:
    tracker = LogTracker(records=False)
    began: list[Phase] = []
    for text, phase in Log(era, layout).build():
        tracker.feed(text.encode())
        if phase is not None:
            assert tracker.state().phase == phase, text
            began.append(phase)
        if phase == Phase.READY:
            assert tracker.state().outcome == Outcome.READY
        elif Phase.READY not in began:
            assert tracker.state().outcome == Outcome.STARTING, text
    tracker.flush()
    state = tracker.state()
    spans = [span.phase for span in state.spans]
    expected = [phase for phase, _ in itertools.groupby(began)]
    assert spans == [Phase.LAUNCH, *expected]
    assert all(span.began_s is not None for span in state.spans)
    assert all(a.ended_s == b.began_s for a, b in itertools.pairwise(state.spans))
    assert state.clues == ()
    assert state.uvicorn_port == 30000
    assert state.server_args is not None
    assert state.server_args["mem_fraction_static"] == 0.88
    ranks = {"tp1": 0, "tp4": 4, "dp2tp2": 4, "eagle3": 2}[layout]
    assert state.ranks_seen == ranks
    assert len(state.ranks) == max(1, ranks)
    assert state.last_decode is not None
    assert state.last_decode.gen_tok_s == 89.5
    assert state.last_decode.accept_len == (2.24 if layout == "eagle3" else None)
    assert state.last_decode.total_gen_tok_s == (179.0 if layout == "dp2tp2" else 89.5)
    row = state.ledger[0]
    assert (row.before_gib, row.weights_gib, row.kv_tokens) == (94.5, 71.7, 147840)
    assert row.draft_gib == (71.7 if layout == "eagle3" else None)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("era", ERAS)
def test_progress_is_that_of_the_newest_frame(era: str, layout: str) -> None:
    tracker = LogTracker(records=False)
    seen: list[Progress] = []
    for text, _ in Log(era, layout).build():
        tracker.feed(text.encode())
        progress = tracker.state().progress
        if progress is not None and (not seen or seen[-1] != progress):
            seen.append(progress)
    shards = [(item.done, item.total) for item in seen if item.what == "shards"]
    capture = [(item.done, item.total) for item in seen if item.what == "capture"]
    assert shards == [(n, 4) for n in range(5)] + ([(0, 1), (1, 1)] if layout == "eagle3" else [])
    assert capture == [(n, 3) for n in range(4)] + ([(n, 2) for n in range(3)] if layout == "eagle3" else [])
    assert tracker.state().progress is None


def test_a_rank_behind_is_seen() -> None:
    log = Log("0.5.23", "tp4")
    text = "".join(part for part, _ in log.build())
    text = "".join(
        line
        for line in text.splitlines(keepends=True)
        if not (" TP2]" in line and ("weight end" in line or "KV" in line or "pool" in line or "Capture" in line))
    )
    cut = text.index("Capture target decode CUDA graph begin")
    tracker = LogTracker()
    tracker.feed(text[:cut].encode() + b"\n")
    state = tracker.state()
    assert state.phase == Phase.MEMORY_POOL
    assert {rank.tag: rank.phase for rank in state.ranks} == {
        "TP0": Phase.MEMORY_POOL,
        "TP1": Phase.MEMORY_POOL,
        "TP2": Phase.LOAD_WEIGHTS,
        "TP3": Phase.MEMORY_POOL,
    }
    assert next(rank for rank in state.ranks if rank.tag == "TP2").weights_gib is None
