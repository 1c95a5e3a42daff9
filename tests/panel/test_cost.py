"""What a tick sends to the terminal: changed cells, and nothing else."""

import time
from dataclasses import replace

from rich.console import Console

from tests.support import fakes
from tests.support.driving import shows, until
from tui.core.host.gpus import GpuSample
from tui.panel.app import EagleApp
from tui.panel.widgets.gpu_panel import GpuPanel
from tui.panel.widgets.tight import TightUpdate


async def test_a_tick_of_eight_gpus_sends_a_few_hundred_bytes():
    app = EagleApp("gpu1", open_session=fakes.Hosts(fakes.scene("ready")))
    async with app.run_test(size=(160, 48)) as pilot:
        await shows(pilot, "● READY", "87.6", "234")
        panel = app.screen.query_one(GpuPanel)
        await until(
            pilot, lambda: panel.size.height >= 10 and (panel._canvas.width, panel._canvas.height) == tuple(panel.size)
        )
        warmer = tuple(
            replace(gpu, temperature_c=71.0, power_w=333.0) for gpu in fakes.gpus(87.6, straggler=None, util=95)
        )
        app.board.take_sample(GpuSample(time.time(), warmer, "nvml"))
        panel._exchange_repaint_regions()
        app.screen._compositor._dirty_regions.clear()
        panel.repaint()
        regions = set(panel._exchange_repaint_regions())
        assert regions
        origin = panel.region.offset
        app.screen._compositor._dirty_regions.update(region.translate(origin) for region in regions)
        update = app.screen._compositor.render_partial_update()
        assert isinstance(update, TightUpdate)
        assert sum(last - first for _, first, last in update.spans) < 8 * 24
        assert len({y for y, _, _ in update.spans}) == 8
        sent = update.render_segments(Console(color_system="truecolor", force_terminal=True))
        assert sent.count("333") == 8
        assert "RTX PRO" not in sent
        assert len(sent) < 3500


async def test_an_unchanged_tick_sends_nothing():
    app = EagleApp("gpu1", open_session=fakes.Hosts(fakes.scene("idle")))
    async with app.run_test(size=(160, 48)) as pilot:
        await shows(pilot, "No server runs here.")
        panel = app.screen.query_one(GpuPanel)
        panel.repaint()
        panel._exchange_repaint_regions()
        panel.repaint()
        assert not panel._exchange_repaint_regions()
