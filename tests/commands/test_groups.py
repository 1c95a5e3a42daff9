"""What commands say of a group: documents, sentences, lines of several logs. The hosts are in tests/core/groups and e2e."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support import fakes
from tests.support.groups import GROUP, OUT_OF_MEMORY, RANK0, RANK1, dead, run_of, state
from tests.support.shell import Shell
from tui.commands import groups, ps
from tui.commands.logs import _Printer
from tui.core.errors import UsageError
from tui.core.groups.group_state import MemberState
from tui.core.groups.merge import mark_of, merge
from tui.core.model.group import Group, Member
from tui.core.model.run import Run, RunState
from tui.core.server import launch_records
from tui.core.server.launch_records import LaunchRecord


def record(run: Run, group: Group | None) -> None:
    extra = group.extra() if group is not None else None
    launch_records.write(LaunchRecord(run.run_id, run.host, "server", "big", "2026-11-30T12:00:00Z", group=extra))


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EAGLETUI_HOME", str(tmp_path))
    record(run_of(RANK0), GROUP)
    record(run_of(RANK1), GROUP)
    record(fakes.run(), None)


@pytest.mark.parametrize("reference", [GROUP.group_id, "7c31d0", "7c31", "big-2026", RANK1.run_id, "7c31d0-1"])
@pytest.mark.usefixtures("records")
def test_a_group_is_meant_by_its_own_names_and_its_members(reference: str) -> None:
    assert groups.group_on_record(reference) == GROUP
    whole = groups.group_on_record(reference, whole=True)
    assert whole == (None if reference.endswith("-1") else GROUP)


@pytest.mark.usefixtures("records")
def test_other_runs_mean_no_group_and_a_group_is_its_first_run_to_who_knows_none() -> None:
    assert groups.group_on_record(fakes.RUN_ID[-6:]) is None
    assert groups.group_on_record("") is None
    ids = [known.run_id for known in launch_records.read_all()]
    assert launch_records.match_run("7c31d0", ids) == RANK0.run_id
    assert launch_records.match_run("7c31d0-1", ids) == RANK1.run_id
    assert launch_records.match_run(RANK1.run_id, ids) == RANK1.run_id
    with pytest.raises(UsageError, match="fits 3 runs: big-20261130T120000Z-7c31d0, big-"):
        launch_records.match_run("b", [*ids, "big-20261130T120000Z-ffffff", "bug-20261130T120000Z-eeeeee"])


def test_the_document_has_the_keys_of_a_run_and_the_group() -> None:
    document = groups.group_json(merge(GROUP, [state(RANK0, fakes.ready), state(RANK1)]))
    assert json.loads(json.dumps(document))["run"] == GROUP.group_id
    assert (document["outcome"], document["host"], document["port"], document["diagnosis"]) == (
        "ready",
        "gpu3",
        30000,
        None,
    )
    assert document["group"]["id"] == GROUP.group_id
    assert [(one["role"], one["number"], one["host"], one["outcome"]) for one in document["group"]["members"]] == [
        ("rank", 0, "gpu3", "ready"), ("rank", 1, "gpu4", "ready"),
    ]  # fmt: skip
    assert {"text": "rank 0 is ready", "holds": True, "detail": "serving"} in document["group"]["conditions"]


def test_the_document_of_a_group_that_died_has_the_diagnosis_of_its_first_death(
    capsys: pytest.CaptureFixture[str],
) -> None:
    stopped = dead(RANK0, [], 66, 137, stop="done", stopped_by_us=True, stop_by=mark_of(RANK1))
    merged = merge(GROUP, [stopped, dead(RANK1, OUT_OF_MEMORY, 55)])
    document = groups.group_json(merged)
    assert (document["outcome"], document["group"]["failed"]) == ("crashed", "rank 1")
    assert document["diagnosis"] == document["group"]["members"][1]["diagnosis"]
    assert document["diagnosis"] is not None
    groups.say_outcome(merged)
    said = capsys.readouterr().err
    assert f"crashed: {GROUP.group_id} by rank 1 on gpu4, exit code 137, in load weights" in said
    assert "CUDA out of memory" in said
    groups.say_outcome(merged, diagnosed=False)
    assert "CUDA out of memory" not in capsys.readouterr().err


def test_nothing_known_of_a_group_is_a_document_too() -> None:
    document = groups.group_json(merge(GROUP, [MemberState(RANK0, link_lost=True), MemberState(RANK1)]))
    assert (document["run"], document["host"], document["outcome"], document["pid"]) == (
        GROUP.group_id,
        "gpu3",
        "unknown",
        None,
    )
    assert [one["link_lost"] for one in document["group"]["members"]] == [True, False]


def test_progress_is_said_where_it_is_news(capsys: pytest.CaptureFixture[str]) -> None:
    merged = merge(GROUP, [state(RANK0), MemberState(RANK1, link_lost=True)])
    shown = groups._say_progress(merged, None)
    said = capsys.readouterr().err
    assert "rank 0 load weights" in said
    assert "rank 1 unknown: no answer from gpu4" in said
    assert groups._say_progress(merged, shown) == shown
    assert capsys.readouterr().err == ""
    # A suspicion is said once, however its seconds count up.
    for seconds in (40, 41):
        merged = merge(GROUP, [state(RANK0, suspicion=f"no line for {seconds} s"), MemberState(RANK1, link_lost=True)])
        shown = groups._say_progress(merged, shown)
    assert capsys.readouterr().err.count("rank 0 may hang: no line for 4") == 1


def test_ps_has_a_line_a_group(capsys: pytest.CaptureFixture[str]) -> None:
    groups.say_groups([merge(GROUP, [state(RANK0, fakes.ready), state(RANK1)]),
                       merge(GROUP, [MemberState(RANK0), state(RANK1)])])  # fmt: skip
    head, whole, part = capsys.readouterr().out.splitlines()
    assert head.split() == ["GROUP", "OUTCOME", "PHASE", "MEMBERS"]
    assert whole.split(maxsplit=4) == ["big", "7c31d0", "ready", "serving", "rank 0 gpu3 ready, rank 1 gpu4 ready"]
    assert part.split(maxsplit=4) == ["big", "7c31d0", "–", "–", "rank 0 gpu3 not asked, rank 1 gpu4 starting"]
    groups.say_groups([])
    assert capsys.readouterr().out == ""
    assert groups.membership_json(run_of(RANK1)) == {
        "id": GROUP.group_id, "role": "rank", "number": 1, "hosts": ["gpu3", "gpu4"],
    }  # fmt: skip
    assert groups.membership_json(fakes.run()) is None
    assert groups.membership_json(replace(fakes.run(), extra={"group": GROUP.extra()})) is None


def test_lines_of_several_logs_stay_whole_each_behind_its_member(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    first, second = _Printer(b"[rank 0] "), _Printer(b"[rank 1] ")
    first.write(b"one\ntw")
    second.write(b"uno\n")
    first.write(b"o\nthree")
    first.flush()
    second.flush()
    assert capfdbinary.readouterr().out == b"[rank 0] one\n[rank 1] uno\n[rank 0] two\n[rank 0] three\n"


def test_the_hosts_of_nodes_are_the_profile_s(shell: Shell) -> None:
    (shell.cwd / "profiles").mkdir()
    (shell.cwd / "profiles/two.toml").write_text(
        'kind = "launch"\n[nodes]\nhosts = ["a", "b"]\n[args]\nmodel-path = "/m"\n'
    )
    done = shell("launch", "two", "--host", "gpu1")
    assert done.code == 2
    assert "--host and [nodes] of two exclude each other; choose others with --set nodes.hosts=A,B" in done.err


def _ended(member: Member, code: int, **run: object) -> Run:
    return run_of(member, state=RunState.EXITED, exit_code=code, pid=None, **run)


async def test_ps_calls_a_rank_that_ended_with_its_stopped_group_stopped() -> None:
    by_us = {"stop": "done", "stopped_by_us": True, "stop_by": "me@here"}
    rows = [await ps._row(None, _ended(RANK0, 0, **by_us)), await ps._row(None, _ended(RANK1, 137))]  # type: ignore[arg-type]
    assert [row.document["outcome"] for row in rows] == ["stopped", "crashed"]  # each by its own files
    ps._stopped_with_their_group(rows)
    assert [row.document["outcome"] for row in rows] == ["stopped", "stopped"]
    died = [await ps._row(None, _ended(RANK0, 0, **{**by_us, "stop_by": mark_of(RANK1)})), rows[1]]  # type: ignore[arg-type]
    died[1].document["outcome"] = "crashed"
    ps._stopped_with_their_group(died)
    assert died[1].document["outcome"] == "crashed"


async def test_ps_of_that_host_alone_knows_it_by_this_machines_record() -> None:
    run = _ended(RANK1, 137)
    record = LaunchRecord(run.run_id, "gpu4", "server", "big", "2026-11-30T12:00:00Z", cause="nccl")
    launch_records.write(replace(record, outcome="crashed"))
    launch_records.stopped_with_its_group(run.run_id)  # it had died before
    assert (await ps._row(None, run)).document["outcome"] == "crashed"  # type: ignore[arg-type]
    launch_records.write(record)
    launch_records.stopped_with_its_group(run.run_id)
    document = (await ps._row(None, run)).document  # type: ignore[arg-type]
    assert (document["outcome"], document["cause"]) == ("stopped", None)
