"""The tune screen from frozen records: what it shows at every size, what its keys do."""

from dataclasses import replace

import pytest

from tests.support import fakes
from tests.support.driving import screen_text, until
from tests.support.tunes import RANGED, cell, whole
from tui.core.tune import decide
from tui.core.tune.record import Draft, Phase, Status, Step, Taken
from tui.core.tune.runner import TuneState
from tui.panel.app import EagleApp
from tui.panel.screens.dialog import Confirm, Facts

LAUNCHED = Taken(len(whole().steps) + 1, Step(Phase.SPECULATION, "forecast 74.3 ± 0.9 tok/s", 0.87, Draft(5, 2, 8)))
UNDER_WAY = TuneState(whole().with_step(LAUNCHED))
HOSTILE = "no [bold]room[/bold]\x1b[31m for\nthis"


def panel(tmp_path) -> EagleApp:
    return EagleApp(
        "gpu1", open_session=fakes.Hosts(fakes.scene("ready")), profiles_dir=fakes.profiles_in(tmp_path / "own")
    )


async def on_tune(pilot, state: TuneState | None) -> str:
    app = pilot.app
    await until(pilot, lambda: app.board.state is not None and app.board.connected)
    app.board.tune = state
    app.show_mode("tune", app.board)
    await until(pilot, lambda: type(app.screen).__name__ == "Tune" and app.screen.query("TuneView"))
    await pilot.pause()
    app.screen.update()
    await pilot.pause()
    return screen_text(app)


async def test_a_tune_under_way_shows_budget_range_map_and_what_is_left(tmp_path):
    async with panel(tmp_path).run_test(size=(160, 48)) as pilot:
        text = await on_tune(pilot, UNDER_WAY)
        for said in (
            "tune x  for tok/s per user at concurrency 1 on speculation-real-prompts", "1 range 5 launches", "3 confirm, kept 6",
            "✓ 0.84 to 0.90 in 5 launches · 0.87 is used on", "no room for the pool below 0.84", "oom_cuda_graph",
            "2  Steps × top-k", "tok/s · ratio to no speculation 89.5 · at 0.87", "77.2 best", "3.02 of 3.50", "◐ under way",
            "– skipped", "So far", "does not beat no speculation", "Now", "Not tried", "other algorithms",
        ):  # fmt: skip
            assert said in text, said


@pytest.mark.parametrize("size", [(80, 24), (100, 30), (120, 36), (160, 48), (60, 16)])
@pytest.mark.parametrize("state", [None, TuneState(RANGED, decide.next_step(RANGED)), UNDER_WAY])
async def test_every_size_shows_what_decides(tmp_path, size, state):
    async with panel(tmp_path).run_test(size=size) as pilot:
        text = await on_tune(pilot, state)
        assert "Steps × top-k" in text or state is None
        assert ("nothing is tuned on gpu1" in text) == (state is None)
        if state is UNDER_WAY and size[0] >= 80:
            assert "77.2" in text
            assert "0.84 to 0.90" in text


async def test_text_of_a_host_is_text(tmp_path):
    record = cell(whole(), Draft(2, 2, 5), cause="unknown")
    failed = replace(record.steps[-1], cause=HOSTILE, reason=HOSTILE, status=Status.FAILED)
    async with panel(tmp_path).run_test(size=(160, 48)) as pilot:
        text = await on_tune(pilot, TuneState(replace(record.with_step(failed), outcome="failed", message=HOSTILE)))
        assert "\x1b" not in text
        assert "[bold]" in text


async def test_keys_of_the_screen(tmp_path):
    async with panel(tmp_path).run_test(size=(120, 36)) as pilot:
        await on_tune(pilot, UNDER_WAY)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, Facts))
        assert "without speculation" in screen_text(pilot.app)
        await pilot.press("escape", "escape")
        await until(pilot, lambda: type(pilot.app.screen).__name__ == "Profiles")


async def test_t_asks_and_says_what_it_would_do(tmp_path):
    async with panel(tmp_path).run_test(size=(120, 36)) as pilot:
        app = pilot.app
        await until(pilot, lambda: app.board.state is not None and app.board.connected)
        await pilot.press("3")
        await until(pilot, lambda: type(app.screen).__name__ == "Profiles" and app.screen.chosen_launch())
        await pilot.press("t")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        text = screen_text(app)
        assert "for tok/s per user?" in text
        assert "at most 25 launches" in text
        await pilot.press("enter")  # No is in focus
        await until(pilot, lambda: type(app.screen).__name__ == "Profiles")
        assert not app.tuning.under_way


async def test_nothing_else_is_measured_while_a_tune_runs(tmp_path):
    async with panel(tmp_path).run_test(size=(120, 36)) as pilot:
        app = pilot.app
        await until(pilot, lambda: app.board.state is not None and app.board.connected)
        with app.measure.held("it goes on"):
            assert app.measure.under_way
            assert app.measure.launches
            assert app.measure.farewell() == "it goes on"
        assert not app.measure.under_way
