"""The newest lines of all logs of a group in one list, each with whose it is."""

from dataclasses import dataclass

from tui.core.logs.rows import LogRows, Row
from tui.core.logs.window import LogWindow
from tui.panel.open_group import OpenGroup, Seen
from tui.panel.widgets.log.lines import line_of
from tui.panel.widgets.paint import Canvas, Run, cells, width_of

_KEPT = 60  # newest rows of each log that are merged


@dataclass(frozen=True)
class _Merged:
    """A row of one of the logs."""

    at: float  # its stamp, else that of the row before it
    place: int  # of the member
    index: int  # of the row
    one: Seen
    row: Row


class MergedLog:
    """Rows of several logs by their stamps; each log folds its own repeats.

    Stamps are whole seconds of each host's own clock: between two hosts the order is as good as these.
    """

    def __init__(self) -> None:
        self._rows: dict[str, LogRows] = {}  # by run id

    def newest(self, opened: OpenGroup, count: int) -> list[tuple[Seen, Row]]:
        """The last rows of all logs, oldest first."""
        found: list[_Merged] = []
        for place, one in enumerate(opened.seen()):
            rows = self._of(one)
            at = 0.0
            if rows is None:
                continue
            for index in rows.sequence[-_KEPT:]:
                row = rows.row(index)
                newest = row.last or row.shown
                at = max(at, (newest.stamp_s or row.record.stamp_s or at))
                found.append(_Merged(at, place, index, one, row))
        found.sort(key=lambda merged: (merged.at, merged.place, merged.index))
        return [(merged.one, merged.row) for merged in found[-count:]]

    def _of(self, one: Seen) -> LogRows | None:
        log = one.board.log
        if log is None or one.board.run is None or one.board.run.run_id != one.member.run_id:
            return None
        window: LogWindow = log.file.tail
        rows = self._rows.get(one.member.run_id)
        if rows is None or rows.window is not window:
            rows = self._rows[one.member.run_id] = LogRows(window)
        rows.update()
        return rows

    def draw(self, canvas: Canvas, x: int, y: int, width: int, rows: int, opened: OpenGroup) -> None:
        """Title and rows."""
        canvas.title(x, y, width, "Log", self._facts(opened, width))
        found = self.newest(opened, rows - 1)
        late = opened.late_member()
        host = min(14, max([4, *(cells(one.label) for one in opened.seen())])) + 1
        wide = width >= 100
        host_at, rank_at = (x + 11, x + 12 + host) if wide else (x + 9, x + 10 + host)
        text_at = rank_at + (9 if wide else 6)
        for line, (one, row) in enumerate(found, y + 1):
            shown = line_of(row, newest=True)
            if wide:
                canvas.put(x, line, *shown.mark)
                canvas.put(x + 2, line, shown.time or "", "muted", 8)
            else:
                canvas.put(x, line, shown.time or "", "muted", 8)
            canvas.put(host_at, line, one.label, "warn" if one.member == late else "muted", host)
            canvas.put(rank_at, line, shown.rank, "muted", text_at - rank_at - 1)
            end = x + width
            if shown.note and wide:
                end = canvas.right_runs(end, line, shown.note) - 2
            canvas.put(text_at, line, shown.text, shown.spec, end - text_at)
        if not found:
            canvas.put(x, y + 1, "nothing written yet", "muted")

    @staticmethod
    def _facts(opened: OpenGroup, width: int) -> list[Run]:
        lines = sum(one.state.startup.lines for one in opened.seen() if one.state is not None)
        facts: list[Run] = [(f"all members, {lines:,} lines · ", "muted")]
        if width >= 120:
            facts += [("▸", "accent"), (" phase · ", "muted"), ("▲", "warn"), (" warning · ≡ folded · ", "muted")]
        facts += [("m", "accent!"), (" a member's own", "muted")]
        return facts if width_of(facts) < width - 8 else facts[-2:]
