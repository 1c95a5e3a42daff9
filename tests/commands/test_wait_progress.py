"""What `wait` and `launch --wait` say on the way: a suspicion and a slow phase once, with what speaks for them."""

from dataclasses import replace

import pytest

from tui.commands.wait import say_progress
from tui.core.model.phases import Outcome, Phase
from tui.core.model.run import Run, RunState
from tui.core.server.server_state import ServerState
from tui.core.server.watchdog import Slower, Suspicion
from tui.core.sglang.state import StartupState

STATE = ServerState(
    Run("kimi-20261006T200103Z-4f9c2a", "server", "kimi", "gpu1", RunState.RUNNING),
    Outcome.STARTING,
    Phase.CUDA_GRAPH,
    StartupState(),
)


def said(capsys: pytest.CaptureFixture[str], state: ServerState, shown: object) -> tuple[str, object]:
    shown = say_progress(state, shown)
    return capsys.readouterr().err, shown


def test_a_suspicion_is_said_once_until_it_hardens(capsys: pytest.CaptureFixture[str]) -> None:
    _, shown = said(capsys, STATE, None)
    suspicion = Suspicion("silence", "no new line for 4 min", ("no process of it uses the CPU",))
    state = replace(STATE, suspicion=suspicion.text, suspected=suspicion)
    text, shown = said(capsys, state, shown)
    assert "cuda graph: it may hang: no new line for 4 min (no process of it uses the CPU)" in text
    later = replace(suspicion, text="no new line for 5 min")
    text, shown = said(capsys, replace(STATE, suspicion=later.text, suspected=later), shown)
    assert text == ""
    hard = replace(later, hard=True)
    text, shown = said(capsys, replace(STATE, suspicion=hard.text, suspected=hard), shown)
    assert "no new line for 5 min" in text


def test_slower_than_ever_is_said_with_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    slower = Slower(Phase.CUDA_GRAPH, 300.0, 200.0, ("kernels are compiled anew",))
    text, shown = said(capsys, replace(STATE, slower=slower), None)
    assert "slower than ever here (300 s, at most 200 s before); perhaps kernels are compiled anew" in text
    text, _ = said(capsys, replace(STATE, slower=replace(slower, took_s=310.0)), shown)
    assert text == ""
