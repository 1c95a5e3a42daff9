"""`[group]` of a launch profile: prefill servers, decode servers and the router in front of them.

The members' own profiles are made here, each as if somebody had written it for a server of its own; what they are
called by (addresses) is only known at a launch.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tui.core.model.group import Role
from tui.core.profiles import checks
from tui.core.profiles.checks import Problem
from tui.core.profiles.command import DEFAULT_PORT
from tui.core.profiles.launch_profile import LaunchProfile, RoleTable
from tui.core.profiles.merging import merge_flags, merge_value
from tui.core.sglang.flags import ROUTER_MODULE, flag_table, normalise

BOOTSTRAP_PORT = 8998  # SGLang's default
_SERVERS = (Role.PREFILL, Role.DECODE)


def missing(group: Mapping[str, Any] | None) -> Role | None:
    """The role that a group needs and has not."""
    return None if group is None else next((role for role in _SERVERS if group.get(role) is None), None)


def tables_of(group: Mapping[str, Any], args: Mapping[str, Any]) -> tuple[RoleTable, ...]:
    """The members of a group that was checked, in the order of their start.

    The router takes the profile's own port, the others the next ones; bootstrap ports count from SGLang's default on.
    """
    router = dict(group.get("router", {}))
    port = router.get("port") or _port(args) or DEFAULT_PORT
    written = {table["port"] for role in _SERVERS for table in checks.one_or_more(group[role]) if "port" in table}
    free = (number for number in range(port + 1, 65536) if number not in written)
    bootstrap = _others(BOOTSTRAP_PORT, checks.one_or_more(group["prefill"]), "bootstrap_port")
    found = []
    for role in _SERVERS:
        number = 0
        for table in checks.one_or_more(group[role]):
            own = table.get("port") or next(free)
            booted = (table.get("bootstrap_port") or next(bootstrap)) if role is Role.PREFILL else None
            for host in table.get("hosts") or [table.get("host")]:
                found.append(_table(role, number, table, own, host, booted))
                number += 1
    policy = {"policy": router["policy"]} if "policy" in router else {}
    router["args"] = {**policy, **router.get("args", {})}
    return (*found, _table(Role.ROUTER, 0, router, port, router.get("host"), None))


def _port(args: Mapping[str, Any]) -> int | None:
    found = (value for name, value in args.items() if flag_table().canonical(name) == "port")
    return next((value for value in found if type(value) is int), None)


def _others(first: int, tables: Sequence[Mapping[str, Any]], key: str) -> Iterator[int]:
    """Numbers from `first` on that no table names."""
    taken = {table[key] for table in tables if key in table}
    return (number for number in range(first, 65536) if number not in taken)


def _table(
    role: Role, number: int, table: Mapping[str, Any], port: int, host: str | None, bootstrap: int | None
) -> RoleTable:
    return RoleTable(
        role=role,
        number=number,
        port=port,
        host=host,
        address=table.get("address"),
        gpus=tuple(table["gpus"]) if "gpus" in table else None,
        bootstrap_port=bootstrap,
        command=tuple(table.get("command", ())),
        args=dict(table.get("args", {})),
        env=dict(table.get("env", {})),
    )


def with_set(merged: Mapping[str, Any], path: str, value: Any) -> tuple[dict[str, Any], list[Problem]]:
    """`--set group.ROLE.KEY=value`: of every member of the role, or with `group.ROLE.N.KEY` of one."""
    role, _, rest = path.partition(".")
    number, _, after = rest.partition(".")
    one = int(number) if number.isdigit() else None
    head, dot, inner = (rest if one is None else after).partition(".")
    group = dict(merged.get("group", {}))
    tables = checks.one_or_more(group.get(role, {} if role == Role.ROUTER else None))
    whole = f"group.{path}"
    if not isinstance(tables, list) or not head:
        return dict(merged), [(whole, "unknown key", "write group.prefill.KEY, group.decode.KEY or group.router.KEY")]
    if one is not None and (one >= len(tables) or role == Role.ROUTER):
        return dict(merged), [(whole, f"there is no {role} {one}", f"this group has {len(tables)}, counted from 0")]
    change = {head: {normalise(inner) if head == "args" else inner: value} if dot else value}
    if problems := _problems(role, change, free=bool(merged.get("command"))):
        return dict(merged), problems
    changed = [_with(table, change) if one in (None, at) else table for at, table in enumerate(tables)]
    group[role] = changed[0] if not isinstance(group.get(role), list) else changed
    return {**merged, "group": group}, []


def merge_groups(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`[group]` of a profile on top of that of its base: tables merge, lists of members are replaced."""
    return {**base, **{role: _merge_members(base.get(role), table) for role, table in over.items()}}


def _merge_members(old: Any, new: Any) -> Any:
    return _with(old, new) if isinstance(old, dict) and isinstance(new, dict) else new


def _with(table: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """A member's table with a change; the names of one flag are one key."""
    changed = dict(table)
    for key, value in change.items():
        old: Any = table.get(key)
        flags = key == "args" and isinstance(old, dict) and isinstance(value, dict)
        changed[key] = merge_flags(old, value) if flags else merge_value(old, value)
    if "gpus" in change:  # the later word about GPUs holds, in whichever form
        changed["env"] = {k: v for k, v in (changed.get("env") or {}).items() if k != "CUDA_VISIBLE_DEVICES"}
    elif "CUDA_VISIBLE_DEVICES" in (change.get("env") or {}):
        changed.pop("gpus", None)
    for key, other in (("host", "hosts"), ("hosts", "host")):
        if key in change:
            changed.pop(other, None)
    return changed


def _problems(role: str, change: dict[str, Any], *, free: bool) -> list[Problem]:
    from tui.core.profiles import schema

    table = {"kind": "launch", "group": {role: change}, **({"command": ["x"]} if free else {})}
    return [*schema.check("launch", table), *checks.launch(table)]


def member_profile(profile: LaunchProfile, table: RoleTable, *, apart: bool = False) -> LaunchProfile:
    """The profile of a prefill or decode server: the group's, with what its table says.

    `apart`: other hosts must reach it, and SGLang listens on 127.0.0.1 unless it is told otherwise.
    """
    args = {name: value for name, value in profile.args.items() if flag_table().canonical(name) != "port"}
    args = merge_flags({"host": "0.0.0.0", **args} if apart else args, table.args)
    args |= {"disaggregation-mode": table.role.value}
    if table.bootstrap_port is not None:
        args["disaggregation-bootstrap-port"] = table.bootstrap_port
    args["port"] = table.port
    gpus = table.gpus or (None if table.env.get("CUDA_VISIBLE_DEVICES") else profile.gpus)
    base = {name: text for name, text in profile.env.items() if not (table.gpus and name == "CUDA_VISIBLE_DEVICES")}
    return replace(
        profile, args=args, env=_environment(base, table), gpus=gpus, host=table.host or profile.host, group=()
    )


def router_profile(
    profile: LaunchProfile, table: RoleTable, python: str, urls: Iterable[tuple[RoleTable, str]]
) -> LaunchProfile:
    """The profile of the router: a program of its own.

    Args:
        python: the interpreter of its host.
        urls: where the router reaches each prefill and decode.
    """
    args: dict[str, object] = {"host": "127.0.0.1", "worker-startup-timeout-secs": int(profile.startup_timeout_s)}
    if key := profile.arg("api-key"):
        args["api-key"] = key
    args = merge_flags(args, table.args)
    words = ["--pd-disaggregation"]
    for worker, url in urls:
        words += [f"--{worker.role.value}", url, *([str(worker.bootstrap_port)] if worker.bootstrap_port else [])]
    box = profile.container
    if box is not None:
        python = "python3"  # the image's
    return replace(
        profile,
        command=(*(table.command or (python, "-m", ROUTER_MODULE)), *words),
        args={**args, "port": table.port},
        env=_environment({}, table),
        gpus=(),
        wrapper=(),
        container=replace(box, gpus=False) if box is not None else None,
        requires={},
        host=table.host or profile.host,
        group=(),
    )


def _environment(base: Mapping[str, str], table: RoleTable) -> dict[str, str]:
    whole: dict[str, object] = {**base, **table.env}
    return {name: str(value) for name, value in whole.items() if value is not False}
