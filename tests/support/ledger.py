"""What every row of a memory ledger keeps to."""

import pytest

from tui.core.sglang.ledger import ROUNDING_GIB
from tui.core.sglang.state import PARTS, LedgerRow


def parts(row: LedgerRow) -> dict[str, float]:
    return {name: value for name in PARTS if (value := getattr(row, name)) is not None}


def assert_adds_up(row: LedgerRow) -> None:
    """Before is the sum of the parts, the rest among them, and of what is free; or the row says why it is not."""
    assert all(value >= 0 for name, value in parts(row).items() if name != "graphs_gib")  # a capture may give back 0.01
    if row.other_gib is not None:
        assert row.before_gib == pytest.approx(sum(parts(row).values()) + (row.free_gib or 0.0), abs=ROUNDING_GIB)
        assert row.contradiction is None
