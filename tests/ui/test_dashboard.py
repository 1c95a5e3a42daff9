"""The dashboard from frozen states, at the three sizes it is made for."""

from dataclasses import replace

import fakes
import pytest
from driving import screen_text, shows, until

from tui.app import EagleApp
from tui.core.diagnosis import Diagnosis
from tui.core.gpus import Gpu, GpuSample
from tui.core.session import RunUpdate
from tui.core.transport import LinkState

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
        assert "q leave" in text.split("\n")[-1]
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
        names = [
            "launch",
            "distributed init",
            "load weights",
            "draft model",
            "memory pool",
            "CUDA graphs",
            "warm-up",
        ]
        places = [
            next(i for i, line in enumerate(text.split("\n")) if f" {name} " in line[:30]) for name in names
        ]
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


async def test_nothing_runs_here():
    async with panel(fakes.scene("idle")).run_test(size=(120, 36)) as pilot:
        await shows(pilot, "No server runs here.", "launches one from a profile")


async def test_a_lost_link_is_not_a_stopped_server():
    async with panel(fakes.scene("ready")).run_test(size=(160, 48)) as pilot:
        await shows(pilot, "● READY")
        pilot.app.session.say_link(LinkState.LOST)
        await shows(
            pilot, "? UNKNOWN", "link lost", "server last seen ready", "last seen ready,", "r connect again"
        )
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
    script.updates = (
        RunUpdate(replace(script.updates[0].state, observations=(observed,)), script.updates[0].records),
    )
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
