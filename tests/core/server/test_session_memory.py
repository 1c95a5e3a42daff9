"""What earlier starts teach the next one, on the simulated host; and a server that hangs, watched."""

import asyncio
import socket
import sys
from contextlib import aclosing

import pytest

from tui.core.config import shipped_profiles_dir
from tui.core.link.local import LocalTransport
from tui.core.model.phases import Outcome
from tui.core.model.run import RunState
from tui.core.profiles.load import load_launch
from tui.core.runs import control
from tui.core.runs.request import LaunchRequest, new_run_id
from tui.core.server import launch_records, looking, watchdog
from tui.core.server.launch import LaunchPlan, started
from tui.core.server.server_state import ServerState
from tui.core.server.session import HostSession
from tui.core.server.watch import RunWatcher

pytestmark = pytest.mark.timeout(180)


async def planned(session: HostSession, name: str, port: int) -> LaunchPlan:
    return await session.plan(load_launch(name, [shipped_profiles_dir()], {"port": port}), {"port": port})


async def to(session: HostSession, plan: LaunchPlan, outcome: Outcome) -> ServerState:
    run = await started(session.launch(plan))
    async with aclosing(session.watch(run)) as updates:
        async for update in updates:
            state = update.state
            if state.outcome is outcome and (
                outcome is Outcome.READY or state.run.state in (RunState.EXITED, RunState.LOST)
            ):
                if outcome is Outcome.READY:
                    async for _ in session.stop(state.run, grace_s=2):
                        pass
                return state
    raise AssertionError(f"ended as {update.state.outcome}")


def found(plan: LaunchPlan, check: str) -> list[tuple[str, str]]:
    return [(str(finding.level), finding.text) for finding in plan.findings if finding.check == check]


async def test_what_one_start_measured_the_next_one_knows(demo: HostSession, port: int) -> None:
    plan = await planned(demo, "kimi-k2.5-eagle3-mem088", port)
    assert found(plan, "memory") == []  # nothing is known yet, and nothing is made up
    ready = await to(demo, plan, Outcome.READY)
    assert ready.last_ready is None
    record = launch_records.read(ready.run.run_id)
    assert record is not None
    assert len(record.ledger) == 8
    assert (record.mem_fraction, record.graph_batch) == (0.88, 48)

    plan = await planned(demo, "kimi-k2.5-eagle3-mem076", port)
    ((level, text),) = found(plan, "memory")
    assert level == "warn"
    assert text.startswith("mem-fraction-static 0.76 will fail by 7.")
    assert "on every rank; 0.84 to 0.90 fits" in text
    assert not plan.blocked  # a forecast forbids nothing
    ((_, before),) = found(plan, "history")
    assert "with mem-fraction-static 0.88 (now 0.76)" in before

    # It does fail, and what worked here is advised rather than what arithmetic says.
    crashed = await to(demo, plan, Outcome.CRASHED)
    assert crashed.diagnosis is not None
    assert crashed.diagnosis.cause == "oom_kv_pool"
    assert crashed.diagnosis.set == {"mem-fraction-static": 0.88}
    assert "reached ready here once" in crashed.diagnosis.advice[0]
    assert crashed.last_ready is not None
    assert crashed.last_ready.run_id == ready.run.run_id

    plan = await planned(demo, "kimi-k2.5-eagle3-mem088", port)
    ((level, text),) = found(plan, "memory")
    assert level == "ok"
    assert text.startswith("mem-fraction-static 0.88 reached ready here once")


HANGING_SERVER = """
import socket, sys, time
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
now = time.strftime("%Y-%m-%d %H:%M:%S")
say = lambda text: print(f"[{now}] {text}", flush=True)
say("INFO:     Uvicorn running on http://127.0.0.1:" + sys.argv[1] + " (Press CTRL+C to quit)")
say("The server is fired up and ready to roll!")
say("Decode batch, #running-req: 1, #token: 5, gen throughput (token/s): 9.10, #queue-req: 0")
while True:
    server.accept()[0].detach()
"""


async def test_a_server_that_is_healthy_but_stuck(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    """A request waits, no batch line comes: suspected after a while, and nothing is done about it."""
    monkeypatch.setattr(watchdog, "_STUCK_S", (2.0, 600.0))
    monkeypatch.setattr(watchdog, "_LOOK_AFTER_S", 0.5)
    monkeypatch.setattr(watchdog, "_HELD_S", 0.5)
    monkeypatch.setattr(looking, "LOOK_PERIOD_S", 0.5)
    monkeypatch.setattr(looking, "_TICK_S", 0.2)
    transport = LocalTransport()
    await transport.connect()
    run_id = new_run_id("hangs")
    argv = (sys.executable, "-c", HANGING_SERVER, str(port))
    run = await control.launch(transport, LaunchRequest(run_id, "server", "hangs", argv, port=port))
    try:
        async with asyncio.timeout(60), aclosing(RunWatcher(transport, run).updates()) as updates:
            client = None
            async for update in updates:
                if update.state.outcome is Outcome.READY and client is None:
                    client = socket.create_connection(("127.0.0.1", port))
                if client is not None and update.state.suspicion is not None:
                    break
        assert client is not None
        client.close()
        assert update.state.outcome is Outcome.READY
        assert update.state.suspected is not None
        assert update.state.suspected.kind == "stuck"
        assert "waiting and no batch line came" in str(update.state.suspicion)
        assert "the last decode line had 1 running" in update.state.suspected.evidence
        assert (await control.refresh(transport, run)).state is RunState.RUNNING  # type: ignore[union-attr]
    finally:
        await control.stop(transport, run_id, 0)
        await transport.close()
