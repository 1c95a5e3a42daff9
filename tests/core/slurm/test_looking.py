"""A server on a node that is too quiet is looked at from one step of its job, for as long as it is."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from tests.support.slurm import Slurm
from tui.core.link.local import LocalTransport
from tui.core.model.job import Job, JobState
from tui.core.model.phases import Outcome
from tui.core.model.run import Run, RunState
from tui.core.server import looking
from tui.core.server.host_look import HostLook
from tui.core.server.looking import Looking


class Dog:
    """Wants looks until it has three; then one more is asked for later."""

    def __init__(self) -> None:
        self.seen: list[HostLook] = []
        self.wants = True

    def wants_look(self, now: float, outcome: Outcome) -> bool:
        return self.wants

    def saw_host(self, now: float, look: HostLook) -> None:
        self.seen.append(look)
        self.wants = len(self.seen) < 3


async def test_one_step_tells_as_long_as_it_is_too_quiet(slurm: Slurm, monkeypatch, tmp_path: Path, until) -> None:
    monkeypatch.setattr(looking, "_TICK_S", 0.05)
    monkeypatch.setattr(looking, "LOOK_PERIOD_S", 0.2)
    inner = f"sleep 900 & echo $$ >{tmp_path}/pid; wait"
    number = await asyncio.to_thread(
        slurm.submit, "-w", "n2", "--gres=gpu:1", script=f"exec srun -o /dev/null sh -c '{inner}'"
    )
    await until((tmp_path / "pid").exists)
    await until(lambda: (tmp_path / "pid").read_text())
    job = Job(number, JobState.RUNNING, "RUNNING")
    run = Run(
        "r-0", "server", "two", "login", RunState.RUNNING, int((tmp_path / "pid").read_text()), job=job, node="n2"
    )
    transport, dog = LocalTransport(), Dog()
    await transport.connect()
    task = asyncio.create_task(
        Looking(transport, lambda: (run, Outcome.STARTING, dog), lambda: None).on_node()  # type: ignore[arg-type,return-value]
    )
    try:
        await until(lambda: len(dog.seen) == 3)
        assert {process.name for process in dog.seen[0].processes} >= {"sh", "sleep"}
        # The way is given up; when it is wanted again there is another one.
        assert (await steps(slurm, number, until, 2))[0] == f"{number}.0"
        dog.wants = True
        await until(lambda: len(dog.seen) == 4)
        assert slurm.show(number)["JobState"] == "RUNNING"
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await transport.close()


async def steps(slurm: Slurm, job: str, until, count: int) -> list[str]:
    """The job's steps once there are so many: batch and the server's, where nobody looks."""
    found: list[str] = []

    def look() -> bool:
        found[:] = sorted(slurm("squeue", "-h", "-s", "-j", job, "-o", "%i").split())
        return len(found) == count

    await until(look)
    return found


@pytest.mark.parametrize("node", [None, "n3"])
async def test_a_node_that_cannot_be_entered_is_not_asked_all_the_time(monkeypatch, slurm: Slurm, node) -> None:
    monkeypatch.setattr(looking, "_TICK_S", 0.01)
    waits: list[float] = []
    sleep = asyncio.sleep

    async def counted(delay_s: float) -> None:
        waits.append(delay_s)
        await sleep(0 if delay_s > 1 else delay_s)

    monkeypatch.setattr(looking.asyncio, "sleep", counted)
    job = Job("999999", JobState.RUNNING, "RUNNING")
    run = Run("r-0", "server", "two", "login", RunState.RUNNING, 1, job=job, node=node)
    transport, dog = LocalTransport(), Dog()
    await transport.connect()
    task = asyncio.create_task(
        Looking(transport, lambda: (run, Outcome.STARTING, dog), lambda: None).on_node()  # type: ignore[arg-type,return-value]
    )
    while len(waits) < 4:
        await sleep(0.02)
        assert not task.done()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    await transport.close()
    assert dog.seen == []
    assert (looking._REFUSED_S in waits) is (node is not None)
