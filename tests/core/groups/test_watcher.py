"""Watching a group, the hosts made up: what comes when, what it waits for, whom it ends."""

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

import pytest

from tests.support import fakes
from tests.support.groups import GROUP, RANK0, RANK1, run_of
from tui.core.errors import LinkLost
from tui.core.groups import watcher
from tui.core.groups.group_state import Condition, GroupState, GroupUpdate
from tui.core.groups.watcher import GroupWatcher
from tui.core.link.transport import LinkState, LinkStatus
from tui.core.model.group import Member
from tui.core.model.log import LogRecord
from tui.core.model.phases import Outcome
from tui.core.model.run import Run, RunState
from tui.core.runs.request import new_run_id
from tui.core.server.server_state import RunUpdate, ServerState

pytestmark = pytest.mark.timeout(60)


@dataclass
class Host:
    """A host whose one run's updates a test puts into a queue; None ends it."""

    member: Member
    state: LinkState = LinkState.UP
    news: "asyncio.Queue[RunUpdate | None]" = field(default_factory=asyncio.Queue)
    watched: list[Run] = field(default_factory=list)

    @property
    def transport(self) -> "Host":
        return self

    def status(self) -> LinkStatus:
        return LinkStatus(self.member.host, self.state, 0.0)

    async def run_by_id(self, run_id: str) -> Run | None:
        if self.state is not LinkState.UP:
            raise LinkLost("down")
        return run_of(self.member) if run_id == self.member.run_id else None

    async def watch(self, run: Run) -> AsyncGenerator[RunUpdate, None]:
        self.watched.append(run)
        while (update := await self.news.get()) is not None:
            yield update

    def say(self, state: ServerState, *lines: str, settled: bool = True) -> None:
        records = tuple(LogRecord(at, 0, None, "TP0", line, "plain", None) for at, line in enumerate(lines, 1))
        self.news.put_nowait(RunUpdate(state, records, settled=settled))


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> tuple[Host, Host]:
    for name in ("_TICK_S", "_RETRY_S", "_CHECK_PERIOD_S"):
        monkeypatch.setattr(watcher, name, 0.02)
    return Host(RANK0), Host(RANK1)


def watching(hosts: Sequence[Host], **options: object) -> GroupWatcher:
    return GroupWatcher({host.member.host: host for host in hosts}, GROUP, **options)  # type: ignore[arg-type]


async def until(watch: GroupWatcher, holds, then=None) -> list[GroupUpdate]:
    """The updates up to the first of which this holds; `then` is called at each."""
    seen: list[GroupUpdate] = []
    async with asyncio.timeout(30), aclosing(watch.updates()) as updates:
        async for update in updates:
            seen.append(update)
            if holds(update):
                return seen
            if then is not None:
                then(update)
    return seen


def starting(member: Member) -> ServerState:
    return fakes.starting(run=run_of(member))


def ready(member: Member) -> ServerState:
    return fakes.ready(run=run_of(member))


def over(member: Member, code: int) -> ServerState:
    outcome = Outcome.CRASHED if code else Outcome.STOPPED
    return replace(starting(member), run=run_of(member, state=RunState.EXITED, exit_code=code), outcome=outcome)


async def test_it_is_ready_once_with_the_lines_of_both(hosts: tuple[Host, Host]) -> None:
    first, second = hosts
    second.say(starting(RANK1), "its part is done")
    first.say(ready(RANK0), "The server is fired up")
    seen = await until(watching(hosts), lambda update: update.state.outcome is Outcome.READY and update.settled)
    assert {(member.name, record.text) for update in seen for member, record in update.records} == {
        ("rank 0", "The server is fired up"), ("rank 1", "its part is done"),
    }  # fmt: skip
    assert seen[-1].state.conditions[0].since_s is not None


async def test_it_is_settled_when_every_member_was_heard(hosts: tuple[Host, Host]) -> None:
    first, second = hosts
    first.say(starting(RANK0))
    seen = await until(watching(hosts), lambda update: bool(update.state.members[0].state), None)
    assert not any(update.settled for update in seen)
    second.state = LinkState.LOST  # then it cannot be asked, and holds up nobody
    first.say(starting(RANK0))
    seen = await until(watching(hosts), lambda update: update.settled)
    assert seen[-1].state.outcome is Outcome.UNKNOWN


async def test_an_end_counts_when_the_log_is_read_to_it(hosts: tuple[Host, Host]) -> None:
    hosts[0].say(ready(RANK0))
    hosts[1].say(over(RANK1, 1))
    unread = 0

    def read(update: GroupUpdate) -> None:
        nonlocal unread
        unread += update.state.failed == RANK1
        if unread == 3:
            hosts[1].news.put_nowait(None)  # its log, to the end

    seen = await until(watching(hosts), lambda update: update.settled, read)
    assert unread >= 3
    assert seen[-1].state.failed == RANK1


async def test_what_else_must_hold_is_asked_until_it_does(hosts: tuple[Host, Host]) -> None:
    asked: list[GroupState] = []

    async def check(state: GroupState) -> tuple[Condition, ...]:
        asked.append(state)
        if len(asked) <= 2:
            raise LinkLost("for a moment")
        return (Condition("one request through", len(asked) > 3),)

    for host, state in zip(hosts, (ready(RANK0), starting(RANK1)), strict=True):
        host.say(replace(state, started_s=time.time() - 100))
    early: list[GroupUpdate] = []  # settled before there was an answer

    def look(update: GroupUpdate) -> None:
        if update.settled and not any(one.text == "one request through" for one in update.state.conditions):
            early.append(update)

    seen = await until(watching(hosts, check=check), lambda update: update.state.outcome is Outcome.READY, look)
    assert len(asked) >= 4
    assert early == []
    assert {update.state.outcome for update in seen[:-1]} <= {Outcome.STARTING}
    last = seen[-1].state
    assert [one.text for one in last.conditions][-1] == "one request through"
    assert last.ready_after_s is not None
    assert last.ready_after_s >= 100


async def test_a_server_that_was_ready_before_is_no_slower_for_being_looked_at_late(hosts: tuple[Host, Host]) -> None:
    async def check(state: GroupState) -> tuple[Condition, ...]:
        return (Condition("one request through", True),)

    for host, state in zip(hosts, (ready(RANK0), ready(RANK1)), strict=True):
        host.say(state)
    seen = await until(watching(hosts, check=check), lambda update: update.state.outcome is Outcome.READY)
    assert seen[-1].state.ready_after_s == 705.0


async def test_the_others_are_ended_once_for_the_one_that_died(hosts: tuple[Host, Host]) -> None:
    ended: list[Member] = []

    async def end(failed: Member) -> None:
        ended.append(failed)
        hosts[0].say(over(RANK0, 137))
        hosts[0].news.put_nowait(None)

    hosts[0].say(ready(RANK0))
    hosts[1].say(over(RANK1, 1), settled=False)
    hosts[1].news.put_nowait(None)
    seen = await until(watching(hosts, end_others=end), lambda update: False)
    assert ended == [RANK1]
    assert seen[-1].settled
    assert seen[-1].state.outcome is Outcome.CRASHED


async def test_a_fatal_line_is_given_time_to_become_an_end(
    hosts: tuple[Host, Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[Member] = []

    async def end(failed: Member) -> None:
        ended.append(failed)

    dying = replace(starting(RANK1), outcome=Outcome.CRASHED)
    hosts[0].say(ready(RANK0))
    hosts[1].say(dying)
    ticks = 0

    def enough(update: GroupUpdate) -> bool:
        nonlocal ticks
        ticks += update.state.failed == RANK1
        return ticks > 5 or bool(ended)

    await until(watching(hosts, end_others=end), enough)
    assert ended == []
    monkeypatch.setattr(watcher, "_DYING_S", 0.0)
    hosts[0].say(ready(RANK0))
    hosts[1].say(dying)
    await until(watching(hosts, end_others=end), lambda update: bool(ended))
    assert ended == [RANK1]


async def test_a_member_that_its_host_does_not_know_was_never_started(hosts: tuple[Host, Host]) -> None:
    hosts[1].member = replace(RANK1, run_id="another")
    hosts[0].say(starting(RANK0))
    sessions = {"gpu3": hosts[0], "gpu4": hosts[1]}
    await until(GroupWatcher(sessions, GROUP), lambda update: bool(hosts[1].watched))  # type: ignore[arg-type]
    (run,) = hosts[1].watched
    assert (run.run_id, run.state, run.host) == (RANK1.run_id, RunState.LOST, "gpu4")


async def test_a_member_of_a_group_that_is_just_launched_may_still_come(hosts: tuple[Host, Host]) -> None:
    now = new_run_id("big")
    members = tuple(replace(one, run_id=f"{now}-{one.number}") for one in (RANK0, RANK1))
    hosts[0].member = members[0]
    hosts[0].say(starting(members[0]))
    asked = 0

    def comes(update: GroupUpdate) -> None:
        nonlocal asked
        asked += 1
        if asked == 3:
            hosts[1].member = members[1]
            hosts[1].say(starting(members[1]))

    sessions = {"gpu3": hosts[0], "gpu4": hosts[1]}
    group = replace(GROUP, group_id=now, members=members)
    seen = await until(GroupWatcher(sessions, group), lambda update: bool(update.state.members[1].state), comes)  # type: ignore[arg-type]
    assert {update.state.outcome for update in seen} == {Outcome.STARTING}
    assert [run.state for run in hosts[1].watched] == [RunState.RUNNING]


async def test_a_fault_of_ours_is_raised_and_not_waited_out(hosts: tuple[Host, Host]) -> None:
    async def check(state: GroupState) -> tuple[Condition, ...]:
        raise RuntimeError("a fault")

    with pytest.raises(RuntimeError, match="a fault"):
        await until(watching(hosts, check=check), lambda update: False)
