"""A plan carried out: what is checked again, what is stopped, and what is said meanwhile."""

import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support import fakes
from tui.core.model.run import Run
from tui.core.profiles.command import LaunchCommand
from tui.core.profiles.launch_profile import LaunchProfile
from tui.core.server import launch
from tui.core.server.finding import Finding, Level
from tui.core.server.launch import LaunchPlan, PreflightFailed
from tui.core.server.stop import StopProgress

OURS = fakes.run()
HELD = Finding("gpus", Level.BLOCK, "held by run 4f9c2a", run=OURS.run_id)
ELSE = Finding("model", Level.BLOCK, "/m is not there")


class Host:
    """Remembers what it was asked; each check finds the next of `findings`."""

    def __init__(self, *findings: tuple[Finding, ...]) -> None:
        self.findings = list(findings)
        self.did: list[str] = []

    async def check(self, plan: LaunchPlan) -> LaunchPlan:
        self.did.append("check")
        return replace(plan, findings=self.findings.pop(0))

    async def stop(self, run: Run) -> AsyncIterator[StopProgress]:
        self.did.append(f"stop {run.short_id}")
        yield StopProgress("done", "stopped", done=True)

    async def start(self, plan: LaunchPlan) -> Run:
        self.did.append("start")
        return fakes.run(run_id="next-20261006T210000Z-abc123")

    async def carry_out(self, plan: LaunchPlan, *, replace: bool) -> list[str]:
        steps = launch.steps(plan, replace=replace, check=self.check, stop=self.stop, start=self.start)
        return [step.text async for step in steps]


def plan(*findings: Finding, replaces: tuple[Run, ...] = (), age_s: float = 0.0) -> LaunchPlan:
    profile = LaunchProfile("next", Path("next.toml"))
    checked_at = time.monotonic() - age_s
    command = LaunchCommand(("sglang",), {}, 30000)
    return LaunchPlan(profile, command, findings, fakes.FACTS, replaces=replaces, checked_at=checked_at)


async def test_a_fresh_plan_is_checked_again_only_when_what_was_in_its_way_is_gone() -> None:
    host = Host(())
    told = await host.carry_out(plan(HELD, replaces=(OURS,)), replace=True)
    assert host.did == ["stop 4f9c2a", "check", "start"]
    assert told == [
        "stopping 4f9c2a, then launching next",
        "stopping 4f9c2a",
        "stopping 4f9c2a: stopped",
        "launching next",
        "started next-20261006T210000Z-abc123",
    ]


async def test_an_old_plan_is_checked_before_anything_is_stopped() -> None:
    host = Host((HELD, ELSE))
    with pytest.raises(PreflightFailed, match="/m is not there"):
        await host.carry_out(plan(HELD, replaces=(OURS,), age_s=60.0), replace=True)
    assert host.did == ["check"]


@pytest.mark.parametrize(("findings", "replace"), [((HELD, ELSE), True), ((HELD,), False)])
async def test_nothing_is_stopped_for_a_launch_that_cannot_happen(findings: tuple[Finding, ...], replace: bool) -> None:
    host = Host()
    with pytest.raises(PreflightFailed):
        await host.carry_out(plan(*findings, replaces=(OURS,)), replace=replace)
    assert host.did == []


async def test_what_is_still_in_the_way_afterwards_stops_the_launch() -> None:
    host = Host((HELD,))
    with pytest.raises(PreflightFailed) as refused:
        await host.carry_out(plan(HELD, replaces=(OURS,)), replace=True)
    assert refused.value.ours  # an experiment waits for that
    assert host.did == ["stop 4f9c2a", "check"]
