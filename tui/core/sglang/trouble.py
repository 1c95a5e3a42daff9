"""Lines that say, or help to say, why a server died: tracebacks, clues, and whether one of them is fatal."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from tui.core.model.phases import Phase
from tui.core.sglang.lineshape import ERROR_LEVEL, EXCEPTION, FRAME, TRACEBACK, Segment, masked
from tui.core.sglang.patterns import Failure, Patterns
from tui.core.sglang.start import BEGIN, LOAD, WARMUP, Start
from tui.core.sglang.state import Clue

_UNKNOWN = Failure("exception", EXCEPTION, "exception", "unknown")  # an exception that no pattern matches
_CLUE_LIMIT = 400
_SAME_CLUE_LIMIT = 24
_FRAMES_KEPT, _FRAMES_OF_A_CLUE = 200, 40


@dataclass
class _Episode:
    """A traceback being read."""

    rank: str | None
    marked: bool  # a fatal marker opened it
    line: int
    frames: list[str] = field(default_factory=list)
    exception: Clue | None = None


class Trouble:
    """Failures of one run."""

    def __init__(self, start: Start, tables: Patterns) -> None:
        self.fatal: int | None = None  # line that proves the server's death
        self.stop: int | None = None  # line that says somebody stopped it
        self._start = start
        self._tables = tables
        self._clues: list[Clue] = []
        self._seen: dict[str, int] = {}
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
        """Including the exception of a traceback that is not over."""
        newest = self._episode.exception if self._episode is not None else None
        return (*self._clues, *([newest] if newest is not None else ()))

    def stamped(self) -> None:
        """A stamped record begins: whatever unstamped lines belonged together has ended."""
        self._close_episode()
        self._benign_trace = self._in_usage = False

    def usage(self, segment: Segment) -> bool:
        """Whether a line is part of the flags that argparse lists before its error."""
        if self._in_usage and segment.rank is None and ": error: " not in segment.body:
            return True
        if segment.body.startswith("usage: "):
            self._in_usage = True
            return True
        return False

    def forgive(self) -> None:
        """The server keeps running: tracebacks that no fatal marker opened did not kill it."""
        if self._unmarked and self.fatal is None:
            self._clues = [clue for clue in self._clues if clue.marked or not clue.traceback or clue.fatal]
            self._unmarked = 0

    def _close_episode(self) -> None:
        episode, self._episode = self._episode, None
        if episode is not None and episode.exception is not None:
            self._add(episode.exception)

    def _died(self, line: int | None) -> None:
        self.fatal = line
        self._start.frozen = line is not None

    def take(self, segment: Segment, number: int) -> str | None:
        """Takes one record in; returns its kind, None where it is harmless."""
        body, stamped = segment.body, segment.rank is not None
        if self._benign_trace and not stamped:
            return "note"
        candidates = self._tables.failures_for.of(body.encode("utf-8", "replace"))
        if not candidates and self._episode is None:
            return None
        if self._tables.benign.search(body):
            self._benign_trace = "error" in body or body.endswith("(most recent call last):")
            return None
        traceback = TRACEBACK.search(body) is not None
        if not stamped and self._episode is None and (traceback or self._bare(body)):
            self._episode = _Episode("", False, number)
        episode = self._episode
        if episode is not None and not stamped and body.startswith(" "):
            if ", in " in body and len(episode.frames) < _FRAMES_KEPT:
                episode.frames.append(body.strip()[-200:])
            return "note"
        phase = self._phase_of(segment)
        for failure in candidates:
            if failure is None or (failure.phases is not None and phase not in failure.phases):
                continue
            match = failure.regex.search(body)
            if match is not None:
                return self._failed(failure, match, segment, number, traceback)
        return self._unknown(segment, number, traceback)

    def _bare(self, body: str) -> bool:
        """Whether an unstamped line is of a traceback whose head is not there."""
        started = self._start.phase in (Phase.READY, Phase.SERVING)
        return FRAME.match(body) is not None or (not started and EXCEPTION.match(body) is not None)

    def _unknown(self, segment: Segment, number: int, traceback: bool) -> str | None:
        episode = self._episode
        if traceback and segment.rank is not None:  # a logged traceback of unknown kind: not fatal by itself
            self._episode = _Episode(segment.rank, False, number)
            return "error"
        if episode is not None and EXCEPTION.match(segment.body):
            episode.exception = self._clue(_UNKNOWN, segment, number, episode, {})
            self._unmarked += 0 if episode.marked else 1
            return "error"
        if traceback:
            return "error" if episode is None or episode.line == number else "note"
        return "error" if ERROR_LEVEL.match(segment.body) else None

    def _failed(self, failure: Failure, match: re.Match[str], segment: Segment, number: int, traceback: bool) -> str:
        episode, level = self._episode, failure.level
        if level == "stop":
            if self.stop is None and (self.fatal is None or (episode is not None and episode.line == self.fatal)):
                self.stop = number
                self._died(None)
            return "warning"
        if level == "observation":
            self._add(self._clue(failure, segment, number, None, {}))
            return "warning"
        if failure.phase is not None and self._start.position < WARMUP:
            self._start.prove(self._start.rank(_rank_of(segment, episode)), failure.phase)
        groups = {name: masked(value) for name, value in match.groupdict().items() if value is not None}
        clue = self._clue(failure, segment, number, episode, groups)
        if failure.fatal and not self.over:
            self._died(number)
        if episode is not None:
            episode.exception = None
            self._unmarked += 0 if episode.marked else 1
        self._add(clue)
        if level == "marker" or (traceback and level not in ("collateral", "end")):
            self._episode = _Episode(segment.rank, level == "marker", number)
        return "error" if level not in ("collateral", "end", "wrapper") or traceback else "warning"

    def _clue(
        self, failure: Failure, segment: Segment, number: int, episode: _Episode | None, groups: Mapping[str, str]
    ) -> Clue:
        return Clue(
            id=failure.id,
            cause=failure.cause,
            level=failure.level,
            line=number,
            text=masked(segment.body),
            rank=_rank_of(segment, episode) or None,
            phase=self._phase_of(segment),
            marked=episode is not None and episode.marked,
            traceback=episode is not None,
            fatal=failure.fatal,
            groups=groups,
            frames=tuple(episode.frames[-_FRAMES_OF_A_CLUE:]) if episode is not None else (),
        )

    def _add(self, clue: Clue) -> None:
        # Of a line that comes a thousand times the first few tell all; the bound keeps memory flat.
        seen = self._seen[clue.id] = self._seen.get(clue.id, 0) + 1
        if seen <= _SAME_CLUE_LIMIT and len(self._clues) < _CLUE_LIMIT:
            self._clues.append(clue)

    def _phase_of(self, segment: Segment) -> Phase:
        """The phase that trouble on this line belongs to."""
        start = self._start
        if self._episode is not None:
            self._prove_by_frames(self._episode)
        rank = start.ranks.get(_rank_of(segment, self._episode) or "")
        if start.position >= WARMUP or rank is None or rank.position == BEGIN:
            return start.phase
        # Between the end of a load and the first word of the pool, the pool is being made.
        if rank.phase in (Phase.LOAD_WEIGHTS, Phase.DRAFT_MODEL) and rank.loads and not rank.loading:
            return Phase.MEMORY_POOL
        return rank.phase

    def _prove_by_frames(self, episode: _Episode) -> None:
        """Raises the phase of a rank to what its traceback proves."""
        if not episode.frames or (not episode.marked and self._start.position >= LOAD):
            return
        text = "\n".join(episode.frames)
        if not episode.marked and "scheduler" not in text and "_wait_and_warmup" not in text:
            return  # the main process before any rank: its frames say nothing of phases
        for regex, phase in self._tables.frames:
            if regex.search(text):
                self._start.prove(self._start.rank(episode.rank), phase)
                return


def _rank_of(segment: Segment, episode: _Episode | None) -> str | None:
    return segment.rank if segment.rank is not None else episode.rank if episode is not None else None
