"""The tools as clients of the official SDK see them, against the simulated host; the server is killed in the middle."""

import json
import subprocess
import sys

import pytest

from tests.support.run_lab import free_port

pytest.importorskip("mcp", reason="pip install 'eagletui[mcp]'")

from mcp.shared.exceptions import MCPError

from tests.support.mcp_client import called, client, until_done
from tests.support.mcp_tasks import Tasks, asked_about

PROFILE = "qwen3-0.6b-one-gpu"


async def test_the_loop_of_an_agent(home):
    """A launch, the server of tools killed in mid-wait, the same launch asked for again, ready, measured, stopped."""
    async with client(home) as connected:
        tools = {tool.name: tool for tool in (await connected.list_tools()).tools}
        assert {"launch", "wait", "log", "diagnose", "stop", "bench", "compare", "results", "status"} <= set(tools)
        assert all(tool.output_schema for tool in tools.values())
        assert tools["stop"].annotations.destructive_hint
        request = {"profile": PROFILE, "request_id": "agent-1", "set": {"port": free_port()}}
        launched = await called(connected, "launch", **request)
        assert launched["outcome"] == "starting"
    async with client(home) as connected:
        again = await called(connected, "launch", **request)
        assert again["run"] == launched["run"]
        told = []

        async def hear(progress, total, message):
            told.append(message)

        ready = await connected.call_tool("wait", {"run": launched["run"]}, progress_callback=hear)
        assert (ready.structured_content["done"], ready.structured_content["outcome"]) == (True, "ready")
        seen = await called(connected, "status")
        assert [run["run"] for run in seen["runs"]] == [launched["run"]]
        assert len(seen["gpus"]) == 8
        lines = await called(connected, "log", run=launched["run"], lines=3)
        assert len(lines["lines"]) == 3
        begun = await called(connected, "bench", name="decode-bs1", set={"runs": 1, "duration_s": 1, "output_len": 8})
        over, _ = await until_done(connected, run=begun["run"], until="exit")
        (result,) = over["results"]
        (row, *_) = (await called(connected, "results"))["items"]
        assert row["result"] == result
        stopped = await called(connected, "stop", run=launched["run"][-6:])
        assert stopped["outcome"] == "stopped"


async def test_a_crash_says_what_to_change(home):
    async with client(home) as connected:
        preview = await called(connected, "preview", profile="kimi-k2.5-eagle3-mem076", set={"port": free_port()})
        assert preview["blocked"] is False
        assert "0.76" in preview["commands"][0]["argv"]
        assert {finding["level"] for finding in preview["findings"]} == {"warn"}
        launched = await called(connected, "launch", profile="kimi-k2.5-eagle3-mem076", request_id="agent-2")
        said, _ = await until_done(connected, run=launched["run"])
        assert (said["outcome"], said["diagnosis"]["cause"]) == ("crashed", "oom_kv_pool")
        assert 0.8 < said["diagnosis"]["set"]["mem-fraction-static"] < 1
        diagnosed = await called(connected, "diagnose", what=launched["run"])
        assert diagnosed["diagnosis"]["set"] == said["diagnosis"]["set"]
        assert diagnosed["diagnosis"]["evidence"] == said["diagnosis"]["evidence"]


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_what_cannot_be_is_an_answer_with_a_hint(home, mode):
    async with client(home, mode=mode) as connected:
        said = await called(connected, "wait", failed=True, run="nosuch")
        assert said["error"] == "unknown_run"
        assert "eagletui ps" in said["hint"]
        assert (await called(connected, "stop", failed=True, run="--help"))["error"] == "bad_value"
        await called(connected, "launch", failed=True, profile="nosuch", request_id="agent-9")
        other = {"profile": PROFILE, "set": {"port": free_port()}}
        assert (await called(connected, "launch", failed=True, request_id="agent-1", **other))["error"] == "exists"
        strange = await called(connected, "wait", failed=True, run="x", timeout=20)
        assert (strange["error"], strange["hint"]) == ("bad_value", "it has run, until, timeout_s, host")


async def test_a_wait_is_a_task_that_outlives_its_server(home):
    extension = Tasks()
    async with client(home, extensions=[extension]) as connected:
        launched = await called(connected, "launch", profile=PROFILE, request_id="agent-3")
        await connected.call_tool("wait", {"run": launched["run"]})
        (task,) = extension.tasks
        assert task.status == "working"
    async with client(home, extensions=[Tasks()]) as connected:
        while (said := await asked_about(connected, task.task_id))["status"] == "working":
            assert said["pollIntervalMs"] > 0
        assert said["status"] == "completed"
        assert said["result"]["structuredContent"]["outcome"] == "ready"
        with pytest.raises(MCPError):
            await asked_about(connected, '["--help", "ready", null]')
        await asked_about(connected, task.task_id, "tasks/cancel")
        await called(connected, "stop", run=launched["run"])


async def test_read_only_has_no_tool_that_changes_anything(home):
    async with client(home, "--read-only") as connected:
        tools = (await connected.list_tools()).tools
        assert all(tool.annotations.read_only_hint for tool in tools)
        assert not {"launch", "stop", "bench"} & {tool.name for tool in tools}


def test_nothing_but_the_protocol_is_on_standard_output(home):
    done = subprocess.run(
        [sys.executable, "-m", "tui", "mcp"], input=b"not json\n", env=home.env, capture_output=True, timeout=60
    )
    assert all(json.loads(line)["jsonrpc"] == "2.0" for line in done.stdout.splitlines())
    assert b"Traceback" not in done.stderr
