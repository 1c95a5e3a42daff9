"""A server over both simulated hosts, as people start it: with one command, and by keyboard in the panel."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.driving import screen_text, shows, until
from tests.support.shell import Shell
from tui.core.config import DEMO_HOSTS
from tui.demo.client import stop_demo
from tui.panel.app import EagleApp

pytestmark = pytest.mark.timeout(240)

SPEED = "200"
_WAIT_S = 90.0  # a start, and a busy machine


def free_ports() -> tuple[int, int]:
    """One for rank 0 with the next one free too, and one where the ranks meet."""
    while True:
        with closing(socket.socket()) as one, closing(socket.socket()) as next_one, closing(socket.socket()) as meeting:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
            try:
                next_one.bind(("127.0.0.1", port + 1))
            except (OSError, OverflowError):
                continue
            meeting.bind(("127.0.0.1", 0))
            return port, meeting.getsockname()[1]


@pytest.fixture
def user(tmp_path: Path) -> Iterator[Shell]:
    """A user whose profile `two` is the shipped one, on ports that are free."""
    for name in ("home", "work", "work/profiles"):
        (tmp_path / name).mkdir()
    port, meeting = free_ports()
    (tmp_path / "work" / "profiles" / "two.toml").write_text(
        f'kind = "launch"\nextends = "two-nodes-demo"\n[nodes]\ndist_port = {meeting}\n[args]\nport = {port}\n'
    )
    shell = Shell(tmp_path / "home", tmp_path / "work", EAGLETUI_DEMO_SPEED=SPEED)
    yield shell
    code = "import asyncio; from tui.demo.client import stop_demo; asyncio.run(stop_demo())"
    subprocess.run([sys.executable, "-c", code], env=shell.env, check=True, timeout=60)


def members(user: Shell) -> list[dict[str, object]]:
    """The rows of both members."""
    rows = user("ps", *DEMO_HOSTS, "--json").json
    return [row for row in rows if row.get("run", "").startswith("two-") and row["run"].endswith(("-0", "-1"))]


def test_one_command_launches_waits_and_another_stops(user: Shell) -> None:
    said = user("launch", "two", "--wait", "--json", timeout=_WAIT_S)
    assert (said.code, said.json["outcome"]) == (0, "ready"), said.err
    rows = {row["host"]: row for row in members(user)}
    assert {host: row["outcome"] for host, row in rows.items()} == {"demo": "ready", "demo2": "ready"}
    gpus = user("gpus", *DEMO_HOSTS, "--json").json
    assert all(gpu["mem_used_mib"] > 60_000 for host in gpus for gpu in host["gpus"])
    stopped = user("stop", said.json["run"], "--yes", "--json", timeout=_WAIT_S)
    assert stopped.code == 0, stopped.err
    gpus = user("gpus", *DEMO_HOSTS, "--json").json
    assert all(gpu["mem_used_mib"] < 1_000 for host in gpus for gpu in host["gpus"])
    assert [row["exit_code"] for row in members(user)] == [0, 0]


async def test_the_keyboard_launches_follows_and_stops(user: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in user.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(user.cwd)
    app = EagleApp("demo")
    async with app.run_test(size=(160, 48)) as pilot:
        await until(pilot, lambda: "No server runs here." in screen_text(app), deadline_s=_WAIT_S)
        await pilot.press("l")
        await shows(pilot, "Which profile?", "two")
        names = [entry.name for entry in app.profile_entries() if entry.kind == "launch"]
        await pilot.press(*["j"] * names.index("two"), "enter")
        await until(pilot, lambda: "Enter  launch" in screen_text(app), deadline_s=_WAIT_S)
        await shows(pilot, "on demo and demo2", "demo, demo2: all 8 are free", "Command of rank 0")
        assert [host.board.host for host in app.hosts] == list(DEMO_HOSTS)  # the other one was opened for it
        await pilot.press("enter")
        await until(pilot, lambda: "demo2 TP8–15" in screen_text(app), deadline_s=_WAIT_S)
        await until(pilot, lambda: "● READY" in screen_text(app), deadline_s=_WAIT_S)
        await shows(pilot, "demo + demo2", "✓ rank 0 is ready", "Dummy health check server started")
        await pilot.press("S")
        await shows(pilot, "Stop all 2 members on demo and demo2?")
        await pilot.press("tab", "enter")
        await until(pilot, lambda: "■ STOPPED" in screen_text(app), deadline_s=_WAIT_S)
        await until(pilot, lambda: "all members have stopped" in screen_text(app), deadline_s=_WAIT_S)
        await pilot.press("q")
    await asyncio.wait_for(stop_demo(), 60)


def test_an_experiment_over_both_hosts_is_killed_and_goes_on_with_the_server_that_it_had(user: Shell) -> None:
    profiles = user.cwd / "profiles"
    (profiles / "blink.toml").write_text(
        'kind = "bench"\ndataset = "random-ids"\nconcurrency = [8]\ninput_len = 16\noutput_len = 16\nduration_s = 10.0\nruns = 2\n'
    )
    arms = '[[arms]]\nprofile = "two"\n[[arms]]\nprofile = "two"\nset = { cuda-graph-max-bs = 64 }\n'
    (profiles / "x.toml").write_text(f'kind = "experiment"\nbench = "blink"\npairs = 1\n{arms}')
    ahead = user("experiment", "x", "--dry-run", "--json", timeout=_WAIT_S)
    assert (ahead.code, ahead.json["error"]) == (0, None), ahead.json
    assert [(arm["arm"], arm["hosts"], arm["blocked"]) for arm in ahead.json["arms"]] == [
        ("A", ["demo", "demo2"], False), ("B", ["demo", "demo2"], False),
    ]  # fmt: skip
    assert members(user) == []
    process = user.start("experiment", "x", "--seed", "1")
    assert process.stderr is not None
    for line in process.stderr:  # to the middle of the first measurement
        if b"run 1 of 2 at" in line:
            break
    process.kill()
    process.communicate()
    before = members(user)
    assert [row["outcome"] for row in before] == ["ready", "ready"]
    done = user("experiment", "x", "--resume", "--json", timeout=2 * _WAIT_S)
    said = done.json
    assert said["error"] in (None, "nothing_comparable"), said
    assert [launch["status"] for launch in said["launches"]] == ["measured", "measured"]
    assert said["launches"][0]["run"] == str(before[0]["run"]).rpartition("-")[0]
    assert said["hosts"] == ["demo", "demo2"]
    assert all(row["state"] == "exited" for row in members(user))
