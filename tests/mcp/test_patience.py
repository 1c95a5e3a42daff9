"""A client that ends a call after a minute waits for twenty, on a clock that a stand-in for the command line moves.

A token is taken for three characters of JSON, which is more than any tokenizer makes of such texts.
"""

import asyncio
import json
import math

import pytest

pytest.importorskip("mcp", reason="pip install 'eagletui[mcp]'")

from mcp.client.client import Client

from tui.mcp import waiting
from tui.mcp.command_line import Answer
from tui.mcp.server import build

CLIENT_S = 60  # what the client allows a call
RUN = "kimi-k2.5-eagle3-mem088-20261130T234007Z-ed2ff3"
NOT_YET = {
    "error": "timeout",
    "message": f"{RUN} is not ready after 45 s",
    "hint": "it keeps running; use a longer --timeout with eagletui wait",
    **{
        "run": RUN,
        "host": "demo",
        "profile": "kimi-k2.5-eagle3-mem088",
        "outcome": "starting",
        "phase": "load_weights",
    },
    **{"pid": 2662, "port": 30000, "started": "2026-11-30T23:40:07+00:00", "ended": None, "diagnosis": None},
}
EXPERIMENT = "does-eagle-pay-20261130T234007Z-0b11aa"
UNDER_WAY = {
    "error": "timeout",
    "message": "does-eagle-pay has not ended after 45 s",
    "hint": "it goes on; eagletui experiment does-eagle-pay --attach",
    **{"experiment": EXPERIMENT, "name": "does-eagle-pay", "host": "demo", "outcome": "running", "launches_done": 2},
    **{"launches": 6, "arm": "B", "phase": "load_weights", "left_s": 3600.5, "note": "launching B, load weights 41/64"},
}
OVER = {"experiment": EXPERIMENT, "host": "demo", "outcome": "done", "message": "done", "results": [{}] * 500,
        "verdicts": [{"text": "B is 20.1 % slower than A (95 % CI …)", "reasons": ["long"] * 100}],
        "arms": [{"arm": "B", "profile": "x", "cause": None}], "error": None}  # fmt: skip
READY = NOT_YET | {
    "error": None,
    "message": None,
    "hint": None,
    "outcome": "ready",
    "phase": "ready",
    "ready_after_s": 1200.0,
}


class Twenty:
    """A command line whose commands wait as long as they may, and have their answer after twenty minutes."""

    def __init__(self, later: dict, then: dict) -> None:
        self.clock_s, self.later, self.then = 0.0, later, then
        self.longest_s = 0.0
        self.told: asyncio.Event | None = None  # progress has reached the client

    async def ask(self, *words: str, progress=None) -> Answer:
        patience_s = float(words[words.index("--timeout") + 1])
        self.longest_s = max(self.longest_s, patience_s)
        left_s = 20 * 60 - self.clock_s
        self.clock_s += min(patience_s, left_s)
        progress("23:40:12 load weights 41/64")
        if self.told is not None:
            await self.told.wait()
            self.told.clear()
        return Answer(4, self.later) if patience_s < left_s else Answer(0, self.then)


def tokens(document: object) -> int:
    return math.ceil(len(json.dumps(document)) / 3)


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
@pytest.mark.parametrize(
    ("tool", "arguments", "later", "then"),
    [
        ("wait", {"run": RUN}, NOT_YET, READY),
        ("experiment_wait", {"name": "does-eagle-pay", "host": "demo"}, UNDER_WAY, OVER),
    ],
)
async def test_twenty_minutes_are_few_and_small_calls(monkeypatch, mode, tool, arguments, later, then):
    host = Twenty(later, then)
    monkeypatch.setattr(waiting, "ask", host.ask)
    host.told = asyncio.Event()
    calls, heard = [], []

    async def hear(progress, total, message):
        heard.append(message)
        host.told.set()

    async with Client(build(read_only=True), mode=mode) as client:
        while not calls or calls[-1]["done"] is False:
            answer = await client.call_tool(tool, arguments, progress_callback=hear)
            assert not answer.is_error
            assert tokens(answer.structured_content) + tokens([tool, arguments]) <= 200
            assert calls == [] or calls[-1]["next"] == f"call {tool} again"
            calls.append(answer.structured_content)
    assert host.clock_s == 20 * 60
    assert host.longest_s <= CLIENT_S - 10  # a command takes a few seconds to begin
    assert len(calls) <= 27
    assert heard == ["23:40:12 load weights 41/64"] * len(calls)
    assert calls[-1]["outcome"] in ("ready", "done")
    assert calls[-1].get("verdicts", ["B is 20.1 % slower than A (95 % CI …)"]) == [OVER["verdicts"][0]["text"]]


async def test_a_wait_without_news_says_that_it_goes_on(monkeypatch):
    heard, enough = [], asyncio.Event()

    async def silent(*words, progress=None):
        await enough.wait()
        return Answer(4, NOT_YET)

    async def hear(progress, total, message):
        heard.append((progress, message))
        if len(heard) == 3:
            enough.set()

    monkeypatch.setattr(waiting, "_TELL_S", 0.0)
    monkeypatch.setattr(waiting, "ask", silent)
    async with Client(build(read_only=True)) as client:
        await client.call_tool("wait", {"run": RUN}, progress_callback=hear)
    assert heard[:3] == [(1, "waiting"), (2, "waiting"), (3, "waiting")]


async def test_a_client_may_ask_for_less_but_not_for_more(monkeypatch):
    host = Twenty(NOT_YET, READY)
    monkeypatch.setattr(waiting, "ask", host.ask)
    async with Client(build(read_only=True)) as client:
        await client.call_tool("wait", {"run": RUN, "timeout_s": 3600})
        assert host.longest_s == 45
        before = host.clock_s
        await client.call_tool("wait", {"run": RUN, "timeout_s": 1})
        assert host.clock_s == before + 1
