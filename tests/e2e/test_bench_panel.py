"""A measurement from the panel, in a real terminal, over SSH, on the simulated host: left in the middle, found again."""

import json
import os
import re

import pytest

pytestmark = pytest.mark.timeout(300)

BENCH = """\
kind = "bench"
description = "as short as it gets"
dataset = "prompts"
output_len = 32
duration_s = 11
runs = 2
"""


def test_a_bench_by_keyboard_survives_the_panel(eagletui, terminal, launch_by_keyboard, kill_marked, free_port):
    mark = f"EAGLETUI_TEST_BENCH={os.getpid()}"
    env = {**eagletui.env, "EAGLETUI_DEMO_SPEED": "500", mark.split("=")[0]: mark.split("=")[1]}
    profiles = eagletui.home / "profiles"
    profiles.mkdir()
    (profiles / "a-short.toml").write_text(BENCH)
    (profiles / "drafts.toml").write_text(
        f'kind = "launch"\nextends = "kimi-k2.5-eagle3-mem088"\n[args]\nport = {free_port()}\n'
    )
    try:
        first = terminal([*eagletui.argv, "demo"], env, cwd=eagletui.home, columns=120, rows=40)
        first.wait_for(r"No server runs here|foreign-\d+", 60)  # another test's is foreign here
        launch_by_keyboard(first, "drafts")
        first.wait_for(r"READY\s+drafts", 60)
        first.keys("b")
        first.wait_for("Measure the running server", 20)
        for _ in range(20):
            chosen = first.wait_for(r"▌\s+(\S+)", 10).group(1)
            if chosen == "a-short":
                break
            first.keys("j")
            first.wait_for(rf"▌\s+(?!{re.escape(chosen)}\s)\S+", 10)
        first.wait_for(r"takes\s+about 1 min", 10)
        first.keys("Enter")
        first.wait_for(r"now\s+\d+\.\d", 60)  # it measures
        first.keys("q")
        assert first.wait_exit() == 0
        assert "The measurement a-short keeps running there" in " ".join(first.screen().split())

        second = terminal([*eagletui.argv, "demo"], env, cwd=eagletui.home, columns=120, rows=40)
        second.wait_for(r"READY\s+drafts", 60)
        second.keys("4")
        second.wait_for(r"2 of 2 runs", 120)
        second.wait_for(r"✓ DONE", 60)
        second.wait_for(r"accept\s+2\.\d\d", 10)  # what the simulated draft model gives
        second.keys("Enter")
        second.wait_for(r"(?s)Runs of A.*run 1 .*run 2 .*Guards", 20)
        second.keys("Escape")
        second.wait_gone("Runs of A", 10)
        second.keys("x")
        second.wait_for("Exported to", 20)
        second.keys("q")
        assert second.wait_exit() == 0

        stored = [json.loads(path.read_text()) for path in eagletui.home.rglob("results/*.json")]
        assert [record["run_index"] for record in sorted(stored, key=lambda r: r["run_index"])] == [1, 2]
        assert {record["server"]["profile"] for record in stored} == {"drafts"}
        assert {path.suffix for path in eagletui.home.rglob("exports/*")} == {".csv", ".html", ".md"}
    finally:
        kill_marked(mark)
