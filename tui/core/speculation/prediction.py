"""What speculation would do at a load where it was not measured: an estimate from the baseline's sweep, with a range.

    t_cycle = T(b) + V x (T(b x N) - T(b)) + (D x steps + F) x T_1

T(b) is the baseline's decode step for b users, T_1 the shortest of its sweep, N the draft tokens. What a cycle costs beyond
T(b) is estimated with the constants below; at most it is twice that, at least half of it without the fixed cost. Such were
all of six setups in public tables and on the motivating host (docs/measuring.md, "Prediction";
tests/measure/published_speedups.py has every row).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tui.core.verdicts.sentences import count, two

DRAFT_TOKENS = 4  # of SGLang's usual chain: three steps
TAUS = (2.0, 3.0, 4.0)

# Share of the way from the step of b users to that of b x N: N tokens of one request read its KV cache once and touch
# related experts. Least squares over the log of t_cycle, sgl-project/SpecForge#339 and Tencent/AngelSlim#163 (Qwen3-30B-A3B).
V = 0.12
# One step of the draft, in T_1: 2.05 decode steps a cycle with five steps, 2.25 with eight (sgl-project/sglang#4247).
D = 0.07
# What a cycle costs whatever is drafted (launches, scheduling, sampling, small all-reduces), in T_1. Mean of a setup: 0.1 in
# AngelSlim's table of vLLM on one H20, 0.3 in vllm-project/vllm#16035, 0.7 in sglang#4247, 1.1 and 1.4 in the two tables above,
# 1.6 and more on the motivating host. The middle of them.
F = 1.0
SETUPS = 6
# That the next of exchangeable draws lies between the least and the greatest of n is (n - 1) / (n + 1).
HOLDS = (SETUPS - 1) / (SETUPS + 1)
# The break-even measured with one text holds for another text of the same server within this factor: 72 of 72 ordered pairs
# of tasks in AngelSlim's table, of six models; the widest is 1.114.
OTHER_TEXT = 1.12


@dataclass(frozen=True)
class Prediction:
    """An estimate of what a draft of so many tokens does at a load, with a range; times in ms."""

    concurrency: int
    draft_tokens: int
    t_base_ms: float
    t_cycle_ms: float
    cycle_range_ms: tuple[float, float]
    t_verify_ms: float | None = None  # parts of the cycle; None where the cycle was measured
    t_draft_ms: float | None = None
    t_fixed_ms: float | None = None
    t_batch_ms: float | None = None  # the baseline's step for b x N users; None where the sweep ends before
    reasons: tuple[str, ...] = ()

    @property
    def calibrated(self) -> bool:
        """Whether the cycle was measured, with forced acceptance."""
        return self.t_verify_ms is None

    @property
    def breakeven_tau(self) -> float:
        return self.t_cycle_ms / self.t_base_ms

    @property
    def breakeven_range(self) -> tuple[float, float]:
        low, high = self.cycle_range_ms
        return low / self.t_base_ms, high / self.t_base_ms

    def speedup_range(self, tau: float) -> tuple[float, float]:
        """The least and the greatest speedup at an accept length."""
        low, high = self.breakeven_range
        return tau / high, tau / low

    @property
    def speedups(self) -> tuple[tuple[float, float], ...]:
        """(tau, S) for accept lengths that the draft can reach."""
        return tuple((tau, tau / self.breakeven_tau) for tau in TAUS if tau <= self.draft_tokens)

    @property
    def probability(self) -> float | None:
        """That another setup lies in the range; None where nothing tells."""
        return None if self.calibrated else HOLDS

    @property
    def basis(self) -> str:
        """What the range is, in one sentence."""
        if self.calibrated:
            return f"the cycle was measured with forced acceptance; other text moves it by up to {round(100 * (OTHER_TEXT - 1))} %"
        return (
            f"the range holds {SETUPS} measured setups; another one lies in it in about "
            f"{SETUPS - 1} of {SETUPS + 1} cases"
        )

    @property
    def text(self) -> str:
        low, high = self.breakeven_range
        at = f"{count(self.concurrency, 'user')}, {self.draft_tokens} draft tokens"
        return (
            f"Estimate for {at}: pays from accept length {self.breakeven_tau:.1f}, the range is {low:.1f} … {high:.1f}"
        )

    @property
    def speedups_text(self) -> str:
        parts = []
        for tau, speedup in self.speedups:
            low, high = self.speedup_range(tau)
            parts.append(f"{two(speedup)}× at {tau:g} ({two(low)} … {two(high)})")
        return ", ".join(parts)


def predict(
    steps_ms: Mapping[int, float],
    concurrency: int,
    draft_tokens: int = DRAFT_TOKENS,
    steps: int | None = None,
    draft_ms: float | None = None,
) -> Prediction | None:
    """An estimate from the baseline's sweep alone.

    Args:
        steps_ms: the baseline's decode step (1000 / per-user tok/s) by concurrency.
        steps: of the draft; those of a chain where it is not said.
        draft_ms: of one cycle's drafts, where it is known.

    Returns:
        None where the baseline was not measured at this load, or at no other one.
    """
    base = steps_ms.get(concurrency)
    if base is None or len(steps_ms) < 2:
        return None
    shortest, end, batch = min(steps_ms.values()), max(steps_ms), concurrency * draft_tokens
    reached = batch <= end
    t_batch = _step(steps_ms, batch)
    growth = V * max(0.0, t_batch - base)
    drafts = D * (draft_tokens - 1 if steps is None else steps) * shortest
    least = base + growth / 2 + (drafts / 2 if draft_ms is None else draft_ms)
    most = base + 2 * growth + 2 * F * shortest + (2 * drafts if draft_ms is None else draft_ms)
    drafts = drafts if draft_ms is None else draft_ms
    return Prediction(
        concurrency,
        draft_tokens,
        base,
        base + growth + drafts + F * shortest,
        (least, most),
        t_verify_ms=base + growth,
        t_draft_ms=drafts,
        t_fixed_ms=F * shortest,
        t_batch_ms=t_batch if reached else None,
        reasons=() if reached else (f"the sweep ends at {end} users: the step of {batch} is extrapolated",),
    )


def calibrated(concurrency: int, draft_tokens: int, t_base_ms: float, cycles_ms: Sequence[float]) -> Prediction:
    """With the cycle measured at this load under forced acceptance, over one launch or several: only tau is open."""
    cycle = sum(cycles_ms) / len(cycles_ms)
    around = (min(cycles_ms) / OTHER_TEXT, max(cycles_ms) * OTHER_TEXT)
    return Prediction(concurrency, draft_tokens, t_base_ms, cycle, around)


def _step(steps_ms: Mapping[int, float], at: int) -> float:
    """Between two loads on the line through them; beyond the last one on that of the last two, if it rises."""
    loads = sorted(steps_ms)
    below = max((load for load in loads[:-1] if load <= at), default=loads[0])
    above = min(load for load in loads if load > below)
    slope = (steps_ms[above] - steps_ms[below]) / (above - below)
    if at > loads[-1]:
        return steps_ms[above] + max(0.0, slope) * (at - above)
    return steps_ms[below] + slope * (at - below)
