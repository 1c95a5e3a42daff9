"""Groups of stand-in workers behind the real router, launched by eagletui as runs of this machine."""

import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

from tests.support.run_lab import free_port
from tui.core.groups import planning
from tui.core.groups.group_state import Condition, GroupState
from tui.core.groups.session import GroupPlan, GroupSession
from tui.core.model.group import Group
from tui.core.model.run import Run
from tui.core.profiles.launch_profile import LaunchProfile
from tui.core.profiles.load import load_launch
from tui.core.runs.foreign import listener
from tui.core.server.session import HostSession

WORKER = Path(__file__).with_name("fake_worker.py")


class RoleLab:
    """One prefill, one decode and a router; `decode_ready` is a file without which the decode is not."""

    def __init__(self, sessions: Mapping[str, HostSession], directory: Path, router_python: str) -> None:
        self.groups = GroupSession(sessions)
        self.host = next(iter(sessions))
        self.directory, self.router_python = directory, router_python
        self.decode_ready = directory / "decode-ready"
        self.prefill_port, self.decode_port, self.port, self.bootstrap_port, self.metrics = (
            free_port() for _ in range(5)
        )

    def profile(
        self, *, prefill: str = "", decode: str = "", router: str = "", top: str = "", own_args: bool = True
    ) -> LaunchProfile:
        """With further lines for each table; `own_args`: the router has flags already."""
        args = f"args = {{ prometheus-port = {self.metrics} }}" if own_args else ""
        (self.directory / "split.toml").write_text(
            f"""
            kind = "launch"
            command = ["{sys.executable}", "{WORKER}"]
            startup_timeout_s = 120
            {top}
            [args]
            model-path = "/models/tiny"
            [group.prefill]
            port = {self.prefill_port}
            bootstrap_port = {self.bootstrap_port}
            {prefill}
            [group.decode]
            port = {self.decode_port}
            {decode or f'args = {{ ready-file = "{self.decode_ready}" }}'}
            [group.router]
            port = {self.port}
            command = ["{self.router_python}", "-m", "sglang_router.launch_router"]
            {args}
            {router}
            """
        )
        return load_launch("split", [self.directory])

    async def plan(self, **tables: Any) -> GroupPlan:
        return await planning.plan(self.groups, self.profile(**tables), self.host)

    async def launch(self, plan: GroupPlan) -> Group:
        async with aclosing(self.groups.launch(plan)) as progress:
            self.started = [step.member.name async for step in progress if step.member is not None]
        return plan.group

    async def states(self, group: Group, *, end_others: bool = True) -> AsyncIterator[GroupState]:
        """As everybody watches it who launched it."""
        async with aclosing(self.groups.watch(group, end_others=end_others)) as updates:
            async for update in updates:
                yield update.state

    async def left(self, group: Group) -> list[object]:
        """What is left of a group: runs with a process, ports that somebody listens on."""
        ports = (self.prefill_port, self.decode_port, self.port, self.bootstrap_port, self.metrics)
        transport = self.groups.of(group.serving).transport
        held = [await listener(transport, port) for port in ports]
        return [*(run for run in (await self.runs(group)).values() if run.active), *filter(None, held)]

    async def runs(self, group: Group) -> dict[str, Run]:
        found = await self.groups.runs_of(group)
        return {member.name: run for member, run in found.items() if isinstance(run, Run)}


def condition(state: GroupState, text: str) -> Condition:
    """The condition that begins so."""
    return next(one for one in state.conditions if one.text.startswith(text))
