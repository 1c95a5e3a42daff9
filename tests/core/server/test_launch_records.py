"""This machine's record of launches."""

from dataclasses import replace

import pytest
from click.testing import CliRunner

from tui.cli import cli
from tui.core.errors import UsageError
from tui.core.server import launch_records
from tui.core.server.launch_records import LaunchRecord


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("EAGLETUI_HOME", str(tmp_path))
    return tmp_path


def launched(number: int, **changes) -> LaunchRecord:
    record = LaunchRecord(
        run_id=f"base-2026100{number}T200103Z-4f9c2{number}",
        host="gpu1",
        kind="server",
        profile="base",
        launched_at=f"2026-10-0{number}T20:01:03Z",
    )
    return replace(record, **changes)


def test_a_record_comes_back_whole(home):
    record = launched(1, sets={"tp": 8}, ready_after_s=700.5, phase_took_s={"launch": 14.0}, outcome="ready")
    launch_records.write(record)
    assert launch_records.read(record.run_id) == record
    assert [path.name for path in (home / "data" / "launches").iterdir()] == [f"{record.run_id}.json"]


def test_a_stop_is_kept_unless_somebody_who_watched_knows_better(home):
    for number, outcome in enumerate((None, "ready", "crashed", "lost"), 1):
        launch_records.write(launched(number, outcome=outcome))
        launch_records.stopped(f"base-2026100{number}T200103Z-4f9c2{number}", "user1@laptop")
    launch_records.stopped("of-another-machine", "user1@laptop")
    kept = [(record.outcome, record.stopped_by) for record in reversed(launch_records.read_all())]
    assert kept == [("stopped", "user1@laptop"), ("stopped", "user1@laptop"), ("crashed", None), ("lost", None)]


def test_newest_first_and_one_broken_file_hides_nothing(home):
    for number in (1, 3, 2):
        launch_records.write(launched(number))
    (launch_records.FILES.directory / "half.json").write_text('{"run_id": "x"')
    (launch_records.FILES.directory / "list.json").write_text("[]")
    assert str(launch_records.FILES.unreadable_words()).endswith("2 files left out, broken: half.json, list.json")
    assert "half.json, list.json" in CliRunner().invoke(cli, ["paths"]).stderr
    assert [record.launched_at[:10] for record in launch_records.read_all()] == [
        "2026-10-03",
        "2026-10-02",
        "2026-10-01",
    ]


def test_fields_of_a_newer_version_are_ignored(home):
    launch_records.write(launched(1))
    path = next(launch_records.FILES.directory.iterdir())
    path.write_text(path.read_text().replace("{", '{"from_the_future": 1,', 1))
    assert len(launch_records.read_all()) == 1


IDS = ["base-20261001T200103Z-4f9c2a", "base-20261002T200103Z-4f9c2b", "other-20261002T200103Z-aa0001"]


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        (IDS[0], IDS[0]),
        ("4f9c2a", IDS[0]),
        ("aa", IDS[2]),
        ("base-20261002", IDS[1]),
        ("oth", IDS[2]),
        ("nothing", None),
    ],
)
def test_a_run_is_named_by_id_digits_or_prefix(reference, expected):
    assert launch_records.match_run(reference, IDS) == expected


def test_an_ambiguous_name_is_refused_naming_the_runs():
    with pytest.raises(UsageError, match="fits 2 runs: base-20261001"):
        launch_records.match_run("4f9c", IDS)


def test_history_counts_only_starts_of_this_profile_here_that_got_ready():
    for number, seconds in ((1, 600.0), (2, 700.0), (3, 680.0)):
        launch_records.write(launched(number, ready_after_s=seconds, phase_took_s={"load_weights": seconds - 100}))
    launch_records.write(launched(4, outcome="crashed"))
    launch_records.write(launched(5, host="gpu2", ready_after_s=10.0))
    launch_records.write(launched(6, ready_after_s=20.0, sets={"mem-fraction-static": "0.9"}))
    launch_records.write(launched(7, ready_after_s=640.0, phase_took_s={"load_weights": 540.0}, sets={"port": "31000"}))
    phases, total = launch_records.usual("gpu1", "base")
    assert total == launch_records.PhaseHistory(660.0, 600.0, 700.0, 4)
    assert phases["load_weights"].median_s == 560.0
    assert launch_records.usual("gpu1", "other") == ({}, None)
    assert launch_records.usual("gpu1", "base", {"mem-fraction-static": 0.9, "port": 1})[
        1
    ] == launch_records.PhaseHistory(20, 20, 20, 1)


def test_history_of_the_same_version_comes_first():
    for number, version, seconds in ((1, "0.5.22", 600.0), (2, "0.5.23", 700.0), (3, "0.5.22", 620.0)):
        launch_records.write(launched(number, sglang=version, ready_after_s=seconds))

    def median(version):
        total = launch_records.usual("gpu1", "base", None, version)[1]
        return total and (total.median_s, total.n)

    assert median("0.5.23") == (700.0, 1)
    assert median("0.5.22") == (610.0, 2)
    assert median("0.5.24") == (620.0, 3)  # better than nothing
    assert median(None) == (620.0, 3)


def test_a_warm_start_is_compared_with_warm_ones():
    for number, warm, seconds in ((1, True, 120.0), (2, False, 700.0), (3, None, 400.0)):
        launch_records.write(launched(number, warm=warm, ready_after_s=seconds))

    def median(warm):
        total = launch_records.usual("gpu1", "base", warm=warm)[1]
        return total and (total.median_s, total.n)

    assert median(True) == (120.0, 1)
    assert median(False) == (700.0, 1)
    assert median(None) == (400.0, 3)  # not known: all of them
