"""What the panel measures: at most one thing at a time, kept up by a worker of the host, shown through the board."""

import asyncio
import contextlib
import os
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING

from tui.core.errors import EagletuiError, HostError, Slug, UsageError
from tui.core.model.group import group_of
from tui.core.text import one_line
from tui.panel.connection import Connection
from tui.panel.open_host import OpenHost

if TYPE_CHECKING:
    from pathlib import Path

    from tui.core.experiment.ahead import ArmAhead
    from tui.core.experiment.history import Configuration
    from tui.core.experiment.overrides import Overrides
    from tui.core.experiment.runner import ExperimentRunner
    from tui.core.groups.session import GroupSession
    from tui.core.model.experiment import ExperimentState
    from tui.core.model.profile import BenchProfile
    from tui.core.model.run import Run
    from tui.panel.bench_view import Preview

_GROUP = "measure"
_LETS_GO_S = 20.0  # in which a driver that was cancelled lets go of its experiment


class Measuring:
    """Starts, steers and ends measurements on a host."""

    def __init__(
        self,
        host: OpenHost,
        connection: Connection,
        profile_dirs: "Callable[[], list[Path]]",
        reach: "Callable[[Sequence[str]], Awaitable[GroupSession]]",
        happened: Callable[[], None],
    ) -> None:
        """Measures nothing yet.

        Args:
            reach: opens several hosts, those that are not open among them.
            happened: called when something was measured, or an experiment went on.
        """
        self._happened = happened
        self._host = host
        self._connection = connection
        self._profile_dirs = profile_dirs
        self._reach = reach
        self._runner: ExperimentRunner | None = None
        self._busy = False  # a worker of ours measures, or is about to
        self._held: str | None = None  # by a tune: what becomes of it when the panel is quit
        self._seen: set[str] = set()  # measurements that were followed once
        self.last_bench: str | None = None  # name of the bench profile that was measured last

    @property
    def under_way(self) -> bool:
        """True while something is measured, or launched to be measured."""
        return self._busy or self._held is not None or self._unfinished is not None

    @contextlib.contextmanager
    def held(self, farewell: str) -> Iterator[None]:
        """Nothing else is measured here meanwhile; `farewell` says what becomes of it when the panel is quit."""
        self._held = farewell
        try:
            yield
        finally:
            self._held = None

    @property
    def _unfinished(self) -> "ExperimentState | None":
        state = self._host.board.experiment
        return None if state is None or state.finished else state

    # -- before a measurement --------------------------------------------------------------------------------------

    async def preview(
        self, name: str, overrides: "Overrides | None" = None, before: "Preview | None" = None
    ) -> "Preview":
        """An experiment with all that it names, and what it will do; `before`: shown until now. Raises EagletuiError."""
        return await asyncio.to_thread(self._preview, name, overrides, before)

    def _preview(self, name: str, overrides: "Overrides | None", before: "Preview | None") -> "Preview":
        from tui.core.experiment import record as experiment_record
        from tui.core.experiment.plan import known_of, plan
        from tui.core.experiment.runner import begin
        from tui.core.experiment.wanted import wanted
        from tui.panel.bench_view import Preview

        here = self._host.board.host
        asked = wanted(name, self._profile_dirs(), here, here, overrides)
        seed = before.record.seed if before is not None else None
        record = begin(asked.profile, asked.bench, asked.launches, asked.host, seed, asked.overrides)
        known = known_of(asked)
        same = before is not None and before.wanted.launches == asked.launches
        ahead = before.ahead if before is not None and same else None
        unfinished = experiment_record.unfinished(name, asked.host)
        return Preview(asked, record, known, plan(asked, record, known, ahead or ()), ahead, unfinished)

    async def look_ahead(self, preview: "Preview") -> "Preview":
        """With the pre-flight of its arms; hosts that are not open are opened. Raises EagletuiError."""
        from tui.core.experiment.ahead import arms_ahead
        from tui.core.experiment.launching import Site
        from tui.core.experiment.plan import plan

        asked, record = preview.wanted, preview.record
        hosts = await self._reach(record.all_hosts)
        sites = {
            arm.letter: Site.of(hosts, asked.launches[arm.letter], dict(arm.sets), record.host)
            for arm in asked.profile.arms
        }
        ahead = await arms_ahead(sites, lambda _: None)
        return replace(preview, ahead=ahead, plan=plan(asked, record, preview.known, ahead))

    # -- measuring -------------------------------------------------------------------------------------------------

    def start_experiment(self, preview: "Preview", *, resume: bool = False, more_pairs: int = 0) -> None:
        """Launches and measures alternately; `resume` continues the unfinished one."""
        self._host.background(_GROUP, self._experiment, preview, resume, more_pairs)

    async def _experiment(self, preview: "Preview", resume: bool, more_pairs: int) -> None:
        from tui.core.experiment.ahead import refused
        from tui.core.experiment.plan import refused_plan
        from tui.core.experiment.runner import ExperimentRunner, begin, resumed

        unfinished = preview.unfinished if resume else None
        judge: Callable[[tuple[ArmAhead, ...]], None] = refused
        if unfinished is not None:
            asked = (await self.preview(unfinished.name, unfinished.overrides)).wanted
            record = resumed(unfinished, asked.profile, asked.bench, asked.launches)
        else:
            asked, seed = preview.wanted, preview.record.seed
            record = begin(asked.profile, asked.bench, asked.launches, asked.host, seed, asked.overrides)
            judge = refused_plan(asked, record)
        hosts = await self._reach(record.all_hosts)
        runner = ExperimentRunner(hosts, record, asked.profile, asked.launches, judge)
        if more_pairs:
            runner.more_pairs(more_pairs)
        self._runner = runner
        try:
            await self._follow(runner.states())
        finally:
            self._runner = None

    def start_bench(self, bench: "BenchProfile") -> None:
        """Measures the displayed server, which is ready."""
        self._host.background(_GROUP, self._bench, bench)

    async def _bench(self, bench: "BenchProfile") -> None:
        from tui.core.bench import target
        from tui.core.experiment.one_bench import measure_running

        session, run = self._connection.session(), self._host.board.run
        if run is None:
            raise UsageError("no server is displayed", "l launches one")
        group = group_of(run.extra)
        hosts = await self._reach(group.hosts if group is not None else [self._host.board.host])
        state = self._host.board.group_state  # which the panel watches anyway
        measured = target.of_state(group, state) if group is not None else target.of_run(run)
        self.last_bench = bench.name
        await self._follow(measure_running(session, bench, measured, hosts.sessions))

    def resume_following(self) -> None:
        """Follows a measurement of this host that runs without us: begun before this panel, or elsewhere."""
        host = self._host
        if self.under_way:
            return
        for experiment_id in self._driven_elsewhere():
            host.background(_GROUP, self._follow_elsewhere, experiment_id)
            return
        if host.session is None:
            return
        for run in host.board.runs:
            if run.kind == "bench" and run.active and run.run_id not in self._seen:
                self._seen.add(run.run_id)
                # One of an experiment is followed by whoever runs that; a run that says nothing is no bench.
                measure = run.extra.get("measure")
                if isinstance(measure, dict) and measure.get("experiment") is None:
                    host.background(_GROUP, self._follow_again, run)
                    return

    def _driven_elsewhere(self) -> "Iterator[str]":
        """Experiments on this host that other processes of this machine run, and that were not followed to their end."""
        from tui.core.experiment import record as experiment_record

        for experiment_id, pid in experiment_record.drivers().items():
            record = experiment_record.read(experiment_id)
            if pid == os.getpid() or record is None or record.ended_at is not None:
                continue
            if record.host == self._host.board.host:
                yield experiment_id

    async def _follow_elsewhere(self, experiment_id: str) -> None:
        from tui.core.experiment import elsewhere

        await self._follow(elsewhere.follow(experiment_id))

    async def _follow_again(self, run: "Run") -> None:
        from tui.core.experiment.one_bench import under_way

        try:
            session = self._connection.session()
        except HostError:
            self._seen.discard(run.run_id)  # with the next link
            return
        others = {one.entry.name: one for one in self._host.app.sessions()}  # of a group on several
        await self._follow(under_way(session, run, others))

    async def _follow(self, states: "AsyncGenerator[ExperimentState, None]") -> None:
        """Shows every state; a change of arms at once, figures with the next repaint."""
        host, board = self._host, self._host.board
        self._busy = True
        failure: Exception | None = None
        here = True  # rather than by another process
        try:
            async with aclosing(states) as following:
                async for state in following:
                    here = here and state.driver is None
                    self._seen.add(state.experiment_id)
                    news = _milestones(board.experiment) != _milestones(state)
                    board.experiment = state
                    host.touch(soon=news)
                    if news:
                        self._happened()
            if (ended := board.experiment) is not None:
                how = "measured" if here else ended.message or "over"
                host.app.ring(f"{ended.name} on {board.host}: {how}")
        except Exception as error:
            failure = error
        finally:
            self._busy = False
        self._happened()
        shown = board.experiment
        # What stands is what is stored; a single arm is shown beside earlier ones of its bench.
        gives_way = shown is not None and (not shown.finished or len(shown.arms) == 1)
        self.read_stored(instead=shown if gives_way else None)
        if isinstance(failure, EagletuiError) and failure.slug == Slug.STOPPED:
            host.say("Stopped; what was measured stays")
        elif failure is not None:
            raise failure

    def farewell(self) -> str | None:
        """What becomes of the measurement under way when the panel is quit, one sentence."""
        state = self._unfinished
        if self._held is not None:
            return self._held
        if state is None:
            return None
        name = one_line(state.name, 60)
        if state.driver is not None:
            return f"{name} is run by PID {state.driver}, and goes on: eagletui experiment {name} --attach follows it."
        if self._runner is None:
            return f"The measurement {name} keeps running there, and is shown when you come back."
        again = f"eagletui experiment {name} --host {state.host} --resume"
        return f"{name} is not over: what it launched keeps running there, and {again} continues it."

    @property
    def launches(self) -> bool:
        """True where what is measured launches its own servers, one after the other: it can be paused."""
        return self._runner is not None or self._held is not None

    @property
    def can_detach(self) -> bool:
        """True where it is an experiment of this panel, which a process of its own can go on with."""
        return self._runner is not None

    async def detach(self, profiles_dir: "Path | None", *, last_launch: bool) -> str:
        """Hands the experiment under way to a process of its own, which goes on where this is; one sentence of that.

        `last_launch`: it stops when the launch under way is measured. Raises EagletuiError where it cannot be started; E, then
        r, then resumes it here.
        """
        from tui.core.experiment import background, elsewhere
        from tui.core.experiment import record as experiment_record

        state = self._unfinished
        assert state is not None
        if await asyncio.to_thread(experiment_record.read, state.experiment_id) is None:
            raise UsageError(f"{state.name} is in its pre-flight", "its first launch is next: a moment")
        self._host.end_job(_GROUP)
        async with asyncio.timeout(_LETS_GO_S):
            while experiment_record.driver(state.experiment_id) is not None:  # noqa: ASYNC110 - a lock of files
                await asyncio.sleep(0.05)
        words = ["experiment", state.name, "--host", state.host, "--resume"]
        if profiles_dir is not None:
            words = ["--profiles", str(profiles_dir), *words]
        self._host.board.experiment = None  # what is shown from now on is what that process says
        started = await background.start(words, state.name)
        if last_launch:
            await asyncio.to_thread(elsewhere.ask_to_stop, started.experiment_id, elsewhere.Stop.AFTER_LAUNCH)
        ends = "stops when its launch is measured" if last_launch else "keeps running"
        name = one_line(state.name, 60)
        return f"{name} {ends}, in the background (PID {started.pid}): eagletui experiment {name} --attach follows it."

    def pause(self) -> bool | None:
        """Pauses after the launch under way, or resumes; True where it pauses now, None where nothing can."""
        state = self._unfinished
        if self._runner is None or state is None:
            return None
        if state.paused:
            self._runner.resume()
        else:
            self._runner.pause()
        return not state.paused

    def stop(self) -> None:
        """Ends what is measured now; what was measured stays."""
        host, state = self._host, self._unfinished
        if self._runner is not None:
            self._runner.stop()
        elif state is not None and state.experiment_id:
            host.background("stop-bench", self._stop_bench, state.experiment_id)
        elif state is not None:  # it has not begun
            host.end_job(_GROUP)
            host.board.experiment = None
            host.touch(soon=True)

    async def _stop_bench(self, run_id: str) -> None:
        """Stops the load generator; who follows it sees its end."""
        session = self._connection.session()
        async for _ in session.stop(await session.find_run(run_id)):
            pass

    def one_more_pair(self, shown: "ExperimentState | None") -> None:
        """Adds a launch pair to the experiment under way; to one that is over, after asking."""
        host = self._host
        if self.under_way and self._runner is not None:
            try:
                self._runner.more_pairs(1)
            except EagletuiError as error:
                host.tell(error)
            else:
                host.say("One more pair is measured at the end")
        elif shown is not None and shown.driver is not None:
            host.say(read_only(shown))
        elif self.under_way or shown is None or not shown.experiment_id:
            host.say("Only an experiment has pairs: E opens one")
        else:
            host.background("ask", self._ask_pair, shown)

    async def _ask_pair(self, shown: "ExperimentState") -> None:
        """One more pair of an experiment that is over: launches again, so it asks."""
        from tui.core.experiment import record as experiment_record
        from tui.panel.screens.bench_dialogs import long_words
        from tui.panel.screens.dialog import Confirm
        from tui.panel.widgets.rows import facts_of

        host = self._host
        record = await asyncio.to_thread(experiment_record.read, shown.experiment_id)
        if record is None:
            raise UsageError(f"the record of {shown.name} is gone", "E begins it again")
        preview = replace(await self.preview(shown.name, record.overrides), unfinished=record)
        if preview.known.held is not None:
            raise UsageError(preview.known.held)
        facts = [("host", host.board.host), ("launches", f"{len(preview.wanted.launches)}, one of each arm")]
        if not preview.plan.estimated:
            facts.append(("takes", f"about {long_words(preview.plan.sights[0].total_s)}"))
        if running := host.board.live_servers():
            facts.append(("stops first", ", ".join(f"{run.profile or run.run_id} ({run.short_id})" for run in running)))
        dialog = Confirm(
            ("◌ ONE MORE PAIR", "accent!"),
            f"Measure one more pair of {shown.name}?",
            facts_of(facts),
            "No",
            "Yes, launch",
        )
        if await host.app.push_screen_wait(dialog):
            self.start_experiment(preview, resume=True, more_pairs=1)

    # -- what is stored --------------------------------------------------------------------------------------------

    def read_stored(self, instead: "ExperimentState | None" = None) -> None:
        """Puts what was measured last on this host onto the board, in place of `instead` where that is displayed."""
        self._host.background("stored", self._read_stored, instead)

    async def _read_stored(self, instead: "ExperimentState | None") -> None:
        from tui.core.experiment import history

        board = self._host.board
        host = board.host
        found = await asyncio.to_thread(history.newest, host)
        baselines = await asyncio.to_thread(history.baselines, host)
        if board.host != host:
            return
        news = (board.measured, board.baselines) != (found, baselines) or instead is not None
        board.measured, board.baselines = found, baselines
        if instead is not None and board.experiment is instead:
            board.experiment = None
        if news:
            self._host.touch()

    async def configurations(self) -> "Sequence[Configuration]":
        """Everything that is stored of this host, newest first."""
        from tui.core.experiment import history

        return await asyncio.to_thread(history.configurations, self._host.board.host)

    async def show(self, chosen: "Sequence[Configuration]") -> None:
        """Stored configurations side by side."""
        from tui.core.experiment import history

        board = self._host.board
        found = await asyncio.to_thread(history.side_by_side, chosen)
        if not self.under_way:
            board.experiment, board.measured = None, found
            self._host.touch(soon=True)

    def export(self, shown: "ExperimentState") -> None:
        """Writes what is displayed into the data directory, in each format that the table names for the panel."""
        self._host.background("export", self._export, shown)

    async def _export(self, shown: "ExperimentState") -> None:
        try:
            paths = await asyncio.to_thread(_write_export, shown)
        except OSError as error:
            self._host.say(f"Not exported: {error.strerror}: {error.filename}", severity="error")
        else:
            others = ", ".join(path.suffix for path in paths[1:])
            self._host.say(f"Exported to {paths[0]}" + (f", and {others} beside it" if others else ""))


def read_only(state: "ExperimentState") -> str:
    """Why the keys of an experiment do nothing here."""
    name = one_line(state.name, 60)
    return f"Run by PID {state.driver}; eagletui experiment {name} --stop after-launch (or now) ends it"


def driven_words(experiment_id: str) -> str:
    from tui.core.experiment import record as experiment_record

    pid = experiment_record.driver(experiment_id)
    return f"PID {pid}" if pid else "in this panel or another process"


def _write_export(shown: "ExperimentState") -> "list[Path]":
    """Every result of the arms, by arm, in each format of the panel; the files' paths. Raises UsageError where there is none."""
    from tui.core.config import data_dir, write_whole
    from tui.core.experiment.export.formats import FORMATS
    from tui.core.results import store

    results = [result for arm in shown.arms for result in arm.results]
    if not results:
        raise UsageError("there is nothing to export yet", "a run has to be done first")
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", shown.name)[:60].strip("-.") or "bench"
    stem = data_dir() / "exports" / f"{name}-{time.strftime('%Y%m%dT%H%M%S')}"
    formats = [form for form in FORMATS if form.in_panel]
    paths = [stem.with_name(stem.name + form.suffix) for form in formats]
    for form, path in zip(formats, paths, strict=True):
        write_whole(path, form.export(results, store.read_all()))
    return paths


def _milestones(state: "ExperimentState | None") -> object:
    """What a person waits for."""
    if state is None:
        return None
    arms = tuple((arm.status, arm.phase, len(arm.results), arm.live is None) for arm in state.arms)
    return arms, len(state.verdicts), state.paused, state.finished, state.message
