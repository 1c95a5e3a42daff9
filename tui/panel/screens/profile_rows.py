"""A profile in rows: what came of it on this host, what is broken, and, in depth, what a launch of it would do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tui import format as fmt
from tui.core.model.phases import Outcome
from tui.panel.host_view import Board
from tui.panel.protocol import Panel
from tui.panel.screens.plan_rows import (
    Shown,
    command_rows,
    difference_rows,
    error_rows,
    finding_counts,
    finding_rows,
    known_command,
    launched_as,
    note_rows,
    run_words,
    script_rows,
)
from tui.panel.widgets.paint import Run
from tui.panel.widgets.rows import AnyRow, Line, Row, Title, sections

if TYPE_CHECKING:
    from tui.core.errors import EagletuiError
    from tui.core.model.profile import DiffLine
    from tui.core.profiles.command import LaunchCommand
    from tui.core.profiles.files import ProfileError
    from tui.core.profiles.launch_profile import LaunchProfile
    from tui.core.profiles.load import ProfileEntry
    from tui.core.server.finding import Finding
    from tui.core.server.launch_records import LaunchRecord

_OUTCOME = {"ready": ("●", "ok"), "crashed": ("✗", "err"), "stopped": ("■", "muted"), "finished": ("■", "muted")}
_NOT_SEEN = ("·", "muted")
_USE = {"bench": "b measures with it", "experiment": "4, then E starts it"}
_OTHER_VALUES: Line = [(" o ", "accent!/accbg"), (" override flags", "text")]


@dataclass(frozen=True)
class Chosen:
    """The profile under the cursor, as far as it is known."""

    entry: "ProfileEntry"
    profile: "LaunchProfile | None" = None
    base: "LaunchProfile | None" = None  # what the difference is against
    difference: "tuple[DiffLine, ...]" = ()
    known: "LaunchCommand | None" = field(default=None, compare=False)  # until the host has answered
    plan: "Shown | None" = None
    error: "EagletuiError | None" = None

    @property
    def command(self) -> "LaunchCommand | None":
        """The exact command, or what it will be as far as it is known without asking the host."""
        return self.plan.command if self.plan is not None else self.known


def chosen(panel: Panel, entry: "ProfileEntry", compared: str | None) -> Chosen:
    """A profile that was chosen, read and compared with its parent or with `compared`; the host is not asked."""
    from tui.core.errors import EagletuiError
    from tui.core.profiles.difference import profile_difference
    from tui.core.profiles.load import load_launch

    found = Chosen(entry)
    if entry.kind != "launch" or entry.errors:
        return found
    try:
        profile = launched_as(panel, load_launch(entry.name, panel.profile_dirs()))
        known = known_command(panel, profile) if profile.slurm is None else None
        found = replace(found, profile=profile, known=known)
        other = compared or profile.extends
        if other and other != entry.name:
            base = launched_as(panel, load_launch(other, panel.profile_dirs()))
            found = replace(found, base=base, difference=profile_difference(base, profile))
    except EagletuiError as error:
        found = replace(found, error=error)
    return found


def home_path(path: Path) -> str:
    """A path with `~` for the home directory."""
    home = str(Path.home())
    return "~" + str(path)[len(home) :] if str(path).startswith(home + "/") else str(path)


# -- what came of it here ----------------------------------------------------------------------------------------------


def _changes(sets: Mapping[str, object] | None) -> str:
    """` with 0.9`: what a launch had beside its profile; empty where it was the profile as it is, on whatever port."""
    changed = {key: value for key, value in (sets or {}).items() if key not in ("port", "host")}
    if not changed:
        return ""
    if list(changed) == ["mem-fraction-static"]:
        return f" with {changed['mem-fraction-static']}"
    return " with " + ", ".join(fmt.overrides_of(changed))


def last_here(board: Board, entry: "ProfileEntry", launches: "Sequence[LaunchRecord]") -> tuple[Run, Run]:
    """Mark of a profile and the last thing known of it on this host; `launches` of it, newest first."""
    if entry.errors:
        return ("✗", "err"), (fmt.plural(len(entry.errors), "error"), "err")
    run, state = board.run, board.state
    if run is not None and run.profile == entry.name and state is not None and not board.stale:
        changed = _changes(run.extra.get("sets"))
        decode = state.startup.last_decode
        if state.outcome is Outcome.READY:
            speed = f", {fmt.tok_s(decode.gen_tok_s)} tok/s" if decode is not None and not changed else ""
            return ("●", "ok"), (f"ready{speed}{changed}", "text")
        if state.outcome is Outcome.STARTING:
            return ("◐", "accent"), (f"starting{changed}", "text")
    if not launches:
        return _NOT_SEEN, ("never run here" if entry.kind == "launch" else "", "muted")
    last = launches[0]
    words = last.outcome or "no result"
    if last.outcome == "crashed":
        words = last.cause or "crashed"
    elif last.ready_after_s is not None:
        words = f"ready in {fmt.duration(last.ready_after_s)}"
    return _OUTCOME.get(last.outcome or "", _NOT_SEEN), (words + _changes(last.sets), "muted")


def history_rows(board: Board, launches: "Sequence[LaunchRecord]") -> list[AnyRow]:
    """The last launches of a profile on this host."""
    rows: list[AnyRow] = [Title("This profile here", [(f"launches on {board.host}", "muted")])]
    if not launches:
        return [*rows, [("never launched here from this machine", "muted")]]
    for record in launches[:8]:
        glyph, color = _OUTCOME.get(record.outcome or "", _NOT_SEEN)
        when = fmt.day_clock(record.launched_at, board.utc_offset_s)
        words = record.cause or record.outcome or "not seen to the end"
        rows.append(
            Row([(f"{glyph} ", color), (f"{when:<15}", "muted"), (f"{fmt.duration(record.ready_after_s):>6}   ", "text"),
                 (words, "muted"), (_changes(record.sets), "text")], hang=26)
        )  # fmt: skip
    return rows


# -- what is broken ----------------------------------------------------------------------------------------------------


def _fault_rows(error: "ProfileError", entry: "ProfileEntry", mark: Run) -> list[AnyRow]:
    key: list[Run] = [(f"{error.key}  ", "strong")] if error.key else []
    rows: list[AnyRow] = [Row([mark, *key, (error.message, "text")], hang=2)]
    if error.suggestion:
        rows.append([("  ", "text"), (error.suggestion, "ok")])
    if error.path != entry.path:
        rows.append([("  ", "text"), (f"in {home_path(error.path)}", "muted")])
    return rows


def broken_rows(entries: "Sequence[ProfileEntry]", *, names_only: bool = False) -> list[AnyRow]:
    """Broken files and all that is wrong with them, nothing cut; or the names of what is wrong."""
    broken = [entry for entry in entries if entry.errors]
    rows: list[AnyRow] = [Title("Broken", [("blocks nothing else", "muted")])] if broken else []
    for entry in broken:
        if names_only:
            named = ", ".join(error.key or error.message for error in entry.errors)
            rows.append([("✗ ", "err"), (f"{entry.path.name}: {named}", "text")])
            continue
        rows.append([("✗ ", "err"), (home_path(entry.path), "text")])
        for error in entry.errors:
            rows += _fault_rows(error, entry, ("  ", "text"))
    return rows


# -- one in depth ------------------------------------------------------------------------------------------------------


def detail_rows(panel: Panel, shown: Chosen, width: int, *, focus: bool, airy: bool) -> list[AnyRow]:
    """What is known of the chosen profile; `airy`: blank rows between the sections."""
    entry, profile = shown.entry, shown.profile
    head: list[AnyRow] = [
        Title(entry.name, [(f"{entry.kind or 'unknown kind'} · {home_path(entry.path)}", "muted")], focus)
    ]
    if entry.description:
        head.append([(entry.description, "text")])
    if entry.errors:
        faults: list[AnyRow] = [Title("Broken", [(fmt.plural(len(entry.errors), "error"), "err")])]
        for error in entry.errors:
            faults += _fault_rows(error, entry, ("✗ ", "err"))
        return sections(head, faults, [[(" e ", "accent!/accbg"), (" edit", "text")]])
    if entry.kind != "launch":
        return sections(head, [[(_USE.get(entry.kind or "", "nothing here uses this kind of profile"), "muted")]])
    if profile is None:
        return head + (error_rows(shown.error) if shown.error else [])
    if profile.extends:
        head.append([("extends ", "muted"), (profile.extends, "text")])
    for label, text in (("hypothesis", profile.hypothesis), ("known", profile.known)):
        if text:
            head.append(Row([(f"{label:<12}", "muted"), (text, "text")], hang=12))
    command = _command(shown, panel.board.host, width)
    looked = (_preflight(shown, panel.board.host), _outlook(panel, shown, airy=airy))
    script = shown.plan is not None and shown.plan.script is not None  # is long: what was looked at stands over it
    return sections(head, _difference(shown), *((*looked, command) if script else (command, *looked)), apart=airy)


def _difference(shown: Chosen) -> list[AnyRow]:
    if shown.base is None:
        return []
    facts: list[Run] = []
    for sign, color in (("+", "ok"), ("~", "warn"), ("-", "err")):
        count = sum(line.sign == sign for line in shown.difference)
        if count:
            facts.append((f"  {sign}{count}" if facts else f"{sign}{count}", color))
    rows = difference_rows(shown.difference) or [[("none", "muted")]]
    return [Title(f"Difference to {shown.base.name}", facts), *rows]


def _command(shown: Chosen, host: str, width: int) -> list[AnyRow]:
    if shown.plan is not None and shown.plan.script is not None:
        about: Line = [(f"submitted on {host} with sbatch · ", "muted"), ("y", "accent!"), (" copies", "muted")]
        return [Title("Batch script", about), *script_rows(shown.plan.script)]
    if shown.command is None:
        return []
    findings: Sequence[Finding] = shown.plan.findings if shown.plan is not None else ()
    hint: Line = [(f"on {host}, run directly, no shell · ", "muted"), ("y", "accent!"), (" copies", "muted")]
    rows = command_rows(shown.command, max(20, width - 6), ground="surface")
    return [Title("Command", hint), *rows, *note_rows(shown.command, findings)]


def _preflight(shown: Chosen, host: str) -> list[AnyRow]:
    plan = shown.plan
    title = Title(f"Pre-flight on {host}", finding_counts(plan.findings) if plan is not None else ())
    if plan is not None:
        return [title, *finding_rows(plan.findings)]
    if shown.error is not None:
        return [title, *error_rows(shown.error)]
    return [title, [(f"Checking {host}…", "muted")]]


def _outlook(panel: Panel, shown: Chosen, *, airy: bool) -> list[AnyRow]:
    """How long a start takes here, and the key that makes it, where it can be made."""
    from tui.core.server.launch_records import usual as usual_times

    plan = shown.plan
    if plan is None:
        return []
    expected: list[AnyRow] = [Title("If you launch it now")]
    usual = usual_times(panel.board.host, plan.profile.name)[1]
    if usual is None:
        expected.append([("no history yet: how long it takes here is not known", "muted")])
    else:
        span = f"{fmt.duration(usual.low_s)} … {fmt.duration(usual.high_s)}, " if usual.n > 1 else ""
        took: Run = (fmt.duration(usual.median_s), "strong!")
        expected.append([("ready in about ", "muted"), took, (f" ({span}n = {usual.n})", "muted")])
    keys: list[AnyRow]
    if plan.blocked_without(run.run_id for run in plan.replaces):
        keys = [[("✗ ", "err"), ("blocked, see the pre-flight", "text")], _OTHER_VALUES]
    elif plan.replaces:
        head: Line = [(" r ", "accent!/accbg"), (" stop first, then launch:  ", "text")]
        keys = [Row([*head, *run_words(plan.replaces[0])], hang=4)]
    else:
        keys = [[(" l ", "accent!/accbg"), (" launch   ", "text"), *_OTHER_VALUES]]
    return sections(expected, keys, apart=airy)
