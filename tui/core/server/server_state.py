"""A server as everybody sees it who watches one: frozen states, and what one tick of watching brings."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tui.core.logs.reader import LogStep
from tui.core.model.log import LogRecord
from tui.core.model.phases import Outcome, Phase
from tui.core.model.run import Run
from tui.core.server.earlier_starts import LastReady
from tui.core.server.launch_records import PhaseHistory
from tui.core.server.watchdog import Slower, Suspicion
from tui.core.sglang.diagnosis import Diagnosis
from tui.core.sglang.state import StartupState


@dataclass(frozen=True)
class ServerState:
    """A server as the panel, `wait` and `launch --wait` see it; log, files of the run and host agree on it."""

    run: Run
    outcome: Outcome
    phase: Phase  # of a silent log: what GPU memory and the port show
    startup: StartupState
    diagnosis: Diagnosis | None = None
    observations: tuple[Diagnosis, ...] = ()
    suspicion: str | None = None  # why it may hang: a sentence; the outcome stays `starting` or `ready`
    suspected: Suspicion | None = None  # the same with its evidence
    busy: str | None = None  # why a silence is no hang: "kernels are being compiled (ptxas)"
    slower: Slower | None = None  # the present phase takes longer than ever here
    last_ready: LastReady | None = None  # the last configuration of this model here that reached ready
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
