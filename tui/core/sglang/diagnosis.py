"""What a diagnosis is: a cause, where it shows, and what to change."""

from dataclasses import dataclass, field

from tui.core.model.phases import Phase
from tui.core.sglang.traceback import Frame


@dataclass(frozen=True)
class Evidence:
    line: int  # 1-based line of the log; 0 where the evidence is not in the log
    text: str  # sanitised; what a person would quote
    lines: tuple[str, ...] = ()  # sanitised: every line of it that tells something, as it stands in the log


@dataclass(frozen=True)
class SourceLines:
    """Lines of a program on the host, around the one that raised."""

    file: str
    line: int  # that raised
    first: int  # number of the first of `lines`
    lines: tuple[str, ...]  # sanitised


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
    raised_in: tuple[Frame, ...] = ()  # frames of the exception, the innermost last: where its source can be read
    source: tuple[SourceLines, ...] = ()  # read there


@dataclass(frozen=True)
class ExitEvidence:
    """What the host says about a process, beside its log."""

    exit_code: int | None = None  # 128 + signal or the negative signal; None = not known
    stopped_by_us: bool = False
    dmesg_oom: str | None = None  # the kernel's line about the out-of-memory killer
    dmesg_xid: str | None = None  # the kernel's line about an error of a GPU or its driver
    kernel_silent: bool = False  # the kernel's log could be read and, where the two above are None, says nothing
    alive: bool = False
