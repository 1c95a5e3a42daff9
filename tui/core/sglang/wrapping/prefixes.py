"""Prefixes that nobody told us about: their structure is learned from the lines that show where their own text begins.

A prefix is cut into tokens (words, numbers, times, punctuation, blanks). Prefixes of the same shape make one template; what
is alike in all of them stays as it is, what differs becomes any token of its class. Containers in one stream are told by a name
in it that differs; the one with the server is read.
"""

import re
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from tui.core.sglang.lineshape import EXCEPTION, FRAME, TAG
from tui.core.sglang.wrapping.engines import is_sglang
from tui.core.sglang.wrapping.envelopes import ENVELOPE, envelope_at, stamp_of
from tui.core.sglang.wrapping.line import (
    HEAD,
    STAMP,
    Line,
    Maker,
    inner_record_at,
    message_at,
    printed_at,
    record_at,
    says_something,
    written,
)

_MOST, _ALL = 0.9, 0.98  # of the lines
_WORD = r"\w+(?:[./@+-]\w+|:\d+){0,40}"
_TOKEN = re.compile(_WORD + r"|[ \t]+|[^\w \t]")
_NUMBER = rf"(?=[A-Za-z_./:@+-]{{0,60}}\d){_WORD}"
_NAME = re.compile(r"\w")
_DIGITS = re.compile(r"[0-9]+")
_TOKENS = 60  # of a prefix
_TEMPLATES = 16
_TRIED = 200  # lines from which a common beginning is judged
_LEVELS = re.compile(
    r"(?i)(?:trace|debug|info|notice|warn(?:ing)?|error|err|critical|fatal|exception|std(?:out|err)|[diwef])$"
)
_TIME = re.compile(r"\d+(?:[./:T+-]?\d)*Z?$|\d{4}-\d\d-\d\dT.*")
_CONTAINERS = 64
_OF_A_RECORD, _WAITING = 400, 200  # lines of a record, records held back
_HEAD = re.compile(r"\d\d:\d\d:\d\d|\b(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\b")
_SOURCE = re.compile(r"    |\w+(?:\.\w+)*(?:Error|Exception)\b")
_HOST = re.compile(r"(?:^|\W)(?:kernel|systemd|slurmstepd|srun|dockerd|containerd|kubelet)\b")


@dataclass(frozen=True)
class Token:
    """One place of a template."""

    text: str | None  # what stands there always, of a number with its digits as "0"; None: it differs
    kind: str  # "word", "number" (anything with a digit), "blank" or the sign itself

    @property
    def regex(self) -> str:
        if self.kind == "blank":
            return r"[ \t]+"  # names of another length stand in columns
        if self.kind == "number":
            return f"({_NUMBER if self.text is None else re.escape(self.text).replace('0', '[0-9]+')})"
        if self.kind == "word":
            return f"({re.escape(self.text) if self.text is not None else _WORD})"
        return re.escape(self.kind)


@dataclass(frozen=True)
class Template:
    """The structure of a prefix; `count` lines showed it."""

    tokens: tuple[Token, ...]
    count: int

    @property
    def signs(self) -> list[int]:
        """Places of its signs."""
        return [at for at, token in enumerate(self.tokens) if token.kind not in ("word", "number", "blank")]

    @property
    def told(self) -> bool:
        """Whether its signs alone tell it from other text: `name: ` would be found in any exception."""
        signs = self.signs
        return len(self.tokens) - sum(token.kind == "blank" for token in self.tokens) > 2 or (
            bool(signs) and self.tokens[signs[-1]].kind not in ":.,-"
        )

    @property
    def closed(self) -> bool:
        """Whether its last token, but for blanks, is a sign."""
        return bool(self.signs) and all(token.kind == "blank" for token in self.tokens[self.signs[-1] + 1 :])

    def compiled(self, loose: int = 0) -> re.Pattern[str]:
        """What finds it; `loose`: so many of its tokens may be any word. Blanks at its end may be lost, where nothing follows."""
        parts = [
            f"({_WORD})" if at < loose and token.kind in ("word", "number") else token.regex
            for at, token in enumerate(self.tokens)
        ]
        last = ""
        if self.tokens[-1].kind == "blank":  # what follows may begin with blanks of its own
            parts.pop()
            last = re.escape(self.tokens[-1].text) if self.tokens[-1].text is not None else r"[ \t]+"
        return re.compile("".join(parts) + (f"(?:{last}|[ \t]*$)" if last else ""))


def _kind(token: str) -> str:
    if token[0] in " \t":
        return "blank"
    if _NAME.match(token) is None:
        return token
    return "number" if any(letter.isdigit() for letter in token) else "word"


def _without_digits(token: str) -> str:
    return _DIGITS.sub("0", token)


def templates(prefixes: Iterable[str]) -> list[Template]:
    """Templates of these prefixes, the most frequent first."""
    shapes: dict[tuple[str, ...], list[list[str]]] = {}
    for prefix in prefixes:
        tokens = _TOKEN.findall(prefix)[:_TOKENS]
        shapes.setdefault(tuple(map(_kind, tokens)), []).append(tokens)
    found = []
    for kinds, rows in shapes.items():
        columns = [set(map(_without_digits, column)) for column in zip(*rows, strict=True)]
        places = (
            Token(next(iter(texts)) if len(texts) == 1 else None, kind)
            for kind, texts in zip(kinds, columns, strict=True)
        )
        found.append(Template(tuple(places), len(rows)))
    return sorted(found, key=lambda template: -template.count)[:_TEMPLATES]


def container_of(match: re.Match[str]) -> str:
    """The names in a prefix, without times and levels."""
    return " ".join(text for text in match.groups() if text and not _TIME.match(text) and not _LEVELS.match(text))


def process_of(match: re.Match[str]) -> str:
    """The same with whole numbers: process ids, ranks, tasks."""
    return " ".join(
        text for text in match.groups() if text and (text.isdigit() or not _TIME.match(text)) and len(text) < 60
    )


@dataclass(frozen=True)
class Containers:
    """Which of several containers in one stream has the server."""

    chosen: str | None = None
    others: tuple[str, ...] = ()
    together: bool = False  # several are of one server: their records are read one after the other


class Prefixed:
    """Lines with a prefix; those without stay as they are.

    Args:
        known: what finds the prefixes, the best first.
        stamped: the prefix is the record's own head, made by another format: a stamp of SGLang's form takes its place.
        containers: those whose lines are left out, and whether several are read together.
    """

    def __init__(self, known: Sequence[re.Pattern[str]], stamped: bool, containers: Containers) -> None:
        self._known, self._stamped = known, stamped
        self._left, self._together = frozenset(containers.others), containers.together
        self._records: deque[list[Line]] = deque()  # in the order in which they began
        self._open: dict[str, list[Line]] = {}  # by container: its newest record, one of those

    def take(self, lines: Iterable[Line]) -> list[Line]:
        found = []
        for line in lines:
            match = self.match(line.text)
            if match is None:
                found.append(line)
                continue
            if not self._left or container_of(match) not in self._left:
                line = line._replace(text=self._rest(match))
                found += self._of_a_record(process_of(match), line) if self._together else [line]
        return found

    def _of_a_record(self, name: str, line: Line) -> list[Line]:
        """Takes a line to the other lines of its record, between which other containers may have written."""
        record = self._open.get(name)
        if record is not None and not STAMP.match(line.text) and len(record) < _OF_A_RECORD:
            record.append(line)
        else:
            self._open[name] = [line]
            self._records.append(self._open[name])
        found = []
        open_ = {id(record) for record in self._open.values()}
        while self._records and (id(self._records[0]) not in open_ or len(self._records) > _WAITING):
            found += self._give()
        return found

    def _give(self) -> list[Line]:
        record = self._records.popleft()
        self._open = {name: held for name, held in self._open.items() if held is not record}
        return record

    def _rest(self, match: re.Match[str]) -> str:
        prefix, rest = match.group(), match.string[match.end() :]
        if prefix.endswith('="'):  # key="value" of logfmt
            rest = rest.removesuffix('"').replace('\\"', '"')
        return self._restamped(prefix, rest) if self._stamped else rest

    def match(self, text: str) -> re.Match[str] | None:
        """The prefix of a line."""
        if EXCEPTION.match(text[:HEAD]):  # `name: ` is a prefix of no other line
            return None
        for pattern in self._known:
            match = pattern.match(text, 0, HEAD) if len(text) > HEAD else pattern.match(text)
            if match is not None and match.end():
                return match
        return None

    def _restamped(self, prefix: str, rest: str) -> str:
        time = re.search(r"\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d", prefix)
        short = re.search(r"\d\d:\d\d:\d\d", prefix)
        stamp = stamp_of(time.group()) if time is not None else short.group() if short is not None else "00:00:00"
        tags = "".join(f" {tag}" for tag in re.findall(r"(?:(?<=\W)|^)" + TAG.strip() + r"(?=\W|$)", prefix))
        return f"[{stamp}{tags}] {rest}"

    def end(self) -> list[Line]:
        return [line for _ in range(len(self._records)) for line in self._give()]


def prefixes(lines: Sequence[Line]) -> tuple[Maker, Containers] | None:
    """The prefix of the lines, and the containers that it names."""
    rows = written(lines)
    found = learned(rows)
    if found is None:
        return None
    patterns, stamped, logger = found
    containers = Containers() if logger else _containers(Prefixed(patterns, stamped, Containers()), rows)
    return partial(Prefixed, patterns, stamped, containers), containers


def learned(lines: Sequence[Line]) -> tuple[list[re.Pattern[str]], bool, bool] | None:
    """What finds the prefixes; whether they are SGLang's own, of another format; whether they are of a logger."""
    rows = written(lines)
    messages = _of_another_format(rows)
    known = _of_another_stamp(rows) or messages
    for place in (record_at, message_at, printed_at, envelope_at):
        known = known or [(line, at) for line in rows if (at := place(line.text)) is not None]
    wrapped = [line.text[:at] for line, at in known or _alike(rows) if at]
    if not wrapped or len(wrapped) <= len(known) / 2:
        return None
    made = templates(_envelopes_apart(prefix) for prefix in wrapped)
    made = [template for template in made if template.tokens and template.count > len(wrapped) / 100]
    if not made:
        return None
    patterns = _patterns(made, rows)
    outer = _outer(made[0], rows, _share(patterns, rows))
    if outer is not None:
        return _patterns([outer], rows), False, _of_a_logger([outer])
    return patterns, bool(messages), bool(messages) or _of_a_logger(made)


def _patterns(made: Sequence[Template], rows: Sequence[Line]) -> list[re.Pattern[str]]:
    """What finds these prefixes, and then others of their structure."""
    found = [template.compiled() for template in made]
    for template in made:
        if template.signs and template.told:  # what stands behind the last sign could be the text's own first word
            found.append(template.compiled(loose=template.signs[-1]))
        elif (
            not template.signs
            and len(template.tokens) > 2
            and _share([any_ := template.compiled(loose=_TOKENS)], rows) > _ALL
        ):
            found.append(any_)
    return found


def _share(patterns: Sequence[re.Pattern[str]], rows: Sequence[Line]) -> float:
    """Of the lines, those of which one of the patterns finds a beginning."""
    return sum(any(pattern.match(line.text[:HEAD]) for pattern in patterns) for line in rows) / len(rows)


def _of_another_stamp(rows: Sequence[Line]) -> list[tuple[Line, int]]:
    """Lines where a stamp of SGLang's form is a wrapper's: records and frames stand behind it, and nearly all lines have one."""
    found = [(line, at) for line in rows if (at := inner_record_at(line.text)) is not None]
    if len(found) < 2 or sum(STAMP.match(line.text) is not None for line in rows) < _MOST * len(rows):
        return []
    return found


def _of_another_format(rows: Sequence[Line]) -> list[tuple[Line, int]]:
    """The messages of SGLang that its logger was told to print in another format, with their places; none where it was not.

    A traceback has no part in a format: where its frames have a prefix too, something wraps the whole log.
    """
    found = []
    for line in rows:
        at = message_at(line.text)
        stamp = STAMP.search(line.text[:HEAD])
        if (stamp is not None and at is not None) or (stamp is None and record_at(line.text)):
            return []
        if at:
            found.append((line, at))
    heads = sum(_HEAD.search(line.text[:at]) is not None for line, at in found)
    return found if heads > len(found) / 2 else []


def _envelopes_apart(prefix: str) -> str:
    """Without the beginning of an object or of a line of CRI: these are layers of their own."""
    match = ENVELOPE.search(prefix)
    return prefix if match is None else prefix[: match.start()]


def _of_a_logger(made: Sequence[Template]) -> bool:
    """Whether a prefix is the head of a logger's record, with a level: the names in it are no containers."""
    words = [token.text or "" for template in made for token in template.tokens if token.kind == "word"]
    return any(len(word) > 1 and _LEVELS.match(word) for word in words)


def _alike(rows: Sequence[Line]) -> list[tuple[Line, int]]:
    """Where nothing shows a record: what all the lines begin with, as far as most of them say something without it."""
    if len(rows) < 3:
        return []
    heads = [_TOKEN.findall(line.text[:HEAD])[:_TOKENS] for line in rows]
    best, most = 0, 0
    for at, column in enumerate(zip(*heads, strict=False), 1):
        kinds = set(map(_kind, column))
        if len(kinds) > 1 or ("word" in kinds and len(set(column)) > 1) or ENVELOPE.match("".join(heads[0][at - 1 :])):
            break
        if not kinds & {"word", "number"}:  # else it would end within a word
            some = zip(rows[:_TRIED], heads, strict=False)
            gained = sum(_says(line.text[len("".join(tokens[:at])) :]) - _says(line.text) for line, tokens in some)
            best, most = (at, gained) if gained > most else (best, most)
    return [(line, len("".join(tokens[:best]))) for line, tokens in zip(rows, heads, strict=True)] if best else []


def _says(text: str) -> bool:
    return ENVELOPE.match(text) is not None or says_something(text)


def _outer(template: Template, rows: Sequence[Line], whole: float) -> Template | None:
    """The part of a prefix that nearly all lines have, where not all have the whole."""
    if whole >= _MOST:
        return None
    parts = []
    for end in range(len(template.tokens) - 1, 1, -1):
        tokens = template.tokens[:end]
        if tokens[-1].kind == "blank":  # further blanks may be what comes next in columns
            parts += [Template(tokens, template.count), Template((*tokens[:-1], Token(" ", "blank")), template.count)]
        elif tokens[-1].kind not in ("word", "number") and template.tokens[end].kind != "blank":
            parts.append(Template(tokens, template.count))
    alike = (part for part in parts if _share([part.compiled()], rows) >= _MOST)
    # With any names in it, where a sign closes it: else the first word of the text would be one of them.
    closed = (part for part in parts if part.told and part.closed and _share(_patterns([part], rows), rows) >= _MOST)
    return next(alike, None) or next(closed, None)


def _containers(layer: Prefixed, rows: Sequence[Line]) -> Containers:
    """The container with the server, where a prefix names several; those of one server are read together."""
    names: Counter[str] = Counter()
    marks: Counter[str] = Counter()
    tags: dict[str, set[str]] = {}
    dead: set[str] = set()
    matches = [match for line in rows if (match := layer.match(line.text)) is not None]
    for match in matches:
        name, rest = container_of(match), match.string[match.end() :]
        names[name] += 1
        stamp = STAMP.search(rest[:HEAD])
        if stamp is not None or is_sglang(rest):
            marks[name] += 1
            tags.setdefault(name, set()).add(stamp["tags"].strip() if stamp is not None else "")
            if "hit an exception" in rest or "Received sigquit" in rest:
                dead.add(name)
    if len(names) > _CONTAINERS or not marks:
        return Containers()
    chosen = max(marks, key=lambda name: (name in dead, marks[name]))
    mine = tags[chosen] - {""}
    # Nodes of one server log ranks of their own each; two servers log the same ranks.
    with_it = {name for name in marks if name == chosen or (mine and tags[name] - {""} and not mine & tags[name])}
    others = [name for name in names if name not in with_it and _HOST.search(name) is None]
    return Containers(chosen if others else None, tuple(others), _mixed(matches))


def _mixed(matches: Sequence[re.Match[str]]) -> bool:
    """Whether processes write between the lines of each other's tracebacks.

    A number in a prefix that is none of a process gives it away: its tracebacks would not go on with a frame, nor its
    frames with a line of source.
    """
    expected: dict[str, re.Pattern[str]] = {}  # by process: what its next line must be
    previous, broken, begun, whole = "", 0, 0, 0
    for match in matches:
        process, rest = process_of(match), match.string[match.end() :]
        if (shape := expected.pop(process, None)) is not None:
            begun += 1
            whole += shape.match(rest) is not None
        if rest.endswith("(most recent call last):"):
            expected[process] = FRAME
        elif FRAME.match(rest):
            expected[process] = _SOURCE
        broken += process != previous and not STAMP.match(rest)
        previous = process
    return broken > 0 and begun > 0 and whole >= begun * 0.8
