"""Reading the screen of an app under test, and waiting for it without sleeping."""

import time
from collections.abc import Callable

import pytest
from textual.pilot import Pilot


def screen_text(app) -> str:
    """What the terminal shows, row by row."""
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip) for strip in strips)


async def until(pilot: Pilot, condition: Callable[[], object], *, deadline_s: float = 60.0) -> None:
    """Waits for a condition; fails with the screen where it never comes true."""
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end:
            pytest.fail(f"did not come true; the screen:\n{screen_text(pilot.app)}")
        await pilot.pause(0.01)


async def shows(pilot: Pilot, *texts: str) -> None:
    """Waits until the screen shows all of these."""
    await until(pilot, lambda: all(text in screen_text(pilot.app) for text in texts))
