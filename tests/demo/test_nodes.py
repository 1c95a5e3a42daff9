"""The simulated server over two nodes: what the nodes say, as the real ones were recorded to, and how they end."""

import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.demo.conftest import Launcher, Server, free_port
from tui.core.sglang.tracker import LogTracker
from tui.demo import gpus, place

RECORDED = Path(__file__).parents[1] / "data" / "demo" / "nodes"
READY = "The server is fired up and ready to roll!"
SMALL = ["--model-path", "Qwen/Qwen3-0.6B", "--tp", "2", "--disable-cuda-graph"]
DUMMY = "Dummy health check server started in background thread at 127.0.0.1:"
# What only a server on CPUs says, and what only one on GPUs does, which the stand-in is.
_OF_CPUS = (
    "SGLANG_CPU_OMP_THREADS_BIND", "The current platform", "The total number of ranks", "init_threads_binding",
    "init_cpu_threads_env", "Setup Custom allreduce", "Cannot detect CUDA", "multimem all-gather", "Using fallback token",
    "Using default HuggingFace chat template",
)  # fmt: skip
_OF_GPUS = ("Attention backend not specified", "Custom allreduce is disabled", "sglang is using nccl", "Ignore import")
_MESSAGE = re.compile(r"(?:\[[\d-]+ [\d:]+( TP\d)?\] |(?=RuntimeError: \[))(.*)")

Pair = tuple[Server, Server]


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Callable[..., Pair]]:
    """Starts both nodes of a server, each on a simulated host of its own."""
    launchers = []
    for name in ("demo", "demo2"):
        directory = tmp_path / name
        directory.mkdir(mode=0o700)
        place.build(directory)
        launchers.append(Launcher(directory))

    def start(words: list[str], **env: str) -> Pair:
        meeting = ["--nnodes", "2", "--dist-init-addr", f"127.0.0.1:{free_port()}"]
        first, second = (
            launcher([*words, *meeting, "--node-rank", str(rank)], **env) for rank, launcher in enumerate(launchers)
        )
        return first, second

    yield start
    for launcher in launchers:
        launcher.end()


def said(log: str) -> list[str]:
    """Messages in their order without what differs between two servers: figures, paths, requests, a tree's parts."""
    found = []
    for match in _MESSAGE.finditer(log):
        message = match[2]
        if message.startswith((*_OF_CPUS, *_OF_GPUS)) or '"GET /health' in message:
            continue
        message = re.sub(
            r"(?<=type=)\w+|(?<=dtype: )[\w.]+|server_args=.*|Tree cache.*|(?<=input throughput).*", "", message
        )
        message = re.sub(
            r"(c|g)pu graph: |available_[cg]pu_mem|, (quant|mem usage)=\S+|, KV size.*|, K size.*", "", message
        )
        found.append(f"{(match[1] or '').strip()[:2]} {re.sub(r'[-0-9.]+', 'N', message)}".strip())
    return found


def recorded(name: str, rank: int) -> list[str]:
    return said((RECORDED / f"{name}.{rank}.log").read_text(encoding="utf-8"))


def test_both_nodes_say_what_the_real_ones_say_from_their_start_to_a_stop_of_rank_0(nodes: Callable[..., Pair]) -> None:
    first, second = nodes(SMALL)
    first.wait_ready()
    assert second.call("GET", "/health")[0] == 200
    first.process.send_signal(signal.SIGTERM)
    assert (first.wait_exit(), second.wait_exit()) == (0, 0)
    assert said(second.log) == recorded("stopped", 1)
    # One request more was sent to the real one.
    requests = ("Prefill batch", "INFO:     N:N")
    assert [m for m in said(first.log) if not any(r in m for r in requests)] == [
        m for m in recorded("stopped", 0) if not any(r in m for r in requests)
    ]


@pytest.mark.parametrize("killed", [0, 1])
def test_a_node_that_is_killed_takes_the_other_with_it(nodes: Callable[..., Pair], killed: int) -> None:
    pair = nodes(SMALL)
    pair[0].wait_ready()
    os.kill(pair[killed].process.pid, signal.SIGKILL)
    other = pair[1 - killed]
    assert other.wait_exit() == 137
    assert said(other.log)[-4:] == recorded(f"killed_{killed}", 1 - killed)[-4:]


def test_a_node_that_dies_in_its_start_ends_the_start_of_the_other(nodes: Callable[..., Pair]) -> None:
    first, second = nodes(SMALL, EAGLETUI_DEMO_SPEED="20")
    second.wait_for("Load weight begin")
    os.killpg(second.process.pid, signal.SIGKILL)
    assert first.wait_exit() == 137
    assert said(first.log)[-4:] == recorded("starting_1", 0)[-4:]


def test_a_scheduler_that_dies_is_told_by_its_node_and_felt_by_the_other(nodes: Callable[..., Pair]) -> None:
    pair = nodes(SMALL)
    pair[0].wait_ready()
    victim = gpus.read(pair[1].log_path.parent / "root" / "gpu")[0].holders[0].pid
    os.kill(victim, signal.SIGKILL)
    assert [one.wait_exit() for one in pair] == [137, 0]
    assert f"Scheduler or DataParallelController {victim} terminated with -9" in pair[1].log
    for rank in (0, 1):
        assert said(pair[rank].log)[-2:] == recorded("scheduler_1", rank)[-2:]


def test_sixteen_ranks_wait_for_the_second_node(nodes: Callable[..., Pair]) -> None:
    """Its ranks are in its own log, its health says nothing, and the shortest wait names who came last."""
    words = ["--model-path", "/data/models/Kimi-K2.5", "--tp", "16", "--cuda-graph-max-bs-decode", "16"]
    first, second = nodes(words, EAGLETUI_DEMO_SPEED="500")
    second.wait_for(DUMMY)
    first.wait_ready()
    waits = []
    for server, ranks in ((first, range(8)), (second, range(8, 16))):
        tracker = LogTracker(records=False)
        tracker.feed(server.log_path.read_bytes())
        assert {rank.tag for rank in tracker.state().ranks} == {f"TP{rank}" for rank in ranks}
        waits.append(max(map(float, re.findall(r"Init parallel ends\. elapsed=([\d.]+)", server.log))))
    assert min(waits) > 0
    ends = [max(re.findall(r"\[(\S+ \S+) TP\d+\] Load weight end", server.log)) for server in (first, second)]
    assert ends[0] <= ends[1]
    assert READY not in second.log
    assert "Completed" not in second.log  # bars are rank 0's
    assert {view.memory_used_mib > 60_000 for view in gpus.read(second.log_path.parent / "root" / "gpu")} == {True}


def test_a_stop_of_another_node_waits_for_rank_0(nodes: Callable[..., Pair]) -> None:
    first, second = nodes(SMALL)
    first.wait_ready()
    second.process.send_signal(signal.SIGTERM)
    second.wait_for(
        "SIGTERM received on node_rank 1; waiting for the rank-0 ShutdownReq broadcast to stop the schedulers."
    )
    assert second.call("GET", "/health")[0] == 200
    first.process.send_signal(signal.SIGTERM)
    assert (first.wait_exit(), second.wait_exit()) == (0, 0)


def test_ranks_that_do_not_divide_among_the_nodes(nodes: Callable[..., Pair]) -> None:
    first, _ = nodes(["--model-path", "Qwen/Qwen3-0.6B", "--tp", "3"])
    assert first.wait_exit() == 1
    assert "AssertionError: tp_size must be divisible by number of nodes" in first.log
