"""What the members of a `[group]` are to each other, as far as their profile alone says it: ports, GPUs, flags, time-outs."""

from collections.abc import Iterable, Iterator
from itertools import combinations

from tui.core.model.group import Role
from tui.core.profiles.checks import Problem
from tui.core.profiles.launch_profile import LaunchProfile, RoleTable
from tui.core.profiles.roles import member_profile
from tui.core.text import one_line

PROMETHEUS_PORT = 29000  # a router's default
WAITS = ("SGLANG_DISAGGREGATION_WAITING_TIMEOUT", "SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT")  # seconds, whole, 300
# Flags that both sides need the same value of: a transfer between others is refused, or brings something else.
_SAME = ("model-path", "served-model-name", "disaggregation-transfer-backend", "kv-cache-dtype", "page-size", "dtype")


def whole(value: object) -> int | None:
    """A number that a flag takes."""
    return int(str(value)) if str(value).isdigit() else None


def ports_of(table: RoleTable) -> Iterator[tuple[int, str]]:
    """Every port that a member listens on, and what for."""
    yield table.port, "port"
    if table.bootstrap_port is not None:
        yield table.bootstrap_port, "bootstrap port"
    if table.role is Role.ROUTER:
        yield whole(table.args.get("prometheus-port")) or PROMETHEUS_PORT, "prometheus-port"


def port_conflicts(members: Iterable[tuple[object, str, str, Iterable[tuple[int, str]]]]) -> Iterator[str]:
    """Ports that two members listen on, of (machine, host as people call it, name, ports); one sentence each."""
    wanted: dict[tuple[object, int], str] = {}
    for machine, host, name, ports in members:
        for port, what in ports:
            use = f"{name} as its {what}"
            other = wanted.setdefault((machine, port), use)
            if other != use:
                yield f"port {port}{f' of {host}' if host else ''} is taken by {other} and by {use}"


def problems(profile: LaunchProfile) -> Iterator[Problem]:
    """What would keep a group from being launched wherever that is tried; two members without a host are on the same."""
    placed = [(table, table.host or profile.host or "") for table in profile.group]
    for text in port_conflicts((host, host, table.name, ports_of(table)) for table, host in placed):
        yield "group", text, "give each a port of its own"
    workers = [(table, host, member_profile(profile, table)) for table, host in placed if table.role is not Role.ROUTER]
    for (one, host, mine), (other, its_host, its) in combinations(workers, 2):
        if host == its_host and (both := sorted(_sure_gpus(mine) & _sure_gpus(its))):
            numbers = ", ".join(map(str, both))
            on = f" of {host}" if host else ""
            yield "group", f"{one.name} and {other.name} both take GPU {numbers}{on}", "name gpus of each"
    first, _, head = workers[0]
    for table, _, member in workers[1:]:
        for flag in _SAME:
            if (here := head.arg(flag)) != (there := member.arg(flag)):
                sides = f"{first.name} has {flag} {_word(here)}, {table.name} {_word(there)}"
                yield "group", sides, "both sides need the same"
    for table, _, member in workers:
        for variable in WAITS:
            value = member.env.get(variable, "1")
            if not value.strip().isdigit() or int(value) <= 0:
                yield "group", f"{variable} of {table.name} is {one_line(value, 40)!r}", "write whole seconds"


def _sure_gpus(profile: LaunchProfile) -> set[int]:
    """GPUs that a server takes whatever its host is: those that are named, else the first of those it takes."""
    if profile.gpus is not None:
        return set(profile.gpus)
    if profile.command or profile.container or profile.wrapper or profile.arg("device"):
        return set()
    if (listed := profile.env.get("CUDA_VISIBLE_DEVICES")) is not None:
        return {int(part) for part in listed.split(",") if part.strip().isdigit()}
    first = profile.arg("base-gpu-id")
    return {first if type(first) is int else 0}


def _word(value: object) -> str:
    return "of SGLang's own choice" if value is None else one_line(str(value), 60)
