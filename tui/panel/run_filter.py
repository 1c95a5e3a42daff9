"""The filter line of all runs: which words it marks, and how Tab completes what is typed."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tui.core.journal.model import RunRow

_TIMES = ("today", "yesterday", "7d", "12h", "2w")


def plain_words(text: str) -> tuple[str, ...]:
    """Words of a filter that stand for themselves, in lower case."""
    return tuple(word.lower() for word in text.split() if ":" not in word)


def complete(text: str, keys: Sequence[str], runs: "Sequence[RunRow]") -> tuple[str, tuple[str, ...]]:
    """A filter with its last word completed as far as that is clear, and what it may become.

    Args:
        keys: of the filter, without colons.
        runs: whose values are offered.
    """
    start = len(text) - len(text.split(" ")[-1])
    head, word = text[:start], text[start:]
    key, colon, given = word.partition(":")
    if not colon:
        found = [f"{name}:" for name in keys if name.startswith(word)]
        return (head + _common(found, word), tuple(found)) if found else (text, ())
    *earlier, last = given.split(",")
    found = sorted({value for value in _values(key, runs) if value.startswith(last) and value not in earlier})
    if not found:
        return text, ()
    done = ",".join([*earlier, _common(found, last)])
    return f"{head}{key}:{done}" + (" " if len(found) == 1 else ""), tuple(found)


def _common(found: Sequence[str], typed: str) -> str:
    """What all have in common, at least what was typed; all begin with that."""
    first, last = min(found), max(found)  # what these two share, all share
    same = next((place for place, char in enumerate(first) if char != last[place]), len(first))
    return max(first[:same], typed, key=len)


def _values(key: str, runs: "Sequence[RunRow]") -> Iterable[str]:
    """Values that runs have for a key; a value with a blank or a comma cannot be typed."""
    if key == "since":
        return _TIMES
    if key == "flag":
        found = {name for run in runs for name in (*run.args, *run.sets)}
    else:
        found = {value for run in runs if isinstance(value := getattr(run, key, None), str)}
    return {value for value in found if value and not {" ", ","}.intersection(value)}
