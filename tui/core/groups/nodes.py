"""One server over several hosts (`[nodes]` in a profile): what each node runs, and what must hold between them.

Rank 0 is reached at an address of its own that the others reach too, never at a name: a name may be a jump host's alias, or
what Debian's /etc/hosts makes of it, 127.0.1.1. Each host is told the interface of its route there.
"""

import asyncio
import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from shlex import quote

from tui.core.config import HostEntry
from tui.core.errors import TimedOut
from tui.core.groups.session import BETWEEN, GroupPlan, GroupSession, new_group
from tui.core.link.programs import program
from tui.core.link.scripts import shell_path
from tui.core.model.conflict import in_use
from tui.core.model.group import Group, Role
from tui.core.profiles.checks import OF_NODES
from tui.core.profiles.command import DEFAULT_PORT
from tui.core.profiles.launch_profile import LaunchProfile, NodesTable
from tui.core.runs.foreign import listener
from tui.core.server.finding import Findings, Level
from tui.core.server.launch import LaunchPlan
from tui.core.server.session import HostSession
from tui.core.sglang.flags import flag_table
from tui.core.text import one_line

INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
# SGLang's own queues between nodes: without it they are bound to the address of the default route, and without such a route
# to 0.0.0.0, which the others then connect to: a hang without a word.
HOST_IP = "SGLANG_HOST_IP"
_LOOK_S = 20.0
_LISTENS_S = 20.0


@dataclass(frozen=True)
class Placed:
    """A host between the nodes."""

    network: str  # of one boot and one network namespace: who has the same is the same machine to its peers
    addresses: tuple[tuple[str, str], ...] = ()  # (interface, address)
    resolved: tuple[str, ...] = ()  # the name of rank 0, as this host resolves it
    own: tuple[str, ...] = ()  # its own name, likewise
    route: str | None = None  # interface of the route to rank 0


@dataclass(frozen=True)
class Meeting:
    """Where the nodes meet."""

    address: str  # of rank 0
    port: int
    interfaces: Mapping[str, str | None] = field(default_factory=dict)  # by host
    addresses: Mapping[str, str | None] = field(default_factory=dict)  # of each host on its interface

    @property
    def dist_init_addr(self) -> str:
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"


async def plan_nodes(
    hosts: GroupSession, profile: LaunchProfile, sets: Mapping[str, object] | None = None, group_id: str | None = None
) -> GroupPlan:
    """The launch of a profile with `[nodes]`, checked on each host and between them. Raises HostError where one is away.

    `group_id` is from `new_run_id`, for a caller that must know it before.
    """
    table = profile.nodes
    assert table is not None
    group = new_group(profile.name, [(Role.RANK, rank, host) for rank, host in enumerate(table.hosts)], group_id)
    sessions = [hosts.of(member) for member in group.members]
    name = _name_of(sessions[0])
    placed = await asyncio.gather(*(_look(session, name) for session in sessions))
    found = Findings()
    address = _address(table, placed, found)
    meeting = await _meet(table, sessions, placed, address, found)
    profiles = [
        rank_profile(profile, rank, meeting, session.entry, _port_step(placed, rank))
        for rank, session in enumerate(sessions)
    ]
    _sizes(profile, table, found)
    plan = await hosts.plan(group, profiles, sets)
    _same(group, plan.plans, found)
    return replace(plan, findings=tuple(sorted([*found, *plan.findings], key=lambda one: list(Level).index(one.level))))


def rank_profile(
    profile: LaunchProfile, rank: int, meeting: Meeting, entry: HostEntry, port_step: int = 0
) -> LaunchProfile:
    """What one node runs: the profile with its place among the nodes. Interfaces that the profile or the host sets stay."""
    assert profile.nodes is not None
    canonical = flag_table().canonical
    args = {name: value for name, value in profile.args.items() if canonical(name) not in OF_NODES}
    args |= {"nnodes": len(profile.nodes.hosts), "node-rank": rank, "dist-init-addr": meeting.dist_init_addr}
    port = profile.arg("port")
    if port_step:
        name = next((name for name in args if canonical(name) == "port"), "port")
        args[name] = (port if isinstance(port, int) else DEFAULT_PORT) + port_step
    told = {**dict.fromkeys(INTERFACES, meeting.interfaces.get(entry.name)), HOST_IP: meeting.addresses.get(entry.name)}
    ours = {name: value for name, value in told.items() if value is not None and name not in entry.env}
    return replace(profile, nodes=None, args=args, env={**ours, **profile.env})


def _name_of(session: HostSession) -> str:
    """How ssh resolved the name of a host, "" for this machine."""
    address = session.transport.status().address or ""
    return address.rpartition("@")[2].rpartition(":")[0].strip("[]")


# Where they meet


async def _look(session: HostSession, name: str, to: str = "") -> Placed:
    values = {"NL_NAME": name, "NL_TO": to}
    head = "".join(f"{key}={quote(value)}\n" for key, value in values.items())
    done = await session.transport.run(head + program("node_look.sh"), timeout_s=_LOOK_S)
    seen: dict[str, list[str]] = {}
    for line in done.stdout.decode("utf-8", "replace").split("\n"):
        key, tab, value = line.partition("\t")
        if tab:
            seen.setdefault(key, []).append(one_line(value, 100))
    pairs = [value.partition(" ") for value in seen.get("address", [])]
    return Placed(
        network=seen.get("network", [""])[0].strip() or session.entry.name,
        addresses=tuple((interface, address) for interface, _, address in pairs if _ip(address) is not None),
        resolved=tuple(dict.fromkeys(seen.get("resolved", []))),
        own=tuple(dict.fromkeys(seen.get("own", []))),
        route=seen.get("route", [None])[0],
    )


def _ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    with suppress(ValueError):
        return ipaddress.ip_address(text)
    return None


def _usable(address: str) -> bool:
    found = _ip(address)
    return found is not None and not found.is_loopback and not found.is_link_local


def _address(table: NodesTable, placed: Sequence[Placed], found: Findings) -> str:
    """An address of rank 0 that the others can use: on the interface that the profile names; else what its name means to
    the others, where that is its own; else its first one."""
    head, others = placed[0], placed[1:]
    rank0 = table.hosts[0]
    if table.interface is not None:
        here = [address for interface, address in head.addresses if interface == table.interface]
        if not here:
            has = ", ".join(dict.fromkeys(interface for interface, _ in head.addresses)) or "none that can be seen"
            _block(found, f"{rank0} has no interface {table.interface} with an address: it has {has}")
        return next(iter([*filter(_usable, here), *here]), rank0)
    if len({one.network for one in placed}) == 1:
        return "127.0.0.1"
    own = addresses_of(head, others)
    meant = [address for one in others for address in one.resolved]
    known = next((address for address in meant if address in own), None)
    if known is not None or own:
        return known or own[0]
    loopback = next((host for host, one in zip(table.hosts[1:], others, strict=True) if _loops(one.resolved)), None)
    if loopback is not None:
        _block(
            found, f"on {loopback} the name of {rank0} means {placed[table.hosts.index(loopback)].resolved[0]}, itself"
        )
    else:
        _block(found, f"no address of {rank0} is known: name the interface in [nodes]")
    return rank0


def _loops(addresses: Sequence[str]) -> bool:
    return any(found.is_loopback for address in addresses if (found := _ip(address)) is not None)


async def _meet(
    table: NodesTable, sessions: Sequence[HostSession], placed: Sequence[Placed], address: str, found: Findings
) -> Meeting:
    """Each host's interface, and whether all of them reach rank 0's port."""
    routes = await asyncio.gather(*(_look(session, "", address) for session in sessions))
    local = address == "127.0.0.1"
    interfaces: dict[str, str | None] = {
        host: table.interface or ("lo" if local else _on(one.addresses, address) if rank == 0 else one.route)
        for rank, (host, one) in enumerate(zip(table.hosts, routes, strict=True))
    }
    for host, one in zip(table.hosts, placed, strict=True):
        if interfaces[host] is None and _loops(one.own):
            _block(
                found,
                f"{host} takes its own name for {one.own[0]}, and its route is not known: name the interface in [nodes]",
            )
        elif interfaces[host] is None:
            _warn(found, f"the interface of {host} to {address} is not known: {', '.join(INTERFACES)} are not set")
        elif table.interface and table.interface not in {interface for interface, _ in one.addresses}:
            _block(found, f"{host} has no interface {table.interface}")
    addresses = {
        host: address if rank == 0 or local else _address_on(one.addresses, interfaces[host], ":" in address)
        for rank, (host, one) in enumerate(zip(table.hosts, placed, strict=True))
    }
    meeting = Meeting(address, table.dist_port, interfaces, addresses)
    if not any(finding.level is Level.BLOCK for finding in found):
        await _reach(table, sessions, meeting, found)
    return meeting


def _on(addresses: Sequence[tuple[str, str]], address: str) -> str | None:
    return next((interface for interface, one in addresses if one == address and interface != "?"), None)


def _address_on(addresses: Sequence[tuple[str, str]], interface: str | None, version_6: bool) -> str | None:
    return next(
        (one for name, one in addresses if name == interface and (":" in one) == version_6 and _usable(one)), None
    )


async def _reach(table: NodesTable, sessions: Sequence[HostSession], meeting: Meeting, found: Findings) -> None:
    """Rank 0 listens for a moment, the others connect."""
    rank0, port = table.hosts[0], table.dist_port
    async with sessions[0].transport.stream(_reach_script(sessions[0], "listen", meeting)) as stream:
        said = ""
        with suppress(TimeoutError):
            async with asyncio.timeout(_LISTENS_S):
                while "\n" not in said and (data := await stream.read()):
                    said += data.decode("utf-8", "replace")
        word = one_line(said.partition("\n")[0], 200)
        if word == "busy":
            holder = await listener(sessions[0].transport, port)
            text = in_use(f"port {port} of {rank0}", holder or "a process that cannot be seen")
            _block(found, text, holder.run_id if holder else None)
        elif word.startswith("error"):
            _block(found, f"{rank0} cannot listen on {meeting.dist_init_addr}: {word.removeprefix('error ')}")
        elif word != "listening":
            _warn(found, f"{rank0} has no Python that answers: whether the others reach it was not checked")
        if word != "listening":
            return
        answers = await asyncio.gather(*(_reached(session, meeting) for session in sessions[1:]))
    reached = []
    for host, answer in zip(table.hosts[1:], answers, strict=True):
        if answer == "reached":
            via = meeting.interfaces.get(host)
            reached.append(f"{host} ({via})" if via else host)
        elif answer is None:
            _warn(found, f"{host} has no Python that answers: whether it reaches {rank0} was not checked")
        else:
            why = answer.removeprefix("error ")
            _block(
                found,
                f"{host} does not reach {rank0} at {meeting.dist_init_addr}: {why}; a firewall, or the wrong interface",
            )
    if reached:
        found.ok(
            BETWEEN,
            f"{', '.join(reached)} reach{'es' if len(reached) == 1 else ''} {rank0} at {meeting.dist_init_addr}",
        )


async def _reached(session: HostSession, meeting: Meeting) -> str | None:
    try:
        done = await session.transport.run(_reach_script(session, "reach", meeting), timeout_s=_LOOK_S)
    except TimedOut:
        return None
    word = one_line(done.stdout.decode("utf-8", "replace").partition("\n")[0], 200)
    return word if word == "reached" or word.startswith("error") else None


def _reach_script(session: HostSession, what: str, meeting: Meeting) -> str:
    return (
        f"for python in {shell_path(session.entry.python)} python3; do\n"
        'command -v "$python" >/dev/null 2>&1 || continue\n'
        f"exec \"$python\" - {what} {quote(meeting.address)} {meeting.port} <<'EAGLETUI_REACH'\n"
        f"{program('node_reach.py')}EAGLETUI_REACH\ndone\n"
    )


async def place_of(session: HostSession) -> Placed:
    """Where a host is. Raises LinkLost, HostError, TimedOut."""
    return await _look(session, "")


def addresses_of(placed: Placed, others: Iterable[Placed]) -> list[str]:
    """By which other hosts may reach it, IPv4 first; not what one of them has as well, as docker0 does on each host."""
    bridges = {address for one in others for _, address in one.addresses}
    own = [address for _, address in placed.addresses if _usable(address) and address not in bridges]
    return sorted(own, key=lambda address: ":" in address)


async def reach(sessions: Sequence[HostSession], address: str, port: int) -> Findings:
    """Whether all other hosts reach the first one at an address of its own, where it listens for a moment."""
    found = Findings()
    table = NodesTable(tuple(session.entry.name for session in sessions), dist_port=port)
    await _reach(table, sessions, Meeting(address, port), found)
    return found


def _port_step(placed: Sequence[Placed], rank: int) -> int:
    """Nodes of one machine cannot listen on one port."""
    return sum(one.network == placed[rank].network for one in placed[:rank])


# What must be the same


def _sizes(profile: LaunchProfile, table: NodesTable, found: Findings) -> None:
    sizes = {flag: profile.arg(flag) for flag in ("tp-size", "pp-size")}
    ranks = 1
    for value in sizes.values():
        ranks *= value if type(value) is int and value > 0 else 1
    if ranks % len(table.hosts):
        _block(found, f"{ranks} ranks (tp-size x pp-size) cannot be shared evenly by {len(table.hosts)} nodes")


def _same(group: Group, plans: Sequence[LaunchPlan], found: Findings) -> None:
    hosts = [member.host for member in group.members]
    for what, values in (
        ("sglang", [one.facts.sglang for one in plans]),
        ("torch", [one.facts.torch for one in plans]),
    ):
        known = {host: value for host, value in zip(hosts, values, strict=True) if value}
        if len(set(known.values())) > 1:
            _block(found, f"all nodes need the same {what}: {_each(known)}")
        elif known and len(known) == len(hosts):
            found.ok(BETWEEN, f"{what} {values[0]} on all of them")
    for what in ("model", "draft"):
        files = {
            host: finding.files
            for host, one in zip(hosts, plans, strict=True)
            for finding in one.findings
            if finding.check == what and finding.files is not None
        }
        if len(set(files.values())) > 1:
            sizes = {host: f"{int(text.split()[0]):,} bytes" for host, text in files.items()}
            alike = len(set(sizes.values())) == 1
            more = "config.json or the index differs" if alike else _each(sizes)
            _block(found, f"the files of the {what} are not the same on all nodes: {more}")
        elif len(files) == len(hosts):
            found.ok(BETWEEN, f"the files of the {what} are the same on all of them")
    cards = {host: ", ".join(sorted(set(one.facts.gpu_names))) for host, one in zip(hosts, plans, strict=True)}
    if len(set(filter(None, cards.values()))) > 1:
        _warn(found, f"the nodes have different GPUs: {_each(cards)}")


def _each(values: Mapping[str, str | None]) -> str:
    return ", ".join(f"{host} has {value}" for host, value in values.items())


def _block(found: Findings, text: str, run: str | None = None) -> None:
    found.block(BETWEEN, text, run)


def _warn(found: Findings, text: str) -> None:
    found.warn(BETWEEN, text)
