"""The launches that an experiment sets out to make, in their order, before any of them is made.

Of a halving the first rung is known by name; who is on the later ones, and who is confirmed, the figures decide.
"""

from dataclasses import dataclass

from tui.core.experiment import halving
from tui.core.experiment.record import schedule
from tui.core.model.profile import REFERENCE, ExperimentProfile


@dataclass(frozen=True)
class PlannedLaunch:
    """A launch that is to come."""

    number: int  # place in the order, from 1
    pair: int  # round, from 1; a rung of a screening is one
    rung: int | None  # of a screening, from 1; None: it counts for a verdict
    arm: str | None  # letter; None: one of those that are left, or the best of them


def planned_launches(profile: ExperimentProfile, seed: int) -> tuple[PlannedLaunch, ...]:
    """All launches in their order, where nothing fails and noise keeps nobody on a rung."""
    letters = [arm.letter for arm in profile.arms]
    if profile.method == "whole":
        rounds: list[tuple[int | None, list[str | None]]] = [
            (None, list(schedule(pair, letters, seed)[-len(letters) :])) for pair in range(1, profile.pairs + 1)
        ]
    else:
        later = halving.rungs(len(letters) - 1)[1:]
        rounds = [(1, list(schedule(1, letters, seed)))]
        rounds += [(rung, [REFERENCE, *[None] * size]) for rung, size in enumerate(later, 2)]
        rounds += [(None, [REFERENCE, None]), (None, [None, REFERENCE])] * profile.pairs
        del rounds[1 + len(later) + profile.pairs :]
    launches = [(pair, rung, arm) for pair, (rung, arms) in enumerate(rounds, 1) for arm in arms]
    return tuple(PlannedLaunch(number, *one) for number, one in enumerate(launches, 1))
