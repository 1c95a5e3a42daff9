"""A login host of the tests' real Slurm: a session of this machine, quick looks, servers that replay SGLang's log."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from tests.support.slurm import Slurm, free_port
from tui.core.config import HostEntry
from tui.core.groups.group_state import GroupState
from tui.core.groups.jobs import group_for, job_launch, plan_job
from tui.core.groups.session import GroupPlan, GroupSession
from tui.core.link.local import LocalTransport
from tui.core.model.group import Group
from tui.core.model.phases import Outcome
from tui.core.model.run import Run
from tui.core.profiles.launch_profile import LaunchProfile, SlurmTable
from tui.core.server import watch
from tui.core.server.session import HostSession
from tui.core.slurm.board import JobBoard, Pace

SERVER = Path(__file__).parents[2] / "support/slurm_server.py"


class Lab:
    """One login host, and what is launched from it."""

    def __init__(self, slurm: Slurm, directory: Path) -> None:
        self.slurm, self.directory = slurm, directory
        self.session = self.new_session()

    def new_session(self) -> HostSession:
        """Another look at the same host, as of another eagletui."""
        session = HostSession(HostEntry("login", "login", python=str(SERVER), slurm=True), LocalTransport())
        session._board = JobBoard(session.transport, Pace(files_s=0.1, starting_s=0.3, steady_s=0.5))
        return session

    @property
    def groups(self) -> GroupSession:
        return GroupSession({"login": self.session})

    @property
    def board(self) -> JobBoard:
        board = self.session.jobs()
        assert board is not None
        return board

    def profile(self, env: dict[str, str] | None = None, **table: object) -> LaunchProfile:
        """A server over two nodes with a GPU each, unless the table says otherwise."""
        slurm = SlurmTable(**{"nodes": 2, "gpus_per_node": 1, "time": "30", "dist_port": free_port(), **table})  # type: ignore[arg-type]
        args = {"model-path": "/models/tiny-llama", "tp-size": slurm.nodes, "port": free_port()}
        return LaunchProfile("two", Path("two.toml"), slurm=slurm, args=args, env=env or {})

    async def plan(self, profile: LaunchProfile) -> GroupPlan:
        return await plan_job(self.groups, profile, "login")

    async def launch(self, env: dict[str, str] | None = None, **table: object) -> Group:
        """Launched, whatever Slurm says beforehand."""
        profile = self.profile(env, **table)
        group = group_for(profile, "login")
        plan = GroupPlan(group, (), (), job_launch(profile, self.session.entry, group))
        await self.submitted(plan)
        return group

    async def submitted(self, plan: GroupPlan) -> str:
        """The number of the job."""
        async with aclosing(self.groups.launch(plan)) as progress:
            texts = [step.text async for step in progress]
        return texts[-1].split()[1]

    async def until(self, group: Group, *outcomes: Outcome, deadline_s: float = 60.0) -> GroupState:
        """The group's state once it is settled in one of these."""
        async with asyncio.timeout(deadline_s), aclosing(self.groups.watch(group)) as updates:
            async for update in updates:
                if update.settled and update.state.outcome in outcomes:
                    return update.state
        return update.state

    async def end(self, group: Group, deadline_s: float = 60.0) -> GroupState:
        """Its state once everything of it is over and read."""
        async with asyncio.timeout(deadline_s), aclosing(self.groups.watch(group)) as updates:
            async for update in updates:
                state = update.state
        return state

    async def stop(self, group: Group, grace_s: float = 10.0) -> list[str]:
        async with aclosing(self.groups.stop(group, grace_s=grace_s)) as progress:
            return [step.stop.step async for step in progress if step.stop is not None]

    def files(self, group: Group) -> Path:
        return self.directory / f"slurm/eagletest/runs/{group.group_id}"


def run_of(state: GroupState, rank: int = 0) -> Run:
    """A rank of a group that was seen."""
    seen = state.members[rank].state
    assert seen is not None
    return seen.run


@pytest.fixture
async def lab(slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Lab]:
    monkeypatch.setenv("EAGLETUI_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(watch, "_STATUS_PERIOD_S", 0.2)
    made = Lab(slurm, tmp_path / "state")
    yield made
    await made.session.close()
