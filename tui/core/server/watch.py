"""Watching one run: its log, its files and its host become one stream of frozen states."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta

from tui.core.errors import EagletuiError, HostError, LinkLost, TimedOut, UsageError
from tui.core.host.gpus import GpuSample
from tui.core.link.retry import follow_through
from tui.core.link.transport import LinkState, Transport
from tui.core.logs.blocks import first_line, read_block
from tui.core.logs.follow import Chunk, follow
from tui.core.logs.reader import LogReader, LogStep
from tui.core.logs.search import lines_before
from tui.core.model.log import LogRecord
from tui.core.model.phases import Outcome, Phase
from tui.core.runs import control as runs
from tui.core.runs.control import Run, RunState
from tui.core.server import forecast, launch_records
from tui.core.server.forecast import LastReady
from tui.core.server.launch_records import PhaseHistory
from tui.core.server.readiness import HTTP_PROBE_PERIOD_S, ReadinessProbe
from tui.core.server.watchdog import (
    LOOK_PERIOD_S,
    KernelWords,
    Slower,
    Suspicion,
    Verdict,
    Watchdog,
    kernel_words,
    look,
    slower_than_ever,
)
from tui.core.sglang.diagnose import diagnose
from tui.core.sglang.diagnosis import Diagnosis, ExitEvidence
from tui.core.sglang.state import StartupState
from tui.core.sglang.tracker import LogTracker

_TICK_S = 1.0
_REST_S = 0.001
_STATUS_PERIOD_S = 2.0
_MAX_BATCH_BYTES = 1 << 17
_HUGE_BYTES = 16 << 20  # of a log that is longer when the watch begins, the middle is not read:
_HEAD_BYTES = 4 << 20  # the start-up stands in its beginning,
_TAIL_BYTES = 262_144  # what goes on now at its end

_WATCHDOG_TICK_S = 3.0
_NOT_OURS_S = 3.0  # for so long another's listener must stand before it is a suspicion
_SETTLE_S = 10.0  # after a lost link: what was said meanwhile is on its way
_NO_GPUS = frozenset(("no_devices", "nvidia_smi_missing"))


@dataclass(frozen=True)
class ServerState:
    """A server as the panel, `wait` and `launch --wait` see it; log, files of the run and host agree on it."""

    run: Run
    outcome: Outcome
    phase: Phase
    startup: StartupState
    diagnosis: Diagnosis | None = None
    observations: tuple[Diagnosis, ...] = ()
    suspicion: str | None = None  # why it may hang: a sentence; the outcome stays `starting` or `ready`
    suspected: Suspicion | None = None  # the same with its evidence
    busy: str | None = None  # why a silence is no hang: "kernels are being compiled (ptxas)"
    slower: Slower | None = None  # the present phase takes longer than ever here
    last_ready: LastReady | None = None  # the last configuration of this model here that reached ready
    phase_by_gpus: bool = False  # the log is silent: `phase` is what GPU memory and the port tell
    started_s: float | None = None  # time.time() at the launch
    ready_after_s: float | None = None  # launch to ready
    phase_took_s: Mapping[Phase, float] = field(default_factory=dict)  # ended phases, and the present one so far
    usual: Mapping[Phase, PhaseHistory] = field(default_factory=dict)
    usual_total: PhaseHistory | None = None
    eta_s: float | None = None  # seconds to ready, None without history
    last_line_age_s: float | None = None
    last_progress_age_s: float | None = None
    known_at: float = 0.0  # time.monotonic() of this observation; old while the link is lost
    stale: bool = False  # link lost: this is what was last seen


@dataclass(frozen=True)
class RunUpdate:
    """What one tick of watching a run brought."""

    state: ServerState
    records: tuple[LogRecord, ...] = ()
    behind_bytes: int = 0  # log bytes on the host not read yet
    settled: bool = False  # all that there was when the watch began is in: the log, and an answer about readiness
    log: LogStep | None = None  # the same records with their place in the file, for `LogFile.take`; None without any


def _epoch(iso: str | None) -> float | None:
    if not iso:
        return None
    try:
        return datetime.fromisoformat(iso.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None


@dataclass(frozen=True)
class _Gap:
    """Lines that are not read."""

    begin: int  # byte
    end: int
    number: int  # line that begins at `end`


_Input = Chunk | _Gap | UsageError | None  # None: the log is read to its end


@dataclass(frozen=True)
class HostClock:
    """The host's clock against ours."""

    skew_s: float  # host minus here
    utc_offset: timedelta

    def now(self) -> float:
        """time.time() as the host would say it."""
        return time.time() + self.skew_s

    def epoch_of(self, stamp_s: float) -> float:
        """A log's naive local stamp, read as UTC, as true seconds since the epoch."""
        return stamp_s - self.utc_offset.total_seconds()


async def host_clock(transport: Transport) -> HostClock:
    """Asks the host for its time and zone."""
    before = time.time()
    answer = await transport.run("date '+%s %z'")
    words = answer.stdout.split()
    here = (before + time.time()) / 2
    try:
        seconds, zone = float(words[0]), words[1].decode()
        minutes = int(zone[1:3]) * 60 + int(zone[3:5])
        offset = timedelta(minutes=-minutes if zone[0] == "-" else minutes)
    except (IndexError, ValueError):
        return HostClock(0.0, datetime.now().astimezone().utcoffset() or timedelta())
    # `date` has whole seconds: a difference below two says nothing.
    return HostClock(seconds - here if abs(seconds - here) > 2 else 0.0, offset)


def is_over(run: Run) -> bool:
    """Whether its main process has ended; what it left behind may live on (`Run.orphans`)."""
    return run.state in (RunState.EXITED, RunState.LOST)


def outcome_of_files(run: Run) -> Outcome | None:
    """The outcome where the files of a run alone decide it, None while it lives."""
    if run.state is RunState.LOST:
        return Outcome.LOST
    if run.state is RunState.UNKNOWN:
        return Outcome.UNKNOWN
    if run.state is not RunState.EXITED:
        return None
    if run.stopped_by_us:
        return Outcome.STOPPED
    if run.exit_code is None:  # a foreign server: nobody told us how it ended
        return Outcome.LOST
    if run.exit_code != 0:
        return Outcome.CRASHED
    return Outcome.STOPPED if run.kind == "server" else Outcome.FINISHED


class RunWatcher:
    """State of one run; `updates()` is the only way to read it."""

    def __init__(
        self,
        transport: Transport,
        run: Run,
        *,
        latest: Callable[[], GpuSample | None] | None = None,
        sample: Callable[[], Awaitable[GpuSample]] | None = None,
    ) -> None:
        """Takes a run of any state.

        Args:
            latest: the newest sample of the GPUs that somebody else took; None where there is none of now.
            sample: takes one; asked only while something looks odd.
        """
        self._transport = transport
        self._run = run
        self._latest, self._sample = latest, sample
        self._tracker = LogTracker()
        self._reader = LogReader(self._tracker)
        self._probe = ReadinessProbe(transport, run)
        self._startup_changed = asyncio.Event()
        self._over = asyncio.Event()
        self._clock: HostClock | None = None
        known = launch_records.read(run.run_id)
        usual, self._usual_total = launch_records.usual(
            run.host,
            run.profile or "",
            run.extra.get("sets"),
            known.sglang if known else None,
            known.warm if known else None,
        )
        self._usual = {phase: usual[phase] for phase in Phase if phase in usual}
        self._diagnosed: tuple[int, str, Diagnosis | None, tuple[Diagnosis, ...]] | None = None
        # Whoever comes later than that moment knows it from the record only.
        self._ready_after_s = known.ready_after_s if known else None
        self._args: Mapping[str, object] = known.args if known else {}
        self._past = [record for record in (launch_records.read_all() if known else ()) if record.run_id != run.run_id]
        self._last_ready = forecast.last_ready(run.host, self._args, self._past)
        self._version_changed = self._other_version(known.sglang if known else None)
        self._dog = Watchdog(run.gpus, time.monotonic())
        self._verdict = Verdict()
        self._not_ours_since: float | None = None  # time.monotonic()
        self._settled_at = 0.0  # time.monotonic() from which on silence counts again
        self._last_outcome = Outcome.STARTING
        self._line_at = self._progress_at = time.monotonic()
        self._progress_key: object = None
        self._known_at = time.monotonic()
        self._kernel = KernelWords()
        self._recorded: object = None
        self._goal: int | None = None  # bytes in the log when the watch began
        self._read_to = 0
        self._asked = False  # about readiness, with the log up to the goal known

    async def updates(self) -> AsyncGenerator[RunUpdate, None]:
        """From the first byte of the log to the end of the run; survives the link. Of a huge log the middle is left out.

        The last update has everything: the exit, and the log to its end. Raises HostError where the host cannot do it.
        """
        chunks: asyncio.Queue[_Input] = asyncio.Queue(maxsize=16)
        wake = asyncio.Event()
        tasks = [
            asyncio.create_task(self._read_log(chunks, wake)),
            asyncio.create_task(self._poll_status(wake)),
            asyncio.create_task(self._link_changes(wake)),
            asyncio.create_task(self._probe_ready(wake)),
            asyncio.create_task(self._look_around(wake)),
        ]
        try:
            while True:
                # Not wait_for: before Python 3.12 it loses a cancellation that comes together with the event.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_TICK_S):
                        await wake.wait()
                wake.clear()
                for task in tasks:
                    if task.done() and (error := task.exception()):
                        raise error  # a watch that reads no more must not look alive
                update, ended = self._step(chunks)
                if not chunks.empty():
                    wake.set()
                for more in update:
                    yield more
                if ended:
                    return
                await asyncio.sleep(_REST_S)  # an event that is set lets nobody else run
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # -- inputs ---------------------------------------------------------------------------------------------------

    async def _read_log(self, chunks: asyncio.Queue[_Input], wake: asyncio.Event) -> None:
        try:
            if self._run_over():  # a run that ended before we came: nothing polls it
                await self._ask_once()
            if self._run.log_path:
                await self._follow(self._run.log_path, chunks, wake)
            else:  # a foreign server whose output goes nowhere we can read
                await self._wait_for_end()
        except UsageError as error:  # another user's log: process and port still tell how the server is
            await chunks.put(error)
            await self._wait_for_end()
        except BaseException:
            wake.set()
            raise
        await chunks.put(None)
        wake.set()

    async def _ask_once(self) -> None:
        with contextlib.suppress(LinkLost, TimedOut):
            self._clock = await host_clock(self._transport)
            if outcome_of_files(self._run) in (Outcome.CRASHED, Outcome.LOST):
                self._kernel = await kernel_words(self._transport, _window_s(self._run))

    async def _wait_for_end(self) -> None:
        if not self._run_over():
            await self._over.wait()

    async def _follow(self, path: str, chunks: asyncio.Queue[_Input], wake: asyncio.Event) -> None:
        last: Chunk | None = None
        whole: bool | None = None  # whether all of it is read; None while that is not decided

        async def rest() -> AsyncGenerator[Chunk | _Gap, None]:
            nonlocal last, whole
            while True:
                if whole is False and last is not None:
                    gap = await self._beyond(path, last)
                    whole = True
                    if gap is not None:
                        last = replace(last, data=b"", offset=gap.end)
                        yield gap
                following = follow(self._transport, path, after=last, ended=self._run_over)
                async with contextlib.aclosing(following):
                    async for chunk in following:
                        last = chunk
                        yield chunk
                        if whole is None and chunk.end >= _HEAD_BYTES:
                            whole = (chunk.size or 0) <= _HUGE_BYTES
                            if not whole:
                                break
                    else:
                        return

        async for item in follow_through(self._transport, rest):
            if not isinstance(item, HostError):
                await chunks.put(item)
            wake.set()

    async def _beyond(self, path: str, last: Chunk) -> _Gap | None:
        """From where to where a huge log is not read; None where it is another file by now."""
        file = (last.identity or "").rsplit(":", 2)[0]
        block = await read_block(self._transport, path, -_TAIL_BYTES, _TAIL_BYTES, file=file)
        begin = last.end
        if block is None or block.file != file or block.offset <= begin:
            return None
        end = block.offset + (first_line(block.data, block.offset) or 0)
        before = await lines_before(self._transport, path, end)
        return _Gap(begin, end, before + 1) if before is not None else None

    def _run_over(self) -> bool:
        return is_over(self._run)

    async def _poll_status(self, wake: asyncio.Event) -> None:
        while not self._run_over():
            try:
                if self._goal is None:
                    self._goal = await self._log_size()
                    self._startup_changed.set()
                if self._clock is None:
                    self._clock = await host_clock(self._transport)
                found = await runs.refresh(self._transport, self._run)
                self._known_at = time.monotonic()
                if found is None:
                    found = replace(self._run, state=RunState.LOST, why="its files are gone")
                if found != self._run:
                    self._run = self._probe.run = found
                    wake.set()
                if self._run_over():
                    self._over.set()
                if outcome_of_files(found) in (Outcome.CRASHED, Outcome.LOST):
                    self._kernel = await kernel_words(self._transport, _window_s(found))
            except EagletuiError:
                pass  # a lost link is shown by _link_changes; the next round asks again
            await asyncio.sleep(_STATUS_PERIOD_S)

    async def _log_size(self) -> int:
        try:
            path = self._run.log_path
            log = await read_block(self._transport, path, 0, 0) if path else None
        except UsageError:
            return 0
        return log.size if log else 0

    def _caught_up(self) -> bool:
        return self._goal is not None and self._read_to >= self._goal

    async def _link_changes(self, wake: asyncio.Event) -> None:
        async for _ in self._transport.watch():
            wake.set()

    async def _probe_ready(self, wake: asyncio.Event) -> None:
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
                wake.set()
            if ready:
                return

    async def _look_around(self, wake: asyncio.Event) -> None:
        """Feeds the watchdog: samples that are there anyway, and a look at the host while it is too quiet."""
        looked_at = float("-inf")
        gpus = True  # whether this host has any
        while not self._run_over():
            await asyncio.sleep(_WATCHDOG_TICK_S)
            now = time.monotonic()
            if self._latest is not None and (seen := self._latest()) is not None:
                self._dog.saw_gpus(now, seen)
            pid = self._run.pid
            quiet = self._dog.wants_look(now, self._last_outcome)
            due = now - looked_at >= LOOK_PERIOD_S
            if not (quiet and due and pid) or self._transport.status().state is not LinkState.UP:
                continue
            looked_at = now
            try:
                self._dog.saw_host(now, await look(self._transport, pid, self._run.port))
                if gpus and self._sample is not None and (self._latest is None or self._latest() is None):
                    sample = await self._sample()
                    gpus = sample.error not in _NO_GPUS
                    self._dog.saw_gpus(time.monotonic(), sample)
            except EagletuiError:
                continue  # asked again
            wake.set()

    def _other_version(self, mine: str | None) -> bool:
        """Whether all starts of this profile here that reached ready had other versions of SGLang."""
        before = {
            item.sglang
            for item in self._past
            if item.host == self._run.host and item.profile == self._run.profile and item.ready_after_s is not None
        }
        return mine is not None and bool(before) and mine not in before

    # -- one step -------------------------------------------------------------------------------------------------

    def _step(self, chunks: asyncio.Queue[_Input]) -> tuple[list[RunUpdate], bool]:
        """Takes what has come, returns the updates and whether the run is over."""
        out: list[RunUpdate] = []
        new: list[LogRecord] = []
        last: LogStep | None = None  # that brought records
        taken = 0
        ended = False

        def event(step: LogStep, *records: LogRecord) -> None:
            nonlocal new, last
            if last is not None:
                out.append(self._update(tuple(new), last))
                new, last = [], None
            out.append(RunUpdate(self._state(), records, log=step))

        while not chunks.empty() and taken < _MAX_BATCH_BYTES:
            chunk = chunks.get_nowait()
            if chunk is None:
                ended = True
                break
            if isinstance(chunk, UsageError):
                event(LogStep(problem=chunk.message))
            elif isinstance(chunk, _Gap):
                event(self._reader.go_on_at(chunk.end, chunk.number), self._left_out(chunk))
                self._read_to = chunk.end
            else:
                if chunk.data:
                    taken += len(chunk.data)
                    self._line_at = self._known_at = time.monotonic()
                    self._read_to = chunk.end
                    self._probe.saw_bytes(chunk.data)
                step = self._reader.take(chunk)
                if chunk.event in (None, "ended"):
                    while step.records and new and new[-1].provisional:
                        new.pop()  # an unterminated tail, written on since
                    new.extend(step.records)
                    last = step
                    if step.records:
                        self._startup_changed.set()
                else:
                    event(step)
        update = self._update(tuple(new), last, ended=ended)
        out.append(update)
        if ended or not self._run_over():  # of a run that is over nothing is known before its log is read
            self._record(update.state)
        return out, ended

    def _update(self, records: tuple[LogRecord, ...], step: LogStep | None, *, ended: bool = False) -> RunUpdate:
        state = self._state(final=ended)
        settled = ended or (self._caught_up() and (self._asked or state.outcome is not Outcome.STARTING))
        log = replace(step, records=records) if step is not None else None
        return RunUpdate(state, records, step.behind_bytes if step is not None else 0, settled, log)

    def _left_out(self, gap: _Gap) -> LogRecord:
        left = (gap.end - gap.begin) / (1 << 20)
        text = f"[eagletui] {left:,.0f} MiB up to line {gap.number:,} were not read here"
        return LogRecord(self._tracker.line_number, gap.begin, None, None, text, "marker", None)

    def _state(self, *, final: bool = False) -> ServerState:
        startup = self._tracker.state()
        run = self._run
        now = time.monotonic()
        progress_key = (startup.phase, startup.progress, startup.lines if startup.progress is None else 0)
        if progress_key != self._progress_key:
            self._progress_key, self._progress_at = progress_key, now
        lost_link = self._transport.status().state is not LinkState.UP
        outcome = self._outcome(startup)
        diagnosis, observations = self._diagnose(startup, final)
        phase = startup.phase
        if self._probe.ready and phase not in (Phase.READY, Phase.SERVING):
            phase = Phase.READY
        elif not self._probe.ready and phase in (Phase.READY, Phase.SERVING) and outcome is Outcome.STARTING:
            phase = Phase.WARMUP  # "fired up", but the listener is not (known to be) ours
        by_gpus = outcome is Outcome.STARTING and phase is Phase.LAUNCH and not startup.fired_up
        guess = self._dog.silent_phase(self._probe.listener_is_ours is True) if by_gpus else None
        phase = guess or phase
        took, started_s, ready_after = self._durations(startup, phase, outcome)
        verdict = self._watch(now, phase, outcome, startup, lost_link)
        suspicion = self._suspicion(now, startup, outcome, verdict)
        fallen = self._dog.fallen_accept(startup) if outcome is Outcome.READY else None
        if fallen is not None:
            observations = (fallen, *(item for item in observations if item.cause != fallen.cause))
        state = ServerState(
            run=run,
            outcome=outcome,
            phase=phase,
            startup=startup,
            diagnosis=diagnosis,
            observations=observations,
            suspicion=suspicion,
            suspected=verdict.suspicion,
            busy=verdict.busy,
            slower=slower_than_ever(phase, took, self._usual, busy=verdict.busy, version_changed=self._version_changed)
            if outcome is Outcome.STARTING and not lost_link
            else None,
            last_ready=self._last_ready,
            phase_by_gpus=guess is not None,
            started_s=started_s,
            ready_after_s=ready_after,
            phase_took_s=took,
            usual=self._usual,
            usual_total=self._usual_total,
            last_line_age_s=now - self._line_at if startup.lines else None,
            last_progress_age_s=now - self._progress_at if startup.lines else None,
            known_at=self._known_at,
            stale=lost_link,
        )
        return replace(state, eta_s=_eta(state)) if outcome is Outcome.STARTING else state

    def _outcome(self, startup: StartupState) -> Outcome:
        ended = outcome_of_files(self._run)
        unexplained = self._run.state is RunState.EXITED and ended is Outcome.LOST
        if startup.outcome is Outcome.CRASHED and (ended is None or unexplained):
            return Outcome.CRASHED
        if ended is not None:
            return ended
        return Outcome.READY if self._probe.ready else Outcome.STARTING

    def _diagnose(self, startup: StartupState, final: bool) -> tuple[Diagnosis | None, tuple[Diagnosis, ...]]:
        key = (startup.lines, f"{self._run.state}{self._run.exit_code}{self._kernel}{final}")
        if self._diagnosed is None or self._diagnosed[:2] != key:
            # The exit speaks only when the whole log has: a reason that is still unread must not look like silence.
            evidence = ExitEvidence(alive=True)
            if self._run_over() and final:
                evidence = _evidence(self._run, self._kernel)
            found, observations = diagnose(self._tracker, exit=evidence)
            if found is not None:
                found = forecast.prefer_worked(found, startup, self._run.host, self._args, self._past)
            self._diagnosed = (*key, found, observations)
        return self._diagnosed[2], self._diagnosed[3]

    def _durations(
        self, startup: StartupState, phase: Phase, outcome: Outcome
    ) -> tuple[dict[Phase, float], float | None, float | None]:
        started_s = _epoch(self._run.started_at)
        if self._clock is None or started_s is None:
            return {}, started_s, self._ready_after_s
        elapsed = max(0.0, self._clock.now() - started_s)
        if outcome is not Outcome.STARTING and self._run.ended_at:
            elapsed = max(0.0, (_epoch(self._run.ended_at) or started_s) - started_s)
        first = self._clock.epoch_of(startup.first_stamp_s) if startup.first_stamp_s is not None else None
        # Stamps have whole seconds, so the first one may seem to lie before the launch.
        offset = max(0.0, first - started_s) if first is not None else 0.0
        took: dict[Phase, float] = {}
        for span in startup.spans:
            if span.began_s is None or span.phase in (Phase.READY, Phase.SERVING):
                continue
            began = 0.0 if span.phase is Phase.LAUNCH else offset + span.began_s
            if span.ended_s is not None:
                end = offset + span.ended_s
            else:
                end = elapsed if outcome is not Outcome.READY else (self._ready_after_s or elapsed)
            took[span.phase] = took.get(span.phase, 0.0) + max(0.0, end - began)
        if not took and phase is Phase.LAUNCH:
            took[Phase.LAUNCH] = elapsed
        if self._probe.ready and self._ready_after_s is None:
            ready = next((span.began_s for span in startup.spans if span.phase is Phase.READY), None)
            self._ready_after_s = offset + ready if ready is not None and first is not None else elapsed
        return took, started_s, self._ready_after_s

    def _watch(self, now: float, phase: Phase, outcome: Outcome, startup: StartupState, lost_link: bool) -> Verdict:
        """The watchdog's word; while the link is down, and right after, the one before it."""
        self._last_outcome = outcome
        self._dog.saw_log(now, startup)
        if lost_link:
            self._settled_at = now + _SETTLE_S
        if now >= self._settled_at:
            self._verdict = self._dog.judge(now, phase, outcome, startup)
        elif outcome not in (Outcome.STARTING, Outcome.READY):
            self._verdict = Verdict()
        return self._verdict

    def _suspicion(self, now: float, startup: StartupState, outcome: Outcome, verdict: Verdict) -> str | None:
        if outcome is Outcome.STARTING and self._probe.listener_is_ours is False and startup.fired_up:
            # The look that said so may be from before the server listened itself.
            self._not_ours_since = self._not_ours_since or now
            if now - self._not_ours_since >= _NOT_OURS_S:
                return f"port {self._run.port} answers, but another process listens on it"
        else:
            self._not_ours_since = None
        return verdict.suspicion.text if verdict.suspicion is not None else None

    def _record(self, state: ServerState) -> None:
        """Writes what this start taught into this machine's record, once per change."""
        cause = state.diagnosis.cause if state.diagnosis else None
        key = (state.outcome, state.ready_after_s, cause, state.run.exit_code)
        if key == self._recorded or state.outcome is Outcome.STARTING:
            return
        self._recorded = key
        known = launch_records.read(self._run.run_id)
        if known is None:
            return
        phases = {str(phase): round(seconds, 1) for phase, seconds in state.phase_took_s.items()}
        with contextlib.suppress(OSError):  # a full disk here must not end the watching
            launch_records.write(
                replace(
                    known,
                    outcome=str(state.outcome),
                    cause=cause,
                    phase=str(state.phase),
                    ready_after_s=state.ready_after_s,
                    phase_took_s=phases if state.ready_after_s is not None else known.phase_took_s,
                    exit_code=state.run.exit_code,
                    ended_at=state.run.ended_at,
                    ledger=tuple(asdict(row) for row in state.startup.ledger) or known.ledger,
                    mem_fraction=forecast.mem_fraction(state.startup) or known.mem_fraction,
                    graph_batch=forecast.graph_batch(state.startup) or known.graph_batch,
                )
            )


async def exit_evidence(transport: Transport, run: Run) -> ExitEvidence:
    """What the host says of a run's end. Raises HostError, LinkLost."""
    if not is_over(run):
        return ExitEvidence(alive=True)
    kernel = KernelWords()
    if outcome_of_files(run) in (Outcome.CRASHED, Outcome.LOST):
        kernel = await kernel_words(transport, _window_s(run))
    return _evidence(run, kernel)


def _evidence(run: Run, kernel: KernelWords) -> ExitEvidence:
    return ExitEvidence(
        exit_code=run.exit_code,
        stopped_by_us=run.stopped_by_us,
        dmesg_oom=kernel.oom,
        dmesg_xid=kernel.xid,
        kernel_silent=kernel.readable,
    )


def _window_s(run: Run) -> tuple[float, float] | None:
    """How many seconds ago a run ended (0 = it has not) and was started, by our clock; None where that is not known."""
    started, ended = _epoch(run.started_at), _epoch(run.ended_at)
    return (time.time() - ended if ended else 0.0, time.time() - started) if started is not None else None


def _eta(state: ServerState) -> float | None:
    """Seconds to ready: what is left of the present phase, by its bar or its usual time, and the phases after it."""
    if state.usual_total is None:
        return None
    took = state.phase_took_s
    elapsed = sum(took.values())
    current = state.usual.get(state.phase)
    progress = state.startup.progress
    so_far = took.get(state.phase, 0.0)
    left = max(0.0, current.median_s - so_far) if current else 0.0
    if progress and 0 < progress.done <= progress.total and state.phase is Phase.LOAD_WEIGHTS:
        left = so_far * (progress.total - progress.done) / progress.done
    later = sum(
        history.median_s for phase, history in state.usual.items() if phase not in took and phase is not state.phase
    )
    if not state.usual:
        return max(0.0, state.usual_total.median_s - elapsed)
    return left + later
