"""One server over several hosts: where its nodes meet, what each runs, what must be the same on all of them."""

import socket
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support import fakes
from tests.support.run_lab import free_port
from tui.core.config import HostEntry
from tui.core.groups.nodes import (
    HOST_IP,
    INTERFACES,
    Meeting,
    Placed,
    _address,
    _same,
    _sizes,
    plan_nodes,
    rank_profile,
)
from tui.core.groups.session import BETWEEN, GroupSession, new_group
from tui.core.model.group import Role
from tui.core.profiles.command import LaunchCommand
from tui.core.profiles.launch_profile import LaunchProfile, NodesTable
from tui.core.server.finding import Finding, Findings, Level
from tui.core.server.launch import LaunchPlan
from tui.core.server.session import HostSession

pytestmark = pytest.mark.timeout(120)

TABLE = NodesTable(("gpu3", "gpu4"))
HEAD = Placed("boot1 net1", (("lo", "127.0.0.1"), ("docker0", "172.17.0.1"), ("ib0", "10.0.0.3"), ("ib0", "fe80::1")))
TAIL = Placed("boot2 net1", (("docker0", "172.17.0.1"), ("ib0", "10.0.0.4")))
Hosts = Callable[..., Mapping[str, HostSession]]


def profile(**changes: object) -> LaunchProfile:
    args = {"model-path": "/m", "tp-size": 2, "device": "cpu"}
    return replace(LaunchProfile("two", Path("two.toml"), args=args, nodes=TABLE), **changes)


def texts(found: Findings) -> list[str]:
    return [f"{finding.level}: {finding.text}" for finding in found]


# ---- where they meet


def test_the_address_that_the_name_of_rank_0_means_to_the_others() -> None:
    found = Findings()
    assert _address(TABLE, [HEAD, replace(TAIL, resolved=("10.0.0.3",))], found) == "10.0.0.3"
    assert found == []


@pytest.mark.parametrize("resolved", [(), ("127.0.1.1",), ("203.0.113.9",)])
def test_a_name_that_means_something_else_is_not_used(resolved: tuple[str, ...]) -> None:
    """Debian's /etc/hosts, a jump host's name, an address before a NAT: an address of its own is used instead."""
    found = Findings()
    assert _address(TABLE, [HEAD, replace(TAIL, resolved=resolved)], found) == "10.0.0.3"
    assert found == []


def test_the_interface_of_the_profile_decides() -> None:
    assert _address(replace(TABLE, interface="ib0"), [HEAD, TAIL], Findings()) == "10.0.0.3"
    found = Findings()
    _address(replace(TABLE, interface="eth9"), [HEAD, TAIL], found)
    assert texts(found) == ["block: gpu3 has no interface eth9 with an address: it has lo, docker0, ib0"]


def test_loopback_only_on_one_machine() -> None:
    assert _address(TABLE, [HEAD, replace(TAIL, network=HEAD.network)], Findings()) == "127.0.0.1"
    bare = replace(HEAD, addresses=(("lo", "127.0.0.1"),))
    found = Findings()
    _address(TABLE, [bare, replace(TAIL, resolved=("127.0.1.1",))], found)
    assert texts(found) == ["block: on gpu4 the name of gpu3 means 127.0.1.1, itself"]
    found = Findings()
    _address(TABLE, [bare, TAIL], found)
    assert texts(found) == ["block: no address of gpu3 is known: name the interface in [nodes]"]


# ---- what each runs


def test_a_node_gets_its_place_and_its_interface() -> None:
    meeting = Meeting("10.0.0.3", 20000, {"gpu4": "ib0"}, {"gpu4": "10.0.0.4"})
    rank1 = rank_profile(profile(), 1, meeting, HostEntry("gpu4", "gpu4"))
    assert {name: rank1.args[name] for name in ("nnodes", "node-rank", "dist-init-addr")} == {
        "nnodes": 2, "node-rank": 1, "dist-init-addr": "10.0.0.3:20000",
    }  # fmt: skip
    assert rank1.env == {**dict.fromkeys(INTERFACES, "ib0"), HOST_IP: "10.0.0.4"}
    assert rank1.nodes is None
    assert "port" not in rank1.args


def test_what_profile_or_host_sets_stays() -> None:
    meeting = Meeting("fd00::3", 20000, {"gpu4": "ib0"}, {"gpu4": None})
    entry = HostEntry("gpu4", "gpu4", env={"GLOO_SOCKET_IFNAME": "eth1"})
    rank1 = rank_profile(profile(env={"NCCL_SOCKET_IFNAME": "ib1"}), 1, meeting, entry, port_step=1)
    assert rank1.env == {"NCCL_SOCKET_IFNAME": "ib1"}
    assert rank1.args["dist-init-addr"] == "[fd00::3]:20000"
    assert rank1.args["port"] == 30001


# ---- what must be the same


def plan_of(
    sglang: str | None = "0.5.23", files: str | None = "100 7 9", gpu: str = "H200", **facts: object
) -> LaunchPlan:
    seen = replace(fakes.FACTS, sglang=sglang, torch="2.9", gpu_names=(gpu,) * 8, **facts)
    finding = Finding("model", Level.OK, "/m", files=files)
    return LaunchPlan(profile(), LaunchCommand(("python3",), {}, 30000), (finding,), seen)


def same(*plans: LaunchPlan) -> list[str]:
    found = Findings()
    _same(new_group("two", [(Role.RANK, at, host) for at, host in enumerate(TABLE.hosts)]), plans, found)
    return texts(found)


def test_the_same_everywhere_is_said() -> None:
    assert same(plan_of(), plan_of()) == [
        "ok: sglang 0.5.23 on all of them", "ok: torch 2.9 on all of them", "ok: the files of the model are the same on all of them",
    ]  # fmt: skip


def test_what_differs_blocks_and_names_the_hosts() -> None:
    assert "block: all nodes need the same sglang: gpu3 has 0.5.23, gpu4 has 0.5.22" in same(
        plan_of(), plan_of("0.5.22")
    )
    assert (
        "block: the files of the model are not the same on all nodes: gpu3 has 100 bytes, gpu4 has 2,000 bytes"
        in same(plan_of(), plan_of(files="2000 7 9"))
    )
    assert any("config.json or the index differs" in line for line in same(plan_of(), plan_of(files="100 8 9")))
    assert "warn: the nodes have different GPUs: gpu3 has H200, gpu4 has H100" in same(plan_of(), plan_of(gpu="H100"))


def test_what_is_not_known_is_no_difference() -> None:
    assert not [line for line in same(plan_of(), plan_of(None, None)) if line.startswith("block")]


@pytest.mark.parametrize(
    ("args", "blocks"), [({"tp-size": 16}, False), ({"tp-size": 3}, True), ({"pp-size": 2}, False), ({}, True)]
)
def test_ranks_must_be_shared_evenly(args: dict[str, object], blocks: bool) -> None:
    found = Findings()
    _sizes(profile(args=args), TABLE, found)
    assert bool(found) is blocks


# ---- on a real machine


async def test_two_nodes_of_one_machine_meet_on_loopback_with_ports_of_their_own(make_hosts: Hosts) -> None:
    hosts = GroupSession(make_hosts("gpu3", "gpu4"))
    port = free_port()
    plan = await plan_nodes(hosts, profile(nodes=replace(TABLE, dist_port=port)))
    between = [finding.text for finding in plan.findings if finding.check == BETWEEN]
    assert f"gpu4 (lo) reaches gpu3 at 127.0.0.1:{port}" in between
    for rank, one in enumerate(plan.plans):
        words = " ".join(one.command.argv)
        assert f"--nnodes 2 --node-rank {rank} --dist-init-addr 127.0.0.1:{port}" in words
        assert one.command.port == 30000 + rank
        assert one.command.env["GLOO_SOCKET_IFNAME"] == "lo"
    assert {finding.host for finding in plan.findings if finding.check != BETWEEN} == {"gpu3", "gpu4"}


async def test_a_port_that_is_taken_is_found_before(make_hosts: Hosts) -> None:
    hosts = GroupSession(make_hosts("gpu3", "gpu4"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        plan = await plan_nodes(hosts, profile(nodes=replace(TABLE, dist_port=port)))
    assert plan.blocked
    (finding,) = [one for one in plan.findings if one.check == BETWEEN and one.level is Level.BLOCK]
    assert finding.text.startswith(f"port {port} of gpu3 is in use by PID")


async def test_an_interface_that_a_host_has_not(make_hosts: Hosts) -> None:
    hosts = GroupSession(make_hosts("gpu3", "gpu4"))
    plan = await plan_nodes(hosts, profile(nodes=replace(TABLE, interface="nowhere0")))
    assert any("gpu3 has no interface nowhere0" in one.text for one in plan.findings if one.level is Level.BLOCK)
