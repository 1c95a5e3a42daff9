"""An experiment: launch, wait, measure, record, next; interleaved launches of each arm, unattended, resumed after a crash.

Everything is written down after every step (`experiment_record`), and servers and measurements run on the host by
themselves, so that whoever is killed in the middle loses nothing that was measured, and at most one launch. A launch
that fails is a result: its arm is out when the same would fail again, the others continue.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping
from contextlib import aclosing
from dataclasses import fields, replace
from datetime import UTC, datetime

from tui.core.bench import bench_run
from tui.core.bench.collect import Place
from tui.core.bench.workload import dataset_of
from tui.core.errors import EagletuiError, HostError, Slug, UsageError
from tui.core.experiment import elsewhere, launching
from tui.core.experiment import record as experiment_record
from tui.core.experiment.ahead import ArmAhead, arms_ahead, refused
from tui.core.experiment.failure import LaunchFailed
from tui.core.experiment.holding import Holding
from tui.core.experiment.launching import Launched, Site
from tui.core.experiment.lease import GpuLease
from tui.core.experiment.overrides import Overrides
from tui.core.experiment.record import Cell, ExperimentRecord
from tui.core.experiment.screening import cut_short, ending, further
from tui.core.experiment.so_far import look_decides, measured, verdicts_of, worth_repeating
from tui.core.experiment.state import (
    UnderWay,
    confirmation_s,
    knocked_out,
    launch_length_s,
    results_of,
    state_of,
    together_s,
)
from tui.core.groups import planning
from tui.core.groups.session import GroupSession
from tui.core.model.experiment import ArmStatus, ExperimentState
from tui.core.model.profile import REFERENCE, BenchProfile, ExperimentProfile, LoadPoint
from tui.core.model.result import Result
from tui.core.model.run import Run
from tui.core.profiles.launch_profile import LaunchProfile
from tui.core.profiles.secrets import public_sets
from tui.core.results import store
from tui.core.runs import leases
from tui.core.runs.request import new_run_id
from tui.core.text import one_line

_BETWEEN_STATES_S = 0.05  # a log that rushes by is no reason for a thousand states
_GIVE_BACK_S = 5.0
_REPEATS = 2  # of a bench none of whose runs count at a load


def begin(
    profile: ExperimentProfile,
    bench: BenchProfile,
    launches: Mapping[str, LaunchProfile],
    host: str,
    seed: int | None = None,
    overrides: Overrides | None = None,
) -> ExperimentRecord:
    """The record of an experiment that has not launched anything yet.

    Args:
        launches: by letter, with the arm's overrides.
        host: where a server goes that names none; of a first arm over several hosts, that where it is measured counts.
        seed: decides which arm begins, and the prompts; drawn without one.
        overrides: what the profile has of the asker, to be kept.

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
    record = ExperimentRecord(
        experiment_id=new_run_id(profile.name),
        host=host,
        profile=experiment_record.public_profile(profile),
        bench=bench,
        seed=seed,
        cells=(),
        configurations={letter: experiment_record.configuration_sum(launch) for letter, launch in launches.items()},
        started_at=_now(),
        hosts=tuple(dict.fromkeys(each for launch in launches.values() for each in planning.hosts_of(launch, host))),
        overrides=(overrides or Overrides()).public,
    )
    if record.halving:
        return record.with_round(rung=1)
    return replace(record, cells=experiment_record.all_rounds(profile.pairs, letters, seed))


def resumed(
    record: ExperimentRecord, profile: ExperimentProfile, bench: BenchProfile, launches: Mapping[str, LaunchProfile]
) -> ExperimentRecord:
    """The record of an unfinished experiment, ready to continue; budget and margin are as the profile has them now.

    Raises UsageError (slug changed) where it would no longer measure the same.
    """
    if changed := _changed(record, profile, bench, launches):
        raise UsageError(
            f"{profile.name} was begun at {record.started_at}, and has changed since: {', '.join(changed)}",
            "begin it again without --resume",
            slug=Slug.CHANGED,
        )
    budget = replace(record.profile, budget_h=profile.budget_h, margin=profile.margin)
    return replace(record, profile=budget, outcome="running", ended_at=None, message=None)


def _changed(
    record: ExperimentRecord, profile: ExperimentProfile, bench: BenchProfile, launches: Mapping[str, LaunchProfile]
) -> list[str]:
    """What is other than at the beginning, with both values where they are known."""
    then = {arm.letter: arm for arm in record.profile.arms}
    found = []
    for arm in profile.arms:
        if record.configurations.get(arm.letter) != experiment_record.configuration_sum(launches[arm.letter]):
            old = vars(then[arm.letter]) if arm.letter in then else {}
            sets = _differ(old.get("sets", {}), public_sets(arm.sets))
            found.append(f"arm {arm.letter}{sets or _differ(old, {'profile': arm.profile}, only=('profile',))}")
    if difference := _differ(_measures(record.bench), _measures(bench)):
        found.append(f"the bench {bench.name}{difference}")
    if set(record.configurations) != set(launches):
        found.append("the number of arms")
    if record.profile.pairs != profile.pairs:
        found.append(f"the number of pairs ({record.profile.pairs}, now {profile.pairs})")
    return found


def _differ(then: Mapping[str, object], now: Mapping[str, object], only: Iterable[str] | None = None) -> str:
    """` (x 1, now 2; y unset, now 3)`; "" where nothing differs."""
    names = [name for name in only or {**then, **now} if then.get(name) != now.get(name)]
    said = [f"{name} {_shown(then.get(name))}, now {_shown(now.get(name))}" for name in names]
    return f" ({one_line('; '.join(said), 300)})" if said else ""


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return " ".join(point.label if isinstance(point, LoadPoint) else str(point) for point in value)
    return "unset" if value is None else str(value)


def _measures(bench: BenchProfile) -> dict[str, object]:
    """A bench without its words."""
    return {
        name: value for name, value in vars(bench).items() if name not in ("description", "hypothesis", "known", "path")
    }


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def _until_one_ends(*works: Coroutine[None, None, None]) -> None:
    """Runs them beside each other until the first has ended, and ends the others. Raises what it raises."""
    tasks = [asyncio.create_task(each) for each in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            await task
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class ExperimentRunner:
    """Runs one experiment. `states()` is what makes it go; the other methods may be called meanwhile."""

    def __init__(
        self,
        hosts: GroupSession,
        record: ExperimentRecord,
        profile: ExperimentProfile,
        launches: Mapping[str, LaunchProfile],
        judge: Callable[[tuple[ArmAhead, ...]], None] = refused,
        write: Callable[[ExperimentRecord], None] = experiment_record.write,
    ) -> None:
        """Nothing is launched yet.

        Args:
            hosts: open sessions with `record.all_hosts`.
            record: from `begin` or `resumed`.
            profile: with the arms' real values, which the record doesn't keep.
            launches: by letter.
            judge: raises where the pre-flight of the arms is reason not to begin.
            write: stores the record after every step.

        Raises HostError where a session is missing, UsageError where one allocation is to be held for arms that differ.
        """
        self.record = record
        self._judge_ahead = judge
        self._write = write
        self.sites = {  # by letter
            arm.letter: Site.of(hosts, launches[arm.letter], dict(arm.sets), record.host) for arm in profile.arms
        }
        self._holding = Holding(record.experiment_id, self.sites)
        self._results = {one.result_id: one for one in store.read_all() if one.experiment == record.experiment_id}
        usual = planning.usual_start
        self._usual = {k: usual(one.profile, one.host, public_sets(one.sets)) for k, one in self.sites.items()}
        self._changed = asyncio.Event()
        self._changed.set()
        self._going = asyncio.Event()
        self._going.set()
        self._stopping = False
        self._last_launch = False  # the one under way is the last
        self._lease = GpuLease(hosts, record.experiment_id, f"experiment {record.name}", self.sites.values())
        self._message: str | None = None
        self._task: asyncio.Task[None] | None = None  # the launch under way
        self._now: UnderWay | None = None

    async def states(self) -> AsyncGenerator[ExperimentState, None]:
        """Runs what is left and yields each change; the last state is finished.

        Closing it ends the running of it here; what runs on the host keeps running, and can be resumed.

        Raises:
            ArmsRefused, or what else `judge` raises: nothing was launched, and nothing is kept of it.
            Held: another experiment has one of its GPUs on one of the hosts; nothing was launched.
            EagletuiError: another process of this machine runs this one, or a file cannot be written.
            HostError: a host cannot be used, or its session was closed.
        """
        with experiment_record.driving(self.record.experiment_id):
            work = asyncio.create_task(self._driven())
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

    def stop_after_launch(self) -> None:
        """Ends it when the launch under way is measured. `--resume` resumes it."""
        self._last_launch = True
        self._tell("stops after this launch")
        self._going.set()

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
        record = replace(self.record, outcome="running", ended_at=None, message=None)
        if record.halving and record.finalist is None:
            raise UsageError(
                f"the screening of {record.name} has chosen no arm yet",
                "add pairs to its confirmation",
                slug=Slug.NOT_READY,
            )
        for _ in range(count):
            record = record.with_round({REFERENCE, record.finalist} if record.finalist else None)
        self._keep(record)

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
        kept = (confirmation_s(self.record, self._usual) or 0.0) if cell.rung is not None else 0.0
        return (
            self.record.spent_s + together_s(self.record, cell, self._usual) + kept
            > self.record.profile.budget_h * 3600
        )

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
        ahead = {letter for letter in ahead if knocked_out(self.record, letter) is None}
        left = {letter: site for letter, site in self.sites.items() if letter in ahead}
        self._judge_ahead(await arms_ahead(left, self._tell))
        self._tell(None)

    async def _driven(self) -> None:
        """All of the work under its lease, and heard meanwhile by whoever looks from another process."""
        leases.holding.set(self.record.experiment_id)
        stops = {elsewhere.Stop.NOW: self.stop, elsewhere.Stop.AFTER_LAUNCH: self.stop_after_launch}
        served = elsewhere.serve(self.record.experiment_id, lambda: self._now, self.state, stops)
        await _until_one_ends(self._work(), self._lease.keep(), served)

    async def _work(self) -> None:
        async with self._holding.kept():
            try:
                if not self._stopping:
                    took = await self._lease.take(self._tell)
                    self.record = replace(self.record, notes=(*self.record.notes, *took))
                    await self._look_ahead()
            except BaseException:
                if experiment_record.read(self.record.experiment_id) is None:  # nothing is there to be resumed
                    async with asyncio.timeout(_GIVE_BACK_S):
                        await self._lease.give_back()
                raise
            self._keep(self.record)
            await self._launch_all()
            await self._lease.give_back()

    async def _launch_all(self) -> None:
        while (cell := await self._next()) is not None:
            if not self._going.is_set():
                self._tell("paused")
                await self._going.wait()
            if self._stopping or (self._last_launch and cell.run_id is None):
                if cell.run_id is not None:  # what an earlier driver left
                    await self._take_back(cell.number)
                break
            if (failed := knocked_out(self.record, cell.arm)) is not None:
                why = f"launch {failed.number} of this arm failed, the cause would be the same"
                skipped = replace(cell, status=ArmStatus.SKIPPED, cause=failed.cause, reason=why)
                self._keep(self.record.with_cell(skipped))
                continue
            done = sum(cell.over for cell in self.record.cells)
            if cell.run_id is None and cell.rung is not None and self._over_budget(cell):
                self._keep(cut_short(self.record))
                continue
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
        self._stopping = self._last_launch = False
        if cell is not None:
            await self._end("stopped", "stopped")
            return
        if self.record.halving:  # what its last rung decided
            await self._judge(over=True)
        await self._end("done", ending(self.record))

    async def _next(self) -> Cell | None:
        """The next launch; where all are made, the first of those that follow from them."""
        while True:
            cell = next((cell for cell in self.record.cells if not cell.over), None)
            if cell is not None or self._stopping:
                return cell
            if (step := await asyncio.to_thread(further, self.record, self._results)) is None:
                return None
            self._tell(step.said)
            self._keep(step.record)

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
            await self._take_back(number)
        finally:
            self._task = self._now = None
            self._tell(None)

    async def _take_back(self, number: int) -> None:
        """Stops what a launch has running on the host; where it was not measured to its end, it has to be made again."""
        cell = self._cell(number)
        await launching.end(self.sites[cell.arm], (cell.bench_run_id, cell.run_id), self._tell)
        complete = replace(cell, status=ArmStatus.MEASURED, ended_at=_now())
        self._keep_cell(complete if self._complete(cell) else cell.again)

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
        await launching.end(self.sites[cell.arm], (cell.run_id,), self._tell)
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
        return self._keep_cell(cell.again), None

    async def _launch(self, cell: Cell) -> tuple[Cell, Launched]:
        site = self.sites[cell.arm]
        run_id = new_run_id(site.profile.name)
        cell = replace(cell, status=ArmStatus.LAUNCHING, run_id=run_id, started_at=_now())
        cell = self._keep_cell(cell)
        left = [other for other in self.record.cells[cell.number - 1 :] if not other.over]
        ahead_s = {other.number: launch_length_s(self.record, other.arm, self._usual) or 0.0 for other in left}
        site = await self._holding.room_for(site, ahead_s, together_s(self.record, cell, self._usual), self._tell)
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
            generator = await launching.begun(site, run, start, self._tell)
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
            raise LaunchFailed(await launching.reason_of(site, run, error, self._tell)) from None
        return cell

    def _measured(self, cell: Cell, result: Result) -> Cell:
        self._results[result.result_id] = result
        known = dict.fromkeys((*cell.result_ids, result.result_id))
        return self._keep_cell(replace(cell, result_ids=tuple(known)))

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
