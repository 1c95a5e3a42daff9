"""Carries out what `decide` says: every launch is an experiment of one arm, the verdict one of two. Resumed like those."""

import asyncio
import json
import secrets
import statistics
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from tui.core.bench.workload import DEFAULT_INPUT_LEN, dataset_of
from tui.core.errors import Slug, UsageError
from tui.core.experiment import record as experiment_record
from tui.core.experiment.record import Cell, ExperimentRecord, configuration_sum
from tui.core.experiment.runner import ExperimentRunner, begin
from tui.core.experiment.state import usual_length_s
from tui.core.groups import planning
from tui.core.groups.session import GroupSession
from tui.core.model.experiment import ArmStatus, ExperimentState
from tui.core.model.profile import BenchProfile, ExperimentArm, ExperimentProfile, LoadPoint
from tui.core.model.result import Result
from tui.core.profiles.launch_profile import LaunchProfile
from tui.core.profiles.secrets import public_sets
from tui.core.runs.request import new_run_id
from tui.core.server import launch_records
from tui.core.server.earlier_starts import FRACTION, GRAPH_BATCH, canonical, ledger_of
from tui.core.server.forecast import forecast
from tui.core.text import as_number
from tui.core.tune import decide, ranges
from tui.core.tune import record as tune_record
from tui.core.tune.record import SPECULATION, Bounds, Draft, Phase, Status, Step, Taken, TuneRecord, sets_of
from tui.core.verdicts.metric import DEFAULT, METRICS, default_for

Load = Callable[[Mapping[str, object]], LaunchProfile]  # the profile with these overrides alone
_CHARACTERS_A_TOKEN = 3  # few, so that a prompt is taken as longer than it is
_SPECULATIVE_RUNNING = 48  # requests at once, to which SGLang lowers graphs too where nobody says otherwise
_PROBE_S = 1.0  # whether it serves, not how fast


@dataclass(frozen=True)
class TuneState:
    """A tune as it is: what is on record, the launch under way, and what would come next."""

    record: TuneRecord
    ahead: Step | decide.End | None = None  # None: a step is under way
    experiment: ExperimentState | None = None  # of the step under way
    paused: bool = False

    @property
    def finished(self) -> bool:
        return self.record.outcome != "running"


def begin_tune(
    launch: LaunchProfile,
    sets: Mapping[str, object],
    bench: BenchProfile,
    goal: str,
    host: str,
    budget_h: float | None = None,
    seed: int | None = None,
) -> TuneRecord:
    """The record of a tune that has not launched anything yet; `launch` has the overrides `sets`.

    Raises UsageError where the bench cannot measure the goal, or the profile is not one server with SGLang's flags.
    """
    _check(launch, bench, goal)
    args = canonical(launch.args)
    algorithm = args.get(SPECULATION[0])
    batch = args.get(GRAPH_BATCH)
    if type(batch) is int and algorithm and args.get("max-running-requests") is None:
        batch = min(batch, _SPECULATIVE_RUNNING)
    usual = planning.usual_start(launch, host, public_sets(sets))
    first, *others = bench.points
    workload = replace(bench, points=(first,))
    return TuneRecord(
        tune_id=new_run_id(f"tune-{launch.name}"),
        profile=launch.name,
        host=planning.home_of(launch, host),
        goal=goal,
        bench=workload,
        start=_draft_of(args) if algorithm else None,
        fraction=as_number(args.get(FRACTION)),
        batch=batch if type(batch) is int else None,
        algorithm=str(algorithm) if algorithm else None,
        longest_prompt=_longest(bench),
        seed=secrets.randbelow(1_000_000) if seed is None else seed,
        sets=public_sets(sets),
        configuration=configuration_sum(launch),
        budget_h=budget_h,
        bounds=bounds_of(launch, host),
        launch_s=usual_length_s(usual, workload) if usual is not None else None,
        started_at=_now(),
        loads=tuple(point.label for point in others),
    )


def resumed_tune(
    record: TuneRecord, launch: LaunchProfile, bench: BenchProfile, budget_h: float | None = None
) -> TuneRecord:
    """An unfinished tune, ready to continue; a budget that is given now counts.

    Raises UsageError (slug changed) where it would no longer tune the same.
    """
    changed = [record.profile] if configuration_sum(launch) != record.configuration else []
    changed += [bench.name] if _measures(bench) != _measures(record.bench) else []
    if changed:
        raise UsageError(
            f"the tune of {record.started_at} cannot go on, changed since: {', '.join(changed)}",
            "begin it again without --resume",
            slug=Slug.CHANGED,
        )
    return replace(
        record,
        budget_h=record.budget_h if budget_h is None else budget_h,
        outcome="running",
        ended_at=None,
        message=None,
    )


def _measures(bench: BenchProfile) -> BenchProfile:
    return replace(bench, points=bench.points[:1], description=None, hypothesis=None, known=None, path=None)


def _check(launch: LaunchProfile, bench: BenchProfile, goal: str) -> None:
    if launch.command or launch.group:
        raise UsageError(
            f"{launch.name} is not launched by flags of one server, which a tune changes",
            "tune a profile with [args] alone",
            slug=Slug.BAD_VALUE,
        )
    if goal == "goodput" and bench.search is None:
        raise UsageError(
            f"{bench.name} has no limits: goodput counts the replies within them",
            "take a bench with [slo], such as capacity-ttft-tpot",
            slug=Slug.BAD_VALUE,
        )
    if goal != "goodput" and bench.search is not None:
        raise UsageError(
            f"{bench.name} searches for a load; {goal} is measured at one",
            "take a bench with a concurrency",
            slug=Slug.BAD_VALUE,
        )
    if bench.dataset == "random-ids" and canonical(launch.args).get(SPECULATION[0]) and goal == "tok_s":
        raise UsageError(
            f"{bench.name} asks random token ids: a draft is made for text, so they say nothing about speculation",
            "take a workload with real prompts, such as speculation-real-prompts",
            slug=Slug.BAD_VALUE,
        )


def _draft_of(args: Mapping[str, object]) -> Draft:
    """What the flags say; SGLang's usual chain where they do not."""
    steps, topk, tokens = (value if type(value := args.get(name)) is int else None for name in SPECULATION[2:])
    steps = steps or 3
    return Draft(steps, topk or 1, tokens or steps + 1)


def _longest(bench: BenchProfile) -> int:
    """Tokens of the workload's longest prompt, rather more than less."""
    data = dataset_of(bench)
    if not data.items:
        return bench.input_len or DEFAULT_INPUT_LEN
    return max(
        len(item["input_ids"])
        if "input_ids" in item
        else len(json.dumps(item, ensure_ascii=False)) // _CHARACTERS_A_TOKEN
        for item in data.items
    )


def probe_of(record: TuneRecord) -> BenchProfile:
    """Whether a server serves the longest prompts of the workload, as many at once as it has users."""
    bench, point = record.bench, record.bench.points[0]
    users = point.concurrency or (int(bench.search.high) if bench.search and bench.search.kind == "concurrency" else 1)
    return BenchProfile(
        f"{bench.name}-longest",
        (LoadPoint(users),),
        dataset="random-ids",
        input_len=record.longest_prompt,
        output_len=min(64, bench.output_len),
        duration_s=_PROBE_S,
        runs=1,
    )


def bounds_of(launch: LaunchProfile, host: str) -> Bounds:
    """What the ledger of earlier starts on the host says now."""
    found = forecast(host, launch.args, launch_records.read_all())
    if found is None:
        return Bounds()
    can = found.workable
    return Bounds(can.fraction_least, can.fraction_most if can.measured else None, can.batch_most)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class TuneRunner:
    """Runs one tune. `states()` is what makes it go; the other methods may be called meanwhile."""

    def __init__(self, hosts: GroupSession, record: TuneRecord, load: Load, sets: Mapping[str, object]) -> None:
        """Nothing is launched yet. `record` is from `begin_tune` or `resumed_tune`, `sets` are its overrides unmasked."""
        self.record = record
        self._hosts, self._load, self._sets = hosts, load, dict(sets)
        self._going = asyncio.Event()
        self._going.set()
        self._stopping = False
        self._runner: ExperimentRunner | None = None

    async def states(self) -> AsyncGenerator[TuneState, None]:
        """Takes step after step and yields each change; the last state is finished.

        Closing it ends the running of it here; what runs on the host keeps running, and can be resumed.

        Raises as `ExperimentRunner.states`: a pre-flight that fails keeps the tune as it is, to be resumed.
        """
        with experiment_record.driving(self.record.tune_id):
            async with aclosing(self._steps()) as states:
                async for state in states:
                    yield state

    async def _steps(self) -> AsyncGenerator[TuneState, None]:
        self._keep(self.record)
        while True:
            yield self.state()
            await self._going.wait()
            last = self._last()
            ahead = decide.next_step(self.record) if last is None else None
            if self._stopping:
                ahead = decide.End("stopped", "stopped")
            if isinstance(ahead, decide.End):
                self._end(ahead)
                yield self.state()
                return
            taken = last if ahead is None else self._begun(ahead)
            assert taken is not None
            async with aclosing(self._carried_out(taken)) as states:
                async for state in states:
                    yield state

    def state(self) -> TuneState:
        ahead = decide.next_step(self.record) if self._last() is None and self.record.outcome == "running" else None
        return TuneState(self.record, ahead, None, not self._going.is_set())

    def pause(self) -> None:
        """Ends the launch under way with its measuring, then waits."""
        self._going.clear()

    def resume(self) -> None:
        self._going.set()

    def stop(self) -> None:
        """Ends it now: the measurement and the server that it launched are stopped. `--resume` resumes it."""
        self._stopping = True
        self._going.set()
        if self._runner is not None:
            self._runner.stop()

    def _last(self) -> Taken | None:
        """The step under way, or the one that a stop or a kill cut short."""
        last = self.record.steps[-1] if self.record.steps else None
        return last if last is not None and last.status is Status.RUNNING else None

    def _keep(self, record: TuneRecord) -> None:
        self.record = record
        tune_record.write(record)

    def _keep_experiment(self, made: ExperimentRecord) -> None:
        self._keep(replace(self.record, under_way=made))

    def _end(self, end: decide.End) -> None:
        self._keep(replace(self.record, outcome=end.outcome, message=end.message, ended_at=_now()))

    def _begun(self, step: Step) -> Taken:
        launches = decide.CONFIRM_LAUNCHES if step.phase is Phase.CONFIRM else 1
        taken = Taken(len(self.record.steps) + 1, step, launches=launches, started_at=_now())
        self._keep(self.record.with_step(taken))
        return taken

    async def _carried_out(self, taken: Taken) -> AsyncGenerator[TuneState, None]:
        """A step to its end, or to a stop."""
        runner = self._runner = self._runner_of(taken)
        self._keep(self.record.with_step(replace(taken, experiment_id=runner.record.experiment_id)))
        try:
            if self._stopping:
                runner.stop()
            async with aclosing(runner.states()) as states:
                async for state in states:
                    yield TuneState(self.record, None, state, not self._going.is_set())
        finally:
            self._runner = None
        taken = replace(self.record.steps[-1], spent_s=round(runner.record.spent_s, 1))
        if runner.record.outcome == "stopped":
            self._keep(self.record.with_step(taken))
            return
        taken = replace(self._ended(taken, runner), ended_at=_now())
        record = replace(self.record.with_step(taken), under_way=None)
        if taken.step.phase is Phase.RANGE:
            record = replace(record, bounds=bounds_of(self._load(self._sets_of(taken.step)), record.host))
        self._keep(record)

    # -- a step as an experiment ----------------------------------------------------------------------------------------

    def _runner_of(self, taken: Taken) -> ExperimentRunner:
        record, step = self.record, taken.step
        arms = [self._sets_of(step)]
        bench = record.bench
        if step.phase is Phase.CONFIRM:
            arms.insert(0, self._sets_of(self._start_of(step)))
        elif step.phase is Phase.RANGE:
            bench = probe_of(record)
        profile = self._experiment(arms, bench, step)
        launches = {arm.letter: self._load(arm.sets) for arm in profile.arms}
        write = experiment_record.write if step.phase is Phase.CONFIRM else self._keep_experiment
        known = experiment_record.read(taken.experiment_id or "") if step.phase is Phase.CONFIRM else record.under_way
        if known is not None and known.experiment_id == taken.experiment_id:
            made = replace(known, outcome="running", ended_at=None, message=None)
        else:
            made = begin(profile, bench, launches, record.host, record.seed + taken.number)
        return ExperimentRunner(self._hosts, made, profile, launches, write=write)

    def _sets_of(self, step: Step) -> dict[str, object]:
        return self._sets | sets_of(self.record, step)

    def _experiment(self, arms: list[dict[str, object]], bench: BenchProfile, step: Step) -> ExperimentProfile:
        record = self.record
        left_h = record.budget_h - record.spent_s / 3600 if record.budget_h is not None else None
        return ExperimentProfile(
            f"tune-{record.profile}",
            bench.name,
            tuple(
                ExperimentArm(letter, record.profile, sets, "A" if letter != "A" else None)
                for letter, sets in zip("AB", arms, strict=False)
            ),
            pairs=decide.PAIRS if len(arms) > 1 else 1,
            budget_h=left_h if len(arms) > 1 else None,
            hypothesis=f"{step.title}: {step.why}",
        )

    def _start_of(self, step: Step) -> Step:
        """The start: the profile as it is, or where its fraction does not start, with the one that was found."""
        known = ranges.found(self.record)
        own = self.record.fraction
        starts = own is not None and known.low is not None and known.high is not None and known.low <= own <= known.high
        return replace(step, fraction=own if starts else step.fraction, draft=self.record.start)

    def _ended(self, taken: Taken, runner: ExperimentRunner) -> Taken:
        """What came of a step."""
        if taken.step.phase is Phase.CONFIRM:
            said = "; ".join(verdict.text for verdict in runner.record.verdicts)
            launches = sum(cell.run_id is not None for cell in runner.record.cells)
            taken = replace(taken, launches=launches, result_ids=tuple(r.result_id for r in runner.results()))
            if not said:
                return replace(taken, status=Status.FAILED, cause="nothing_comparable", reason=runner.record.message)
            return replace(
                taken,
                status=Status.DONE,
                verdict=f"A is the start, B {taken.step.draft or 'without speculation'}: {said}",
            )
        (cell,) = runner.record.cells
        taken = replace(taken, run_id=cell.run_id, result_ids=cell.result_ids, ready_after_s=cell.ready_after_s)
        taken = _with_memory(taken)
        if cell.status is not ArmStatus.MEASURED:
            failed = replace(taken, status=Status.FAILED, phase=cell.phase)
            return replace(failed, cause=cell.cause or "unknown", reason=cell.reason)
        if taken.step.phase is Phase.RANGE:
            return _probed(taken, cell, runner.results())
        return _with_figures(taken, self.record, runner.results())


def _with_memory(taken: Taken) -> Taken:
    """With what the ledger of its launch says."""
    launched = launch_records.read(taken.run_id or "")
    rows = ledger_of(launched) if launched is not None else ()
    tokens = [row.kv_tokens for row in rows if row.kv_tokens is not None]
    free = [row.free_gib for row in rows if row.free_gib is not None]
    ready = taken.ready_after_s is not None
    return replace(taken, kv_tokens=min(tokens, default=None), free_gib=min(free, default=None) if ready else None)


def _probed(taken: Taken, cell: Cell, results: tuple[Result, ...]) -> Taken:
    """Whether the longest prompt was served: a server that answers with errors does not serve."""
    if results and all(result.counts.ok == 0 for result in results):
        reason = f"ready, but no request of {cell.run_id} was answered"
        return replace(taken, status=Status.FAILED, cause="not_served", reason=reason)
    return replace(taken, status=Status.DONE)


def _with_figures(taken: Taken, record: TuneRecord, results: tuple[Result, ...]) -> Taken:
    """The medians of the runs that count."""
    counting = [result for result in results if result.valid]
    spec = [result.speculation for result in counting if result.speculation is not None]
    failed = [guard.text for result in results for guard in result.failed_guards]
    return replace(
        taken,
        status=Status.DONE,
        runs=len(counting),
        reason=None if counting else "; ".join(dict.fromkeys(failed)) or "nothing was measured",
        value=_median(METRICS[goal_metric(record)].of(result) for result in counting),
        rate=_median(METRICS[DEFAULT].of(result) for result in counting),
        accept_length=_median(one.tau for one in spec),
        cycle_ms=_median(one.cycle_ms for one in spec),
    )


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def goal_metric(record: TuneRecord) -> str:
    """The metric of `compare` that the goal is."""
    if record.goal == "ttft":
        return "ttft_ms"
    return default_for(record.bench.points[0])
