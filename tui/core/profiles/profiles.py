"""Profiles: TOML files that say what to launch or to measure; all errors at once, with file, key and suggestion.

A profile is found by its file's name without `.toml`, first directory first. Values are never interpreted by a shell:
what stands in a profile is what the program on the host gets. docs/profiles.md describes the format.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import date, datetime, time
from pathlib import Path
from shlex import quote
from typing import Any

from tui.core.config import HostEntry
from tui.core.errors import Slug, UsageError
from tui.core.hints import Action, Hint
from tui.core.model.profile import (
    ARM_LETTERS,
    BenchProfile,
    ExperimentArm,
    ExperimentProfile,
    Limits,
    LoadPoint,
    Search,
)
from tui.core.profiles import checks
from tui.core.profiles.checks import Problem, did_you_mean, is_number
from tui.core.sglang.engine import SGLANG
from tui.core.sglang.flags import flag_table, map_args, normalise, takes_config
from tui.core.text import one_line

KINDS = ("launch", "bench", "experiment")
_BENCH_FIELDS = (
    "driver",
    "dataset",
    "input_len",
    "output_len",
    "duration_s",
    "runs",
    "description",
    "hypothesis",
    "known",
)
DEFAULT_PORT = 30000
MASK = "••••••••"
METRICS_NOTE = (
    "--enable-metrics is added: a measurement holds its counts against the server's "
    "(enable-metrics = false leaves it out)"
)
SETS = Path("--set")  # where errors of `--set` are said to be

_SECRET_NAME = re.compile(
    r"(^|_)(TOKEN|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|PASS(WD|WORD|PHRASE)?|SECRET(_\w+)?|CREDENTIALS?)$", re.IGNORECASE
)
_SECRET_VALUE = re.compile(r"://[^/\s@:]+:[^/\s@]+@")  # user:password@ in an address
_CONTAINERS = frozenset({"docker", "podman", "nerdctl", "apptainer", "singularity"})


@dataclass(frozen=True)
class ProfileError:
    """One thing wrong with a profile file."""

    path: Path
    key: str | None  # dotted, None = the file as a whole
    message: str
    suggestion: str | None = None

    def __post_init__(self) -> None:
        # Keys and values of a file that somebody else wrote end up on the terminal.
        for name in ("key", "message", "suggestion"):
            text = getattr(self, name)
            object.__setattr__(self, name, text and one_line(text))

    def __str__(self) -> str:
        in_file = () if self.path == SETS else (str(self.path),)
        where = ": ".join((*in_file, *((self.key,) if self.key else ())))
        return f"{where}: {self.message}" + (f" ({self.suggestion})" if self.suggestion else "")


class ProfileBroken(UsageError):
    """A profile that cannot be used; `errors` has everything that is wrong with it."""

    slug = Slug.BAD_PROFILE

    def __init__(self, name: str, errors: Sequence[ProfileError]) -> None:
        count = "1 error" if len(errors) == 1 else f"{len(errors)} errors"
        super().__init__(
            f"profile {one_line(name)} has {count}: {'; '.join(str(error) for error in errors)}",
            Hint(Action.CORRECT_FILE if any(e.path != SETS for e in errors) else Action.CORRECT_SET),
        )
        self.errors = tuple(errors)


@dataclass(frozen=True)
class ProfileEntry:
    """A file found, broken or not."""

    name: str
    kind: str | None
    path: Path
    description: str | None
    errors: tuple[ProfileError, ...] = ()


@dataclass(frozen=True)
class LaunchProfile:
    """A launch profile after `extends` and `--set`."""

    name: str
    path: Path
    description: str | None = None
    hypothesis: str | None = None
    known: str | None = None
    extends: str | None = None
    gpus: tuple[int, ...] | None = None
    cwd: str | None = None
    host: str | None = None
    wrapper: tuple[str, ...] = ()
    command: tuple[str, ...] = ()  # any other server; args are then not mapped
    startup_timeout_s: float = 3600.0
    requires: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    args: Mapping[str, object] = field(default_factory=dict)

    def arg(self, name: str) -> object | None:
        """The value of a flag under any of its names; None where it is not set (false counts as not set)."""
        canonical = flag_table().canonical
        wanted = canonical(name)
        for key, value in self.args.items():
            if canonical(key) == wanted and value is not False:
                return value
        return None

    @property
    def public_args(self) -> Mapping[str, object]:
        """The flags as they may be stored and shown: secrets masked."""
        table = flag_table()
        return {name: MASK if table.canonical(name) in table.secret else value for name, value in self.args.items()}


@dataclass(frozen=True)
class LaunchCommand:
    """What will really run on a host, after mapping flags to its SGLang version."""

    argv: tuple[str, ...]  # secrets are not in it
    env: Mapping[str, str]  # secrets are not in it
    port: int
    cwd: str | None = None
    secret_env: Mapping[str, str] = field(default_factory=dict)  # names shown, values never
    secret_args: Mapping[str, str] = field(default_factory=dict)  # go into a 0600 file passed by --config
    open_args: Mapping[str, str] = field(default_factory=dict)  # secret flags that have no way but argv here
    notes: tuple[str, ...] = ()  # renamed flags and the like, one line each

    @property
    def secrets_visible(self) -> tuple[str, ...]:
        """Secret flags that this version can only take in argv: everyone on the host can read them there."""
        return tuple(self.open_args)

    @property
    def open_words(self) -> tuple[str, ...]:
        """What the launcher puts behind `argv` for them; never shown, logged or stored."""
        return tuple(f"--{name}={value}" for name, value in self.open_args.items())


@dataclass(frozen=True)
class DiffLine:
    """One line of the difference between two profiles; values as TOML, secrets masked."""

    sign: str  # + only in the second, - only in the first, ~ in both with another value
    key: str  # a flag, env.NAME, requires.NAME, or gpus, cwd, host, wrapper, command
    old: str | None
    new: str | None


# Reading ---------------------------------------------------------------------------------------------------------


@dataclass
class _File:
    """One file as read; `table` is {} where it could not be."""

    name: str
    path: Path
    table: dict[str, Any]
    errors: list[ProfileError]

    @property
    def kind(self) -> str | None:
        kind = self.table.get("kind")
        return kind if isinstance(kind, str) else None


class _Library:
    """The files of the directories, each read at most once."""

    def __init__(self, dirs: Iterable[Path]) -> None:
        self.paths: dict[str, list[Path]] = {}
        self._read: dict[Path, _File] = {}
        for directory in dirs:
            try:
                files = sorted(directory.glob("*.toml"))
            except OSError:
                continue
            for path in files:
                self.paths.setdefault(path.stem, []).append(path)

    def file(self, path: Path) -> _File:
        if path not in self._read:
            self._read[path] = _read_file(path)
        return self._read[path]

    def first(self, name: str) -> _File | None:
        return self.file(self.paths[name][0]) if name in self.paths else None

    def chain(self, start: _File) -> tuple[list[_File], list[ProfileError]]:
        """The file and those it extends, base last. A file that extends its own name takes the next directory's."""
        chain, errors = [start], list(start.errors)
        while isinstance(name := chain[-1].table.get("extends"), str):
            here = chain[-1]
            taken = [entry.path for entry in chain]
            found = self.paths.get(name, [])
            parent = next((path for path in found if path not in taken), None)
            if name != here.name and found and found[0] in taken:
                parent = None
            if parent is None:
                if found:
                    circle = " -> ".join([entry.name for entry in chain] + [name])
                    errors.append(ProfileError(here.path, "extends", f"goes in a circle: {circle}"))
                else:
                    near = did_you_mean(name, self.paths)
                    errors.append(ProfileError(here.path, "extends", f'there is no profile "{one_line(name)}"', near))
                break
            base = self.file(parent)
            if base.kind != "launch" and not base.errors:
                errors.append(ProfileError(here.path, "extends", f"{name} is no launch profile"))
                break
            errors += base.errors
            chain.append(base)
        return chain, errors


def _read_file(path: Path) -> _File:
    import tomli

    from tui.core.profiles import schema

    entry = _File(path.stem, path, {}, [])

    def wrong(key: str | None, message: str, suggestion: str | None = None) -> None:
        entry.errors.append(ProfileError(path, key, message, suggestion))

    try:
        entry.table = tomli.loads(path.read_text(encoding="utf-8-sig"))
    except tomli.TOMLDecodeError as error:
        wrong(None, f"is no valid TOML: {one_line(str(error))}")
        return entry
    except UnicodeDecodeError:
        wrong(None, "is not UTF-8 text")
        return entry
    except OSError as error:
        wrong(None, f"cannot be read: {error.strerror or error}")
        return entry
    if entry.kind not in schema.KINDS:
        kinds = ", ".join(f'"{kind}"' for kind in schema.KINDS)
        if "kind" not in entry.table:
            wrong("kind", "is missing", f"write one of {kinds}")
        else:
            near = did_you_mean(str(entry.kind), schema.KINDS)
            wrong("kind", f"must be one of {kinds}", near)
        return entry
    for key, message, suggestion in schema.check(entry.kind or "", entry.table):
        wrong(key, message, suggestion)
    if entry.kind == "launch":
        for problem in checks.launch(entry.table):
            wrong(*problem)
    return entry


# Finding ---------------------------------------------------------------------------------------------------------


def discover(dirs: Iterable[Path]) -> list[ProfileEntry]:
    """Every profile of the directories, by kind and name; a name found earlier hides a later one.

    Broken files are in the list, with all their errors; they hide nothing but their own name.
    """
    library = _Library(dirs)
    found = []
    for name, paths in library.paths.items():
        entry = library.file(paths[0])
        errors = list(entry.errors)
        if entry.kind == "launch":
            errors = library.chain(entry)[1]
            if not errors:
                errors = _resolve(library, entry, ())[1]
        elif entry.kind == "experiment" and not errors:
            errors = _check_experiment(library, entry)
        description = entry.table.get("description")
        found.append(
            ProfileEntry(
                name,
                entry.kind if entry.kind in KINDS else None,
                entry.path,
                one_line(description) if isinstance(description, str) else None,
                tuple(errors),
            )
        )
    order = {"launch": 0, "bench": 1, "experiment": 2, None: 3}
    return sorted(found, key=lambda entry: (order[entry.kind], entry.name))


def _check_experiment(library: _Library, entry: _File) -> list[ProfileError]:
    errors = []
    bench = library.first(entry.table["bench"])
    if bench is None or bench.kind != "bench":
        names = [name for name in library.paths if (found := library.first(name)) and found.kind == "bench"]
        errors.append(
            ProfileError(
                entry.path,
                "bench",
                f'there is no bench profile "{entry.table["bench"]}"',
                did_you_mean(entry.table["bench"], names),
            )
        )
    for number, arm in enumerate(entry.table["arms"]):
        key = f"arms.{number}"
        profile = library.first(arm["profile"])
        if profile is None or profile.kind != "launch":
            near = did_you_mean(arm["profile"], library.paths)
            errors.append(
                ProfileError(entry.path, f"{key}.profile", f'there is no launch profile "{arm["profile"]}"', near)
            )
            continue
        for error in _resolve(library, profile, tuple(arm.get("set", {}).items()))[1]:
            where = f"{key}.set" if error.path == SETS else f"{key}.profile"
            errors.append(ProfileError(entry.path, where, str(error)))
    return errors


def load_launch(name: str, dirs: Iterable[Path], sets: Mapping[str, object] | Iterable[str] = ()) -> LaunchProfile:
    """A launch profile with what it extends, and `--set` applied.

    Args:
        name: the file's name without .toml.
        dirs: where to look, first match wins.
        sets: "k=v" texts, or already read values by key; `env.X`, `requires.X` and `gpus` are meant literally,
            any other key is a flag.

    Raises:
        UsageError: unknown name (slug unknown_profile), not a launch profile, or broken (ProfileBroken, every error).
    """
    library = _Library(dirs)
    entry = _named(library, name, "launch")
    errors = library.chain(entry)[1]
    set_errors: list[ProfileError] = []
    items = _parse_sets(sets, set_errors)
    profile, resolved = _resolve(library, entry, items)
    # Errors of the files first; what only shows after merging is said where the files themselves are right.
    everything = [
        *errors,
        *set_errors,
        *(error for error in resolved if error not in errors and error not in set_errors),
    ]
    if everything or profile is None:
        raise ProfileBroken(name, everything)
    return profile


def load_bench(name: str, dirs: Iterable[Path], sets: Mapping[str, object] | Iterable[str] = ()) -> BenchProfile:
    """A bench profile, with `--set` applied.

    Args:
        sets: "k=v" texts, or already read values, by the keys of a bench profile; one number is a list of one, and
            concurrency and rate replace each other.

    Raises:
        UsageError: unknown name (slug unknown_profile), no bench profile, or broken (ProfileBroken, every error).
    """
    from tui.core.profiles import schema

    library = _Library(dirs)
    entry = _named(library, name, "bench")
    errors = list(entry.errors)
    table = dict(entry.table)
    for key, value in _parse_sets(sets, errors):
        for other in ("concurrency", "rate"):
            if key != other and key in ("concurrency", "rate"):
                table.pop(other, None)
        single = key in ("concurrency", "rate") and not isinstance(value, list)
        table[key] = [value] if single else value
    known = {str(error) for error in errors}
    for where, message, suggestion in schema.check("bench", table):
        if str(ProfileError(entry.path, where, message, suggestion)) not in known:
            errors.append(ProfileError(SETS, where, message, suggestion))
    if errors:
        raise ProfileBroken(name, errors)
    users = tuple(LoadPoint(concurrency=count) for count in table.get("concurrency", ()))
    rates = tuple(LoadPoint(rate=float(rate)) for rate in table.get("rate", ()))
    given = {key: table[key] for key in _BENCH_FIELDS if key in table}
    if "duration_s" in given:
        given["duration_s"] = float(given["duration_s"])
    search = None
    if slo := table.get("slo"):
        kind = "concurrency" if users else "rate"
        low, high = table[kind]
        limits = Limits(**{key: float(value) for key, value in slo.items()})
        search = Search(limits, kind, float(low), float(high))
    return BenchProfile(
        name=name,
        points=(LoadPoint(search=search.kind),) if search else users or rates or (LoadPoint(concurrency=1),),
        search=search,
        command=tuple(table.get("command", ())),
        path=entry.path,
        **given,
    )


def load_experiment(name: str, dirs: Iterable[Path]) -> ExperimentProfile:
    """An experiment, with the bench and launch profiles that it names looked at too.

    Raises:
        UsageError: unknown name (slug unknown_profile), no experiment, or broken (ProfileBroken, every error).
    """
    library = _Library(dirs)
    entry = _named(library, name, "experiment")
    errors = entry.errors or _check_experiment(library, entry)
    if errors:
        raise ProfileBroken(name, errors)
    table = entry.table
    looks = tuple(table.get("looks", ()))
    arms = zip(ARM_LETTERS, table["arms"], strict=False)
    return ExperimentProfile(
        name=name,
        bench=table["bench"],
        arms=tuple(
            ExperimentArm(
                letter=letter,
                profile=arm["profile"],
                sets=dict(arm.get("set", {})),
                against=arm.get("against", "A") if letter != "A" else None,
            )
            for letter, arm in arms
        ),
        pairs=table.get("pairs", looks[-1] if looks else 3),
        looks=looks,
        margin=float(table.get("margin", 0.02)),
        budget_h=table.get("budget_h"),
        hypothesis=table.get("hypothesis"),
        description=table.get("description"),
        known=table.get("known"),
        path=entry.path,
    )


def _named(library: _Library, name: str, kind: str) -> _File:
    """The file of a profile by name. Raises UsageError where there is none, or it is of another kind."""
    entry = library.first(name)
    if entry is None:
        near = did_you_mean(name, library.paths)
        hint = near or Hint(Action.LIST_PROFILES)
        raise UsageError(f'there is no profile "{one_line(name)}"', hint, slug=Slug.UNKNOWN_PROFILE)
    if entry.kind in KINDS and entry.kind != kind:
        raise UsageError(
            f"{name} is a profile of kind {entry.kind}, not {kind}",
            f"use eagletui {entry.kind} {name}",
            slug=Slug.WRONG_KIND,
        )
    return entry


def _parse_sets(sets: Mapping[str, object] | Iterable[str], errors: list[ProfileError]) -> tuple[tuple[str, Any], ...]:
    if isinstance(sets, Mapping):
        return tuple(sets.items())
    items = []
    for text in sets:
        key, equals, value = text.partition("=")
        key = key.strip()
        if not equals or not key:
            errors.append(
                ProfileError(SETS, one_line(text) or None, "needs a value", f"write {one_line(key) or 'key'}=VALUE")
            )
            continue
        items.append((key, parse_set_value(key, value)))
    return tuple(items)


def parse_set_value(key: str, text: str) -> Any:
    """The value of `--set key=text`: TOML where it is TOML, else text. Flags that take text keep their spelling."""
    import tomli

    try:
        table = tomli.loads(f"v = {text}")
    except tomli.TOMLDecodeError:
        if key == "gpus" and re.fullmatch(r"\d+(,\d+)*", text.replace(" ", "")):
            return [int(part) for part in text.split(",")]
        return text
    value = table["v"]
    if len(table) != 1 or isinstance(value, date | datetime | time):
        return text
    if is_number(value) and (key.startswith("env.") or flag_table().type_of(key) == "text"):
        return text.strip()
    return value


def _resolve(
    library: _Library, entry: _File, sets: Sequence[tuple[str, Any]]
) -> tuple[LaunchProfile | None, list[ProfileError]]:
    """Merges the chain and the sets, and checks the result; a profile only where nothing is wrong."""
    chain, errors = library.chain(entry)
    if errors:
        return None, errors
    merged: dict[str, Any] = {}
    for file in reversed(chain):
        if "gpus" in file.table and "env" in merged:  # the later word about GPUs holds, in whichever form
            merged["env"] = {k: v for k, v in merged["env"].items() if k != "CUDA_VISIBLE_DEVICES"}
        elif "CUDA_VISIBLE_DEVICES" in file.table.get("env", {}):
            merged.pop("gpus", None)
        merged = _merge(merged, file.table)
    for key, value in sets:
        merged, problems = _apply_set(merged, key, value)
        errors += [ProfileError(SETS, where.removeprefix("args."), what, how) for where, what, how in problems]
    if not merged.get("command") and not errors:
        canonical = flag_table().canonical
        names = {canonical(name) for name, value in merged.get("args", {}).items() if value is not False}
        if "model-path" not in names:
            errors.append(ProfileError(entry.path, "args.model-path", "is missing", "say which model to serve"))
    if errors:
        return None, errors
    env = {name: _env_text(value) for name, value in merged.get("env", {}).items() if value is not False}
    own = entry.table
    return (
        LaunchProfile(
            name=entry.name,
            path=entry.path,
            # Words about one file are not words about another that extends it.
            description=own.get("description"),
            hypothesis=own.get("hypothesis"),
            known=own.get("known"),
            extends=own.get("extends"),
            gpus=tuple(merged["gpus"]) if "gpus" in merged else None,
            cwd=merged.get("cwd"),
            host=merged.get("host"),
            wrapper=tuple(merged.get("wrapper", ())),
            command=tuple(merged.get("command", ())),
            startup_timeout_s=float(merged.get("startup_timeout_s", 3600.0)),
            requires={name: _requirement_text(value) for name, value in merged.get("requires", {}).items()},
            env=env,
            args=dict(merged.get("args", {})),
        ),
        [],
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
    elif head == "requires":
        problems = list(checks.requirement(rest, value))
    else:
        return merged, [(key, "unknown key", "it takes flags, env.NAME, requires.NAME and gpus")]
    return (merged if problems else _merge(merged, {head: {rest: value}})), problems


def _env_text(value: Any) -> str:
    return value if isinstance(value, str) else str(value)


def _requirement_text(value: Any) -> str:
    return value if isinstance(value, str) else f">={value}"


def _merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Tables merge, everything else is replaced; the names of one flag are one key, and the later spelling holds."""
    merged = dict(base)
    for key, value in over.items():
        if key == "args" and isinstance(value, dict):
            merged["args"] = _merge_args(merged.get("args", {}), value)
        else:
            merged[key] = _merge_value(merged.get(key), value)
    return merged


def _merge_value(old: Any, new: Any) -> Any:
    if isinstance(old, dict) and isinstance(new, dict):
        return {**old, **{key: _merge_value(old.get(key), value) for key, value in new.items()}}
    return new


def _merge_args(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    canonical = flag_table().canonical
    spelled = {canonical(key): key for key in over}
    merged: dict[str, Any] = {}
    for key, value in base.items():
        other = spelled.pop(canonical(key), None)
        if other is None:
            merged[key] = value
        else:  # keeps its place in the command
            merged[other] = _merge_value(value, over[other])
    merged |= {key: over[key] for key in spelled.values()}
    return merged


# The command -----------------------------------------------------------------------------------------------------


def is_secret_env(name: str, value: str = "") -> bool:
    """Whether an environment variable is handed over by file and never shown: tokens, keys, passwords, user:password@."""
    return bool(_SECRET_NAME.search(name) or _SECRET_VALUE.search(value))


def public_sets(sets: Mapping[str, object]) -> dict[str, object]:
    """`--set` values as they may be stored and shown: secrets masked."""
    table = flag_table()

    def secret(key: str, value: object) -> bool:
        head, _, rest = key.partition(".")
        if head == "env" and rest:
            return is_secret_env(rest, str(value))
        return table.canonical(rest if head == "args" and rest else key) in table.secret

    return {key: MASK if secret(key, value) else value for key, value in sets.items()}


def flag_words(name: str, value: object) -> tuple[str, ...]:
    """A flag and its value as argument words: true is the bare flag, false and [] are left out, a table is JSON."""
    flag = f"--{name}"
    if value is True:
        return (flag,)
    if value is False or value == []:
        return ()
    if isinstance(value, list):
        return (flag, *(_word(item) for item in value))
    word = _word(value)
    if word.startswith("-") and not is_number(value):
        return (f"{flag}={word}",)  # argparse would take it for a flag
    return (flag, word)


def _word(value: object) -> str:
    if isinstance(value, dict | list):
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def build_command(
    profile: LaunchProfile,
    entry: HostEntry,
    sglang_version: str | None,
    host_flags: frozenset[str] | None,
    *,
    home: str | None = None,
) -> LaunchCommand:
    """The exact command on a host.

    Args:
        profile: as `load_launch` gives it.
        entry: the host's interpreter and environment; the profile's environment comes after it.
        sglang_version: of the host, None = unknown: flags are then passed as written.
        host_flags: the flags of that version (`sglang.flags_of`, `sglang.learn_flags`), None = unknown.
        home: the user's home on the host, for an interpreter written as `~/...`.
    """
    table = flag_table()
    notes: list[str] = []
    env = dict(entry.env) | dict(profile.env)
    if profile.gpus is not None:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, profile.gpus))
        # CUDA's own order is by speed; the numbers of a profile are those of nvidia-smi.
        env.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    container = bool(profile.wrapper) and Path(profile.wrapper[0]).name in _CONTAINERS
    secrets: dict[str, str] = {}
    if profile.command:
        argv = [*profile.wrapper, *profile.command]
        pairs: Iterable[tuple[str, object]] = ((normalise_free(name), value) for name, value in profile.args.items())
        port = _port_of(profile.command)
        config = metrics = False
    else:
        mapped = map_args(profile.args, sglang_version, host_flags)
        notes += mapped.notes
        env = dict(mapped.env) | env
        pairs = mapped.args
        python = entry.python
        if home and python.startswith("~/"):
            python = f"{home}/{python[2:]}"
        argv = [*profile.wrapper, "python3" if container else python, "-m", SGLANG.launch_module]
        port = None
        config = takes_config(sglang_version, host_flags) and not container and profile.arg("config") is None
        said = any(table.canonical(name) == "enable-metrics" for name in profile.args)
        metrics = not said and (host_flags is None or "enable-metrics" in host_flags)
    for name, value in pairs:
        if value is False:
            continue
        canonical = table.canonical(name)
        if canonical in table.secret:
            secrets[canonical] = _word(value)
            continue
        if canonical == "port":
            port = int(str(value)) if str(value).isdigit() else None
        argv += flag_words(name, value)
    if port is None:
        port = DEFAULT_PORT
        if not profile.command:
            argv += ["--port", str(port)]
    if metrics:
        argv.append("--enable-metrics")
        notes.append(METRICS_NOTE)
    plain = {name: value for name, value in env.items() if not is_secret_env(name, value)}
    hidden = {name: value for name, value in env.items() if name not in plain}
    for name in () if config else secrets:
        notes.append(f"--{name} will be visible to everyone on the host in the list of processes")
    if container:
        given = set(re.findall(r"[A-Za-z_]\w*", " ".join(profile.wrapper)))
        lost = sorted(name for name in env if name not in given)
        if lost:
            notes.append(
                f"{Path(profile.wrapper[0]).name} does not hand on {', '.join(lost)}: name them with -e in wrapper"
            )
    return LaunchCommand(
        argv=tuple(argv),
        env=plain,
        port=port,
        cwd=profile.cwd,
        secret_env=hidden,
        secret_args=secrets if config else {},
        open_args={} if config else secrets,
        notes=tuple(notes),
    )


def normalise_free(name: str) -> str:
    """A flag of another server: its dashes are taken off, its spelling stays."""
    return name.strip().lstrip("-")


def _port_of(command: Sequence[str]) -> int | None:
    for word, following in zip(command, [*command[1:], ""], strict=True):
        text = following if word == "--port" else word.removeprefix("--port=") if word.startswith("--port=") else ""
        if text.isdigit():
            return int(text)
    return None


def render_command(command: LaunchCommand, width: int = 100) -> str:
    """The command as text for display and for a shell: environment, program, flags; secrets masked, with a remark."""
    lines = []
    words = [f"{name}={quote(value)}" for name, value in command.env.items()]
    words += [f"{name}={MASK}" for name in command.secret_env]
    if words:
        lines.append(" ".join(words) + (" (secret, handed over by file)" if command.secret_env else ""))
    argv = list(command.argv)
    start = next((index for index, word in enumerate(argv) if word.startswith("--") and index > 0), len(argv))
    if SGLANG.launch_module in argv:
        start = argv.index(SGLANG.launch_module) + 1
    rows = [" ".join(quote(word) for word in argv[:start])]
    row = ""
    groups: list[str] = []
    for word in argv[start:]:
        if word.startswith("--") or not groups:
            groups.append(quote(word))
        else:
            groups[-1] += f" {quote(word)}"
    for group in groups:
        if row and len(row) + len(group) + 3 > width:
            rows.append(f"  {row}")
            row = group
        else:
            row = f"{row} {group}".strip()
    if row:
        rows.append(f"  {row}")
    rows += [f"  --{name} {MASK} (secret, handed over by file)" for name in command.secret_args]
    rows += [f"  --{name} {MASK} (secret, visible in the list of processes)" for name in command.open_args]
    lines.append(" \\\n".join(rows))
    return "\n".join(lines)


# Differences and files -------------------------------------------------------------------------------------------


def toml_value(value: object) -> str:
    """A value as TOML, on one line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_toml_key(str(k))} = {toml_value(v)}" for k, v in value.items()) + " }"
    return _toml_text(str(value))


def _toml_text(text: str) -> str:
    if ('"' in text or "\\" in text) and "'" not in text and text.isprintable():
        return f"'{text}'"
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _toml_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key, ensure_ascii=False)


def profile_difference(a: LaunchProfile, b: LaunchProfile) -> tuple[DiffLine, ...]:
    """What turns `a` into `b`: additions first, then changes, then what is gone; aliases of a flag are one key."""
    old, new = _comparable(a), _comparable(b)
    lines = [DiffLine("+", shown, None, value) for key, (shown, value) in new.items() if key not in old]
    lines += [
        DiffLine("~", shown, old[key][1], value)
        for key, (shown, value) in new.items()
        if key in old and old[key][1] != value
    ]
    lines += [DiffLine("-", shown, value, None) for key, (shown, value) in old.items() if key not in new]
    return tuple(lines)


def _comparable(profile: LaunchProfile) -> dict[str, tuple[str, str]]:
    """Canonical key -> (key as written, value as TOML)."""
    table = flag_table()
    found: dict[str, tuple[str, str]] = {}
    for name, value in profile.args.items():
        if value is False:
            continue
        canonical = table.canonical(name)
        found[f"args.{canonical}"] = (normalise(name), MASK if canonical in table.secret else toml_value(value))
    for name, text in profile.env.items():
        found[f"env.{name}"] = (f"env.{name}", MASK if is_secret_env(name, text) else toml_value(text))
    for name, text in profile.requires.items():
        found[f"requires.{name}"] = (f"requires.{name}", toml_value(text))
    defaults = {item.name: item.default for item in fields(LaunchProfile)}
    for name in ("gpus", "cwd", "host", "wrapper", "command", "startup_timeout_s"):
        value = getattr(profile, name)
        if value != defaults[name]:
            found[name] = (name, toml_value(value))
    return found


def save_profile(text: str, name: str, directory: Path) -> Path:
    """Writes a new profile file (0600 where it holds a secret) and returns its path; never replaces a file.

    Raises UsageError where the name is no file name, the text is no TOML, or the file exists.
    """
    import os

    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._+-]{0,99}", name):
        raise UsageError(
            f'"{one_line(name)}" is no name for a profile', "use letters, digits, dots and dashes", slug=Slug.BAD_NAME
        )
    try:
        table = tomlkit.parse(text).unwrap()
    except TOMLKitError as error:
        raise UsageError(
            f"the profile is no valid TOML: {one_line(str(error))}", "correct it", slug=Slug.BAD_PROFILE
        ) from None
    path = directory / f"{name}.toml"
    env, args = table.get("env", {}), table.get("args", {})
    secret = any(is_secret_env(key, str(value)) for key, value in env.items()) or any(
        flag_table().canonical(key) in flag_table().secret for key in args
    )
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with os.fdopen(
            os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if secret else 0o666), "w", encoding="utf-8"
        ) as file:
            file.write(text if text.endswith("\n") else text + "\n")
    except FileExistsError:
        raise UsageError(
            f"{path} exists already", "choose another name, or remove the file", slug=Slug.EXISTS
        ) from None
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror or error}", "choose another directory", slug=Slug.CANNOT_WRITE
        ) from None
    return path
