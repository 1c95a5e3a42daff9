"""Painting by cells: a canvas of characters with specs, and a widget that sends only the cells that changed.

Every panel draws itself onto a `Canvas` and the base widget compares it with what the terminal has. That keeps an
idle panel at a few hundred bytes a second, and makes text from a host harmless: a cell holds one character, and
nothing parses it.
"""

import os
from collections.abc import Iterable, Sequence
from functools import lru_cache

from rich.cells import get_character_cell_size
from rich.segment import Segment
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget

from tui.core.masking.known import shown
from tui.panel.gate import safe
from tui.panel.protocol import panel_of
from tui.panel.theme import DARK, THEMES, Tokens, style_of

Run = tuple[str, str]
"""A piece of text and its spec (see `tui.panel.theme.style_of`)."""

_PLAIN = (  # glyphs, and below each what a terminal without Unicode gets: of the same meaning and width
    ("◌◐●▲✗■✓·▸≡○–↑↓≈≠∅□◆",
     ".o*!x#v.>=o-^v~!0.+"),
    ("▌▆│─╌┊…×±−→▞°≥≤",
     "[#|-.|.x+->%d><"),
    ("▁▂▃▄▅▇▀█",
     "__---###"),
)  # fmt: skip
_BRAILLE = {0x2800 + dots: " ..:::###"[dots.bit_count()] for dots in range(256)}  # by how many dots a cell has
ASCII = {ord(glyph): char for pair in _PLAIN for glyph, char in zip(*pair, strict=True)} | _BRAILLE
_JOINERS = {"\u200d", "\ufe0e", "\ufe0f"}  # would turn a glyph into an emoji of another width


@lru_cache(maxsize=1)
def plain_terminal() -> bool:
    """True where the locale names a character set other than UTF-8."""
    for variable in ("LC_ALL", "LC_CTYPE", "LANG"):
        value = os.environ.get(variable)
        if value:
            charset = value.partition(".")[2].partition("@")[0].replace("-", "").lower()
            return bool(charset) and charset != "utf8"
    return False


def cells(text: str) -> int:
    """Width of a text in cells."""
    return len(text) if text.isascii() else sum(get_character_cell_size(char) for char in text if char not in _JOINERS)


def width_of(runs: Iterable[Run]) -> int:
    """Width of runs in cells."""
    return sum(cells(text) for text, _ in runs)


def clip(text: str, width: int) -> str:
    """A text in at most `width` cells, ending in `…` where something was left out."""
    if cells(text) <= width:
        return text
    if width <= 0:
        return ""
    used = 0
    kept: list[str] = []
    for char in text:
        used += get_character_cell_size(char) if char not in _JOINERS else 0
        if used > width - 1:
            break
        kept.append(char)
    return "".join(kept) + "…"


def end_of(text: str, width: int) -> str:
    """The end of a path in at most `width` characters: it says more than the beginning."""
    return text if len(text) <= width else "…" + text[len(text) - max(0, width - 1) :]


def clip_runs(runs: Sequence[Run], width: int) -> list[Run]:
    """Runs in at most `width` cells; what does not fit ends in `…`."""
    if width_of(runs) <= width:
        return list(runs)
    out: list[Run] = []
    left = width
    for text, spec in runs:
        size = cells(text)
        # the cut falls into this run, unless exactly the run's end is reached and more follows: then `…` needs a cell
        if size < left:
            out.append((text, spec))
            left -= size
        else:
            out.append((clip(text + " ", left) if size <= left else clip(text, left), spec))
            break
    return out


def words(runs: Sequence[Run], width: int) -> list[Run]:
    """Runs in at most `width` cells, cut between two words and ended in `…` where something was left out."""
    if width_of(runs) <= width:
        return list(runs)
    out: list[Run] = []
    left = width - 1
    for text, spec in runs:
        if cells(text) <= left:
            out.append((text, spec))
            left -= cells(text)
            continue
        kept = clip(text, left + 1)[:-1] if left > 0 else ""
        if " " in kept.strip():
            kept = kept[: kept.rindex(" ")]
        elif out:
            kept = ""
        out.append((kept, spec))
        break
    while out and not out[-1][0].rstrip(" ,;:·"):
        out.pop()
    if not out:
        return clip_runs(runs, width)
    text, spec = out[-1]
    return [*out[:-1], (text.rstrip(" ,;:·") + "…", spec)]


def join(parts: Iterable[Sequence[Run]], separator: str = " · ") -> list[Run]:
    """Groups of runs with a muted separator between them; empty groups are left out."""
    out: list[Run] = []
    for part in parts:
        if part:
            if out:
                out.append((separator, "muted"))
            out.extend(part)
    return out


def wrap(text: str, width: int) -> list[str]:
    """A text broken at spaces into lines of at most `width` cells; longer words are broken."""
    lines: list[str] = []
    for paragraph in shown(text).splitlines() or [""]:
        line = ""
        for word in paragraph.split(" "):
            candidate = f"{line} {word}" if line else word
            if cells(candidate) <= width:
                line = candidate
                continue
            if line:
                lines.append(line)
            while cells(word) > width > 0:
                cut = width
                while cells(word[:cut]) > width:
                    cut -= 1
                lines.append(word[:cut])
                word = word[cut:]
            line = word
        lines.append(line)
    return lines


class Canvas:
    """A grid of cells. Whatever falls outside is left out."""

    def __init__(self, width: int, height: int, ground: str = "bg") -> None:
        self.width = width
        self.height = height
        self._blank = f"text/{ground}"
        self.ground = ground
        self.chars: list[list[str]] = [[" "] * width for _ in range(height)]
        self.specs: list[list[str]] = [[self._blank] * width for _ in range(height)]

    def put(self, x: int, y: int, text: str, spec: str = "text", limit: int | None = None) -> int:
        """Writes a text from column x on, in at most `limit` cells; returns the column after it."""
        text = safe(text)
        end = self.width if limit is None else min(self.width, x + limit)
        if not 0 <= y < self.height or x >= end or not text:
            return x
        if x + cells(text) > end:
            text = clip(text, end - x)
        if "/" not in spec:
            spec = f"{spec}/{self.ground}"
        chars, specs = self.chars[y], self.specs[y]
        if text.isascii() and x >= 0:
            size = len(text)
            chars[x : x + size] = text
            specs[x : x + size] = [spec] * size
            return x + size
        for char in text:
            if char in _JOINERS:
                continue
            size = get_character_cell_size(char)
            if size == 0:
                # A combining mark belongs to the cell before it; a heap of them does not.
                if 0 < x <= self.width and len(chars[x - 1]) < 3:
                    chars[x - 1] += char
                continue
            if x >= 0:
                chars[x] = char
                specs[x] = spec
                if size == 2:
                    chars[x + 1] = ""
                    specs[x + 1] = spec
            x += size
        return x

    def runs(self, x: int, y: int, runs: Sequence[Run], limit: int | None = None) -> int:
        """Writes runs one after the other, cut with `…` at `limit` cells; returns the column after them."""
        room = self.width - x if limit is None else min(limit, self.width - x)
        for text, spec in clip_runs(runs, room):
            x = self.put(x, y, text, spec)
        return x

    def right(self, end: int, y: int, text: str, spec: str = "text") -> int:
        """Writes a text that ends before column `end`; returns the column where it begins."""
        begin = end - cells(text)
        self.put(begin, y, text, spec)
        return begin

    def right_runs(self, end: int, y: int, runs: Sequence[Run]) -> int:
        """Writes runs that end before column `end`; returns the column where they begin."""
        begin = end - width_of(runs)
        self.runs(begin, y, runs)
        return begin

    def fill(self, x: int, y: int, width: int, height: int, ground: str) -> None:
        """A ground of blanks."""
        spec = f"text/{ground}"
        for row in range(max(0, y), min(self.height, y + height)):
            first, last = max(0, x), min(self.width, x + width)
            if first < last:
                self.chars[row][first:last] = [" "] * (last - first)
                self.specs[row][first:last] = [spec] * (last - first)

    def title(self, x: int, y: int, width: int, title: str, facts: Sequence[Run] = (), *, focus: bool = False) -> None:
        """A section: bold title on a hairline, facts at its right end."""
        facts = clip_runs(facts, max(0, width - cells(title) - 4))
        end = x + width
        begin = self.right_runs(end, y, facts) - 1 if facts else end
        after = self.put(x, y, title, "accent!" if focus else "strong!", width)
        if begin - after > 1:
            self.put(after + 1, y, "─" * (begin - after - 1), "accent" if focus else "line")

    def bar(
        self, x: int, y: int, width: int, fraction: float | None, spec: str = "data", mark: int | None = None
    ) -> None:
        """A bar of `▆`; anything above zero fills a cell; `mark` is the column of a budget line, if any."""
        filled = 0
        if fraction is not None and fraction > 0 and width > 0:
            filled = min(width, max(1, round(fraction * width)))
        self.put(x, y, "▆" * filled, spec)
        self.put(x + filled, y, "▆" * (width - filled), "track")
        if mark is not None and 0 <= mark < width:
            self.put(x + mark, y, "│", "text")

    def history(self, x: int, y: int, values: Sequence[float | None], spec: str = "hist") -> None:
        """Cells of a history on 0 to 1, newest last; a missing sample is a blank."""
        text = "".join(" " if value is None else "▁▂▃▄▅▆▇"[min(6, max(0, int(value * 6.999)))] for value in values)
        self.put(x, y, text, f"{spec}/surface")

    def figure(self, x: int, y: int, text: str, spec: str = "strong") -> int:
        """A large figure over three rows of half blocks; returns the column after it."""
        for char in text:
            pixels = _FIGURES.get(char)
            if pixels is None:
                continue
            columns = len(pixels[0])
            for row in range(3):
                upper = pixels[2 * row]
                lower = pixels[2 * row + 1] if row < 2 else "." * columns
                line = "".join(_HALVES[above + below] for above, below in zip(upper, lower, strict=True))
                self.put(x, y + row, line, spec)
            x += columns + 1
        return x - 1

    def plot(
        self,
        x: int,
        y: int,
        width: int,
        height: int,
        values: Sequence[float | None],
        low: float,
        high: float,
        spec: str,
        reference: float | None = None,
    ) -> None:
        """A braille line of two values a cell, newest last; a gap in the data is a gap in the line.

        `reference` is a dashed line over the whole width, in `warn`.
        """
        dots = height * 4
        masks = [[0] * width for _ in range(height)]
        dashes = [[0] * width for _ in range(height)]

        def level(value: float) -> int:
            share = (value - low) / (high - low) if high > low else 0.5
            return dots - 1 - min(dots - 1, max(0, round(share * (dots - 1))))

        if reference is not None:
            row = level(reference)
            for column in range(width * 2):
                if column % 6 < 3:
                    dashes[row // 4][column // 2] |= _DOTS[row % 4][column % 2]
        before: int | None = None
        for column, value in enumerate(values[-width * 2 :]):
            if value is None:
                before = None
                continue
            row = level(value)
            # A jump is joined, so that the line stays a line.
            first = row if before is None else (before + (1 if row > before else -1) if row != before else row)
            for step in range(min(first, row), max(first, row) + 1):
                masks[step // 4][column // 2] |= _DOTS[step % 4][column % 2]
            before = row
        for line in range(height):
            for column in range(width):
                if masks[line][column]:
                    self.put(x + column, y + line, chr(0x2800 + masks[line][column]), spec)
                elif dashes[line][column]:
                    self.put(x + column, y + line, chr(0x2800 + dashes[line][column]), "warn")


_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_HALVES = {"##": "█", "#.": "▀", ".#": "▄", "..": " "}
_FIGURES = {
    "0": ("###", "#.#", "#.#", "#.#", "###"),
    "1": ("##.", ".#.", ".#.", ".#.", "###"),
    "2": ("###", "..#", "###", "#..", "###"),
    "3": ("###", "..#", "###", "..#", "###"),
    "4": ("#.#", "#.#", "###", "..#", "..#"),
    "5": ("###", "#..", "###", "..#", "###"),
    "6": ("###", "#..", "###", "#.#", "###"),
    "7": ("###", "..#", "..#", "..#", "..#"),
    "8": ("###", "#.#", "###", "#.#", "###"),
    "9": ("###", "#.#", "###", "..#", "###"),
    ":": (".", "#", ".", "#", "."),
    ".": (".", ".", ".", ".", "#"),
    "–": ("..", "..", "##", "..", ".."),
    ",": (".", ".", ".", "#", "#"),
}


class Painted(Widget):
    """A widget that draws itself onto a canvas; `repaint` sends the difference to the terminal."""

    DEFAULT_CSS = "Painted { height: 1; width: 1fr; }"

    GROUND = "bg"

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._canvas: Canvas | None = None
        self._strips: dict[int, Strip] = {}
        self._tokens: Tokens = DARK

    def draw(self, canvas: Canvas) -> None:
        """Draws the whole content; called by `repaint`."""
        raise NotImplementedError

    def repaint(self) -> None:
        """Draws again and marks the cells that differ."""
        if not self.is_mounted or not self.display or not self.size.width or not self.size.height:
            return
        tokens = THEMES.get(self.app.theme, DARK)
        old = self._canvas
        canvas = Canvas(self.size.width, self.size.height, self.GROUND)
        try:
            self.draw(canvas)
        except Exception as error:
            if self.app.is_headless:
                raise
            # A fault in one panel must not take the others, and the person's session, with it.
            fault = panel_of(self).report_fault(error)
            canvas = Canvas(self.size.width, self.size.height, self.GROUND)
            canvas.put(1, 0, f"✗ not drawn: {fault.message}; {fault.hint}", "err")
        self._canvas = canvas
        if old is None or tokens is not self._tokens or (old.width, old.height) != (canvas.width, canvas.height):
            self._tokens = tokens
            self._strips.clear()
            self.refresh()
            return
        regions: list[Region] = []
        for y in range(canvas.height):
            if canvas.chars[y] != old.chars[y] or canvas.specs[y] != old.specs[y]:
                self._strips.pop(y, None)
                regions.extend(_changed(old, canvas, y))
        if regions:
            self.refresh(*regions)

    def on_resize(self) -> None:
        self.repaint()

    def on_show(self) -> None:
        self.repaint()

    def get_content_width(self, container: Size, viewport: Size) -> int:
        return container.width

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return container.height

    def on_focus(self) -> None:
        self.repaint()

    def on_blur(self) -> None:
        self.repaint()

    def render_line(self, y: int) -> Strip:
        canvas = self._canvas
        if canvas is None or y >= canvas.height:
            return Strip.blank(self.size.width, style_of(self._tokens, f"text/{self.GROUND}"))
        strip = self._strips.get(y)
        if strip is None:
            strip = self._strips[y] = _strip(canvas, y, self._tokens)
        return strip


def _strip(canvas: Canvas, y: int, tokens: Tokens) -> Strip:
    chars, specs = canvas.chars[y], canvas.specs[y]
    segments: list[Segment] = []
    begin = 0
    for x in range(1, canvas.width + 1):
        if x == canvas.width or specs[x] != specs[begin]:
            text = "".join(chars[begin:x])
            segments.append(
                Segment(text.translate(ASCII) if plain_terminal() else text, style_of(tokens, specs[begin]))
            )
            begin = x
    return Strip(segments, canvas.width)


def _changed(old: Canvas, new: Canvas, y: int) -> list[Region]:
    """Spans of a row that differ; spans with a small gap are one, as moving the cursor costs as much as a few cells."""
    before, after = old.chars[y], new.chars[y]
    before_spec, after_spec = old.specs[y], new.specs[y]
    spans: list[list[int]] = []
    for x in range(new.width):
        if before[x] != after[x] or before_spec[x] != after_spec[x]:
            # half of a wide character is never sent alone
            first = x - 1 if x and (after[x] == "" or before[x] == "") else x
            if spans and first - spans[-1][1] < 8:
                spans[-1][1] = x + 1
            else:
                spans.append([first, x + 1])
    regions = []
    for first, end in spans:
        while end < new.width and (after[end] == "" or before[end] == ""):
            end += 1
        regions.append(Region(first, y, end - first, 1))
    return regions
