"""One host: composes transport, GPUs, runs, logs, start-up tracking and diagnosis into async iterators of frozen states."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

from tui.config import HostEntry
from tui.core.diagnosis import Diagnosis
from tui.core.gpus import GpuSample, HostFacts
from tui.core.logs import LogRecord
from tui.core.preflight import Finding
from tui.core.profiles import LaunchCommand, LaunchProfile
from tui.core.runs import Run
from tui.core.startup import Outcome, Phase, StartupState
from tui.core.transport import LinkStatus, Transport


@dataclass(frozen=True)
class PhaseHistory:
    """How long a phase took in earlier starts of this profile on this host."""

    median_s: float
    low_s: float
    high_s: float
    n: int


@dataclass(frozen=True)
class ServerState:
    """A server as the panel, `wait` and `launch --wait` see it; the log, the files of the run and the host agree on it."""

    run: Run
    outcome: Outcome
    phase: Phase
    startup: StartupState
    diagnosis: Diagnosis | None = None
    observations: tuple[Diagnosis, ...] = ()
    suspicion: str | None = None  # why it may hang: a sentence; the outcome stays `starting`
    started_s: float | None = None  # time.time() of the host at the launch
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
class LogGap:
    """The file was replaced or truncated: what follows is another generation and is never merged."""

    reason: str


@dataclass(frozen=True)
class RunUpdate:
    """What one tick of watching a run brought."""

    state: ServerState
    records: tuple[LogRecord, ...] = ()
    gap: LogGap | None = None
    behind_bytes: int = 0  # log bytes on the host not read yet


@dataclass(frozen=True)
class LaunchPlan:
    """A launch that was looked at but not made."""

    profile: LaunchProfile
    command: LaunchCommand
    findings: tuple[Finding, ...]

    @property
    def blocked(self) -> bool:
        return any(finding.level == "block" for finding in self.findings)


@dataclass(frozen=True)
class StopProgress:
    """How far a stop has come; the last one has `done` set."""

    step: str  # requested, term, term-all, kill, done, stuck, memory
    text: str  # a sentence
    done: bool = False
    memory_held_mib: float | None = None  # still held on the run's GPUs by anyone


class HostSession:
    """One host. Everything the panel and the command line do goes through here."""

    def __init__(self, entry: HostEntry, transport: Transport) -> None:
        self.entry = entry
        self.transport = transport

    async def open(self) -> None:
        """Connects. Raises HostError."""
        raise NotImplementedError

    async def close(self) -> None:
        """Ends all iterators; runs go on. Within 2 s."""
        raise NotImplementedError

    def link(self) -> AsyncIterator[LinkStatus]:
        raise NotImplementedError

    async def facts(self, *, refresh: bool = False) -> HostFacts:
        """Hardware and software of the host, cached on this machine; asked again where the driver changed."""
        raise NotImplementedError

    def gpus(self, period_s: float = 1.0) -> AsyncIterator[GpuSample]:
        """Samples for ever; a link that is lost is a pause, a sampler that hangs is replaced."""
        raise NotImplementedError

    async def runs(self) -> tuple[Run, ...]:
        """Ours and foreign servers, newest first."""
        raise NotImplementedError

    async def plan(self, profile: LaunchProfile, overrides: Mapping[str, object]) -> LaunchPlan:
        """The exact command and the pre-flight findings."""
        raise NotImplementedError

    async def launch(self, plan: LaunchPlan, *, replace: bool = False) -> Run:
        """Starts it at most once. Raises EagletuiError(slug="preflight") where the plan is blocked."""
        raise NotImplementedError

    def watch(self, run: Run) -> AsyncIterator[RunUpdate]:
        """Log and state of a run from its first byte (or its last 256 KiB where it is huge) to its end; survives the link."""
        raise NotImplementedError

    def stop(self, run: Run, *, grace_s: float = 20.0) -> AsyncIterator[StopProgress]:
        """Stops the whole tree and waits until its GPU memory is back. Idempotent. Raises for a foreign server."""
        raise NotImplementedError
