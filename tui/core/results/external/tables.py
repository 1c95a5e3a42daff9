"""Tables out of pasted lines: Markdown, drawn with lines of any kind, CSV and HTML become rows of cells."""

import csv
import html
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

BARS = str.maketrans("│┃║", "|||")  # of drawn tables
_STROKES = "-=─━═"
_DRAWN = _STROKES + "+|:┌┬┐├┼┤└┴┘┏┳┓┡╇┩╞╪╡┠╂┨┢╈┪╟╫╢╔╦╗╠╬╣╚╩╝╭╮╰╯╤╧┗┻┛┯┷┿"
_LINES = f"[{re.escape(_DRAWN)}]"
_TOP = re.compile(rf"(?:^|\s)(?:[┌┏╔╭]|\|={{3}}){_LINES}*$")  # of a table that has a lower border too
_BOTTOM = re.compile(rf"(?:^|\s)(?:[└┗╚╰]|\|={{3}}){_LINES}*$")
_HEAD_ROWS = 4
_ROW, _CELL, _TAG = (re.compile(rf"<{tag}[^<>]*>", re.IGNORECASE) for tag in (r"tr\b", r"t[dh]\b", ""))
_HTML_LINES = 5000  # of a table
_HTML_HEAD = 60  # lines, within which the head of an HTML table ends

_Known = Callable[[Sequence[str], bool], bool]


@dataclass(frozen=True)
class Table:
    """A table; `cut` says what shows that a part of it is missing."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    taken: int  # lines
    drawn: bool = True  # with bars; else CSV or HTML
    cut: str | None = None


def table_at(lines: Sequence[str], at: int, known: Callable[[Sequence[str], bool], bool]) -> Table | None:
    """The table whose first row is that line; None where none begins there.

    Args:
        known: whether somebody reads a table with such a head, drawn with bars or not; only then is it read on.
    """
    line = lines[at]
    if "<table" in line.lower():
        return _html(lines, at, known)
    if "|" in line.translate(BARS):
        return _drawn(lines, at, known)
    return _csv(lines, at, known) if line.count(",") >= 2 and "{" not in line else None


def _is_rule(line: str) -> bool:
    """Whether a line only divides rows. A title may end in strokes, which have no joints then, and a head in bars."""
    line = line.strip()
    last = line.rsplit(None, 1)[-1] if line else ""
    if not any(stroke in last for stroke in _STROKES):
        return False
    return not line.strip(_DRAWN + " \t") or (len(last) > 2 and not last.strip(_DRAWN) and last.strip(_STROKES) != "")


def _cells(line: str) -> list[str]:
    """The cells as they are padded; none of a rule between rows."""
    line = line.translate(BARS).strip()
    if "|" not in line or _is_rule(line):
        return []
    bordered = line.startswith("|") or not line.endswith("||")  # else its last cell spans
    return (line.removeprefix("|").removesuffix("|") if bordered else line).split("|")


def _drawn(lines: Sequence[str], at: int, known: _Known) -> Table | None:
    heads = [_cells(lines[at])]
    if len(heads[0]) < 2:
        return None
    end = at + 1
    while end < len(lines) and len(heads) < _HEAD_ROWS and len(cells := _cells(lines[end])) == len(heads[0]):
        heads.append(cells)
        end += 1
    if end >= len(lines) or not _is_rule(lines[end]):  # no rule behind it: its head is one row
        heads, end = heads[:1], at + 1
    head = _joined(heads)
    if not known(head, True):
        return None
    bordered = at > 0 and _TOP.search(lines[at - 1]) is not None
    rows: list[list[str]] = []
    cut = "its lower border" if bordered else None
    while end < len(lines):
        cells = _cells(lines[end])
        if len(cells) == len(head):
            rows.append(cells)
        elif not _is_rule(lines[end]):
            break
        elif bordered and _BOTTOM.search(lines[end]) is not None:
            end, cut = end + 1, None
            break
        end += 1
    body = _unwrapped(rows) if bordered else [[cell.strip() for cell in row] for row in rows]
    if any(cell.endswith("…") for row in (head, *body) for cell in row):
        cut = "what stands behind each …: the terminal was too narrow"
    return Table(head, body, end - at, cut=cut)


def _joined(rows: Sequence[Sequence[str]]) -> list[str]:
    """The head of each column out of its rows; a cell without width belongs to the one on its left."""
    heads = [""] * len(rows[0])
    for number, row in enumerate(rows):
        left = ""
        for at, cell in enumerate(row):
            left = left if cell == "" and number < len(rows) - 1 else cell.strip()
            heads[at] = f"{heads[at]} {left}".strip()
    return heads


def _unwrapped(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Rows whose label went on in the next line are one row."""
    whole: list[list[str]] = []
    for row in rows:
        cells = [cell.strip() for cell in row]
        if any(cells[1:]) or not whole or cells[0].startswith(("─", "-")):
            whole.append(cells)
        else:
            whole[-1][0] = f"{whole[-1][0]} {cells[0]}".strip()
    return whole


def _csv(lines: Sequence[str], at: int, known: _Known) -> Table | None:
    """Up to a blank line; a part of two columns behind it belongs to the same file."""
    head = [cell.strip() for cell in _split(lines[at])]
    if len(head) < 3 or not known(head, False):
        return None
    rows: list[list[str]] = []
    end = at + 1
    while end < len(lines):
        cells = _split(lines[end]) if lines[end].strip() else []
        if len(cells) == len(head):
            rows.append(cells)
        elif len(cells) == 2 and rows:
            rows.append([*cells, *[""] * (len(head) - 2)])
        elif cells or end + 1 >= len(lines) or len(_split(lines[end + 1])) != 2:
            break
        end += 1
    return Table(head, rows, end - at, drawn=False)


def _split(line: str) -> list[str]:
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []


def _html(lines: Sequence[str], at: int, known: _Known) -> Table | None:
    begin = lines[at].lower().index("<table")
    opening = "\n".join([lines[at][begin:], *lines[at + 1 : at + _HTML_HEAD]])
    if not (rows := _html_rows(opening)) or not known(rows[0], False):
        return None
    within = range(at, min(len(lines), at + _HTML_LINES))
    end = next((number for number in within if "</table" in lines[number].lower()), None)
    if end is None:  # up to where no tags are
        end = next((number for number in within[1:] if "<" not in lines[number]), within[-1] + 1) - 1
        cut = "its end, </table>"
    else:
        cut = None
    rows = _html_rows("\n".join([lines[at][begin:], *lines[at + 1 : end + 1]])) or rows[:1]
    body = [row for row in rows[1:] if len(row) == len(rows[0])]
    return Table(rows[0], body, end + 1 - at, drawn=False, cut=cut)


def _html_rows(text: str) -> list[list[str]]:
    found = [_CELL.split(row)[1:] for row in _ROW.split(text)[1:]]
    return [[" ".join(html.unescape(_TAG.sub(" ", cell)).split()) for cell in row] for row in found if row]
