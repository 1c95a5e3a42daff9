"""Results on disk: whole or not at all, whoever writes, whenever it is killed."""

import gzip
import json
import os
import random
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.stored import measured
from tui.core import records
from tui.core.errors import EagletuiError, UsageError
from tui.core.model.result import MeasuredServer, Result, Throughput
from tui.core.records import from_json, to_json
from tui.core.results import store


def test_a_result_comes_back_whole_with_its_rows():
    result = measured()
    store.write(result, gzip.compress(b'{"i": 0, "out": 5}\n{"i": 1, "out": 7}\n'))
    assert store.read(result.result_id) == result
    assert store.rows(result.result_id) == [{"i": 0, "out": 5}, {"i": 1, "out": 7}]
    assert sorted(os.listdir(store.FILES.directory)) == [
        f"{result.result_id}.json",
        f"{result.result_id}.rows.jsonl.gz",
    ]
    store.write(replace(result, valid=False))  # recomputed: its rows stay
    assert len(store.rows(result.result_id)) == 2


def test_newest_first_and_what_says_no_time_last():
    for number, started_at in enumerate(("2026-11-01T10:00:00Z", None, "2026-11-02T10:00:00Z"), 1):
        store.write(measured(number, started_at=started_at))
    assert [result.started_at for result in store.read_all()] == ["2026-11-02T10:00:00Z", "2026-11-01T10:00:00Z", None]


# -- recomputed -----------------------------------------------------------------------------------------------------


def test_nothing_is_there():
    assert store.read_all() == []
    assert store.read("decode-1") is None
    assert store.rows("decode-1") == []


def test_newest_first_and_foreign_files_hide_nothing(tmp_path):
    for number in (1, 3, 2):
        store.write(measured(number))
    directory = store.FILES.directory
    whole = json.loads((directory / f"{measured(1).result_id}.json").read_text())
    foreign = {
        "half.json": '{"result_id": "half"',
        "empty.json": "",
        "list.json": "[]",
        "other-name.json": json.dumps(whole),
        "newer.json": json.dumps(whole | {"result_id": "newer", "schema": 2}),
        "typed.json": json.dumps(whole | {"result_id": "typed", "valid": "yes"}),
        "deep.json": "[" * 100_000,
        "huge.json": '{"result_id": "huge", "notes": ["' + "x" * (9 << 20) + '"]}',
    }
    for name, text in foreign.items():
        (directory / name).write_text(text)
    (directory / "binary.json").write_bytes(b"\xff\xfe\x00{")
    (directory / "directory.json").mkdir()
    os.mkfifo(directory / "fifo.json")  # opening it would wait for ever
    (directory / "gone.json").symlink_to(tmp_path / "nowhere")
    (directory / "note.txt").write_text("not ours")
    assert [result.started_at[:10] for result in store.read_all()] == ["2026-11-03", "2026-11-02", "2026-11-01"]
    assert len(store.FILES.unreadable()) == len(foreign) + 3  # a link to nowhere is no file


def test_keys_of_a_newer_version_are_left_out():
    store.write(measured())
    path = store.FILES.directory / f"{measured().result_id}.json"
    raw = json.loads(path.read_text())
    raw["from_the_future"] = raw["throughput"]["also_new"] = 1
    path.write_text(json.dumps(raw))
    assert store.read_all() == [measured()]


@pytest.mark.parametrize(
    "changed",
    [
        {"window": {"begin_s": "0", "end_s": 1}},
        {"window": {"begin_s": 0}},
        {"server": {"profile": "no host"}},
        {"guards": [{"id": "x", "status": "perhaps", "text": ""}]},
        {"guards": {"id": "x"}},
        {"suspicious": ["fine", 3]},
        {"run_index": 1.5},
        {"run_index": True},
        {"duration_s": "12"},
        {"load": None},
        {"throughput": {"per_user_tok_s": 10**400}},
    ],
)
def test_a_value_of_another_type_makes_a_record_unreadable(changed):
    raw = to_json(measured()) | changed
    with pytest.raises(ValueError, match=next(iter(changed))):
        from_json(Result, json.loads(json.dumps(raw)))


def test_what_is_no_number_is_nothing():
    result = measured(throughput=Throughput(per_user_tok_s=float("nan"), req_s=float("inf")))
    store.write(result)
    found = store.read(result.result_id)
    assert found is not None
    assert found.throughput == Throughput()
    path = store.FILES.directory / f"{result.result_id}.json"
    path.write_text(path.read_text().replace('"per_user_tok_s": null', '"per_user_tok_s": NaN'))
    assert store.read(result.result_id) == found


def test_escape_sequences_of_a_record_are_dropped():
    raw = to_json(measured()) | {"notes": ["\x1b[31mred\x1b[0m \u202egnp"], "bench": "b\x07"}
    raw["server"]["args"] = {"k\x1b[1m": ["\x1b]0;title\x07v"]}
    result = from_json(Result, json.loads(json.dumps(raw)))
    text = json.dumps(to_json(result), ensure_ascii=False)
    assert not any(bad in text for bad in ("\x1b", "\u202e", "\x07", "\\u001b", "\\u0007"))


def test_secrets_are_masked_before_they_are_written():
    argv = ("python", "--api-key", "sk-aaa", "--admin-api-key=sk-bbb", "--tp", "8")
    server = replace(
        measured().server,
        argv=argv,
        args={"api_key": "sk-ccc", "admin_api_key": None, "tp_size": 8},
        sets={"api-key": "sk-ddd", "env.HF_TOKEN": "hf_eee"},
        env={"HF_TOKEN": "hf_fff", "NCCL_DEBUG": "WARN"},
    )
    store.write(measured(server=server))
    text = (store.FILES.directory / f"{measured().result_id}.json").read_text()
    assert not any(secret in text for secret in ("aaa", "bbb", "ccc", "ddd", "eee", "fff"))
    found = store.read(measured().result_id)
    assert found is not None
    assert found.server.args["admin_api_key"] is None
    assert found.server.env["NCCL_DEBUG"] == "WARN"
    assert found.server.argv[-2:] == ("--tp", "8")


@pytest.mark.parametrize("result_id", ["", "../evil", "a/b", ".hidden", "a\nb", "x" * 300, "ü"])
def test_an_id_is_a_file_name_and_nothing_else(result_id):
    with pytest.raises(UsageError):
        store.write(measured(result_id=result_id))
    with pytest.raises(UsageError):
        store.read(result_id)


@pytest.mark.parametrize(
    "data",
    [b"no gzip", gzip.compress(b'{"i": 0}\n{"i":'), gzip.compress(b"[1]\n")],
    ids=["no gzip", "half a row", "no row"],
)
def test_damaged_rows_are_said(data):
    store.write(measured(), data)
    with pytest.raises(EagletuiError) as caught:
        store.rows(measured().result_id)
    assert caught.value.slug == "broken_rows"


def test_a_cut_archive_of_rows_is_said():
    whole = gzip.compress(os.urandom(2000).hex().encode())
    store.write(measured(), whole[:-100])
    with pytest.raises(EagletuiError):
        store.rows(measured().result_id)


def test_only_changed_files_are_read_again(monkeypatch):
    for number in (1, 2, 3):
        store.write(measured(number))
    assert len(store.read_all()) == 3
    read: list[str] = []
    load = records.RecordFiles._load
    monkeypatch.setattr(records.RecordFiles, "_load", lambda self, path: read.append(path.name) or load(self, path))
    assert len(store.read_all()) == 3
    assert read == []
    store.write(measured(2, valid=False))
    assert [result.valid for result in store.read_all()] == [True, False, True]
    assert read == [f"{measured(2).result_id}.json"]
    (store.FILES.directory / f"{measured(3).result_id}.json").unlink()
    assert len(store.read_all()) == 2


def test_old_leftovers_of_killed_writers_are_removed():
    store.write(measured(1))
    old, fresh = (store.FILES.directory / name for name in (".x.json.12", ".y.json.13"))
    for path in (old, fresh):
        path.write_text("{")
    os.utime(old, (0, 0))
    store.write(measured(2))
    assert (old.exists(), fresh.exists()) == (False, True)
    assert not store.FILES.unreadable()


# -- naming results ---------------------------------------------------------------------------------------------------


@pytest.fixture
def stored() -> dict[str, Result]:
    base = measured(1)
    results = {
        "first": base,
        "second": measured(1, result_id=base.result_id[:-1] + "2", run_index=2, valid=False),
        "other": measured(2, server=replace(measured(2).server, profile="eagle")),
        "posted": measured(3, result_id="import-0123456789ab", bench_run_id=None,
                           server=MeasuredServer("posted")),
    }  # fmt: skip
    for result in results.values():
        store.write(result)
    return results


def named(ref: str) -> set[str]:
    return {result.result_id for result in store.resolve(ref)}


def test_what_a_name_stands_for(stored):
    first, second, other, posted = (result.result_id for result in stored.values())
    assert named(first) == {first}
    assert named("decode-20261101T100000Z-abc121") == {first, second}
    assert named("abc121") == {first, second}
    assert named(stored["first"].server.run_id or "") == {first, second}
    assert named("4f9c21") == {first, second}
    assert named("4f9c22") == {other}
    assert named("base") == {first}  # of a profile only what counts
    assert named("eagle") == {other}
    assert named("import-0") == {posted}
    assert named("decode-20261101") == {first, second}


@pytest.mark.parametrize("ref", ["", "nothing", "4f9c2", "decode-2026", "decode"])
def test_a_name_of_nothing_or_of_several_things_is_refused(stored, ref):
    with pytest.raises(UsageError) as caught:
        store.resolve(ref)
    assert caught.value.slug in ("unknown_result", "ambiguous_result")


def test_a_profile_without_a_valid_result_says_so():
    store.write(measured(1, valid=False))
    with pytest.raises(UsageError, match="none of the 1 results of base is valid"):
        store.resolve("base")


# -- killed, and written by several -----------------------------------------------------------------------------------

_WRITER = textwrap.dedent(
    """
    import gzip, json, sys
    sys.path.insert(0, sys.argv[1])
    from tests.support.stored import measured
    from tui.core.results import store
    print("ready", flush=True)
    number = 0
    while True:
        number += 1
        rows = "".join(json.dumps({"i": i, "of": number, "pad": "x" * 500}) + "\\n" for i in range(number % 90 + 1))
        result = measured(1, result_id=f"killed-{sys.argv[2]}-{number}", notes=(str(number % 90 + 1),))
        store.write(result, gzip.compress(rows.encode(), 1))
        # The same result again, as two panels that collect it would.
        store.write(measured(2, result_id="shared", notes=("y" * (number % 7000),)), gzip.compress(rows.encode(), 1))
        print(number, flush=True)
    """
)


def test_a_killed_writer_leaves_whole_records_with_whole_rows():
    seeded = random.Random(20261101)
    tests = str(Path(__file__).parents[3])
    kills = int(os.environ.get("EAGLETUI_TEST_KILLS", "10"))
    store.FILES.directory.mkdir(parents=True)  # the writers may not have come to it
    for round_number in range(kills):
        writers = [
            subprocess.Popen([sys.executable, "-c", _WRITER, tests, f"{round_number}{name}"], stdout=subprocess.PIPE)
            for name in "ab"
        ]
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"ready\n"
        # Wherever they are by the time that it is known here that the first has written so many: nothing waits for a time.
        for _ in range(seeded.randrange(2, 60)):
            writers[0].stdout.readline()
        for writer in writers:
            writer.send_signal(signal.SIGKILL)
            writer.wait()
            assert writer.stdout is not None
            writer.stdout.close()
        assert not store.FILES.unreadable()
        found = store.read_all()
        assert found
        for result in found:
            rows = store.rows(result.result_id)
            assert rows
            assert rows[-1]["i"] == len(rows) - 1
            if result.result_id != "shared":
                assert result.notes == (str(len(rows)),)
