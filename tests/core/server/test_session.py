"""A session with the simulated host: the real SSH, the real helper, real processes and sockets."""

import asyncio
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.engines import without_python
from tui.core.config import HostEntry, shipped_profiles_dir
from tui.core.errors import UsageError
from tui.core.link.local import LocalTransport
from tui.core.link.transport import Transport
from tui.core.model.phases import Outcome, Phase
from tui.core.model.run import Run, RunState
from tui.core.profiles.launch_profile import LaunchProfile
from tui.core.profiles.load import load_launch
from tui.core.runs.control import RunBusy
from tui.core.server import launch_records
from tui.core.server.gpu_claim import claimed_gpus
from tui.core.server.launch import PreflightFailed, started
from tui.core.server.server_state import ServerState
from tui.core.server.session import HostSession

pytestmark = pytest.mark.timeout(180)


async def launch(session: HostSession, name: str, **sets: object) -> Run:
    flags = {key.replace("_", "-"): value for key, value in sets.items()}
    profile = load_launch(name, [shipped_profiles_dir()], flags)
    return await started(session.launch(await session.plan(profile, flags)))


async def watch_until(session: HostSession, run: Run, *outcomes: Outcome) -> ServerState:
    async with aclosing(session.watch(run)) as updates:  # type: ignore[type-var]
        async for update in updates:
            if update.state.outcome is Outcome.READY and Outcome.READY in outcomes:
                return update.state
            if update.state.outcome is Outcome.CRASHED and not update.settled:
                assert update.state.diagnosis is None or update.state.diagnosis.cause != "host_oom"
    assert update.state.outcome in outcomes
    return update.state


async def test_a_server_is_launched_followed_to_ready_and_stopped(demo: HostSession, port: int) -> None:
    run = await launch(demo, "kimi-k2.5-eagle3-mem088", port=port)
    state = await watch_until(demo, run, Outcome.READY)
    assert state.phase in (Phase.READY, Phase.SERVING)
    assert state.startup.ranks_seen == 8
    assert state.ready_after_s is not None
    assert {Phase.LAUNCH, Phase.LOAD_WEIGHTS, Phase.CUDA_GRAPH} <= set(state.phase_took_s)
    record = launch_records.read(run.run_id)
    assert record is not None
    assert (record.outcome, record.host, record.model) == ("ready", "demo", "/data/models/Kimi-K2.5")
    assert record.ready_after_s == state.ready_after_s

    # A second start knows how long the first one took.
    assert launch_records.usual("demo", "kimi-k2.5-eagle3-mem088")[1] is not None

    # The same GPUs again: refused before anything is started, naming the run that has them.
    profile = load_launch("kimi-k2.5-baseline-bs128", [shipped_profiles_dir()], {"port": port + 1})
    plan = await demo.plan(profile)
    assert plan.blocked
    with pytest.raises(PreflightFailed, match=run.short_id) as refused:
        await started(demo.launch(plan))
    assert {finding["level"] for finding in refused.value.details["findings"]} >= {"block", "ok"}

    steps = [progress async for progress in demo.stop(run)]
    assert [step.step for step in steps][:1] == ["requested"]
    assert steps[-1].done
    assert steps[-1].text == "stopped, the GPU memory is back"
    after = await demo.find_run(run.short_id)
    assert after.state is RunState.EXITED
    assert after.stopped_by_us
    assert not after.orphans
    assert [progress.done async for progress in demo.stop(after)][-1]  # idempotent


async def test_replace_stops_our_server_and_waits_for_its_memory(demo: HostSession, port: int) -> None:
    first = await launch(demo, "kimi-k2.5-baseline-bs128", port=port)
    await watch_until(demo, first, Outcome.READY)
    profile = load_launch("kimi-k2.5-baseline-bs512", [shipped_profiles_dir()], {"port": port})
    plan = await demo.plan(profile, {"port": port})
    assert [run.run_id for run in plan.replaces] == [first.run_id]

    # Never stopped for a launch that cannot happen.
    impossible = load_launch("kimi-k2.5-baseline-bs512", [shipped_profiles_dir()], {"port": port, "tp": 16})
    with pytest.raises(PreflightFailed):
        await started(demo.launch(await demo.plan(impossible), replace=True))
    assert (await demo.find_run(first.run_id)).state is RunState.RUNNING

    second = await started(demo.launch(plan, replace=True))
    state = await watch_until(demo, second, Outcome.READY)
    assert state.run.run_id != first.run_id
    assert (await demo.find_run(first.run_id)).state is RunState.EXITED


@pytest.mark.parametrize(
    ("profile", "cause", "phase"),
    [
        ("kimi-k2.5-eagle3-mem076", "oom_kv_pool", Phase.MEMORY_POOL),
        ("kimi-k2.5-flashinfer-fusion", "unsupported_arch", None),
        ("kimi-k2.5-symm-mem", "unsupported_arch", None),
        ("kimi-k2.5-nccl-tree", "nccl", None),
    ],
)
async def test_a_failing_profile_is_diagnosed_live(
    demo: HostSession, port: int, profile: str, cause: str, phase: Phase | None
) -> None:
    run = await launch(demo, profile, port=port)
    state = await watch_until(demo, run, Outcome.CRASHED)
    assert state.diagnosis is not None
    assert state.diagnosis.cause == cause
    assert state.run.exit_code == 137
    if phase is not None:
        assert state.phase is phase
    if cause == "oom_kv_pool":
        assert 0.84 <= state.diagnosis.set["mem-fraction-static"] <= 0.90  # type: ignore[operator]
    record = launch_records.read(run.run_id)
    assert record is not None
    assert (record.outcome, record.cause) == ("crashed", cause)
    # Whoever looks later sees the same, times included.
    later = await watch_until(demo, await demo.find_run(run.run_id), Outcome.CRASHED)
    assert later.diagnosis == state.diagnosis
    assert later.phase is state.phase
    assert set(later.phase_took_s) == set(state.phase_took_s) != set()


async def test_a_port_that_is_taken_refuses_the_launch_twice(demo: HostSession, port: int) -> None:
    first = await launch(demo, "qwen3-0.6b-one-gpu", port=port)
    await watch_until(demo, first, Outcome.READY)
    profile = load_launch("qwen3-0.6b-one-gpu", [shipped_profiles_dir()], {"port": port, "gpus": [1]})
    plan = await demo.plan(profile)
    assert any(finding.check == "port" and finding.level == "block" for finding in plan.findings)
    # Even where the pre-flight is passed over, the launch itself looks once more under its lock.
    with pytest.raises(RunBusy, match=str(port)):
        await started(demo.launch(replace(plan, findings=())))


async def test_runs_are_named_and_unknown_ones_refused(demo: HostSession, port: int) -> None:
    assert await demo.runs() == ()
    with pytest.raises(UsageError, match="no run 123456 on demo"):
        await demo.find_run("123456")


@pytest.mark.fault("J9")
async def test_secrets_are_in_no_file_of_this_machine(demo: HostSession, port: int, own_home: Path) -> None:
    run = await launch(demo, "kimi-k2.5-baseline-bs128", port=port, api_key="sk-very-secret")
    await watch_until(demo, run, Outcome.READY)
    found = [
        path
        for path in own_home.rglob("*")
        if path.is_file() and "/demo/" not in str(path) and b"sk-very-secret" in path.read_bytes()
    ]
    assert not found


@pytest.mark.parametrize(
    ("sets", "expected"),
    [
        ({}, (0, 1, 2, 3, 4, 5, 6, 7)),
        ({"tp": 2}, (0, 1)),
        ({"tp": 2, "base-gpu-id": 4}, (4, 5)),
        ({"tp": 2, "dp-size": 2}, (0, 1, 2, 3)),
        ({"gpus": [3, 5]}, (3, 5)),
        ({"tp": 2, "env.CUDA_VISIBLE_DEVICES": "6,7"}, (6, 7)),
    ],
)
def test_the_gpus_that_a_launch_will_take(sets: dict[str, object], expected: tuple[int, ...]) -> None:
    assert claimed_gpus(load_launch("kimi-k2.5-baseline-bs128", [shipped_profiles_dir()], sets)) == expected


async def test_a_plan_looks_at_the_runs_of_a_host_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a host has neither Python nor GPUs, both are looked for in containers too: of the same look."""
    env = {"PATH": without_python(tmp_path / "bin"), "HOME": str(tmp_path), "EAGLETUI_STATE": str(tmp_path / "state")}
    session = HostSession(HostEntry("local", "local"), LocalTransport(env=env))
    looks = []

    async def look(transport: Transport) -> tuple[Run, ...]:
        looks.append(transport)
        await asyncio.sleep(0)
        return ()

    monkeypatch.setattr("tui.core.runs.control.look", look)
    plan = await session.plan(LaunchProfile("x", tmp_path / "x.toml", command=("sleep", "1"), args={"port": 30999}))
    assert plan.facts.python_error
    assert len(looks) == 1
    assert await session.runs() == ()  # whoever asks for the runs hears of now
    assert len(looks) == 2
    await session.close()
