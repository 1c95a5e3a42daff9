"""Profiles: what is found and what is broken, the difference to the parent, the exact command, what is against it."""

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Vertical
from textual.timer import Timer
from textual.widgets import Input, OptionList

from tui.core.errors import EagletuiError
from tui.panel.host_view import Board
from tui.panel.keys import bindings, keys
from tui.panel.protocol import Subject
from tui.panel.screens.base import Mode
from tui.panel.screens.dialog import Box, Choices
from tui.panel.screens.editing import edited
from tui.panel.screens.plan_rows import Shown, as_shown
from tui.panel.screens.profile_rows import Chosen, broken_rows, chosen, detail_rows, history_rows, home_path, last_here
from tui.panel.widgets.footer import Keys
from tui.panel.widgets.paint import Run
from tui.panel.widgets.rows import AnyRow, Prose, Rows, Single, Title

if TYPE_CHECKING:
    from tui.core.profiles.launch_profile import LaunchProfile
    from tui.core.profiles.load import ProfileEntry
    from tui.core.server.launch_records import LaunchRecord

_SETTLE_S = 0.3  # the cursor rests on a profile for so long before the host is asked
_KEPT_S = 10.0  # an answer of the host is as good as new for so long
_WIDTHS = [(0, "-narrow"), (100, "-wide")]
_HEIGHTS = [(0, "-short"), (36, "-tall")]
_KINDS = ("launch", "bench", "experiment")


def _live_runs(board: Board) -> frozenset[tuple[str, str]]:
    return frozenset((run.run_id, run.state) for run in board.runs)


@dataclass(frozen=True)
class _Answer:
    """What the host said about a profile."""

    at: float  # monotonic
    plan: Shown
    runs: frozenset[tuple[str, str]]  # that were there then

    def holds(self, profile: "LaunchProfile", board: Board) -> bool:
        """Whether asking again would most likely say the same."""
        fresh = time.monotonic() - self.at < _KEPT_S
        return fresh and self.plan.profile == profile and self.runs == _live_runs(board)


class ProfileDetail(Box):
    """The chosen profile in depth."""


class Profiles(Mode):
    """The list on the left, the chosen profile on the right; stacked below 100 columns."""

    NAME = "Profiles"
    AUTO_FOCUS = "Choices"
    CSS_PATH: ClassVar[list[str]] = ["lists.tcss", "profiles.tcss"]  # type: ignore[assignment]
    BINDINGS: ClassVar[list[BindingType]] = bindings("profiles")
    HORIZONTAL_BREAKPOINTS = _WIDTHS
    VERTICAL_BREAKPOINTS = _HEIGHTS

    def __init__(self, board: Board) -> None:
        super().__init__(board)
        self.entries: list[ProfileEntry] = []
        self.shown: list[ProfileEntry] = []
        self.at = 0  # in `shown`
        self.compared: str | None = None  # profile that the difference is against, instead of the parent
        self._records: list[LaunchRecord] = []
        self._chosen: Chosen | None = None
        self._chosen_as: str | None = None
        self._placed = True  # `at` was set by something else than the list's cursor
        self._answers: dict[str, _Answer] = {}
        self._settle: Timer | None = None

    def content(self) -> ComposeResult:
        yield Prose(id="profilesline")
        yield Input(placeholder="search a profile", id="find")
        with Container(id="profiles"):
            with Vertical(id="profilelist"):
                yield Prose(id="listtitle")
                yield Choices()
                yield Prose(id="below")
            with ProfileDetail(id="profiledetail"):
                yield Prose(id="detail")

    def on_mount(self) -> None:
        self.query_one("#find").display = False
        self.read()

    def on_screen_resume(self) -> None:
        self.read()

    def on_resize(self) -> None:
        self.call_after_refresh(self.update)

    def footer_keys(self) -> Keys:
        if not self.board.connected and self.board.link is not None:
            return (
                *keys("r", "h", where="refused or lost link"),
                *keys("e", "c", "i", "?", "^P", "q", where="profiles"),
            )
        entry = self.chosen_entry()
        launch = ("l", "o", "t") if self.chosen_launch() is not None and entry and not entry.errors else ()
        copy = ("y", "c") if launch else ()
        edit = ("e",) if entry is not None else ()
        return keys(*launch, *edit, *copy, "i", "Tab", "/", "?", "^P", "q", where="profiles")

    # -- what is known ---------------------------------------------------------------------------------------------

    def read(self) -> None:
        """Reads the profiles and this machine's record of launches again."""
        from tui.core.server import launch_records

        before = self.chosen_entry()
        self.entries = self.eagle.profile_entries()
        self._records = [record for record in launch_records.read_all() if record.host == self.board.host]
        self._filter()
        wanted = before.name if before else self.board.run.profile if self.board.run else None
        self.at = next((at for at, entry in enumerate(self.shown) if entry.name == wanted), self.at)
        self._chosen_as = None
        self._choose()

    def _filter(self) -> None:
        text = self.query_one("#find", Input).value.lower() if self.is_mounted else ""
        order = {kind: place for place, kind in enumerate(_KINDS)}
        found = (entry for entry in self.entries if text in entry.name.lower())
        self.shown = sorted(found, key=lambda entry: (order.get(entry.kind or "", len(order)), entry.name))
        self.at = min(self.at, max(0, len(self.shown) - 1))

    def chosen_entry(self) -> "ProfileEntry | None":
        """The profile under the cursor."""
        return self.shown[self.at] if self.at < len(self.shown) else None

    def chosen_launch(self) -> str | None:
        """Its name, where it can be launched."""
        entry = self.chosen_entry()
        return entry.name if entry is not None and entry.kind == "launch" else None

    def _launches(self, name: str) -> "list[LaunchRecord]":
        """Launches of a profile on this host, newest first."""
        return [record for record in self._records if record.profile == name]

    # -- what is shown ---------------------------------------------------------------------------------------------

    def update(self) -> None:
        if not self.is_mounted:
            return
        self.query_one("#profilesline", Prose).show([self._line()])
        listing, choices = self.query_one("#profilelist"), self.query_one(Choices)
        title = Title("Profiles", [("last here", "muted")], focus=choices.has_focus)
        self.query_one("#listtitle", Prose).show([title])
        rows, places = self._list(apart=self.size.height > 26)
        heads = frozenset(place for place in range(len(rows)) if place not in places)
        # the list itself knows where its cursor is, and says so a little later
        choices.show(rows, places[self.at] if self._placed and places else None, heads)
        self._placed = False
        self._show_below(listing.size.width, listing.size.height - 1 - len(rows))
        nothing: list[AnyRow] = [
            [("No profile was found.", "text")],
            [("i", "accent!"), (" makes one of a posted launch command", "muted")],
        ]
        detail, shown = self.query_one(ProfileDetail), self._chosen
        airy, focus = self.size.height >= 36, detail.has_focus
        width = detail.scrollable_content_region.width
        page = detail_rows(self.eagle, shown, width, focus=focus, airy=airy) if shown is not None else nothing
        self.query_one("#detail", Prose).show(page)
        super().update()

    def _line(self) -> Single:
        """How many there are, and where they come from."""
        broken = sum(bool(entry.errors) for entry in self.entries)
        count = len(self.entries)
        runs: list[Run] = [(str(count), "text"), (" profile" if count == 1 else " profiles", "muted")]
        if broken:
            runs += [(" · ", "muted"), (str(broken), "text"), (" broken", "muted")]
        places = dict.fromkeys(home_path(entry.path.parent) for entry in self.entries)
        return Single([*runs, (" · from ", "muted"), (", ".join(places), "text")] if places else runs)

    def _list(self, *, apart: bool) -> tuple[list[Single], list[int]]:
        """Rows of the list by kind, with the last result here; and the row of each profile."""
        rows: list[Single] = []
        places: list[int] = []
        kind: str | None = ""
        for entry in self.shown:
            if entry.kind != kind:
                kind = entry.kind
                rows += [*([Single([])] if rows and apart else []), Single([(kind or "unknown kind", "muted")])]
            mark, result = last_here(self.board, entry, self._launches(entry.name))
            places.append(len(rows))
            rows.append(Single([mark, (" ", ""), (entry.name, "")], [result]))
        return rows, places

    def _show_below(self, width: int, room: int) -> None:
        """Under the list, as far as there are rows: what is broken, and the launches of the chosen one."""
        entry = self.chosen_entry()
        broken = broken_rows(self.entries)
        if len(Rows(broken).lines(width)) + 1 > room:
            broken = broken_rows(self.entries, names_only=True)
        below: list[AnyRow] = [[], *broken] if broken else []
        if entry is not None and entry.kind == "launch" and not entry.errors:
            history = history_rows(self.board, self._launches(entry.name))
            below += [[], *history] if len(Rows(below).lines(width)) + 3 <= room else []
        self.query_one("#below", Prose).show(below if room > 3 else [])

    # -- the chosen one --------------------------------------------------------------------------------------------

    @on(OptionList.OptionHighlighted)
    def _moved(self, event: OptionList.OptionHighlighted) -> None:
        _, places = self._list(apart=self.size.height > 26)
        if event.option_index in places:
            self.at = places.index(event.option_index)
            self._choose(placed=False)

    @on(OptionList.OptionSelected)
    def _selected(self) -> None:
        self.action_open()

    def _choose(self, *, placed: bool = True) -> None:
        self._placed = placed
        entry = self.chosen_entry()
        name = f"{entry.name}|{self.compared}" if entry else None
        if name != self._chosen_as:
            self._chosen_as = name
            if self._settle is not None:
                self._settle.stop()
            self._chosen = chosen(self.eagle, entry, self.compared) if entry is not None else None
            if self.is_mounted:
                self.query_one(ProfileDetail).scroll_home(animate=False)
            profile = self._chosen.profile if self._chosen is not None else None
            if self._chosen is not None and profile is not None:
                kept = self._answers.get(profile.name)
                if kept is not None and kept.holds(profile, self.board):
                    self._chosen = replace(self._chosen, plan=kept.plan)
                else:
                    self._settle = self.set_timer(_SETTLE_S, self._make_plan)
        self.update()

    @work(exclusive=True, group="plan", exit_on_error=False)
    async def _make_plan(self) -> None:
        asked = self._chosen
        if asked is None or asked.profile is None:
            return
        try:
            plan = as_shown(await self.eagle.make_plan(asked.profile, (), reach=False), asked.profile)
        except EagletuiError as error:
            answer = replace(asked, error=error)
        else:
            self._answers[asked.profile.name] = _Answer(time.monotonic(), plan, _live_runs(self.board))
            answer = replace(asked, plan=plan, error=None)
        if self._chosen is asked:
            self._chosen = answer
        self.update()

    # -- actions ---------------------------------------------------------------------------------------------------

    def action_open(self) -> None:
        """Launch the chosen one."""
        if self.chosen_launch() is not None:
            self.eagle.action_launch()

    def action_back(self) -> None:
        """Out of the search line, out of a comparison, then the dashboard."""
        find = self.query_one("#find", Input)
        if find.display:
            find.value = ""
            find.display = False
            self.set_focus(self.query_one(Choices))
        elif self.compared is not None:
            self.compared = None
            self._choose()
        else:
            self.eagle.show_mode("dashboard")

    def action_search(self) -> None:
        """Narrow the list down by name."""
        find = self.query_one("#find", Input)
        find.display = True
        find.focus()

    def on_input_changed(self) -> None:
        self._filter()
        self._choose()

    def on_input_submitted(self) -> None:
        self.set_focus(self.query_one(Choices))

    def action_compare(self) -> None:
        """The difference of every profile to this one, until `c` or Esc."""
        name = self.chosen_launch()
        if self.compared is not None:
            self.compared = None
        elif name is not None:
            self.compared = name
            self.eagle.say(f"Move the cursor: differences are to {name} now; c or Esc ends that")
        self._choose()

    def action_tune(self) -> None:
        """Tune the chosen profile, or show the tune under way."""
        name = self.chosen_launch()
        if name is not None or self.eagle.tuning.under_way:
            self.eagle.tuning.ask(name or "")

    def action_edit(self) -> None:
        """The profile's file in $EDITOR; a shipped one is copied into the user's directory first."""
        entry = self.chosen_entry()
        if entry is None:
            return
        path = edited(self.eagle, self.app, entry.path)
        if path is None:
            return
        self.read()
        self._go_to(path.stem)

    def _go_to(self, name: str) -> None:
        """The cursor on a profile, whatever the search line says."""
        find = self.query_one("#find", Input)
        if find.value and all(entry.name != name for entry in self.shown):
            find.value = ""
            find.display = False
            self._filter()
        self.at = next((i for i, entry in enumerate(self.shown) if entry.name == name), self.at)
        self._choose()

    def action_import_command(self) -> None:
        """A profile of a posted launch command."""
        from tui.panel.screens.import_dialog import ImportDialog

        def saved(path: Path | None) -> None:
            if path is None:
                return
            find = self.query_one("#find", Input)
            find.value, find.display = "", False
            self.read()
            self._go_to(path.stem)
            self.set_focus(self.query_one(Choices))
            here = self.chosen_entry()
            used = here is not None and here.path.resolve() == path.resolve()
            but = "" if used else "; another profile of that name is found first and hides it"
            self.eagle.say(f"saved as {path.stem}, in {home_path(path)}{but}")

        self.app.push_screen(ImportDialog(), saved)

    def about(self) -> Subject:
        """The profile under the cursor."""
        entry = self.chosen_entry()
        return super().about() if entry is None else Subject(f"profile:{entry.name}", f"profile {entry.name}")

    def copied_text(self) -> tuple[str, str] | None:
        """The command of the chosen profile."""
        command = self._chosen.command if self._chosen is not None else None
        plan = self._chosen.plan if self._chosen is not None else None
        if plan is not None and plan.script is not None:
            return plan.script, "batch script"
        if command is None:
            return None
        from tui.core.profiles.command import render_command

        return render_command(command), "command"
