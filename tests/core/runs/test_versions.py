"""Other versions of eagletui beside this one: their files are read or left alone, their runs watched and stopped.

tests/data/versions/0.1.0 was recorded from the first commit that had experiments: an experiment of two launches on the simulated
host, with what they left there and here, settings, and the helper that it sent to hosts.
"""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.run_lab import exited, request, seen, sh, stop_over, until
from tui.core.config import load_settings
from tui.core.errors import UsageError
from tui.core.experiment import record as experiments
from tui.core.model.result import SCHEMA
from tui.core.model.run import RunState
from tui.core.results import store
from tui.core.runs import control, helper
from tui.core.runs.control import launch
from tui.core.server import launch_records

OLD = Path(__file__).parents[2] / "data/versions/0.1.0"


@pytest.fixture
def by_the_old_one(monkeypatch):
    """by_the_old_one(True): from now on the helper of 0.1.0 is what is sent; False: ours."""
    ours = helper.shell_program
    lines = (line.strip(" ") for line in (OLD / "eaglerun.sh").read_text().splitlines())
    old = "\n".join(line for line in lines if line and not line.startswith("#")) + "\n"

    def use(yes):
        monkeypatch.setattr(helper, "shell_program", (lambda _: old) if yes else ours)

    return use


@pytest.mark.fault("U4")
@pytest.mark.parametrize("old_launches", [True, False])
async def test_a_run_of_one_version_is_watched_and_stopped_by_the_other(make_host, shell, by_the_old_one, old_launches):
    by_the_old_one(old_launches)
    host = make_host(shell)
    run = await launch(host, request(sh("echo here; exec sleep 300"), secret_env={"MY_TOKEN": "secret"}))
    by_the_old_one(not old_launches)
    other = make_host(shell)
    (found,) = await control.list_runs(other)
    assert (found.run_id, found.state, found.argv, found.pid) == (run.run_id, RunState.RUNNING, run.argv, run.pid)
    assert (
        await launch(other, replace(request(("false",)), run_id=run.run_id))
    ).pid == run.pid  # asked for again: the same one
    await until(lambda: Path(found.log_path).read_text() == "here\n", "its log")
    await control.stop(other, run.run_id, 5)
    stopped = await until(lambda: stop_over(other, run), "the stop")
    by_the_old_one(old_launches)
    assert stopped.step == "done"
    assert (await seen(host, run)).state is RunState.EXITED


@pytest.mark.parametrize("old_launches", [True, False])
async def test_the_end_of_a_run_is_told_by_either(make_host, by_the_old_one, old_launches):
    by_the_old_one(old_launches)
    host = make_host()
    run = await launch(host, request(sh("exit 7")))
    by_the_old_one(not old_launches)
    assert (await exited(make_host(), run)).exit_code == 7


async def test_directories_of_runs_of_0_1_0_are_read(make_host, state):
    host = make_host()
    there = Path((await exited(host, await launch(host, request(("true",))))).directory).parent
    shutil.copytree(OLD / "runs", there, dirs_exist_ok=True)
    found = {run.run_id: run for run in await control.list_runs(host)}
    server = found["kimi-k2.5-baseline-bs512-20261130T210713Z-07af20"]
    assert (server.state, server.exit_code, server.stop, server.port) == (RunState.EXITED, 0, "done", 30000)
    assert server.argv[:3] == ("python3", "-m", "sglang.launch_server")
    assert server.gpus == tuple(range(8))
    bench = found["quick-20261130T210720Z-b60b63"]
    assert (bench.kind, bench.state, bench.exit_code) == ("bench", RunState.EXITED, 0)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """What 0.1.0 left on this machine."""
    monkeypatch.setenv("EAGLETUI_HOME", str(tmp_path / "e"))
    shutil.copytree(OLD / "data", tmp_path / "e/data")
    (tmp_path / "e/config").mkdir()
    shutil.copy(OLD / "config.toml", tmp_path / "e/config")
    return tmp_path / "e"


def test_records_results_experiments_and_settings_of_0_1_0_are_read(home):
    settings = load_settings()
    assert (settings.default_host, settings.theme, settings.host("gpu1").python) == (
        "local",
        "light",
        "/opt/sglang/bin/python",
    )
    assert len(launch_records.read_all()) == 5
    assert sorted(result.bench for result in store.FILES.read_all()) == ["quick", "quick"]
    (experiment,) = experiments.FILES.read_all()
    assert (experiment.name, experiment.order, len(experiment.verdicts)) == ("few", ("A", "B"), 1)
    for files in (store.FILES, experiments.FILES):
        assert files.unreadable_words() is None


def test_files_of_a_newer_one_are_named_and_left_alone(home):
    (experiment,) = experiments.FILES.read_all()
    path = experiments.FILES.path(experiment.experiment_id)
    text = json.dumps(json.loads(path.read_text()) | {"schema": experiments.SCHEMA + 1, "unheard": {"of": 1}})
    path.write_text(text)
    assert experiments.FILES.read_all() == []
    said = experiments.FILES.unreadable_words()
    assert said == (
        f"{path.parent}: 1 file left out, written by a newer eagletui and not touched (upgrade to read them): {path.name}"
    )
    with pytest.raises(UsageError, match="was written by a newer eagletui") as caught:
        experiments.FILES.write(experiment)
    assert "upgrade" in str(caught.value.hint)
    assert path.read_text() == text


def test_a_broken_file_is_not_called_newer(home):
    store.FILES.path("half").write_text('{"schema": 2')
    path = next(path for path in store.FILES.directory.glob("quick*.json"))
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema": SCHEMA + 1}))
    said = store.FILES.unreadable_words()
    assert said is not None
    assert "1 file left out, broken: half.json; 1 file left out, written by a newer eagletui and not touched" in said
    assert said.endswith(path.name)
