"""What watching costs the controller of a Slurm: the commands of Slurm in ten minutes, with one job watched and with fifty.

    .venv/bin/python benchmarks/slurm_load.py [--jobs 1,50] [--faster 10]

A real Slurm (tests/slurm/setup.sh; as root), whose login host is this machine. Each job is a server that never gets ready in
the first half and is ready in the second; each is watched like one in the panel. A wrapper on PATH counts. --faster 10 lets
all periods of the watch be a tenth, so that ten minutes take one; the counts are those of ten minutes then. With --smoke
more than one squeue in 5 s while something starts, or in 30 s after, fails.
"""

import argparse
import asyncio
import contextlib
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.support.slurm import Slurm, a_slurm
from tui.core.config import HostEntry
from tui.core.groups.jobs import group_for, job_launch
from tui.core.groups.session import GroupPlan, GroupSession
from tui.core.link.local import LocalTransport
from tui.core.model.run import Run
from tui.core.profiles.launch_profile import LaunchProfile, SlurmTable
from tui.core.server import watch as watcher
from tui.core.server.session import HostSession
from tui.core.slurm.board import JobBoard, Pace

HALF_S = 300.0
STATUS_PERIOD_S = watcher._STATUS_PERIOD_S
COMMANDS = ("squeue", "scontrol", "sbatch", "sacct", "sinfo", "scancel", "srun")
READY = "[2026-11-30 12:00:00] The server is fired up and ready to roll!\n"
# Ready is what listens on its port too.
SERVER = f"""#!{sys.executable}
import os, signal, socket, sys
if "--port" not in sys.argv:
    os.execv({sys.executable!r}, [{sys.executable!r}, *sys.argv[1:]])
print("[2026-11-30 12:00:00] server_args=ServerArgs(tp_size=1)", file=sys.stderr, flush=True)
listener = socket.create_server(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])))
signal.pause()
"""
FIRST_PORT = 21000


def counted(directory: Path) -> Path:
    """A directory for PATH whose programs write down that they were called, and call Slurm's."""
    programs = directory / "bin"
    programs.mkdir()
    for name in COMMANDS:
        program = programs / name
        program.write_text(f'#!/bin/sh\necho {name} >>{directory}/calls\nexec /usr/bin/{name} "$@"\n')
        program.chmod(0o755)
    return programs


def calls(directory: Path) -> Counter[str]:
    path = directory / "calls"
    found = Counter(path.read_text().split()) if path.exists() else Counter()
    path.unlink(missing_ok=True)
    return found


def become_ready(run: Run) -> None:
    with open(str(run.log_path), "a", encoding="utf-8") as log:
        log.write(READY)


async def until(look: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not look():
        if time.monotonic() > deadline:
            raise SystemExit("the jobs did not come so far in two minutes")
        await asyncio.sleep(0.05)


async def watch(slurm: Slurm, jobs: int, faster: float, directory: Path) -> list[Counter[str]]:
    """Calls in the half of the starts, and in the half after they are ready."""
    server = directory / "server"
    server.write_text(SERVER)
    server.chmod(0o755)
    env = {
        **os.environ,
        **slurm.env,
        "PATH": f"{counted(directory)}:{os.environ['PATH']}",
        "EAGLETUI_STATE": str(directory),
    }
    entry = HostEntry("login", "login", python=str(server), slurm=True)
    session = HostSession(entry, LocalTransport(env=env))
    usual, watcher._STATUS_PERIOD_S = Pace(), STATUS_PERIOD_S / faster
    session._board = board = JobBoard(
        session.transport, Pace(usual.files_s / faster, usual.starting_s / faster, usual.steady_s / faster)
    )
    groups = GroupSession({"login": session})
    table = SlurmTable(nodes=1, gpus_per_node=0, time="60")
    for number in range(jobs):
        args = {"model-path": "/models/x", "port": FIRST_PORT + number}
        profile = LaunchProfile("one", Path("one.toml"), slurm=table, args=args)
        group = group_for(profile, "login")
        launch = job_launch(profile, entry, group)
        async with contextlib.aclosing(groups.launch(GroupPlan(group, (), (), launch))) as progress:
            async for _ in progress:
                pass
    while any(run.node is None for run in board.runs()):
        await board.look(fresh=True)
        await asyncio.sleep(0.2)

    async def follow(run: Run) -> None:
        async with contextlib.aclosing(session.watch(run)) as updates:
            async for _ in updates:
                pass

    watching = [asyncio.create_task(follow(run)) for run in board.runs()]
    found = []
    await until(lambda: len(board.starting) == jobs)
    for ready in (False, True):
        if ready:
            for run in board.runs():
                become_ready(run)
            await until(lambda: not board.starting)
        calls(directory)
        await asyncio.sleep(HALF_S / faster)
        found.append(calls(directory))
    for task in watching:
        task.cancel()
    await asyncio.gather(*watching, return_exceptions=True)
    await session.close()
    return found


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", default="1,50")
    parser.add_argument("--faster", type=float, default=10.0)
    parser.add_argument("--smoke", action="store_true")
    chosen = parser.parse_args()
    faster = 60.0 if chosen.smoke else chosen.faster
    failed = False
    for slurm in a_slurm():
        for jobs in (3,) if chosen.smoke else map(int, chosen.jobs.split(",")):
            os.environ |= slurm.env
            with tempfile.TemporaryDirectory() as directory:
                os.environ["EAGLETUI_HOME"] = f"{directory}/home"
                halves = asyncio.run(watch(slurm, jobs, faster, Path(directory)))
                slurm.end_jobs()
            for name, count, period_s in zip(("while they start", "once ready"), halves, (5.0, 30.0), strict=True):
                most = HALF_S / period_s + 1
                failed = failed or count["squeue"] > most
                told = ", ".join(f"{number} {command}" for command, number in sorted(count.items())) or "none"
                print(f"{jobs} jobs, {name}, five minutes: {told} (bar {most:.0f} squeue)", flush=True)
    return int(chosen.smoke and failed)


if __name__ == "__main__":
    sys.exit(main())
