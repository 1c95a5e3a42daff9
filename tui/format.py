"""How numbers, times and ages are written, wherever a person reads them. Missing is `–`, never 0; minus is a true minus."""

import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from tui.core.text import epoch_of, one_line

if TYPE_CHECKING:
    from tui.core.model.profile import BenchProfile

NONE = "–"
MIB_PER_GIB = 1024.0


def _signed(text: str) -> str:
    # "-0.0" is a zero that lost something on the way, not a negative number.
    if text.startswith("-"):
        return text[1:] if not text.strip("-0.,") else "−" + text[1:]
    return text


def decimals(value: float | None, places: int) -> str:
    """A number with a fixed count of decimals and thousands separators."""
    return NONE if value is None else _signed(f"{value:,.{places}f}")


def whole(value: float | None) -> str:
    """Percent, watts, degrees, counts: a whole number, `147,840`."""
    return decimals(value, 0)


def tok_s(value: float | None) -> str:
    """Tokens a second, one decimal."""
    return decimals(value, 1)


def ratio(value: float | None) -> str:
    """A ratio with its sign, `0.81×`."""
    return NONE if value is None else f"{value:.2f}×"


def accept(value: float | None) -> str:
    """An accept length, two decimals."""
    return decimals(value, 2)


def gib(mib: float | None) -> str:
    """Memory given in MiB, written in GiB with one decimal."""
    return NONE if mib is None else decimals(mib / MIB_PER_GIB, 1)


def gib_of(value_gib: float | None) -> str:
    """Memory given in GiB, one decimal."""
    return decimals(value_gib, 1)


def size(count_bytes: int) -> str:
    """A length of bytes: `812 B`, `4.1 kB`, `1.2 MB`, in powers of ten."""
    value = float(count_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    raise AssertionError  # the loop always returns


def duration(seconds: float | None) -> str:
    """`5:59`; from an hour `2 h 21 min`."""
    if seconds is None:
        return NONE
    total = max(0, round(seconds))
    if total < 3600:
        return f"{total // 60}:{total % 60:02d}"
    return f"{total // 3600} h {total % 3600 // 60:02d} min"


def age(seconds: float | None) -> str:
    """How long ago, without the word: `0.4 s`, `12 s`, `4:10`, `2 h 21 min`."""
    if seconds is None:
        return NONE
    if seconds < 1:
        return f"{max(0.0, seconds):.1f} s"
    return f"{int(seconds)} s" if seconds < 60 else duration(seconds)


def milliseconds(seconds: float | None) -> str:
    """A round trip in whole milliseconds, `11 ms`; below one, `0.4 ms`."""
    if seconds is None:
        return NONE
    value = seconds * 1000
    return f"{value:.0f} ms" if value >= 1 else f"{value:.1f} ms"


def spread(median_s: float, low_s: float, high_s: float, n: int) -> str:
    """`11:07 ± 0:20 (n = 4)`; a single start has no spread."""
    if n < 2:
        return f"{duration(median_s)} (n = {n})"
    return f"{duration(median_s)} ± {duration((high_s - low_s) / 2)} (n = {n})"


def clock(epoch_s: float | None, utc_offset_s: float | None = None, *, seconds: bool = True) -> str:
    """`20:12:48` of an epoch time in a zone `utc_offset_s` east of UTC; without one, in this machine's zone."""
    if epoch_s is None:
        return NONE
    if utc_offset_s is None:
        utc_offset_s = time.localtime(epoch_s).tm_gmtoff
    moment = datetime.fromtimestamp(epoch_s, timezone(timedelta(seconds=utc_offset_s)))
    return moment.strftime("%H:%M:%S" if seconds else "%H:%M")


def day_clock(iso: str | None, utc_offset_s: float | None = None) -> str:
    """`6 Oct 20:01` of an ISO 8601 UTC time; what cannot be read is `–`."""
    epoch = epoch_of(iso)
    if epoch is None:
        return NONE
    if utc_offset_s is None:
        utc_offset_s = time.localtime(epoch).tm_gmtoff
    moment = datetime.fromtimestamp(epoch, timezone(timedelta(seconds=utc_offset_s)))
    return f"{moment.day} {moment:%b %H:%M}"


def utc_offset(stamp: str | None, epoch_s: float | None) -> float | None:
    """The zone of a host, from a log's local `HH:MM:SS` and the epoch second it was written at (within 7 minutes).

    Logs stamp local time and hosts rarely say which zone that is; zones differ by quarters of an hour.
    """
    if stamp is None or epoch_s is None:
        return None
    try:
        hours, minutes, seconds = (int(part) for part in stamp[:8].split(":"))
    except ValueError:
        return None
    local = hours * 3600 + minutes * 60 + seconds
    difference = (local - epoch_s % 86400 + 43200) % 86400 - 43200
    return round(difference / 900) * 900.0


def since_stamp(stamp: str | None, utc_offset_s: float | None, now_s: float) -> float:
    """Seconds since a log's local `HH:MM:SS`, within half a day; a stamp that cannot be read is a long time ago."""
    try:
        hours, minutes, seconds = (int(part) for part in (stamp or "")[:8].split(":"))
    except ValueError:
        return 43200.0
    offset = utc_offset_s if utc_offset_s is not None else time.localtime(now_s).tm_gmtoff
    age = (now_s + offset - (hours * 3600 + minutes * 60 + seconds)) % 86400
    return age if age < 43200 else 0.0  # clocks differ by seconds: a line from the future is a new one


def plural(count: int, noun: str) -> str:
    """`1 profile`, `12 profiles`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def order_words(letters: Sequence[str]) -> str:
    """ "ABBA", or "A B … AA" where a letter is no longer one."""
    return ("" if all(len(letter) == 1 for letter in letters) else " ").join(letters)


def runs_words(bench: "BenchProfile") -> str:
    """`3 runs of 60 s, up to 300 s each where the server is slow`: what is known before a bench begins."""
    if bench.search is not None:
        searches = f"{bench.runs} {'search' if bench.runs == 1 else 'searches'}"
        loads, longest = bench.search.most_points, bench.warmup_s + bench.duration_max_s
        return (
            f"{searches} of at most {loads} loads, {bench.duration_s:g} to {bench.duration_max_s:g} s each, "
            f"at most {duration(bench.runs * loads * longest)} in all"
        )
    words = f"{plural(bench.runs, 'run')} of {bench.duration_s:g} s"
    if len(bench.points) > 1:
        words += " at each load"
    if bench.driver != "eagletui":
        return words
    each = " each" if bench.runs > 1 else ""
    return f"{words}, up to {bench.duration_max_s:g} s{each} where the server is slow"


def value_text(value: object) -> str:
    """The value of a flag, as it is typed."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return one_line(str(value), 60)


def overrides_of(sets: object) -> tuple[str, ...]:
    """Values that a run was launched with beside its profile's, each as `mem-fraction-static=0.9`."""
    return tuple(f"{key}={value_text(value)}" for key, value in sets.items()) if isinstance(sets, Mapping) else ()


def configured(profile: str, sets: object) -> str:
    """A profile and what was changed for a launch: `base +mem-fraction-static=0.9`."""
    return " ".join([profile, *(f"+{text}" for text in overrides_of(sets))])
