"""Secrets by their values: whatever was given as one is masked in every text that is shown or stored.

Who reads a profile, an environment or a command line tells `learn`. A value is found in full, in an address, in base64
at any alignment, URL-encoded, JSON- and shell-escaped, and where `…` or the end of a text cut it. Values that are too
short (`SHORTEST`) or plain words of configurations are masked beside their names alone (`tui.core.masking.written`).

A text is looked through once, in time that doesn't depend on how many values are known: of every needle some four bytes lie
at an even place divisible by four, and all such fours are in one set. Only where one of them is seen do patterns run.
"""

import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tui.core.text import sanitize

MASK = "***"
SHORTEST = 6  # characters; shorter ones stand in too many texts by chance
_BOUNDED = 8  # shorter ones are found only where no letter or digit stands beside them
_CUT = 8  # characters of a secret that are recognised without the rest
_LONGEST = 8192  # characters
_WORDS = frozenset(
    "bearer default disabled enabled optional required secret secrets password passwd api_key api-key apikey token unknown"
    " nothing changeme".split()
)
_GRAM = 4  # bytes


def _spellings(value: str) -> set[str]:
    """How a value may stand in a text."""
    import json
    from urllib.parse import quote, quote_plus

    escaped = json.dumps(value)[1:-1]
    found = {quote(value, safe=safe) for safe in ("", "/", "/:@", "~!*'()", "-_.!~*'()/:?@&=+$,#;")}
    found.add("".join(char if char.isalnum() and char.isascii() else _percent(char) for char in value))
    found |= {quote_plus(value), *(re.sub("%..", lambda match: match[0].lower(), each) for each in [*found])}
    found |= {value, escaped, json.dumps(value, ensure_ascii=False)[1:-1], json.dumps(escaped)[1:-1]}
    found |= {each.replace("/", "\\/") for each in (value, escaped)}
    found |= {repr(value)[1:-1], value.replace("'", "'\\''"), value.replace("'", "'\"'\"'")}
    as_html = value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return found | {as_html, as_html.replace('"', "&quot;"), as_html.replace('"', "&quot;").replace("'", "&#x27;")}


def _percent(char: str) -> str:
    return "".join(f"%{byte:02X}" for byte in char.encode("utf-8", "backslashreplace"))


def _encoded(value: bytes) -> Iterator[bytes]:
    """The characters of base64 that a value alone decides, wherever it begins in what is encoded."""
    for shift in range(3):
        text = b64encode(b"\0" * shift + value)
        core = text[-(-shift * 8 // 6) : (shift + len(value)) * 8 // 6]
        yield core
        yield core.translate(bytes.maketrans(b"+/", b"-_"))


class _Value:
    """One secret: what to look for, and the pattern that masks it."""

    def __init__(self, value: str) -> None:
        self.text = value
        plain = {spelling.encode("utf-8", "backslashreplace") for spelling in _spellings(value)}
        coded = set(_encoded(value.encode("utf-8", "backslashreplace")))
        self.needles = plain | coded
        literal = b"|".join(re.escape(each) for each in sorted(plain, key=len, reverse=True))
        if len(value) < _BOUNDED:
            literal = rb"(?<![A-Za-z0-9])(?:" + literal + rb")(?![A-Za-z0-9])"
        # The characters on both sides hold some bits of it.
        base64 = b"|".join(map(re.escape, coded))
        self._pattern = re.compile(literal + rb"|[\w+/-]?(?:" + base64 + rb")(?:[\w+/-]{0,2}=|[\w+/-])?")

    def mask(self, data: bytes) -> bytes:
        return self._pattern.sub(MASK.encode(), data)

    def mask_cut(self, text: str) -> str:
        """The same of what is left of it before or behind `…`, and at the end of the text."""
        parts = text.split("…")
        for at, part in enumerate(parts):
            longest = min(len(part), len(self.text) - 1)
            for size in range(longest, _CUT - 1, -1):
                if part.endswith(self.text[:size]):
                    part = part[:-size] + MASK
                    break
            if at:
                for size in range(min(len(part), longest), _CUT - 1, -1):
                    if part.startswith(self.text[-size:]):
                        part = MASK + part[size:]
                        break
            parts[at] = part
        return "…".join(parts)


class _Known:
    """All secrets of this process."""

    def __init__(self) -> None:
        self.values: dict[str, _Value] = {}
        self.longest = 0  # bytes of the longest spelling
        self._grams: dict[int, list[_Value]] = {}
        self._starts: tuple[int, ...] = (
            0,
        )  # where the fours that are looked at begin: two rows of them where a needle is short

    def add(self, value: str) -> None:
        known = self.values[value] = _Value(value)
        for needle in known.needles:
            self.longest = max(self.longest, len(needle))
            if len(needle) < 2 * _GRAM - 1:
                self._starts = (0, 2)
            for at in range(len(needle) - _GRAM + 1):
                owners = self._grams.setdefault(_gram(needle[at : at + _GRAM]), [])
                if known not in owners:
                    owners.append(known)

    def suspects(self, data: bytes) -> list[_Value]:
        """The secrets that may stand in these bytes; almost always none."""
        found: dict[str, _Value] = {}
        for start in self._starts:
            end = start + max(0, len(data) - start) // _GRAM * _GRAM
            fours = memoryview(data)[start:end].cast("I")
            if not self._grams.keys().isdisjoint(fours):
                found |= {each.text: each for four in self._grams.keys() & set(fours) for each in self._grams[four]}
        return sorted(found.values(), key=lambda each: len(each.text), reverse=True)


def _gram(four: bytes) -> int:
    return memoryview(four).cast("I")[0]


_known = _Known()
_names: set[str] = set()
_sources: list[Callable[[], object]] = []


def learn(*values: str) -> None:
    """These are secrets from now on, wherever they stand; the parts of a list and each line too."""
    for value in values:
        parts = {value, value.strip(), *(line.strip() for line in value.splitlines())}
        parts |= {part.strip() for part in re.split("[,;]", value) if len(part.strip()) >= 2 * _BOUNDED}
        if scheme := re.match(r"(?i)(?:basic|bearer|token|digest) +(\S+)", value):
            parts.add(scheme[1])
        for part in parts:
            if SHORTEST <= len(part) <= _LONGEST and part not in _known.values and not _commonplace(part):
                _known.add(part)


def _commonplace(value: str) -> bool:
    lower = value.lower()
    return lower in _WORDS or set(lower) <= set("*•x.-") or (value.isdigit() and len(value) < _BOUNDED)


def learn_names(names: Iterable[str]) -> None:
    """Variables and flags of these names hold secrets, whatever they are called."""
    _names.update(_plain_name(name) for name in names)


def named_secret(name: str) -> bool:
    """Whether a profile says of this variable or flag that it holds a secret."""
    return bool(_names) and _plain_name(name) in _names


def _plain_name(name: str) -> str:
    return name.removeprefix("env.").removeprefix("args.").lstrip("-").replace("_", "-").lower()


def learn_later(source: Callable[[], object]) -> None:
    """Called before the first text is masked: it reads what is only needed then, and calls `learn`."""
    _sources.append(source)


def forget() -> None:
    """Nothing is known any more, as in a new process."""
    _known.__init__()  # type: ignore[misc]
    _names.clear()
    _sources.clear()


def _ready() -> _Known:
    while _sources:
        _sources.pop()()
    return _known


def holds_known(text: str) -> bool:
    """Whether a known secret stands in a text, in any spelling."""
    data = text.encode("utf-8", "surrogatepass")
    return hide_bytes(data) != data


def longest_known() -> int:
    """Bytes of the longest spelling: so much of a stream may be the beginning of a secret."""
    return _ready().longest


def hide_bytes(data: bytes) -> bytes:
    """The bytes with every known secret masked; all others unchanged."""
    known = _ready()
    if not known.values or not known.suspects(data):
        return data
    lines = data.splitlines(keepends=True)  # few of them hold one, and patterns are slow
    for at, line in enumerate(lines):
        for value in known.suspects(line):
            lines[at] = value.mask(lines[at])
    return b"".join(lines)


def hide(text: str) -> str:
    """The text with every known secret masked, and what is left of one that was cut."""
    known = _ready()
    if not known.values or len(text) < SHORTEST:
        return text
    data = text.encode("utf-8", "surrogatepass")
    if not (suspects := known.suspects(data)):
        return text
    for value in suspects:
        data = value.mask(data)
    shown = data.decode("utf-8", "surrogatepass")
    for value in suspects:
        shown = value.mask_cut(shown)
    return shown


def shown(text: str) -> str:
    """The one gate to a terminal: no control character or escape sequence, and no known secret."""
    return hide(sanitize(text))


def hidden(document: Any) -> Any:
    """A JSON value with every known secret in its texts and keys masked."""
    if isinstance(document, str):
        return hide(document)
    if isinstance(document, dict):
        return {hide(key) if isinstance(key, str) else key: hidden(value) for key, value in document.items()}
    return [hidden(item) for item in document] if isinstance(document, list | tuple) else document
