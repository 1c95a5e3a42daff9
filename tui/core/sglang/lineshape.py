"""The shapes of one log line: stamps, rank tags, what wrappers put before a line, progress bars.

Search, never anchor: a bar without terminator can stand before a record on the same line, and two processes can write onto
one line. Formats: SGLang 0.4.6 to 0.5.23 and their forerunners ("[gpu=0]", "Rank 0:"), and the prefixes of Docker JSON,
compose, kubectl, CRI, journald, CI runners, Ray, mpirun and Python loggers.
"""

import json
import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

from tui.core.text import sanitize

TAG = r" [A-Z][A-Z_]{0,11}\d{1,6}"  # DP, PP, ATTN_CP, MOE_DP, TP, EP, and whatever comes next
_STAMP = re.compile(
    r"(?P<time>\d\d:\d\d:\d\d)(?:[.,]\d{3})?(?P<tags>(?:" + TAG + r"){0,6})\](?:\s|$)"
)  # the date and the bracket before it are looked at by hand: that costs less than a search that begins with "maybe ["
_DATE_BEFORE = re.compile(r"(?:\d{4}-|(?<=\[))\d\d-\d\d $")  # the server of images and videos leaves the year out
# Without a stamp: forerunners of SGLang, and pastes that leave the time out ("[DP1 TP0] Load weight begin").
_PARALLEL = r"[A-Z_]{0,9}(?:TP|DP|PP|EP|CP)\d{1,6}"
RANK = r"\[(?P<tags>" + _PARALLEL + r"(?: " + _PARALLEL + r"){0,5})\]\s"
_OLD_RANK = re.compile(r"\[gpu(?:_id)?=(?P<gpu>\d{1,4})\]\s|Rank (?P<rank>\d{1,4}): |" + RANK)
WRAPPER = re.compile(
    r"(?:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d) (?:std(?:out|err) [FP] )?(?:Output: )?"
    r"|\[\d{4}-\d\d-\d\dT[^\]]{8,30}\] \S+ >> "
    r"|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[,.]\d{3} - [\w.]+ - [A-Z]+ - "
    r"|\((?:[\w.:-]+ )+pid=\d+(?:, ip=[\d.a-f:]+)?\) "
    r"|[A-Za-z][\w.-]{0,60} +\| "
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S+ [\w.@-]+\[\d+\]: "
    r"|\[[\w.-]+/[\w./-]+\] "
    r"|\[\d+,\d+\]<std(?:out|err)>: ?"
    r"|\d{1,3}: (?=\[\d{4}-|\s*File|Traceback|\w+Error)"
    r"|\[rank\d{1,4}\]: (?!\[)"  # torch's own hook for exceptions
    r"|Output: )"
)
_BAR_REST = re.compile(
    r"%(?: Completed \| |\|[^|\r\n]{0,400}\| {0,8})(?P<n>\d{1,9})/(?P<t>\d{1,9}) \[[^\]\r\n]{0,80}\]?"
)
_BAR_HEAD = re.compile(r"(?P<desc>[^|%\]]{0,160}?):?\s{0,8}\d{1,3}$")
# Trouble that no pattern needs to name.
EXCEPTION = re.compile(
    r"^(?:[A-Za-z_][\w]*\.)*[A-Za-z_]\w*(?:Error|Exception|Timeout|Interrupt|OutOfResources)(?:: |:?$)|^Exception: (?=\S)"
)
TRACEBACK = re.compile(r"Traceback \(most recent call last\):")
FRAME = re.compile(r'^\s{0,12}File "(?P<file>[^"]{1,500})", line (?P<line>\d{1,9})(?:,? in (?P<function>\S{1,200}))?')
ERROR_LEVEL = re.compile(r"^(?:ERROR|CRITICAL|FATAL)\b")
# A logged error that no pattern knows: it may be what a later exception comes from.
SAID = re.compile(
    r"(?i)\berror\b|\bfail(?:ed|ure)\b|\bexception\b|refused|unreachable|timed out|cannot |could not |do(?:es)? not match"
)
# Python's fault handler: its frames begin with the innermost one.
THREAD = re.compile(r"^(?P<current>Current )?[Tt]hread 0x[\da-f]{1,16}.{0,80} \(most recent call first\):")
# Errors of native libraries (Mooncake): "E0219 16:32:42.940686 572100 rdma_transport.cpp:529] ...".
NATIVE = re.compile(r"^[EF]\d{4} \d\d:\d\d:\d\d\.\d{1,9} +\d+ [\w./-]{1,200}\.cpp:\d+\]")
TROUBLE = (EXCEPTION, TRACEBACK, FRAME, THREAD, ERROR_LEVEL, SAID, NATIVE)
_BARS_TRIED = 8  # per cent signs of a line that are looked at


class BarFrame(NamedTuple):
    """One frame of a progress bar."""

    desc: str
    done: int
    total: int


class Segment(NamedTuple):
    """A part of a line that is a record of its own."""

    stamp: str | None  # as it stands there, for the clock
    time: str | None  # "20:01:03"
    rank: str | None  # "TP3"; "" for a stamped line without tags, None for a line without stamp
    body: str  # sanitised
    bar: BarFrame | None
    at: int  # characters from the beginning of the line


_DATED = re.compile(r"(?:(\d{4})-(\d\d)-(\d\d) )?(\d\d):(\d\d):(\d\d)(?:[.,](\d{3}))?")


@lru_cache(maxsize=4)  # lines of one second have one stamp, whatever tags follow it
def _seconds_of(text: str) -> float | None:
    match = _DATED.search(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = match.group(1, 2, 3, 4, 5, 6)
    if year is None:
        value = int(hour) * 3600.0 + int(minute) * 60 + int(second)
    else:
        try:
            date = datetime(int(year), int(month), int(day), tzinfo=UTC).timestamp()
        except ValueError:
            return None
        value = date + int(hour) * 3600 + int(minute) * 60 + int(second)
    return value + int(match.group(7)) / 1000 if match.group(7) else value


def stamp_seconds(stamp: str | None) -> float | None:
    """A stamp read as UTC, seconds since the epoch; since midnight where it has no date (always below 86,460)."""
    return _seconds_of(stamp[:25]) if stamp else None


def segments(raw: bytes) -> list[Segment]:
    """A line as its records; at least one."""
    text = raw.decode("utf-8", "replace")
    if text.startswith('{"') and text.rstrip().endswith("}"):
        inner = _inside_json(text)
        if inner is not None:
            found = [part for line in re.split(r"[\r\n]+", inner) if line for part in _records_of(sanitize(line))]
            return found or [Segment(None, None, None, "", None, 0)]
    # Whatever sanitize would change is not printable; asking that first costs a tenth.
    return _records_of(text if text.isprintable() else sanitize(text))


def _inside_json(text: str) -> str | None:
    """The line inside a JSON object of Docker or of a log shipper."""
    try:
        table = json.loads(text)
    except (ValueError, RecursionError):
        return None
    for key in ("log", "message", "msg", "MESSAGE"):
        value = table.get(key)
        if isinstance(value, str):
            return value
    return None


def _records_of(text: str) -> list[Segment]:
    found: list[Segment] = []
    end = 0  # where the body of the record being read begins
    stamp: str | None = None
    time: str | None = None
    rank: str | None = None
    begin = 0  # where that record begins, stamp included
    look = 0
    while True:
        mark = _STAMP.search(text, look, 4_000) if text.find("]", look, 4_000) >= 0 else None
        if mark is None:
            break
        start = mark.start()
        date = _DATE_BEFORE.search(text, max(0, start - 11), start)
        if date is not None:
            start = date.start()
        if text[start - 1 : start] == "[":
            start -= 1
        elif start != 0:  # "[" is lost only where somebody cut the line there
            look = mark.end()
            continue
        _add_record(found, stamp, time, rank, text[end:start], begin)
        stamp, time, rank = text[start : mark.end()], mark["time"], mark["tags"].strip()
        begin, end = start, mark.end()
        look = end
        if text.find("[", end) < 0:
            break
    if stamp is None:
        body, cut = _without_wrapper(text)
        old = _OLD_RANK.match(body)
        if old is not None:
            tag = old["tags"] or "TP" + (old["gpu"] or old["rank"])
            return [Segment("", None, tag, body[old.end() :].rstrip(), None, cut)]
        _add_unstamped(found, body, cut, True)
        return found
    _add_record(found, stamp, time, rank, text[end:], begin)
    return found


def _add_record(
    found: list[Segment], stamp: str | None, time: str | None, rank: str | None, text: str, begin: int
) -> None:
    if stamp is not None:
        found.append(Segment(stamp, time, rank, text.rstrip(), None, begin))
    elif text:
        # What stands before the first stamp is a wrapper's own, unless something is left of it.
        body, cut = _without_wrapper(text)
        _add_unstamped(found, body, cut, False)


def _without_wrapper(text: str) -> tuple[str, int]:
    cut = 0
    for _ in range(4):
        match = WRAPPER.match(text, cut)
        if match is None:
            break
        cut = match.end()
    return text[cut:], cut


def _add_unstamped(found: list[Segment], body: str, at: int, alone: bool) -> None:
    body = body.rstrip()
    found_bar = _find_bar(body) if "%" in body else None
    if found_bar is not None:
        bar, end = found_bar
        found.append(Segment(None, None, None, body[:end].strip(), bar, at))
        rest = body[end:]
        if rest.strip():
            found.append(Segment(None, None, None, rest, None, at + end))
        return
    if alone or body.strip():
        found.append(Segment(None, None, None, body, None, at))


def _find_bar(body: str) -> tuple[BarFrame, int] | None:
    """The first progress bar of a line and where it ends. Looks around per cent signs only: linear in hostile lines."""
    at = -1
    for _ in range(_BARS_TRIED):
        at = body.find("%", at + 1)
        if at < 0:
            return None
        rest = _BAR_REST.match(body, at)
        if rest is None:
            continue
        before = body[max(0, at - 170) : at]
        head = _BAR_HEAD.search(before[max(before.rfind(sign) for sign in "|%]") + 1 :])
        if head is not None:
            return BarFrame(head["desc"].strip(), int(rest["n"]), int(rest["t"])), rest.end()
    return None
