"""Stored records: frozen dataclasses as JSON, one file each in a directory; the one converter for all of them.

Reading trusts nothing: a value of another type is a ValueError that names its place, keys that this version doesn't
know are left out, every text is made safe to print, numbers that aren't finite become None. pydantic checks the types;
it takes a tenth of a second to load, so it is imported when the first record is read.
"""

import dataclasses
import functools
import json
import math
import os
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tui.core.config import data_dir, write_whole
from tui.core.errors import UsageError
from tui.core.masking.known import hidden
from tui.core.text import one_line, read_json, sanitize

if TYPE_CHECKING:
    from pydantic_core import SchemaValidator

T = TypeVar("T")

_MAX_DEPTH = 60
_LARGEST = 2**63  # no count, time or rate of ours is larger; such a number could no longer be printed
_SIZE_LIMIT = 8 << 20  # bytes of one record; far above what any of ours needs


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


def picked(value: object, words: str) -> dict[str, Any]:
    """Attributes of an object as JSON, in the order of `words`: `name` each, or `key=name.of.one.below`.

    None where an attribute on the way is.
    """
    return {key: to_json(at(value, path)) for key, path in paths(words)}


def at(value: object, path: Iterable[str]) -> Any:
    """What is at a path of attributes; None where one on the way is."""
    return functools.reduce(lambda found, name: None if found is None else getattr(found, name), path, value)


@functools.cache
def paths(words: str) -> tuple[tuple[str, list[str]], ...]:
    parts = [word.partition("=") for word in words.split()]
    return tuple((key, (path or key).split(".")) for key, _, path in parts)


def from_json(kind: type[T], raw: object) -> T:
    """The dataclass `kind` from its JSON value; ValueError says which field is wrong."""
    from pydantic import ValidationError

    text = json.dumps(_clean(raw))  # read as JSON, a list is a tuple and a text an enum, and nothing else is converted
    try:
        found: T = _validator(kind).validate_json(text, strict=True)  # type: ignore[arg-type]  # a type is hashable
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or kind.__name__
        raise ValueError(f"{place}: {first['msg']}") from None
    return found


@functools.cache
def _field_names(kind: type) -> tuple[str, ...]:
    return tuple(each.name for each in dataclasses.fields(kind))


@functools.cache
def _validator(kind: Any) -> "SchemaValidator":
    from pydantic import TypeAdapter
    from pydantic_core import SchemaValidator

    return SchemaValidator(_bounded(TypeAdapter(kind).core_schema))


def _bounded(schema: Any) -> Any:
    """pydantic's schema with every number of a known place limited to what can be measured."""
    if isinstance(schema, list | tuple):
        return type(schema)(map(_bounded, schema))
    if not isinstance(schema, dict):
        return schema
    limits = {"ge": -_LARGEST, "le": _LARGEST} if schema.get("type") in ("int", "float") else {}
    return {key: _bounded(value) for key, value in schema.items()} | limits


def _clean(raw: Any, depth: int = 0) -> Any:
    """A JSON value with every text safe to print, and numbers that are finite."""
    if isinstance(raw, str):
        return raw if raw.isprintable() else sanitize(raw)  # all that isn't safe isn't printable
    if isinstance(raw, float) and not math.isfinite(raw):
        return None
    if isinstance(raw, list | dict) and depth == _MAX_DEPTH:
        raise ValueError("it is nested too deeply")
    if isinstance(raw, list):
        return [_clean(item, depth + 1) for item in raw]
    if isinstance(raw, dict):
        return {_clean(key): _clean(item, depth + 1) for key, item in raw.items()}
    return raw


def _left_out(names: list[str], why: str) -> str:
    some = ", ".join(one_line(name, 80) for name in names[:5]) + (" …" if len(names) > 5 else "")
    return f"{len(names)} file{'s' * (len(names) != 1)} left out, {why}: {some}"


Stamp = tuple[int, int, int]  # time, size and inode of a file: others where it was replaced


def stamp_of(info: os.stat_result) -> Stamp:
    """What changes when a file does."""
    return info.st_mtime_ns, info.st_size, info.st_ino


@dataclass(frozen=True, eq=False)
class RecordFiles(Generic[T]):
    """The records of one kind: a JSON file each in a directory below the data directory, named by the record's id.

    A file is written under a temporary name and renamed, so that a kill at any moment leaves the old or the new
    content, and two panels can write at once. One that can't be read hides no other: it is left out, and `unreadable`
    names it. A file is read again only when it has changed.

    Attributes:
        fits: what must hold beyond the types.
    """

    kind: type[T]
    directory_name: str
    id_of: Callable[[T], str]
    fits: Callable[[T], bool] = lambda _: True
    indent: int | None = 1
    _known: dict[Path, tuple[Stamp, T | None]] = field(default_factory=dict)  # None: can't be read

    @property
    def directory(self) -> Path:
        return data_dir() / self.directory_name

    def path(self, record_id: str) -> Path:
        return self.directory / f"{record_id}.json"

    def write(self, record: T) -> None:
        """Stores a record, replacing the one of the same id. Raises UsageError where that is a newer eagletui's."""
        path = self.path(self.id_of(record))
        if self.read(path.stem) is None and self._is_newer(path):
            raise UsageError(f"{path} was written by a newer eagletui", "upgrade eagletui; the file was left as it is")
        text = json.dumps(hidden(to_json(record)), ensure_ascii=False, indent=self.indent, allow_nan=False) + "\n"
        write_whole(path, text.encode("utf-8", "backslashreplace"))

    def read(self, record_id: str) -> T | None:
        """The record of this id; None where there is none, or it can't be read."""
        known = self._look(self.path(record_id))
        return known[1] if known else None

    def read_all(self) -> list[T]:
        """All records that can be read, in no order."""
        return [record for _, record in self._all() if record is not None]

    def unreadable(self) -> list[str]:
        """The names of the files that are not records of this version: broken, foreign or newer."""
        return sorted(path.name for path, record in self._all() if record is None)

    def unreadable_words(self) -> str | None:
        """ "…/results: 2 files left out, broken: a.json, b.json", and those of a newer eagletui; None where all can be read."""
        names = self.unreadable()
        newer = [name for name in names if self._is_newer(self.directory / name)]
        broken = [name for name in names if name not in newer]
        left_out = [(broken, "broken"), (newer, "written by a newer eagletui and not touched (upgrade to read them)")]
        said = "; ".join(_left_out(some, why) for some, why in left_out if some)
        return f"{self.directory}: {said}" if said else None

    def _is_newer(self, path: Path) -> bool:
        """Whether a file is a record of a later version of the format."""
        try:
            with open(path, "rb") as file:
                raw = read_json(file.read(_SIZE_LIMIT))
        except (OSError, ValueError):
            return False
        of = raw.get("schema") if isinstance(raw, dict) else None
        return isinstance(of, int) and of > getattr(self.kind, "schema", of)

    def _all(self) -> list[tuple[Path, T | None]]:
        directory = self.directory
        try:
            names = [name for name in os.listdir(directory) if name.endswith(".json") and name[0] != "."]
        except OSError:
            return []
        paths = [directory / name for name in names]
        return [(path, known[1]) for path in paths if (known := self._look(path)) is not None]

    def _look(self, path: Path) -> tuple[Stamp, T | None] | None:
        try:
            info = os.stat(path)
        except OSError:
            self._known.pop(path, None)
            return None
        stamp = stamp_of(info)
        known = self._known.get(path)
        if known is None or known[0] != stamp:
            whole = stat.S_ISREG(info.st_mode) and info.st_size <= _SIZE_LIMIT
            known = self._known[path] = stamp, self._load(path) if whole else None
        return known

    def _load(self, path: Path) -> T | None:
        try:
            with open(path, "rb") as file:
                raw = read_json(file.read(_SIZE_LIMIT + 1))
            expected = getattr(self.kind, "schema", None)  # the default of the field, where the kind has versions
            if not isinstance(raw, dict) or raw.get("schema", expected) != expected:
                return None
            record = from_json(self.kind, raw)
        except (OSError, ValueError):
            return None
        return record if self.id_of(record) == path.stem and self.fits(record) else None
