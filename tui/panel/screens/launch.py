"""Launching: pick a profile, see what will run and what speaks against it, change values, start."""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, VerticalScroll
from textual.timer import Timer
from textual.widgets import Input

from tui import format as fmt
from tui.core.errors import EagletuiError
from tui.core.link.hosts import launch_env
from tui.panel.hints import in_panel, with_hint
from tui.panel.host_view import run_name
from tui.panel.protocol import Panel, panel_of
from tui.panel.screens.dialogs import Dialog, Line, Lines, fold, key_row
from tui.panel.widgets.paint import Run, clip, join, wrap

if TYPE_CHECKING:
    from tui.core.model.run import Run as HostRun
    from tui.core.profiles.command import LaunchCommand
    from tui.core.profiles.difference import DiffLine
    from tui.core.profiles.launch_profile import LaunchProfile
    from tui.core.profiles.load import ProfileEntry
    from tui.core.server.finding import Finding
    from tui.core.server.launch import LaunchPlan

_SETTLE_S = 0.25  # after the last key in the override line
_MARK = {"block": ("✗", "err"), "warn": ("▲", "warn"), "ok": ("✓", "ok")}


def split_sets(text: str) -> list[str]:
    """The override line as `k=v` texts, quoted as for a shell. Raises ValueError for an open quote."""
    return shlex.split(text)


def command_lines(text: str, width: int, ground: str = "") -> list[Line]:
    """A rendered command with its flags in accent; long rows are broken, never cut."""
    lines: list[Line] = []
    for raw in text.splitlines():
        indent = raw[: len(raw) - len(raw.lstrip())]
        for position, part in enumerate(wrap(raw.strip(), max(20, width - len(indent) - 2))):
            runs: list[Run] = [(indent + ("  " if position else ""), "text" + ground)]
            for number, word in enumerate(part.split(" ")):
                spec = "accent" if word.startswith("--") else "text"
                runs.append(((" " if number else "") + word, spec + ground))
            lines.append(runs)
    return lines


def marked(glyph: str, color: str, text: str, width: int) -> list[Line]:
    """A wrapped text behind a mark."""
    parts = wrap(text, max(20, width - 2))
    return [[(f"{glyph} " if number == 0 else "  ", color), (part, "text")] for number, part in enumerate(parts)]


def note_lines(command: "LaunchCommand", findings: "Sequence[Finding]", width: int) -> list[Line]:
    """What a command says about itself, where no finding says it."""
    from tui.core.profiles.command import METRICS_NOTE

    lines: list[Line] = []
    for note in command.notes:
        if not any(note.startswith(finding.text) for finding in findings):
            glyph, color = ("·", "muted") if note == METRICS_NOTE else ("▲", "warn")
            lines += marked(glyph, color, note, width)
    return lines


def finding_lines(findings: "Sequence[Finding]", width: int) -> list[Line]:
    """Findings, those that block first."""
    order = {"block": 0, "warn": 1, "ok": 2}
    lines: list[Line] = []
    for finding in sorted(findings, key=lambda f: order[str(f.level)]):
        glyph, color = _MARK[str(finding.level)]
        spec = {"block": "strong", "warn": "text", "ok": "muted"}[str(finding.level)]
        for position, part in enumerate(wrap(with_hint(finding.text, finding.hint), max(20, width - 15))):
            head: list[Run] = (
                [(f"{glyph} ", color), (f"{finding.check:<12} ", "text")] if position == 0 else [(" " * 15, "text")]
            )
            lines.append([*head, (part, spec)])
    return lines


def finding_counts(findings: "Sequence[Finding]") -> list[Run]:
    """`1 blocks · 2 to know · 6 fine`."""
    counts = {level: sum(1 for f in findings if str(f.level) == level) for level in ("block", "warn", "ok")}
    return join(
        [
            [(f"{counts['block']} blocks", "err!")] if counts["block"] else [],
            [(f"{counts['warn']} to know", "warn")] if counts["warn"] else [],
            [(f"{counts['ok']} fine", "ok")] if counts["ok"] else [],
        ]
    )


def difference_lines(difference: "Sequence[DiffLine]", width: int) -> list[Line]:
    """Added, changed and removed keys, each with its sign and its ground."""
    looks = {"+": ("ok", "okbg"), "~": ("warn", "warnbg"), "-": ("err", "errbg")}
    lines: list[Line] = []
    for entry in difference:
        color, ground = looks[entry.sign]
        runs: list[Run] = [(f"{entry.sign} ", f"{color}!/{ground}"), (f"{entry.key:<28} ", f"text/{ground}")]
        if entry.sign == "~":
            runs += [(f"{entry.old} → ", f"muted/{ground}"), (f"{entry.new}", f"strong!/{ground}")]
        else:
            runs.append((f"{entry.new if entry.new is not None else entry.old}", f"strong!/{ground}"))
        used = sum(len(text) for text, _ in runs)
        lines.append([*runs, (" " * max(0, width - used), f"text/{ground}")])
    return lines


def title_line(title: str, width: int, facts: Sequence[Run] = ()) -> Line:
    """A section title on a hairline, as one row."""
    used = len(title) + 1 + sum(len(text) for text, _ in facts) + (1 if facts else 0)
    return [(title, "strong!"), (" " + "─" * max(1, width - used), "line"), (" " if facts else "", "text"), *facts]


def _sections(*sections: Sequence[Line]) -> list[Line]:
    """Sections one below the other, a blank row between them."""
    lines: list[Line] = []
    for section in sections:
        if section:
            lines += [*([[]] if lines else []), *section]
    return lines


def known_command(eagle: Panel, profile: "LaunchProfile") -> "LaunchCommand | None":
    """What would run, from what is known of the host without asking it; None where that is nothing."""
    from tui.core.config import load_settings
    from tui.core.host import facts_cache
    from tui.core.profiles.command import build_command
    from tui.core.sglang.flags import flags_of

    try:
        entry = eagle.session.entry if eagle.session is not None else load_settings().host(eagle.board.host)
        facts = eagle.board.facts or facts_cache.remembered(entry)
        if facts is None:
            return None
        command = build_command(profile, entry, facts.sglang, flags_of(facts.sglang), home=facts.home)
    except EagletuiError:
        return None
    return replace(command, env={**launch_env(entry), **command.env})


class LaunchDialog(Dialog["tuple[LaunchPlan, bool]"]):
    """Two steps: the list of launch profiles, then the preview of one. Enter goes on, Esc back.

    The answer is the plan to launch and whether what is in its way is stopped first; None launches nothing.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "move(1)", "down", show=False),
        Binding("k,up", "move(-1)", "up", show=False),
        Binding("enter", "go", "go on", show=False),
        Binding("o", "override", "override", show=False),
        Binding("r", "replace", "replace", show=False),
        Binding("y", "copy", "copy", show=False),
    ]
    AUTO_FOCUS = "VerticalScroll"

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
        self._at = 0
        self._plan: LaunchPlan | None = None
        self._known: LaunchCommand | None = None  # until the host has answered
        self._difference: Sequence[DiffLine] = ()
        self._replaced: tuple[HostRun, ...] = ()
        self._error: EagletuiError | None = None
        self._reading = False
        self._settle: Timer | None = None

    @property
    def eagle(self) -> Panel:
        return panel_of(self)

    def compose(self) -> ComposeResult:
        with Container(classes="dialog -launch"):
            yield Lines(id="head")
            yield Input(
                self._sets, placeholder="o  other values: mem-fraction-static=0.88 env.NCCL_DEBUG=INFO", id="sets"
            )
            with VerticalScroll():
                yield Lines(id="body")
            yield Lines(id="keys")

    def on_mount(self) -> None:
        super().on_mount()
        self._entries = [entry for entry in self.eagle.profile_entries() if entry.kind == "launch"]
        names = [entry.name for entry in self._entries]
        wanted = self.profile or self._last
        self._at = names.index(wanted) if wanted in names else 0
        if self.profile is not None:
            self._preview()
        if self._edit and self.profile is not None:
            self.query_one(Input).focus()
        self._show()

    def on_resize(self) -> None:
        super().on_resize()
        self._show()

    # -- what is shown ---------------------------------------------------------------------------------------------

    @property
    def _width(self) -> int:
        # beside it: frame, padding and the scrollbar
        return max(30, min(130, int(self.app.size.width * 0.96)) - (7 if self.short else 9))

    def _show(self) -> None:
        if not self.is_mounted:
            return
        verb = "REPLACE" if self.replace else "LAUNCH"
        head: list[Line] = [[(f"◌ {verb}", "accent!"), ("   ", "text"), (self.profile or "Which profile?", "strong!"),
                             ("  on ", "muted"), (self.eagle.board.host, "text")]]  # fmt: skip
        blank: list[Line] = [] if self.short else [[]]
        head += [*blank, *(self._first_lines() if self.profile else [])]
        if len(head) > 1 + len(blank):
            head += blank
        self.query_one("#head", Lines).set_lines(head)
        field = self.query_one(Input)
        # without a value it is only a hint, and `o` is among the keys
        field.display = self.profile is not None and (
            not self.short or bool(field.value) or field.has_focus or self._edit
        )
        foot = [*blank, *self._foot()]
        self.query_one("#keys", Lines).set_lines(foot)
        chrome = (2 if self.short else 4) + len(head) + len(foot)
        chrome += (1 if self.short else 2) if field.display else 0
        room = max(3, self.app.size.height - chrome)
        body = self._list() if self.profile is None else self._preview_lines(room)
        self.query_one("#body", Lines).set_lines(body)
        self.query_one(VerticalScroll).styles.height = max(1, min(len(body), room))

    def _list(self) -> list[Line]:
        if not self._entries:
            return [
                [
                    ("No launch profile was found. ", "text"),
                    ("eagletui profiles", "strong"),
                    (" says where it looks.", "muted"),
                ]
            ]
        wide = max(len(entry.name) for entry in self._entries) + 2
        lines: list[Line] = []
        for position, entry in enumerate(self._entries):
            here = position == self._at
            ground = "/raised" if here else ""
            about = f"{len(entry.errors)} errors, see 3" if entry.errors else entry.description or ""
            spec = "err" if entry.errors else "muted"
            lines.append(
                [
                    ("▌ " if here else "  ", "accent" + ground),
                    (f"{entry.name:<{wide}}", ("strong!" if here else "text") + ground),
                    (about.ljust(max(0, self._width - wide - 2)), spec + ground),
                ]
            )
        return lines

    def _preview_lines(self, room: int) -> list[Line]:
        width = self._width
        lines: list[Line] = []
        if self._error is not None:
            details = getattr(self._error, "errors", ())
            if not details:
                lines += marked("✗", "err", self._error.message, width)
            for error in details:
                lines += marked("✗", "err", str(error), width)
            if self._error.hint:
                hint = in_panel(self._error.hint)
                lines += [[("  ", "text"), (part, "muted")] for part in wrap(hint, width - 2)]
            return lines
        plan = self._plan
        asking: Line = [(f"asking {self.eagle.board.host} what speaks against it", "muted")]
        if plan is None:
            command = self._command(self._known, width) if self._known is not None else []
            return [*command, *([[]] if command else []), asking]
        title = title_line("Pre-flight", width, finding_counts(plan.findings))
        about, differs = self._about(plan, width), self._differs(plan, width)
        command = self._command(plan.command, width, plan.findings)
        expected = self._expected(plan)
        findings = [title, *finding_lines(plan.findings, width)]
        whole = _sections(about, differs, command, findings, expected)
        problems = [finding for finding in plan.findings if str(finding.level) != "ok"]
        if len(whole) <= room or not problems:
            return whole
        first = [title, *finding_lines(problems, width)]
        fine = [finding for finding in plan.findings if str(finding.level) == "ok"]
        return _sections(first, differs, expected, about, command, finding_lines(fine, width))

    def _about(self, plan: "LaunchPlan", width: int) -> list[Line]:
        lines: list[Line] = []
        if plan.profile.description:
            lines += [[(part, "text")] for part in wrap(plan.profile.description, width)]
        if plan.profile.known:
            lines += [[(part, "muted")] for part in wrap("known: " + plan.profile.known, width)]
        return lines

    def _differs(self, plan: "LaunchPlan", width: int) -> list[Line]:
        if not self._difference:
            return []
        head = title_line("Difference", width, [(f"to {plan.profile.name} as it is", "muted")])
        return [head, *difference_lines(self._difference, width)]

    def _command(self, command: "LaunchCommand", width: int, findings: "Sequence[Finding]" = ()) -> list[Line]:
        from tui.core.profiles.command import render_command

        hint: list[Run] = [("no shell reads it · ", "muted"), ("y", "accent!"), (" copies", "muted")]
        lines: list[Line] = [title_line("Command", width, hint)]
        lines += command_lines(render_command(command, width - 4), width)
        return lines + note_lines(command, findings, width)

    def _expected(self, plan: "LaunchPlan") -> list[Line]:
        usual = self.eagle.usual_total(plan.profile.name)
        if usual is None:
            return [[("no history yet: how long it takes here is not known", "muted")]]
        spread = fmt.spread(usual.median_s, usual.low_s, usual.high_s, usual.n)
        return [
            [
                ("ready in about ", "muted"),
                (fmt.duration(usual.median_s), "strong!"),
                (f"; earlier starts here {spread}", "muted"),
            ]
        ]

    def _first_lines(self) -> list[Line]:
        """What a replacement stops, or why it stops nothing; it stands over everything that scrolls."""
        if self._plan is None or self._error is not None or not self.replace:
            return []
        if not self._replaced:
            return [[("nothing of ours is in the way: a plain launch", "muted")]]
        if self._stays():
            names = ", ".join(run.short_id for run in self._replaced)
            return marked("✗", "err", f"{names} is not stopped: that would not make this launch possible", self._width)
        return [
            row
            for run in self._replaced
            for row in fold([("■ ", "warn"), ("stops first: ", "text"), *run_words(run)], self._width)
        ]

    def _foot(self) -> list[Line]:
        """The reason where nothing can be launched; the keys, Esc among them."""
        lines: list[Line] = []
        reason = self._blocked_by()
        if reason is not None:
            text = f"blocked: {reason.check}: {with_hint(reason.text, reason.hint)}"
            rows = wrap(text, max(20, self._width - 2))
            if len(rows) > 2:  # all of it is among the findings
                rows = [rows[0], clip(" ".join(rows[1:]), max(20, self._width - 2))]
            lines += [[("✗ " if n == 0 else "  ", "err!"), (part, "strong!")] for n, part in enumerate(rows)]
        return [*lines, self._keys()]

    def _keys(self) -> Line:
        back = ("Esc", "back")
        if self.profile is None:
            return key_row((), (("Enter", "preview"), ("j k", "choose"), back), self._width)
        if self.query_one(Input).has_focus:
            return key_row((), (("Enter", "done"), back), self._width)
        lead: list[Run] = []
        if self._plan is not None and self._error is None and not self._reading:
            if self._may_launch():
                verb = "stop, then launch" if self.replace and self._replaced else "launch"
                lead = [(" Enter ", "accent!/accbg"), (f" {verb}", "text")]
            elif self._replaced and not self.replace and not self._stays():
                lead = [(" r ", "accent!/accbg"), (f" stop {self._replaced[0].short_id} first, then launch", "text")]
        return key_row(lead, (("o", "other values"), ("y", "copy command"), back), self._width)

    def _stays(self) -> "list[Finding]":
        """What would block this launch even if our runs that are in its way were stopped."""
        gone = {run.run_id for run in self._replaced}
        findings = self._plan.findings if self._plan is not None else ()
        return [finding for finding in findings if str(finding.level) == "block" and finding.run not in gone]

    def _blocked_by(self) -> "Finding | None":
        """The finding to name where this launch cannot be made as it stands, the one that matters most."""
        if self._plan is None or self._error is not None or self._reading or self._may_launch():
            return None
        blocking = (finding for finding in self._plan.findings if str(finding.level) == "block")
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
            self._settle = self.set_timer(_SETTLE_S, self._preview)

    def _preview(self) -> None:
        self._reading = True
        self._make_plan(self.profile or "", self._sets)

    @work(exclusive=True, group="plan", exit_on_error=False)
    async def _make_plan(self, name: str, text: str) -> None:
        try:
            sets = split_sets(text)
            bare, profile = await self.eagle.load_profile(name, ()), await self.eagle.load_profile(name, sets)
            if self._plan is None:
                self._known = known_command(self.eagle, profile)
                self._show()
            plan = await self.eagle.make_plan(profile, sets)
            self._replaced = plan.replaces
            self._difference = self._differences(bare, profile)
            self._plan, self._error = plan, None
        except ValueError as error:
            self._error = EagletuiError(f"the override line: {error}", "close the quote")
        except EagletuiError as error:
            self._error = error
        self._reading = False
        self._show()

    @staticmethod
    def _differences(bare: "LaunchProfile", profile: "LaunchProfile") -> "Sequence[DiffLine]":
        from tui.core.profiles.difference import profile_difference

        return profile_difference(bare, profile)

    # -- actions ---------------------------------------------------------------------------------------------------

    def action_move(self, step: int) -> None:
        """Down or up the list; in the preview it scrolls."""
        if self.profile is None and self._entries:
            self._at = (self._at + step) % len(self._entries)
            self._show()
            self.query_one(VerticalScroll).scroll_to(y=max(0, self._at - 5), animate=False)
        else:
            self.query_one(VerticalScroll).scroll_relative(y=step * 2, animate=False)

    def action_go(self) -> None:
        """Opens the preview; there, launches."""
        if self.profile is None:
            if self._entries:
                self.profile = self._entries[self._at].name
                self._preview()
                self._show()
            return
        if self._reading or self._plan is None or self._error is not None:
            return
        if not self._may_launch():
            reason = self._blocked_by()
            text = f"blocked: {with_hint(reason.text, reason.hint)}" if reason else "nothing is in the way: press l"
            self.app.notify(text, markup=False, severity="warning")
            return
        self.dismiss((self._plan, self.replace and bool(self._replaced)))

    def on_input_submitted(self) -> None:
        self.query_one(VerticalScroll).focus()
        self._show()

    def action_override(self) -> None:
        """The line for other values."""
        if self.profile is None and self._entries:
            self.profile = self._entries[self._at].name
            self._preview()
        self._show()
        self.query_one(Input).focus()

    def action_replace(self) -> None:
        """Stop what is in the way first, or not; never for a launch that something else blocks."""
        if self.profile is not None and self._replaced and (self.replace or not self._stays()):
            self.replace = not self.replace
            self._show()

    def action_copy(self) -> None:
        """The command as text."""
        if self._plan is not None:
            from tui.core.profiles.command import render_command

            self.eagle.copy_text(render_command(self._plan.command), "command")

    def action_cancel(self) -> None:
        if self.query_one(Input).has_focus:
            self.query_one(VerticalScroll).focus()
            self._show()
        else:
            self.dismiss(None)

    def on_descendant_focus(self) -> None:
        self._show()


def run_words(run: "HostRun") -> list[Run]:
    """A run by what a person knows it by: profile, id, PID, port, GPUs."""
    parts: list[list[Run]] = [[(run_name(run), "strong!")], [("run ", "muted"), (run.short_id, "text")]]
    if run.pid is not None:
        parts.append([("PID ", "muted"), (str(run.pid), "text")])
    if run.port is not None:
        parts.append([("port ", "muted"), (str(run.port), "text")])
    parts.append([("GPUs ", "muted"), (gpus_text(run.gpus), "text")])
    return join(parts)


def gpus_text(gpus: Sequence[int] | None) -> str:
    """`0–7`, `0, 2`, or `all`."""
    if not gpus:
        return "all"
    ordered = sorted(gpus)
    if len(ordered) > 2 and ordered == list(range(ordered[0], ordered[-1] + 1)):
        return f"{ordered[0]}–{ordered[-1]}"
    return ", ".join(map(str, ordered))
