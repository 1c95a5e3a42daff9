"""Lines that say, or help to say, why a server died: tracebacks, clues, and whether one of them is fatal."""

import re
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tui.core.masking.written import mask_text
from tui.core.model.phases import Phase
from tui.core.sglang.frames import phase_of
from tui.core.sglang.lineshape import ERROR_LEVEL, EXCEPTION, FRAME, NATIVE, SAID, THREAD, TRACEBACK, Segment
from tui.core.sglang.patterns import Failure, Patterns
from tui.core.sglang.start import BEGIN, LOAD, SERVING, WARMUP, Start
from tui.core.sglang.state import Clue
from tui.core.sglang.traceback import Frame, Line, Raised, Traceback

_UNKNOWN = Failure("exception", EXCEPTION, "exception", "unknown")  # an exception that no pattern and no kind matches
_CLUE_LIMIT = 400
_SAME_CLUE_LIMIT = 24
_CLUES_OF_ONE = 16  # traceback
_OUTER_FRAMES, _INNER_FRAMES, _OWN_FRAMES = 16, 32, 8
_SAID_KEPT, _SAID_NEAR = 8, 30  # logged errors; lines between one and the exception it led to
# Unstamped records of other writers among the lines of a message.
_OTHER_RECORD = re.compile(r"\[rank\d+\]:|[IWEF]\d{4} \d\d:\d\d|\S+:\d+:\d+ \[\d+\] |(?:INFO|WARNING|ERROR):\s")
_PROGRAM = re.compile(r"(?:^|\s)raise \w{1,60}(?:Error|Exception)\(")  # a line of program that lost its frame
_NO_PART = ("end", "stop", "exit", "observation")  # levels of lines that are never a part of a message


@dataclass
class _Episode:
    """A traceback being read."""

    rank: str | None
    marked: bool  # a fatal marker opened it
    line: int
    before: Line | None = None  # the newest error logged before it
    trace: Traceback = field(default_factory=Traceback)
    clues: list[Clue] = field(default_factory=list)

    def raised_at(self, line: int) -> Raised | None:
        """The exception whose message has this line."""
        return next((item for item in self.trace.chain if item.has(line)), None)

    def frames(self) -> tuple[Frame, ...]:
        """Of the whole chain, the outermost first, as many as are kept."""
        frames = tuple(self.trace.frames())
        if len(frames) <= _OUTER_FRAMES + _INNER_FRAMES:
            return frames
        return (*frames[:_OUTER_FRAMES], *frames[-_INNER_FRAMES:])


class Trouble:
    """Failures of one run."""

    def __init__(self, start: Start, tables: Patterns) -> None:
        self.fatal: int | None = None  # line that proves the server's death
        self.stop: int | None = None  # line that says somebody stopped it
        self._start = start
        self._tables = tables
        self._clues: list[Clue] = []
        self._seen: dict[str, int] = {}
        self._said: deque[tuple[str | None, Line]] = deque(maxlen=_SAID_KEPT)
        self._native: Line | None = None  # the newest error of a native library
        self._episode: _Episode | None = None
        self._benign_trace = False
        self._in_usage = False
        self._unmarked = 0  # clues of tracebacks that no fatal marker opened

    @property
    def calm(self) -> bool:
        """Nothing is under way that a harmless line would end or change."""
        return not (
            self._unmarked
            or self._episode is not None
            or self._benign_trace
            or self._in_usage
            or self.fatal is not None
        )

    @property
    def over(self) -> bool:
        """The log says how this run ended."""
        return self.fatal is not None or self.stop is not None

    def clues(self) -> tuple[Clue, ...]:
        """Including those of a traceback that is not over."""
        return (*self._clues, *(self._settled(self._episode) if self._episode is not None else ()))

    def stamped(self) -> None:
        """A stamped record begins: whatever unstamped lines belonged together has ended."""
        self.close()
        self._benign_trace = self._in_usage = False

    def usage(self, segment: Segment) -> bool:
        """Whether a line is part of the flags that argparse lists before its error."""
        if self._in_usage and segment.rank is None and ": error: " not in segment.body:
            return True
        if segment.body.startswith("usage: "):
            self._in_usage = True
            return True
        return False

    def forgive(self, rank: str | None = None) -> None:
        """The server keeps running: tracebacks that no fatal marker opened did not kill it, nor what was logged before.

        Args:
            rank: whose line tells it.
        """
        if self.fatal is not None:
            return
        if self._said:
            self._said = deque((said for said in self._said if said[0] and said[0] != rank), maxlen=_SAID_KEPT)
        if self._unmarked:
            self._clues = [clue for clue in self._clues if clue.marked or not clue.traceback or clue.fatal]
            self._unmarked = 0
        if self._episode is not None and not self._episode.marked:
            self._episode = None

    def close(self) -> None:
        """The traceback that is being read is over: what it says counts, and proves how far its rank had come."""
        episode, self._episode = self._episode, None
        if episode is None:
            return
        proven = self._framed(episode)
        # Without a marker it may be some thread's, and the start goes on.
        if proven is not None and (episode.marked or episode.trace.is_fault or self._start.position < LOAD):
            self._start.prove(self._start.rank(episode.rank), proven)
        clues = self._settled(episode)
        self._unmarked += 0 if episode.marked else len(clues)
        for clue in clues:
            self._add(clue)

    def _open(self, episode: _Episode) -> None:
        self.close()
        said = (line for rank, line in reversed(self._said) if not rank or not episode.rank or rank == episode.rank)
        episode.before = next((line for line in said if episode.line - line.number <= _SAID_NEAR), None)
        self._episode = episode

    def _died(self, line: int | None) -> None:
        self.fatal = line
        self._start.frozen = line is not None

    def take(self, segment: Segment, number: int) -> str | None:
        """Takes one record in; returns its kind, None where it is harmless."""
        body, stamped = segment.body, segment.rank is not None
        if self._benign_trace and not stamped:
            return "note"
        candidates = self._candidates(body)
        if not candidates and self._episode is None:
            return None
        if not stamped and self._episode is None and _PROGRAM.search(body):
            return None
        if self._tables.benign.search(body):
            self._benign_trace = "error" in body or body.endswith("(most recent call last):")
            return None
        traceback = TRACEBACK.search(body) is not None
        if not stamped and self._episode is None and (traceback or self._bare(body)):
            self._open(_Episode("", False, number))
        if self._episode is not None and not stamped and self._is_frame(self._episode, body, number, traceback):
            return "note"
        failure, match = self._found(candidates, body, self._phase_at(segment))
        if failure is not None and match is not None:
            return self._failed(failure, match, segment, number, traceback)
        return self._unknown(segment, number, traceback)

    def _candidates(self, body: str) -> tuple[Failure | None, ...]:
        return self._tables.failures_for.of(body.encode("utf-8", "replace"))

    @staticmethod
    def _found(
        candidates: Iterable[Failure | None], body: str, phase: Phase
    ) -> tuple[Failure | None, re.Match[str] | None]:
        for failure in candidates:
            if failure is None or (failure.phases is not None and phase not in failure.phases):
                continue
            match = failure.regex.search(body)
            if match is not None:
                return failure, match
        return None, None

    def _is_frame(self, episode: _Episode, body: str, number: int, traceback: bool) -> bool:
        """Hands an unstamped line to the traceback; whether that is all that has to be done with it."""
        if not body.strip() or _OTHER_RECORD.match(body) or self._tables.notes.search(body):
            return False
        return episode.trace.take(body, number) and not traceback

    def _bare(self, body: str) -> bool:
        """Whether an unstamped line is of a traceback whose head is not there."""
        started = self._start.phase in (Phase.READY, Phase.SERVING)
        frame = FRAME.match(body) or THREAD.match(body)
        return frame is not None or (not started and EXCEPTION.match(body) is not None)

    def _unknown(self, segment: Segment, number: int, traceback: bool) -> str | None:
        episode = self._episode
        if traceback and segment.rank is not None:  # a logged traceback of unknown kind: not fatal by itself
            self._open(_Episode(segment.rank, False, number))
            return "error"
        if episode is not None and segment.rank is None and EXCEPTION.match(segment.body):
            return "error"
        if traceback:
            return "error" if episode is None or episode.line == number else "note"
        native = NATIVE.match(segment.body) is not None
        if native or (segment.rank is not None and SAID.search(segment.body)):
            line = Line(number, mask_text(segment.body))
            self._said.append((segment.rank, line))
            self._native = line if native else self._native
        return "error" if ERROR_LEVEL.match(segment.body) else None

    def _failed(self, failure: Failure, match: re.Match[str], segment: Segment, number: int, traceback: bool) -> str:
        episode, level = self._episode, failure.level
        if episode is not None and level in _NO_PART:
            episode.trace.untake(number)
        if level == "stop":
            if self.stop is None and (self.fatal is None or (episode is not None and episode.line == self.fatal)):
                self.stop = number
                self._died(None)
            return "warning"
        if level != "observation" and self._start.position < WARMUP and (phase := self._told_phase(failure, segment)):
            self._start.prove(self._start.rank(_rank_of(segment, episode)), phase)
        clue = self._clue(failure, match, segment.body, number, _rank_of(segment, episode), self._phase_at(segment))
        if level == "observation":
            self._observed(failure, clue)
            return "warning"
        if failure.fatal and not self.over:
            self._died(number)
        if episode is None:
            self._add(clue)
        elif len(episode.clues) < _CLUES_OF_ONE:
            episode.clues.append(replace(clue, marked=episode.marked, traceback=True))
        if level == "marker" or (traceback and level not in ("collateral", "end")):
            self._open(_Episode(segment.rank, level == "marker", number))
        return "error" if level not in ("collateral", "end", "wrapper") or traceback else "warning"

    def _told_phase(self, failure: Failure, segment: Segment) -> Phase | None:
        """The phase that a line tells: "Capture cuda graph failed: …" does, whatever the reason behind it."""
        if failure.phase is not None:
            return failure.phase
        body = segment.body
        wraps = (other for other in self._candidates(body) if other is not None and other.level == "wrapper")
        return next((other.phase for other in wraps if other.phase is not None and other.regex.search(body)), None)

    def _observed(self, failure: Failure, clue: Clue) -> None:
        """Something about a server that lives; why is what a native library said just before."""
        native = self._native
        if native is not None and clue.line - native.number <= _SAID_NEAR:
            clue = replace(clue, before=native)
        if failure.phase == Phase.SERVING and self._start.shown < LOAD:  # no line of the start is there
            self._start.advance(None, SERVING)
            self.forgive()
        self._add(clue)

    def _clue(
        self, failure: Failure, match: re.Match[str] | None, body: str, number: int, rank: str | None, phase: Phase
    ) -> Clue:
        groups = match.groupdict() if match is not None else {}
        return Clue(
            id=failure.id,
            cause=failure.cause,
            level=failure.level,
            line=number,
            text=mask_text(body),
            rank=rank or None,
            phase=phase,
            marked=False,
            traceback=False,
            fatal=failure.fatal,
            groups={name: mask_text(value) for name, value in groups.items() if value is not None},
        )

    def _add(self, clue: Clue) -> None:
        # Of a line that comes a thousand times the first few tell all; the bound keeps memory flat.
        seen = self._seen[clue.id] = self._seen.get(clue.id, 0) + 1
        if seen <= _SAME_CLUE_LIMIT and len(self._clues) < _CLUE_LIMIT:
            self._clues.append(clue)

    # ---- a traceback as a whole -------------------------------------------------------------------------------------

    def _settled(self, episode: _Episode) -> list[Clue]:
        """What a traceback says, now that its frames tell the phase."""
        phase = self._phase_of(episode.rank, self._framed(episode))
        frames = episode.frames()
        clues = []
        for clue in episode.clues:
            failure, match = self._found(self._candidates(clue.text), clue.text, phase)
            if failure is not None:
                found = self._clue(failure, match, clue.text, clue.line, clue.rank, phase)
                clue = replace(found, marked=clue.marked, traceback=True)
            raised = episode.raised_at(clue.line) if clue.level not in _NO_PART else None
            if raised is not None:
                quote, lines = raised.quote(Line(clue.line, clue.text))
                clue = replace(clue, quote=mask_text(quote), lines=tuple(map(mask_text, lines)))
            clues.append(replace(clue, frames=frames, raised_in=tuple((raised or Raised()).frames[-_OWN_FRAMES:])))
        known = [episode.raised_at(clue.line) for clue in clues if clue.level not in _NO_PART]
        for raised in episode.trace.chain:  # of the lines of one message the most specific pattern counts
            said = [clue for clue in clues if clue.level == "root" and raised.has(clue.line)]
            first = min(said, key=lambda clue: self._tables.order.get(clue.id, 0), default=None)
            clues = [clue for clue in clues if clue is first or not any(clue is other for other in said)]
        raised = episode.trace.first_cause(known)
        if raised is not None:
            clues.append(self._exception(raised, episode, frames, phase))
        return clues

    def _exception(self, raised: Raised, episode: _Episode, frames: tuple[Frame, ...], phase: Phase) -> Clue:
        """An exception that no pattern matches, by its kind."""
        groups: Mapping[str, str] | None = None
        failure = _UNKNOWN
        for kind in self._tables.kinds:
            groups = kind.groups(raised, frames, phase)
            if groups is not None:
                failure = self._tables.of_kinds[kind.id]
                break
        head = raised.lines[0]
        quote, lines = raised.quote()
        return replace(
            self._clue(failure, None, head.text, head.number, episode.rank, phase),
            groups={name: mask_text(value) for name, value in (groups or {}).items()},
            marked=episode.marked,
            traceback=True,
            quote=mask_text(quote),
            lines=tuple(map(mask_text, lines)),
            frames=frames,
            raised_in=tuple(raised.frames[-_OWN_FRAMES:]),
            before=episode.before,
        )

    # ---- phases -----------------------------------------------------------------------------------------------------

    def _framed(self, episode: _Episode) -> Phase | None:
        """The phase that the frames of a traceback show."""
        return phase_of(episode.trace.frames(), self._tables.frames, blind=self._start.position < LOAD)

    def _phase_at(self, segment: Segment) -> Phase:
        """The phase that trouble on this line belongs to, as far as the log's own lines tell."""
        return self._phase_of(_rank_of(segment, self._episode), None)

    def _phase_of(self, tag: str | None, framed: Phase | None) -> Phase:
        """The phase that a rank is in.

        Args:
            framed: what its traceback shows.
        """
        start = self._start
        rank = start.ranks.get(tag or "")
        if start.position >= WARMUP:
            return start.phase
        if framed is not None and framed != Phase.LAUNCH:
            return start.provable(framed)
        if rank is None or rank.position == BEGIN:
            return start.phase
        # Between the end of a load and the first word of the pool, the pool is being made.
        if rank.phase in (Phase.LOAD_WEIGHTS, Phase.DRAFT_MODEL) and rank.loads and not rank.loading:
            return Phase.MEMORY_POOL
        return rank.phase


def _rank_of(segment: Segment, episode: _Episode | None) -> str | None:
    return segment.rank if segment.rank is not None else episode.rank if episode is not None else None
