"""The counters of /metrics: what SGLang and vLLM name them, and how their series add up."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from tui.remote.loadgen.exchange import Exchange

COUNTERS = re.compile(
    r"sglang:(prompt_tokens|generation_tokens|cached_tokens|num_requests|num_aborted_requests|spec_verify_calls)_total"
    r"|vllm:(prompt_tokens|generation_tokens|request_success|num_preemptions|prefix_cache_queries|prefix_cache_hits"
    r"|spec_decode_num_drafts|spec_decode_num_draft_tokens|spec_decode_num_accepted_tokens)_total"
)
GAUGES = re.compile(r"sglang:num_(running|queue)_reqs|vllm:num_requests_(running|waiting)")
CACHE_COUNTERS = (
    ("sglang:cached_tokens_total", "sglang:prompt_tokens_total"),
    ("vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"),
)
OUTPUT_COUNTERS = ("sglang:generation_tokens_total", "vllm:generation_tokens_total")
SERIES = re.compile(r"^([a-z]+:\w+)(?:\{(.*)\})? (\S+)")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
RANKS = frozenset(("tp_rank", "pp_rank", "moe_ep_rank", "ep_rank", "moe_dp_rank", "attn_cp_rank", "pid"))


def read_metrics(text: str) -> tuple[dict[str, float], float]:
    """Counters by name, each the sum over its series, and the requests that run or wait.

    Ranks of one replica report the same work: of series that differ only in them the largest counts. Totals that are
    broken down by priority as well carry an empty `priority`; the parts are left out.
    """
    groups: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for line in text.splitlines():
        found = SERIES.match(line)
        if found is None or not (COUNTERS.fullmatch(found[1]) or GAUGES.fullmatch(found[1])):
            continue
        try:
            value = float(found[3])
        except ValueError:
            continue
        labels = LABEL.findall(found[2] or "")
        if not math.isfinite(value) or any(name == "priority" and content for name, content in labels):
            continue
        group = found[1], tuple(sorted(label for label in labels if label[0] not in RANKS))
        groups[group] = max(groups.get(group, value), value)
    counters: dict[str, float] = {}
    busy = 0.0
    for (name, _), value in groups.items():
        if GAUGES.fullmatch(name):
            busy += value
        else:
            counters[name] = counters.get(name, 0.0) + value
    return {name: int(value) if value == int(value) else value for name, value in sorted(counters.items())}, busy


def hit_rate(done: Iterable[Exchange], before: dict[str, float] | None, after: dict[str, float] | None) -> float | None:
    """Share of prompt tokens that came from the prefix cache: as the replies said, else as the counters do."""
    told = [(x.cached, x.input) for x in done if x.cached is not None and x.input]
    hits: float = sum(cached for cached, _ in told)
    asked: float = sum(tokens for _, tokens in told)
    if not told and before is not None and after is not None:
        for cached, prompt in CACHE_COUNTERS:
            if prompt in after:
                hits = after.get(cached, 0) - before.get(cached, 0)
                asked = after[prompt] - before.get(prompt, 0)
    return round(hits / asked, 6) if asked > 0 else None


def counted_by_then(before: dict[str, float] | None, tokens: float) -> dict[str, float] | None:
    """What the server's counter of output tokens reads once so many more are in it; None where it serves none."""
    name = next((name for name in OUTPUT_COUNTERS if name in (before or {})), None)
    return {name: before[name] + tokens} if before is not None and name is not None else None
