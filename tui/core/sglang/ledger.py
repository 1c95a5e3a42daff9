"""Where the memory of one rank went, from the lines that name any.

A size in a line is a part that was taken, "avail mem" is what is free there, and what no line explains is the rest. Formats, from
the sources of the released packages 0.4.6 to 0.5.23: docs/diagnosis.md.
"""

import re
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from tui.core.sglang.batch_lines import decimal, whole
from tui.core.sglang.state import LedgerRow

ROUNDING_GIB = 0.05  # of a dozen figures with two decimals
_FIGURES = re.compile(r"([\d.]+) ?GB")


class _Pool(NamedTuple):
    part: str
    tokens: int | None
    gib: float


class Ledger:
    """Memory of one scheduler process, GiB. The figures of a line are taken in first, then `line` ends it."""

    def __init__(self, rank: str) -> None:
        self.rank = rank
        self._before: float | None = None  # free before the load
        self._stated: float | None = None  # free at the newest line that says so
        self._later = False  # that line is not the one with which the load begins
        self._parts: dict[str, float] = {}  # by field of LedgerRow
        self._explained = 0.0  # sum of the parts, and what it was at that line
        self._explained_then = 0.0
        self._loaded = False
        self._drafting = False  # the target has its pools: those that come now are a draft's
        self._draft_after_pools = False
        self._draft_peak: float | None = None
        self._reserved: float | None = None
        self._draft_ended = False  # this line, and the newest one that said what is free, end the pools of a draft
        self._draft_ended_then = False
        self._sized = False  # a line named the size of this runner's pool
        self._pools: deque[_Pool] = deque(maxlen=2)  # the newest
        self._tokens: int | None = None
        self._full_tokens: int | None = None  # of the pools of full attention and of the sliding window
        self._window_tokens: int | None = None
        self._contradiction: str | None = None

    @property
    def weights(self) -> float | None:
        return self._parts.get("weights_gib")

    @property
    def free(self) -> float | None:
        """What the newest line says is free, less what lines named since."""
        return None if self._stated is None else self._stated - (self._explained - self._explained_then)

    def load_begins(self, avail: float | None, *, draft: bool, after_pools: bool) -> None:
        """A model begins to load.

        Args:
            after_pools: the rank has pools already, as with a draft model up to 0.5.13.
        """
        if draft:
            self._draft_after_pools |= after_pools
        else:
            self._before, self._stated = avail, None

    def load_ends(self, used: float | None, avail: float | None, *, draft: bool) -> None:
        """A model is loaded; how much it took is said, or is the difference of what was free."""
        self._loaded = True
        if used is None:
            used = self._gone(avail)
        elif self._before is None and avail is not None and not draft:
            self._before = avail + used  # the log does not begin at the beginning
        self._add("draft_gib" if draft else "weights_gib", used)

    def sizes(self, groups: Mapping[str, str]) -> None:
        """Pools and caches, by the groups of a line.

        `kv`, or `k` and `v`, is the size of a pool, with its `label` and its `tokens`; `upper`: only its address space; `resized`:
        it got its memory behind the graphs. `state` holds the sizes of state caches. `full` and `window` say how many tokens the
        two pools of a sliding-window model hold; `reserved` is left of the budget for later.
        """
        self._reserved = decimal(groups.get("reserved")) or self._reserved
        size = decimal(groups.get("kv"))
        if size is None and "k" in groups and "v" in groups:
            size = (decimal(groups["k"]) or 0.0) + (decimal(groups["v"]) or 0.0)
        resized, upper = "resized" in groups, "upper" in groups
        if size is None and resized:  # 0.5.16 says only what is free then
            size = self._gone(decimal(groups.get("avail")))
        self._sized = self._sized or upper or size is not None
        tokens = None if upper else whole(groups.get("tokens"))
        part = self._part_of(groups, tokens)
        if size is not None and not upper:
            self._add(part, size)
            self._pools.append(_Pool(part, tokens, size))
            if resized:  # what is free was measured before the line was written
                self._explained_then += size
        if self._tokens is None and part == "kv_pool_gib":
            self._tokens = tokens
        if "state" in groups:
            self._add("state_cache_gib", sum(decimal(text) or 0.0 for text in _FIGURES.findall(groups["state"])))
        if "window" in groups:
            self._tell_apart(whole(groups.get("full")), whole(groups["window"]))

    def pools_end(self, avail: float | None) -> None:
        """A runner has its pools; where no line named a size, they took what went since the line before."""
        gone = self._gone(avail)
        if not self._sized and self._loaded and gone is not None:
            self._add("draft_cache_gib" if self._drafting else "kv_pool_gib", max(0.0, gone))
        self._draft_ended = self._drafting
        self._drafting, self._sized = True, False

    def captured(self, used: float | None) -> None:
        """Graphs were captured."""
        self._add("graphs_gib", used)

    def adapter_loaded(self, avail: float | None) -> None:
        """A LoRA adapter took what went since the line before."""
        self._add("lora_gib", self._gone(avail))

    def line(self, avail: float | None, number: int, text: str) -> None:
        """Ends a line: its number, its text, and what is free there."""
        if avail is not None:
            self._share(avail)
            self._later = self._stated is not None or self._before != avail
            self._stated, self._explained_then = avail, self._explained
        if not self._contradicts():
            self._contradiction = None
        elif self._contradiction is None:
            self._contradiction = f"line {number}: {text[:120]}"

    def row(self, host_memory: bool) -> LedgerRow:
        """All that is known.

        Args:
            host_memory: a server on a CPU: what is free is the host's, which everything on it shares, and leaves no rest.
        """
        rest = self._rest() if self._later and not host_memory else None
        other = None if rest is None or self._contradicts() else max(0.0, rest)
        free = self.free
        figures = {"before_gib": self._before, "free_gib": free and max(0.0, free), "other_gib": other, **self._parts}
        figures |= {"draft_peak_gib": self._draft_peak, "reserved_gib": self._reserved}
        return LedgerRow(
            self.rank,
            kv_tokens=self._tokens,
            draft_after_pools=self._draft_after_pools,
            contradiction=self._contradiction if rest is not None else None,
            **{name: None if gib is None else round(gib, 2) for name, gib in figures.items()},
        )

    def _share(self, avail: float) -> None:
        """Behind its pools a draft gives its embedding and head back, and uses the target's (init_lm_head of the EAGLE workers)."""
        draft, gone = self._parts.get("draft_gib"), self._gone(avail)
        if self._draft_ended_then and draft is not None and gone is not None and gone < 0:
            self._draft_peak = self._draft_peak or draft
            self._add("draft_gib", -min(draft, -gone))
        self._draft_ended_then, self._draft_ended = self._draft_ended, False

    def _add(self, part: str, gib: float | None) -> None:
        if gib is not None:
            self._parts[part] = self._parts.get(part, 0.0) + gib
            self._explained += gib

    def _gone(self, avail: float | None) -> float | None:
        """What went since the newest line that said what is free, less what lines named since."""
        return None if avail is None or self.free is None else self.free - avail

    def _rest(self) -> float | None:
        if self._before is None or self._stated is None:
            return None
        return self._before - self._stated - self._explained_then

    def _contradicts(self) -> bool:
        """Whether the parts are more than what is gone, or than what there was."""
        return min(self._rest() or 0.0, self.free or 0.0) < -ROUNDING_GIB

    def _part_of(self, groups: Mapping[str, str], tokens: int | None) -> str:
        label = groups.get("label", "").lower()
        if "draft" in label or (self._drafting and "resized" not in groups):
            return "draft_cache_gib"
        if "index" in label or (decimal(groups.get("v")) == 0 != decimal(groups.get("k"))):  # keys alone: an indexer's
            return "indexer_cache_gib"
        return "swa_pool_gib" if label == "swa" or self._is_window(tokens) else "kv_pool_gib"

    def _is_window(self, tokens: int | None) -> bool:
        return tokens is not None and tokens == self._window_tokens != self._full_tokens

    def _tell_apart(self, full: int | None, window: int | None) -> None:
        """How many tokens each pool of a sliding-window model holds: 0.5.3 to 0.5.6 say so behind the lines of the pools."""
        self._full_tokens, self._window_tokens = full, window
        for pool in self._pools:
            if pool.part == "kv_pool_gib" and self._is_window(pool.tokens):
                self._add("kv_pool_gib", -pool.gib)
                self._add("swa_pool_gib", pool.gib)
                self._tokens = full
        self._pools.clear()
