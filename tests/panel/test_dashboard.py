"""The dashboard from frozen states, at the three sizes it is made for."""

import asyncio
import re
import shlex
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support import fakes
from tests.support.driving import screen_text, shows, until
from tui.core.host.gpus import Gpu, GpuProcess, GpuSample, HostFacts
from tui.core.link.transport import LinkState
from tui.core.model.log import LogRecord
from tui.core.model.phases import Outcome, Phase
from tui.core.model.run import InContainer, RunState
from tui.core.profiles.launch_profile import LaunchProfile
from tui.core.server.earlier_starts import LastReady
from tui.core.server.finding import Finding, Level
from tui.core.server.server_state import RunUpdate, ServerState
from tui.core.server.stop import StopProgress
from tui.core.server.watchdog import Slower, Suspicion
from tui.core.sglang.diagnosis import Diagnosis, Evidence, SourceLines
from tui.core.sglang.state import LedgerRow, Progress
from tui.core.sglang.tracker import LogTracker
from tui.panel.app import EagleApp
from tui.panel.host_view import Board
from tui.panel.launcher import Launcher
from tui.panel.reports import server_report
from tui.panel.server_view import lived_s, phase_rows

SIZES = [(160, 48), (120, 36), (80, 24)]


def panel(script: fakes.Script, host: str = "gpu1", **more: object) -> EagleApp:
    return EagleApp(host, open_session=fakes.Hosts(script), **more)


@pytest.mark.parametrize("size", SIZES)
async def test_starting_never_drops_state_eta_gpus_link_and_keys(size):
    async with panel(fakes.scene("starting")).run_test(size=size) as pilot:
        await shows(
            pilot,
            "◐ STARTING",
            "kimi-k2.5-eagle3-mem088",
            "41/64 shards",
            "TP5",
            "behind",
            "RTX PRO 6000",
            "47.0",
            "5▲",  # the straggler is marked by more than a colour
            "11:07",  # what is usual
            " 7  ",
        )
        text = screen_text(pilot.app)
        assert all(f"\n {index}" in text or f"  {index} " in text for index in range(8))
        assert "0." in text.split("\n")[0]  # age of the link
        assert "l launch" in text.split("\n")[-1]
        assert "q quit" in text.split("\n")[-1]
        if size[0] >= 150:
            assert "Ranks" in text
            assert "weights loaded, GiB, by GPU memory" in text


@pytest.mark.parametrize("size", SIZES)
async def test_no_row_is_longer_than_the_screen(size):
    for scene in ("starting", "ready", "crashed", "idle"):
        async with panel(fakes.scene(scene)).run_test(size=size) as pilot:
            await shows(pilot, "RTX PRO 6000")
            assert all(len(row) <= size[0] for row in screen_text(pilot.app).split("\n"))


async def test_a_first_start_has_no_estimate_and_says_why():
    async with panel(fakes.scene("first")).run_test(size=(160, 48)) as pilot:
        await shows(pilot, "since the launch", "no history yet")
        assert "to ready" not in screen_text(pilot.app)
        assert "usual" not in screen_text(pilot.app)


async def test_phases_come_in_the_order_of_this_log_and_to_come_in_that_of_the_history():
    async with panel(fakes.scene("starting")).run_test(size=(160, 48)) as pilot:
        await shows(pilot, "warm-up")
        text = screen_text(pilot.app)
        names = ["launch", "distributed init", "load weights", "draft model", "memory pool", "CUDA graphs", "warm-up"]
        places = [next(i for i, line in enumerate(text.split("\n")) if f" {name} " in line[:30]) for name in names]
        assert places == sorted(places)


@pytest.mark.parametrize("size", SIZES)
async def test_ready_shows_speed_accept_length_and_queue(size):
    async with panel(fakes.scene("ready")).run_test(size=size) as pilot:
        await shows(pilot, "● READY", "running", "queued", "start took 11:45")
        if size[0] < 100:
            await shows(pilot, "72.1 tok/s", "accept 2.31")
        else:
            await shows(pilot, "tok/s", "accept length", "cycle")


@pytest.mark.parametrize("size", SIZES)
async def test_a_crash_says_cause_evidence_and_change(size):
    async with panel(fakes.scene("crashed")).run_test(size=size) as pilot:
        await shows(
            pilot,
            "✗ CRASHED",
            "The KV pool has no room",
            "oom_kv_pool",
            "mem-fraction-static = 0.76",
            "mem-fraction-static = 0.88",
        )
        text = screen_text(pilot.app)
        assert " a  apply and relaunch" in text
        assert "RuntimeError: Not enough memory." in text
        assert "self.server_args.mem_fraction_static=0.76" in text  # evidence wraps and is never cut
        if size[0] >= 150:
            assert "−1.5" in text
            assert "▞" in text
        await pilot.press("escape")
        await shows(pilot, "GPUs" if size[0] >= 100 else "GPU", "✗ CRASHED")
        await pilot.press("escape")
        await shows(pilot, "Evidence")


@pytest.mark.parametrize("size", SIZES)
async def test_a_restart_loop_says_how_it_ended_last(size):
    box = InContainer("c" * 64, "docker", "theirs", "lmsysorg/sglang:v0.5.6", restarts=6, status="restarting")
    run = fakes.run(run_id="foreign-cccccccccccc", state=RunState.FOREIGN, pid=None, container=box, profile=None)
    script = fakes.scene("crashed")
    script.updates = (RunUpdate(fakes.crashed(run=run, outcome=Outcome.RESTARTING)),)
    script.runs = (run,)
    async with panel(script).run_test(size=size) as pilot:
        await shows(pilot, "↻ RESTARTS", "The KV pool has no room")
        if size[0] > 100:
            await shows(pilot, "docker:theirs", "restarted 6 times")


async def test_nothing_runs_here():
    async with panel(fakes.scene("idle")).run_test(size=(120, 36)) as pilot:
        await shows(pilot, "No server runs here.", "launches one from a profile")


async def test_a_lost_link_is_not_a_stopped_server():
    async with panel(fakes.scene("ready")).run_test(size=(160, 48)) as pilot:
        await shows(pilot, "● READY")
        pilot.app.session.say_link(LinkState.LOST)
        await shows(pilot, "? UNKNOWN", "link lost", "server last seen ready", "last seen ready,", "r connect again")
        assert "READY" not in screen_text(pilot.app)
        pilot.app.session.say_link(LinkState.UP)
        await shows(pilot, "● READY")


async def test_r_connects_again_where_the_link_is_lost():
    async with panel(fakes.scene("ready")).run_test(size=(120, 36)) as pilot:
        await shows(pilot, "● READY")
        pilot.app.session.say_link(LinkState.LOST)
        await shows(pilot, "▲ link lost")
        await pilot.press("r")
        await until(pilot, lambda: pilot.app.session.transport.reconnects == 1)


async def test_a_suspicion_keeps_its_question_mark():
    script = fakes.scene("starting")
    state = replace(script.updates[0].state, suspicion="no new line for 16 min in load weights")
    script.updates = (RunUpdate(state, script.updates[0].records),)
    async with panel(script).run_test(size=(160, 48)) as pilot:
        await shows(pilot, "▲ HUNG?", "no new line for 16 min")


async def test_an_observation_about_a_living_server():
    script = fakes.scene("ready")
    observed = Diagnosis("draft_config", "Accept length is 1.00: the draft model is never right.", None, None, None,
                         ("Check the draft model.",), observation=True)  # fmt: skip
    script.updates = (RunUpdate(replace(script.updates[0].state, observations=(observed,)), script.updates[0].records),)
    async with panel(script).run_test(size=(160, 48)) as pilot:
        await shows(pilot, "● READY", "▲ Accept length is 1.00", "Check the draft model.")


async def test_the_simulated_host_says_so_in_every_mode():
    async with panel(fakes.scene("ready"), host="demo").run_test(size=(120, 36)) as pilot:
        for key in "12345":
            await pilot.press(key)
            await shows(pilot, "SIMULATED", "20× seed 1")


async def test_missing_figures_are_dashes():
    bare = tuple(Gpu(index, f"GPU-{index}", "A GPU") for index in range(2))
    async with panel(fakes.Script(samples=(bare,))).run_test(size=(120, 36)) as pilot:
        await shows(pilot, "not reported")
        row = next(line for line in screen_text(pilot.app).split("\n") if "not reported" in line)
        assert row.count("–") == 4
        assert "0.0" not in row


async def test_a_gpu_that_is_gone_and_a_driver_that_does_not_answer():
    broken = (*fakes.gpus()[:7], replace(fakes.gpus()[7], health="lost", memory_used_mib=None))
    async with panel(fakes.Script(samples=(broken,))).run_test(size=(160, 48)) as pilot:
        await shows(pilot, "7✗ lost")
        pilot.app.session.sample_queue.put_nowait(GpuSample(0, broken, "nvml", stalled_s=41.0))
        await shows(pilot, "the driver has not answered for 41 s")
        pilot.app.session.sample_queue.put_nowait(
            GpuSample(0, (), "nvml", error="driver_mismatch", detail="Failed [/x] to")
        )
        await shows(pilot, "driver and library versions differ", "Failed [/x] to")


async def test_power_history_in_the_place_of_utilisation():
    async with panel(fakes.scene("ready")).run_test(size=(160, 48)) as pilot:
        await shows(pilot, "util, 60 s")
        await pilot.press("p")
        await shows(pilot, "power, 60 s")


async def test_sixteen_gpus_at_80x24_are_all_there():
    many = tuple(
        replace(gpu, index=8 * part + gpu.index, uuid=f"G{part}{gpu.index}")
        for part in range(2)
        for gpu in fakes.gpus()
    )
    async with panel(fakes.Script(samples=(many,))).run_test(size=(80, 24)) as pilot:
        await shows(pilot, "\n 15 ")


async def test_light_theme_and_back():
    async with panel(fakes.scene("ready"), theme="light").run_test(size=(80, 24)) as pilot:
        await shows(pilot, "● READY")
        strip = pilot.app.screen._compositor.render_strips()[5]
        assert {segment.style.bgcolor.name for segment in strip if segment.style} <= {"#fcfcfb", "#f2f3f4"}
        pilot.app.theme = "eagle-dark"
        await until(
            pilot,
            lambda: (
                {s.style.bgcolor.name for s in pilot.app.screen._compositor.render_strips()[5] if s.style}
                <= {"#101317", "#181c22"}
            ),
        )


# -- what is current, and whose it is --------------------------------------------------------------------------------


def told(pilot, state: ServerState, *, settled: bool = True) -> None:
    """The host says how the server is."""
    pilot.app.session.update_queue.put_nowait(RunUpdate(state, settled=settled))


def server_row(pilot, name: str) -> str:
    """The row of the server card that a word stands in."""
    return next(row for row in screen_text(pilot.app).split("\n") if name in row[:78])


@pytest.mark.parametrize("size", SIZES)
async def test_figures_of_an_old_decode_line_are_not_shown_as_present(size):
    async with panel(fakes.scene("ready")).run_test(size=size) as pilot:
        await shows(pilot, "● READY", "running", "yes")
        board = pilot.app.board
        board.decode[-1] = replace(board.decode[-1], at=board.decode[-1].at - 100)
        pilot.app.touch()
        await shows(pilot, "tok/s, 1:4", "in graph", "–")
        await until(pilot, lambda: "yes" not in screen_text(pilot.app))
        text = screen_text(pilot.app)
        assert "cycle" not in text
        assert "– %" not in text
        assert re.search(r"running +–", text)


async def test_gpus_that_do_nothing_end_the_figures_before_the_interval_does():
    board = Board("gpu1")
    board.watch_run(fakes.run(), None)
    board.take_update(RunUpdate(fakes.ready(), settled=True), now=100.0)
    state = fakes.ready()
    board.take_update(
        RunUpdate(replace(state, startup=replace(state.startup, decode_lines=21)), settled=True), now=101.0
    )
    assert board.decodes_now(103.5)
    busy, idle = fakes.gpus(util=97.0), tuple(replace(gpu, utilization_pct=0.0) for gpu in fakes.gpus())
    for at in (102.0, 103.0):
        board.take_sample(GpuSample(0, busy, "nvml"), now=at)
    assert board.decodes_now(103.2)
    for at in (103.1, 103.3):
        board.take_sample(GpuSample(0, idle, "nvml"), now=at)
    assert board.decodes_now(103.4)  # one of the newest samples saw them work
    for at in (104.0, 105.0):
        board.take_sample(GpuSample(0, idle, "nvml"), now=at)
    assert not board.decodes_now(105.6)


def test_what_stood_in_the_log_before_we_came_is_as_old_as_its_stamp():
    board = Board("gpu1")
    board.watch_run(fakes.run(), None)
    stamp = time.strftime("%H:%M:%S", time.localtime(time.time() - 600))
    board.utc_offset_s = float(time.localtime().tm_gmtoff)
    old = LogRecord(9, 900, stamp, "TP0", "Decode batch, #running-req: 1", "plain", Phase.SERVING)
    newer = replace(old, time=time.strftime("%H:%M:%S"), text="Using a slow tokenizer.")
    board.take_update(RunUpdate(fakes.ready(), (old, newer), settled=True), now=5000.0)
    assert 595 < board.decode_age_s(5000.0) < 606
    assert not board.decodes_now(5000.0)


async def test_ranks_of_ours_that_die_are_no_strangers():
    script = fakes.scene("starting")
    async with panel(script).run_test(size=(160, 48)) as pilot:
        await shows(pilot, "◐ STARTING", "no other process on the GPUs")
        gone = fakes.crashed()
        pilot.app.session.known_runs = (gone.run,)
        pilot.app.board.runs = (gone.run,)
        told(pilot, gone)
        await shows(pilot, "✗ CRASHED", "8 processes of ours ending")
        assert "also on the GPUs" not in screen_text(pilot.app)
        stranger = GpuProcess(777, "other", "python", 1000.0)
        used = tuple(replace(gpu, processes=(*gpu.processes, stranger)) for gpu in fakes.gpus())
        pilot.app.session.sample_queue.put_nowait(GpuSample(time.time(), used, "nvml"))
        await shows(pilot, "also on the GPUs: other PID 777")
        assert "48213" not in screen_text(pilot.app).split("\n")[1]


async def test_a_number_that_was_given_back_may_be_a_strangers():
    board = Board("gpu1", facts=fakes.FACTS)
    board.watch_run(fakes.run(), None)
    board.take_update(RunUpdate(fakes.starting()))
    board.take_sample(GpuSample(0, fakes.gpus(), "nvml"), now=1.0)
    assert board.other_holders() == []
    board.take_update(RunUpdate(fakes.crashed(run=fakes.run(state=RunState.EXITED, pid=1))))
    board.take_sample(GpuSample(0, tuple(replace(g, processes=()) for g in fakes.gpus()), "nvml"), now=2.0)
    board.take_sample(GpuSample(0, fakes.gpus(), "nvml"), now=3.0)
    assert len(board.other_holders()) == 8


@pytest.mark.parametrize("size", SIZES)
async def test_a_second_server_is_told_and_reached(size):
    first = fakes.run(gpus=(0, 1, 2, 3))
    second = fakes.run(
        run_id="qwen-20261006T210000Z-bbbbbb", profile="qwen", started_at="2026-10-06T21:00:00Z", port=30001
    )
    script = fakes.scene("ready")
    script.runs = (first, second)
    async with panel(script).run_test(size=size) as pilot:
        await shows(pilot, "● READY", "[ ] servers", "1/2 kimi" if size[0] < 100 else "1 of 2 servers")
        await pilot.press("right_square_bracket")
        await shows(pilot, "reading qwen")
        told(pilot, fakes.ready(run=second))
        await shows(pilot, "qwen", "2/2 qwen" if size[0] < 100 else "2 of 2 servers")
        await pilot.press("S")
        await shows(pilot, "qwen, run bbbbbb")
        await pilot.press("escape", "right_square_bracket")
        await until(pilot, lambda: pilot.app.board.run.run_id == first.run_id)


async def test_a_crash_report_does_not_give_way_to_another_server_that_ran_all_along():
    other = fakes.run(run_id="qwen-20261006T190000Z-bbbbbb", profile="qwen", started_at="2026-10-06T19:00:00Z")
    script = fakes.scene("starting")
    script.runs = (fakes.run(), other)
    async with panel(script).run_test(size=(160, 48)) as pilot:
        await shows(pilot, "◐ STARTING", "2 of 2 servers")
        gone = fakes.crashed()
        pilot.app.session.known_runs = pilot.app.board.runs = (gone.run, other)
        told(pilot, gone)
        await shows(pilot, "✗ CRASHED")
        pilot.app.displayed.choose()
        assert pilot.app.board.run.run_id == gone.run.run_id
        fresh = replace(other, run_id="new-20261006T210000Z-cccccc", profile="new")
        pilot.app.board.runs = (fresh, gone.run, other)
        pilot.app.displayed.choose()
        assert pilot.app.board.run.run_id == fresh.run_id


@pytest.mark.parametrize("size", SIZES)
async def test_other_values_stand_with_the_name(size):
    script = fakes.scene("ready")
    changed = fakes.run(extra={"sets": {"mem-fraction-static": 0.9}})
    script.runs, script.updates = (changed,), (RunUpdate(fakes.ready(run=changed), settled=True),)
    async with panel(script).run_test(size=size) as pilot:
        await shows(pilot, "● READY", "kimi-k2.5-eagle3-mem088", "+mem-fraction-static=0.9")


async def test_this_machine_has_no_link_that_could_age_and_no_gpu_is_an_answer():
    script = fakes.Script(samples=((),), facts=HostFacts(python="python3"))
    async with panel(script, host="local").run_test(size=(120, 36)) as pilot:
        await shows(pilot, "● this machine", "no GPU that can be read", "no SGLang in python3")
        text = screen_text(pilot.app)
        assert "ago" not in text.split("\n")[0]
        assert "asking local" not in text


async def test_the_draft_model_comes_where_this_version_loads_it():
    phases = [row.phase for row in phase_rows(fakes.starting(history=False), "0.5.23")]
    assert phases.index(Phase.DRAFT_MODEL) == phases.index(Phase.MEMORY_POOL) - 1
    earlier = [row.phase for row in phase_rows(fakes.starting(history=False), "0.5.13.post1")]
    assert earlier.index(Phase.DRAFT_MODEL) == earlier.index(Phase.CUDA_GRAPH) + 1
    plain = fakes.starting(history=False)
    plain = replace(plain, run=fakes.run(argv=()), startup=replace(plain.startup, server_args=None))
    assert Phase.DRAFT_MODEL not in [row.phase for row in phase_rows(plain, "0.5.23")]


async def test_without_history_a_bar_of_shards_fills_its_share():
    script = fakes.scene("first")
    state = script.updates[0].state
    script.updates = (RunUpdate(replace(state, startup=replace(state.startup, progress=Progress("shards", 22, 64)))),)
    async with panel(script).run_test(size=(160, 48)) as pilot:
        await shows(pilot, "22/64 shards", "about 10:43 left")
        row = server_row(pilot, "load weights")[34:77]
        assert 0.25 < row.count("▆") / len(row.rstrip()) < 0.45


async def test_without_history_or_bar_nothing_looks_done():
    script = fakes.scene("first")
    state = script.updates[0].state
    script.updates = (RunUpdate(replace(state, startup=replace(state.startup, progress=None))),)
    async with panel(script).run_test(size=(160, 48)) as pilot:
        await shows(pilot, "no history yet")
        await shows(pilot, "load weights")
        assert server_row(pilot, "load weights")[70:77].strip() == ""


@pytest.mark.parametrize("size", SIZES)
async def test_a_stop_shows_at_once(size):
    async with panel(fakes.scene("ready")).run_test(size=size) as pilot:
        await shows(pilot, "● READY")
        gate = asyncio.Event()

        async def stop(run, *, grace_s=20.0):
            await gate.wait()
            yield StopProgress("done", "stopped, the GPU memory is back", done=True)

        pilot.app.session.stop = stop
        await pilot.press("S")
        await shows(pilot, "■ STOP")
        await pilot.press("tab", "enter")
        await shows(pilot, "■ STOPPING", "asking 4f9c2a to stop")
        gate.set()
        # The watch has not seen the end yet: it is not ready again for that.
        await until(pilot, lambda: pilot.app.board.stop.done)
        await pilot.pause()
        assert "● READY" not in screen_text(pilot.app)
        state = pilot.app.board.state
        ended = replace(state, outcome=Outcome.STOPPED, run=replace(state.run, state=RunState.EXITED))
        pilot.app.board.take_update(RunUpdate(ended))
        pilot.app.touch()
        await shows(pilot, "■ STOPPED")


@pytest.mark.parametrize("size", [(160, 48), (120, 36)])
async def test_a_server_without_a_request_promises_only_what_it_has(size):
    script = fakes.scene("ready")
    state = script.updates[0].state
    startup = replace(state.startup, last_decode=None, decode_lines=0)
    script.updates = (RunUpdate(replace(state, startup=startup)),)
    async with panel(script).run_test(size=size) as pilot:
        await shows(pilot, "no request yet", "tok/s and accept length come", "the first")
        assert "– %" not in screen_text(pilot.app)
        plain = replace(state, run=fakes.run(argv=()), startup=replace(startup, server_args=None))
        told(pilot, plain)
        await shows(pilot, "tok/s comes with the first")
        assert "accept" not in screen_text(pilot.app).split("Log ─")[0]


async def test_the_phases_of_a_start_stand_in_columns():
    async with panel(fakes.scene("ready")).run_test(size=(160, 48)) as pilot:
        await shows(pilot, "Start-up", "warm-up")
        rows = screen_text(pilot.app).split("\n")
        first = next(i for i, row in enumerate(rows) if "Start-up" in row)
        places = [[i for i, char in enumerate(row) if char == "✓"] for row in rows[first + 1 : first + 4]]
        assert places[0][: len(places[1])] == places[1]
        assert len(places[0]) >= 3


async def test_tabs_keep_their_places_while_ages_change():
    async with panel(fakes.scene("ready"), host="demo").run_test(size=(120, 36)) as pilot:
        await shows(pilot, "● READY", "4 Bench", "SIMULATED")
        before = screen_text(pilot.app).split("\n")[0]
        for rtt in (0.0004, 0.011, 0.432):
            pilot.app.session.say_link(LinkState.UP, rtt_s=rtt, last_byte_at=time.monotonic() - 30 * rtt)
            await until(pilot, lambda rtt=rtt: pilot.app.board.link.rtt_s == rtt)
            pilot.app.touch()
            await pilot.pause()
            assert screen_text(pilot.app).split("\n")[0][:55] == before[:55]
    async with panel(fakes.scene("ready"), host="demo").run_test(size=(80, 24)) as pilot:
        await shows(pilot, "● READY", "1 Dashboard  2  3  4 ")


async def test_a_toast_is_short_and_leaves_the_newest_lines_alone():
    async with panel(fakes.scene("ready")).run_test(size=(80, 24), notifications=True) as pilot:
        await shows(pilot, "● READY", "last 20:34:19")
        newest = screen_text(pilot.app).split("\n")[-2]
        assert "last 20:34:19" in newest
        pilot.app.say("copied the line")

        def both_on_show() -> bool:
            rows = screen_text(pilot.app).split("\n")
            return rows[-2] == newest and any("copied the line" in row for row in rows[:5])

        await until(pilot, both_on_show)
        assert {n.timeout for n in pilot.app._notifications} <= {2.0}


async def test_frames_of_a_traceback_are_one_row_of_the_evidence():
    frames = "".join(
        f'  File "/opt/sglang/srt/part{n}.py", line {n}, in call\n    call_{"abcdefghijk"[n]}()\n' for n in range(11)
    )
    text = fakes.CRASH_TEXT.replace(
        b'  File "/opt/sglang/srt/managers/scheduler.py", line 2850, in run_scheduler_process\n    scheduler = Scheduler(\n',
        frames.encode() + b"    ^^^^^^\n",
    )
    script = fakes.scene("crashed")
    tracker = LogTracker()
    records = tuple(tracker.feed(fakes.log_text() + text))
    line = next(record.number for record in records if record.text.startswith("RuntimeError"))
    state = fakes.crashed()
    state = replace(state, diagnosis=replace(state.diagnosis, evidence=replace(state.diagnosis.evidence, line=line)))
    script.updates = (RunUpdate(state, records),)
    async with panel(script).run_test(size=(160, 48)) as pilot:
        await shows(pilot, "… 11 frames", "≡ 23 lines", "raise RuntimeError(", "Scheduler hit an exception")
        assert "part7.py" not in screen_text(pilot.app)


async def test_every_line_of_the_evidence_and_its_source_are_shown():
    script = fakes.scene("crashed")
    state = fakes.crashed()
    evidence = Evidence(257, "RuntimeError: ninja … ptxas fatal", ("RuntimeError: ninja", "FAILED: a.o", "ptxas fatal"))
    source = (SourceLines("/opt/sglang/srt/jit.py", 12, 11, ("def build():", "    raise RuntimeError(text)")),)
    state = replace(state, diagnosis=replace(state.diagnosis, evidence=evidence, source=source))
    script.updates = (RunUpdate(state),)
    async with panel(script).run_test(size=(160, 48)) as pilot:
        await shows(pilot, "ptxas fatal", "FAILED: a.o", "/opt/sglang/srt/jit.py:12", "12     raise RuntimeError(text)")
        assert screen_text(pilot.app).count("ptxas fatal") == 1
        copied = server_report(pilot.app.board)[0].split("\n")
        assert {"  FAILED: a.o", "  12     raise RuntimeError(text)"} <= set(copied)


@pytest.mark.parametrize("size", SIZES)
async def test_a_suspicion_brings_its_evidence(size):
    script = fakes.scene("starting")
    suspected = Suspicion("silence", "no new line for 16 min", ("GPU memory does not grow", "ranks use no CPU"))
    state = replace(script.updates[0].state, suspicion=suspected.text, suspected=suspected)
    script.updates = (RunUpdate(state, script.updates[0].records),)
    async with panel(script).run_test(size=size) as pilot:
        await shows(pilot, "▲ HUNG?", "no new line for 16 min", "GPU memory does not grow")


async def test_a_busy_silence_and_a_slow_phase_say_why():
    script = fakes.scene("starting")
    state = replace(
        script.updates[0].state,
        busy="kernels are being compiled (ptxas)",
        slower=Slower(Phase.LOAD_WEIGHTS, 900.0, 560.0, ("the weights are not in the page cache",)),
    )
    script.updates = (RunUpdate(state, script.updates[0].records),)
    async with panel(script).run_test(size=(160, 48)) as pilot:
        await shows(pilot, "kernels are being compiled (ptxas)", "load weights takes longer than ever here")


async def test_a_crash_names_the_last_configuration_that_worked():
    script = fakes.scene("crashed")
    worked = LastReady("r", "kimi-k2.5-eagle3-mem088", "2026-10-04T10:00:00Z", 667.0, 4,
                       (("mem-fraction-static", 0.88, 0.76),))  # fmt: skip
    script.updates = (RunUpdate(fakes.crashed(last_ready=worked), script.updates[0].records),)
    async with panel(script).run_test(size=(160, 48)) as pilot:
        await shows(pilot, "Last ready here:", "kimi-k2.5-eagle3-mem088 at 2026-10-04", "0.88 (now 0.76)")


async def test_the_bell_rings_for_news_only(monkeypatch):
    rung = []
    monkeypatch.setattr(EagleApp, "bell", lambda self: rung.append(str(self.board.state.outcome)))
    async with panel(fakes.scene("ready")).run_test(size=(120, 36)) as pilot:
        await shows(pilot, "● READY")
        assert rung == []  # it was ready before we came
        told(pilot, fakes.crashed())
        await shows(pilot, "✗ CRASHED")
        assert rung == ["crashed"]
    script = fakes.scene("starting")
    async with panel(script, bell=False).run_test(size=(120, 36)) as pilot:
        await shows(pilot, "◐ STARTING")
        told(pilot, fakes.starting())
        told(pilot, fakes.ready())
        await shows(pilot, "● READY")
        assert rung == ["crashed"]


async def test_applying_a_change_keeps_earlier_values_as_what_they_are(monkeypatch):
    lines = []
    monkeypatch.setattr(Launcher, "_preview", lambda self, profile, **more: lines.append(more["sets"]))
    script = fakes.scene("crashed")
    state = script.updates[0].state
    changed = replace(state.run, extra={"sets": {"port": "32118", "kv-cache-dtype": "fp8_e4m3"}})
    script.updates = (RunUpdate(replace(state, run=changed), script.updates[0].records),)
    async with panel(script).run_test(size=(120, 36)) as pilot:
        await shows(pilot, "✗ CRASHED")
        await pilot.press("a")
        await until(pilot, lambda: lines)
    assert shlex.split(lines[0])[0] == "port=32118"
    assert shlex.split(lines[0])[2] == "mem-fraction-static=0.88"


async def test_a_replacement_is_planned_anew_once_what_stood_in_its_way_is_gone():
    script = fakes.scene("ready")
    script.replaced = (fakes.run(),)
    script.findings = (Finding("gpus", Level.BLOCK, "held by run 4f9c2a", run=fakes.RUN_ID),)
    async with panel(script).run_test(size=(120, 36)) as pilot:
        await shows(pilot, "● READY")
        session = pilot.app.session
        profile = LaunchProfile(name="next", path=Path("next.toml"))
        plan = await session.plan(profile)
        gate = asyncio.Event()
        asked = []

        async def stop(run, *, grace_s=20.0):
            asked.append(run.run_id)
            await gate.wait()
            script.findings = ()
            script.replaced = ()
            yield StopProgress("done", "stopped", done=True)

        session.stop = stop
        pilot.app.launcher.launch(plan, True)
        await shows(pilot, "■ STOPPING", "asking 4f9c2a to stop")
        gate.set()
        await until(pilot, lambda: session.launched)
        assert asked == [fakes.RUN_ID]
        assert not session.launched[0][0].blocked
        await until(pilot, lambda: pilot.app.board.run.profile == "next")


async def test_a_ready_server_says_which_memory_fractions_fit():
    async with panel(fakes.scene("ready")).run_test(size=(160, 48)) as pilot:
        await shows(pilot, "● READY", "GiB free after start; SGLang advises 5 to 8; fraction 0.")
        text = screen_text(pilot.app)
        line = next(row for row in text.split("\n") if "SGLang advises" in row)
        least, most = line.split("fraction ")[1].split(" fits")[0].split(" to ")
        assert 0 < float(least) <= 0.88 <= float(most) < 1  # the fraction in force is inside


HYBRID = LedgerRow("", 94.5, 60.0, 1.6, 14.0, 2.4, 3.3, 327310, state_cache_gib=10.0, swa_pool_gib=2.0, draft_cache_gib=0.7, other_gib=0.5)  # fmt: skip


async def test_every_part_of_the_memory_is_named():
    state = replace(fakes.ready(), startup=replace(fakes.ready().startup, ledger=(HYBRID,)))
    script = replace(fakes.scene("ready"), updates=(RunUpdate(state, ()),))
    async with panel(script).run_test(size=(160, 48)) as pilot:
        await shows(pilot, "Memory per rank", "fits")
        text = " ".join(screen_text(pilot.app).split())
        for part in ("weights 60.0", "draft 1.6", "state 10.0", "KV 14.0", "window 2.0", "draft KV 0.7", "graphs 2.4", "other 0.5",
                     "free 3.3"):  # fmt: skip
            assert part in text


async def test_a_server_on_a_cpu_gets_no_advice_for_gpus():
    startup = replace(fakes.ready().startup, host_memory=True)
    script = replace(fakes.scene("ready"), updates=(RunUpdate(replace(fakes.ready(), startup=startup), ()),))
    async with panel(script).run_test(size=(160, 48)) as pilot:
        await shows(pilot, "Memory per rank", "Start-up")
        assert not any(words in screen_text(pilot.app) for words in ("SGLang advises", "fits"))


async def test_a_crash_takes_every_pool_out_of_the_budget():
    """A server that served, at 0.95 x 94.5 GiB: 60 of weights, 1.6 of draft, 10 of states and 16.7 of pools leave 1.5."""
    diagnosis = replace(fakes.crashed().diagnosis, cause="oom_serving", rank=None)
    args = {**fakes.SERVER_ARGS, "mem_fraction_static": 0.95}
    startup = replace(fakes.crashed().startup, ledger=(HYBRID,), server_args=args)
    state = fakes.crashed(startup=startup, diagnosis=diagnosis)
    script = replace(fakes.scene("crashed"), updates=(RunUpdate(state, ()),))
    async with panel(script).run_test(size=(160, 48)) as pilot:
        await shows(pilot, "Memory ledger")
        row = next(line for line in screen_text(pilot.app).split("\n") if "server" in line and "60.0" in line)
        assert row.split()[:5] == ["server", "60.0", "1.6", "89.8", "1.5"]


def test_after_in_the_text_of_a_death_is_the_life_of_the_server_and_not_its_start():
    run = fakes.run(state=RunState.EXITED, started_at="2026-10-06T20:01:03Z", ended_at="2026-10-06T22:01:03Z")
    assert lived_s(fakes.crashed(run=run, ready_after_s=561.0)) == 7200.0
    alive = fakes.run(started_at="2026-10-06T20:01:03Z", ended_at=None)
    assert lived_s(fakes.crashed(run=alive, ready_after_s=None)) == 561.0  # it died in its start: the phases so far
    assert lived_s(fakes.crashed(run=alive, ready_after_s=561.0)) is None
