"""Hostile text in every place where a text can be: sequences that a terminal obeys, markup, a secret."""

import dataclasses
import re
from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeVar

T = TypeVar("T")
SECRET = "plantedSECRETvalue42"
# Colour, clipboard, title, a question that the terminal answers, 8-bit forms, bell, backspace, return, other direction.
SEQUENCES = "\x1b[31m\x1b]52;c;UFdORUQ=\x07\x1b]0;owned\x1b\\\x1b[6n\x9b2J\x9d52;c;UFdO\x9c\x07\x08\r\x7f\u202eabc\u2066\x1bP+q\x1b\\"
HOSTILE = f"{SEQUENCES}[bold red]m[/][@click=app.quit]k[/]{SECRET}"
STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")


def planted(value: T, *, keep: frozenset[str] = frozenset()) -> T:
    """A value of frozen dataclasses with hostile text behind every text in it, at any depth.

    Args:
        keep: fields that stay: what names something, or is read as a time.
    """
    return _planted(value, keep)


def _planted(value: Any, keep: frozenset[str]) -> Any:
    if isinstance(value, Enum):
        return value
    if isinstance(value, str):
        return value + HOSTILE
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [field.name for field in dataclasses.fields(value) if field.init and field.name not in keep]
        return dataclasses.replace(value, **{name: _planted(getattr(value, name), keep) for name in fields})
    if isinstance(value, Mapping):
        return {key: _planted(item, keep) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_planted(item, keep) for item in value))
    if isinstance(value, tuple | list | frozenset):
        return type(value)(_planted(item, keep) for item in value)
    return value


def leaks(text: str) -> list[str]:
    """What should not have come through: characters that steer a terminal, and the secret."""
    found = [
        f"U+{ord(char):04X} in {text[max(0, at - 30) : at + 30]!r}"
        for at, char in enumerate(text)
        if STEERING.match(char)
    ]
    return found + ([f"the secret in {text[:200]!r}"] if SECRET in text else [])
