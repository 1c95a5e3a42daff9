"""One line of a server's log as every view knows it. How it is read from bytes is the engine's business (core/sglang)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tui.core.model.phases import Phase

LINE_LIMIT = 65_536  # bytes of one line that are kept


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One line of a log, ready to be displayed; a progress bar's newer frame has the number of the frame it replaces."""

    number: int  # 1-based line of what was read (`LogWindow.number_of` makes it one of the file); 0 for lines of ours
    offset: int  # byte offset of its first byte
    time: str | None  # "20:01:03" as in the line
    rank: str | None  # "TP3", "DP1 TP0"; "main" for a stamped line without tag, None for a line without stamp
    text: str  # sanitised, without stamp and tags; at most 64 KiB
    kind: str  # plain, phase, warning, error, bar, note (known harmless), marker (ours)
    phase: Phase | None  # in effect at this line, begun by it where kind is "phase"; None = not known
    cut_bytes: int = 0  # bytes of an overlong line left out
    key: int = -1  # a record whose key (>= 0) is known replaces that one: newer bar frame, completed tail
    frames: int = 1  # frames of a bar so far
    provisional: bool = False  # an unterminated tail; gone as soon as anything newer comes
    stamp_s: float | None = None  # its stamp read as UTC, seconds since the epoch; below 86,400 where it has no date


def rank_label(ranks: Sequence[str]) -> str:
    """Many rank tags as one short text."""
    if len(ranks) == 1:
        return ranks[0]
    split = [re.fullmatch(r"(.*?)(\d+)", rank) for rank in ranks]
    heads = {match.group(1) for match in split if match}
    if all(split) and len(heads) == 1:
        numbers = sorted(int(match.group(2)) for match in split if match)
        if numbers == list(range(numbers[0], numbers[-1] + 1)):
            return f"{heads.pop()}{numbers[0]}–{numbers[-1]}"
    return ranks[0] + f" +{len(ranks) - 1}"


def rank_order(tag: str) -> list[tuple[str, int]]:
    """Sorts rank tags by names and numbers: TP2 before TP10."""
    return [(part.rstrip("0123456789"), int(re.sub(r"\D", "", part) or 0)) for part in tag.split()]
