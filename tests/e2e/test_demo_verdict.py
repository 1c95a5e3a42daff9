"""A whole experiment on the simulated host, whose truth is known: one of the seeds of benchmarks/demo_verdicts.py."""

import runpy
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(600)

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "demo_verdicts.py"


def test_graphs_up_to_128_are_faster_by_what_the_host_makes_of_them(tmp_path):
    said = runpy.run_path(str(PROGRAM))["run_seed"](1, tmp_path)
    assert said.right, said
