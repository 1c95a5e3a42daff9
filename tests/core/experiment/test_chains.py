"""Chains that survive: the driver of an experiment killed at each of its steps, resumed, detached, followed, stopped from elsewhere."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.commanded import Command
from tui.core.experiment import record as experiment_record
from tui.core.runs import leases
from tui.core.runs.leases import Held
from tui.core.server.session import HostSession

pytestmark = pytest.mark.timeout(300)

# kill -9 of itself at a step: before it is asked for anything, after the host has it but before that is known here, and so on.
KILLED_AT = """
import os, signal, sys
from tui.core.bench import bench_run
from tui.core.experiment import launching, runner

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

def then_die(original):
    async def call(*args, **named):
        await original(*args, **named)
        die()
    return call

def at_the_first(original):
    async def states(*args, **named):
        async for _ in original(*args, **named):
            die()
        yield
    return states

step = sys.argv.pop(1)
Runner = runner.ExperimentRunner
if step == "asked":
    launching.start = die
elif step == "launched":
    launching.start = then_die(launching.start)
elif step == "starting":
    launching.until_ready = at_the_first(launching.until_ready)
elif step == "ready":
    Runner._measure = die
elif step == "bench asked":
    bench_run.start = then_die(bench_run.start)
elif step == "bench":
    bench_run.follow_run = at_the_first(bench_run.follow_run)
elif step == "collecting":
    Runner._measured = die
elif step == "stopping":
    stop = launching.stop
    launching.stop = lambda site, run, tell: stop(site, run, die)
elif step == "judging":
    Runner._judge = die
from tui.cli import main
main()
"""
STEPS = ["asked", "launched", "starting", "ready", "bench asked", "bench", "collecting", "stopping", "judging"]


@pytest.fixture
async def command(own_home: Path, port: int) -> AsyncIterator[Command]:
    made = Command(own_home, port, duration_s=2.0)
    yield made
    for pid in experiment_record.drivers().values():
        if pid != os.getpid():
            os.kill(pid, signal.SIGKILL)
    if made.process is not None and made.process.poll() is None:
        made.process.kill()
        made.process.communicate()


async def said(command: Command, *words: str) -> tuple[int, dict]:
    """Exit code and document of `eagletui experiment x`."""
    process = command.start(*words)
    out, err = await asyncio.to_thread(process.communicate, timeout=120)
    assert "Traceback" not in err
    return process.returncode, json.loads(out)


async def test_killed_at_every_step_of_a_launch_it_is_made_once(demo: HostSession, command: Command) -> None:
    where = ["--profiles", str(command.home / "profiles")]
    servers, measurements = set(), set()
    for step in STEPS:
        words = ["--seed", "1"] if step == STEPS[0] else ["--resume"]
        argv = [sys.executable, "-c", KILLED_AT, step, *where, "experiment", "x", "--host", "demo", "--force", *words]
        killed = subprocess.Popen(argv, cwd=command.home, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        _, err = await asyncio.to_thread(killed.communicate, timeout=120)
        assert killed.returncode == -signal.SIGKILL, (step, err.decode()[-500:])
        record = command.record()
        assert record is not None
        assert experiment_record.drivers() == {}
        # Whatever it was at, the GPUs stay its own.
        (lease,) = await leases.on_host(demo.transport)
        assert (lease.lease_id, lease.abandoned) == (record.experiment_id, True)
        with pytest.raises(Held, match="held by experiment x"):
            await leases.take(demo.transport, "y-1", (3,), "experiment y")
        first = record.cells[0]
        if step not in ("asked", "judging"):
            servers.add(first.run_id)
        if first.bench_run_id is not None:
            measurements.add(first.bench_run_id)
    document = await command.finish("--resume")
    assert [launch["status"] for launch in document["launches"]] == ["measured", "measured"]
    assert document["launches"][0]["run"] in servers
    ran = [run for run in await demo.runs() if run.kind == "server"]
    assert {run.run_id for run in ran} == {launch["run"] for launch in document["launches"]}
    assert len(servers) == 1
    assert not any(run.active for run in await demo.runs())
    assert len({result["result"] for result in document["results"]}) == len(document["results"])
    assert measurements >= {document["launches"][0]["bench_run"]}
    assert await leases.on_host(demo.transport) == ()


async def test_it_runs_in_the_background_is_followed_and_ended_from_elsewhere(
    demo: HostSession, command: Command
) -> None:
    path = command.home / "profiles" / "blink.toml"
    path.write_text(path.read_text().replace("duration_s = 2.0", "duration_s = 10.0"))  # all of this within a launch
    code, begun = await said(command, "--detach", "--seed", "1")
    assert code == 0
    assert experiment_record.drivers() == {begun["experiment"]: begun["pid"]}
    assert os.getsid(begun["pid"]) == begun["pid"]  # no terminal's end is its own
    follower = command.start("--attach")
    code, asked = await asyncio.to_thread(_asked_to_stop, command)
    assert (code, asked["ended"]) == (0, False)
    code, refused = await said(command, "--detach", "--resume")
    assert (code, refused["error"]) == (1, "busy")
    assert f"PID {begun['pid']}" in refused["message"]
    out, err = await asyncio.to_thread(follower.communicate, timeout=120)
    document = json.loads(out)
    assert (document["experiment"], document["outcome"]) == (begun["experiment"], "stopped")
    assert [launch["status"] for launch in document["launches"]] == ["measured", "queued"]
    assert f"following PID {begun['pid']}" in err
    assert "launch 1 of 2" in err
    assert not any(run.active for run in await demo.runs())
    assert await leases.on_host(demo.transport) == ()
    assert "launch 1 of 2" in Path(begun["log"]).read_text()

    # Killed, and not resumed: what it left is ended, and so is its lease.
    code, again = await said(command, "--resume", "--detach")
    assert again["experiment"] == begun["experiment"]
    await command.on_host(demo, "server", number=2)
    os.kill(again["pid"], signal.SIGKILL)
    while experiment_record.drivers():  # noqa: ASYNC110 - a process of its own
        await asyncio.sleep(0.05)
    code, refused = await said(command, "--attach")
    assert (code, refused["error"]) == (1, "nothing_to_resume")
    assert len(await leases.on_host(demo.transport)) == 1
    code, ended = await said(command, "--stop", "now")
    assert (code, ended["outcome"]) == (0, "stopped")
    assert not any(run.active for run in await demo.runs())
    assert await leases.on_host(demo.transport) == ()


def _asked_to_stop(command: Command) -> tuple[int, dict]:
    argv = [sys.executable, "-m", "tui", "experiment", "x", "--stop", "after-launch", "--json"]
    done = subprocess.run(argv, cwd=command.home, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, json.loads(done.stdout)


async def test_what_could_not_be_begun_is_said_where_it_was_asked_for(demo: HostSession, command: Command) -> None:
    path = command.home / "profiles" / "x.toml"
    path.write_text(path.read_text().replace("{ port", '{ model-path = "/data/models/not-there", port', 1))
    code, refused = await said(command, "--detach")
    assert (code, refused["error"]) == (1, "preflight")
    assert "/data/models/not-there" in refused["message"]
    assert command.record() is None
    assert await leases.on_host(demo.transport) == ()


async def test_gpus_of_another_experiment_are_refused_by_name_before_anything_is_launched(
    demo: HostSession, command: Command
) -> None:
    await leases.take(demo.transport, "y-20261006T203000Z-abcdef", (7,), "experiment y")
    code, refused = await said(command)
    assert (code, refused["error"]) == (1, "busy")
    assert "held by experiment y (y-20261006T203000Z-abcdef) of " in refused["message"]
    assert command.record() is None
