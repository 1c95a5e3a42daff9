"""The lease of an experiment over its hosts: all of them or none, kept, given back."""

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tui.core.errors import LinkLost
from tui.core.experiment import lease as module
from tui.core.experiment.lease import GpuLease
from tui.core.groups import planning
from tui.core.profiles.launch_profile import LaunchProfile, NodesTable, SlurmTable
from tui.core.runs import leases
from tui.core.runs.leases import Held, Lease

TP2 = LaunchProfile("tp2", Path("tp2.toml"), args={"tp": 2})
NEVER = 1 << 30  # no PID


class FakeHosts:
    """What hosts say of leases."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
        self.sessions = {name: SimpleNamespace(transport=SimpleNamespace(host=name)) for name in names}
        self.held: dict[str, Lease] = {}
        self.taken: list[tuple[str, str, tuple[int, ...]]] = []
        self.down: set[str] = set()
        monkeypatch.setattr(leases, "take", self.take)
        monkeypatch.setattr(leases, "give_back", self.give_back)

    async def take(self, link, lease_id, gpus, words):
        if link.host in self.down:
            raise LinkLost("gone")
        if link.host in self.held:
            raise Held(link.host, self.held[link.host])
        self.taken.append((link.host, lease_id, tuple(gpus)))
        return ()

    async def give_back(self, link, lease_id):
        self.held = {name: lease for name, lease in self.held.items() if lease.lease_id != lease_id}
        self.taken = [one for one in self.taken if one[:2] != (link.host, lease_id)]


@pytest.fixture
def other() -> Lease:
    return Lease("y-1", (0,), leases.requester(None), os.getpid(), leases._namespace(), "experiment y", None, 5)


def lease_of(hosts: FakeHosts, *profiles: LaunchProfile) -> GpuLease:
    return GpuLease(hosts, "x-1", "experiment x", [SimpleNamespace(profile=one, host="gpu1") for one in profiles])


def test_which_gpus_an_arm_takes_on_which_host() -> None:
    assert planning.gpus_on(TP2, "gpu1") == {"gpu1": (0, 1)}
    assert planning.gpus_on(replace(TP2, gpus=(6, 7)), "gpu1") == {"gpu1": (6, 7)}
    assert planning.gpus_on(replace(TP2, gpus=()), "gpu1") == {}  # none
    assert planning.gpus_on(replace(TP2, args={}, command=("server",)), "gpu1") == {"gpu1": ()}  # not known: all
    assert planning.gpus_on(replace(TP2, nodes=NodesTable(("a", "b"))), "gpu1") == {"a": (0,), "b": (0,)}
    assert planning.gpus_on(replace(TP2, slurm=SlurmTable()), "gpu1") == {}  # the cluster's business


async def test_it_has_the_gpus_of_all_arms(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = FakeHosts(monkeypatch, "gpu1", "a", "b")
    lease = lease_of(hosts, TP2, replace(TP2, gpus=(3,)), replace(TP2, nodes=NodesTable(("a", "b"))))
    assert lease.gpus == {"gpu1": (0, 1, 3), "a": (0,), "b": (0,)}
    assert await lease.take(print) == []
    assert hosts.taken == [("a", "x-1", (0,)), ("b", "x-1", (0,)), ("gpu1", "x-1", (0, 1, 3))]
    assert lease_of(hosts, TP2, replace(TP2, args={}, command=("server",)), TP2).gpus == {"gpu1": ()}


async def test_it_is_taken_on_all_hosts_or_on_none(monkeypatch: pytest.MonkeyPatch, other: Lease) -> None:
    hosts = FakeHosts(monkeypatch, "a", "b")
    hosts.held["b"] = other
    with pytest.raises(Held, match="b: GPU 0 is held by experiment y"):
        await lease_of(hosts, replace(TP2, nodes=NodesTable(("a", "b")))).take(print)
    assert hosts.taken == []


async def test_one_that_was_killed_here_and_not_resumed_gives_way(
    monkeypatch: pytest.MonkeyPatch, other: Lease
) -> None:
    hosts = FakeHosts(monkeypatch, "gpu1")
    hosts.held["gpu1"] = replace(other, pid=NEVER)
    (note,) = await lease_of(hosts, TP2).take(print)
    assert note.startswith("gpu1: took over ")
    assert "experiment y (y-1) of " in note
    hosts.held["gpu1"] = replace(other, pid=NEVER, by="ann@elsewhere")
    with pytest.raises(Held):
        await lease_of(hosts, TP2).take(print)


async def test_it_is_kept_over_lost_links_and_ends_where_it_was_taken_over(
    monkeypatch: pytest.MonkeyPatch, other: Lease
) -> None:
    hosts = FakeHosts(monkeypatch, "gpu1")
    renewals: list[float] = []

    async def sleep(seconds: float) -> None:
        renewals.append(seconds)
        hosts.down = {"gpu1"} if len(renewals) == 2 else set()
        if len(renewals) == 4:
            hosts.held["gpu1"] = other

    monkeypatch.setattr(module, "asyncio", SimpleNamespace(sleep=sleep))
    with pytest.raises(Held, match="held by experiment y"):
        await lease_of(hosts, TP2).keep()
    assert renewals == [leases.RENEW_S] * 4
    assert len(hosts.taken) == 2
