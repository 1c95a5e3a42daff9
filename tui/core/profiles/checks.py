"""What the shape of a profile leaves open: keys that concern each other, flags and their values, environment, requirements.

Each check yields problems as (dotted key, message, suggestion), so that all are reported at once. A table may have any
shape: what is wrong with that is reported by `schema`.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime, time
from itertools import islice
from pathlib import PurePosixPath
from typing import Any

from tui.core.model.profile import MOST_ARMS, REFERENCE, SIDE_BY_SIDE, arm_letters
from tui.core.runs.docker_run import ENGINES, options_end
from tui.core.sglang.flags import flag_table, normalise, parse_specifier
from tui.core.text import control_in, one_line

Problem = tuple[str | None, str, str | None]  # dotted key, None = the profile as a whole; message; suggestion
OF_NODES = ("nnodes", "node-rank", "dist-init-addr")  # flags that differ from node to node
REQUIREMENTS = ("sglang", "torch", "driver", "cuda", "compute_capability", "gpus", "memory_gib")

_WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_NUMBER_WORDS = {word: number for number, word in enumerate(_WORDS, 1)} | {"sixteen": 16}
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SIZE = re.compile(r"\d+|\d+(\.\d+)?[kMGT]|\d+[KMGT]i")


def did_you_mean(name: str, names: Iterable[str]) -> str | None:
    """ "did you mean X?" where one of `names` is spelled much like `name`."""
    found = difflib.get_close_matches(name, list(names), n=1, cutoff=0.6)
    return f"did you mean {found[0]}?" if found else None


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def controls(value: Any, key: str = "") -> Iterator[Problem]:
    """Texts that a terminal would obey, at any depth; a newline and a tab are legitimate."""
    if isinstance(value, str):
        if found := control_in(value):
            yield key, f"holds the control character {found[1]} at character {found[0]}", "remove it"
    elif isinstance(value, dict):
        for name, inner in value.items():
            at = f"{key}.{name}" if key else name
            if found := control_in(name):
                yield at, f"has the control character {found[1]} in its name", "remove it"
            yield from controls(inner, at)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from controls(inner, f"{key}.{number}")


def launch(table: Mapping[str, Any]) -> Iterator[Problem]:
    """Everything of a launch profile's table that pydantic's model does not see."""
    args, requires = table.get("args", {}), table.get("requires", {})
    if isinstance(args, dict):
        yield from flags(args, free=bool(table.get("command")))
    yield from _environment(table)
    if isinstance(requires, dict):
        for name, value in requires.items():
            yield from requirement(name, value)
    if isinstance(table.get("group"), dict):
        yield from group(table["group"], free=bool(table.get("command")))
        yield from beside_group(table)
    if isinstance(table.get("container"), dict):
        yield from container(table["container"], table.get("wrapper"))
    if isinstance(table.get("nodes"), dict):
        yield from nodes(table["nodes"])
        yield from beside_nodes(table)
    if isinstance(table.get("slurm"), dict):
        yield from slurm(table["slurm"])
        yield from beside_slurm(table)
    cwd = table.get("cwd")
    if isinstance(cwd, str) and not cwd.startswith(("/", "~/")):
        yield "cwd", "must be an absolute path", "begin it with / or ~/"
    if table.get("host") == "":
        yield "host", "must not be empty", None


def _environment(table: Mapping[str, Any]) -> Iterator[Problem]:
    """`env` and `gpus` of a profile, or of a member of its group."""
    env, gpus = table.get("env", {}), table.get("gpus")
    if isinstance(env, dict):
        for name, value in env.items():
            yield from variable(name, value)
        if gpus and "CUDA_VISIBLE_DEVICES" in env:
            yield "gpus", "duplicates env.CUDA_VISIBLE_DEVICES", "keep one of the two"
    if isinstance(gpus, list) and len(set(map(str, gpus))) < len(gpus):
        yield "gpus", "names a GPU twice", None


def one_or_more(value: Any) -> Any:
    """Tables of members: `[group.prefill]` is the only one, `[[group.prefill]]` are several."""
    return [value] if isinstance(value, dict) else value


def group(table: Mapping[str, Any], *, free: bool) -> Iterator[Problem]:
    """What the tables of `[group]` say."""
    for role in ("prefill", "decode"):
        members = tables(one_or_more(table.get(role)))
        for number, member in enumerate(members):
            where = f"group.{role}" if isinstance(table[role], dict) else f"group.{role}.{number}"
            for key, message, suggestion in _member(member, free=free):
                yield f"{where}.{key}", message, suggestion
    router = table.get("router")
    if isinstance(router, dict):
        for key, message, suggestion in _environment(router):
            yield f"group.router.{key}", message, suggestion
        if isinstance(args := router.get("args", {}), dict):
            for key, message, suggestion in (*flags(args, free=True), *_taken(args, _BY_ROUTER, "args")):
                yield f"group.router.{key}", message, suggestion


def beside_group(table: Mapping[str, Any]) -> Iterator[Problem]:
    """What a profile with `[group]` may not say besides."""
    if isinstance(args := table.get("args", {}), dict):
        yield from _taken(args, _BY_GROUP, "args")
    if table.get("nodes"):
        yield "group", "and nodes exclude each other", "keep one of the two"


# Flags that the tables of a group stand for, and what to write instead.
_BY_GROUP = {
    "disaggregation-mode": "leave it out",
    "disaggregation-bootstrap-port": "write group.prefill.bootstrap_port",
}
_BY_MEMBER = {
    "disaggregation-mode": "leave it out",
    "disaggregation-bootstrap-port": "write bootstrap_port of the prefill",
}
_BY_ROUTER = {
    **dict.fromkeys(("pd-disaggregation", "prefill", "decode", "worker-urls", "mini-lb"), "leave it out"),
    "policy": "write policy of the router",
}


def _member(member: Mapping[str, Any], *, free: bool) -> Iterator[Problem]:
    """One prefill or decode."""
    yield from _environment(member)
    args, hosts = member.get("args", {}), member.get("hosts")
    if isinstance(args, dict):
        yield from flags(args, free=free)
        yield from _taken(args, {**_BY_MEMBER, "port": "write port of the member"}, "args")
    if hosts and "host" in member:
        yield "hosts", "and host exclude each other", "keep one of the two"
    if isinstance(hosts, list) and len(set(map(str, hosts))) < len(hosts):
        yield "hosts", "names a host twice", None
    if hosts and len(hosts) > 1 and "address" in member:
        yield "address", "is one address for several hosts", "write a table for each of them"
    if "" in (member.get("host"), *(hosts if isinstance(hosts, list) else ())):
        yield "host", "must not be empty", None


def _taken(args: Mapping[str, Any], names: Mapping[str, str], prefix: str) -> Iterator[Problem]:
    canonical = flag_table().canonical
    for name in args:
        if (instead := names.get(canonical(name), names.get(normalise(name)))) is not None:
            yield f"{prefix}.{name}", "is set by the group", instead


def container(table: Mapping[str, Any], wrapper: object) -> Iterator[Problem]:
    """What the keys of `[container]` say."""
    if wrapper:
        yield "container", "and wrapper exclude each other", "put the engine's own prefix into container.engine"
    engine = table.get("engine", "docker")
    words = [engine] if isinstance(engine, str) else engine
    if _are_texts(words) and not any(PurePosixPath(word).name in ENGINES for word in words):
        yield "container.engine", f"must name {', '.join(ENGINES[:-1])} or {ENGINES[-1]}", None
    options = table.get("options", [])
    if _are_texts(options) and (end := options_end(options)) < len(options):
        stray = one_line(options[end], 60)
        yield "container.options", f"{stray!r} belongs to no option", "give each option and its value as words"
    for mount in table.get("mounts", []) if _are_texts(table.get("mounts", [])) else ():
        if ":" not in mount:
            yield "container.mounts", f"{one_line(mount, 80)!r} names no place in the container", "write HOST:INSIDE"


def nodes(table: Mapping[str, Any]) -> Iterator[Problem]:
    """What the keys of `[nodes]` say."""
    hosts = table.get("hosts", [])
    if _are_texts(hosts) and len(set(hosts)) < len(hosts):
        yield "nodes.hosts", "names a host twice", "a host runs one node"
    if _are_texts(hosts) and not all(hosts):
        yield "nodes.hosts", "has an empty name", None
    interface = table.get("interface")
    if isinstance(interface, str) and not re.fullmatch(r"[^\s/]{1,15}", interface):
        yield "nodes.interface", f"{one_line(interface, 40)!r} is not the name of an interface", "see: ip -o addr"


def beside_nodes(table: Mapping[str, Any]) -> Iterator[Problem]:
    """What a profile with `[nodes]` may not say besides."""
    if table.get("host"):
        yield "nodes", "and host exclude each other", "nodes.hosts names the hosts"
    if table.get("command"):
        yield "nodes", "is about SGLang's nodes: it and command exclude each other", None
    args = table.get("args")
    canonical = flag_table().canonical
    for name, value in args.items() if isinstance(args, dict) else ():
        if canonical(name) in OF_NODES and value is not False:
            yield f"args.{name}", "is what [nodes] sets on each host", "remove it, or [nodes]"


# What may stand in a line of a batch script: sbatch reads quotes, backslashes, # and blanks there.
_SLURM_WORD = re.compile(r"[A-Za-z0-9_.,:@%+&|*()\[\]/=!^-]{1,200}")
_SLURM_TIME = re.compile(r"\d{1,6}|\d{1,4}:\d\d(:\d\d)?|\d{1,3}-\d{1,2}(:\d\d){0,2}")
_SLURM_OPTION = re.compile(r"(--[a-z][a-z-]*|-[A-Za-z])(=?.*)")
# Options that the launch itself gives, by every name that sbatch has for them, with the key that says it where one does.
SLURM_OURS: dict[str, str | None] = {
    **dict.fromkeys(("--partition", "-p"), "partition"),
    **dict.fromkeys(("--account", "-A"), "account"),
    **dict.fromkeys(("--qos", "-q"), "qos"),
    **dict.fromkeys(("--constraint", "-C"), "constraint"),
    **dict.fromkeys(("--nodes", "-N"), "nodes"),
    **dict.fromkeys(("--gpus-per-node", "--gres", "--gpus", "-G", "--gpus-per-task"), "gpus_per_node"),
    **dict.fromkeys(("--time", "-t"), "time"),
    **dict.fromkeys(
        (
            *("--ntasks", "-n", "--ntasks-per-node", "--array", "-a", "--requeue", "--no-requeue", "--signal"),
            *("--output", "-o", "--error", "-e", "--open-mode", "--job-name", "-J", "--comment", "--wrap"),
            *("--parsable", "--test-only", "--wait", "-W", "--hold", "-H", "--chdir", "-D", "--input", "-i"),
            *("--export", "--export-file", "--clusters", "-M", "--uid", "--gid", "--ignore-pbs", "--help", "-h"),
            *("--usage", "--version", "-V"),
        )
    ),
}  # fmt: skip


def _ours(option: str) -> str | None:
    """Which option of the launch's own this is; sbatch takes the beginning of a name for the whole."""
    long = option.startswith("--")
    return next((name for name in SLURM_OURS if name == option or (long and name.startswith(option))), None)


def slurm(table: Mapping[str, Any]) -> Iterator[Problem]:
    """What the keys of `[slurm]` say."""
    for key in ("partition", "account", "qos", "constraint"):
        value = table.get(key)
        if isinstance(value, str) and not _SLURM_WORD.fullmatch(value):
            yield f"slurm.{key}", f"{one_line(value, 40)!r} is not a word that sbatch takes", "no blanks and no quotes"
    limit = table.get("time")
    if isinstance(limit, str) and not _SLURM_TIME.fullmatch(limit):
        yield "slurm.time", f"{one_line(limit, 40)!r} is not a time", 'write "4:00:00", "1-12:00:00" or minutes'
    options = table.get("options", [])
    for at, option in enumerate(options) if _are_texts(options) else ():
        read = _SLURM_OPTION.fullmatch(option)
        if read is None or not _SLURM_WORD.fullmatch(option):
            problem = f"{one_line(option, 60)!r} is not an option of sbatch in one word"
            yield f"slurm.options.{at}", problem, 'write "--name=value" without blanks and quotes'
        elif (ours := _ours(read[1])) is not None:
            instead = SLURM_OURS[ours]
            yield (
                f"slurm.options.{at}",
                f"{read[1]} is set by the launch",
                f"write {instead}" if instead else "remove it",
            )
    if table.get("mounts") and not table.get("image"):
        yield "slurm.mounts", "are for an image", "name one, or remove them"
    for mount in table.get("mounts", []) if _are_texts(table.get("mounts", [])) else ():
        if ":" not in mount or "," in mount:
            yield "slurm.mounts", f"{one_line(mount, 80)!r} names no place in the container", "write HOST:INSIDE"


def beside_slurm(table: Mapping[str, Any]) -> Iterator[Problem]:
    """What a profile with `[slurm]` may not say besides."""
    for other, why in (
        ("nodes", "slurm.nodes says how many nodes; Slurm chooses them"),
        ("group", "a job is one server"),
        ("container", "write slurm.image"),
    ):
        if table.get(other):
            yield "slurm", f"and {other} exclude each other", why
    several = table["slurm"].get("nodes", 1) != 1
    if several and table.get("command"):
        yield "slurm.nodes", "is about SGLang's nodes: it and command exclude each other", None
    args = table.get("args")
    for name, value in args.items() if isinstance(args, dict) else ():
        if flag_table().canonical(name) in OF_NODES and value is not False:
            yield f"args.{name}", "is what [slurm] sets on each node", "remove it"


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def bench(table: Mapping[str, Any]) -> Iterator[Problem]:
    """What the keys of a bench profile say together."""
    users, rates = numbers(table.get("concurrency")), numbers(table.get("rate"))
    if "concurrency" in table and "rate" in table:
        yield None, "concurrency and rate exclude each other", "keep one of the two"
    loads = [f"c{count}" for count in users] + [f"r{rate:g}" for rate in rates]  # as the ids of results name them
    if len(set(loads)) < len(loads):
        yield None, "the same load is in it twice", "runs says how often each is measured"
    driver = table.get("driver", "eagletui")
    slo = table.get("slo")
    if isinstance(slo, dict):
        if not {"ttft_ms", "tpot_ms", "e2e_ms"} & set(slo):
            yield "slo", "names no limit", "add ttft_ms, tpot_ms or e2e_ms"
        if driver != "eagletui":
            yield None, f"driver {driver} cannot search for limits", "leave driver or slo out"
        bounds = users or rates
        if len(bounds) != 2 or bounds[0] >= bounds[1]:
            yield (
                None,
                "with slo, concurrency or rate is the lowest and the highest load of the search",
                "write concurrency = [1, 256] or rate = [0.5, 32.0]",
            )
    if driver == "command" and not table.get("command"):
        yield None, 'driver = "command" needs a command', 'add command = ["program", "argument"]'
    if driver != "command" and table.get("command"):
        yield None, 'command is for driver = "command" only', "remove it, or set the driver"
    dataset = table.get("dataset", "prompts")
    if isinstance(dataset, str) and dataset not in ("prompts", "random-ids") and not dataset.endswith(".jsonl"):
        yield None, f'dataset "{dataset}" is unknown', 'write "prompts", "random-ids" or a path ending in .jsonl'


def experiment(table: Mapping[str, Any]) -> Iterator[Problem]:
    """What the keys of an experiment say together."""
    looks = numbers(table.get("looks"))
    if sorted(set(looks)) != looks:
        yield None, "looks must grow, each number once", "write looks = [3, 5, 8]"
    elif looks and "pairs" in table and table["pairs"] != looks[-1]:
        yield None, f"pairs is {table['pairs']}, but the last look is at {looks[-1]}", "leave pairs out"
    if looks and table.get("method") == "halving":
        yield "looks", 'is for method "whole": a halving confirms two arms with all pairs', "leave looks out"
    arms = tables(table.get("arms"))[:MOST_ARMS]
    letters = arm_letters(len(arms))
    for number, arm in enumerate(arms):
        letter, earlier, against = letters[number], letters[:number], arm.get("against")
        key = f"arms.{number}.against"
        if against is not None and not earlier:
            yield key, f"arm {letter} is the reference: it has no against", "remove it"
        elif isinstance(against, str) and against != REFERENCE and table.get("method") == "halving":
            yield key, f'is for method "whole": a halving compares with {REFERENCE}', "remove it"
        elif isinstance(against, str) and against not in earlier:
            choice = " or ".join(repr(other) for other in earlier[:SIDE_BY_SIDE])
            message = f"arm {letter} can be compared with an earlier arm only, not with {against!r}"
            yield key, message, f"write against = {choice}"


def numbers(value: Any) -> list[Any]:
    """The numbers of a list; [] where it is none."""
    return [item for item in value if is_number(item)] if isinstance(value, list) else []


def tables(value: Any) -> list[dict[str, Any]]:
    """The tables of a list; what is not a table counts as an empty one."""
    return [item if isinstance(item, dict) else {} for item in value] if isinstance(value, list) else []


def variable(name: str, value: Any) -> Iterator[Problem]:
    """One environment variable: text or a number; false leaves an inherited one out."""
    key = f"env.{name}"
    if not _ENV_NAME.fullmatch(name):
        yield key, "is not a name for an environment variable", None
    elif value is False or is_number(value):
        return
    elif not isinstance(value, str):
        yield key, "must be text", f'write {name} = "1"' if value is True else "put it in quotes"


def requirement(name: str, value: Any) -> Iterator[Problem]:
    """One entry of [requires]: a version condition, or a number that means that much or more."""
    key = f"requires.{name}"
    if name not in REQUIREMENTS:
        yield (key, "unknown requirement", did_you_mean(name, REQUIREMENTS) or f"known: {', '.join(REQUIREMENTS)}")
    elif isinstance(value, bool) or not isinstance(value, str | int | float):
        yield key, 'must be text such as ">=0.5.10", or a number', None
    elif parse_specifier(str(value)) is None:
        yield (key, f'"{one_line(str(value))}" is not a version condition', 'write it like ">=0.5.10" or ">=0.5,<0.6"')


def flags(args: Mapping[str, Any], *, free: bool) -> Iterator[Problem]:
    """Names and values of flags; `free` = another server's, whose names are not known here."""
    table = flag_table()
    seen: dict[str, str] = {}
    for raw, value in args.items():
        key = f"args.{raw}"
        if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", normalise(raw)):
            yield key, "is not a name for a flag", None
            continue
        yield from _plain(key, value)
        if free:
            continue
        if not table.known(raw):
            meant = table.suggest(raw)
            yield key, "unknown flag", f"did you mean {meant}?" if meant else None
            continue
        if (first := seen.setdefault(table.canonical(raw), raw)) != raw:
            yield key, f"is the same flag as {first}", "keep one of the two"
        kind = table.type_of(raw)
        if kind and value is not False:
            for message, suggestion in _value(raw, kind, value):
                yield key, message, suggestion


def _plain(key: str, value: Any) -> Iterator[Problem]:
    """Values that no command line can carry."""
    if isinstance(value, date | datetime | time):
        yield key, "must be text", "put it in quotes"
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _plain(key, part)


def _value(name: str, kind: str, value: Any) -> Iterator[tuple[str, str | None]]:
    """At most one problem, with the line to write instead where it can be told."""
    if kind == "switch":
        if not isinstance(value, bool):
            on = str(value).lower() not in ("false", "no", "off", "0")
            yield "is a switch: true or false", f"write {name} = {'true' if on else 'false'}"
    elif kind.startswith("many_"):
        items = value if isinstance(value, list) else [value]
        yield from islice((p for item in items for p in _value(name, kind.removeprefix("many_"), item)), 1)
    elif isinstance(value, list) and kind != "text":
        yield ("takes one value", f"write {name} = {value[0]}" if len(value) == 1 and is_number(value[0]) else None)
    elif value is True:
        if kind != "optional":
            yield "needs a value", None
    elif kind == "int":
        if not isinstance(value, int):
            yield "must be a whole number", _write(name, _whole(value))
        elif name == "port" and not 0 < value < 65536:
            yield "must be between 1 and 65535", None
    elif kind == "float":
        if not is_number(value):
            quoted = isinstance(value, str) and re.fullmatch(r"\s*(-?\d{1,18}(\.\d{1,18})?)\s*", value)
            yield "must be a number", _write(name, quoted[1] if quoted else None)
        elif flag_table().canonical(name) == "mem-fraction-static" and not 0 < value <= 1:
            share = f"{value / 100:g}" if 10 <= value < 100 else None  # meant as per cent
            yield "is a share of the memory, between 0 and 1", _write(name, share)
    elif kind == "size" and not isinstance(value, int) and not (isinstance(value, str) and _SIZE.fullmatch(value)):
        yield 'must be a whole number, or text such as "25.6k" or "1Mi"', _write(name, _whole(value))


def _write(name: str, value: object | None) -> str | None:
    return None if value is None else f"write {name} = {value}"


def _whole(value: Any) -> int | None:
    """The whole number that was probably meant: "8", "eight", 8.0."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str):
        text = value.strip().lower()
        if re.fullmatch(r"-?\d{1,18}", text):
            return int(text)
        return _NUMBER_WORDS.get(text)
    return None


OF_KIND = {"launch": launch, "bench": bench, "experiment": experiment}
