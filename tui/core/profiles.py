"""Profiles: TOML files that say what to launch or to measure; all errors at once, with file, key and suggestion."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class ProfileError:
    """One thing wrong with a profile file."""

    path: Path
    key: str | None  # dotted, None = the file as a whole
    message: str
    suggestion: str | None = None

    def __str__(self) -> str:
        where = f"{self.path}: {self.key}" if self.key else f"{self.path}"
        return f"{where}: {self.message}" + (f" ({self.suggestion})" if self.suggestion else "")


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


@dataclass(frozen=True)
class LaunchCommand:
    """What will really run on a host, after mapping flags to its SGLang version."""

    argv: tuple[str, ...]  # secrets are not in it
    env: Mapping[str, str]  # secrets are not in it
    port: int
    cwd: str | None = None
    secret_env: Mapping[str, str] = field(default_factory=dict)  # names shown, values never
    secret_args: Mapping[str, str] = field(default_factory=dict)  # go into a 0600 file passed by --config
    secrets_visible: tuple[str, ...] = ()  # secret flags that this version can only take in argv
    notes: tuple[str, ...] = ()  # renamed flags and the like, one line each
