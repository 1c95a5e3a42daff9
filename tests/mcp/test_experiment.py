"""An experiment that an agent starts outlives the server of tools; any later one waits for it, stops it, says how it ended."""

import pytest

from tests.support.mcp_client import called, client
from tests.support.mcp_tasks import Tasks, asked_about
from tests.support.run_lab import free_port

pytestmark = pytest.mark.timeout(300)
BENCH = 'kind = "bench"\ndataset = "random-ids"\nconcurrency = [8]\ninput_len = 16\noutput_len = 16\nduration_s = 1\nruns = 1\n'
ARM = '[[arms]]\nprofile = "qwen3-0.6b-one-gpu"\nset = {{ port = {port}, "mem-fraction-static" = {fraction} }}\n'


@pytest.fixture
def campaign(home):
    """Two arms that are measured in a second, on the fast simulated host."""
    home.env["EAGLETUI_DEMO_SPEED"] = "2000"
    profiles = home.home / "eagletui" / "config" / "profiles"
    profiles.mkdir(parents=True)
    (profiles / "blink.toml").write_text(BENCH)
    arms = "".join(ARM.format(port=free_port(), fraction=fraction) for fraction in (0.8, 0.7))
    (profiles / "two.toml").write_text(f'kind = "experiment"\nhypothesis = "less"\nbench = "blink"\npairs = 1\n{arms}')


async def test_it_outlives_the_server_that_began_it(home, campaign):
    async with client(home) as agent:
        blocked = await called(agent, "experiment", failed=True, name="two")
        assert "a run counts from 10 s on" in blocked["message"]
        begun = await called(agent, "experiment", name="two", force=True)
        assert begun["next"] == "call experiment_wait"
        again = await called(agent, "experiment", failed=True, name="two")
        assert again["error"] == "busy"
    tasks = Tasks()
    async with client(home, extensions=[tasks]) as agent:
        await agent.call_tool("experiment_wait", {"name": begun["experiment"]})
        (task,) = tasks.tasks
        while (said := await asked_about(agent, task.task_id))["status"] == "working":
            assert said["pollIntervalMs"] > 0
    assert said["status"] == "completed"
    async with client(home) as agent:
        over = await called(agent, "experiment_wait", name="two")
        assert over == said["result"]["structuredContent"]
        assert (over["done"], over["outcome"], over["experiment"]) == (True, "done", begun["experiment"])
        assert over["simulated_host"] is True
        assert len(over["verdicts"]) == 1
        assert (await called(agent, "experiment", failed=True, name="two", do="stop_after_launch"))["error"]
        asked = (await called(agent, "journal", search="less"))["hypotheses"]
        assert [(one["text"], one["verdicts"]) for one in asked] == [("less", over["verdicts"])]


async def test_what_is_no_experiment_is_said(home):
    async with client(home, "--read-only") as agent:
        assert "nosuch" in (await called(agent, "experiment_wait", failed=True, name="nosuch"))["message"]
        assert (await called(agent, "experiment_wait", failed=True, name="--stop"))["error"] == "bad_value"
