"""The figures of a bench against a server that knows the moments of its sends, in every dialect and whatever goes wrong.

    .venv/bin/python benchmarks/true_figures.py [--smoke] [--duration 12] [--only WORDS]

The cases are those of tests/support/truth.py: each dialect of /generate and of SGLang's and vLLM's chat, an event a write,
several a write, events cut in two, with 1, 16 and 64 users; then open loops, stalls, retraction, errors and early stops. A
line a case: by how much each figure differs from the truth, and the lag of the load generator's own loop. Exit
status 1 where a figure is further off than the case allows, but not of --smoke: that takes two cases with windows of 2.5 s
(tests/core/bench/test_truth.py holds more of them against the truth).
"""

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # tests.support

from tests.support.truth import CASES, LIMIT, SHORT, Compared, compare, run

SHOWN = ("per-user tok/s", "output tok/s", "TTFT mean", "TPOT mean", "E2E mean", "gap mean", "tau")


def apart(each: Compared) -> str:
    if not each.true or each.measured is None:
        return "-"
    return f"{(each.measured / each.true - 1) * 100:+.2f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--duration", type=float, default=12.0)
    parser.add_argument("--only", default="", help="cases whose name holds this")
    arguments = parser.parse_args()
    cases = [case for case in (SHORT[:2] if arguments.smoke else CASES) if arguments.only in case.name]
    print(f"{'difference from the truth, %':72}" + "".join(f"{name:>16}" for name in SHOWN) + f"{'lag p99, ms':>13}")
    beyond, within, figures = [], 0, 0
    with tempfile.TemporaryDirectory() as directory:
        for number, case in enumerate(cases):
            duration_s = 2.5 if arguments.smoke else arguments.duration
            measured = run(case, Path(directory, str(number)), duration_s=duration_s)
            found = {each.figure: each for each in compare(measured)}
            shown = [found.get(name) for name in SHOWN]
            lag_ms = measured.meta["client"]["loop_lag_p99_ms"]
            print(
                f"{case.name:72}" + "".join(f"{apart(x) if x else '-':>16}" for x in shown) + f"{lag_ms:>13}",
                flush=True,
            )
            beyond += [f"{case.name}: {each}" for each in found.values() if not each.holds]
            for each in shown:
                if each and each.true and each.measured is not None:
                    figures += 1
                    within += abs(each.measured / each.true - 1) <= LIMIT
    print(
        f"{within} of {figures} figures within {LIMIT:.1%} of the truth; further off than the lag explains: {len(beyond)}"
    )
    print("\n".join(beyond))
    return 1 if beyond and not arguments.smoke else 0


if __name__ == "__main__":
    sys.exit(main())
