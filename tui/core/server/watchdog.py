"""What a silence means: suspicions about a server that starts or serves, each with its evidence. Never a verdict.

Nothing here generates a token or asks the server anything: the log, samples of the GPUs and one look at the host's
processes decide. A suspicion kills nothing and ends no wait. Limits: docs/diagnosis.md.
"""

import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources

from tui.core.host.gpus import GpuSample
from tui.core.link.transport import Transport
from tui.core.model.phases import Outcome, Phase
from tui.core.server.launch_records import PhaseHistory
from tui.core.sglang.diagnosis import Diagnosis, Evidence
from tui.core.sglang.state import StartupState
from tui.core.text import one_line

LOOK_PERIOD_S = 15.0
_LOOK_AFTER_S = 30.0  # of silence: before that nobody asks the host
# Silence (s) since the last line, or since the last move of a bar: legitimate up to the first, unheard of after the second.
_SILENCE_S: Mapping[Phase, tuple[float, float]] = {
    Phase.LAUNCH: (120.0, 300.0),
    Phase.DISTRIBUTED_INIT: (60.0, 300.0),
    Phase.LOAD_WEIGHTS: (180.0, 900.0),
    Phase.DRAFT_MODEL: (180.0, 900.0),
    Phase.MEMORY_POOL: (60.0, 300.0),
    Phase.CUDA_GRAPH: (180.0, 900.0),
    Phase.WARMUP: (120.0, 620.0),
}
_DEEP_GEMM_S = (1200.0, 2400.0)  # pre-compilation takes 10 to 20 minutes
_AUTOTUNE_S = (400.0, 1200.0)
_STUCK_S = (60.0, 300.0)  # without a batch line, with requests under way
_SPIN_S = 60.0  # of full utilisation at idle power, without progress
_SPIN_UTIL_PCT, _SPIN_POWER = (
    95.0,
    0.35,
)  # share of the power limit: kernels that wait draw a fifth, those that work a half
_GROWTH_MIB, _GROWTH_WINDOW_S = 64.0, 60.0
_LOADING_MIB = 3072.0  # more than contexts and communication buffers take
_HELD_S = 20.0  # an idle connection is closed after 5 s: one that is older carries a request
_COMPILERS = ("nvcc", "cicc", "ptxas", "ninja", "cc1plus", "hipcc")  # fatbinary and ld come and go too fast to be seen
_HISTORY_S = 600.0
_SAMPLE_EVERY_S = 2.0
_WORTH_ACCEPT, _FALLEN_LINES = 1.2, 5


@dataclass(frozen=True)
class Process:
    pid: int
    parent: int
    cpu_s: float  # used so far
    read_bytes: int | None  # from disks so far; None = not allowed to see
    name: str


@dataclass(frozen=True)
class HostLook:
    """The processes of a run at one moment, and who is connected to its port."""

    processes: tuple[Process, ...]
    connections: frozenset[str]  # remote ends of established connections

    @property
    def cpu_s(self) -> float:
        return sum(process.cpu_s for process in self.processes)

    @property
    def read_bytes(self) -> int | None:
        seen = [process.read_bytes for process in self.processes if process.read_bytes is not None]
        return sum(seen) if seen else None

    @property
    def compilers(self) -> tuple[str, ...]:
        """Names of the compilers that run now, sorted."""
        return tuple(sorted({process.name for process in self.processes if process.name in _COMPILERS}))


@dataclass(frozen=True)
class Suspicion:
    """That a server may hang: a sentence and what speaks for it."""

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
class Verdict:
    """What a watchdog thinks at one moment."""

    suspicion: Suspicion | None = None
    busy: str | None = None  # why a silence is no hang: "kernels are being compiled (ptxas)"


@cache
def _script() -> str:
    return resources.files("tui.remote").joinpath("look.sh").read_text(encoding="utf-8")


async def look(transport: Transport, pid: int, port: int | None) -> HostLook:
    """One look at the processes of a run. Raises HostError, LinkLost."""
    head = f"LK_PID={pid}\nLK_PORT={port or ''}\n"
    done = await transport.run(head + _script(), timeout_s=20.0)
    return read_look(done.stdout.decode("utf-8", "replace"))


_KERNEL_STAMP = re.compile(r"\[\s*(\d+)\.\d+\]")
_KERNEL_LINES = 40
_KERNEL = (
    "cat /proc/uptime; if words=$(dmesg 2>/dev/null); then echo readable; printf '%s\\n' \"$words\" |"
    f" grep -iE 'out of memory|oom-kill|killed process|NVRM: Xid' | tail -n {_KERNEL_LINES}; fi; exit 0"
)


@dataclass(frozen=True)
class KernelWords:
    """What the kernel's log says of the time of a run."""

    readable: bool = False  # whether we may see it at all
    oom: str | None = None  # the newest line about a process killed for memory
    xid: str | None = None  # the newest line about an error of a GPU or its driver


async def kernel_words(transport: Transport, window_s: tuple[float, float] | None) -> KernelWords:
    """The kernel's log where it can be read. Raises HostError, LinkLost.

    Args:
        window_s: how many seconds ago the run ended and was started: what was said before or after explains nothing.
    """
    done = await transport.run(_KERNEL, timeout_s=20.0)
    return read_kernel(done.stdout.decode("utf-8", "replace"), window_s)


def read_kernel(text: str, window_s: tuple[float, float] | None) -> KernelWords:
    """The answer: lines without the kernel's time stamp, or outside the window (give or take a minute), do not count."""
    first, _, rest = text.partition("\n")
    said, *lines = rest.split("\n")
    try:
        uptime = float(first.split()[0])
    except (ValueError, IndexError):
        return KernelWords()
    if said != "readable" or window_s is None:
        return KernelWords(readable=said == "readable")
    oom = xid = None
    for line in lines:
        stamp = _KERNEL_STAMP.search(line)
        if stamp is None or not window_s[0] - 60.0 <= uptime - float(stamp[1]) <= window_s[1] + 60.0:
            continue
        if "Xid" in line:
            xid = one_line(line)
        else:
            oom = one_line(line)
    return KernelWords(True, oom, xid)


def read_look(text: str) -> HostLook:
    """The script's answer; lines that are none are left out."""
    ticks = 100.0
    processes: list[Process] = []
    connections: set[str] = set()
    for line in text.split("\n"):
        words = line.split(" ", 5)
        try:
            match words[0]:
                case "hz":
                    ticks = float(words[1]) or 100.0
                case "proc":
                    read = None if words[4] == "-" else int(words[4])
                    name = one_line(words[5], 40)
                    processes.append(Process(int(words[1]), int(words[2]), int(words[3]) / ticks, read, name))
                case "conn":
                    connections.add(words[1])
                case _:
                    pass
        except (IndexError, ValueError):
            continue
    return HostLook(tuple(processes), frozenset(connections))


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

    def judge(self, now: float, phase: Phase, outcome: Outcome, startup: StartupState) -> Verdict:
        """The suspicion at `now`, or why there is none in spite of a silence."""
        if outcome is Outcome.STARTING:
            return self._starting(now, phase, startup)
        if outcome is Outcome.READY:
            return Verdict(self._serving(now, startup))
        return Verdict()

    def _quiet_since(self) -> float:
        # Beside a bar other lines prove nothing: seven ranks may wait for the one whose bar stands still.
        return self._progress_at if self._bar else max(self._line_at, self._progress_at)

    def _starting(self, now: float, phase: Phase, startup: StartupState) -> Verdict:
        limits = _limits(phase, startup)
        silent = now - self._quiet_since()
        if limits is None:
            return Verdict()
        spinning = self._spinning(now, max(self._line_at, self._progress_at))
        if spinning is not None:
            return Verdict(replace(spinning, hard=silent > limits[1]))
        if silent < _LOOK_AFTER_S:
            return Verdict()
        busy = self._busy(now, phase)
        if busy is not None:
            return Verdict(busy=busy)
        if silent < limits[0]:
            return Verdict()
        what = "the bar has not moved" if self._bar else "no new line"
        name = phase.replace("_", " ")
        text = f"{what} for {_span(silent)} in {name}; {_CAUSES[phase]}"
        return Verdict(Suspicion("silence", text, self._evidence(now), silent > limits[1]))

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
            read = self._disk_rate()
            if read is not None and read > 1e6:
                return f"it reads {read / 1e6:.0f} MB/s from disks"
        return None

    def _memory_growth(self, now: float) -> float | None:
        recent = [p for p in self._points if now - p.at <= _GROWTH_WINDOW_S and p.memory_mib is not None]
        if len(recent) < 2:
            return None
        return (recent[-1].memory_mib or 0.0) - (recent[0].memory_mib or 0.0)

    def _disk_rate(self) -> float | None:
        if len(self._looks) < 2:
            return None
        (earlier, first), (later, last) = self._looks[-2], self._looks[-1]
        if first.read_bytes is None or last.read_bytes is None or later <= earlier:
            return None
        return (last.read_bytes - first.read_bytes) / (later - earlier)

    def _cpu_share(self) -> float | None:
        """CPU seconds a second of all processes of the run, between the last two looks."""
        if len(self._looks) < 2:
            return None
        (earlier, first), (later, last) = self._looks[-2], self._looks[-1]
        return max(0.0, last.cpu_s - first.cpu_s) / (later - earlier) if later > earlier else None

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
        share = self._cpu_share()
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
        """How far a start is whose log says nothing (log level warning), by GPU memory and its port; None = not to be told."""
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
    limits = _SILENCE_S.get(phase)
    working = (startup.working or "").lower()
    if limits is None or not working:
        return limits
    slower = _DEEP_GEMM_S if "deepgemm" in working else _AUTOTUNE_S if "autotune" in working else limits
    return (max(limits[0], slower[0]), max(limits[1], slower[1]))


_CAUSES: Mapping[Phase, str] = {
    Phase.LAUNCH: "imports from a slow disk, or a download",
    Phase.DISTRIBUTED_INIT: "ranks that do not reach each other (P2P, network interface, a rank that died)",
    Phase.LOAD_WEIGHTS: "slow storage, weights being repacked, or a rank that died",
    Phase.DRAFT_MODEL: "slow storage, or a rank that died",
    Phase.MEMORY_POOL: "a rank that hangs or died",
    Phase.CUDA_GRAPH: "kernels compiled for the first time, or ranks that wait for each other (P2P)",
    Phase.WARMUP: "kernels compiled at the first request, or a warm-up that nobody answers",
}
_SLOW_REASONS: Mapping[Phase, tuple[str, ...]] = {
    Phase.LAUNCH: ("Python and its packages are not in the page cache", "the disk is busy"),
    Phase.DISTRIBUTED_INIT: ("another process uses the GPUs or the network", "peer-to-peer access changed"),
    Phase.LOAD_WEIGHTS: ("the weights are not in the page cache", "slower or busy storage"),
    Phase.DRAFT_MODEL: ("the draft's weights are not in the page cache", "slower or busy storage"),
    Phase.MEMORY_POOL: ("another process uses the GPUs",),
    Phase.CUDA_GRAPH: ("kernels are compiled anew: the cache is cold", "more batch sizes are captured than before"),
    Phase.WARMUP: ("kernels are compiled at the first request",),
}


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
        reasons.append("another version of SGLang: kernels are compiled anew")
    return Slower(phase, so_far, history.high_s, (*reasons, *_SLOW_REASONS.get(phase, ())))


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
