"""The answer of a search for the highest load that holds limits: from the results of its loads to one more result. Pure."""

from collections.abc import Sequence
from dataclasses import replace

from tui.core.model.profile import Search
from tui.core.model.result import Capacity, Counts, Guard, GuardStatus, Latencies, Result, SearchPoint, Throughput
from tui.core.verdicts.sentences import amount_words

# What fails because the load is too much says where the end is: no search is the worse for it.
_EVIDENCE = frozenset(["errors", "overload"])
# Beyond the end there may be too few replies as well, and a growing queue is not a steady state.
_BEYOND = _EVIDENCE | {"window", "steady"}


def answer(results: Sequence[Result], search: Search, result_id: str) -> Result:
    """What a search found, as a result: window, counts and figures are those of the highest load that holds.

    It counts where the two loads do that decide: the highest that holds, and the lowest that fails.

    Args:
        results: of its loads, in the order in which they were measured; at least one.

    Raises ValueError where a result is not one of a search.
    """
    points = tuple(_search_point(result) for result in results)
    capacity = Capacity(search, points)
    by_load = {point.load: result for point, result in zip(points, results, strict=True)}
    best, beyond = (by_load.get(load or 0.0) for load in (capacity.found, capacity.fails_from))
    deciding = [result for result in (best, beyond) if result is not None]
    guards = _guards(best, beyond)
    found = replace(
        deciding[0],
        result_id=result_id,
        started_at=results[0].started_at,
        load=replace(deciding[0].load, kind="search", concurrency=None, rate=None),
        duration_s=sum(result.duration_s or 0.0 for result in results),
        guards=guards,
        valid=not any(guard.status is GuardStatus.FAILED for guard in guards),
        suspicious=tuple(text for result in deciding for text in _doubts(result, holds=result is best)),
        capacity=capacity,
    )
    if best is not None:
        return found
    return replace(
        found,
        window=None,
        counts=Counts(),
        throughput=Throughput(),
        latencies=Latencies(),
        speculation=None,
        gpu=None,
        slo=None,
    )


def _search_point(result: Result) -> SearchPoint:
    load = result.load.rate if result.load.concurrency is None else result.load.concurrency
    if load is None or result.slo is None:
        raise ValueError(f"{result.result_id} is not a load of a search")
    return SearchPoint(float(load), result.slo, result.result_id)


def _guards(best: Result | None, beyond: Result | None) -> tuple[Guard, ...]:
    """The conditions of the load that holds, and of the one beyond it what failed for a cause that is not the load."""
    found: dict[str, Guard] = {}
    for result, evidence in ((best, _EVIDENCE), (beyond, _BEYOND)):
        if result is not None and result.load.requests == 0:
            evidence = frozenset()  # nothing was asked: that says nothing about the load
        for guard in result.guards if result is not None else ():
            if guard.status is not GuardStatus.FAILED:
                found.setdefault(guard.id, guard)
            elif result is not None and guard.id not in evidence:
                found[guard.id] = replace(guard, text=f"{_at_load(result)}: {guard.text}")
    return tuple(found.values())


def _doubts(result: Result, *, holds: bool) -> list[str]:
    """What a reader should know of a load that decides: its own, and where its share is too close to the limit."""
    failed = [guard for guard in result.guards if guard.status is GuardStatus.FAILED]
    strained = [guard.text for guard in failed if guard.id == "errors" or (holds and guard.id in _EVIDENCE)]
    said = [f"{_at_load(result)}: {text}" for text in (*strained, *result.suspicious)]
    held = result.slo
    if held is not None and not held.sure:
        low, high = (100 * end for end in held.interval)
        said.append(
            f"{_at_load(result)}: {held.met} of {held.replies} replies are within the limits, too few to be sure that it is "
            f"{'above' if holds else 'below'} {100 * held.limits.share:g} % (95 % interval {low:.0f} to {high:.0f} %)"
        )
    return said


def _at_load(result: Result) -> str:
    return f"at {amount_words(result.load.concurrency, result.load.rate)}"
