"""The simulated server as a process: every shipped profile's fate, what it logs, how it ends."""

import contextlib
import os
import re
import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.ledger import assert_adds_up
from tui.core.sglang.tracker import LogTracker
from tui.demo import gpus, model

READY = "The server is fired up and ready to roll!"


@pytest.mark.parametrize(
    ("profile", "said", "stage"),
    [
        (
            "kimi-k2.5-eagle3-mem076",
            "Not enough memory. Please try to increase --mem-fraction-static. Current value",
            "Load weight end",
        ),
        ("kimi-k2.5-flashinfer-fusion", "Unsupported architecture", "Capture target decode CUDA graph begin"),
        ("kimi-k2.5-nccl-tree", "NCCL error: invalid usage", "Capture target decode CUDA graph begin"),
        ("kimi-k2.5-symm-mem", "no kernel image is available for execution on the device", "Init parallel begin"),
        (
            "kimi-k2.5-ep-a2a",
            "AssertionError: The 'flashinfer' A2A backend with moe_runner_backend='marlin' is not supported on sm_120",
            "Load weight begin",
        ),
    ],
)
def test_a_dead_end_dies_for_its_own_reason(launch: Any, profile: str, said: str, stage: str) -> None:
    server = launch.profile(profile)
    assert server.wait_exit() == 137  # as when a scheduler fails on a real host: the main process kills itself
    log = server.log
    assert READY not in log
    assert stage in log
    for rank in range(8):
        assert re.search(rf"^\[[^]]* TP{rank}\] Scheduler hit an exception: Traceback", log, re.M)
    assert said in log
    assert log.index(stage) < log.index("Scheduler hit an exception") < log.index(said)
    assert "Received sigquit from a child process. It usually means the child failed." in log


@pytest.mark.parametrize(
    "profile",
    [
        "kimi-k2.5-baseline-bs512",
        "kimi-k2.5-baseline-bs128",
        "kimi-k2.5-eagle3-mem088",
        "kimi-k2.5-custom-allreduce",
        "qwen3-0.6b-one-gpu",
    ],
)
def test_the_others_start_and_their_memory_adds_up(launch: Any, profile: str) -> None:
    server = launch.profile(profile)
    server.wait_ready()
    tracker = LogTracker(records=False)
    tracker.feed(server.log_path.read_bytes())
    for row in tracker.state().ledger:
        assert_adds_up(row)
        assert row.other_gib is not None
        assert row.other_gib < 1.5  # the graphs of a draft: rank 0 alone has lines for them
    assert server.call("GET", "/ready")[0] == 200
    server.process.send_signal(signal.SIGTERM)
    assert server.wait_exit() == 0


@pytest.mark.parametrize(("fraction", "starts"), [("0.83", False), ("0.84", True), ("0.90", True), ("0.91", False)])
def test_window_with_the_draft_model_on_board(launch: Any, fraction: str, starts: bool) -> None:
    server = launch([*launch.eagle, "--mem-fraction-static", fraction])
    if starts:
        server.wait_ready()
        return
    assert server.wait_exit() == 137
    if fraction == "0.91":
        assert "Capture cuda graph failed: CUDA out of memory. Tried to allocate" in server.log
        assert "Capturing batches (bs=48" in server.log
        assert "KV Cache is allocated" in server.log
    else:
        assert f"Current value: self.server_args.mem_fraction_static={fraction}" in server.log
        assert "KV Cache is allocated" not in server.log


def test_log_has_the_milestones_of_0_5_23_in_order(launch: Any) -> None:
    server = launch([*launch.eagle, "--mem-fraction-static", "0.88"])
    server.wait_ready()
    log = server.log
    at = -1
    for milestone in (
        "UserWarning: 'python -m sglang.launch_server' is still supported",
        "Max running requests is reset to 48 for speculative decoding.",
        "server_args={'model_path': '/data/models/Kimi-K2.5'",
        "TP0] Init parallel begin.",
        "sglang is using nccl==",
        "Custom allreduce is disabled because it's not supported on more than two PCIe-only GPUs",
        "TP0] Load weight begin. avail mem=94.",
        "\rLoading safetensors checkpoint shards:   0% Completed | 0/64 [00:00<?, ?it/s]",
        "Completed | 64/64",
        "type=KimiK25ForConditionalGeneration",
        "type=LlamaForCausalLMEagle3",
        "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 60032, KV size: 3.93 GB",
        "Capture target verify CUDA graph begin. backend=full, num_tokens_per_req=4",
        "23/23 [",
        "Capture target verify CUDA graph end. bs=[1, 2, 3",
        "Capture draft decode CUDA graph begin.",
        "Capture draft extend CUDA graph end.",
        "max_total_num_tokens=60032, chunked_prefill_size=8192",
        "Engine startup timings (s): load_weight=",
        "INFO:     Started server process [",
        "INFO:     Uvicorn running on http://127.0.0.1:",
        '"GET /model_info HTTP/1.1" 200 OK',
        "TP0] Prefill batch, #new-seq: 1",
        '"POST /generate HTTP/1.1" 200 OK',
        READY,
    ):
        found = log.find(milestone, at + 1)
        assert found > at, milestone
        at = found
    for message in ("Init parallel ends. elapsed=", "Load weight end.", "Memory pool end."):
        assert len(set(re.findall(rf"(TP\d)\] {re.escape(message)}", log))) == 8
    # The bar covers rank 0; one rank is slower, and says so last.
    ends = re.findall(r"(TP\d)\] Load weight end\. elapsed=[\d.]+ s, type=Kimi", log)
    assert ends[-1] == "TP5"


def test_one_gpu_has_no_rank_tags(launch: Any) -> None:
    server = launch.profile("qwen3-0.6b-one-gpu")
    server.wait_ready()
    assert "] Load weight begin. avail mem=" in server.log
    assert "TP0" not in server.log


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--no-such-flag", "3"], "error: unrecognized arguments: --no-such-flag 3"),
        (["--cuda-graph-max-bs", "128"], "error: ambiguous option: --cuda-graph-max-bs could match"),
        (["--mem-fraction-static", "much"], "error: argument --mem-fraction-static: invalid float value: 'much'"),
        (["--attention-backend", "nope"], "error: argument --attention-backend: invalid choice: 'nope'"),
    ],
)
def test_bad_flags_end_as_argparse_ends_them(launch: Any, words: list[str], said: str) -> None:
    server = launch([*launch.base, *words])
    assert server.wait_exit() == 2
    assert "usage: sglang serve" in server.log
    assert said in server.log


def test_bad_model_path_and_bad_draft_path(launch: Any) -> None:
    bad = launch(["--model-path", "/data/models/Kimi-K25", "--tp", "8"])
    words = list(launch.eagle)
    words[words.index("/data/models/Kimi-K2.5-Eagle3")] = "/data/models/none"
    bad_draft = launch(words)
    for server, path in ((bad, "/data/models/Kimi-K25"), (bad_draft, "/data/models/none")):
        assert server.wait_exit() == 1
        assert f"OSError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': '{path}'" in server.log


def test_nothing_can_be_downloaded(launch: Any) -> None:
    server = launch(["--model-path", "Qwen/Qwen3-32B"])
    assert server.wait_exit() == 1
    assert "OSError: We couldn't connect to 'https://huggingface.co' to load the files" in server.log


def test_a_draft_that_is_no_draft(launch: Any) -> None:
    words = [w for w in launch.eagle if w not in ("--speculative-draft-model-path", "/data/models/Kimi-K2.5-Eagle3")]
    server = launch([*words, "--mem-fraction-static", "0.88"])
    assert server.wait_exit() == 137
    assert "AttributeError: 'KimiK25ForConditionalGeneration' object has no attribute 'hot_token_id'" in server.log


def test_port_of_another_server_is_found_last(launch: Any) -> None:
    first = launch.profile("qwen3-0.6b-one-gpu")
    first.wait_ready()
    second = launch(["--model-path", "Qwen/Qwen3-0.6B", "--base-gpu-id", "1"], port=first.port)
    assert second.wait_exit() == 3
    log = second.log
    failed = f"[Errno 98] error while attempting to bind on address ('127.0.0.1', {first.port}): address already in use"
    assert failed in log
    assert log.index(failed) < log.index(READY)  # pleased with the other server, as the real one is
    assert "Uvicorn running" not in log


def test_port_of_something_else(launch: Any) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))  # bound, and nobody listens: the warm-up is refused
        server = launch(["--model-path", "Qwen/Qwen3-0.6B"], port=other.getsockname()[1])
        assert server.wait_exit() == 3
        assert READY not in server.log


def test_gpus_that_somebody_else_fills(launch: Any) -> None:
    first = launch([*launch.base, "--mem-fraction-static", "0.84"])
    first.wait_ready()
    second = launch([*launch.base, "--mem-fraction-static", "0.84"])
    assert second.wait_exit() == 137
    assert "torch.OutOfMemoryError: CUDA out of memory." in second.log
    assert "Load weight end" not in second.log
    uneven = launch(["--model-path", "/data/models/Kimi-K2.5", "--tp", "8"], CUDA_VISIBLE_DEVICES="0,1")
    assert uneven.wait_exit() == 1
    assert "invalid device ordinal" in uneven.log


def _memory(place: Path) -> list[int]:
    return [view.memory_used_mib for view in gpus.read(place / "root" / "gpu")]


def _wait_memory(place: Path, wanted: Any, deadline_s: float = 30.0) -> None:
    end = time.monotonic() + deadline_s
    while not all(wanted(mib) for mib in _memory(place)):
        assert time.monotonic() < end, _memory(place)
        time.sleep(0.05)


def test_memory_grows_while_loading_and_comes_back_after_a_kill(launch: Any, demo_place: Path) -> None:
    server = launch([*launch.base, "--mem-fraction-static", "0.84"], EAGLETUI_DEMO_SPEED="200")
    seen = set()
    while READY not in server.log:
        assert server.process.poll() is None
        seen.add(_memory(demo_place)[0] // 4096)
        time.sleep(0.05)
    assert len(seen) > 4
    ready = _memory(demo_place)
    # what is not free for torch at the end is what nvidia-smi shows
    match = re.search(r"max_total_num_tokens=.*available_gpu_mem=([\d.]+) GB", server.log)
    assert match is not None
    assert ready[0] / 1024 == pytest.approx(94.5 + model.RUNTIME_GIB - float(match[1]), abs=0.1)
    holders = {h.pid for view in gpus.read(demo_place / "root" / "gpu") for h in view.holders}
    assert len(holders) == 8
    os.kill(server.process.pid, signal.SIGKILL)
    assert server.wait_exit() == 137
    assert _memory(demo_place)[0] > 80_000  # not at once
    _wait_memory(demo_place, lambda mib: mib < 100)
    for pid in holders:
        end = time.monotonic() + 30
        while gpus.process_start(pid) is not None:
            assert time.monotonic() < end
            time.sleep(0.05)


def test_sigterm_drains(launch: Any) -> None:
    server = launch([*launch.base, "--mem-fraction-static", "0.84"])
    server.wait_ready()
    connection, response = server.open(
        "POST",
        "/generate",
        {"text": "Tell me more", "stream": True, "sampling_params": {"max_new_tokens": 80, "ignore_eos": True}},
    )
    with contextlib.closing(connection):
        response.readline()
        server.process.send_signal(signal.SIGTERM)
        server.wait_for("SIGTERM received.")
        assert server.call("GET", "/health")[0] == 503
        assert b'"completion_tokens":80' in response.read()
    assert server.wait_exit() == 0
    assert "Gracefully exiting... Remaining number of requests 0." in server.log
    assert "Health check request received during shutdown. Returning 503." in server.log


def test_a_scheduler_that_is_killed_takes_the_server_with_it(launch: Any, demo_place: Path) -> None:
    server = launch([*launch.base, "--mem-fraction-static", "0.84"])
    server.wait_ready()
    victim = gpus.read(demo_place / "root" / "gpu")[3].holders[0].pid
    os.kill(victim, signal.SIGKILL)
    assert server.wait_exit() == 137
    assert f"Subprocess scheduler_3 (pid={victim}) crashed with exit code -9." in server.log


def test_secrets_come_from_a_config_file(launch: Any, tmp_path: Path) -> None:
    config = tmp_path / "secret.yaml"
    config.write_text("api-key: 'se''cret'\nlog-level: info\n", encoding="utf-8")
    server = launch(["--model-path", "Qwen/Qwen3-0.6B", "--config", str(config)])
    server.wait_ready()
    assert server.call("GET", "/model_info")[0] == 401
    assert server.call("GET", "/health")[0] == 200
    assert server.call("GET", "/model_info", headers={"Authorization": "Bearer se'cret"})[0] == 200


def test_bad_speed_is_refused(launch: Any) -> None:
    server = launch(list(launch.base), EAGLETUI_DEMO_SPEED="fast")
    assert server.wait_exit() == 2
    assert "EAGLETUI_DEMO_SPEED must be a number above 0, not 'fast'" in server.log


def test_a_server_ends_with_its_host(launch: Any) -> None:
    server = launch(["--model-path", "Qwen/Qwen3-0.6B"], EAGLETUI_DEMO_HOST=f"{os.getpid()} 1")
    assert server.wait_exit() == 143
