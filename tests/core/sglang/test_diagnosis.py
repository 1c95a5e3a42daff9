"""Every failure of our tables once, who wins when many speak, and what is advised."""

import re
from pathlib import Path

import pytest

from tests.support.log_reports import report
from tui.core.model.phases import Outcome, Phase
from tui.core.sglang.diagnose import diagnose
from tui.core.sglang.diagnosis import Diagnosis, ExitEvidence
from tui.core.sglang.memory import fraction_window, lowered_fraction
from tui.core.sglang.patterns import patterns
from tui.core.sglang.state import LedgerRow, StartupState
from tui.core.sglang.tracker import LogTracker

DATA = Path(__file__).parents[2] / "data" / "logs"
DOCS = Path(__file__).parents[3] / "docs" / "diagnosis.md"
T = "[2026-10-06 20:01:0{} TP0] "
MAIN = "[2026-10-06 20:01:09] "
MARKER = "Scheduler hit an exception: Traceback (most recent call last):\n"
FRAME = (
    '  File "/opt/sglang/srt/managers/scheduler.py", line 1, in run_scheduler_process\n    scheduler = Scheduler(x)\n'
)
LOADING = T.format(1) + "Load weight begin. avail mem=94.50 GB\n"
LOADED = LOADING + T.format(2) + "Load weight end. elapsed=9.0 s, type=Kimi, avail mem=22.90 GB, mem usage=71.60 GB.\n"
DRAFT = (
    LOADED
    + T.format(3)
    + "Load weight begin. avail mem=22.90 GB\n"
    + T.format(3)
    + "Load weight end. elapsed=1.0 s, type=LlamaForCausalLMEagle3, avail mem=21.30 GB, mem usage=1.60 GB.\n"
)
POOLED = LOADED + T.format(4) + "Memory pool end. avail mem=11.30 GB\n"
CAPTURING = POOLED + T.format(5) + "Capture cuda graph begin. avail mem=11.30 GB\n"
HTTP = CAPTURING + MAIN + "INFO:     Uvicorn running on http://127.0.0.1:30000 (Press CTRL+C to quit)\n"
READY = HTTP + MAIN + "The server is fired up and ready to roll!\n"
DEATH = MAIN + "Received sigquit from a child process. It usually means the child failed.\n"


def in_trace(context: str, line: str) -> str:
    return context + T.format(6) + MARKER + FRAME + line + "\n\n" + DEATH


def stamped(context: str, line: str) -> str:
    return context + T.format(6) + line + "\n" + DEATH


def read(text: str) -> Diagnosis:
    tracker = LogTracker(records=False)
    tracker.feed(text.encode())
    tracker.flush()
    found, _ = diagnose(tracker.state())
    assert found is not None
    return found


OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 95.00 GiB of which 311.25 MiB is free."
# id of the pattern, the log, the cause, the phase
EACH: list[tuple[str, str, str, Phase]] = [
    ("args_unrecognized", "usage: x\nlaunch_server.py: error: unrecognized arguments: --foo\n", "bad_flag", Phase.LAUNCH),
    ("args_ambiguous", "usage: x\nlaunch_server.py: error: ambiguous option: --cuda-graph-max-bs could match --cuda-graph-max-bs-decode, --cuda-graph-max-bs-prefill\n", "bad_flag", Phase.LAUNCH),
    ("args_invalid", "sglang serve: error: argument --attention-backend: invalid choice: 'nope'\n", "bad_flag", Phase.LAUNCH),
    ("args_required", "launch_server.py: error: the following arguments are required: --model-path\n", "bad_flag", Phase.LAUNCH),
    ("trust_remote_code", "Traceback (most recent call last):\n" + FRAME + "ValueError: Loading /m requires you to execute the configuration file in that repo. Please pass the argument `trust_remote_code=True` to allow custom code to be run.\n", "bad_flag", Phase.LAUNCH),
    ("flag_combination", "Traceback (most recent call last):\n" + FRAME + "ValueError: speculative_eagle_topk > 1 with page_size > 1 is unstable\n", "bad_flag", Phase.LAUNCH),
    ("not_divisible", in_trace(LOADING, "ValueError: Weight output_partition_size = 576 is not divisible by weight quantization block_n = 128."), "bad_flag", Phase.LOAD_WEIGHTS),
    ("model_path", "Traceback (most recent call last):\n" + FRAME + "OSError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': '/no/such/model'.\n", "bad_model_path", Phase.LAUNCH),
    ("model_path_missing", "Traceback (most recent call last):\n" + FRAME + "OSError: /m does not appear to have a file named config.json.\n", "bad_model_path", Phase.LAUNCH),
    ("model_files", in_trace(LOADING, "safetensors_rust.SafetensorError: Error while deserializing header: MetadataIncompleteBuffer"), "bad_model_path", Phase.LOAD_WEIGHTS),
    ("architecture_unknown", in_trace(LOADING, "ValueError: Model architectures ['Foo'] are not supported for now."), "unsupported_model", Phase.LOAD_WEIGHTS),
    ("hf", in_trace(LOADING, "requests.exceptions.ConnectTimeout: HTTPSConnectionPool(host='huggingface.co', port=443): Max retries exceeded"), "hf_download", Phase.LOAD_WEIGHTS),
    ("arch_build", in_trace(CAPTURING, "RuntimeError: RMSNorm failed with error code no kernel image is available for execution on the device"), "unsupported_arch", Phase.CUDA_GRAPH),
    ("arch_kernel", in_trace(CAPTURING, "RuntimeError: Error in function 'TllmGenFmhaRunner' at fmhaRunner.cuh:37: Unsupported architecture"), "unsupported_arch", Phase.CUDA_GRAPH),
    ("arch_kernel", in_trace(LOADED, "AssertionError: FlashAttention v3 Backend requires SM>=80 and SM<=90."), "unsupported_arch", Phase.MEMORY_POOL),
    ("arch_shared_memory", in_trace(READY, "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 106496, Hardware limit: 101376."), "unsupported_arch", Phase.READY),
    ("arch_resources", in_trace(HTTP, "RuntimeError: CUDA error: too many resources requested for launch"), "unsupported_arch", Phase.WARMUP),
    ("import_kernel", "Traceback (most recent call last):\n" + FRAME + "ImportError: x.so: undefined symbol: _ZN3c10\n", "import_error", Phase.LAUNCH),
    ("import_missing", "Traceback (most recent call last):\n" + FRAME + "ModuleNotFoundError: No module named 'flashinfer'\n", "import_error", Phase.LAUNCH),
    ("jit", in_trace(CAPTURING, "RuntimeError: Ninja build failed. Ninja output:"), "jit_compile", Phase.CUDA_GRAPH),
    ("pool_small", in_trace(LOADED, "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: self.server_args.mem_fraction_static=0.76"), "oom_kv_pool", Phase.MEMORY_POOL),
    ("pool_small", in_trace(LOADED, "ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.7."), "oom_kv_pool", Phase.MEMORY_POOL),
    ("pool_tiny", in_trace(LOADED, "AssertionError: Memory pool size is too small"), "oom_kv_pool", Phase.MEMORY_POOL),
    ("imbalance", in_trace(LOADING, "ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes."), "oom_weights", Phase.LOAD_WEIGHTS),
    ("runtime_oom", stamped(READY, "Prefill out of memory. Try to lower your batch size."), "oom_serving", Phase.READY),
    ("oom_before", in_trace(T.format(1) + "Init torch distributed begin.\n", OOM), "oom_weights", Phase.DISTRIBUTED_INIT),
    ("oom_weights", in_trace(LOADING, OOM), "oom_weights", Phase.LOAD_WEIGHTS),
    ("oom_pool_allocation", in_trace(LOADED, OOM), "oom_kv_pool", Phase.MEMORY_POOL),
    ("oom_graph", in_trace(CAPTURING, OOM), "oom_cuda_graph", Phase.CUDA_GRAPH),
    ("oom_serving", in_trace(READY, OOM), "oom_serving", Phase.READY),
    ("host_memory", in_trace(LOADING, "RuntimeError: [enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory"), "host_oom", Phase.LOAD_WEIGHTS),
    ("arch_fusion", in_trace(CAPTURING, "RuntimeError: Unsupported architecture: trtllm_allreduce_fusion is built for SM90 and SM10X, this device is SM120"), "unsupported_arch", Phase.CUDA_GRAPH),
    ("arch_symmetric_memory", in_trace("", "RuntimeError: Unsupported architecture: symmetric memory multicast has no path for compute capability 12.0"), "unsupported_arch", Phase.LAUNCH),
    ("arch_a2a", in_trace(LOADING, "AssertionError: The 'flashinfer' A2A backend with moe_runner_backend='marlin' is not supported on sm_120"), "unsupported_arch", Phase.LOAD_WEIGHTS),
    ("nccl_algo", "gpubox:1:1 [0] enqueue.cc:2231 NCCL WARN Error : no algorithm/protocol available for function AllReduce\n" + in_trace(CAPTURING, "RuntimeError: NCCL error: invalid usage (run with NCCL_DEBUG=WARN for details)"), "nccl", Phase.CUDA_GRAPH),
    ("transformers_old", "Traceback (most recent call last):\n" + FRAME + "ValueError: The checkpoint you are trying to load has model type `kimi_k3` but Transformers does not recognize this architecture.\n", "unsupported_model", Phase.LAUNCH),
    ("host_limit", in_trace(LOADING, "RuntimeError: Resource temporarily unavailable"), "host_oom", Phase.LOAD_WEIGHTS),
    ("kernel_oom", LOADED + "Memory cgroup out of memory: Killed process 4242 (python)\n", "host_oom", Phase.LOAD_WEIGHTS),
    ("oom_graph_wrapped", "Exception: Capture CUDA graph failed: CUDA out of memory. Tried to allocate 448.00 MiB.\n" + DEATH, "oom_cuda_graph", Phase.CUDA_GRAPH),
    ("device_ordinal", in_trace("", "RuntimeError: CUDA error: invalid device ordinal"), "bad_flag", Phase.DISTRIBUTED_INIT),
    ("custom_allreduce", in_trace(CAPTURING, "RuntimeError: Failed: Cuda error /sgl-kernel/csrc/allreduce/custom_all_reduce.cuh:455 'invalid argument'"), "cuda_error", Phase.CUDA_GRAPH),
    ("disk_full", in_trace(LOADING, "OSError: [Errno 28] No space left on device"), "unknown", Phase.LOAD_WEIGHTS),
    ("draft_attribute", in_trace(DRAFT, "AttributeError: 'LlamaForCausalLM' object has no attribute 'set_embed'"), "draft_config", Phase.MEMORY_POOL),
    ("draft_weights", in_trace(LOADED + T.format(3) + "Load weight begin. avail mem=22.90 GB\n", "KeyError: 'model.layers.0.mlp.experts.w13'"), "draft_config", Phase.DRAFT_MODEL),
    ("draft_text", in_trace(LOADED, "AssertionError: EAGLE3 currently only supports 1 layer"), "draft_config", Phase.MEMORY_POOL),
    ("host_address", HTTP + MAIN + "ERROR:    [Errno 99] error while attempting to bind on address ('10.0.0.9', 30000): cannot assign requested address\n", "bad_flag", Phase.WARMUP),
    ("arch_compiler", in_trace(CAPTURING, "RuntimeError: Internal Triton PTX codegen error\nptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'"), "unsupported_arch", Phase.CUDA_GRAPH),
    ("kernel_oom", LOADING + "slurmstepd: error: Detected 1 oom_kill event in StepId=1.0. Some of the step tasks have been OOM Killed.\n", "host_oom", Phase.LOAD_WEIGHTS),
    ("oom_graph", in_trace(CAPTURING, "RuntimeError: Triton Error [CUDA]: out of memory"), "oom_cuda_graph", Phase.CUDA_GRAPH),
    ("port_http", READY.replace("fired up", "warming up") + MAIN + "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 30000): address already in use\n", "port_in_use", Phase.WARMUP),
    ("port_dist", in_trace("", "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 41873, code: -98, name: EADDRINUSE"), "port_in_use", Phase.LAUNCH),
    ("port_derived", "Traceback (most recent call last):\n" + FRAME + "ValueError: metrics_port at 40290 is not available in 30 seconds.\n", "port_in_use", Phase.LAUNCH),
    ("port_other", in_trace("", "zmq.error.ZMQError: Address already in use (addr='tcp://127.0.0.1:30001')"), "port_in_use", Phase.LAUNCH),
    ("proxy", HTTP + MAIN + "Initialization failed. warmup error: Traceback (most recent call last):\nAssertionError: res=<Response [502]>, res.text=''\n", "proxy", Phase.WARMUP),
    ("warmup_timeout", HTTP + MAIN + "Initialization failed. warmup error: Traceback (most recent call last):\nrequests.exceptions.ReadTimeout: HTTPConnectionPool(host='127.0.0.1', port=30000): Read timed out. (read timeout=600)\n", "watchdog", Phase.WARMUP),
    ("capture_wrapper_piecewise", in_trace(CAPTURING, "Exception: Fail when using backend: breakable for prefill runner."), "piecewise_cuda_graph", Phase.CUDA_GRAPH),
    ("cuda", in_trace(READY, "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"), "cuda_error", Phase.READY),
    ("nccl_timeout", LOADED + "[rank3]:[E1006 20:01:09 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7)\n" + DEATH, "nccl", Phase.LOAD_WEIGHTS),
    ("nccl", in_trace("", "RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)"), "nccl", Phase.LAUNCH),
    ("rendezvous", in_trace("", "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined."), "nccl", Phase.LAUNCH),
    ("rank_skew", in_trace(LOADED, "ValueError: TP rank 0 could finish the model loading, but there are other ranks that didn't finish loading."), "watchdog", Phase.MEMORY_POOL),
    ("watchdog", READY + T.format(9) + "Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)\n", "watchdog", Phase.READY),
    ("tokenizer", "Traceback (most recent call last):\n" + FRAME + "ValueError: Couldn't instantiate the backend tokenizer from one of:\n", "tokenizer", Phase.LAUNCH),
    ("exit_sigkill", LOADED + MAIN + "Rank 0 scheduler died during initialization (exit code: -9).\n", "host_oom", Phase.LOAD_WEIGHTS),
    ("exit_native", LOADED + MAIN + "Subprocess scheduler_0 (pid=1) crashed with exit code -11. Triggering SIGQUIT for cleanup...\n", "unknown", Phase.LOAD_WEIGHTS),
    ("exit_other", LOADED + MAIN + "Rank 0 scheduler is dead. Please check if there are relevant logs.\n", "unknown", Phase.LOAD_WEIGHTS),
    ("exit_sigterm", READY + MAIN + "Subprocess scheduler_0 (pid=1) crashed with exit code -15. Triggering SIGQUIT for cleanup...\n", "unknown", Phase.READY),
    ("graph_failed", CAPTURING + T.format(6) + MARKER + "Exception: Capture cuda graph failed: something new\n" + DEATH, "unknown", Phase.CUDA_GRAPH),
    ("killed", LOADED + "Killed\n", "host_oom", Phase.LOAD_WEIGHTS),
    ("nccl", in_trace("", "RuntimeError: NCCL error: unhandled cuda error (run with NCCL_DEBUG=INFO for details)"), "nccl", Phase.LAUNCH),
    ("nccl", in_trace(LOADING, "torch.distributed.DistBackendError: NCCL error in: /pytorch/ProcessGroupNCCL.cpp:2395, unhandled cuda error, NCCL version 2.27.3\nncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 999 'unknown error'"), "nccl", Phase.LOAD_WEIGHTS),
    ("jit_link", in_trace(CAPTURING, "RuntimeError: ninja exited with status 1\n/usr/bin/ld: cannot find -lcuda: No such file or directory\ncollect2: error: ld returned 1 exit status\nninja: build stopped: subcommand failed."), "jit_compile", Phase.CUDA_GRAPH),
    ("jit_symbol", in_trace(CAPTURING, "RuntimeError: Ninja build failed.\n/usr/bin/ld: a.o: in function `f()':\na.cu:(.text+0x1): undefined reference to `g()'\ncollect2: error: ld returned 1 exit status"), "jit_compile", Phase.CUDA_GRAPH),
    ("jit_kernel", in_trace(READY, "triton.compiler.errors.CompilationError: at 12:4:\nAttributeError('x')"), "jit_compile", Phase.READY),
    ("leak", "ValueError: pool memory leak detected! [full] total=9, available=7\n" + DEATH, "engine_bug", Phase.SERVING),
    ("container_gpu", "Error response from daemon: could not select device driver \"nvidia\" with capabilities: [[gpu]]\n", "container", Phase.LAUNCH),
    ("container_gpu", "Error: setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=all\n", "container", Phase.LAUNCH),
    ("container_gpu", "nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown\n", "container", Phase.LAUNCH),
    ("container_rights", "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock: Get \"http://x\": dial unix /var/run/docker.sock: connect: permission denied\n", "container", Phase.LAUNCH),
    ("container_engine", "docker: Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?.\nSee 'docker run --help'.\n", "container", Phase.LAUNCH),
    ("container_engine", "Cannot connect to Podman. Please verify your connection to the Linux system using `podman system connection list`\n", "container", Phase.LAUNCH),
    ("container_image", "Unable to find image 'lmsysorg/sglang:no' locally\ndocker: Error response from daemon: manifest for lmsysorg/sglang:no not found: manifest unknown: manifest unknown.\n", "container", Phase.LAUNCH),
    ("container_image", "Error response from daemon: No such image: lmsysorg/sglang:no\n", "container", Phase.LAUNCH),
    ("container_image", "Error: lmsysorg/sglang:no: image not known\n", "container", Phase.LAUNCH),
    ("container_image", "Error: short-name \"sglang\" did not resolve to an alias and no unqualified-search registries are defined\n", "container", Phase.LAUNCH),
    ("container_name", "docker: Error response from daemon: Conflict. The container name \"/sglang\" is already in use by container \"0a\". You have to remove (or rename) that container to be able to reuse that name.\n", "container", Phase.LAUNCH),
    ("container_name", "Error: creating container storage: the container name \"sglang\" is already in use by 0a. You have to remove that container to be able to reuse that name: that name is already in use\n", "container", Phase.LAUNCH),
    ("container_port", "docker: Error response from daemon: driver failed programming external connectivity on endpoint s (0a): Error starting userland proxy: listen tcp4 0.0.0.0:30000: bind: address already in use.\n", "container", Phase.LAUNCH),
    ("container_port", "Error: rootlessport listen tcp 0.0.0.0:30000: bind: address already in use\n", "container", Phase.LAUNCH),
    ("container_port", "Error: pasta failed with exit code 1:\nFailed to bind port 30000 (Address already in use) for option '-t 30000-30000:30000-30000', exiting\n", "container", Phase.LAUNCH),
    ("container_start", "docker: Error response from daemon: failed to create task for container: OCI runtime create failed: runc create failed: exec: \"sglang\": executable file not found in $PATH: unknown.\n", "container", Phase.LAUNCH),
    ("container_gpu", "Cannot start service sglang: OCI runtime create failed: error running hook #0, stderr: Auto-detected mode as legacy\nnvidia-container-cli: initialization error: nvml error: driver not loaded: unknown\n", "container", Phase.LAUNCH),
    ("container_port", "driver failed programming external connectivity on endpoint s (0a): Error starting userland proxy: Bind for 0.0.0.0:80: unexpected error (Failure EADDRINUSE)\n", "container", Phase.LAUNCH),
    ("container_disk", "Error: writing blob: storing blob to file \"/var/tmp/storage1/2\": write /var/tmp/storage1/2: no space left on device\n", "container", Phase.LAUNCH),
    ("killed", LOADED + DEATH + "Killed\n", "unknown", Phase.LOAD_WEIGHTS),
]  # fmt: skip


@pytest.mark.parametrize(("id_", "text", "cause", "phase"), EACH, ids=[f"{at}-{row[0]}" for at, row in enumerate(EACH)])
def test_each_failure(id_: str, text: str, cause: str, phase: Phase) -> None:
    tracker = LogTracker(records=False)
    tracker.feed(text.encode())
    tracker.flush()
    state = tracker.state()
    assert state.outcome == Outcome.CRASHED
    assert id_ in [clue.id for clue in state.clues]
    found, observations = diagnose(state)
    assert found is not None
    assert (found.cause, found.phase) == (cause, phase)
    assert found.title
    assert found.advice
    assert "{" not in found.title + "".join(found.advice)
    assert found.evidence is not None
    assert observations == ()


@pytest.mark.parametrize(
    ("context", "line", "cause"),
    [
        (
            LOADING,
            "ValueError: Not enough host memory available. Requesting 100.00 GB but only have 50.00 GB free.",
            "host_oom",
        ),
        (LOADING, "AttributeError: module 'sgl_kernel' has no attribute 'fp8_blockwise_scaled_mm'", "import_error"),
        (READY, "RuntimeError: DeepEP error: CPU recv timeout", "nccl"),
        (LOADED, "RuntimeError: Not enough GPU memory for mamba cache", "oom_kv_pool"),
        (
            CAPTURING,
            "RuntimeError: No supported CUDA architectures found for major versions [9, 10].",
            "unsupported_arch",
        ),
        (LOADING, "ValueError: type fp8e4nv not supported in this architecture.", "unsupported_arch"),
        (
            LOADING,
            "ValueError: The quantization method fp8 is not supported for the current GPU. Minimum capability: 89. Current capability: 80.",
            "unsupported_arch",
        ),
        (
            LOADING,
            "ValueError: Weight output_partition_size = 576 is not divisible by weight quantization block_n = 128.",
            "bad_flag",
        ),
        (CAPTURING, "nvcc fatal   : Unsupported gpu architecture 'compute_120a'", "unsupported_arch"),
        (
            CAPTURING,
            "RuntimeError: Failed to find C compiler. Please specify via CC environment variable.",
            "jit_compile",
        ),
        (
            HTTP,
            "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
            "oom_serving",
        ),
        (HTTP, "RuntimeError: CUDA error: out of memory", "oom_serving"),
        (LOADING, "torch.cuda.OutOfMemoryError: HIP out of memory. Tried to allocate 3.50 GiB.", "oom_weights"),
        (LOADING, "OSError: You are trying to access a gated repo.", "hf_download"),
        ("", "RuntimeError: No CUDA GPUs are available", "driver_mismatch"),
    ],
)
def test_more_of_the_field(context: str, line: str, cause: str) -> None:
    assert read(in_trace(context, line)).cause == cause


EXCERPTS = [
    (
        [
            'File "/x/sglang/srt/model_executor/cuda_graph_runner.py", line 1, in __init__',
            'File "/x/sglang/srt/model_executor/cuda_graph_runner.py", line 2, in capture_one_batch_size',
        ],
        "oom_cuda_graph",
        Phase.CUDA_GRAPH,
    ),
    (['File "/x/sglang/srt/managers/scheduler.py", line 1, in event_loop_overlap'], "oom_serving", Phase.SERVING),
    (['File "/x/sglang/srt/model_executor/model_runner.py", line 1, in load_model'], "oom_weights", Phase.LOAD_WEIGHTS),
    (['File "/x/sglang/srt/model_executor/model_runner.py", line 1, in init_memory_pool'], "oom_kv_pool", Phase.MEMORY_POOL),
]  # fmt: skip


@pytest.mark.parametrize(("frames", "cause", "phase"), EXCERPTS)
def test_a_traceback_alone_says_how_far_the_rank_was(frames: list[str], cause: str, phase: Phase) -> None:
    text = T.format(1) + MARKER + FRAME + "".join(f"  {frame}\n    x()\n" for frame in frames) + OOM + "\n\n" + DEATH
    found = read(text)
    assert (found.cause, found.phase) == (cause, phase)


def test_every_cause_has_words() -> None:
    documented = re.findall(r"^\| `(\w+)` \|", DOCS.read_text(), re.M)
    assert set(patterns().causes) == set(documented)
    assert {failure.cause for failure in patterns().failures if failure.cause} <= set(documented)
    assert patterns().problems == ()


# ---- who wins -------------------------------------------------------------------------------------------------------


def test_memory_beats_the_communication_trouble_it_causes() -> None:
    nccl = "[2026-10-06 20:01:06 TP1] " + MARKER + FRAME + "RuntimeError: NCCL error: remote process exited\n\n"
    oom = "[2026-10-06 20:01:06 TP5] " + MARKER + FRAME + OOM + "\n\n"
    gloo = (
        "[2026-10-06 20:01:07 TP2] "
        + MARKER
        + FRAME
        + "RuntimeError: [gloo] Connection closed by peer [10.0.0.1]:1\n\n"
    )
    found = read(CAPTURING + nccl + gloo + oom + DEATH)
    assert (found.cause, found.rank) == ("oom_cuda_graph", "TP5")


def test_the_first_of_several_roots_wins() -> None:
    second = "[2026-10-06 20:01:07 TP3] " + MARKER + FRAME + "RuntimeError: CUDA error: unspecified launch failure\n\n"
    found = read(CAPTURING + T.format(6) + MARKER + FRAME + OOM + "\n\n" + second + DEATH)
    assert (found.cause, found.rank) == ("oom_cuda_graph", "TP0")


def test_an_import_error_that_was_handled_is_not_the_cause() -> None:
    chain = (
        FRAME
        + "ImportError: cannot import name 'x'\n\nDuring handling of the above exception, another exception occurred:\n\n"
        + "Traceback (most recent call last):\n"
        + FRAME
        + OOM
    )
    assert read(in_trace(LOADING, chain)).cause == "oom_weights"


@pytest.mark.parametrize(
    "text",
    [
        "Setup Custom allreduce failed with CUDA error: invalid argument. To silence this warning, specify --disable-custom-all-reduce.",
        "Ignore import error when loading sglang.srt.models.grok: CUDA error: no kernel image is available",
        "OpenAI Responses API is disabled: ImportError",
        "Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=True)",
        "kill_process_tree called: parent_pid=1, include_parent=True, pid=1",
        "Custom allreduce is disabled because it's not supported on more than two PCIe-only GPUs.",
    ],
)
def test_alarms_that_mean_nothing(text: str) -> None:
    tracker = LogTracker(records=False)
    tracker.feed((READY + T.format(9) + text + "\n").encode())
    tracker.flush()
    assert tracker.state().outcome == Outcome.READY
    assert diagnose(tracker.state()) == (None, ())


def test_a_benign_traceback_is_not_the_cause_of_a_later_death() -> None:
    benign = (
        MAIN
        + "Can not initialize OpenAIServingResponses, error: Traceback (most recent call last):\n"
        + FRAME
        + "ModuleNotFoundError: No module named 'openai_harmony'\n"
    )
    assert read(in_trace(benign + LOADING, OOM)).cause == "oom_weights"


def test_sigterm_to_the_whole_group_is_a_stop() -> None:
    raw = (DATA / "recorded" / "sigterm_to_process_group.log").read_bytes()
    assert report(raw)["outcome"] == "stopped"
    tracker = LogTracker(records=False)
    tracker.feed(raw)
    assert diagnose(tracker.state(), exit=ExitEvidence(137)) == (None, ())


# ---- advice -----------------------------------------------------------------------------------------------------------


def test_a_pool_without_room_raises_the_fraction() -> None:
    args = MAIN + "server_args=ServerArgs(model_path='/m', mem_fraction_static=0.76, speculative_algorithm='EAGLE3')\n"
    found = read(
        args + in_trace(DRAFT, "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.")
    )
    assert found.set == {"mem-fraction-static": 0.84}
    assert found.advice[0].startswith("Raise --mem-fraction-static to 0.84")
    assert "draft" in found.title
    assert not any("ower --mem-fraction" in text for text in found.advice)


def test_no_fraction_can_work() -> None:
    heavy = LOADED.replace("avail mem=22.90 GB, mem usage=71.60", "avail mem=1.90 GB, mem usage=92.60")
    found = read(in_trace(heavy, "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."))
    assert found.set == {}
    assert "no value works" in found.advice[0]
    assert "--tp" in found.advice[1]


def test_capture_without_memory_lowers_the_fraction() -> None:
    args = MAIN + "server_args=ServerArgs(model_path='/m', mem_fraction_static=0.92, cuda_graph_max_bs=512)\n"
    found = read(args + in_trace(CAPTURING, OOM))
    assert found.set == {"mem-fraction-static": 0.89}
    assert not any("aise --mem-fraction" in text for text in found.advice)


def test_capture_without_memory_and_without_slack_shrinks_the_graphs() -> None:
    args = MAIN + "server_args={'model_path': '/m', 'mem_fraction_static': 0.79, 'cuda_graph_max_bs_decode': 512}\n"
    found = read(args + in_trace(CAPTURING, OOM))
    assert found.set == {"cuda-graph-max-bs-decode": 256}
    assert "aise" not in " ".join(found.advice)


def test_weights_that_do_not_fit_say_nothing_of_the_fraction() -> None:
    assert "mem-fraction" not in " ".join(read(in_trace(LOADING, OOM)).advice)


def test_an_unknown_error_while_the_prefill_graph_is_captured() -> None:
    capture = T.format(6) + "Capture piecewise CUDA graph begin. avail mem=9.00 GB\n"
    found = read(in_trace(CAPTURING + capture, "RuntimeError: something new"))
    assert (found.cause, found.set) == ("piecewise_cuda_graph", {"disable-piecewise-cuda-graph": True})


@pytest.mark.parametrize(
    ("id_", "change"),
    [
        ("arch_fusion", {"enable-flashinfer-allreduce-fusion": False}),
        ("arch_a2a", {"moe-a2a-backend": "none"}),
        ("custom_allreduce", {"disable-custom-all-reduce": True}),
    ],
)
def test_what_this_machine_cannot_do_is_switched_off(id_: str, change: dict[str, object]) -> None:
    assert read(next(row[1] for row in EACH if row[0] == id_)).set == change


def test_symmetric_memory_is_switched_off_by_the_flag_that_is_on() -> None:
    args = MAIN + "server_args={'model_path': '/m', 'enable_torch_symm_mem': True, 'enable_symm_mem': False}\n"
    text = next(row[1] for row in EACH if row[0] == "arch_symmetric_memory")
    assert read(args + text).set == {"enable-torch-symm-mem": False}


def test_nccl_is_explained_by_its_own_warning() -> None:
    found = read(next(row[1] for row in EACH if row[0] == "nccl_algo"))
    assert "NCCL_ALGO" in found.advice[0]
    assert found.rank == "TP0"


def test_remote_code_is_set() -> None:
    text = next(row[1] for row in EACH if row[0] == "trust_remote_code")
    assert read(text).set == {"trust-remote-code": True}


def test_shapes_that_clash_in_the_draft_worker() -> None:
    frame = '  File "/opt/sglang/srt/speculative/eagle_worker_v2.py", line 1, in draft_forward\n'
    found = read(in_trace(HTTP, frame + "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x64 and 128x64)"))
    assert (found.cause, found.phase) == ("draft_config", Phase.WARMUP)


# ---- observations -----------------------------------------------------------------------------------------------------


def test_an_accept_length_of_one_is_observed() -> None:
    args = MAIN + "server_args={'speculative_algorithm': 'EAGLE', 'speculative_draft_model_path': '/m/kimi-eagle3'}\n"
    decode = (
        "Decode batch, #running-req: 1, #token: 310, accept len: {}, gen throughput (token/s): 41.30, #queue-req: 0\n"
    )
    tracker = LogTracker(records=False)
    tracker.feed((args + READY + (T.format(9) + decode.format("1.00")) * 3).encode())
    found, observations = diagnose(tracker.state())
    assert found is None
    assert [item.cause for item in observations] == ["draft_config"]
    assert observations[0].observation
    assert observations[0].set == {"speculative-algorithm": "EAGLE3"}
    assert observations[0].evidence is not None
    assert observations[0].evidence.line == tracker.state().lines
    tracker.feed((T.format(9) + decode.format("2.10")).encode())
    assert diagnose(tracker.state()) == (None, ())


def test_slow_tokenizer_warnings_are_reported_once() -> None:
    line = "Using a slow tokenizer. This might cause a significant slowdown. Consider using a fast tokenizer instead.\n"
    tracker = LogTracker(records=False)
    tracker.feed((LOADING + line * 214).encode())
    found, observations = diagnose(tracker.state())
    assert found is None
    assert [item.cause for item in observations] == ["tokenizer"]
    assert "214" in observations[0].title
    assert tracker.state().outcome == Outcome.STARTING


DECODE = "Decode batch, #running-req: 64, #token: 9, {usage}, gen throughput (token/s): 41.30, #queue-req: {queue}\n"
RETRACTED = "KV cache pool is full. Retract requests. #retracted_reqs: {}, #new_tokens_gained: 9\n"


def observed(text: str) -> tuple[Diagnosis, ...]:
    found, observations = diagnose(read_state(READY + text))
    assert found is None
    return observations


def read_state(text: str) -> StartupState:
    tracker = LogTracker(records=False)
    tracker.feed(text.encode())
    tracker.flush()
    return tracker.state()


def test_a_full_pool_is_told_with_its_figures_and_is_no_cause() -> None:
    lines = [DECODE.format(usage="token usage: 0.98, mamba usage: 0.40", queue=queue) for queue in (10, 40, 90)]
    (seen,) = observed("".join(T.format(9) + line for line in lines))
    assert seen.title == "The KV pool is full (token usage 0.98) and 90 requests wait (10 2 decode lines earlier)."
    assert "max-running-requests" in " ".join(seen.advice)
    document = report((READY + "".join(T.format(9) + line for line in lines)).encode())
    assert (document["cause"], [item["cause"] for item in document["observations"]]) == (None, ["kv_pool_full"])
    for usage, queue in (("token usage: 0.90", 9), ("token usage: 0.99", 0)):
        assert observed("".join(T.format(9) + line for line in (*lines, DECODE.format(usage=usage, queue=queue)))) == ()
    assert observed(T.format(9) + lines[0] + T.format(9) + lines[1]) == ()


def test_retracted_requests_are_counted_and_forgotten() -> None:
    lines = [
        T.format(9) + text
        for text in (RETRACTED.format(3), RETRACTED.format(4), "Testing retraction. #retracted_reqs: 9, x\n")
    ]
    (seen,) = observed("".join(lines))
    assert seen.title.startswith("The KV pool was full 2 times: 7 running requests were taken back")
    assert "--schedule-conservativeness" in seen.advice[0]
    quiet = T.format(9) + DECODE.format(usage="token usage: 0.10", queue=0)
    assert observed("".join(lines) + quiet * 6_000) == ()


def test_a_pool_may_grow_where_memory_is_left() -> None:
    assert "11.3 GiB are free" in " ".join(observed(T.format(9) + RETRACTED.format(1))[0].advice)


HELD = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 79.15 GiB of which "
    "0.31 GiB is free. {} Of the allocated memory 17.00 GiB is allocated by PyTorch, and 300.00 MiB is reserved by PyTorch."
)
OWN = "Including non-PyTorch memory, this process has 18.00 GiB memory in use."


@pytest.mark.parametrize(
    ("who", "words"),
    [
        (f"Process 4711 has 60.20 GiB memory in use. {OWN}", "process 4711 held 60.2 of the 79.2 GiB"),
        ("Process 4711 has 40.20 GiB memory in use. Process 12 has 18.10 GiB memory in use. Process 13 has 20 GiB memory in use.", "processes 4711, 13 held 60.2"),
        ("Process 12 has 78.60 GiB memory in use.", None),
        (OWN, None),
        (f"Process 4711 has 900.00 MiB memory in use. {OWN}", None),
    ],
)  # fmt: skip
def test_who_else_holds_the_gpus_memory(who: str, words: str | None) -> None:
    for context in (LOADING, POOLED, READY):
        found = read(in_trace(context, HELD.format(who)))
        assert found.cause.startswith("oom_")
        assert (words in found.title and words in found.advice[0]) if words else "process" not in found.title


def test_health_without_answer_is_observed() -> None:
    found = report((DATA / "corpus" / "log-health-detokenizer-wedged.log").read_bytes())
    assert (found["outcome"], found["cause"]) == ("ready", "watchdog")


# ---- what the host knows ------------------------------------------------------------------------------------------------


def of_exit(text: str, exit: ExitEvidence) -> Diagnosis | None:
    tracker = LogTracker(records=False)
    tracker.feed(text.encode())
    tracker.flush()
    return diagnose(tracker.state(), exit=exit)[0]


@pytest.mark.parametrize(
    ("exit", "cause"),
    [
        (ExitEvidence(137), "host_oom"),
        (ExitEvidence(-9), "host_oom"),
        (ExitEvidence(139), "unknown"),
        (ExitEvidence(1), "unknown"),
        (ExitEvidence(None), "unknown"),
        (ExitEvidence(137, dmesg_oom="Out of memory: Killed process 4242 (python)"), "host_oom"),
        (ExitEvidence(0), None),
        (ExitEvidence(143), "unknown"),  # not by us: somebody ended it
        (ExitEvidence(131), "unknown"),
        (ExitEvidence(-6), "unknown"),
        (ExitEvidence(-11), "unknown"),
        (ExitEvidence(134, dmesg_xid="NVRM: Xid (PCI:0000:01:00): 79"), "cuda_error"),
        (ExitEvidence(130), None),
        (ExitEvidence(137, stopped_by_us=True), None),
        (ExitEvidence(None, alive=True), None),
    ],
)
def test_a_death_without_a_word(exit: ExitEvidence, cause: str | None) -> None:
    found = of_exit(LOADED, exit)
    assert (found.cause if found else None) == cause
    if found is not None:
        assert found.phase == Phase.LOAD_WEIGHTS


@pytest.mark.parametrize(
    ("exit", "title"),
    [
        (ExitEvidence(137), "most likely the host's memory ran out"),
        (ExitEvidence(137, kernel_silent=True), "the kernel's log says nothing about memory"),
        (ExitEvidence(137, dmesg_oom="Out of memory: Killed process 4242", kernel_silent=True), "the kernel killed"),
        (ExitEvidence(131), "SIGQUIT"),
        (ExitEvidence(-3), "SIGQUIT"),
        (ExitEvidence(143), "SIGTERM"),
        (ExitEvidence(139), "native code"),
        (ExitEvidence(134, dmesg_xid="NVRM: Xid 79"), "Xid"),
    ],
)
def test_a_death_without_a_word_is_explained_by_the_host(exit: ExitEvidence, title: str) -> None:
    found = of_exit(LOADED, exit)
    assert found is not None
    assert title in found.title
    assert found.evidence is not None
    assert found.advice


def test_the_internal_port_that_was_given_is_named() -> None:
    args = "[2026-10-06 20:01:03] server_args={'nccl_port': 29500}\n"
    error = "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: false"
    found = of_exit(args + in_trace("", error), ExitEvidence(137))
    assert found is not None
    assert found.title == "The port 29500 (--nccl-port) is held by another process."


def test_137_is_no_news_where_the_log_names_the_cause() -> None:
    found = of_exit(in_trace(CAPTURING, OOM), ExitEvidence(137))
    assert found is not None
    assert found.cause == "oom_cuda_graph"


def test_137_after_a_scheduler_failure_without_known_words_is_not_the_memory_of_the_host() -> None:
    found = of_exit(in_trace(LOADED, "FooError: bar"), ExitEvidence(137))
    assert found is not None
    assert found.cause == "unknown"


# ---- arithmetic ---------------------------------------------------------------------------------------------------------


def test_window_of_the_motivating_case() -> None:
    ledger = [LedgerRow(f"TP{n}", before_gib=94.5, weights_gib=71.6 + (n == 0) * 0.1, draft_gib=1.6) for n in range(8)]
    window = fraction_window(ledger, 0.76)
    assert window is not None
    assert (window.least, window.suggested, window.most) == (0.78, 0.84, 0.95)


def test_window_without_figures() -> None:
    assert fraction_window([LedgerRow("TP0", weights_gib=1.0)]) is None
    assert fraction_window([]) is None
    assert lowered_fraction([], 0.9, None) == 0.88
    assert lowered_fraction([LedgerRow("TP0", 94.5, 80.0)], 0.88, 1.0) is None


# ---- the user's own patterns --------------------------------------------------------------------------------------------


@pytest.fixture
def own_patterns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EAGLETUI_HOME", str(tmp_path))
    directory = tmp_path / "config" / "patterns"
    directory.mkdir(parents=True)
    patterns.cache_clear()
    yield directory
    patterns.cache_clear()


def test_a_users_failure_and_milestone(own_patterns: Path) -> None:
    (own_patterns / "mine.toml").write_text(
        """
[[milestone]]
id = "fetch"
event = "load_begin"
regex = '^Fetching experts'

[[failure]]
id = "quota"
cause = "host_oom"
regex = 'quux quota (?P<name>\\w+) reached'
title = "The quota {name} is used up."
advice = ["Ask for more of {name}."]
"""
    )
    tracker = LogTracker(records=False)
    tracker.feed(
        (T.format(1) + "Fetching experts\n" + T.format(2) + MARKER + FRAME + "quux quota home reached\n").encode()
    )
    assert tracker.state().phase == Phase.LOAD_WEIGHTS
    found, _ = diagnose(tracker.state())
    assert found is not None
    assert (found.cause, found.title, found.advice) == (
        "host_oom",
        "The quota home is used up.",
        ("Ask for more of home.",),
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[failure]\n", "mine.toml"),
        ("[[failure]]\nid = 'x'\nregex = '('\n", "failure 1 (x): regex"),
        ("[[failure]]\nid = 'x'\nregex = 'a'\nphases = ['loading']\n", "no phase 'loading'"),
        ("[[failure]]\nid = 'x'\nregx = 'a'\n", "unknown key regx"),
        ("[[milestone]]\nid = 'x'\nregex = 'a'\nevent = 'start'\n", "no event 'start'"),
        ("[[milestones]]\nid = 'x'\n", "unknown table milestones"),
        ("[[note]]\nregex = 3\n", "regex: must be a text"),
        ("[[failure]]\nregex = 'a'\n", "id is missing"),
        ("[[failure]]\nid = 'x'\nregex = 'a'\nfatal = 1\n", "fatal: must be true or false"),
    ],
)
def test_a_wrong_pattern_is_one_line_and_stops_nothing(own_patterns: Path, text: str, words: str) -> None:
    (own_patterns / "mine.toml").write_text(text)
    (own_patterns / "other.toml").write_text("[[note]]\nregex = '(?i)fine (a)'\n")
    tables = patterns()
    assert len(tables.problems) == 1
    assert words in tables.problems[0]
    assert "\n" not in tables.problems[0]
    assert tables.notes.search("FINE a")
    assert read(in_trace(CAPTURING, OOM)).cause == "oom_cuda_graph"


@pytest.mark.parametrize(
    ("args", "line", "offered", "useless"),
    [
        # Weights alone exceed the budget: nothing that shrinks the pool makes room for it.
        ("", "Not enough memory. Please try to increase --mem-fraction-static.", ("--tp", "quantization"), ("dp", "context", "fp8", "draft")),
        (", dp_size=4", "Not enough memory. Please try to increase --mem-fraction-static.", ("fewer dp replicas",), ("fp8",)),
        (", dp_size=1", "Not enough memory. Please try to increase --mem-fraction-static.", ("--tp",), ("dp replicas",)),
        (", speculative_algorithm='EAGLE3'", "Not enough memory. Please try to increase --mem-fraction-static.", ("smaller draft model",), ("fp8",)),
        ("", "AssertionError: Memory pool size is too small", ("--kv-cache-dtype fp8_e4m3",), ("dp replicas",)),
        (", kv_cache_dtype='fp8_e5m2'", "AssertionError: Memory pool size is too small", ("--tp",), ("--kv-cache-dtype",)),
    ],
)  # fmt: skip
def test_only_what_can_help_a_pool_without_room_is_offered(args, line, offered, useless) -> None:
    printed = f"server_args=ServerArgs(model_path='/m', mem_fraction_static=0.7{args})\n"
    (less,) = [text for text in read(MAIN + printed + in_trace(LOADED, line)).advice if text.startswith("Or need less")]
    assert all(words in less for words in offered)
    assert not any(words in less for words in useless)
