"""`eagletui experiment`: unattended; progress on stderr, the record on stdout at the end."""

import shlex
import time
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

import click

from tui import format as written
from tui.commands import background, completing
from tui.commands.groups import group_session
from tui.commands.measure import figure_words
from tui.commands.options import host_option, json_option, resume_option, seed_option
from tui.commands.output import Interrupted, emit, run_async, say
from tui.commands.sessions import raise_if_refused
from tui.core.config import default_host, profile_dirs
from tui.core.errors import Slug, UsageError
from tui.core.experiment import record as experiment_record
from tui.core.experiment.ahead import ArmAhead, arm_json, arms_ahead
from tui.core.experiment.elsewhere import Stop
from tui.core.experiment.record import ExperimentRecord
from tui.core.experiment.runner import ExperimentRunner, begin, resumed
from tui.core.experiment.so_far import measured
from tui.core.groups import planning
from tui.core.model.experiment import ArmState, ArmStatus, ExperimentState
from tui.core.model.profile import BenchProfile, ExperimentProfile
from tui.core.model.result import Result
from tui.core.model.verdict import VerdictKind
from tui.core.profiles.launch_profile import LaunchProfile
from tui.core.profiles.load import load_bench, load_experiment, load_launch
from tui.core.records import picked
from tui.core.results.flat import flat
from tui.core.server.finding import Level
from tui.core.text import one_line


@click.command()
@click.argument("name", shell_complete=completing.experiments)
@host_option
@resume_option
@seed_option
@click.option("--dry-run", is_flag=True, help="The pre-flight of all arms alone; nothing is launched or stopped.")
@click.option("--detach", is_flag=True, help="Run it in the background, and return when its first launch is next.")
@click.option("--attach", is_flag=True, help="Follow the one that another process of this machine runs.")
@click.option("--stop", type=click.Choice(["after-launch", "now"]), help="End it, whichever process runs it.")
@json_option
@click.pass_obj
def command(
    directory: Path | None,
    name: str,
    host: str | None,
    resume: bool,
    seed: int | None,
    dry_run: bool,
    detach: bool,
    attach: bool,
    stop: str | None,
    as_json: bool,
) -> int:
    """Launch, wait, measure, record, next: unattended; ends with verdicts.

    The exit code is 1 where nothing comparable was measured, or the pre-flight of an arm fails.
    """
    if sum((dry_run, detach, attach, stop is not None)) > 1:
        raise UsageError(
            "--dry-run, --detach, --attach and --stop exclude each other", "leave all but one out", slug=Slug.BAD_VALUE
        )
    if attach:
        record, state = background.attach(name, host, _Narrator().tell)
        return _finished(record, state, as_json)
    if stop is not None and (stop == "after-launch" or background.is_driven(name, host)):
        return background.stop(name, host, Stop(stop), as_json)
    profile = load_experiment(name, profile_dirs(directory))
    if detach:
        return background.detach(name, as_json)
    if dry_run:
        if resume:
            raise UsageError("--dry-run and --resume exclude each other", "leave one of them out", slug=Slug.BAD_VALUE)
        return _look_ahead(_Wanted.of(directory, profile, host), as_json)
    words = ("eagletui", "experiment", name)
    runner = conduct(directory, profile, host, resume or stop is not None, seed, words, stop=stop is not None)
    code = _finished(runner.record, runner.state(), as_json)
    return 0 if stop is not None else code


def _finished(record: ExperimentRecord, state: ExperimentState, as_json: bool) -> int:
    """What is printed at the end; the exit code."""
    if as_json:
        emit(record_json(record, state))
    else:
        for verdict in record.verdicts:
            print(verdict.text)
    return 0 if _comparable(record) else 1


def conduct(
    directory: Path | None,
    profile: ExperimentProfile,
    host: str | None,
    resume: bool,
    seed: int | None,
    words: tuple[str, ...],
    *,
    stop: bool = False,
) -> ExperimentRunner:
    """Runs an experiment, or what is left of it, to its end. `words` is the command that begins it.

    `stop`: only ends what an earlier process left on the host.
    """
    wanted = _Wanted.of(directory, profile, host)
    where = wanted.host
    if directory is not None:
        words = ("eagletui", "--profiles", str(directory), *words[1:])
    again = one_line(shlex.join((*words, "--host", where, "--resume")))
    if (left_out := experiment_record.FILES.unreadable_words()) is not None:
        say(left_out)
    earlier = experiment_record.unfinished(profile.name, where)
    if resume and earlier is None:
        raise UsageError(
            f"there is no unfinished {profile.name} on {one_line(where, 60)}",
            "leave --resume out to begin one",
            slug=Slug.NOTHING_TO_RESUME,
        )
    if resume and earlier is not None:
        record = resumed(earlier, profile, wanted.bench, wanted.launches)
    else:
        if earlier is not None:
            say(f"an unfinished one of {earlier.started_at} stays as it is; --resume would continue it")
        record = begin(profile, wanted.bench, wanted.launches, where, seed)

    async def run() -> ExperimentRunner:
        async with group_session(record.all_hosts, all_of_them=True) as hosts:
            runner = ExperimentRunner(hosts, record, profile, wanted.launches)
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
        return run_async(run())
    except KeyboardInterrupt:
        raise Interrupted(
            "interrupted; the server and the measurement on the host keep running", f"continue with: {again}"
        ) from None


@dataclass(frozen=True)
class _Wanted:
    """What an experiment names, loaded; and the host where a server of it goes that names none."""

    profile: ExperimentProfile
    bench: BenchProfile
    launches: dict[str, LaunchProfile]
    host: str

    @classmethod
    def of(cls, directory: Path | None, profile: ExperimentProfile, host: str | None) -> "_Wanted":
        """Raises UsageError; EagletuiError where another process runs it."""
        dirs = profile_dirs(directory)
        bench = load_bench(profile.bench, dirs)
        launches = {arm.letter: load_launch(arm.profile, dirs, arm.sets) for arm in profile.arms}
        first = launches["A"]
        where = planning.home_of(first, host or first.host or default_host())
        if (running := experiment_record.driven(profile.name, where)) is not None:
            raise experiment_record.busy(running.experiment_id, experiment_record.driver(running.experiment_id) or 0)
        return cls(profile, bench, launches, where)


def _look_ahead(wanted: _Wanted, as_json: bool) -> int:
    """The pre-flight of all arms: 1 where one could not be launched."""
    profile = wanted.profile
    record = begin(profile, wanted.bench, wanted.launches, wanted.host)

    async def look() -> tuple[ArmAhead, ...]:
        async with group_session(record.all_hosts, all_of_them=True) as hosts:
            runner = ExperimentRunner(hosts, record, profile, wanted.launches)
            return await arms_ahead(runner.sites, say)

    arms = run_async(look())
    blocked = any(arm.blocking for arm in arms)
    if as_json:
        about = {"name": profile.name, "host": wanted.host, "bench": wanted.bench.name, "launches": len(record.cells)}
        emit({**about, "arms": [arm_json(arm) for arm in arms], "error": Slug.PREFLIGHT if blocked else None})
        return 1 if blocked else 0
    for arm in arms:
        words = "cannot be launched" if arm.blocking else "can be launched"
        print(f"{arm.letter} {one_line(arm.profile, 60)} on {', '.join(arm.hosts)}: {words}")
        for text in arm.blocking:
            print(f"  ✗ {text}")
        for finding in arm.findings:
            if finding.level is Level.WARN:
                print(f"  ▲ {finding}")
        if arm.plan is not None and not arm.blocking and arm.plan.replaces:
            print(f"  ■ stops first: {', '.join(f'{run.short_id} on {run.host}' for run in arm.plan.replaces)}")
    return 1 if blocked else 0


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
            self._news(
                "begun",
                f"{state.experiment_id} on {state.host}: {len(state.order)} launches, order {''.join(state.order)}; "
                f"on each {written.runs_words(state.bench)}",
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
        for verdict in state.verdicts:
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
        "launch=number arm pair status run=run_id bench_run=bench_run_id started=started_at ended=ended_at ready_after_s "
        "spent_s phase cause reason advice set=change results=result_ids"
    )
    return {
        **picked(
            record,
            "experiment=experiment_id name host hosts=all_hosts hypothesis=profile.hypothesis bench=bench.name pairs looks=profile.looks "
            "margin=profile.margin budget_h=profile.budget_h seed order verdicts outcome message notes started=started_at "
            "ended=ended_at",
        ),
        "arms": [picked(arm, arms) for arm in state.arms],
        "launches": [picked(cell, launches) for cell in record.cells],
        "results": [flat(result) for result in measured(record, known)],
        "error": None if _comparable(record) else "nothing_comparable",
    }
