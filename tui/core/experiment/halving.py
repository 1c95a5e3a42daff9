"""Successive halving with the launch as its unit: who goes on after a rung, and how many rungs there are.

On each rung everyone who is left gets one more launch, then the worse half is dropped: sequential halving (Karnin et al.,
ICML 2013; Jamieson and Talwalkar, AISTATS 2016, arXiv 1502.07943), with one exception. Nobody is dropped whose
distance to the cut is no larger than what so many launches can see. So a rung may drop nobody; the number of rungs is
fixed beforehand all the same, and the best after the last one is chosen.

Knows figures and noise; must not know what was measured, or where.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from tui.core.model.verdict import Noise
from tui.core.verdicts.comparison import SCREEN, screening_bound

ASSUMED_CV = 0.02  # of launches, where a host's own is not known: twice what docs/measuring.md assumes
_KNOWN_FROM = 3  # degrees of freedom: below, a t distribution says little more than that nothing is known


@dataclass(frozen=True)
class Entrant:
    """Somebody who is left, with what was measured so far."""

    name: str
    datum: float  # mean of the logs of its launches; higher is better
    launches: int


@dataclass(frozen=True)
class Choice:
    """What a rung decides; both best first."""

    kept: tuple[Entrant, ...]
    dropped: tuple[Entrant, ...]


def rungs(entrants: int) -> tuple[int, ...]:
    """How many are on each rung where noise keeps nobody: 8 is (8, 4, 2), then one is left."""
    sizes = [max(1, entrants)]
    while sizes[-1] > 2:
        sizes.append(math.ceil(sizes[-1] / 2))
    return tuple(sizes)


def is_known(noise: Noise | None) -> bool:
    """Whether the noise of a host rests on enough launches to go by."""
    return noise is not None and noise.df >= _KNOWN_FROM


def visible(noise: Noise | None, runs: int) -> float:
    """The log ratio that two single launches of the same rarely exceed, by the noise of the host or an assumed one."""
    if noise is not None and is_known(noise):
        return screening_bound(noise, runs)
    return SCREEN * max(ASSUMED_CV, noise.launch_cv if noise is not None else 0.0)


def choose(entrants: Iterable[Entrant], visible_by_one: float) -> Choice:
    """Who goes on: the better half, and whoever is not visibly worse than the worst of it.

    Args:
        visible_by_one: as `visible` has it; over n and m launches it is smaller by the root of (1/n + 1/m) / 2.
    """
    ordered = sorted(entrants, key=lambda one: (-one.datum, one.name))
    half = math.ceil(len(ordered) / 2)
    kept, dropped = ordered[:half], list[Entrant]()
    for one in ordered[half:]:
        cut = ordered[half - 1]
        seen = visible_by_one * math.sqrt((1 / one.launches + 1 / cut.launches) / 2)
        (kept if cut.datum - one.datum <= seen else dropped).append(one)
    return Choice(tuple(kept), tuple(dropped))
