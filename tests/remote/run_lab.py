"""What tests of runs have in common."""

import asyncio
import socket
import time
from pathlib import Path

from tui.core import runs
from tui.core.runs import LaunchRequest, Run, RunState, new_run_id


async def until(condition, what: str, deadline_s: float = 60):
    """Waits until a condition (plain or async) gives something true, and returns that."""
    end = time.monotonic() + deadline_s
    while True:
        value = condition()
        if asyncio.iscoroutine(value):
            value = await value
        if value:
            return value
        assert time.monotonic() < end, f"waited {deadline_s} s for {what}"
        await asyncio.sleep(0.05)


async def seen(host, run: Run) -> Run:
    found = await runs.refresh(host, run)
    assert found is not None
    return found


async def exited(host, run: Run) -> Run:
    async def over():
        now = await seen(host, run)
        return now if now.state is RunState.EXITED else None

    return await until(over, "the end of the run")


def sh(script: str, *args: str) -> tuple[str, ...]:
    return ("sh", "-c", script, "sh", *args)


def request(argv, **fields) -> LaunchRequest:
    return LaunchRequest(new_run_id("test"), fields.pop("kind", "server"), "test", tuple(argv), **fields)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


async def stop_over(host, run):
    found = await runs.stop_state(host, run.run_id)
    return found if found.step in ("done", "stuck") else None


def record(run: Run) -> list[str]:
    return (Path(run.directory) / "pid").read_text().split()


def write_record(run: Run, words: list[str]) -> None:
    (Path(run.directory) / "pid").write_text(" ".join(words) + "\n")
