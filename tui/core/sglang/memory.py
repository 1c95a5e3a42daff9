"""Arithmetic of GPU memory: which mem-fraction-static can work, from what a log says.

SGLang takes as budget `fraction x memory free before the load`; weights, draft model and KV pool must fit into it, CUDA
graphs and activations live outside (model_runner.py; stated so by 0.5.23's own error: minimum viable = 1 - available/pre).
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from tui.core.sglang.state import LedgerRow

POOL_SHARE = 0.06  # of the memory before the load: a KV pool below this starts but serves next to nothing
OUTSIDE_SHARE = 0.05  # and at least OUTSIDE_GIB must stay outside the budget for graphs and activations
OUTSIDE_GIB = 4.0


@dataclass(frozen=True)
class FractionWindow:
    """Bounds of mem-fraction-static for one configuration; all are fractions."""

    least: float  # leaves any pool at all, on the tightest rank
    suggested: float | None  # leaves a useful pool and room for graphs; None where no value does
    most: float  # leaves room for graphs and activations
    before_gib: float  # of the tightest rank
    loaded_gib: float  # weights and draft of the tightest rank


def _rounded_up(value: float) -> float:
    return math.ceil(round(value * 100, 6)) / 100


def fraction_window(ledger: Iterable[LedgerRow], above: float | None = None) -> FractionWindow | None:
    """What can work for a pool that found no room; None where the log does not give the figures.

    Args:
        ledger: rows of all ranks.
        above: the value that failed; the suggestion is higher than it.
    """
    rows = [
        (row.before_gib, row.weights_gib + (row.draft_gib or 0.0))
        for row in ledger
        if row.before_gib and row.weights_gib is not None
    ]
    if not rows:
        return None
    before, loaded = max(rows, key=lambda row: row[1] / row[0])
    least = _rounded_up(loaded / before)
    most = math.floor(100 * (1 - max(OUTSIDE_GIB / before, OUTSIDE_SHARE)) + 1e-9) / 100
    wanted = _rounded_up(loaded / before + POOL_SHARE)
    if above is not None:
        wanted = max(wanted, round(above + 0.02, 2))
        least = max(least, round(above + 0.01, 2))
    suggested = min(wanted, most) if least < most else None
    return FractionWindow(least, suggested, most, before, loaded)


def lowered_fraction(ledger: Iterable[LedgerRow], current: float, missing_gib: float | None) -> float | None:
    """A lower mem-fraction-static that frees `missing_gib` and a little more; None where the pool would be left without room."""
    window = fraction_window(ledger)
    before = window.before_gib if window is not None else None
    step = 0.02 if before is None or missing_gib is None else max(0.02, (missing_gib + 1.0) / before)
    lower = math.floor(round((current - step) * 100, 6)) / 100
    if lower <= 0 or (window is not None and lower < window.least + POOL_SHARE / 2):
        return None
    return lower
