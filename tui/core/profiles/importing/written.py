"""A server's call as a profile's TOML, with whole, present-day flag names and values of the flags' own types."""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import PurePosixPath

from tui.core.profiles.importing.batch_job import without_nodes
from tui.core.profiles.importing.call import Call
from tui.core.profiles.secrets import is_secret_arg, is_secret_env
from tui.core.profiles.toml_text import toml_lines
from tui.core.sglang.flags import flag_table, normalise, unabbreviate
from tui.core.text import one_line, sanitize


def profile_text(
    call: Call, flags: Sequence[str], env: Mapping[str, str], warnings: list[str], missed: list[str]
) -> str:
    """The call with its flags as a profile's TOML. Adds sentences about what it changed and what it left out."""
    if call.slurm is not None:
        flags = without_nodes(flags)
    args = _flags(flags, warnings, missed)
    table: dict[str, object] = {"kind": "launch", "description": "imported launch command"}
    rest = dict(env)
    devices = rest.get("CUDA_VISIBLE_DEVICES", "")
    if re.fullmatch(r"\d+(,\d+)*", devices):
        table["gpus"] = [int(number) for number in devices.split(",")]
        rest.pop("CUDA_VISIBLE_DEVICES")
    if call.cwd and call.cwd.startswith(("/", "~/")):
        table["cwd"] = call.cwd
    elif call.cwd:
        warnings.append(f"it ran in the directory {one_line(call.cwd, 80)}: write its whole path as cwd")
    if call.wrapper:
        table["wrapper"] = call.wrapper
    program = call.argv[0]
    if "/" in program and PurePosixPath(program).name.startswith("python") and not call.inside:
        warnings.append(f"the command used {one_line(program, 100)}: name it as python in the host's entry")
    texts = {item.text for item in call.unresolved}
    secrets = [name for name, value in rest.items() if is_secret_env(name, value) and value not in texts]
    secrets += [name for name, value in args.items() if is_secret_arg(name, value) and value not in texts]
    warnings += [
        f"a secret is in {name}: a profile that is saved holds it, in a file only you can read" for name in secrets
    ]
    environment = f"\n\n[env]\n{toml_lines(rest)}" if rest else ""
    if call.container is not None:
        environment = f"\n\n[container]\n{toml_lines(call.container)}{environment}"
    if call.slurm is not None:
        environment = f"\n\n[slurm]\n{toml_lines(call.slurm)}{environment}"
    return sanitize(f"{toml_lines(table)}{environment}\n\n[args]\n{toml_lines(args)}").rstrip("\n") + "\n"


def _flags(words: Sequence[str], warnings: list[str], missed: list[str]) -> dict[str, object]:
    """Flags of a server call by their whole, present-day names, with values as a profile holds them."""
    table = flag_table()
    args: dict[str, object] = {}
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if not word.startswith("-") or _is_number(word):
            if word.strip():
                missed.append(f"{one_line(word, 80)} belongs to no flag and was left out of the profile")
            continue
        typed, equals, attached = word.partition("=")
        if not re.fullmatch(r"--?[A-Za-z0-9][\w.-]*", typed):
            missed.append(f"{one_line(word, 80)} is not a flag and was left out of the profile")
            continue
        name = _whole_name(typed, warnings)
        values = [attached] if equals else []
        kind = table.type_of(name)
        many = kind is not None and kind.startswith("many_")
        while not equals and kind != "switch" and at < len(words) and (many or not values):
            if (words[at].startswith("-") and not _is_number(words[at])) or not words[at].strip():
                break
            values.append(words[at])
            at += 1
        converted = [_value(kind, text) for text in values]
        value = True if not converted else converted if many else converted[0]
        if name in args and args[name] != value:
            warnings.append(f"{name} is given twice; the last value holds")
        args[name] = value
    return args


def _whole_name(typed: str, warnings: list[str]) -> str:
    """What a typed flag is called in a profile; says so where the spelling would not pass today."""
    table = flag_table()
    name = normalise(typed)
    if "_" in typed:
        warnings.append(f"{one_line(typed, 60)} is refused by SGLang: the profile writes {name}")
    canonical = table.canonical(name)
    if canonical in table.types:
        if canonical != name and name not in table.first_names:
            warnings.append(f"{one_line(typed, 60)} is called --{canonical} now: the profile writes {canonical}")
        return canonical
    if table.known(name):
        return name
    whole = (
        unabbreviate(name, table.newest_flags)
        or unabbreviate(name, frozenset(table.gone))
        or table.abbreviated.get(name)
    )
    if whole:
        return table.canonical(whole)
    near = table.suggest(name)
    warnings.append(
        f"{one_line(typed, 60)} is not a flag of SGLang {table.newest}" + (f": did you mean --{near}?" if near else "")
    )
    return name


def _is_number(text: str) -> bool:
    return re.fullmatch(r"-?\d+(\.\d*)?([eE][-+]?\d+)?|-?\.\d+", text) is not None


def _value(kind: str | None, text: str) -> object:
    """A word as a profile's value: numbers where the flag takes numbers, JSON objects as tables."""
    sort = (kind or "").removeprefix("many_")
    if sort in ("int", "size", "") and re.fullmatch(r"-?\d{1,18}", text):
        return int(text)
    if sort in ("float", "") and _is_number(text):
        return float(text)
    if text.startswith("{"):
        with suppress(ValueError, RecursionError):
            table = json.loads(text)
            if isinstance(table, dict) and "null" not in text:
                return table
    return text
