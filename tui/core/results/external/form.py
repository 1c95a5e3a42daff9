"""The interface of a form in which a tool prints or writes benchmarks: what it is recognised by, and its reader.

To read another tool's results, describe its forms in `benchmarks.toml` or in a module beside this one, and add these to
the tables in `forms.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tui.core.results.external.posted import Posted, number_of, times
from tui.core.results.external.shapes import statistics, take_all
from tui.core.results.external.tables import Table

_MOST = 10_000  # records of one object


class TableReader(Protocol):
    """A table, recognised by its head."""

    def fits(self, head: Sequence[str], drawn: bool) -> bool: ...

    def read(self, table: Table) -> list[Posted]:
        """No record where its rows are not what the head promised."""
        ...


@dataclass(frozen=True)
class ObjectForm:
    """A JSON object, recognised by its keys. A path `a>b` is the key b of the object, or of the first object of the list, under a.

    Attributes:
        keys: all of one of these are there.
        figures: their path to ours, with a factor where our unit is another; the first of several that is there.
        distributions: the same of objects that hold statistics.
        under: objects in it whose keys are labels (`shapes.take_all`); "" is the object itself.
        prefix: of those labels.
        each: the list whose objects are records.
        more: what else it says.
    """

    tool: str
    kind: str
    keys: Sequence[Sequence[str]]
    figures: Mapping[str, Any] = field(default_factory=dict)
    distributions: Mapping[str, Any] = field(default_factory=dict)
    under: Sequence[str] = ()
    prefix: str = ""
    each: str = ""
    more: Callable[[Posted, Mapping[str, Any]], None] | None = None

    def fits(self, raw: Mapping[str, Any]) -> bool:
        return any(all(at_path(raw, path) is not _MISSING for path in paths) for paths in self.keys)

    def read(self, raw: Mapping[str, Any]) -> list[Posted]:
        items = raw.get(self.each) if self.each else [raw]
        return (
            [self._record(item) for item in items[:_MOST] if isinstance(item, dict)] if isinstance(items, list) else []
        )

    def _record(self, raw: Mapping[str, Any]) -> Posted:
        posted = Posted(self.tool, self.kind)
        for path, ours in self.figures.items():
            name, factor = (ours, None) if isinstance(ours, str) else ours
            value = at_path(raw, path)
            posted.put(name, None if value is _MISSING else value if factor is None else scaled(value, factor))
        for path, (name, factor) in self.distributions.items():
            value = at_path(raw, path)
            for point, number in statistics(value) if isinstance(value, Mapping) else ():
                posted.put(f"{point}_{name}", times(number, factor))
        for path in self.under:
            value = at_path(raw, path) if path else raw
            if isinstance(value, Mapping):
                take_all(posted, value, self.prefix)
        if self.more is not None:
            self.more(posted, raw)
        return posted


_MISSING: Any = object()


def at_path(value: Any, path: str) -> Any:
    for key in path.split(">"):
        if isinstance(value, list):
            value = value[0] if value else None
        if not isinstance(value, Mapping) or key not in value:
            return _MISSING
        value = value[key]
    return value


def has(raw: Mapping[str, Any], path: str) -> bool:
    """Whether an object has a path."""
    return at_path(raw, path) is not _MISSING


def scaled(value: object, factor: float) -> float | None:
    """A number in another unit; None for anything else."""
    number = number_of(value) if type(value) in (int, float) else None
    return None if number is None else times(number, factor)
