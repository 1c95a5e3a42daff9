"""The prompts of a run: which items in which order, and the marks that keep repeated ones out of the prefix cache."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from tui.remote.loadgen.plan import Plan


class Workload:
    """The prompts of one run, one after another; the same for the same plan, label, run and `fresh`.

    fresh: whether the prefix cache was emptied, so that the first round needs no marks.
    """

    def __init__(self, plan: Plan, label: str, run: str, fresh: bool, output_len: int | None = None) -> None:
        self.plan = plan
        self.run = run
        self.fresh = fresh
        self.output_len = output_len
        self.rng = random.Random(f"{plan.seed}/{label}/{run}")
        self.round = 0
        self.item: int | None = None
        self.order: list[int] = []

    def __iter__(self) -> Iterator[tuple[dict[str, Any], int]]:
        """Fields of a request that carry the prompt, and its output length; `item` is the number of its item."""
        plan = self.plan
        while True:
            if plan.vocab and plan.dataset == "random-ids":
                low, high = plan.vocab
                ids = [low + int(part * (high - low)) for part in (self.rng.random() for _ in range(plan.input_len))]
                yield {"input_ids": ids}, self.output_len or plan.output_len
                continue
            if not self.order:
                self.order = list(range(len(plan.items)))
                self.rng.shuffle(self.order)
                self.round += 1
            number = self.item = self.order.pop()
            length = int(plan.items[number].get("output_len") or plan.output_len)
            yield self._fields(number), min(self.output_len or length, length)

    def _fields(self, number: int) -> dict[str, Any]:
        item = self.plan.items[number]
        # Different from the first token on, so that items don't share a beginning through their marks.
        mark = random.Random(f"{self.run}/{self.round}/{number}") if self.round > 1 or not self.fresh else None
        word = "".join(mark.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(5)) + ". " if mark else ""
        if "input_ids" in item:
            ids = list(item["input_ids"])
            return {"input_ids": [mark.choice(ids), *ids] if mark else ids}
        if "prompt" in item:
            text = word + item["prompt"]
            return {"messages": [{"role": "user", "content": text}]} if self.plan.api == "chat" else {"text": text}
        first, *others = item["messages"]
        if isinstance(first.get("content"), str):
            first = {**first, "content": word + first["content"]}
        return {"messages": [first, *others]}
