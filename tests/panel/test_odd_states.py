"""States that are legal but unusual, at sizes that are too: nothing is drawn outside, nothing fails."""

import asyncio
from dataclasses import replace

import pytest
import textual._time

from tests.support import fakes
from tests.support.driving import screen_text, until
from tui.core.host.gpus import GpuSample
from tui.core.model.phases import Outcome, Phase
from tui.core.model.run import RunState
from tui.core.server.finding import Finding, Level
from tui.core.server.server_state import RunUpdate
from tui.core.sglang.diagnosis import Diagnosis
from tui.core.sglang.state import DecodeFigures, LedgerRow, PhaseSpan, Progress, RankState, StartupState
from tui.panel.app import EagleApp

BARE = StartupState()
NO_ADVICE = Diagnosis("unknown", "It died and the log does not say why. " * 4, None, None, None)
STATES = {
    "launch": fakes.starting(startup=BARE, phase=Phase.LAUNCH, phase_took_s={}, started_s=None, eta_s=None),
    "no history": fakes.starting(history=False, phase_took_s={}),
    "long": fakes.starting(elapsed=7300.0, eta_s=9000.0),
    "capture": fakes.starting(
        phase=Phase.CUDA_GRAPH,
        startup=replace(
            fakes.starting().startup,
            phase=Phase.CUDA_GRAPH,
            progress=Progress("capture", 0, 0),
            ranks=(RankState("", Phase.CUDA_GRAPH, None), RankState("DP1 TP0", Phase.WARMUP, None, 1.0, -2.0)),
            spans=(PhaseSpan(Phase.MEMORY_POOL, None, None), PhaseSpan(Phase.CUDA_GRAPH, 1.0, None)),
        ),
    ),
    "starting in ready": fakes.starting(phase=Phase.READY),
    "bare ready": fakes.ready(startup=BARE, phase_took_s={}, usual={}, usual_total=None, started_s=None, ready_after_s=None),
    "figures missing": fakes.ready(startup=replace(fakes.ready().startup, last_decode=DecodeFigures())),
    "fast": fakes.ready(startup=replace(fakes.ready().startup, last_decode=DecodeFigures(4000, 12000, 123456.7, 12.345, 1.0, False))),
    "crash": fakes.crashed(diagnosis=NO_ADVICE, startup=BARE, phase_took_s={}),
    "crash without diagnosis": fakes.crashed(diagnosis=None),
    "one rank": fakes.crashed(startup=replace(fakes.crashed().startup, ledger=(LedgerRow("", None, 3.0),), server_args=None)),
    "lost": fakes.ready(outcome=Outcome.LOST, run=fakes.run(state=RunState.LOST, why="the host was restarted", pid=None, port=None)),
    "unknown": fakes.ready(outcome=Outcome.UNKNOWN, run=fakes.run(state=RunState.UNKNOWN, why="another PID namespace")),
    "stopped": fakes.ready(outcome=Outcome.STOPPED, run=fakes.run(state=RunState.EXITED, exit_code=0, orphans=(1, 2, 3, 4, 5))),
    "finished": fakes.ready(outcome=Outcome.FINISHED, run=fakes.run(profile=None, argv=(), log_path=None)),
}  # fmt: skip


@pytest.mark.parametrize("name", STATES)
async def test_it_is_drawn_at_every_size(name):
    records = fakes.scene("crashed").updates[0].records
    script = fakes.Script(
        samples=(fakes.gpus(),), runs=(STATES[name].run,), updates=(RunUpdate(STATES[name], records),)
    )
    app = EagleApp("gpu1", open_session=fakes.Hosts(script))
    async with app.run_test(size=(160, 48)) as pilot:
        await until(pilot, lambda: app.board.state is not None and app.board.sample is not None)
        for key in ("2", "3", "1"):
            await pilot.press(key)
            for size in ((160, 48), (120, 36), (80, 24), (80, 60), (40, 12), (20, 5)):
                await pilot.resize_terminal(*size)
                await until(pilot, lambda size=size: len(screen_text(app).split("\n")) == size[1])
                app.screen.update()
                rows = screen_text(app).split("\n")
                assert len(rows) == size[1]
                assert all(len(row) <= size[0] for row in rows)
        await pilot.resize_terminal(120, 36)
        await pilot.press("tab", "enter", "escape", "tab", "enter", "escape")


DIALOGS = {
    "profiles to launch": ("l",),
    "preview": ("l", "enter"),
    "override": ("l", "o", "t", "p", "=", "4"),
    "replace": ("r",),
    "stop": ("S",),
    "host": ("h",),
    "help": ("question_mark",),
    "import": ("3", "i", *"sudo python -m sglang.launch_server --model-path /m --tp 2 > x"),
    "palette": ("ctrl+p",),
    "run": ("tab", "enter"),
}


@pytest.mark.parametrize("name", DIALOGS)
async def test_dialogs_are_drawn_at_every_size_with_the_way_back(name, tmp_path):
    script = fakes.scene("ready")
    script.replaced = (fakes.run(gpus=tuple(range(8)), extra={"sets": {"mem-fraction-static": 0.9, "x": "y" * 200}}),)
    script.findings = (
        Finding("gpus", Level.BLOCK, "all 8 are held by run 4f9c2a " + "and so on " * 30, fakes.RUN_ID),
        Finding("draft", Level.BLOCK, "/data/" + "x" * 300),
        *(Finding(f"check{n}", Level.OK, "fine") for n in range(20)),
    )
    app = EagleApp("gpu1", open_session=fakes.Hosts(script), profiles_dir=fakes.profiles_in(tmp_path / "own"))
    async with app.run_test(size=(120, 36)) as pilot:
        await until(pilot, lambda: app.board.state is not None)
        await pilot.press(*DIALOGS[name])
        await until(pilot, lambda: len(app.screen_stack) > 1)
        for size in ((160, 48), (120, 36), (80, 24), (80, 60), (40, 12), (20, 5)):
            await pilot.resize_terminal(*size)
            await until(pilot, lambda size=size: len(screen_text(app).split("\n")) == size[1])
            await pilot.pause()
            rows = screen_text(app).split("\n")
            assert all(len(row) <= size[0] for row in rows)
            if size[0] >= 80 and name != "palette":
                await until(pilot, lambda: "Esc" in screen_text(app))


@pytest.mark.fault(
    "G5", "no GPU, one that goes, another order", sees="what there is", holds="a GPU is known by its UUID"
)
async def test_gpus_that_come_and_go():
    app = EagleApp("gpu1", open_session=fakes.Hosts(fakes.scene("starting")))
    async with app.run_test(size=(120, 36)) as pilot:
        await until(pilot, lambda: app.board.state is not None)
        for gpus in (fakes.gpus()[:3], (), fakes.gpus(), fakes.gpus()[5:]):
            app.board.take_sample(GpuSample(0.0, gpus, "nvml"))
            app.screen.update()
            await pilot.pause()


async def test_without_unicode_every_cell_is_ascii(monkeypatch):
    from tui.panel.widgets import paint

    monkeypatch.setenv("LANG", "de_DE.ISO-8859-1")
    paint.plain_terminal.cache_clear()
    try:
        app = EagleApp("gpu1", open_session=fakes.Hosts(fakes.scene("starting")))
        async with app.run_test(size=(160, 48)) as pilot:
            await until(pilot, lambda: "* STARTING" in screen_text(app) or "o STARTING" in screen_text(app))
            assert screen_text(app).isascii()
    finally:
        paint.plain_terminal.cache_clear()


async def test_a_timer_that_is_held_up_as_it_begins_fires_late(monkeypatch):
    clock = textual._time.get_time
    held_up = [10.0]  # seconds, between its beginning and its next look at the clock

    def looked_at() -> float:
        task = asyncio.current_task()
        return clock() - (held_up.pop() if held_up and task and task.get_name() == "held up" else 0.0)

    app = EagleApp("gpu1", open_session=fakes.Hosts(fakes.Script()))
    async with app.run_test() as pilot:
        monkeypatch.setattr(textual._time, "get_time", looked_at)
        fired: list[bool] = []
        app.set_timer(0.01, lambda: fired.append(True), name="held up")
        await until(pilot, lambda: fired)
    assert not held_up
