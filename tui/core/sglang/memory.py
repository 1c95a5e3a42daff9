"""Arithmetic of GPU memory: which mem-fraction-static can work, from what a log says.

SGLang takes as budget `fraction x memory free before the load`. What is loaded before the pools are sized comes out of it first
(weights; from 0.5.14 on the draft model, too), the rest is for state caches and KV pools. CUDA graphs and activations live
outside, and so do a draft model and its cache up to 0.5.13. From `_profile_available_bytes` and `_handle_max_mamba_cache` of
0.5.23 (mem_cache/kv_cache_configurator.py; model_runner.py and model_runner_kv_cache_mixin.py before):

    rest = available - before x (1 - fraction) - reserved for multimodal models; the least fraction that leaves any = 1 - available / before
    state caches = rest x ratio / (1 + ratio), ratio being --mamba-full-memory-ratio, or what --max-mamba-cache-size takes
"""

import math
import re
from collections.abc import Iterable, Mapping
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
    loaded_gib: float  # what the tightest rank has loaded before its pools: weights, and the draft where it counts


def loaded_gib(row: LedgerRow) -> float | None:
    """What a rank takes of its budget before any pool: weights, the draft model where it is loaded by then, what is reserved, and
    what was gone without a line in a start that came to no pool."""
    if row.weights_gib is None:
        return None
    draft = 0.0 if row.draft_after_pools else row.draft_peak_gib or row.draft_gib or 0.0
    unexplained = 0.0 if row.kv_pool_gib is not None else row.other_gib or 0.0
    return row.weights_gib + draft + (row.reserved_gib or 0.0) + unexplained


def pools_gib(row: LedgerRow) -> float | None:
    """The KV pools within the budget."""
    if row.kv_pool_gib is None:
        return None
    draft = 0.0 if row.draft_after_pools else row.draft_cache_gib or 0.0
    return row.kv_pool_gib + (row.swa_pool_gib or 0.0) + (row.indexer_cache_gib or 0.0) + draft


def beside_gib(row: LedgerRow) -> float | None:
    """What a start took outside the budget (graphs, workspaces, up to 0.5.13 the draft), of a rank that went all the way."""
    loaded, pools = loaded_gib(row), pools_gib(row)
    if row.before_gib is None or loaded is None or pools is None or row.free_gib is None:
        return None
    taken = loaded - (row.reserved_gib or 0.0) + pools + (row.state_cache_gib or 0.0)
    return max(0.0, row.before_gib - taken - row.free_gib)


def fixed_states(args: Mapping[str, object]) -> bool:
    """Whether state caches take what these flags (newest names) say, and no share of what the budget leaves."""
    if args.get("max-mamba-cache-size") is not None:
        return True
    return bool(args.get("disable-radix-cache")) and args.get("max-running-requests") is not None


def pool_left_gib(row: LedgerRow, fraction: float, fixed: bool) -> float | None:
    """What a fraction leaves for the KV pools of a rank beside its state caches; negative: by how much it misses.

    Args:
        fixed: see `fixed_states`.
    """
    loaded = _needed(row, fixed)
    if loaded is None or not row.before_gib:
        return None
    rest = fraction * row.before_gib - loaded
    return rest if rest < 0 or fixed else rest / _per_pool(row)


def _needed(row: LedgerRow, fixed: bool) -> float | None:
    loaded = loaded_gib(row)
    return None if loaded is None else loaded + (row.state_cache_gib or 0.0 if fixed else 0.0)


def _per_pool(row: LedgerRow) -> float:
    """GiB of the budget that each GiB of KV pool takes: state caches grow with it."""
    pools = pools_gib(row)
    return 1 + (row.state_cache_gib or 0.0) / pools if pools else 1.0


def _rounded_up(value: float) -> float:
    return math.ceil(round(value * 100, 6)) / 100


def fraction_window(
    ledger: Iterable[LedgerRow], above: float | None = None, *, fixed: bool = False
) -> FractionWindow | None:
    """What can work for a pool that found no room; None where the log does not give the figures.

    Args:
        ledger: rows of all ranks.
        above: the value that failed; the suggestion is higher than it.
        fixed: see `fixed_states`.
    """
    rows = [
        (row.before_gib, needed, 1.0 if fixed else _per_pool(row))
        for row in ledger
        if row.before_gib and (needed := _needed(row, fixed)) is not None
    ]
    if not rows:
        return None
    before, loaded, per_pool = max(rows, key=lambda row: row[1] / row[0])
    least = _rounded_up(loaded / before)
    most = math.floor(100 * (1 - max(OUTSIDE_GIB / before, OUTSIDE_SHARE)) + 1e-9) / 100
    wanted = _rounded_up(loaded / before + POOL_SHARE * per_pool)
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


_UNIT = r"([\d.]{1,12}) ([KMGT])iB"
_CAPACITY = re.compile(rf"total capacity of {_UNIT}")
_HELD = re.compile(rf"[Pp]rocess (?P<pid>\d{{1,10}}) has {_UNIT} memory in use")
_OWN = re.compile(rf"this process has {_UNIT} memory in use")
_TORCH = re.compile(rf"{_UNIT} (?:is )?(?:allocated by PyTorch|(?:is )?reserved by PyTorch)")
_OTHERS_GIB = 2.0  # less than that may be the server's own: its tokenizer's or detokenizer's context


@dataclass(frozen=True)
class HeldByOthers:
    """Memory of a GPU that processes held which are not the one that ran out of it."""

    pids: tuple[int, ...]  # as the driver reports them; the one that holds most first
    gib: float
    capacity_gib: float | None


def _gib(amount: str, unit: str) -> float:
    return float(amount.rstrip(".") or 0) * {"K": 1 / 1048576, "M": 1 / 1024, "G": 1.0, "T": 1024.0}[unit]


def held_by_others(message: str) -> HeldByOthers | None:
    """Who else holds memory, as torch's out-of-memory error lists them; None where nobody does, or not enough to matter.

    In a container torch takes its own process for another one: then the one is its own that holds what torch says to have
    allocated and reserved, and little more.
    """
    try:
        by_pid = {int(pid): _gib(amount, unit) for pid, amount, unit in _HELD.findall(message)}
        capacity = [_gib(*match.groups()) for match in _CAPACITY.finditer(message)]
        own = sum(_gib(*found) for found in _TORCH.findall(message))
    except ValueError:  # "1.2.3"
        return None
    held = sorted(((amount, pid) for pid, amount in by_pid.items()), reverse=True)
    if not _OWN.search(message) and held and own:
        held.remove(min(held, key=lambda one: (one[0] < own, abs(one[0] - own))))
    elif not _OWN.search(message):
        return None
    total = sum(amount for amount, _ in held)
    if total < _OTHERS_GIB:
        return None
    return HeldByOthers(tuple(pid for _, pid in held), total, capacity[0] if capacity else None)
