"""`[grid]` of an experiment: lists of values by flag become arms, one a combination.

docs/experiments.md, "Grid", describes the table.
"""

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

from tui.core.model.profile import MOST_ARMS
from tui.core.profiles.checks import Problem, tables

_MOST = 10_000  # combinations that are looked at before some are excluded


def arms_of(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The arms of an experiment as `[[arms]]` writes them: those given, then the grid's.

    Without given ones the grid's own profile, as it is, is the first. Of a grid that `problems` refuses, as many as are
    few enough to look at.
    """
    arms, grid = tables(table.get("arms")), table.get("grid")
    if not isinstance(grid, dict):
        return arms
    arms = arms or [{"profile": grid.get("profile")}]
    return [*arms, *({"profile": grid.get("profile"), "set": sets} for sets in _combinations(grid))][: MOST_ARMS + 1]


def problems(table: Mapping[str, Any]) -> Iterator[Problem]:
    """What is wrong with the grid, and with how many arms there are in all."""
    grid = table.get("grid")
    if isinstance(grid, dict):
        yield from _of_lists(grid)
        if (size := _size(grid)) > _MOST:
            yield "grid", f"has {size:,} combinations; at most {_MOST:,} are looked at", "shorten a list"
            return
        combinations = list(_combinations(grid))
        for number, excluded in enumerate(tables(grid.get("exclude"))):
            if excluded and not any(excluded.items() <= sets.items() for sets in _all(grid)):
                yield f"grid.exclude.{number}", "fits no combination", "give values that the lists have"
        count = len(combinations) + max(1, len(tables(table.get("arms"))))
        if count > MOST_ARMS:
            advice = "shorten a list, or exclude combinations"
            yield "grid", f"gives {count:,} arms; an experiment has at most {MOST_ARMS}", advice
        elif count < 2:
            yield "grid", "gives no arm", "add a list of values"
    elif "arms" not in table:
        yield "arms", "is missing", "write [[arms]], or a [grid]"
    elif isinstance(table["arms"], list) and len(table["arms"]) < 2:
        yield "arms", "needs at least 2 entries", None


def _of_lists(grid: Mapping[str, Any]) -> Iterator[Problem]:
    linked = tables(grid.get("linked"))
    seen: set[str] = set()
    for place, lists in [("vary", grid.get("vary")), *((f"linked.{at}", one) for at, one in enumerate(linked))]:
        if not isinstance(lists, dict):
            continue
        for key in lists:
            if key in seen:
                yield f"grid.{place}.{key}", "has a list already", "remove one of them"
            seen.add(key)
        lengths = {key: len(values) for key, values in lists.items() if isinstance(values, list)}
        if place != "vary" and len(set(lengths.values())) > 1:
            found = ", ".join(f"{key} has {length}" for key, length in lengths.items())
            yield f"grid.{place}", f"lists that go together are of one length; {found}", None


def _axes(grid: Mapping[str, Any]) -> list[list[dict[str, Any]]]:
    """What is chosen from: for each, the sets it offers."""
    vary = grid.get("vary")
    axes = [
        [{key: value} for value in values]
        for key, values in (vary.items() if isinstance(vary, dict) else ())
        if isinstance(values, list)
    ]
    for lists in tables(grid.get("linked")):
        columns = {key: values for key, values in lists.items() if isinstance(values, list)}
        if columns:
            axes.append([dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=False)])
    return axes


def _size(grid: Mapping[str, Any]) -> int:
    return math.prod(len(axis) for axis in _axes(grid))


def _all(grid: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    axes = _axes(grid)
    if axes:
        for chosen in itertools.islice(itertools.product(*axes), _MOST):
            yield {key: value for sets in chosen for key, value in sets.items()}


def _combinations(grid: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The sets of each combination that is not excluded, the last list changing fastest."""
    excluded = [one for one in tables(grid.get("exclude")) if one]
    return (sets for sets in _all(grid) if not any(one.items() <= sets.items() for one in excluded))
