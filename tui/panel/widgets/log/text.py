"""A line of a log in cells: tabs, wide characters, the part that a scrolled window shows, its rows when wrapped."""

from functools import lru_cache

from rich.cells import get_character_cell_size

TAB = 8  # columns, as terminals and pagers have it; counted from where the text of the line begins


def flat(text: str) -> str:
    """A text without tabs: each is as many blanks as it takes to the next stop, wide characters counted as two."""
    if "\t" not in text and "\n" not in text:
        return text
    out: list[str] = []
    column = 0
    for index, part in enumerate(text.replace("\n", " ").split("\t")):
        if index:
            blanks = TAB - column % TAB
            out.append(" " * blanks)
            column += blanks
        out.append(part)
        column += width_of(part)
    return "".join(out)


def width_of(text: str) -> int:
    """Cells that a text takes."""
    return len(text) if text.isascii() else sum(map(_size, text))


@lru_cache(maxsize=4096)
def _size(char: str) -> int:
    # Joiners and variation selectors are left out of cells: they would turn a glyph into one of another width.
    return 0 if char in "\u200d\ufe0e\ufe0f" else get_character_cell_size(char)


def window(text: str, start: int, width: int) -> tuple[str, int]:
    """What of a text lies in `width` cells from cell `start` on, and the index in `text` of its first character.

    A wide character that the left edge cuts is a blank; one that the right edge cuts is left out.
    """
    if text.isascii():
        return text[start : start + width], start
    column = 0
    begin: int | None = None
    blank = False
    end = len(text)
    for index, char in enumerate(text):
        if begin is None and column >= start and _size(char):
            begin, blank = index, column > start
        column += _size(char)
        if column > start + width:
            end = index
            break
    if begin is None:
        return "", end
    return (" " if blank else "") + text[begin:end], begin - blank


def wrapped(text: str, width: int) -> list[tuple[int, str]]:
    """A text in rows of at most `width` cells, each with the index of its first character; broken at blanks.

    Nothing is lost but the blanks at a break, so that hits and selections keep their places.
    """
    rows: list[tuple[int, str]] = []
    at = 0
    while at < len(text):
        end = _fits(text, at, width)
        if end < len(text):
            blank = text.rfind(" ", at + width // 2, end + 1)
            if blank > at:
                end = blank
        rows.append((at, text[at:end]))
        at = end
        if at < len(text) and text[at] == " ":
            at += 1
    return rows or [(0, "")]


def _fits(text: str, at: int, width: int) -> int:
    """Where a row that begins at `at` must end; at least one character later."""
    end = at + max(1, width)
    if text[at:end].isascii():
        return min(end, len(text))
    column = 0
    for index in range(at, len(text)):
        column += _size(text[index])
        if column > width:
            return max(index, at + 1)
    return len(text)
