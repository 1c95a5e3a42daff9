"""How the simulated server fails: the words of each failure, in the shape that SGLang 0.5.23 gives them.

Which configuration fails in which way is decided here too (`failure_of`), by the rules that docs/demo.md states.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tui.demo import model


@dataclass(frozen=True)
class Failure:
    """A failure of the schedulers: where it strikes and what their exception says."""

    stage: str  # dist_init, load, draft, pool, draft_pool, capture
    frames: tuple[tuple[str, int, str, str], ...]  # file, line, function, source
    error: str  # "Type: message", possibly several lines
    before: str = ""  # unprefixed text that precedes it
    cause: tuple[tuple[tuple[str, int, str, str], ...], str] | None = None  # an inner exception


_RUN = (
    "sglang/srt/managers/scheduler.py",
    6362,
    "run_scheduler_process",
    "scheduler = Scheduler(server_args, port_args)",
)
_INIT = ("sglang/srt/managers/scheduler.py", 568, "__init__", "self.init_model_worker()")
_POOLS = ("sglang/srt/managers/scheduler.py", 1137, "init_model_worker", "self.init_memory_pools()")
_GRAPHS = ("sglang/srt/managers/scheduler.py", 1141, "init_model_worker", "self.init_cuda_graphs()")
_LOAD = ("sglang/srt/model_executor/model_runner.py", 871, "load_model", "self.model = get_model(")
_CAPTURE = ("sglang/srt/model_executor/runner/decode_cuda_graph_runner.py", 318, "__init__", "self.capture()")
_ONE = (
    "sglang/srt/model_executor/runner/decode_cuda_graph_runner.py",
    402,
    "capture",
    "self.capture_one_batch_size(bs, forward)",
)

_CAPTURE_HINTS = (
    "Possible solutions:\n"
    "1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)\n"
    "2. set --cuda-graph-max-bs-decode to a smaller value (e.g., 16)\n"
    "3. disable torch compile by not using --enable-torch-compile\n"
    "4. disable CUDA graph by --cuda-graph-backend-decode=disabled. (Not recommended. Huge performance loss)\n"
    "Open an issue on GitHub https://github.com/sgl-project/sglang/issues/new/choose"
)


def traceback_text(site: str, failure: Failure) -> str:
    """The traceback after `Scheduler hit an exception: `."""

    def block(frames: tuple[tuple[str, int, str, str], ...], error: str) -> str:
        lines = ["Traceback (most recent call last):"]
        for file, line, function, source in frames:
            lines += [f'  File "{site}/{file}", line {line}, in {function}', f"    {source}"]
        return "\n".join([*lines, error]) + "\n"

    text = ""
    if failure.cause:
        text = block(*failure.cause) + "\nDuring handling of the above exception, another exception occurred:\n\n"
    return text + block(failure.frames, failure.error)


def _capturing(error: str, frame: tuple[str, int, str, str], before: str = "") -> Failure:
    message = error.partition(": ")[2] if error.startswith(("torch.", "RuntimeError")) else error
    return Failure(
        "capture",
        (_RUN, _INIT, _GRAPHS, (*_CAPTURE[:3], "raise Exception(")),
        f"Exception: Capture cuda graph failed: {message}\n{_CAPTURE_HINTS}",
        before,
        ((_CAPTURE, _ONE, frame), error),
    )


def pool_too_small(fraction: float) -> Failure:
    """Weights and draft model exceed the budget before the pool gets anything."""
    return Failure(
        "pool",
        (
            _RUN,
            _INIT,
            _POOLS,
            (
                "sglang/srt/model_executor/model_runner.py",
                982,
                "alloc_memory_pool",
                "result = self.kv_cache_configurator.configure(",
            ),
            (
                "sglang/srt/mem_cache/kv_cache_configurator.py",
                3190,
                "_resolve_memory_pool_config",
                "raise RuntimeError(",
            ),
        ),
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. "
        f"Current value: self.server_args.mem_fraction_static={fraction:g}",
    )


def capture_oom(gpu: int, wanted_gib: float, free_gib: float) -> Failure:
    """The largest batch does not fit beside the budget."""
    used = model.TORCH_TOTAL_GIB - free_gib
    return _capturing(
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {wanted_gib:.2f} GiB. GPU {gpu} has a total "
        f"capacity of {model.TORCH_TOTAL_GIB:.2f} GiB of which {free_gib:.2f} GiB is free. Including non-PyTorch memory, "
        f"this process has {used:.2f} GiB memory in use.",
        (
            "sglang/srt/layers/logits_processor.py",
            614,
            "_get_logits",
            "logits = torch.matmul(hidden_states, lm_head.weight.T)",
        ),
    )


def weights_oom(gpu: int, free_gib: float) -> Failure:
    """The weights do not fit into what somebody else left free."""
    return Failure(
        "load",
        (
            _RUN,
            _INIT,
            _LOAD,
            ("sglang/srt/layers/moe/fused_moe_triton/layer.py", 402, "create_weights", "w13_weight = torch.empty("),
        ),
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 896.00 MiB. GPU {gpu} has a total capacity of "
        f"{model.TORCH_TOTAL_GIB:.2f} GiB of which {free_gib * 1024:.2f} MiB is free.",
    )


def unbalanced(least_gib: float, most_gib: float) -> Failure:
    """Somebody else is on some of the GPUs."""
    return Failure(
        "dist_init",
        (_RUN, _INIT, ("sglang/srt/distributed/bootstrap.py", 211, "check_memory_balance", "raise ValueError(")),
        "ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes. "
        f"pre_model_load_memory={least_gib:.2f}, local_gpu_memory={most_gib:.2f}, local_gpu_memory * 0.9={0.9 * most_gib:.2f}",
    )


def draft_is_no_draft(kind: str) -> Failure:
    """A model loaded as EAGLE-3 draft that is none; what a missing draft path does, too."""
    return Failure(
        "draft_pool",
        (
            _RUN,
            _INIT,
            ("sglang/srt/managers/scheduler.py", 1106, "init_memory_pools", "self.draft_worker.alloc_memory_pool("),
            (
                "sglang/srt/speculative/eagle_worker_v2.py",
                366,
                "init_lm_head",
                "if self.draft_runner.model.hot_token_id is not None:",
            ),
            ("torch/nn/modules/module.py", 1967, "__getattr__", "raise AttributeError("),
        ),
        f"AttributeError: '{kind}' object has no attribute 'hot_token_id'",
    )


def failure_of(
    args: Mapping[str, Any], env: Mapping[str, str], config: model.Config, architecture: str
) -> Failure | None:
    """How this configuration fails on this host, None where it starts. What strikes first in a start wins."""
    if args["enable_torch_symm_mem"] or args["enable_symm_mem"]:
        return Failure(
            "dist_init",
            (
                _RUN,
                _INIT,
                (
                    "sglang/srt/distributed/parallel_state.py",
                    1604,
                    "init_model_parallel_group",
                    "self.torch_symm_mem_comm = TorchSymmMemCommunicator(",
                ),
                (
                    "torch/distributed/_symmetric_memory/__init__.py",
                    1712,
                    "rendezvous",
                    "return _SymmetricMemory.rendezvous(tensor, group_name)",
                ),
            ),
            "RuntimeError: Unsupported architecture: symmetric memory multicast has no path for compute capability 12.0 "
            "(sm_120); CUDA error: no kernel image is available for execution on the device",
        )
    if args["moe_a2a_backend"] not in (None, "none"):
        backend = args["moe_a2a_backend"]
        return Failure(
            "load",
            (
                _RUN,
                _INIT,
                _LOAD,
                (
                    "sglang/srt/layers/moe/token_dispatcher/flashinfer.py",
                    88,
                    "__init__",
                    "assert runner in SUPPORTED_RUNNERS, (",
                ),
            ),
            f"AssertionError: The '{backend}' A2A backend with moe_runner_backend='marlin' is not supported on sm_120: "
            "it needs flashinfer_cutlass or flashinfer_trtllm with NVFP4 experts",
        )
    if config.speculative and config.steps and architecture and "eagle" not in architecture.lower():
        early: Failure | None = draft_is_no_draft(architecture)
    else:
        early = None
    if config.pool_tokens <= 0:
        return pool_too_small(config.fraction)
    if early:
        return early
    if config.graphs:
        if config.outside_gib < config.capture_peak_gib:
            wanted = config.capture_peak_gib - 0.6 * config.outside_gib
            return capture_oom(0, max(0.25, wanted), 0.4 * config.outside_gib)
        fusion = args["enable_flashinfer_allreduce_fusion"] or args["flashinfer_allreduce_fusion_backend"]
        if fusion and not args["enforce_disable_flashinfer_allreduce_fusion"]:
            return _capturing(
                "RuntimeError: Unsupported architecture: trtllm_allreduce_fusion is built for SM90 and SM10X, this device "
                "is SM120; no kernel image is available for execution on the device",
                (
                    "sglang/srt/layers/flashinfer_comm_fusion.py",
                    231,
                    "flashinfer_allreduce_residual_rmsnorm",
                    "comm.allreduce_fusion(",
                ),
            )
        if env.get("NCCL_ALGO", "").lower() in ("tree", "allreduce:tree") and config.tp > 1:
            return _capturing(
                "RuntimeError: NCCL error: invalid usage (run with NCCL_DEBUG=WARN for details)",
                (
                    "sglang/srt/distributed/device_communicators/pynccl_wrapper.py",
                    329,
                    "NCCL_CHECK",
                    'raise RuntimeError(f"NCCL error: {error_str}")',
                ),
                "gpubox:{pid}:{pid} [{gpu}] enqueue.cc:2231 NCCL WARN Error : no algorithm/protocol available for function "
                "AllReduce with datatype ncclBfloat16. NCCL_ALGO was set to Tree, which this stream capture does not allow.\n",
            )
    return None
