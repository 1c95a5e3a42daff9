"""What is stored of a tune: one JSON file under the data directory, replaced by rename after every step.

A kill at any moment leaves the step before or the step after. Launches are experiments of one arm (`core/experiment`), so what
they leave on the host is found again as theirs is; the experiment of the step under way is kept here, that of the verdict
among the experiments.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from operator import attrgetter

from tui.core.experiment.record import ExperimentRecord
from tui.core.model.profile import BenchProfile
from tui.core.records import RecordFiles
from tui.core.server.earlier_starts import FRACTION

SCHEMA = 1
GOALS = ("tok_s", "ttft", "goodput")
GRAPH_BATCH = "cuda-graph-max-bs"
SPECULATION = (  # flags that speculate; without the first the others mean nothing
    "speculative-algorithm",
    "speculative-draft-model-path",
    "speculative-num-steps",
    "speculative-eagle-topk",
    "speculative-num-draft-tokens",
)


class Phase(StrEnum):
    """What a step is for."""

    RANGE = "range"
    SPECULATION = "speculation"
    CONFIRM = "confirm"


class Status(StrEnum):
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True)
class Draft:
    """How a server speculates."""

    steps: int
    topk: int
    tokens: int

    def __str__(self) -> str:
        return f"{self.steps} step{'s' * (self.steps != 1)}, top-k {self.topk}, {self.tokens} draft tokens"


@dataclass(frozen=True)
class Step:
    """One launch to make, or the experiment at the end, and why this one."""

    phase: Phase
    why: str
    fraction: float | None  # mem-fraction-static; None: SGLang's own choice
    draft: Draft | None  # None: without speculation
    batch: int | None = None  # largest graph batch; None: as the profile has it

    @property
    def title(self) -> str:
        """Of a line of progress."""
        return {
            Phase.RANGE: f"{FRACTION} {self.fraction if self.fraction is None else format(self.fraction, '.2f')}",
            Phase.SPECULATION: str(self.draft) if self.draft else "without speculation",
            Phase.CONFIRM: f"{self.draft or 'without speculation'} against the start",
        }[self.phase]


@dataclass(frozen=True)
class Bounds:
    """What the ledger of earlier starts says of the fraction (`core/server/forecast`); None: nothing."""

    least: float | None = None  # leaves any pool
    most: float | None = None  # leaves room beside it
    batch_most: int | None = None  # largest graph batch beside the fraction asked about


@dataclass(frozen=True)
class Taken:
    """A step that was begun."""

    number: int  # from 1
    step: Step
    status: Status = Status.RUNNING
    launches: int = 1
    spent_s: float = 0.0  # what the budget counts
    started_at: str | None = None  # ISO 8601 UTC
    ended_at: str | None = None
    run_id: str | None = None  # of the server
    result_ids: tuple[str, ...] = ()
    runs: int = 0  # that count
    experiment_id: str | None = None
    ready_after_s: float | None = None
    kv_tokens: int | None = None
    free_gib: float | None = None  # on the fullest rank, once ready
    value: float | None = None  # of the goal's metric: the median of the runs that count
    rate: float | None = None  # tok/s per user, likewise
    accept_length: float | None = None
    cycle_ms: float | None = None
    phase: str | None = None  # where a start failed
    cause: str | None = None
    reason: str | None = None  # one sentence
    verdict: str | None = None  # of the experiment at the end

    @property
    def words(self) -> str:
        """What came of it, in one line: for progress, report and journal."""
        if self.status is Status.RUNNING:
            return "under way"
        if self.status is Status.FAILED:
            where = f" in {self.phase.replace('_', ' ')}" if self.phase else ""
            return f"failed{where}: {self.cause}: {self.reason}"
        if self.verdict is not None:
            return self.verdict
        if self.step.phase is Phase.RANGE:
            pool = f", {self.kv_tokens:,} KV tokens" if self.kv_tokens is not None else ""
            return f"starts and serves the longest prompt{pool}"
        if self.rate is None:
            return f"no run counts: {self.reason or 'nothing was measured'}"
        accepts = f", accepts {self.accept_length:.2f}" if self.accept_length is not None else ""
        return f"{self.rate:.1f} tok/s per user{accepts}"


@dataclass(frozen=True)
class TuneRecord:
    """A tune, under way or over."""

    tune_id: str
    profile: str
    host: str
    goal: str  # of GOALS
    bench: BenchProfile  # the workload, at one load
    start: Draft | None  # as the profile speculates
    fraction: float | None  # as the profile has it
    batch: int | None
    algorithm: str | None
    longest_prompt: int  # tokens
    seed: int
    sets: Mapping[str, object] = field(default_factory=dict)  # overrides of every launch, secrets masked
    configuration: str = ""  # a sum of what the profile launches
    budget_h: float | None = None
    bounds: Bounds = Bounds()
    steps: tuple[Taken, ...] = ()
    under_way: ExperimentRecord | None = None  # of the last step, until it is over
    launch_s: float | None = None  # of a launch with its measuring, as earlier starts say
    started_at: str | None = None  # ISO 8601 UTC
    ended_at: str | None = None
    outcome: str = "running"  # running, stopped, budget, failed, done
    message: str | None = None  # how it ended
    loads: tuple[str, ...] = ()  # labels of the workload's other loads: not tried
    schema: int = SCHEMA

    @property
    def launches(self) -> int:
        return sum(taken.launches for taken in self.steps)

    @property
    def spent_s(self) -> float:
        return sum(taken.spent_s for taken in self.steps)

    def of(self, phase: Phase) -> tuple[Taken, ...]:
        """The steps of a phase that are over."""
        return tuple(t for t in self.steps if t.step.phase is phase and t.status is not Status.RUNNING)

    def spent_in(self, phase: Phase) -> float:
        return sum(taken.spent_s for taken in self.steps if taken.step.phase is phase)

    def with_step(self, taken: Taken) -> "TuneRecord":
        """With this step in the place of the one of its number, or behind the last."""
        return replace(self, steps=(*self.steps[: taken.number - 1], taken, *self.steps[taken.number :]))


def sets_of(record: TuneRecord, step: Step) -> dict[str, object]:
    """The overrides that make a step of the profile; False takes a flag out."""
    sets: dict[str, object] = {}
    if step.fraction is not None:
        sets[FRACTION] = step.fraction
    if step.batch is not None:
        sets[GRAPH_BATCH] = step.batch
    if step.draft is None:
        return sets | (dict.fromkeys(SPECULATION, False) if record.start is not None else {})
    return sets | dict(zip(SPECULATION[2:], (step.draft.steps, step.draft.topk, step.draft.tokens), strict=True))


def _fits(record: TuneRecord) -> bool:
    numbers = [taken.number for taken in record.steps]
    return record.goal in GOALS and numbers == list(range(1, len(numbers) + 1)) and bool(record.bench.points)


FILES = RecordFiles(TuneRecord, "tunes", attrgetter("tune_id"), _fits)
write, read = FILES.write, FILES.read


def tunes() -> list[TuneRecord]:
    """All tunes of this machine that can be read, newest first. `Step.title`, `Step.why` and `Taken.words` say each step."""
    return sorted(FILES.read_all(), key=lambda record: (record.started_at or "", record.tune_id), reverse=True)


def unfinished(profile: str, host: str, goal: str) -> TuneRecord | None:
    """The newest tune of this profile, host and goal where it can be resumed; a process that runs it is not looked for."""
    same = (profile, host, goal)
    newest = next((one for one in tunes() if (one.profile, one.host, one.goal) == same), None)
    return newest if newest is not None and newest.outcome not in ("done", "failed") else None
