"""Changes of pace and growing queues, told from chance: false alarms and what is found, in simulated windows.

    python benchmarks/steadiness.py [--smoke] [--windows 200]

Three parts: the critical values of tui/core/measure/steadiness.py anew (numpy), windows of one pace and with a step through
`change`, open loops below and above capacity (c servers, Poisson arrivals, first come first served) through `backlog`.
"""

import argparse
import heapq
import random

import numpy as np

from tui.core.bench.steadiness import backlog, change
from tui.core.model.result import Window

# Users, seconds between chunks, noise of a gap, of a reply's pace, growth over a reply, longest reply, window.
WORLDS = (
    (1, 0.012, 0.05, 0.01, 0.1, 512, 60),
    (1, 0.012, 0.05, 0.03, 0.3, 512, 60),
    (1, 0.030, 0.10, 0.02, 0.2, 512, 60),
    (1, 0.026, 0.02, 0.02, 0.1, 512, 60),
    (4, 0.030, 0.10, 0.02, 0.2, 512, 60),
    (16, 0.040, 0.20, 0.02, 0.2, 256, 30),
    (1, 0.012, 0.05, 0.01, 0.1, 128, 10),
    (4, 0.020, 0.05, 0.00, 0.0, 64, 10),
)
STEPS = ((0.5, 1.03), (0.5, 1.05), (0.5, 1.3), (0.8, 1.1))  # share of the window, factor on the gap


def critical(slices: int, windows: int, rng: np.random.Generator) -> float:
    """What the largest |t| of all steps and the drift exceeds in 0.2 % of windows without a change."""
    x = rng.standard_normal((windows, slices))
    best = np.zeros(windows)
    for within in (0, 1):
        for left in range(2, slices - 1 - within):
            before, after = x[:, :left], x[:, left + within :]
            if after.shape[1] < 2:
                continue
            rest = before.var(1) * left + after.var(1) * after.shape[1]
            scale = rest / (left + after.shape[1] - 2) * (1 / left + 1 / after.shape[1])
            best = np.maximum(best, np.abs(after.mean(1) - before.mean(1)) / np.sqrt(scale))
    place = np.arange(slices) - (slices - 1) / 2
    spread = (place * place).sum()
    slope = (x * place).sum(1) / spread
    rest = (x * x).sum(1) - slices * x.mean(1) ** 2 - slope * slope * spread
    best = np.maximum(best, np.abs(slope) / np.sqrt(rest / (slices - 2) / spread))
    return float(np.quantile(best, 0.998))


def replies(world, rng, step=None):
    """Rows of users one reply after the other; with several users prefill lengthens a gap now and then."""
    users, gap_s, noise, by_reply, growth, longest, seconds = world
    rows = []
    for _ in range(users):
        at = rng.uniform(0, 0.3)
        while at < seconds + 1:
            ttft = rng.uniform(0.05, 0.3)
            first = at = at + ttft
            pace = gap_s * (1 + by_reply * rng.gauss(0, 1))
            gaps = []
            for place in range(rng.randint(longest // 4, longest) - 1):
                gap = pace * (1 + growth * place / longest) * max(0.2, 1 + noise * rng.gauss(0, 1))
                if step and at > seconds * step[0]:
                    gap *= step[1]
                if users > 1 and rng.random() < 0.01 * users:
                    gap += ttft / 2
                gaps.append(round(gap * 1e6))
                at += gaps[-1] / 1e6
            rows.append({"err": None, "t_first": first, "t_last": at, "gaps_us": gaps})
    return rows, Window(0.5, seconds + 0.5)


def arrivals(rate, servers, service_s, seconds, rng):
    """Rows of an open loop before a queue."""
    at, free, rows = 0.0, [0.0] * servers, []
    while at < seconds + 5:
        at += rng.expovariate(rate)
        end = max(at, heapq.heappop(free)) + service_s * rng.uniform(0.5, 1.5)
        heapq.heappush(free, end)
        rows.append({"err": None, "t_sched": at, "t_last": end})
    begin = min(row["t_last"] for row in rows)
    return [row for row in rows if row["t_sched"] <= begin + seconds], Window(begin, begin + seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", type=int, default=200)
    parser.add_argument("--smoke", action="store_true", help="a few windows: seconds, and no figures to keep")
    options = parser.parse_args()
    windows = 4 if options.smoke else options.windows
    print("critical values, slices: t")
    generator = np.random.default_rng(7)
    for slices in range(4, 13):
        print(f"  {slices}: {critical(slices, 2000 if options.smoke else 200_000, generator):.2f}")
    print("changes of pace: share of windows told (2 % or more)")
    rng = random.Random(1)
    for world in WORLDS[:2] if options.smoke else WORLDS:

        def share(count, world=world, step=None):
            told = [change(*replies(world, rng, step)) for _ in range(count)]
            return sum(each is not None and abs(each.share) > 0.02 for each in told) / count

        few = max(2, windows // 4)
        found = ", ".join(f"{factor - 1:.0%} at {at:.0%}: {share(few, step=(at, factor)):.2f}" for at, factor in STEPS)
        print(f"  {world}: none: {share(max(2, windows // (5 if world[0] > 4 else 1))):.3f}; {found}", flush=True)
    print("queues that grow, of 60 s: share told by load")
    for servers, service_s in ((8, 1.5), (48, 10.0)):
        shares = []
        for load in (0.3, 0.6, 0.8, 0.9, 0.95, 1.05, 1.1, 1.2, 1.5):
            rate = load * servers / service_s
            told = [backlog(*arrivals(rate, servers, service_s, 60, rng)) for _ in range(2 * windows)]
            shares.append(f"{load:g}: {sum(each.grows for each in told) / len(told):.3f}")
        print(f"  {servers} servers, {service_s:g} s each: {', '.join(shares)}", flush=True)


if __name__ == "__main__":
    main()
