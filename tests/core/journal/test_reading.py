"""What follows from the entries: runs, hypotheses, dead ends, ideas, notes; of one host, one model, one time."""

from dataclasses import replace

import pytest

from tests.support.journal_scenes import NO_KERNEL, at, crash, experiment, launch, ready, result, verdict
from tui.core.config import load_settings
from tui.core.errors import UsageError
from tui.core.experiment import record as experiment_record
from tui.core.experiment.record import Cell
from tui.core.host.facts_cache import _path
from tui.core.journal import reading, writing
from tui.core.journal.claims import status_of
from tui.core.journal.model import Journal, Status
from tui.core.model.experiment import ArmStatus
from tui.core.model.profile import DiffLine
from tui.core.model.verdict import VerdictKind

SLOWER, FASTER, EQUAL = VerdictKind.SLOWER, VerdictKind.FASTER, VerdictKind.EQUIVALENT


def read(host: str | None = None) -> Journal:
    writing.sync()
    return reading.read(host)


# -- runs --------------------------------------------------------------------------------------------------------------


def test_a_run_is_a_row_with_all_that_came_of_it():
    run = launch(
        1,
        outcome="stopped",
        ready_after_s=600.0,
        stopped_by="user1@laptop",
        gpu_names=("H200",),
        driver="580",
        torch="2.9.1",
        sglang="0.5.23",
        extends="root",
        difference=(DiffLine("+", "tp", None, "8"),),
    )
    kept = [result(run, 1, 70.0), result(run, 2, 75.0), result(run, 3, 300.0, users=16)]
    result(run, 4, 1.0, valid=False)
    note = writing.note("as expected", [f"run:{run.run_id}"], "user1")
    (row,) = read().runs
    assert (row.outcome, row.stopped_by, row.ready_after_s, row.ran_s, row.served_s) == (
        "stopped",
        "user1@laptop",
        600.0,
        1800.0,
        1200.0,
    )
    assert (row.tok_s, row.level) == (pytest.approx((70 * 75) ** 0.5), "L1")  # at the lightest load, what counts
    assert set(row.results) > {one.result_id for one in kept}
    assert (row.parent, row.difference) == ("root", (DiffLine("+", "tp", None, "8"),))
    assert (row.environment.driver, row.environment.torch) == ("580", "2.9.1")
    assert [one.entry_id for one in row.notes] == [note.id]


def test_a_crash_keeps_its_card_when_the_host_and_this_machine_forget_it():
    run = crash(1)
    writing.sync()
    (experiment_record.FILES.directory.parent / "launches" / f"{run.run_id}.json").unlink()
    (row,) = read().runs
    assert (row.outcome, row.card) == ("crashed", NO_KERNEL)


def test_one_run_is_no_level_and_a_verdict_gives_its_own():
    alone, judged = ready(1), ready(2, "eagle3")
    result(alone, 1)
    rests = result(judged, 2)
    experiment(3, verdict(FASTER, (rests.result_id,)), cells=(Cell(1, "B", 1, ArmStatus.MEASURED, judged.run_id),))
    rows = {row.profile: row for row in read().runs}
    assert (rows["base"].level, rows["eagle3"].level) == ("L0", "L2")
    assert rows["eagle3"].experiment == "does-eagle-pay-20261120T140200Z-000003"
    assert read().best == rows["base"] or rows["base"].tok_s == rows["eagle3"].tok_s


def test_a_launch_that_does_not_say_on_what_it_ran_has_its_results_say_it():
    result(ready(1), 1)
    (row,) = read().runs
    assert (row.environment.gpus, row.environment.driver, row.environment.sglang) == (
        ("H200",) * 2,
        "580.95.05",
        "0.5.23",
    )


def test_the_end_is_the_last_word_whatever_the_clocks_say():
    ready(2, outcome="crashed", cause="oom_serving", ended_at=at(1))  # ended before it was ready, by another clock
    (row,) = read().runs
    assert (row.outcome, row.ready_after_s, row.ran_s) == ("crashed", 669.0, None)


# -- hypotheses --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kinds", "status"),
    [
        ([FASTER], Status.HELD),
        ([SLOWER, SLOWER], Status.REFUTED),
        ([EQUAL], Status.EQUAL),
        ([FASTER, VerdictKind.INDISTINCT], Status.HELD),
        ([FASTER, SLOWER], Status.OPEN),
        ([FASTER, EQUAL], Status.OPEN),
        ([VerdictKind.LOOKS_FASTER], Status.EARLY),
        ([VerdictKind.LOOKS_SLOWER, VerdictKind.INVALID], Status.EARLY),
        ([VerdictKind.INDISTINCT], Status.OPEN),
        ([VerdictKind.INVALID], Status.OPEN),
        ([], Status.OPEN),
    ],
)
def test_where_a_hypothesis_is_follows_from_the_verdicts(kinds, status):
    assert status_of([verdict(kind) for kind in kinds]) is status


def test_every_verdict_has_a_meaning():
    for kind in VerdictKind:
        assert status_of([verdict(kind)]) in Status


def test_an_experiment_is_a_hypothesis_with_its_runs_notes_and_environment(monkeypatch):
    failed = crash(1, "eagle3", "oom_kv_pool")
    run = ready(2, "eagle3", driver="580.95.05", sglang="0.5.23")
    result(run, 3)
    other = ready(4, "unrelated")
    record = experiment(5, verdict(SLOWER), cells=(Cell(1, "B", 1, ArmStatus.MEASURED, run.run_id),))
    writing.note("German prompts", [f"experiment:{record.experiment_id}"], "user1")
    writing.note("too little memory", [f"run:{failed.run_id}"], "agent")
    writing.note("of another", [f"run:{other.run_id}"], "agent")
    cache = _path(load_settings().host("gpu1"))
    cache.parent.mkdir(parents=True)
    cache.write_text('{"driver": "590.48.01", "sglang": "0.5.23"}')
    (one,) = read().hypotheses
    assert (one.text, one.status, one.host) == ("EAGLE-3 beats the baseline", Status.REFUTED, "gpu1")
    assert one.verdict is not None
    assert (one.verdict.level, one.settled_at, one.launches) == ("L2", at(6), (1, 1))
    assert [row.run_id for row in one.runs] == [run.run_id, failed.run_id]
    assert [note.text for note in one.notes] == ["too little memory", "German prompts"]
    assert one.environment.driver == "580.95.05"
    assert one.since_then == ("the driver of gpu1 is now 590.48.01 (it was 580.95.05)",)


def test_one_asked_again_is_one_hypothesis_and_the_newest_verdict_counts():
    experiment(1, verdict(VerdictKind.LOOKS_SLOWER))
    experiment(9, verdict(FASTER))
    experiment(5, verdict(SLOWER), host="gpu2")
    found = read().hypotheses
    assert [(one.host, one.status, len(one.experiments)) for one in found] == [
        ("gpu2", Status.REFUTED, 1),
        ("gpu1", Status.HELD, 2),
    ]


def test_one_that_a_process_runs_is_running_and_one_that_was_killed_is_open():
    run = ready(1)
    cells = Cell(1, "A", 1), Cell(2, "B", 1)
    record = experiment(1, outcome="running", ended_at=None, cells=cells)
    assert read().hypotheses[0].launches == (0, 2)
    measured = replace(cells[0], status=ArmStatus.MEASURED, run_id=run.run_id)
    experiment_record.write(replace(record, cells=(measured, cells[1])))
    (killed,) = read().hypotheses
    assert (killed.status, killed.launches, [row.run_id for row in killed.runs]) == (Status.OPEN, (1, 2), [run.run_id])
    with experiment_record.driving(record.experiment_id):
        experiment_record.write(record.with_cell(replace(record.cells[0], status=ArmStatus.MEASURED)))
        (one,) = read().hypotheses
        assert (one.status, one.launches) == (Status.RUNNING, (1, 2))


def test_one_that_is_resumed_is_running_whatever_was_said_of_it():
    record = experiment(1, outcome="stopped")
    (one,) = read().hypotheses
    writing.settle(one.entry_id, Status.PARKED)
    experiment_record.write(replace(record, outcome="running", ended_at=None))
    assert read().hypotheses[0].status is Status.PARKED
    with experiment_record.driving(record.experiment_id):
        assert read().hypotheses[0].status is Status.RUNNING


def test_an_arm_that_never_ran_is_said():
    cells = (Cell(1, "B", 1, ArmStatus.FAILED, cause="oom_kv_pool", reason="no room"),)
    experiment(1, cells=cells, message="no pair")
    assert read().hypotheses[0].failed == ("B: oom_kv_pool, no room",)


def test_a_persons_word_counts_more_until_it_is_taken_back():
    experiment(1, verdict(SLOWER))
    (one,) = read().hypotheses
    writing.settle(one.entry_id, Status.PARKED, "later", "user1")
    (parked,) = read().hypotheses
    assert (parked.status, parked.why) == (Status.PARKED, "later")
    assert parked.verdicts == one.verdicts
    writing.settle(one.entry_id, Status.HELD, "after all", "user1")
    assert read().hypotheses[0].status is Status.HELD


def test_a_written_one_takes_the_status_of_the_experiment_that_it_names():
    record = experiment(1, verdict(FASTER), hypothesis=None)
    written = writing.hypothesis("graphs pay", [f"experiment:{record.experiment_id}"], "user1")
    found = {one.entry_id: one for one in read().hypotheses}
    assert (found[written.id].status, found[written.id].by) == (Status.HELD, "user1")
    assert {one.text for one in found.values()} == {"graphs pay", "experiment does-eagle-pay"}


# -- dead ends ---------------------------------------------------------------------------------------------------------


def test_what_crashed_and_never_started_again_is_a_dead_end():
    difference = (DiffLine("+", "enable-symm-mem", None, "true"),)
    crash(1, "symm", difference=difference, extends="base")
    last = crash(2, "symm", difference=difference, extends="base")
    writing.note("with the next torch", [f"run:{last.run_id}"], "user1")
    ready(3, "other", args={"tp": 4})
    (end,) = read().dead_ends
    assert (end.profile, end.cause, end.what, end.line) == ("symm", "unsupported_arch", "no kernel for SM120", 1412)
    assert (end.tries, end.at, end.note, end.difference) == (2, at(2.5), "with the next torch", difference)


def test_the_same_flags_under_another_name_that_started_later_end_it():
    crash(1, "symm")
    assert len(read().dead_ends) == 1
    ready(2, "renamed", args={"port": 30007})
    assert read().dead_ends == ()
    crash(3, "symm")
    assert len(read().dead_ends) == 1


@pytest.mark.parametrize(
    "fields", [{"args": {"mem-fraction-static": 0.88}}, {"env": {"NCCL_ALGO": "Tree"}}, {"host": "gpu2"}]
)
def test_another_configuration_or_host_ends_nothing(fields):
    crash(1)
    ready(2, **fields)
    assert len(read().dead_ends) == 1


@pytest.mark.parametrize("cause", ["port_in_use", "job_time_limit", "node_failure"])
def test_an_end_that_says_nothing_about_the_configuration_is_none(cause):
    crash(1, cause=cause)
    assert read().dead_ends == ()


def test_what_a_verdict_calls_slower_is_one_and_what_looks_so_is_not():
    runs = [ready(n, "eagle3") for n in (1, 2)]
    results = tuple(result(run, n, experiment="x", arm="B").result_id for n, run in enumerate(runs, 3))
    record = experiment(4, verdict(SLOWER, results), verdict(VerdictKind.LOOKS_SLOWER))
    for n, name in enumerate(results):
        result(runs[n], n + 3, experiment=record.experiment_id, arm="B")
        assert name in results
    (end,) = read().dead_ends
    assert (end.profile, end.sets, end.cause, end.level, end.tries) == ("eagle3", {"tp": 4}, "slower", "L2", 3)
    assert end.run_id == runs[1].run_id


# -- people ------------------------------------------------------------------------------------------------------------


def test_an_idea_is_ticked_off_dropped_and_opened_again():
    written = writing.idea("fp8 KV cache", author="user1")
    states = []
    for state in ("done", "dropped", "open"):
        writing.tick(written.id, state, "why", "user1")
        (idea,) = reading.read().ideas
        states.append((idea.state, idea.ticked_at is not None))
    assert states == [("done", True), ("dropped", True), ("open", False)]


def test_what_is_taken_back_is_in_the_file_and_shown_no_more():
    note, idea = writing.note("wrong", author="a"), writing.idea("wrong", author="a")
    for entry in (note, idea):
        writing.retract(entry.id, author="a")
    assert (reading.read().notes, reading.read().ideas, reading.read().entries) == ((), (), ())


def test_who_writes(monkeypatch):
    monkeypatch.setenv("USER", "user1")
    assert writing.note("x").by == "user1"
    assert writing.note("x", author="agent\n\x1b[31m").by == "agent"
    monkeypatch.delenv("USER")
    monkeypatch.delenv("LOGNAME", raising=False)
    assert writing.note("x").by == "somebody"


@pytest.mark.parametrize("text", ["", "  \n", "x" * 4001])
def test_a_text_that_says_nothing_or_too_much_is_refused(text):
    with pytest.raises(UsageError):
        writing.note(text)
    assert reading.read().notes == ()


def test_a_secret_in_a_note_is_masked():
    assert "hf_" + "a" * 34 not in writing.note("token=hf_" + "a" * 34).text


# -- parts of it -------------------------------------------------------------------------------------------------------


def test_of_one_host_there_is_what_is_about_it_and_what_is_about_none():
    here, there = crash(1), crash(2, host="gpu2")
    experiment(3, verdict(SLOWER), host="gpu2")
    for about in ([f"run:{here.run_id}"], [f"run:{there.run_id}"], ["host:gpu2"], []):
        writing.note(f"about {about}", about, "a")
    journal = read("gpu1")
    assert {row.host for row in journal.runs} | {end.host for end in journal.dead_ends} == {"gpu1"}
    assert journal.hypotheses == ()
    assert [note.about for note in journal.notes] == [(), (f"run:{here.run_id}",)]
    assert {entry.kind for entry in journal.entries} == {"launch", "end", "note"}
    assert len(reading.read("gpu2").notes) == 3


def test_of_a_model_a_time_and_a_search():
    crash(1)
    crash(30, "qwen", args={"model-path": "/m/Qwen3-235B"})
    writing.idea("Qwen with fp8", author="a")
    whole = read()
    assert [row.profile for row in reading.narrowed(whole, model="qwen3").runs] == ["qwen"]
    assert [end.profile for end in reading.narrowed(whole, model="kimi").dead_ends] == ["base"]
    assert len(reading.narrowed(whole, model="kimi").ideas) == 1
    assert [row.profile for row in reading.narrowed(whole, since="2026-11-21").runs] == ["qwen"]
    found = reading.narrowed(whole, search="QWEN fp8")
    assert (len(found.ideas), found.runs, found.dead_ends) == (1, (), ())
    assert len(reading.narrowed(whole, search="sm120").runs) == 2
    with pytest.raises(UsageError):
        reading.narrowed(whole, since="soon")
