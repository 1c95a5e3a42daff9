"""A group measured through the real router, and compared with one server on the same host as an experiment."""

import json
import sys
from contextlib import aclosing
from dataclasses import replace

import pytest

from tests.support.role_lab import WORKER, RoleLab
from tui.core.bench import bench_run, target
from tui.core.errors import EagletuiError, UsageError
from tui.core.experiment.runner import ExperimentRunner, begin
from tui.core.model.experiment import ArmStatus, ExperimentState
from tui.core.model.phases import Outcome
from tui.core.model.profile import BenchProfile, ExperimentArm, ExperimentProfile, LoadPoint
from tui.core.model.result import GuardStatus, Result
from tui.core.profiles.launch_profile import LaunchProfile
from tui.core.profiles.load import load_launch

pytestmark = pytest.mark.timeout(300)
QUICK = BenchProfile("quick", (LoadPoint(concurrency=2),), output_len=40, duration_s=0.5, runs=1)


@pytest.fixture
def lab(make_hosts, tmp_path, router_python):
    lab = RoleLab(make_hosts("gpu1"), tmp_path, router_python)
    lab.decode_ready.touch()
    return lab


async def test_a_group_is_measured_through_its_router_and_the_result_says_who_made_it_up(lab: RoleLab):
    group = await lab.launch(await lab.plan(prefill='env = { SGLANG_X = "1" }'))
    session = lab.groups.of(group.serving)
    with pytest.raises(EagletuiError, match="is not ready"):
        await target.of_group(lab.groups, replace(group, members=group.members[::2]))  # a router without its decode
    async with aclosing(lab.states(group)) as states:
        async for state in states:
            if state.outcome is Outcome.READY:
                break
    router = (await lab.runs(group))["router"]
    measured = await target.of_member(session, router)
    assert str(measured) == group.group_id
    run = await bench_run.start(session, QUICK, measured)
    (result,) = [news async for news in bench_run.follow_run(session, run) if isinstance(news, Result)]

    server = result.server
    assert (server.run_id, server.profile, server.url) == (group.group_id, "split", f"http://127.0.0.1:{lab.port}")
    assert [(one.name, one.host, one.run_id) for one in server.members] == [
        (member.name, "gpu1", member.run_id) for member in group.members
    ]
    assert server.members[0].url == f"http://127.0.0.1:{lab.prefill_port}"
    assert "--disaggregation-bootstrap-port" in server.members[0].argv
    assert server.args["disaggregation_mode"] == "decode"  # the first decode speaks for the whole
    assert server.version == "0.5.23"

    # Tokens are counted by the decode, and hold against what came through the router.
    assert result.counts.errors == 0
    assert result.counts.ok
    assert result.counts.server_output_tokens == result.counts.output_tokens == 40 * result.counts.ok
    status = {guard.id: guard.status for guard in result.guards}
    assert status["tokens"] is GuardStatus.OK
    assert status["cache"] is GuardStatus.OK
    assert status["server"] is GuardStatus.OK, [guard.text for guard in result.guards if guard.id == "server"]

    # One host is not enough where it has others.
    elsewhere = {"group": {**router.extra["group"], "members": [
        *router.extra["group"]["members"], {"role": "decode", "number": 1, "host": "gpu2", "run_id": "x"}]}}  # fmt: skip
    with pytest.raises(UsageError, match="runs on gpu1, gpu2"):
        await target.of_member(session, replace(router, extra=elsewhere))


def unsplit(lab: RoleLab) -> LaunchProfile:
    """One server of its own, on the same host."""
    (lab.directory / "whole.toml").write_text(
        f'kind = "launch"\ncommand = ["{sys.executable}", "{WORKER}"]\nstartup_timeout_s = 120\n'
        f'[args]\nmodel-path = "/models/tiny"\nport = {lab.port}\nsettings = {json.dumps(json.dumps({"tick_ms": 3}))}\n'
    )
    return load_launch("whole", [lab.directory])


async def compared(lab: RoleLab, split: LaunchProfile) -> tuple[ExperimentRunner, ExperimentState]:
    """An experiment of the unsplit server against the split one, to its end."""
    launches = {"A": unsplit(lab), "B": split}
    arms = (ExperimentArm("A", "whole"), ExperimentArm("B", "split", against="A"))
    profile = ExperimentProfile("does-splitting-pay", QUICK.name, arms, pairs=1)
    runner = ExperimentRunner(lab.groups, begin(profile, QUICK, launches, "gpu1", seed=1), profile, launches)
    async with aclosing(runner.states()) as states:
        async for state in states:
            last = state
    return runner, last


async def test_split_against_unsplit_is_an_experiment(lab: RoleLab):
    runner, last = await compared(lab, lab.profile())
    assert last.finished
    assert [arm.status for arm in last.arms] == [ArmStatus.MEASURED] * 2, [arm.reason for arm in last.arms]
    whole, split = (arm.results[0].server for arm in last.arms)
    assert (whole.members, len(split.members)) == ((), 3)
    assert [cell.ready_after_s is not None for cell in runner.record.cells] == [True, True]
    (verdict,) = last.verdicts  # of runs that are too short to count
    assert {verdict.a.ref, verdict.b.ref} == {"A", "B"}, verdict
    assert [run for run in await lab.groups.sessions["gpu1"].runs() if run.active and not run.foreign] == []


async def test_an_arm_that_dies_says_which_member_and_why(lab: RoleLab):
    full = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.1 GiB"
    )
    split = lab.profile(decode=f'args = {{ ready-file = "{lab.decode_ready}", dies-of = "{full}" }}')
    _, last = await compared(lab, split)
    failed = last.arms[1]
    assert failed.status is ArmStatus.FAILED
    assert failed.cause == "oom_serving"
    assert str(failed.reason).startswith("decode 0: ")
    assert [run for run in await lab.groups.sessions["gpu1"].runs() if run.active and not run.foreign] == []
