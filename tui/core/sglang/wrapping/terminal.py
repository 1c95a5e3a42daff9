"""What is lost where somebody copies from a terminal: long lines are broken, and the beginning is not copied."""

import re
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import pairwise

from tui.core.model.log import LINE_LIMIT
from tui.core.sglang.lineshape import EXCEPTION, FRAME, TAG
from tui.core.sglang.wrapping.envelopes import ENVELOPE
from tui.core.sglang.wrapping.layers import Cleaned
from tui.core.sglang.wrapping.line import HEAD, STAMP, Line, Maker, is_bar, is_of_a_log, starts_record, written
from tui.core.sglang.wrapping.prefixes import learned

_NARROW, _WIDE = 40, 400  # columns
_MOST = 0.9


class Unbroken:
    """Lines that a terminal of `wide` columns broke, joined again.

    Args:
        starts: finds the prefixes of lines that are no continuation.
    """

    def __init__(self, wide: int, starts: Sequence[re.Pattern[str]]) -> None:
        self._wide, self._starts = wide, starts
        self._held: Line | None = None
        self._last = 0  # characters of the newest line that was joined to it

    def take(self, lines: Iterable[Line]) -> list[Line]:
        found = []
        for line in lines:
            line = line._replace(text=line.text.rstrip())  # some copy the blanks up to the edge
            held = self._held
            if held is not None and self._joins(line.text) and len(held.text) < LINE_LIMIT:
                self._held = held._replace(text=held.text + " " * (self._wide - self._last) + line.text)
            else:
                if held is not None:
                    found.append(held)
                self._held = line
            self._last = len(line.text)
        return found

    def _joins(self, text: str) -> bool:
        if not continues(text, self._starts):
            return False
        # A blank at the last column is lost where somebody copies from a terminal.
        return self._last == self._wide or (self._last == self._wide - 1 and text[0] != " ")

    def end(self) -> list[Line]:
        held, self._held = self._held, None
        return [held] if held is not None else []


def continues(text: str, starts: Sequence[re.Pattern[str]]) -> bool:
    """Whether a line may be the rest of the line before it."""
    if not text.strip() or starts_record(text) or is_bar(text) or ENVELOPE.match(text):
        return False
    if EXCEPTION.match(text) or FRAME.match(text):  # a traceback without its indentation
        return False
    return not any(pattern.match(text[:HEAD]) for pattern in starts)


def breaks(lines: Sequence[Line]) -> Maker | None:
    """A text copied from a terminal whose width broke its lines: none is longer, and many are as long."""
    texts = [line.text.rstrip() for line in lines]
    shown = [text for text in texts if "\r" not in text]
    wide = max(map(len, shown), default=0)
    if not _NARROW <= wide <= _WIDE:
        return None
    plainly = Unbroken(wide, [])
    joined = plainly.take(lines) + plainly.end()  # a prefix is whole there, even if it was broken
    starts = found[0] if (found := learned(joined)) is not None else []
    if sum(not continues(text, starts) for text in texts) >= _MOST * len(texts):
        return None
    # The rest of a line hardly begins with two blanks; two warnings of one length have their source line below them.
    full = {
        text
        for text, after in pairwise(texts)
        if len(text) >= wide - 1 and after[:2] != "  " and continues(after, starts)
    }
    return (
        partial(Unbroken, wide, starts)
        if len(full) >= 2 and any(is_of_a_log(text) or ENVELOPE.match(text) for text in texts)
        else None
    )


_CUT = re.compile(r"(?P<left>\[?[\d:., -]{0,23}?)(?P<tags>(?:" + TAG + r"){0,6})\](?= )")


def cut_beginning(lines: Sequence[Line]) -> Maker | None:
    """The first stamp lost its beginning: it gets that of the next one."""
    first = next(iter(written(lines)), None)
    if first is None or STAMP.match(first.text):
        return None
    cut = _CUT.match(first.text)
    following = next((match for line in lines if line is not first and (match := STAMP.match(line.text))), None)
    if cut is None or following is None or not (cut["left"] or cut["tags"]):
        return None
    whole = following.group()[: following.start("tags") - following.start()]
    left = cut["left"].lstrip("[")
    stamp = whole[: len(whole) - len(left)] + left + cut["tags"] + "]"
    if STAMP.fullmatch(stamp) is None:
        return None
    number, rest = first.number, first.text[cut.end() :]

    class Mended(Cleaned):
        def __init__(self) -> None:
            super().__init__(lambda text: text)

        def take(self, lines: Iterable[Line]) -> list[Line]:
            return [Line(number, stamp + rest) if line.number == number else line for line in lines]

    return Mended
