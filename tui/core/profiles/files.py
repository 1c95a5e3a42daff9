"""The files of profiles: where they are, what each holds, and what is wrong with it."""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tui.core.errors import Slug, UsageError
from tui.core.hints import Action, Hint
from tui.core.profiles import checks, grid
from tui.core.profiles.checks import Problem, did_you_mean
from tui.core.profiles.secrets import learn_secrets
from tui.core.text import one_line, read_toml

KINDS = ("launch", "bench", "experiment")
_MAY_HOLD_SECRETS = re.compile(
    r"(?i)secret|key|(?<!\w)token(?!izer)|_token(?!izer)|pass|_pat\b|auth|cred|cookie|dsn|pwd|webhook|://"
)
SETS = Path("--set")  # the file of errors of `--set`


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
class ProfileFile:
    """One file as read; `table` is {} where it could not be."""

    name: str
    path: Path
    table: Mapping[str, Any]
    problems: Sequence[Problem]  # of the file by itself

    @property
    def kind(self) -> str | None:
        """launch, bench or experiment; None where it is none of them."""
        kind = self.table.get("kind")
        return kind if kind in KINDS else None

    @property
    def errors(self) -> list[ProfileError]:
        """What is wrong with the file by itself."""
        return [ProfileError(self.path, *problem) for problem in self.problems]


class Library:
    """The files of the directories, each read at most once."""

    def __init__(self, dirs: Iterable[Path]) -> None:
        self.paths: dict[str, list[Path]] = {}
        self._read: dict[Path, ProfileFile] = {}
        for directory in dirs:
            try:
                files = sorted(directory.glob("*.toml"))
            except OSError:
                continue
            for path in files:
                self.paths.setdefault(path.stem, []).append(path)

    def file(self, path: Path) -> ProfileFile:
        """A file, read at most once."""
        if path not in self._read:
            self._read[path] = _read(path)
        return self._read[path]

    def named(self, name: str) -> ProfileFile | None:
        """The file of a profile: that of the first directory that has one."""
        return self.file(self.paths[name][0]) if name in self.paths else None

    def kind_of(self, name: str) -> str | None:
        """The kind of a profile; None where there is none, or it does not say."""
        entry = self.named(name)
        return entry.kind if entry else None

    def chain(self, start: ProfileFile) -> tuple[list[ProfileFile], list[ProfileError]]:
        """The file and those it extends, base last. A file that extends its own name takes the next directory's."""
        chain, errors = [start], start.errors
        while isinstance(name := chain[-1].table.get("extends"), str):
            here = chain[-1]
            taken = [entry.path for entry in chain]
            found = self.paths.get(name, [])
            hidden = name == here.name or not found or found[0] not in taken
            parent = next((path for path in found if path not in taken), None) if hidden else None
            base = self.file(parent) if parent else None
            near = None
            if not found:
                wrong, near = f'there is no profile "{one_line(name)}"', did_you_mean(name, self.paths)
            elif base is None:
                wrong = f"is circular: {' -> '.join([*(entry.name for entry in chain), name])}"
            elif base.kind != "launch" and not base.problems:
                wrong = f"{name} is not a launch profile"
            else:
                errors += base.errors
                chain.append(base)
                continue
            errors.append(ProfileError(here.path, "extends", wrong, near))
            break
        return chain, errors


def learn_files(dirs: Iterable[Path]) -> None:
    """The secrets of all profiles, broken ones too, are masked from now on; cheap where there are none."""
    for directory in dirs:
        with suppress(OSError):
            for path in directory.glob("*.toml"):
                with suppress(OSError, ValueError):
                    text = path.read_text(encoding="utf-8-sig")
                    if _MAY_HOLD_SECRETS.search(text):
                        learn_secrets(read_toml(text))


def _read(path: Path) -> ProfileFile:
    try:
        table = read_toml(path.read_text(encoding="utf-8-sig"))
        learn_secrets(table)
    except UnicodeDecodeError:
        wrong = "is not UTF-8 text"
    except ValueError as error:
        wrong = str(error)
    except OSError as error:
        wrong = f"cannot be read: {error.strerror or error}"
    else:
        return ProfileFile(path.stem, path, table, problems(table, table.get("kind")))
    return ProfileFile(path.stem, path, {}, [(None, wrong, None)])


def problems(table: dict[str, Any], kind: object) -> list[Problem]:
    """Everything that is wrong with a profile's table by itself."""
    from tui.core.profiles import schema

    # Every other check quotes values, and may take them for plain text.
    if controls := list(checks.controls(table)):
        return controls
    if isinstance(kind, str) and kind in KINDS:
        of_grid = grid.problems(table) if kind == "experiment" else ()
        return [*schema.check(kind, table), *checks.OF_KIND[kind](table), *of_grid]
    kinds = ", ".join(f'"{kind}"' for kind in KINDS)
    if kind is None:
        return [("kind", "is missing", f"write one of {kinds}")]
    return [("kind", f"must be one of {kinds}", did_you_mean(str(kind), KINDS))]
