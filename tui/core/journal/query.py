"""The filter of all runs: words that stand anywhere, and `key:value[,value]`."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from tui.core.errors import Slug, UsageError
from tui.core.journal.model import RunRow
from tui.core.journal.words import difference_words
from tui.core.model.phases import Outcome
from tui.core.profiles.checks import did_you_mean
from tui.core.sglang.flags import flag_table
from tui.core.text import epoch_of, one_line

_AGE = re.compile(r"(\d{1,4})([hdw])")
_DAYS = ("%d %b", "%d %b %Y", "%d%b", "%Y-%m")  # beside ISO 8601
_LEVELS = ("L0", "L1", "L2")
_KEY = re.compile(r"([a-z]+):(.*)")


@dataclass(frozen=True)
class Query:
    """What a run must fit: every word, and of every key one value."""

    words: tuple[str, ...] = ()
    keys: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @classmethod
    def of(cls, text: str) -> "Query":
        """Raises UsageError for a key that is none, or a value that its key can't have."""
        words: list[str] = []
        keys: list[tuple[str, tuple[str, ...]]] = []
        for word in text.split():
            match = _KEY.fullmatch(word)
            if match is None:
                words.append(word.casefold())
                continue
            key, values = match[1], tuple(value for value in match[2].split(",") if value)
            if key not in KEYS:
                hint = did_you_mean(key, KEYS) or f"keys: {', '.join(KEYS)}"
                raise UsageError(f"{one_line(key, 40)}: is no key of a filter", hint, slug=Slug.BAD_VALUE)
            for value in values:
                KEYS[key].check(value)
            if values:  # of one that is being typed there are none yet
                keys.append((key, values))
        return cls(tuple(words), tuple(keys))

    def fits(self, row: RunRow) -> bool:
        """Whether a run is one of them."""
        if any(not any(KEYS[key].fits(row, value) for value in values) for key, values in self.keys):
            return False
        text = text_of(row) if self.words else ""
        return all(word in text for word in self.words)


@dataclass(frozen=True)
class Key:
    """One key of a filter."""

    fits: Callable[[RunRow, str], bool]
    check: Callable[[str], object] = lambda _: None  # raises UsageError


def text_of(row: RunRow) -> str:
    """Everything of a run that a word may stand in."""
    card = row.card
    parts: Iterable[str | None] = (
        row.run_id,
        row.host,
        row.profile,
        row.model,
        row.outcome,
        row.cause,
        row.stopped_by,
        row.experiment,
        *(f"{key}={value}" for key, value in row.sets.items()),
        difference_words(row.difference, 2000),
        *((card.title, *card.evidence) if card is not None else ()),
        *(note.text for note in row.notes),
    )
    return "\n".join(filter(None, parts)).casefold()


def _one_of(allowed: Sequence[str], what: str) -> Callable[[str], None]:
    def check(value: str) -> None:
        if value not in allowed:
            hint = did_you_mean(value, allowed) or f"one of {', '.join(allowed)}"
            raise UsageError(f"{one_line(value, 40)} is no {what}", hint, slug=Slug.BAD_VALUE)

    return check


def earliest(text: str) -> float:
    """Seconds since the epoch of `7d`, `12h`, `2w`, `today`, `2026-11-20`, `20Nov`. Raises UsageError."""
    now = datetime.now().astimezone()
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if text in ("today", "yesterday"):
        return (today - timedelta(days=text == "yesterday")).timestamp()
    if match := _AGE.fullmatch(text):
        unit = {"h": "hours", "d": "days", "w": "weeks"}[match[2]]
        return (now - timedelta(**{unit: int(match[1])})).timestamp()
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return _day_of(text, today)
    return (moment if moment.tzinfo else moment.astimezone()).timestamp()


def _day_of(text: str, today: datetime) -> float:
    for form in _DAYS:
        year = "" if "%Y" in form else f" {today.year}"
        try:
            moment = datetime.strptime(text + year, form if "%Y" in form else f"{form} %Y").astimezone()
        except ValueError:
            continue
        if not year or moment <= today:
            return moment.timestamp()
        return moment.replace(year=moment.year - 1).timestamp()
    raise UsageError(f"{one_line(text, 40)} is no time", "write 2026-11-20, 20Nov, 7d or 12h", slug=Slug.BAD_VALUE)


def _has_flag(row: RunRow, value: str) -> bool:
    """`name` or `name=value`, under any name of the flag; `env.NAME` of a variable."""
    name, given, wanted = value.removeprefix("--").partition("=")
    if name.startswith("env."):
        found = {name: row.env[variable]} if (variable := name.removeprefix("env.")) in row.env else {}
    else:
        canonical = flag_table().canonical
        found = {key: str(v) for key, v in {**row.args, **row.sets}.items() if canonical(key) == canonical(name)}
    return any(not given or text.casefold() == wanted.casefold() for text in found.values())


KEYS = {
    "host": Key(lambda row, value: row.host == value),
    "profile": Key(lambda row, value: value.casefold() in row.profile.casefold()),
    "outcome": Key(lambda row, value: row.outcome == value, _one_of(tuple(Outcome), "outcome")),
    "cause": Key(lambda row, value: row.cause == value),
    "since": Key(lambda row, value: (epoch_of(row.started_at) or 0.0) >= earliest(value), earliest),
    "flag": Key(_has_flag),
    "level": Key(lambda row, value: row.level == value.upper(), lambda value: _one_of(_LEVELS, "level")(value.upper())),
}
