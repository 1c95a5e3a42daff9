"""An experiment before its first launch, in rows: the question, what it can see, launches in time, knobs, findings."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from tui import format as fmt
from tui.core.errors import EagletuiError
from tui.core.experiment.plan import Expected, ExperimentPlan, Sight, length_s
from tui.core.model.profile import BenchProfile, DiffLine
from tui.core.profiles.difference import profile_difference
from tui.core.server.finding import Finding, Level
from tui.core.text import one_line
from tui.core.verdicts.sentences import load_words, percent, signed
from tui.panel.bench_view import COLORS, Preview
from tui.panel.screens.bench_dialogs import long_words
from tui.panel.screens.plan_rows import finding_counts, finding_rows
from tui.panel.widgets.paint import Run, cells, clip
from tui.panel.widgets.rows import AnyRow, Line, Row, Single, Title

_NAME = 34  # cells of a profile's name at most
_ARMS = 6  # whose differences are shown
_OPEN = "one that is left"  # the figures decide
_DIFFERENCES = 4  # rows of what an arm changes
_FAMILY = 3  # flags with one first word that are one row
_TOLD = ("memory", "history", "feasible", "disk")  # checks whose OK says something here


def ends_at(plan: ExperimentPlan) -> str:
    """When it would be over if it began now."""
    return fmt.clock(time.time() + plan.total_s, seconds=False)


def head_row(plan: ExperimentPlan, width: int) -> Single:
    """Its name, and how long all of it takes."""
    about = "about " if not plan.estimated else "estimated "
    return Single(
        [
            (one_line(plan.name, 60), "strong!"),
            ("  plan · nothing is launched yet" if width >= 100 else "  plan", "muted"),
        ],
        [
            (about, "muted"),
            (long_words(plan.total_s), "strong!"),
            (", done about ", "muted"),
            (ends_at(plan), "strong!"),
        ],
    )


def question_rows(preview: Preview) -> list[AnyRow]:
    """What is asked, and of which arms."""
    plan, profile, bench = preview.plan, preview.profile, preview.wanted.bench
    rows: list[AnyRow] = [Title("Question")]
    rows += [[(one_line(profile.hypothesis), "text")], []] if profile.hypothesis else []
    for arm in plan.arms[:_ARMS]:
        known: Line = [("not measured here", "muted")]
        if arm.tok_s is not None:
            known = [(f"{arm.tok_s:.1f} tok/s", "text"), (f" here ({arm.level})", "muted")]
        ready = "ready in about " if arm.start.estimate else "ready in "
        right = [*known, (f" · {ready}", "muted"), (fmt.duration(arm.start.seconds), "text")]
        rows.append(Single([(f"{arm.letter:<3}", f"{_color(arm.letter)}!"), (arm.profile, "strong!")], right))
        if arm.against is not None:
            changed = profile_difference(preview.wanted.launches[arm.against], preview.wanted.launches[arm.letter])
            rows += _changes(changed)
    if len(plan.arms) > _ARMS:
        rows.append([(f"and {len(plan.arms) - _ARMS} more arms", "muted")])
    loads = ", ".join(load_words(point) for point in bench.points)
    letters = "".join(one.arm or "?" for one in plan.launches)
    pairs = fmt.plural(plan.pairs, "launch pair")
    return [
        *rows,
        [],
        Row([("bench  ", "muted"), (bench.name, "text"), (f": {loads}, {fmt.runs_words(bench)}", "muted")], hang=7),
        Row([("order  ", "muted"), (clip(letters, 24), "text"), (f" · {pairs} · verdict by pair", "muted")], hang=7),
    ]


def _color(letter: str | None) -> str:
    return COLORS.get(letter or "", "text")


def _changes(changed: Sequence[DiffLine]) -> list[AnyRow]:
    """What turns one arm into the other; flags of one family that are many are one row."""
    families = Counter((line.sign, line.key.partition("-")[0]) for line in changed)
    rows: dict[tuple[str, str], Line] = {}
    for line in changed:
        family = line.key.partition("-")[0]
        sign: Run = (f"{line.sign} ", {"+": "ok", "~": "warn", "-": "err"}[line.sign])
        if (many := families[line.sign, family]) >= _FAMILY:
            rows[line.sign, family] = [("   ", "text"), sign, (f"{family}-* ({many})", "muted")]
        else:
            old, new = (one_line(value or "", 60) for value in (line.old, line.new))
            values: Line = (
                [(f" {old} → ", "muted"), (new, "strong!")] if line.sign == "~" else [(f" {new or old}", "text")]
            )
            rows[line.sign, line.key] = [("   ", "text"), sign, (one_line(line.key, 60), "muted"), *values]
    shown = list(rows.values())
    rest = len(shown) - _DIFFERENCES
    return [*shown[:_DIFFERENCES], *([[("   ", "text"), (f"and {rest} more", "muted")]] if rest > 0 else [])]


def sight_rows(plan: ExperimentPlan, width: int) -> list[AnyRow]:
    """What so many pairs see, as bars of one scale; shorter is better."""
    facts: Line = [("no noise is known here yet", "muted")]
    if plan.noise is not None:
        runs = f", runs ±{percent(plan.noise.run_cv)}" if plan.noise.run_cv is not None else ""
        facts = [(f"from the noise of {plan.host}: launches ±{percent(plan.noise.launch_cv)}{runs}", "muted")]
    rows: list[AnyRow] = [Title("What it can see", facts)]
    most = max((sight.sees for sight in plan.sights if sight.sees is not None), default=None)
    room = max(8, width - 36)
    scale = f"0 %{percent(most):>{room - 3}}" if most is not None else " " * room
    rows.append([(f"  pairs        time  sees from  {scale}  ", "muted")])
    rows += [_sight(sight, plan, most, room) for sight in plan.sights]
    if plan.noise is None:
        rows += [[], [("eagletui bench aa", "strong"), (" measures the noise: then this says what they see", "muted")]]
    return [*rows, *([[]] if plan.expected else []), *(_expected(one, plan.pairs) for one in plan.expected)]


def _sight(sight: Sight, plan: ExperimentPlan, most: float | None, room: int) -> Row:
    planned = sight.pairs == plan.pairs
    spec = "strong!" if planned else "text"
    said = percent(sight.sees) if sight.sees is not None else "–"
    runs: list[Run] = [
        ("▌ " if planned else "  ", "accent"),
        (f"{sight.pairs:>5}{long_words(sight.total_s):>12}{said:>11}  ", spec),
    ]
    if sight.sees is not None and most:
        filled = max(1, round(room * sight.sees / most))
        runs += [("▆" * filled, "accent" if planned else "data"), ("▆" * (room - filled), "track")]
    else:
        why = "no verdict, a screening" if sight.level != "L2" else "what it sees is not known"
        runs.append((f"{clip(why, room):<{room}}", "muted"))
    return Row([*runs, (f"  {sight.level}", "muted")], ground="raised" if planned else None)


def _expected(one: Expected, pairs: int) -> Row:
    what = f"{one.b} against {one.a}, {load_words(one.point)}: {signed(one.ratio - 1)} ({one.ratio:.2f}×, {one.level}) expected"
    if one.seen is None:
        return Row([("· ", "muted"), (what, "text")], hang=2)
    if one.seen:
        return Row([("✓ ", "ok"), (what, "strong!"), (f": {fmt.plural(pairs, 'pair')} would see it", "text")], hang=2)
    needs = f"{one.pairs} pairs would" if one.pairs is not None else "more than 20 would be needed"
    return Row(
        [("▲ ", "warn"), (what, "strong!"), (f": {fmt.plural(pairs, 'pair')} could miss it, {needs}", "text")], hang=2
    )


def launch_rows(plan: ExperimentPlan, width: int) -> list[AnyRow]:
    """Every launch in its order, with bars in time where there is room for them."""
    now = time.time()
    name = min(_NAME, max(len("profile"), *(cells(arm.profile) for arm in plan.arms)))
    columns = 3 + 5 + name + 2 + 11 + 9 + 6 + 9
    room = width - columns - 2
    bars = room >= 16
    basis = "times from history here" if not plan.estimated else "start-ups are estimates"
    facts: Line = [(basis + (" · solid: measuring · dots: start-up, stop" if bars else ""), "muted")]
    ends = ends_at(plan)
    axis = f"  {fmt.clock(now, seconds=False)}{ends:>{room - 5}}" if bars else ""
    rows: list[AnyRow] = [
        Title("Launches", facts),
        Single(
            [(f"#  arm  {'profile':<{name}}  {'start-up':>11}{'measure':>9}{'stop':>6}{'ends at':>9}{axis}", "muted")]
        ),
    ]
    for one in plan.launches:
        arm = plan.arm(one.arm) if one.arm is not None else None
        about = "about " if arm is None or arm.start.estimate else ""
        color = _color(one.arm)
        start = f"{about}{fmt.duration(one.ready_s - one.begins_s)}"
        measure, stop = fmt.duration(one.measured_s - one.ready_s), fmt.duration(one.ends_s - one.measured_s)
        runs: list[Run] = [
            (f"{one.number:<3}", "muted"),
            (f"{one.arm or '?':<5}", f"{color}!"),
            (f"{clip(one_line(arm.profile if arm else _OPEN, 200), name):<{name}}  ", "text" if arm else "muted"),
            (f"{start:>11}{measure:>9}{stop:>6}{fmt.clock(now + one.ends_s, seconds=False):>9}", "text"),
        ]
        if bars:
            at = [
                round(room * second / plan.total_s)
                for second in (one.begins_s, one.ready_s, one.measured_s, one.ends_s)
            ]
            solid = max(1, at[2] - at[1])
            runs += [
                (" " * (2 + at[0]) + "·" * (at[1] - at[0]), "muted"),
                ("▆" * solid, color),
                ("·" * max(0, at[3] - at[1] - solid), "muted"),
            ]
        rows.append(Single(runs))
    share = f"{plan.starting_s / plan.total_s:.0%} of the time is start-up".replace("%", " %") if plan.total_s else ""
    advice = ": longer runs cost little, more pairs cost much" if plan.starting_s > plan.total_s / 2 else ""
    rows.append([("total  ", "muted"), (long_words(plan.total_s), "strong!"), (f"   {share}{advice}", "muted")])
    return rows


def knob_rows(preview: Preview, benches: Sequence[BenchProfile]) -> list[AnyRow]:
    """What can be shortened or widened, and what that would take."""
    plan, bench, profile = preview.plan, preview.wanted.bench, preview.profile
    pairs = 2 if plan.pairs > 2 else 3
    runs = bench.runs - 1 if bench.runs > 1 else 2
    rate = bench.points[0].rate is not None
    values = ", ".join(f"{point.rate:g}" if rate else str(point.concurrency) for point in bench.points)
    other = next((one for one in benches if one.name != bench.name), None)
    budget = f"{profile.budget_h:g} h" if profile.budget_h is not None else "none"
    longer = replace(bench, duration_s=2 * bench.duration_s)
    knobs: list[tuple[str, str, str, str, float | None]] = [
        (
            "p",
            "pairs",
            str(plan.pairs),
            f"{pairs}{': screening only' if pairs < 3 else ''}",
            length_s(plan, pairs=pairs),
        ),
        ("t", "seconds a run", f"{bench.duration_s:g}", f"{longer.duration_s:g}", length_s(plan, bench=longer)),
        ("r", "runs a launch", str(bench.runs), str(runs), length_s(plan, bench=replace(bench, runs=runs))),
    ]
    if bench.search is None:
        first = replace(bench, points=bench.points[:1])
        example = f"{values.split(', ')[0]} only" if len(bench.points) > 1 else "1,4"
        knobs.append(
            (
                "u",
                "requests/s" if rate else "users",
                values,
                example,
                length_s(plan, bench=first) if len(bench.points) > 1 else None,
            )
        )
    knobs.append(
        ("w", "bench", bench.name, other.name if other else "", length_s(plan, bench=other) if other else None)
    )
    knobs.append(("B", "budget", budget, "no launch that would end later", None))
    rows: list[AnyRow] = [
        Title("Shorten or widen", [("one key, then a value", "muted")]),
        Single([("key  what           now             for example", "muted")], [("total", "muted")]),
    ]
    for key, what, now, example, total in knobs:
        left: list[Run] = [
            (f"{key:<5}", "accent!"),
            (f"{what:<15}", "text"),
            (f"{clip(now, 15):<16}", "strong!"),
            (clip(example, 30), "muted"),
        ]
        rows.append(Single(left, [(long_words(total), "text")] if total is not None else ()))
    return rows


def before_rows(preview: Preview, looking: str | EagletuiError | None) -> list[AnyRow]:
    """What is against it, those that block first; `looking`: what the hosts are asked now, or why they could not be."""
    findings = _merged(preview.plan.findings, {arm.letter for arm in preview.plan.arms})
    rows: list[AnyRow] = [Title("Before the first launch", finding_counts(findings))]
    fine = [finding for finding in findings if finding.level is Level.OK and finding.check not in _TOLD]
    rows += finding_rows([finding for finding in findings if finding not in fine])
    for run in _replaced(preview):
        rows.append(Row([("▲ ", "warn"), ("server       ", "text"), (f"will first stop {run}", "text")], hang=15))
    if isinstance(looking, EagletuiError):
        rows.append(Row([("✗ ", "err"), (f"{looking.message}", "strong")], hang=2))
    elif looking is not None:
        rows.append([(looking, "muted")])
    if fine:
        checks = ", ".join(dict.fromkeys(finding.check for finding in fine))
        rows.append(Row([("✓ ", "ok"), (checks, "muted")], hang=2))
    return rows


def _merged(findings: Sequence[Finding], letters: set[str]) -> list[Finding]:
    """What is true of every arm without their letters."""
    arms: dict[Finding, set[str]] = {}
    for finding in findings:
        arms.setdefault(replace(finding, arm=None), set()).update({finding.arm} if finding.arm else letters)
    return [
        replace(finding, arm=None if arms_of == letters else ", ".join(sorted(arms_of)))
        for finding, arms_of in arms.items()
    ]


def _replaced(preview: Preview) -> list[str]:
    found = {}
    for arm in preview.ahead or ():
        for run in arm.plan.replaces if arm.plan is not None else ():
            found[run.run_id] = f"run {run.short_id} on {run.host} ({one_line(run.profile or 'a server', 60)})"
    return list(found.values())


def how_rows(preview: Preview, blocked: str | None) -> list[AnyRow]:
    """What happens then, and the command that does the same."""
    name, overrides = one_line(preview.profile.name, 60), preview.wanted.overrides
    changed = f" {overrides}" if str(overrides) else ""
    resume = f"eagletui experiment {name} --resume"
    start: Line = [(" Enter ", "accent!/accbg"), (f" start now, until about {ends_at(preview.plan)}", "text")]
    if blocked is not None:
        start = [("✗ ", "err"), (f"Enter starts nothing: {blocked}", "strong")]
    return [
        Title("How it runs"),
        [("A launch that crashes ends its arm, not the experiment. A run that does not count is repeated.", "muted")],
        Row(
            [("Quitting asks first; ", "muted"), (resume, "text"), (" takes it up again after anything.", "muted")],
            hang=0,
        ),
        [],
        Row(start, hang=2),
        [],
        Row([(f"eagletui experiment {name}{changed} --dry-run prints this plan", "muted")], hang=0),
    ]


def blocked_by(plan: ExperimentPlan) -> str | None:
    """Why it is not begun, one sentence; None where nothing is against it."""
    blocking = [finding for finding in plan.findings if finding.level is Level.BLOCK]
    return blocking[0].sentence if blocking else None
