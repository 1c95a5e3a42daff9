"""`ps` says why a server crashed also where nobody watched: its log is read once, on that occasion."""

import json
from dataclasses import replace

import pytest

from tui.commands import ps
from tui.core.model.run import Run, RunState
from tui.core.server import launch_records
from tui.core.server.launch_records import LaunchRecord

LINE = "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."
RUN = Run("dies-20261130T120000Z-aaaaaa", "server", "dies", "local", RunState.EXITED, exit_code=1)
RECORD = LaunchRecord(RUN.run_id, "local", "server", "dies", "2026-11-30T12:00:00Z", outcome="ready")


def test_a_death_that_nobody_watched(shell, command, port):
    command("dies", "sh", "-c", f"echo '{LINE}'; exit 1")
    run = shell("launch", "dies", "--host", "local", "--set", port, "--json").json["run"]
    shell("wait", run, "--for", "exit", "--host", "local", "--json")  # it may have been launched a moment ago only
    path = shell.home / "eagletui" / "data" / "launches" / f"{run}.json"
    seen = json.loads(path.read_text())
    assert seen.pop("cause") == "oom_kv_pool"
    for unwatched in (seen | {"outcome": "starting"}, {key: seen[key] for key in seen if key != "outcome"}):
        for key in ("ended_at", "exit_code", "card"):
            unwatched.pop(key, None)
        path.write_text(json.dumps(unwatched))
        row = shell.row(run)
        assert (row["outcome"], row["cause"]) == ("crashed", "oom_kv_pool")
        assert json.loads(path.read_text())["cause"] == "oom_kv_pool"  # the next look needs no log


@pytest.mark.parametrize(
    ("run", "record", "unwatched"),
    [
        (RUN, RECORD, True),
        (RUN, replace(RECORD, outcome="crashed", ended_at="2026-11-30T12:01:00Z"), False),
        (RUN, replace(RECORD, stopped_with_group=True), False),
        (RUN, None, False),  # another machine's: there is no record to keep what is read
        (replace(RUN, exit_code=0), RECORD, False),
        (replace(RUN, state=RunState.RUNNING, exit_code=None), RECORD, False),
        (replace(RUN, kind="bench"), RECORD, False),
    ],
)
def test_a_log_is_read_only_where_a_record_lacks_the_end(run, record, unwatched):
    if record is not None:
        launch_records.write(record)
    assert ps._died_unwatched(run) is unwatched
