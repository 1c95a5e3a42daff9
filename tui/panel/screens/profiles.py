"""Profiles: what is found and what is broken, the difference to the parent, the exact command, what speaks against it."""

import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.timer import Timer
from textual.widgets import Input

from tui import format as fmt
from tui.core.config import config_dir, shipped_profiles_dir
from tui.core.errors import EagletuiError
from tui.panel.hints import in_panel
from tui.panel.host_view import Board, overrides_of
from tui.panel.keys import keys
from tui.panel.screens.base import Mode
from tui.panel.screens.dialogs import Line, fold
from tui.panel.screens.launch import (
    command_lines,
    difference_lines,
    finding_counts,
    finding_lines,
    known_command,
    marked,
    note_lines,
    run_words,
    title_line,
)
from tui.panel.widgets.footer import Keys
from tui.panel.widgets.paint import Canvas, Painted, Run, clip_runs, width_of, wrap

if TYPE_CHECKING:
    from tui.core.profiles.command import LaunchCommand
    from tui.core.profiles.difference import DiffLine
    from tui.core.profiles.errors import ProfileError
    from tui.core.profiles.launch_profile import LaunchProfile
    from tui.core.profiles.load import ProfileEntry
    from tui.core.runs.control import Run as HostRun
    from tui.core.server.finding import Finding
    from tui.core.server.launch import LaunchPlan
    from tui.core.server.launch_records import LaunchRecord

_SETTLE_S = 0.3  # the cursor rests on a profile for so long before the host is asked
_KEPT_S = 10.0  # an answer of the host is as good as new for so long
_KINDS = ("launch", "bench", "experiment")
_OUTCOME = {"ready": ("●", "ok"), "crashed": ("✗", "err"), "stopped": ("■", "muted"), "finished": ("■", "muted")}


class ProfilesLine(Painted):
    """How many there are, and where they come from."""

    def __init__(self, screen: "Profiles") -> None:
        super().__init__(id="profilesline")
        self._of = screen

    def draw(self, canvas: Canvas) -> None:
        entries = self._of.entries
        broken = sum(1 for entry in entries if entry.errors)
        runs: list[Run] = [(f"{len(entries)}", "text"), (" profiles" if len(entries) != 1 else " profile", "muted")]
        if broken:
            runs += [(" · ", "muted"), (str(broken), "text"), (" broken", "muted")]
        places = list(dict.fromkeys(str(entry.path.parent) for entry in entries))
        if places:
            runs += [(" · from ", "muted"), (", ".join(_home(place) for place in places), "text")]
        canvas.runs(1, 0, runs, canvas.width - 2)


def _errors_of(entry: "ProfileEntry", width: int) -> list[Line]:
    """A broken file and all that is wrong with it, nothing cut."""
    lines: list[Line] = marked("✗", "err", _home(str(entry.path)), width)
    for error in entry.errors:
        for line in _error_lines(error, entry):
            lines += fold([("  ", "text"), *line], width)
    return lines


def _error_lines(error: "ProfileError", entry: "ProfileEntry") -> list[Line]:
    key: list[Run] = [(f"{error.key}  ", "strong")] if error.key else []
    lines: list[Line] = [[*key, (error.message, "text")]]
    if error.suggestion:
        lines.append([(error.suggestion, "ok")])
    if error.path != entry.path:
        lines.append([("in ", "muted"), (_home(str(error.path)), "muted")])
    return lines


def _errors_named(entry: "ProfileEntry", width: int) -> list[Line]:
    """A broken file and the names of all that is wrong with it."""
    named = ", ".join(error.key or error.message for error in entry.errors)
    return marked("✗", "err", f"{entry.path.name}: {named}", width)


def _with(sets: Mapping[str, object] | None) -> str:
    """`with 0.9`: what a launch had beside its profile; empty where it was the profile as it is, on whatever port."""
    changed = {key: value for key, value in (sets or {}).items() if key not in ("port", "host")}
    if not changed:
        return ""
    if list(changed) == ["mem-fraction-static"]:
        return f"with {changed['mem-fraction-static']}"
    return "with " + ", ".join(overrides_of(changed))


class ProfileList(Painted):
    """Profiles by kind with the last result here; what is broken; launches of the chosen one."""

    can_focus = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "move(1)", "down", show=False),
        Binding("k,up", "move(-1)", "up", show=False),
        Binding("g,home", "move(-10000)", "first", show=False),
        Binding("G,end", "move(10000)", "last", show=False),
        Binding("pagedown", "move(10)", "page down", show=False),
        Binding("pageup", "move(-10)", "page up", show=False),
    ]

    def __init__(self, screen: "Profiles") -> None:
        super().__init__(id="profilelist")
        self._of = screen
        self._scroll = 0

    def action_move(self, step: int) -> None:
        """The cursor up or down."""
        self._of.move(step)

    def draw(self, canvas: Canvas) -> None:
        of = self._of
        canvas.title(1, 0, canvas.width - 1, "Profiles", [("last here", "muted")], focus=self.has_focus)
        rows = self._rows()
        at = next((i for i, row in enumerate(rows) if row[0] == of.at), 0)
        room = canvas.height - 1
        spare = room - len(rows)
        below = self._below(canvas.width - 1, spare) if spare > 3 else []
        if at < self._scroll:
            self._scroll = max(0, at - 1)
        elif at >= self._scroll + room:
            self._scroll = at - room + 1
        self._scroll = max(0, min(self._scroll, len(rows) - room))
        y = 1
        for index, left, right in rows[self._scroll : self._scroll + room]:
            here = index is not None and index == of.at
            if here:
                canvas.fill(1, y, canvas.width - 1, 1, "raised")
                canvas.put(0, y, "▌", "accent")
            ground = "/raised" if here else ""
            # what a row is about is never cut for what is said of it
            room_right = canvas.width - width_of(left) - 4
            fitting = clip_runs(right, max(8, room_right))
            begin = canvas.right_runs(canvas.width, y, [(text, spec + ground) for text, spec in fitting])
            canvas.runs(
                1,
                y,
                [(text, (("strong!" if here and spec == "text" else spec) + ground)) for text, spec in left],
                begin - 3,
            )
            y += 1
        for line in below:
            canvas.runs(1, y, line, canvas.width - 1)
            y += 1

    def _rows(self) -> list[tuple[int | None, list[Run], list[Run]]]:
        of = self._of
        rows: list[tuple[int | None, list[Run], list[Run]]] = []
        for kind in (*_KINDS, None):
            members = [(i, entry) for i, entry in enumerate(of.shown) if entry.kind == kind]
            if not members:
                continue
            if rows and self.size.height > 24:
                rows.append((None, [], []))
            rows.append((None, [(kind or "unknown kind", "muted")], []))
            for index, entry in members:
                mark, word = of.last_here(entry)
                rows.append((index, [(" ", "text"), mark, (" ", "text"), (entry.name, "text")], [word]))
        return rows

    def _below(self, width: int, room: int) -> list[Line]:
        of = self._of
        lines: list[Line] = []
        broken = [entry for entry in of.entries if entry.errors]
        if broken:
            lines += [[], title_line("Broken", width, [("blocks nothing else", "muted")])]
            whole = [line for entry in broken for line in _errors_of(entry, width)]
            short = [line for entry in broken for line in _errors_named(entry, width)]
            lines += whole if len(whole) + len(lines) <= room else short
        chosen = of.chosen_entry()
        if chosen is not None and chosen.kind == "launch" and not chosen.errors and len(lines) + 3 <= room:
            lines += [[], title_line("This profile here", width, [(f"launches on {of.board.host}", "muted")])]
            here = of.launches(chosen.name)
            if not here:
                lines.append([("never launched here from this machine", "muted")])
            for record in here[:8]:
                glyph, color = _OUTCOME.get(record.outcome or "", ("·", "muted"))
                when = fmt.day_clock(record.launched_at, of.board.utc_offset_s)
                what = record.cause or record.outcome or "not seen to the end"
                row: Line = [(f"{glyph} ", color), (f"{when:<15}", "muted"), (f"{fmt.duration(record.ready_after_s):>6}   ", "text"),
                             (what, "muted"), (f" {_with(record.sets)}".rstrip(), "text")]  # fmt: skip
                lines += fold(row, width)
        return lines


def _live_runs(board: Board) -> frozenset[tuple[str, str]]:
    return frozenset((run.run_id, str(run.state)) for run in board.runs)


@dataclass(frozen=True)
class _Answer:
    """What the host said about a profile."""

    at: float  # monotonic
    plan: "LaunchPlan"
    replaced: "tuple[HostRun, ...]"
    runs: frozenset[tuple[str, str]]  # that were there then

    def holds(self, profile: "LaunchProfile", board: Board) -> bool:
        """Whether asking again would most likely say the same."""
        fresh = time.monotonic() - self.at < _KEPT_S
        return fresh and self.plan.profile == profile and self.runs == _live_runs(board)


class ProfileDetail(Painted):
    """One profile: difference, command, pre-flight, what to expect."""

    can_focus = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "scroll(1)", "down", show=False),
        Binding("k,up", "scroll(-1)", "up", show=False),
        Binding("pagedown", "scroll(10)", "page down", show=False),
        Binding("pageup", "scroll(-10)", "page up", show=False),
        Binding("g,home", "scroll(-10000)", "first", show=False),
        Binding("G,end", "scroll(10000)", "last", show=False),
    ]

    def __init__(self, screen: "Profiles") -> None:
        super().__init__(id="profiledetail")
        self._of = screen
        self.offset_rows = 0
        self._count = 0

    def action_scroll(self, step: int) -> None:
        """Up or down what is told."""
        most = max(0, self._count - self.size.height)
        self.offset_rows = max(0, min(most, self.offset_rows + step))
        self.repaint()

    def draw(self, canvas: Canvas) -> None:
        lines = self._of.detail_lines(canvas.width - 1, focus=self.has_focus, airy=canvas.height >= 34)
        self._count = len(lines)
        self.offset_rows = max(0, min(self.offset_rows, len(lines) - canvas.height))
        shown = lines[self.offset_rows : self.offset_rows + canvas.height]
        for y, line in enumerate(shown):
            if line and all(spec.endswith("/surface") for _, spec in line):
                canvas.fill(0, y, canvas.width - 1, 1, "surface")
            canvas.runs(0, y, line, canvas.width - 1)
        if self.offset_rows + canvas.height < len(lines):
            canvas.right(canvas.width - 1, canvas.height - 1, " … more: Tab, j ", "muted")


class Profiles(Mode):
    """The list on the left, the chosen profile on the right; stacked below 100 columns."""

    NAME = "Profiles"
    AUTO_FOCUS = "ProfileList"
    BINDINGS: ClassVar[list[BindingType]] = bindings("profiles")

    def __init__(self, board: Board) -> None:
        super().__init__(board)
        self.entries: list[ProfileEntry] = []
        self.shown: list[ProfileEntry] = []
        self.at = 0
        self.compared: str | None = None  # profile that the difference is against, instead of the parent
        self._records: list[LaunchRecord] = []
        self._profile: LaunchProfile | None = None
        self._base: LaunchProfile | None = None
        self._difference: tuple[DiffLine, ...] = ()
        self._plan: LaunchPlan | None = None
        self._known: LaunchCommand | None = None  # until the host has answered
        self._answers: dict[str, _Answer] = {}
        self._replaced: tuple[HostRun, ...] = ()
        self._error: EagletuiError | None = None
        self._settle: Timer | None = None
        self._asked: str | None = None

    def content(self) -> ComposeResult:
        yield ProfilesLine(self)
        yield Input(placeholder="search a profile", id="find")
        with Container(id="profiles"):
            yield ProfileList(self)
            yield ProfileDetail(self)

    def on_mount(self) -> None:
        self.query_one("#find").display = False
        self.read()

    def on_screen_resume(self) -> None:
        self.read()
        super().on_screen_resume()

    def on_resize(self) -> None:
        width, height = self.size
        narrow = width < 100
        self.set_class(narrow, "-narrow")
        listing = self.query_one(ProfileList)
        self.query_one(ProfilesLine).styles.margin = (0, 0, 1 if height >= 36 else 0, 0)
        if narrow:
            listing.styles.width = "100%"
            listing.styles.height = max(5, min(len(self.entries) + 4, (height - 3) // 2))
        else:
            listing.styles.width = max(44, width * 51 // 160)
            listing.styles.height = "100%"

    def footer_keys(self) -> Keys:
        if not self.board.connected and self.board.link is not None:
            return keys("r", "h", "e", "c", "i", "?", "^P", "q", where="profiles")
        entry = self.chosen_entry()
        launch = ("l", "o") if self.chosen_launch() is not None and entry and not entry.errors else ()
        copy = ("y", "c") if launch else ()
        edit = ("e",) if entry is not None else ()
        return keys(*launch, *edit, *copy, "i", "Tab", "/", "?", "^P", "q", where="profiles")

    # -- what is known ---------------------------------------------------------------------------------------------

    def read(self) -> None:
        """Reads the profiles and this machine's record of launches anew."""
        from tui.core.server import launch_records

        chosen = self.chosen_entry()
        self.entries = self.eagle.profile_entries()
        self._records = [record for record in launch_records.read_all() if record.host == self.board.host]
        self._filter()
        wanted = chosen.name if chosen else self.board.run.profile if self.board.run else None
        self.at = next(
            (i for i, entry in enumerate(self.shown) if entry.name == wanted), min(self.at, max(0, len(self.shown) - 1))
        )
        self._asked = None
        self._choose()

    def _filter(self) -> None:
        text = self.query_one("#find", Input).value.lower() if self.is_mounted else ""
        order = {kind: place for place, kind in enumerate(_KINDS)}
        self.shown = sorted(
            (e for e in self.entries if text in e.name.lower()), key=lambda e: (order.get(e.kind or "", 9), e.name)
        )
        self.at = min(self.at, max(0, len(self.shown) - 1))

    def chosen_entry(self) -> "ProfileEntry | None":
        """The profile under the cursor."""
        return self.shown[self.at] if self.at < len(self.shown) else None

    def chosen_launch(self) -> str | None:
        """Its name, where it can be launched."""
        entry = self.chosen_entry()
        return entry.name if entry is not None and entry.kind == "launch" else None

    def launches(self, name: str) -> "list[LaunchRecord]":
        """Launches of a profile on this host, newest first."""
        return [record for record in self._records if record.profile == name]

    def last_here(self, entry: "ProfileEntry") -> tuple[Run, Run]:
        """Mark of a profile and the last thing known of it here."""
        if entry.errors:
            return ("✗", "err"), (fmt.plural(len(entry.errors), "error"), "err")
        run = self.board.run
        state = self.board.state
        if run is not None and run.profile == entry.name and state is not None and not self.board.stale:
            decode = state.startup.last_decode
            changed = _with(run.extra.get("sets"))
            words = str(state.outcome)
            if state.outcome == "ready" and decode is not None and not changed:
                words = f"ready, {fmt.tok_s(decode.gen_tok_s)} tok/s"
            if state.outcome in ("starting", "ready"):
                mark = ("●", "ok") if state.outcome == "ready" else ("◐", "accent")
                return mark, (f"{words} {changed}".rstrip(), "text")
        here = self.launches(entry.name)
        if not here:
            return ("·", "muted"), ("never here" if entry.kind == "launch" else "", "muted")
        last = here[0]
        mark = _OUTCOME.get(last.outcome or "", ("·", "muted"))
        changed = _with(last.sets)
        if last.outcome == "crashed":
            return mark, (f"{last.cause or 'crashed'} {changed}".rstrip(), "muted")
        word = (
            f"ready in {fmt.duration(last.ready_after_s)}"
            if last.ready_after_s is not None
            else last.outcome or "not seen"
        )
        return mark, (f"{word} {changed}".rstrip(), "muted")

    # -- the chosen one --------------------------------------------------------------------------------------------

    def move(self, step: int) -> None:
        """The cursor up or down."""
        if self.shown:
            self.at = max(0, min(len(self.shown) - 1, self.at + step))
            self._choose()

    def _choose(self) -> None:
        entry = self.chosen_entry()
        name = f"{entry.name}|{self.compared}" if entry else None
        if name != self._asked:
            self._asked = name
            self._profile = self._base = self._plan = self._error = self._known = None
            self._difference, self._replaced = (), ()
            if self.is_mounted:
                self.query_one(ProfileDetail).offset_rows = 0
            if entry is not None and entry.kind == "launch" and not entry.errors:
                self._load(entry.name)
                if self._settle is not None:
                    self._settle.stop()
                kept = self._answers.get(entry.name)
                if kept is not None and self._profile is not None and kept.holds(self._profile, self.board):
                    self._plan, self._replaced = kept.plan, kept.replaced
                else:
                    self._settle = self.set_timer(_SETTLE_S, self._make_plan)
        if self.is_mounted:
            self.update()

    def _load(self, name: str) -> None:
        from tui.core.profiles.difference import profile_difference
        from tui.core.profiles.load import load_launch

        try:
            self._profile = load_launch(name, self.eagle.profile_dirs())
            self._known = known_command(self.eagle, self._profile)
            other = self.compared or self._profile.extends
            if other and other != name:
                self._base = load_launch(other, self.eagle.profile_dirs())
                self._difference = profile_difference(self._base, self._profile)
        except EagletuiError as error:
            self._error = error

    @work(exclusive=True, group="plan", exit_on_error=False)
    async def _make_plan(self) -> None:
        profile = self._profile
        if profile is None:
            return
        try:
            plan = await self.eagle.make_plan(profile, ())
            replaced = plan.replaces
        except EagletuiError as error:
            if self._profile is profile:
                self._error = error
        else:
            self._answers[profile.name] = _Answer(time.monotonic(), plan, replaced, _live_runs(self.board))
            if self._profile is profile:
                self._plan, self._replaced, self._error = plan, replaced, None
        self.update()

    def detail_lines(self, width: int, *, focus: bool, airy: bool) -> list[Line]:
        """What is told about the chosen profile."""
        entry = self.chosen_entry()
        if entry is None:
            return [
                [("No profile was found.", "text")],
                [("i", "accent!"), (" makes one of a posted launch command", "muted")],
            ]
        head = title_line(entry.name, width, [(f"{entry.kind or 'unknown kind'} · {_home(str(entry.path))}", "muted")])
        if focus:
            head = [(head[0][0], "accent!"), (head[1][0], "accent"), *head[2:]]
        lines: list[Line] = [head]
        if entry.description:
            lines += [[(part, "text")] for part in wrap(entry.description, width)]
        if entry.errors:
            return lines + self._broken_lines(entry, width)
        if entry.kind != "launch":
            return [*lines, [], [(f"This version does not run {entry.kind} profiles.", "muted")]]
        profile = self._profile
        if profile is None:
            return lines + ([[("✗ ", "err"), (self._error.message, "text")]] if self._error else [])
        if profile.extends:
            lines.append([("extends ", "muted"), (profile.extends, "text")])
        for label, text in (("hypothesis", profile.hypothesis), ("known", profile.known)):
            for position, part in enumerate(wrap(text or "", width - 12) if text else []):
                lines.append([(f"{label if position == 0 else '':<12}", "muted"), (part, "text")])
        blank: list[Line] = [[]] if airy else []
        if self._base is not None:
            counts = {sign: sum(1 for d in self._difference if d.sign == sign) for sign in "+~-"}
            facts: list[Run] = []
            for sign, color in (("+", "ok"), ("~", "warn"), ("-", "err")):
                if counts[sign]:
                    facts.append((f"  {sign}{counts[sign]}" if facts else f"{sign}{counts[sign]}", color))
            lines += [*blank, title_line(f"Difference to {self._base.name}", width, facts)]
            lines += difference_lines(self._difference, width) or [[("none", "muted")]]
        plan, command = self._plan, self._plan.command if self._plan is not None else self._known
        if command is not None:
            lines += [*blank, *self._command_lines(command, width, plan.findings if plan else ())]
        head = title_line(f"Pre-flight on {self.board.host}", width, finding_counts(plan.findings) if plan else ())
        lines += [*blank, head]
        if plan is None:
            if self._error is None:
                return [*lines, [(f"asking {self.board.host}", "muted")]]
            lines += marked("▲", "warn", self._error.message, width)
            if self._error.hint:
                lines += fold([("  ", "text"), (in_panel(self._error.hint), "muted")], width)
            return lines
        lines += finding_lines(plan.findings, width)
        return [*lines, *blank, *self._outlook(plan, width, airy=airy)]

    def _command_lines(self, command: "LaunchCommand", width: int, findings: "Sequence[Finding]") -> list[Line]:
        from tui.core.profiles.command import render_command

        hint: list[Run] = [
            (f"on {self.board.host}, as it will run · no shell reads it · ", "muted"),
            ("y", "accent!"),
            (" copies", "muted"),
        ]
        lines: list[Line] = [title_line("Command", width, hint if width >= 90 else hint[1:])]
        for line in command_lines(render_command(command, width - 6), width - 1, "/surface"):
            used = sum(len(text) for text, _ in line) + 1
            lines.append([(" ", "text/surface"), *line, (" " * max(0, width - used), "text/surface")])
        return lines + note_lines(command, findings, width)

    def _outlook(self, plan: "LaunchPlan", width: int, *, airy: bool) -> list[Line]:
        """How long a start takes here, and the key that makes it, where it can be made."""
        lines: list[Line] = [title_line("If you launch it now", width)]
        usual = self.eagle.usual_total(plan.profile.name)
        if usual is None:
            lines.append([("no history yet: how long it takes here is not known", "muted")])
        else:
            span = (
                f" ({fmt.duration(usual.low_s)} … {fmt.duration(usual.high_s)}, n = {usual.n})"
                if usual.n > 1
                else " (n = 1)"
            )
            lines.append([("ready in about ", "muted"), (fmt.duration(usual.median_s), "strong!"), (span, "muted")])
        lines += [[]] if airy else []
        other: list[Run] = [(" o ", "accent!/accbg"), (" with other values", "text")]
        if plan.blocked_without(run.run_id for run in self._replaced):
            reasons = marked("✗", "err", "blocked, see the pre-flight", width)
            return [*lines, *reasons, other]
        if self._replaced:
            head: list[Run] = [(" r ", "accent!/accbg"), (" stop first, then launch:  ", "text")]
            return [*lines, *fold([*head, *run_words(self._replaced[0])], width)]
        return [*lines, [(" l ", "accent!/accbg"), (" launch   ", "text"), *other]]

    def _broken_lines(self, entry: "ProfileEntry", width: int) -> list[Line]:
        lines: list[Line] = [[], title_line("Broken", width, [(fmt.plural(len(entry.errors), "error"), "err")])]
        for error in entry.errors:
            mark = "✗ "
            for line in _error_lines(error, entry):
                lines += fold([(mark, "err"), *line], width)
                mark = "  "
        return [*lines, [], [(" e ", "accent!/accbg"), (" edit", "text")]]

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
            self.set_focus(self.query_one(ProfileList))
        elif self.compared is not None:
            self.compared = None
            self._choose()
        else:
            self.app.switch_mode("dashboard")

    def action_search(self) -> None:
        """Narrow the list down by name."""
        find = self.query_one("#find", Input)
        find.display = True
        find.focus()

    def on_input_changed(self) -> None:
        self._filter()
        self._choose()

    def on_input_submitted(self) -> None:
        self.set_focus(self.query_one(ProfileList))

    def action_compare(self) -> None:
        """The difference of every profile to this one, until `c` or Esc."""
        name = self.chosen_launch()
        if self.compared is not None:
            self.compared = None
        elif name is not None:
            self.compared = name
            self.eagle.say(f"Move the cursor: differences are to {name} now; c or Esc ends that")
        self._choose()

    def action_edit(self) -> None:
        """The profile's file in $EDITOR; a shipped one is copied into the user's directory first."""
        entry = self.chosen_entry()
        if entry is None:
            return
        path = entry.path
        if self._not_ours(path):
            try:
                path = self._copied(path)
            except OSError as error:
                self.eagle.say(f"{error.filename} cannot be written: {error.strerror}", severity="error")
                return
        editor = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
        try:
            with self.app.suspend():
                subprocess.run([*editor, str(path)], check=False)
        except OSError as error:
            self.eagle.say(f"{editor[0]} cannot be started: {error.strerror}; set EDITOR", severity="error")
        except Exception as error:  # a terminal that cannot be handed over (a browser, a test)
            self.eagle.say(f"the editor cannot have this terminal: {type(error).__name__}", severity="error")
        self.read()
        self._go_to(path.stem)

    def _not_ours(self, path: Path) -> bool:
        """True for a file that came with the program, or that cannot be written."""
        here = path.parent.resolve()
        own = [directory.resolve() for directory in (Path("profiles"), config_dir() / "profiles")]
        return (here == shipped_profiles_dir().resolve() and here not in own) or not os.access(path, os.W_OK)

    def _copied(self, path: Path) -> Path:
        """The user's copy of a profile, made where there is none yet. Raises OSError."""
        directory = config_dir() / "profiles"
        searched = [place.resolve() for place in self.eagle.profile_dirs()]
        here = path.parent.resolve()
        # Of two files of one name the directory that is searched first wins: there the copy needs another name.
        hidden = here in searched and here != shipped_profiles_dir().resolve()
        copy = directory / (f"{path.stem}-copy.toml" if hidden else path.name)
        if not copy.exists():
            directory.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
        self.eagle.say(f"{_home(str(path))} stays as it is; your copy of it is {_home(str(copy))}")
        return copy

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
            self.set_focus(self.query_one(ProfileList))
            here = self.chosen_entry()
            used = here is not None and here.path.resolve() == path.resolve()
            but = "" if used else "; another profile of that name is found first and hides it"
            self.eagle.say(f"saved as {path.stem}, in {_home(str(path))}{but}")

        self.app.push_screen(ImportDialog(), saved)

    def copied_text(self) -> tuple[str, str] | None:
        """The command of the chosen profile."""
        command = self._plan.command if self._plan is not None else self._known
        if command is None:
            return None
        from tui.core.profiles.command import render_command

        return render_command(command), "command"


def _home(path: str) -> str:
    home = str(Path.home())
    return "~" + path[len(home) :] if path.startswith(home + "/") else path
