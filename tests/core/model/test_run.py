"""What the state of a run means."""

import pytest

from tui.core.model.run import Run, RunState


@pytest.mark.parametrize(
    ("state", "live", "active"),
    [
        (RunState.STAGED, False, False),
        (RunState.STARTING, True, True),
        (RunState.RUNNING, True, True),
        (RunState.FINISHING, True, True),
        (RunState.EXITED, False, False),
        (RunState.LOST, False, False),
        (RunState.UNKNOWN, False, True),
        (RunState.FOREIGN, False, True),
    ],
)
def test_live_is_ours_and_alive_and_active_may_hold_something(state: RunState, live: bool, active: bool) -> None:
    run = Run("r", "server", None, "h", state)
    assert (run.live, run.active) == (live, active)


def test_what_a_run_left_behind_is_active() -> None:
    assert Run("r", "server", None, "h", RunState.EXITED, orphans=(7,)).active
