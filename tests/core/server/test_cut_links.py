"""What only reads is asked again where the link is lost under it."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.run_lab import free_port, kill_all
from tui.core.config import HostEntry
from tui.core.errors import HostError, LinkLost, TimedOut, UsageError
from tui.core.host.gpus import GpuSample
from tui.core.link import retry
from tui.core.link.local import LocalTransport
from tui.core.link.transport import Completed
from tui.core.model.run import Run, RunState
from tui.core.profiles.load import load_launch
from tui.core.runs import control
from tui.core.runs.request import LaunchRequest, new_run_id
from tui.core.server import session as sessions
from tui.core.server.launch import started
from tui.core.server.session import HostSession

pytestmark = pytest.mark.timeout(180)


class Cut(LocalTransport):
    """This machine behind a link that is lost once at each call."""

    error: HostError | TimedOut = LinkLost("gpu1: the link is lost")
    always = False

    def __init__(self, env: dict[str, str]) -> None:
        super().__init__("gpu1", env=env)
        self.asked: set[str] = set()
        self.cuts = 0

    async def run(self, script: str, **options: object) -> Completed:
        if self.always or script not in self.asked:
            self.asked.add(script)
            self.cuts += 1
            raise self.error
        return await super().run(script, **options)  # type: ignore[arg-type]


@pytest.fixture
async def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HostSession]:
    async def no_gpus() -> GpuSample:
        return GpuSample(0.0, (), "none", "no_devices")

    monkeypatch.setattr(retry, "_SOON_S", 0.0)
    state = tmp_path / "state"
    transport = Cut({"EAGLETUI_STATE": str(state), "HOME": str(tmp_path), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})
    session = HostSession(HostEntry("gpu1", "gpu1"), transport)
    monkeypatch.setattr(session, "sample", no_gpus)  # to look for some takes seconds
    yield session
    await session.close()
    kill_all(state)


def cut(session: HostSession) -> Cut:
    assert isinstance(session.transport, Cut)
    return session.transport


async def started_run(session: HostSession) -> Run:
    request = LaunchRequest(new_run_id("any"), "server", "any", ("sleep", "300"))
    return await control.launch(session.transport, request)


@pytest.mark.fault(
    "F2", "the link is cut at every call of a stop", sees="a wait, then the end", holds="asked again until its time-out"
)
async def test_a_run_is_found_and_stopped_over_a_link_that_is_cut_at_each_call(opened: HostSession) -> None:
    run = await started_run(opened)
    cut(opened).asked.clear()
    assert (await opened.find_run(run.short_id)).run_id == run.run_id
    assert cut(opened).cuts >= 2  # the launch, and the look
    async for _ in opened.stop(run, grace_s=0):
        pass
    assert (await opened.find_run(run.run_id)).state is RunState.EXITED
    with pytest.raises(UsageError):
        await opened.find_run("nothing")


@pytest.mark.fault("F2")
async def test_a_launch_is_planned_checked_and_made_over_such_a_link(opened: HostSession, tmp_path: Path) -> None:
    sleeper = ["sh", "-c", "sleep 300", "sh", "--port", str(free_port())]
    (tmp_path / "any.toml").write_text(f'kind = "launch"\ncommand = {json.dumps(sleeper)}\n')
    plan = await opened.plan(load_launch("any", [tmp_path]))
    assert cut(opened).cuts >= 2
    assert not plan.blocked
    cut(opened).asked.clear()
    plan = await opened.check(plan)
    cut(opened).asked.clear()
    run = await started(opened.launch(plan))
    assert (await opened.find_run(run.run_id)).state in (RunState.RUNNING, RunState.STARTING)


async def test_a_question_without_result_is_asked_again_too(opened: HostSession) -> None:
    cut(opened).error = TimedOut("gpu1: no result", "look at its load")
    assert isinstance(await opened.heard_runs(), tuple)


async def test_what_polls_by_itself_hears_of_a_loss_at_once(opened: HostSession) -> None:
    with pytest.raises(LinkLost):
        await opened.runs()
    assert cut(opened).cuts == 1


async def test_other_errors_and_a_link_that_stays_away_end_it(
    opened: HostSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut(opened).always = True
    monkeypatch.setattr(sessions, "_FIND_S", -1.0)
    with pytest.raises(LinkLost):
        await opened.find_run("any")
    cut(opened).error = HostError("gpu1: no shell")
    monkeypatch.undo()
    with pytest.raises(HostError, match="no shell"):
        await opened.find_run("any")
    assert cut(opened).cuts == 2


async def test_a_session_that_was_closed_is_not_asked_again(opened: HostSession) -> None:
    await opened.close()
    async with asyncio.timeout(20):
        with pytest.raises(LinkLost):
            await opened.find_run("any")
