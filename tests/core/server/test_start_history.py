"""What a start leaves in this machine's record of it."""

from dataclasses import replace

import pytest

from tests.support import fakes
from tui.core.server import launch_records
from tui.core.server.earlier_starts import ledger_of
from tui.core.server.launch_records import LaunchRecord
from tui.core.server.start_history import record_start
from tui.core.sglang.state import LedgerRow

HYBRID = LedgerRow("TP0", 22.93, 8.85, 1.0, 5.0, 0.26, 3.79, 327310, state_cache_gib=4.48, other_gib=0.55, draft_after_pools=True)  # fmt: skip


def recorded(row: LedgerRow, *, on_cpu: bool = False) -> LaunchRecord:
    state = fakes.ready(startup=replace(fakes.ready().startup, ledger=(row,), host_memory=on_cpu))
    launch_records.write(LaunchRecord(state.run.run_id, "gpu1", "server", "kimi", "2026-10-06T20:01:03Z"))
    record_start(state)
    record = launch_records.read(state.run.run_id)
    assert record is not None
    return record


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("EAGLETUI_HOME", str(tmp_path))


def test_a_ledger_comes_back_whole():
    assert ledger_of(recorded(HYBRID)) == (HYBRID,)


def test_a_contradiction_is_not_kept_and_hides_no_figure():
    assert ledger_of(recorded(replace(HYBRID, other_gib=None, contradiction="line 4: …"))) == (
        replace(HYBRID, other_gib=None),
    )


def test_the_memory_of_a_host_is_no_measure_for_the_next_start():
    assert ledger_of(recorded(HYBRID, on_cpu=True)) == ()
