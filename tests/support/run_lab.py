"""What tests of runs have in common."""

import asyncio
import contextlib
import os
import signal
import socket
import time
from pathlib import Path

from tui.core.model.run import Run, RunState
from tui.core.runs import control
from tui.core.runs.request import LaunchRequest, new_run_id


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
    found = await control.refresh(host, run)
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
    found = await control.stop_state(host, run.run_id)
    return found if found.step in ("done", "stuck") else None


def record(run: Run) -> list[str]:
    return (Path(run.directory) / "pid").read_text().split()


def write_record(run: Run, words: list[str]) -> None:
    (Path(run.directory) / "pid").write_text(" ".join(words) + "\n")


def processes_of(state: Path) -> list[int]:
    """Everything that was started with this state directory: supervisors, stoppers, runs."""
    found = []
    mark = f"EAGLETUI_STATE={state}\0".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if mark in (entry / "environ").read_bytes() + b"\0":
                    found.append(int(entry.name))
    return found


def kill_all(state: Path) -> None:
    """Ends everything of a test."""
    for _ in range(50):
        pids = [pid for pid in processes_of(state) if pid != os.getpid()]
        if not pids:
            return
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
