"""A server in parts behind a router: prefill and decode servers, each with its own facts and counters.

The router itself is asked for nothing but generations and the flush: it has no /server_info, and its metrics count no tokens.
"""

from __future__ import annotations

import asyncio
import copy
from typing import Any
from urllib.parse import urlsplit

from tui.remote.loadgen import endpoints
from tui.remote.loadgen.counters import read_metrics
from tui.remote.loadgen.exchange import Exchange
from tui.remote.loadgen.http import Client
from tui.remote.loadgen.plan import Plan

CACHED = "sglang:cached_tokens_total"


class Members:
    """The parts, in the order of the plan; the first decode speaks for the whole."""

    def __init__(self, loop: asyncio.AbstractEventLoop, plan: Plan) -> None:
        self.parts = [(part, Client(loop, _to(plan, part["url"]))) for part in plan.members]
        decodes = [part for part in plan.members if part["role"] == "decode"]
        self.pid: int | None = decodes[0].get("pid") if decodes else None

    async def ask(self, *paths: str) -> list[tuple[dict[str, Any], Exchange]]:
        """The answer of each part at the first path that it has."""

        async def first(client: Client) -> Exchange:
            for path in paths:
                answer = await client.ask("GET", path)
                if answer.status == 200 or answer.error:
                    break
            return answer

        answers = await asyncio.gather(*(first(client) for _, client in self.parts))
        return [(part, answer) for (part, _), answer in zip(self.parts, answers)]

    async def counters(self) -> tuple[tuple[dict[str, float], float] | None, bool]:
        """Sums as if it were one server, and how many requests run; None where a part does not say. And whether there are any.

        A prefill ends each request after one token: tokens are those of the decodes, what came from a cache is the prefills'.
        """
        whole: dict[str, float] = {}
        busy = 0.0
        for part, answer in await self.ask(endpoints.METRICS):
            if answer.status != 200 or answer.error is not None:
                return None, not 400 <= answer.status < 500
            found, running = read_metrics(answer.text.decode("utf-8", "replace"))
            busy += running
            for name, value in found.items():
                if (name == CACHED) == (part["role"] == "prefill"):
                    whole[name] = whole.get(name, 0) + value
        return (dict(sorted(whole.items())), busy), True

    def close(self) -> None:
        """Closes every connection."""
        for _, client in self.parts:
            client.close()


def _to(plan: Plan, url: str) -> Plan:
    """The plan with another address."""
    at = copy.copy(plan)
    parts = urlsplit(url)
    at.host, at.port, at.prefix = parts.hostname or "", parts.port or 80, parts.path.rstrip("/")
    return at
