"""An experiment inside one allocation of a real Slurm: launch after launch on the same nodes, taken over, given back."""

import os
import sys
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.core.slurm.conftest import Lab, run_of
from tests.support.slurm import free_port
from tui.core.errors import UsageError
from tui.core.experiment import holding, launching, so_far
from tui.core.experiment import runner as runner_module
from tui.core.experiment.failure import LaunchFailed
from tui.core.experiment.holding import Holding
from tui.core.experiment.launching import Site
from tui.core.experiment.record import ExperimentRecord
from tui.core.experiment.runner import ExperimentRunner, begin, resumed
from tui.core.groups.jobs import group_for, job_launch
from tui.core.groups.session import GroupPlan
from tui.core.model.experiment import ArmStatus, ExperimentState
from tui.core.model.group import Group
from tui.core.model.job import JobEnd
from tui.core.model.phases import Outcome
from tui.core.model.profile import BenchProfile, ExperimentArm, ExperimentProfile, LoadPoint
from tui.core.profiles.launch_profile import LaunchProfile, SlurmTable
from tui.core.slurm import helper
from tui.core.slurm.script import hold_script, sbatch_options

WORKER = Path(__file__).parents[2] / "support/fake_worker.py"
BIN = Path(__file__).parents[2] / "bin"
QUICK = BenchProfile("quick", (LoadPoint(concurrency=2),), output_len=40, duration_s=0.5, runs=1)
ARMS = (ExperimentArm("A", "one"), ExperimentArm("B", "one", {"settings": '{"tick_ms": 4}'}, against="A"))


class Held:
    """An allocation and launches in it, without an experiment around them."""

    def __init__(self, lab: Lab, name: str = "hold-x", **table: object) -> None:
        self.lab, self.name = lab, name
        self.table = {"hold": True, **table}

    async def ask(self, idle_s: int = 1800) -> helper.Allocation:
        slurm = SlurmTable(nodes=2, time="30", **{k: v for k, v in self.table.items() if k != "hold"})  # type: ignore[arg-type]
        options = sbatch_options(slurm, f"{self.name}-@N@", 1)
        script = hold_script(options, f"{self.name}-@N@", idle_s)
        return await helper.hold(self.lab.session.transport, self.name, script)

    async def launch(self, held: helper.Allocation, env: dict[str, str] | None = None) -> Group:
        profile = self.lab.profile(env, **self.table)
        group = group_for(profile, "login")
        made = job_launch(profile, self.lab.session.entry, group)
        request = replace(made.request, into=held.hold_id)
        assert await self.lab.submitted(GroupPlan(group, (), (), replace(made, request=request))) == held.job.job_id
        return group

    async def release(self) -> None:
        await helper.release(self.lab.session.transport, self.name)


async def test_one_launch_after_the_other_and_the_job_is_completed_at_the_end(lab: Lab) -> None:
    held = Held(lab)
    allocation = await held.ask()
    assert allocation.used is False
    nodes = set()
    for _ in range(2):
        group = await held.launch(allocation)
        state = await lab.until(group, Outcome.READY)
        nodes.add(tuple(run_of(state, rank).node for rank in (0, 1)))
        assert (await lab.stop(group))[-1] == "done"
        state = await lab.end(group)
        assert (state.outcome, run_of(state).exit_code) == (Outcome.STOPPED, 0)
        assert lab.slurm.state(allocation.job.job_id) == "RUNNING"
        again = await held.ask()
        assert (again.hold_id, again.job.job_id, again.used) == (allocation.hold_id, allocation.job.job_id, True)
    assert nodes == {("n1", "n2")}
    await held.release()
    ended = lab.slurm.wait(allocation.job.job_id)
    assert (ended["JobState"], ended["ExitCode"]) == ("COMPLETED", "0:0")
    assert (await held.ask()).hold_id == "hold-x-2"
    await held.release()


async def test_a_launch_that_fails_or_does_not_drain_leaves_the_allocation_as_it_is(lab: Lab) -> None:
    held = Held(lab)
    allocation = await held.ask()
    state = await lab.end(await held.launch(allocation, {"FAIL": "1"}))
    assert (state.outcome, state.failed and state.failed.name) == (Outcome.CRASHED, "rank 1")
    deaf = await held.launch(allocation, {"IGNORE_TERM": "1"})
    waits = await held.launch(allocation)
    await lab.until(deaf, Outcome.READY)
    assert run_of(await lab.until(waits, Outcome.STARTING)).node is None  # one after the other
    assert (await lab.stop(waits))[-1] == "done"  # which never began
    assert (await lab.stop(deaf, grace_s=1.0))[-1] == "done"
    assert [(await lab.end(one)).outcome for one in (waits, deaf)] == [Outcome.STOPPED] * 2
    assert lab.slurm.state(allocation.job.job_id) == "RUNNING"
    await held.release()


async def test_a_node_that_fails_while_it_is_held_ends_the_launch_and_another_is_asked_for(lab: Lab) -> None:
    held = Held(lab)
    allocation = await held.ask()
    group = await held.launch(allocation)
    await lab.until(group, Outcome.READY)
    lab.slurm.stop_node("n2")
    lab.slurm("scontrol", "update", "nodename=n2", "state=down", "reason=pulled")
    state = await lab.end(group)
    job = run_of(state).job
    assert job is not None
    assert (state.outcome, job.end) == (Outcome.CRASHED, JobEnd.NODE_FAILURE)
    lab.slurm.start_node("n2")
    assert (await held.ask()).hold_id == "hold-x-2"
    await held.release()


async def test_what_nobody_wants_any_more_is_given_back_with_its_server(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holding, "_KEEP_S", 0.5)
    site = Site.of(lab.groups, lab.profile(hold=True), {}, "login")
    wanted = Holding("x", {"A": site})
    held = Held(lab)
    allocation = await held.ask(idle_s=4)
    async with wanted.kept():
        group = await held.launch(allocation)
        await lab.until(group, Outcome.READY)
        await lab.stop(group)
        group = await held.launch(allocation)
        await lab.until(group, Outcome.READY)
        assert lab.slurm.state(allocation.job.job_id) == "RUNNING"
    ended = lab.slurm.wait(allocation.job.job_id)  # nobody says so any more
    assert (ended["JobState"], ended["ExitCode"]) == ("COMPLETED", "0:0")
    assert run_of(await lab.end(group)).exit_code == 0  # drained


async def test_a_launch_that_can_never_run_is_a_failure_that_waiting_does_not_cure(lab: Lab) -> None:
    profile = lab.profile(partition="single")
    group = group_for(profile, "login")
    plan = GroupPlan(group, (), (), job_launch(profile, lab.session.entry, group))
    await lab.submitted(plan)
    site = Site.of(lab.groups, profile, {}, "login")
    server = await launching.find_server(site, group.group_id, print)
    assert server is not None
    with pytest.raises(LaunchFailed) as raised:
        [_ async for _ in launching.until_ready(site, server)]
    failure = raised.value.failure
    assert (failure.cause, failure.certain) == ("never_runs", True)
    assert "it can never run" in failure.reason
    await launching.stop(site, server, print)


# ---- an experiment -----------------------------------------------------------------------------------------------------


class Experiment:
    """Two arms of a server that answers, one after the other."""

    def __init__(self, lab: Lab, **table: object) -> None:
        slurm = SlurmTable(**{"gpus_per_node": 1, "time": "30", "hold": True, **table})  # type: ignore[arg-type]
        args = {"model-path": "/models/tiny", "port": free_port(), "settings": '{"tick_ms": 3}'}
        one = LaunchProfile(
            "one",
            Path("one.toml"),
            command=(sys.executable, str(WORKER)),
            args=args,
            slurm=slurm,
            startup_timeout_s=60.0,
        )
        self.groups = lab.groups
        self.launches = {arm.letter: replace(one, args={**args, **arm.sets}) for arm in ARMS}

    def runner(self, record: ExperimentRecord | None = None) -> ExperimentRunner:
        profile = ExperimentProfile("held", QUICK.name, ARMS, pairs=1)
        if record is None:
            record = begin(profile, QUICK, self.launches, "login", seed=1)
        else:
            record = resumed(record, profile, QUICK, self.launches)
        return ExperimentRunner(self.groups, record, profile, self.launches)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    # Whether these short runs count is not the matter.
    monkeypatch.setattr(runner_module, "_REPEATS", 0)
    monkeypatch.setattr(so_far, "_MADE_UP", 0)
    monkeypatch.setenv("PATH", f"{BIN}:{os.environ['PATH']}")  # nvidia-smi's stand-in


async def run(runner: ExperimentRunner, until: Callable[[ExperimentState], object] | None = None) -> ExperimentState:
    async with aclosing(runner.states()) as states:
        async for state in states:
            if until is not None and until(state):
                return state
    return state


@pytest.mark.usefixtures("quick")
async def test_whoever_resumes_an_experiment_takes_its_allocation_over(lab: Lab) -> None:
    def jobs() -> set[str]:
        return set(lab.slurm("squeue", "-h", "-t", "all", "-o", "%i").split())

    before = jobs()
    experiment = Experiment(lab)
    killed = experiment.runner()
    await run(killed, lambda state: any(arm.live is not None for arm in state.arms))
    (job,) = jobs() - before
    again = experiment.runner(killed.record)

    def second(state: ExperimentState) -> bool:
        if again.record.cells[1].status is ArmStatus.LAUNCHING:
            again.stop()
        return state.finished

    await run(again, second)
    first = again.record.cells[0]
    assert first.status is ArmStatus.MEASURED, first.reason
    assert first.run_id == killed.record.cells[0].run_id  # the server lived on
    assert {result.server.nodes for result in again.results()} == {("n1",)}
    ended = lab.slurm.wait(job)
    assert (ended["JobState"], ended["ExitCode"]) == ("COMPLETED", "0:0")
    assert jobs() - before == {job}


async def test_a_launch_that_would_not_end_in_time_is_said_and_gets_another_allocation(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site.of(lab.groups, lab.profile(hold=True), {}, "login")
    wanted = Holding("x", {"A": site, "B": site})
    said: list[str] = []
    first = await wanted.room_for(site, {1: 600.0, 2: 600.0}, 1200.0, said.append)
    held = await helper.hold(lab.session.transport, wanted.name, "")
    lab.slurm.wait(held.job.job_id, "RUNNING")
    await wanted.room_for(site, {2: 600.0, 3: 700.0, 4: 600.0}, 600.0, said.append)
    assert said == [f"launch 4 would not end before the allocation does (job {held.job.job_id})"]
    (lab.directory / f"slurm/eagletest/holds/{held.hold_id}/used").touch()
    second = await wanted.room_for(site, {3: 2000.0}, 2000.0, said.append)
    assert said[1:] == [
        f"launch 3 would not end before the allocation does (job {held.job.job_id}): another allocation is asked for"
    ]
    assert (first.into, second.into) == ("hold-x-1", "hold-x-2")
    assert lab.slurm.wait(held.job.job_id)["JobState"] == "COMPLETED"
    await wanted.release(said.append)


def test_arms_that_do_not_fit_into_one_allocation_are_refused(lab: Lab) -> None:
    def site(**table: object) -> Site:
        return Site.of(lab.groups, lab.profile(**table), {}, "login")

    Holding("x", {"A": site(hold=True), "B": site()})  # one that asks for it is enough
    Holding("x", {"A": site(), "B": site(nodes=1)})  # nobody asks for it
    with pytest.raises(UsageError, match=r"arms A and B ask Slurm for different things \(--nodes=1\)"):
        Holding("x", {"A": site(hold=True), "B": site(nodes=1)})
    plain = replace(site(), profile=replace(site().profile, slurm=None))
    with pytest.raises(UsageError, match="not every arm is a job"):
        Holding("x", {"A": site(hold=True), "B": plain})
