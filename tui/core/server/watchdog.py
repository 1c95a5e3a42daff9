"""What a silence means: suspicions about a server that starts or serves, each with its evidence. Never a decision.

Nothing here generates a token or asks the server anything: the log, samples of the GPUs and one look at the host's
processes decide. A suspicion kills nothing and ends no wait. Limits: docs/diagnosis.md.
"""

import tomllib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from operator import attrgetter

from tui.core.host.gpus import GpuSample
from tui.core.model.phases import Outcome, Phase
from tui.core.server.host_look import HostLook
from tui.core.server.launch_records import PhaseHistory
from tui.core.sglang.diagnosis import Diagnosis, Evidence
from tui.core.sglang.state import StartupState

LOOK_PERIOD_S = 15.0
_LOOK_AFTER_S = 30.0  # of silence: before that nobody asks the host
_DEEP_GEMM_S = (1200.0, 2400.0)  # pre-compilation takes 10 to 20 minutes
_AUTOTUNE_S = (400.0, 1200.0)
_STUCK_S = (60.0, 300.0)  # without a batch line, with requests under way
_SPIN_S = 60.0  # of full utilisation at idle power, without progress
_SPIN_UTIL_PCT = 95.0
_SPIN_POWER = 0.35  # share of the power limit: kernels that wait draw a fifth, those that work a half
_GROWTH_MIB, _GROWTH_WINDOW_S = 64.0, 60.0
_LOADING_MIB = 3072.0  # more than contexts and communication buffers take
_HELD_S = 20.0  # an idle connection is closed after 5 s: one that is older carries a request
_HISTORY_S = 600.0
_SAMPLE_EVERY_S = 2.0
_WORTH_ACCEPT, _FALLEN_LINES = 1.2, 5


@dataclass(frozen=True)
class _Expected:
    """What is known of a phase; the fields are described in `tui/data/silence.toml`."""

    usual_s: float
    longest_s: float
    causes: str
    slower: Sequence[str]


_TABLE = tomllib.loads(resources.files("tui.data").joinpath("silence.toml").read_text(encoding="utf-8"))
_PHASES = {Phase(name): _Expected(**values) for name, values in _TABLE.items()}


@dataclass(frozen=True)
class Suspicion:
    """That a server may hang: a sentence, and the evidence for it."""

    kind: str  # silence, stuck, spinning
    text: str  # one sentence
    evidence: tuple[str, ...] = ()
    hard: bool = False  # longer than anything legitimate that is known


@dataclass(frozen=True)
class Slower:
    """A phase that takes longer than it ever did here."""

    phase: Phase
    took_s: float  # so far
    slowest_s: float  # of the earlier starts
    reasons: tuple[str, ...]  # likely ones, most likely first


@dataclass(frozen=True)
class Assessment:
    """What a watchdog thinks at one moment."""

    suspicion: Suspicion | None = None
    busy: str | None = None  # why a silence is no hang: "kernels are being compiled (ptxas)"


@dataclass(frozen=True)
class _GpuPoint:
    at: float
    memory_mib: float | None  # all GPUs of the run together
    least_util: float | None
    most_power: float | None  # share of the limit


def _point(at: float, sample: GpuSample, wanted: Sequence[int]) -> _GpuPoint:
    gpus = [gpu for gpu in sample.gpus if not wanted or gpu.index in wanted]
    memory = [gpu.memory_used_mib for gpu in gpus if gpu.memory_used_mib is not None]
    util = [gpu.utilization_pct for gpu in gpus if gpu.utilization_pct is not None]
    power = [gpu.power_w / gpu.power_limit_w for gpu in gpus if gpu.power_w is not None and gpu.power_limit_w]
    whole = len(gpus)
    return _GpuPoint(
        at,
        sum(memory) if memory and len(memory) == whole else None,
        min(util) if util and len(util) == whole else None,
        max(power) if power and len(power) == whole else None,
    )


class Watchdog:
    """Remembers when something last moved. All times are seconds of one monotonic clock.

    Args:
        gpus: indices of the run's GPUs; () = all that are seen.
        now: when the watching began.
    """

    def __init__(self, gpus: Sequence[int], now: float) -> None:
        self._gpus = gpus
        self._line_at = self._progress_at = self._batch_at = now
        self._lines = self._tokenizer = 0
        self._bar = False
        self._progress: object = None
        self._batch_line: int | None = None
        self._best_accept: float | None = None
        self._points: deque[_GpuPoint] = deque()
        self._looks: deque[tuple[float, HostLook]] = deque()
        self._held: dict[str, float] = {}  # open connection -> first seen

    # -- what is seen ---------------------------------------------------------------------------------------------------

    def saw_log(self, now: float, startup: StartupState) -> None:
        """The state after the newest bytes of the log."""
        if startup.lines != self._lines and startup.slow_tokenizer == self._tokenizer:
            self._line_at = now
        # The slow tokenizer warns every few seconds, whatever hangs.
        self._lines, self._tokenizer = startup.lines, startup.slow_tokenizer
        self._bar = startup.progress is not None
        progress = (startup.phase, startup.progress, startup.working)
        if progress != self._progress:
            self._progress, self._progress_at = progress, now
        if startup.batch_line != self._batch_line:
            self._batch_line, self._batch_at = startup.batch_line, now
        decode = startup.last_decode
        if decode is not None and decode.accept_len is not None:
            self._best_accept = max(self._best_accept or 0.0, decode.accept_len)

    def saw_gpus(self, now: float, sample: GpuSample) -> None:
        """A sample; one that is an error, or old because the driver stalls, says nothing."""
        if sample.error or sample.stalled_s or not sample.gpus:
            return
        if self._points and now - self._points[-1].at < _SAMPLE_EVERY_S:
            return
        self._points.append(_point(now, sample, self._gpus))
        while self._points and now - self._points[0].at > _HISTORY_S:
            self._points.popleft()

    def saw_host(self, now: float, seen: HostLook) -> None:
        """A look at the processes."""
        self._looks.append((now, seen))
        while len(self._looks) > 1 and now - self._looks[0][0] > _HISTORY_S:
            self._looks.popleft()
        self._held = {end: self._held.get(end, now) for end in seen.connections}

    # -- what it means ----------------------------------------------------------------------------------------------------

    def wants_look(self, now: float, outcome: Outcome) -> bool:
        """Whether it is quiet enough to ask the host."""
        if outcome is Outcome.STARTING:
            return now - self._quiet_since() > _LOOK_AFTER_S
        return outcome is Outcome.READY and self._batch_line is not None and now - self._batch_at > _LOOK_AFTER_S

    def judge(self, now: float, phase: Phase, outcome: Outcome, startup: StartupState) -> Assessment:
        """The suspicion at `now`, or why there is none in spite of a silence."""
        if outcome is Outcome.STARTING:
            return self._starting(now, phase, startup)
        if outcome is Outcome.READY:
            return Assessment(self._serving(now, startup))
        return Assessment()

    def _quiet_since(self) -> float:
        # Beside a bar other lines prove nothing: seven ranks may wait for the one whose bar stands still.
        return self._progress_at if self._bar else max(self._line_at, self._progress_at)

    def _starting(self, now: float, phase: Phase, startup: StartupState) -> Assessment:
        limits = _limits(phase, startup)
        silent = now - self._quiet_since()
        if limits is None:
            return Assessment()
        spinning = self._spinning(now, max(self._line_at, self._progress_at))
        if spinning is not None:
            return Assessment(replace(spinning, hard=silent > limits[1]))
        if silent < _LOOK_AFTER_S:
            return Assessment()
        busy = self._busy(now, phase)
        if busy is not None:
            return Assessment(busy=busy)
        if silent < limits[0]:
            return Assessment()
        what = "the bar has not moved" if self._bar else "no new line"
        name = phase.replace("_", " ")
        text = f"{what} for {_span(silent)} in {name}; {_PHASES[phase].causes}"
        return Assessment(Suspicion("silence", text, self._evidence(now), silent > limits[1]))

    def _busy(self, now: float, phase: Phase) -> str | None:
        """What proves that a silent start works."""
        if self._looks and now - self._looks[-1][0] < 3 * LOOK_PERIOD_S:
            compilers = self._looks[-1][1].compilers
            if compilers:
                return f"kernels are being compiled ({', '.join(compilers)})"
        if phase in (Phase.LOAD_WEIGHTS, Phase.DRAFT_MODEL):
            grown = self._memory_growth(now)
            if grown is not None and grown > _GROWTH_MIB:
                return f"GPU memory grows: {grown / 1024:.1f} GiB in the last minute"
            read = self._rate(attrgetter("read_bytes"))
            if read is not None and read > 1e6:
                return f"it reads {read / 1e6:.0f} MB/s from disks"
        return None

    def _memory_growth(self, now: float) -> float | None:
        recent = [p for p in self._points if now - p.at <= _GROWTH_WINDOW_S and p.memory_mib is not None]
        if len(recent) < 2:
            return None
        return (recent[-1].memory_mib or 0.0) - (recent[0].memory_mib or 0.0)

    def _rate(self, figure: Callable[[HostLook], float | None]) -> float | None:
        """What a figure of the run's processes gained a second, between the last two looks."""
        if len(self._looks) < 2:
            return None
        (earlier, first), (later, last) = self._looks[-2], self._looks[-1]
        before, after = figure(first), figure(last)
        return (
            (after - before) / (later - earlier)
            if before is not None and after is not None and later > earlier
            else None
        )

    def _spinning(self, now: float, since: float) -> Suspicion | None:
        """Full utilisation at idle power without progress: kernels that wait for each other."""
        begin = max(since, now - _HISTORY_S)
        points = [p for p in self._points if p.at >= begin]
        streak = []
        for point in reversed(points):
            if point.least_util is None or point.most_power is None:
                break
            if point.least_util < _SPIN_UTIL_PCT or point.most_power > _SPIN_POWER:
                break
            streak.append(point)
        # Seen often enough, and up to now: two samples a minute apart prove nothing.
        if len(streak) < 5 or streak[0].at - streak[-1].at < _SPIN_S or now - streak[0].at > 30.0:
            return None
        power = max(point.most_power or 0.0 for point in streak)
        length = _span(streak[0].at - streak[-1].at)
        return Suspicion(
            "spinning",
            f"the GPUs are at 100 % at idle power for {length} and nothing moves: ranks may wait for each other",
            (f"utilisation at least {_SPIN_UTIL_PCT:g} %, power at most {power:.0%} of its limit", *self._evidence(now)),
        )  # fmt: skip

    def _serving(self, now: float, startup: StartupState) -> Suspicion | None:
        silent = now - self._batch_at
        if self._batch_line is None or silent < _STUCK_S[0] or _interval(startup) > 1000:
            return None
        spinning = self._spinning(now, self._batch_at)
        if spinning is not None:
            return replace(spinning, hard=silent > _STUCK_S[1])
        if (startup.server_args or {}).get("enable_http2"):
            return None  # its connections stay open without a request
        held = [end for end, since in self._held.items() if now - since >= _HELD_S]
        if not held or not self._looks or now - self._looks[-1][0] > 3 * LOOK_PERIOD_S:
            return None
        requests = f"{len(held)} request{'s are' if len(held) > 1 else ' is'}"
        text = f"{requests} waiting and no batch line came for {_span(silent)}: it may be stuck"
        decode = startup.last_decode
        evidence = [f"connections to the port open for more than {_HELD_S:g} s: {len(held)}"]
        if decode is not None and decode.running:
            evidence.append(f"the last decode line had {decode.running} running")
        return Suspicion("stuck", text, (*evidence, *self._evidence(now)), silent > _STUCK_S[1])

    def _evidence(self, now: float) -> tuple[str, ...]:
        found = []
        share = self._rate(attrgetter("cpu_s"))
        if share is not None:
            found.append("no process of it uses the CPU" if share < 0.02 else f"it uses {share:.1f} CPUs")
        if self._points and now - self._points[-1].at < 60.0:
            point = self._points[-1]
            if point.least_util is not None and point.most_power is not None:
                found.append(f"GPUs at {point.least_util:.0f} % and {point.most_power:.0%} of their power limit")
            grown = self._memory_growth(now)
            if grown is not None and abs(grown) <= _GROWTH_MIB:
                found.append("GPU memory does not change")
        if self._looks:
            count = len(self._looks[-1][1].processes)
            found.append(f"{count} processes are alive" if count else "its processes are not to be seen")
        return tuple(found)

    def silent_phase(self, listening: bool) -> Phase | None:
        """How far a start is whose log says nothing (log level warning), by GPU memory and its port; None = nothing shows it."""
        if listening:
            return Phase.WARMUP
        memory = [point.memory_mib for point in self._points if point.memory_mib is not None]
        return Phase.LOAD_WEIGHTS if memory and memory[-1] - min(memory) > _LOADING_MIB else None

    def fallen_accept(self, startup: StartupState) -> Diagnosis | None:
        """The observation that a draft model which was of use accepts nothing any more."""
        best = self._best_accept
        if startup.accept_one < _FALLEN_LINES or best is None or best < _WORTH_ACCEPT:
            return None
        return Diagnosis(
            "draft_config",
            f"The accept length fell from {best:.2f} to 1.00: the draft model contributes nothing any more.",
            startup.phase,
            None,
            Evidence(startup.accept_one_line or 0, "accept len: 1.00"),
            (
                "Look at what is asked now: other languages, random tokens or very long contexts are outside what a draft learnt.",
                "If the requests are the same as before, restart: a draft whose KV cache is damaged never recovers.",
            ),
            observation=True,
        )


def _interval(startup: StartupState) -> int:
    value = (startup.server_args or {}).get("decode_log_interval")
    return value if type(value) is int else 40


def _limits(phase: Phase, startup: StartupState) -> tuple[float, float] | None:
    expected = _PHASES.get(phase)
    if expected is None:
        return None
    working = (startup.working or "").lower()
    slower = _DEEP_GEMM_S if "deepgemm" in working else _AUTOTUNE_S if "autotune" in working else (0.0, 0.0)
    return max(expected.usual_s, slower[0]), max(expected.longest_s, slower[1])


def slower_than_ever(
    phase: Phase,
    took: Mapping[Phase, float],
    usual: Mapping[Phase, PhaseHistory],
    *,
    busy: str | None = None,
    version_changed: bool = False,
) -> Slower | None:
    """The present phase where it already takes longer than in any earlier start here, with likely reasons.

    Args:
        took: seconds of each phase so far.
        usual: of earlier starts; without them nothing is slow.
        busy: what the processes were seen doing.
        version_changed: SGLang has another version than in the earlier starts.
    """
    history, so_far = usual.get(phase), took.get(phase)
    if history is None or so_far is None or so_far <= 1.1 * history.high_s + 5.0:
        return None
    reasons = [busy] if busy else []
    if version_changed:
        reasons.append("another version of SGLang: kernels are compiled again")
    likely = _PHASES[phase].slower if phase in _PHASES else ()
    return Slower(phase, so_far, history.high_s, (*reasons, *likely))


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
