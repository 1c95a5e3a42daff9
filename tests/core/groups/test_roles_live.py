"""Prefill, decode and the real sglang-router, launched by eagletui on this machine."""

import os
import signal
from contextlib import aclosing
from dataclasses import replace

import pytest

from tests.support.role_lab import RoleLab, condition
from tui.core.groups import roles
from tui.core.groups.group_state import GroupState
from tui.core.groups.nodes import Placed
from tui.core.groups.session import GroupPlan
from tui.core.link.http import request
from tui.core.link.local import LocalTransport
from tui.core.model.phases import Outcome
from tui.core.server.finding import Level

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def lab(make_hosts, tmp_path, router_python):
    return RoleLab(make_hosts("gpu1"), tmp_path, router_python)


async def first(states, holds) -> GroupState:
    """The first state of which something holds."""
    async with aclosing(states):
        async for state in states:
            if holds(state):
                return state
    raise AssertionError(f"never: {state}")


async def test_ready_is_a_request_through_the_router_and_not_its_health(lab: RoleLab):
    plan = await lab.plan()
    assert not plan.blocked, plan.findings
    group = await lab.launch(plan)
    assert lab.started == ["prefill 0", "decode 0", "router"]

    waits = "asked once decode 0 is ready"
    state = await first(lab.states(group), lambda seen: condition(seen, "the router's /readiness").detail == waits)
    health = await request(lab.groups.of(group.serving).transport, "GET", lab.port, "/health", timeout_s=5)
    assert (health.status, state.outcome) == (200, Outcome.STARTING)
    assert condition(state, "the router answers").holds
    assert condition(state, "the router's /readiness").holds is None

    lab.decode_ready.touch()
    state = await first(lab.states(group), lambda seen: seen.outcome is not Outcome.STARTING)
    assert state.outcome is Outcome.READY, state.conditions
    told = {one.text: one.detail for one in state.conditions}
    assert told["the router's /readiness"] == "200"
    assert told["prefill 0 as the router knows it"] == f"http://127.0.0.1:{lab.prefill_port}"
    assert told["decode 0 as the router knows it"] == f"http://127.0.0.1:{lab.decode_port}"
    assert told["a request through the router"].startswith("4 tokens after ")
    assert all(one.holds and one.since_s for one in state.conditions)
    assert state.ready_after_s is not None

    # The stop: the router first, so that nobody is sent to who is leaving; then nothing is left.
    ended = []
    async with aclosing(lab.groups.stop(group)) as progress:
        async for step in progress:
            if step.member is not None and step.stop is not None and step.stop.done:
                ended.append(step.member.name)
    assert ended == ["router", "prefill 0", "decode 0"]
    assert await lab.left(group) == []


def misled(plan: GroupPlan, right: int, wrong: int) -> GroupPlan:
    """The plan with a router that was told another bootstrap port."""
    *others, router = plan.plans
    argv = tuple(str(wrong) if word == str(right) else word for word in router.command.argv)
    return replace(plan, plans=(*others, replace(router, command=replace(router.command, argv=argv))))


async def test_a_wrong_bootstrap_port_is_named(lab: RoleLab):
    lab.decode_ready.touch()
    plan = await lab.plan()
    group = await lab.launch(misled(plan, lab.bootstrap_port, 8777))
    state = await first(
        lab.states(group),
        lambda seen: condition(seen, "prefill 0 as").holds is False and "sends" in str(seen.conditions),
    )
    assert state.outcome is Outcome.STARTING
    assert condition(state, "the router's /readiness").holds  # it is content
    assert condition(state, "prefill 0 as").detail == (
        f"the router sends bootstrap port 8777 along, prefill 0 listens on {lab.bootstrap_port}"
    )
    assert condition(state, "a request through").holds is None  # which would wait for a transfer that never comes


async def test_a_prefill_that_moved_its_bootstrap_port_is_named(lab: RoleLab):
    lab.decode_ready.touch()
    group = await lab.launch(await lab.plan(prefill=f"args = {{ bootstrap-says = {lab.prefill_port} }}"))
    state = await first(lab.states(group), lambda seen: "sends" in str(seen.conditions))
    assert condition(state, "prefill 0 as").detail == (
        f"the router sends bootstrap port {lab.bootstrap_port} along, prefill 0 listens on {lab.prefill_port}"
    )


async def test_a_worker_that_dies_is_the_end_and_the_cause(lab: RoleLab):
    lab.decode_ready.touch()
    group = await lab.launch(await lab.plan())
    await first(lab.states(group), lambda seen: seen.outcome is Outcome.READY)
    pid = (await lab.runs(group))["decode 0"].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    async with aclosing(lab.states(group)) as states:
        async for state in states:
            last = state
    assert (last.outcome, last.failed) == (Outcome.CRASHED, group.members[1])
    assert last.failure is not None
    assert last.failure.run.exit_code == 137
    assert await lab.left(group) == []


async def test_the_cause_is_looked_for_in_the_log_of_the_other_side(lab: RoleLab):
    lab.decode_ready.touch()
    lost = "Losing connection with prefill instance (bootstrap_addr: 127.0.0.1:8998), 12 requests affected"
    full = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.1 GiB"
    )
    group = await lab.launch(
        await lab.plan(
            prefill=f'args = {{ dies-of = "{full}", ready-file = "{lab.directory / "go"}" }}',
            decode=f'args = {{ dies-of = "{lost}" }}',
        )
    )
    (lab.directory / "go").touch()
    async with aclosing(lab.states(group, end_others=False)) as states:
        async for state in states:
            if all(one.state and one.state.diagnosis for one in state.members[:2]):
                break
    assert [one.state.diagnosis.cause for one in state.members[:2]] == ["oom_serving", "disaggregation"]
    assert state.failed == group.members[0]
    assert state.failure is not None
    assert state.failure.diagnosis is not None
    assert "memory" in state.failure.diagnosis.title.lower()


async def test_the_routers_flags_are_held_against_its_own_help(lab: RoleLab, monkeypatch):
    asked: list[str] = []
    run = LocalTransport.run

    async def counted(self, script, **options):
        asked.extend(["help"] if "launch_router --help" in script else [])
        return await run(self, script, **options)

    monkeypatch.setattr(LocalTransport, "run", counted)
    for args, blocks in (
        ("cache-treshold = 0.5", ["--cache-treshold of the router is unknown to sglang-router 0.3.2: did you mean --cache-threshold?"]),
        ("cache-threshold = 0.5", []),
    ):  # fmt: skip
        plan = await lab.plan(router='[group.router.args]\nlog-level = "warn"\n' + args, own_args=False)
        assert [finding.text for finding in plan.findings if finding.level is Level.BLOCK] == blocks
    assert asked == ["help"]  # once a version


@pytest.fixture
def apart(make_hosts, tmp_path, router_python, monkeypatch):
    """Two hosts that are one machine, and do not look like it."""

    async def place(session) -> Placed:
        return Placed(session.entry.name)

    monkeypatch.setattr(roles, "place_of", place)
    return RoleLab(make_hosts("gpu1", "gpu2"), tmp_path, router_python)


async def test_over_two_hosts_each_is_reached_by_its_address(apart: RoleLab):
    apart.decode_ready.touch()
    decode = f'args = {{ ready-file = "{apart.decode_ready}" }}\nhost = "gpu2"\naddress = "127.0.0.2"'
    plan = await apart.plan(prefill='address = "127.0.0.3"', decode=decode)
    assert not plan.blocked, plan.findings
    said = [finding.text for finding in plan.findings if "reach" in finding.text]
    assert said == [
        f"gpu1 reaches gpu2 at 127.0.0.2:{apart.decode_port}", f"gpu2 reaches gpu1 at 127.0.0.3:{apart.bootstrap_port}"
    ]  # fmt: skip
    group = await apart.launch(plan)
    state = await first(apart.states(group), lambda seen: seen.outcome is Outcome.READY)
    assert condition(state, "decode 0 as").detail == f"http://127.0.0.2:{apart.decode_port}"
    assert [one.state.run.host for one in state.members if one.state] == ["gpu1", "gpu2", "gpu1"]
    async with aclosing(apart.groups.stop(group)) as progress:
        ended = [step.member.name async for step in progress if step.member and step.stop and step.stop.done]
    assert ended == ["router", "prefill 0", "decode 0"]
    assert await apart.left(group) == []


async def test_an_address_that_is_not_the_hosts_blocks(apart: RoleLab):
    decode = 'host = "gpu2"\naddress = "192.0.2.7"'
    plan = await apart.plan(prefill='address = "127.0.0.3"', decode=decode)
    blocks = [finding.text for finding in plan.findings if finding.level is Level.BLOCK]
    assert blocks == [f"gpu2 cannot listen on 192.0.2.7:{apart.decode_port}: Cannot assign requested address"]
