"""The search for the highest load that holds limits: which load comes next, and what it found."""

from __future__ import annotations

from typing import Any

from tui.remote.loadgen.protocol import label_of

NAMES = ("ttft_ms", "tpot_ms", "e2e_ms")  # of limits


class Search:
    """Which load to measure next, and what that says; a search begins with `restart`."""

    WITHIN = 1.05  # how close the highest load that holds comes to the lowest that fails

    def __init__(self, document: dict[str, Any]) -> None:
        self.kind: str = document["kind"]
        self.low: float = document["low"]
        self.high: float = document["high"]
        self.share: float = document["share"]
        self.limits: dict[str, float] = {name: document[name] for name in NAMES if document.get(name)}
        self.most: int = document["most"]
        if self.kind not in ("concurrency", "rate") or not 0 < self.low < self.high or not self.limits:
            raise ValueError("search without a kind, bounds or limits")
        self.restart()

    def restart(self) -> None:
        """Forgets what was judged."""
        self.found: float | None = None  # the highest load that holds
        self.fails_from: float | None = None  # the lowest that fails
        self.points: list[dict[str, Any]] = []

    def next(self) -> float | None:
        """The load to measure next; None at the end."""
        found, fails, whole = self.found, self.fails_from, self.kind == "concurrency"
        if fails is None:
            if found is None:
                return self.low
            return min(2 * found, self.high) if found < self.high else None
        if found is None or fails <= self.WITHIN * found or (whole and fails - found <= 1):
            return None
        return (found + fails) // 2 if whole else float(f"{(found * fails) ** 0.5:.3g}")

    def judge(self, load: float, replies: int, met: int) -> None:
        """Takes what was measured at a load: so many replies, so many of them within the limits."""
        holds = replies > 0 and met >= self.share * replies
        if holds:
            self.found = load
        else:
            self.fails_from = load
        point = {self.kind: load}
        told = {"label": label_of(point), "point": point, "replies": replies, "met": met, "holds": holds}
        self.points.append(told)
