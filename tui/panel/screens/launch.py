"""Launching: pick a profile, see what will run and what is against it, change values, start."""

import asyncio
import shlex
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual import on, work
from textual.binding import BindingType
from textual.containers import Vertical
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Input, OptionList

from tui import format as fmt
from tui.core.errors import EagletuiError, of_system
from tui.core.model.run import short_id
from tui.core.server.finding import Level
from tui.panel.hints import with_hint
from tui.panel.keys import bindings, keys
from tui.panel.screens.dialog import Box, Choices, Dialog, Facts
from tui.panel.screens.journal_rows import card_rows, known_rows
from tui.panel.screens.plan_rows import (
    Shown,
    as_shown,
    command_rows,
    difference_rows,
    error_rows,
    finding_counts,
    finding_rows,
    hosts_text,
    known_command,
    launched_as,
    listed,
    note_rows,
    script_rows,
    stopped_rows,
)
from tui.panel.widgets.rows import AnyRow, KeyRow, Line, Prose, Row, Rows, Title, sections

if TYPE_CHECKING:
    from tui.core.groups.session import GroupPlan
    from tui.core.journal.model import Known
    from tui.core.model.profile import DiffLine
    from tui.core.model.run import Run as HostRun
    from tui.core.profiles.command import LaunchCommand
    from tui.core.profiles.launch_profile import LaunchProfile
    from tui.core.profiles.load import ProfileEntry
    from tui.core.server.finding import Finding
    from tui.core.server.launch import LaunchPlan

_SETTLE_S = 0.25  # after the last key in the override line
_BACK = ("Esc", "back")


class LaunchDialog(Dialog["tuple[LaunchPlan | GroupPlan, bool]"]):
    """Two steps: the list of launch profiles, then the preview of one. Enter continues, Esc goes back.

    The answer is the plan to launch and whether what is in its way is stopped first; None launches nothing.
    """

    BINDINGS: ClassVar[list[BindingType]] = bindings("launch dialog")
    AUTO_FOCUS = "Choices"
    WIDE = True

    def __init__(
        self, profile: str | None, last: str | None, *, replace: bool = False, sets: str = "", edit: bool = False
    ) -> None:
        super().__init__()
        self.profile = profile
        self.replace = replace
        self._last = last
        self._sets = sets
        self._edit = edit
        self._entries: list[ProfileEntry] = []
        self._plan: Shown | None = None  # as it is shown
        self._answer: LaunchPlan | GroupPlan | None = None  # as it is launched
        self._hosts: Sequence[str] = ()  # of a group; else the displayed host is meant
        self._known: LaunchCommand | None = None  # until the host has answered
        self._difference: Sequence[DiffLine] = ()
        self._error: EagletuiError | None = None
        self._knows: Sequence[Known] = ()  # the journal, of this launch
        self._reading = False
        self._settle: Timer | None = None

    def head(self) -> Iterable[Widget]:
        yield Prose(id="title")
        yield Prose(id="first")
        yield Input(
            self._sets, placeholder="o  override flags: mem-fraction-static=0.88 env.NCCL_DEBUG=INFO", id="sets"
        )

    def body(self) -> Iterable[Widget]:
        yield Choices()
        yield Prose(id="preview")

    def foot(self) -> Iterable[Widget]:
        yield Prose(id="blocked")
        yield Prose(classes="keys")

    def on_mount(self) -> None:
        self._entries = [found for found in self.panel.profile_entries() if found.kind == "launch"]
        names = [found.name for found in self._entries]
        wanted = self.profile or self._last
        self.query_one(Choices).show(listed(self._entries), names.index(wanted) if wanted in names else 0)
        if self.profile is not None:
            self._open(self.profile)
            if self._edit:
                self.query_one(Input).focus()
        self._show()

    def on_resize(self) -> None:
        self._show()

    def on_descendant_focus(self) -> None:
        self._show()

    # -- what is shown ---------------------------------------------------------------------------------------------

    def _show(self) -> None:
        if not self.is_attached:
            return
        verb = "REPLACE" if self.replace else "LAUNCH"
        self.query_one("#title", Prose).show(
            [[(f"◌ {verb}", "accent!"), ("   ", "text"), (self.profile or "Which profile?", "strong!"),
              ("  on ", "muted"), (self._where, "text")]]
        )  # fmt: skip
        self._show_rows("#first", self._first())
        self._show_rows("#blocked", self._blocked())
        self.query_one(".keys", Prose).show([self._keys()])
        field = self.query_one(Input)
        # without a value it is only a hint, and `o` is among the keys
        needed = bool(field.value) or field.has_focus or self._edit
        field.display = self.profile is not None and (not self.has_class("-short") or needed)
        self.query_one(Choices).display = self.profile is None and bool(self._entries)
        self.call_after_refresh(self._show_preview)  # its order depends on the rows that are left

    def _show_rows(self, selector: str, rows: Sequence[AnyRow]) -> None:
        prose = self.query_one(selector, Prose)
        prose.display = bool(rows)
        prose.show(rows)

    def _show_preview(self) -> None:
        if self.is_attached:
            box = self.query_one(Box)
            around = sum(part.outer_size.height for part in self.query(".head, .foot").results(Vertical))
            self._show_rows("#preview", self._preview(self.size.height - around - box.gutter.height))

    def _preview(self, room: int) -> Sequence[AnyRow]:
        if self.profile is None:
            nothing: Line = [
                ("No launch profile was found. ", "text"),
                ("eagletui profiles", "strong"),
                (" says where it looks.", "muted"),
            ]
            return [] if self._entries else [nothing]
        if self._error is not None:
            return error_rows(self._error)
        plan = self._plan
        if plan is None:
            asking: Line = [(f"Running pre-flight checks on {self._where}…", "muted")]
            return sections(self._command(self._known) if self._known is not None else [], [asking])
        about: list[AnyRow] = [[(plan.profile.description, "text")]] if plan.profile.description else []
        if plan.profile.known:
            about.append([("known: " + plan.profile.known, "muted")])
        differs: list[AnyRow] = []
        if self._difference:
            title = Title("Difference", [(f"to {plan.profile.name} as it is", "muted")])
            differs = [title, *difference_rows(self._difference)]
        findings = [finding for finding in plan.findings if finding.check != "history"]  # which has a place of its own
        title = Title("Pre-flight", finding_counts(findings))
        expected = self._expected(plan)
        if plan.command is None:  # a script is long: what was looked at stands over it
            return sections(about, differs, [title, *finding_rows(findings)], expected, self._script(plan))
        command = self._command(plan.command, findings)
        whole = sections(about, differs, command, [title, *finding_rows(findings)], expected)
        problems = [finding for finding in findings if finding.level is not Level.OK]
        if not problems or len(Rows(whole).lines(self._width)) <= room:
            return whole
        fine = [finding for finding in findings if finding.level is Level.OK]
        return sections([title, *finding_rows(problems)], differs, expected, about, command, finding_rows(fine))

    @property
    def _first_member(self) -> str:
        """Whose command is shown."""
        from tui.core.groups.session import GroupPlan

        return self._answer.group.members[0].name if isinstance(self._answer, GroupPlan) else "the first member"

    @property
    def _where(self) -> str:
        return hosts_text(self._hosts or (self.panel.board.host,))

    @property
    def _width(self) -> int:
        return self.query_one(Box).scrollable_content_region.width or 100

    def _command(self, command: "LaunchCommand", findings: "Sequence[Finding]" = ()) -> list[AnyRow]:
        hint: Line = [("run directly, no shell · ", "muted"), ("y", "accent!"), (" copies", "muted")]
        of = f" of {self._first_member}" if self._hosts else ""
        return [Title(f"Command{of}", hint), *command_rows(command, self._width - 4), *note_rows(command, findings)]

    @staticmethod
    def _script(plan: Shown) -> list[AnyRow]:
        hint: Line = [("submitted with sbatch, at most once · ", "muted"), ("y", "accent!"), (" copies", "muted")]
        return [Title("Batch script", hint), *script_rows(plan.text)]

    def _expected(self, plan: Shown) -> list[AnyRow]:
        """How long it takes, and what the journal knows of it, else what worked here before."""
        from tui.core.server.launch_records import usual as usual_times

        usual = usual_times(self._first_host, plan.profile.name)[1]
        takes: Line = [("no history yet: how long it takes here is not known", "muted")]
        if usual is not None:
            spread = fmt.spread(usual.median_s, usual.low_s, usual.high_s, usual.n)
            about = fmt.duration(usual.median_s)
            takes = [("ready in about ", "muted"), (about, "strong!"), (f"; earlier starts here {spread}", "muted")]
        worked = [finding.text for finding in plan.findings if finding.check == "history"]
        known = known_rows(self._knows) or [Row([("● ", "ok"), (text, "text")], hang=2) for text in worked]
        return [Title("What the journal knows", takes), *known] if known else [takes]

    @property
    def _first_host(self) -> str:
        return (*self._hosts, self.panel.board.host)[0]

    @property
    def _replaced(self) -> "tuple[HostRun, ...]":
        return self._plan.replaces if self._plan is not None else ()

    def _first(self) -> list[AnyRow]:
        """What a replacement stops, or why it stops nothing; it stands over everything that scrolls."""
        if self._plan is None or self._error is not None or not self.replace:
            return []
        if not self._replaced:
            return [[("nothing of ours is in the way: a plain launch", "muted")]]
        if self._stays():
            names = ", ".join(run.short_id for run in self._replaced)
            return [[("✗ ", "err"), (f"{names} is not stopped: that would not make this launch possible", "text")]]
        return stopped_rows(self._replaced, self._plan.seen)

    def _blocked(self) -> list[AnyRow]:
        """The reason where nothing can be launched; more of it is among the findings."""
        reason = self._blocked_by()
        if reason is None:
            return []
        return [[("✗ ", "err!"), (f"blocked: {reason.check}: {with_hint(reason.text, reason.hint)}", "strong!")]]

    def _keys(self) -> KeyRow:
        if self.profile is None:
            return KeyRow((("Enter", "preview"), ("j k", "choose"), _BACK))
        if self.query_one(Input).has_focus:
            return KeyRow((("Enter", "done"), _BACK))
        lead: list[tuple[str, str]] = []
        if self._plan is not None and self._error is None and not self._reading:
            if self._may_launch():
                verb = "stop, then launch" if self.replace and self._replaced else "launch"
                lead = [(" Enter ", "accent!/accbg"), (f" {verb}", "text")]
            elif self._replaced and not self.replace and not self._stays():
                lead = [(" r ", "accent!/accbg"), (f" stop {self._replaced[0].short_id} first, then launch", "text")]
        known = ("J",) if self._knows else ()
        return KeyRow((*keys(*known, "o", "y", where="launch dialog"), _BACK), lead)

    # -- what may be launched --------------------------------------------------------------------------------------

    def _stays(self) -> "list[Finding]":
        """What would block this launch even if our runs that are in its way were stopped."""
        gone = {run.run_id for run in self._replaced}
        findings = self._plan.findings if self._plan is not None else ()
        return [finding for finding in findings if finding.level is Level.BLOCK and finding.run not in gone]

    def _blocked_by(self) -> "Finding | None":
        """The finding to name where this launch cannot be made as it stands, the one that matters most."""
        if self._plan is None or self._error is not None or self._reading or self._may_launch():
            return None
        blocking = (finding for finding in self._plan.findings if finding.level is Level.BLOCK)
        return next(iter([*self._stays(), *blocking]), None)

    def _may_launch(self) -> bool:
        plan = self._plan
        if plan is None or self._stays():
            return False
        return self.replace or not plan.blocked

    # -- planning --------------------------------------------------------------------------------------------------

    def on_input_changed(self, event: Input.Changed) -> None:
        if self._settle is not None:
            self._settle.stop()
        if self.profile is not None and event.value != self._sets:
            self._sets = event.value
            self._settle = self.set_timer(_SETTLE_S, self._read)

    def _open(self, profile: str) -> None:
        self.profile = profile
        self._read()
        self.query_one(Box).focus()

    def _read(self) -> None:
        self._reading = True
        self._make_plan(self.profile or "", self._sets)

    @work(exclusive=True, group="plan", exit_on_error=False)
    async def _make_plan(self, name: str, text: str) -> None:
        from tui.core.profiles.difference import profile_difference
        from tui.core.profiles.load import load_launch
        from tui.core.profiles.resolve import parse_sets

        try:
            sets = shlex.split(text)
            dirs = self.panel.profile_dirs()
            bare, profile = (launched_as(self.panel, load_launch(name, dirs, each)) for each in ((), sets))
            self._hosts = _hosts_of(profile, self.panel.board.host)
            self._ask_journal(profile, parse_sets(sets, []))
            if self._plan is None:
                self._known = known_command(self.panel, profile) if not self._hosts else None
                self._show()
            self._answer = await self.panel.make_plan(profile, sets)
            self._difference = profile_difference(bare, profile)
            self._plan, self._error = as_shown(self._answer, profile), None
        except ValueError as error:
            self._error = EagletuiError(f"the override line: {error}", "close the quote")
        except EagletuiError as error:
            self._error = error
        self._reading = False
        self._show()

    @work(exclusive=True, group="knows", exit_on_error=False)
    async def _ask_journal(self, profile: "LaunchProfile", sets: "Iterable[tuple[str, object]]") -> None:
        """What earlier launches say; where the journal cannot be read, that is said and hinders nothing."""
        from tui.core.journal import reading

        try:
            self._knows = await asyncio.to_thread(reading.knows, profile, dict(sets), self._first_host)
        except OSError as error:
            self.panel.tell(of_system(error))
        self._show()

    # -- actions ---------------------------------------------------------------------------------------------------

    @on(OptionList.OptionSelected)
    def _picked(self, event: OptionList.OptionSelected) -> None:
        self._open(self._entries[event.option_index].name)
        self._show()

    def action_go(self) -> None:
        """Launches what the preview shows."""
        if self.profile is None or self._reading or self._answer is None or self._error is not None:
            return
        if not self._may_launch():
            reason = self._blocked_by()
            text = f"blocked: {with_hint(reason.text, reason.hint)}" if reason else "nothing is in the way: press l"
            self.panel.say(text, severity="warning")
            return
        self.dismiss((self._answer, self.replace and bool(self._replaced)))

    def on_input_submitted(self) -> None:
        self.query_one(Box).focus()

    def action_override(self) -> None:
        """The line for other values."""
        chosen = self.query_one(Choices).highlighted
        if self.profile is None and chosen is not None:
            self._open(self._entries[chosen].name)
        if self.profile is not None:
            field = self.query_one(Input)
            field.display = True
            field.focus()

    def action_replace(self) -> None:
        """Stop what is in the way first, or not; never for a launch that something else blocks."""
        if self._replaced and (self.replace or not self._stays()):
            self.replace = not self.replace
            self._show()

    @work(exclusive=True, group="journal", exit_on_error=False)
    async def action_journal(self) -> None:
        """What the journal keeps of the launch that it knows."""
        from tui.core.journal import reading

        if not self._knows:
            return
        kept = await asyncio.to_thread(reading.read)
        rows = [card_rows(run) for run in kept.runs if run.run_id == self._knows[0].run_id]
        self.app.push_screen(Facts(f"Run {short_id(self._knows[0].run_id)}", sections(*rows)))

    def action_copy(self) -> None:
        """The command as text."""
        if self._plan is not None:
            self.panel.copy_text(self._plan.text, "command" if self._plan.script is None else "batch script")

    def action_cancel(self) -> None:
        if self.query_one(Input).has_focus:
            self.query_one(Box).focus()
        else:
            self.dismiss(None)


def _hosts_of(profile: "LaunchProfile", here: str) -> Sequence[str]:
    """The hosts of a group; () for a server of its own."""
    if not profile.several:
        return ()
    from tui.core.groups.planning import hosts_of

    return hosts_of(profile, here)
