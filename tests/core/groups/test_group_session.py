"""A group over two hosts: the real helper of each, servers that are shell scripts."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing
from pathlib import Path

import pytest

from tests.support.run_lab import free_port, until
from tui.core.errors import EagletuiError
from tui.core.experiment.launching import Site, start
from tui.core.groups.group_state import GroupState, GroupUpdate
from tui.core.groups.session import GroupPlan, GroupProgress, GroupSession, new_group
from tui.core.model.group import Group, Role, group_of
from tui.core.model.phases import Outcome
from tui.core.model.run import Run, RunState
from tui.core.profiles.launch_profile import LaunchProfile
from tui.core.runs import control
from tui.core.runs.control import RunBusy
from tui.core.runs.request import new_run_id
from tui.core.server import launch_records
from tui.core.server.launch import PreflightFailed, prepare
from tui.core.server.session import HostSession

pytestmark = pytest.mark.timeout(180)

Hosts = Callable[..., Mapping[str, HostSession]]


def server(name: str, port: int, script: str = "sleep 300", gpu: int = 0) -> LaunchProfile:
    return LaunchProfile(name, Path(f"{name}.toml"), command=("sh", "-c", script), gpus=(gpu,), args={"port": port})


async def planned(
    sessions: Mapping[str, HostSession], *scripts: str, name: str = "big", gpu: int = 0
) -> tuple[GroupSession, GroupPlan]:
    hosts = GroupSession(sessions)
    group = new_group(name, [(Role.RANK, at, host) for at, host in enumerate(sessions)])
    scripts = scripts or ("sleep 300",) * len(sessions)
    return hosts, await hosts.plan(group, [server(name, free_port(), script, gpu) for script in scripts])


async def launch(hosts: GroupSession, plan: GroupPlan, **options: bool) -> list[Run]:
    async with aclosing(hosts.launch(plan, **options)) as progress:
        return [step.run async for step in progress if step.run is not None]


async def runs_on(session: HostSession) -> list[Run]:
    return [run for run in await control.list_runs(session.transport)]


async def to_the_end(hosts: GroupSession, group: Group, **options: bool) -> GroupState:
    async with asyncio.timeout(60), aclosing(hosts.watch(group, **options)) as updates:
        async for update in updates:
            last = update
    return last.state


async def first(hosts: GroupSession, group: Group, what: Callable[[GroupUpdate], bool], **options: bool) -> GroupState:
    async with asyncio.timeout(60), aclosing(hosts.watch(group, **options)) as updates:
        async for update in updates:
            if what(update):
                return update.state
    raise AssertionError("it ended before")


async def stop(hosts: GroupSession, group: Group, **options: float) -> list[GroupProgress]:
    async with aclosing(hosts.stop(group, **options)) as progress:
        return [step async for step in progress]


async def test_all_members_are_launched_and_each_host_knows_the_whole_group(make_hosts: Hosts) -> None:
    hosts, plan = await planned(make_hosts("gpu4", "gpu3"))
    runs = await launch(hosts, plan)
    assert [(run.host, run.state) for run in runs] == [("gpu4", RunState.RUNNING), ("gpu3", RunState.RUNNING)]
    assert [run.run_id for run in runs] == [f"{plan.group.group_id}-0", f"{plan.group.group_id}-1"]
    assert [group_of(run.extra) for run in runs] == [plan.group] * 2
    for name in hosts.sessions:
        alone = GroupSession({name: hosts.sessions[name]})
        assert [found.group for found in await alone.find()] == [plan.group]
    steps = await stop(hosts, plan.group, grace_s=1.0)
    assert {step.member.name for step in steps if step.stop and step.stop.done and step.member} == {"rank 0", "rank 1"}
    assert (await to_the_end(hosts, plan.group)).outcome is Outcome.STOPPED
    assert [run.state for session in hosts.sessions.values() for run in await runs_on(session)] == [RunState.EXITED] * 2


async def test_a_finding_names_its_host_and_blocks_the_whole(make_hosts: Hosts) -> None:
    sessions = make_hosts("gpu3", "gpu4")
    hosts = GroupSession(sessions)
    group = new_group("big", [(Role.RANK, 0, "gpu3"), (Role.RANK, 1, "gpu4")])
    good = server("big", free_port())
    bad = LaunchProfile("big", Path("x"), command=("no-such-program",), args={"port": free_port()})
    plan = await hosts.plan(group, [good, bad])
    assert plan.blocked
    with pytest.raises(PreflightFailed, match="gpu4: wrapper: no-such-program is not installed there"):
        await launch(hosts, plan)
    assert [await runs_on(one) for one in sessions.values()] == [[], []]


async def test_a_host_that_refuses_leaves_nothing_on_the_others(make_hosts: Hosts) -> None:
    sessions = make_hosts("gpu3", "gpu4")
    hosts, plan = await planned(sessions)
    single = GroupSession({"gpu4": sessions["gpu4"]})
    _, other = await planned(single.sessions, name="small")
    (holder,) = await launch(single, other)
    with pytest.raises(RunBusy, match=f"gpu4: .*{holder.run_id}"):
        await launch(hosts, plan)
    assert await runs_on(sessions["gpu3"]) == []
    assert [run.run_id for run in await runs_on(sessions["gpu4"])] == [holder.run_id]
    # Nothing is kept either: the same GPU can be had there.
    _, alone = await planned({"gpu3": sessions["gpu3"]}, name="next")
    assert len(await launch(hosts, alone)) == 1


async def test_of_two_launches_that_race_one_gets_everything(make_hosts: Hosts) -> None:
    sessions = make_hosts("gpu3", "gpu4", "gpu5")
    for number in range(2):
        some = {name: sessions[name] for name in (("gpu4", "gpu3") if number % 2 else ("gpu3", "gpu4"))}
        others = {name: sessions[name] for name in ("gpu5", "gpu4")}
        plans = [await planned(some, name="one"), await planned(others, name="two")]
        answers = await asyncio.gather(*(launch(*plan) for plan in plans), return_exceptions=True)
        winners = [answer for answer in answers if not isinstance(answer, BaseException)]
        assert [type(answer) for answer in answers if isinstance(answer, BaseException)] == [RunBusy]
        assert len(winners) == 1
        live = [
            run.run_id for one in sessions.values() for run in await runs_on(one) if run.state is not RunState.EXITED
        ]
        assert sorted(live) == sorted(run.run_id for run in winners[0])
        winner = group_of(winners[0][0].extra)
        assert winner is not None
        await stop(GroupSession(sessions), winner, grace_s=0.0)


async def test_a_start_that_fails_takes_the_others_with_it(make_hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = make_hosts("gpu3", "gpu4")
    hosts, plan = await planned(sessions)

    async def refuse(request: object) -> Run:
        raise EagletuiError("gpu4: the disk is full")

    monkeypatch.setattr(sessions["gpu4"], "start", refuse)
    with pytest.raises(EagletuiError, match="the disk is full"):
        await launch(hosts, plan)
    (run,) = await runs_on(sessions["gpu4"])
    assert (run.over, run.pid) == (True, None)  # and a start that is still under way finds it so
    (run,) = await runs_on(sessions["gpu3"])
    await until(lambda: _over(sessions["gpu3"]), "the end of what was started")
    assert run.run_id == plan.group.members[0].run_id


async def _over(session: HostSession) -> bool:
    return all(run.over and not run.orphans for run in await runs_on(session))


async def test_what_a_launcher_that_was_killed_has_reserved_goes_by_itself(make_hosts: Hosts, tmp_path: Path) -> None:
    sessions = make_hosts("gpu3", "gpu4")
    hosts, plan = await planned(sessions)
    member = plan.group.members[0]
    await control.reserve(sessions["gpu3"].transport, prepare(plan.plans[0], "gpu3", member.run_id, plan.group))
    (kept,) = await runs_on(sessions["gpu3"])
    assert kept.state is RunState.STAGED
    assert group_of(kept.extra) == plan.group
    _, other = await planned(sessions, name="other")
    with pytest.raises(RunBusy, match=member.run_id):
        await launch(hosts, other)
    (mark,) = tmp_path.glob("gpu3/*/runs/*/reserved")
    boot, second, who = mark.read_text().split()
    mark.write_text(f"{boot} {int(second) - control.RESERVED_S - 1} {who}\n")  # so much later
    assert len(await launch(hosts, other)) == 2
    assert not mark.parent.exists()


async def test_once_reserved_the_launch_takes_it_over_and_others_do_not(make_hosts: Hosts) -> None:
    sessions = make_hosts("gpu3")
    _, plan = await planned(sessions)
    request = prepare(plan.plans[0], "gpu3", plan.group.members[0].run_id, plan.group)
    await control.reserve(sessions["gpu3"].transport, request)
    await control.reserve(sessions["gpu3"].transport, request)  # repeated over a lost link
    run = await sessions["gpu3"].start(request)
    assert run.state is RunState.RUNNING
    await control.release(sessions["gpu3"].transport, [run.run_id])
    assert (await sessions["gpu3"].run_by_id(run.run_id)).state is RunState.RUNNING  # a run is no reservation


async def test_when_one_dies_the_others_are_ended_and_it_is_named(make_hosts: Hosts) -> None:
    hosts, plan = await planned(make_hosts("gpu3", "gpu4"), "sleep 300", "sleep 1; exit 3")
    await launch(hosts, plan)
    state = await to_the_end(hosts, plan.group)
    assert state.outcome is Outcome.CRASHED
    assert state.failed == plan.group.members[1]
    assert state.failure is not None
    assert state.failure.run.exit_code == 3
    rank0 = state.members[0].state
    assert rank0 is not None
    assert rank0.run.stopped_by_us
    # Whoever looks later sees the same, though rank 0 was stopped.
    again = await to_the_end(hosts, plan.group)
    assert (again.outcome, again.failed) == (Outcome.CRASHED, plan.group.members[1])


async def test_who_only_looks_ends_nobody(make_hosts: Hosts) -> None:
    sessions = make_hosts("gpu3", "gpu4")
    hosts, plan = await planned(sessions, "sleep 300", "exit 3")
    await launch(hosts, plan)
    state = await first(hosts, plan.group, lambda update: update.state.failed is not None, end_others=False)
    assert state.outcome is Outcome.CRASHED
    assert (await runs_on(sessions["gpu3"]))[0].state is RunState.RUNNING


async def test_a_lost_link_is_unknown_ends_nobody_and_comes_back(make_hosts: Hosts) -> None:
    sessions = make_hosts("gpu3", "gpu4")
    hosts, plan = await planned(sessions)
    await launch(hosts, plan)
    wire = sessions["gpu4"].transport
    seen: list[Outcome] = []
    async with asyncio.timeout(60), aclosing(hosts.watch(plan.group)) as updates:
        async for update in updates:
            seen.append(update.state.outcome)
            if update.settled and not wire.down and Outcome.UNKNOWN not in seen:
                wire.down = True
            elif update.state.outcome is Outcome.UNKNOWN:
                assert [one.link_lost for one in update.state.members] == [False, True]
                assert update.state.failed is None
                wire.down = False
            elif Outcome.UNKNOWN in seen and update.state.outcome is Outcome.STARTING:
                break
    assert [(await runs_on(one))[0].state for one in sessions.values()] == [RunState.RUNNING] * 2


async def test_a_host_that_is_dead_from_the_start_is_unknown(make_hosts: Hosts) -> None:
    sessions = make_hosts("gpu3", "gpu4")
    hosts, plan = await planned(sessions)
    await launch(hosts, plan)
    sessions["gpu4"].transport.down = True
    state = await first(hosts, plan.group, lambda update: update.settled)
    assert state.outcome is Outcome.UNKNOWN
    assert state.members[1].state is None
    alone = GroupSession({"gpu3": sessions["gpu3"]})
    assert (await first(alone, plan.group, lambda update: update.settled)).outcome is Outcome.UNKNOWN


async def test_a_stop_lets_rank_0_end_the_others_and_says_who_cannot_be_asked(
    make_hosts: Hosts, tmp_path: Path
) -> None:
    """Rank 1 gets no signal: it ends because rank 0 tells it to."""
    told = tmp_path / "told"
    rank0 = f"trap 'echo > {told}; exit 0' TERM; sleep 300 & wait"
    rank1 = f"trap 'exit 9' TERM; while [ ! -e {told} ]; do sleep 0.1; done"
    sessions = make_hosts("gpu3", "gpu4", "gpu5")
    hosts, plan = await planned(sessions, rank0, rank1, "sleep 300")
    await launch(hosts, plan)
    sessions["gpu5"].transport.down = True
    steps = await stop(hosts, plan.group)
    assert (await runs_on(sessions["gpu4"]))[0].exit_code == 0
    assert not (await runs_on(sessions["gpu4"]))[0].stopped_by_us
    last = {step.member.name: step.stop.step for step in steps if step.member and step.stop}
    assert last == {"rank 0": "done", "rank 1": "done", "rank 2": "unreachable"}
    sessions["gpu5"].transport.down = False
    assert (await runs_on(sessions["gpu5"]))[0].state is RunState.RUNNING
    assert [step.stop.step for step in await stop(hosts, plan.group, grace_s=1.0) if step.stop][-1] == "done"
    assert (await to_the_end(hosts, plan.group)).outcome is Outcome.STOPPED


async def test_replace_ends_the_whole_group_that_is_in_the_way(make_hosts: Hosts) -> None:
    sessions = make_hosts("gpu3", "gpu4")
    hosts, old = await planned(sessions)
    await launch(hosts, old)
    _, new = await planned({"gpu3": sessions["gpu3"]}, name="small")
    assert [run.run_id for run in new.replaces] == [old.group.members[0].run_id]
    assert len(await launch(hosts, new, replace=True)) == 1
    assert all(run.over for run in await runs_on(sessions["gpu4"]))


async def test_replace_refuses_where_a_part_of_that_group_is_out_of_reach(make_hosts: Hosts) -> None:
    sessions = make_hosts("gpu3", "gpu4")
    hosts, old = await planned(sessions)
    await launch(hosts, old)
    alone = {"gpu3": sessions["gpu3"]}
    _, new = await planned(alone, name="small")
    with pytest.raises(EagletuiError, match="gpu4") as refused:
        await launch(GroupSession(alone), new, replace=True)
    assert old.group.group_id in str(refused.value.hint)
    assert (await runs_on(sessions["gpu3"]))[0].state is RunState.RUNNING


def ending_together(directory: Path) -> tuple[str, str]:
    """Rank 0, which tells rank 1 to end."""
    over = directory / "over"
    return (
        f"trap 'touch {over}; exit 0' TERM; while :; do sleep 0.1; done",
        f"while [ ! -e {over} ]; do sleep 0.1; done; exit 9",
    )


async def test_a_rank_that_ended_with_rank_0_is_kept_as_stopped(make_hosts: Hosts, tmp_path: Path) -> None:
    hosts, plan = await planned(make_hosts("gpu3", "gpu4"), *ending_together(tmp_path))
    await launch(hosts, plan)
    await stop(hosts, plan.group)
    follower = plan.group.members[1]
    run = await hosts.of(follower).run_by_id(follower.run_id)
    assert run is not None
    assert (run.exit_code, run.stopped_by_us) == (9, False)  # its host has no word of the stop
    record = launch_records.read(follower.run_id)
    assert record is not None
    assert record.stopped_with_group


async def test_a_server_of_an_arm_stops_the_whole_group_that_is_in_its_way(make_hosts: Hosts, tmp_path: Path) -> None:
    hosts, plan = await planned(make_hosts("gpu3", "gpu4"), *ending_together(tmp_path))
    await launch(hosts, plan)
    site = Site.of(hosts, server("one", free_port()), {}, "gpu3")
    run = await start(site, new_run_id("one"), lambda text: None)
    alive = [one.run_id for session in hosts.sessions.values() for one in await runs_on(session) if one.active]
    assert alive == [run.run_id]
