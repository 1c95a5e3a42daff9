"""Rows of styled text for what doesn't tick: laid out by Textual, wrapped to the width there is, parsed by nothing.

A dialog or a page says what its rows are; how they wrap, hang and shorten is here. What ticks paints itself (`paint.py`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from rich.segment import Segment
from textual.content import Content
from textual.css.styles import RulesMap
from textual.strip import Strip
from textual.style import Style
from textual.visual import RenderOptions, Visual
from textual.widgets import Static

from tui.core.masking.known import shown
from tui.panel.widgets.paint import ASCII, Run, plain_terminal

Line = Sequence[Run]
"""A row as runs: leading marks (`✗ `) and labels (which end in two blanks) keep the rows below free under them."""


@dataclass(frozen=True)
class Row:
    """A row with a layout of its own."""

    runs: Line
    hang: int | None = None  # cells that the rows below stay free of; None = its marks and labels
    ground: str | None = None  # fills the row to its end


@dataclass(frozen=True)
class Single:
    """One row whatever the width: what is on the left is cut last, what is on the right first."""

    left: Line
    right: Line = ()


@dataclass(frozen=True)
class Title:
    """A section: its title on a hairline, facts at the right end."""

    text: str
    facts: Line = ()
    focus: bool = False


@dataclass(frozen=True)
class KeyRow:
    """Keys and their verbs in one row; what doesn't fit is left out, but never the last one, which leads back."""

    keys: Sequence[tuple[str, str]]
    lead: Line = ()


AnyRow = Line | Row | Single | Title | KeyRow


@lru_cache(maxsize=512)
def style_named(spec: str) -> str:
    """Textual's words for a spec (see `theme.style_of`); an empty one leaves it to the widget."""
    front, _, ground = spec.partition("/")
    if not front:
        return f"on $eagle-{ground}" if ground else ""
    weight = "bold" if front.endswith("!") else "not bold"
    return f"{weight} $eagle-{front.rstrip('!')}" + (f" on $eagle-{ground}" if ground else "")


def content_of(runs: Line) -> Content:
    """Runs as Textual's text; nothing in them is markup."""
    return Content.assemble(*((shown(text.expandtabs(8)), style_named(spec)) for text, spec in runs))


def facts_of(pairs: Sequence[tuple[str, str]], *, strong: str | None = None) -> list[AnyRow]:
    """A row for each label and value; values wrap and are never cut."""
    return [
        Row([(f"{label:<14}", "muted"), (value, "strong!" if label == strong else "text")], hang=14)
        for label, value in pairs
    ]


def sections(*parts: Sequence[AnyRow], apart: bool = True) -> list[AnyRow]:
    """Parts one below the other, a blank row between them; empty ones are left out."""
    rows: list[AnyRow] = []
    for part in parts:
        if part:
            rows += [*([[]] if rows and apart else []), *part]
    return rows


def plain(rows: Sequence[AnyRow], width: int = 100) -> str:
    """Rows as text, for the clipboard."""
    return "\n".join(line.plain.rstrip() for line in Rows(rows).lines(width))


def _hang_of(line: Line, width: int) -> int:
    hang = 0
    for text, _ in line[:-1]:
        label = text.endswith("  ") or text.isspace() or (len(text) == 2 and text[1] == " ")
        size = Content(text).cell_length
        if not label or hang + size > width * 2 // 3:
            break
        hang += size
    return hang


def _wrapped(row: Row, width: int) -> list[Content]:
    text = content_of(row.runs)
    if text.cell_length <= width and "\n" not in text.plain:
        lines = [text]
    else:
        hang = _hang_of(row.runs, width) if row.hang is None else row.hang
        # the hang is made of narrow characters: cells are characters
        first, rest = text[:hang], text[hang:]
        lines = [first + part for part in rest.wrap(max(8, width - hang))[:1]]
        lines += [Content(" " * hang) + part for part in rest.wrap(max(8, width - hang))[1:]]
    if row.ground is None:
        return lines
    ground = style_named(f"/{row.ground}")
    return [line.pad_right(max(0, width - line.cell_length)).stylize_before(ground) for line in lines]


def _single(row: Single, width: int) -> Content:
    left, right = content_of(row.left), content_of(row.right)
    if not right:
        return left.truncate(width, ellipsis=True)
    right = right.truncate(max(8, width - left.cell_length - 3), ellipsis=True)
    room = width - right.cell_length
    left = left.truncate(max(0, room - 3), ellipsis=True)
    return left + Content(" " * (room - left.cell_length)) + right


def _titled(title: Title, width: int) -> Content:
    facts = content_of([(" ", "muted"), *title.facts]) if title.facts else Content()
    facts = facts.truncate(max(0, width - len(title.text) - 3), ellipsis=True)
    text = content_of([(f"{title.text} ", "accent!" if title.focus else "strong!")]).truncate(width)
    rule = "─" * max(0, width - text.cell_length - facts.cell_length)
    return text + content_of([(rule, "accent" if title.focus else "line")]) + facts


def _keys(row: KeyRow, width: int) -> Content:
    kept = list(row.keys)
    while True:
        runs = list(row.lead)
        for key, verb in kept:
            runs += [*([("   ", "muted")] if runs else []), (key, "accent!"), (f" {verb}", "muted")]
        text = content_of(runs)
        if text.cell_length <= width or len(kept) < 2:
            return text
        del kept[-2]


class Rows(Visual):
    """Rows as a Textual visual: a `Static` or an option of a list shows them."""

    def __init__(self, rows: Sequence[AnyRow]) -> None:
        self.rows = tuple(rows)
        self._laid_out: tuple[int, list[Content]] = (-1, [])

    def lines(self, width: int) -> list[Content]:
        """The rows as lines of at most `width` cells."""
        if self._laid_out[0] != width:
            self._laid_out = (width, [line for row in self.rows for line in self._lines_of(row, width)])
        return self._laid_out[1]

    @staticmethod
    def _lines_of(row: AnyRow, width: int) -> list[Content]:
        if isinstance(row, Row):
            return _wrapped(row, width)
        if isinstance(row, Single):
            return [_single(row, width)]
        if isinstance(row, Title):
            return [_titled(row, width)]
        if isinstance(row, KeyRow):
            return [_keys(row, width)]
        return _wrapped(Row(row), width)

    def get_optimal_width(self, rules: RulesMap, container_width: int) -> int:
        return container_width

    def get_height(self, rules: RulesMap, width: int) -> int:
        return len(self.lines(width)) if width else len(self.rows)

    def render_strips(self, width: int, height: int | None, style: Style, options: RenderOptions) -> list[Strip]:
        return [_strip(line, style, options.get_style) for line in self.lines(width)[:height]]


def _strip(line: Content, ground: Style, get_style: Callable[[str | Style], Style]) -> Strip:
    segments = [
        Segment(text.translate(ASCII) if plain_terminal() else text, (ground + style).rich_style)
        for text, style in line.render(ground, end="", parse_style=get_style)
    ]
    return Strip(segments, line.cell_length)


class Prose(Static):
    """Rows that wrap to the width of their container, as high as they are."""

    DEFAULT_CSS = "Prose { width: 1fr; height: auto; }"

    def __init__(self, rows: Sequence[AnyRow] = (), *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(Rows(rows), id=id, classes=classes, markup=False)
        self._rows = tuple(rows)

    def show(self, rows: Sequence[AnyRow]) -> None:
        """Other rows."""
        if tuple(rows) != self._rows:
            self._rows = tuple(rows)
            self.update(Rows(rows))
