"""A server as screens show it: badge, phases of its start in order, what is left of them. Knows no widget."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tui.core.model.job import Job, JobEnd
from tui.core.model.phases import ALIVE, Outcome, Phase
from tui.core.text import epoch_of
from tui.panel.host_view import argument

if TYPE_CHECKING:
    from tui.core.server.server_state import ServerState

LONG = {
    Phase.LAUNCH: "launch",
    Phase.DISTRIBUTED_INIT: "distributed init",
    Phase.LOAD_WEIGHTS: "load weights",
    Phase.MEMORY_POOL: "memory pool",
    Phase.DRAFT_MODEL: "draft model",
    Phase.CUDA_GRAPH: "CUDA graphs",
    Phase.WARMUP: "warm-up",
    Phase.READY: "ready",
    Phase.SERVING: "serving",
}
SHORT = {
    **LONG,
    Phase.DISTRIBUTED_INIT: "dist",
    Phase.LOAD_WEIGHTS: "weights",
    Phase.MEMORY_POOL: "pool",
    Phase.DRAFT_MODEL: "draft",
    Phase.CUDA_GRAPH: "graphs",
}
_STARTUP = tuple(phase for phase in Phase if phase not in (Phase.READY, Phase.SERVING))


@dataclass(frozen=True)
class Badge:
    """Glyph, word and colours of a state."""

    glyph: str
    word: str
    color: str
    ground: str

    def runs(self) -> list[tuple[str, str]]:
        """The badge as it stands before a name."""
        return [(f" {self.glyph} {self.word} ", f"{self.color}!/{self.ground}")]


_BADGES = {
    Outcome.QUEUED: Badge("◌", "QUEUED", "muted", "raised"),
    Outcome.STARTING: Badge("◐", "STARTING", "accent", "accbg"),
    Outcome.READY: Badge("●", "READY", "ok", "okbg"),
    Outcome.RESTARTING: Badge("↻", "RESTARTS", "err", "errbg"),
    Outcome.CRASHED: Badge("✗", "CRASHED", "err", "errbg"),
    Outcome.HUNG: Badge("▲", "HUNG?", "warn", "warnbg"),
    Outcome.STOPPED: Badge("■", "STOPPED", "muted", "raised"),
    Outcome.FINISHED: Badge("■", "FINISHED", "muted", "raised"),
    Outcome.LOST: Badge("?", "LOST", "muted", "raised"),
    Outcome.UNKNOWN: Badge("?", "UNKNOWN", "muted", "raised"),
}


def badge(state: "ServerState", *, stale: bool, stopping: bool = False) -> Badge:
    """How a state is shown; a live one over a lost link is not known, one that was asked to end is on its way."""
    if state.outcome in ALIVE:
        if stale:
            return _BADGES[Outcome.UNKNOWN]
        if stopping:
            return Badge("■", "STOPPING", "warn", "warnbg")
        if state.suspicion is not None and state.outcome is not Outcome.RESTARTING:
            return _BADGES[Outcome.HUNG]
    if state.run.job is not None and (mark := _of_job(state.run.job, state.outcome)) is not None:
        return mark
    if state.outcome is Outcome.STARTING and not state.startup.lines:
        return Badge("◌", "LAUNCH", "muted", "raised")
    return _BADGES[state.outcome]


def outcome_badge(outcome: str) -> Badge:
    """How an outcome is shown that was stored; one that this version does not know as unknown."""
    known = next((one for one in Outcome if one == outcome), Outcome.UNKNOWN)
    return _BADGES[known]


def _of_job(job: Job, outcome: Outcome) -> Badge | None:
    """What Slurm has to say of it; None where its server says it."""
    if outcome is Outcome.QUEUED and job.never is not None:
        return Badge("✗", "NEVER RUNS", "err", "errbg")
    if job.end is JobEnd.CANCELLED:
        return Badge("■", "CANCELLED", "muted", "raised")
    if job.end not in (None, JobEnd.COMPLETED, JobEnd.FAILED, JobEnd.LOST):
        return Badge("✗", str(job.end).upper(), "err", "errbg")
    return None


@dataclass(frozen=True)
class PhaseRow:
    """One phase of the waterfall."""

    phase: Phase
    mark: str  # glyph
    took_s: float | None
    usual_s: float | None


def expected_order(version: str | None) -> tuple[Phase, ...]:
    """Phases in the order of an SGLang version; since 0.5.14 the draft model is loaded before any pool is made.

    Earlier versions bring up the target whole, with its graphs, and the draft model after it.
    """
    from tui.core.sglang.flags import version_at_least

    order: list[Phase] = [phase for phase in _STARTUP if phase is not Phase.DRAFT_MODEL]
    earlier = version is not None and not version_at_least(version, "0.5.14")
    order.insert(order.index(Phase.CUDA_GRAPH) + 1 if earlier else order.index(Phase.MEMORY_POOL), Phase.DRAFT_MODEL)
    return tuple(order)


def phase_rows(state: "ServerState", version: str | None = None) -> list[PhaseRow]:
    """Begun phases in this log's own order, then those still expected in that of the version."""
    begun = list(dict.fromkeys([Phase.LAUNCH, *(span.phase for span in state.startup.spans)]))
    begun = [phase for phase in begun if phase in _STARTUP]
    over = state.outcome is not Outcome.STARTING
    present = state.phase if not over and state.phase in _STARTUP else None
    if present is not None and present not in begun:
        begun.append(present)
    drafts = speculative(state)
    later = [phase for phase in expected_order(version) if phase not in begun]
    if state.usual:
        later = [phase for phase in later if phase in state.usual]
    elif not drafts:
        later = [phase for phase in later if phase is not Phase.DRAFT_MODEL]
    failed = None
    if state.outcome is Outcome.CRASHED:
        failed = state.diagnosis.phase if state.diagnosis and state.diagnosis.phase else state.phase
    rows = []
    for phase in dict.fromkeys([*begun, *later]):
        usual = state.usual.get(phase)
        if phase is failed:
            mark = "✗"
        elif phase is present:
            mark = "◐"
        elif phase in begun:
            mark = "✓"
        else:
            mark = "·"
        took = state.phase_took_s.get(phase) if phase in begun else None
        rows.append(PhaseRow(phase, mark, took, usual.median_s if usual else None))
    if state.outcome is Outcome.CRASHED and failed in (Phase.READY, Phase.SERVING):
        rows.append(PhaseRow(failed, "✗", None, None))
    return rows


def speculative(state: "ServerState") -> bool:
    arguments = state.startup.server_args or {}
    return bool(
        arguments.get("speculative_algorithm") or argument(state.run.argv, "--speculative-algorithm") is not None
    )


def lived_s(state: "ServerState") -> float | None:
    """How long a server that ended has lived, by its host's clock; None where that is not known."""
    began, ended = epoch_of(state.run.started_at), epoch_of(state.run.ended_at)
    if began is not None and ended is not None:
        return max(0.0, ended - began)
    # The phases of a start end with ready: of one that has served they are no life.
    return sum(state.phase_took_s.values()) or None if state.ready_after_s is None else None


def elapsed_s(state: "ServerState") -> float | None:
    """Seconds since the launch, by the host's clock where the phases carry it."""
    if state.phase_took_s:
        return sum(state.phase_took_s.values())
    return max(0.0, time.time() - state.started_s) if state.started_s is not None else None


def bar_left_s(state: "ServerState") -> float | None:
    """Seconds that the present phase still takes by its own bar, None where it has none."""
    progress, took = state.startup.progress, state.phase_took_s.get(state.phase)
    if progress is None or not took or not 0 < progress.done <= progress.total:
        return None
    return took * (progress.total - progress.done) / progress.done


def left_s(state: "ServerState", row: PhaseRow, rows: Sequence[PhaseRow]) -> float:
    """Seconds that the present phase still takes: what the estimate says beyond the later phases."""
    if row.usual_s is None:
        return bar_left_s(state) or 0.0
    if state.eta_s is not None:
        later = sum(other.usual_s or 0.0 for other in rows if other.mark == "·")
        return max(0.0, state.eta_s - later)
    return max(0.0, row.usual_s - (row.took_s or 0.0))
