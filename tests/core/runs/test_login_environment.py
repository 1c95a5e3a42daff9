"""What a login exports reaches the server as it is, and no variable of the helper's own does."""

import json
import re
from importlib import resources

import pytest

from tests.support.run_lab import exited, request, sh
from tui.core.runs.control import launch

HELPER = resources.files("tui.remote").joinpath("eaglerun.sh").read_text()
# Variables that the helper sets for the server or puts back, and words of its programs that look like assignments.
NOT_OURS = {"LC_ALL", "EAGLETUI_RUN", "SPT_NOENV", "IFS", "b", "bs", "count", "if", "iflag", "of", "status", "_"}


def names_of_the_helper() -> set[str]:
    code = re.sub(r"(?m)^\s*#.*$|\s#\s.*$", "", HELPER)
    found = set(re.findall(r"(?:^|[ ;(&|{])([A-Za-z_]\w*)=", code, re.MULTILINE))
    for words in re.findall(r"\bread -r ([A-Za-z_ ]+)", code):
        found |= set(words.split())
    found |= set(re.findall(r"\bfor ([A-Za-z_]\w*)(?=;| in )", code))
    # Lower-case words belong to programs that are called (awk, dd).
    return {name for name in found - NOT_OURS if re.match(r"_|[A-Z]", name) and not name.startswith("ER_")}


def test_every_variable_of_the_helper_is_unset_first():
    unset = set(" ".join(re.findall(r"^ +unset (.*)$", HELPER, re.MULTILINE)).split())
    assert names_of_the_helper() <= unset


@pytest.mark.fault(
    "F10",
    "a login that exports variables of any name",
    sees="nothing",
    holds="they reach the server as they are, and no other",
)
async def test_variables_of_the_login_keep_their_values(make_host, shell, tmp_path):
    out = tmp_path / "env.json"
    given = {"D": "/data", "M": 'a b\'c\n"d"', "R_PID": "7", "_home": "/nowhere", "U": "", "PLAIN": "x"}
    host = make_host(shell, **{name: value for name, value in given.items() if value})
    code = f"import json, os; json.dump([dict(os.environ), os.getcwd()], open({str(out)!r}, 'w'))"
    run = await exited(host, await launch(host, request(("python3", "-c", code), env={"_n": "mine"})))
    assert run.exit_code == 0
    env, cwd = json.loads(out.read_text())
    assert {name: env.get(name, "") for name in given} == given
    assert env["_n"] == "mine"
    assert "ER_LOGIN" not in env
    assert "C_LINE" not in env
    assert cwd == str(tmp_path / "home")


async def test_a_variable_of_the_profile_moves_no_directory(make_host, shell, tmp_path):
    out = tmp_path / "cwd"
    host = make_host(shell)
    await exited(host, await launch(host, request(sh(f"pwd > {out}"), env={"_home": str(tmp_path)})))
    assert out.read_text().strip() == str(tmp_path / "home")
