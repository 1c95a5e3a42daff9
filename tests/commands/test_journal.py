"""`eagletui journal`, and that commands write it by themselves."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.support.journal_scenes import crash, experiment, ready, result, verdict
from tests.support.shell import Shell
from tui.commands.journal import command as journal_command
from tui.core.errors import UsageError
from tui.core.journal import entries
from tui.core.model.verdict import VerdictKind


@pytest.fixture(autouse=True)
def stored() -> None:
    """Launches, a result and an experiment."""
    crash(1, "eagle3", args={"mem-fraction-static": 0.76})
    result(ready(2), 3)
    experiment(4, verdict(VerdictKind.SLOWER))


def journal(*args: str) -> str:
    """What the command prints on stdout."""
    return CliRunner().invoke(journal_command, args, catch_exceptions=False, standalone_mode=False).stdout


def document(*args: str) -> Any:
    return json.loads(journal(*args, "--json"))


def test_it_is_printed_as_markdown_json_and_into_a_file(tmp_path):
    text = journal()
    assert text.startswith("# Journal\n\n1 hypothesis · 1 settled · 2 dead ends · 2 launches, 1 crashed")
    assert (entries.directory() / "journal.md").read_text() == text
    found = document()
    assert found["error"] is None
    assert [one["status"] for one in found["hypotheses"]] == ["refuted"]
    assert [one["cause"] for one in found["dead_ends"]] == ["slower", "unsupported_arch"]
    assert [row["outcome"] for row in found["runs"]] == ["ready", "crashed"]
    assert found["runs"][1]["card"]["title"] == "no kernel for SM120"
    assert found["best"] == found["runs"][0]["run_id"]
    assert journal("--output", str(tmp_path / "x.md")) == ""
    assert (tmp_path / "x.md").read_text() == text


def test_parts_of_it():
    assert "eagle3" not in journal("--host", "gpu2")
    assert "## Dead ends" in journal("--search", "sm120 kernel")
    assert "## Dead ends" not in journal("--since", "2027-01-01")
    assert "## Runs" not in journal("--model", "qwen")
    with pytest.raises(UsageError):
        journal("--since", "soon")


def test_people_write():
    note = document("note", "German prompts", "--on", "000001", "--author", "agent")
    assert (note["kind"], note["by"], note["about"]) == ("note", "agent", ["run:eagle3-20261120T140200Z-000001"])
    idea = journal("idea", "fp8").strip()
    journal("tick", idea, "--why", "it holds")
    journal("tick", journal("idea", "int4").strip(), "--drop")
    claim = journal("hypothesis", "graphs pay", "--on", "does-eagle-pay").strip()
    journal("settle", claim[:-2], "dead-end", "--why", "no")
    journal("settle", "does-eagle-pay", "parked")
    journal("retract", journal("note", "wrong").strip())
    found = document()
    assert [(one["state"], one["why"]) for one in found["ideas"]] == [("dropped", None), ("done", "it holds")]
    assert {one["text"]: one["status"] for one in found["hypotheses"]} == {
        "graphs pay": "dead_end",
        "EAGLE-3 beats the baseline": "parked",
    }
    assert [one["text"] for one in found["notes"]] == ["German prompts"]


@pytest.mark.parametrize(
    ("args", "slug"),
    [
        (["note", ""], "bad_value"),
        (["note", "x", "--on", "nothing"], "unknown_entry"),
        (["tick", "nothing"], "unknown_entry"),
        (["settle", "nothing", "held"], "unknown_entry"),
        (["retract", "launch:eagle3-20261120T140200Z-000001"], "unknown_entry"),
        (["runs", "outcome:dead"], "bad_value"),
        (["show", "nothing"], "unknown_entry"),
        (["show", "profile:nothing"], "unknown_entry"),
    ],
)
def test_what_it_refuses(args, slug):
    with pytest.raises(UsageError) as caught:
        journal(*args)
    assert caught.value.slug == slug
    assert all(entry.by == "eagletui" for entry in entries.load().entries)


def test_runs_and_one_of_them_reopened(capsys):
    assert "crashed after 30:00: unsupported_arch, no kernel for SM120" in journal("runs", "outcome:crashed", "eagle3")
    assert [row["profile"] for row in document("runs")] == ["base", "eagle3"]
    assert "RuntimeError: no kernel image" in journal("show", "000001")
    assert document("show", "000001")["card"]["change"] == {"attention-backend": "triton"}
    assert "refuted" in journal("show", "does-eagle-pay")
    assert document("show", "does-eagle-pay")["runs"] == ["eagle3-20261120T140200Z-000001"]
    assert "German prompts" in journal("show", journal("note", "German prompts").strip())


def test_a_line_that_cannot_be_read_is_said():
    journal()
    with entries.path().open("a") as file:
        file.write('{"id": "torn')
    done = CliRunner().invoke(journal_command)
    assert "entries.jsonl: 1 line left out: broken, or of a newer eagletui\n" in done.stderr


# -- as the program --------------------------------------------------------------------------------------------------


def written(shell: Shell) -> Path:
    return shell.home / "eagletui" / "data" / "journal"


def test_a_journal_that_cannot_be_written_fails_no_command(shell, command):
    written(shell).parent.mkdir(parents=True)
    written(shell).write_text("a file")
    done = shell("launch", command("dies", "/bin/false"), "--wait", "--host", "local", "--json")
    assert (done.code, done.json["outcome"]) == (1, "crashed")
    assert "the journal was not written" in done.err
    shell("journal", "note", "", "--json").refused(2, "bad_value")


def test_a_launch_a_crash_and_a_stop_are_there_and_the_next_launch_is_told(shell, command, port):
    command("dies", "/bin/sh", "-c", "echo 'RuntimeError: no luck'; exit 3")
    command("sleeps", "/bin/sh", "-c", "exec sleep 600")
    assert shell("launch", "dies", "--wait", "--host", "local", "--set", port).code == 1
    run = shell("launch", "sleeps", "--host", "local", "--set", port, "--json").json["run"]
    assert shell("stop", run, "--yes", "--host", "local").code == 0
    kinds = [json.loads(line)["kind"] for line in (written(shell) / "entries.jsonl").read_text().splitlines()]
    assert kinds == ["launch", "end", "launch", "end"]
    rows = {row["profile"]: row for row in shell("journal", "runs", "--json").json}
    assert (rows["dies"]["outcome"], rows["dies"]["exit_code"]) == ("crashed", 3)
    assert rows["sleeps"]["outcome"] == "stopped"
    assert "@" in rows["sleeps"]["stopped_by"]
    again = shell("launch", "dies", "--dry-run", "--host", "local", "--set", port)
    assert "known tried " in again.out.decode()
    (known,) = shell("launch", "dies", "--dry-run", "--host", "local", "--set", port, "--json").json["known"]
    assert (known["outcome"], known["run_id"]) == ("crashed", rows["dies"]["run_id"])
