"""Start-up tracking: from the bytes of a server's log to phase, progress, ranks and readiness.

The order of phases differs by version (0.5.14 loads the draft before the pools, earlier versions after the graphs), so
nothing here is a linear machine: every rank has a position in its own order, and the phase shown is the last one begun
by the rank that is furthest on. Formats: docs/diagnosis.md.
"""

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from tui.core.logs.records import LineSplitter, LogRecord, Piece
from tui.core.sglang.batch_lines import BATCH, SPEED, decimal, pairs, whole
from tui.core.sglang.lineshape import Bar, Segment, segments, stamp_seconds
from tui.core.sglang.patterns import Failure, Milestone, Patterns, patterns
from tui.core.sglang.phases import Outcome, Phase
from tui.core.sglang.server_args import parse_server_args

__all__ = [
    "Clue",
    "DecodeFigures",
    "LedgerRow",
    "LogTracker",
    "Outcome",
    "Phase",
    "PhaseSpan",
    "Progress",
    "RankState",
    "StartupState",
]


@dataclass(frozen=True)
class Progress:
    what: str  # shards, capture
    done: int
    total: int


@dataclass(frozen=True)
class DecodeFigures:
    """The last `Decode batch` line of any rank, and the sums over DP ranks."""

    running: int | None = None
    queued: int | None = None
    gen_tok_s: float | None = None
    accept_len: float | None = None
    token_usage: float | None = None
    cuda_graph: bool | None = None
    total_running: int | None = None  # sums of the last lines of all DP ranks
    total_gen_tok_s: float | None = None


@dataclass(frozen=True)
class RankState:
    """How far one scheduler process is."""

    tag: str  # "TP3", "DP1 TP0"; "" for a server without tags
    phase: Phase
    since: str | None  # time stamp of the log line that began it
    weights_gib: float | None = None
    available_gib: float | None = None


@dataclass(frozen=True)
class PhaseSpan:
    """One phase of the furthest rank: when it began and ended, in the log's own clock (seconds from the first stamp)."""

    phase: Phase
    began_s: float | None
    ended_s: float | None


@dataclass(frozen=True)
class LedgerRow:
    """Memory of one rank in GiB, from its own log lines; None = not in the log."""

    rank: str
    before_gib: float | None = None  # free before the load
    weights_gib: float | None = None
    draft_gib: float | None = None
    kv_pool_gib: float | None = None
    graphs_gib: float | None = None
    free_gib: float | None = None
    kv_tokens: int | None = None


@dataclass(frozen=True)
class Clue:
    """A line that a failure pattern matched, with what was known at that line."""

    id: str  # of the pattern; "exception" for an exception that none matches
    cause: str | None
    level: str  # see tui/data/failures.toml
    line: int
    text: str
    rank: str | None
    phase: Phase
    marked: bool  # in the traceback that a fatal marker opened
    traceback: bool  # in a traceback at all
    fatal: bool
    groups: Mapping[str, str] = field(default_factory=dict)
    frames: tuple[str, ...] = ()  # names of the functions and files of the traceback so far


@dataclass(frozen=True)
class StartupState:
    """Everything the log alone says, at one moment."""

    phase: Phase = Phase.LAUNCH
    outcome: Outcome = Outcome.STARTING
    progress: Progress | None = None
    ranks: tuple[RankState, ...] = ()
    spans: tuple[PhaseSpan, ...] = ()  # in this log's own order, begun phases only
    last_decode: DecodeFigures | None = None
    ledger: tuple[LedgerRow, ...] = ()
    lines: int = 0
    fired_up: bool = False
    uvicorn_port: int | None = None
    sglang_version: str | None = None
    server_args: dict[str, object] | None = None
    max_total_num_tokens: int | None = None
    unrecognized: str | None = None  # newest line that looked like a milestone of an unknown wording
    restarts: int = 0  # a second run in the same file resets all of the above
    clues: tuple[Clue, ...] = ()
    ranks_seen: int = 0  # distinct rank tags of any line
    slow_tokenizer: int = 0  # warnings about a slow tokenizer
    slow_tokenizer_line: int | None = None  # of the first
    accept_one: int = 0  # newest decode lines in a row with an accept length of exactly 1.00
    accept_one_line: int | None = None  # the newest of them
    retractions: int = 0
    decode_lines: int = 0
    batch_line: int | None = None  # the newest prefill or decode line
    capturing: str | None = None  # "target verify CUDA graph": what the newest capture is about
    working: str | None = None  # newest line that names slow work (autotune, JIT) in this phase
    first_stamp_s: float | None = None  # the log's first dated stamp read as UTC, seconds since the epoch


# ---- shapes of lines ----------------------------------------------------------------------------------------------

_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:[.,](\d{3}))?|(\d\d):(\d\d):(\d\d)")
_EXCEPTION = re.compile(
    r"^(?:[A-Za-z_][\w]*\.)*[A-Za-z_]\w*(?:Error|Exception|Timeout|Interrupt|OutOfResources)(?:: |:?$)"
)
_ANSWERED = re.compile(
    r'^INFO: .{0,60}"POST /(?:generate|v1/chat/completions|v1/completions|v1/responses|v1/messages)\S* HTTP/[\d.]+" 200'
)
# An unterminated value is masked too: the line may be cut, or not be read to its end yet.
_SECRETS = re.compile(
    r"((?:\w*api_key|hf_token|\w*password)['\"]?\s{0,4}[:=]\s{0,4})(?:'[^']*(?:'|$)|\"[^\"]*(?:\"|$))"
    r"|(--[\w-]{0,40}(?:api-key|password)(?:['\"],? {0,4}['\"]|[ =]['\"]?))[^\s'\",]+"
    r"|\b(hf_)[A-Za-z0-9]{16,}"
)
_NEW_RUN = re.compile(r"/launch_server\.py:\d+: UserWarning: 'python -m sglang\.launch_server'")

# Cheap tests that come before the tables' regular expressions; tests/core/test_startup_patterns.py holds them to the tables.
_MILESTONE_HEADS = frozenset(
    (
        "init",
        "load",
        "memo",
        "capt",
        "max_",
        "sgla",
        "cust",
        "setu",
        "prep",
        "post",
        "runn",
        "flas",
        "ente",
        "try ",
        "comp",
        "tree",
        "engi",
        "regi",
        "pre-",
        "nccl",
        "rccl",
        "warm",
        "star",
        "info",
        "the ",
        "use ",
        "mamb",
        "swak",
        "[glo",
        "wait",
        "appl",
        "uvic",
        "kv c",
        "full",
        "swa ",
    )
)
# Every failure pattern needs one of these; `in` on a short text is several times faster than an alternation.
_STAMPED_STEMS = (
    *("rror", "rrno", "xception", "ail", "illed", "igquit", "SIG", "racefully", "hutting", "Finished", "ime"),
    *("xit", "dead", "died", "emory", "etract", "NCCL", "Traceback", "nterrupt", "finish", "init", "llocat", "use"),
    *("Warning", "available", "equest", "upport"),
)
_BARE_STEMS = (
    *_STAMPED_STEMS,
    *("Abort", "Segm", "ermina", "ended", "CrashLoop", "undefined", "common_ops", "annot", "inja", "nvcc", "ptxas"),
    *("resource", "kernel", "huggingface", "Repo", "mmap", "Bus", "losed", "Broken", "reset", "onnect", "onfig"),
    *("weights", "CUDA", "river", "proxy", "Response", "okenizer", "ile", "must", "peer", "usage"),
)
# Names of functions and files in a traceback that prove how far a rank had come, the most advanced last.
_FRAME_PHASES = (
    (
        re.compile(r"init_torch_distributed|init_distributed|initialize_model_parallel|init_parallel_runtime"),
        Phase.DISTRIBUTED_INIT,
    ),
    (re.compile(r"\bload_model\b|\bget_model\b|\bload_weights\b|model_loader"), Phase.LOAD_WEIGHTS),
    (re.compile(r"init_memory_pool|alloc_memory_pool|kv_cache_configurator|profile_max_num_token"), Phase.MEMORY_POOL),
    (
        re.compile(r"cuda_graph_runner|init_cuda_graphs|init_device_graphs|capture_one_batch_size|cuda_graph_backend"),
        Phase.CUDA_GRAPH,
    ),
    (re.compile(r"_wait_and_warmup|_execute_server_warmup"), Phase.WARMUP),
    (re.compile(r"\bevent_loop_|forward_thread_func|run_event_loop"), Phase.SERVING),
)

_DIST, _LOAD, _DRAFT, _POOL, _GRAPH = 10, 100, 120, 200, 300
_LAYER = 1_000  # one more runner, in the order before 0.5.14
_WARMUP, _READY, _SERVING = 1_000_000, 2_000_000, 3_000_000
_MATCHED = 2_000  # characters of a line that patterns see: keeps a hostile line from costing seconds
_CLUE_LIMIT = 400
_HARMLESS_LIMIT = 512
_TIME_OF_DAY = re.compile(r"\d\d:\d\d:\d\d(?:[.,]\d+)?")
_TAG_LIMIT = 4_096  # rank tags kept: a hostile log may invent any number
_DRAFT_TYPE = re.compile(r"Eagle|NextN|MTP|Medusa|Draft")


@dataclass
class _Rank:
    tag: str
    phase: Phase = Phase.LAUNCH
    position: int = 0
    since: str | None = None
    loads: int = 0  # runners whose load began
    loading: bool = False
    layer: int = 0  # position offset of the runner, in the order before 0.5.14
    before: float | None = None
    weights: float | None = None
    draft: float | None = None
    kv: float | None = None
    graphs: float | None = None
    free: float | None = None
    tokens: int | None = None
    types: list[str] = field(default_factory=list)


@dataclass
class _Bar:
    what: str  # shards, capture, "" for any other
    done: int
    total: int
    position: int  # of the tracker at the newest frame
    key: int
    number: int
    frames: int = 0


@dataclass
class _Unread:
    """Runs of plain serving lines whose decode lines are not looked at yet; only the last of them matter."""

    text: bytes
    begin: int
    stop: int = 0
    number: int = 0  # of the line at `stop`


@dataclass
class _Episode:
    """A traceback being read."""

    rank: str | None
    marked: bool
    line: int
    frames: list[str] = field(default_factory=list)
    exception: Clue | None = None


class LogTracker:
    """Follows one log. The result depends on the bytes alone, never on how they were cut into chunks.

    Args:
        records: make a LogRecord of every line (for a view). Without, `feed` returns nothing and steady decode lines cost
            next to nothing.
        offset, number: byte and line where the first bytes fed stand in the file. Other than at the beginning, the phase
            is not known before a line tells it.
    """

    def __init__(self, records: bool = True, *, offset: int = 0, number: int = 1) -> None:
        self._want = records
        self._place = (offset, number)
        self._tables: Patterns = patterns()
        self._harmless: set[tuple[Phase, str]] = set()  # lines that no failure pattern matches
        self.reset()

    def reset(self) -> None:
        """Another file, or the same one replaced: everything starts again."""
        self._splitter = LineSplitter(*self._place)
        self._fragment = self._place[0] > 0
        self._place = (0, 1)
        self._restarts = 0
        self._begin()

    def _begin(self) -> None:
        """A run begins: forgets the one before it in this file."""
        self._phase = Phase.LAUNCH
        self._position = 0
        self._ranks: dict[str, _Rank] = {}
        self._tags: set[str] = set()
        self._marks: list[tuple[Phase, float | None]] = []
        self._marked: tuple[int, Phase] | None = None  # the phase whose first record is marked
        self._first_stamp: float | None = None
        self._day = 0.0
        self._stamp_text: str | None = None
        self._newest_stamp: str | None = None
        self._bar: _Bar | None = None
        self._bars: dict[tuple[str, int], _Bar] = {}
        self._capturing: str | None = None
        self._decode: dict[str, str | bytes] = {}  # rank -> its newest decode line
        self._recent: deque[tuple[int, str, str | bytes]] = deque(maxlen=8)  # the newest of all: line, rank, text
        self._decode_lines = 0
        self._batch_line: int | None = None
        self._unread: _Unread | None = None
        self._iterations = False  # batch lines have a number: SGLANG_LOG_FORWARD_ITERS=1
        self._run_pattern: tuple[tuple[int, bool], re.Pattern[bytes] | None] | None = None  # (what it is for, pattern)
        self._fast_ranks: dict[bytes, str] = {}  # what stands between stamp and bracket -> tag
        self._retractions = 0
        self._fired_up = False
        self._answered = 0  # generation requests answered before "fired up"; the warm-up makes one
        self._port: int | None = None
        self._version: str | None = None
        self._args: dict[str, object] | None = None
        self._tokens: int | None = None
        self._unrecognized: str | None = None
        self._working: str | None = None
        self._slow_tokenizer = 0
        self._slow_tokenizer_line: int | None = None
        self._clues: list[Clue] = []
        self._seen_clues: dict[str, int] = {}
        self._episode: _Episode | None = None
        self._benign_trace = False
        self._in_usage = False
        self._soft = 0  # clues of tracebacks that no fatal marker opened
        self._fatal: int | None = None
        self._stop: int | None = None
        self._ended = False
        self._lines = 0
        self._cache: StartupState | None = None

    # ---- input ------------------------------------------------------------------------------------------------------

    def feed(self, data: bytes) -> tuple[LogRecord, ...]:
        """Takes the next bytes; returns the records they completed or replaced, and the unterminated tail as a provisional one."""
        if not data:
            return ()
        self._cache = None
        self._ended = False
        if not self._want:
            self._skim(data)
            return ()
        out: list[LogRecord] = []
        for piece in self._splitter.feed(data):
            self._piece(piece, out)
        out.extend(self._provisional())
        return tuple(out)

    @property
    def line_offset(self) -> int:
        """Byte of the file where the line being read begins."""
        return self._splitter.line_offset

    @property
    def line_number(self) -> int:
        """Number of the line being read."""
        return self._splitter.number

    @property
    def within_line(self) -> bool:
        """Whether records of the line being read, other than a provisional one, were given out already."""
        return self._splitter.begun

    def go_on_at(self, offset: int, number: int) -> None:
        """Lines between here and a line further on are not read; what is known stays."""
        self._read_run()
        self._splitter = LineSplitter(offset, number)
        self._lines = max(self._lines, number - 1)
        self._cache = None

    def skip(self, count: int) -> tuple[LogRecord, ...]:
        """Passes over bytes in the middle of an overlong line; returns it as it is so far, as a provisional record."""
        self._splitter.skip(count)
        return tuple(self._provisional())

    def flush(self) -> tuple[LogRecord, ...]:
        """The writer is gone: the unterminated tail is a line, and an open traceback is final."""
        self._cache = None
        out: list[LogRecord] = []
        for piece in self._splitter.flush():
            self._piece(piece, out)
        self._ended = True
        return tuple(out)

    def _skim(self, data: bytes) -> None:
        """`feed` without records: lines with carriage returns go the careful way, everything between them the fast one."""
        at, end = 0, len(data)
        while at < end:
            mark = data.find(b"\r", at)
            stop = end if mark < 0 else max(at, data.rfind(b"\n", at, mark) + 1)
            if self._splitter.begun:
                stop = (data.find(b"\n", at) + 1) or end
            elif stop > at:
                if self._skim_plain(data if stop - at == end else data[at:stop]):
                    at = stop
                    continue
            else:
                stop = _after_returns(data, mark)
            for piece in self._splitter.feed(data[at:stop]):
                self._piece(piece, [])
            at = stop

    def _skim_plain(self, data: bytes) -> bool:
        """Takes lines without carriage returns; False (and nothing taken) where one is too long for the fast way."""
        text = self._splitter.plain(data)
        if text is None:
            return False
        number = self._splitter.number
        at, end, careful = 0, len(text), 0
        heads, ranks, runs = _FAST_HEADS, self._fast_ranks, self._runs()
        calm, serving = self._calm(), self._position == _SERVING
        while at < end:
            if runs is not None and serving and calm and at >= careful:
                match = runs.match(text, at)
                if match is not None:
                    taken = self._take_run(text, at, match.end(), number)
                    if taken:
                        number += taken
                        at = match.end()
                        continue
                    careful = match.end()  # looked at once: line by line up to there
            stop = text.find(b"\n", at)
            raw = text[at:stop]
            at = stop + 1
            # Most other lines mean nothing either and are told by a few bytes at known places. One bracket alone: nothing
            # is glued to the record.
            bracket = raw.rfind(b"]")
            if calm and 20 <= bracket < 80 and raw[0] == 0x5B and raw[11] == 0x20:
                head = heads.get(raw[bracket + 1 : bracket + 11], 0)
                if head or serving:
                    tags = raw[_MS_END if raw[20] == 0x2E else 20 : bracket]
                    if (tags in ranks or self._fast_rank(tags)) and self._means_nothing(head, raw, bracket):
                        number += 1
                        runs = self._runs()
                        continue
            if raw:
                if self._unread is not None and (b"batch" in raw or b"slow tokenizer" in raw):
                    self._read_run()
                self._lines = number
                self._line(raw, number, 0, 0, None)
                calm, serving = self._calm(), self._position == _SERVING
                ranks, runs = self._fast_ranks, self._runs()
            number += 1
        self._read_run()
        self._splitter.number = number
        self._lines = max(self._lines, number - 1)
        return True

    def _means_nothing(self, head: int, raw: bytes, bracket: int) -> bool:
        """Whether a line that begins as those of a serving server do can be left unread."""
        if head == 3:
            return self._position >= _READY and raw[bracket + 12 : bracket + 13].isdigit() and b"HTTP/1" in raw
        return not (head or self._tables.user_milestones or self._tables.user_failures) and _inert(raw[bracket + 2 :])

    def _runs(self) -> re.Pattern[bytes] | None:
        """Matches lines of the usual shapes of a serving server in a row, of the ranks known so far."""
        key = (len(self._fast_ranks), self._iterations)
        if self._run_pattern is None or self._run_pattern[0] != key:
            tags = tuple(sorted(self._fast_ranks))
            own = not (self._tables.user_milestones or self._tables.user_failures)
            made = _run_pattern(tags, own, self._iterations) if 0 < len(tags) <= 64 else None
            self._run_pattern = (key, made)
        return self._run_pattern[1]

    def _take_run(self, text: bytes, begin: int, stop: int, number: int) -> int:
        """Takes such a run in; how many lines it has, 0 (and nothing taken) where a line may hold more than one record."""
        lines = text.count(b"\n", begin, stop)
        stamps = text.count(b"[", begin, stop)
        if self._iterations:
            stamps -= text.count(b" batch [", begin, stop)
        if stamps != lines:
            slow = text.count(_SLOW_TOKENIZER, begin, stop)
            blank = (text[begin] == 0x0A) + text.count(b"\n\n", begin, stop)
            source = text.count(_WARN_SOURCE, begin, stop)
            if stamps + slow + blank + source != lines:
                return 0
            if slow and self._slow_tokenizer_line is None:
                first = text.find(_SLOW_TOKENIZER, begin, stop)
                self._slow_tokenizer_line = number + text.count(b"\n", begin, first)
            self._slow_tokenizer += slow
        unread = self._unread
        if unread is None:
            unread = self._unread = _Unread(text, begin)
        unread.stop, unread.number = stop, number + lines
        return lines

    def _read_run(self) -> None:
        """Takes the decode lines of the runs since the last time: how many, the last few, and each DP rank's last."""
        unread, self._unread = self._unread, None
        if unread is None:
            return
        text, begin, end, number = unread.text, unread.begin, unread.stop, unread.number
        mark = text.rfind(b" batch", begin, end)
        if mark < 0:
            return
        self._batch_line = number - text.count(b"\n", mark, end)
        count = text.count(b"] Decode batch", begin, end)
        self._decode_lines += count
        found: list[tuple[str, bytes, int]] = []
        for _ in range(min(count, 8)):
            mark = text.rfind(b"] Decode batch", begin, end)
            start = max(begin, text.rfind(b"\n", begin, mark) + 1)
            number -= text.count(b"\n", mark, end)
            rank, raw = self._fast_ranks[_tags_of(text, start, mark)], text[start : text.find(b"\n", mark)]
            found.append((rank, raw, number))
            end = start
        if count > 8:
            near = {rank for rank, _, _ in found}
            for tags, rank in self._fast_ranks.items():
                if b"DP" not in tags or rank in near:
                    continue  # figures of other ranks than these are not added up
                mark = text.rfind(tags + b"] Decode batch", begin, end)
                while mark >= 0:
                    start = max(begin, text.rfind(b"\n", begin, mark) + 1)
                    if _tags_of(text, start, mark + len(tags)) == tags:
                        self._decode[rank] = text[start : text.find(b"\n", mark)]
                        break
                    mark = text.rfind(tags + b"] Decode batch", begin, mark)
        for rank, raw, at in reversed(found):
            self._decode[rank] = raw
            self._recent.append((at, rank, raw))

    def _calm(self) -> bool:
        """Nothing under way that a harmless line would end or change."""
        return not (
            self._soft or self._episode is not None or self._benign_trace or self._in_usage or self._fatal is not None
        )

    def _fast_rank(self, tags: bytes) -> bool:
        """Takes up what stands between stamp and bracket; False if that is no list of tags, or one too many."""
        match = _FAST_TAGS.fullmatch(tags)
        if match is None or len(self._fast_ranks) >= _TAG_LIMIT:
            return False
        rank = match.group(1).decode().strip()
        self._see(rank)
        self._fast_ranks[tags] = rank
        return True

    def _see(self, tag: str | None) -> None:
        if tag and len(self._tags) < _TAG_LIMIT:
            self._tags.add(tag)

    def _piece(self, piece: Piece, out: list[LogRecord]) -> None:
        self._lines = max(self._lines, piece.number)
        if piece.raw:
            self._line(piece.raw, piece.number, piece.offset, piece.cut, out)
        elif self._want:
            out.append(LogRecord(piece.number, piece.offset, None, None, "", "plain", self._known, piece.cut))

    def _provisional(self) -> list[LogRecord]:
        tail = self._splitter.tail
        if not tail:
            return []
        number, offset, cut = self._splitter.number, self._splitter.offset, self._splitter.tail_cut
        out = []
        for part, segment in enumerate(segments(tail)):
            body = _masked(segment.body)
            if segment.bar is not None:
                bar = self._bars.get((self._bar_kind(segment.bar), segment.bar.total))
                if bar is not None and segment.bar.done >= bar.done:
                    out.append(self._bar_record(bar, body, cut, bar.frames + 1))
                    continue
            rank = segment.rank or ("main" if segment.rank is not None else None)
            kind = "bar" if segment.bar is not None else self._level(segment.body[:_MATCHED])
            at = offset + segment.at if part else offset
            stamp_s = stamp_seconds(segment.stamp)
            out.append(
                LogRecord(
                    *(number, at, segment.time, rank, body, kind, self._known, cut), provisional=True, stamp_s=stamp_s
                )
            )
        return out

    def _bar_record(self, bar: _Bar, body: str, cut: int, frames: int) -> LogRecord:
        rank = "TP0" if "TP0" in self._tags else None
        return LogRecord(bar.number, bar.key, None, rank, body, "bar", self._known, cut, bar.key, frames)

    @property
    def _known(self) -> Phase | None:
        return None if self._fragment and self._position == 0 else self._phase

    # ---- one line -----------------------------------------------------------------------------------------------------

    def _line(self, raw: bytes, number: int, offset: int, cut: int, out: list[LogRecord] | None) -> None:
        for part, segment in enumerate(segments(raw)):
            begin = offset + segment.at if part else offset  # what wraps a line belongs to its first record
            self._see(segment.rank)
            if segment.stamp:
                self._newest_stamp, self._stamp_text = segment.time, segment.stamp
            if segment.bar is not None:
                bar = self._on_bar(segment.bar, number, begin)
                if out is not None and self._want:
                    out.append(self._bar_record(bar, _masked(segment.body), cut, bar.frames))
                continue
            kind = self._on_text(segment, number)
            if out is not None and self._want:
                rank = segment.rank or ("main" if segment.rank is not None else None)
                body = _masked(segment.body)
                stamp_s = stamp_seconds(segment.stamp)
                out.append(LogRecord(number, begin, segment.time, rank, body, kind, self._known, cut, stamp_s=stamp_s))

    def _seconds(self) -> float | None:
        """The newest stamp in the log's own clock, seconds from the first one that was asked for."""
        match = _DATE.search(self._stamp_text) if self._stamp_text else None
        if match is None:
            return None
        if match.group(1):
            from datetime import UTC, datetime

            try:
                year, month, day, hour, minute, second = (int(part) for part in match.group(1, 2, 3, 4, 5, 6))
                value = datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp()
            except ValueError:
                return None
            if match.group(7):
                value += int(match.group(7)) / 1000
        else:
            hour, minute, second = (int(part) for part in match.group(8, 9, 10))
            value = hour * 3600.0 + minute * 60 + second + self._day
            if self._first_stamp is not None and value < self._first_stamp - 43_200:
                self._day += 86_400  # a clock without date passed midnight
                value += 86_400
        if self._first_stamp is None:
            self._first_stamp = value
        return value - self._first_stamp

    def _on_text(self, segment: Segment, number: int) -> str:
        """Takes one record in; returns its kind."""
        body = segment.body
        stamped = segment.rank is not None
        if len(body) > _MATCHED and not body.startswith("server_args="):
            body = body[:_MATCHED]
            segment = segment._replace(body=body)
        if stamped:
            if self._first_stamp is None:
                self._seconds()
            self._episode = self._episode if self._episode and not self._close_episode() else None
            self._benign_trace = False
            self._in_usage = False
            batch = BATCH.match(body)
            if batch is not None:
                return self._on_batch(segment, batch, number)
            if self._position < _READY and _ANSWERED.search(body) is not None:
                self._answered += 1
                if self._answered >= (3 if self._position else 1) and self._position in (0, _WARMUP):
                    self._advance(None, Phase.SERVING, _SERVING)
        if self._in_usage and not stamped and ": error: " not in body:
            return "plain"
        if body.startswith("usage: "):
            self._in_usage = True
            return "plain"
        if body.startswith("server_args="):
            self._on_server_args(body)
            return "plain"
        if "Using a slow tokenizer" in body:
            self._slow_tokenizer += 1
            self._slow_tokenizer_line = self._slow_tokenizer_line or number
            return "note"
        kind = self._on_milestone(segment, number)
        if kind is not None:
            return kind
        if self._benign_trace and not stamped:
            return "note"
        if self._episode is None and not self._tables.user_failures and not _suspect(body, stamped):
            return self._level(body)
        if self._tables.benign.search(body):
            if "etract" in body or "Decode out of memory" in body:
                self._retractions += 1
            self._benign_trace = "error" in body or body.endswith("(most recent call last):")
            if _NEW_RUN.search(body) and (self._fatal is not None or self._stop is not None):
                self._new_run()
            return self._level(body)
        return self._on_trouble(segment, number) or self._level(body)

    def _level(self, body: str) -> str:
        if not self._want:
            return ""
        if self._tables.notes.search(body):
            return "note"
        if self._tables.warnings.search(body):
            return "warning"
        return "plain"

    # ---- progress -------------------------------------------------------------------------------------------------------

    def _rank(self, tag: str | None) -> _Rank:
        tag = tag or ""
        rank = self._ranks.get(tag)
        if rank is None:
            rank = self._ranks[tag] = _Rank(tag)
        return rank

    def _advance(self, rank: _Rank | None, phase: Phase, position: int) -> bool:
        """Moves a rank, and the log with it where it is the furthest; True if the rank began a phase."""
        if self._fatal is not None:
            return False  # what other processes still say does not undo a death
        began = False
        if rank is not None and position > rank.position:
            began = rank.phase != phase or position // _LAYER != rank.position // _LAYER
            rank.position, rank.phase, rank.since = position, phase, self._newest_stamp
        if position > self._position:
            self._position = position
            if phase != self._phase or not self._marks:
                self._phase = phase
                self._marks.append((phase, self._seconds()))
                self._working = None
        if self._soft:
            self._forgive()
        return began

    def _forgive(self) -> None:
        """The server goes on: tracebacks that no fatal marker opened did not kill it."""
        self._clues = [clue for clue in self._clues if clue.marked or not clue.traceback or clue.fatal]
        self._soft = 0

    def _on_milestone(self, segment: Segment, number: int) -> str | None:
        body = segment.body
        tables = self._tables
        if body[:4].lower() in _MILESTONE_HEADS or "KV Cache" in body or "NCCL INFO" in body or "fired up" in body:
            candidates = tables.milestones
        elif tables.user_milestones:
            candidates = tables.user_milestones
        else:
            self._note_unrecognized(segment)
            return None
        for milestone in candidates:
            match = milestone.regex.search(body)
            if match is not None:
                return self._on_event(milestone, match, segment, number)
        self._note_unrecognized(segment)
        return None

    def _note_unrecognized(self, segment: Segment) -> None:
        if segment.rank is not None and self._position < _WARMUP:
            body = segment.body
            if "avail mem" in body or body.endswith((" begin.", " end.", " begin", " end")):
                self._unrecognized = body[:300]

    def _on_event(self, milestone: Milestone, match: re.Match[str], segment: Segment, number: int) -> str | None:
        groups = {name: value for name, value in match.groupdict().items() if value is not None}
        rank = self._rank(segment.rank)
        avail = decimal(groups.get("avail"))
        if avail is not None:
            rank.free = avail
        began = False
        match milestone.event:
            case "dist_begin":
                if rank.position >= _POOL:  # up to 0.5.13 a draft runner initialises again
                    began = self._advance(rank, Phase.DRAFT_MODEL, _LAYER * max(1, rank.loads) + 50)
                else:
                    began = self._advance(rank, Phase.DISTRIBUTED_INIT, _DIST)
            case "dist_mark":
                began = self._advance(None if segment.rank is None else rank, Phase.DISTRIBUTED_INIT, _DIST)
                return "phase" if began else self._level(segment.body)
            case "load_begin":
                began = self._on_load_begin(rank, avail)
            case "load_end":
                self._on_load_end(rank, groups, avail)
            case "pool" | "pool_mark":
                began = self._on_pool(rank, groups)
            case "pool_end":
                began = self._advance(rank, Phase.MEMORY_POOL, rank.layer + _POOL)
            case "capture_begin" | "capture_list":
                what = groups.get("what")
                if what is not None and what.lower() != self._capturing:
                    self._capturing = what.lower()
                    self._bar = None
                    self._bars.clear()
                began = self._advance(rank, Phase.CUDA_GRAPH, rank.layer + _GRAPH)
            case "capture_end":
                began = self._advance(rank, Phase.CUDA_GRAPH, rank.layer + _GRAPH)
                used = decimal(groups.get("used"))
                if used is not None:
                    rank.graphs = (rank.graphs or 0.0) + used
            case "sched_ready":
                self._tokens = whole(groups.get("tokens")) or self._tokens
            case "http" | "http_up":
                port = groups.get("port") or groups.get("port2")
                if port is not None and self._port is None:
                    self._port = whole(port)
                began = self._advance(None, Phase.WARMUP, _WARMUP) or self._begins(Phase.WARMUP)
            case "fired_up":
                self._fired_up = True
                self._advance(None, Phase.READY, _READY)
                began = self._begins(Phase.READY)
            case "working":
                self._working = segment.body[:300]
            case "dist_end":
                self._advance(rank, Phase.DISTRIBUTED_INIT, _DIST)
        if began:
            return "phase"
        return self._level(segment.body)

    def _begins(self, phase: Phase) -> bool:
        """Whether the log's newest phase is `phase` and no record was marked with it yet."""
        if self._phase != phase or self._marked == (len(self._marks), phase):
            return False
        self._marked = (len(self._marks), phase)
        return True

    def _on_load_begin(self, rank: _Rank, avail: float | None) -> bool:
        runner = rank.loads
        rank.loads += 1
        rank.loading = True
        self._bars.clear()
        if runner == 0:
            rank.before = avail
            return self._advance(rank, Phase.LOAD_WEIGHTS, _LOAD)
        if rank.position >= _POOL:
            rank.layer = _LAYER * runner
            return self._advance(rank, Phase.DRAFT_MODEL, rank.layer + _LOAD)
        return self._advance(rank, Phase.DRAFT_MODEL, _DRAFT + runner)

    def _on_load_end(self, rank: _Rank, groups: Mapping[str, str], avail: float | None) -> None:
        kind, used = groups.get("type"), decimal(groups.get("used"))
        if not rank.loading:  # the log does not begin at the beginning
            if kind is not None and rank.loads == 0 and _DRAFT_TYPE.search(kind):
                rank.loads = 1
            self._on_load_begin(rank, None)
        rank.loading = False
        if kind is not None:
            rank.types.append(kind)
        if rank.loads <= 1:
            rank.weights = used
            if used is None and rank.before is not None and avail is not None:
                rank.weights = round(rank.before - avail, 2)
            if rank.before is None and used is not None and avail is not None:
                rank.before = round(avail + used, 2)
        elif used is not None:
            rank.draft = (rank.draft or 0.0) + used

    def _on_pool(self, rank: _Rank, groups: Mapping[str, str]) -> bool:
        size = decimal(groups.get("kv"))
        if size is None and "k" in groups and "v" in groups:
            size = (decimal(groups["k"]) or 0.0) + (decimal(groups["v"]) or 0.0)
        if size is not None:
            rank.kv = round((rank.kv or 0.0) + size, 2)
        if "tokens" in groups and rank.tokens is None:
            rank.tokens = whole(groups["tokens"])
        return self._advance(rank, Phase.MEMORY_POOL, rank.layer + _POOL)

    def _bar_kind(self, frame: Bar) -> str:
        """shards, capture, or "" for a bar that measures nothing of the start."""
        desc = frame.desc.lower()
        if "captur" in desc:
            return "capture"
        if "loading" in desc and ("shard" in desc or "tensor" in desc):
            return "shards"
        # Only the first frame of a capture has no description; so do the bars of clients.
        return "capture" if not desc and self._phase == Phase.CUDA_GRAPH and self._capturing is not None else ""

    def _on_bar(self, frame: Bar, number: int, offset: int) -> _Bar:
        what, done, total = self._bar_kind(frame), frame.done, frame.total
        rank = self._rank("TP0" if "TP0" in self._ranks else "")
        if what == "capture" and self._phase != Phase.CUDA_GRAPH and self._position < _WARMUP:
            self._advance(rank, Phase.CUDA_GRAPH, max(self._position, rank.layer + _GRAPH))
        elif what == "shards" and self._position < _LOAD:
            self._advance(rank, Phase.LOAD_WEIGHTS, _LOAD)
        bar = self._bars.get((what, total))
        if bar is None or done < bar.done:
            bar = self._bars[what, total] = _Bar(what, done, total, self._position, offset, number)
            if len(self._bars) > 16:
                self._bars.pop(next(iter(self._bars)))
        bar.done, bar.position = done, self._position
        bar.frames += 1
        if self._measures(what):
            self._bar = bar
        return bar

    def _measures(self, what: str) -> bool:
        """Whether a bar of this kind is the progress of the phase in force."""
        if what == "shards":
            return self._phase in (Phase.LOAD_WEIGHTS, Phase.DRAFT_MODEL)
        return what == "capture" and self._phase == Phase.CUDA_GRAPH

    def _on_batch(self, segment: Segment, batch: re.Match[str], number: int) -> str:
        decode = batch.group(1) == "Decode"
        self._iterations = self._iterations or "[" in batch.group()
        if decode:
            rank = segment.rank or ""
            if rank in self._decode or len(self._decode) < _TAG_LIMIT:
                self._decode[rank] = segment.body
            self._recent.append((number, rank, segment.body))
            self._decode_lines += 1
        self._batch_line = number
        if self._soft and self._fatal is None:
            self._forgive()
        if self._position == _SERVING:
            return "plain"
        if self._fired_up or self._serves(decode):
            begun = self._position > 0 or not self._fragment  # a fragment of a serving server's log begins nothing
            self._advance(None, Phase.SERVING, _SERVING)
            return "phase" if self._begins(Phase.SERVING) and begun else "plain"
        return "plain"

    def _serves(self, decode: bool) -> bool:
        """Whether batch lines alone prove that the server serves, in a log without the "fired up" line.

        In a log that shows the start, only decoding beyond what the warm-up asks for (8 tokens; a line comes every 40 steps)
        is proof; a log without any milestone was cut from a running server.
        """
        if self._position < _LOAD:
            return True
        if not decode or (self._args is not None and self._args.get("warmups")):
            return False
        interval = (self._args or {}).get("decode_log_interval")
        return self._decode_lines * (interval if isinstance(interval, int) else 40) >= 40

    def _on_server_args(self, body: str) -> None:
        if self._args is not None or self._position or self._fatal is not None or self._stop is not None:
            self._new_run()
        self._args = parse_server_args(body)

    def _new_run(self) -> None:
        lines, stamp, text = self._lines, self._newest_stamp, self._stamp_text
        self._restarts += 1
        self._fragment = False
        self._begin()
        self._lines, self._newest_stamp, self._stamp_text = lines, stamp, text
        self._seconds()

    # ---- trouble --------------------------------------------------------------------------------------------------------

    def _close_episode(self) -> bool:
        episode, self._episode = self._episode, None
        if episode is not None and episode.exception is not None:
            self._add_clue(episode.exception)
        return True

    def _on_trouble(self, segment: Segment, number: int) -> str | None:
        body, stamped = segment.body, segment.rank is not None
        traceback = "Traceback (most recent call last):" in body
        episode = self._episode
        if not stamped and episode is None:
            bare = body.startswith('  File "') or (
                self._phase not in (Phase.READY, Phase.SERVING) and _EXCEPTION.match(body)
            )
            if traceback or bare:
                episode = self._episode = _Episode("", False, number)
        if episode is not None and not stamped and body.startswith(" "):
            if ", in " in body and len(episode.frames) < 200:
                episode.frames.append(body.strip()[-200:])
            return "note"
        failure, match = self._match(body, segment, episode)
        if failure is not None and match is not None:
            return self._on_failure(failure, match, segment, number, episode, traceback)
        if stamped and traceback:  # a logged traceback of unknown kind: not fatal by itself
            self._episode = _Episode(segment.rank, False, number)
            return "error"
        if episode is not None and _EXCEPTION.match(body):
            episode.exception = self._clue("exception", "unknown", "exception", number, segment, episode, False, {})
            self._soft += 0 if episode.marked else 1
            self._bump(episode)
            return "error"
        if traceback:
            return "error" if episode is None or episode.line == number else "note"
        return "error" if re.match(r"(?:ERROR|CRITICAL|FATAL)\b", body) else None

    def _match(
        self, body: str, segment: Segment, episode: _Episode | None
    ) -> tuple[Failure | None, re.Match[str] | None]:
        phase = self._phase_of(segment, episode)
        # The same harmless line comes a thousand times, with another time of day in it.
        known = (phase, _TIME_OF_DAY.sub("", body))
        if known in self._harmless:
            return None, None
        for failure in self._tables.failures:
            if failure.phases is not None and phase not in failure.phases:
                continue
            match = failure.regex.search(body)
            if match is not None:
                return failure, match
        if not self._tables.user_failures:
            if len(self._harmless) >= _HARMLESS_LIMIT:
                self._harmless.clear()
            self._harmless.add(known)
        return None, None

    def _phase_of(self, segment: Segment, episode: _Episode | None) -> Phase:
        """The phase that trouble on this line belongs to."""
        if episode is not None:
            self._bump(episode)
        tag = segment.rank if segment.rank is not None else episode.rank if episode is not None else None
        rank = self._ranks.get(tag or "")
        if self._position >= _WARMUP or rank is None or rank.position == 0:
            return self._phase
        # Between the end of a load and the first word of the pool, the pool is being made.
        if rank.phase in (Phase.LOAD_WEIGHTS, Phase.DRAFT_MODEL) and rank.loads and not rank.loading:
            return Phase.MEMORY_POOL
        return rank.phase

    def _bump(self, episode: _Episode) -> None:
        """Raises the phase of a rank to what its traceback proves."""
        if not episode.frames or (not episode.marked and self._position >= _LOAD):
            return
        text = "\n".join(episode.frames)
        if not episode.marked and "scheduler" not in text and "_wait_and_warmup" not in text:
            return  # the main process before any rank: its frames say nothing of phases
        for regex, phase in reversed(_FRAME_PHASES):
            if regex.search(text):
                self._prove(self._rank(episode.rank), phase)
                return

    def _prove(self, rank: _Rank, phase: Phase) -> None:
        fatal, self._fatal = self._fatal, None
        soft, self._soft = self._soft, 0
        match phase:
            case Phase.DISTRIBUTED_INIT:
                self._advance(rank, phase, _DIST)
            case Phase.LOAD_WEIGHTS:
                self._advance(rank, phase, _LOAD)
            case Phase.MEMORY_POOL:
                self._advance(rank, phase, rank.layer + _POOL)
            case Phase.CUDA_GRAPH:
                self._advance(rank, phase, rank.layer + _GRAPH)
            case Phase.WARMUP:
                self._advance(None, phase, _WARMUP)
            case Phase.SERVING:
                # The event loop runs from the warm-up on.
                if self._fired_up or self._position < _LOAD:
                    self._advance(None, phase, _SERVING)
                else:
                    self._advance(None, Phase.WARMUP, _WARMUP)
            case _:
                pass
        self._fatal, self._soft = fatal, soft

    def _clue(
        self,
        id_: str,
        cause: str | None,
        level: str,
        number: int,
        segment: Segment,
        episode: _Episode | None,
        fatal: bool,
        groups: Mapping[str, str],
    ) -> Clue:
        rank = segment.rank if segment.rank is not None else episode.rank if episode is not None else None
        return Clue(
            id=id_,
            cause=cause,
            level=level,
            line=number,
            text=_masked(segment.body[:_MATCHED]),
            rank=rank or None,
            phase=self._phase_of(segment, episode),
            marked=episode is not None and episode.marked,
            traceback=episode is not None,
            fatal=fatal,
            groups=groups,
            frames=tuple(episode.frames[-40:]) if episode is not None else (),
        )

    def _add_clue(self, clue: Clue) -> None:
        # Of a line that comes a thousand times the first few tell all; the bound keeps memory flat.
        seen = self._seen_clues.get(clue.id, 0)
        self._seen_clues[clue.id] = seen + 1
        if seen < 24 and len(self._clues) < _CLUE_LIMIT:
            self._clues.append(clue)

    def _on_failure(
        self,
        failure: Failure,
        match: re.Match[str],
        segment: Segment,
        number: int,
        episode: _Episode | None,
        traceback: bool,
    ) -> str:
        if failure.level == "stop":
            if self._stop is None and (self._fatal is None or (episode is not None and episode.line == self._fatal)):
                self._stop = number
                self._fatal = None
            return "warning"
        if failure.level == "observation":
            self._add_clue(self._clue(failure.id, failure.cause, failure.level, number, segment, None, False, {}))
            return "warning"
        if failure.phase is not None and (self._position < _WARMUP):
            tag = segment.rank if segment.rank is not None else episode.rank if episode is not None else None
            self._prove(self._rank(tag), failure.phase)
        groups = {name: _masked(value) for name, value in match.groupdict().items() if value is not None}
        clue = self._clue(failure.id, failure.cause, failure.level, number, segment, episode, failure.fatal, groups)
        if failure.fatal and self._fatal is None and self._stop is None:
            self._fatal = number
        if episode is not None:
            episode.exception = None
            self._soft += 0 if episode.marked else 1
        self._add_clue(clue)
        if failure.level == "marker" or (traceback and failure.level not in ("collateral", "end")):
            self._episode = _Episode(segment.rank, failure.level == "marker", number)
        return "error" if failure.level not in ("collateral", "end", "wrapper") or traceback else "warning"

    # ---- output ---------------------------------------------------------------------------------------------------------

    def _outcome(self, soft: bool) -> Outcome:
        if self._stop is not None:
            return Outcome.STOPPED
        if self._fatal is not None:
            return Outcome.CRASHED
        if soft and self._ended and self._position < _READY:
            return Outcome.CRASHED
        if self._fired_up or self._position == _SERVING:
            return Outcome.READY
        return Outcome.STARTING

    def _progress(self) -> Progress | None:
        bar = self._bar
        if bar is not None and bar.position != self._position:
            bar = None
        what, done, total = (bar.what, bar.done, bar.total) if bar is not None else ("", 0, 0)
        # The newest frame has no terminator until the next one comes.
        tail = self._splitter.tail
        for frame in [segment.bar for segment in segments(tail)] if b"%" in tail else ():
            if frame is not None and self._measures(kind := self._bar_kind(frame)):
                what, done, total = kind, frame.done, frame.total
        return Progress(what, done, total) if what else None

    def state(self) -> StartupState:
        """Everything known now; cheap, and the same object while nothing came."""
        if self._cache is None:
            self._cache = self._state()
        return self._cache

    def _state(self) -> StartupState:
        clues = list(self._clues)
        ones, ones_line = self._ones()
        if self._episode is not None and self._episode.exception is not None:
            clues.append(self._episode.exception)
        soft = any(clue.traceback and not clue.marked for clue in clues)
        tagged = {tag: rank for tag, rank in self._ranks.items() if tag and rank.position}
        ranks = tagged or {tag: rank for tag, rank in self._ranks.items() if rank.position}
        order = sorted(ranks, key=_natural)
        marks = list(self._marks)
        if marks and marks[0][0] != Phase.LAUNCH and (self._args is not None or marks[0][0] == Phase.DISTRIBUTED_INIT):
            marks.insert(0, (Phase.LAUNCH, 0.0))
        spans = tuple(
            PhaseSpan(phase, began, marks[at + 1][1] if at + 1 < len(marks) else None)
            for at, (phase, began) in enumerate(marks)
        )
        return StartupState(
            phase=self._phase,
            outcome=self._outcome(soft),
            progress=self._progress(),
            ranks=tuple(
                RankState(
                    tag,
                    self._phase if self._position >= _WARMUP else ranks[tag].phase,
                    ranks[tag].since,
                    ranks[tag].weights,
                    ranks[tag].free,
                )
                for tag in order
            ),
            spans=spans,
            last_decode=self._figures(),
            ledger=tuple(
                LedgerRow(tag, rank.before, rank.weights, rank.draft, rank.kv, rank.graphs, rank.free, rank.tokens)
                for tag, rank in ((tag, ranks[tag]) for tag in order)
                if rank.weights is not None or rank.before is not None or rank.kv is not None
            ),
            lines=self._lines,
            fired_up=self._fired_up,
            uvicorn_port=self._port,
            sglang_version=self._version,
            server_args=self._args,
            max_total_num_tokens=self._tokens,
            unrecognized=self._unrecognized,
            restarts=self._restarts,
            clues=tuple(clues),
            ranks_seen=len(self._tags),
            slow_tokenizer=self._slow_tokenizer,
            slow_tokenizer_line=self._slow_tokenizer_line,
            accept_one=ones,
            accept_one_line=ones_line,
            retractions=self._retractions,
            decode_lines=self._decode_lines,
            batch_line=self._batch_line,
            capturing=self._capturing,
            working=self._working,
            first_stamp_s=self._first_stamp if (self._first_stamp or 0.0) > 1e8 else None,
        )

    def _figures(self) -> DecodeFigures | None:
        if not self._recent:
            return None
        newest = pairs(self._recent[-1][2])
        graph = next((value for key, value in newest.items() if key.endswith(" graph")), None)
        # Each DP rank reports its own share; without DP one rank reports all.
        shares = [pairs(line) for rank, line in self._decode.items() if "DP" in rank.split("ATTN")[0]] or [newest]
        running = [value for line in shares if (value := whole(line.get("#running-req"))) is not None]
        speeds = [speed for line in shares if (speed := decimal(line.get(SPEED))) is not None]
        return DecodeFigures(
            running=whole(newest.get("#running-req")),
            queued=whole(newest.get("#queue-req")),
            gen_tok_s=decimal(newest.get(SPEED)),
            accept_len=decimal(newest.get("accept len")),
            token_usage=decimal(newest.get("token usage", newest.get("full token usage"))),
            cuda_graph=None if graph is None else graph == "True",
            total_running=sum(running) if running else None,
            total_gen_tok_s=round(sum(speeds), 2) if speeds else None,
        )

    def _ones(self) -> tuple[int, int | None]:
        """How many of the newest decode lines in a row have an accept length of exactly 1.00 (8 at most), and the last one."""
        count, line = 0, None
        for number, _, text in reversed(self._recent):
            if pairs(text).get("accept len") != "1.00":
                break
            count, line = count + 1, line or number
        return count, line


def _suspect(body: str, stamped: bool) -> bool:
    for stem in _STAMPED_STEMS if stamped else _BARE_STEMS:  # noqa: SIM110  a generator costs twice as much here
        if stem in body:
            return True
    return False


_BYTE_STEMS = tuple(
    stem.encode() for stem in (*_STAMPED_STEMS, "KV Cache", "fired up", "slow tokenizer", "server_args=", "%", "\x1b")
)


def _inert(body: bytes) -> bool:
    """Whether a stamped line of a serving server can't mean anything: no milestone begins so, no failure is worded so."""
    if body[:4].lower() in _BYTE_HEADS:
        return False
    for stem in _BYTE_STEMS:  # noqa: SIM110  a generator costs twice as much here
        if stem in body:
            return False
    return True


_WARN_SOURCE = b"  warnings.warn(\n"  # Python shows the line of the program that warned
_SLOW_TOKENIZER = b"Using a slow tokenizer."


@lru_cache(maxsize=32)
def _run_pattern(tags: tuple[bytes, ...], own_tables: bool, iterations: bool) -> re.Pattern[bytes]:
    ranks = b"(?:" + b"|".join(map(re.escape, tags)) + b")"
    stamp = rb"\[.{10} .{8}(?:\.\d{3})?"  # looser than a stamp: nothing else has these shapes behind it
    batch = rb"(?:Decode|Prefill) batch" + (rb"(?: \[\d+\])?" if iterations else b"") + rb"[.,] .*"
    shapes = b"(?:" + batch + rb"|INFO:     [\da-f:].*HTTP/1.*)\n"
    # A warning's rest has no capital U: the phrase stands there once.
    slow = rb"/[^\n%\[\]]{0,1000}: UserWarning: Using a slow tokenizer\.[^\n%\[\]U]*\n"
    # Possessive: a run is never given back, so nothing is kept of its lines.
    source = b"|" + re.escape(_WARN_SOURCE) if own_tables else b""
    return re.compile(b"(?:" + stamp + ranks + rb"\] " + shapes + rb"|\n|" + slow + source + b")++")


def _tags_of(text: bytes, start: int, end: int) -> bytes:
    """What stands between stamp and bracket of the line that begins at `start`."""
    return text[start + (_MS_END if text[start + 20] == 0x2E else 20) : end]


def _after_returns(data: bytes, mark: int) -> int:
    """Where the lines that hold carriage returns end, from the one at `mark` on."""
    stop = data.find(b"\n", mark)
    while stop >= 0:
        following = data.find(b"\n", stop + 1)
        if following < 0 or data.find(b"\r", stop + 1, following) < 0:
            return stop + 1
        stop = following
    return len(data)


_BYTE_HEADS = frozenset(head.encode() for head in _MILESTONE_HEADS)
_MS_END = 24  # where the tags begin after "[2026-10-06 20:01:03.123"
_FAST_TAGS = re.compile(rb"((?: [A-Z][A-Z_]{0,11}\d{1,6}){0,6})")
# What a stamped line begins with: 1 a batch, 3 an access line or another of uvicorn's.
_FAST_HEADS = {b" Decode ba": 1, b" Prefill b": 1, b" INFO:    ": 3}


def _natural(tag: str) -> list[tuple[str, int]]:
    return [(part.rstrip("0123456789"), int(re.sub(r"\D", "", part) or 0)) for part in tag.split()]


def _masked(text: str) -> str:
    if not any(hint in text for hint in ("api_key", "api-key", "hf_", "password")):
        return text
    return _SECRETS.sub(lambda match: (match[1] or match[2] or match[3]) + ("'***'" if match[1] else "***"), text)
