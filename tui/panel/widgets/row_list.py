"""A list of any length with a cursor: only the rows on the screen are made and painted."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.binding import BindingType
from textual.message import Message

from tui.panel.keys import moving
from tui.panel.widgets.paint import Canvas, Painted, Run, cells, clip, clip_runs
from tui.panel.widgets.rows import Line, Single, Title

ListRow = Single | Title | Line
"""A row under the cursor's control is a `Single`; a title, or plain runs, only stand over others."""


class RowList(Painted):
    """Rows made on demand by their place; the cursor skips those that only stand over others."""

    can_focus = True
    DEFAULT_CSS: ClassVar[str] = "RowList { height: 1fr; width: 100%; }"
    BINDINGS: ClassVar[list[BindingType]] = moving("move(1)", "move(-1)", "page(1)", "page(-1)", "first", "last")

    @dataclass
    class Moved(Message):
        """Another row is under the cursor."""

        of: str | None  # id of the list
        at: int

    def __init__(self, *, id: str | None = None, quiet: bool = False) -> None:
        """`quiet`: the cursor is shown only while the list has the focus."""
        super().__init__(id=id)
        self._quiet = quiet
        self.at = 0
        self._count = 0
        self._top = 0
        self._row: Callable[[int], ListRow] = lambda _: []
        self._heads: frozenset[int] = frozenset()

    def show(
        self, count: int, row: Callable[[int], ListRow], *, at: int | None = None, heads: frozenset[int] = frozenset()
    ) -> None:
        """Other rows.

        Args:
            count: how many there are.
            row: makes the row of a place.
            at: where the cursor is from now on; None leaves it.
            heads: places that the cursor skips.
        """
        self._count, self._row, self._heads = count, row, heads
        self.at = self._near(self.at if at is None else at, 1)
        self.repaint()

    def _near(self, place: int, step: int) -> int:
        """The next place that may be under the cursor, in the direction of `step`, else in the other."""
        place = min(max(place, 0), max(0, self._count - 1))
        for way in (step, -step):
            here = place
            while 0 <= here < self._count:
                if here not in self._heads:
                    return here
                here += way
        return place

    # -- moving ----------------------------------------------------------------------------------------------------

    def _go(self, place: int, step: int) -> None:
        before, self.at = self.at, self._near(place, step)
        if self.at != before:
            self.repaint()
            self.post_message(self.Moved(self.id, self.at))

    def action_move(self, by: int) -> None:
        """Down or up by some rows."""
        self._go(self.at + by, 1 if by > 0 else -1)

    def action_page(self, by: int) -> None:
        """A screenful down or up."""
        self.action_move(by * max(1, self.size.height - 1))

    def action_first(self) -> None:
        self._go(0, 1)

    def action_last(self) -> None:
        self._go(self._count - 1, -1)

    def on_click(self, event: events.Click) -> None:
        """The cursor where the mouse is."""
        if self._top + event.y < self._count:
            self._go(self._top + event.y, 1)

    def on_mouse_scroll_down(self) -> None:
        self.action_move(3)

    def on_mouse_scroll_up(self) -> None:
        self.action_move(-3)

    # -- drawing ---------------------------------------------------------------------------------------------------

    def draw(self, canvas: Canvas) -> None:
        first = self.at - 1 if self.at - 1 in self._heads else self.at  # a title is seen with its first row
        self._top = max(0, min(max(self._top, self.at - canvas.height + 1), first, self._count - canvas.height))
        for y in range(min(canvas.height, self._count - self._top)):
            row, chosen = self._row(self._top + y), self._top + y == self.at and (self.has_focus or not self._quiet)
            if isinstance(row, Title):
                canvas.title(1, y, canvas.width - 2, row.text, row.facts, focus=row.focus)
            elif isinstance(row, Single):
                self._single(canvas, y, row, chosen=chosen)
            else:
                canvas.runs(1, y, row, canvas.width - 2)

    def _single(self, canvas: Canvas, y: int, row: Single, *, chosen: bool) -> None:
        ground = "raised" if chosen else canvas.ground
        if chosen:
            canvas.fill(1, y, canvas.width - 2, 1, ground)
            canvas.put(0, y, "▌", "accent" if self.has_focus else "muted")
        end = canvas.width - 1
        right = clip_runs(_on(row.right, ground, chosen), (canvas.width - 2) // 2)
        if right:
            end = canvas.right_runs(end, y, right) - 2
        canvas.runs(1, y, _on(row.left, ground, chosen), end - 1)


def _on(runs: Sequence[Run], ground: str, chosen: bool) -> list[Run]:
    """Runs on a ground; on the cursor's row what is text is strong."""
    found = []
    for text, spec in runs:
        spec = spec or ("strong!" if chosen else "text")
        found.append((text, spec if "/" in spec else f"{spec}/{ground}"))
    return found


def column(text: str, width: int, spec: str = "text") -> Run:
    """A cell of a table, with a blank behind it: padded, cut with `…` where it is longer."""
    cut = clip(text, width - 1)
    return cut + " " * max(0, width - cells(cut)), spec
