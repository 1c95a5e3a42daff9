"""`eagletui tune` as people use it: its plan, what it refuses, and a whole run on the simulated host, killed in the middle."""

import json
import re
import signal
import time

import pytest

from tests.support.tunes import RANGED, whole
from tui.commands.tune import report_lines
from tui.core.tune.record import Phase, Status, Step, Taken

PROFILE = "kimi-k2.5-eagle3-mem076"
WINK = """
kind = "bench"
dataset = "prompts"
concurrency = [8]
output_len = 16
duration_s = 1
runs = 1
"""


def tune(shell, *words, **options):
    return shell("tune", PROFILE, "--for", "tok_s", "--host", "demo", *words, "--json", **options)


def test_the_plan_asks_no_host(shell):
    said = shell("tune", PROFILE, "--for", "tok_s", "--host", "nowhere", "--dry-run")
    assert said.code == 0
    assert b"at most 25 launches" in said.out
    document = tune(shell, "--dry-run").json
    assert (document["steps"], document["launch_s"], document["error"]) == ([], None, None)
    assert document["start"] == {"steps": 3, "topk": 1, "draft_tokens": 4}


@pytest.mark.parametrize(
    ("words", "slug"),
    [
        (("--workload", "decode-bs1"), "bad_value"),  # random ids say nothing about a draft
        (("--workload", "capacity-ttft-tpot"), "bad_value"),
        (("--workload", "none-such"), "unknown_profile"),
        (("--resume",), "nothing_to_resume"),
        (("--set", "port"), "bad_value"),
        (("--budget", "-1"), "usage"),
    ],
)
def test_what_cannot_be_tuned_is_refused_in_one_line(shell, words, slug):
    tune(shell, *words).refused(2, slug)


def test_goodput_needs_limits(shell):
    said = shell("tune", PROFILE, "--for", "goodput", "--workload", "decode-bs1", "--host", "demo", "--json")
    assert "limits" in said.refused(2, "bad_value")["message"]


def test_a_group_is_not_tuned(shell):
    shell("tune", "qwen3-0.6b-split", "--for", "tok_s", "--host", "demo", "--json").refused(2, "bad_value")


@pytest.mark.timeout(300)
def test_the_range_is_found_by_a_tune_that_was_killed_and_resumed(demo, port):
    """Runs of a second count for no figure: so it ends once the baseline and the start are launched."""
    profiles = demo.cwd / "profiles"
    profiles.mkdir(exist_ok=True)
    (profiles / "wink.toml").write_text(WINK)
    words = ("--workload", "wink", "--set", port, "--seed", "1")
    killed = demo.start("tune", PROFILE, "--for", "tok_s", "--host", "demo", *words)
    tunes = demo.home / "eagletui" / "data" / "tunes"
    deadline = time.monotonic() + 100
    while not any(len(json.loads(path.read_bytes())["steps"]) == 2 for path in tunes.glob("*.json")):
        assert killed.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.2)  # another process: there is no event
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    said = tune(demo, *words, "--resume", timeout=200)
    document = said.json
    found = document["range"]
    assert (found["low"], found["high"], found["exact"]) == (0.84, 0.9, True)
    of_range = [step for step in document["steps"] if step["phase"] == "range"]
    assert len(of_range) <= 6
    assert [step["cause"] for step in of_range if step["fraction"] == 0.76] == ["oom_kv_pool"]
    assert {step["cause"] for step in of_range if step["fraction"] > 0.9} == {"oom_cuda_graph"}
    assert [step["title"] for step in document["steps"][len(of_range) :]] == [
        "without speculation",
        "3 steps, top-k 1, 4 draft tokens",
    ]
    assert (said.code, document["error"]) == (1, "failed")
    assert "no run counts" in document["message"]
    assert [row for row in demo("ps", "demo", "--json").json if row["state"] == "running"] == []


def test_the_report_says_what_was_found_and_what_was_not_tried():
    lines = report_lines(whole())
    text = "\n".join(lines)
    assert "0.84 to 0.90 start and serve the longest prompt" in lines[0]
    assert re.search(r"^4 .* 77\.2 0\.86× 3\.02 of 3\.50 L\d", text, re.MULTILINE)
    assert "best draft: 4 steps, top-k 2, 9 draft tokens, 77.2 tok/s per user" in text
    assert "it does not beat no speculation" in text
    assert lines[lines.index("not tried") + 1].startswith("  · other algorithms than EAGLE3")


def test_the_report_ends_with_the_verdict():
    record = whole()
    step = Step(Phase.CONFIRM, "why", 0.87, None)
    record = record.with_step(Taken(len(record.steps) + 1, step, Status.DONE, 6, verdict="B is 24 % faster"))
    assert "verdict  B is 24 % faster" in report_lines(record)
    assert report_lines(RANGED)[-1].startswith("  · ")
