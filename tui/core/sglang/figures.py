"""What batch lines and warnings of a serving server add up to; runs of plain lines are read only when someone asks."""

from collections import deque
from dataclasses import dataclass, replace

from tui.core.sglang.batch_lines import SPEED, decimal, pairs, whole
from tui.core.sglang.state import DecodeFigures, FullPool, Retracted
from tui.core.text import one_line

SLOW_TOKENIZER = b"Using a slow tokenizer."
WARN_SOURCE = b"  warnings.warn(\n"  # Python shows the line of the program that warned
_DECODE = b"] Decode batch"
_NEWEST = 8  # decode lines whose accept lengths and pools are compared
_FULL, _FULL_LINES = 0.95, 3  # of a pool; lines in a row from which on it counts
RETRACTED = "#retracted_reqs: "
_MS_END = 24  # where the tags begin after "[2026-10-06 20:01:03.123"


def tags_of(text: bytes, start: int, end: int) -> bytes:
    """What stands between stamp and bracket of the line that begins at `start`."""
    return text[start + (_MS_END if text[start + 20] == 0x2E else 20) : end]


@dataclass
class _Unread:
    """Runs of plain serving lines whose decode lines are not looked at yet; only the last of them matter."""

    text: bytes
    begin: int
    stop: int = 0
    number: int = 0  # of the line at `stop`


class Figures:
    """Decode and prefill lines of one run."""

    def __init__(self) -> None:
        self.ranks: dict[bytes, str] = {}  # what stands between stamp and bracket -> tag
        self.iterations = False  # batch lines have a number: SGLANG_LOG_FORWARD_ITERS=1
        self.decode_lines = 0
        self.batch_line: int | None = None
        self.slow_tokenizer = 0
        self.slow_tokenizer_line: int | None = None
        self.retracted: Retracted | None = None
        self._decode: dict[str, str | bytes] = {}  # rank -> its newest decode line
        self._newest: deque[tuple[int, str, str | bytes]] = deque(maxlen=_NEWEST)  # of all ranks: line, rank, text
        self._unread: _Unread | None = None

    def batch(self, rank: str, text: str, number: int, decode: bool, ranks_limit: int) -> None:
        """Takes one batch line in."""
        if decode:
            if rank in self._decode or len(self._decode) < ranks_limit:
                self._decode[rank] = text
            self._newest.append((number, rank, text))
            self.decode_lines += 1
        self.batch_line = number

    def warned_of_tokenizer(self, number: int, count: int = 1) -> None:
        """Warnings of a slow tokenizer, the first of them at this line."""
        self.slow_tokenizer += count
        self.slow_tokenizer_line = self.slow_tokenizer_line or number

    def retract(self, body: str, number: int) -> None:
        """Takes in a line that says that requests were taken back."""
        digits = body.partition(RETRACTED)[2].partition(",")[0]
        self.retracted_before(number, 1, whole(digits) or 0, one_line(body, 400))

    def retracted_before(self, number: int, times: int, requests: int, text: str = "") -> None:
        """So many lines say so, about so many requests; this is the newest that is known, with its text."""
        known = self.retracted or Retracted(0, 0, 0, "")
        self.retracted = Retracted(known.times + times, known.requests + requests, number, text or known.text)

    def take_run(self, text: bytes, begin: int, stop: int, number: int) -> int:
        """Takes a run of plain lines in; how many they are, 0 (and nothing taken) where a line may hold two records."""
        lines = text.count(b"\n", begin, stop)
        stamps = text.count(b"[", begin, stop)
        if stamps != text.count(b"]", begin, stop):
            return 0  # a line that lost its end, as on a full disk, goes on with another one's
        if self.iterations:
            stamps -= text.count(b" batch [", begin, stop)
        if stamps != lines:
            slow = text.count(SLOW_TOKENIZER, begin, stop)
            blank = (text[begin] == 0x0A) + text.count(b"\n\n", begin, stop)
            source = text.count(WARN_SOURCE, begin, stop)
            if stamps + slow + blank + source != lines:
                return 0
            if slow:
                self.warned_of_tokenizer(
                    number + text.count(b"\n", begin, text.find(SLOW_TOKENIZER, begin, stop)), slow
                )
        if self._unread is None:
            self._unread = _Unread(text, begin)
        self._unread.stop, self._unread.number = stop, number + lines
        return lines

    def read_run(self) -> None:
        """Reads the runs taken in since the last time: how many decode lines, the last few, and each DP rank's last."""
        unread, self._unread = self._unread, None
        if unread is None:
            return
        text, begin, end, number = unread.text, unread.begin, unread.stop, unread.number
        mark = text.rfind(b" batch", begin, end)
        if mark < 0:
            return
        self.batch_line = number - text.count(b"\n", mark, end)
        count = text.count(_DECODE, begin, end)
        self.decode_lines += count
        found: list[tuple[int, str, bytes]] = []
        for _ in range(min(count, _NEWEST)):
            mark = text.rfind(_DECODE, begin, end)
            start = max(begin, text.rfind(b"\n", begin, mark) + 1)
            number -= text.count(b"\n", mark, end)
            found.append((number, self.ranks[tags_of(text, start, mark)], text[start : text.find(b"\n", mark)]))
            end = start
        near = {rank for _, rank, _ in found}
        if count > _NEWEST:
            for tags, rank in self.ranks.items():
                if b"DP" in tags and rank not in near:  # figures of other ranks than these are not added up
                    self._last_of(tags, rank, text, begin, end)
        for number, rank, raw in reversed(found):
            self._decode[rank] = raw
            self._newest.append((number, rank, raw))

    def _last_of(self, tags: bytes, rank: str, text: bytes, begin: int, end: int) -> None:
        mark = text.rfind(tags + _DECODE, begin, end)
        while mark >= 0:
            start = max(begin, text.rfind(b"\n", begin, mark) + 1)
            if tags_of(text, start, mark + len(tags)) == tags:
                self._decode[rank] = text[start : text.find(b"\n", mark)]
                return
            mark = text.rfind(tags + _DECODE, begin, mark)

    def decode(self) -> DecodeFigures | None:
        """The newest decode line, and sums over the newest of each DP rank."""
        if not self._newest:
            return None
        newest = pairs(self._newest[-1][2])
        graph = next((value for key, value in newest.items() if key.endswith(" graph")), None)
        # Each DP rank reports its own share; without DP one rank reports all.
        shares = [pairs(line) for rank, line in self._decode.items() if "DP" in rank.split("ATTN")[0]] or [newest]
        speeds = [speed for line in shares if (speed := decimal(line.get(SPEED))) is not None]
        return DecodeFigures(
            running=whole(newest.get("#running-req")),
            queued=whole(newest.get("#queue-req")),
            gen_tok_s=decimal(newest.get(SPEED)),
            accept_len=decimal(newest.get("accept len")),
            token_usage=decimal(newest.get("token usage", newest.get("full token usage"))),
            cuda_graph=None if graph is None else graph == "True",
            total_gen_tok_s=round(sum(speeds), 2) if speeds else None,
        )

    def accept_one(self) -> tuple[int, int | None]:
        """How many of the newest decode lines in a row accept exactly 1.00 token (8 at most), and the last one."""
        count, line = 0, None
        for number, _, text in reversed(self._newest):
            if pairs(text).get("accept len") != "1.00":
                break
            count, line = count + 1, line or number
        return count, line

    def full_pool(self) -> FullPool | None:
        """Whether the pool is full while requests wait, in the newest decode lines of one rank."""
        rank = self._newest[-1][1] if self._newest else ""
        found: FullPool | None = None
        for number, _, text in reversed([line for line in self._newest if line[1] == rank]):
            figures = pairs(text)
            queued = whole(figures.get("#queue-req")) or 0
            usages = ((decimal(value) or 0.0, name) for name, value in figures.items() if name.endswith("usage"))
            usage, name = max(usages, default=(0.0, ""))
            if not queued or not _FULL <= usage <= 1:
                break
            if found is None:
                said = text if isinstance(text, str) else text.decode("utf-8", "replace")
                found = FullPool(
                    name, usage, queued, queued, 0, number, one_line(said[said.find("Decode batch") :], 400)
                )
            found = replace(found, queued_before=queued, lines=found.lines + 1)
        return found if found is not None and found.lines >= _FULL_LINES else None
