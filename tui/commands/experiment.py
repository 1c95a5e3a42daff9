"""`eagletui experiment`: unattended; progress on stderr, the record on stdout at the end."""

import shlex
import time
from contextlib import aclosing
from pathlib import Path

import click

from tui import format as written
from tui.commands.measure import figure_words
from tui.commands.options import host_option, json_option, resume_option, seed_option
from tui.commands.output import emit, run_async, say
from tui.commands.sessions import raise_if_refused, session
from tui.core.config import default_host, profile_dirs
from tui.core.errors import EagletuiError, Slug, UsageError
from tui.core.experiment import record as experiment_record
from tui.core.experiment.runner import ExperimentRunner, begin, resumed
from tui.core.model.experiment import ArmState, ArmStatus, ExperimentState
from tui.core.model.profile import BenchProfile, ExperimentProfile
from tui.core.model.result import Result
from tui.core.model.verdict import VerdictKind
from tui.core.profiles.load import load_bench, load_experiment, load_launch
from tui.core.records import picked
from tui.core.results.flat import flat
from tui.core.text import one_line


class _Interrupted(EagletuiError):
    """Ctrl-C: what runs on the host keeps running."""

    slug = Slug.INTERRUPTED
    exit_code = 130


@click.command()
@click.argument("name")
@host_option
@resume_option
@seed_option
@json_option
@click.pass_obj
def command(directory: Path | None, name: str, host: str | None, resume: bool, seed: int | None, as_json: bool) -> int:
    """Launch, wait, measure, record, next: unattended; ends with verdicts.

    The exit code is 1 where nothing comparable was measured.
    """
    profile = load_experiment(name, profile_dirs(directory))
    runner = conduct(directory, profile, host, resume, seed, ("eagletui", "experiment", name))
    if as_json:
        emit(experiment_json(runner))
    else:
        for verdict in runner.record.verdicts:
            print(verdict.text)
    return 0 if _comparable(runner) else 1


def conduct(
    directory: Path | None,
    profile: ExperimentProfile,
    host: str | None,
    resume: bool,
    seed: int | None,
    words: tuple[str, ...],
) -> ExperimentRunner:
    """Runs an experiment, or what is left of it, to its end. `words` is the command that begins it."""
    dirs = profile_dirs(directory)
    bench = load_bench(profile.bench, dirs)
    launches = {arm.letter: load_launch(arm.profile, dirs, arm.sets) for arm in profile.arms}
    where = host or launches["A"].host or default_host()
    if directory is not None:
        words = ("eagletui", "--profiles", str(directory), *words[1:])
    again = one_line(shlex.join((*words, "--host", where, "--resume")))
    if (held := experiment_record.running(where)) is not None:
        raise experiment_record.busy(where, *held)
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
        record = resumed(earlier, profile, bench, launches)
    else:
        if earlier is not None:
            say(f"an unfinished one of {earlier.started_at} stays as it is; --resume would continue it")
        record = begin(profile, bench, launches, where, seed)

    async def run() -> ExperimentRunner:
        async with session(where) as opened:
            runner = ExperimentRunner(opened, record, profile, launches)
            narrator = _Narrator()
            async with aclosing(runner.states()) as states:
                async for state in states:
                    narrator.tell(state)
                    raise_if_refused(opened)
            return runner

    try:
        return run_async(run())
    except KeyboardInterrupt:
        raise _Interrupted(
            "interrupted; the server and the measurement on the host keep running", f"continue with: {again}"
        ) from None


def _comparable(runner: ExperimentRunner) -> bool:
    """Whether one comparison at least has figures of both sides."""
    return any(
        verdict.verdict is not VerdictKind.INVALID and verdict.ratio is not None for verdict in runner.record.verdicts
    )


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
    """The experiment record as `--json` prints it: arms, launches in their order, flat results, verdicts."""
    record, state = runner.record, runner.state()
    arms = "arm=letter profile set=sets against status launches=launches_done cause reason"
    launches = (
        "launch=number arm pair status run=run_id bench_run=bench_run_id started=started_at ended=ended_at ready_after_s "
        "spent_s phase cause reason advice set=change results=result_ids"
    )
    return {
        **picked(
            record,
            "experiment=experiment_id name host hypothesis=profile.hypothesis bench=bench.name pairs looks=profile.looks "
            "margin=profile.margin budget_h=profile.budget_h seed order verdicts outcome message started=started_at "
            "ended=ended_at",
        ),
        "arms": [picked(arm, arms) for arm in state.arms],
        "launches": [picked(cell, launches) for cell in record.cells],
        "results": [flat(result) for result in runner.results()],
        "error": None if _comparable(runner) else "nothing_comparable",
    }
