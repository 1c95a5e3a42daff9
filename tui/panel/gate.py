"""The gate before the terminal: every line of every widget passes it, Textual's own widgets and dialogs too."""

from rich.cells import set_cell_size
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter
from textual.markup import escape

from tui.core.masking.known import hide, shown


class Gate(LineFilter):
    """Lets no control character, escape sequence or known secret through; the width of what it changes stays.

    What lays texts out (`paint.Canvas`, `rows.content_of`) sends them through `safe` before, as a secret that is broken over
    two lines is not seen here.
    """

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        line = "".join(segment.text for segment in segments)
        if line.isprintable() and hide(line) == line:
            return segments
        parts = [segment if segment.control else _as_wide(segment, safe(segment.text)) for segment in segments]
        line = "".join(segment.text for segment in parts)
        if hide(line) != line:  # it is spread over several styles
            parts = [_as_wide(segment, "*" * len(segment.text)) for segment in parts]
        return parts


def safe(text: str) -> str:
    """A text of one row that may be painted: what could steer a terminal and known secrets are replaced."""
    if text.isprintable():
        return hide(text)
    return shown(text).replace("\n", " ").replace("\t", " ")


def as_markup(text: str) -> str:
    """A text for where Textual reads markup (the palette): it is shown as it is written."""
    return escape(safe(text))


def _as_wide(segment: Segment, text: str) -> Segment:
    return segment if text == segment.text else Segment(set_cell_size(text, segment.cell_length), segment.style)
