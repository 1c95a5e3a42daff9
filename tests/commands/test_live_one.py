"""Which run `stop` and `wait` mean by a name that fits several."""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from tests.support import fakes
from tests.support.groups import GROUP, RANK0, RANK1
from tests.support.run_lab import free_port
from tests.support.shell import Shell
from tui.commands import live_one as module
from tui.commands.live_one import live_one
from tui.core.errors import LinkLost, UsageError
from tui.core.link.transport import LinkState, LinkStatus
from tui.core.model.group import Group, Member, Role
from tui.core.model.run import Run, RunState
from tui.core.server import launch_records
from tui.core.server.launch_records import LaunchRecord

TWIN_ID = "big-20261129T120000Z-0a0a0a"
TWIN = Group(TWIN_ID, "big", (Member(Role.RANK, 0, "gpu3", f"{TWIN_ID}-0"), Member(Role.RANK, 1, "gpu5", f"{TWIN_ID}-1")))  # fmt: skip
SINGLE = "bigger-20261128T120000Z-bbbbbb"


@dataclass
class Link:
    """A host with these runs, or one that does not answer."""

    host: str
    live: frozenset[str]
    down: bool = False
    lost: bool = False  # under each question

    def status(self) -> LinkStatus:
        return LinkStatus(self.host, LinkState.WAITING if self.down else LinkState.UP, 0.0)


Lab = Callable[..., list[str]]


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Lab:
    """lab(*ids, down=()): these runs live, these hosts do not answer. The hosts that are asked are added to the list."""
    for group in (GROUP, TWIN):
        for member in group.members:
            launch_records.write(LaunchRecord(member.run_id, member.host, "server", "big", "2026-11-30T12:00:00Z", group=group.extra()))  # fmt: skip
    launch_records.write(LaunchRecord(SINGLE, "gpu3", "server", "bigger", "2026-11-28T12:00:00Z"))

    def make(*live: str, down: Iterable[str] = (), lost: Iterable[str] = ()) -> list[str]:
        asked: list[str] = []

        @asynccontextmanager
        async def hosts(names: Iterable[str]) -> AsyncIterator[object]:
            asked.extend(names)
            yield SimpleNamespace(sessions={
                name: SimpleNamespace(transport=Link(name, frozenset(live), name in down, name in lost), ranks=no_ranks)
                for name in names
            })  # fmt: skip

        async def no_ranks() -> tuple[Run, ...]:
            return ()

        async def status(transport: Link, ids: Iterable[str]) -> tuple[Run, ...]:
            assert not transport.down  # nobody waits for it
            if transport.lost:
                raise LinkLost("lost")
            states = {True: RunState.RUNNING, False: RunState.EXITED}
            return tuple(fakes.run(run_id=one, state=states[one in transport.live], orphans=()) for one in ids)

        monkeypatch.setattr(module, "group_session", hosts)
        monkeypatch.setattr(module, "_FIND_S", 0.0)
        monkeypatch.setattr(module.control, "status", status)
        return asked

    return make


async def test_of_several_groups_the_one_that_lives_is_meant(lab: Lab) -> None:
    asked = lab(RANK1.run_id)  # one member of it is enough
    assert await live_one("big-", None) == GROUP.group_id
    assert sorted(asked) == ["gpu3", "gpu4", "gpu5"]
    lab(f"{TWIN_ID}-0")
    assert await live_one("big-", None) == TWIN_ID


async def test_a_single_run_that_lives_outranks_groups_that_have_ended(lab: Lab) -> None:
    lab(SINGLE)
    assert await live_one("big", None) == SINGLE


async def test_where_several_live_or_none_does_more_is_asked_for(lab: Lab) -> None:
    for live in ((RANK0.run_id, SINGLE), ()):
        lab(*live)
        with pytest.raises(UsageError, match="big fits 3 runs"):
            await live_one("big", None)


async def test_who_waits_means_the_newest_where_all_have_ended(lab: Lab) -> None:
    lab()
    newest = await live_one("big", None, newest=True)
    records = {record.run_id: record.launched_at for record in launch_records.read_all()}
    assert max(records, key=lambda run_id: records[run_id]).startswith(newest)


@pytest.mark.parametrize("how", ["down", "lost"])
async def test_a_host_that_does_not_answer_may_have_the_one_that_is_meant(lab: Lab, how: str) -> None:
    lab(SINGLE, **{how: ["gpu5"]})
    with pytest.raises(UsageError, match="fits 3 runs"):
        await live_one("big", None)
    lab(f"{TWIN_ID}-0", **{how: ["gpu5"]})
    assert await live_one("big-", None) == TWIN_ID  # the rest of what lives is no other one


@pytest.mark.parametrize("name", ["7c31d0", RANK1.run_id, "bbbb", "nothing", "", "docker:big"])
async def test_a_name_that_fits_one_or_none_asks_nobody(lab: Lab, name: str) -> None:
    asked = lab()
    assert await live_one(name, None) == name
    assert asked == []


async def test_what_is_known_to_have_ended_is_not_asked_about(lab: Lab) -> None:
    for member in TWIN.members:
        launch_records.write(LaunchRecord(member.run_id, member.host, "server", "big", "2026-11-30T12:00:00Z", group=TWIN.extra(), ended_at="2026-11-30T13:00:00Z"))  # fmt: skip
    asked = lab(RANK0.run_id)
    assert await live_one("big-", None) == GROUP.group_id
    assert sorted(asked) == ["gpu3", "gpu4"]
    assert await live_one("big", "gpu4") == "big"  # there it fits one


def test_a_name_stops_the_run_of_it_that_lives(shell: Shell, command: Callable[..., str]) -> None:
    name = command("prog", "sh", "-c", "sleep 300", "sh", "--port", str(free_port()))
    first = shell("launch", name, "--host", "local", "--json").json["run"]
    assert shell("stop", name, "--json").code == 0
    second = shell("launch", name, "--host", "local", "--set", "env.WHAT=b", "--json").json["run"]
    rows = {row["run"]: row for row in shell("ps", "local", "--json").json}
    assert (rows[first]["sets"], rows[second]["sets"]) == ({}, {"env.WHAT": "b"})
    stopped = shell("stop", name, "--json").json
    assert (stopped["run"], stopped["outcome"]) == (second, "stopped")
    shell("stop", name, "--json").refused(2, "ambiguous_run")
