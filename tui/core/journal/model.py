"""What the journal holds: entries as they are stored, and what follows from them (hypotheses, dead ends, runs).

docs/journal.md describes the files. Times are ISO 8601 UTC. References are `run:ID`, `result:ID`, `experiment:ID`,
`profile:NAME`, `host:NAME`, or the id of an entry.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tui.core.model.profile import DiffLine, ExperimentArm
from tui.core.model.verdict import Verdict
from tui.core.server.launch_records import Card

ITSELF = "eagletui"  # the author of what writes itself


class Kind(StrEnum):
    """What an entry says; entries of later versions may say more, and are kept."""

    LAUNCH = "launch"  # a server was asked for
    READY = "ready"
    END = "end"  # crashed, stopped, lost
    RESULT = "result"
    EXPERIMENT = "experiment"  # begun
    VERDICT = "verdict"  # an experiment ended
    TUNE = "tune"  # a step of a tune, or its end
    NOTE = "note"
    IDEA = "idea"
    HYPOTHESIS = "hypothesis"
    TICK = "tick"  # an idea is done, dropped or open again
    SETTLE = "settle"  # a person settles a hypothesis
    RETRACT = "retract"  # takes back an entry of a person


@dataclass(frozen=True)
class Environment:
    """On what something ran, as far as it is known."""

    gpus: tuple[str, ...] = ()  # names
    driver: str | None = None
    sglang: str | None = None
    torch: str | None = None


@dataclass(frozen=True)
class Launched:
    """A launch, of the entry `launch`."""

    run_id: str
    host: str
    profile: str
    configuration: str  # a sum of what was launched, whatever the profile is called
    model: str | None = None
    sets: Mapping[str, object] = field(default_factory=dict)  # changed for this launch
    args: Mapping[str, object] = field(default_factory=dict)  # all flags, without secrets
    env: Mapping[str, str] = field(default_factory=dict)  # of the profile
    parent: str | None = None  # the profile that it extends
    difference: tuple[DiffLine, ...] = ()  # of the profile, without `sets`, to its parent
    environment: Environment = field(default_factory=Environment)


@dataclass(frozen=True)
class Ended:
    """How far a launch came, of the entries `ready` and `end`."""

    run_id: str
    host: str
    outcome: str  # ready, crashed, stopped, lost, …
    cause: str | None = None
    phase: str | None = None
    card: Card | None = None
    ready_after_s: float | None = None
    exit_code: int | None = None
    ended_at: str | None = None
    stopped_by: str | None = None


@dataclass(frozen=True)
class Measured:
    """One result, of the entry `result`."""

    result_id: str
    host: str
    bench: str
    run_id: str | None = None  # of the server, or the group
    profile: str | None = None
    load: str | None = None
    tok_s: float | None = None  # per user
    valid: bool = True
    why: str | None = None  # it does not count
    experiment: str | None = None
    arm: str | None = None
    environment: Environment = field(default_factory=Environment)


@dataclass(frozen=True)
class Tried:
    """An experiment, of the entries `experiment` and `verdict`."""

    experiment_id: str
    name: str
    host: str
    bench: str
    hypothesis: str | None = None
    arms: tuple[ExperimentArm, ...] = ()  # its verdicts call them by their letters
    launches: int = 0  # planned
    done: int = 0  # of them
    failed: tuple[str, ...] = ()  # "B: oom_kv_pool, the KV pool has no room", an arm each
    runs: tuple[str, ...] = ()  # run ids of its launches
    outcome: str = "running"
    verdicts: tuple[Verdict, ...] = ()


@dataclass(frozen=True)
class Entry:
    """One line of entries.jsonl; of what it is about, at most one of the parts is there."""

    id: str
    at: str
    kind: str  # of `Kind`, or of a later version
    by: str
    text: str  # one sentence, or what a person wrote
    about: tuple[str, ...] = ()  # references; of tick, settle and retract the entry they are about
    state: str | None = None  # of tick: open, done, dropped; of settle: a `Status`
    launched: Launched | None = None
    ended: Ended | None = None
    measured: Measured | None = None
    tried: Tried | None = None

    @property
    def host(self) -> str | None:
        """The host that it is about; None of those of a person that name none."""
        for part in (self.launched, self.ended, self.measured, self.tried):
            if part is not None:
                return part.host
        return next((ref.removeprefix("host:") for ref in self.about if ref.startswith("host:")), None)


@dataclass(frozen=True)
class Note:
    """What somebody wrote about something, or about nothing."""

    entry_id: str
    at: str
    by: str
    text: str
    about: tuple[str, ...] = ()


@dataclass(frozen=True)
class Idea:
    """Something to try."""

    entry_id: str
    at: str
    by: str
    text: str
    about: tuple[str, ...] = ()
    state: str = "open"  # open, done, dropped
    ticked_at: str | None = None
    why: str | None = None


class Status(StrEnum):
    """Where a hypothesis is. An experiment's follows from its verdicts; a person's word counts more."""

    RUNNING = "running"
    HELD = "held"
    REFUTED = "refuted"
    EQUAL = "equal"
    EARLY = "early"  # a screening points somewhere
    OPEN = "open"
    PARKED = "parked"
    DEAD_END = "dead_end"


SETTLED = frozenset({Status.HELD, Status.REFUTED, Status.EQUAL, Status.DEAD_END})


@dataclass(frozen=True)
class RunRow:
    """One launch with all that is known of it."""

    run_id: str
    host: str
    profile: str
    started_at: str
    outcome: str  # starting, ready, crashed, stopped, lost, …
    entry_id: str  # of its launch
    model: str | None = None
    configuration: str = ""
    sets: Mapping[str, object] = field(default_factory=dict)
    args: Mapping[str, object] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    parent: str | None = None
    difference: tuple[DiffLine, ...] = ()
    environment: Environment = field(default_factory=Environment)
    experiment: str | None = None  # id of the one that launched it
    cause: str | None = None
    phase: str | None = None
    card: Card | None = None  # why it crashed, also when the host has forgotten it
    ready_after_s: float | None = None
    ran_s: float | None = None  # from the launch to the end
    exit_code: int | None = None
    ended_at: str | None = None
    stopped_by: str | None = None
    tok_s: float | None = None  # per user: of its valid results the best load's mean
    level: str | None = None  # L0, L1; L2 where a verdict of three launches rests on it
    results: tuple[str, ...] = ()  # result ids
    notes: tuple[Note, ...] = ()

    @property
    def served_s(self) -> float | None:
        """From ready to the end."""
        return None if self.ran_s is None or self.ready_after_s is None else max(0.0, self.ran_s - self.ready_after_s)


@dataclass(frozen=True)
class Hypothesis:
    """What somebody, or an experiment, set out to find."""

    entry_id: str
    text: str
    status: Status
    asked_at: str
    by: str
    host: str | None = None
    settled_at: str | None = None
    why: str | None = None  # a person's, who settled it
    verdicts: tuple[Verdict, ...] = ()
    experiments: tuple[str, ...] = ()  # ids
    arms: tuple[ExperimentArm, ...] = ()  # of the newest of them: its verdicts call them by their letters
    failed: tuple[str, ...] = ()  # arms whose launches failed, and why
    launches: tuple[int, int] | None = None  # done and planned of its experiments
    about: tuple[str, ...] = ()
    runs: tuple[RunRow, ...] = ()  # newest first
    notes: tuple[Note, ...] = ()
    environment: Environment = field(default_factory=Environment)  # it was measured with
    since_then: tuple[str, ...] = ()  # what is no longer so: "the driver of gpu1 is now 590.48.01"

    @property
    def verdict(self) -> Verdict | None:
        """The one that says most: of the highest level, the first."""
        return max(self.verdicts, key=lambda one: one.level, default=None)


@dataclass(frozen=True)
class DeadEnd:
    """A configuration that was tried on a host and dropped."""

    entry_id: str  # of the evidence
    host: str
    profile: str
    at: str
    cause: str  # slug of a diagnosis, or `slower`
    what: str  # what happened, one sentence
    sets: Mapping[str, object] = field(default_factory=dict)
    parent: str | None = None
    difference: tuple[DiffLine, ...] = ()
    run_id: str | None = None
    evidence: str | None = None  # a line of the log
    line: int | None = None  # its number
    level: str | None = None  # of a verdict
    tries: int = 1
    note: str | None = None  # the newest of a person


@dataclass(frozen=True)
class Known:
    """What an earlier launch says of one that is to be made."""

    text: str  # "tried 3 Nov: crashed, no kernel for SM120"
    entry_id: str
    run_id: str
    at: str
    outcome: str
    cause: str | None = None
    flags: tuple[str, ...] = ()  # those both have; () where the whole configuration is the same


@dataclass(frozen=True)
class Journal:
    """All of it, or what is about one host; everything newest first."""

    host: str | None
    entries: tuple[Entry, ...] = ()
    hypotheses: tuple[Hypothesis, ...] = ()
    ideas: tuple[Idea, ...] = ()
    notes: tuple[Note, ...] = ()
    dead_ends: tuple[DeadEnd, ...] = ()
    runs: tuple[RunRow, ...] = ()
    left_out: str | None = None  # lines that could not be read, one sentence

    @property
    def settled(self) -> Iterator[Hypothesis]:
        """Hypotheses that hold, are refuted, or show no difference."""
        return (one for one in self.hypotheses if one.status in SETTLED)

    @property
    def best(self) -> RunRow | None:
        """The run with the most tokens a second for one user."""
        return max((run for run in self.runs if run.tok_s is not None), key=lambda run: run.tok_s or 0.0, default=None)
