"""Settings, and the only module that knows directories.

`EAGLETUI_HOME` moves everything under one directory (tests, try-outs); otherwise each kind of file lives where the
system expects it: settings under the configuration directory, records under the data directory, logs, locks, caches
and the simulated host under the state directory.
"""

import os
import threading
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from tui.core.errors import Slug, UsageError
from tui.core.text import one_line

APP = "eagletui"
RESERVED_HOSTS = ("local", "demo")


def _base(kind: str) -> Path:
    home = os.environ.get("EAGLETUI_HOME")
    if home:
        try:
            # Absolute: the simulated host works in another directory than the command that starts it.
            return Path(home).expanduser().absolute() / kind
        except RuntimeError:
            raise UsageError(
                f"EAGLETUI_HOME: {one_line(home, 60)} is no directory: there is no such user",
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


@dataclass(frozen=True)
class HostEntry:
    """One `[hosts.NAME]` of config.toml, or the defaults for a name without an entry."""

    name: str
    ssh: str  # alias of ~/.ssh/config, or user@host:port; the name itself without an entry
    python: str = "python3"
    env: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Settings:
    """config.toml."""

    default_host: str = "local"
    hosts: dict[str, HostEntry] = field(default_factory=dict)
    theme: str = "dark"
    bell: bool = True  # terminal bell on ready and on crash

    def host(self, name: str) -> HostEntry:
        """The entry of a host; any other name is an alias of ~/.ssh/config or user@host:port."""
        return self.hosts.get(name) or HostEntry(name=name, ssh=name)


@cache
def load_settings() -> Settings:
    """Reads config.toml; a missing file is the defaults. Raises UsageError with file, key and what is wrong."""
    path = config_dir() / "config.toml"
    if os.path.exists(path) and not os.path.isfile(path):
        raise UsageError(f"{path} is no file", "mend or remove it", slug=Slug.BAD_CONFIG)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Settings()
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}", "mend or remove it", slug=Slug.BAD_CONFIG
        ) from None
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path} is not UTF-8 from byte {error.start} on", "save it as UTF-8", slug=Slug.BAD_CONFIG
        ) from None
    import tomli

    try:
        raw = tomli.loads(text)
    except tomli.TOMLDecodeError as error:
        raise UsageError(f"{path}: {one_line(str(error))}", "mend that line", slug=Slug.BAD_CONFIG) from None
    except RecursionError:
        raise UsageError(f"{path}: nested too deeply", "mend the file", slug=Slug.BAD_CONFIG) from None

    def wrong(key: str, wanted: str) -> UsageError:
        key = one_line(key, 80)
        return UsageError(f"{path}: {key} must be {wanted}", f"correct {key}", slug=Slug.BAD_CONFIG)

    unknown = set(raw) - {"default_host", "hosts", "theme", "bell"}
    if unknown:
        raise UsageError(
            f"{path}: unknown key {one_line(min(unknown), 80)}",
            "known keys: default_host, hosts, theme, bell",
            slug=Slug.BAD_CONFIG,
        )
    hosts: dict[str, HostEntry] = {}
    tables = raw.get("hosts", {})
    if not isinstance(tables, dict):
        raise wrong("hosts", "a table of tables")
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise wrong(f"hosts.{name}", "a table")
        if name in RESERVED_HOSTS and set(table) - {"python", "env"}:
            raise UsageError(f"{path}: hosts.{name} is reserved", "give the host another name", slug=Slug.BAD_CONFIG)
        extra = set(table) - {"ssh", "python", "env"}
        if extra:
            raise UsageError(
                f"{path}: unknown key {one_line(f'hosts.{name}.{min(extra)}', 80)}",
                "known keys: ssh, python, env",
                slug=Slug.BAD_CONFIG,
            )
        for key in ("ssh", "python"):
            if key in table and (not isinstance(table[key], str) or not table[key]):
                raise wrong(f"hosts.{name}.{key}", "a text")
        env = table.get("env", {})
        if not isinstance(env, dict) or not all(isinstance(v, str) for v in env.values()):
            raise wrong(f"hosts.{name}.env", "a table of texts")
        hosts[name] = HostEntry(name, str(table.get("ssh", name)), str(table.get("python", "python3")), dict(env))
    default_host = raw.get("default_host", "local")
    if not isinstance(default_host, str) or not default_host:
        raise wrong("default_host", "a text")
    if raw.get("theme", "dark") not in ("dark", "light"):
        raise wrong("theme", '"dark" or "light"')
    if not isinstance(raw.get("bell", True), bool):
        raise wrong("bell", "true or false")
    return Settings(default_host, hosts, raw.get("theme", "dark"), raw.get("bell", True))


def default_host() -> str:
    """HOST where none is named: EAGLETUI_HOST, then default_host of config.toml, then this machine."""
    return os.environ.get("EAGLETUI_HOST") or load_settings().default_host
