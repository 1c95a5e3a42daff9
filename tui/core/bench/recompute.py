"""Stored results computed again: figures and guards from their raw rows, by the definitions of today."""

from collections.abc import Callable
from dataclasses import replace

from tui.core.bench.capacity import answer
from tui.core.bench.guards import Judgement, judge_again
from tui.core.bench.metrics import figures
from tui.core.errors import EagletuiError, Slug
from tui.core.model.result import Result
from tui.core.results import store
from tui.core.text import one_line

_FIGURES = ["window", "duration_s", "counts", "throughput", "latencies", "speculation", "gpu", "client", "slo"]


def recompute(result: Result) -> Result | None:
    """The result with figures and guards recomputed from its rows, by the definitions of today.

    None where it has no rows of ours. Raises EagletuiError where they are damaged, or not those of this version.
    """
    meta, found = store.raw(result.result_id)
    if meta is None or not found:
        return None
    rate, of_one = result.throughput.output_tok_s, result.throughput.output_tok_s_per_gpu
    try:
        gpus = round(rate / of_one) if rate and of_one else None
        limits = result.slo.limits if result.slo else None
        fresh = figures(found, meta, gpus=gpus, limits=limits)
        verdict = judge_again(found, meta, fresh, Judgement(result.guards, result.suspicious))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise EagletuiError(
            f"the rows of {result.result_id} are not those of this version: {one_line(repr(error), 80)}",
            "what is stored of it stands",
            slug=Slug.BROKEN_ROWS,
        ) from None
    kept = {name: getattr(fresh, name) for name in _FIGURES}
    return replace(result, **kept, guards=verdict.guards, valid=verdict.valid, suspicious=verdict.suspicious)


def recompute_answer(found: Result, of_id: Callable[[str], Result | None]) -> Result | None:
    """The answer of a search, recomputed from the results of its loads as they are now; None where one of them is gone.

    Args:
        of_id: the result with an id.
    """
    assert found.capacity is not None
    loads = [of_id(point.result_id) for point in found.capacity.points]
    there = [load for load in loads if load is not None]
    if len(there) < len(loads):
        return None
    try:
        return answer(there, found.capacity.search, found.result_id)
    except ValueError:
        return None
