"""Log bytes to records: splitting on newlines and carriage returns, classifying, folding, a bounded buffer."""

from dataclasses import dataclass

from tui.core.startup import Phase


@dataclass(frozen=True)
class LogRecord:
    """One line of a log, ready to be shown; a progress bar's newer frame has the number of the frame it replaces."""

    number: int  # 1-based line of the file; 0 for lines of ours ([eagletui] ...), which are not in the file
    offset: int  # byte offset of its first byte
    time: str | None  # "20:01:03" as the line says
    rank: str | None  # "TP3", "DP1 TP0"; "main" for a stamped line without tag, None for a line without stamp
    text: str  # sanitised, without stamp and tags; at most 64 KiB
    kind: str  # plain, phase, warning, error, bar, note (known harmless), marker (ours)
    phase: Phase | None  # in force at this line; begun by it where kind is "phase"
    cut_bytes: int = 0  # bytes of an overlong line left out
