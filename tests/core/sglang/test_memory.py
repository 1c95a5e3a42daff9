"""Which mem-fraction-static can work, against SGLang's own formulas (their place is named in tui/core/sglang/memory.py)."""

from dataclasses import replace

import pytest

from tui.core.server.forecast import workable
from tui.core.sglang.memory import beside_gib, fixed_states, fraction_window, loaded_gib, pool_left_gib
from tui.core.sglang.state import LedgerRow

# Two posted starts. Qwen3.5-9B at 0.80: rest = 14.08 - 22.93 x 0.20 = 9.494, state caches = rest x 0.9 / 1.9 = 4.497 (4.48 as
# whole states), KV pool = 5.00. Ling 3 at 0.89: rest = 29.67 - 109.98 x 0.11 = 17.57, of which 8.32 (8.35) and 9.21.
HYBRID = LedgerRow("TP0", 22.93, 8.85, None, 5.0, 0.26, 3.79, 327310, state_cache_gib=4.48, other_gib=0.55)
LING = LedgerRow("", 109.98, 80.31, None, 9.21, 0.79, 10.39, 1226984, state_cache_gib=8.35, other_gib=0.93)
DENSE = LedgerRow("TP0", 94.0, 40.0, None, 40.0, 3.0, 10.0, other_gib=1.0)


@pytest.mark.parametrize(("row", "fraction"), [(HYBRID, 0.80), (LING, 0.89)])
def test_what_a_fraction_leaves_is_what_the_posted_starts_had(row: LedgerRow, fraction: float) -> None:
    assert pool_left_gib(row, fraction, fixed=False) == pytest.approx(row.kv_pool_gib, abs=0.05)


def test_state_caches_shrink_with_the_fraction_unless_their_size_is_given() -> None:
    """--mamba-full-memory-ratio shares the rest; --max-mamba-cache-size takes its part first."""
    # 0.60 x 22.93 - 8.85 = 4.908: shared 5.00 to 4.48 that is 2.59; beside 4.48 of states 0.43
    assert pool_left_gib(HYBRID, 0.60, fixed=False) == pytest.approx(2.59, abs=0.01)
    assert pool_left_gib(HYBRID, 0.60, fixed=True) == pytest.approx(0.43, abs=0.01)
    assert pool_left_gib(HYBRID, 0.30, fixed=False) == pytest.approx(-1.97, abs=0.01)  # misses the weights by as much
    shared, fixed = fraction_window([HYBRID]), fraction_window([HYBRID], fixed=True)
    assert shared is not None
    assert fixed is not None
    assert shared.least == 0.39  # 8.85 / 22.93 = 0.386: SGLang's 1 - available / before
    assert fixed.least == 0.59  # (8.85 + 4.48) / 22.93 = 0.581
    # A pool of 6 % of 22.93 is 1.376 and 1.233 of states with it: (8.85 + 2.609) / 22.93 = 0.4997
    assert shared.suggested == 0.50
    assert fixed.suggested == 0.65  # (8.85 + 4.48 + 1.376) / 22.93 = 0.641


@pytest.mark.parametrize(
    ("args", "fixed"),
    [
        ({}, False),
        ({"max-mamba-cache-size": 96}, True),
        ({"max-mamba-cache-size": None, "disable-radix-cache": True}, False),
        ({"disable-radix-cache": True, "max-running-requests": 48}, True),
        ({"disable-radix-cache": False, "max-running-requests": 48}, False),
    ],
)
def test_flags_that_say_what_state_caches_take(args: dict[str, object], fixed: bool) -> None:
    assert fixed_states(args) is fixed


def test_state_caches_are_not_taken_for_what_graphs_need() -> None:
    assert beside_gib(HYBRID) == pytest.approx(0.81)  # graphs 0.26, other 0.55
    bounds = workable([HYBRID], 0.80, 24, False, ready=True)
    # 6 % of 22.93 is 1.376: 1 - (0.81 + 1.376) / 22.93 = 0.904
    assert (bounds.fraction_least, bounds.fraction_most) == (0.39, 0.90)


def test_every_pool_of_the_target_is_within_the_budget() -> None:
    split = replace(DENSE, kv_pool_gib=25.0, swa_pool_gib=12.0, indexer_cache_gib=3.0)
    assert (loaded_gib(split), beside_gib(split)) == (loaded_gib(DENSE), beside_gib(DENSE)) == (40.0, 4.0)
    assert pool_left_gib(split, 0.9, fixed=False) == pool_left_gib(DENSE, 0.9, fixed=False)


def test_a_draft_counts_where_it_is_loaded() -> None:
    """0.5.14 takes the draft model and its pool out of the budget, earlier releases let them live beside it."""
    new = replace(DENSE, draft_gib=2.0, draft_cache_gib=1.0, free_gib=7.0)
    old = replace(new, draft_after_pools=True)
    assert (loaded_gib(new), beside_gib(new)) == (42.0, 4.0)
    assert (loaded_gib(old), beside_gib(old)) == (40.0, 7.0)
    windows = fraction_window([new]), fraction_window([old])
    assert [window.least for window in windows if window is not None] == [0.45, 0.43]  # 42 / 94 and 40 / 94
    most = [workable([row], 0.85, 48, True, ready=True).fraction_most for row in (new, old)]
    assert most == [0.89, 0.86]  # 1 - (4 + 5.64) / 94 and 1 - (7 + 5.64) / 94


def test_what_is_gone_without_a_line_before_the_pools_is_needed_too() -> None:
    """Adapters that are there from the start print nothing; SGLang's 1 - available / before counts them."""
    window = fraction_window([LedgerRow("TP0", 94.0, 40.0, free_gib=50.0, other_gib=4.0)], 0.45)
    assert window is not None
    assert (window.loaded_gib, window.least) == (44.0, 0.47)  # 44 / 94 = 0.468


def test_what_is_reserved_for_later_is_no_part_and_still_leaves_the_budget() -> None:
    """Multimodal models from 0.5.18 on: the pool gets so much less, and at first it is free."""
    row = replace(DENSE, kv_pool_gib=38.9, free_gib=11.1, reserved_gib=1.1)
    assert (loaded_gib(row), beside_gib(row)) == (pytest.approx(41.1), pytest.approx(4.0))
    assert pool_left_gib(row, 80.0 / 94.0, fixed=False) == pytest.approx(38.9)
