"""Pieces of reports: frames without functions, errors in a sentence, what native code and other runtimes say, imports."""

import pytest

from tests.support.log_reports import report

MARKER = "[2026-10-06 20:01:06 TP1] Scheduler hit an exception: Traceback (most recent call last):\n"
SRT = '  File "/opt/venv/lib/python3.12/site-packages/sglang/srt/'
PACKAGE = '  File "/opt/venv/lib/python3.12/site-packages/'
TRITON = PACKAGE + 'triton/compiler/compiler.py", line 80, in make_ir\n    return ast_to_ttir(self.fn, self)\n'

CASES = {  # text, phase, cause, words of the evidence, a word of the advice
    "a_frame_without_a_function": (
        'File "python/sglang/srt/layers/attention/linear/gdn_backend.py", line 195\n'
        "  has_state = forward_batch.extend_prefix_lens > 0\nTypeError: '>' not supported between instances of 'NoneType' and 'int'\n",
        "warmup", "engine_bug", "NoneType", "--attention-backend",
    ),
    "a_call_of_a_frame_without_a_function": (
        'File "python/sglang/srt/speculative/eagle_worker.py", line 158\n  embed, head = self.target.model.get_embed_and_head()\n'
        "AttributeError: 'FooForCausalLM' object has no attribute 'get_embed_and_head'\n",
        "draft_model", "draft_config", "get_embed_and_head", "--speculative-draft-model-path",
    ),
    "verifying": (
        SRT + 'speculative/eagle_worker_v2.py", line 3, in verify\n    predict.cpu()\n'
        "torch.AcceleratorError: CUDA error: an illegal memory access was encountered\n",
        "serving", "cuda_error", "illegal memory access", "CUDA_LAUNCH_BLOCKING",
    ),
    "the_end_of_a_traceback_of_the_cache": (
        "         ^^^^^^\n" + SRT + 'managers/schedule_policy.py", line 878, in add_one_req\n    self.tree_cache.init_load_back(\n'
        + SRT + 'mem_cache/unified_radix_cache.py", line 1240, in load_back\n    assert node.host_value is not None\nAssertionError\n',
        "serving", "engine_bug", "node.host_value is not None", "newer",
    ),
    "a_vision_tower": (
        PACKAGE + 'transformers/models/siglip/modeling_siglip.py", line 389, in forward\n    out = attention(\n'
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 42.00 MiB.\n"
        "[2025-09-07 06:10:23] Received sigquit from a child process. It usually means the child failed.\n",
        "warmup", "oom_serving", "out of memory", "--mem-fraction-static",
    ),
    "an_import_is_no_forward_pass": (
        SRT + 'layers/quantization/fp8.py", line 74, in <module>\n    from aiter import ActivationType\n'
        + PACKAGE + 'aiter/jit/core.py", line 77, in <module>\n    shutil.rmtree(f"{bd_dir}/ck")\n'
        '  File "/usr/lib/python3.12/shutil.py", line 662, in _rmtree_safe_fd\n    os.rmdir(name)\n'
        "OSError: [Errno 39] Directory not empty: '/x/aiter/jit/build/ck'\n",
        "launch", "import_error", "Directory not empty", "Reinstall",
    ),
    "another_package's_call": (
        'File ".../sglang/srt/layers/moe/token_dispatcher/deepep.py", line 833, in low_latency_dispatch\n'
        "TypeError: Buffer.low_latency_dispatch() got an unexpected keyword argument 'foo'\n",
        "warmup", "import_error", "'foo'", "deep_ep",
    ),
    "too_many_tokens_for_the_low_latency_mode": (
        MARKER + SRT + 'managers/tp_worker.py", line 181, in forward_batch_generation\n    self.model_runner.forward(batch)\n'
        "RuntimeError: Failed: Assertion error /x/deep_ep.cpp:1025 'x.size(0) <= num_max_dispatch_tokens_per_rank'\n",
        "serving", "bad_flag", "num_max_dispatch_tokens_per_rank", "SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK",
    ),
    "a_native_check": (
        MARKER + SRT + 'managers/tp_worker.py", line 181, in forward_batch_generation\n    self.model_runner.forward(batch)\n'
        "RuntimeError: Failed: Assertion error /x/moe.cpp:12 'experts % 8 == 0'\n",
        "serving", "engine_bug", "experts % 8 == 0", "newer",
    ),
    "an_interface_that_is_not_there": (
        "[2026-08-01 10:00:11 TP0] Init torch distributed begin.\n"
        "RuntimeError: [enforce fail at /x/gloo/transport/tcp/device.cc:84] ifa != nullptr. Unable to find address for: ens9\n",
        "distributed_init", "nccl", "ens9", "GLOO_SOCKET_IFNAME",
    ),
    "an_npu_s_own_words": (
        "[rank3]:[W1031 21:35:04.838006795 compiler_depend.ts:57] Warning: EZ9999: Inner Error!\n"
        "EZ9999: [PID: 1] The error from device(chipId:7, dieId:0), there is an exception of aivec error, core id is 9\n"
        "       The extend info: errcode:(0, 0x2) errorStr: The UB address is out of range. fixp_error0 info: 0xa0\n",
        "launch", "cuda_error", "UB address is out of range", "ASCEND_LAUNCH_BLOCKING",
    ),
    "what_stands_behind_triton_s_mark": (
        "[2026-04-07 13:03:54] Capture cuda graph begin. avail mem=12.24 GB\n" + MARKER + TRITON
        + "triton.compiler.errors.CompilationError: at 174:24:\n    # the sizes are not supported otherwise\n    if y < n:\n    ^\n"
        "AssertionError('Mismatched type for k between then block (int64) and else block (int32)')\n",
        "cuda_graph", "jit_compile", "Mismatched type for k", "newer",
    ),
    "how_a_process_died_says_more_than_that_it_did": (
        "[12-11 17:47:40] Loading FooTransformer2DModel, default_dtype: torch.bfloat16\n"
        "[12-11 17:47:41] Loading model from 3 safetensors files: ['/m/a.safetensors']\n"
        "[12-11 17:52:52] Rank 0 scheduler is dead. Please check if there are relevant logs.\n[12-11 17:52:54] Exit code: -9\n",
        "load_weights", "host_oom", "Exit code: -9", "dmesg",
    ),
    "a_bare_exception": (
        "Exception: Capture cuda graph failed: No supported CUDA architectures found for major versions [12].\n",
        "cuda_graph", "unsupported_arch", "No supported CUDA architectures", "TORCH_CUDA_ARCH_LIST",
    ),
    "the_phase_of_the_wrapping_line": (
        "It fails with this:\nException: Capture cuda graph failed: [/x/gloo/transport/tcp/unbound_buffer.cc:133] "
        "Timed out waiting 1800000ms for send operation to complete\n",
        "cuda_graph", "nccl", "Timed out waiting", "GLOO_SOCKET_IFNAME",
    ),
    "an_error_within_a_sentence": (
        "Why does it come with the error: **_OSError: foo/bar does not appear to have a file named preprocessor_config.json.**_\nHelp!\n",
        "launch", "bad_model_path", "OSError: foo/bar does not appear", "--model-path",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_fragment_says_what_it_can(name: str) -> None:
    text, phase, cause, evidence, advice = CASES[name]
    found = report(text.encode())
    assert (found["phase"], found["outcome"], found["cause"]) == (phase, "crashed", cause)
    assert evidence in found["evidence"]["text"]
    assert advice in " ".join(found["advice"])


def test_prose_that_names_an_error_is_no_crash() -> None:
    for text in ("I fixed the ValueError: it was mine.", "RuntimeError in my own script, see below", "All is well."):
        assert report(f"{text}\nThanks.\n".encode())["outcome"] == "unknown"
