"""Whether a reply is within limits: what a search judges by on the host is what results are judged by afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def within(row: Mapping[str, Any], begin: str, limits: Mapping[str, float | None]) -> bool:
    """Whether a reply is within all limits; one that failed is within none, one of a single chunk has no TPOT to miss.

    Args:
        row: its line of rows.jsonl.
        begin: t_send or t_sched, from which its times to the first and to the last token count.
        limits: milliseconds of ttft_ms, tpot_ms and e2e_ms, as far as they are limited.
    """
    if row["err"] or row["t_first"] is None:
        return False
    took = {"ttft_ms": row["t_first"] - row[begin], "e2e_ms": row["t_last"] - row[begin], "tpot_ms": 0.0}
    later = (row["out"] or 0) - (row["k1"] or 1)
    if later > 0 and row["gaps_us"]:
        took["tpot_ms"] = (row["t_last"] - row["t_first"]) / later
    return all(limit is None or round(took[name] * 1e3, 3) <= limit for name, limit in limits.items())
