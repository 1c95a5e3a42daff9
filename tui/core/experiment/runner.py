"""An experiment: launch, wait, measure, record, next; interleaved launches of each arm, unattended, resumed after a crash.

Everything is written down after every step (`experiment_record`), and servers and measurements run on the host by
themselves, so that whoever is killed in the middle loses nothing that was measured, and at most one launch. A launch
that fails is a result: its arm is out when the same would fail again, the others continue.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import fields, replace
from datetime import UTC, datetime

from tui.core.bench import bench_run
from tui.core.bench.collect import Place
from tui.core.bench.workload import dataset_of
from tui.core.errors import EagletuiError, HostError, Slug, UsageError
from tui.core.experiment import launching
from tui.core.experiment import record as experiment_record
from tui.core.experiment.ahead import arms_ahead, refused
from tui.core.experiment.failure import Failure, LaunchFailed
from tui.core.experiment.holding import Holding
from tui.core.experiment.launching import Launched, Site
from tui.core.experiment.record import Cell, ExperimentRecord
from tui.core.experiment.so_far import look_decides, measured, to_make_up, verdicts_of, worth_repeating
from tui.core.experiment.state import UnderWay, knocked_out, launch_length_s, results_of, state_of
from tui.core.groups import planning
from tui.core.groups.session import GroupSession
from tui.core.model.experiment import ArmStatus, ExperimentState
from tui.core.model.profile import BenchProfile, ExperimentProfile
from tui.core.model.result import Result
from tui.core.model.run import Run
from tui.core.profiles.launch_profile import LaunchProfile
from tui.core.profiles.secrets import public_sets
from tui.core.results import store
from tui.core.runs.request import new_run_id

_BETWEEN_STATES_S = 0.05  # a log that rushes by is no reason for a thousand states
_DEATH_S = 20.0  # within which the log of a server says why its client lost it
_LOOKS = 5  # at a server that was ready and is not seen to be
_REPEATS = 2  # of a bench none of whose runs count at a load


def begin(
    profile: ExperimentProfile,
    bench: BenchProfile,
    launches: Mapping[str, LaunchProfile],
    host: str,
    seed: int | None = None,
) -> ExperimentRecord:
    """The record of an experiment that has not launched anything yet.

    Args:
        launches: by letter, with the arm's overrides.
        host: where a server goes that names none; of a first arm over several hosts, that where it is measured counts.
        seed: decides which arm begins, and the prompts; drawn without one.

    Raises UsageError where an experiment cannot measure with the bench.
    """
    if bench.driver != "eagletui":
        raise UsageError(
            f"{bench.name} measures with driver {bench.driver}; an experiment measures with eagletui's own",
            'set driver = "eagletui" in it',
            slug=Slug.WRONG_DRIVER,
        )
    host = planning.home_of(next(iter(launches.values())), host)
    dataset_of(bench)  # a file that is not there is said now, not when the first server is ready
    seed = secrets.randbelow(1_000_000) if seed is None else seed
    letters = [arm.letter for arm in profile.arms]
    return ExperimentRecord(
        experiment_id=new_run_id(profile.name),
        host=host,
        profile=experiment_record.public_profile(profile),
        bench=bench,
        seed=seed,
        cells=experiment_record.all_rounds(profile.pairs, letters, seed),
        configurations={letter: experiment_record.configuration_sum(launch) for letter, launch in launches.items()},
        started_at=_now(),
        hosts=tuple(dict.fromkeys(each for launch in launches.values() for each in planning.hosts_of(launch, host))),
    )


def resumed(
    record: ExperimentRecord, profile: ExperimentProfile, bench: BenchProfile, launches: Mapping[str, LaunchProfile]
) -> ExperimentRecord:
    """The record of an unfinished experiment, ready to continue; budget and margin are as the profile has them now.

    Raises UsageError (slug changed) where it would no longer measure the same.
    """
    changed = [
        f"arm {letter}"
        for letter, launch in launches.items()
        if record.configurations.get(letter) != experiment_record.configuration_sum(launch)
    ]
    if _measures(record.bench) != _measures(bench):
        changed.append(f"the bench {bench.name}")
    if set(record.configurations) != set(launches):
        changed.append("the number of arms")
    if changed:
        raise UsageError(
            f"{profile.name} was begun at {record.started_at}, and has changed since: {', '.join(changed)}",
            "begin it again without --resume",
            slug=Slug.CHANGED,
        )
    budget = replace(record.profile, budget_h=profile.budget_h, margin=profile.margin)
    return replace(record, profile=budget, outcome="running", ended_at=None, message=None)


def _measures(bench: BenchProfile) -> BenchProfile:
    """A bench without its words."""
    return replace(bench, description=None, hypothesis=None, known=None, path=None)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class ExperimentRunner:
    """Runs one experiment. `states()` is what makes it go; the other methods may be called meanwhile."""

    def __init__(
        self,
        hosts: GroupSession,
        record: ExperimentRecord,
        profile: ExperimentProfile,
        launches: Mapping[str, LaunchProfile],
        write: Callable[[ExperimentRecord], None] = experiment_record.write,
    ) -> None:
        """Nothing is launched yet.

        Args:
            hosts: open sessions with `record.all_hosts`.
            record: from `begin` or `resumed`.
            profile: with the arms' real values, which the record doesn't keep.
            launches: by letter.
            write: stores the record after every step.

        Raises HostError where a session is missing, UsageError where one allocation is to be held for arms that differ.
        """
        self.record = record
        self._write = write
        self.sites = {  # by letter
            arm.letter: Site.of(hosts, launches[arm.letter], dict(arm.sets), record.host) for arm in profile.arms
        }
        self._holding = Holding(record.experiment_id, self.sites)
        self._results = {
            result.result_id: result for result in store.read_all() if result.experiment == record.experiment_id
        }
        self._usual = {
            letter: planning.usual_start(site.profile, site.host, public_sets(site.sets))
            for letter, site in self.sites.items()
        }
        self._changed = asyncio.Event()
        self._changed.set()
        self._going = asyncio.Event()
        self._going.set()
        self._stopping = False
        self._message: str | None = None
        self._task: asyncio.Task[None] | None = None  # the launch under way
        self._now: UnderWay | None = None

    async def states(self) -> AsyncGenerator[ExperimentState, None]:
        """Runs what is left and yields each change; the last state is finished.

        Closing it ends the running of it here; what runs on the host keeps running, and can be resumed.

        Raises:
            ArmsRefused: the pre-flight of an arm fails; nothing was launched, and nothing is kept of it.
            EagletuiError: another process runs an experiment on one of the hosts, or a file cannot be written.
            HostError: a host cannot be used, or its session was closed.
        """
        with experiment_record.only_one_of(self.record.all_hosts, self.record.experiment_id):
            work = asyncio.create_task(self._work())
            work.add_done_callback(lambda _: self._changed.set())
            try:
                while True:
                    await self._changed.wait()
                    self._changed.clear()
                    ended = work.done()
                    if ended:
                        await work
                    yield self.state()
                    if ended:
                        return
                    await asyncio.sleep(_BETWEEN_STATES_S)
            finally:
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)

    def pause(self) -> None:
        """Finishes the launch under way with all its measuring, frees the GPUs, then waits."""
        self._going.clear()
        self._changed.set()

    def resume(self) -> None:
        self._going.set()
        self._changed.set()

    def stop(self) -> None:
        """Ends it now: the measurement and the server that it launched are stopped. `--resume` resumes it."""
        self._stopping = True
        self._going.set()
        if self._task is not None:
            self._task.cancel()

    def more_pairs(self, count: int = 1) -> None:
        """Adds launch pairs at the end; after the end, `states()` is to be read again.

        Raises UsageError where the profile fixes when to look.
        """
        if self.record.profile.looks:
            raise UsageError(
                f"{self.record.name} looks at {', '.join(map(str, self.record.profile.looks))} pairs; more would not be "
                "the test that was planned",
                "begin a new one",
                slug=Slug.LOOKS,
            )
        record = self.record
        for _ in range(count):
            record = record.with_round()
        self._keep(replace(record, outcome="running", ended_at=None, message=None))

    def state(self) -> ExperimentState:
        return state_of(
            self.record, self._results, self._now, self._usual, paused=not self._going.is_set(), message=self._message
        )

    def results(self) -> tuple[Result, ...]:
        """Of all launches that were measured to their end, in the order of the launches."""
        return measured(self.record, self._results)

    def _over_budget(self, cell: Cell) -> bool:
        """Whether this launch would exceed the budget, or at the beginning of a pair, the pair would."""
        if self.record.profile.budget_h is None:
            return False
        return self.record.spent_s + self._together_s(cell) > self.record.profile.budget_h * 3600

    def _together_s(self, cell: Cell) -> float:
        """What this launch takes, at the beginning of a pair what the pair does."""
        earlier = self.record.cells[: cell.number - 1]
        begins = not any(other.pair == cell.pair and other.status is ArmStatus.MEASURED for other in earlier)
        ahead = [
            other
            for other in self.record.cells
            if other.pair == cell.pair
            and not other.over
            and (begins or other.number == cell.number)
            and knocked_out(self.record, other.arm) is None
        ]
        return sum(launch_length_s(self.record, other.arm, self._usual) or 0.0 for other in ahead)

    def _tell(self, message: str | None) -> None:
        self._message = message
        self._changed.set()

    def _see(self, **changes: object) -> None:
        if self._now is not None:
            self._now = replace(self._now, **changes)  # type: ignore[arg-type]
        self._changed.set()

    def _keep(self, record: ExperimentRecord) -> None:
        self.record = record
        self._write(record)
        self._changed.set()

    def _cell(self, number: int) -> Cell:
        return self.record.cells[number - 1]

    def _keep_cell(self, cell: Cell) -> Cell:
        if self._now is not None:
            cell = replace(cell, spent_s=round(time.monotonic() - self._now.began, 1))
        self._keep(self.record.with_cell(cell))
        return cell

    async def _end(self, outcome: str, message: str) -> None:
        await self._holding.release(self._tell)
        self._keep(replace(self.record, outcome=outcome, message=message, ended_at=_now()))

    async def _look_ahead(self) -> None:
        """The pre-flight of every arm that will be launched, before the first is measured. Raises ArmsRefused."""
        ahead = {cell.arm for cell in self.record.cells if not cell.over and cell.run_id is None}
        left = {letter: site for letter, site in self.sites.items() if letter in ahead}
        refused(await arms_ahead({k: v for k, v in left.items() if knocked_out(self.record, k) is None}, self._tell))
        self._tell(None)

    async def _work(self) -> None:
        async with self._holding.kept():
            await self._all_launches()

    async def _all_launches(self) -> None:
        await self._look_ahead()
        self._keep(self.record)
        while (cell := self._next()) is not None:
            if not self._going.is_set():
                self._tell("paused")
                await self._going.wait()
            if self._stopping:
                break
            if (failed := knocked_out(self.record, cell.arm)) is not None:
                why = f"launch {failed.number} of this arm failed, the cause would be the same"
                skipped = replace(cell, status=ArmStatus.SKIPPED, cause=failed.cause, reason=why)
                self._keep(self.record.with_cell(skipped))
                continue
            done = sum(cell.over for cell in self.record.cells)
            if cell.run_id is None and self._over_budget(cell):
                hours = self.record.profile.budget_h or 0.0
                await self._judge(over=True)
                await self._end(
                    "budget",
                    f"the budget of {hours:g} h leaves no room for more after {done} of {len(self.record.cells)} launches",
                )
                return
            await self._cell_or_stop(cell.number)
            if self._stopping:
                break
            await self._judge()
            if look_decides(self.record):
                await self._end("early", f"decided after {cell.pair} pairs")
                return
        if self._stopping:
            self._stopping = False
            await self._end("stopped", "stopped")
        else:
            await self._end("done", "done")

    def _next(self) -> Cell | None:
        """The next launch; where all are made, of a round that makes up for what was lost by chance."""
        made = all(cell.over for cell in self.record.cells) and not self._stopping
        if made and (arms := to_make_up(self.record, self._results)):
            self._tell(f"one more round of {' and '.join(sorted(arms))} for a pair that does not count")
            self._keep(self.record.with_round(arms))
        return next((cell for cell in self.record.cells if not cell.over), None)

    async def _cell_or_stop(self, number: int) -> None:
        """One launch to its end, or to a stop; then its server and measurement are stopped too."""
        self._now = UnderWay(number, time.monotonic() - self._cell(number).spent_s)
        self._task = asyncio.create_task(self._launch_and_measure(number))
        try:
            await self._task
        except asyncio.CancelledError:
            if not self._stopping:
                raise
            self._task = None
            self._see(live=None)
            cell = self._cell(number)
            site = self.sites[cell.arm]
            for run_id in (cell.bench_run_id, cell.run_id):
                if run_id and (run := await launching.find_server(site, run_id, self._tell)):
                    await launching.stop(site, run, self._tell)
            complete = replace(cell, status=ArmStatus.MEASURED, ended_at=_now())
            self._keep_cell(complete if self._complete(cell) else self._blank(cell))
        finally:
            self._task = self._now = None
            self._tell(None)

    def _blank(self, cell: Cell) -> Cell:
        """A launch that has to be made again; what it spent stays spent."""
        return Cell(cell.number, cell.arm, cell.pair, spent_s=cell.spent_s)

    async def _launch_and_measure(self, number: int) -> None:
        cell, run = self._cell(number), None
        if cell.run_id is not None:
            cell, run = await self._found_again(cell)
        failure = None
        try:
            if run is None and not self._complete(cell):
                cell, run = await self._launch(cell)
            if run is not None and not self._complete(cell):
                cell = await self._until_ready(cell, run)
                cell = await self._measure(cell, run)
                for _ in range(_REPEATS):
                    if not worth_repeating(self.record.bench, self._results_of(cell)):
                        break
                    self._tell("no run counts at one of the loads: measured once more")
                    cell = await self._measure(replace(cell, bench_run_id=None), run)
        except LaunchFailed as failed:
            failure, cell = failed.failure, self._cell(number)
        self._see(live=None)
        site = self.sites[cell.arm]
        if cell.run_id is not None and (run := await launching.find_server(site, cell.run_id, self._tell)):
            await launching.stop(site, run, self._tell)
        changes: dict[str, object] = {"status": ArmStatus.MEASURED}
        if failure is not None:
            changes = {name.name: getattr(failure, name.name) for name in fields(failure)}
            changes["status"] = ArmStatus.FAILED
        self._keep_cell(replace(cell, ended_at=_now(), **changes))  # type: ignore[arg-type]
        self._now = None

    async def _found_again(self, cell: Cell) -> tuple[Cell, Launched | None]:
        """A launch that somebody was killed over: its server, where that still runs, and what was measured meanwhile."""
        site = self.sites[cell.arm]
        run = await launching.find_server(site, cell.run_id or "", self._tell)
        if cell.bench_run_id is not None:
            cell = await self._collect(cell)
        if self._complete(cell) or (run is not None and run.active and run.stop is None):
            return cell, run
        if run is not None:
            await launching.stop(site, run, self._tell)
        return self._keep_cell(self._blank(cell)), None

    async def _launch(self, cell: Cell) -> tuple[Cell, Launched]:
        site = self.sites[cell.arm]
        run_id = new_run_id(site.profile.name)
        cell = replace(cell, status=ArmStatus.LAUNCHING, run_id=run_id, started_at=_now())
        cell = self._keep_cell(cell)
        left = [other for other in self.record.cells[cell.number - 1 :] if not other.over]
        ahead_s = {other.number: launch_length_s(self.record, other.arm, self._usual) or 0.0 for other in left}
        site = await self._holding.room_for(site, ahead_s, self._together_s(cell), self._tell)
        return cell, await launching.start(site, run_id, self._tell)

    async def _until_ready(self, cell: Cell, run: Launched) -> Cell:
        async with aclosing(launching.until_ready(self.sites[cell.arm], run)) as states:
            async for state in states:
                self._see(phase=state.phase, eta_s=state.eta_s)
                self._tell(state.told)
                cell = replace(cell, ready_after_s=state.ready_after_s)
        self._see(eta_s=None)
        return self._keep_cell(cell)

    def _complete(self, cell: Cell) -> bool:
        """Whether the last measurement of a launch came to its end."""
        if cell.bench_run_id is None:
            return False
        found = [result for result in self._results_of(cell) if result.bench_run_id == cell.bench_run_id]
        bench = self.record.bench  # the loads of a search are no end of it
        return sum(result.point in bench.points for result in found) >= len(bench.points) * bench.runs

    def _results_of(self, cell: Cell) -> tuple[Result, ...]:
        return results_of((cell,), self._results)

    async def _measure(self, cell: Cell, run: Launched) -> Cell:
        """All runs of the bench on a server that is ready; raises LaunchFailed where they do not come to their end."""
        record, site = self.record, self.sites[cell.arm]
        others = site.groups.sessions
        bench_run_id = cell.bench_run_id or new_run_id(record.bench.name)
        cell = self._keep_cell(replace(cell, status=ArmStatus.RUNNING, bench_run_id=bench_run_id))

        async def start() -> Run:
            return await bench_run.start(
                site.home,
                record.bench,
                await launching.target_of(site, run),
                run_id=bench_run_id,
                seed=record.seed + cell.pair,
                place=Place(record.experiment_id, cell.arm, cell.number, cell.pair),
                others=others,
            )

        try:
            generator = await self._begun(site, run, start)
            async with aclosing(bench_run.follow_run(site.home, generator, others)) as events:
                async for event in events:
                    self._tell(None)
                    if isinstance(event, Result):
                        cell = self._measured(cell, event)
                    else:
                        self._see(live=event)
        except HostError:
            raise
        except EagletuiError as error:
            raise LaunchFailed(await self._reason_of(site, run, error)) from None
        return cell

    async def _begun(self, site: Site, run: Launched, start: Callable[[], Awaitable[Run]]) -> Run:
        """The generator's run; on a busy host it may take several looks to see that the server is ready."""
        for look in range(_LOOKS):
            try:
                return await site.patiently(start, self._tell)
            except EagletuiError as error:
                last = look + 1 == _LOOKS
                if error.slug != Slug.NOT_READY or last or await launching.died(site, run, self._tell):
                    raise
                self._tell(error.message)
        raise AssertionError("unreachable")

    def _measured(self, cell: Cell, result: Result) -> Cell:
        self._results[result.result_id] = result
        known = dict.fromkeys((*cell.result_ids, result.result_id))
        return self._keep_cell(replace(cell, result_ids=tuple(known)))

    async def _reason_of(self, site: Site, run: Launched, error: EagletuiError) -> Failure:
        """Why a measurement failed: the server's own end says more than its client's view of it."""
        patience_s = _DEATH_S if error.slug in (Slug.SERVER_LOST, Slug.UNREACHABLE) else 0.0
        death = await launching.died(site, run, self._tell, patience_s)
        return death or Failure(error.slug, error.message, advice=(str(error.hint),) if error.hint else ())

    async def _collect(self, cell: Cell) -> Cell:
        """What a measurement has left that nobody followed to its end; one that did not get there is begun again."""
        site = self.sites[cell.arm]
        generator = await launching.find(site, cell.bench_run_id or "", self._tell)
        if generator is None or generator.active:
            return cell  # it never began, or still runs and will be followed
        for result in await bench_run.collect(site.home, generator, site.groups.sessions):
            cell = self._measured(cell, result)
        return cell if self._complete(cell) else replace(cell, bench_run_id=None, result_ids=())

    async def _judge(self, *, over: bool = False) -> None:
        # All stored results are looked at, and a power may be simulated: the screen stays alive meanwhile.
        verdicts = await asyncio.to_thread(verdicts_of, self.record, self._results, over=over)
        self._keep(replace(self.record, verdicts=verdicts))
