"""How many right measurements the guards refuse, on a quiet machine and beside one busy process.

    python benchmarks/false_alarms.py [--smoke] [--runs 40] [--duration 10]

A truth server at several paces, measured again and again by the load generator; a run is right where its per-user rate is
within half a percent of the server's own sends. Of the right ones: how many fail a guard, and which. The paces are measured
side by side, the machine's quiet and busy halves alternately.
"""

import argparse
import itertools
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # tests.support

from tests.support.truth import Case, compare, run, zero_of
from tui.core.bench.guards import STEADY_SHARE, ServerChecks, judge
from tui.core.bench.metrics import figures
from tui.core.bench.steadiness import change
from tui.core.model.result import GuardStatus, Window

PACES = (
    Case("generate", {"concurrency": 1}, server={"tick_ms": 2, "first_ms": 20}, note="500 tok/s"),
    Case("chat, continuous usage", {"concurrency": 1}, server={"tick_ms": 12, "first_ms": 50, "speculate": 1, "chunk": 4}),
    Case("chat, continuous usage", {"concurrency": 16}, server={"tick_ms": 25, "first_ms": 50, "speculate": 1, "chunk": 4}),
    Case("generate", {"concurrency": 4}, "three a write", server={"tick_ms": 12, "first_ms": 50}, note="events together"),
    Case("generate", {"rate": 6.0}, server={"tick_ms": 12, "first_ms": 50, "tokens": 64}),
)  # fmt: skip
RIGHT = 0.005
BUSY = "while True: sum(range(10**6))"


def one(case: Case, duration_s: float) -> tuple[float, list[str]]:
    """How far its per-user rate is from the truth, as a share, and the guards that it fails."""
    with tempfile.TemporaryDirectory() as directory:
        measured = run(case, Path(directory), duration_s=duration_s)
    rate = next(each for each in compare(measured) if each.figure == "per-user tok/s")
    off = rate.measured / rate.true - 1
    # A server that changed its own pace, by its own sends, is no false alarm.
    sent = [
        {**row, "t_first": reply["sends"][0][0], "t_last": reply["sends"][-1][0], "gaps_us": gaps_of(reply["sends"])}
        for row, reply in zip(measured.rows, measured.replies, strict=True)
        if reply["sends"]
    ]
    zero = zero_of(measured)
    begin, end = (zero + moment for moment in measured.meta["window"])
    own = change(sent, Window(begin, end))
    changed = own is not None and abs(own.share) > STEADY_SHARE
    judged = judge(measured.rows, measured.meta, figures(measured.rows, measured.meta), ServerChecks())
    failed = [guard for guard in judged.guards if guard.status is GuardStatus.FAILED]
    return off, [f"{guard.id}: {guard.text}" for guard in failed if not (guard.id == "steady" and changed)]


def gaps_of(sends: list[tuple[float, int]]) -> list[int]:
    """Microseconds between them."""
    return [round((after - before) * 1e6) for (before, _), (after, _) in itertools.pairwise(sends)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=40, help="of each pace, quiet and busy")
    parser.add_argument("--duration", type=float, default=10.0, help="seconds of a window")
    parser.add_argument("--smoke", action="store_true", help="one short run of two paces")
    options = parser.parse_args()
    paces, runs, duration_s = (PACES[:2], 1, 2.0) if options.smoke else (PACES, options.runs, options.duration)
    right: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    caught: Counter[str] = Counter()
    for _, machine in itertools.product(range(runs), ("quiet", "busy")):
        other = subprocess.Popen([sys.executable, "-c", BUSY]) if machine == "busy" else None
        try:
            with ThreadPoolExecutor(len(paces)) as pool:
                found = list(pool.map(lambda case: one(case, duration_s), paces))
        finally:
            if other is not None:
                other.kill()
                other.wait()
        for case, (off, failed) in zip(paces, found, strict=True):
            if duration_s < 10:
                failed = [text for text in failed if not text.startswith("window")]
            is_right = abs(off) <= RIGHT
            (right if is_right else wrong)[machine] += 1
            if failed:
                (refused if is_right else caught)[machine] += 1
            if failed or not is_right:
                print(f"{machine}: {case.name}: {off:+.2%}: {'; '.join(failed) or 'counts'}", flush=True)
    for machine in ("quiet", "busy"):
        share = refused[machine] / right[machine] if right[machine] else 0.0
        print(
            f"{machine}: {right[machine]} right runs, {refused[machine]} of them refused ({share:.1%}); "
            f"{wrong[machine]} more than 0.5 % off, {caught[machine]} of them refused"
        )


if __name__ == "__main__":
    main()
