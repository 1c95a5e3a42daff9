"""What an export is about: the runs of one configuration in one setting, and what their figure rests on."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from tui.core.model.result import Result
from tui.core.verdicts import stats
from tui.core.verdicts.metric import DEFAULT, metric
from tui.core.verdicts.pairing import L2_LAUNCHES, Launch, Setting, configuration, launches, level_of, mean_of, setting


@dataclass(frozen=True)
class Group:
    """Runs of one configuration in one setting."""

    name: str  # A, B, … in the order in which they were given
    results: tuple[Result, ...]
    launches: tuple[Launch, ...]  # of the runs that count

    @property
    def level(self) -> str:
        return level_of(self.launches)

    @property
    def rate(self) -> float | None:
        """Tokens a second of one user: geometric mean over launches."""
        return mean_of(self.launches) if self.launches else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % of `rate`, from at least three launches."""
        if len(self.launches) < L2_LAUNCHES:
            return None
        found = stats.paired([launch.datum for launch in self.launches])
        return math.exp(found.low), math.exp(found.high)


def groups(results: Sequence[Result]) -> list[Group]:
    """The configurations among results, by setting, in their order."""
    found: dict[tuple[Setting, object], list[Result]] = {}
    for result in results:
        found.setdefault((setting(result), configuration(result)), []).append(result)
    names = ("".join(letters) for size in itertools.count(1) for letters in itertools.product("ABCDEFGHIJKLMNOPQRSTUVWXYZ", repeat=size))  # fmt: skip
    yardstick = metric(DEFAULT)
    return [
        Group(name, tuple(group), launches([result for result in group if result.valid], yardstick))
        for name, group in zip(names, found.values(), strict=False)
    ]
