"""What decides a comparison: the launches that are left, their level of replication, and the one rule.

The datum is one launch: the mean log of its runs that count. Launches are paired, and the mean log ratio of the pairs
has a t interval with pairs - 1 degrees of freedom. With fewer than three pairs, or pairs that were not measured one
after the other, nothing is decided but what stands far out of the host's own noise.
"""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tui.core.errors import Slug, UsageError
from tui.core.model.result import Result
from tui.core.model.verdict import Noise, VerdictKind
from tui.core.server.earlier_starts import ledger_of
from tui.core.server.launch_records import LaunchRecord
from tui.core.sglang.memory import fraction_window
from tui.core.text import one_line
from tui.core.verdicts import pairing, stats
from tui.core.verdicts.metric import METRICS, Metric
from tui.core.verdicts.pairing import Launch, Pairs, Side
from tui.core.verdicts.sentences import answer_words, count, sets_words
from tui.core.verdicts.stats import Interval

MARGIN = 0.02  # within which two configurations are called equivalent
PAIRS = pairing.L2_LAUNCHES
SCREEN = 3.0  # times the host's launch CV: what a difference without pairs must exceed
CLOCKS = 0.03  # by which the SM clocks of two arms may differ before it is reported
# The guard that one arm may fail more often than the other, by what it does to the GPUs.
_OF_THE_ARM = "clocks"
_OUT_OF_MEMORY = {
    **dict.fromkeys(("oom_weights", "oom_kv_pool", "oom_cuda_graph", "oom_serving"), "out of memory"),
    "host_oom": "out of the host's memory",
}


@dataclass(frozen=True)
class Plan:
    """How many pairs an experiment set out to measure, and at which numbers it looks (none: at the end alone)."""

    pairs: int = PAIRS
    looks: tuple[int, ...] = ()


def launch_sd(noise: Noise, runs: int) -> float:
    """Spread of the mean log of a launch with so many runs."""
    return math.hypot(noise.launch_cv, (noise.run_cv or 0.0) / math.sqrt(max(1, runs)))


def noise_floor(noise: Noise, runs: int) -> float:
    """How far apart two launches of one configuration are (one standard deviation), as a share."""
    return math.expm1(math.sqrt(2) * launch_sd(noise, runs))


def screening_bound(noise: Noise, runs: int) -> float:
    """The log ratio that two single launches of one configuration rarely exceed: 3 x the launch CV.

    Where that CV rests on few launches, or runs spread more than launches do, the 95 % bound of a t distribution is
    larger, and holds.
    """
    bound = stats.t_quantile(1 - stats.ALPHA / 2, noise.df) * math.sqrt(2) * launch_sd(noise, runs)
    return max(SCREEN * noise.launch_cv, bound)


def judge(interval: Interval, margin: float, higher_is_better: bool = True) -> VerdictKind:
    """The one rule: inside the margin is equivalent; else clear of zero is faster or slower; else nothing is known."""
    if math.log1p(-margin) < interval.low and interval.high < math.log1p(margin):
        return VerdictKind.EQUIVALENT
    if interval.low > 0 or interval.high < 0:
        return VerdictKind.FASTER if (interval.mean > 0) == higher_is_better else VerdictKind.SLOWER
    return VerdictKind.INDISTINCT


@dataclass(frozen=True)
class Case:
    """One comparison with all that decides it."""

    a: Side
    b: Side
    metric: Metric
    noise: Noise | None = None  # of the host in this setting
    launch_s: float | None = None  # what one launch with its runs takes
    margin: float = MARGIN
    plan: Plan | None = None
    screening: bool = False  # its launches chose an arm: they are no verdict on it, however many there are
    pairs: Pairs = pairing.NO_PAIRS
    reasons: tuple[str, ...] = ()
    invalid: bool = False  # the first of `reasons` says why
    waiting: int | None = None  # the pairs that the plan wants before it says anything
    alpha: float = stats.ALPHA
    questions: int = 1  # that share the 5 %

    @property
    def n(self) -> int:
        return len(self.pairs.pairs)

    @property
    def level(self) -> str:
        """L0 a single run on a side, L1 no three launch pairs in interleaved order, each on the same nodes; L2 those."""
        if self.n >= PAIRS and self.pairs.interleaved and not self.screening and not self.pairs.apart:
            return "L2"
        single = any(sum(len(launch.values) for launch in side) < 2 for side in self.used)
        return "L0" if single else "L1"

    @property
    def decides(self) -> bool:
        """Whether the interval over pairs is the verdict."""
        return not self.invalid and self.waiting is None and self.level == "L2"

    @property
    def unpaired(self) -> bool:
        """Several launches a side that were not measured in pairs."""
        return self.n > 1 and not self.pairs.interleaved

    @property
    def used(self) -> tuple[tuple[Launch, ...], tuple[Launch, ...]]:
        """The launches of A and of B that the figures are from."""
        if self.unpaired:
            return self.pairs.a, self.pairs.b
        return tuple(a for a, _ in self.pairs.pairs), tuple(b for _, b in self.pairs.pairs)

    @property
    def results(self) -> list[Result]:
        return [result for side in self.used for launch in side for result in launch.results]

    @property
    def runs(self) -> int:
        """Runs on a launch: the usual number."""
        counts = Counter(len(launch.values) for side in self.used for launch in side)
        return counts.most_common(1)[0][0] if counts else 1

    @property
    def difference(self) -> float | None:
        """The mean log ratio b / a; None where there is no pair."""
        if not self.n:
            return None
        a, b = self.used
        return statistics.fmean(x.datum for x in b) - statistics.fmean(x.datum for x in a)

    @property
    def interval(self) -> Interval | None:
        """Of the mean log ratio, over pairs or over launches; None with fewer than two of them."""
        if self.n < 2:
            return None
        if self.unpaired:
            a, b = ([launch.datum for launch in side] for side in self.used)
            found = stats.welch(a, b, self.alpha)
        else:
            found = stats.paired(self.pairs.differences, self.alpha)
        more_a, more_b = self.within
        return replace(found, low=found.low - more_a, high=found.high + more_b)

    @property
    def within(self) -> tuple[float, float]:
        """By how much the truth of A and of B may be more than what was found, as a log; 0 but for a search."""
        a, b = (
            max((self.metric.within(result) for launch in side for result in launch.results), default=0.0)
            for side in self.used
        )
        return a, b

    @property
    def spread(self) -> float:
        """Of the differences between pairs: as seen, or by the host's noise where that is larger."""
        seen = statistics.stdev(self.pairs.differences)
        return max(seen, math.sqrt(2) * launch_sd(self.noise, self.runs)) if self.noise else seen

    @property
    def kind(self) -> VerdictKind:
        if self.invalid:
            return VerdictKind.INVALID
        interval, difference = self.interval, self.difference
        better = self.metric.higher_is_better
        if self.decides and interval is not None:
            return judge(interval, self.margin, better)
        if difference is None or not self.beyond_noise:
            return VerdictKind.INDISTINCT
        return VerdictKind.LOOKS_FASTER if (difference > 0) == better else VerdictKind.LOOKS_SLOWER

    @property
    def least(self) -> float | None:
        """The log ratio that a screening has to exceed to look like something; None where there is no screening."""
        screened = not self.invalid and self.waiting is None and self.level == "L1"
        if self.noise is None or self.difference is None or not screened:
            return None
        return max(screening_bound(self.noise, self.runs), math.log1p(self.margin))

    @property
    def beyond_noise(self) -> bool:
        """Whether a difference without three pairs stands out of what launches of this host differ by themselves."""
        if self.least is None or self.difference is None:
            return False
        interval = self.interval
        if self.unpaired and interval is not None and interval.low <= 0 <= interval.high:
            return False
        return abs(self.difference) > self.least + max(self.within)

    @property
    def by_chance(self) -> float | None:
        """How often single launches of the same would stand out so, by the noise as it was measured."""
        if self.least is None or self.noise is None:
            return None
        sd = math.sqrt(2) * launch_sd(self.noise, self.runs)
        return 2 * stats.t_tail(self.least / sd, self.noise.df) if sd else 0.0

    @property
    def biased(self) -> bool:
        """Whether runs were lost for a cause that one arm may meet more often."""
        return any(pairing.lost_launches(side, _OF_THE_ARM)[0] for side in (self.a, self.b))


def settle(case: Case) -> Case:
    """The case with its launches paired, held against its plan, and with all reasons that limit it.

    Raises UsageError where a launch is on both sides.
    """
    reasons = [*case.reasons]
    a, b = (one_configuration(side, reasons) for side in (case.a, case.b))
    found = [pairing.launches(side.results, case.metric) for side in (a, b)]
    both = {launch.key for launch in found[0]} & {launch.key for launch in found[1]} - {""}
    if both:
        raise UsageError(
            f"{a.name} and {b.name} share {count(len(both), 'launch', 'launches')}",
            "name two different runs, results or profiles",
            slug=Slug.SAME_LAUNCHES,
        )
    why_not = _incomparable(a, b)
    for side, have in zip((a, b), found, strict=True):
        out, why = pairing.not_counted(side)
        if out and have:
            reasons.append(f"{side.name}: {out} of {count(len(side.results), 'run')} left out: {'; '.join(why)}")
        if have and side.failures:
            reasons.append(f"{side.name}: {_failure_words(side.failures, len(side.failures) + len(have))}")
        lost, of = pairing.lost_launches(side, _OF_THE_ARM)
        if have and lost:
            reasons.append(
                f"{side.name}: clocks were slowed down in {lost} of {count(of, 'launch', 'launches')}; those runs are left "
                "out, so an arm that throttles more often looks better than in use"
            )
        if not have and not why_not and (side.results or side.failures or case.plan is None):
            why_not = f"{side.name}: no result — {_nothing(side, case.metric)}"
    case = replace(case, a=a, b=b, pairs=pairing.pair_up(*found), reasons=tuple(reasons))
    if why_not:
        return replace(case, reasons=(why_not, *reasons), invalid=True)
    case = _planned(case)
    return replace(case, reasons=(*case.reasons, *_limits(case)))


def one_configuration(side: Side, reasons: list[str]) -> Side:
    """The runs of one configuration: without overrides where a profile was measured with several, else the last one.

    What is left out is reported in `reasons`.
    """
    groups: dict[tuple[object, ...], list[Result]] = {}
    for result in side.results:
        if result.server.profile is not None:
            groups.setdefault(pairing.configuration(result), []).append(result)
    if len(groups) < 2:
        return side
    kept = max(
        groups.values(),
        key=lambda group: (not group[0].server.sets, max(pairing.when(result.started_at) for result in group)),
    )
    others = sorted({sets_words(group[0].server.sets) for group in groups.values() if group is not kept})
    left_out = count(len(side.results) - len(kept), "run")
    reasons.append(
        f"{side.name}: {left_out} of other configurations left out ({'; '.join(others[:3])}); name a run for them"
    )
    return replace(side, results=tuple(kept))


def _incomparable(a: Side, b: Side) -> str | None:
    """Why a plain comparison of two sides would say nothing, whatever the figures."""
    pair = f"{a.name} and {b.name}: no verdict — "
    for side in (a, b):
        forced = {length for result in side.results if (length := pairing.forced_accept_length(result))}
        if forced:
            lengths = ", ".join(f"{length:g}" for length in sorted(forced))
            return (
                f"{pair}{side.name} ran with SGLANG_SIMULATE_ACC_LEN={lengths}: its acceptance is made up and its "
                "output garbage; eagletui breakeven reads such runs"
            )
    for side in (a, b):
        if any(result.server.spec is not None and pairing.random_tokens(result) for result in side.results):
            return (
                f"{pair}{side.name} speculates, and random tokens make its acceptance meaningless: a draft model is "
                "made for text; measure with real prompts"
            )
    return None


def _nothing(side: Side, metric: Metric) -> str:
    """Why no run of a side can be used."""
    out, why = pairing.not_counted(side)
    if not side.results:
        failed = side.failures
        return _failure_words(failed, len(failed)) if failed else "nothing was measured"
    if out == len(side.results):
        return f"{out}/{out} runs do not count: {'; '.join(why)}"
    valid = [result for result in side.results if result.valid]
    if metric.needs and any(metric.of(result) is not None for result in valid):
        return f"n too small for {metric.title}: it needs {metric.needs:,} requests a run"
    if answers := [result.capacity for result in valid if result.capacity is not None]:
        return f"it {answer_words(answers[-1])}"
    others = [name for name in METRICS if all(METRICS[name].of(result) is not None for result in valid)]
    has = f"; there is {', '.join(others[:3])}" if others else ""
    return f"its runs have no {metric.name}{has}"


def _planned(case: Case) -> Case:
    """Held against its plan: waiting, or cut to the last look."""
    plan, n = case.plan, case.n
    if plan is None:
        return case
    if not plan.looks:
        if n < plan.pairs:
            return replace(case, waiting=plan.pairs)
        if n > plan.pairs:
            added = count(n - plan.pairs, "pair")
            reason = f"{added} more than planned: where the first verdict decided that, errors exceed 5 %"
            return replace(case, reasons=(*case.reasons, reason))
        return case
    reached = [look for look in plan.looks if look <= n]
    if not reached:
        return replace(case, waiting=plan.looks[0])
    reasons = case.reasons
    later = [look for look in plan.looks if look > n]
    if n > reached[-1] and later:
        reasons = (*reasons, f"as of {reached[-1]} pairs, {n} are measured: the next look is at {later[0]}")
    if n > reached[-1]:
        case = replace(case, pairs=case.pairs.first(reached[-1]))
    return replace(case, alpha=stats.look_alphas(plan.looks)[reached[-1]], reasons=reasons)


def _limits(case: Case) -> list[str]:
    """Why the level is no higher, and what else a reader should know."""
    found = []
    pairs, names = case.pairs, (case.a.name, case.b.name)
    if any(not launch.key for launch in (*pairs.a, *pairs.b)):
        found.append("runs on servers whose start is not known count as one launch")
    if 0 < case.n < PAIRS:
        found.append(f"L2 needs {PAIRS} launch pairs, there {'is' if case.n == 1 else 'are'} {case.n}")
    if case.screening and case.n:
        found.append("launches of a screening: they chose who is confirmed, and do not confirm it")
    if case.unpaired:
        began = [(launch.began, letter) for letter, side in (("A", pairs.a), ("B", pairs.b)) for launch in side]
        order = "".join(letter for _, letter in sorted(began))
        found.append(f"not interleaved ({order}): a drift of the host would look like an effect")
    elif case.n >= PAIRS and not pairs.balanced:
        first = names["AB".index(Counter(pairs.order[::2]).most_common(1)[0][0])]
        times = max(Counter(pairs.order[::2]).values())
        found.append(f"{first} went first in {times} of {case.n} pairs: a steady drift counts as an effect")
    if pairs.apart:
        a, b = ((", ".join(sorted(one_line(node, 40) for node in launch.nodes))) for launch in pairs.apart[0])
        found.append(
            f"the launches of {len(pairs.apart)} of {count(case.n, 'pair')} ran on different nodes ({names[0]} {a}, {names[1]} {b}): "
            "a difference between nodes would look like an effect; hold = true in [slurm] keeps an experiment on the same"
        )
    spare = len(pairs.a) - len(pairs.b)
    if spare and not pairs.experiment and not case.unpaired and case.waiting is None:
        longer = names[0] if spare > 0 else names[1]
        found.append(f"{count(abs(spare), 'launch', 'launches')} of {longer} without a partner")
    if case.least is not None and case.noise is not None:
        day = f" ({case.noise.measured_at[:10]})" if case.noise.measured_at else ""
        found.append(
            f"the noise is as of its last launch{day}: a host that drifts, or whose launches differ more by now, makes "
            "such a difference by itself"
        )
    clocks = [clock for side in case.used if (clock := _sm_mhz(side)) is not None]
    if len(clocks) == 2 and max(clocks) > (1 + CLOCKS) * min(clocks):
        found.append(f"SM clocks differ: {names[0]} {clocks[0]:.0f} MHz, {names[1]} {clocks[1]:.0f} MHz")
    versions = [
        sorted({one_line(str(result.server.version), 40) for x in side for result in x.results}) for side in case.used
    ]
    if versions[0] != versions[1] or len(versions[0]) > 1:
        found.append(
            "; ".join(f"{name} ran version {', '.join(has)}" for name, has in zip(names, versions, strict=True))
        )
    return found


def _sm_mhz(side: Iterable[Launch]) -> float | None:
    """SM clock of the runs that the figures are from, mean; None where none says."""
    gpus = [result.gpu for launch in side for result in launch.results if result.gpu is not None]
    known = [gpu.sm_mhz for gpu in gpus if gpu.sm_mhz is not None]
    return statistics.fmean(known) if known else None


def _failure_words(failures: Sequence[LaunchRecord], launches: int) -> str:
    """ "3/3 launches out of memory at mem-fraction-static 0.76 (need ≥ 0.84)": the most frequent cause first."""
    causes = Counter(record.cause for record in failures).most_common()
    return ", ".join(
        f"{times}/{launches} launches {_failed(cause, [record for record in failures if record.cause == cause])}"
        for cause, times in causes
    )


def _failed(cause: str | None, records: Sequence[LaunchRecord]) -> str:
    if cause not in _OUT_OF_MEMORY:
        return "failed" + (f" ({one_line(cause.replace('_', ' '), 40)})" if cause else "")
    words = _OUT_OF_MEMORY[cause]
    fractions = {record.mem_fraction for record in records if record.mem_fraction is not None}
    if len(fractions) != 1 or cause == "host_oom":
        return words
    [fraction] = fractions
    windows = [window for record in records if (window := fraction_window(ledger_of(record))) is not None]
    least = max((window.least for window in windows), default=0.0)
    need = f" (need ≥ {least:.2f})" if least > fraction else ""
    return f"{words} at mem-fraction-static {fraction:g}{need}"
