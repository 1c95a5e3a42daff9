"""One run of a server in its log, line by line: each record goes to the part that understands it."""

import re

from tui.core.model.phases import Outcome, Phase
from tui.core.sglang.batch_lines import BATCH
from tui.core.sglang.boxes import Boxes
from tui.core.sglang.figures import RETRACTED, Figures
from tui.core.sglang.lineshape import BarFrame, Segment, segments
from tui.core.sglang.patterns import Patterns
from tui.core.sglang.server_info import parse_server_args
from tui.core.sglang.start import BEGIN, LOAD, READY, SERVING, Bar, Clock, Start
from tui.core.sglang.state import Clue, StartupState
from tui.core.sglang.trouble import Trouble

TAG_LIMIT = 4_096  # rank tags kept: a hostile log may invent any number
MATCHED = 2_000  # characters of a line that patterns see: keeps a hostile line from costing seconds
_ANSWERED = re.compile(
    r'^INFO: .{0,60}"POST /(?:generate|v1/chat/completions|v1/completions|v1/responses|v1/messages)\S* HTTP/[\d.]+" 200'
)
_NEW_RUN = re.compile(r"/launch_server\.py:\d+: UserWarning: 'python -m sglang\.launch_server'")
_RELEASE = r"(\d+\.\d+\.\d+(?:\.?(?:post|rc)\d+)?)"
_VERSION = re.compile(rf"\bsglang(?:==|: ?v?| version:? v?){_RELEASE}\b|\bsglang-{_RELEASE}(?:\.dist-info|-py3|-cp3)")
_OTHER_LOGGER = re.compile(r"(?:INFO|WARNING|ERROR) (?:\d{4}-)?\d\d-\d\d \d\d:\d\d:\d\d ")  # vLLM, and what runs SGLang
# Lines that mean something without a pattern have one of these.
SEARCH_WORDS = (
    "server_args=",
    "usage: ",
    "launch_server.py:",
    "sglang==",
    "sglang version",
    "% Completed",
    "%|",
    RETRACTED,
)
_STEPS_A_DECODE_LINE = 40  # SGLang's default


def _unstamped(text: str) -> Segment:
    return Segment(None, None, None, text, None, 0)


class RunReader:
    """What the newest run in a log said.

    Args:
        fragment: the log is read from its middle on: the phase is not known before a line tells it.
    """

    def __init__(self, tables: Patterns, *, fragment: bool = False) -> None:
        self._tables = tables
        self._fragment = fragment
        self._restarts = -1
        self._begin(Clock())

    def _begin(self, clock: Clock) -> None:
        self._restarts += 1
        self._clock = clock
        self.start = Start(clock)
        self.trouble = Trouble(self.start, self._tables)
        self.figures = Figures()
        self._args: dict[str, object] | None = None
        self._tags: set[str] = set()
        self._version: str | None = None
        self._stamped = False  # a record has the stamp of a server's logger
        self._boxes = Boxes()

    def _new_run(self) -> None:
        """A second run in the same file: what the first one said is over."""
        self._fragment = False
        self._begin(Clock(self._clock.time, self._clock.stamp))
        self._clock.seconds()

    def passed_over(self, number: int, slow_tokenizer: int, retracted: tuple[int, int]) -> None:
        """Usual lines from this one on are not read: stamped ones, so many warnings of a slow tokenizer, so many
        lines about so many requests that were taken back."""
        self.trouble.stamped()
        if retracted[0]:
            self.figures.retracted_before(number, *retracted)
        if slow_tokenizer:
            self.figures.warned_of_tokenizer(number, slow_tokenizer)

    def see(self, tag: str | None) -> None:
        """A rank tag was seen."""
        if tag and len(self._tags) < TAG_LIMIT:
            self._tags.add(tag)

    @property
    def phase(self) -> Phase | None:
        """The phase in effect; None where it is not known yet."""
        return None if self._fragment and self.start.position == BEGIN else self.start.phase

    @property
    def rank_of_bars(self) -> str | None:
        """Rank 0 alone draws bars."""
        return "TP0" if "TP0" in self._tags else None

    def line(self, raw: bytes, number: int) -> None:
        """Takes a line in of which no record is wanted."""
        for segment in segments(raw):
            if segment.bar is not None:
                self.bar(segment, segment.bar, number, 0)
            else:
                self.text(segment, number)

    def bar(self, segment: Segment, frame: BarFrame, number: int, offset: int) -> Bar:
        """Takes a frame of a progress bar in."""
        self._seen(segment)
        bar = self.start.bar(frame, number, offset)
        self._went_on()
        return bar

    def text(self, segment: Segment, number: int) -> str | None:
        """Takes any other record in; returns its kind, None where nothing here knows it."""
        self._seen(segment)
        body, stamped = segment.body, segment.rank is not None
        if len(body) > MATCHED and not body.startswith("server_args="):
            body = body[:MATCHED]
            segment = segment._replace(body=body)
        if self._boxes.concern(body):
            printed = self._boxes.take(number, body, stamped)
            kinds = [
                self._record(segment if line.text is body else _unstamped(line.text), line.number) for line in printed
            ]
            return next(filter(None, reversed(kinds)), "note")
        return self._record(segment, number)

    def _record(self, segment: Segment, number: int) -> str | None:
        body, stamped = segment.body, segment.rank is not None
        self._stamped = self._stamped or stamped or _OTHER_LOGGER.match(body) is not None
        if self._version is None and "sglang" in body:
            version = _VERSION.search(body)
            self._version = version[1] or version[2] if version is not None else None
        if stamped:
            if self._clock.first_s is None:
                self._clock.seconds()
            self.trouble.stamped()
            batch = BATCH.match(body)
            if batch is not None:
                return self._batch(segment, batch, number)
            if self.start.position < READY and _ANSWERED.search(body) is not None:
                self.start.answered()
                self._went_on()
        if self.trouble.usage(segment):
            return "plain"
        if body.startswith("server_args="):
            if self._args is not None or self.start.position > BEGIN or self.trouble.over:
                self._new_run()
            self._args = parse_server_args(body)
            return "plain"
        if "Using a slow tokenizer" in body:
            self.figures.warned_of_tokenizer(number)
            return "note"
        if RETRACTED in body and stamped and not body.startswith("Testing"):
            self.figures.retract(body, number)
            return "warning"
        for milestone in self._tables.milestones_for.of(body.encode("utf-8", "replace")):
            match = milestone.regex.search(body)
            if match is not None:
                begins = self.start.milestone(milestone, match, segment, number)
                self._went_on(segment.rank)
                return "phase" if begins else None
        if self.trouble.over and _NEW_RUN.search(body):
            self._new_run()
            return None
        return self.trouble.take(segment, number)

    def _seen(self, segment: Segment) -> None:
        self.see(segment.rank)
        if segment.stamp:
            self._clock.time, self._clock.stamp = segment.time, segment.stamp

    def _went_on(self, rank: str | None = None) -> None:
        if self.start.went_on:
            self.start.went_on = False
            self.trouble.forgive(rank)

    def _batch(self, segment: Segment, batch: re.Match[str], number: int) -> str:
        decode = batch.group(1) == "Decode"
        self.figures.iterations = self.figures.iterations or "[" in batch.group()
        self.figures.batch(segment.rank or "", segment.body, number, decode, TAG_LIMIT)
        self.trouble.forgive()
        if self.start.shown == SERVING or not (self.start.fired_up or self._serves(decode)):
            return "plain"
        begun = self.start.position > BEGIN or not self._fragment  # in a fragment of a serving server nothing begins
        self.start.advance(None, SERVING)
        return "phase" if self.start.begins(Phase.SERVING) and begun else "plain"

    def _serves(self, decode: bool) -> bool:
        """Whether batch lines alone prove that the server serves, in a log without the "fired up" line.

        In a log that shows the start, only decoding beyond what the warm-up asks for (8 tokens; a line comes every 40 steps)
        is proof; a log without any milestone was cut from a running server.
        """
        if self.start.shown < LOAD:
            return True
        args = self._args or {}
        if not decode or args.get("warmups"):
            return False
        interval = args.get("decode_log_interval")
        steps = interval if isinstance(interval, int) else _STEPS_A_DECODE_LINE
        return self.figures.decode_lines * steps >= _STEPS_A_DECODE_LINE

    def state(self, lines: int, newest: list[BarFrame], ended: bool) -> StartupState:
        """Everything that the log says.

        Args:
            lines: read so far.
            newest: frames of bars that have no terminator yet.
            ended: the writer is gone.
        """
        if ended:
            for line in self._boxes.end():
                self._record(_unstamped(line.text), line.number)
            self.trouble.close()
        start, figures, clues = self.start, self.figures, self.trouble.clues()
        accept_one, accept_one_line = figures.accept_one()
        first_s = self._clock.first_s or 0.0
        unhandled = ended and any(clue.traceback and not clue.marked for clue in clues)
        of_start = {name: getattr(start, name) for name in ("phase", "fired_up", "follower_up", "capturing", "working")}
        of_lines = ("slow_tokenizer", "slow_tokenizer_line", "decode_lines", "batch_line")
        on_cpu = start.host_memory or (self._args or {}).get("device") == "cpu"
        return StartupState(
            outcome=self._outcome(unhandled),
            progress=start.progress(newest),
            ranks=start.rank_states(),
            spans=start.spans(launched=self._args is not None),
            last_decode=figures.decode(),
            ledger=start.ledger(on_cpu),
            host_memory=on_cpu,
            lines=lines,
            uvicorn_port=start.port,
            server_args=self._args,
            max_total_num_tokens=start.tokens,
            restarts=self._restarts,
            clues=clues,
            ranks_seen=len(self._tags),
            recognised=self._recognised(clues),
            version=self._version,
            accept_one=accept_one,
            accept_one_line=accept_one_line,
            retracted=figures.retracted,
            full_pool=figures.full_pool(),
            first_stamp_s=first_s if first_s > 1e8 else None,  # a stamp with its date
            **of_start,
            **{name: getattr(figures, name) for name in of_lines},
        )

    def _recognised(self, clues: tuple[Clue, ...]) -> bool:
        """Whether any line is one that a server of SGLang, or its death, writes."""
        known = self._stamped or self._tags or self.figures.ranks or self._args is not None or self.trouble.over
        return bool(known) or self.start.position > BEGIN or any(clue.traceback for clue in clues)

    def _outcome(self, unhandled: bool) -> Outcome:
        if self.trouble.stop is not None:
            return Outcome.STOPPED
        if self.trouble.fatal is not None or (unhandled and self.start.shown < READY):
            return Outcome.CRASHED
        if self.start.fired_up or self.start.shown == SERVING:
            return Outcome.READY
        return Outcome.STARTING
