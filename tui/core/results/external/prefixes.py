"""The prefix that a log or a terminal put before every line of a paste, taken off again."""

import re
from collections.abc import Sequence

_PIECE = (
    r"\s+|[\w./-]{1,60}\s*\|\s|\[[^\]\s][^\]]{0,60}\]:?\s|\d+(?:-\d\d){2}[T ]?[\d:.,+]*Z?\s|[\d:.,]{8,}\s"
    r"|(?:DEBUG|INFO|WARN|WARNING|ERROR)\s|#\s"
)
_PREFIX = re.compile(f"(?:{_PIECE})+")
_LONGEST = 160  # characters
_FEWEST = 3  # lines that show one
_DIGIT = re.compile(r"\d")


def unprefixed(lines: Sequence[str]) -> list[str]:
    """The lines without what all of them begin with, figures taken for equal, where that looks like a log's prefix."""
    said = [line[:_LONGEST] for line in lines if line.strip()]
    if len(said) < _FEWEST or (matched := _PREFIX.match(said[0])) is None:
        return list(lines)
    common = len(matched[0])
    first = _DIGIT.sub("0", said[0])
    for line in said:
        other = _DIGIT.sub("0", line)
        while common and not _begins(other, first[:common]):
            common = _shorter(first[:common])
    return [line[common:] for line in lines] if common else list(lines)


def _begins(line: str, prefix: str) -> bool:
    return line.startswith(prefix) or line == prefix.rstrip()  # a blank line behind a prefix


def _shorter(prefix: str) -> int:
    """The length of what a prefix begins with."""
    return max((at.end() for at in re.finditer(_PIECE, prefix) if at.end() < len(prefix)), default=0)
