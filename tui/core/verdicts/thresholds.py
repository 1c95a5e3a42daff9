"""Conditions on what was measured, for scripts: `per_user_tok_s < 85` fails a bench that is slower."""

import operator
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tui.core.errors import Slug, UsageError
from tui.core.model.result import Result
from tui.core.results.flat import READS
from tui.core.text import one_line
from tui.core.verdicts.metric import METRICS, metric

_COMPARES: Mapping[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
_CONDITION = re.compile(r"\s*(\w+)\s*(<=|>=|<|>)\s*(-?\d+(?:\.\d+)?)\s*")


@dataclass(frozen=True)
class Threshold:
    """One condition under which a measurement fails. `name` is a metric's, or a column of the flat record."""

    name: str
    compare: str
    value: float

    def __str__(self) -> str:
        return f"{self.name} {self.compare} {self.value:g}"

    def figure(self, results: Iterable[Result]) -> float | None:
        """The median over runs at one load; None where no run has the figure."""
        read = METRICS[self.name].of if self.name in METRICS else READS[self.name]
        values = [v for result in results if isinstance(v := read(result), int | float) and not isinstance(v, bool)]
        return statistics.median(values) if values else None


@dataclass(frozen=True)
class Breach:
    """A condition that holds at a load; at none (`load` and `figure` are None) where nothing measured it."""

    threshold: Threshold
    load: str | None = None
    figure: float | None = None

    def __str__(self) -> str:
        if self.figure is None:
            return f"{self.threshold}: no run that counts has {self.threshold.name}"
        return f"{self.threshold}: it is {self.figure:g} at {self.load}"


def threshold(text: str) -> Threshold:
    """Reads `METRIC < VALUE` with one of < <= > >=. Raises UsageError."""
    found = _CONDITION.fullmatch(text)
    if found is None:
        raise UsageError(
            f"{one_line(text, 60)!r} is not a condition", 'write it like "per_user_tok_s < 85"', slug=Slug.BAD_VALUE
        )
    name, compare, value = found.groups()
    if name not in READS:
        metric(name)
    return Threshold(name, compare, float(value))


def breaches(thresholds: Iterable[Threshold], loads: Sequence[Sequence[Result]]) -> tuple[Breach, ...]:
    """The conditions that hold at some load, and those whose figure no load has: a check must not pass for want of one.

    Args:
        loads: the runs that count, by load.
    """
    found = []
    for one in thresholds:
        figures = {runs[0].point.label: figure for runs in loads if runs and (figure := one.figure(runs)) is not None}
        found += [Breach(one, at, x) for at, x in figures.items() if _COMPARES[one.compare](x, one.value)]
        found += [] if figures else [Breach(one)]
    return tuple(found)
