"""How a row of a log is shown: its text on one line, its mark, which ranks logged it, and what its note says."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tui import format as fmt
from tui.core.model.phases import Phase
from tui.panel.server_view import SHORT
from tui.panel.widgets.log.text import flat
from tui.panel.widgets.paint import Run, width_of

if TYPE_CHECKING:
    from tui.core.logs.rows import Row
    from tui.core.model.log import LogRecord

GUTTER = {**SHORT, Phase.DISTRIBUTED_INIT: "dist init"}
_MARKS = {"phase": ("▸", "accent"), "marker": ("▸", "accent"), "warning": ("▲", "warn"), "error": ("✗", "err")}
LONG = 1000  # from here on the length is shown


@dataclass(frozen=True)
class LogLine:
    """What one row shows, whether it is one record or a fold of many."""

    record: "LogRecord"  # the one whose text is shown
    text: str  # on one line, without tabs
    mark: tuple[str, str]
    spec: str
    rank: str
    note: tuple[Run, ...]
    time: str | None  # of a fold its first


def line_of(row: "Row", *, newest: bool = False) -> LogLine:
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
