"""Whether two configurations answer alike at temperature 0: the share of replies that differ, and from which token on.

Replies to equal prompts are held against each other: B's against A's, and A's against A's own of another launch (or, of
a single launch, of another run), because a batch of another size can round otherwise and flip a near tie by itself. B
changes the text where more differs than between A and A. The prompt is the unit, since replies to one prompt hang
together: one comparison a prompt and side, and Fisher's exact test, one-sided, on the prompts that differ.

Tens of thousands of replies are compared as wholes, and only what differs is looked into.
"""

import heapq
import json
import math
import statistics
import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, zip_longest
from typing import Any

from tui.core.model.verdict import Alike, SameText, TextExample
from tui.core.text import one_line
from tui.core.verdicts.stats import ALPHA

EARLY = 16  # tokens: rounding flips a few tokens in a thousand, so rarely one of the first sixteen
# Of replies, that must differ, and half of them early, where nothing says what A does by itself.
EARLY_SHARE = 0.5
EARLY_PROMPTS = 10
EXAMPLES = 3
_EXCERPT = 80  # characters of a reply in an example, those before the difference among them
_BEFORE = 20
_KEPT = 64 << 20  # bytes of A's replies that are held at once; prompts beyond it are not compared


@dataclass(frozen=True)
class Reply:
    """One reply that came whole, with what it answers."""

    prompt: str  # hash of the prompt: equal for equal ones
    item: int | None  # of the dataset
    capped: bool  # it ended because it was as long as it may be
    ids: "array[int] | None"  # its token ids
    text: str | None = None
    ends: "array[int] | None" = None  # where each chunk of the text ends
    tokens: "array[int] | None" = None  # in the chunks up to each; None where chunks came without counts

    @property
    def size(self) -> int:
        """Bytes of memory."""
        return sum(map(sys.getsizeof, (self.ids, self.text, self.ends, self.tokens)))


def replies(lines: Iterable[bytes]) -> Iterator[Reply]:
    """The replies in rows of the load generator; what ended in an error, and rows of earlier versions, are left out."""
    for line in lines:
        try:
            row = json.loads(line)
            found = _reply(row) if row["err"] is None else None
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            continue
        if found is not None:
            yield found


def _reply(row: dict[str, Any]) -> Reply | None:
    ids, texts, first, later = row["ids"], row["texts"], row["k1"], row["toks"]
    if ids is None and texts is None:
        return None
    return Reply(
        prompt=str(row["prompt"]),
        item=row["item"],
        capped=row["finish"] == "length",
        ids=None if ids is None else array("q", ids),
        text=None if texts is None else "".join(texts),
        ends=None if texts is None else array("q", accumulate(map(len, texts))),
        tokens=None if first is None or later is None else array("q", accumulate((first, *later))),
    )


def _sequences(a: Reply, b: Reply) -> "tuple[array[int], array[int]] | tuple[str, str] | None":
    """What two replies can be compared by: their token ids, else their texts."""
    if a.ids is not None and b.ids is not None:
        return a.ids, b.ids
    return (a.text, b.text) if a.text is not None and b.text is not None else None


def _difference(a: Reply, b: Reply) -> tuple[bool, int | None]:
    """Whether two comparable replies differ, and the first token that does, from 1; None where chunks came without counts.

    One that was cut short is compared up to its end.
    """
    sequences = _sequences(a, b)
    if sequences is None or sequences[0] == sequences[1]:
        return False, None
    shared = _common(*sequences)
    if any(shared == len(whole) and reply.capped for whole, reply in zip(sequences, (a, b), strict=True)):
        return False, None
    if not isinstance(sequences[0], str):
        return True, shared + 1
    agreed = [_tokens_before(reply, shared) for reply in (a, b)]
    known = [tokens for tokens in agreed if tokens is not None]
    return True, max(known) + 1 if known else None


def _common(a: Sequence[object], b: Sequence[object]) -> int:
    """How many items two sequences share from the start, by halving."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _tokens_before(reply: Reply, offset: int) -> int | None:
    """Tokens of the chunks that end at or before a place in the text: the difference is in none of them."""
    if reply.tokens is None or reply.ends is None:
        return None
    chunks = bisect_right(reply.ends, offset)
    return reply.tokens[chunks - 1] if chunks else 0


def _example(token: int, a: Reply, b: Reply) -> TextExample:
    """What both say from shortly before the first difference on; token ids where there is no text."""
    if a.ids is not None and b.ids is not None:
        cut = slice(max(0, token - 4), token + 5)
        one, other = (" ".join(map(str, ids[cut])) for ids in (a.ids, b.ids))
    else:
        texts = (a.text or "", b.text or "")
        begin = max(0, _common(*texts) - _BEFORE)
        one, other = (text[begin:] for text in texts)
    return TextExample(a.item, token, one_line(one, _EXCERPT), one_line(other, _EXCERPT))


Run = Iterable[Reply]


@dataclass
class _Tally:
    """Comparisons of one sort."""

    replies: int = 0
    differ: int = 0
    prompts: dict[str, bool] = field(default_factory=dict)  # whether the first comparison of each differs
    tokens: list[int] = field(default_factory=list)  # the first that differs, of each reply that does
    # A heap, the latest place in front: -token, -number, both replies; one a prompt.
    earliest: list[tuple[int, int, Reply, Reply]] = field(default_factory=list)

    def add(self, a: Reply, b: Reply) -> bool:
        """Holds two replies against each other; whether they differ."""
        (differs, token), again = _difference(a, b), a.prompt in self.prompts
        self.replies += 1
        self.prompts.setdefault(a.prompt, differs)
        self.differ += differs
        if token is not None:
            self.tokens.append(token)
            if not again:
                push = heapq.heappush if len(self.earliest) < EXAMPLES else heapq.heappushpop
                push(self.earliest, (-token, -self.replies, a, b))
        return differs

    @property
    def share(self) -> float:
        return self.differ / self.replies

    @property
    def alike(self) -> Alike:
        return Alike(
            self.replies,
            self.differ,
            len(self.prompts),
            sum(self.prompts.values()),
            min(self.tokens, default=None),
            statistics.median(self.tokens) if self.tokens else None,
        )


def same_text(a: Sequence[Sequence[Run]], b: Sequence[Sequence[Run]]) -> SameText | None:
    """B's replies against A's, and A's against its own; None where no two of them answer the same prompt.

    A reply is held against the last one of A to that prompt before it, launch by launch and run by run: of two launches
    that asked the same in the same order, the one of the same run.

    Args:
        a, b: the runs of each launch, launches in the order of their pairs; each run is read once.
    """
    between, launches, runs = _Tally(), _Tally(), _Tally()
    by_launch: list[tuple[int, int]] = []  # of B: replies, and those that differ
    last: dict[str, tuple[int, Reply]] = {}
    room = _KEPT
    for number, (runs_a, runs_b) in enumerate(zip_longest(a, b, fillvalue=())):
        counted = differ = 0
        for run_a, run_b in zip_longest(runs_a, runs_b, fillvalue=()):
            for reply in run_a:
                seen = last.get(reply.prompt)
                if seen is not None and _sequences(seen[1], reply):
                    (runs if seen[0] == number else launches).add(seen[1], reply)
                grown = reply.size - (seen[1].size if seen is not None else 0)
                if seen is not None or grown <= room:
                    last[reply.prompt] = number, reply
                    room -= grown
            for reply in run_b:
                seen = last.get(reply.prompt)
                if seen is not None and _sequences(seen[1], reply):
                    counted += 1
                    differ += between.add(seen[1], reply)
        if counted:
            by_launch.append((counted, differ))
    if not between.replies:
        return None
    own = launches if launches.replies else runs if runs.replies else None
    p: float | None = None
    changes: bool | None = None
    if not between.differ:
        changes = False
    elif own is not None:
        p = _fisher(between.alike, own.alike)
        changes = p < ALPHA and all(differ / counted > own.share for counted, differ in by_launch)
    elif _early(between.alike):
        changes = True
    return SameText(
        between=between.alike,
        own=own.alike if own is not None else None,
        own_of=None if own is None else "launches" if own is launches else "runs",
        p=p,
        changes=changes,
        examples=tuple(_example(-token, one, other) for token, _, one, other in sorted(between.earliest, reverse=True)),
    )


def _early(found: Alike) -> bool:
    """Whether so much differs, so early, that rounding does not explain it."""
    return (
        found.prompts >= EARLY_PROMPTS
        and found.differ >= EARLY_SHARE * found.replies
        and found.median_token is not None
        and found.median_token <= EARLY
    )


def _fisher(between: Alike, own: Alike) -> float:
    """P(so many prompts differ in `between` or more), if they were as likely to as in `own`: Fisher's exact test."""
    here, there = between.prompts, own.prompts
    differ = between.prompts_differ + own.prompts_differ

    def ways(n: int, k: int) -> float:
        return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)

    terms = (
        math.exp(ways(here, k) + ways(there, differ - k) - ways(here + there, differ))
        for k in range(max(between.prompts_differ, differ - there), min(here, differ) + 1)
    )
    return min(1.0, math.fsum(terms))


def fact(found: SameText, a: str) -> str:
    """replies: 12 of 240 differ (A against itself: 10 of 230), first at token 41, median 180"""
    between, own = found.between, found.own
    said = f"replies: {between.differ:,} of {between.replies:,} differ"
    if own is not None:
        of = ", runs of one launch" if found.own_of == "runs" else ""
        said += f" ({a} against itself: {own.differ:,} of {own.replies:,}{of})"
    elif between.differ:
        said += f" ({a} against itself: not known)"
    return said + _place(between)


def _place(found: Alike) -> str:
    if found.first_token is None or found.median_token is None:
        return ""
    return f", first at token {found.first_token:,}, median {found.median_token:,.0f}"


def reason(found: SameText, a: str, b: str) -> str:
    """Why B is said to change the text."""
    between, own = found.between, found.own
    said = f"{b} changes the text: {between.differ:,} of {between.replies:,} replies differ"
    if own is not None and found.p is not None:
        p = f"p = {found.p:.3f}" if found.p >= 0.001 else "p < 0.001"
        said += f", {a} against itself {own.differ:,} of {own.replies:,} ({p}, over prompts)"
    if between.median_token is None:
        return said
    why = "too early for rounding alone" if _early(between) else "rounding in other kernels can be the cause"
    return f"{said}{_place(between)}: {why}"


def mark(b: str) -> str:
    """What a verdict's sentence ends with where B changes the text."""
    return f" · {b} changes the text"
