"""The file of entries: whole lines, whatever happens to it and in whatever order it is joined."""

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.journal_scenes import crash, experiment, ready, result, verdict
from tui.core.errors import EagletuiError
from tui.core.journal import entries, writing
from tui.core.journal.model import Entry
from tui.core.model.verdict import VerdictKind


def lines() -> list[bytes]:
    return entries.path().read_bytes().splitlines(keepends=True)


def test_what_is_written_is_read_again():
    run = crash(1)
    measured = result(ready(2, difference=()), 3)
    experiment(4, verdict(VerdictKind.SLOWER, (measured.result_id,)))
    writing.sync()
    note = writing.note("German prompts", [f"run:{run.run_id}"], "user1")
    read = entries.load()
    assert read.left_out == 0
    assert {entry.kind for entry in read.entries} == {
        "launch",
        "ready",
        "end",
        "result",
        "experiment",
        "verdict",
        "note",
    }
    assert note in read.entries
    verdicts = next(entry.tried.verdicts for entry in read.entries if entry.kind == "verdict" and entry.tried)
    assert verdicts[0].ci == (0.79, 0.82)
    assert next(entry.ended.card for entry in read.entries if entry.kind == "end" and entry.ended) == run.card


def test_a_line_is_one_object_that_says_only_what_is_known():
    writing.note("first\nsecond", author="user1")
    (line,) = lines()
    assert set(json.loads(line)) == {"id", "at", "kind", "by", "text"}


def test_a_torn_line_hides_no_other_and_the_next_one_begins_anew():
    writing.note("one", author="a")
    writing.note("two", author="a")
    whole = entries.path().read_bytes()
    for cut in range(1, len(lines()[-1])):
        entries.path().write_bytes(whole[:-cut])
        writing.note("three", author="a")
        read = entries.load()
        wanted = (
            ["one", "two", "three"] if cut == 1 else ["one", "three"]
        )  # of a whole line only the end of it was lost
        assert [entry.text for entry in read.entries] == wanted, cut
        assert read.left_out == (cut > 1)
    assert entries.left_out_words(read) == f"{entries.path()}: 1 line left out: broken, or of a newer eagletui"


@given(st.lists(st.integers(0, 7), max_size=20), st.randoms())
def test_files_that_are_joined_in_any_order_say_the_same(chosen, random):
    made = [
        json.dumps(
            {"id": f"note-{n}", "at": f"2026-11-2{n}T00:00:00Z", "kind": "note", "by": "a", "text": str(n)}
        ).encode()
        for n in range(8)
    ]
    joined = [made[n] for n in (*chosen, *range(8))]
    random.shuffle(joined)
    assert [entry.text for entry in entries.parse(joined).entries] == list("01234567")


def test_times_of_one_second_are_in_order_however_they_are_written():
    at = ("2026-11-20T10:00:00Z", "2026-11-20T10:00:00.500000Z", "2026-11-20T12:00:00+01:00", "2026-11-20T10:00:01Z")
    made = [
        json.dumps({"id": str(n), "at": one, "kind": "note", "by": "a", "text": ""}).encode()
        for n, one in enumerate(at)
    ]
    read = [entry.id for entry in entries.parse(made).entries]
    assert read.index("1") < read.index("3")
    assert read.index("2") > read.index("3")


HOSTILE = [
    b"{}",
    b"[]",
    b"null",
    b'{"id": 1}',
    b'{"id": "a", "at": "x", "kind": "note", "by": "a"}',
    b"\xff\xfe",
    b"[" * 100_000,
    b'{"id": "a", "at": "2026", "kind": "note", "by": "a", "text": "' + b"x" * (1 << 21) + b'"}',
    b'{"id": "a", "at": "2026", "kind": "note", "by": "a", "text": "t", "ended": {"run_id": "r"}}',
]


@pytest.mark.parametrize("line", HOSTILE, ids=range(len(HOSTILE)))
def test_a_line_that_is_no_entry_is_left_out_and_counted(line):
    read = entries.parse([line, b"\n", b'{"id": "n", "at": "2026-11-20", "kind": "note", "by": "a", "text": "t"}'])
    assert [entry.id for entry in read.entries] == ["n"]
    assert read.left_out == 1


def test_a_kind_of_a_later_version_is_kept_and_text_is_safe():
    line = json.dumps({"id": "x", "at": "2026", "kind": "poem", "by": "\x1b[31mme", "text": "a\x1b]0;t\x07b", "new": 1})
    assert entries.parse([line.encode()]).entries == (Entry("x", "2026", "poem", "me", "ab"),)


def test_a_lock_that_is_never_let_go_is_an_error_and_not_a_hang(monkeypatch):
    monkeypatch.setattr(entries, "_PATIENCE_S", 0.05)
    with entries.locked(), pytest.raises(EagletuiError) as caught:
        writing.note("two")
    assert caught.value.slug == "busy"
    writing.note("three")
    assert len(lines()) == 1


def test_git_is_told_how_to_join_the_file_and_what_to_leave_out():
    writing.note("one")
    assert (entries.directory() / ".gitattributes").read_text() == "entries.jsonl merge=union\n"
    assert ".*\n" in (entries.directory() / ".gitignore").read_text()
    assert os.stat(entries.path()).st_mode & 0o777 == 0o600
