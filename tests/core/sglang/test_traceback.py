"""Tracebacks that no pattern knows: chain, frames, lines of a message, and what they cost."""

import pytest

from tests.support.log_reports import report
from tui.core.model.phases import Phase
from tui.core.sglang.frames import module_of, phase_of
from tui.core.sglang.patterns import patterns
from tui.core.sglang.report import Report
from tui.core.sglang.traceback import Frame, Traceback
from tui.core.sglang.tracker import LogTracker

MARKER = "[2026-10-06 20:01:06 TP1] Scheduler hit an exception: Traceback (most recent call last):\n"
DEATH = "\n[2026-10-06 20:01:09] Received sigquit from a child process. It usually means the child failed.\n"
RUN = "managers/scheduler.py:run_scheduler_process"
INIT = "managers/scheduler.py:__init__"
NEXT = "\nDuring handling of the above exception, another exception occurred:\n\nTraceback (most recent call last):\n"


def frames(*places: str, source: str = "call()") -> str:
    """Frames "managers/scheduler.py:run_batch" below srt/; a path from the root on stays as it is."""
    text = ""
    for place in places:
        path, _, function = place.partition(":")
        file = path if path.startswith("/") else f"/opt/venv/lib/python3.12/site-packages/sglang/srt/{path}"
        text += f'  File "{file}", line 7, in {function}\n    {source}\n'
    return text


def died(*places: str, raised: str, source: str = "call()", before: str = "") -> Report:
    return report((before + MARKER + frames(*places, source=source) + raised + "\n" + DEATH).encode())


LOADING = (RUN, INIT, "managers/tp_worker.py:__init__", "model_executor/model_runner.py:load_model")
DRAFT = (RUN, INIT, "speculative/eagle_worker.py:__init__", "managers/tp_worker.py:__init__")
SERVING = (RUN, "managers/scheduler.py:event_loop_overlap", "managers/scheduler.py:run_batch")
CAPTURE = (
    RUN,
    INIT,
    "model_executor/model_runner.py:init_device_graphs",
    "model_executor/cuda_graph_runner.py:capture",
)


@pytest.mark.parametrize(
    ("places", "phase"),
    [
        ((RUN, INIT), "launch"),
        ((RUN, INIT, "model_executor/model_runner.py:init_torch_distributed"), "distributed_init"),
        ((RUN, INIT, "distributed/device_communicators/custom_all_reduce.py:__init__"), "distributed_init"),
        (LOADING, "load_weights"),
        ((*LOADING, "models/llama.py:load_weights", "layers/linear.py:weight_loader"), "load_weights"),
        ((RUN, INIT, "model_loader/loader.py:_prepare_weights"), "load_weights"),
        (DRAFT, "draft_model"),
        ((*DRAFT, "model_executor/model_runner.py:load_model", "models/llama_eagle3.py:__init__"), "draft_model"),
        ((*DRAFT, "model_executor/model_runner.py:init_attention_backend"), "draft_model"),
        ((*DRAFT, "model_executor/model_runner.py:init_memory_pool"), "memory_pool"),
        ((*DRAFT, "speculative/eagle_draft_cuda_graph_runner.py:capture_one_batch_size"), "cuda_graph"),
        ((RUN, INIT, "model_executor/model_runner.py:init_memory_pool", "mem_cache/memory_pool.py:__init__"), "memory_pool"),
        ((RUN, INIT, "model_executor/model_runner.py:initialize", "model_executor/model_runner.py:kernel_warmup"), "memory_pool"),
        ((*CAPTURE, "models/llama.py:forward", "layers/attention/triton_backend.py:forward_decode"), "cuda_graph"),
        ((RUN, INIT, "model_executor/runner_backend/full_cuda_graph_backend.py:capture_one"), "cuda_graph"),
        ((RUN, INIT, "compilation/backend.py:__call__"), "cuda_graph"),
        (SERVING, "serving"),
        ((*SERVING, "model_executor/cuda_graph_runner.py:replay"), "serving"),
        ((*SERVING, "model_executor/model_runner.py:load_model"), "serving"),
        ((RUN, "disaggregation/decode.py:event_loop_overlap_disagg_decode", "disaggregation/mooncake/conn.py:init"), "serving"),
        (("entrypoints/http_server.py:_wait_and_warmup",), "warmup"),
        (("/a/sglang/launch_server.py:<module>", "server_args.py:__post_init__"), "launch"),
        (("managers/tokenizer_manager.py:__init__", "utils/hf_transformers_utils.py:get_tokenizer"), "launch"),
    ],
)  # fmt: skip
def test_the_innermost_frame_says_the_phase(places: tuple[str, ...], phase: str) -> None:
    assert died(*places, raised="ZeroDivisionError: x")["phase"] == phase
    untagged = report(("Traceback (most recent call last):\n" + frames(*places) + "ZeroDivisionError: x\n").encode())
    assert (untagged["phase"], untagged["outcome"]) == (phase, "crashed")


def test_a_thread_of_a_server_that_goes_on_is_no_crash() -> None:
    serving = "[2026-10-06 20:01:06] Decode batch. #running-req: 64, #token: 9, gen throughput (token/s): 2819.91\n"
    thread = (
        "Exception in thread Thread-3:\nTraceback (most recent call last):\n" + frames(*SERVING) + "ValueError: x\n"
    )
    assert report((serving + thread).encode())["outcome"] == "ready"
    assert report((thread + serving).encode())["outcome"] == "ready"
    assert report(thread.encode())["outcome"] == "crashed"


def test_a_chain_is_read_as_one_traceback() -> None:
    inner = frames("layers/attention/x.py:plan") + "RuntimeError: no way\n"
    outer = frames(RUN, INIT, "model_executor/model_runner.py:init_device_graphs") + "Exception: it failed\n"
    found = report((MARKER + inner + NEXT + outer + DEATH).encode())
    assert (found["phase"], found["evidence"]["text"]) == ("cuda_graph", "RuntimeError: no way")
    inner = frames("model_executor/model_runner.py:init_memory_pool") + "RuntimeError: no way\n"
    outer = frames(*DRAFT) + "Exception: it failed\n"
    assert report((MARKER + inner + NEXT + outer + DEATH).encode())["phase"] == "memory_pool"


def test_a_lookup_that_was_handled_is_not_the_cause() -> None:
    inner = frames("managers/scheduler.py:x") + "KeyError: 'foo'\n"
    outer = frames(RUN, INIT) + "ValueError: no parser foo\n"
    assert report((MARKER + inner + NEXT + outer + DEATH).encode())["evidence"]["text"] == "ValueError: no parser foo"
    again = NEXT.replace(
        "During handling of the above exception, another exception occurred",
        "The above exception was the direct cause of the following exception",
    )
    assert report((MARKER + outer + again + inner + DEATH).encode())["evidence"]["text"] == "ValueError: no parser foo"


def test_a_bare_assertion_is_quoted_by_its_source() -> None:
    found = died(*SERVING, raised="AssertionError", source="assert req.pool_idx is not None")
    assert found["evidence"]["text"] == "AssertionError: assert req.pool_idx is not None"
    assert found["evidence"]["lines"] == ("assert req.pool_idx is not None", "AssertionError")


def test_every_line_of_a_message_is_evidence_and_what_tells_is_quoted() -> None:
    compiler = "\n".join(
        ["nvcc -c a.cu", "FAILED: a.o", "ptxas fatal   : Value 'sm_121a' is not defined", "ninja: stopped"]
    )
    found = died(*CAPTURE, raised=f"RuntimeError: build failed with 1\n{compiler}")
    assert found["evidence"]["text"].startswith("RuntimeError: build failed with 1 … ptxas fatal")
    assert found["evidence"]["lines"][1:] == tuple(line.replace("   ", " ") for line in compiler.split("\n"))


@pytest.mark.parametrize(
    "end", ["Killed", "[rank0]:[W1006 20:01:09 ProcessGroupNCCL.cpp:1] x", "INFO:     127.0.0.1 - GET"]
)
def test_records_of_others_are_no_part_of_a_message(end: str) -> None:
    assert died(*LOADING, raised=f"KeyError: 'w13'\n{end}")["evidence"]["lines"] == ("KeyError: 'w13'",)


@pytest.mark.parametrize(
    "said",
    [
        "[2026-10-06 20:01:05 TP1] Failed to load the plan of 10.0.0.3",
        "E1006 20:01:05.1 77 client.cpp:9] connect() 10.0.0.3: Connection refused",
    ],
)
def test_a_named_error_before_a_check_without_a_word_is_the_evidence(said: str) -> None:
    found = died(*SERVING, raised="AssertionError", source="assert plan", before=said + "\n")
    assert "10.0.0.3" in found["evidence"]["text"]
    assert found["evidence"]["line"] == 1
    assert found["evidence"]["lines"][1:] == ("assert plan", "AssertionError")
    told = died(*SERVING, raised="ValueError: the plan is empty", before=said + "\n")
    assert told["evidence"]["text"] == "ValueError: the plan is empty"


def test_the_fault_handler_says_where_a_process_died() -> None:
    text = (
        "[2026-10-06 20:01:06] Load weight begin. avail mem=70.00 GB\nFatal Python error: Segmentation fault\n\n"
        "Thread 0x00007ee43dfff640 (most recent call first):\n"
        '  File "/x/sglang/srt/managers/scheduler.py", line 1 in event_loop_normal\n\n'
        "Current thread 0x00007f0629f3a480 (most recent call first):\n"
        '  File "/x/torch/cuda/graphs.py", line 84 in capture_end\n'
        '  File "/x/sglang/srt/model_executor/cuda_graph_runner.py", line 4 in capture_one_batch_size\n'
        '  File "/x/sglang/srt/managers/scheduler.py", line 18 in run_scheduler_process\n'
    )
    found = report(text.encode())
    assert (found["phase"], found["outcome"]) == ("cuda_graph", "crashed")
    assert "Segmentation fault" in found["evidence"]["text"]


def test_torch_marks_lines_of_a_traceback_with_the_rank() -> None:
    lines = ("Traceback (most recent call last):\n" + frames(*LOADING) + "KeyError: 'w'\n").splitlines()
    assert report("".join(f"[rank0]: {line}\n" for line in lines).encode())["phase"] == "load_weights"


@pytest.mark.parametrize(
    ("places", "raised", "source", "cause", "advice"),
    [
        (LOADING, "KeyError: 'layers.0.w13_scale'", "param = params[name]", "quant_mismatch", "newer"),
        ((*LOADING, "layers/linear.py:weight_loader"), "AssertionError", "assert a.shape == b.shape", "unsupported_model", "quantization"),
        ((*LOADING, "models/llama4.py:__init__"), "AssertionError", "assert heads % tp_size == 0", "bad_flag", "--tp"),
        ((*DRAFT, "models/llama_eagle3.py:load_weights"), "TypeError: 'NoneType' object is not subscriptable", "x[0]", "draft_config", "draft"),
        ((RUN, INIT, "model_executor/model_runner.py:init_attention_backend"), "ValueError: flashmla backend can only be used with MLA models.", "raise ValueError(", "bad_flag", "attention-backend"),
        ((RUN, INIT, "model_executor/model_runner.py:init_memory_pool"), "ValueError: chunked_prefill_size has to be 64 here", "raise ValueError(", "bad_flag", "--chunked-prefill-size"),
        ((RUN, INIT, "layers/quantization/fp4.py:__init__"), "ValueError: NVFP4 needs Blackwell and above", "raise ValueError(", "unsupported_arch", "format"),
        (SERVING, "AssertionError", "assert req.pool_idx", "engine_bug", "newer"),
        (SERVING, "RuntimeError: Sizes of tensors must match except in dimension 0. Expected 8 but got 4", "torch.cat(x)", "engine_bug", "newer"),
        ((*LOADING, "models/x.py:load_weights"), "KeyError: 'layers.0.extra_norm.weight'", "params[name]", "unsupported_model", "newer"),
        ((*LOADING, "layers/moe/fused_moe_triton/layer.py:_load_w13"), "RuntimeError: The size of tensor a (4096) must match the size of tensor b (2048)", "a.copy_(b)", "quant_mismatch", "--quantization"),
        ((*LOADING, "layers/moe/fused_moe_triton/layer.py:_load_w2"), "RuntimeError: start (4) + length (4) exceeds dimension size (4).", "w.narrow(1, a, b)", "quant_mismatch", "--tp"),
        ((*LOADING, "layers/parameter.py:load_row_parallel_weight"), "AssertionError: weight_scale of 3 groups", "assert", "quant_mismatch", "config.json"),
        ((*SERVING, "layers/moe/token_dispatcher/deepep.py:_dispatch_core", "/p/site-packages/deep_ep/buffer.py:dispatch"), "RuntimeError: EZ1001: The bin of socVersion [ascend310p] does not support opType [MoeDispatch]", "x()", "unsupported_arch", "a2a"),
        ((*SERVING, "layers/x.py:f"), "NotImplementedError: Could not run 'sgl_kernel::topk' with arguments from the 'XPU' backend", "x()", "unsupported_arch", "attention-backend"),
        (SERVING, "torch.AcceleratorError: HIP error: operation not permitted on an event last recorded in a capturing stream", "x()", "cuda_graph", "graph"),
        (SERVING, "RuntimeError: NPU function error: aclrtSynchronizeStream, error code is 507015", "x()", "cuda_error", "ASCEND_LAUNCH_BLOCKING"),
        ((*SERVING, "layers/attention/x_backend.py:forward"), "RuntimeError: bad plan", "raise RuntimeError(", "engine_bug", "attention-backend"),
        ((*SERVING, "/p/site-packages/flashinfer/decode.py:plan"), "RuntimeError: Failed to allocate memory for batch_prefill_tmp_v", "x()", "engine_bug", "flashinfer"),
        ((*SERVING, "/p/site-packages/triton/compiler/compiler.py:compile"), "RuntimeError: PassManager::run failed", "x()", "jit_compile", "toolkit"),
        ((RUN, "disaggregation/prefill.py:event_loop_normal_disagg_prefill"), "AssertionError", "assert a", "disaggregation", "newer"),
        ((RUN, INIT, "disaggregation/common/conn.py:__init__"), "ConnectionRefusedError: [Errno 111] Connection refused", "x()", "disaggregation", "bootstrap"),
        ((RUN, INIT, "distributed/parallel_state.py:init_distributed_environment"), "ConnectionResetError: [Errno 104]", "x()", "nccl", "dist-init-addr"),
        ((RUN, INIT, "mem_cache/memory_pool_host.py:__init__"), "RuntimeError: cudaHostRegister failed", "x()", "host_oom", "hicache-size"),
        ((RUN, INIT, "/p/site-packages/transformers/models/auto/configuration_auto.py:from_pretrained"), "AttributeError: no rope", "x()", "unsupported_model", "newer"),
        ((RUN, INIT, "layers/moe/x.py:__init__"), "TypeError: f() got an unexpected keyword argument 'out'", "x()", "import_error", "reinstall"),
        (("entrypoints/engine.py:_launch_subprocesses", "/usr/lib/python3.10/multiprocessing/connection.py:_recv"), "EOFError", "raise EOFError", "unknown", "dmesg"),
        (("managers/tokenizer_manager.py:__init__",), "FileNotFoundError: [Errno 2] No such file or directory: 'c.jinja'", "x()", "bad_flag", "c.jinja"),
    ],
)  # fmt: skip
def test_kind_and_advice(places: tuple[str, ...], raised: str, source: str, cause: str, advice: str) -> None:
    found = died(*places, raised=raised, source=source)
    assert found["cause"] == cause
    assert advice.lower() in " ".join(found["advice"]).lower()


def test_what_native_code_says_of_itself_is_no_check_of_the_engine() -> None:
    assert died(*SERVING, raised="RuntimeError: worker 3 is gone", source="a + b")["cause"] == "unknown"


def test_the_choice_behind_the_cut_is_shown() -> None:
    choices = ", ".join(f"'choice_{number}'" for number in range(60))
    text = (
        f"usage: x\nlaunch_server.py: error: argument --tool-call-parser: invalid choice: 'x' (choose from {choices})\n"
    )
    assert "choice_59" in report(text.encode())["advice"][0]


@pytest.mark.parametrize("signal", ["-9", "signal"])
def test_host_memory_without_a_signal_names_none(signal: str) -> None:
    found = died(RUN, raised="OSError: [Errno 12] Cannot allocate memory")
    assert found["cause"] == "host_oom"
    assert signal not in " ".join(found["advice"])


def test_a_newer_version_is_named_where_the_log_says_its_own() -> None:
    for said in (
        "sglang==0.5.3",
        "sglang: 0.5.3",
        "docker run lmsysorg/sglang:v0.5.3-cu129",
        "/x/sglang-0.5.3.dist-info",
    ):
        assert "this is 0.5.3" in died(*SERVING, raised="AssertionError", before=said + "\n")["advice"][-1], said
    for said in ("sglang==99.0.0", "/home/u/sglang-0.5.3/bin/python", "sglang_router 0.1.2"):
        assert "newer version exists" not in str(died(*SERVING, raised="AssertionError", before=said + "\n")), said


@pytest.mark.parametrize(
    ("path", "module"),
    [
        ("/a/sglang/python/sglang/srt/server_args.py", "srt/server_args.py"),
        ("/a/sglang/python/sglang/launch_server.py", "launch_server.py"),
        ("/a/torch/nn/functional.py", None),
        ("/a/mysglang/srt/x.py", None),
        (".../layers/attention/triton_backend.py", "srt/layers/attention/triton_backend.py"),
        ("\u2026/srt/managers/scheduler.py", "srt/managers/scheduler.py"),
        ("srt/managers/scheduler.py", "srt/managers/scheduler.py"),
        (".../triton/compiler/compiler.py", None),
        ("models/mine.py", None),
    ],
)
def test_module_of(path: str, module: str | None) -> None:
    assert module_of(path) == module


@pytest.mark.parametrize(
    "complaint",
    [
        "/usr/bin/ld: cannot find -lcudart",
        'a.cu(3): error: identifier "x" is undefined',
        "a.o: undefined reference to `f()'",
        "ptxas fatal : Unsupported .version 9.4; current version is '9.0'",
    ],
)
def test_the_complaint_of_the_compiler_is_quoted_not_the_words_of_its_driver(complaint: str) -> None:
    said = f"RuntimeError: Ninja build failed.\ncollect2: error: ld returned 1 exit status\n{complaint}\nninja: build stopped"
    found = died(*CAPTURE, raised=said)
    assert (found["cause"], found["evidence"]["text"]) == (
        "jit_compile",
        f"RuntimeError: Ninja build failed. \u2026 {complaint}",
    )


def test_frames_that_no_table_knows_say_nothing() -> None:
    assert phase_of([Frame("/a/torch/x.py", 1, "f")], patterns().frames) is None


# ---- hostile --------------------------------------------------------------------------------------------------------


def test_a_traceback_without_an_end_is_bounded() -> None:
    trace = Traceback()
    for number in range(5_000):
        trace.take(f'  File "/x/sglang/srt/a{number}.py", line {number}, in f{number}', number)
    assert len(trace.chain[0].frames) <= 200
    assert [trace.chain[0].frames[0].function, trace.chain[0].frames[-1].function] == ["f0", "f4999"]
    trace.take("ValueError: x", 5_000)
    for number in range(5_000):
        trace.take("y" * 10_000, 5_001 + number)
    assert sum(len(line.text) for line in trace.chain[0].lines) <= 200 * 400
    for number in range(100):
        trace.take("During handling of the above exception, another exception occurred:", number)
        trace.take(f"ValueError: {number}", number)
    assert len(trace.chain) <= 16


def _steps(text: str) -> int:
    """Lines of our code that reading a text runs: a measure of its cost that no clock disturbs."""
    import sys

    count = 0

    def trace(*_: object) -> object:
        nonlocal count
        count += 1
        return trace

    tracker = LogTracker(records=False)
    before = sys.gettrace()
    sys.settrace(trace)  # type: ignore[arg-type]
    try:
        tracker.feed(text.encode())
        tracker.flush()
        tracker.state()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize(
    "unit",
    [
        frames("managers/scheduler.py:f"),
        "ValueError: x\n" + NEXT,
        "ValueError: x\nRuntimeError: CUDA error: x\n",
        "Current thread 0x0 (most recent call first):\n" + frames("managers/scheduler.py:f"),
    ],
    ids=["frames", "chain", "clues", "threads"],
)
def test_cost_grows_with_the_length_of_a_traceback(unit: str) -> None:
    patterns()
    few, many = _steps(MARKER + unit * 100), _steps(MARKER + unit * 400)
    assert many < 6 * few


def test_phases_are_of_the_enumeration() -> None:
    assert {rule.phase for rule in patterns().frames} <= set(Phase)
