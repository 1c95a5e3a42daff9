"""The figures that two configurations can be compared by, under the names that `--metric` takes."""

import difflib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from tui.core.errors import Slug, UsageError
from tui.core.model.profile import LoadPoint
from tui.core.model.result import Result
from tui.core.results.flat import READS
from tui.core.text import one_line

DEFAULT = "per_user_tok_s"
_NEEDS = {"p95": 100, "p99": 1000}  # requests, for a tail to mean anything
_NEEDS_REPLIES = 5  # for a figure of whole replies; rates and steps need tokens alone


@dataclass(frozen=True)
class Metric:
    """One figure of a result."""

    name: str
    title: str  # for a sentence
    unit: str = "tok/s"
    higher_is_better: bool = True
    digits: int = 1  # behind the decimal point, as shown
    read: Callable[[Result], float | None] | None = None  # None: the flat record's column of this name
    needs: int = 0  # requests in a run, below which the figure is left out
    within: Callable[[Result], float] = lambda _: 0.0  # by how much the truth may be more, as a log

    def of(self, result: Result) -> float | None:
        """The figure of one run; None where it is missing, or cannot be compared as a ratio (zero or less)."""
        value = (self.read or READS[self.name])(result)
        return value if value is not None and math.isfinite(value) and value > 0 else None

    @property
    def of_search(self) -> bool:
        """Whether it is what a search found: how much load something holds."""
        return self.name.startswith("max_")

    def show(self, value: float) -> str:
        """A value without its unit."""
        return f"{value:,.{self.digits}f}"


def _capacity(kind: str) -> Callable[[Result], float | None]:
    """What a search found; where the highest load that was asked about holds, the figure is not known."""

    def read(result: Result) -> float | None:
        found = result.capacity
        return found.found if found and found.search.kind == kind and not found.at_least else None

    return read


def _bracket(result: Result) -> float:
    """A search leaves the load open between the highest that holds and the lowest that fails."""
    found = result.capacity
    return math.log(found.fails_from / found.found) if found and found.found and found.fails_from else 0.0


def _all() -> dict[str, Metric]:
    found = [
        Metric(DEFAULT, "per-user tok/s"),
        Metric("output_tok_s", "output tok/s"),
        Metric("output_tok_s_per_gpu", "output tok/s per GPU"),
        Metric("input_tok_s", "input tok/s"),
        Metric("total_tok_s", "total tok/s"),
        Metric("req_per_s", "requests per second", "requests/s", digits=2),
        Metric("goodput_req_s", "goodput", "requests/s", digits=2),
        Metric(
            "max_concurrency", "highest concurrency", "users", digits=0, read=_capacity("concurrency"), within=_bracket
        ),
        Metric("max_rate", "highest rate", "requests/s", digits=2, read=_capacity("rate"), within=_bracket),
    ]
    latencies = (("ttft", "TTFT", 0), ("tpot", "TPOT", 2), ("itl", "chunk gap", 2), ("e2e", "end-to-end time", 0))
    for name, title, digits in latencies:
        for point in ("mean", "median", "p90", "p95", "p99"):
            needs = _NEEDS.get(point, _NEEDS_REPLIES if name in ("ttft", "e2e") else 0)
            one = Metric(
                f"{point}_{name}_ms", f"{point} {title}", "ms", False, digits, READS[f"{point}_{name}_ms"], needs
            )
            found += [one, replace(one, name=f"{name}_ms")] if point == "median" else [one]
    return {metric.name: metric for metric in found}


METRICS: Mapping[str, Metric] = MappingProxyType(_all())


def default_for(point: LoadPoint | None) -> str:
    """The name of the metric that a load is compared by where nobody names another."""
    return f"max_{point.search}" if point is not None and point.search is not None else DEFAULT


def metric(name: str) -> Metric:
    """The metric of this name. Raises UsageError where there is none, naming the nearest."""
    found = METRICS.get(name)
    if found is None:
        near = difflib.get_close_matches(name, METRICS, n=1, cutoff=0.6)
        hint = f"did you mean {near[0]}?" if near else "try " + ", ".join([*METRICS][:6]) + ", ttft_ms, tpot_ms"
        raise UsageError(f"there is no metric {one_line(name, 40)!r}", hint, slug=Slug.BAD_VALUE)
    return found
