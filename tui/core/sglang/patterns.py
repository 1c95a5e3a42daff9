"""Start-up and failure patterns as data: tui/data/*.toml, and the user's own under config_dir()/patterns.

A user's file may hold [[milestone]], [[failure]], [[kind]], [[frame]], [[feature]], [[note]] and [[warning]] tables; they are tried before ours. A table
that is wrong is left out and named in `Patterns.problems`; it never stops the tool.
"""

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from importlib import resources
from typing import Any, NamedTuple

from tui.core.config import config_dir
from tui.core.model.phases import Phase
from tui.core.sglang.frames import Feature, FrameRule
from tui.core.sglang.kinds import Kind
from tui.core.sglang.lineshape import EXCEPTION, TROUBLE
from tui.core.sglang.shortlist import Shortlist, search_words

EVENTS = (
    "capture_begin capture_end capture_list dist_begin dist_end dist_mark fired_up follower_up http http_up load_begin load_end load_mark memory pool "
    "pool_end pool_mark sched_ready working"
).split()
LEVELS = "root comm wrapper collateral exit stop marker end observation".split()
_OURS = ("startup.toml", "failures.toml", "kinds.toml", "frames.toml", "benign.toml")
_NOTES = ("note", "warning", "benign")  # tables of a regex alone


@dataclass(frozen=True)
class Milestone:
    """A line that says how far a start is."""

    id: str
    regex: re.Pattern[str]
    event: str  # one of EVENTS
    example: str | None = None  # a line that it finds, without stamp and tags


@dataclass(frozen=True)
class Failure:
    """A line that says, or helps to say, why a server died."""

    id: str
    regex: re.Pattern[str]
    level: str = "root"  # one of LEVELS
    cause: str | None = None
    phases: frozenset[Phase] | None = None  # only in one of these phases
    phase: Phase | None = None  # the phase that this line proves to have begun
    fatal: bool = False  # proves by itself that the server is dying
    title: str | None = None
    advice: tuple[str, ...] = ()
    set: Mapping[str, object] = field(default_factory=dict)  # flags to change, without dashes
    example: str | None = None  # a line that it finds, without stamp and tags


class Words(NamedTuple):
    title: str
    advice: tuple[str, ...]


class AnyOf:
    """Several patterns asked at once: in one expression where they can be joined, else one after the other."""

    def __init__(self, patterns: list[re.Pattern[str]]) -> None:
        joined = [pattern for pattern in patterns if not pattern.groups]
        self._apart = [pattern for pattern in patterns if pattern.groups]
        self._joined = re.compile("|".join(_scoped(pattern) for pattern in joined)) if joined else None

    def search(self, text: str) -> bool:
        """Whether one of them is found in `text`."""
        if self._joined is not None and self._joined.search(text):
            return True
        return any(pattern.search(text) for pattern in self._apart)


def _scoped(pattern: re.Pattern[str]) -> str:
    # "(?i)abc" must become "(?i:abc)": flags may not stand in the middle of an expression.
    flags = re.match(r"\(\?([aimsux]+)\)", pattern.pattern)
    return f"(?{flags[1]}:{pattern.pattern[flags.end() :]})" if flags else f"(?:{pattern.pattern})"


@dataclass(frozen=True)
class Patterns:
    """All tables, compiled; `problems` has one line for each table that was left out."""

    milestones: tuple[Milestone, ...]
    failures: tuple[Failure, ...]
    notes: AnyOf
    warnings: AnyOf
    benign: AnyOf
    kinds: tuple[Kind, ...]  # of exceptions that no failure matches
    of_kinds: Mapping[str, Failure]  # what they say, by id
    frames: tuple[FrameRule, ...]  # in a traceback: the phase that a rank had come to
    features: tuple[Feature, ...]
    causes: Mapping[str, Words]
    words: Mapping[str, Words]  # of what no line says: exits, and figures of a living server
    problems: tuple[str, ...]

    @cached_property
    def milestones_for(self) -> Shortlist[Milestone]:
        """The milestones that a line may be."""
        return Shortlist((item.regex, item) for item in self.milestones)

    @cached_property
    def failures_for(self) -> Shortlist[Failure | None]:
        """The failures that a line may be; None stands for a shape of trouble that needs no pattern."""
        return Shortlist([*((item.regex, item) for item in self.failures), *((shape, None) for shape in TROUBLE)])

    @cached_property
    def order(self) -> Mapping[str, int]:
        """Where each failure stands: specific ones stand first."""
        return {failure.id: at for at, failure in reversed(tuple(enumerate(self.failures)))}

    @cached_property
    def search_words(self) -> tuple[str, ...]:
        """Texts for a search where case does not count: a line without any of them is no milestone and no failure."""
        return search_words(
            (*(item.regex for item in self.milestones), *(item.regex for item in self.failures), *TROUBLE)
        )

    def kind_of(self, body: str) -> str:
        """What a line is that says nothing of a start or a failure: note, warning or plain."""
        return "note" if self.notes.search(body) else "warning" if self.warnings.search(body) else "plain"

    def words_for(self, cause: str) -> Words:
        """Title and advice for a cause of which nothing more is known."""
        return self.causes.get(cause, self.causes["unknown"])

    def failure(self, id_: str) -> Failure | None:
        """The pattern or kind with this id; the user's before ours."""
        return next((item for item in self.failures if item.id == id_), self.of_kinds.get(id_))


class _Wrong(ValueError):
    pass


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise _Wrong("must be a text")
    return value


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise _Wrong("must be a list of texts")
    return tuple(value)


def _regex(value: object) -> re.Pattern[str]:
    try:
        return re.compile(_text(value))
    except re.error as error:
        raise _Wrong(str(error)) from None


def _named(what: str, names: Sequence[str], value: object) -> str:
    if value not in names:
        raise _Wrong(f"no {what} {value!r} (known: {', '.join(names)})")
    return str(value)


def _phase(value: object) -> Phase:
    return Phase(_named("phase", list(Phase), value))


def _of_type(kind: type, what: str, value: object) -> object:
    if not isinstance(value, kind):
        raise _Wrong(f"must be {what}")
    return value


_CHECKS: dict[str, Callable[[object], object]] = {
    **dict.fromkeys(("id", "example", "since", "until", "cause", "title", "name"), _text),
    **dict.fromkeys(
        ("regex", "module", "function", "type", "text", "raised_in", "through", "called_in", "source"), _regex
    ),
    "event": partial(_named, "event", EVENTS),
    "scope": partial(_named, "scope", ["rank", "r0", "main"]),
    "level": partial(_named, "level", LEVELS),
    **dict.fromkeys(("phase", "within_draft"), _phase),
    "phases": lambda value: frozenset(map(_phase, _texts(value))) or None,
    **dict.fromkeys(("fatal", "names_flag", "weak", "blind"), partial(_of_type, bool, "true or false")),
    **dict.fromkeys(("advice", "causes"), _texts),
    "set": partial(_of_type, dict, "a table of flags"),
}
_TESTS = ["type", "text", "raised_in", "through", "called_in", "source", "names_flag", "phases"]  # of a kind
_KEYS = {
    "milestone": ["id", "regex", "event", "scope", "since", "until", "example"],
    "failure": ["id", "regex", "level", "cause", "phases", "phase", "fatal", "title", "advice", "set", "example"],
    "kind": [*_TESTS, "id", "cause", "title", "advice", "set", "example"],
    "frame": ["phase", "module", "function", "within_draft", "weak", "blind"],
    "feature": ["name", "module", "advice", "causes"],
    **{kind: ["regex", "example"] for kind in _NOTES},
}
_NEEDED = {"milestone": ("id", "regex", "event"), "failure": ("id", "regex"), "frame": ("phase",)}
_NEEDED |= {"kind": ("id", "cause"), "feature": ("name", "module", "advice")}


def _checked(kind: str, table: object) -> dict[str, Any]:
    """The values of a table. Raises _Wrong."""
    if not isinstance(table, dict):
        raise _Wrong("must be a table")
    keys = _KEYS[kind]
    if unknown := set(table) - set(keys):
        raise _Wrong(f"unknown key {min(unknown)} (known: {', '.join(keys)})")
    if missing := [key for key in _NEEDED.get(kind, ("regex",)) if key not in table]:
        raise _Wrong(f"{missing[0]} is missing")
    values = {}
    for key, value in table.items():
        try:
            values[key] = _CHECKS[key](value)
        except _Wrong as error:
            raise _Wrong(f"{key}: {error}") from None
    return values


@dataclass
class _Reading:
    """What the files read so far hold."""

    milestones: list[Milestone] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    notes: dict[str, list[re.Pattern[str]]] = field(default_factory=lambda: {kind: [] for kind in _NOTES})
    kinds: list[Kind] = field(default_factory=list)
    of_kinds: dict[str, Failure] = field(default_factory=dict)
    frames: list[FrameRule] = field(default_factory=list)
    features: list[Feature] = field(default_factory=list)
    words: dict[str, dict[str, Words]] = field(default_factory=lambda: {"cause": {}, "words": {}})
    problems: list[str] = field(default_factory=list)

    def file(self, text: str, name: str) -> None:
        try:
            raw = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            self.problems.append(f"{name}: {error}")
            return
        for kind, tables in raw.items():
            if kind in self.words and isinstance(tables, dict):
                for slug, table in tables.items():
                    words = Words(
                        str(table.get("title", slug if kind == "cause" else "")), tuple(table.get("advice", ()))
                    )
                    self.words[kind].setdefault(slug, words)
            elif kind not in _KEYS or not isinstance(tables, list):
                known = "milestone, failure, kind, frame, feature, note, warning, benign"
                self.problems.append(f"{name}: unknown table {kind} (known: {known})")
            else:
                for at, table in enumerate(tables, 1):
                    try:
                        self._table(kind, table)
                    except _Wrong as error:
                        label = table.get("id") if isinstance(table, dict) else None
                        label = f" ({label})" if isinstance(label, str) else ""
                        self.problems.append(f"{name}: {kind} {at}{label}: {error}")

    def _table(self, kind: str, table: object) -> None:
        values = _checked(kind, table)
        if kind == "milestone":
            self.milestones.append(Milestone(values["id"], values["regex"], values["event"], values.get("example")))
        elif kind == "failure":
            self.failures.append(Failure(**values))
        elif kind == "frame":
            self.frames.append(FrameRule(**values))
        elif kind == "feature":
            self.features.append(Feature(**values))
        elif kind == "kind":
            self._kind(values)
        else:
            self.notes[kind].append(values["regex"])

    def _kind(self, values: dict[str, Any]) -> None:
        tests = {name: values[name] for name in _TESTS if name in values}
        says = {name: values[name] for name in ("cause", "title", "advice", "set", "example") if name in values}
        self.kinds.append(Kind(values["id"], **tests))
        self.of_kinds.setdefault(values["id"], Failure(values["id"], EXCEPTION, "exception", **says))


@cache
def patterns() -> Patterns:
    """Our tables and the user's. Never raises for a user's file."""
    found = _Reading()
    directory = config_dir() / "patterns"
    for path in sorted(directory.glob("*.toml")) if directory.is_dir() else ():
        try:
            found.file(path.read_text(encoding="utf-8"), str(path))
        except (OSError, UnicodeDecodeError) as error:
            found.problems.append(f"{path}: cannot be read: {error}")
    for name in _OURS:
        found.file(resources.files("tui.data").joinpath(name).read_text(encoding="utf-8"), name)
    return Patterns(
        milestones=tuple(found.milestones),
        failures=tuple(found.failures),
        notes=AnyOf(found.notes["note"]),
        warnings=AnyOf(found.notes["warning"]),
        benign=AnyOf(found.notes["benign"]),
        kinds=tuple(found.kinds),
        of_kinds=found.of_kinds,
        frames=tuple(found.frames),
        features=tuple(found.features),
        causes=found.words["cause"],
        words=found.words["words"],
        problems=tuple(found.problems),
    )
