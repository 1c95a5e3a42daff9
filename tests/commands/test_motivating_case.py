"""The case that this tool is for, done by an agent that has its page and a shell: `motivating_case.sh`."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(300)
SCRIPT = Path(__file__).parent / "motivating_case.sh"


def test_an_agent_comes_from_a_crash_to_a_verdict(demo, port):
    command = demo.cwd / "bin" / "eagletui"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m tui "$@"\n')
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    path = os.pathsep.join([str(command.parent), str(Path(sys.executable).parent), demo.env["PATH"]])
    env = {**demo.env, "PATH": path, "EAGLETUI_HOST": "demo", "PORT": port.partition("=")[2]}
    done = subprocess.run(["sh", SCRIPT], cwd=demo.cwd, env=env, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, (done.stdout, done.stderr)
    said = {path.stem: json.loads(path.read_text()) for path in demo.cwd.glob("*.json")}
    assert said["crash"]["diagnosis"]["cause"] == "oom_kv_pool"
    assert 0.84 <= said["crash"]["diagnosis"]["set"]["mem-fraction-static"] <= 0.9
    assert said["eagle"]["outcome"] == said["base"]["outcome"] == "ready"
    eagle, base = said["eagle-bench"], said["base-bench"]
    assert eagle["valid"]
    assert base["valid"]
    assert 2 < eagle["accept_length"] < 3  # of the demo's model: below the break-even of 2.7
    assert eagle["per_user_tok_s"] < base["per_user_tok_s"]
    verdict = said["verdict"]
    assert (verdict["conclusion"], verdict["simulated_host"]) == ("screening", True)
    assert verdict["a"]["value"] == pytest.approx(base["per_user_tok_s"])
    assert verdict["ratio"] == pytest.approx(eagle["per_user_tok_s"] / base["per_user_tok_s"])
    assert said["before"]["runs"] == []
    assert [(note["by"], note["text"]) for note in said["after"]["notes"]] == [("agent", verdict["text"])]
    assert said["stopped"]["mem_held_mib"] == 0
