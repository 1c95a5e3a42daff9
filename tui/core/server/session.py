"""One host: everything the panel, the command line, benches and experiments do with it goes through a `HostSession`."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from tui.core.config import HostEntry, HostKind, load_settings
from tui.core.errors import Slug, UsageError
from tui.core.hints import Action, Hint
from tui.core.host import facts_cache, gpu_sampler
from tui.core.host.elsewhere import Inside
from tui.core.host.gpus import GpuSample, HostFacts
from tui.core.link.hosts import launch_env, open_transport
from tui.core.link.retry import until_answered
from tui.core.link.transport import Asker, LinkStatus, Transport
from tui.core.model.group import group_id_of, group_of
from tui.core.model.phases import Outcome
from tui.core.model.run import Run
from tui.core.runs import control
from tui.core.runs.adopted import path_of_log, way_into
from tui.core.runs.news import News, Pace
from tui.core.server import launch_records
from tui.core.text import one_line

# Planning, launching and watching are imported by who does it: a panel's first frame and `gpus` need none of their modules.
if TYPE_CHECKING:
    from tui.core.logs.log_file import LogFile
    from tui.core.profiles.command import LaunchCommand
    from tui.core.profiles.launch_profile import LaunchProfile
    from tui.core.runs.request import LaunchRequest
    from tui.core.server.launch import LaunchPlan, LaunchProgress
    from tui.core.server.preflight import Seen
    from tui.core.server.server_state import RunUpdate, ServerState
    from tui.core.server.stop import StopProgress
    from tui.core.slurm.board import JobBoard

_SAMPLE_S = 15.0  # a healthy nvidia-smi without persistence mode takes up to ten for eight GPUs
_NOW_S = 10.0  # a sample that is older says nothing of now
_LOOK_S = 3.0  # a look at the runs that began no longer ago tells of now
# So long is a question that changes nothing asked again where the link is lost under it.
_FIND_S = 30.0
_PLAN_S = 45.0


class HostSession:
    """A session with one host; its states are frozen. Whatever asks the host raises LinkLost and HostError."""

    def __init__(self, entry: HostEntry, transport: Transport) -> None:
        self.entry = entry
        self.transport = transport  # to where runs and their files are
        self.way = transport  # to where their programs run
        self._news = News(transport)
        self._facts: HostFacts | None = None
        self._newest: tuple[float, GpuSample] | None = None
        self._facts_lock = asyncio.Lock()
        self._board: JobBoard | None = None
        self._asks_slurm: bool | None = None  # None: settings and records were not asked yet
        self._look: tuple[float, asyncio.Task[tuple[Run, ...]]] | None = None  # the newest at all runs, and since when
        self._images: dict[str, str | None] = {}  # SGLang's versions by the ids of images

    @property
    def _simulated(self) -> bool:
        return self.entry.kind is HostKind.DEMO

    def words_for(self, variables: Iterable[str]) -> tuple[str, ...]:
        """What stands in front of a program that is to run there with these variables; () where the run itself does."""
        return ()

    async def open(self) -> None:
        """Connects. Raises HostError."""
        await self.transport.connect()

    async def close(self) -> None:
        """Ends all iterators; runs keep running. Within 2 s."""
        await self.transport.close()

    def link(self) -> AsyncIterator[LinkStatus]:
        """The link's present status, then every change."""
        return self.transport.watch()

    async def hear(self) -> None:
        """Has the host tell what changes about its runs and servers, as long as this is awaited; ends where it cannot."""
        await self._news.follow()

    def pace(self, shortest_s: float, longest_s: float) -> Pace:
        """When whoever looks at the runs is to look again; rarely while `hear` is told of nothing."""
        return Pace(self._news, shortest_s, longest_s)

    async def facts(self, *, refresh: bool = False) -> HostFacts:
        """Hardware and software of the host: asked once a session, and again on demand."""
        async with self._facts_lock:
            if self._facts is None or refresh:
                self._facts = await facts_cache.facts(self.transport, self.entry, self._elsewhere)
            return self._facts

    async def gpus(self, period_s: float = 1.0) -> AsyncGenerator[GpuSample]:
        """Samples forever; a lost link is a pause, a sampler that hangs is replaced."""
        samples = gpu_sampler.sample_gpus(self.transport, self.entry.python, period_s, elsewhere=self._elsewhere)
        async with contextlib.aclosing(samples):
            async for sample in samples:
                self._newest = (time.monotonic(), sample)
                yield sample

    def _latest_sample(self) -> GpuSample | None:
        """The newest of `gpus`, None where nobody samples now."""
        if self._newest is None or time.monotonic() - self._newest[0] > _NOW_S:
            return None
        return self._newest[1]

    async def sample(self) -> GpuSample:
        """The GPUs now; no launch and no stop waits long for a driver that hangs."""
        return await gpu_sampler.one_sample(
            self.transport, self.entry.python, timeout_s=_SAMPLE_S, elsewhere=self._elsewhere
        )

    async def _elsewhere(self) -> Inside | None:
        """The container of a server that runs here, which has a Python; None where there is none that lets us in."""
        for run in await self._runs_of_now():
            if run.kind == "server" and run.pid is not None and run.active and run.container and run.container.call:
                return Inside(str(run.container), way_into(self.transport, run.container))
        return None

    async def _runs_of_now(self) -> tuple[Run, ...]:
        """Of a look that is under way or just over, else of one more: over a far link each waits for the other side."""
        if self._look is not None and time.monotonic() - self._look[0] < _LOOK_S:
            look = self._look[1]
            await asyncio.wait({look})
            if not look.cancelled() and look.exception() is None:
                return look.result()
        return await self.runs()

    async def runs(self) -> tuple[Run, ...]:
        """Ours and foreign servers, newest first."""
        look = asyncio.create_task(self._ask_runs())
        self._look = (time.monotonic(), look)
        return await look

    async def _ask_runs(self) -> tuple[Run, ...]:
        # The simulated host shares this machine's process table: what is real does not belong to it.
        look = control.list_runs if self._simulated else control.look
        named = [dataclasses.replace(run, host=self.entry.name) for run in await look(self.transport)]
        named += await self.ranks()
        return tuple(sorted(named, key=lambda run: run.started_at or "", reverse=True))

    def jobs(self, *, launching: bool = False) -> JobBoard | None:
        """The cluster that this is a login host of; None where it is of none, as far as settings and records know.

        `launching`: a job is about to be submitted there.
        """
        if self._board is None and self._asks_slurm is None:
            self._asks_slurm = self.entry.slurm or launch_records.has_jobs(self.entry.name)
        if self._board is None and (self._asks_slurm or launching):
            from tui.core.slurm.board import JobBoard

            self._board = JobBoard(self.transport)
        return self._board

    async def ranks(self) -> tuple[Run, ...]:
        """The ranks of our jobs on the cluster, as the board's pace allows."""
        if (board := self.jobs()) is None:
            return ()
        await board.look()
        return tuple(dataclasses.replace(run, host=self.entry.name) for run in board.runs())

    async def heard_runs(self) -> tuple[Run, ...]:
        """The same for whoever waits for it: asked again where the link is lost under it."""
        return await until_answered(self.transport, self.runs, _FIND_S)

    async def find_run(self, reference: str, *, prefer_live: bool = False, among: tuple[Run, ...] | None = None) -> Run:
        """The run that an id, its six digits or a unique prefix, or docker:NAME names; of a group the member that serves,
        where it is here. A link that is lost meanwhile is waited for. Raises UsageError(slug="unknown_run").

        Args:
            prefer_live: where several fit and one of them lives, that one is meant.
            among: the runs, where they were asked for just now.
        """
        found = await self.heard_runs() if among is None else among
        if (named := next((run for run in found if reference == str(run.container)), None)) is not None:
            return named
        live = [run.run_id for run in found if run.active] if prefer_live else []
        run_id = launch_records.match_run(reference, [run.run_id for run in found], live)
        if run_id is None:
            raise UsageError(
                f"no run {one_line(reference, 80) or repr('')} on {self.entry.name}",
                Hint(Action.LIST_RUNS, self.entry.name),
                slug=Slug.UNKNOWN_RUN,
            )
        run = next(run for run in found if run.run_id == run_id)
        group = group_of(run.extra)
        if group is None or reference in (run.run_id, run.short_id):
            return run
        return next((one for one in found if one.run_id == group.serving.run_id), run)

    async def plan(self, profile: LaunchProfile, sets: Mapping[str, object] | None = None) -> LaunchPlan:
        """The exact command and the pre-flight findings; a link that is lost meanwhile is waited for.

        Raises UsageError for a server over several hosts, or a job.
        """
        if profile.several:
            several = "a job of Slurm" if profile.slurm else "a group of several servers"
            if profile.nodes is not None:
                several = f"one server over {', '.join(profile.nodes.hosts)}"
            raise UsageError(f"{profile.name} is {several}", f"eagletui launch {profile.name} launches it as a whole")
        return await until_answered(self.transport, partial(self._plan, profile, sets), _PLAN_S)

    async def _plan(self, profile: LaunchProfile, sets: Mapping[str, object] | None) -> LaunchPlan:
        from tui.core.profiles.command import container_of
        from tui.core.server import preflight
        from tui.core.server.image import sglang_of_image
        from tui.core.server.launch import LaunchPlan
        from tui.core.sglang.flags import flags_of, learn_flags

        # All at once: over a far link each of them waits for the other side.
        unlearnt = self._command(profile, None, None, None)
        facts, sample, runs, seen = await asyncio.gather(
            self.facts(), self.sample(), self.runs(), preflight.look(self.transport, profile, unlearnt)
        )
        if container := container_of(profile):  # its Python and SGLang are the image's
            version = await sglang_of_image(self.transport, container, self._images)
            facts = dataclasses.replace(
                facts, python=container.image, python_error=None, sglang=version, torch=None, container=None
            )
            flags = flags_of(facts.sglang)
        else:
            if facts.container is not None:  # a process of the host has nothing of what is in there
                own = facts.python if facts.python_error is None else None
                facts = dataclasses.replace(facts, python=own, sglang=None, torch=None, container=None)
            flags = await learn_flags(self.transport, self.entry, facts.sglang) if facts.sglang else None
        command = self._command(profile, facts.sglang, flags, facts.home)
        return await self._checked(LaunchPlan(profile, command, (), facts, sets, flags=flags), sample, runs, seen)

    def _command(
        self, profile: LaunchProfile, version: str | None, flags: frozenset[str] | None, home: str | None
    ) -> LaunchCommand:
        from tui.core.profiles.command import build_command

        command = build_command(profile, self.entry, version, flags, home=home)
        return dataclasses.replace(command, env={**launch_env(self.entry), **command.env})

    async def check(self, plan: LaunchPlan) -> LaunchPlan:
        """The plan with the findings of now; a link that is lost meanwhile is waited for."""

        from tui.core.server import preflight

        async def ask() -> LaunchPlan:
            look = preflight.look(self.transport, plan.profile, plan.command)
            return await self._checked(plan, *await asyncio.gather(self.sample(), self.runs(), look))

        return await until_answered(self.transport, ask, _PLAN_S)

    async def _checked(self, plan: LaunchPlan, sample: GpuSample, found: tuple[Run, ...], seen: Seen) -> LaunchPlan:
        from tui.core.server import forecast, preflight
        from tui.core.server.finding import ordered
        from tui.core.server.launch import in_the_way

        profile, command = plan.profile, plan.command
        findings = await preflight.preflight(
            self.transport,
            profile,
            command,
            facts=plan.facts,
            sample=sample,
            runs=found,
            host_flags=plan.flags,
            seen=seen,
        )
        if not profile.command:
            earlier = await asyncio.to_thread(launch_records.read_all)
            findings = ordered([*findings, *forecast.findings(self.entry.name, profile.args, earlier)])
        replaces = in_the_way(profile, command, found)
        return dataclasses.replace(
            plan, findings=findings, replaces=replaces, checked_at=time.monotonic(), seen=tuple(found)
        )

    def launch(
        self, plan: LaunchPlan, *, replace: bool = False, run_id: str | None = None
    ) -> AsyncGenerator[LaunchProgress, None]:
        """Carries out a plan: see `launch.steps`. It starts at most once. Raises PreflightFailed where it is blocked.

        `run_id` is from `new_run_id`, for a caller that must know it before the answer is there.
        """
        from tui.core.server.launch import steps

        start = partial(self._start, run_id=run_id)
        return steps(plan, replace=replace, check=self.check, stop=self.stop, start=start)

    async def _start(self, plan: LaunchPlan, run_id: str | None) -> Run:
        from tui.core.server.launch import prepare

        return await self.start(prepare(plan, self.entry.name, run_id))

    async def start(self, request: LaunchRequest) -> Run:
        """Starts what was prepared, at most once."""
        return dataclasses.replace(await control.launch(self.transport, request), host=self.entry.name)

    async def run_by_id(self, run_id: str) -> Run | None:
        """A run of ours as it is now, by its whole id; None where the host has none."""
        board = self.jobs() if group_id_of(run_id) is not None else None
        if board is not None:
            await board.look()
            if (rank := board.run(run_id)) is not None:
                return dataclasses.replace(rank, host=self.entry.name)
        found = await control.status(self.transport, [run_id])
        return dataclasses.replace(found[0], host=self.entry.name) if found else None

    def open_log(self, run: Run) -> LogFile | None:
        """The log of a run, of any size; None where its output goes nowhere that can be read."""
        from tui.core.logs.log_file import LogFile

        return LogFile(self.transport, run.log_path) if run.log_path is not None else None

    async def with_log(self, run: Run) -> Run:
        """The run with the path of its log: the output of a foreign container is copied on the host to be read there."""
        path = await until_answered(self.transport, partial(path_of_log, self.transport, run), _FIND_S)
        return dataclasses.replace(run, log_path=path)

    def watch(self, run: Run, *, fresh: bool = False) -> AsyncGenerator[RunUpdate, None]:
        """Log and state of a run to its end; survives the link. `fresh`: a look saw the run just now."""
        from tui.core.server.watch import RunWatcher

        if run.job is not None:
            return self._watch_job(run, fresh)
        return RunWatcher(
            self.transport, run, latest=self._latest_sample, sample=self.sample, fresh=fresh, news=self._news
        ).updates()

    async def _watch_job(self, run: Run, fresh: bool) -> AsyncGenerator[RunUpdate, None]:
        """A rank of a job: the cluster's word counts, and it is asked for more often until the server is ready."""
        from tui.core.server.watch import RunWatcher

        board = self.jobs()
        assert board is not None

        async def refresh(latest: Run) -> Run | None:
            return await self.run_by_id(latest.run_id)

        watcher = RunWatcher(self.transport, run, fresh=fresh, refresh=refresh)
        try:
            async with contextlib.aclosing(watcher.updates()) as updates:
                async for update in updates:
                    starts = update.state.outcome in (Outcome.QUEUED, Outcome.STARTING)
                    (board.starting.add if starts else board.starting.discard)(run.run_id)
                    yield update
        finally:
            board.starting.discard(run.run_id)

    async def stop(
        self, run: Run, *, grace_s: float = 20.0, who: str | None = None
    ) -> AsyncGenerator[StopProgress, None]:
        """Stops the whole tree and waits until its GPU memory is back. Idempotent. Raises for a foreign server.

        `who` asks for it, as it is kept with the run: by default the user of this process.
        """
        from tui.core.runs.request import requester
        from tui.core.server import stop as stopping

        board = self.jobs() if run.job is not None else None
        if board is not None:
            steps = stopping.stop_job(board, self.transport, run, grace_s, who)
        else:
            steps = stopping.stop(self.transport, run, self.sample, grace_s, who)
        async with contextlib.aclosing(steps):
            async for progress in steps:
                if progress.done and progress.step != "stuck" and not run.over:
                    await asyncio.to_thread(launch_records.stopped, run.run_id, requester(who))
                yield progress


async def settled_state(
    session: HostSession, run: Run, patience_s: float, *, fresh: bool = False
) -> ServerState | None:
    """The state of a run once its log has been read to the present end, or after `patience_s`; None: nothing was seen.

    `fresh`: a look saw the run just now.
    """
    latest: ServerState | None = None
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(patience_s), contextlib.aclosing(session.watch(run, fresh=fresh)) as updates:
            async for update in updates:
                latest = update.state
                if update.settled and not latest.run.over:
                    break
    return latest


async def open_session(name: str, asker: Asker) -> HostSession:
    """A session with a host by its name; not connected yet (see `HostSession.open`)."""
    entry = load_settings().host(name)
    return HostSession(entry, open_transport(entry, asker))
