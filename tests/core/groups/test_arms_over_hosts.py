"""Arms of an experiment that are groups over two hosts: one server over both against prefill, decode and router on both."""

import os
import sys
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.role_lab import WORKER, RoleLab
from tests.support.run_lab import free_port
from tui.core.bench.other_hosts import NO_LINK
from tui.core.errors import HostError, LinkLost
from tui.core.experiment import record as experiment_record
from tui.core.experiment import runner as runner_module
from tui.core.experiment import so_far
from tui.core.experiment.ahead import ArmsRefused
from tui.core.experiment.launching import Site
from tui.core.experiment.runner import ExperimentRunner, begin, resumed
from tui.core.groups import session as group_session
from tui.core.groups.session import GroupSession
from tui.core.model.experiment import ArmStatus, ExperimentState
from tui.core.model.profile import BenchProfile, ExperimentArm, ExperimentProfile, LoadPoint
from tui.core.profiles.launch_profile import LaunchProfile, NodesTable
from tui.core.runs import control, leases

pytestmark = pytest.mark.timeout(300)
BIN = Path(__file__).parents[2] / "bin"
QUICK = BenchProfile("quick", (LoadPoint(concurrency=2),), output_len=40, duration_s=0.5, runs=1)
ARMS = (ExperimentArm("A", "nodes"), ExperimentArm("B", "split", against="A"))


class Lab:
    """Unsplit and split over the same two hosts, which have two GPUs each."""

    def __init__(self, sessions, directory: Path, router_python: str) -> None:
        for name, session in sessions.items():
            (directory / f"pids-of-{name}").touch()
            session.transport._env |= {
                "PATH": f"{BIN}:{os.environ['PATH']}",
                "FAKE_PIDS_FILE": str(directory / f"pids-of-{name}"),
            }
        self.sessions = sessions
        self.hosts = GroupSession(sessions)
        self.split = RoleLab(sessions, directory, router_python)
        self.split.decode_ready.touch()
        self.port, self.dist_port = free_port(), free_port()

    def launches(self, **nodes: object) -> dict[str, LaunchProfile]:
        args = {"model-path": "/models/tiny", "tp-size": 2, "port": self.port, "settings": '{"tick_ms": 3}'}
        whole = LaunchProfile(
            "nodes", Path("nodes.toml"), command=(sys.executable, str(WORKER)), args=args, gpus=(0, 1),
            startup_timeout_s=120.0, nodes=NodesTable(("gpu1", "gpu2"), dist_port=self.dist_port),
        )  # fmt: skip
        ready = f'args = {{ ready-file = "{self.split.decode_ready}" }}'
        parts = self.split.profile(
            prefill='host = "gpu1"\ngpus = [0]\nenv = { SGLANG_X = "1", HF_TOKEN = "hf_secret0123456789abcdefghijkl" }',
            decode=f'host = "gpu2"\ngpus = [1]\n{ready}',
            router='host = "gpu1"',
        )
        return {"A": replace(whole, **nodes), "B": parts}

    def runner(self, launches: dict[str, LaunchProfile], record=None) -> ExperimentRunner:
        profile = ExperimentProfile("does-splitting-pay", QUICK.name, ARMS, pairs=1)
        if record is None:
            record = begin(profile, QUICK, launches, "gpu9", seed=1)
        else:
            record = resumed(record, profile, QUICK, launches)
        return ExperimentRunner(self.hosts, record, profile, launches)

    async def alive(self) -> dict[str, list[str]]:
        """Servers and measurements that live, by host; samplers end by themselves."""
        return {
            name: [run.run_id for run in await control.list_runs(session.transport) if run.active and not run.stop]
            for name, session in self.sessions.items()
        }


@pytest.fixture
def lab(make_hosts, tmp_path, router_python, monkeypatch):
    # Whether these short runs count is not the matter: each arm is launched and measured once.
    monkeypatch.setattr(runner_module, "_REPEATS", 0)
    monkeypatch.setattr(so_far, "_MADE_UP", 0)
    monkeypatch.setattr(group_session, "_FOLLOW_S", 1.0)  # a stand-in's rank 1 is not told to end by its rank 0
    return Lab(make_hosts("gpu1", "gpu2"), tmp_path, router_python)


async def to_the_end(runner: ExperimentRunner) -> ExperimentState:
    async with aclosing(runner.states()) as states:
        async for state in states:
            last = state
    return last


async def test_unsplit_against_split_over_the_same_hosts_ends_in_a_verdict(lab: Lab):
    runner = lab.runner(lab.launches())
    assert (runner.record.host, runner.record.all_hosts) == ("gpu1", ("gpu1", "gpu2"))
    locked: set[tuple[object, ...]] = set()
    async with aclosing(runner.states()) as states:
        async for state in states:
            last = state
            if runner.record.cells[0].run_id is not None and not state.finished:
                held = [await leases.on_host(lab.sessions[host].transport) for host in ("gpu1", "gpu2")]
                locked |= {(one.lease_id == runner.record.experiment_id, one.gpus) for host in held for one in host}
    assert last.finished
    assert [arm.status for arm in last.arms] == [ArmStatus.MEASURED] * 2, [arm.reason for arm in last.arms]
    assert locked == {(True, (0, 1))}  # both hosts, from the first launch on
    assert [await leases.on_host(session.transport) for session in lab.sessions.values()] == [(), ()]
    assert last.hosts == ("gpu1", "gpu2")
    (verdict,) = last.verdicts  # of runs that are too short to count
    assert {verdict.a.ref, verdict.b.ref} == {"A", "B"}
    whole, split = (arm.results[0] for arm in last.arms)
    assert [(one.name, one.host) for one in whole.server.members] == [("rank 1", "gpu2"), ("rank 0", "gpu1")]
    assert [(one.name, one.host) for one in split.server.members] == [
        ("prefill 0", "gpu1"), ("decode 0", "gpu2"), ("router", "gpu1"),
    ]  # fmt: skip
    # The GPUs of both are sampled, and what both hosts are is kept.
    for result, count in ((whole, 2), (split, 1)):
        assert [one.host for one in result.gpu.hosts] == ["gpu1", "gpu2"]
        assert NO_LINK not in [one.missing for one in result.gpu.hosts]  # on a busy machine a second may have no sample
        workers = [one for one in result.server.members if one.name != "router"]
        assert all(len(one.gpu_names) == count and one.driver for one in workers)
    prefill = split.server.members[0]
    assert prefill.env["SGLANG_X"] == "1"
    assert "hf_secret" not in str(prefill.env)
    left = await lab.alive()
    assert left == {"gpu1": [], "gpu2": []}


async def test_whoever_is_killed_while_it_measures_goes_on_with_the_same_group(lab: Lab):
    launches = lab.launches()
    killed = lab.runner(launches)
    async with aclosing(killed.states()) as states:
        async for state in states:
            if any(arm.live is not None for arm in state.arms):
                break
    before = experiment_record.read(killed.record.experiment_id)
    first = before.cells[0]
    alive = await lab.alive()
    assert all(alive.values())  # both hosts go on by themselves
    again = lab.runner(launches, before)
    last = await to_the_end(again)
    assert [arm.status for arm in last.arms] == [ArmStatus.MEASURED] * 2, [arm.reason for arm in last.arms]
    assert (again.record.cells[0].run_id, again.record.cells[0].bench_run_id) == (first.run_id, first.bench_run_id)
    assert all(one.gpu.hosts[1].missing != NO_LINK for arm in last.arms for one in arm.results)
    assert await lab.alive() == {"gpu1": [], "gpu2": []}


async def test_an_arm_that_cannot_be_launched_on_its_second_host_is_said_before_anything_is(lab: Lab):
    launches = lab.launches()
    launches["B"] = replace(launches["B"], group=tuple(
        replace(table, port=lab.split.prefill_port, host="gpu1") if table.name == "decode 0" else table
        for table in launches["B"].group
    ))  # fmt: skip
    runner = lab.runner(launches)
    with pytest.raises(ArmsRefused, match=r"arm B, split: group: port \d+ of gpu1 is taken by prefill 0"):
        await to_the_end(runner)
    assert await lab.alive() == {"gpu1": [], "gpu2": []}
    assert experiment_record.read_all() == []


def test_without_a_session_with_each_host_nothing_begins(lab: Lab):
    launches = lab.launches(nodes=NodesTable(("gpu1", "gpu7")))
    with pytest.raises(HostError, match="gpu7: not connected"):
        lab.runner(launches)


def test_other_hosts_are_another_configuration(lab: Lab):
    here, there = lab.launches()["A"], lab.launches(nodes=NodesTable(("gpu1", "gpu7")))["A"]
    assert experiment_record.configuration_sum(here) != experiment_record.configuration_sum(there)


async def test_the_link_that_is_down_is_the_one_that_is_waited_for(lab: Lab):
    site = Site.of(lab.hosts, lab.launches()["A"], {}, "gpu1")
    told: list[str] = []
    gpu2 = lab.sessions["gpu2"].transport

    async def call() -> str:
        if not told:
            gpu2.down = True
            raise LinkLost("gpu2: the link is down")
        return "answered"

    def tell(text: str) -> None:
        told.append(text)
        gpu2.down = False

    assert await site.patiently(call, tell) == "answered"
    assert told == ["waiting for the link to gpu2"]
