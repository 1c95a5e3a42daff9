"""`eagletui experiment`: unattended; progress on stderr, the record on stdout at the end."""

import shlex
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from tui import format as written
from tui.commands import background, completing
from tui.commands.experiment_plan import plan_json, print_plan
from tui.commands.groups import group_session
from tui.commands.measure import figure_words
from tui.commands.measured import may_stop
from tui.commands.options import (
    THREE_YEARS_S,
    Number,
    host_option,
    json_option,
    resume_option,
    seed_option,
    timeout_option,
    yes_option,
)
from tui.commands.output import Interrupted, emit, run_async, say
from tui.commands.sessions import raise_if_refused
from tui.commands.terminal import interactive
from tui.core.bench.measured_servers import ServerMeasured
from tui.core.config import default_host, profile_dirs
from tui.core.errors import Slug, UsageError
from tui.core.experiment import record as experiment_record
from tui.core.experiment.ahead import ArmAhead, arms_ahead, refused, refused_or_measured
from tui.core.experiment.elsewhere import Stop
from tui.core.experiment.overrides import Overrides
from tui.core.experiment.plan import known_of, plan, refused_plan
from tui.core.experiment.record import ExperimentRecord
from tui.core.experiment.runner import ExperimentRunner, begin, resumed
from tui.core.experiment.so_far import measured
from tui.core.experiment.wanted import Wanted, wanted
from tui.core.model.experiment import ArmState, ArmStatus, ExperimentState
from tui.core.model.profile import REFERENCE, BenchProfile, ExperimentProfile
from tui.core.model.result import Result
from tui.core.model.verdict import VerdictKind
from tui.core.profiles.load import load_experiment
from tui.core.records import picked
from tui.core.results.flat import SIMULATED, flat, on_demo
from tui.core.text import one_line


class Hours(click.ParamType[float]):
    """`8`, `8h` or `90m`: hours."""

    name = "hours"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        text = str(value).strip().lower()
        per_hour = 60 if text.endswith("m") else 1
        return Number(THREE_YEARS_S / 3600, what="a number of hours").convert(text.rstrip("hm"), param, ctx) / per_hour


@click.command()
@click.argument("name", shell_complete=completing.experiments)
@host_option
@resume_option
@seed_option
@click.option(
    "--dry-run", is_flag=True, help="The plan alone: launches, times, what it can see, pre-flight of all arms."
)
@click.option("--pairs", type=click.IntRange(1, 1000), metavar="N", help="So many launches of each arm.")
@click.option(
    "--bench", metavar="BENCH", shell_complete=completing.bench_profiles, help="Measure with this bench profile."
)
@click.option("--budget", type=Hours(), metavar="H", help="No launch that would end later: 8, 8h, 90m.")
@click.option(
    "--set", "sets", multiple=True, metavar="K=V", help="A flag of all arms (B:K=V of one), or a key of the bench."
)
@click.option("--force", is_flag=True, help="Begin although the plan can give no verdict; the pre-flight still holds.")
@click.option("--detach", is_flag=True, help="Run it in the background, and return when its first launch is next.")
@click.option("--attach", is_flag=True, help="Follow one that another process runs, or say how it ended.")
@timeout_option
@click.option("--stop", type=click.Choice(["after-launch", "now"]), help="End it, whichever process runs it.")
@yes_option
@json_option
@click.pass_obj
def command(
    directory: Path | None,
    name: str,
    host: str | None,
    resume: bool,
    seed: int | None,
    dry_run: bool,
    pairs: int | None,
    bench: str | None,
    budget: float | None,
    sets: tuple[str, ...],
    force: bool,
    detach: bool,
    attach: bool,
    timeout: float | None,
    stop: str | None,
    yes: bool,
    as_json: bool,
) -> int:
    """Launch, wait, measure, record, next: unattended; ends with verdicts.

    The exit code is 1 where nothing comparable was measured, the pre-flight of an arm fails, or the plan can give no verdict.
    """
    if sum((dry_run, detach, attach, stop is not None)) > 1:
        raise UsageError(
            "--dry-run, --detach, --attach and --stop exclude each other", "leave all but one out", slug=Slug.BAD_VALUE
        )
    if timeout is not None and not attach:
        raise UsageError("--timeout goes with --attach", "leave it out", slug=Slug.BAD_VALUE)
    if attach:
        record, state = background.attach(name, host, _Narrator().tell, timeout)
        return _finished(record, state, as_json)
    if stop is not None and (stop == "after-launch" or background.is_driven(name, host)):
        return background.stop(name, host, Stop(stop), as_json)
    profile = load_experiment(name, profile_dirs(directory))
    overrides = Overrides(sets, pairs, bench, budget)
    if detach:
        return background.detach(name, as_json)
    if dry_run:
        if resume:
            raise UsageError("--dry-run and --resume exclude each other", "leave one of them out", slug=Slug.BAD_VALUE)
        return _look_ahead(
            _free(wanted(profile, profile_dirs(directory), host, default_host(), overrides)), seed, as_json
        )
    words = ("eagletui", "experiment", name)
    ending = stop is not None
    ask = None if yes or ending else interactive() and not as_json
    runner = conduct(
        directory, profile, host, resume or ending, seed, words, overrides, force=force, ask=ask, stop=ending
    )
    hopes = {letter: site.profile.hypothesis for letter, site in runner.sites.items()}
    code = _finished(runner.record, runner.state(), as_json, hopes)
    return 0 if ending else code


def _finished(
    record: ExperimentRecord, state: ExperimentState, as_json: bool, hopes: Mapping[str, str | None] | None = None
) -> int:
    """What is printed at the end; the exit code. `hopes`: the hypothesis of each arm's profile, where they are at hand."""
    if as_json:
        emit(record_json(record, state))
    elif record.halving:
        from tui.core.experiment.report import report

        print(report(record, state, hopes or {}))
    else:
        for verdict in record.verdicts:
            print(verdict.text)
        if on_demo(record.host):
            print(f"▲ {SIMULATED}")
    return 0 if _comparable(record) else 1


def conduct(
    directory: Path | None,
    profile: ExperimentProfile,
    host: str | None,
    resume: bool,
    seed: int | None,
    words: tuple[str, ...],
    overrides: Overrides | None = None,
    *,
    ask: bool | None = None,
    force: bool = True,
    stop: bool = False,
) -> ExperimentRunner:
    """Runs an experiment, or what is left of it, to its end.

    Args:
        words: the command that begins it.
        ask: somebody can be asked whether a measurement may end with a server that is in the way; None: it may.
        force: also where its plan can give no verdict.
        stop: only ends what an earlier process left on the host.
    """
    asked = _free(wanted(profile, profile_dirs(directory), host, default_host(), overrides))
    where = asked.host
    if directory is not None:
        words = ("eagletui", "--profiles", str(directory), *words[1:])
    again = one_line(shlex.join((*words, "--host", where, "--resume")))
    if (left_out := experiment_record.FILES.unreadable_words()) is not None:
        say(left_out)
    if resume:
        asked, record = _taken_up(asked, profile_dirs(directory), profile)
    else:
        record = _begun(asked, seed)
    look = refused if resume or force else refused_plan(asked, record)

    def judge(may_end: bool, arms: tuple[ArmAhead, ...]) -> None:
        look(arms)
        if not may_end:
            refused_or_measured(arms, own={cell.bench_run_id for cell in record.cells})

    async def run(may_end: bool) -> ExperimentRunner:
        async with group_session(record.all_hosts, all_of_them=True) as hosts:
            runner = ExperimentRunner(hosts, record, asked.profile, asked.launches, partial(judge, may_end))
            if stop:
                runner.stop()
            narrator = _Narrator()
            async with aclosing(runner.states()) as states:
                async for state in states:
                    narrator.tell(state)
                    for opened in hosts.sessions.values():
                        raise_if_refused(opened)
            return runner

    try:
        return _run(run, ask)
    except KeyboardInterrupt:
        raise Interrupted(
            "interrupted; the server and the measurement on the host keep running", f"continue with: {again}"
        ) from None


def _begun(asked: Wanted, seed: int | None) -> ExperimentRecord:
    if (earlier := experiment_record.unfinished(asked.profile.name, asked.host)) is not None:
        say(f"an unfinished one of {earlier.started_at} stays as it is; --resume would continue it")
    return begin(asked.profile, asked.bench, asked.launches, asked.host, seed, asked.overrides)


def _taken_up(asked: Wanted, dirs: list[Path], profile: ExperimentProfile) -> tuple[Wanted, ExperimentRecord]:
    """The unfinished one, with what was changed for it when it was begun and what is changed now."""
    earlier = experiment_record.unfinished(profile.name, asked.host)
    if earlier is None:
        raise UsageError(
            f"there is no unfinished {profile.name} on {one_line(asked.host, 60)}",
            "leave --resume out to begin one",
            slug=Slug.NOTHING_TO_RESUME,
        )
    asked = wanted(profile, dirs, asked.host, asked.host, asked.overrides.after(earlier.overrides))
    record = resumed(earlier, asked.profile, asked.bench, asked.launches)
    then, now = (_hours(one.profile.budget_h) for one in (earlier, record))
    if then != now:
        say(f"its budget was {then}, and is {now}")
    return asked, replace(record, overrides=asked.overrides.public)


def _run(run: Callable[[bool], Coroutine[Any, Any, ExperimentRunner]], ask: bool | None) -> ExperimentRunner:
    """Runs it; `run(True)` may end a measurement. Raises ServerMeasured where nobody agrees to that."""
    try:
        return run_async(run(ask is None))
    except ServerMeasured as found:
        if not run_async(may_stop(ask, found.what, found.measurement)):
            raise
        return run_async(run(True))


def _hours(budget_h: float | None) -> str:
    return f"{budget_h:g} h" if budget_h is not None else "unlimited"


def _free(asked: Wanted) -> Wanted:
    """Raises EagletuiError where an experiment runs on one of its hosts."""
    asked.free()
    return asked


def _look_ahead(asked: Wanted, seed: int | None, as_json: bool) -> int:
    """The plan: 1 where an arm could not be launched, or nothing could come of it."""
    record = begin(asked.profile, asked.bench, asked.launches, asked.host, seed, asked.overrides)

    async def look() -> tuple[ArmAhead, ...]:
        async with group_session(record.all_hosts, all_of_them=True) as hosts:
            runner = ExperimentRunner(hosts, record, asked.profile, asked.launches)
            return await arms_ahead(runner.sites, say)

    arms = run_async(look())
    made = plan(asked, record, known_of(asked), arms)
    if as_json:
        emit({**plan_json(made, arms), "error": Slug.PREFLIGHT if made.blocking else None})
    else:
        print_plan(made, arms)
    return 1 if made.blocking else 0


def _comparable(record: ExperimentRecord) -> bool:
    """Whether one comparison at least has figures of both sides."""
    return any(verdict.verdict is not VerdictKind.INVALID and verdict.ratio is not None for verdict in record.verdicts)


class _Narrator:
    """Says what is news in the states of an experiment, one line each."""

    def __init__(self) -> None:
        self._said: set[object] = set()
        self._waits: str | None = None

    def tell(self, state: ExperimentState) -> None:
        if not self._said:
            screening = " of a screening, whose best is confirmed" if any(state.rungs) else ""
            self._news(
                "begun",
                f"{state.experiment_id} on {state.host}: {len(state.order)} launches{screening}, order "
                f"{written.order_words(state.order)}; on each {written.runs_words(state.bench)}",
            )
            self._said |= {result.result_id for arm in state.arms for result in arm.results}
        for arm in state.arms:
            self._arm(state, arm)
        for note in state.notes:
            self._news(note, note)
        waits = state.message.partition(":")[0] if state.message and not state.finished else None
        if state.message and waits and waits != self._waits:  # how far that is, is no news
            self._say(state.message)
        self._waits = waits
        if state.finalist:
            said = f"{state.finalist} was chosen; fresh launch pairs with {REFERENCE} confirm or refute it"
            self._news(("finalist", state.finalist), said)
        for verdict in state.verdicts:
            if any(state.rungs) and verdict.b.ref != state.finalist:
                continue  # a screening: what it drops is said with its reason
            self._news((verdict.b.ref, verdict.point, verdict.text), verdict.text)
        if state.finished and state.message:
            self._say(state.message)

    def _arm(self, state: ExperimentState, arm: ArmState) -> None:
        title, phase = f"{arm.letter} {one_line(arm.profile, 60)}", (arm.phase or "").replace("_", " ")
        if arm.status in (ArmStatus.LAUNCHING, ArmStatus.RUNNING):
            left = f", about {written.duration(state.left_s)} left" if state.left_s is not None else ""
            launch = (state.at, arm.letter)
            self._news(launch, f"launch {state.at + 1} of {len(state.order)}: {title}{left}")
            if phase:
                self._news((*launch, phase), f"{arm.letter}: {phase}")
        for result in arm.results:
            self._news(result.result_id, f"{arm.letter}: {_run_words(result, state.bench)}")
        if arm.status is ArmStatus.FAILED:
            where = f" in {phase}" if phase else ""
            self._news(("failed", arm.letter), f"{title} failed{where}: {arm.cause}: {arm.reason}")
        if arm.dropped:
            self._news(("dropped", arm.letter), f"{arm.letter} goes no further: {arm.dropped}")

    def _news(self, key: object, text: str) -> None:
        if key not in self._said:
            self._said.add(key)
            self._say(text)

    def _say(self, text: str) -> None:
        say(f"{time.strftime('%H:%M:%S')} {text}")


def _run_words(result: Result, bench: BenchProfile) -> str:
    text = f"run {result.run_index} of {bench.runs} at {result.point.label}: {figure_words(result)}"
    if not result.valid:
        failed = [guard.text for guard in result.failed_guards]
        text += f", does not count: {one_line('; '.join(failed) or '; '.join(result.notes), 200)}"
    return text


def experiment_json(runner: ExperimentRunner) -> dict[str, object]:
    """The record of one that ran here, as `--json` prints it."""
    return record_json(runner.record, runner.state())


def record_json(record: ExperimentRecord, state: ExperimentState) -> dict[str, object]:
    """The experiment record as `--json` prints it: arms, launches in their order, flat results, verdicts."""
    known = {result.result_id: result for arm in state.arms for result in arm.results}
    arms = "arm=letter profile set=sets against status launches=launches_done cause reason"
    launches = (
        "launch=number arm pair rung status run=run_id bench_run=bench_run_id started=started_at ended=ended_at ready_after_s "
        "spent_s phase cause reason advice set=change results=result_ids"
    )
    return {
        **picked(
            record,
            "experiment=experiment_id name method=profile.method host hosts=all_hosts hypothesis=profile.hypothesis bench=bench.name pairs looks=profile.looks "
            "margin=profile.margin budget_h=profile.budget_h seed order verdicts outcome message notes started=started_at "
            "ended=ended_at finalist dropped",
        ),
        "arms": [picked(arm, arms) for arm in state.arms],
        "launches": [picked(cell, launches) for cell in record.cells],
        "results": [flat(result) for result in measured(record, known)],
        "simulated_host": on_demo(record.host),
        "error": None if _comparable(record) else "nothing_comparable",
    }
