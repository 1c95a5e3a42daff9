"""Prefill, decode and router from the command line: one profile, one launch, one measurement, one stop."""

import pytest

from tests.support.role_lab import RoleLab
from tests.support.shell import Shell

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def lab(shell: Shell, router_python: str) -> RoleLab:
    directory = shell.cwd / "profiles"
    directory.mkdir()
    (directory / "quick.toml").write_text(
        'kind = "bench"\nconcurrency = [2]\noutput_len = 40\nduration_s = 1\nruns = 1\n'
    )
    lab = RoleLab({"local": None}, directory, router_python)  # type: ignore[dict-item]
    lab.decode_ready.touch()
    lab.profile()
    return lab


def test_one_launch_one_measurement_one_stop(shell: Shell, lab: RoleLab) -> None:
    shown = shell("profiles", "show", "split", "--json").json
    assert [member["name"] for member in shown["members"]] == ["prefill 0", "decode 0", "router"]
    assert shown["argv"][0] == lab.router_python
    assert shown["argv"][-2:] == ["--port", str(lab.port)]

    group = ""
    started = shell("launch", "split", "--wait", "--json")
    try:
        ready = started.json
        assert (ready["outcome"], ready["port"], ready["host"]) == ("ready", lab.port, "local")
        conditions = {one["text"]: one for one in ready["group"]["conditions"]}
        assert conditions["a request through the router"]["holds"] is True
        assert conditions["prefill 0 as the router knows it"]["detail"] == f"http://127.0.0.1:{lab.prefill_port}"
        group = ready["run"]

        listed = shell("ps").out.decode()
        assert "members ready" in listed  # nobody asks a router for a list
        measured = shell("bench", "quick", "--run", group[-6:], "--json").json
        record = measured["results"][0]["record"]
        assert record["server"]["run_id"] == group
        assert [member["name"] for member in record["server"]["members"]] == ["prefill 0", "decode 0", "router"]
    finally:
        stopped = shell("stop", group or "split", "--yes", "--json").json
    assert (stopped["outcome"], stopped["error"]) == ("stopped", None)
    assert [member["stop"] for member in stopped["group"]["members"]] == ["done"] * 3


def test_what_stands_in_the_way_is_named_before_anything_is_started(shell: Shell, lab: RoleLab) -> None:
    taken = f"group: port {lab.prefill_port} is taken by prefill 0 as its port and by decode 0 as its port"
    for words in (("launch", "split"), ("profiles", "show", "split")):
        refused = shell(*words, "--set", f"group.decode.port={lab.prefill_port}", "--json")
        assert taken in refused.refused(2, "bad_profile")["message"]
    assert shell("ps", "--json").json == [] or all(run["profile"] != "split" for run in shell("ps", "--json").json)


def test_the_command_of_each_node_is_shown(shell: Shell) -> None:
    said = shell("profiles", "show", "two-nodes-demo")
    assert [line for line in said.out.decode().splitlines() if line.startswith("#")] == [
        "# rank 0 on demo",
        "# rank 1 on demo2",
    ]
    assert "--node-rank 1" in said.out.decode()
    assert "note: addresses of demo, demo2 are found at the launch" in said.err
    shown = shell("profiles", "show", "two-nodes-demo", "--json").json
    assert [member["host"] for member in shown["members"]] == ["demo", "demo2"]
    assert "--node-rank" in shown["argv"]
    assert shown["notes"] == ["addresses of demo, demo2 are found at the launch"]
