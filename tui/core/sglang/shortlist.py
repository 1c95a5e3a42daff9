"""Which of many patterns can match a line: told by texts that the patterns themselves need, so none can be hidden."""

import re
from collections.abc import Iterable
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any, Generic, TypeVar

_DIGITS = b"0123456789"
_REWRITTEN = re.compile(r"""["'\\/<>&\t]""")
_ANSWERS_KEPT = 512

Item = TypeVar("Item")


def _letter(code: Any, value: Any) -> str:
    """The one character, in lower case, that this part of a pattern stands for; "" where there are several."""
    if code is op.LITERAL:
        found = {chr(value).lower()}
    elif code is op.IN and all(kind is op.LITERAL for kind, _ in value):
        found = {chr(item).lower() for _, item in value}
    else:
        return ""
    letter = found.pop()
    return "" if found or not letter.isascii() or letter.isdigit() else letter


def _needed_by(parts: Any) -> frozenset[str]:
    best: frozenset[str] = frozenset()
    run = ""
    for code, value in [*parts, (None, None)]:
        letter = _letter(code, value)
        if letter:
            run += letter
            continue
        offers = [frozenset((run,)) if run else frozenset()]
        run = ""
        if code is op.SUBPATTERN:
            offers.append(_needed_by(value[3]))
        elif code is op.BRANCH:
            branches = [_needed_by(branch) for branch in value[1]]
            offers.append(frozenset().union(*branches) if all(branches) else frozenset())
        elif code in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT) and value[0]:
            offers.append(_needed_by(value[2]))
        best = max(best, *offers, key=lambda texts: min(map(len, texts), default=0))
    return best


def needed_texts(pattern: re.Pattern[str]) -> frozenset[str]:
    """Texts, in lower case and without digits, one of which is in every match; empty where none can be named."""
    return _needed_by(_parser.parse(pattern.pattern, pattern.flags))


def search_words(patterns: Iterable[re.Pattern[str]]) -> tuple[str, ...]:
    """Texts, in lower case, one of which is in every line that one of the patterns finds, however the line is wrapped.

    Characters that JSON or HTML write otherwise are in none of them. "" where a pattern names no text: it is everywhere.
    """
    pieces = {
        max(_REWRITTEN.split(text), key=len)
        for pattern in patterns
        for text in needed_texts(pattern) or frozenset(("",))
    }
    return tuple(sorted(text for text in pieces if not any(other != text and other in text for other in pieces)))


class Shortlist(Generic[Item]):
    """Items by the pattern that finds them. An item that is not on a line's shortlist can't match that line."""

    def __init__(self, items: Iterable[tuple[re.Pattern[str], Item]]) -> None:
        self._items: list[Item] = []
        self.always: list[int] = []  # of patterns that name no text: on every shortlist
        self._texts: list[tuple[bytes, int]] = []
        self._answers: dict[bytes, tuple[Item, ...]] = {}
        for at, (pattern, item) in enumerate(items):
            self._items.append(item)
            texts = needed_texts(pattern)
            self._texts += [(text.encode(), at) for text in texts]
            if not texts:
                self.always.append(at)

    def of(self, line: bytes) -> tuple[Item, ...]:
        """Those items whose pattern is worth a search in this line, in their order."""
        key = line.translate(None, _DIGITS)  # no text has digits: lines that differ in nothing else have one answer
        answer = self._answers.get(key)
        if answer is None:
            lower = key.lower()
            found = [at for text, at in self._texts if text in lower] + self.always
            answer = tuple(self._items[at] for at in sorted(set(found)))
            if len(self._answers) >= _ANSWERS_KEPT:
                self._answers.clear()
            self._answers[key] = answer
        return answer
