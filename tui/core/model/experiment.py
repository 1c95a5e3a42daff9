"""Where a bench or an experiment is: its arms, and the run that is being measured."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tui.core.model.profile import BenchProfile, LoadPoint
from tui.core.model.result import Result
from tui.core.model.verdict import Verdict


@dataclass(frozen=True)
class LiveRun:
    """A run that is being measured, as the generator's last aggregate says (4 Hz or less)."""

    point: LoadPoint
    run_index: int  # from 1
    phase: str  # warmup, window, drain
    tok_s: float | None = None  # output tokens a second, over the last second
    series: tuple[float | None, ...] = ()  # of it, one a second, newest last
    ttft_ms: float | None = None  # median so far
    tpot_ms: float | None = None
    accept_length: float | None = None
    power_w: float | None = None
    memory_used_mib: float | None = None
    active: int | None = None
    completed: int = 0
    errors: int = 0
    left_s: float | None = None


class ArmStatus(StrEnum):
    """Where an arm is."""

    QUEUED = "queued"
    LAUNCHING = "launching"
    RUNNING = "running"
    MEASURED = "measured"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class ArmState:
    """One configuration of a comparison."""

    letter: str
    profile: str
    sets: Mapping[str, object] = field(default_factory=dict)
    against: str | None = None  # letter of the arm it is compared with, None for the reference
    status: ArmStatus = ArmStatus.QUEUED
    phase: str | None = None  # of the launch that is under way
    cause: str | None = None  # slug of a failure
    reason: str | None = None  # one sentence of it
    launches_done: int = 0
    launches_total: int = 1
    results: tuple[Result, ...] = ()
    live: LiveRun | None = None
    dropped: str | None = None  # why a screening left it behind, one sentence


@dataclass(frozen=True)
class ExperimentState:
    """A comparison under way or done; a bench of one running server is one with a single arm."""

    experiment_id: str
    name: str
    host: str
    bench: BenchProfile
    arms: tuple[ArmState, ...]
    order: tuple[str, ...] = ()  # letters, one a launch
    at: int = 0  # launches done
    pairs: int = 1
    hypothesis: str | None = None
    verdicts: tuple[Verdict, ...] = ()
    left_s: float | None = None
    paused: bool = False
    finished: bool = False
    message: str | None = None  # what it waits for, or how it ended
    hosts: tuple[str, ...] = ()  # on which it measures and launches, where there are several
    started_at: str | None = None
    rungs: tuple[int | None, ...] = ()  # of a screening, one a launch; None where it counts for a verdict
    statuses: tuple[ArmStatus, ...] = ()  # one a launch
    finalist: str | None = None  # the arm that a screening chose
    notes: tuple[str, ...] = ()  # what happened beside: whose GPUs it took over
    driver: int | None = None  # PID of another process of this machine that runs it
