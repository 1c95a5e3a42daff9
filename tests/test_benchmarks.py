"""Benchmarks can't rot: each runs to its end in a small size. What they find is not looked at here."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = [
    path
    for path in sorted((Path(__file__).parents[1] / "benchmarks").glob("*.py"))
    if "--smoke" in path.read_text(encoding="utf-8")
]
PARTS = {"big_log", "loopback", "peers", "pty_program", "ready_stand_in", "screen_png"}  # what benchmarks are made of


def test_every_benchmark_has_a_small_size():
    assert {path.stem for path in BENCHMARKS[0].parent.glob("*.py")} - {path.stem for path in BENCHMARKS} == PARTS


@pytest.mark.has_sshd
@pytest.mark.parametrize("program", BENCHMARKS, ids=lambda path: path.stem)
def test_a_benchmark_runs(program, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    done = subprocess.run([sys.executable, program, "--smoke"], capture_output=True, text=True, timeout=280)
    errors = "\n".join(line for line in done.stderr.splitlines() if "Error" in line)
    assert done.returncode == 0, errors + done.stdout[-2000:] + done.stderr[-4000:]
    assert done.stdout.strip()
