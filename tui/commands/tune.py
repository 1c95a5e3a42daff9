"""`eagletui tune`: the range that starts, the speculation that pays, a verdict; progress on stderr, the report on stdout."""

import shlex
import time
from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

import click

from tui import format as written
from tui.commands import completing
from tui.commands.groups import group_session
from tui.commands.options import Number, host_option, json_option, set_option
from tui.commands.output import Interrupted, emit, run_async, say
from tui.commands.sessions import raise_if_refused
from tui.core.config import default_host, profile_dirs
from tui.core.errors import Slug, UsageError
from tui.core.groups import planning
from tui.core.model.profile import BenchProfile
from tui.core.profiles.launch_profile import LaunchProfile
from tui.core.profiles.load import load_bench, load_launch
from tui.core.profiles.resolve import parse_sets
from tui.core.text import aligned, one_line
from tui.core.tune import decide, report
from tui.core.tune import record as tune_record
from tui.core.tune.record import GOALS, Phase, Status, TuneRecord
from tui.core.tune.runner import TuneRunner, TuneState, begin_tune, resumed_tune

_WORKLOADS = {"tok_s": "speculation-real-prompts", "ttft": "speculation-real-prompts", "goodput": "capacity-ttft-tpot"}
_MOST_HOURS = 10_000.0


@click.command()
@click.argument("profile", shell_complete=completing.launch_profiles)
@click.option("--for", "goal", type=click.Choice(GOALS), required=True, help="What is to be good.")
@click.option(
    "--workload",
    metavar="BENCH",
    shell_complete=completing.bench_profiles,
    help="Measure with this bench profile, at its first load.",
)
@host_option
@click.option("--budget", "budget_h", type=Number(_MOST_HOURS, what="hours"), metavar="HOURS", help="Of all launches.")
@set_option
@click.option("--resume", is_flag=True, help="Continue the newest unfinished tune of this profile there.")
@click.option("--seed", type=click.IntRange(0, 2**32), metavar="N", help="Decides the prompts.")
@click.option("--dry-run", is_flag=True, help="What it would do and cost; no host is asked.")
@json_option
@click.pass_obj
def command(
    directory: Path | None,
    profile: str,
    goal: str,
    workload: str | None,
    host: str | None,
    budget_h: float | None,
    sets: tuple[str, ...],
    resume: bool,
    seed: int | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Find the memory fraction that starts and the speculation that pays; ends with a verdict.

    Every launch is an answer, a crash too; the best is confirmed on fresh launch pairs against the start. The exit code is 1 where it came to no answer.
    """
    dirs = profile_dirs(directory)
    values = _values(sets)
    launch = load_launch(profile, dirs, values)
    bench = load_bench(workload or _WORKLOADS[goal], dirs)
    where = planning.home_of(launch, host or launch.host or default_host())
    fresh = begin_tune(launch, values, bench, goal, where, budget_h, seed)
    if dry_run:
        return _plan(fresh, as_json)
    record = _to_run(fresh, launch, bench, resume, budget_h)
    words = ["eagletui", "tune", profile, "--for", goal, *(["--workload", workload] if workload else [])]
    words[1:1] = ["--profiles", str(directory)] if directory is not None else []
    words += [word for text in sets for word in ("--set", text)]
    again = one_line(shlex.join((*words, "--host", where, "--resume")))
    ended = _run(record, dirs, values, again)
    if as_json:
        emit({**report.document(ended), "error": None if ended.outcome == "done" else ended.outcome})
    else:
        print("\n".join(report_lines(ended)))
    return 0 if ended.outcome == "done" else 1


def _values(sets: tuple[str, ...]) -> Mapping[str, Any]:
    errors: list[Any] = []
    items = parse_sets(sets, errors)
    if errors:
        raise UsageError(f"--set {errors[0]}", "write it as --set FLAG=VALUE", slug=Slug.BAD_VALUE)
    return dict(items)


def _to_run(
    fresh: TuneRecord, launch: LaunchProfile, bench: BenchProfile, resume: bool, budget_h: float | None
) -> TuneRecord:
    """The tune that is begun, or taken up. Raises UsageError."""
    if (left_out := tune_record.FILES.unreadable_words()) is not None:
        say(left_out)
    earlier = tune_record.unfinished(fresh.profile, fresh.host, fresh.goal)
    if resume and earlier is None:
        raise UsageError(
            f"there is no unfinished tune of {fresh.profile} for {fresh.goal} on {one_line(fresh.host, 60)}",
            "leave --resume out to begin one",
            slug=Slug.NOTHING_TO_RESUME,
        )
    if earlier is None:
        return fresh
    if resume:
        return resumed_tune(earlier, launch, bench, budget_h)
    say(f"an unfinished one of {earlier.started_at} stays as it is; --resume would continue it")
    return fresh


def _run(record: TuneRecord, dirs: list[Path], sets: Mapping[str, Any], again: str) -> TuneRecord:
    def load(over: Mapping[str, object]) -> LaunchProfile:
        return load_launch(record.profile, dirs, over)

    async def run() -> TuneRecord:
        async with group_session([record.host], all_of_them=True) as hosts:
            runner = TuneRunner(hosts, record, load, sets)
            narrator = _Narrator()
            async with aclosing(runner.states()) as states:
                async for state in states:
                    narrator.tell(state)
                    for opened in hosts.sessions.values():
                        raise_if_refused(opened)
            return runner.record

    try:
        return run_async(run())
    except KeyboardInterrupt:
        raise Interrupted(
            "interrupted; the server and the measurement on the host keep running", f"continue with: {again}"
        ) from None


class _Narrator:
    """Two lines a step: what is launched and why, and what came of it."""

    def __init__(self) -> None:
        self._said: set[tuple[int, Status]] = set()
        self._waits: str | None = None

    def tell(self, state: TuneState) -> None:
        record = state.record
        for taken in record.steps:
            if (taken.number, taken.status) in self._said:
                continue
            self._said |= {(taken.number, Status.RUNNING), (taken.number, taken.status)}
            if taken.status is Status.RUNNING:
                self._say(f"step {taken.number}, {taken.step.phase}: {taken.step.title} ({taken.step.why})")
            else:
                self._say(f"step {taken.number}: {taken.words} · {_used(record)}")
        waits = state.experiment.message if state.experiment is not None and not state.experiment.finished else None
        if waits and waits.startswith("waiting") and waits != self._waits:
            self._say(waits)
        self._waits = waits
        if state.finished and record.message:
            self._say(record.message)

    def _say(self, text: str) -> None:
        say(f"{time.strftime('%H:%M:%S')} {one_line(text, 400)}")


def _used(record: TuneRecord) -> str:
    budget = f" of {record.budget_h:g} h" if record.budget_h is not None else ""
    return f"{record.launches} launches, {written.duration(record.spent_s)}{budget}"


def _plan(record: TuneRecord, as_json: bool) -> int:
    words = report.plan_words(record)
    if as_json:
        length_s = decide.launch_length_s(record)
        emit({**report.document(record), "plan": list(words), "launch_s": length_s, "error": None})
    else:
        print("\n".join(words))
    return 0


def report_lines(record: TuneRecord) -> list[str]:
    """The report of a tune, for a terminal."""
    confirmed = next((taken for taken in record.of(Phase.CONFIRM)), None)
    ended = confirmed.words if confirmed is not None else record.message or record.outcome
    screened = report.so_far(record)
    return [
        f"range    {one_line(report.range_words(record), 400)}",
        *_map(record),
        *([f"screened {one_line(screened, 400)}"] if screened is not None else []),
        f"verdict  {one_line(ended, 400)}",
        "not tried",
        *(f"  · {one_line(text, 400)}" for text in report.not_tried(record)),
    ]


def _map(record: TuneRecord) -> list[str]:
    """Steps by top-k; a cell: tok/s, its ratio to no speculation, accept of break-even, level."""
    spots, base = decide.spots(record), decide.baseline(record)
    if not spots or base is None:
        return []
    rows: list[tuple[str, ...]] = [("steps", *(f"top-k {topk}" for topk in decide.TOPKS))]
    for steps in dict.fromkeys(place[0] for place in spots):
        rows.append((str(steps), *(_field(record, spots.get((steps, topk)), base) for topk in decide.TOPKS)))
    return [
        *aligned(rows, left=tuple(range(len(rows[0])))),
        f"tok/s, ratio to {base:.1f} without speculation, accept of break-even",
    ]


def _field(record: TuneRecord, spot: decide.Spot | None, base: float) -> str:
    if spot is None:
        return ""
    if spot.state != "measured" or spot.estimate is None:
        return {"skipped": "– skipped", "failed": f"✗ {spot.why}"}.get(spot.state, "○ open")
    at, need = spot.estimate, report.breakeven(record, spot)
    return (
        f"{at.rate:.1f} {written.ratio(at.rate / base)} {written.accept(at.accept_length)} of {written.accept(need)} "
        f"{report.level_of(record, spot.draft)}"
    )
