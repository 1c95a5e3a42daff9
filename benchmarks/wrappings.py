"""Answers to logs in every wrapping, held against the answers to the logs themselves.

    .venv/bin/python benchmarks/wrappings.py [--all] [--pairs 1000] [--seed 1]

Every log of tests/data/logs in every wrapping of tests/support/wrappings.py (without `--all` eight logs in each), then
`--pairs` logs in two wrappings, the second around the first, taken by chance. Each difference is printed: what of the
answer differs, from what.
"""

import argparse
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.log_reports import report
from tests.support.wrappings import LOGS, WRAPPINGS, as_bytes, differences, raw_lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="every log in every wrapping")
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--smoke", action="store_true", help="one log in each, ten pairs")
    options = parser.parse_args()
    if options.smoke:
        options.pairs = 10
    chance = random.Random(options.seed)
    paths = sorted(LOGS.glob("*/*.log"))
    plain = {path: report(as_bytes(raw_lines(path))) for path in paths}
    singles = [
        (path, name, None)
        for name in WRAPPINGS
        for path in (paths if options.all else chance.sample(paths, 1 if options.smoke else 8))
    ]
    first = [name for name in WRAPPINGS if "columns" not in name and name != "cut"]  # these are the outermost
    pairs = [(chance.choice(paths), *chance.sample(first, 2)) for _ in range(options.pairs)]
    for what, cases in (("in one wrapping", singles), ("in two", pairs)):
        same = 0
        for path, name, then in cases:
            found = list(differences(path, name, plain[path], options.seed, then))
            same += not found
            for text in found[:1]:
                print(f"{path.stem}, {name}{f', then {then}' if then else ''}: {text}")
        print(f"{what}: {same} of {len(cases)} answers are the same")


if __name__ == "__main__":
    main()
