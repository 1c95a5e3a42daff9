"""What is wrong with a profile: each error with its file, its key and, where it can be told, what to write instead."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tui.core.errors import Slug, UsageError
from tui.core.hints import Action, Hint
from tui.core.text import one_line

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
