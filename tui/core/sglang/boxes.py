"""Tracebacks that rich draws in a box, as Python prints them: whatever reads a traceback knows one form.

The format is that of rich's `traceback.py`, 10 to 14: a panel with "Traceback (most recent call last)" in its upper border; of
each frame "FILE:LINE in FUNCTION", wrapped at the panel's width, and lines of program, the one that counts marked with "❱" (">" on old
Windows, "?" where a terminal has ASCII alone, and no bars then); panels within it hold local variables. The exception stands below it, wrapped at the terminal's width.
"""

import re
from typing import NamedTuple

_HEAD = re.compile(
    r"(?P<indent>[ \t]{0,80})[╭┌+][─━-]+ Traceback \(most recent call last\) [─━-]+(?P<end>[╮┐+])?[ \t]*$"
)
BOXED = " Traceback (most recent call last) "  # in a box's upper border, wherever it stands
_INNER_TOP, _BOTTOM = re.compile(r"[╭┌]|\+-{3}"), re.compile(r"[╰└]|\+-{3}")
_CODE = re.compile(r"(?P<mark>[❱>?]?)[ ]{0,12}(?P<line>\d{1,9}) (?:[│|]|(?!in ))(?P<source>.*)$")
_GUIDES = re.compile(r"(?:[ ]{0,8}[│|])*[ ]*")
_PLACE = re.compile(r"(?P<file>.+?):(?P<line>\d{1,9}) in (?P<function>\S+)$")
_PLACE_WITHOUT_FILE = re.compile(r"in (?P<function>[^\s:]+):(?P<line>\d{1,9})$")
_HIDDEN = re.compile(r"\.\.\. \d{1,9} frames hidden \.\.\.$")
_BETWEEN = 64  # lines of other writers within a box, before it is given up
_HELD = 400  # lines of one traceback: of the first and of the last frames
_WRAPPED = 40  # lines of one exception
_PIECES = 8  # lines of one place


class Printed(NamedTuple):
    """A line as Python would have printed it."""

    number: int  # of the log's line that it comes from
    text: str


class Boxes:
    """Reads lines one by one; hands on those that are of no box as they are."""

    def __init__(self) -> None:
        self._open = False
        self._below = False  # a box has ended, and its exception comes
        self._indent = self._width = self._depth = self._between = 0
        self._held: list[Printed] = []  # of the traceback: other writers' lines do not come between its own
        self._place: list[str] = []
        self._at = 0  # line where the place began
        self._raised: list[str] = []  # of the exception, as far as it was wrapped
        self._raised_at = 0

    def concern(self, text: str) -> bool:
        """Whether a line may be of a box, or end what one left."""
        return self._open or self._below or (BOXED in text and _HEAD.match(text) is not None)

    def take(self, number: int, text: str, record: bool) -> list[Printed]:
        """What there is to read once this line is known.

        Args:
            record: the line is a record of a logger, and of no box.
        """
        head = _HEAD.match(text) if not record else None
        if head is not None:
            found = self.end()
            self._open, self._between = True, 0
            self._indent = len(head["indent"])
            self._width = len(text.strip()) - (0 if head["end"] else 1)
            self._held = [Printed(number, "Traceback (most recent call last):")]
            return found
        if self._open:
            return self._inside(number, text)
        if self._below:
            return self._under(number, text, record)
        return [Printed(number, text)]

    def end(self) -> list[Printed]:
        """What was held back."""
        found = [*self._held, *self._placed(), *self._said()]
        self._held = []
        self._open = self._below = False
        self._depth = 0
        return found

    def _inside(self, number: int, text: str) -> list[Printed]:
        bare = text.strip()
        if bare[:1] not in ("│", "|", "╰", "└", "+"):
            self._between += 1
            return [*(self.end() if self._between > _BETWEEN else []), Printed(number, text)]
        if self._depth == 0 and _BOTTOM.match(bare):
            self._hold(self._placed())
            self._open, self._below = False, True
            return []
        inner = bare[1:].removesuffix(bare[0]).strip()
        if self._depth or _INNER_TOP.match(inner):
            edge = inner[:1] or " "
            opens = edge in "╭┌" or (edge == "+" and not self._depth)
            self._depth += 1 if opens else -1 if edge in "╰└+" else 0
            return []
        code = _CODE.match(inner)
        if code is not None or not inner:
            marked = code is not None and code["mark"]
            source = _GUIDES.sub("", code["source"], count=1) if code is not None else ""
            self._hold(self._placed())
            if marked and source:
                self._hold([Printed(number, f"    {source}")])
            return []
        if len(self._place) < _PIECES and not _HIDDEN.match(inner):
            self._at = self._at if self._place else number
            self._place.append(inner)
        return []

    def _hold(self, lines: list[Printed]) -> None:
        self._held += lines
        del self._held[_HELD // 2 : len(self._held) - _HELD // 2]

    def _placed(self) -> list[Printed]:
        """The frame whose place has come to its end."""
        pieces, self._place = self._place, []
        text = _joined(pieces, self._width - 4)
        place = _PLACE.match(text) or _PLACE_WITHOUT_FILE.match(text)
        if place is None:
            return []
        file = place.groupdict().get("file", "<string>")
        return [Printed(self._at, f'  File "{file}", line {place["line"]}, in {place["function"]}')]

    def _under(self, number: int, text: str, record: bool) -> list[Printed]:
        """A line below a box: of the exception, as long as the one before it had no room for its first word."""
        bare = text[self._indent :] if not text[: self._indent].strip() else text
        if not bare.strip() and not self._raised:
            return []
        if record or not bare.strip():
            return [*self.end(), Printed(number, text)]
        if self._raised:
            last = self._raised[-1]
            if len(last.rstrip()) + 1 + len(bare.split(" ", 1)[0]) <= self._width or len(self._raised) >= _WRAPPED:
                return [*self.end(), Printed(number, bare)]
        else:
            self._raised_at = number
        self._raised.append(bare)
        return []

    def _said(self) -> list[Printed]:
        pieces, self._raised = self._raised, []
        if not pieces:
            return []
        return [Printed(self._raised_at, _joined(pieces, self._width))]


def _joined(pieces: list[str], width: int) -> str:
    """What was wrapped at a width, at blanks; within a word only where it is longer than a line."""
    text = ""
    for piece in pieces:
        word = len(text) - text.rfind(" ") - 1 + len(piece.partition(" ")[0])
        text = text + piece.rstrip() if not text or word > width else f"{text.rstrip()} {piece.rstrip()}"
    return text
