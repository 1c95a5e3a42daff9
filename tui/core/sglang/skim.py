"""The fast way through a serving server's log: lines that change nothing are passed over, many at once."""

import re
from functools import lru_cache

from tui.core.sglang.figures import SLOW_TOKENIZER, WARN_SOURCE, Figures, tags_of
from tui.core.sglang.patterns import Patterns
from tui.core.sglang.run_reader import TAG_LIMIT, RunReader
from tui.core.sglang.splitter import LineSplitter
from tui.core.sglang.start import READY, SERVING

_TAGS = re.compile(rb"((?: [A-Z][A-Z_]{0,11}\d{1,6}){0,6})")
_ACCESS, _BATCH = "access", "batch"
# What a stamped line begins with after its bracket: an access line (or another of uvicorn's), or a batch.
_HEADS = {b" Decode ba": _BATCH, b" Prefill b": _BATCH, b" INFO:    ": _ACCESS}
_MEANS_SOMETHING = (
    b"slow tokenizer",
    b"server_args=",
    b"%",
    b"\x1b",
    b"#retracted_reqs: ",
)  # beside what the patterns find
_RANKS_IN_A_PATTERN = 64


@lru_cache(maxsize=32)
def _run_pattern(tags: tuple[bytes, ...], iterations: bool) -> re.Pattern[bytes]:
    """Matches lines of the usual shapes of a serving server in a row."""
    ranks = b"(?:" + b"|".join(map(re.escape, tags)) + b")"
    stamp = rb"\[.{10} .{8}(?:\.\d{3})?"  # looser than a stamp: nothing else has these shapes behind it
    batch = rb"(?:Decode|Prefill) batch" + (rb"(?: \[\d+\])?" if iterations else b"") + rb"[.,] .*"
    shapes = b"(?:" + batch + rb"|INFO:     [\da-f:].*HTTP/1.*)\n"
    # A warning's rest has no capital U: the phrase stands there once.
    slow = rb"/[^\n%\[\]]{0,1000}: UserWarning: " + re.escape(SLOW_TOKENIZER) + rb"[^\n%\[\]U]*\n"
    # Possessive: a run is never given back, so nothing is kept of its lines.
    return re.compile(
        b"(?:" + stamp + ranks + rb"\] " + shapes + rb"|\n|" + slow + b"|" + re.escape(WARN_SOURCE) + b")++"
    )


class Skimmer:
    """Reads for the state alone, without records; what it doesn't know is read line by line, with care."""

    def __init__(self, reader: RunReader, tables: Patterns) -> None:
        self._reader = reader
        self._tables = tables
        self._pattern: tuple[object, re.Pattern[bytes] | None] = (None, None)  # (what it is for, pattern)

    def feed(self, splitter: LineSplitter, data: bytes) -> None:
        """Takes bytes in: lines with carriage returns go the careful way, everything between them the fast one."""
        at, end = 0, len(data)
        while at < end:
            mark = data.find(b"\r", at)
            stop = end if mark < 0 else max(at, data.rfind(b"\n", at, mark) + 1)
            if splitter.begun:
                stop = (data.find(b"\n", at) + 1) or end
            elif stop > at:
                if self._plain(splitter, data if stop - at == end else data[at:stop]):
                    at = stop
                    continue
            else:
                stop = _after_returns(data, mark)
            for piece in splitter.feed(data[at:stop]):
                if piece.raw:
                    self._reader.line(piece.raw, piece.number)
            at = stop

    def _plain(self, splitter: LineSplitter, data: bytes) -> bool:
        """Takes lines without carriage returns; False (and nothing taken) where one is too long for the fast way."""
        text = splitter.plain(data)
        if text is None:
            return False
        reader = self._reader
        number = splitter.number
        at, end, careful = 0, len(text), 0
        calm, serving, figures, runs = self._now()
        while at < end:
            if runs is not None and serving and calm and at >= careful:
                match = runs.match(text, at)
                if match is not None:
                    taken = figures.take_run(text, at, match.end(), number)
                    if taken:
                        number += taken
                        at = match.end()
                        continue
                    careful = match.end()  # looked at once: line by line up to there
            stop = text.find(b"\n", at)
            raw = text[at:stop]
            at = stop + 1
            # Most other lines mean nothing either, which a few bytes at known places tell. One bracket alone: nothing
            # is glued to the record.
            bracket = raw.rfind(b"]")
            if calm and 20 <= bracket < 80 and raw[0] == 0x5B and raw[11] == 0x20:
                head = _HEADS.get(raw[bracket + 1 : bracket + 11])
                if head or serving:
                    tags = tags_of(raw, 0, bracket)
                    if (tags in figures.ranks or self._new_rank(tags)) and self._means_nothing(head, raw, bracket):
                        number += 1
                        runs = self._runs()
                        continue
            if raw:
                if b"batch" in raw or b"slow tokenizer" in raw:
                    figures.read_run()
                reader.line(raw, number)
                calm, serving, figures, runs = self._now()
            number += 1
        figures.read_run()
        splitter.number = number
        return True

    def _now(self) -> tuple[bool, bool, Figures, re.Pattern[bytes] | None]:
        """What the last line read with care may have changed: calm, serving, the run's figures, the pattern of runs."""
        reader = self._reader
        return reader.trouble.calm, reader.start.position == SERVING, reader.figures, self._runs()

    def _runs(self) -> re.Pattern[bytes] | None:
        figures = self._reader.figures
        key = (figures, len(figures.ranks), figures.iterations)
        if self._pattern[0] != key:
            few = 0 < len(figures.ranks) <= _RANKS_IN_A_PATTERN
            self._pattern = (key, _run_pattern(tuple(sorted(figures.ranks)), figures.iterations) if few else None)
        return self._pattern[1]

    def _new_rank(self, tags: bytes) -> bool:
        """Whether what stands between stamp and bracket is a list of tags; it is remembered."""
        match = _TAGS.fullmatch(tags)
        ranks = self._reader.figures.ranks
        if match is None or len(ranks) >= TAG_LIMIT:
            return False
        ranks[tags] = match.group(1).decode().strip()
        self._reader.see(ranks[tags])
        return True

    def _means_nothing(self, head: str | None, raw: bytes, bracket: int) -> bool:
        """Whether a line that begins as those of a serving server do can be left unread."""
        if head is _ACCESS:
            return (
                self._reader.start.position >= READY and raw[bracket + 12 : bracket + 13].isdigit() and b"HTTP/1" in raw
            )
        body = raw[bracket + 2 :]
        return not (
            head
            or any(text in body for text in _MEANS_SOMETHING)
            or self._tables.milestones_for.of(body)
            or self._tables.failures_for.of(body)
        )


def _after_returns(data: bytes, mark: int) -> int:
    """Where the lines that hold carriage returns end, from the one at `mark` on."""
    stop = data.find(b"\n", mark)
    while stop >= 0:
        following = data.find(b"\n", stop + 1)
        if following < 0 or data.find(b"\r", stop + 1, following) < 0:
            return stop + 1
        stop = following
    return len(data)
