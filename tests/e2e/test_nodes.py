"""The real SGLang over two hosts (`tests/support/nodes_lab.py`): tensor parallel 2, a rank on each, launched from one profile.

`benchmarks/nodes_killed.py` kills rank 1 in each phase.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

import pytest

from tests.support.nodes_lab import NAMES, Lab, processes_of

pytestmark = pytest.mark.timeout(1200)

ENDED_S = 30.0  # from the death of a rank to the end of the group
ASK = """
import json, sys, urllib.request
body = json.dumps({"text": "one two three", "sampling_params": {"max_new_tokens": 8, "ignore_eos": True}}).encode()
request = urllib.request.Request(sys.argv[1], body, {"Content-Type": "application/json"})
print(json.load(urllib.request.urlopen(request, timeout=60))["meta_info"]["completion_tokens"])
"""


@pytest.fixture(scope="module")
def lab(
    tmp_path_factory: pytest.TempPathFactory,
    sglang_module: object,
    free_port: Callable[[], int],
    make_command: Callable[[Path], object],
    wait_until: Callable[..., object],
) -> Iterator[Lab]:
    if not shutil.which("sshd", path="/usr/sbin:/usr/bin:/sbin"):
        pytest.skip("no sshd: apt-get install openssh-server")
    directory = tmp_path_factory.mktemp("nodes")
    lab = Lab(directory, sglang_module, free_port, make_command(directory / "desk"))
    try:
        for node in lab.nodes:
            wait_until(node.answers, 15, lambda node=node: (node.directory / "sshd.log").read_text())
        yield lab
    finally:
        sglang_module.kill()
        lab.close()


def kill_rank(document: dict[str, object], rank: int) -> str:
    """SIGKILL to the main process of a rank; its run."""
    member = document["group"]["members"][rank]
    os.kill(processes_of(member["run"])[0], signal.SIGKILL)
    return member["run"]


def the_end(lab: Lab, group: str) -> dict[str, object]:
    """What is said of a group once rank 1 is dead: all of it has ended soon after."""
    document = lab.eagletui.json("wait", group, "--for", "exit", code=1, timeout=600)
    first, last = sorted(datetime.fromisoformat(one["ended"]) for one in document["group"]["members"])
    assert (last - first).total_seconds() < ENDED_S
    assert lab.sglang.processes() == []
    return document


@pytest.fixture(scope="module")
def ready(lab: Lab) -> dict[str, object]:
    """Two launches race for both hosts, each beginning with another; the one that got them, once it is ready."""
    with ThreadPoolExecutor(2) as pool:
        race = [pool.submit(lab.eagletui.run, "launch", name, "--json", timeout=600) for name in ("two", "owt")]
        ended = [one.result() for one in race]
    assert sorted(one.returncode for one in ended) == [0, 1], [one.stdout + one.stderr for one in ended]
    lost, won = (json.loads(one.stdout) for one in sorted(ended, key=lambda one: one.returncode, reverse=True))
    assert lost["error"] in ("busy", "preflight")
    waited = lab.eagletui.run("wait", won["run"], timeout=900)
    assert waited.returncode == 0, waited.stderr
    document = lab.eagletui.json("wait", won["run"])
    return {**document, "said": waited.stderr}


def test_it_is_ready_once_and_both_ranks_show_their_phases(lab: Lab, ready: dict[str, object]) -> None:
    said = str(ready["said"])
    assert len(re.findall(r"^ready", said, re.MULTILINE)) == 1
    for rank in (0, 1):
        assert re.search(rf"rank {rank} (distributed init|load weights|memory pool|cuda graph|warmup)", said)
    members = ready["group"]["members"]
    assert [(one["outcome"], one["link_lost"]) for one in members] == [("ready", False)] * 2
    assert all(one["holds"] for one in ready["group"]["conditions"])
    head = lab.node(members[0]["host"])
    tokens = head.run(sys.executable, "-c", ASK, f"http://127.0.0.1:{members[0]['port']}/generate")
    assert int(tokens) == 8


def test_of_the_launch_that_lost_nothing_is_left(lab: Lab, ready: dict[str, object]) -> None:
    rows = lab.eagletui.json("ps", *NAMES)
    ours = [row for row in rows if row["state"] != "foreign"]
    assert sorted(row["run"] for row in ours) == sorted(one["run"] for one in ready["group"]["members"])
    assert {row["group"]["id"] for row in ours} == {ready["group"]["id"]}
    table = lab.eagletui.run("ps", *NAMES).stdout
    assert re.search(
        rf"^{ready['profile']} {ready['run'][-6:]}\s+ready\s+\w+\s+rank 0 gpu. ready, rank 1 gpu. ready$", table, re.M
    )


def test_the_logs_of_both_are_the_group_s(lab: Lab, ready: dict[str, object]) -> None:
    both = lab.eagletui.run("logs", str(ready["run"])[-6:]).stdout
    assert "The server is fired up" in both
    assert "Dummy health check server" in both
    one = lab.eagletui.run("logs", f"{str(ready['run'])[-6:]}-1").stdout
    assert "Dummy health check server" in one
    assert "The server is fired up" not in one


def test_a_stop_of_any_member_drains_all_and_leaves_nothing(lab: Lab, ready: dict[str, object]) -> None:
    document = lab.eagletui.json("stop", ready["group"]["members"][1]["run"], "--grace", "60", timeout=200)
    assert document["outcome"] == "stopped"
    assert [one["exit_code"] for one in document["group"]["members"]] == [0, 0]
    assert lab.sglang.processes() == []
    over = lab.eagletui.json("wait", str(ready["run"]), "--for", "exit")
    assert (over["outcome"], over["group"]["failed"]) == ("stopped", None)


def test_rank_1_killed_while_it_starts_ends_the_group(lab: Lab, wait_until: Callable[..., object]) -> None:
    document = lab.eagletui.json("launch", "two", timeout=600)
    second = document["group"]["members"][1]["run"]

    def begun() -> bool:
        return "Init parallel" in lab.eagletui.run("logs", second).stdout

    wait_until(begun, 600, lambda: lab.eagletui.run("logs", second).stdout)
    kill_rank(document, 1)
    over = the_end(lab, str(document["run"]))
    assert (over["outcome"], over["group"]["failed"]) == ("crashed", "rank 1")
    assert over["diagnosis"] == over["group"]["members"][1]["diagnosis"]


@pytest.fixture(scope="module")
def uncut(lab: Lab, tmp_path_factory: pytest.TempPathFactory, wait_until: Callable[..., object]) -> dict[str, object]:
    """A group whose second host was out of reach for a while as it started; once it is ready."""
    if not lab.nodes[1].inside:
        pytest.skip("needs root: network namespaces")
    document = lab.eagletui.json("launch", "two", timeout=600)
    with Following(lab, document, tmp_path_factory.mktemp("said")) as following:
        following.cut_and_back(wait_until)
        assert following.process.wait(900) == 0
    return document


class Following:
    """`eagletui wait` of a group, which goes on while the link to its second host is cut."""

    def __init__(self, lab: Lab, document: dict[str, object], directory: Path) -> None:
        self.node, self.path = lab.nodes[1], directory / "stderr"
        with self.path.open("wb") as said:
            self.process = lab.eagletui.popen("wait", str(document["run"]), stdout=subprocess.DEVNULL, stderr=said)

    def __enter__(self) -> "Following":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()

    def said(self) -> str:
        return self.path.read_text()

    def cut_and_back(self, wait_until: Callable[..., object]) -> None:
        """Cuts the link, waits until that is said, gives it back."""
        wait_until(lambda: "rank 1 " in self.said(), 60, self.said)
        self.node.cut()
        try:
            wait_until(lambda: re.search(r"rank 1 .*\(link lost\)", self.said()), 120, self.said)
            assert self.process.poll() is None
        finally:
            self.node.cut(cut=False)


def test_a_link_that_is_lost_while_it_starts_ends_nobody(lab: Lab, uncut: dict[str, object]) -> None:
    members = lab.eagletui.json("wait", str(uncut["run"]))["group"]["members"]
    assert [(one["outcome"], one["link_lost"], one["run"]) for one in members] == [
        ("ready", False, one["run"]) for one in uncut["group"]["members"]
    ]


def test_a_link_that_is_lost_while_it_serves_is_unknown_and_ready_again(
    lab: Lab, uncut: dict[str, object], tmp_path: Path, wait_until: Callable[..., object]
) -> None:
    before = lab.sglang.processes()
    lab.nodes[1].cut()
    try:
        with Following(lab, uncut, tmp_path) as following:
            wait_until(lambda: "rank 1 unknown: no answer from gpu4" in following.said(), 120, following.said)
            assert re.search("rank 0 (ready|serving)", following.said())
            assert following.process.poll() is None
            lab.nodes[1].cut(cut=False)
            assert following.process.wait(200) == 0
    finally:
        subprocess.run([*lab.nodes[1].inside, "ip", "route", "flush", "type", "blackhole"], capture_output=True)
    assert lab.sglang.processes() == before


def test_rank_1_killed_while_it_serves_ends_the_group(lab: Lab, uncut: dict[str, object]) -> None:
    kill_rank(uncut, 1)
    over = the_end(lab, str(uncut["run"]))
    assert (over["outcome"], over["group"]["failed"]) == ("crashed", "rank 1")
    assert over["group"]["members"][1]["exit_code"] == 137
    report = lab.eagletui.json("diagnose", str(uncut["run"]))
    assert report["group"]["failed"] == "rank 1"
