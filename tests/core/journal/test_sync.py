"""The journal writes itself: each thing once, whoever writes at the same time and wherever somebody is killed."""

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.journal_scenes import BEGAN, crash, experiment, launch, ready, result, verdict
from tui.core.experiment import record as experiment_record
from tui.core.journal import entries, reading, sources, writing
from tui.core.journal.markdown import markdown
from tui.core.journal.model import Entry
from tui.core.model.profile import BenchProfile, LoadPoint
from tui.core.model.verdict import VerdictKind
from tui.core.results import store
from tui.core.server import launch_records
from tui.core.tune import record as tunes


def said() -> list[str]:
    return [f"{entry.kind}: {entry.text}" for entry in entries.load().entries]


def lines_of(file: Path) -> list[str]:
    return file.read_text().split() if file.exists() else []


def child(work: Callable[[], object]) -> int:
    """Does something in a process of its own; its pid."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    return pid


def test_each_thing_is_written_once_and_in_the_order_in_which_it_was():
    crash(1, "eagle3")
    run = ready(2, sets={"tp": 4, "port": 30001})
    result(run, 3)
    experiment(4, verdict(VerdictKind.FASTER))
    assert writing.sync() == 8 - 1
    assert [writing.sync(), writing.sync()] == [0, 0]
    assert said() == [
        "launch: launched eagle3 on gpu1",
        "end: crashed after 30:00: unsupported_arch, no kernel for SM120",
        "launch: launched base tp=4 on gpu1",
        "ready: ready after 11:09",
        "result: decode, conc 1: 72.0 tok/s per user",
        "experiment: began experiment does-eagle-pay: EAGLE-3 beats the baseline",
        "verdict: experiment does-eagle-pay done: B is faster (95 % CI 17.7 … 21.1 %, 3 launch pairs, paired ABBA)",
    ]


def test_what_goes_on_is_written_when_it_happens():
    run = launch(1, outcome="starting")
    assert writing.sync() == 1
    launch_records.write(replace(run, outcome="ready", ready_after_s=60.0))
    assert writing.sync() == 1
    launch_records.write(replace(run, outcome="stopped", ready_after_s=60.0, stopped_by="user1@laptop", ended_at=None))
    assert writing.sync() == 1
    assert said()[1:] == ["ready: ready after 1:00", "end: stopped by user1@laptop"]


def test_what_turns_out_to_be_otherwise_is_an_entry_of_its_own_and_counts():
    run = launch(1, outcome="lost")
    good = result(run, 2)
    writing.sync()
    launch_records.write(replace(run, outcome="crashed", cause="nccl"))
    store.write(replace(good, valid=False))
    assert writing.sync() == 2
    store.write(good)
    assert writing.sync() == 1
    ids = [entry.id for entry in entries.load().entries if entry.kind == "result"]
    assert ids == [f"result:{good.result_id}", f"result:{good.result_id}#2", f"result:{good.result_id}#3"]
    (row,) = reading.read().runs
    assert (row.outcome, row.cause, row.tok_s) == ("crashed", "nccl", pytest.approx(72.0))


def test_an_experiment_that_is_resumed_ends_again():
    stopped = experiment(1, outcome="stopped")
    writing.sync()
    experiment_record.write(replace(stopped, outcome="running", ended_at=None))
    assert writing.sync() == 0
    experiment_record.write(replace(stopped, outcome="done", verdicts=(verdict(VerdictKind.FASTER),)))
    assert writing.sync() == 1
    assert reading.read().hypotheses[0].status == "held"


@pytest.mark.parametrize("size", [1, 5000])
def test_entries_that_git_took_away_are_written_again_and_others_are_kept(size):
    crash(1)
    writing.sync()
    before = entries.path().read_bytes()
    text = "x" * size
    elsewhere = f'{{"id": "note-x", "at": "2026-11-20", "kind": "note", "by": "a", "text": "{text}"}}\n'.encode()
    other = entries.path().with_name("other")
    other.write_bytes(elsewhere)
    os.replace(other, entries.path())
    assert writing.sync() == 2
    assert sorted(entries.path().read_bytes().splitlines()) == sorted((before + elsewhere).splitlines())


def test_entries_that_were_cut_off_in_the_file_itself_are_written_again():
    crash(1)
    writing.sync()
    os.truncate(entries.path(), 0)
    assert writing.sync() == 2


def test_a_record_that_cannot_be_read_hides_no_other():
    crash(1)
    (launch_records.FILES.directory / "broken.json").write_text("{")
    assert writing.sync() == 2


GROUP = "two-20261120T140200Z-abcdef"
MEMBERS = [{"role": "rank", "number": n, "host": f"gpu{n}", "run_id": f"{GROUP}-{n}"} for n in (0, 1)]


def grouped(*members: dict[str, object]) -> None:
    for at, (member, fields) in enumerate(zip(MEMBERS, members, strict=True)):
        group = {"id": GROUP, "profile": "two", "members": MEMBERS}
        made = launch(at, "two", group=group, args={"node-rank": at})
        os.unlink(launch_records.FILES.path(made.run_id))
        launch_records.write(replace(made, run_id=member["run_id"], host=member["host"], **fields))


@pytest.mark.parametrize(
    ("members", "ends"),
    [
        (({"outcome": "lost"}, {"outcome": "crashed", "cause": "nccl"}), ("crashed", "nccl", None)),
        (
            ({"outcome": "ready", "ready_after_s": 9.0}, {"outcome": "ready", "ready_after_s": 7.0}),
            ("ready", None, 9.0),
        ),
        (({"outcome": "ready", "ready_after_s": 9.0}, {"outcome": "starting"}), ("starting", None, None)),
        (({"outcome": "stopped"}, {"outcome": "crashed", "stopped_with_group": True}), ("stopped", None, None)),
    ],
)
def test_a_group_is_one_launch_at_the_host_that_serves(members, ends):
    grouped(*members)
    writing.sync()
    (row,) = reading.read().runs
    assert (row.run_id, row.host, row.outcome, row.cause, row.ready_after_s) == (GROUP, "gpu0", *ends)


def test_a_group_with_another_member_is_another_configuration():
    grouped({}, {})
    one = next(sources.of_launch(launch_records.FILES.read_all()[0])).launched
    second = launch_records.read(f"{GROUP}-1")
    launch_records.write(replace(second, args={**second.args, "tp": 4}))
    other = next(sources.of_launch(launch_records.FILES.read_all()[0])).launched
    assert one.configuration != other.configuration


@pytest.mark.parametrize("where", ["write", "markdown", "seen"])
def test_a_kill_at_any_step_loses_nothing_and_writes_nothing_twice(where, monkeypatch):
    crash(1)
    ready(2)

    def killed(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def half(descriptor: int, data: bytes) -> int:
        original(descriptor, data[: len(data) // 2 + 7])
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError

    original = os.write
    with monkeypatch.context() as patch:
        if where == "write":
            patch.setattr(os, "write", half)
        patch.setattr(writing, "_write_markdown", killed)
        if where == "seen":
            patch.undo()
            patch.setattr(writing, "_has_seen", killed)
        assert os.waitpid(child(writing.sync), 0)[1] == signal.SIGKILL
    left = len(entries.load().entries)
    assert (left < 4) == (where == "write")
    assert writing.sync() == 4 - left
    assert "2 launches" in (entries.directory() / "journal.md").read_text()
    ids = Counter(entry.id for entry in entries.load().entries)
    assert len(ids) == 4
    assert sum(b'"id"' in line for line in entries.path().read_bytes().splitlines()) == 4 + (where == "write")


@pytest.mark.parametrize("seed", [1, 2])
def test_two_panels_and_an_agent_at_once_of_which_one_is_killed_again_and_again(seed, tmp_path):
    chance = random.Random(seed)

    def panel(name: str, first: int, last: int) -> None:
        for number in range(first, last):
            crash(number, name)
            writing.sync()
            written = writing.note(f"{name} {number}", author=name)
            with (tmp_path / name).open("a") as told:  # what was said to be written must be there
                told.write(written.id + "\n")

    steady = [child(lambda name=name, at=at: panel(name, at, at + 12)) for name, at in (("a", 100), ("b", 200))]
    for at in range(1000, 5000, 1000):
        pid = child(lambda at=at: panel("agent", at, at + 1000))
        wanted = len(lines_of(tmp_path / "agent")) + chance.randrange(1, 5)
        while len(lines_of(tmp_path / "agent")) < wanted:
            time.sleep(chance.uniform(0.0, 0.002))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    for pid in steady:
        assert os.waitpid(pid, 0)[1] == 0
    writing.sync()

    stored = entries.load()
    ids = {entry.id for entry in stored.entries}
    for told in tmp_path.iterdir():
        assert set(told.read_text().split()) <= ids
    for record in launch_records.FILES.read_all():
        assert {f"launch:{record.run_id}", f"end:{record.run_id}"} <= ids
    assert len([entry for entry in stored.entries if entry.by in ("a", "b")]) == 24
    raw = Counter(json.loads(line)["id"] for line in entries.path().read_bytes().splitlines() if line.endswith(b"}"))
    assert set(raw.values()) == {1}
    assert stored.left_out <= 4
    assert f"{len(reading.read().runs)} launches" in (entries.directory() / "journal.md").read_text()


def test_a_new_store_is_a_line_of_the_registry(monkeypatch):
    def tunes(record: launch_records.LaunchRecord) -> list[Entry]:
        return [Entry(f"tune:{record.run_id}", record.launched_at, "tune", "eagletui", "tuned")]

    monkeypatch.setattr(writing, "SOURCES", (*sources.SOURCES[1:], sources.Source(launch_records.FILES, tunes)))
    crash(1)
    assert writing.sync() == 1
    assert said() == ["tune: tuned"]


def test_nothing_to_write_reads_no_record(monkeypatch):
    crash(1)
    writing.sync()
    monkeypatch.setattr(entries, "load", lambda: pytest.fail("the entries were read"))
    monkeypatch.setattr(launch_records.FILES.__class__, "read", lambda *_: pytest.fail("a record was read"))
    assert writing.sync() == 0


def test_a_journal_that_cannot_be_written_is_one_line(monkeypatch, capsys):
    crash(1)
    entries.directory().parent.mkdir(exist_ok=True, parents=True)
    entries.directory().write_text("a file")
    writing.sync_quietly()
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("eagletui: the journal was not written: ")
    assert err.count("\n") == 1


def test_times_are_of_what_happened():
    crash(1)
    writing.sync()
    assert [entry.at for entry in entries.load().entries] == ["2026-11-20T15:02:00Z", "2026-11-20T15:32:00Z"]
    assert BEGAN.year == 2026


def test_a_tune_says_each_step_on_its_launch_and_what_was_found():
    begun, ended, later = (f"2026-11-01T10:0{minute}:00Z" for minute in range(3))
    step = tunes.Step(tunes.Phase.RANGE, "the middle of what is not known", 0.88, tunes.Draft(3, 1, 4))
    bench = BenchProfile("users", points=(LoadPoint(1),))
    record = tunes.TuneRecord("tune-1", "eagle3", "gpu1", "tok_s", bench, step.draft, 0.76, None, "EAGLE3", 300, 1)
    record = replace(record, started_at=begun).with_step(tunes.Taken(1, step, run_id="eagle3-x-abc123"))
    tunes.write(record)
    assert writing.sync() == 0  # it is under way
    over = replace(record.steps[0], status=tunes.Status.DONE, ended_at=ended, kv_tokens=58600)
    tunes.write(replace(record.with_step(over), outcome="stopped", message="stopped", ended_at=later))
    assert writing.sync() == 2
    assert said()[0] == (
        "tune: tune eagle3, step 1, mem-fraction-static 0.88: starts and serves the longest prompt, 58,600 KV tokens. "
        "Why: the middle of what is not known"
    )
    assert said()[1].startswith("tune: tune eagle3 for tok_s, stopped: ")
    tunes.write(replace(record.with_step(over), outcome="done", message="done", ended_at=later))
    assert writing.sync() == 1  # it was resumed, and ended again
    journal = reading.read("gpu1")
    assert {ref for note in journal.notes for ref in note.about} >= {
        "run:eagle3-x-abc123",
        "profile:eagle3",
        "host:gpu1",
    }
    assert "## Tunes" in markdown(journal)
    assert "## Notes" not in markdown(journal)
