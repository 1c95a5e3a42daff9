"""Settings, and the only module that knows directories.

`EAGLETUI_HOME` moves everything under one directory (tests, try-outs); otherwise each kind of file lives where the
system expects it: settings under the configuration directory, records under the data directory, logs, locks, caches
and the simulated host under the state directory.
"""

import contextlib
import json
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from tui.core.errors import Slug, UsageError
from tui.core.masking.names import secret_name
from tui.core.masking.written import learn_value, secret_value
from tui.core.text import one_line, read_toml

APP = "eagletui"
# Names that no entry and no alias may have.
LOCAL_HOST, DEMO_HOST = "local", "demo"
DEMO_HOSTS = (DEMO_HOST, "demo2")
THEMES = ("dark", "light", "high-contrast", "colour-blind")  # of the panel


def _base(kind: str) -> Path:
    home = os.environ.get("EAGLETUI_HOME")
    if home:
        try:
            # Absolute: the simulated host works in another directory than the command that starts it.
            return Path(home).expanduser().absolute() / kind
        except RuntimeError:
            raise UsageError(
                f"EAGLETUI_HOME: {one_line(home, 60)} is not a directory: there is no such user",
                "give a path without ~",
                slug=Slug.BAD_CONFIG,
            ) from None
    # XDG on macOS too: people who live in terminals look there.
    variable, default = {
        "config": ("XDG_CONFIG_HOME", ".config"),
        "data": ("XDG_DATA_HOME", ".local/share"),
        "state": ("XDG_STATE_HOME", ".local/state"),
    }[kind]
    root = os.environ.get(variable)
    if root and Path(root).is_absolute():
        return Path(root) / APP
    try:
        return Path.home().absolute() / default / APP
    except RuntimeError:
        raise UsageError(
            "this user has no home directory", "set HOME, or EAGLETUI_HOME", slug=Slug.BAD_CONFIG
        ) from None


def config_dir() -> Path:
    """Where config.toml, profiles/ and patterns/ of the user are; not created."""
    return _base("config")


def data_dir() -> Path:
    """Where launch records, results and the journal are; not created."""
    return _base("data")


def state_dir() -> Path:
    """Where caches, locks and the simulated host keep their files; not created."""
    return _base("state")


def private_dir(path: Path) -> Path:
    """Creates `path` (0700) with its parents and returns it."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def write_whole(path: Path, content: str | bytes) -> None:
    """Writes a file under a temporary name and renames it, creating its directory; whole or not at all.

    A link stays one, and a device or a pipe that somebody named is written to, not replaced. Raises OSError that names
    `path`.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name}.{os.getpid()}.{threading.get_native_id()}")
    try:
        if target.exists() and not target.is_file():
            target.write_bytes(data)
            return
        private_dir(target.parent)
        try:
            temporary.write_bytes(data)
            os.replace(temporary, target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def shipped_profiles_dir() -> Path:
    """The profiles that came with the program: inside the package when installed, beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "profiles"
    return inside if inside.is_dir() else package.parent / "profiles"


def profile_dirs(extra: Path | None) -> list[Path]:
    """Directories searched for profiles, first match wins: --profiles, ./profiles, the user's, the shipped ones."""
    found = [extra] if extra else []
    found += [Path("profiles"), config_dir() / "profiles", shipped_profiles_dir()]
    unique: dict[Path, Path] = {}
    for directory in found:
        if directory.is_dir():
            unique.setdefault(directory.resolve(), directory)
    return list(unique.values())


class HostKind(StrEnum):
    """How a host is reached."""

    LOCAL = LOCAL_HOST  # this machine
    DEMO = DEMO_HOST  # a simulated host
    SSH = "ssh"

    @classmethod
    def of(cls, name: str) -> "HostKind":
        """By the name of a host."""
        if name in DEMO_HOSTS:
            return cls.DEMO
        return cls.LOCAL if name == LOCAL_HOST else cls.SSH


@dataclass(frozen=True)
class HostEntry:
    """One `[hosts.NAME]` of config.toml, or the defaults for a name without an entry."""

    name: str
    ssh: str  # alias of ~/.ssh/config, or user@host:port; the name itself without an entry
    python: str = "python3"
    env: dict[str, str] = field(default_factory=dict)
    slurm: bool = False  # a login host: what is launched there is a job of its Slurm

    @property
    def kind(self) -> HostKind:
        """How it is reached."""
        return HostKind.of(self.name)


@dataclass(frozen=True)
class Settings:
    """config.toml."""

    default_host: str = LOCAL_HOST
    hosts: dict[str, HostEntry] = field(default_factory=dict)
    theme: str | None = None  # one of THEMES; None: what was chosen last in the panel, else the first
    bell: bool = True  # terminal bell on ready and on crash

    def host(self, name: str) -> HostEntry:
        """The entry of a host; any other name is an alias of ~/.ssh/config or user@host:port."""
        return self.hosts.get(name) or HostEntry(name=name, ssh=name)


# What a value must be. Not by pydantic: the first frame waits for these few keys, and pydantic takes a third of it.
_Rules = dict[str, tuple[Callable[[Any], bool], str]]


def _is_string(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _is_environment(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(item, str) for item in value.values())


_SETTINGS: _Rules = {
    "default_host": (_is_string, "a string"),
    "hosts": (lambda value: isinstance(value, dict), "a table of tables"),
    "theme": (lambda value: value in THEMES, ", ".join(map(json.dumps, THEMES[:-1])) + f" or {json.dumps(THEMES[-1])}"),
    "bell": (lambda value: isinstance(value, bool), "true or false"),
}
_HOST: _Rules = {
    "ssh": (_is_string, "a string"),
    "python": (_is_string, "a string"),
    "env": (_is_environment, "a table of strings"),
    "slurm": (lambda value: isinstance(value, bool), "true or false"),
}


def _bad(path: Path, message: str, hint: str) -> UsageError:
    return UsageError(f"{path}{message}", hint, slug=Slug.BAD_CONFIG)


def _checked(path: Path, prefix: str, table: object, rules: _Rules) -> dict[str, Any]:
    """A table whose keys are known and whose values are right. Raises UsageError with file and key."""
    if not isinstance(table, dict):
        key = one_line(prefix.rstrip("."), 80)
        raise _bad(path, f": {key} must be a table", f"correct {key}")
    if unknown := set(table) - set(rules):
        key = one_line(prefix + min(unknown), 80)
        raise _bad(path, f": unknown key {key}", f"known keys: {', '.join(rules)}")
    for name, value in table.items():
        right, wanted = rules[name]
        if not right(value):
            key = one_line(prefix + name, 80)
            raise _bad(path, f": {key} must be {wanted}", f"correct {key}")
    return table


def _read_toml(path: Path) -> dict[str, Any]:
    """The tables of a file, {} where it is missing. Raises UsageError."""
    if os.path.exists(path) and not os.path.isfile(path):
        raise _bad(path, " is not a file", "fix or remove it")
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise _bad(path, f" cannot be read: {error.strerror}", "fix or remove it") from None
    except UnicodeDecodeError as error:
        raise _bad(path, f" is not UTF-8 from byte {error.start} on", "save it as UTF-8") from None
    try:
        return read_toml(text)
    except ValueError as error:
        raise _bad(path, f" {error}", "correct the file") from None


@cache
def load_settings() -> Settings:
    """Reads config.toml; a missing file is the defaults. Raises UsageError with file, key and what is wrong."""
    path = config_dir() / "config.toml"
    raw = _checked(path, "", _read_toml(path), _SETTINGS)
    hosts: dict[str, HostEntry] = {}
    for name, table in raw.get("hosts", {}).items():
        if (
            HostKind.of(name) is not HostKind.SSH
            and isinstance(table, dict)
            and set(table) - {"python", "env", "slurm"}
        ):
            raise _bad(path, f": hosts.{name} is reserved", "give the host another name")
        checked = _checked(path, f"hosts.{name}.", table, _HOST)
        for variable, value in checked.get("env", {}).items():
            if secret_name(variable) or secret_value(value):
                learn_value(value)
        hosts[name] = HostEntry(name, checked.get("ssh", name), **{k: v for k, v in checked.items() if k != "ssh"})
    return Settings(**{**raw, "hosts": hosts})


def chosen_theme() -> str:
    """The theme that config.toml names, else the one that was chosen last in the panel."""
    if (named := load_settings().theme) is not None:
        return named
    try:
        kept = (state_dir() / "theme").read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        kept = ""
    return kept if kept in THEMES else THEMES[0]


def keep_theme(name: str) -> bool:
    """Keeps the theme for the next time; False where config.toml names one, which holds then."""
    if load_settings().theme is not None:
        return False
    with contextlib.suppress(OSError):  # it is a convenience
        write_whole(state_dir() / "theme", name + "\n")
    return True


def default_host() -> str:
    """HOST where none is named: EAGLETUI_HOST, then default_host of config.toml, then this machine."""
    return os.environ.get("EAGLETUI_HOST") or load_settings().default_host
