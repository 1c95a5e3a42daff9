"""An experiment before its first launch, as `eagletui experiment --dry-run` prints it."""

import time

from tui import format as written
from tui.core.experiment.ahead import ArmAhead, arm_json
from tui.core.experiment.plan import Expected, ExperimentPlan, Sight
from tui.core.records import picked
from tui.core.server.finding import Level
from tui.core.text import one_line
from tui.core.verdicts.sentences import about, count, load_words, percent, signed

_MARKS = {Level.BLOCK: "✗", Level.WARN: "▲"}
_OPEN = "one that is left"  # the figures decide


def plan_json(plan: ExperimentPlan, arms: tuple[ArmAhead, ...]) -> dict[str, object]:
    """The plan with the pre-flight of its arms, as `--json` prints it; times in seconds from the start."""
    of_arm = "tok_s level start_s=start.seconds starts=start.starts start_estimate=start.estimate"
    planned = {arm.letter: picked(arm, of_arm) for arm in plan.arms}
    launch = "launch=number arm pair begins_s ready_s measured_s ends_s rung"
    return {
        **picked(plan, "name host hosts bench=bench.name pairs budget_h=profile.budget_h seed overrides"),
        "launches": len(plan.launches),
        "arms": [{**arm_json(arm), **planned[arm.letter]} for arm in arms],
        "blocked": bool(plan.blocking),
        "findings": [finding.json() for finding in plan.findings],
        "schedule": [picked(one, launch) for one in plan.launches],
        **picked(plan, "total_s starting_s noise"),
        "sees": [picked(sight, "pairs total_s level effect=sees") for sight in plan.sights],
        "expected": [picked(one, "a b load=point.label ratio level pairs_needed=pairs seen") for one in plan.expected],
    }


def print_plan(plan: ExperimentPlan, arms: tuple[ArmAhead, ...]) -> None:
    """For people; clock times as if it began now."""
    now = time.time()
    ends = written.clock(now + plan.total_s, seconds=False)
    print(
        f"{one_line(plan.name, 60)} on {', '.join(plan.hosts)}: {count(len(plan.launches), 'launch', 'launches')}, "
        f"{about(plan.total_s)}, done at {ends} if it began now"
    )
    if plan.overrides:
        print(f"changed for this once: {plan.overrides}")
    for arm in arms:
        words = "cannot be launched" if arm.blocking else "can be launched"
        print(
            f"{arm.letter} {one_line(arm.profile, 60)} on {', '.join(arm.hosts)}: {words}; {_known(plan, arm.letter)}"
        )
        for run in arm.plan.replaces if arm.plan is not None and not arm.blocking else ():
            print(f"  ■ stops first: {run.short_id} on {run.host}")
    print()
    for row in _schedule(plan, now):
        print(row)
    print()
    for sight in plan.sights:
        print(sight_words(sight, planned=sight.pairs == plan.pairs))
    print(noise_words(plan))
    for one in plan.expected:
        print(expected_words(one, plan.pairs))
    if shown := [finding for finding in plan.findings if finding.level is not Level.OK]:
        print()
        for finding in shown:
            print(f"{_MARKS[finding.level]} {finding}")


def _known(plan: ExperimentPlan, letter: str) -> str:
    arm = plan.arm(letter)
    start = f"ready after {written.duration(arm.start.seconds)}"
    start += f", an estimate: {arm.start.estimate}" if arm.start.estimate else f" in {count(arm.start.starts, 'start')}"
    return start + (f"; {arm.tok_s:.1f} tok/s here ({arm.level})" if arm.tok_s is not None else "")


def _schedule(plan: ExperimentPlan, now: float) -> list[str]:
    wide = max(len(_OPEN), *(len(one_line(arm.profile, 60)) for arm in plan.arms))
    rows = [f" #  arm  {'profile':<{wide}}  {'start-up':>8}  {'measure':>8}  {'stop':>5}  ends"]
    for one in plan.launches:
        times = (one.ready_s - one.begins_s, one.measured_s - one.ready_s, one.ends_s - one.measured_s)
        start, measure, stop = map(written.duration, times)
        name = one_line(plan.arm(one.arm).profile, 60) if one.arm else _OPEN
        end = written.clock(now + one.ends_s, seconds=False)
        rows.append(f"{one.number:>2}  {one.arm or '?':<3}  {name:<{wide}}  {start:>8}  {measure:>8}  {stop:>5}  {end}")
    share = plan.starting_s / plan.total_s if plan.total_s else 0.0
    rows.append(f"{share:.0%} of the time is start-up".replace("%", " %"))
    return rows


def sight_words(sight: Sight, *, planned: bool) -> str:
    """`▸ 3 pairs, ~1 h 50 min: sees 1.9 %`."""
    said = f"sees {percent(sight.sees)}" if sight.sees is not None else "can decide"
    if sight.level != "L2":
        said = "a screening, no verdict"
    mark = "▸" if planned else " "
    return f"{mark} {count(sight.pairs, 'pair')}, {about(sight.total_s)}: {said} ({sight.level})"


def noise_words(plan: ExperimentPlan) -> str:
    """What the smallest effects rest on."""
    if plan.noise is None:
        return "no noise is known here yet, so what they see is not known: eagletui bench aa measures it"
    noise = plan.noise
    runs = f", runs ±{percent(noise.run_cv)}" if noise.run_cv is not None else ""
    return f"from the noise of {plan.host}: launches ±{percent(noise.launch_cv)}{runs} ({count(noise.launches, 'launch', 'launches')})"


def expected_words(one: Expected, pairs: int) -> str:
    """What earlier runs let expect, and whether so many pairs could see it."""
    what = f"{one.b} against {one.a}, {load_words(one.point)}: {signed(one.ratio - 1)} ({one.ratio:.2f}×, {one.level}) expected"
    if one.seen is None:
        return what
    if one.seen:
        return f"{what}: {count(pairs, 'pair')} would see it"
    needs = f"{one.pairs} pairs would" if one.pairs is not None else "more than 20 pairs would be needed"
    return f"{what}: {count(pairs, 'pair')} could miss it, {needs}"
