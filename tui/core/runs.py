"""Runs: one process tree on a host, started at most once, found again by any later eagletui, stopped as a whole."""

from dataclasses import dataclass
from enum import StrEnum


class RunState(StrEnum):
    """What the files of a run and the process list say; see docs/runs.md."""

    STAGED = "staged"
    STARTING = "starting"
    RUNNING = "running"
    FINISHING = "finishing"
    EXITED = "exited"
    LOST = "lost"  # rebooted, supervisor killed, or it died before the start: the exit code can't be known
    UNKNOWN = "unknown"  # other PID namespace
    FOREIGN = "foreign"  # started by somebody else; read-only


@dataclass(frozen=True)
class Run:
    """One run as last seen."""

    run_id: str
    kind: str  # server, bench
    profile: str | None
    host: str
    state: RunState
    pid: int | None = None
    port: int | None = None
    started_at: str | None = None  # ISO 8601 UTC
    ended_at: str | None = None
    exit_code: int | None = None
    stop: str | None = None  # requested, term, term-all, kill, done, stuck: how far a stop has come
    stopped_by_us: bool = False
    orphans: tuple[int, ...] = ()  # processes of the run that outlived its main process
    directory: str | None = None  # on the host
    log_path: str | None = None  # on the host; None where a foreign server's output goes nowhere we can read
    argv: tuple[str, ...] = ()
    owner: str | None = None  # user, for foreign servers
    why: str | None = None  # reason of LOST or UNKNOWN

    @property
    def short_id(self) -> str:
        """The six digits that screens show."""
        return self.run_id.rsplit("-", 1)[-1]
