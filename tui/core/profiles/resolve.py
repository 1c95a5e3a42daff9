"""A launch profile with what it extends and what `--set` changes: tables merge, everything else is replaced."""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, time
from typing import Any

from tui.core.profiles import checks, role_conflicts, roles
from tui.core.profiles.checks import Problem, is_number
from tui.core.profiles.files import SETS, Library, ProfileError, ProfileFile
from tui.core.profiles.files import problems as problems_of_table
from tui.core.profiles.launch_profile import ContainerTable, LaunchProfile, NodesTable, SlurmTable
from tui.core.profiles.merging import merge_flags, merge_value
from tui.core.profiles.secrets import learn_secrets
from tui.core.sglang.flags import flag_table, normalise
from tui.core.text import one_line, read_toml

Sets = Mapping[str, object] | Iterable[str]


def parse_sets(sets: Sets, errors: list[ProfileError]) -> tuple[tuple[str, Any], ...]:
    """Keys and values of overrides; what is not one is added to `errors`."""
    if isinstance(sets, Mapping):
        return tuple(sets.items())
    items = []
    for text in sets:
        key, equals, value = text.partition("=")
        key = key.strip()
        if bad := list(checks.controls(text, key)):
            errors += [ProfileError(SETS, *problem) for problem in bad]
        elif equals and key:
            items.append((key, parse_set_value(key, value)))
        else:
            advice = f"write {one_line(key) or 'key'}=VALUE"
            errors.append(ProfileError(SETS, one_line(text) or None, "needs a value", advice))
    return tuple(items)


def parse_set_value(key: str, text: str) -> Any:
    """The value of `--set key=text`: TOML where it is TOML, else text. Flags that take text keep their spelling."""
    try:
        table = read_toml(f"v = {text}")
    except ValueError:
        if key == "nodes.hosts" and "," in text:
            return [part.strip() for part in text.split(",")]
        if key.rpartition(".")[2] == "gpus" and re.fullmatch(r"\d+(,\d+)*", text.replace(" ", "")):
            return [int(part) for part in text.split(",")]
        return text
    value = table["v"]
    if len(table) != 1 or isinstance(value, date | datetime | time):
        return text
    flag = key.rpartition("args.")[2]
    if is_number(value) and ("env." in f"{key.rpartition('.')[0]}." or flag_table().type_of(flag) == "text"):
        return text.strip()
    return value


def read_sets(sets: Sets) -> dict[str, object]:
    """Overrides as values, as they were typed or as an older record kept them.

    What cannot be read is left out: `load_launch` names it.
    """
    found = parse_sets(sets, [])
    return {key: parse_set_value(key, value) if isinstance(value, str) else value for key, value in found}


def as_compared(sets: Mapping[str, object]) -> dict[str, str]:
    """Overrides as two launches are held against each other: "0.880", 0.88 and args.x are one; the port does not count."""
    found = {}
    for key, value in read_sets(sets).items():
        name = key.removeprefix("args.")
        found[name if "." in name else flag_table().canonical(name)] = str(value)
    found.pop("port", None)
    return found


def resolve(
    library: Library, entry: ProfileFile, sets: Sequence[tuple[str, Any]]
) -> tuple[LaunchProfile | None, list[ProfileError]]:
    """A file with what it extends and with overrides, and everything that is wrong with all of them.

    A profile only where nothing is wrong.
    """
    chain, errors = library.chain(entry)
    merged: dict[str, Any] = {}
    for file in reversed(chain):
        # Of what is broken, the rest is merged, so that overrides are checked all the same.
        table = {
            k: v
            for k, v in file.table.items()
            if k not in ("args", "env", "requires", "container", "nodes", "slurm", "group") or isinstance(v, dict)
        }
        if "gpus" in table and "env" in merged:  # the later word about GPUs holds, in whichever form
            merged["env"] = {k: v for k, v in merged["env"].items() if k != "CUDA_VISIBLE_DEVICES"}
        elif "CUDA_VISIBLE_DEVICES" in table.get("env", {}):
            merged.pop("gpus", None)
        if "nodes" in table:  # and about hosts
            merged.pop("host", None)
            merged.pop("slurm", None)
        elif "slurm" in table or "host" in table:
            merged.pop("nodes", None)
        merged = _merge(merged, table)
    for key, value in sets:
        merged, problems = _apply_set(merged, key, value)
        errors += [ProfileError(SETS, (where or "").removeprefix("args."), what, how) for where, what, how in problems]
    learn_secrets(merged)
    if errors:
        return None, errors
    if "container" in merged and not merged["container"].get("image"):
        return None, [ProfileError(entry.path, "container.image", "is missing", "say which image to run")]
    if "nodes" in merged:
        if not merged["nodes"].get("hosts"):
            return None, [ProfileError(entry.path, "nodes.hosts", "is missing", 'write hosts = ["a", "b"]')]
        if problems := list(checks.beside_nodes(merged)):
            return None, [ProfileError(entry.path, *problem) for problem in problems]
    if "slurm" in merged and (problems := [*checks.slurm(merged["slurm"]), *checks.beside_slurm(merged)]):
        return None, [ProfileError(entry.path, *problem) for problem in problems]
    if missing := roles.missing(merged.get("group")):
        wrong = (f"group.{missing}", "is missing", "a group needs a prefill and a decode")
        return None, [ProfileError(entry.path, *wrong)]
    if "group" in merged and (problems := list(checks.beside_group(merged))):
        return None, [ProfileError(entry.path, *problem) for problem in problems]
    args = merged.get("args", {})
    if not merged.get("command") and "model-path" not in {
        flag_table().canonical(name) for name, value in args.items() if value is not False
    }:
        return None, [ProfileError(entry.path, "args.model-path", "is missing", "say which model to serve")]
    profile = _profile(entry, merged)
    if profile.group and (conflicts := list(role_conflicts.problems(profile))):
        return None, [ProfileError(entry.path, *problem) for problem in conflicts]
    return profile, []


def _profile(entry: ProfileFile, merged: Mapping[str, Any]) -> LaunchProfile:
    # Words about one file are not words about another that extends it.
    given: dict[str, Any] = {key: entry.table.get(key) for key in ("description", "hypothesis", "known", "extends")}
    given |= {key: tuple(merged[key]) for key in ("gpus", "wrapper", "command") if key in merged}
    given |= {key: merged[key] for key in ("cwd", "host") if key in merged}
    if table := merged.get("container"):
        engine = table.get("engine", ContainerTable.engine)
        words = {key: tuple(table[key]) for key in ("options", "mounts") if key in table}
        given["container"] = ContainerTable(
            image=table["image"],
            engine=(engine,) if isinstance(engine, str) else tuple(engine),
            gpus=table.get("gpus", ContainerTable.gpus),
            **words,
        )
    if table := merged.get("nodes"):
        given["nodes"] = NodesTable(**{**table, "hosts": tuple(table["hosts"])})
    if "slurm" in merged:
        job: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in merged["slurm"].items()}
        given["slurm"] = SlurmTable(**job)
    if table := merged.get("group"):
        given["group"] = roles.tables_of(table, merged.get("args", {}))
    return LaunchProfile(
        name=entry.name,
        path=entry.path,
        startup_timeout_s=float(merged.get("startup_timeout_s", LaunchProfile.startup_timeout_s)),
        requires={name: v if isinstance(v, str) else f">={v}" for name, v in merged.get("requires", {}).items()},
        env={name: str(value) for name, value in merged.get("env", {}).items() if value is not False},
        args=dict(merged.get("args", {})),
        **given,
    )


def _apply_set(merged: dict[str, Any], key: str, value: Any) -> tuple[dict[str, Any], list[Problem]]:
    """One `--set` on top of a merged profile, and what is wrong with it."""
    head, dot, rest = key.partition(".")
    if key == "gpus":
        if not isinstance(value, list) or not value or not all(type(item) is int and item >= 0 for item in value):
            return merged, [("gpus", "must be a list of GPU numbers", "write gpus=[0,1]")]
        env = {name: text for name, text in merged.get("env", {}).items() if name != "CUDA_VISIBLE_DEVICES"}
        return {**merged, "gpus": value, "env": env}, list(checks.launch({"gpus": value}))
    if not dot:
        head, rest = "args", key
    if head == "args":
        rest = normalise(rest)
        problems = list(checks.flags({rest: value}, free=bool(merged.get("command"))))
    elif head == "env":
        problems = list(checks.variable(rest, value))
        if rest == "CUDA_VISIBLE_DEVICES":  # the later word about GPUs holds, in whichever form
            merged = {name: entry for name, entry in merged.items() if name != "gpus"}
    elif head in ("nodes", "slurm"):
        if key == "slurm.time":
            value = str(value)  # minutes are a number in TOML
        problems = problems_of_table({"kind": "launch", head: {rest: value}}, "launch")
    elif head == "requires":
        problems = list(checks.requirement(rest, value))
    elif head == "group":
        return roles.with_set(merged, rest, value)
    else:
        known = "it takes flags, env.NAME, requires.NAME, nodes.NAME, slurm.NAME, group.ROLE.KEY and gpus"
        return merged, [(key, "unknown key", known)]
    return (merged if problems else _merge(merged, {head: {rest: value}})), problems


def _merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Tables merge, everything else is replaced; the names of one flag are one key, and the later spelling holds."""
    merged: dict[str, Any] = merge_value(base, over)
    if "args" in base and "args" in over:
        merged["args"] = merge_flags(base["args"], over["args"])  # each in its place
    if "group" in base and "group" in over:
        merged["group"] = roles.merge_groups(base["group"], over["group"])
    return merged
