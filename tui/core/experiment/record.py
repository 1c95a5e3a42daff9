"""What is stored of an experiment: one JSON file under the data directory, written again after every step.

A kill at any moment leaves the step before or the step after. What was measured is in the results (`store`); the record
names them.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import random
import statistics
import time
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path

from tui.core.config import private_dir
from tui.core.errors import EagletuiError, Slug
from tui.core.experiment.overrides import Overrides
from tui.core.model.experiment import ArmStatus
from tui.core.model.profile import METHODS, REFERENCE, BenchProfile, ExperimentProfile
from tui.core.model.verdict import Verdict
from tui.core.profiles.launch_profile import LaunchProfile
from tui.core.profiles.secrets import is_secret_env, public_sets
from tui.core.records import RecordFiles

SCHEMA = 1
_TRIES, _AGAIN_S = 5, 0.02  # to be the driver of an experiment
FINISHED = ("done", "early")  # outcomes after which there is nothing to resume


@dataclass(frozen=True)
class Cell:
    """One launch of an experiment with what is measured on it."""

    number: int  # place in the order, from 1
    arm: str  # letter
    pair: int  # round, from 1; of a screening, the rung
    status: ArmStatus = ArmStatus.QUEUED
    run_id: str | None = None  # of the server; known before it is asked for
    bench_run_id: str | None = None  # of the load generator
    started_at: str | None = None  # ISO 8601 UTC
    ended_at: str | None = None
    ready_after_s: float | None = None
    spent_s: float = 0.0  # launching, measuring, stopping: what the budget counts
    phase: str | None = None  # where a failed launch ended
    cause: str | None = None  # slug of a failure, or why it was skipped
    reason: str | None = None  # one sentence of it
    advice: tuple[str, ...] = ()
    change: Mapping[str, object] = field(default_factory=dict)  # that would fix it: `--set` values
    result_ids: tuple[str, ...] = ()
    rung: int | None = None  # of a screening, from 1; None: it counts for a verdict

    @property
    def over(self) -> bool:
        return self.status in (ArmStatus.MEASURED, ArmStatus.FAILED, ArmStatus.SKIPPED)

    @property
    def again(self) -> "Cell":
        """A launch that has to be made again; what it spent stays spent."""
        return Cell(self.number, self.arm, self.pair, spent_s=self.spent_s, rung=self.rung)


@dataclass(frozen=True)
class Dropped:
    """An arm that a rung of the screening left behind."""

    arm: str  # letter
    rung: int
    launches: int
    ratio: float | None  # to the reference, over those launches; None: none of them counts
    reason: str  # one sentence


@dataclass(frozen=True)
class ExperimentRecord:
    """An experiment, under way or over."""

    experiment_id: str
    host: str  # where a server goes that names none
    profile: ExperimentProfile  # secrets masked
    bench: BenchProfile
    seed: int  # of the order, and of the prompts
    cells: tuple[Cell, ...]
    configurations: Mapping[str, str] = field(default_factory=dict)  # letter to a sum of what it launches
    started_at: str | None = None  # ISO 8601 UTC
    ended_at: str | None = None
    outcome: str = "running"  # running, stopped, budget; done, early (a look decided)
    message: str | None = None  # how it ended
    notes: tuple[str, ...] = ()  # what happened beside: whose GPUs it took over
    verdicts: tuple[Verdict, ...] = ()
    hosts: tuple[str, ...] = ()  # of all arms; () in older records: `host` alone
    overrides: Overrides = field(default_factory=Overrides)  # what the asker changed; the profile has it already
    dropped: tuple[Dropped, ...] = ()  # of a halving, in the order of the rungs
    schema: int = SCHEMA

    @property
    def name(self) -> str:
        return self.profile.name

    @property
    def all_hosts(self) -> tuple[str, ...]:
        return self.hosts or (self.host,)

    @property
    def order(self) -> tuple[str, ...]:
        return tuple(cell.arm for cell in self.cells)

    @property
    def pairs(self) -> int:
        """Rounds that count for verdicts; of a screening that is not over, as many as it plans."""
        return len(self.rounds) or (self.profile.pairs if self.halving else 0)

    @property
    def halving(self) -> bool:
        """Whether a screening chooses the arm that is compared."""
        return self.profile.method == "halving"

    @property
    def rounds(self) -> tuple[int, ...]:
        """Numbers of the rounds that count for verdicts: all of them but a screening's."""
        return tuple(dict.fromkeys(cell.pair for cell in self.cells if cell.rung is None))

    @property
    def finalist(self) -> str | None:
        """The arm that a screening chose, to be confirmed against the reference; None before."""
        letters = (cell.arm for cell in self.cells if cell.rung is None and cell.arm != REFERENCE)
        return next(letters, None) if self.halving else None

    @property
    def spent_s(self) -> float:
        return sum(cell.spent_s for cell in self.cells)

    def launch_s(self, letter: str | None = None) -> float | None:
        """What a launch with its measuring takes, median: of an arm, where one was measured, else of all; None without one."""
        done = [cell for cell in self.cells if cell.status is ArmStatus.MEASURED and cell.spent_s]
        spent = [cell.spent_s for cell in done if cell.arm == letter] or [cell.spent_s for cell in done]
        return statistics.median(spent) if spent else None

    def with_round(self, only: Container[str] | None = None, rung: int | None = None) -> "ExperimentRecord":
        """With one more launch of each of these arms, of all without them; `rung`: of a screening."""
        pair = rung or max((cell.pair for cell in self.cells), default=0) + 1
        letters = [arm.letter for arm in self.profile.arms]
        order = [
            letter for letter in schedule(pair, letters, self.seed)[-len(letters) :] if letter in (only or letters)
        ]
        added = [Cell(number, letter, pair, rung=rung) for number, letter in enumerate(order, len(self.cells) + 1)]
        return replace(self, cells=(*self.cells, *added))

    def with_cell(self, cell: Cell) -> "ExperimentRecord":
        return replace(self, cells=tuple(cell if old.number == cell.number else old for old in self.cells))


def schedule(pairs: int, arms: Sequence[str], seed: int) -> tuple[str, ...]:
    """The order of launches: `pairs` rounds with each arm once, every second round mirrored (ABBAAB…, ABCCBAABC…).

    Mirrored rounds make a drift of the host alternate in sign from pair to pair: with an even number of pairs a steady
    drift cancels, with an odd one its rest is small and the spread of the pairs, which it widens, covers it
    (docs/measuring.md, "Verdicts", has the simulated rates). `seed` decides which arm begins. A longer experiment of
    the same seed begins with the shorter one, so a pair can be added.
    """
    base = list(arms)
    random.Random(seed).shuffle(base)
    rounds = (base if number % 2 == 0 else base[::-1] for number in range(pairs))
    return tuple(arm for one_round in rounds for arm in one_round)


def all_rounds(pairs: int, letters: Sequence[str], seed: int) -> tuple[Cell, ...]:
    """The launches of so many rounds."""
    order = enumerate(schedule(pairs, letters, seed))
    return tuple(Cell(at + 1, letter, at // len(letters) + 1) for at, letter in order)


def public_profile(profile: ExperimentProfile) -> ExperimentProfile:
    """The profile as it may be stored: secret values of its arms masked."""
    return replace(profile, arms=tuple(replace(arm, sets=public_sets(arm.sets)) for arm in profile.arms))


def configuration_sum(launch: LaunchProfile) -> str:
    """A sum over all that makes two launches of a profile the same configuration; of secrets only their names."""
    parts: list[object] = [
        launch.public_args,
        _public_env(launch.env),
        launch.gpus,
        launch.wrapper,
        launch.command,
        launch.cwd,
    ]
    if launch.container is not None:  # not named where there is none: sums of older records hold
        parts.append(launch.container)
    if launch.nodes is not None:
        parts.append(launch.nodes)
    if launch.group:
        parts.append([{**vars(one), "args": one.public_args, "env": _public_env(one.env)} for one in launch.group])
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _public_env(env: Mapping[str, object]) -> dict[str, object]:
    return {name: "" if is_secret_env(name, str(value)) else value for name, value in env.items()}


def _fits(record: ExperimentRecord) -> bool:
    """What a profile allows: statistics have no answer beyond it."""
    profile, looks = record.profile, record.profile.looks
    return (
        {cell.arm for cell in record.cells} <= {arm.letter for arm in profile.arms}
        and 0 < profile.margin < 1
        and profile.method in METHODS
        and list(looks) == sorted({look for look in looks if 3 <= look <= 1000})
    )


FILES = RecordFiles(ExperimentRecord, "experiments", attrgetter("experiment_id"), _fits)
write, read = FILES.write, FILES.read


def read_all() -> list[ExperimentRecord]:
    """All experiments of this machine that can be read, newest first."""
    return sorted(FILES.read_all(), key=lambda record: (record.started_at or "", record.experiment_id), reverse=True)


def unfinished(name: str, host: str) -> ExperimentRecord | None:
    """The newest experiment of this name on this host, if it can be resumed: not done, and no process runs it."""
    newest = next((r for r in read_all() if r.name == name and r.host == host), None)
    over = newest is None or newest.outcome in FINISHED or driver(newest.experiment_id) is not None
    return None if over else newest


def driven(name: str, host: str) -> ExperimentRecord | None:
    """The experiment of this name on this host that a process of this machine runs."""
    found = map(read, drivers())
    return next((record for record in found if record is not None and (record.name, record.host) == (name, host)), None)


def _lock_path(experiment_id: str) -> Path:
    return FILES.directory / f".driver-{experiment_id}"


@contextlib.contextmanager
def driving(experiment_id: str) -> Iterator[None]:
    """Holds the right to run an experiment on this machine; it ends with this process.

    Raises EagletuiError (slug busy) where another process runs it.
    """
    path = private_dir(FILES.directory) / _lock_path(experiment_id).name
    tries = 0
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.exists() and os.path.samestat(os.stat(path), os.fstat(descriptor)):
                break
        except BlockingIOError:
            pid = _pid_in(descriptor)
            if (tries := tries + 1) > _TRIES:
                os.close(descriptor)
                raise busy(experiment_id, pid) from None
            time.sleep(_AGAIN_S)  # `driver` holds it for a moment while it looks
        except FileNotFoundError:
            pass
        os.close(descriptor)  # whoever held it has just removed it
    try:
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def driver(experiment_id: str) -> int | None:
    """PID of the process of this machine that runs an experiment; None where none does. 0: one that has just begun."""
    try:
        descriptor = os.open(_lock_path(experiment_id), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _pid_in(descriptor)
    finally:
        os.close(descriptor)
    return None


def drivers() -> dict[str, int]:
    """The experiments that processes of this machine run, with their PIDs."""
    prefix = _lock_path("").name
    try:
        names = [name.removeprefix(prefix) for name in os.listdir(FILES.directory) if name.startswith(prefix)]
    except OSError:
        return {}
    return {name: pid for name in names if (pid := driver(name)) is not None}


def _pid_in(descriptor: int) -> int:
    text = os.pread(descriptor, 20, 0)
    return int(text) if text.isdigit() else 0


def busy(experiment_id: str, pid: int) -> EagletuiError:
    """What to say to whoever wants to run it as well."""
    name = experiment_id.rsplit("-", 2)[0]
    return EagletuiError(
        f"experiment {experiment_id} is already running" + (f" (PID {pid} on this machine)" if pid else ""),
        f"eagletui experiment {name} --attach follows it, --stop ends it",
        slug=Slug.BUSY,
    )
