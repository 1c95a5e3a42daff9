"""This machine's record of launches: which run is where, how long its phases took, how it ended."""

import contextlib
import statistics
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from operator import attrgetter

from tui.core.errors import Slug, UsageError
from tui.core.model.group import group_id_of, member_of
from tui.core.model.profile import DiffLine
from tui.core.model.run import short_id
from tui.core.profiles.secrets import MASK
from tui.core.records import RecordFiles
from tui.core.text import one_line


@dataclass(frozen=True)
class Card:
    """Why a start died, as the crash card says it: kept here, for the host may forget it."""

    title: str
    rank: str | None = None
    line: int | None = None  # 1-based, of the log; None: the evidence is not in the log
    evidence: tuple[str, ...] = ()  # lines, secrets masked
    advice: tuple[str, ...] = ()
    change: Mapping[str, object] = field(default_factory=dict)  # that would fix it: `--set` values


@dataclass(frozen=True)
class LaunchRecord:
    """One launch from this machine."""

    run_id: str
    host: str
    kind: str  # server, bench
    profile: str
    launched_at: str  # ISO 8601 UTC
    sets: Mapping[str, object] = field(default_factory=dict)
    model: str | None = None
    args: Mapping[str, object] = field(default_factory=dict)  # without secrets
    sglang: str | None = None
    port: int | None = None
    warm: bool | None = None  # whether the model was in the host's page cache at the launch
    outcome: str | None = None
    cause: str | None = None
    phase: str | None = None  # the last one begun
    ready_after_s: float | None = None
    phase_took_s: Mapping[str, float] = field(default_factory=dict)
    exit_code: int | None = None
    ended_at: str | None = None
    ledger: tuple[Mapping[str, object], ...] = ()  # memory of each rank: the fields of startup.LedgerRow
    mem_fraction: float | None = None  # in effect: as given, or as SGLang chose it
    group: Mapping[str, object] | None = None  # `Group.extra` of the group that it is a member of
    stopped_with_group: bool = False  # it ended because rank 0 told it to, once the group was stopped from here
    graph_batch: int | None = None  # the largest batch whose graph was (or was to be) captured
    card: Card | None = None  # of one that crashed
    stopped_by: str | None = None  # user@machine
    env: Mapping[str, str] = field(default_factory=dict)  # of the profile, without secrets
    extends: str | None = None  # the profile's parent
    difference: tuple[DiffLine, ...] = ()  # of the profile, without `sets`, to its parent
    gpu_names: tuple[str, ...] = ()  # of the host
    driver: str | None = None
    torch: str | None = None

    @property
    def part(self) -> str | None:
        """Which member of a group it is (`prefill 0`); None of a server of its own."""
        member = member_of(self.run_id, {"group": self.group})
        return member.name if member is not None else None


@dataclass(frozen=True)
class PhaseHistory:
    """How long something took in earlier starts (seconds); `n` starts were seen."""

    median_s: float
    low_s: float
    high_s: float
    n: int


FILES = RecordFiles(LaunchRecord, "launches", attrgetter("run_id"))
write, read = FILES.write, FILES.read
_begun_here: set[str] = set()


def begin(record: LaunchRecord) -> None:
    """Writes the record of a launch that this process makes, to which what is secret in it is known."""
    _begun_here.add(record.run_id)
    write(record)


def knows_secrets(record: LaunchRecord) -> bool:
    """Whether every secret that was given to a launch can be masked here: one of an override is in no file of this machine."""
    return record.run_id in _begun_here or MASK not in record.sets.values()


def read_all() -> list[LaunchRecord]:
    """All launches, newest first."""
    return sorted(FILES.read_all(), key=lambda record: record.launched_at, reverse=True)


def has_jobs(host: str) -> bool:
    """Whether something was launched there as a job of its Slurm."""
    return any(
        record.host == host and record.group is not None and record.group.get("job") for record in FILES.read_all()
    )


def runs_named(reference: str, run_ids: Iterable[str]) -> list[str]:
    """The run ids that `reference` fits: by their last six digits, else as a prefix of either; none of an empty one."""
    ids = list(dict.fromkeys(run_ids)) if reference else []  # `stop "$RUN"` with an empty variable means no run
    digits = [run_id for run_id in ids if short_id(run_id) == reference]
    return digits or [
        run_id for run_id in ids if run_id.startswith(reference) or short_id(run_id).startswith(reference)
    ]


def match_run(reference: str, run_ids: Iterable[str], live: Collection[str] = ()) -> str | None:
    """The run id that `reference` names: the id, its six digits, or a unique prefix of either; of a group its first member.

    Args:
        live: which of them live: where several fit and one of them lives, that one is meant.

    Raises UsageError where several fit; returns None where none does.
    """
    fitting = wholes_named(reference, run_ids)
    alive = [whole for whole, members in fitting.items() if not set(members).isdisjoint(live)]
    if len(fitting) > 1 and len(alive) != 1:
        some = ", ".join(list(fitting)[:3]) + (" …" if len(fitting) > 3 else "")
        raise UsageError(
            f"{one_line(reference, 60)} fits {len(fitting)} runs: {some}",
            "type more characters of the id",
            slug=Slug.AMBIGUOUS_RUN,
        )
    members = fitting[alive[0]] if len(fitting) > 1 else next(iter(fitting.values()), [])
    return min(members, key=lambda run_id: (len(run_id), run_id), default=None)


def wholes_named(reference: str, run_ids: Iterable[str]) -> dict[str, list[str]]:
    """The run ids that `reference` fits, by the group that they are of; a run of its own by its id."""
    ids = list(run_ids)
    wholes: dict[str, list[str]] = {}
    for run_id in [reference] if reference in ids else runs_named(reference, ids):
        wholes.setdefault(group_id_of(run_id) or run_id, []).append(run_id)
    return wholes


def _history(values: list[float]) -> PhaseHistory | None:
    return PhaseHistory(statistics.median(values), min(values), max(values), len(values)) if values else None


def stopped_with_its_group(run_id: str) -> None:
    """Keeps that a member ended by the stop of its group, where this machine launched it and it had not died before."""
    record = read(run_id)
    if record is not None and record.outcome not in ("crashed", "lost"):
        write(replace(record, stopped_with_group=True))


def stopped(run_id: str, by: str) -> None:
    """Keeps that a run was stopped, where this machine launched it and nobody who watched it knows better."""
    record = read(run_id)
    if record is not None and record.outcome not in ("crashed", "lost", "stopped"):
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        with contextlib.suppress(OSError):  # a full disk here must not fail the stop
            write(replace(record, outcome="stopped", stopped_by=by, ended_at=record.ended_at or now))


def usual(
    host: str,
    profile: str,
    sets: Mapping[str, object] | None = None,
    sglang: str | None = None,
    warm: bool | None = None,
    part: str | None = None,
) -> tuple[dict[str, PhaseHistory], PhaseHistory | None]:
    """Durations of each phase, and from launch to ready, over the last ten such starts here that reached ready.

    Args:
        sets: overrides of the profile; a start with others is another configuration.
        sglang: starts with this version count alone, where there are any.
        warm: so do starts with the model in the page cache, or not in it.
        part: of a group, the member by its name: a router starts sooner than what it waits for.
    """
    from tui.core.profiles.resolve import as_compared  # not for those who only write a record

    wanted = as_compared(sets or {})
    ready = [
        record
        for record in read_all()
        if record.host == host
        and record.profile == profile
        and as_compared(record.sets) == wanted
        and record.ready_after_s is not None
        and record.part == part
    ]
    if sglang is not None:
        ready = [record for record in ready if record.sglang == sglang] or ready
    if warm is not None:
        ready = [record for record in ready if record.warm == warm] or ready
    ready = ready[:10]
    phases: dict[str, list[float]] = {}
    for record in ready:
        for phase, took in record.phase_took_s.items():
            phases.setdefault(phase, []).append(took)
    by_phase = {phase: history for phase, values in phases.items() if (history := _history(values))}
    return by_phase, _history([record.ready_after_s for record in ready if record.ready_after_s is not None])
