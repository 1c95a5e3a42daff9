"""The statistics behind a verdict: intervals, power, spread, several questions at once, looks on the way.

Everything works on natural logarithms of a metric, so that a difference is a ratio. A datum is the mean of one launch:
runs on one launch share what that launch drew, and repeating them does not average it out.
"""

import math
import random
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

ALPHA = 0.05  # of a question asked once
POWER = 0.9  # of "to see so much you need so many pairs"
LOOKS = {3: 0.01, 5: 0.02, 8: 0.02}  # error spent at each look: 5 % in all
_NODES = 400  # of the integration over the spread: good to 1e-6 of the power from 2 degrees of freedom on
_MOST = 1e6  # a t quantile beyond that is not asked for


@dataclass(frozen=True)
class Interval:
    """A mean of logs with its confidence interval."""

    mean: float
    low: float
    high: float
    df: float
    error: float  # standard error of the mean

    @property
    def p(self) -> float:
        """Two-sided p of "there is no difference"."""
        if self.error == 0:
            return 0.0 if self.mean else 1.0
        return 2 * t_tail(abs(self.mean) / self.error, self.df)


def t_tail(t: float, df: float) -> float:
    """P(T > t) of Student's t, through the regularised incomplete beta function."""
    from mpmath import mp

    if t < 0:
        return 1.0 - t_tail(-t, df)
    return float(mp.betainc(df / 2, 0.5, 0, df / (df + t * t), regularized=True)) / 2


@lru_cache(maxsize=4096)
def t_quantile(p: float, df: float) -> float:
    """The t with P(T <= t) = p, for 0 < p < 1."""
    if p < 0.5:
        return -t_quantile(1.0 - p, df)
    return root(lambda t: 1.0 - p - t_tail(t, df), 2.0, 1e-11)


def root(rising: Callable[[float], float], high: float, tolerance: float) -> float:
    """Where a function that rises from below zero at 0 passes zero; `high` grows until it is beyond."""
    low = 0.0
    while rising(high) < 0 and high < _MOST:
        low, high = high, 2 * high
    while high - low > tolerance * high:
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < 0 else (low, middle)
    return high


def paired(differences: Sequence[float], alpha: float = ALPHA) -> Interval:
    """The mean of at least two differences, one a launch pair, with its 1 - alpha interval (n - 1 df)."""
    n = len(differences)
    return _interval(statistics.fmean(differences), statistics.stdev(differences) / math.sqrt(n), n - 1, alpha)


def welch(a: Sequence[float], b: Sequence[float], alpha: float = ALPHA) -> Interval:
    """mean(b) - mean(a) of at least two launches each that are not paired, spreads not assumed equal (Welch 1947)."""
    shares = [statistics.variance(side) / len(side) for side in (a, b)]
    error = math.sqrt(sum(shares))
    spent = sum(share**2 / (len(side) - 1) for share, side in zip(shares, (a, b), strict=True))
    df = error**4 / spent if spent else float(len(a) + len(b) - 2)
    return _interval(statistics.fmean(b) - statistics.fmean(a), error, df, alpha)


def _interval(mean: float, error: float, df: float, alpha: float) -> Interval:
    half = t_quantile(1.0 - alpha / 2, df) * error
    return Interval(mean, mean - half, mean + half, df, error)


@lru_cache(maxsize=4096)
def t_power(shift: float, df: int, alpha: float) -> float:
    """P(|T| > its critical value) where T is noncentral: shift = effect x root of n / spread of the differences.

    The integral over the estimated spread s: of f(s) [Phi(shift - t s) + Phi(-shift - t s)], where df s^2 has a
    chi-square distribution; Simpson's rule.
    """
    critical, phi = t_quantile(1.0 - alpha / 2, df), statistics.NormalDist().cdf
    reach = 9 / math.sqrt(df)
    low, high = max(0.0, 1 - reach), 1 + reach
    step = (high - low) / _NODES
    log_scale = math.log(2) + df / 2 * math.log(df / 2) - math.lgamma(df / 2)
    total = 0.0
    for node in range(_NODES + 1):
        s = low + node * step
        if s <= 0:
            density = math.exp(log_scale) if df == 1 else 0.0
        else:
            density = math.exp(log_scale + (df - 1) * math.log(s) - df * s * s / 2)
        weight = 1 if node in (0, _NODES) else 4 if node % 2 else 2
        total += weight * density * (phi(shift - critical * s) + phi(-shift - critical * s))
    return total * step / 3


@lru_cache(maxsize=256)
def _shift_needed(df: int, alpha: float) -> float:
    return root(lambda shift: t_power(shift, df, alpha) - POWER, 8.0, 1e-6)


def minimum_detectable(sd: float, pairs: int, alpha: float = ALPHA) -> float:
    """The smallest effect (a difference of logs) that `pairs` pairs find with a power of 90 %."""
    return _shift_needed(pairs - 1, alpha) * sd / math.sqrt(pairs)


def pairs_needed(effect: float, sd: float, alpha: float = ALPHA) -> int | None:
    """How many pairs find an effect (a difference of logs) with a power of 90 %, at least 3; None above 20."""
    return next((pairs for pairs in range(3, 21) if minimum_detectable(sd, pairs, alpha) <= abs(effect)), None)


@dataclass(frozen=True)
class Components:
    """Standard deviations of logs (a CV, for small ones) between launches and between runs on one launch."""

    launch: float
    run: float | None  # None: no launch has two runs
    launches: int
    df: int  # launches less groups


def components(groups: Iterable[Sequence[Sequence[float]]]) -> Components | None:
    """Variance components of a nested layout: configurations of launches of runs (analysis of variance, unbalanced).

    Within a configuration launches should differ by chance alone. None where no configuration has two launches.
    """
    between = within = weight = 0.0
    launches = df = df_within = 0
    for group in groups:
        filled = [runs for runs in group if runs]
        if not filled:
            continue
        means = [statistics.fmean(runs) for runs in filled]
        counts = [len(runs) for runs in filled]
        total = sum(counts)
        middle = sum(n * mean for n, mean in zip(counts, means, strict=True)) / total
        between += sum(n * (mean - middle) ** 2 for n, mean in zip(counts, means, strict=True))
        within += sum((value - mean) ** 2 for runs, mean in zip(filled, means, strict=True) for value in runs)
        weight += total - sum(n * n for n in counts) / total
        launches += len(filled)
        df += len(filled) - 1
        df_within += total - len(filled)
    if df == 0:
        return None
    run = within / df_within if df_within else 0.0
    launch = max(0.0, (between / df - run) * df / weight)
    return Components(math.sqrt(launch), math.sqrt(run) if df_within else None, launches, df)


def holm(p_values: Sequence[float], alpha: float = ALPHA) -> list[float]:
    """The level at which each of several questions stands under Holm's step-down rule (1979).

    The smallest p is held against alpha / m, the next against alpha / (m - 1), and so on to the first that is not
    below; that level goes for it and for all after it. p below its level means: there is a difference.
    """
    levels = [alpha] * len(p_values)
    failed: float | None = None
    for rank, at in enumerate(sorted(range(len(p_values)), key=lambda index: p_values[index])):
        level = alpha / (len(p_values) - rank)
        levels[at] = failed or level
        if failed is None and p_values[at] >= level:
            failed = level
    return levels


def look_alphas(looks: Sequence[int]) -> dict[int, float]:
    """The error spent at each look (a number of pairs): 5 % in all, the first look getting a fifth of it."""
    if tuple(looks) == tuple(LOOKS):
        return dict(LOOKS)
    if len(looks) == 1:
        return {looks[0]: ALPHA}
    later = 0.8 * ALPHA / (len(looks) - 1)
    return {look: later if number else 0.2 * ALPHA for number, look in enumerate(looks)}


@lru_cache(maxsize=64)
def looks_power(effect: float, sd: float, looks: tuple[int, ...], draws: int = 4000) -> float:
    """The chance that one of the looks finds an effect: simulated with a fixed seed, good to a percent."""
    bounds = {n: t_quantile(1.0 - alpha / 2, n - 1) / math.sqrt(n) for n, alpha in look_alphas(looks).items()}
    draw = random.Random(1)
    found = 0
    for _ in range(draws):
        sum_, squares = 0.0, 0.0
        for n in range(1, looks[-1] + 1):
            value = draw.gauss(effect, sd)
            sum_ += value
            squares += value * value
            if n in bounds:
                variance = max(0.0, (squares - sum_ * sum_ / n) / (n - 1))
                if abs(sum_ / n) > bounds[n] * math.sqrt(variance):
                    found += 1
                    break
    return found / draws
