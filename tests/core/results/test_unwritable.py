"""Results that cannot be stored: said with the way to get them, and nothing is lost."""

import json

import pytest

from tests.commands.test_bench import Shell
from tests.support.truth_server import truth_server

pytestmark = pytest.mark.timeout(120)


def test_what_cannot_be_stored_stays_on_the_host_until_it_can(tmp_path):
    shell = Shell.at(tmp_path / "home")
    results = shell.home / "eagletui" / "data" / "results"
    results.parent.mkdir(parents=True)
    results.write_text("a file where the directory should be")
    with truth_server(tokens=9) as (port, _):
        said = shell.json("bench", "quick", "--url", f"127.0.0.1:{port}", "--set", "runs=1", code=1)
        assert said["error"] == "os_error"
        assert str(results) in said["message"]
        wait = said["hint"].partition("eagletui ")[2].partition("eagletui ")[2].split()
        results.unlink()
        done = shell(*wait, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["results"] == [path.stem for path in results.iterdir() if path.suffix == ".json"]
