"""Experiments on the simulated host: real launches, real measurements, real kills; only the GPUs are computed."""

import asyncio
import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.commanded import Command
from tui.commands.experiment import experiment_json
from tui.core.bench.target import of_run
from tui.core.config import HostEntry, shipped_profiles_dir
from tui.core.errors import UsageError
from tui.core.experiment import record as experiment_record
from tui.core.experiment.ahead import ArmsRefused, arms_ahead
from tui.core.experiment.one_bench import measure_running
from tui.core.experiment.record import FINISHED, ExperimentRecord
from tui.core.experiment.runner import ExperimentRunner, begin, resumed
from tui.core.experiment.so_far import stored_state
from tui.core.groups.session import GroupSession
from tui.core.link.ssh import SshTransport
from tui.core.link.transport import LinkState, SilentAsker
from tui.core.model.experiment import ArmStatus, ExperimentState
from tui.core.model.profile import BenchProfile, ExperimentArm, ExperimentProfile, LoadPoint
from tui.core.model.run import Run, RunState
from tui.core.model.verdict import VerdictKind
from tui.core.profiles.load import load_launch
from tui.core.results import store
from tui.core.runs import control
from tui.core.server.launch import started
from tui.core.server.session import HostSession
from tui.demo.client import ensure_demo

pytestmark = pytest.mark.timeout(300)

# Shorter than the guard on windows allows: these runs are measured, but don't count. A window grows until it has its
# tokens, which take real time: eight users have them in a second.
BENCH = BenchProfile(
    "blink", (LoadPoint(8),), dataset="random-ids", input_len=16, output_len=16, duration_s=1.0, runs=1
)
A, B = "kimi-k2.5-baseline-bs512", "kimi-k2.5-baseline-bs128"


class Lab:
    """Makes runners of one experiment."""

    def __init__(self, port: int) -> None:
        self.sets = {"port": port}

    def profile(self, *names: str, pairs: int = 1, **changes: object) -> ExperimentProfile:
        arms = tuple(
            ExperimentArm(letter, name, self.sets, None if letter == "A" else "A")
            for letter, name in zip("ABCD", names, strict=False)
        )
        return replace(ExperimentProfile("x", BENCH.name, arms, pairs), **changes)

    def runner(
        self,
        session: HostSession,
        profile: ExperimentProfile,
        bench: BenchProfile = BENCH,
        record: ExperimentRecord | None = None,
    ) -> ExperimentRunner:
        """A new one, or where a record is given, one that takes it up."""
        launches = {arm.letter: load_launch(arm.profile, [shipped_profiles_dir()], arm.sets) for arm in profile.arms}
        if record is None:
            record = begin(profile, bench, launches, session.entry.name, seed=1)
        else:
            record = resumed(record, profile, bench, launches)
        return ExperimentRunner(GroupSession({session.entry.name: session}), record, profile, launches)


@pytest.fixture
def lab(port: int) -> Lab:
    return Lab(port)


async def run(runner: ExperimentRunner, until: Callable[[ExperimentState], object] | None = None) -> ExperimentState:
    """Runs to the end, or to the first state that `until` is true of; what runs on the host then goes on."""
    async with aclosing(runner.states()) as states:
        async for state in states:
            if until is not None and until(state):
                return state
    assert state.finished
    return state


async def servers(session: HostSession) -> list[Run]:
    """In the order of their launches."""
    found = [one for one in await session.runs() if one.kind == "server"]
    return sorted(found, key=lambda one: (one.started_at or "", one.run_id))


async def alive(session: HostSession) -> list[Run]:
    return [one for one in await session.runs() if one.active]


def live(state: ExperimentState) -> bool:
    return any(arm.live is not None for arm in state.arms)


async def test_launches_follow_the_order_and_each_is_measured_alone(demo: HostSession, lab: Lab) -> None:
    runner = lab.runner(demo, lab.profile(A, B))
    seen: list[tuple[int, str]] = []
    for ended in (2, 4):
        async for state in runner.states():
            now = [arm.letter for arm in state.arms if arm.status in ("launching", "running")]
            assert len(now) <= 1
            if now and (not seen or (state.at, now[0]) != seen[-1]):
                seen.append((state.at, now[0]))
        assert (state.finished, state.at) == (True, ended)
        if ended == 2:
            runner.more_pairs(1)
            assert (runner.state().finished, runner.state().pairs) == (False, 2)
    order = runner.record.order
    assert order == (*order[:2], *order[1::-1])
    assert seen == list(enumerate(order))
    assert (state.finished, state.message, state.at) == (True, "done", 4)
    assert [arm.status for arm in state.arms] == [ArmStatus.MEASURED] * 2

    # What the host saw: one server at a time, in that order.
    ran = await servers(demo)
    assert [one.profile for one in ran] == [{"A": A, "B": B}[letter] for letter in order]
    assert all(one.state is RunState.EXITED and one.stopped_by_us for one in ran)
    record = runner.record
    assert [cell.run_id for cell in record.cells] == [one.run_id for one in ran]

    # What is stored says the same.
    assert experiment_record.read(record.experiment_id) == record
    for cell in record.cells:
        for name in cell.result_ids:
            result = store.read(name)
            assert result is not None
            assert (result.experiment, result.arm) == (record.experiment_id, cell.arm)
            assert (result.launch_number, result.pair_number) == (cell.number, cell.pair)
            assert result.server.run_id == cell.run_id
            assert result.load.seed == record.seed + cell.pair  # both sides of a pair get the same prompts
    stored = stored_state(record)
    assert stored.arms == state.arms
    assert stored.verdicts == state.verdicts
    assert state.verdicts[0].verdict is VerdictKind.INVALID  # the runs are too short to count
    assert record.cells[0].spent_s > 0


async def test_a_failing_arm_is_out_and_the_others_go_on(demo: HostSession, lab: Lab) -> None:
    runner = lab.runner(demo, lab.profile(A, "kimi-k2.5-eagle3-mem076", pairs=2))
    state = await run(runner)
    arms = {arm.letter: arm for arm in state.arms}
    assert [arm.status for arm in state.arms] == [ArmStatus.MEASURED, ArmStatus.FAILED]
    assert (arms["B"].cause, arms["B"].phase, arms["B"].launches_done) == ("oom_kv_pool", "memory_pool", 0)
    assert arms["A"].launches_done == 2
    first, second = (cell for cell in runner.record.cells if cell.arm == "B")
    assert first.advice
    assert 0.84 <= float(str(first.change["mem-fraction-static"])) <= 0.90
    assert second.status is ArmStatus.SKIPPED
    assert str(first.number) in (second.reason or "")
    assert second.run_id is None
    assert len(await servers(demo)) == 3
    assert await alive(demo) == []
    assert state.verdicts[0].verdict is VerdictKind.INVALID


async def test_a_launch_that_is_refused_is_a_failure_too(demo: HostSession, lab: Lab) -> None:
    runner, taken = lab.runner(demo, lab.profile(A, B)), None
    try:
        async with aclosing(runner.states()) as states:
            async for state in states:
                if state.at == 1 and taken is None:  # by somebody else, between two launches
                    taken = socket.create_server(("127.0.0.1", int(lab.sets["port"])))
    finally:
        if taken is not None:
            taken.close()
    first, second = (next(arm for arm in state.arms if arm.letter == letter) for letter in runner.record.order)
    assert (first.status, second.status, second.cause) == (ArmStatus.MEASURED, ArmStatus.FAILED, "preflight")
    assert str(lab.sets["port"]) in (second.reason or "")
    assert len(await servers(demo)) == 1


async def test_an_arm_whose_pre_flight_fails_is_said_before_anything_is_launched(demo: HostSession, lab: Lab) -> None:
    profile = lab.profile(A, B)
    wrong = replace(profile.arms[1], sets={**lab.sets, "model-path": "/data/models/not-there"})
    runner = lab.runner(demo, replace(profile, arms=(profile.arms[0], wrong)))
    with pytest.raises(ArmsRefused, match=f"nothing was launched: arm B, {B}: model: /data/models/not-there"):
        await run(runner)
    assert await servers(demo) == []
    assert experiment_record.read(runner.record.experiment_id) is None  # nothing to resume
    refused = runner.state()
    assert (refused.at, refused.finished) == (0, False)


async def test_a_server_of_ours_in_the_way_is_no_failed_pre_flight(demo: HostSession, lab: Lab) -> None:
    other = load_launch(A, [shipped_profiles_dir()], lab.sets)
    in_the_way = await started(demo.launch(await demo.plan(other, lab.sets)))
    arms = await arms_ahead(lab.runner(demo, lab.profile(A, B)).sites, lambda text: None)
    assert [arm.blocking for arm in arms] == [(), ()]
    assert [[run.run_id for run in arm.plan.replaces] for arm in arms] == [[in_the_way.run_id]] * 2


async def test_a_server_that_dies_while_it_is_measured(demo: HostSession, lab: Lab) -> None:
    long = replace(BENCH, duration_s=300.0)
    runner = lab.runner(demo, lab.profile(A, B), long)
    killed = False
    async with aclosing(runner.states()) as states:
        async for state in states:
            if live(state) and not killed:
                killed = True
                (server,) = [one for one in await alive(demo) if one.kind == "server"]
                assert server.pid is not None
                os.kill(server.pid, signal.SIGKILL)
            if state.at == 1:
                break
    cell = runner.record.cells[0]
    assert cell.status is ArmStatus.FAILED
    assert cell.cause not in ("server_lost", None)  # its log and exit say more
    assert [one for one in await alive(demo) if one.run_id in (cell.run_id, cell.bench_run_id)] == []
    runner.stop()


async def test_a_launch_that_was_lost_by_chance_is_made_up_for_at_the_end(demo: HostSession, lab: Lab) -> None:
    runner = lab.runner(
        demo, lab.profile(A, B), replace(BENCH, duration_s=6.0)
    )  # long enough for the stop to come in time
    stopped = False
    async for state in runner.states():
        if live(state) and not stopped:
            stopped = True
            (server,) = [one for one in await alive(demo) if one.kind == "server"]
            await control.stop(demo.transport, server.run_id, 0)  # somebody else
    cells = runner.record.cells
    assert (cells[0].status, cells[0].cause) == (ArmStatus.FAILED, "stopped")
    assert [cell.pair for cell in cells] == [1, 1, 2, 2]
    assert [cell.status for cell in cells[1:]] == [ArmStatus.MEASURED] * 3
    assert (state.message, len(await servers(demo))) == ("done", 4)


async def test_pause_measures_to_the_end_frees_the_gpus_and_waits(demo: HostSession, lab: Lab) -> None:
    runner = lab.runner(demo, lab.profile(A, B))
    paused = False
    async with aclosing(runner.states()) as states:
        async for state in states:
            if state.at == 0 and live(state):
                runner.pause()
            if state.paused and state.message == "paused":
                paused = True
                assert state.at == 1
                assert await alive(demo) == []
                runner.resume()
    assert paused
    assert (state.at, state.message, state.paused) == (2, "done", False)


async def test_stop_stops_what_it_launched_and_can_be_taken_up(demo: HostSession, lab: Lab) -> None:
    profile = lab.profile(A, B)
    long = replace(BENCH, duration_s=300.0)
    runner = lab.runner(demo, profile, long)
    async for state in runner.states():
        if live(state):
            assert len(await alive(demo)) == 2
            runner.stop()
    assert (state.finished, state.message) == (True, "stopped")
    assert await alive(demo) == []
    assert experiment_record.unfinished("x", "demo") == runner.record
    assert runner.record.cells[0].status is ArmStatus.QUEUED
    # Paused is no way around it.
    again = lab.runner(demo, profile, long, runner.record)
    again.pause()
    async for state in again.states():
        if state.message == "paused":
            again.stop()
    assert state.message == "stopped"


async def test_what_would_exceed_the_budget_is_not_begun(demo: HostSession, lab: Lab) -> None:
    profile = lab.profile(A, B, pairs=3, budget_h=1e-6)
    runner = lab.runner(demo, profile)
    state = await run(runner)
    assert state.at == 1  # nothing was known of how long a launch takes
    assert (runner.record.outcome, state.finished) == ("budget", True)
    assert state.message == "the budget of 1e-06 h leaves no room for more after 1 of 6 launches"
    assert experiment_json(runner)["error"] == "nothing_comparable"  # not one pair: no verdict
    # With more of it, it goes on; but no pair is begun that would not end.
    length_h = runner.record.cells[0].spent_s / 3600
    profile = replace(profile, budget_h=3.6 * length_h)
    again = lab.runner(demo, profile, record=runner.record)
    state = await run(again)
    assert state.at == 2
    assert again.record.outcome == "budget"


async def test_no_pair_is_added_where_the_looks_are_fixed(demo: HostSession, lab: Lab) -> None:
    fixed = lab.runner(demo, lab.profile(A, B, pairs=5, looks=(3, 5)))
    with pytest.raises(UsageError, match="looks at 3, 5 pairs"):
        fixed.more_pairs(1)


async def test_only_eagletuis_own_driver_measures(demo: HostSession, lab: Lab) -> None:
    with pytest.raises(UsageError, match="driver sglang"):
        lab.runner(demo, lab.profile(A, B), replace(BENCH, driver="sglang"))


async def test_a_lost_link_is_waited_for(demo: HostSession, lab: Lab, make_tcp_proxy, fast_timing) -> None:
    target = await ensure_demo()
    proxy = await make_tcp_proxy(target.port)

    async def through_proxy() -> object:
        return replace(target, port=proxy.port)

    transport = SshTransport("demo", through_proxy, SilentAsker(), timing=fast_timing)
    session = HostSession(HostEntry("demo", "demo"), transport)
    await session.open()
    runner = lab.runner(session, lab.profile(A, B))
    cuts: set[object] = set()
    async for state in runner.states():
        arms = [(arm.letter, arm.phase, arm.live and arm.live.phase) for arm in state.arms]
        now = next((arm for arm in arms if arm[1] or arm[2]), None)
        # At each step of the first launches; a link that is not up yet cannot be cut.
        if now not in cuts and len(cuts) < 8 and transport.status().state is LinkState.UP:
            cuts.add(now)
            proxy.reset()
    assert proxy.accepted > len(cuts) >= 3
    assert (state.at, state.message) == (2, "done")
    assert len(await servers(demo)) == 2  # none was launched twice
    await session.close()


async def test_a_running_server_is_measured_as_one_arm(demo: HostSession, lab: Lab) -> None:
    profile = load_launch(B, [shipped_profiles_dir()], lab.sets)
    server = await started(demo.launch(await demo.plan(profile, lab.sets)))
    async with aclosing(demo.watch(server)) as updates:
        async for update in updates:
            if update.state.outcome == "ready":
                break
    bench = replace(BENCH, runs=2)
    states = [state async for state in measure_running(demo, bench, of_run(server))]
    assert any(live(state) for state in states)
    last = states[-1]
    assert (last.finished, last.at, last.order) == (True, 1, ("A",))
    (arm,) = last.arms
    assert (arm.profile, arm.status) == (B, ArmStatus.MEASURED)
    assert [result.run_index for result in arm.results] == [1, 2]
    assert arm.sets == lab.sets
    assert (await demo.find_run(server.run_id)).state is RunState.RUNNING


# --- killed in the middle ---------------------------------------------------------------------------------------------


@pytest.fixture
def command(own_home: Path, port: int):
    made = Command(own_home, port)
    yield made
    if made.process is not None and made.process.poll() is None:
        made.process.kill()
        made.process.communicate()


async def test_killed_while_it_measures_it_is_taken_up_without_a_new_launch(
    demo: HostSession, command: Command
) -> None:
    command.start("--seed", "1")
    await command.on_host(demo, "bench")
    before = await command.kill()
    assert before.outcome not in FINISHED
    assert before.cells[0].result_ids == ()
    running = {one.run_id for one in await alive(demo)}
    assert running >= {before.cells[0].run_id}  # the host goes on by itself
    document = await command.finish("--resume")
    first = document["launches"][0]
    assert (first["run"], first["bench_run"][:6]) == (before.cells[0].run_id, "blink-")
    assert before.cells[0].bench_run_id in {name.rsplit("-", 2)[0] for name in first["results"]}
    assert [launch["status"] for launch in document["launches"]] == ["measured", "measured"]
    assert document["experiment"] == before.experiment_id
    assert len(await servers(demo)) == 2
    assert await alive(demo) == []
    assert len({result["result"] for result in document["results"]}) == len(document["results"])


async def test_what_ended_while_nobody_looked_is_collected(demo: HostSession, command: Command) -> None:
    command.start("--seed", "1")
    await command.on_host(demo, "bench")
    before = await command.kill()
    bench_run_id = before.cells[0].bench_run_id or ""

    async def over() -> bool:
        found = [one for one in await demo.runs() if one.run_id == bench_run_id]
        return bool(found) and found[0].state is RunState.EXITED

    async with asyncio.timeout(60):
        while not await over():  # noqa: ASYNC110 - it happens on the host
            await asyncio.sleep(0.1)
    server = await demo.find_run(before.cells[0].run_id or "")
    async for _ in demo.stop(server):
        pass
    document = await command.finish("--resume")
    assert document["launches"][0]["run"] == before.cells[0].run_id  # it was complete: not launched again
    assert document["launches"][0]["results"] == [f"{bench_run_id}-c8-1", f"{bench_run_id}-c8-2"]
    assert len(await servers(demo)) == 2


async def test_a_launch_whose_server_is_gone_is_made_again(demo: HostSession, command: Command) -> None:
    command.start("--seed", "1")
    await command.on_host(demo, "bench", number=2)
    before = await command.kill()
    for one in await alive(demo):
        async for _ in demo.stop(one):
            pass
    document = await command.finish("--resume")
    assert document["launches"][0]["run"] == before.cells[0].run_id
    assert document["launches"][0]["results"] == list(before.cells[0].result_ids)
    assert document["launches"][1]["run"] != before.cells[1].run_id
    assert [launch["status"] for launch in document["launches"]] == ["measured", "measured"]
    assert len(await servers(demo)) == 3  # one launch was lost


async def test_interrupted_it_says_how_to_go_on(demo: HostSession, command: Command) -> None:
    process = command.start("--seed", "1")
    await command.on_host(demo, "server")
    process.send_signal(signal.SIGINT)
    out, _ = await asyncio.to_thread(process.communicate, timeout=60)
    assert process.returncode == 130
    document = json.loads(out)
    assert document["error"] == "interrupted"
    where = command.home / "profiles"
    assert document["hint"].endswith(f"eagletui --profiles {where} experiment x --host demo --resume")
    assert await alive(demo)
    # A second one of its own would take the GPUs from it: it begins only when asked for, and says what is left.
    again = command.start("--resume")
    await command.on_host(demo, "bench")
    second = subprocess.run(again.args, cwd=command.home, capture_output=True, text=True)  # type: ignore[call-overload]
    assert second.returncode == 1
    assert json.loads(second.stdout)["error"] == "busy"
    again.kill()
    again.communicate()


async def test_nothing_to_resume_is_said(demo: HostSession, command: Command) -> None:
    process = command.start("--resume")
    out, _ = await asyncio.to_thread(process.communicate, timeout=60)
    assert process.returncode == 2
    assert json.loads(out)["error"] == "nothing_to_resume"
