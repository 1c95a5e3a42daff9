"""Why a server died (or why a ready one deserves a second look), and what to change."""

from dataclasses import dataclass, field

from tui.core.startup import Phase


@dataclass(frozen=True)
class Evidence:
    line: int  # 1-based line of the log
    text: str  # sanitised


@dataclass(frozen=True)
class Diagnosis:
    cause: str  # a slug of docs/diagnosis.md
    title: str  # one sentence for the red band
    phase: Phase | None
    rank: str | None
    evidence: Evidence | None
    advice: tuple[str, ...] = ()
    set: dict[str, object] = field(default_factory=dict)  # flags to change, without dashes
    observation: bool = False  # about a server that lives
