"""Suspicions: when they come, what they rest on, and when silence is no hang."""

import asyncio
import os
import socket
import sys
from dataclasses import replace

import pytest

from tui.core.host.gpus import Gpu, GpuSample
from tui.core.link.local import LocalTransport
from tui.core.model.phases import Outcome, Phase
from tui.core.server.host_look import HostLook, Process, look, read_look
from tui.core.server.launch_records import PhaseHistory
from tui.core.server.run_end import kernel_words, read_kernel
from tui.core.server.watchdog import Watchdog, slower_than_ever
from tui.core.sglang.state import DecodeFigures, Progress, StartupState
from tui.core.sglang.tracker import LogTracker

LOADING = StartupState(phase=Phase.LOAD_WEIGHTS, lines=40, progress=Progress("shards", 12, 64))
SERVING = StartupState(
    phase=Phase.SERVING, lines=900, batch_line=880, last_decode=DecodeFigures(running=3, accept_len=2.3)
)


def sample(at: float, *, util: float = 0.0, power: float = 90.0, memory: float = 9000.0, gpus: int = 2) -> GpuSample:
    return GpuSample(
        at,
        tuple(
            Gpu(
                index=index,
                uuid=f"GPU-{index}",
                name="RTX",
                memory_used_mib=memory,
                memory_total_mib=97887.0,
                utilization_pct=util,
                power_w=power,
                power_limit_w=600.0,
            )
            for index in range(gpus)
        ),
        "nvml",
    )


def processes(*names: str, cpu_s: float = 10.0, read: int | None = 0) -> HostLook:
    return HostLook(tuple(Process(100 + at, 1, cpu_s, read, name) for at, name in enumerate(names)), frozenset())


def started(state: StartupState = LOADING) -> Watchdog:
    dog = Watchdog((), 0.0)
    dog.saw_log(0.0, state)
    return dog


@pytest.mark.parametrize(
    ("phase", "quiet", "soft", "hard"),
    [
        (Phase.DISTRIBUTED_INIT, 50, 70, 310),
        (Phase.LOAD_WEIGHTS, 170, 190, 910),
        (Phase.MEMORY_POOL, 50, 70, 310),
        (Phase.CUDA_GRAPH, 170, 190, 910),
        (Phase.WARMUP, 110, 130, 630),
    ],
)
def test_silence_has_limits_by_phase(phase: Phase, quiet: float, soft: float, hard: float) -> None:
    state = replace(LOADING, phase=phase, progress=None)
    dog = started(state)
    assert dog.judge(quiet, phase, Outcome.STARTING, state).suspicion is None
    suspicion = dog.judge(soft, phase, Outcome.STARTING, state).suspicion
    assert suspicion is not None
    assert (suspicion.kind, suspicion.hard) == ("silence", False)
    assert phase.replace("_", " ") in suspicion.text
    suspicion = dog.judge(hard, phase, Outcome.STARTING, state).suspicion
    assert suspicion is not None
    assert suspicion.hard


def test_a_bar_that_moves_is_progress_and_lines_of_other_ranks_beside_it_are_not() -> None:
    dog = started()
    for second in range(10, 300, 10):
        dog.saw_log(second, replace(LOADING, lines=40 + second))
    assert dog.judge(300, Phase.LOAD_WEIGHTS, Outcome.STARTING, LOADING).suspicion is not None
    dog.saw_log(300, replace(LOADING, lines=340, progress=Progress("shards", 13, 64)))
    assert dog.judge(400, Phase.LOAD_WEIGHTS, Outcome.STARTING, LOADING).suspicion is None


def test_warnings_of_the_slow_tokenizer_are_no_sign_of_life() -> None:
    state = replace(LOADING, phase=Phase.DISTRIBUTED_INIT, progress=None)
    dog = started(state)
    for second in range(3, 100, 3):
        dog.saw_log(second, replace(state, lines=40 + second, slow_tokenizer=second))
    assert dog.judge(100, Phase.DISTRIBUTED_INIT, Outcome.STARTING, state).suspicion is not None


@pytest.mark.parametrize(
    ("working", "silent", "suspected"),
    [
        ("Entering DeepGEMM JIT Pre-Compile session", 1100, False),
        ("Entering DeepGEMM JIT Pre-Compile session", 1300, True),
        ("Running FlashInfer autotune", 350, False),
        ("Running FlashInfer autotune", 500, True),
        (None, 350, True),
    ],
)
def test_slow_work_that_names_itself_has_more_time(working: str | None, silent: float, suspected: bool) -> None:
    state = replace(LOADING, phase=Phase.CUDA_GRAPH, progress=None, working=working)
    dog = started(state)
    assert (dog.judge(silent, Phase.CUDA_GRAPH, Outcome.STARTING, state).suspicion is not None) is suspected


def test_compilers_that_run_are_no_hang() -> None:
    state = replace(LOADING, phase=Phase.CUDA_GRAPH, progress=None)
    dog = started(state)
    dog.saw_host(290.0, processes("python", "ptxas", "ninja", "nvcc"))
    verdict = dog.judge(300.0, Phase.CUDA_GRAPH, Outcome.STARTING, state)
    assert verdict.suspicion is None
    assert verdict.busy == "kernels are being compiled (ninja, nvcc, ptxas)"
    dog.saw_host(320.0, processes("python"))
    assert dog.judge(330.0, Phase.CUDA_GRAPH, Outcome.STARTING, state).suspicion is not None


def test_gpu_memory_that_grows_or_a_disk_that_is_read_is_loading() -> None:
    dog = started()
    for at in range(0, 300, 5):
        dog.saw_gpus(at, sample(at, memory=9000.0 + 10 * at))
    verdict = dog.judge(300, Phase.LOAD_WEIGHTS, Outcome.STARTING, LOADING)
    assert verdict.suspicion is None
    assert verdict.busy is not None
    assert "GPU memory grows" in verdict.busy
    dog = started()
    dog.saw_host(280.0, processes("python", read=0))
    dog.saw_host(295.0, processes("python", read=3_000_000_000))
    assert dog.judge(300, Phase.LOAD_WEIGHTS, Outcome.STARTING, LOADING).busy == "it reads 200 MB/s from disks"


def test_the_evidence_is_named() -> None:
    dog = started()
    for at in range(200, 300, 5):
        dog.saw_gpus(at, sample(at))
    dog.saw_host(280.0, processes("python", "sglang::scheduler_TP0"))
    dog.saw_host(295.0, processes("python", "sglang::scheduler_TP0"))
    suspicion = dog.judge(300, Phase.LOAD_WEIGHTS, Outcome.STARTING, LOADING).suspicion
    assert suspicion is not None
    assert suspicion.evidence == (
        "no process of it uses the CPU",
        "GPUs at 0 % and 15% of their power limit",
        "GPU memory does not change",
        "2 processes are alive",
    )


def test_full_utilisation_at_idle_power_without_progress() -> None:
    state = replace(LOADING, phase=Phase.CUDA_GRAPH, progress=Progress("capture", 3, 22))
    dog = started(state)
    for at in range(0, 80, 5):
        dog.saw_gpus(at, sample(at, util=100.0, power=120.0))
    suspicion = dog.judge(80, Phase.CUDA_GRAPH, Outcome.STARTING, state).suspicion
    assert suspicion is not None
    assert suspicion.kind == "spinning"
    assert "ranks may wait for each other" in suspicion.text


@pytest.mark.parametrize(
    "odd",
    [
        {"power": 400.0},  # it works
        {"util": 20.0},  # one that does not spin
        {"gpus": 0},  # nothing seen
    ],
)
def test_what_is_not_spinning(odd: dict[str, float]) -> None:
    state = replace(LOADING, phase=Phase.CUDA_GRAPH, progress=Progress("capture", 3, 22))
    dog = started(state)
    for at in range(0, 80, 5):
        values = {"util": 100.0, "power": 120.0, **odd}
        dog.saw_gpus(at, sample(at, **values))  # type: ignore[arg-type]
    assert dog.judge(80, Phase.CUDA_GRAPH, Outcome.STARTING, state).suspicion is None


def test_progress_ends_the_spin() -> None:
    dog = started()
    for at in range(0, 80, 5):
        dog.saw_gpus(at, sample(at, util=100.0, power=120.0))
        dog.saw_log(at, replace(LOADING, progress=Progress("shards", at, 64)))
    assert dog.judge(80, Phase.LOAD_WEIGHTS, Outcome.STARTING, LOADING).suspicion is None


# ---- serving ----------------------------------------------------------------------------------------------------------


def serving(*, held_s: float, gpus: GpuSample | None = None) -> Watchdog:
    """The last batch line came at 10; a connection is open since `held_s` before 130."""
    dog = Watchdog((), 0.0)
    dog.saw_log(10.0, SERVING)
    for at in range(40, 131, 15):
        ends = frozenset({"0100007F:D431"}) if at >= 130 - held_s else frozenset({f"0100007F:{at:04X}"})
        dog.saw_host(at, HostLook(processes("sglang::scheduler").processes, ends))
    return dog


def test_a_request_that_waits_without_a_batch_line_is_suspicious() -> None:
    suspicion = serving(held_s=60).judge(131, Phase.SERVING, Outcome.READY, SERVING).suspicion
    assert suspicion is not None
    assert suspicion.kind == "stuck"
    assert suspicion.text == "1 request is waiting and no batch line came for 2 min: it may be stuck"
    assert "the last decode line had 3 running" in suspicion.evidence
    assert not suspicion.hard


def test_an_idle_server_is_not_stuck() -> None:
    dog = Watchdog((), 0.0)
    dog.saw_log(10.0, SERVING)
    for at in range(40, 3000, 15):
        dog.saw_host(at, processes("sglang::scheduler"))
    assert dog.judge(3000, Phase.SERVING, Outcome.READY, SERVING).suspicion is None
    # Neither are connections that come and go.
    assert serving(held_s=10).judge(131, Phase.SERVING, Outcome.READY, SERVING).suspicion is None


def test_a_batch_line_ends_the_suspicion() -> None:
    dog = serving(held_s=60)
    dog.saw_log(131.0, replace(SERVING, lines=901, batch_line=901))
    assert dog.judge(132, Phase.SERVING, Outcome.READY, SERVING).suspicion is None


def test_a_silent_log_or_a_rare_one_accuses_nobody() -> None:
    for state in (
        replace(SERVING, server_args={"enable_http2": True}),
        replace(SERVING, batch_line=None),
        replace(SERVING, server_args={"decode_log_interval": 100_000}),
    ):
        dog = Watchdog((), 0.0)
        dog.saw_log(10.0, state)
        for at in range(40, 131, 15):
            dog.saw_host(at, HostLook((), frozenset({"x"})))
        assert dog.judge(131, Phase.SERVING, Outcome.READY, state).suspicion is None


def test_spinning_after_ready_needs_no_look_at_the_host() -> None:
    dog = Watchdog((0,), 0.0)
    dog.saw_log(10.0, SERVING)
    for at in range(10, 110, 5):
        busy = sample(at, util=100.0, power=130.0)
        idle = sample(at).gpus[1]
        dog.saw_gpus(at, replace(busy, gpus=(busy.gpus[0], idle)))  # GPU 1 is not ours
    suspicion = dog.judge(110, Phase.SERVING, Outcome.READY, SERVING).suspicion
    assert suspicion is not None
    assert suspicion.kind == "spinning"


def test_an_accept_length_that_fell_is_told_from_one_that_never_was() -> None:
    dog = Watchdog((), 0.0)
    ones = replace(SERVING, accept_one=8, accept_one_line=77, last_decode=DecodeFigures(accept_len=1.0))
    dog.saw_log(1.0, ones)
    assert dog.fallen_accept(ones) is None
    dog.saw_log(2.0, SERVING)
    assert dog.fallen_accept(SERVING) is None
    found = dog.fallen_accept(ones)
    assert found is not None
    assert found.observation
    assert found.title.startswith("The accept length fell from 2.30 to 1.00")
    assert found.evidence is not None
    assert found.evidence.line == 77


def test_nobody_asks_the_host_while_lines_come() -> None:
    dog = started()
    assert not dog.wants_look(20, Outcome.STARTING)
    assert dog.wants_look(40, Outcome.STARTING)
    assert not dog.wants_look(40, Outcome.CRASHED)
    dog.saw_log(50.0, SERVING)
    assert not dog.wants_look(60, Outcome.READY)
    assert dog.wants_look(90, Outcome.READY)


def test_the_tracker_knows_the_newest_batch_line_in_both_ways() -> None:
    log = (
        b"[2026-10-06 20:03:08] The server is fired up and ready to roll!\n"
        + b"[2026-10-06 20:03:09] Prefill batch, #new-seq: 1, #new-token: 6, #cached-token: 0, #running-req: 0\n" * 3
        + b'[2026-10-06 20:03:09] INFO:     10.0.0.1:4242 - "POST /generate HTTP/1.1" 200 OK\n' * 2
    )
    for records in (True, False):
        tracker = LogTracker(records)
        tracker.feed(log)
        assert tracker.state().batch_line == 4


# ---- slower than ever ---------------------------------------------------------------------------------------------------

USUAL = {Phase.LOAD_WEIGHTS: PhaseHistory(580.0, 560.0, 600.0, 4)}


def test_slower_than_ever_has_reasons() -> None:
    phase = Phase.LOAD_WEIGHTS
    assert slower_than_ever(phase, {phase: 610.0}, USUAL) is None
    assert slower_than_ever(phase, {phase: 610.0}, {}) is None
    slow = slower_than_ever(phase, {phase: 700.0}, USUAL, busy="it reads 40 MB/s from disks", version_changed=True)
    assert slow is not None
    assert (slow.took_s, slow.slowest_s) == (700.0, 600.0)
    assert slow.reasons[0] == "it reads 40 MB/s from disks"
    assert "another version" in slow.reasons[1]
    assert "page cache" in slow.reasons[2]


# ---- the look at a host ---------------------------------------------------------------------------------------------------


async def test_a_real_look() -> None:
    """Our own session: this process, a child with a compiler's name that works, and a connection to a port."""
    program = "import ctypes,time\nctypes.CDLL(None).prctl(15, b'ptxas', 0, 0, 0)\nprint(flush=True)\nwhile True: pass"
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE, start_new_session=True
    )
    transport = LocalTransport()
    await transport.connect()
    try:
        assert child.stdout is not None
        await child.stdout.readline()
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            with socket.create_connection(("127.0.0.1", port)) as client:
                seen = await look(transport, child.pid, port)
                here = client.getsockname()[1]
                assert seen.connections == {f"0100007F:{here:04X}"}
        assert seen.compilers == ("ptxas",)
        assert [(process.pid, process.parent) for process in seen.processes] == [(child.pid, os.getpid())]
        first = seen.cpu_s
        for _ in range(600):
            again = await look(transport, child.pid, None)
            if again.cpu_s > first:
                break
        assert again.cpu_s > first
        assert again.connections == frozenset()
    finally:
        child.kill()
        await child.wait()
    assert (await look(transport, child.pid, port)).processes == ()
    await transport.close()


def test_lines_that_are_none_are_left_out() -> None:
    text = "hz x\nproc\nproc 1 2 three - name\nproc 7 1 250 - sglang::scheduler TP0\nconn\n\nmotd of a host"
    seen = read_look(text)
    assert seen.processes == (Process(7, 1, 2.5, None, "sglang::scheduler TP0"),)
    assert seen.connections == frozenset()


OOM = "[ 5000.123456] Out of memory: Killed process 4242 (python) total-vm:1kB"
XID = "[ 5001.5] NVRM: Xid (PCI:0000:01:00): 79, pid=4242, GPU has fallen off the bus."


@pytest.mark.parametrize(
    ("uptime", "line", "window", "found"),
    [
        ("5060.5 1.0", OOM, (0.0, 120.0), True),
        ("90000.5 1.0", OOM, (0.0, 120.0), False),  # yesterday
        ("5060.5 1.0", OOM, (3000.0, 4000.0), False),  # before the run was started
        ("9060.5 1.0", OOM, (4200.0, 4300.0), False),  # after it had ended
        ("5060.5 1.0", OOM.partition("] ")[2], (0.0, 120.0), False),  # of unknown age
        ("5060.5 1.0", OOM, None, False),
        ("", OOM, (0.0, 120.0), False),
    ],
)
def test_only_the_kernels_words_of_the_time_of_the_run_count(
    uptime: str, line: str, window: tuple[float, float] | None, found: bool
) -> None:
    words = read_kernel(f"{uptime}\nreadable\n{line}\n", window)
    assert words.oom == (line if found else None)
    assert words.readable is bool(uptime)


def test_the_kernel_names_failing_gpus_and_may_be_out_of_bounds() -> None:
    words = read_kernel(f"5060.5 1.0\nreadable\n{OOM}\n{XID}\n", (0.0, 120.0))
    assert (words.oom, words.xid) == (OOM, XID)
    assert not read_kernel("5060.5 1.0\n", (0.0, 120.0)).readable


async def test_the_kernel_is_asked_without_an_error_where_it_may_not_be() -> None:
    transport = LocalTransport()
    await transport.connect()
    words = await kernel_words(transport, (-4e9, -4e9))  # in the future: nothing is said there
    assert (words.oom, words.xid) == (None, None)
    await transport.close()


def test_how_far_a_silent_start_is() -> None:
    dog = Watchdog((), 0.0)
    assert dog.silent_phase(False) is None
    dog.saw_gpus(1.0, sample(1, memory=1000.0))
    assert dog.silent_phase(False) is None
    dog.saw_gpus(9.0, sample(9, memory=8000.0))
    assert dog.silent_phase(False) is Phase.LOAD_WEIGHTS
    assert dog.silent_phase(True) is Phase.WARMUP
