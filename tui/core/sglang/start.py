"""How far a start is: each rank's position in its own order, and the phase of the one that is furthest.

The order of phases differs by version (0.5.14 loads the draft before the pools, earlier versions after the graphs), so
nothing here is a linear machine. Formats: docs/diagnosis.md.
"""

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from tui.core.model.log import rank_order
from tui.core.model.phases import Phase
from tui.core.sglang.batch_lines import decimal, whole
from tui.core.sglang.ledger import Ledger
from tui.core.sglang.lineshape import BarFrame, Segment, stamp_seconds
from tui.core.sglang.patterns import Milestone
from tui.core.sglang.state import LedgerRow, PhaseSpan, Progress, RankState

_DRAFT_TYPE = re.compile(r"Eagle|NextN|MTP|Medusa|Draft")
_DAY_S = 86_400.0
_BARS_KEPT = 16
_MEASURED = {"shards": (Phase.LOAD_WEIGHTS, Phase.DRAFT_MODEL), "capture": (Phase.CUDA_GRAPH,)}


class Step(IntEnum):
    """The phases as steps of one round, in order; the last three are the whole server's."""

    LAUNCH, DISTRIBUTED_INIT, LOAD_WEIGHTS, DRAFT_MODEL, MEMORY_POOL, CUDA_GRAPH, WARMUP, READY, SERVING = range(9)


class Position(NamedTuple):
    """A place in the order of a start; positions compare as far as they are."""

    round: int  # up to 0.5.13 each further model runner (a draft) takes all steps in a round of its own
    step: Step
    runner: int = 0  # of several drafts loaded in one round

    @property
    def phase(self) -> Phase:
        """What the step is for: whatever loads in a later round is a draft model."""
        if self.round and self.step in (Step.DISTRIBUTED_INIT, Step.LOAD_WEIGHTS):
            return Phase.DRAFT_MODEL
        return Phase[self.step.name]


_AFTER_ALL_ROUNDS = sys.maxsize
BEGIN = Position(0, Step.LAUNCH)
_DIST, LOAD, _POOL = (Position(0, step) for step in (Step.DISTRIBUTED_INIT, Step.LOAD_WEIGHTS, Step.MEMORY_POOL))
WARMUP, READY, SERVING = (Position(_AFTER_ALL_ROUNDS, step) for step in (Step.WARMUP, Step.READY, Step.SERVING))


class Clock:
    """The log's own clock: the newest stamp, and seconds since the first one that was asked for."""

    def __init__(self, time: str | None = None, stamp: str | None = None) -> None:
        self.time = time  # "20:01:03"
        self.stamp = stamp  # as it stands there
        self.first_s: float | None = None
        self._day_s = 0.0

    def seconds(self) -> float | None:
        """The newest stamp; None where there is none."""
        value = stamp_seconds(self.stamp)
        if value is None:
            return None
        if value <= _DAY_S + 60:  # no date: it may pass midnight
            value += self._day_s
            if self.first_s is not None and value < self.first_s - _DAY_S / 2:
                self._day_s += _DAY_S
                value += _DAY_S
        if self.first_s is None:
            self.first_s = value
        return value - self.first_s


@dataclass
class Rank:
    """One scheduler process; figures in GiB."""

    tag: str
    memory: Ledger
    position: Position = BEGIN
    since: str | None = None
    loads: int = 0  # runners whose load began
    loading: bool = False
    round: int = 0

    @property
    def phase(self) -> Phase:
        return self.position.phase

    def at(self, step: Step) -> Position:
        """The step in the round that the rank is in."""
        return Position(self.round, step)


@dataclass
class Bar:
    """A progress bar, from its frames so far."""

    what: str  # shards, capture, "" for any other
    done: int
    total: int
    offset: int  # of its first frame
    number: int  # line of its first frame
    frames: int = 0


class Bars:
    """The bars of the load or capture that is under way."""

    def __init__(self) -> None:
        self._bars: dict[tuple[str, int], Bar] = {}

    def clear(self) -> None:
        """Another load or capture begins: its frames are bars of their own."""
        self._bars.clear()

    def same(self, what: str, frame: BarFrame) -> Bar | None:
        """The bar that a frame belongs to; None where it begins one."""
        bar = self._bars.get((what, frame.total))
        return bar if bar is not None and frame.done >= bar.done else None

    def take(self, what: str, frame: BarFrame, number: int, offset: int) -> Bar:
        """The bar with this frame in it."""
        bar = self.same(what, frame)
        if bar is None:
            bar = self._bars[what, frame.total] = Bar(what, frame.done, frame.total, offset, number)
            if len(self._bars) > _BARS_KEPT:
                self._bars.pop(next(iter(self._bars)))
        bar.done = frame.done
        bar.frames += 1
        return bar


class Start:
    """One start, from its milestones and bars."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.phase = Phase.LAUNCH
        self.position = BEGIN
        self.shown = BEGIN  # the same by the log's own lines, without what tracebacks prove
        self.ranks: dict[str, Rank] = {}
        self.frozen = False  # a process died: what others still say does not undo that
        self.went_on = False  # something advanced since this was last set to False
        self.fired_up = False
        self.follower_up = False
        self.port: int | None = None
        self.tokens: int | None = None
        self.capturing: str | None = None
        self.working: str | None = None
        self.host_memory = False  # free memory is the host's: a server on a CPU
        self._answered = 0  # generation requests answered before "fired up"; the warm-up makes one
        self._bars = Bars()
        self._bar: tuple[Bar, Position] | None = None  # what measures, and where the start was then
        self._marks: list[tuple[Phase, float | None]] = []
        self._marked = 0  # so many of them have a record of kind "phase"

    def rank(self, tag: str | None) -> Rank:
        """The rank with this tag, made where it is new."""
        tag = tag or ""
        return self.ranks.setdefault(tag, Rank(tag, Ledger(tag)))

    # ---- moving -----------------------------------------------------------------------------------------------------

    def advance(self, rank: Rank | None, position: Position) -> bool:
        """Moves a rank, and the log with it where it is the furthest; True if the rank began a phase."""
        if self.frozen:
            return False
        self.went_on = True
        self.shown = max(self.shown, position)
        return self._move(rank, position)

    def _move(self, rank: Rank | None, position: Position) -> bool:
        began = False
        if rank is not None and position > rank.position:
            began = rank.phase != position.phase or position.round != rank.position.round
            rank.position, rank.since = position, self.clock.time
        if position > self.position:
            self.position = position
            if position.phase != self.phase or not self._marks:
                self.phase = position.phase
                self._marks.append((self.phase, self.clock.seconds()))
                self.working = None
        return began

    def begins(self, phase: Phase) -> bool:
        """Whether the newest phase is this one and no record was marked with it yet."""
        if self.phase != phase or self._marked == len(self._marks):
            return False
        self._marked = len(self._marks)
        return True

    def prove(self, rank: Rank, phase: Phase) -> None:
        """Trouble shows that a rank had come to this phase, whatever its log says."""
        match self.provable(phase):
            case Phase.DISTRIBUTED_INIT | Phase.LOAD_WEIGHTS as early:
                self._move(rank, Position(0, Step[early.name]))
            case Phase.DRAFT_MODEL if rank.phase != Phase.DRAFT_MODEL:
                late = rank.position >= _POOL  # up to 0.5.13 a draft begins after the target's graphs
                self._move(rank, Position(1, Step.LOAD_WEIGHTS) if late else Position(0, Step.DRAFT_MODEL, 1))
            case Phase.MEMORY_POOL | Phase.CUDA_GRAPH as late:
                self._move(rank, rank.at(Step[late.name]))
            case Phase.WARMUP | Phase.SERVING as last:
                self._move(None, Position(_AFTER_ALL_ROUNDS, Step[last.name]))
            case _:
                pass

    def provable(self, phase: Phase) -> Phase:
        """A phase that frames show, as this log has it: the event loop runs from the warm-up on."""
        early = phase == Phase.SERVING and not (self.fired_up or self.position < LOAD)
        return Phase.WARMUP if early else phase

    def answered(self) -> None:
        """A generation request was answered: several of them prove that it serves, where the ready line is missing."""
        if self.position >= READY:
            return
        self._answered += 1
        if self._answered >= (3 if self.position > BEGIN else 1) and self.position in (BEGIN, WARMUP):
            self.advance(None, SERVING)

    # ---- milestones -------------------------------------------------------------------------------------------------

    def milestone(self, milestone: Milestone, match: re.Match[str], segment: Segment, number: int) -> bool:
        """Takes a milestone in; True where the line begins a phase."""
        groups = {name.rstrip("2"): value for name, value in match.groupdict().items() if value is not None}
        rank = self.rank(segment.rank)
        avail = decimal(groups.get("avail"))
        began = self._take(milestone.event, groups, rank, avail, segment)
        rank.memory.line(avail, number, segment.body)
        return began

    def _take(self, event: str, groups: Mapping[str, str], rank: Rank, avail: float | None, segment: Segment) -> bool:
        match event:
            case "dist_begin" if rank.position >= _POOL:  # up to 0.5.13 a draft runner initialises again
                return self.advance(rank, Position(max(1, rank.loads), Step.DISTRIBUTED_INIT))
            case "dist_begin":
                return self.advance(rank, _DIST)
            case "dist_mark":
                return self.advance(rank if segment.rank is not None else None, _DIST)
            case "dist_end":
                self.advance(rank, _DIST)
            case "load_begin":
                return self._load_begins(rank, avail)
            case "load_mark":
                rank.loads = rank.loads or 1
                return self.advance(rank, LOAD)
            case "load_end":
                self._load_ends(rank, groups, avail)
            case "pool" | "pool_mark" | "pool_end":
                rank.memory.sizes(groups)
                if event == "pool_end":
                    rank.memory.pools_end(avail)
                return self.advance(rank, rank.at(Step.MEMORY_POOL))
            case "capture_begin" | "capture_list":
                self._capture(groups.get("what"))
                return self.advance(rank, rank.at(Step.CUDA_GRAPH))
            case "capture_end":
                rank.memory.captured(decimal(groups.get("used")))
                return self.advance(rank, rank.at(Step.CUDA_GRAPH))
            case "sched_ready":
                self.tokens = whole(groups.get("tokens")) or self.tokens
                self.host_memory = "host" in groups
            case "http" | "http_up":
                if self.port is None:
                    self.port = whole(groups.get("port"))
                self.advance(None, WARMUP)
                return self.begins(Phase.WARMUP)
            case "follower_up":
                self.follower_up = True
                self.advance(None, WARMUP)
                return self.begins(Phase.WARMUP)
            case "fired_up":
                self.fired_up = True
                self.advance(None, READY)
                return self.begins(Phase.READY)
            case "memory" if "lora" in groups:
                rank.memory.adapter_loaded(avail)
            case "memory":
                rank.memory.sizes(groups)
            case "working":
                self.working = segment.body[:300]
        return False

    def _load_begins(self, rank: Rank, avail: float | None) -> bool:
        runner = rank.loads
        rank.loads += 1
        rank.loading = True
        self._bars.clear()
        rank.memory.load_begins(avail, draft=runner > 0, after_pools=rank.position >= _POOL)
        if runner == 0:
            return self.advance(rank, LOAD)
        if rank.position >= _POOL:
            rank.round = runner
            return self.advance(rank, rank.at(Step.LOAD_WEIGHTS))
        return self.advance(rank, Position(0, Step.DRAFT_MODEL, runner))

    def _load_ends(self, rank: Rank, groups: Mapping[str, str], avail: float | None) -> None:
        if not rank.loading:  # the log does not begin at the beginning
            if rank.loads == 0 and _DRAFT_TYPE.search(groups.get("type", "")):
                rank.loads = 1
            self._load_begins(rank, None)
        rank.loading = False
        rank.memory.load_ends(decimal(groups.get("used")), avail, draft=rank.loads > 1)

    def _capture(self, what: str | None) -> None:
        if what is not None and what.lower() != self.capturing:
            self.capturing = what.lower()
            self._bar = None
            self._bars.clear()

    # ---- bars -------------------------------------------------------------------------------------------------------

    def _kind_of_bar(self, frame: BarFrame) -> str:
        """shards, capture, or "" for a bar that measures nothing of the start."""
        text = frame.desc.lower()
        if "captur" in text:
            return "capture"
        if "loading" in text and ("shard" in text or "tensor" in text):
            return "shards"
        # The first frame of a capture has no description; nor have the bars of clients.
        capturing = self.phase == Phase.CUDA_GRAPH and self.capturing is not None
        return "capture" if not text and capturing else ""

    def same_bar(self, frame: BarFrame) -> Bar | None:
        """The bar that a frame would belong to; None where it would begin one."""
        return self._bars.same(self._kind_of_bar(frame), frame)

    def bar(self, frame: BarFrame, number: int, offset: int) -> Bar:
        """Takes a frame in."""
        what = self._kind_of_bar(frame)
        rank = self.rank("TP0" if "TP0" in self.ranks else "")
        # A bar that is drawn behind the death, as it is closed, was begun before it.
        move = self._move if self.frozen else self.advance
        if what == "capture" and self.phase != Phase.CUDA_GRAPH and self.position < WARMUP:
            move(rank, rank.at(Step.CUDA_GRAPH))
        elif what == "shards" and self.position < LOAD:
            move(rank, LOAD)
        bar = self._bars.take(what, frame, number, offset)
        if self.phase in _MEASURED.get(what, ()):
            self._bar = (bar, self.position)
        return bar

    def progress(self, newest: list[BarFrame]) -> Progress | None:
        """Of the current phase.

        Args:
            newest: frames that have no terminator until the next one comes.
        """
        found = None
        if self._bar is not None and self._bar[1] == self.position:
            bar = self._bar[0]
            found = Progress(bar.what, bar.done, bar.total)
        for frame in newest:
            what = self._kind_of_bar(frame)
            if self.phase in _MEASURED.get(what, ()):
                found = Progress(what, frame.done, frame.total)
        return found

    # ---- what is known ----------------------------------------------------------------------------------------------

    def spans(self, launched: bool) -> tuple[PhaseSpan, ...]:
        """The phases in this log's own order, begun ones only.

        Args:
            launched: the log begins with the launch.
        """
        marks = list(self._marks)
        if marks and marks[0][0] != Phase.LAUNCH and (launched or marks[0][0] == Phase.DISTRIBUTED_INIT):
            marks.insert(0, (Phase.LAUNCH, 0.0))
        ends = [began for _, began in marks[1:]]
        return tuple(PhaseSpan(phase, began, end) for (phase, began), end in zip(marks, [*ends, None], strict=False))

    def _known_ranks(self) -> list[Rank]:
        begun = [rank for rank in self.ranks.values() if rank.position > BEGIN]
        return sorted([rank for rank in begun if rank.tag] or begun, key=lambda rank: rank_order(rank.tag))

    def rank_states(self) -> tuple[RankState, ...]:
        """How far each rank is."""
        served = self.phase if self.position >= WARMUP else None
        return tuple(
            RankState(rank.tag, served or rank.phase, rank.since, rank.memory.weights, rank.memory.free)
            for rank in self._known_ranks()
        )

    def ledger(self, host_memory: bool) -> tuple[LedgerRow, ...]:
        """Memory of the ranks that named any.

        Args:
            host_memory: the server runs on a CPU.
        """
        rows = [rank.memory.row(host_memory) for rank in self._known_ranks()]
        return tuple(row for row in rows if (row.weights_gib, row.before_gib, row.kv_pool_gib) != (None, None, None))
