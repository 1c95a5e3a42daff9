"""Why a launch of an experiment gave nothing to measure: a result, not an accident."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tui.core.model.phases import Outcome
from tui.core.server.server_state import ServerState

# What may be otherwise at the next launch: the first failure of one of these says little, the second says enough.
_MAY_PASS = frozenset(
    [
        "busy",
        "cuda_error",
        "disk_full",
        "generator_failed",
        "hf_download",
        "host_oom",
        "job_cancelled",
        "job_preempted",
        "job_time_limit",
        "lost",
        "nccl",
        "node_failure",
        "not_ready",
        "not_started",
        "port_in_use",
        "server_lost",
        "stopped",
        "timeout",
        "unknown",
        "unreachable",
        "watchdog",
    ]
)


@dataclass(frozen=True)
class Failure:
    """Why a launch gave nothing to measure: a result, not an accident."""

    cause: str  # a slug of docs/diagnosis.md, or preflight, busy, timeout, stopped, lost, or of the load generator
    reason: str  # one sentence
    phase: str | None = None
    advice: tuple[str, ...] = ()
    change: Mapping[str, object] = field(default_factory=dict)

    @property
    def certain(self) -> bool:
        """Whether the next launch of the same would fail for the same cause."""
        return self.cause not in _MAY_PASS


class LaunchFailed(Exception):
    """The server did not become ready, or died."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.reason)
        self.failure = failure


def failure_of(state: ServerState | None) -> Failure:
    """What a server's end says."""
    if state is None:
        return Failure("lost", "the host does not report the run")
    phase = str(state.phase)
    if state.diagnosis is not None:
        found = state.diagnosis
        return Failure(found.cause, found.title, phase, found.advice, found.set)
    run = state.run
    if state.outcome is Outcome.STOPPED:
        return Failure("stopped", f"stopped by {run.stop_by}" if run.stop_by else "stopped", phase)
    if state.outcome is Outcome.LOST:
        return Failure("lost", run.why or "the run is gone, its exit code is not known", phase)
    code = f" with exit code {run.exit_code}" if run.exit_code is not None else ""
    return Failure("unknown", f"ended{code} in {phase.replace('_', ' ')}", phase)
