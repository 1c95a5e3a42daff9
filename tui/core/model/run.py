"""A run as every part of the program knows it: its state, what was last seen of it, how far a stop has come.

Imports nothing of ours but what is like it, so that a first frame may show runs. docs/runs.md says what each state means.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tui.core.model.job import Job


class RunState(StrEnum):
    """What the files of a run and the process list say; see docs/runs.md."""

    STAGED = "staged"
    QUEUED = "queued"  # a job that waits for its nodes
    STARTING = "starting"
    RUNNING = "running"
    FINISHING = "finishing"
    EXITED = "exited"
    LOST = "lost"  # rebooted, supervisor killed, or it died before the start: the exit code can't be known
    UNKNOWN = "unknown"  # other PID namespace
    FOREIGN = "foreign"  # started by somebody else; read-only


OUT_OF_MEMORY = "out of memory"  # why a container ended, by its engine

# Its main process lives, or is about to, and is ours.
LIVE = frozenset({RunState.QUEUED, RunState.STARTING, RunState.RUNNING, RunState.FINISHING})


def short_id(run_id: str) -> str:
    """The six digits of a run; of a group's member with its place."""
    *_, before, last = "", *run_id.split("-")
    return f"{before}-{last}" if last.isdigit() and len(last) < 4 and len(before) == 6 else last


@dataclass(frozen=True)
class InContainer:
    """The container that a server runs in; None = its engine does not say, or may not be asked."""

    container_id: str  # 64 hexadecimal digits
    engine: str | None = None  # docker, podman, nerdctl
    name: str | None = None
    image: str | None = None
    restarts: int | None = None  # how often its engine has started it again
    status: str | None = None  # the engine's word: running, restarting, exited, …
    exit_code: int | None = None  # of its last end
    image_id: str | None = None
    network: str | None = None  # host, none, bridge, container:ID, … as the engine names it
    started_at: str | None = None  # as the engine writes it
    call: tuple[str, ...] = ()  # the words that call its engine on its host
    unasked: str | None = None  # why nothing is known of it, one line
    published: tuple[
        tuple[int, int], ...
    ] = ()  # ports of its own network, and those of the host's 127.0.0.1 that lead there

    @property
    def own_network(self) -> bool:
        """Whether its 127.0.0.1 is another than the host's."""
        return self.network not in (None, "host")

    def on_host(self, port: int) -> int | None:
        """The port of the host's 127.0.0.1 that leads to a port of its own network; None where none does."""
        return dict(self.published).get(port)

    def publishes(self, port: int) -> bool:
        """Whether a port of the host's 127.0.0.1 leads into its own network."""
        return port in dict(self.published).values()

    def inside(self, port: int) -> int:
        """The port in its own network that a server's port is there."""
        return next((inside for inside, on_host in self.published if on_host == port), port)

    @property
    def looping(self) -> bool:
        """Whether it has died and was, or will be, started again by its engine."""
        return bool(self.restarts) or self.status == "restarting"

    def __str__(self) -> str:
        return f"{self.engine or 'container'}:{self.name or self.container_id[:12]}"


@dataclass(frozen=True)
class Run:
    """One run as last seen."""

    run_id: str
    kind: str  # server, bench
    profile: str | None
    host: str
    state: RunState
    pid: int | None = None
    port: int | None = None  # where its host reaches it: of a container's own network the published one
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
    container: InContainer | None = None
    why: str | None = None  # reason of LOST or UNKNOWN
    gpus: tuple[int, ...] = ()  # as declared at the launch
    env: Mapping[str, str] = field(default_factory=dict)  # as set at the launch, without secrets
    notes: tuple[str, ...] = ()  # renamed flags and the like, from the launch
    extra: Mapping[str, Any] = field(default_factory=dict)  # `LaunchRequest.extra`
    stop_by: str | None = None  # who asked for the stop, user@machine
    start_ticks: int | None = None  # with `pid` this names one process; clock ticks since the host's boot
    supervised: bool | None = None  # False: the exit code will not be known
    job: Job | None = None  # of a cluster that it is a rank of; `pid` is then a number on `node`
    node: str | None = None  # of that cluster, where it runs
    answers: bool | None = None  # whether it answers on its port, by the same look; None: ask

    @property
    def short_id(self) -> str:
        """The six digits that screens show; of a group's member with its place: `7c31d0-1`."""
        return short_id(self.run_id)

    @property
    def foreign(self) -> bool:
        """Whether somebody else started it: it is watched only."""
        return self.state is RunState.FOREIGN

    @property
    def loops(self) -> bool:
        """Whether its container has died, and somebody else's engine starts it again."""
        return self.foreign and self.container is not None and self.container.looping

    @property
    def live(self) -> bool:
        """Whether its main process lives, or is about to; never of a foreign one."""
        return self.state in LIVE

    @property
    def over(self) -> bool:
        """Whether its main process has ended; what it left behind may live on (`orphans`)."""
        return self.state in (RunState.EXITED, RunState.LOST)

    @property
    def active(self) -> bool:
        """Whether a process of it lives, or may come to live."""
        return bool(self.orphans) if self.over else self.state is not RunState.STAGED


@dataclass(frozen=True)
class StopState:
    """How far a stop has come.

    `step` is one of requested, term, term-all, kill, done, stuck, or None where no stop was asked for.
    """

    run: Run | None  # None: there is no such run on the host
    step: str | None
    by: str | None = None  # who asked, user@machine
    requested_at: str | None = None  # ISO 8601 UTC, the host's clock
    pids: tuple[int, ...] = ()  # what could not be ended, at step stuck

    @property
    def over(self) -> bool:
        """Nothing more will happen by itself."""
        return self.step in ("done", "stuck") or self.run is None or not self.run.active


@dataclass(frozen=True)
class PortHolder:
    """Who listens on a port; None = not visible to this user."""

    port: int
    pid: int | None
    user: str | None
    command: str | None  # sanitised, one line
    run_id: str | None  # if it is a process of one of our runs

    def __str__(self) -> str:
        if self.run_id:
            return f"run {self.run_id}"
        who = f"PID {self.pid}" if self.pid else "a process that this user cannot see"
        return who + (f" of {self.user}" if self.user else "") + (f" ({self.command})" if self.command else "")
