"""A client of the official SDK, and what tests call with it."""

import json
import sys
from contextlib import asynccontextmanager

import pytest

from tests.support.run_lab import free_port

pytest.importorskip("mcp", reason="pip install 'eagletui[mcp]'")

from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client


@asynccontextmanager
async def client(home, *options, mode="auto", extensions=()):
    words = StdioServerParameters(command=sys.executable, args=["-m", "tui", "mcp", *options], env=dict(home.env))
    async with Client(stdio_client(words), mode=mode, extensions=list(extensions)) as connected:
        yield connected


async def called(connected, tool, failed=False, **arguments):
    if tool == "launch" and "set" not in arguments:
        arguments["set"] = {"port": free_port()}  # other tests have servers too
    answer = await connected.call_tool(tool, arguments)
    assert answer.is_error is failed, answer
    assert json.loads(answer.content[0].text) == answer.structured_content
    return answer.structured_content


async def until_done(connected, **arguments):
    """Calls wait as often as it says so; how often."""
    calls = 0
    while True:
        calls += 1
        said = await called(connected, "wait", **arguments)
        if said["done"]:
            return said, calls
        assert len(json.dumps(said)) < 800  # about 200 tokens
        assert said["next"] == "call wait again"
