"""What is known of SGLang itself: its versions, its flags and their names through the versions.

The facts are data (`tui/data/flags.toml`). A version that the data does not describe is asked for its own flags, at
most once: `learn_flags` runs `python -m sglang.launch_server --help` on the host and keeps the answer under the state
directory.
"""

import difflib
import json
import operator
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from shlex import quote

from tui.core.config import HostEntry, state_dir, write_whole
from tui.core.errors import EagletuiError, LinkLost
from tui.core.link.scripts import shell_path
from tui.core.link.transport import Transport
from tui.core.masking.names import secret_name
from tui.core.text import read_json

LAUNCH_MODULE = "sglang.launch_server"
ROUTER_MODULE = "sglang_router.launch_router"
_HELP_FLAG = re.compile(r"(?<![\w-])--([a-z0-9][a-z0-9_-]*)")
_VERSION = re.compile(r"v?(\d+(?:\.\d+)*)(?:[-_.]?(a|b|rc|dev|post)[-_.]?(\d*))?", re.IGNORECASE)
_SIGNS = {">=": "ge", "<=": "le", ">": "gt", "<": "lt", "==": "eq", "!=": "ne"}  # as `operator` has them
_SPECIFIER = re.compile(r"\s*(>=|<=|==|!=|~=|>|<|)\s*(v?\d[\w.+-]*)\s*")


def parse_version(text: str) -> tuple[tuple[int, ...], int, int] | None:
    """A sortable key of a version such as "0.5.10.post1" or "595.58.03"; None where it has no number.

    Pre-releases sort before the release, post releases after it; a local part ("+cu128") is ignored.
    """
    match = _VERSION.match(text.strip())
    if not match:
        return None
    numbers = [int(part) for part in match.group(1).split(".")]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    stage = {None: 0, "post": 1, "dev": -4, "a": -3, "b": -2, "rc": -1}[match.group(2) and match.group(2).lower()]
    return tuple(numbers), stage, int(match.group(3) or 0)


def version_at_least(version: str | None, floor: str) -> bool:
    """Whether `version` is `floor` or later; False where either is not a version."""
    have, want = parse_version(version or ""), parse_version(floor)
    return have is not None and want is not None and have >= want


def parse_specifier(text: str) -> tuple[tuple[str, str], ...] | None:
    """ ">=0.5.10,<0.6" as ((">=", "0.5.10"), ("<", "0.6")); a bare version means that one or later; None = unreadable."""
    conditions: list[tuple[str, str]] = []
    for part in text.split(","):
        match = _SPECIFIER.fullmatch(part)
        if match is None:
            return None
        sign, version = match.groups()
        if sign == "~=" and (series := re.match(r"v?((?:\d+\.)*)(\d+)\.\d", version, re.IGNORECASE)):
            conditions.append(("<", f"{series[1]}{int(series[2]) + 1}.dev0"))  # ~=0.5.3 is >=0.5.3 and within 0.5
        conditions.append((sign if sign in _SIGNS else ">=", version))
    return tuple(conditions)


def version_matches(version: str, specifier: str) -> bool | None:
    """Whether `version` meets every condition of `specifier`; None where one of the two cannot be read."""
    conditions, have = parse_specifier(specifier), parse_version(version)
    if conditions is None or have is None:
        return None
    return all(getattr(operator, _SIGNS[sign])(have, parse_version(wanted)) for sign, wanted in conditions)


@dataclass(frozen=True)
class Rename:
    """One flag with two names: `old` is taken before `gone`, `new` from `new_since` on."""

    old: str
    new: str
    new_since: str
    gone: str


@dataclass(frozen=True)
class Replaced:
    """A switch that became values of other flags, or environment variables, at version `gone`."""

    old: str
    gone: str
    args: Mapping[str, object] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class FlagTable:
    """The flags of the newest version read, and the names of earlier ones."""

    newest: str
    config_since: str
    secret: frozenset[str]
    types: Mapping[str, str]  # first name -> switch, int, float, size, text, optional, many_int, many_float, many_text
    first_names: Mapping[str, str]  # every other whole name -> first name
    renames: tuple[Rename, ...]
    replaced: tuple[Replaced, ...]
    gone: Mapping[str, str]  # name -> last version seen with it
    abbreviated: Mapping[str, str]  # abbreviations that were unique in earlier versions, and are not any more
    adjusted: frozenset[str]  # what SGLang overrides by itself

    @property
    def newest_flags(self) -> frozenset[str]:
        """Every whole name that the newest version read takes."""
        return frozenset(self.types) | frozenset(self.first_names)

    def canonical(self, name: str) -> str:
        """The one name under which aliases and renamed flags meet: the first name in the newest version."""
        name = normalise(name)
        renamed = (rename.new for rename in self.renames if name == rename.old)
        return next(renamed, self.first_names.get(name, name))

    def is_secret(self, name: str) -> bool:
        """Whether the flag's value is never shown or stored."""
        first = self.canonical(name)
        return first in self.secret or (first not in self.types and secret_name(first))

    def type_of(self, name: str) -> str | None:
        """Kind of value the flag takes; None for a flag that is gone or unknown."""
        return self.types.get(self.canonical(name))

    def known(self, name: str) -> bool:
        """Whether any version read, or any host asked so far, takes exactly this name."""
        name = normalise(name)
        return name in self.types or name in self.first_names or name in self.gone or name in learned_flags()

    def suggest(self, name: str) -> str | None:
        """The flag that was probably meant: a unique abbreviation's whole name, else the nearest by spelling."""
        name = normalise(name)
        whole = unabbreviate(name, self.newest_flags) if len(name) > 2 else None
        if whole and whole != name:
            return self.first_names.get(whole, whole)
        names = [*self.newest_flags, *self.gone]
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.75)
        return self.first_names.get(near[0], near[0]) if near else None


@cache
def flag_table() -> FlagTable:
    """The shipped table."""
    import tomli

    raw = tomli.loads(resources.files("tui.data").joinpath("flags.toml").read_text(encoding="utf-8"))
    return FlagTable(
        newest=raw["newest"],
        config_since=raw["config_since"],
        secret=frozenset(raw["secret"]),
        types={name: kind for kind, names in raw["types"].items() for name in names},
        first_names={alias: first for first, others in raw["aliases"].items() for alias in others},
        renames=tuple(Rename(**entry) for entry in raw["renames"]),
        replaced=tuple(Replaced(**entry) for entry in raw["replaced"]),
        gone={name: version for version, names in raw["gone"].items() for name in names},
        abbreviated=raw["abbreviated"],
        adjusted=frozenset(raw["adjusted"]),
    )


def normalise(name: str) -> str:
    """A flag's name as profiles write it: no leading dashes, dashes for underscores."""
    return name.strip().lstrip("-").replace("_", "-")


def unabbreviate(name: str, flags: Iterable[str]) -> str | None:
    """What argparse makes of a flag: itself, or the one flag it is the beginning of; None = unknown or ambiguous."""
    flags = flags if isinstance(flags, frozenset) else frozenset(flags)
    if name in flags:
        return name
    whole = [flag for flag in flags if flag.startswith(name)]
    return whole[0] if len(whole) == 1 else None


@dataclass(frozen=True)
class MappedArgs:
    """Flags as the host's version takes them."""

    args: tuple[tuple[str, object], ...]
    env: Mapping[str, str]
    notes: tuple[str, ...]


def map_args(args: Mapping[str, object], version: str | None, host_flags: frozenset[str] | None) -> MappedArgs:
    """Renames flags to what the host's version takes (None = unknown: nothing is); the rest is passed on as written.

    `host_flags` are the flags of that very version where they are known; they outrank the table.
    """
    table = flag_table()
    taken = {table.canonical(name) for name in args}
    mapped: list[tuple[str, object]] = []
    env: dict[str, str] = {}
    notes: list[str] = []

    def has(name: str, *, since: str = "", gone: str = "") -> bool:
        if host_flags is not None:
            return name in host_flags
        return (not since or version_at_least(version, since)) and not version_at_least(version, gone)

    for raw, value in args.items():
        name = normalise(raw)
        if value is False:
            continue
        rename = next((entry for entry in table.renames if name in (entry.old, entry.new)), None)
        if rename and version:
            has_old, has_new = has(rename.old, gone=rename.gone), has(rename.new, since=rename.new_since)
            to, when = (rename.new, f"since SGLang {rename.gone}")
            if has_old:
                to, when = (rename.old, f"before SGLang {rename.new_since}")
            if has_old is not has_new and name != to:
                notes.append(f"{name} is called --{to} {when}; the profile is unchanged")
                name = to
        replaced = next((entry for entry in table.replaced if name == entry.old), None)
        if replaced and version and not has(name, gone=replaced.gone):
            mapped += [(flag, new) for flag, new in replaced.args.items() if table.canonical(flag) not in taken]
            env |= replaced.env
            words = [f"--{flag} {new}" for flag, new in replaced.args.items()]
            words += [f"{key}={new} in the environment" for key, new in replaced.env.items()]
            notes.append(f"{name} became {', '.join(words)} in SGLang {replaced.gone}; the profile is unchanged")
            continue
        if host_flags is not None and unabbreviate(name, host_flags) is None:
            first = table.canonical(name)
            others = [first, *(alias for alias, target in table.first_names.items() if target == first)]
            name = next((other for other in others if other in host_flags), name)
        elif name == "pp":
            name = table.canonical(name)  # as an abbreviation it is ambiguous since --pp-max-micro-batch-size
        mapped.append((name, value))
    return MappedArgs(tuple(mapped), env, tuple(notes))


def unknown_flags(names: Iterable[str], host_flags: frozenset[str] | None) -> tuple[str, ...]:
    """Those names that the host's version would refuse; () where its flags are not known."""
    return tuple(name for name in names if host_flags and unabbreviate(normalise(name), host_flags) is None)


def takes_config(version: str | None, host_flags: frozenset[str] | None) -> bool:
    """Whether secrets can be handed over by `--config FILE.yaml`."""
    if host_flags is not None:
        return "config" in host_flags
    return version_at_least(version, flag_table().config_since)


def parse_help(text: str) -> frozenset[str]:
    """The whole flag names in an argparse help text, `--no-` forms included; empty where it is not SGLang's help."""
    flags = _flags_in(text)
    return flags if "model-path" in flags else frozenset()


def _flags_in(text: str) -> frozenset[str]:
    flags: set[str] = set()
    for line in text.splitlines():
        # An option's own line is indented by two; prose, which also names flags, by more.
        match = re.match(r" {2}(-[-\w].*)", line)
        if match:
            head = re.split(r"\s{2,}", match.group(1))[0]
            flags |= {normalise(name) for name in _HELP_FLAG.findall(head)}
    return frozenset(flags)


def _flags_file(version: str, directory: str = "flags") -> Path:
    return state_dir() / directory / (re.sub(r"[^A-Za-z0-9.+-]", "_", version)[:80] + ".json")


def _read_flags(path: Path) -> frozenset[str] | None:
    try:
        raw = read_json(path.read_text(encoding="utf-8"))
        return frozenset(str(flag) for flag in raw["flags"]) or None
    except (OSError, ValueError, KeyError, TypeError):
        return None  # a broken cache is as good as none: the host is asked again


def learned_flags() -> frozenset[str]:
    """Flags of every version that any host was asked about so far."""
    try:
        files = sorted((state_dir() / "flags").glob("*.json"))
        stamp = tuple((str(path), path.stat().st_mtime_ns) for path in files)
    except OSError:
        return frozenset()
    return _learned(stamp)


@cache
def _learned(stamp: tuple[tuple[str, int], ...]) -> frozenset[str]:
    return frozenset().union(*(_read_flags(Path(path)) or frozenset() for path, _ in stamp))


def flags_of(version: str | None) -> frozenset[str] | None:
    """The flags of a version, from the shipped list or from an earlier look at a host; None = not known yet."""
    if version is None:
        return None
    table = flag_table()
    if parse_version(version) == parse_version(table.newest) and "dev" not in version:
        # argparse takes --tp as an abbreviation; it is listed as a name of its own here
        return table.newest_flags - {"tp", "dp", "pp"}
    return _read_flags(_flags_file(version))


async def learn_flags(transport: Transport, entry: HostEntry, version: str) -> frozenset[str] | None:
    """The flags of the host's version, asked for at most once per version (up to two minutes); None where it won't say.

    Raises LinkLost.
    """
    known = flags_of(version)
    if known is not None:
        return known
    exports = "".join(f"export {name}={quote(value)}\n" for name, value in entry.env.items() if name.isidentifier())
    text = await _help_of(transport, f"{exports}exec {quote(entry.python)} -m {LAUNCH_MODULE} --help")
    return _kept(parse_help(text or ""), version, _flags_file(version))


async def learn_router_flags(transport: Transport, python: str, version: str) -> frozenset[str] | None:
    """The flags of the sglang-router of a host's interpreter, asked for once per version; None where it won't say.

    Raises LinkLost.
    """
    path = _flags_file(version, "router-flags")
    if (known := _read_flags(path)) is not None:
        return known
    text = await _help_of(transport, f"cd / && exec {shell_path(python)} -m {ROUTER_MODULE} --help")
    flags = _flags_in(text or "")
    return _kept(flags if {"pd-disaggregation", "port"} <= flags else frozenset(), version, path)


async def _help_of(transport: Transport, script: str) -> str | None:
    """What a program says of itself, within two minutes."""
    try:
        done = await transport.run(f"COLUMNS=200; export COLUMNS\n{script} 2>/dev/null", timeout_s=120.0, alone=True)
    except LinkLost:
        raise
    except EagletuiError:
        return None
    return done.stdout.decode("utf-8", "replace")


def _kept(flags: frozenset[str], version: str, path: Path) -> frozenset[str] | None:
    if not flags:
        return None
    with suppress(OSError):  # a cache that cannot be written costs time, nothing else
        write_whole(path, json.dumps({"version": version, "flags": sorted(flags)}))
    return flags
