"""What was found before a launch or on a host: each finding one line, with its level."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from tui.core.hints import Hint
from tui.core.text import one_line


class Level(StrEnum):
    BLOCK = "block"
    WARN = "warn"
    OK = "ok"


@dataclass(frozen=True)
class Finding:
    # gpus, port, model, draft, python, sglang, flags, requires, disk, rights, cwd, wrapper, concurrency, memory, history
    check: str
    level: Level
    text: str  # sanitised, one line
    run: str | None = None  # our run that is in the way: the finding goes away with it
    warm: bool | None = None  # of the model: whether most of it is in the host's page cache; None = not known
    hint: Hint | str | None = None
    host: str | None = None  # of several hosts the one that it is about
    files: str | None = None  # of a model: bytes of its weights, sum of its index; None = not known
    arm: str | None = None  # of an experiment, the letter of the arm that it is about

    @property
    def sentence(self) -> str:
        """What was found, and where."""
        where = " on ".join(filter(None, (f"arm {self.arm}" if self.arm else None, self.host)))
        return (f"{where}: " if where else "") + f"{self.check}: {self.text}"

    def __str__(self) -> str:
        return self.sentence + (f"; {self.hint}" if self.hint else "")

    def json(self) -> dict[str, str]:
        """The finding as scripts see it."""
        text = self.text + (f"; {self.hint}" if self.hint else "")
        about = {key: value for key, value in (("arm", self.arm), ("host", self.host)) if value}
        return {"check": self.check, "level": str(self.level), "text": text, **about}


class Findings(list[Finding]):
    """A list that grows by what each check says."""

    def block(self, check: str, text: str, run: str | None = None, hint: Hint | None = None) -> None:
        self.append(Finding(check, Level.BLOCK, one_line(text), run, hint=hint))

    def warn(self, check: str, text: str) -> None:
        self.append(Finding(check, Level.WARN, one_line(text)))

    def ok(self, check: str, text: str, warm: bool | None = None, files: str | None = None) -> None:
        self.append(Finding(check, Level.OK, one_line(text), warm=warm, files=files))


def ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """What blocks first, then the warnings, then what is OK."""
    return tuple(sorted(findings, key=lambda finding: list(Level).index(finding.level)))
