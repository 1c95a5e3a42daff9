"""Diagnosing a log of 1 GiB where it lies: here beside `grep -c` for five words, and over a link of 100 ms each way.

    .venv/bin/python benchmarks/diagnose_big.py [--rounds 3] [--gib 1] [--delay-ms 100]

The log is that of `tracker_speed.py`: a start, hours of serving, a crash. `eagletui diagnose` runs as a command, and what is told
is the median of its wall time, less that on a log of a few kilobytes so that starting Python does not count. Over the link it runs
through the proxy of `far_link.py`, which holds every byte back for so long; all of it counts there, the login too, and so do the bytes
that the proxy passed on. All answers must be the one of reading the whole log. The file is in the page cache.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import tracker_speed
from big_log import GIB
from far_link import FarProxy
from loopback import Loopback
from peers import eagletui

WORDS = ("Error", "Traceback", "Killed", "SIGQUIT", "memory")


def timed(argv: Sequence[str], env: dict[str, str]) -> tuple[float, str]:
    """(seconds, standard output) of a command."""
    began = time.perf_counter()
    done = subprocess.run(argv, capture_output=True, text=True, env=env, check=False)
    if done.returncode > 1:
        sys.exit(f"{argv}: {done.stderr}")
    return time.perf_counter() - began, done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--gib", type=float, default=1.0)
    parser.add_argument("--delay-ms", type=float, default=100.0)
    parser.add_argument("--smoke", action="store_true", help="one round of a small log, no delay")
    options = parser.parse_args()
    if options.smoke:
        options.rounds, options.gib, options.delay_ms = 1, 0.02, 0.0
    with tempfile.TemporaryDirectory() as directory, Loopback() as loopback:
        big, small = Path(directory, "big.log"), Path(directory, "small.log")
        tracker_speed.make_log(big, int(options.gib * GIB))
        tracker_speed.make_log(small, 1_000)
        truth = json.loads(json.dumps({**tracker_speed.diagnose(str(big)), "unread_lines": 0}))
        link = FarProxy(loopback.port, options.delay_ms / 1000)
        loopback.ssh_config(link.port)
        env = {**os.environ, "HOME": str(loopback.home), "EAGLETUI_HOME": str(loopback.home / "eagletui")}
        env.pop("SSH_AUTH_SOCK", None)
        diagnose = [eagletui(), "diagnose", "--json"]
        grep = ["grep", "-c", *(part for word in WORDS for part in ("-e", word)), str(big)]
        took: dict[str, list[float]] = {}
        moved: list[int] = []

        def run(name: str, argv: list[str]) -> str:
            seconds, out = timed(argv, env)
            took.setdefault(name, []).append(seconds)
            return out

        for _ in range(options.rounds):
            run("grep", grep)
            run("grep -i", [*grep[:1], "-i", *grep[1:]])
            answers = [run("here", [*diagnose, str(big)])]
            run("small here", [*diagnose, str(small)])
            before = link.bytes
            answers.append(run("there", [*diagnose, f"loopback:{big}"]))
            moved.append(link.bytes - before)
            run("small there", [*diagnose, f"loopback:{small}"])
            # Whose log a pasted one is, is asked of pastes alone.
            if any({**json.loads(answer), "engine": truth["engine"]} != truth for answer in answers):
                sys.exit(f"another answer than that of the whole log: {answers}")
        middle = {name: statistics.median(seconds) for name, seconds in took.items()}
        ratios = [(h - s) / g for h, s, g in zip(took["here"], took["small here"], took["grep"], strict=True)]
        size = big.stat().st_size
        print(
            f"{size / GIB:.2f} GiB, {options.rounds} rounds, {options.delay_ms:g} ms each way, {os.cpu_count()} processors"
        )
        print(f"grep -c, five words        {middle['grep']:6.2f} s   with -i {middle['grep -i']:.2f} s")
        print(f"diagnose, this machine     {middle['here'] - middle['small here']:6.2f} s   ({middle['here']:.2f} s with starting Python)")  # fmt: skip
        print(
            f"  to grep -c               {statistics.median(ratios):6.2f}     ({min(ratios):.2f} to {max(ratios):.2f})"
        )
        print(
            f"diagnose, over the link    {middle['there']:6.2f} s   (a log of a few kilobytes: {middle['small there']:.2f} s)"
        )
        print(
            f"  bytes both ways          {statistics.median(moved):,.0f} ({100 * statistics.median(moved) / size:.2f} % of the log)"
        )


if __name__ == "__main__":
    main()
