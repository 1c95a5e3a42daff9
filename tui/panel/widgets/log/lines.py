"""How a row of a log is shown: its text on one line, its mark, which ranks logged it, and what its note says."""

from dataclasses import dataclass

from tui import format as fmt
from tui.core.logs.rows import LogRows, Row
from tui.core.model.log import LogRecord
from tui.core.model.phases import Phase
from tui.panel.server_view import SHORT
from tui.panel.widgets.log.text import flat, window
from tui.panel.widgets.log.text import width_of as cells
from tui.panel.widgets.paint import Canvas, Run, width_of

GUTTER = {**SHORT, Phase.DISTRIBUTED_INIT: "dist init"}
_MARKS = {"phase": ("▸", "accent"), "marker": ("▸", "accent"), "warning": ("▲", "warn"), "error": ("✗", "err")}
LONG = 1000  # from here on the length is shown


@dataclass(frozen=True)
class LogLine:
    """What one row shows, whether it is one record or a fold of many."""

    record: LogRecord  # the one whose text is shown
    text: str  # on one line, without tabs
    mark: tuple[str, str]
    spec: str
    rank: str
    note: tuple[Run, ...]
    time: str | None  # of a fold its first


def line_of(row: Row, *, newest: bool = False) -> LogLine:
    """How a row is shown.

    Args:
        newest: a fold of repeats shows the text of its newest record; its time stays that of the first.
    """
    record = row.record
    repeated = row.lines == 1 and row.count > 1 and len(row.ranks) != row.count and record.kind != "bar"
    shown = row.shown if newest or row.lines > 1 else record
    note: tuple[Run, ...] = ()
    if repeated:
        note = ((f"×{row.count:,}", "strong!"),)
        if row.last is not None and row.last.time and row.last.time != record.time:
            note += ((f"  last {row.last.time}", "muted"),)
    elif row.note:
        note = ((row.note, "muted"),)
    length = len(shown.text) + shown.cut_bytes
    if length > LONG and not note:
        note = ((fmt.size(length), "muted"),)
    folded = repeated or shown.kind == "note"
    mark = _MARKS.get(shown.kind, ("≡", "muted") if folded else (" ", "text"))
    if shown.kind == "error":
        spec = "err!"
    elif shown.kind in ("phase", "marker"):
        spec = "strong"
    else:
        spec = "muted" if folded or row.context else "text"
    return LogLine(shown, flat(shown.text), mark, spec, row.rank_label, note, record.time)


def put_text(
    canvas: Canvas,
    x: int,
    y: int,
    end: int,
    line: LogLine,
    log_rows: LogRows,
    piece: tuple[int, str],
    shift: int | None,
    *,
    here: bool,
    ground: str,
) -> None:
    """Puts the text of a row between two columns, with its hits marked.

    Args:
        piece: the part of the text that this row of the screen is for, after the index of its first character.
        shift: cells that the lines are moved to the left; None where they are wrapped.
    """
    room = end - x
    if room <= 0:
        return
    begin, visible = piece if shift is None else window(piece[1], shift, room)[::-1]
    stop = begin + len(visible)
    spec = ("strong" if here and line.spec == "text" else line.spec) + ground
    canvas.put(x, y, visible, spec, room)
    if shift and line.text:
        canvas.put(x, y, "…", "muted" + ground)
    if shift is not None and stop < len(line.text):
        canvas.put(end - 1, y, "…", spec)
    for first, last in log_rows.spans(line.text[: stop + LONG]) if log_rows.filter.text else ():
        first, last = max(first, begin), min(last, stop)
        if first < last:
            column = x + cells(line.text[begin:first])
            canvas.put(column, y, line.text[first:last], "bg!/warn" if here else "hittext/hit", end - column)


def note_width(line: LogLine) -> int:
    """Cells that the note at the right end takes from the text."""
    return width_of(line.note) + 2 if line.note else 0


def fresh(rows: int) -> int:
    """So many of the newest lines are not folded with those before them, on a view of so many rows."""
    return max(4, rows // 3)


def since(seconds: float) -> str:
    """Time since a start in eight cells: `+0:31:58`, `−0:00:04`."""
    total = round(abs(seconds))
    text = f"{total // 3600}:{total % 3600 // 60:02d}:{total % 60:02d}"
    return (("−" if seconds < 0 and total else "+") + text) if total < 36_000 else text
