"""A launch in rows: its command, what pre-flight found, how it differs, which runs it would stop, and errors."""

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tui import format as fmt
from tui.core.errors import EagletuiError
from tui.core.server.finding import Level
from tui.panel.hints import in_panel, with_hint
from tui.panel.host_view import run_name
from tui.panel.protocol import Panel
from tui.panel.screens.dialog import entry
from tui.panel.widgets.paint import Run, cells, join
from tui.panel.widgets.rows import AnyRow, Line, Row, Single

if TYPE_CHECKING:
    from tui.core.config import HostEntry
    from tui.core.groups.session import GroupPlan
    from tui.core.model.profile import DiffLine
    from tui.core.model.run import Run as HostRun
    from tui.core.profiles.command import LaunchCommand
    from tui.core.profiles.launch_profile import LaunchProfile
    from tui.core.profiles.load import ProfileEntry
    from tui.core.server.finding import Finding
    from tui.core.server.launch import LaunchPlan

_MARKS = {  # glyph, its colour, that of the text
    Level.BLOCK: ("✗", "err", "strong"),
    Level.WARN: ("▲", "warn", "text"),
    Level.OK: ("✓", "ok", "muted"),
}
_SIGNS = {"+": ("ok", "okbg"), "~": ("warn", "warnbg"), "-": ("err", "errbg")}


def listed(found: "Sequence[ProfileEntry]") -> list[Single]:
    """Profiles as rows of a list."""
    wide = max((cells(one.name) for one in found), default=0) + 2
    rows = []
    for one in found:
        about = f"{fmt.plural(len(one.errors), 'error')}; press 3" if one.errors else one.description or ""
        rows.append(entry(one.name, about, wide=wide, broken=bool(one.errors)))
    return rows


def command_rows(command: "LaunchCommand", width: int, ground: str | None = None) -> list[AnyRow]:
    """A command as it is run in rows of about `width` cells, its flags in accent; nothing is cut."""
    from tui.core.profiles.command import render_command

    return flag_rows(render_command(command, width).splitlines(), ground)


def flag_rows(texts: Sequence[str], ground: str | None = None) -> list[AnyRow]:
    """Rows of a command with flags in accent; what is broken hangs two cells deeper."""
    rows: list[AnyRow] = []
    for text in texts:
        indent = text[: len(text) - len(text.lstrip())] + (" " if ground else "")
        words = [(" " + word, "accent" if word.startswith("--") else "text") for word in text.split()]
        runs: list[Run] = [
            (indent, "text"),
            *((word[1:], spec) if at == 0 else (word, spec) for at, (word, spec) in enumerate(words)),
        ]
        rows.append(Row(runs, hang=len(indent) + 2, ground=ground))
    return rows


def note_rows(command: "LaunchCommand", findings: "Sequence[Finding]") -> list[AnyRow]:
    """What a command says about itself, where no finding says it."""
    from tui.core.profiles.command import METRICS_NOTE

    return [
        [("· ", "muted") if note == METRICS_NOTE else ("▲ ", "warn"), (note, "text")]
        for note in command.notes
        if not any(note.startswith(finding.text) for finding in findings)
    ]


@dataclass(frozen=True)
class Shown:
    """A plan as it is shown."""

    profile: "LaunchProfile"
    findings: "tuple[Finding, ...]"  # of all hosts
    replaces: "tuple[HostRun, ...]" = ()
    command: "LaunchCommand | None" = None  # of a group that of the member which starts first
    script: str | None = None  # of a job, instead of a command
    seen: "tuple[HostRun, ...]" = ()  # all runs of its hosts

    @property
    def text(self) -> str:
        """What is run, as text."""
        from tui.core.profiles.command import render_command

        return self.script or (render_command(self.command) if self.command is not None else "")

    def blocked_without(self, runs_gone: Iterable[str]) -> bool:
        """Whether it would be blocked even if these runs were gone."""
        gone = set(runs_gone)
        return any(f.level is Level.BLOCK and f.run not in gone for f in self.findings)

    @property
    def blocked(self) -> bool:
        return self.blocked_without(())


def as_shown(plan: "LaunchPlan | GroupPlan", profile: "LaunchProfile") -> Shown:
    """A plan of a profile as it is shown."""
    from tui.core.groups.session import GroupPlan

    if not isinstance(plan, GroupPlan):
        return Shown(plan.profile, plan.findings, plan.replaces, plan.command, seen=plan.seen)
    if plan.job is not None:
        return Shown(profile, plan.findings, script=plan.job.request.script)
    return Shown(plan.plans[0].profile, plan.findings, plan.replaces, plan.plans[0].command, seen=plan.seen)


def script_rows(script: str) -> list[AnyRow]:
    """A batch script: what it asks of Slurm first, comments muted."""
    return [
        Row([(line, "accent" if line.startswith("#SBATCH") else "muted" if line.startswith("#") else "text")], hang=2)
        for line in script.splitlines()
    ]


def finding_rows(findings: "Sequence[Finding]") -> list[AnyRow]:
    """Findings, those that block first; of several hosts with theirs, what is true of many once."""
    hosts: dict[tuple[Level, str, str], list[str]] = {}
    for finding in sorted(findings, key=lambda finding: list(_MARKS).index(finding.level)):
        where = hosts.setdefault((finding.level, finding.check, with_hint(finding.text, finding.hint)), [])
        where += [" on ".join(filter(None, (finding.arm, finding.host)))] if finding.arm or finding.host else []
    rows: list[AnyRow] = []
    for (level, check, text), where in hosts.items():
        glyph, color, spec = _MARKS[level]
        named: list[Run] = [(f"{', '.join(where)}: ", "strong" if level is not Level.OK else "text")] if where else []
        rows.append(Row([(f"{glyph} ", color), (f"{check:<12} ", "text"), *named, (text, spec)], hang=15))
    return rows


def finding_row(finding: "Finding") -> Row:
    """One finding with where it holds and what to do, without its column."""
    glyph, color, spec = _MARKS[finding.level]
    return Row([(f"{glyph} ", color), (with_hint(finding.sentence, finding.hint), spec)], hang=2)


def hosts_text(hosts: Iterable[str]) -> str:
    """`gpu1`, `gpu1 and gpu2`, `gpu1, gpu2 and gpu3`."""
    *most, last = hosts
    return f"{', '.join(most)} and {last}" if most else last


def finding_counts(findings: "Sequence[Finding]") -> list[Run]:
    """`1 blocking · 2 warnings · 6 OK`."""

    count = Counter(finding.level for finding in findings)
    groups = (
        (count[Level.BLOCK], f"{count[Level.BLOCK]} blocking", "err!"),
        (count[Level.WARN], fmt.plural(count[Level.WARN], "warning"), "warn"),
        (count[Level.OK], f"{count[Level.OK]} OK", "ok"),
    )
    return join([[(text, spec)] for number, text, spec in groups if number])


def difference_rows(difference: "Sequence[DiffLine]") -> list[AnyRow]:
    """Added, changed and removed keys, each with its sign and its ground."""
    rows: list[AnyRow] = []
    for changed in difference:
        color, ground = _SIGNS[changed.sign]
        runs: list[Run] = [(f"{changed.sign} ", f"{color}!"), (f"{changed.key:<28} ", "text")]
        if changed.sign == "~":
            runs += [(f"{changed.old} → ", "muted"), (f"{changed.new}", "strong!")]
        else:
            runs.append((f"{changed.old if changed.new is None else changed.new}", "strong!"))
        rows.append(Row(runs, hang=2, ground=ground))
    return rows


def error_rows(error: EagletuiError) -> list[AnyRow]:
    """An error with its hint; every fault of a broken profile a row."""
    from tui.core.profiles.files import ProfileBroken

    texts = [str(fault) for fault in error.errors] if isinstance(error, ProfileBroken) else [error.message]
    rows: list[AnyRow] = [[("✗ ", "err"), (text, "text")] for text in texts]
    if error.hint:
        rows.append([("  ", "text"), (in_panel(error.hint), "muted")])
    return rows


def run_words(run: "HostRun") -> list[Run]:
    """A run by what a person knows it by: profile, id, PID, port, GPUs."""
    parts: list[list[Run]] = [[(run_name(run), "strong!")], [("run ", "muted"), (run.short_id, "text")]]
    if run.pid is not None:
        parts.append([("PID ", "muted"), (str(run.pid), "text")])
    if run.port is not None:
        parts.append([("port ", "muted"), (str(run.port), "text")])
    parts.append([("GPUs ", "muted"), (gpus_text(run.gpus), "text")])
    return join(parts)


def stopped_rows(runs: "Sequence[HostRun]", seen: "Sequence[HostRun]") -> list[AnyRow]:
    """Runs that a launch would stop, and what measures them among all that were seen."""
    from tui.core.bench.measured_servers import measured_among

    rows: list[AnyRow] = []
    for run in runs:
        lead: Line = [("■ ", "warn"), ("will first stop: ", "text")]
        rows.append(Row([*lead, *run_words(run)], hang=2))
        rows += [_ends_too(measurement) for _, measurement in measured_among([run], seen)]
    return rows


def measured_rows(runs: "Iterable[HostRun]", server: str, url: str | None) -> list[AnyRow]:
    """The measurement that would end with a server, as `measurement_of` finds it."""
    from tui.core.bench.collect import measurement_of

    run = measurement_of(runs, server, url)
    return [_ends_too(run)] if run is not None else []


def _ends_too(run: "HostRun") -> Row:
    what = f"{run.profile or 'a measurement'}, run {run.short_id}, is measuring it now and would end with it."
    return Row([("⚠ ", "warn"), (what, "warn")], hang=2)


def gpus_text(gpus: Sequence[int] | None) -> str:
    """`0–7`, `0, 2`, or `all`."""
    if not gpus:
        return "all"
    ordered = sorted(gpus)
    if len(ordered) > 2 and ordered == list(range(ordered[0], ordered[-1] + 1)):
        return f"{ordered[0]}–{ordered[-1]}"
    return ", ".join(map(str, ordered))


def _entry(panel: Panel) -> "HostEntry":
    from tui.core.config import load_settings

    return panel.session.entry if panel.session is not None else load_settings().host(panel.board.host)


def launched_as(panel: Panel, profile: "LaunchProfile") -> "LaunchProfile":
    """A profile as the displayed host launches it: a login host of Slurm as a job."""
    from tui.core.groups.planning import on_host

    return on_host(profile, _entry(panel))


def known_command(panel: Panel, profile: "LaunchProfile") -> "LaunchCommand | None":
    """What would run, from what is known of the host without asking it; None where that is nothing."""
    from tui.core.host import facts_cache
    from tui.core.profiles.command import build_command
    from tui.core.sglang.flags import flags_of

    try:
        entry = _entry(panel)
        facts = panel.board.facts or facts_cache.remembered(entry)
        if facts is None:
            return None
        command = build_command(profile, entry, facts.sglang, flags_of(facts.sglang), home=facts.home)
    except EagletuiError:
        return None
    if panel.board.simulated:
        from tui.demo.client import demo_env

        return replace(command, env={**demo_env(os.environ), **command.env})
    return command
