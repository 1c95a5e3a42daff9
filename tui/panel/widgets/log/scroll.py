"""Rows that a reader walks through: a cursor, following the end, a selection, lines moved sideways, the mouse.

The reader is never moved: what is displayed is held by the key of its first row, whatever comes or goes at either end.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.binding import BindingType
from textual.message import Message

from tui.panel.keys import bindings, moving
from tui.panel.widgets.paint import Painted

_SIDE = 16  # cells that an arrow moves the lines
# Of one log, and of two side by side.
LOG_KEYS = bindings("logs", "n N", "[ ]", "e E", "z", "space", "t")


class Scrolled(Painted):
    """Base of views of a log: rows named by ascending keys, under a title row.

    A subclass says what there is (`keys`, `place_of`), how tall and how long rows are, and whether the log continues
    beyond what is loaded.
    """

    can_focus = True
    ALLOW_SELECT = False  # it selects whole lines, also those that are folded or off the screen
    BINDINGS: ClassVar[list[BindingType]] = [
        *moving("move(1)", "move(-1)", "page(1)", "page(-1)", "top", "bottom"),
        *bindings("logs", "left right", "f", "V"),
    ]

    class Changed(Message):
        """What is shown, or where the reader is, has changed."""

    @dataclass
    class Near(Message):
        """The reader is near an end of what is loaded, with more of the file behind it."""

        step: int

    @dataclass
    class Beyond(Message):
        """The reader asked for something that is not loaded: `hit`, `phase` or `error` after or before, `begin`, `end`."""

        what: str
        step: int

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.following = True
        self.wrapped = False
        self.shift = 0  # cells that the lines are moved to the left
        self.current: int | None = None  # key of the cursor
        self.marked: int | None = None  # where a selection began
        self._top = 0  # key of the first row displayed, while not following
        self._skip = 0  # rows of it that are above the edge, while lines are wrapped
        self._pressed: int | None = None  # where the mouse button went down

    # -- what a subclass says --------------------------------------------------------------------------------------

    def keys(self) -> Sequence[int]:
        """The rows there are, ascending."""
        raise NotImplementedError

    def place_of(self, key: int) -> int:
        """Place of the row that shows a key; there is at least one row."""
        raise NotImplementedError

    def height(self, place: int) -> int:
        """Rows of the screen that a row takes."""
        return 1

    def longest(self) -> int:
        """Cells of the longest line displayed."""
        raise NotImplementedError

    def room(self) -> int:
        """Cells that there are for a line."""
        raise NotImplementedError

    def more(self, step: int) -> bool:
        """Whether the log continues before (-1) or after (1) what is loaded."""
        return False

    def searching(self) -> bool:
        """Whether there are hits to go to; without, `n` is a note, as on every screen."""
        return False

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return self.searching() or (action, parameters) != ("hit", (1,))

    # -- where the reader is ---------------------------------------------------------------------------------------

    @property
    def rows(self) -> int:
        """Rows of the screen under the title."""
        return max(1, self.size.height - 1)

    @property
    def place(self) -> int | None:
        """Place of the cursor's row, None without one."""
        return self.place_of(self.current) if self.current is not None and self.keys() else None

    def selection(self) -> range:
        """Places of the rows of the selection; empty without one."""
        if self.marked is None or self.current is None or not self.keys():
            return range(0)
        first, last = sorted((self.place_of(self.marked), self.place_of(self.current)))
        return range(first, last + 1)

    def walk(self, place: int, skip: int, lines: int) -> tuple[int, int]:
        """Where one is after so many rows of the screen, down or (negative) up."""
        if not self.wrapped:
            return max(0, place + lines), 0
        count = len(self.keys())
        lines += skip
        while lines < 0 and place > 0:
            place -= 1
            lines += self.height(place)
        while place < count and lines >= (height := self.height(place)):
            lines -= height
            place += 1
        return place, max(0, lines)

    def last_page(self) -> tuple[int, int]:
        """Where the last page begins."""
        return self.walk(len(self.keys()), 0, -self.rows)

    def first_shown(self) -> tuple[int, int]:
        """Place of the first row displayed, and its rows above the edge."""
        keys = self.keys()
        if not keys:
            return 0, 0
        if self.following:
            return self.last_page()
        place = self.place_of(self._top)
        return place, self._skip if self.wrapped and keys[place] == self._top else 0

    def put_top(self, place: int, skip: int = 0) -> None:
        """Shows a row first."""
        keys = self.keys()
        if keys:
            self._top, self._skip = keys[min(max(0, place), len(keys) - 1)], skip

    def show_key(self, key: int) -> None:
        """Puts the cursor on a row, and the row on the screen."""
        keys = self.keys()
        if not keys:
            return
        place = self.place_of(key)
        first, skip = self.first_shown()
        self.current = key
        if self.wrapped:
            inside = first + (skip > 0) <= place <= self.walk(first, skip, self.rows - 1)[0]
        else:
            inside = first <= place < first + self.rows
        if inside:
            self.put_top(first, skip)
        elif self.wrapped:
            self.put_top(*self.walk(place, 0, -(self.rows // 3)))
        else:
            self.put_top(max(0, min(place - self.rows // 2, len(keys) - self.rows)))
        self.following = False
        self.moved()
        self.ask_for_more()

    def moved(self) -> None:
        """Repaints, and reports it."""
        self.repaint()
        self.post_message(self.Changed())

    def wants(self, step: int) -> bool:
        """Whether the reader is so near the beginning (-1) or the end (1) of what is loaded that more is wanted."""
        if not self.more(step):
            return False
        if self.following:
            return len(self.keys()) < self.rows  # a page that is not full
        first, _ = self.first_shown()
        if step > 0:
            return first + 3 * self.rows > len(self.keys())
        place = self.place or 0
        return 0 < first < 2 * self.rows or (first == 0 and place < self.rows // 2)

    def ask_for_more(self) -> None:
        """Tells where the reader is near an end of what is loaded."""
        for step in (-1, 1):
            if self.wants(step):
                self.post_message(self.Near(step))

    def next_of(self, places: Sequence[int], step: int) -> int | None:
        """The next of some keys after the cursor (1) or before it (-1), None past the last."""
        keys = self.keys()
        if not places or not keys:
            return None
        first, skip = self.first_shown()
        if self.current is not None:
            here = keys[self.place_of(self.current)]
        elif step > 0:
            here = keys[first] - 1
        else:  # back from the end of what is displayed
            last = self.walk(first, skip, self.rows)[0]
            here = keys[last] if last < len(keys) else keys[-1] + 1
        at = bisect_right(places, here) if step > 0 else bisect_left(places, here) - 1
        return places[at] if 0 <= at < len(places) else None

    def jump(self, what: str, places: Sequence[int], step: int) -> int | None:
        """Goes to the next one of a kind that is loaded, else asks for it; around the ends where all is loaded."""
        found = self.next_of(places, step)
        if found is None:
            if self.more(-1) or self.more(1):
                self.post_message(self.Beyond(what, step))
                return None
            if not places:
                return None
            found = places[0 if step > 0 else -1]
        self.show_key(found)
        return found

    # -- keys ------------------------------------------------------------------------------------------------------

    def action_move(self, step: int) -> None:
        """Moves the cursor; the first time it appears on the last row shown."""
        keys = self.keys()
        if not keys:
            return
        place = self.place
        if place is None:
            first, skip = self.first_shown()
            last = min(len(keys), self.walk(first, skip, self.rows)[0]) - 1
            self.show_key(keys[last if step < 0 else first])
        elif place + step < len(keys):
            self.show_key(keys[max(0, place + step)])
        elif self.more(1):
            self.post_message(self.Near(1))
        elif self.marked is None:
            self.action_bottom()

    def action_page(self, step: int) -> None:
        """A page up or down; past the end it follows again."""
        self.scroll_rows(step * max(1, self.rows - 1))

    def scroll_rows(self, lines: int) -> None:
        """Moves what is displayed, and the cursor no further than it must."""
        keys = self.keys()
        if not keys:
            return
        target, last = self.walk(*self.first_shown(), lines), self.last_page()
        if target >= last and lines > 0:
            if not self.more(1) and self.marked is None:
                self.action_bottom()
                return
            target = last
        self.put_top(*target)
        self.following = False
        place = self.place
        bottom = min(len(keys), max(target[0] + 1, self.walk(*target, self.rows)[0])) - 1
        if place is None:
            place = bottom if lines < 0 else target[0]
        self.current = keys[min(max(place, target[0]), bottom)]
        self.moved()
        self.ask_for_more()

    def action_top(self) -> None:
        """First line of the log."""
        if self.more(-1):
            self.post_message(self.Beyond("begin", -1))
        elif keys := self.keys():
            self.show_key(keys[0])

    def action_bottom(self) -> None:
        """Last row, and follow it."""
        if self.more(1):
            self.post_message(self.Beyond("end", 1))
            return
        self.following, self.current, self.marked = True, None, None
        self.shift = 0
        self.moved()

    def action_follow(self) -> None:
        """Follow the newest line, or hold still."""
        keys = self.keys()
        if self.following and keys:
            self.put_top(*self.first_shown())
            self.following, self.current = False, keys[-1]
            self.moved()
        else:
            self.action_bottom()

    def action_side(self, step: int) -> None:
        """Moves the lines to the left or back."""
        if not self.wrapped:
            self.shift = max(0, min(self.shift + step * _SIDE, self.longest() - _SIDE))
            self.moved()

    def action_line_begin(self) -> None:
        """The beginning of the lines."""
        self.shift = 0
        self.moved()

    def action_line_end(self) -> None:
        """The end of the longest line displayed."""
        if not self.wrapped:
            self.shift = max(0, self.longest() - self.room() + 1)
            self.moved()

    def action_select(self) -> None:
        """Begins a selection at the cursor, or drops it."""
        if self.marked is not None:
            self.marked = None
        else:
            if self.current is None:
                self.action_move(-1)
            self.marked = self.current
        self.moved()

    def action_extend(self, step: int) -> None:
        """Moves the cursor with the selection."""
        if self.marked is None:
            self.action_select()
        self.action_move(step)

    # -- the mouse -------------------------------------------------------------------------------------------------

    def key_under(self, y: int) -> int | None:
        """Key of the row at a line of the widget."""
        place, skip = self.first_shown()
        keys = self.keys()
        if y < 1 or not keys:
            return None
        at = self.walk(place, skip, y - 1)[0]
        return keys[at] if at < len(keys) else None

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.scroll_rows(-3)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.scroll_rows(3)

    def on_mouse_scroll_left(self, event: events.MouseScrollLeft) -> None:
        event.stop()
        self.action_side(-1)

    def on_mouse_scroll_right(self, event: events.MouseScrollRight) -> None:
        event.stop()
        self.action_side(1)

    def on_mouse_down(self, event: events.MouseDown) -> None:
        if event.button != 1:
            return
        self._pressed = self.key_under(event.y)
        if self._pressed is not None:
            self.capture_mouse()
            self.marked = None
            self.show_key(self._pressed)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        if self._pressed is None:
            return
        if 1 <= event.y < self.size.height:
            under = self.key_under(event.y)
            if under is not None and (self.marked is not None or under != self._pressed):
                self.marked = self._pressed
                self.show_key(under)
            return
        keys, place, step = self.keys(), self.place, -1 if event.y < 1 else 1
        if place is not None and 0 <= place + step < len(keys):  # dragged past the edge: it continues
            self.marked = self._pressed
            self.show_key(keys[place + step])

    def on_mouse_up(self) -> None:
        self.release_mouse()
        self._pressed = None

    def on_resize(self) -> None:
        if self.current is not None and not self.following:  # fewer rows: the cursor stays in sight
            self.show_key(self.current)
