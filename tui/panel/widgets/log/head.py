"""Above the log: the state of what is read, how many hits there are and where, which ranks are displayed."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.binding import BindingType

from tui import format as fmt
from tui.panel.host_view import run_name
from tui.panel.keys import bindings
from tui.panel.server_view import badge
from tui.panel.widgets.paint import Canvas, Painted, Run, join, width_of

if TYPE_CHECKING:
    from tui.panel.open_log import OpenLog
    from tui.panel.widgets.log.view import LogView


class Prompt(Painted):
    """The key that leads into the search line, in front of it."""

    GROUND = "raised"

    def draw(self, canvas: Canvas) -> None:
        canvas.put(1, 0, "/", "accent!")


class _Head(Painted):
    """A part of the head: it draws what it reads off the view."""

    def __init__(self, view: "LogView", *, id: str) -> None:
        super().__init__(id=id)
        self.view, self.board = view, view.board


class LogState(_Head):
    """What is read and how far, and what filters and folds hide, in one line."""

    def draw(self, canvas: Canvas) -> None:
        left, parts = self._left(), self._right()
        while parts and width_of(left) + width_of(join(parts)) + 4 > canvas.width and len(parts) > 1:
            parts = parts[:-1]
        right = join(parts)
        end = canvas.right_runs(canvas.width - 1, 0, right) - 2 if right else canvas.width - 1
        canvas.runs(1, 0, left, end - 1)

    def _left(self) -> list[Run]:
        board, log = self.board, self.view.open_log
        state = board.state
        parts: list[list[Run]] = []
        lines: int | None = None
        if state is not None:
            mark = badge(state, stale=board.stale, stopping=board.stopping)
            parts += [
                [(f"{mark.glyph} ", mark.color), (mark.word, "strong!"), (f"  {run_name(state.run)}", "muted")],
                [("run ", "muted"), (state.run.short_id, "text")],
            ]
            lines = state.startup.lines
        elif log is not None:
            lines = log.last_line()
        else:
            return [("no server is watched", "muted")]
        counts = [f"{lines:,} lines"] if lines is not None else []
        if log is not None and log.file.size is not None:
            counts.append(fmt.size(log.file.size))
        if counts:
            parts.append([(", ".join(counts), "text" if state is None else "muted")])
        parts.append(self._read(log))
        return join(parts)

    def _read(self, log: "OpenLog | None") -> list[Run]:
        if log is None:
            return [("no log", "muted")]
        if not log.file.at_tail and log.file.size:
            return [(f"at {100 * log.file.begin // log.file.size} % of the file", "text")]
        if log.behind_bytes:
            return [(f"{fmt.size(log.behind_bytes)} behind", "warn")]
        return [("read to its end" if log.ended else "read to the end", "muted")]

    def _right(self) -> list[list[Run]]:
        """What is not displayed, the most important first."""
        log_rows, filter = self.view.log_rows, self.view.filter
        parts: list[list[Run]] = []
        hidden = f"{log_rows.hidden:,} lines hidden"
        if filter.ranks is not None and len(filter.ranks) == 1:
            parts.append([(f"{next(iter(filter.ranks)) or fmt.NONE} only", "accent"), (f", {hidden}", "muted")])
        elif filter.ranks is not None:
            parts.append([(f"{len(filter.ranks)} ranks", "accent"), (f", {hidden}", "muted")])
        elif filter.text and filter.only_hits:
            parts.append([(f"{hidden} by the filter", "muted")])
        if not filter.access:
            parts.append([("no access lines", "accent"), ("" if parts else f", {hidden}", "muted")])
        if not log_rows.folds.repeats:
            parts.append([("every line, ", "muted"), ("z", "accent!"), (" folds", "muted")])
        elif len(log_rows.sequence) < len(log_rows.window.records) - log_rows.hidden:
            parts.append([(f"{len(log_rows.sequence):,}", "text"), (" rows after folding", "muted")])
        return parts


class HitCount(_Head):
    """How many hits, in the whole file where the host is asked, and what Tab does."""

    GROUND = "raised"

    _wrong: str | None = None

    def tell(self, wrong: str | None) -> None:
        """What is wrong with the expression being typed."""
        self._wrong = wrong
        self.repaint()

    def draw(self, canvas: Canvas) -> None:
        if self._wrong is not None:
            canvas.put(1, 0, self._wrong, "warn", canvas.width - 2)
            return
        if not self.view.filter.text:
            return
        runs = self._runs()
        while width_of(runs) > canvas.width - 2 and len(runs) > 1:
            runs = runs[:-1]
        canvas.right_runs(canvas.width - 1, 0, runs)

    def _runs(self) -> list[Run]:
        filter = self.view.filter
        place, count, searching = counted(self.view)
        runs: list[Run] = [(f"{place:,}", "strong!"), (" of ", "muted")] if place is not None else []
        runs += [(f"{count:,}", "strong!"), (" hits", "muted")]
        if searching is not None:
            runs += [(", ", "muted"), (searching, "accent")]
        if filter.regex:
            runs.append((" · expression", "muted"))
        around = f" ±{filter.context}" if filter.context else ""
        turned = f"filter{around} (Tab: highlight)" if filter.only_hits else "highlight (Tab: filter)"
        return [*runs, (f" · {turned}", "muted")]


def counted(view: "LogView") -> tuple[int | None, int, str | None]:
    """Place of the cursor among the hits, how many there are, and how far the host has looked while it still does."""
    log, log_rows = view.open_log, view.log_rows
    row = view.current_row() if view.current is not None else None
    search = log.search if log is not None else None
    if log is None or search is None or search.state.size_bytes is None:  # what is loaded, until the host has looked
        place = log_rows.hits.index(row.index) + 1 if row is not None and row.hit else None
        return place, len(log_rows.hits), None
    place = log.place_of_hit(row.index) if row is not None and row.hit else None
    state = search.state
    if not log.searching or state.done:
        return place, state.count, None
    percent = 100 * state.looked_bytes // max(1, state.size_bytes or 0)
    return place, state.count, f"searching {percent} %"


class RankLine(_Head):
    """Which ranks are displayed, one or several; with the focus on it, arrows and the space bar choose."""

    can_focus = True
    BINDINGS: ClassVar[list[BindingType]] = bindings("rank line")

    _at = 0
    _places: Sequence[tuple[int, int, str | None]] = ()  # first and last column of each chip

    def _chips(self) -> list[str | None]:
        return [None, *self.view.known_ranks()]

    def draw(self, canvas: Canvas) -> None:
        ranks = self.view.filter.ranks
        places: list[tuple[int, int, str | None]] = []
        x = canvas.put(1, 0, "ranks", "muted") + 2
        chips = self._chips()
        first = max(0, self._at - 3) if self.has_focus else 0  # of many, the one to choose stays in sight
        for number, rank in enumerate(chips[first:], first):
            label = rank or "all"
            if x + len(label) + 3 > canvas.width:
                canvas.put(x, 0, "…", "muted")
                break
            here = self.has_focus and number == self._at
            if ranks is None if rank is None else rank in (ranks or ()):
                canvas.put(x, 0, f" ✓{label} ", "accent!/accbg")
            else:
                canvas.put(x, 0, f" {label}  ", "strong!/raised" if here else "muted")
            if here:
                canvas.put(x, 0, "▌", "accent/raised")
            places.append((x, x + len(label) + 3, rank))
            x += len(label) + 3
        self._places = places
        if not self.view.filter.access:
            canvas.put(x + 1, 0, "no access lines", "accent", canvas.width - x - 1)

    def action_move(self, step: int) -> None:
        """The next chip."""
        self._at = max(0, min(len(self._chips()) - 1, self._at + step))
        self.repaint()

    def action_turn(self) -> None:
        """Shows a rank or hides it."""
        self._turn(self._chips()[self._at])

    def _turn(self, rank: str | None) -> None:
        chosen = self.view.filter.ranks or frozenset()
        self.view.set_ranks(chosen.symmetric_difference((rank,)) or None if rank is not None else None)

    def on_click(self, event: events.Click) -> None:
        for begin, end, rank in self._places:
            if begin <= event.x < end:
                self._turn(rank)
