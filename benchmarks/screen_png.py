"""A terminal screen as a picture, cell by cell: blocks, braille and lines are drawn, so no font leaves gaps.

    tmux new-session -d -x 160 -y 48 -e COLORTERM=truecolor eagletui demo
    tmux capture-pane -epN | python benchmarks/screen_png.py OUT.png 160 48

Needs rsvg-convert (Debian: librsvg2-bin) and a monospace font (fonts-jetbrains-mono, or fonts-dejavu).
"""

import html
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace

CELL_W, CELL_H = 10, 20
MARGIN = 12
BRAILLE = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
LINES = {
    "─": "lr", "│": "ud", "╭": "rd", "╮": "ld", "╰": "ru", "╯": "lu", "┌": "rd", "┐": "ld", "└": "ru", "┘": "lu",
    "├": "udr", "┤": "udl", "┬": "lrd", "┴": "lru", "┼": "lrud",
}  # fmt: skip
SGR = re.compile(r"\x1b\[([0-9;:]*)m|\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|[\x0e\x0f]")
ANSI = ("#000000", "#cd3131", "#0dbc79", "#e5e510", "#2472c8", "#bc3fbc", "#11a8cd", "#e5e5e5",
        "#666666", "#f14c4c", "#23d18b", "#f5f543", "#3b8eea", "#d670d6", "#29b8db", "#ffffff")  # fmt: skip


@dataclass(frozen=True)
class Pen:
    """How a cell is written."""

    front: str | None = None
    ground: str | None = None
    bold: bool = False
    underline: bool = False
    reverse: bool = False


def palette(number: int) -> str:
    """One of the 256 colours."""
    if number < 16:
        return ANSI[number]
    if number >= 232:
        return "#" + f"{8 + 10 * (number - 232):02x}" * 3
    steps = (0, 95, 135, 175, 215, 255)
    number -= 16
    return "#" + "".join(f"{steps[part]:02x}" for part in (number // 36, number // 6 % 6, number % 6))


def move(pen: Pen, codes: str) -> Pen:
    """The pen after one SGR sequence."""
    numbers = [int(part or 0) for part in codes.replace(":", ";").split(";")]
    while numbers:
        code = numbers.pop(0)
        if code == 0:
            pen = Pen()
        elif code in (1, 22):
            pen = replace(pen, bold=code == 1)
        elif code in (4, 24):
            pen = replace(pen, underline=code == 4)
        elif code in (7, 27):
            pen = replace(pen, reverse=code == 7)
        elif code in (38, 48):
            kind = numbers.pop(0) if numbers else 0
            if kind == 2:
                color = "#" + "".join(f"{part:02x}" for part in numbers[:3])
                del numbers[:3]
            else:
                color = palette(numbers.pop(0)) if numbers else ANSI[7]
            pen = replace(pen, front=color) if code == 38 else replace(pen, ground=color)
        elif code in (39, 49):
            pen = replace(pen, front=None) if code == 39 else replace(pen, ground=None)
        elif 30 <= code <= 37 or 90 <= code <= 97:
            pen = replace(pen, front=ANSI[code - 30 if code < 90 else code - 82])
        elif 40 <= code <= 47 or 100 <= code <= 107:
            pen = replace(pen, ground=ANSI[code - 40 if code < 100 else code - 92])
    return pen


def rows_of(text: str) -> list[list[tuple[str, Pen]]]:
    """Rows of (text, pen); the pen goes on from line to line, as tmux writes it."""
    pen = Pen()
    rows: list[list[tuple[str, Pen]]] = []
    for line in text.split("\n"):
        row: list[tuple[str, Pen]] = []
        at = 0
        for match in SGR.finditer(line):
            if match.start() > at:
                row.append((line[at : match.start()], pen))
            if match.group(1) is not None:
                pen = move(pen, match.group(1))
            at = match.end()
        if at < len(line):
            row.append((line[at:], pen))
        rows.append(row)
    return rows


def rectangle(x: float, y: float, width: float, height: float, color: str, opacity: float = 1.0) -> str:
    """A filled rectangle without blurred edges."""
    faded = f' fill-opacity="{opacity}"' if opacity < 1 else ""
    size = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
    return f'<rect {size} fill="{color}" shape-rendering="crispEdges"{faded}/>'


def drawn(char: str, x: float, y: float, color: str) -> str | None:
    """Shapes of a glyph that no font is trusted with, None for a letter."""
    code = ord(char)
    middle_x, middle_y = x + CELL_W / 2, y + CELL_H / 2
    if 0x2581 <= code <= 0x2588:
        height = CELL_H * (code - 0x2580) / 8
        return rectangle(x, y + CELL_H - height, CELL_W, height, color)
    if 0x2589 <= code <= 0x258F:
        return rectangle(x, y, CELL_W * (0x2590 - code) / 8, CELL_H, color)
    if char == "▐":
        return rectangle(middle_x, y, CELL_W / 2, CELL_H, color)
    if char == "▀":
        return rectangle(x, y, CELL_W, CELL_H / 2, color)
    if char == "▞":
        half_w, half_h = CELL_W / 2, CELL_H / 2
        return rectangle(x + half_w, y, half_w, half_h, color) + rectangle(x, y + half_h, half_w, half_h, color)
    if 0x2800 <= code <= 0x28FF:
        dots = ""
        for row in range(4):
            for column in range(2):
                if (code - 0x2800) & BRAILLE[row][column]:
                    dots += f'<circle cx="{x + 2.5 + column * 5:g}" cy="{y + 2.5 + row * 5:g}" r="1.9" fill="{color}"/>'
        return dots
    if char in LINES:
        parts = {
            "l": rectangle(x, middle_y - 0.6, CELL_W / 2 + 0.6, 1.2, color),
            "r": rectangle(middle_x - 0.6, middle_y - 0.6, CELL_W / 2 + 0.6, 1.2, color),
            "u": rectangle(middle_x - 0.6, y, 1.2, CELL_H / 2 + 0.6, color),
            "d": rectangle(middle_x - 0.6, middle_y - 0.6, 1.2, CELL_H / 2 + 0.6, color),
        }
        return "".join(parts[side] for side in LINES[char])
    if char == "╌":
        return "".join(rectangle(x + at, middle_y - 0.6, 2.2, 1.2, color) for at in (1, 6))
    return None


def pieces(rows: list[list[tuple[str, Pen]]], front: str, ground: str) -> Iterator[tuple[int, str]]:
    """SVG elements with their layer: 0 grounds, 1 glyphs."""
    for line, row in enumerate(rows):
        column = 0
        for text, pen in row:
            color, back = pen.front or front, pen.ground or ground
            if pen.reverse:
                color, back = back, color
            if back != ground:
                yield 0, rectangle(column * CELL_W, line * CELL_H, len(text) * CELL_W, CELL_H, back)
            for char in text:
                x, y = column * CELL_W, line * CELL_H
                shape = drawn(char, x, y, color) if ord(char) > 0x2000 else None
                if shape:
                    yield 1, shape
                elif char != " ":
                    weight = ' font-weight="700"' if pen.bold else ""
                    place = f'x="{x + CELL_W / 2:g}" y="{y + 15.2:g}"'
                    yield (1, f'<text {place} fill="{color}" text-anchor="middle"{weight}>{html.escape(char)}</text>')
                if pen.underline:
                    yield 1, rectangle(x, y + 17.5, CELL_W, 1, color)
                column += 1


def to_svg(rows: list[list[tuple[str, Pen]]], columns: int, front: str, ground: str) -> str:
    """The whole picture."""
    width, height = columns * CELL_W + 2 * MARGIN, len(rows) * CELL_H + 2 * MARGIN
    elements = sorted(pieces(rows, front, ground), key=lambda element: element[0])
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
            '<style>text{font-family:"JetBrains Mono","DejaVu Sans Mono",monospace;font-size:16.6667px;white-space:pre}</style>',
            f'<rect width="100%" height="100%" fill="{ground}"/><g transform="translate({MARGIN},{MARGIN})">',
            *(element for _, element in elements),
            "</g></svg>",
        ]
    )


def main() -> None:
    """OUT.png COLUMNS ROWS, the captured screen on standard input."""
    out, columns, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    rows = rows_of(sys.stdin.read())[:count]
    # The page's own ground is the most frequent one, so the margin matches in both themes.
    grounds = [pen.ground for row in rows for text, pen in row for _ in text if pen.ground]
    ground = max(set(grounds), key=grounds.count) if grounds else "#101317"
    front = "#232a32" if int(ground[1:3], 16) > 127 else "#d3d9e1"
    subprocess.run(["rsvg-convert", "-o", out], input=to_svg(rows, columns, front, ground).encode(), check=True)


if __name__ == "__main__":
    main()
