"""Reports of kinds that no line of a start goes with: elided frames, other packages, drivers, the server of images."""

from pathlib import Path

import pytest

from tests.support.log_reports import report

DATA = Path(__file__).parents[2] / "data"

MARKER = "[2026-10-06 20:01:06 TP1] Scheduler hit an exception: Traceback (most recent call last):\n"
SRT = '  File "/opt/venv/lib/python3.12/site-packages/sglang/srt/'
GEN = '  File "/opt/venv/lib/python3.12/site-packages/sglang/multimodal_gen/runtime/'
PACKAGE = '  File "/opt/venv/lib/python3.12/site-packages/'
TOP = "Traceback (most recent call last):\n"
DEATH = "\n[2026-10-06 20:01:09] Received sigquit from a child process. It usually means the child failed.\n"
RUN = SRT + 'managers/scheduler.py", line 7, in run_scheduler_process\n    scheduler = Scheduler(\n'

CASES = {
    # what a frame calls tells the phase where the next frames are left out
    "elided_loop": (
        MARKER + SRT + 'managers/scheduler.py", line 7, in run_scheduler_process\n    scheduler.run_event_loop()\n  ...\n'
        + PACKAGE + 'foo/ops.py", line 9, in run\n    call()\nRuntimeError: queue 7 is closed\n' + DEATH,
        "serving", "unknown", "queue 7 is closed", "queue 7 is closed",
    ),
    "short_frames": (
        "Scheduler hit an exception: Traceback ...\n  sglang/srt/model_executor/cuda_graph_runner.py:812 capture\n"
        "  sglang/srt/models/llama.py:77 forward\nRuntimeError: FooAttention on Turing cards only supports fp16\n",
        "cuda_graph", "unsupported_arch", "only supports fp16", "--attention-backend",
    ),
    "library_alone": (
        PACKAGE + 'deep_ep/buffer.py", line 90, in combine\n    self.runtime.combine()\nRuntimeError: DeepEP timeout: rank 3\n' + DEATH,
        "warmup", "nccl", "DeepEP timeout", "--moe-a2a-backend",
    ),
    "library_refuses": (
        MARKER + "  ...\n" + PACKAGE + 'aiter/ops/gemm.py", line 3, in pick\n    raise ValueError("x")\nValueError: no kernel bar_256\n'
        "Capturing batches (bs=8 avail_mem=70.00 GB):  50%|#####     | 2/4 [00:10<00:10,  4.00it/s]\n",
        "cuda_graph", "engine_bug", "no kernel bar_256", "aiter",
    ),
    "kernel_of_a_forward_pass": (
        'File "sglang/kernels/ops/attention/foo/tile_kernel.py", line 9, in foo_attention_fwd\n'
        'File "/opt/tilelang/tilelang/engine/phase.py", line 22, in OptimizeForTarget\n    mod = x(mod)\n'
        "ValueError: Check failed: a.stage < b.stage (6 vs. 4) :\n  two statements cannot be reordered\n" + DEATH,
        "warmup", "engine_bug", "Check failed", "--attention-backend",
    ),
    "error_beside_warnings": (
        MARKER + SRT + 'model_executor/model_runner.py", line 9, in load_model\n    x()\n'
        + PACKAGE + 'tvm_ffi/cpp/extension.py", line 9, in build_ninja\n    raise RuntimeError(x)\n'
        "RuntimeError: ninja exited with status 1\nstdout:\nFAILED: [code=1] cuda_0.o\n"
        "nvcc warning : The -std=c++20 flag is not supported with the configured host compiler.\n"
        "/x/util.h:8:10: fatal error: span: No such file or directory\n #include <span>\ncompilation terminated.\n" + DEATH,
        "load_weights", "jit_compile", "span: No such file", "compiler",
    ),
    "diffusion_memory": (
        TOP + GEN + 'managers/gpu_worker.py", line 9, in init_device_and_model\n    self.pipeline = build_pipeline(args)\n'
        + GEN + 'loader/component_loaders/component_loader.py", line 9, in load\n    x.to(d)\n'
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 96.00 MiB.\n"
        "[10-06 20:01:07] Rank 0 scheduler is dead. Please check if there are relevant logs.\n[10-06 20:01:08] Exit code: 1\n",
        "load_weights", "oom_weights", "Tried to allocate 96.00 MiB", "--vae-cpu-offload",
    ),
    "diffusion_package": (
        "[10-06 20:01:05] Worker 0: Shutdown complete.\n" + TOP
        + GEN + 'pipelines/diffusers_pipeline.py", line 9, in _load_diffusers_pipeline\n    x()\n'
        + PACKAGE + 'diffusers/x.py", line 9, in f\n    raise NotImplementedError(\n'
        "NotImplementedError: this needs `peft`. Please install it using: `pip install peft`.\n"
        "[10-06 20:01:07] Rank 0 scheduler is dead. Please check if there are relevant logs.\n[10-06 20:01:08] Exit code: 1\n"
        + TOP + '  File "/usr/lib/python3.12/multiprocessing/connection.py", line 399, in _recv\n    raise EOFError\nEOFError\n',
        "load_weights", "import_error", "peft", "pip install peft",
    ),
    "no_driver": (
        MARKER + RUN + PACKAGE + 'torch/cuda/__init__.py", line 9, in _lazy_init\n    torch._C._cuda_init()\n'
        "RuntimeError: Found no NVIDIA driver on your system.\n" + DEATH,
        "launch", "driver_mismatch", "Found no NVIDIA driver", "--gpus all",
    ),
    "old_driver": (
        MARKER + RUN + SRT + 'model_executor/model_runner.py", line 9, in load_model\n    x()\n'
        "RuntimeError: CUDA error: the provided PTX was compiled with an unsupported toolchain.\n" + DEATH,
        "load_weights", "driver_mismatch", "unsupported toolchain", "driver",
    ),
    "package_missing": (
        TOP + SRT + 'utils/common.py", line 9, in <module>\n    import foobar\nModuleNotFoundError: No module named \'foobar.ops\'\n',
        "launch", "import_error", "foobar", "Install foobar.ops",
    ),
    "package_fails": (
        TOP + SRT + 'utils/common.py", line 9, in <module>\n    import foobar\n' + PACKAGE + 'foobar/__init__.py", line 9, in <module>\n'
        "    boot()\nRuntimeError: foobar wants another ABI\n",
        "launch", "import_error", "another ABI", "another ABI",
    ),
    "operator": (
        TOP + PACKAGE + 'torchaudio/x.py", line 9, in <module>\n    x\nRuntimeError: operator torchaudio::resample does not exist\n',
        "launch", "import_error", "torchaudio::resample", "Reinstall torchaudio",
    ),
    "no_guard": (
        TOP + '  File "/usr/lib/python3.12/multiprocessing/spawn.py", line 140, in _check_not_importing_main\n    raise RuntimeError(\'\'\'\n'
        "RuntimeError: \n        An attempt has been made to start a new process before the\n        current process has finished.\n",
        "launch", "unknown", "An attempt has been made", "__main__",
    ),
    "arguments_checked_elsewhere": (
        TOP + SRT + 'server_args.py", line 9, in check_server_args\n    validate(self)\n'
        + SRT + 'layers/attention/foo/validator.py", line 9, in validate\n    raise FooMissing(\nsglang.srt.FooMissing: no mask was given\n',
        "launch", "bad_flag", "no mask was given", "no mask was given",
    ),
    "assert_of_the_card": (
        MARKER + RUN + SRT + 'layers/quantization/fp8.py", line 9, in __init__\n    assert is_sm90_supported()\nAssertionError\n' + DEATH,
        "launch", "unsupported_arch", "is_sm90_supported", "--moe-runner-backend",
    ),
    "storage": (
        MARKER + RUN + SRT + 'mem_cache/storage/hf3fs/client.py", line 9, in __init__\n    raise RuntimeError(\n'
        "RuntimeError: Failed to register buffer to the store, error code: -7\n" + DEATH,
        "memory_pool", "engine_bug", "error code: -7", "--hicache-storage-backend",
    ),
    "ucx": (
        '[2026-10-06 20:01:06] INFO:     10.0.0.2:40000 - "GET /health HTTP/1.1" 200 OK\n'
        "[gpu7:42:1:43] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x7f)\n",
        "launch", "unknown", "Caught signal 11", "UCX",
    ),
    "hip": (
        "[2026-10-06 20:01:06 TP0] Load weight begin. avail mem=180.00 GB\n"
        "[AITER] /a/blob/foo.cpp:9 fail to call hipModuleLaunchKernel(f) ---> [HIP error](invalid argument)" + DEATH,
        "load_weights", "cuda_error", "[HIP error]", "SGLANG_USE_AITER=0",
    ),
    "nvshmem": (
        "[2026-10-06 20:01:06 TP0] Capture cuda graph begin. avail mem=20.00 GB\n"
        "/src/nvshmem/src/modules/transport/ibrc/ibrc.cpp:418: non-zero status: 110 ibv_modify_qp failed" + DEATH,
        "cuda_graph", "nccl", "ibv_modify_qp", "NVSHMEM_HCA",
    ),
    # the line that a person put in front says less than the traceback it is of
    "put_in_front": (
        "KeyError: 'layers.3.attn.qkv.weight'\n\n" + MARKER + SRT + 'speculative/eagle_worker.py", line 9, in __init__\n    x()\n'
        + SRT + 'models/llama.py", line 9, in load_weights\n    param = params[name]\nKeyError: \'layers.3.attn.qkv.weight\'\n',
        "draft_model", "draft_config", "qkv.weight", "draft",
    ),
    # an error that the start went on after led to nothing
    "gone_on": (
        '[2026-10-06 20:01:05 TP1] Failed to import foosmi with ModuleNotFoundError("x")\n'
        "[2026-10-06 20:01:05 TP1] Load weight begin. avail mem=31.46 GB\n"
        + MARKER + RUN + SRT + "models/llama.py\", line 9, in load_weights\n    p = d[n]\nKeyError: 'model.layers.0.mlp.w1_qweight'\n" + DEATH,
        "load_weights", "quant_mismatch", "w1_qweight", "--quantization",
    ),
    # of one message the most specific line counts
    "specific": (
        MARKER + RUN + SRT + 'model_executor/cuda_graph_runner.py", line 9, in capture\n    x()\n'
        "triton.runtime.errors.PTXASError: PTXAS error: codegen failed\nptxas fatal   : Value 'sm_199a' is not defined for option 'gpu-name'\n" + DEATH,
        "cuda_graph", "unsupported_arch", "sm_199a", "TRITON_PTXAS_PATH",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_an_expert_reads_it_from_the_text_alone(name: str) -> None:
    text, phase, cause, quoted, advised = CASES[name]
    found = report(text.encode())
    assert (found["outcome"], found["phase"], found["cause"]) == ("crashed", phase, cause)
    assert quoted in found["evidence"]["text"]
    assert advised in " ".join(found["advice"])
    assert "nothing known matches" not in " ".join(found["advice"])


def test_frames_of_other_packages_do_not_outvote_the_logs_own_lines() -> None:
    begun = "[2026-10-06 20:01:05 TP1] Load weight begin. avail mem=31.46 GB\n"
    text = begun + MARKER + PACKAGE + 'aiter/ops/shuffle.py", line 3, in shuffle\n    x()\nValueError: x\n' + DEATH
    assert report(text.encode())["phase"] == "load_weights"


@pytest.mark.parametrize("name", ["scheduler_1.0", "killed_1.0", "killed_0.1", "starting_1.0"])
def test_what_is_left_behind_by_another_node_says_so(name: str) -> None:
    """Recorded: the real SGLang over two nodes, one of which was killed. A feature that is off is no cause."""
    found = report((DATA / "demo" / "nodes" / f"{name}.log").read_bytes())
    assert (found["outcome"], found["cause"]) == ("crashed", "nccl")
    assert "by peer" in found["evidence"]["text"]
