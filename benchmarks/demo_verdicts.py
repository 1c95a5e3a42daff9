"""Verdicts where the truth is known: on the simulated host, graphs up to 512 against up to 128 differ by 9.1 %.

    .venv/bin/python benchmarks/demo_verdicts.py [--seeds 20] [--jobs 4]

Each seed draws other launch effects (CV 1 %) and run noise (CV 0.4 %), and has a simulated host and a home of its own. The
experiment is the installed command's, three launch pairs with one run of 12 s each; loading is 200 times as fast, tokens
take their real time. A seed is right where the verdict says "faster" from three pairs, with a 95 % interval that contains
the true ratio.
"""

import argparse
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

TRUTH = 1.091  # b / a: docs/demo.md, "Speed"
LEAST = 17  # of twenty
BENCH = """
kind = "bench"
driver = "eagletui"
dataset = "random-ids"
concurrency = [1]
input_len = 64
output_len = 64
duration_s = 12
runs = 1
"""
EXPERIMENT = """
kind = "experiment"
bench = "short"
pairs = {pairs}
[[arms]]
profile = "kimi-k2.5-baseline-bs512"
set = {{ port = {port} }}
[[arms]]
profile = "kimi-k2.5-baseline-bs128"
set = {{ port = {port} }}
"""


@dataclass(frozen=True)
class Said:
    """What one seed's experiment said."""

    seed: int
    verdict: str
    level: str
    ci: tuple[float, float] | None
    text: str
    reasons: tuple[str, ...]  # what limits it
    seconds: float

    @property
    def right(self) -> bool:
        inside = self.ci is not None and self.ci[0] <= TRUTH <= self.ci[1]
        return self.verdict == "faster" and self.level == "L2" and inside


def run_seed(seed: int, home: Path, pairs: int = 3) -> Said:
    """One experiment on a simulated host of its own, ended afterwards. Raises RuntimeError where it fails."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    profiles = home / "profiles"
    profiles.mkdir(parents=True)
    (profiles / "short.toml").write_text(BENCH)
    (profiles / "graphs.toml").write_text(EXPERIMENT.format(port=port, pairs=pairs))
    env = {
        **os.environ,
        "HOME": str(home),
        "EAGLETUI_HOME": str(home / "eagletui"),
        "EAGLETUI_DEMO_SPEED": "200",
        "EAGLETUI_DEMO_SEED": str(seed),
    }
    eagletui = [sys.executable, "-m", "tui"]
    command = [*eagletui, "experiment", "graphs", "--host", "demo", "--seed", str(seed), "--json"]
    began = time.monotonic()
    try:
        done = subprocess.run(command, env=env, cwd=home, capture_output=True, text=True, timeout=900)
    finally:
        _end_demo(home / "eagletui")
    if done.returncode:
        raise RuntimeError(f"seed {seed}: exit {done.returncode}: {done.stdout[-2000:]}{done.stderr[-4000:]}")
    (verdict,) = json.loads(done.stdout)["verdicts"]
    ci = tuple(verdict["ci"]) if verdict["ci"] else None
    took = time.monotonic() - began
    reasons = tuple(verdict["reasons"])
    return Said(seed, verdict["verdict"], verdict["level"], ci, verdict["text"], reasons, took)


def _end_demo(home: Path) -> None:
    """The simulated host ends its servers with it."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        os.kill(int(json.loads((home / "state/demo/host.json").read_text())["pid"]), signal.SIGTERM)


def run_seeds(seeds: list[int], jobs: int, directory: Path, pairs: int = 3) -> list[Said]:
    """Several experiments, so many at a time."""
    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(lambda seed: run_seed(seed, directory / f"seed{seed}", pairs), seeds))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20, help="how many")
    parser.add_argument("--first", type=int, default=1, help="of them")
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--smoke", action="store_true", help="one seed, one pair: no verdict")
    options = parser.parse_args()
    if options.smoke:
        options.seeds = options.jobs = 1
    pairs = 1 if options.smoke else 3
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="demo-verdicts-") as directory:
        said = run_seeds(
            list(range(options.first, options.first + options.seeds)), options.jobs, Path(directory), pairs
        )
    for one in said:
        print(f"seed {one.seed:2}  {'right' if one.right else 'WRONG'}  {one.text}")
        for reason in one.reasons:
            print(f"         {reason}")
    right = sum(one.right for one in said)
    widths = sorted((one.ci[1] - one.ci[0]) / 2 for one in said if one.ci)
    print(f"{right} of {len(said)} say faster with an interval that contains {TRUTH - 1:.1%}")
    if widths:
        print(f"half width of the interval: median {widths[len(widths) // 2]:.1%}, largest {widths[-1]:.1%}")
    print(f"{time.monotonic() - began:.0f} s, {options.jobs} at a time")
    return 0 if options.smoke or right >= LEAST * len(said) / 20 else 1


if __name__ == "__main__":
    sys.exit(main())
