"""Times of a start by the stamps of its log and the host's clock."""

import time
from datetime import UTC, datetime, timedelta

import pytest

from tests.support import fakes
from tui.core.model.phases import Outcome, Phase
from tui.core.server.start_times import HostClock, StartTimes, start_times
from tui.core.sglang.tracker import LogTracker

LAUNCHED = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=2)
LINES = {
    1: "server_args=ServerArgs(tp_size=2)",
    3: "Init torch distributed begin.",
    5: "Load weight begin. avail mem=78.00 GB",
    25: "Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem=60.00 GB, mem usage=18.00 GB.",
    30: "Dummy health check server started in background thread at 127.0.0.1:31501",
}


def times(outcome: Outcome, *, follows: bool = True, ready_after_s: float | None = None) -> StartTimes:
    """Of a start two hours ago whose log ends with the follower's last milestone."""
    tracker = LogTracker()
    for second, line in LINES.items():
        tracker.feed(f"[{LAUNCHED + timedelta(seconds=second):%Y-%m-%d %H:%M:%S}] {line}\n".encode())
    over = outcome is Outcome.STOPPED
    ended = datetime.fromtimestamp(time.time(), UTC).isoformat() if over else None
    return start_times(
        fakes.run(started_at=LAUNCHED.isoformat(), ended_at=ended, argv=("x", "--node-rank", "1" if follows else "0")),
        tracker.state(),
        HostClock(0.0, timedelta()),
        phase=Phase.WARMUP,
        outcome=outcome,
        ready=outcome is Outcome.READY,
        ready_after_s=ready_after_s,
    )


@pytest.mark.parametrize("outcome", [Outcome.STARTING, Outcome.READY, Outcome.STOPPED, Outcome.CRASHED])
def test_a_follower_has_no_warm_up_that_grows_with_its_life(outcome: Outcome) -> None:
    found = times(outcome, ready_after_s=31.0)
    assert found.phase_took_s[Phase.LOAD_WEIGHTS] >= 20
    assert Phase.WARMUP not in found.phase_took_s
    assert sum(found.phase_took_s.values()) <= 31


def test_the_warm_up_of_any_other_server_goes_on_to_its_end() -> None:
    assert times(Outcome.STOPPED, follows=False).phase_took_s[Phase.WARMUP] > 7000
