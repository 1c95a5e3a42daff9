"""Lines of a pasted text, what a layer around them is, and which parts of a line are surely the log's own."""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import NamedTuple, Protocol

from tui.core.sglang.lineshape import EXCEPTION, RANK, TAG, TRACEBACK, WRAPPER
from tui.core.sglang.patterns import patterns

HEAD = 400  # characters of a line in which a wrapping is looked for


class Line(NamedTuple):
    """A line of the pasted text, or what is left of it."""

    number: int  # of the pasted text, from 1
    text: str


class Layer(Protocol):
    """One layer around the lines, with what was learned of it; holds back what belongs to a later line."""

    def take(self, lines: Iterable[Line]) -> list[Line]:
        """The lines without the layer, as far as they are known to be whole."""
        ...

    def end(self) -> list[Line]:
        """What was held back."""
        ...


Maker = Callable[[], Layer]  # of a layer of which everything is learned, at the beginning of a text

STAMP = re.compile(r"\[(?:\d{4}-)?\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d{3})?(?P<tags>(?:" + TAG + r"){0,6})\](?=\s|$)")
_FRAME = re.compile(r'  File "[^"]{1,300}", line \d+(?:, in |$)')
LONE_RANK = re.compile(r"(?<!\S)" + RANK)
_BAR = re.compile(r"\d%(?:\||\s*Completed)")
_ARGPARSE = re.compile(r"(?<![\w/.\"'-])(?:usage: [\w.]+ |[\w.]+: error: (?:unrecognized|argument|ambiguous))")
_WORDS_OF_A_HEAD = 3


@cache
def _heads() -> re.Pattern[str]:
    """Beginnings of messages that SGLang's own logger prints, from the examples of the tables."""
    examples = [milestone.example or "" for milestone in patterns().milestones]
    words = [example.split()[:_WORDS_OF_A_HEAD] for example in examples if example[:1].isalpha()]
    whole = [" ".join(first) for first in words if len(first) == _WORDS_OF_A_HEAD and ":" not in first[0]]
    heads = {head.partition("=")[0] + "=" if "=" in head else head.rstrip(".:") for head in whole}
    heads |= {"Scheduler hit", "Decode batch", "Prefill batch", "server_args=", "Received sigquit"}
    return re.compile(r"(?:(?<==\")|(?<![\w/.\"'-]))(?:" + "|".join(map(re.escape, sorted(heads))) + ")")


def record_at(text: str) -> int | None:
    """Where the log's own text begins: at a stamp of SGLang, a frame of a traceback, or a rank that stands alone."""
    head = text[:HEAD]
    found = [match.start() for match in (STAMP.search(head), _FRAME.search(head)) if match is not None]
    rank = LONE_RANK.search(head) if not found else None
    at = min(found, default=rank.start() if rank is not None else None)
    return None if at is None or (at and _BAR.search(head, 0, at)) else at


def inner_record_at(text: str) -> int | None:
    """Where the text of a wrapper, a second stamp or a frame stands behind the stamp that a line begins with."""
    first = STAMP.match(text)
    if first is None:
        return None
    if (wrapper := WRAPPER.match(text, first.end() + 1)) is not None:
        return wrapper.end()
    found = [match.start() for shape in (STAMP, _FRAME) if (match := shape.search(text, first.end(), HEAD)) is not None]
    return min(found, default=None)


def message_at(text: str) -> int | None:
    """Where a known message of SGLang begins, in a log whose records have no stamp that SGLang made."""
    match = _heads().search(text[:HEAD])
    return match.start() if match is not None else None


def printed_at(text: str) -> int | None:
    """Where a line begins that argparse prints before there is any log."""
    match = _ARGPARSE.search(text[:HEAD])
    return match.start() if match is not None else None


def is_of_a_log(text: str) -> bool:
    """Whether a line can be told from prose."""
    return (
        record_at(text) is not None
        or message_at(text) is not None
        or printed_at(text) is not None
        or EXCEPTION.match(text) is not None
        or TRACEBACK.search(text) is not None
    )


def says_something(text: str) -> bool:
    """Whether a line means anything to the tracker."""
    if is_of_a_log(text):
        return True
    head, tables = text[:HEAD], patterns()
    raw = head.encode("utf-8", "replace")
    shapes = [milestone.regex for milestone in tables.milestones_for.of(raw)]
    shapes += [failure.regex for failure in tables.failures_for.of(raw) if failure is not None]
    return any(shape.search(head) for shape in shapes)


def names_failure(text: str) -> bool:
    """Whether a line says why a server died, in words that the tables know."""
    found = patterns().failures_for.of(text[:HEAD].encode("utf-8", "replace"))
    return any(item is not None and item.level == "root" and item.regex.search(text[:HEAD]) for item in found)


def starts_record(text: str) -> bool:
    """Whether a line is the first of a record, and no continuation of the line before it."""
    return STAMP.match(text) is not None or _FRAME.match(text) is not None or TRACEBACK.match(text) is not None


def is_bar(text: str) -> bool:
    """Whether a line has a frame of a progress bar."""
    return _BAR.search(text[:HEAD]) is not None


def written(lines: Iterable[Line]) -> list[Line]:
    """The lines that are not blank."""
    return [line for line in lines if line.text and not line.text.isspace()]


def anchored(lines: Sequence[Line]) -> list[tuple[Line, int]]:
    """The lines that show where their own text begins, with that place."""
    return [(line, at) for line in lines if (at := record_at(line.text)) is not None]
