"""What a start leaves in this machine's record of it."""

from dataclasses import replace

import pytest

from tests.support import fakes
from tui.core.model.phases import Outcome
from tui.core.profiles.secrets import MASK
from tui.core.server import launch_records
from tui.core.server.earlier_starts import ledger_of
from tui.core.server.launch_records import LaunchRecord
from tui.core.server.server_state import ServerState
from tui.core.server.start_history import record_start
from tui.core.sglang.diagnosis import Diagnosis, Evidence
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


def crashed(**changes: object) -> Diagnosis:
    lines = tuple(f"line {number}" for number in range(30))
    evidence = Evidence(1871, "RuntimeError", ("api_key=sk-aaaaaaaaaaaaaaaaaaaaaaaaaaaa", "x" * 5000, *lines))
    advice = ("Raise it",)
    found = Diagnosis(
        "oom_kv_pool", "no room", None, "TP0", evidence, advice, {"mem-fraction-static": 0.88, "api-key": "k"}
    )
    return replace(found, **changes)


def end(state: ServerState) -> LaunchRecord:
    if launch_records.read(state.run.run_id) is None:
        launch_records.write(LaunchRecord(state.run.run_id, "gpu1", "server", "kimi", "2026-10-06T20:01:03Z"))
    record_start(state)
    record = launch_records.read(state.run.run_id)
    assert record is not None
    return record


def test_the_crash_card_is_kept_in_few_lines_and_without_secrets():
    card = end(replace(fakes.ready(), outcome=Outcome.CRASHED, diagnosis=crashed())).card
    assert card is not None
    assert (card.title, card.rank, card.line, card.advice) == ("no room", "TP0", 1871, ("Raise it",))
    assert (len(card.evidence), max(map(len, card.evidence))) == (8, 300)
    assert "sk-aaaa" not in str(card)
    assert card.change == {"mem-fraction-static": 0.88, "api-key": MASK}
    state = replace(fakes.ready(), outcome=Outcome.CRASHED, diagnosis=None)
    assert end(state).card == card  # one who comes later and sees less takes nothing away


def test_a_server_that_lives_or_was_stopped_has_no_card_and_evidence_outside_of_the_log_no_line():
    for outcome in (Outcome.READY, Outcome.STOPPED, Outcome.STARTING):
        assert end(replace(fakes.ready(), outcome=outcome, diagnosis=crashed())).card is None
    found = crashed(evidence=Evidence(0, "the kernel killed it"))
    card = end(replace(fakes.ready(), outcome=Outcome.LOST, diagnosis=found)).card
    assert card is not None
    assert (card.line, card.evidence) == (None, ("the kernel killed it",))


@pytest.mark.parametrize("here", [True, False], ids=["the process that launched", "another"])
def test_the_log_is_quoted_by_who_knows_what_was_secret_in_the_launch(here):
    state = replace(fakes.ready(), outcome=Outcome.CRASHED, diagnosis=crashed())
    record = LaunchRecord(state.run.run_id, "gpu1", "server", "big", "2026-11-30T12:00:00Z", {"env.MY_TOKEN": MASK})
    (launch_records.begin if here else launch_records.write)(record)
    record_start(state)
    card = launch_records.read(state.run.run_id).card
    launch_records._begun_here.clear()
    assert (card.rank, card.line, bool(card.evidence)) == ("TP0", 1871, here)
    assert ("its log is not quoted" in card.title) is not here


def test_who_stopped_it_is_kept():
    state = fakes.ready()
    run = replace(state.run, stop_by="user1@laptop")
    assert end(replace(state, run=run, outcome=Outcome.STOPPED)).stopped_by == "user1@laptop"


def test_a_contradiction_is_not_kept_and_hides_no_figure():
    assert ledger_of(recorded(replace(HYBRID, other_gib=None, contradiction="line 4: …"))) == (
        replace(HYBRID, other_gib=None),
    )


def test_the_memory_of_a_host_is_no_measure_for_the_next_start():
    assert ledger_of(recorded(HYBRID, on_cpu=True)) == ()
