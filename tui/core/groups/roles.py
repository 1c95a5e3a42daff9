"""Prefill servers, decode servers and their router as one group: their profiles, and what must be right between them.

They are started at once, the router last: it looks for each worker again every five seconds at most, and forgets one for
good that is not healthy within its --worker-startup-timeout-secs. (sglang-router 0.3.2)
"""

import asyncio
import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from shlex import quote

from tui.core.errors import UsageError
from tui.core.groups.nodes import Placed, addresses_of, place_of, reach
from tui.core.groups.session import ROLES, GroupPlan, GroupSession, new_group
from tui.core.host.gpus import HostFacts
from tui.core.link.scripts import shell_path
from tui.core.link.transport import Transport
from tui.core.model.conflict import in_use
from tui.core.model.group import Member, Role
from tui.core.model.run import PortHolder
from tui.core.profiles.launch_profile import LaunchProfile, RoleTable
from tui.core.profiles.role_conflicts import WAITS, port_conflicts, ports_of, whole
from tui.core.profiles.roles import member_profile, router_profile
from tui.core.profiles.secrets import public_sets
from tui.core.runs.foreign import listener
from tui.core.server import launch_records
from tui.core.server.asking import LOOPBACK
from tui.core.server.finding import Finding, Findings, Level, ordered
from tui.core.server.gpu_claim import claimed_gpus
from tui.core.server.launch import LaunchPlan
from tui.core.sglang.flags import ROUTER_MODULE, learn_router_flags, normalise, unknown_flags
from tui.core.text import one_line

_ANY = "0.0.0.0"
_WAIT_S = 300
_REQUEST_S = 1800  # a router's --request-timeout-secs
_MARGIN = 1.2  # of a start, that the next one may take longer
_HAS_ROUTER = (
    "import importlib.util as u, importlib.metadata as m\n"
    "print(m.version('sglang-router') if u.find_spec('sglang_router') else 'none')"
)


@dataclass(frozen=True)
class Part:
    """A member with all that is known of it before the launch."""

    member: Member
    table: RoleTable
    plan: LaunchPlan
    address: str  # by which the others reach its host
    network: str  # of one machine, whatever its hosts are called

    @property
    def profile(self) -> LaunchProfile:
        return self.plan.profile

    @property
    def ports(self) -> Iterator[tuple[int, str]]:
        """Every port that it will listen on, and what for."""
        return ports_of(self.table)


def places(profile: LaunchProfile, host: str) -> list[tuple[Role, int, str]]:
    """Role, number and host of each member; `host` where neither its table nor the profile names one."""
    return [(table.role, table.number, table.host or profile.host or host) for table in profile.group]


async def plan_roles(
    groups: GroupSession,
    profile: LaunchProfile,
    host: str,
    sets: Mapping[str, object] | None = None,
    group_id: str | None = None,
) -> GroupPlan:
    """The exact commands of all members, what their hosts say, and what was found between them.

    `group_id` is from `new_run_id`, for a caller that must know it before.

    Raises HostError, LinkLost, UsageError.
    """
    group = new_group(profile.name, places(profile, host), group_id)
    pairs = list(zip(group.members, profile.group, strict=True))
    placed = dict(zip(group.hosts, await asyncio.gather(*(_place(groups, host) for host in group.hosts)), strict=True))
    apart = len({place.network for place in placed.values()}) > 1
    addresses = [_address(member, table, placed, apart) for member, table in pairs]
    urls = [
        (table, f"http://{f'[{address}]' if ':' in address else address}:{table.port}")
        for (_, table), address in zip(pairs, addresses, strict=True)
        if table.role is not Role.ROUTER
    ]
    profiles = [member_profile(profile, table, apart=apart) for table, _ in urls]
    router = groups.of(group.serving)
    python = _python(router.entry.python, await router.facts())
    profiles.append(router_profile(profile, profile.group[-1], python, urls))
    planned = await groups.plan(group, profiles, sets)
    parts = [
        Part(member, table, one, address, placed[member.host].network)
        for (member, table), one, address in zip(pairs, planned.plans, addresses, strict=True)
    ]
    found = between(parts, public_sets(sets or {}))
    found += await _asked(groups, parts)
    if apart and not any(finding.level is Level.BLOCK for finding in found):
        found += await _reached(groups, parts)
    return replace(planned, findings=ordered([*found, *planned.findings]))


def _python(python: str, facts: HostFacts) -> str:
    return f"{facts.home}/{python[2:]}" if facts.home and python.startswith("~/") else python


async def _place(groups: GroupSession, host: str) -> Placed:
    return await place_of(groups.sessions[host]) if host in groups.sessions else Placed(host)


def _address(member: Member, table: RoleTable, placed: Mapping[str, Placed], apart: bool) -> str:
    """By which the other members reach a member's host; a router they need not."""
    if table.role is Role.ROUTER:
        return "127.0.0.1"
    if table.address is not None or not apart:
        return table.address or "127.0.0.1"
    here = placed[member.host]
    if not (found := addresses_of(here, (one for one in placed.values() if one.network != here.network))):
        raise UsageError(
            f"{member.host} does not say by which address the other hosts reach it",
            f"write address in [group.{member.role}]",
        )
    return found[0]


# What can be told from the plans alone


def between(parts: Sequence[Part], sets: Mapping[str, object]) -> list[Finding]:
    """What the members of a group are to each other; each finding one line."""
    found = Findings()
    for text in port_conflicts((part.network, part.member.host, part.member.name, part.ports) for part in parts):
        found.block(ROLES, text)
    _gpus(parts, found)
    _reach(parts, found)
    _alike([part for part in parts if part.member.role is not Role.ROUTER], found)
    _waits(parts, sets, found)
    if not found:
        found.ok(
            ROLES, ", ".join(f"{part.member.name} on {part.member.host}:{part.plan.command.port}" for part in parts)
        )
    return found


def _gpus(parts: Sequence[Part], found: Findings) -> None:
    for one, other in combinations(parts, 2):
        both = sorted(set(claimed_gpus(one.profile)) & set(claimed_gpus(other.profile)))
        if one.network == other.network and both:
            numbers = ", ".join(map(str, both))
            names = f"{one.member.name} and {other.member.name}"
            found.block(ROLES, f"{names} both take GPU {numbers} of {one.member.host}: name gpus of each")


def _reach(parts: Sequence[Part], found: Findings) -> None:
    """Whether the router and the other side reach each server where it listens."""
    if len({part.network for part in parts}) == 1:
        return
    for part in parts:
        if part.member.role is Role.ROUTER:
            continue
        where = str(part.profile.arg("host") or "127.0.0.1")
        if where in LOOPBACK and where not in (_ANY, "::"):
            text = f"{part.member.name} listens on {where} of {part.member.host}, where no other host reaches it"
            found.block(ROLES, f"{text}: leave out host, or write {_ANY}")
        if part.address in LOOPBACK:
            text = f"address {part.address} of {part.member.name} is another machine on each host"
            found.block(ROLES, f"{text}: write the address of {part.member.host}")


def _alike(parts: Sequence[Part], found: Findings) -> None:
    """What prefill and decode servers must have in common on their hosts."""
    first, *others = parts
    for other in others:
        if (files := _files(first)) and (theirs := _files(other)) and files != theirs:
            text = f"the model of {first.member.name} on {first.member.host} is another one than that of {other.member.name}"
            found.block(ROLES, f"{text} on {other.member.host}: its files differ")
        mine, its = first.plan.facts.sglang, other.plan.facts.sglang
        if not first.profile.command and mine and its and mine != its:
            found.warn(ROLES, f"{first.member.name} runs sglang {mine}, {other.member.name} {its}: use one version")


def _files(part: Part) -> str | None:
    return next((finding.files for finding in part.plan.findings if finding.check == "model" and finding.files), None)


def _waits(parts: Sequence[Part], sets: Mapping[str, object], found: Findings) -> None:
    """Whether everybody waits long enough: the router for a start, the servers and the router for a transfer."""
    router = parts[-1]
    patience_s = whole(router.profile.args.get("worker-startup-timeout-secs")) or 0
    request_s = whole(router.profile.args.get("request-timeout-secs")) or _REQUEST_S
    for part in parts[:-1]:
        name = part.member.name
        _, usual = launch_records.usual(part.member.host, part.profile.name, sets, part=name)
        if usual is not None and usual.high_s * _MARGIN > patience_s:
            text = f"{name} took up to {usual.high_s:.0f} s to start here, the router forgets it after {patience_s} s"
            found.warn(ROLES, f"{text}: raise worker-startup-timeout-secs of the router")
        for variable in WAITS:
            value = part.plan.command.env.get(variable, str(_WAIT_S))  # the host's entry may have it, too
            if not value.strip().isdigit() or int(value) <= 0:
                found.block(ROLES, f"{variable} of {name} is {one_line(value, 40)!r}: write whole seconds")
            elif int(value) > request_s:
                text = f"{variable} of {name} is {value} s, the router gives up after {request_s} s"
                found.warn(ROLES, f"{text}: raise request-timeout-secs of the router")


# What the hosts are asked


async def _asked(groups: GroupSession, parts: Sequence[Part]) -> list[Finding]:
    """Whether the ports beside the servers' own are free, and the router is installed."""
    extra = [(part, port, what) for part in parts for port, what in part.ports if what != "port"]
    router, transport = parts[-1], groups.of(parts[-1].member).transport
    python = router.profile.command[0]
    holders, (version, flags) = await asyncio.gather(
        asyncio.gather(*(listener(groups.of(part.member).transport, port) for part, port, _ in extra)),
        _router(transport, python) if _by_python(router.profile) else _nobody(),
    )
    found = Findings()
    for (part, port, what), holder in zip(extra, holders, strict=True):
        if holder is not None:
            _taken(part, port, what, holder, found)
    if version == "none":
        text = f"{router.member.host}: {python} has no sglang_router: pip install sglang-router there"
        found.block(ROLES, f"{text}, or name its program with command in [group.router]")
    elif version:
        found.ok(ROLES, f"{python} of {router.member.host} has sglang-router {version}")
        _router_flags(router, version, flags, found)
    return found


def _by_python(profile: LaunchProfile) -> bool:
    """Whether an interpreter of the host starts it: what a container or a program of its own has is not asked."""
    return profile.container is None and profile.command[1:3] == ("-m", ROUTER_MODULE)


async def _nobody() -> tuple[None, None]:
    return None, None


async def _router(transport: Transport, python: str) -> tuple[str | None, frozenset[str] | None]:
    """Version and flags of an interpreter's router; "none" where it has none, None where it does not answer."""
    version = await _router_version(transport, python)
    known = version is not None and version != "none"
    return version, await learn_router_flags(transport, python, version) if known and version else None


def _router_flags(router: Part, version: str, flags: frozenset[str] | None, found: Findings) -> None:
    """What the router would refuse; () where it does not say what it takes."""
    command = router.plan.command
    argv = command.argv[command.argv.index(ROUTER_MODULE) + 1 :]
    names = [word.partition("=")[0] for word in argv if word.startswith("--")]
    names += [f"--{name}" for name in (*command.secret_args, *command.open_args)]
    for name in unknown_flags(names, flags):
        near = difflib.get_close_matches(normalise(name), sorted(flags or ()), n=1, cutoff=0.75)
        hint = f": did you mean --{near[0]}?" if near else ""
        found.block(ROLES, f"{name} of the router is unknown to sglang-router {version}{hint}")


async def _router_version(transport: Transport, python: str) -> str | None:
    """Of a host's interpreter; "none" where it has no router, None where it does not answer."""
    done = await transport.run(
        f"cd / && {shell_path(python)} -c {quote(_HAS_ROUTER)} 2>/dev/null; exit 0", timeout_s=30.0
    )
    return one_line(done.stdout.decode("utf-8", "replace"), 40) or None


def _taken(part: Part, port: int, what: str, holder: PortHolder, found: Findings) -> None:
    whose = f"port {port} of {part.member.host}, the {what} of {part.member.name},"
    found.block(ROLES, in_use(whose, holder), holder.run_id)


async def _reached(groups: GroupSession, parts: Sequence[Part]) -> list[Finding]:
    """Whether the router reaches each server's port, and the decodes each bootstrap port."""
    router = parts[-1]
    decodes = [part for part in parts if part.member.role is Role.DECODE]
    wanted = [(part, part.plan.command.port, [router]) for part in parts[:-1]]
    wanted += [(part, part.table.bootstrap_port, decodes) for part in parts if part.table.bootstrap_port is not None]
    looks = []
    for part, port, callers in wanted:
        hosts = dict.fromkeys(caller.member.host for caller in callers if caller.network != part.network)
        if hosts:
            looks.append(reach([groups.sessions[host] for host in (part.member.host, *hosts)], part.address, port))
    return [replace(finding, check=ROLES) for found in await asyncio.gather(*looks) for finding in found]
