"""The figures that two configurations can be compared by, under the names that `--metric` takes."""

import difflib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from types import MappingProxyType

from tui.core.errors import Slug, UsageError
from tui.core.model.profile import LoadPoint
from tui.core.model.result import Result
from tui.core.text import one_line

DEFAULT = "per_user_tok_s"
_POINTS = {"mean": "mean", "median": "p50", "p90": "p90", "p95": "p95", "p99": "p99"}
_NEEDS = {"p95": 100, "p99": 1000}  # requests, for a tail to mean anything
_NEEDS_REPLIES = 5  # for a figure of whole replies; rates and steps need tokens alone


@dataclass(frozen=True)
class Metric:
    """One figure of a result."""

    name: str
    title: str  # for a sentence
    unit: str
    higher_is_better: bool
    digits: int  # behind the decimal point, as shown
    read: Callable[[Result], float | None]
    needs: int = 0  # requests in a run, below which the figure is left out
    within: Callable[[Result], float] = lambda _: 0.0  # by how much the truth may be more, as a log

    def of(self, result: Result) -> float | None:
        """The figure of one run; None where it is missing, or cannot be compared as a ratio (zero or less)."""
        value = self.read(result)
        return value if value is not None and math.isfinite(value) and value > 0 else None

    @property
    def of_search(self) -> bool:
        """Whether it is what a search found: how much load something holds."""
        return self.name.startswith("max_")

    def show(self, value: float) -> str:
        """A value without its unit."""
        return f"{value:,.{self.digits}f}"


def _rate(attribute: str) -> Callable[[Result], float | None]:
    return attrgetter(f"throughput.{attribute}")


def _output(result: Result) -> float | None:
    # Tools that know no window give the whole run's rate this name.
    rates = result.throughput
    return rates.output_tok_s if rates.output_tok_s is not None else rates.output_tok_s_full


def _latency(attribute: str, point: str) -> Callable[[Result], float | None]:
    return lambda result: getattr(getattr(result.latencies, attribute), point, None)


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
        Metric(DEFAULT, "per-user tok/s", "tok/s", True, 1, _rate("per_user_tok_s")),
        Metric("output_tok_s", "output tok/s", "tok/s", True, 1, _output),
        Metric("output_tok_s_per_gpu", "output tok/s per GPU", "tok/s", True, 1, _rate("output_tok_s_per_gpu")),
        Metric("input_tok_s", "input tok/s", "tok/s", True, 1, _rate("input_tok_s")),
        Metric("total_tok_s", "total tok/s", "tok/s", True, 1, _rate("total_tok_s")),
        Metric("req_per_s", "requests per second", "requests/s", True, 2, _rate("req_s")),
        Metric("goodput_req_s", "goodput", "requests/s", True, 2, _rate("goodput_req_s")),
        Metric("max_concurrency", "highest concurrency", "users", True, 0, _capacity("concurrency"), within=_bracket),
        Metric("max_rate", "highest rate", "requests/s", True, 2, _capacity("rate"), within=_bracket),
    ]
    latencies = (
        ("ttft", "ttft", "TTFT", 0),
        ("tpot", "tpot", "TPOT", 2),
        ("itl", "gap", "chunk gap", 2),
        ("e2e", "e2e", "end-to-end time", 0),
    )
    for name, attribute, title, digits in latencies:
        for point, of_distribution in _POINTS.items():
            needs = _NEEDS.get(point, _NEEDS_REPLIES if name in ("ttft", "e2e") else 0)
            read = _latency(attribute, of_distribution)
            long = f"{point}_{name}_ms"
            found.append(Metric(long, f"{point} {title}", "ms", False, digits, read, needs))
    by_name = {metric.name: metric for metric in found}
    for name, *_ in latencies:  # the short name is the median
        by_name[f"{name}_ms"] = replace(by_name[f"median_{name}_ms"], name=f"{name}_ms")
    return by_name


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
