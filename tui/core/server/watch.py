"""Watching one run: its log, its files and its host become one stream of frozen states.

A `RunWatcher` has five tasks: one reads the log into a queue, one asks for the run's files, one hears the link, one asks
for readiness, one looks at the host while it is too quiet. None of them makes a state: each leaves what it learnt and
sets an event, and `updates` turns all of it into one `RunUpdate` a tick.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import replace
from functools import partial

from tui.core.errors import EagletuiError, LinkLost, TimedOut, UsageError
from tui.core.host.gpus import GpuSample
from tui.core.link.retry import patiently
from tui.core.link.transport import LinkState, Transport
from tui.core.logs.blocks import read_block
from tui.core.logs.excerpt import Passage
from tui.core.logs.follow import Chunk
from tui.core.logs.reader import LogReader, LogStep
from tui.core.model.conflict import in_use
from tui.core.model.log import LogRecord
from tui.core.model.phases import Outcome, Phase
from tui.core.model.run import Run, RunState
from tui.core.runs import control
from tui.core.runs.adopted import path_of_log
from tui.core.server import forecast
from tui.core.server.log_feed import SkippedLines, read_log
from tui.core.server.looking import Looking
from tui.core.server.raised_source import with_source
from tui.core.server.readiness import HTTP_PROBE_PERIOD_S, ReadinessProbe
from tui.core.server.run_end import KernelWords, LastDeath, evidence, kernel_words_of, outcome_of_files
from tui.core.server.server_state import RunUpdate, ServerState
from tui.core.server.start_history import StartHistory, record_start
from tui.core.server.start_times import HostClock, StartTimes, host_clock, seconds_left, start_times
from tui.core.server.watchdog import Assessment, Watchdog, slower_than_ever
from tui.core.sglang.diagnose import diagnose
from tui.core.sglang.diagnosis import Diagnosis, ExitEvidence
from tui.core.sglang.state import StartupState
from tui.core.sglang.tracker import LogTracker
from tui.core.slurm.ends import diagnosis_of

_TICK_S = 1.0
_REST_S = 0.001
_STATUS_PERIOD_S = 2.0
_MAX_BATCH_BYTES = 1 << 17
_NOT_OURS_S = 3.0  # for so long another's listener must stand before it is a suspicion
_SETTLE_S = 10.0  # after a lost link: what was written meanwhile is on its way


_UNREADY = (Outcome.STARTING, Outcome.RESTARTING)


class RunWatcher:
    """State of one run; `updates()` is the only way to read it."""

    def __init__(
        self,
        transport: Transport,
        run: Run,
        *,
        latest: Callable[[], GpuSample | None] | None = None,
        sample: Callable[[], Awaitable[GpuSample]] | None = None,
        fresh: bool = False,
        refresh: Callable[[Run], Awaitable[Run | None]] | None = None,
    ) -> None:
        """Takes a run of any state.

        Args:
            latest: the newest sample of the GPUs that somebody else took; None where there is none of now.
            sample: takes one; asked only while something looks odd.
            fresh: the run is what a look at the host saw just now: its state is asked for later.
            refresh: who knows the run's state, instead of its files on the host.
        """
        self._transport, self._run = transport, run
        self._latest, self._sample, self._fresh = latest, sample, fresh
        self._refresh = refresh or partial(control.refresh, transport)
        # What the tasks leave.
        self._pieces: asyncio.Queue[Chunk | Passage | SkippedLines | UsageError | None] = asyncio.Queue(maxsize=16)
        self._wake = asyncio.Event()
        self._startup_changed = asyncio.Event()
        self._over = asyncio.Event()
        self._log_found = asyncio.Event()  # or known to be nowhere
        self._clock: HostClock | None = None
        self._kernel = KernelWords()
        self._known_at = time.monotonic()
        self._goal: int | None = None  # bytes in the log when the watch began
        self._asked = False  # about readiness, with the log up to the goal known
        # What is made of it.
        self._tracker = LogTracker()
        self._reader = LogReader(self._tracker)
        self._probe = ReadinessProbe(transport, run)
        self._history = StartHistory.of(run)
        self._times = StartTimes(None, self._history.ready_after_s, {})
        self._dog = Watchdog(run.gpus, time.monotonic())
        self._assessment = Assessment()
        self._not_ours_since: float | None = None  # time.monotonic()
        self._settled_at = 0.0  # time.monotonic() from which on silence counts again
        self._last_outcome = Outcome.STARTING
        self._line_at = self._progress_at = time.monotonic()
        self._progress_key: object = None
        self._diagnosed: tuple[object, Diagnosis | None, tuple[Diagnosis, ...]] | None = None
        self._recorded: object = None
        self._read_to = 0
        self._death = LastDeath(transport)

    async def updates(self) -> AsyncGenerator[RunUpdate, None]:
        """From the first byte of the log to the end of the run; survives the link. Of the middle of a huge log what is
        unusual counts, without records.

        The last update has everything: the exit, and the log to its end. Raises HostError where the host cannot do it.
        """
        inputs = (self._read_log, self._poll_status, self._hear_link, self._probe_ready, self._look_around)
        tasks = [asyncio.create_task(read()) for read in inputs]
        try:
            while True:
                # Not wait_for: before Python 3.12 it loses a cancellation that comes together with the event.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_TICK_S):
                        await self._wake.wait()
                self._wake.clear()
                for task in tasks:
                    if task.done() and (error := task.exception()):
                        raise error  # a watch that reads no more must not look alive
                news, ended = self._step()
                if ended:
                    news[-1] = await self._explained(news[-1])
                if not self._pieces.empty():
                    self._wake.set()
                for update in news:
                    yield update
                if ended:
                    return
                await asyncio.sleep(_REST_S)  # an event that is set lets nobody else run
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._probe.close()

    # -- inputs ---------------------------------------------------------------------------------------------------

    async def _read_log(self) -> None:
        try:
            if self._run_over():  # a run that ended before we came: nothing polls it
                with contextlib.suppress(LinkLost, TimedOut):
                    self._clock = await host_clock(self._transport)
                    self._kernel = await kernel_words_of(self._transport, self._run)
            await self._find_log()
            if self._run.log_path:
                pieces = read_log(self._transport, self._run.log_path, self._run_over, self._wake.set)
                async with contextlib.aclosing(pieces):
                    async for piece in pieces:
                        await self._pieces.put(piece)
                        self._wake.set()
            else:  # a foreign server whose output goes nowhere we can read
                await self._until_over()
        except UsageError as error:  # another user's log: process and port still show how the server is
            await self._pieces.put(error)
            await self._until_over()
        finally:
            self._wake.set()
        await self._pieces.put(None)
        self._wake.set()

    async def _find_log(self) -> None:
        """The output of a foreign container is copied first, to be read."""
        try:
            if self._run.container is not None and self._run.log_path is None:
                path = await patiently(self._transport, partial(path_of_log, self._transport, self._run))
                self._run = self._probe.run = replace(self._run, log_path=path)
        finally:
            self._log_found.set()

    async def _until_over(self) -> None:
        if not self._run_over():
            await self._over.wait()

    def _run_over(self) -> bool:
        return self._run.over

    async def _poll_status(self) -> None:
        while not self._run_over():
            # A lost link is shown by _hear_link; the next round asks again.
            with contextlib.suppress(EagletuiError):
                await self._ask_status()
            await asyncio.sleep(_STATUS_PERIOD_S)

    async def _ask_status(self) -> None:
        if self._goal is None:
            await self._hear_container(self._run)
            await self._log_found.wait()  # else a log that is not there yet would count as read to its end
            self._goal = await _size_of(self._transport, self._run.log_path)
            self._startup_changed.set()
        if self._clock is None:
            self._clock = await host_clock(self._transport)
        fresh, self._fresh = self._fresh, False
        found = self._run if fresh else await self._refresh(self._run)
        self._known_at = time.monotonic()
        found = found or replace(self._run, state=RunState.LOST, why="its files are gone")
        if self._run.state is RunState.QUEUED:  # the silence of a queue is none of the server's
            self._dog = Watchdog(found.gpus, time.monotonic())
        if found != self._run:
            await self._hear_container(found)
            self._run = self._probe.run = found
            self._wake.set()
        if self._run_over():
            self._over.set()
            self._kernel = await kernel_words_of(self._transport, found)

    async def _hear_container(self, found: Run) -> None:
        """Of a container that died and was started again: why, and that its readiness is another start's."""
        if found.pid != self._run.pid:
            self._probe.start_over()
        if found.loops:
            await self._death.hear(found)

    def _caught_up(self) -> bool:
        return self._goal is not None and self._read_to >= self._goal

    async def _hear_link(self) -> None:
        async for _ in self._transport.watch():
            self._wake.set()

    async def _probe_ready(self) -> None:
        self._probe.begin(fresh=self._fresh)
        while not self._run_over():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HTTP_PROBE_PERIOD_S):
                    await self._startup_changed.wait()
            self._startup_changed.clear()
            if self._transport.status().state is not LinkState.UP:
                continue
            caught_up = self._caught_up()
            ready = await self._probe.check(self._tracker.state())
            if ready or (caught_up and not self._asked):
                self._asked = caught_up
                self._wake.set()
            if ready and not (self._run.foreign and self._run.container):  # which its engine may start again
                return

    async def _look_around(self) -> None:
        looking = Looking(self._transport, lambda: (self._run, self._last_outcome, self._dog), self._wake.set)
        await (looking.on_host(self._latest, self._sample) if self._run.job is None else looking.on_node())

    async def _explained(self, last: RunUpdate) -> RunUpdate:
        """The last update with what the host says about the place where an exception was raised."""
        found = await with_source(self._transport, last.state.diagnosis, self._run.run_id)
        return replace(last, state=replace(last.state, diagnosis=found))

    # -- one step -------------------------------------------------------------------------------------------------

    def _step(self) -> tuple[list[RunUpdate], bool]:
        """Takes what has come, returns the updates and whether the run is over."""
        updates: list[RunUpdate] = []
        new: list[LogRecord] = []
        last: LogStep | None = None  # that brought records
        taken = 0
        ended = False

        def event(step: LogStep, *records: LogRecord) -> None:
            nonlocal new, last
            if last is not None:
                updates.append(self._update(tuple(new), last))
                new, last = [], None
            updates.append(RunUpdate(self._state(), records, log=step))

        while not self._pieces.empty() and taken < _MAX_BATCH_BYTES:
            piece = self._pieces.get_nowait()
            if piece is None:
                ended = True
                break
            if isinstance(piece, UsageError):
                event(LogStep(problem=piece.message))
            elif isinstance(piece, Passage):
                taken += len(piece.data)
                self._reader.glance(piece)
            elif isinstance(piece, SkippedLines):
                event(self._reader.go_on_at(piece.end, piece.number), _skipped(piece, self._tracker.place.number))
                self._read_to = piece.end
            else:
                if piece.data:
                    taken += len(piece.data)
                    self._line_at = self._known_at = time.monotonic()
                    self._read_to = piece.end
                    self._probe.saw_bytes(piece.data)
                step = self._reader.take(piece)
                if piece.event not in (None, "ended"):
                    event(step)
                    continue
                while step.records and new and new[-1].provisional:
                    new.pop()  # an unterminated tail, written on since
                new.extend(step.records)
                last = step
                if step.records:
                    self._startup_changed.set()
        update = self._update(tuple(new), last, ended=ended)
        updates.append(update)
        if ended or not self._run_over():  # of a run that is over nothing is known before its log is read
            self._record(update.state)
        return updates, ended

    def _update(self, records: tuple[LogRecord, ...], step: LogStep | None, *, ended: bool = False) -> RunUpdate:
        state = self._state(final=ended)
        settled = ended or (self._caught_up() and (self._asked or state.outcome not in _UNREADY))
        log = replace(step, records=records) if step is not None else None
        return RunUpdate(state, records, step.behind_bytes if step is not None else 0, settled, log)

    def _state(self, *, final: bool = False) -> ServerState:
        startup = self._tracker.state()
        now = time.monotonic()
        progress_key = (startup.phase, startup.progress, startup.lines if startup.progress is None else 0)
        if progress_key != self._progress_key:
            self._progress_key, self._progress_at = progress_key, now
        lost_link = self._transport.status().state is not LinkState.UP
        outcome = self._outcome(startup)
        diagnosis, observations = self._diagnose(startup, outcome, final)
        if self._run.loops:
            diagnosis = None if outcome is Outcome.READY else self._death.diagnosis or diagnosis
        phase = self._phase(startup, outcome)
        self._times = start_times(
            self._run,
            startup,
            self._clock,
            phase=phase,
            outcome=outcome,
            ready=self._probe.ready,
            ready_after_s=self._times.ready_after_s,
        )
        took, history, starting = self._times.phase_took_s, self._history, outcome is Outcome.STARTING
        assessment = self._watch(now, phase, outcome, startup, lost_link)
        eta_s = slower = None
        if starting:
            eta_s = seconds_left(phase, took, startup.progress, history.usual, history.usual_total)
        if starting and not lost_link:
            slower = slower_than_ever(
                phase, took, history.usual, busy=assessment.busy, version_changed=history.version_changed
            )
        return ServerState(
            run=self._run,
            outcome=outcome,
            phase=phase,
            startup=startup,
            diagnosis=diagnosis,
            observations=observations,
            suspicion=self._suspicion(now, startup, outcome, assessment),
            suspected=assessment.suspicion,
            busy=assessment.busy,
            slower=slower,
            last_ready=history.last_ready,
            started_s=self._times.started_s,
            ready_after_s=self._times.ready_after_s,
            phase_took_s=took,
            usual=history.usual,
            usual_total=history.usual_total,
            eta_s=eta_s,
            last_line_age_s=now - self._line_at if startup.lines else None,
            last_progress_age_s=now - self._progress_at if startup.lines else None,
            known_at=self._known_at,
            stale=lost_link,
        )

    def _outcome(self, startup: StartupState) -> Outcome:
        ended = outcome_of_files(self._run)
        if self._run.loops:  # its log has the end of an earlier start
            return Outcome.READY if self._probe.ready else Outcome.RESTARTING
        unexplained = self._run.state is RunState.EXITED and ended is Outcome.LOST
        if startup.outcome is Outcome.CRASHED and (ended is None or unexplained):
            return Outcome.CRASHED
        return ended or (Outcome.READY if self._probe.ready else Outcome.STARTING)

    def _phase(self, startup: StartupState, outcome: Outcome) -> Phase:
        """The phase by the log; of a silent one by GPU memory and the port."""
        phase = startup.phase
        served = phase in (Phase.READY, Phase.SERVING)
        if self._probe.ready:
            return phase if served else Phase.READY
        if served and outcome is Outcome.STARTING:
            phase = Phase.WARMUP  # "fired up", but the listener is not (known to be) ours
        silent = outcome is Outcome.STARTING and phase is Phase.LAUNCH and not startup.fired_up
        return (self._dog.silent_phase(self._probe.listener_is_ours is True) if silent else None) or phase

    def _diagnose(
        self, startup: StartupState, outcome: Outcome, final: bool
    ) -> tuple[Diagnosis | None, tuple[Diagnosis, ...]]:
        key = (startup.lines, self._run.state, self._run.exit_code, self._kernel, final)
        if self._diagnosed is None or self._diagnosed[0] != key:
            # The exit counts only when the whole log is read: a reason that is still unread must not look like silence.
            exit = evidence(self._run, self._kernel) if final and self._run_over() else ExitEvidence(alive=True)
            found, observations = diagnose(self._tracker.state(), exit=exit)
            found = (diagnosis_of(self._run.job) if final else None) or found
            if found is not None and self._run.kind != "server" and found.cause == "unknown":
                found = None  # its words are about a server
            elif found is not None:
                history = self._history
                found = forecast.prefer_worked(found, startup, self._run.host, history.args, history.earlier)
            self._diagnosed = (key, found, observations)
        _, found, observations = self._diagnosed
        fallen = self._dog.fallen_accept(startup) if outcome is Outcome.READY else None
        if fallen is not None:
            observations = (fallen, *(item for item in observations if item.cause != fallen.cause))
        return found, observations

    def _watch(self, now: float, phase: Phase, outcome: Outcome, startup: StartupState, lost_link: bool) -> Assessment:
        """The watchdog's word; while the link is down, and right after, the one before it."""
        self._last_outcome = outcome
        self._dog.saw_log(now, startup)
        if lost_link:
            self._settled_at = now + _SETTLE_S
        if now >= self._settled_at:
            self._assessment = self._dog.judge(now, phase, outcome, startup)
        elif outcome not in (Outcome.STARTING, Outcome.READY):
            self._assessment = Assessment()
        return self._assessment

    def _suspicion(self, now: float, startup: StartupState, outcome: Outcome, assessment: Assessment) -> str | None:
        if outcome is Outcome.STARTING and self._probe.listener_is_ours is False and startup.fired_up:
            # The look that found it may be from before the server listened itself.
            self._not_ours_since = self._not_ours_since or now
            if now - self._not_ours_since >= _NOT_OURS_S:
                return in_use(f"port {self._run.port}", "another process, which answers there")
        else:
            self._not_ours_since = None
        return assessment.suspicion.text if assessment.suspicion is not None else None

    def _record(self, state: ServerState) -> None:
        """Keeps what this start showed, once per change."""
        cause = state.diagnosis.cause if state.diagnosis else None
        key = (state.outcome, state.ready_after_s, cause, state.run.exit_code)
        if key != self._recorded and state.outcome not in (Outcome.STARTING, Outcome.QUEUED):
            self._recorded = key
            record_start(state)


def _skipped(lines: SkippedLines, number: int) -> LogRecord:
    skipped = (lines.end - lines.begin) / (1 << 20)
    text = (
        f"[eagletui] of {skipped:,.0f} MiB up to line {lines.number:,} only unusual lines were read; none is shown here"
    )
    return LogRecord(number, lines.begin, None, None, text, "marker", None)


async def _size_of(transport: Transport, path: str | None) -> int:
    """Bytes of a log; 0 where there is none that we may read."""
    try:
        log = await read_block(transport, path, 0, 0) if path else None
    except UsageError:
        return 0
    return log.size if log else 0
