"""Frozen dataclasses to JSON values and back, by their annotations: nested dataclasses, enums, tuples, mappings.

Reading trusts nothing: a value of another type is a ValueError that names its place, keys that this version doesn't
know are left out, every text is made safe to print. Numbers that aren't finite become None.
"""

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from tui.core.text import sanitize

T = TypeVar("T")
Decode = Callable[[Any], Any]

_MAX_DEPTH = 60
_LARGEST = 2**63  # no count, time or rate of ours is larger; such a number could be printed no more


def to_json(value: object) -> Any:
    """A JSON value for a dataclass, or anything that one holds."""
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: to_json(getattr(value, name)) for name in _field_names(type(value))}
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_json(item) for item in value]
    return str(value)


def from_json(kind: type[T], raw: object) -> T:
    """The dataclass `kind` from its JSON value; ValueError says which field is wrong."""
    found: T = _dataclass_decoder(typing.cast(type, kind))(raw)
    return found


@functools.cache
def _field_names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


@functools.cache
def _dataclass_decoder(kind: type) -> Decode:
    hints = typing.get_type_hints(kind)
    decoders = {name: _decoder(hints[name]) for name in _field_names(kind)}

    def decode(raw: Any) -> Any:
        if not isinstance(raw, dict):
            raise ValueError(f"{kind.__name__} is no object")
        values = {}
        for name, of_field in decoders.items():
            if name in raw:
                try:
                    values[name] = of_field(raw[name])
                except ValueError as error:
                    raise ValueError(f"{name}: {error}") from None
        try:
            return kind(**values)
        except TypeError as error:
            raise ValueError(str(error)) from None  # a field without a default is missing

    return decode


def _decoder(hint: Any) -> Decode:
    origin = typing.get_origin(hint)
    if origin in (types.UnionType, typing.Union):
        return _union_decoder([_decoder(option) for option in typing.get_args(hint)])
    if origin is tuple:
        options = typing.get_args(hint)
        if len(options) == 2 and options[1] is Ellipsis:
            return _sequence_decoder(_decoder(options[0]))
        return _pair_decoder([_decoder(option) for option in options])
    if origin is not None and issubclass(origin, Mapping):
        return _mapping_decoder(_decoder(typing.get_args(hint)[1]))
    if dataclasses.is_dataclass(hint):
        return _dataclass_decoder(typing.cast(type, hint))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint
    return _PLAIN[hint]


def _union_decoder(options: list[Decode]) -> Decode:
    def decode(raw: Any) -> Any:
        problem = "is no such value"
        for option in options:
            try:
                return option(raw)
            except ValueError as error:
                if option is not _none:
                    problem = str(error)
        raise ValueError(problem)

    return decode


def _sequence_decoder(item: Decode) -> Decode:
    def decode(raw: Any) -> Any:
        if not isinstance(raw, list):
            raise ValueError("is no list")
        return tuple(item(value) for value in raw)

    return decode


def _pair_decoder(items: list[Decode]) -> Decode:
    def decode(raw: Any) -> Any:
        if not isinstance(raw, list) or len(raw) != len(items):
            raise ValueError(f"is no list of {len(items)}")
        return tuple(item(value) for item, value in zip(items, raw, strict=True))

    return decode


def _mapping_decoder(item: Decode) -> Decode:
    def decode(raw: Any) -> Any:
        if not isinstance(raw, dict):
            raise ValueError("is no object")
        return {_safe(key): item(value) for key, value in raw.items()}

    return decode


def _safe(text: str) -> str:
    return text if text.isprintable() else sanitize(text)  # all that isn't safe isn't printable


def _text(raw: Any) -> str:
    if not isinstance(raw, str):
        raise ValueError("is no text")
    return _safe(raw)


def _integer(raw: Any) -> int:
    if type(raw) is not int:
        raise ValueError("is no whole number")
    if abs(raw) > _LARGEST:
        raise ValueError("is no number that can be measured")
    return raw


def _number(raw: Any) -> float:
    try:
        number = float(raw) if type(raw) in (int, float) else math.nan
    except OverflowError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError("is no finite number")
    if abs(number) > _LARGEST:
        raise ValueError("is no number that can be measured")
    return number


def _truth(raw: Any) -> bool:
    if not isinstance(raw, bool):
        raise ValueError("is neither true nor false")
    return raw


def _none(raw: Any) -> None:
    if raw is not None:
        raise ValueError("is not null")


def _anything(raw: Any, depth: int = 0) -> Any:
    kind = type(raw)
    if kind is str:
        return _safe(raw)
    if kind is float:
        return raw if math.isfinite(raw) else None
    if kind is list or kind is dict:
        if depth == _MAX_DEPTH:
            raise ValueError("is nested too deeply")
        if kind is list:
            return [_anything(item, depth + 1) for item in raw]
        return {_safe(key): _anything(item, depth + 1) for key, item in raw.items()}
    return raw


_PLAIN: dict[Any, Decode] = {
    str: _text,
    int: _integer,
    float: _number,
    bool: _truth,
    type(None): _none,
    Path: lambda raw: Path(_text(raw)),
    object: _anything,
    Any: _anything,
}
