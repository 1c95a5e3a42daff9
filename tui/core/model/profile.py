"""What is to be measured: bench and experiment profiles, the loads and limits that they name.

Missing is None, never 0. Times are seconds, latencies milliseconds, rates tokens a second unless a name says otherwise.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

WARMUP_S = 30.0  # at most, until the rate is steady; never longer than the window
GROWTH = 5  # times its duration that a window may take
DRIVERS = ("eagletui", "sglang", "command")  # who measures: `core.bench.drivers`, by these names
ARM_LETTERS = "ABCD"  # as many arms as the panel shows side by side


@dataclass(frozen=True)
class LoadPoint:
    """One load: so many users at once (closed loop), or so many requests a second (open loop).

    Or the highest of either that a search finds, whatever it is: the "load" of a search's answer.
    """

    concurrency: int | None = None
    rate: float | None = None  # requests a second
    search: str | None = None  # concurrency, rate

    @property
    def label(self) -> str:
        """ "c4", "r2.5" or "max": part of a result id."""
        if self.search is not None:
            return "max"
        return f"c{self.concurrency}" if self.concurrency is not None else f"r{self.rate:g}"


@dataclass(frozen=True)
class Limits:
    """What a load must hold: this share of its replies within each of the limits that are given."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2e_ms: float | None = None
    share: float = 0.95

    @property
    def tail(self) -> str:
        """The percentile of a latency that says most of the share: p95, or p90."""
        return "p95" if self.share >= 0.95 else "p90"

    @property
    def replies(self) -> int:
        """How many a load needs for its share to be judged: some five of them may miss."""
        return math.ceil(round(5 / (1 - self.share), 6))


@dataclass(frozen=True)
class Search:
    """The question for the highest load of a kind that holds limits, between two bounds."""

    limits: Limits
    kind: str  # concurrency, rate
    low: float
    high: float

    @property
    def most_points(self) -> int:
        """Loads it measures at most: doubling from `low` to `high`, then five halvings, fewer where neighbours come first."""
        halvings = 5 if self.kind == "rate" else min(5, math.ceil(math.log2(max(1.0, self.high / 2))))
        return 1 + math.ceil(math.log2(self.high / self.low)) + halvings


@dataclass(frozen=True)
class BenchProfile:
    """A `kind = "bench"` profile."""

    name: str
    points: tuple[LoadPoint, ...]
    driver: str = DRIVERS[0]
    dataset: str = "prompts"  # prompts, random-ids, or a path ending in .jsonl
    input_len: int | None = None  # tokens, of random-ids
    output_len: int = 512  # tokens at most
    duration_s: float = 60.0  # of the measured window, at least; at most `duration_max_s`
    runs: int = 3  # on each launch, at each point
    search: Search | None = None  # `points` then is its answer alone
    command: tuple[str, ...] = ()
    description: str | None = None
    hypothesis: str | None = None
    known: str | None = None
    path: Path | None = None

    @property
    def duration_max_s(self) -> float:
        """The longest that a window grows to until it holds the tokens and replies that its figures need."""
        return GROWTH * self.duration_s

    @property
    def warmup_s(self) -> float:
        """The longest that a warm-up takes."""
        return min(WARMUP_S, self.duration_s)


@dataclass(frozen=True)
class ExperimentArm:
    """One configuration of an experiment: a launch profile with overrides."""

    letter: str  # A is the reference
    profile: str
    sets: Mapping[str, object] = field(default_factory=dict)
    against: str | None = None  # letter of the arm it is compared with, None for the reference


@dataclass(frozen=True)
class ExperimentProfile:
    """A `kind = "experiment"` profile."""

    name: str
    bench: str  # name of the bench profile
    arms: tuple[ExperimentArm, ...]
    pairs: int = 3  # launches of each arm, interleaved
    looks: tuple[int, ...] = ()  # numbers of pairs after which it may stop early; the last one is `pairs`
    margin: float = 0.02  # "equivalent" means within this share
    budget_h: float | None = None  # hours of launches and measuring
    hypothesis: str | None = None
    description: str | None = None
    known: str | None = None
    path: Path | None = None


@dataclass(frozen=True)
class DiffLine:
    """One line of the difference between two profiles; values as TOML, secrets masked."""

    sign: str  # + only in the second, - only in the first, ~ in both with another value
    key: str  # a flag, env.NAME, requires.NAME, or gpus, cwd, host, wrapper, command
    old: str | None
    new: str | None
