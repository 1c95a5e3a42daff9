"""The tuner where the truth is known: its decisions over the simulated host's stated model, without a host.

    .venv/bin/python benchmarks/tuner.py [--seeds 10] [--first 1] [--world demo] [--steps]

Each seed draws other launch effects (CV 1 %), run noise (CV 0.4 %) and other accepted drafts, three runs of 60 s a launch. A
seed is right where the range is found, 0.84 to 0.90, within six launches, and the field of steps by top-k that the tuner calls
best is the best of the model, within 25 launches with the six of the experiment at the end.

The simulated host's drafts follow the form that the tuner fits. Other worlds do not: in `wide` candidates cover each other less and
tokens are cheap, in `chains` trees gain nothing, in `steep` a verify step over more than 8 tokens takes the next kernel. There
a seed is right where what is called best is within 2 % of the best.
"""

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from tui.core.model.profile import BenchProfile, LoadPoint
from tui.core.server.forecast import workable
from tui.core.sglang.state import LedgerRow
from tui.core.tune import decide, ranges
from tui.core.tune.record import Bounds, Draft, Phase, Status, Step, Taken, TuneRecord
from tui.demo import model

RANGE = (0.84, 0.90)
BATCH = 48  # what 128 becomes with speculation
BENCH = BenchProfile("speculation-real-prompts", (LoadPoint(1),))
REPLY_STEPS = 150  # verify steps of a reply: prompts differ


@dataclass(frozen=True)
class Said:
    """What one seed came to."""

    record: TuneRecord
    end: decide.End
    range_launches: int
    world: str

    @property
    def best(self) -> Draft | None:
        return decide.best_cell(self.record)

    @property
    def right(self) -> bool:
        known, best = ranges.found(self.record), self.best
        found = (known.low, known.high) == RANGE and self.range_launches <= ranges.MOST_LAUNCHES
        if best is None:
            return False
        if self.world != "demo":
            return found and rate_in(self.world, best) > 0.98 * best_rate(self.world)
        field = (best.steps, best.topk) == truth(known.used or 0.0)
        return found and field and self.record.launches <= decide.MOST_LAUNCHES


def config(step: Step) -> model.Config:
    """What the simulated host makes of a step's launch."""
    if step.draft is None:
        return model.Config(True, 8, step.fraction or 0.0, 128)
    draft = step.draft
    return model.Config(
        True,
        8,
        step.fraction or 0.0,
        BATCH,
        speculative=True,
        steps=draft.steps,
        draft_tokens=draft.tokens,
        topk=draft.topk,
    )


def cause(made: model.Config) -> str | None:
    """Why it does not start."""
    if made.pool_tokens <= 0:
        return "oom_kv_pool"
    return "oom_cuda_graph" if made.outside_gib < made.capture_peak_gib else None


def _demo(draft: Draft) -> tuple[float, float]:
    made = config(Step(Phase.SPECULATION, "", 0.87, draft))
    return model.expected_accept_length(draft.steps, draft.topk, draft.tokens), made.decode_step_s(1) * 1000


def _tree(draft: Draft, alone: float, decay: float, power: float) -> float:
    """Accept length where w candidates miss as w ** power independent ones would, the first positions getting the most."""
    total = reach = 1.0
    left = draft.tokens - 1 - draft.steps
    for position in range(draft.steps):
        extra = min(draft.topk - 1, max(0, left))
        left -= extra
        reach *= 1.0 - (1.0 - alone * decay**position) ** ((1 + extra) ** power)
        total += reach
    return total


def _wide(draft: Draft) -> tuple[float, float]:
    cycle = 22.0 + 0.3 * draft.tokens + 0.8 * draft.steps + 0.15 * draft.steps * (draft.topk - 1)
    return _tree(draft, 0.6, 0.92, 0.7), cycle


def _chains(draft: Draft) -> tuple[float, float]:
    return _tree(draft, 0.7, 0.97, 0.02), 24.0 + 0.8 * draft.tokens + 0.9 * draft.steps * draft.topk


def _steep(draft: Draft) -> tuple[float, float]:
    cycle = 25.0 + 0.2 * draft.tokens + 1.0 * draft.steps + 0.2 * draft.steps * (draft.topk - 1)
    return _tree(draft, 0.7, 0.95, 0.5), cycle * (1.15 if draft.tokens > 8 else 1.0)


WORLDS: dict[str, Callable[[Draft], tuple[float, float]]] = {  # accept length, cycle in ms
    "demo": _demo,
    "wide": _wide,
    "chains": _chains,
    "steep": _steep,
}


def rate_in(world: str, draft: Draft) -> float:
    """tok/s of one user, without noise."""
    accepts, cycle_ms = WORLDS[world](draft)
    return 1000 * accepts / cycle_ms


def rate(draft: Draft) -> float:
    """The same on the simulated host."""
    return rate_in("demo", draft)


def starts(world: str, fraction: float, draft: Draft) -> bool:
    """Whether there is memory for a draft; in the other worlds always."""
    return world != "demo" or cause(config(Step(Phase.SPECULATION, "", fraction, draft))) is None


def best_rate(world: str) -> float:
    """Of all drafts that start."""
    fields = decide.drafts(begin(0)).values()
    return max(rate_in(world, draft) for some in fields for draft in some if starts(world, 0.87, draft))


def truth(fraction: float) -> tuple[int, int]:
    """The best field of steps by top-k on the simulated host, of all drafts that start at a fraction."""
    fields = decide.drafts(begin(0))
    found = {
        place: max((rate(draft) for draft in some if starts("demo", fraction, draft)), default=0.0)
        for place, some in fields.items()
    }
    return max(found, key=lambda place: found[place])


def begin(seed: int) -> TuneRecord:
    """The tune of kimi-k2.5-eagle3-mem076, where nothing was launched before."""
    name = "kimi-k2.5-eagle3-mem076"
    return TuneRecord(f"tune-{seed}", name, "demo", "tok_s", BENCH, Draft(3, 1, 4), 0.76, 128, "EAGLE3", 300, seed)


def carried_out(record: TuneRecord, step: Step, world: str) -> TuneRecord:
    """The record after a step, as the simulated host would answer."""
    number = len(record.steps) + 1
    if step.phase is Phase.CONFIRM:
        taken = Taken(number, step, Status.DONE, decide.CONFIRM_LAUNCHES, verdict="confirmed")
        return record.with_step(taken)
    made = config(step)
    failed = cause(made) if world == "demo" or step.phase is Phase.RANGE else None
    taken = Taken(number, step, Status.FAILED if failed else Status.DONE, cause=failed)
    if failed is None and step.phase is Phase.SPECULATION:
        launch = sum(step.draft == other.step.draft for other in record.of(Phase.SPECULATION)) + 1
        taken = measured(taken, made, record.seed, launch, world)
    return replace(record, bounds=forecast(record, made, failed)).with_step(taken)


def measured(taken: Taken, made: model.Config, seed: int, launch: int, world: str) -> Taken:
    """With figures of three runs of 60 s, as a bench takes them."""
    draft, name = taken.step.draft, str(taken.step.draft)
    rng = random.Random(f"{seed}/{name}/{launch}")
    rates, lengths, cycles = [], [], []
    for run in range(1, BENCH.runs + 1):
        factor = model.launch_factor(seed, name, launch) * model.run_factor(seed, name, launch, run)
        cycle_ms = made.decode_step_s(1) * 1000 if draft is None else WORLDS[world](draft)[1]
        cycles.append(cycle_ms * factor)
        count = int(BENCH.duration_s * 1000 / cycles[-1] / REPLY_STEPS) * REPLY_STEPS
        if draft is None or world == "demo":
            accepted = 0
            for _ in range(count // REPLY_STEPS):
                scale = 1.0 + model.PROMPT_ACCEPT_SPREAD * rng.gauss(0.0, 1.0) / 3
                accepted += sum(made.draw_accepted(rng, scale) for _ in range(REPLY_STEPS))
            lengths.append(1 + accepted / count)
        else:
            lengths.append(WORLDS[world](draft)[0] * (1 + 0.012 * rng.gauss(0.0, 1.0)))
        rates.append(1000 * lengths[-1] / cycles[-1])
    value = statistics.median(rates)
    if draft is None:
        return replace(taken, value=value, rate=value, runs=BENCH.runs)
    accepts, cycle_ms = statistics.median(lengths), statistics.median(cycles)
    return replace(taken, value=value, rate=value, runs=BENCH.runs, accept_length=accepts, cycle_ms=cycle_ms)


def forecast(record: TuneRecord, made: model.Config, failed: str | None) -> Bounds:
    """What the ledger says after a start, by the core's own arithmetic."""
    if not made.speculative:
        return record.bounds
    ready = failed is None
    pool = made.pool_used_gib if failed != "oom_kv_pool" else None
    graphs = made.graph_gib + model.DRAFT_DECODE_GRAPH_GIB + model.DRAFT_EXTEND_GRAPH_GIB if ready else None
    free = made.outside_gib - graphs if graphs is not None else None
    row = LedgerRow("TP0", made.free_gib, made.weights_gib, made.draft_gib, pool, graphs, free)
    found = workable([row], made.fraction, BATCH, True, ready=ready)
    most = found.fraction_most if ready else record.bounds.most
    return Bounds(found.fraction_least, most, found.batch_most)


def simulate(seed: int, world: str = "demo") -> Said:
    """One tune from its first decision to its end."""
    record = begin(seed)
    while not isinstance(step := decide.next_step(record), decide.End):
        record = carried_out(record, step, world)
    return Said(record, step, len(record.of(Phase.RANGE)), world)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10, help="how many")
    parser.add_argument("--first", type=int, default=1, help="of them")
    parser.add_argument("--world", choices=WORLDS, default="demo")
    parser.add_argument("--steps", action="store_true", help="every step of every seed")
    parser.add_argument("--smoke", action="store_true", help="two seeds")
    options = parser.parse_args()
    began, right, launches = time.monotonic(), 0, []
    count = 2 if options.smoke else options.seeds
    for seed in range(options.first, options.first + count):
        said = simulate(seed, options.world)
        right += said.right
        launches.append(said.record.launches)
        known, best = ranges.found(said.record), said.best
        for taken in said.record.steps if options.steps else ():
            print(f"  {taken.number:2} {taken.step.title}: {taken.words} [{taken.step.why}]")
        rated = (
            f"{rate_in(options.world, best):.1f} of {best_rate(options.world):.1f} tok/s in truth"
            if best is not None
            else "nothing"
        )
        print(
            f"seed {seed:3}  {'right' if said.right else 'WRONG'}  {known.low} to {known.high} in {said.range_launches}; "
            f"{best} ({rated}); {said.record.launches} launches"
        )
    print(f"{right} of {count} right; launches {min(launches)} to {max(launches)}; {time.monotonic() - began:.1f} s")
    return 0 if right >= 0.9 * count else 1


if __name__ == "__main__":
    sys.exit(main())
