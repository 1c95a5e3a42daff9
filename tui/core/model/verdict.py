"""What results say of one another: a verdict of B against A, its figures, and how noisy a host is."""

from dataclasses import dataclass
from enum import StrEnum

from tui.core.model.profile import LoadPoint


@dataclass(frozen=True)
class Noise:
    """How much launches of one configuration differ on a host, and runs on one launch: standard deviations of logs."""

    launch_cv: float  # between launches, the runs' own spread taken out
    run_cv: float | None  # between runs on one launch; None: no launch has two
    launches: int
    df: int  # launches less configurations: what the figure rests on
    measured_at: str | None = None  # ISO 8601 UTC, of the newest run


class VerdictKind(StrEnum):
    """What a comparison says. A screening (fewer than three launch pairs) `looks`; it is never a verdict."""

    FASTER = "faster"
    SLOWER = "slower"
    LOOKS_FASTER = "looks_faster"
    LOOKS_SLOWER = "looks_slower"
    EQUIVALENT = "equivalent"
    INDISTINCT = "indistinct"
    INVALID = "invalid"


@dataclass(frozen=True)
class ArmFigure:
    """One side of a comparison."""

    ref: str  # as the user named it
    tok_s: float | None  # geometric mean over launches of the metric
    launches: int
    runs: int = 0


@dataclass(frozen=True)
class Alike:
    """Replies to equal prompts, held against each other."""

    replies: int  # compared
    differ: int  # of them
    prompts: int
    prompts_differ: int  # whose first comparison differs
    first_token: int | None = None  # the earliest that differs, counted from 1
    median_token: float | None = None  # over the replies that differ


@dataclass(frozen=True)
class TextExample:
    """Where two replies part: what both say there, or their token ids."""

    item: int | None  # of the dataset
    token: int
    a: str
    b: str


@dataclass(frozen=True)
class SameText:
    """Whether B answers as A does at temperature 0, and A as A does."""

    between: Alike  # B against A
    own: Alike | None  # A against itself
    own_of: str | None  # launches, runs (of one launch): what `own` compares
    p: float | None  # that B differs so much by chance, as A differs from itself
    changes: bool | None  # more than A by itself; None: nothing says how much that is
    examples: tuple[TextExample, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """B against A: the level of replication is always stated."""

    metric: str
    a: ArmFigure
    b: ArmFigure
    ratio: float | None  # b / a
    ci: tuple[float, float] | None  # of the ratio, 95 % unless the profile asks for looks
    n_pairs: int
    level: str  # L0, L1, L2
    verdict: VerdictKind
    text: str  # worded by docs/measuring.md
    point: LoadPoint | None = None
    reasons: tuple[str, ...] = ()  # why invalid, or why the level is no higher
    mde: float | None = None  # smallest effect that so many pairs find, as a share
    noise_floor: float | None = None  # of the host: how far two launches of the same are apart, as a share
    confidence: float = 0.95  # of `ci`
    by_chance: float | None = None  # of a screening: how often two of the same would look different, at most
    facts: tuple[str, ...] = ()  # what was measured and how, one line each
    result_ids: tuple[str, ...] = ()
    same_text: SameText | None = None  # None: no replies that can be compared

    @property
    def conclusion(self) -> str:
        """What may be said: the verdict where one was reached, else `screening`, whatever it looks like."""
        reached = self.verdict is VerdictKind.INVALID or self.mde is not None
        return str(self.verdict) if reached else "screening"
