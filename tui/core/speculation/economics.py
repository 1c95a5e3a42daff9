"""Whether speculation pays: tau, the cycle, the break-even (docs/measuring.md, "Economics of speculation").

    TPOT with speculation = t_cycle / tau        speedup S = tau x t_base / t_cycle        break-even tau* = t_cycle / t_base

tau is tokens a verify step, the bonus token counted (plain decoding is 1.00); t_cycle is draft, verify and what lies
between; t_base is a decode step without speculation, per user, in the same bench at the same load.
"""

import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tui.core.errors import Slug, UsageError
from tui.core.verdicts.sentences import two
from tui.core.verdicts.stats import paired, root

_RESAMPLES = 1000
_BLOCKS = 400  # more requests than that are resampled in blocks
_CLOSE = 1e-9
_CURVE_STEPS = 40
_LONGEST_CHAIN = 1000  # drafts; a record that says more is wrong


@dataclass(frozen=True)
class Economics:
    """One baseline and one speculative configuration; times in ms, per user."""

    base_tok_s: float  # per user
    t_cycle_ms: float
    tau: float | None = None
    t_verify_ms: float | None = None
    t_draft_ms: float | None = None
    steps: int | None = None  # of the draft
    ceiling: int | None = None  # the longest accept length the draft allows
    chain: bool = False  # one draft token a step: alpha has a meaning
    interval: tuple[float, float] | None = None  # 95 %, of the break-even
    basis: str | None = None  # what the interval is over
    measured_speedup: float | None = None  # ratio of the two rates
    reasons: tuple[str, ...] = ()

    @property
    def t_base_ms(self) -> float:
        return 1000 / self.base_tok_s

    @property
    def breakeven_tau(self) -> float:
        """The accept length from which speculation pays: t_cycle / t_base, also called rho."""
        return self.t_cycle_ms * self.base_tok_s / 1000

    def speedup_at(self, tau: float) -> float:
        """The speedup at an accept length; a line through the origin that is 1 at the break-even."""
        return tau / self.breakeven_tau

    @property
    def speedup(self) -> float | None:
        """At the accept length it has."""
        return self.speedup_at(self.tau) if self.tau is not None else None

    @property
    def margin(self) -> float | None:
        """How far the accept length is above the break-even."""
        return self.tau - self.breakeven_tau if self.tau is not None else None

    @property
    def best_speedup(self) -> float | None:
        """With every draft token accepted."""
        return self.speedup_at(self.ceiling) if self.ceiling is not None else None

    @property
    def alpha(self) -> float | None:
        """Acceptance per draft token that its accept length amounts to; of chains alone."""
        return self._alpha(self.tau)

    @property
    def alpha_needed(self) -> float | None:
        """Acceptance per draft token from which it pays; None where none is enough."""
        return self._alpha(self.breakeven_tau)

    def _alpha(self, tau: float | None) -> float | None:
        if tau is None or self.ceiling is None or not self.chain:
            return None
        return alpha_of(tau, self.ceiling - 1)

    @property
    def text(self) -> str:
        """One sentence: from where it pays, and where it is."""
        said = f"Speculation pays from accept length {two(self.breakeven_tau)}"
        if self.ceiling is not None and self.ceiling < self.breakeven_tau:
            said = (
                f"Speculation cannot pay: it needs an accept length of {two(self.breakeven_tau)}, "
                f"its draft reaches {self.ceiling} at best"
            )
        if self.tau is None or self.speedup is None or self.margin is None:
            return said
        outcome = (
            f"a gain, {two(self.margin)} to spare" if self.margin >= 0 else f"a loss, short by {two(-self.margin)}"
        )
        return f"{said}; you have {two(self.tau)}: {two(self.speedup)}×, {outcome}"

    @property
    def alpha_text(self) -> str | None:
        """The same in acceptance per draft token; of chains alone."""
        if self.alpha is None:
            return None
        has = f"has {self.alpha * 100:.0f} %"
        if self.alpha_needed is None:
            return f"No acceptance per draft token is enough; it {has}"
        return f"It pays from {self.alpha_needed * 100:.0f} % acceptance per draft token; it {has}"


def of_figures(
    base_tok_s: float, verify_ms: float, draft_ms: float | None = None, accept_len: float | None = None
) -> Economics:
    """From figures that somebody has: the baseline's rate per user, the times of one verify step and of its drafts.

    Drafts that nobody timed cost nothing. Raises UsageError for an accept length below 1.
    """
    if accept_len is not None and accept_len < 1:
        raise UsageError(
            f"an accept length of {accept_len:g} does not exist",
            "it counts the bonus token: plain decoding is 1",
            slug=Slug.BAD_VALUE,
        )
    cycle_ms = verify_ms + (draft_ms or 0.0)
    return Economics(base_tok_s, cycle_ms, accept_len, t_verify_ms=verify_ms, t_draft_ms=draft_ms)


def curve(economics: Economics, upto: float) -> tuple[tuple[float, float], ...]:
    """Speedup against accept length from 1 to `upto`: (tau, S) for a plot or a table.

    In steps of a half; in forty wider ones where that is not enough.
    """
    steps = min(_CURVE_STEPS, max(1, math.ceil((upto - 1) * 2)))
    width = max(0.5, (upto - 1) / _CURVE_STEPS)
    taus = [min(upto, 1 + step * width) for step in range(steps + 1)]
    return tuple((tau, economics.speedup_at(tau)) for tau in taus)


def tau_of(alpha: float, drafts: int) -> float:
    """Accept length of a chain of drafts that are each accepted with probability alpha if those before them were:
    (1 - alpha^(drafts + 1)) / (1 - alpha), Leviathan et al. 2023."""
    return math.fsum(alpha**length for length in range(drafts + 1))


def alpha_of(tau: float, drafts: int) -> float | None:
    """The inverse of `tau_of`; None where no acceptance gives that accept length, or no draft is so long."""
    if drafts > _LONGEST_CHAIN or not 1 - _CLOSE <= tau <= drafts + 1 + _CLOSE:
        return None
    return min(1.0, root(lambda alpha: tau_of(alpha, drafts) - tau, 1.0, 1e-15))


@dataclass(frozen=True)
class SimulatedCurve:
    """S against a forced tau (SGLANG_SIMULATE_ACC_LEN): the break-even without a draft model's quality in it."""

    points: tuple[tuple[float, float], ...]  # (tau, S), by tau
    slope: float
    intercept: float  # 0 where a cycle costs the same whatever is accepted
    breakeven_tau: float

    @property
    def rho(self) -> float:
        """t_cycle / t_base over the points: the geometric mean of tau / S."""
        return statistics.geometric_mean(tau / speedup for tau, speedup in self.points)

    @property
    def text(self) -> str:
        return (
            f"With forced acceptance at {len(self.points)} lengths: break-even at {two(self.breakeven_tau)}, "
            f"a cycle costs {two(self.rho)} decode steps, whatever the draft model is worth"
        )


def fit_simulated(points: Sequence[tuple[float, float]]) -> SimulatedCurve | None:
    """The least-squares line through measured (tau forced, S); None with fewer than two lengths, or a line that falls."""
    if len({tau for tau, _ in points}) < 2 or any(tau <= 0 or speedup <= 0 for tau, speedup in points):
        return None
    taus, speedups = zip(*points, strict=True)
    slope, intercept = statistics.linear_regression(taus, speedups)
    if slope <= 0:
        return None
    return SimulatedCurve(tuple(sorted(points)), slope, intercept, (1 - intercept) / slope)


def over_launches(pairs: Sequence[tuple[float, float]]) -> tuple[float, float] | None:
    """95 % interval of t_cycle / t_base over launch pairs of (t_base, t_cycle); None with fewer than three."""
    if len(pairs) < 3:
        return None
    found = paired([math.log(cycle / base) for base, cycle in pairs])
    return math.exp(found.low), math.exp(found.high)


Rows = Sequence[Mapping[str, Any]]


def over_requests(base: Rows, spec: Rows, point: float) -> tuple[float, float] | None:
    """95 % interval of t_cycle / t_base by a bootstrap over requests: percentiles of ratios of sums, from raw rows.

    It is laid around `point`, the ratio of the windows: whole requests reach over their ends, and differ by a trifle.
    It holds for the launches that were measured, and says nothing about the next one. None where either side has fewer
    than ten requests.
    """
    steps = _totals(base, lambda row: (row.get("out") or 0) - (row.get("k1") or 1))
    cycles = _totals(spec, lambda row: row.get("verify_ct") or 0)
    if len(steps) < 10 or len(cycles) < 10:
        return None
    draw = random.Random(1)
    steps, cycles = _blocks(steps, draw), _blocks(cycles, draw)
    ratios = sorted(
        _ratio(draw.choices(cycles, k=len(cycles))) / _ratio(draw.choices(steps, k=len(steps)))
        for _ in range(_RESAMPLES)
    )
    cut = round(0.025 * _RESAMPLES)
    around = point / (_ratio(cycles) / _ratio(steps))
    return ratios[cut] * around, ratios[-cut - 1] * around


def _totals(rows: Rows, steps: Any) -> list[tuple[float, float]]:
    """(seconds after the first chunk, steps in them) of each request that ended well."""
    found = []
    for row in rows:
        first, last, count = row.get("t_first"), row.get("t_last"), steps(row)
        if not row.get("err") and first is not None and last is not None and last > first and count > 0:
            found.append((float(last) - float(first), float(count)))
    return found


def _blocks(totals: list[tuple[float, float]], draw: random.Random) -> list[tuple[float, float]]:
    if len(totals) <= _BLOCKS:
        return totals
    draw.shuffle(totals)
    parts = [totals[at::_BLOCKS] for at in range(_BLOCKS)]
    return [(sum(s for s, _ in part), sum(n for _, n in part)) for part in parts]


def _ratio(totals: list[tuple[float, float]]) -> float:
    return sum(seconds for seconds, _ in totals) / sum(count for _, count in totals)
