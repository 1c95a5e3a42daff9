"""The case that this tool is for, done by an agent that has the tools and nothing else."""

import pytest

from tests.support.mcp_client import called, client, until_done
from tests.support.run_lab import free_port

pytestmark = pytest.mark.timeout(300)
QUICK = {"concurrency": [1], "runs": 1, "output_len": 350, "duration_s": 4}


async def test_an_agent_comes_from_a_crash_to_a_verdict(home):
    home.env["EAGLETUI_DEMO_SPEED"] = "2000"
    port = free_port()

    async def launched(agent, profile, request_id, sets, **more):
        begun = await called(agent, "launch", profile=profile, request_id=request_id, set={"port": port} | sets, **more)
        return (await until_done(agent, run=begun["run"]))[0]

    async def measured(agent):
        begun = await called(agent, "bench", name="speculation-real-prompts", set=QUICK)
        over, _ = await until_done(agent, run=begun["run"], until="exit")
        rows = (await called(agent, "results"))["items"]
        return next(row for row in rows if row["result"] == over["results"][0])

    async with client(home) as agent:
        names = [row["name"] for row in (await called(agent, "profiles"))["items"]]
        assert {"kimi-k2.5-eagle3-mem076", "kimi-k2.5-baseline-bs128"} <= set(names)
        crashed = await launched(agent, "kimi-k2.5-eagle3-mem076", "try-1", {})
        assert (crashed["outcome"], crashed["diagnosis"]["cause"]) == ("crashed", "oom_kv_pool")
        eagle = await launched(agent, "kimi-k2.5-eagle3-mem076", "try-2", crashed["diagnosis"]["set"])
        assert eagle["outcome"] == "ready"
        of_eagle = await measured(agent)
        base = await launched(agent, "kimi-k2.5-baseline-bs128", "base-1", {}, replace=True)
        of_base = await measured(agent)
        assert of_eagle["valid"]
        assert of_base["valid"]
        verdict = await called(agent, "compare", configurations=[base["run"], eagle["run"]])
        assert (verdict["conclusion"], verdict["simulated_host"]) == ("screening", True)
        assert verdict["ratio"] == pytest.approx(of_eagle["per_user_tok_s"] / of_base["per_user_tok_s"])
        assert verdict["ratio"] < 0.9
        await called(agent, "journal_note", text=verdict["text"], about=[f"run:{eagle['run']}"])
        seen = await called(agent, "journal")
        assert [(note["by"], note["text"]) for note in seen["notes"]] == [("agent", verdict["text"])]
        assert {run["outcome"] for run in seen["runs"]} >= {"crashed", "ready"}
        await called(agent, "stop", run=base["run"])
