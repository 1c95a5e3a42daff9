"""The interface of a form in which a tool prints or writes benchmarks: what it is recognised by, and its reader.

To read another tool's results, describe its forms in `benchmarks.toml` or in a module beside this one, and add these to
the tables in `forms.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tui.core.results.external.posted import Posted, number_of

Head = Sequence[str]
Rows = Sequence[Sequence[str]]


@dataclass(frozen=True)
class ObjectForm:
    """A JSON object, recognised by its keys.

    Attributes:
        keys: all of one of these are there.
        figures: their key to ours, with a factor where our unit is another.
        more: what else it says.
    """

    tool: str
    kind: str
    keys: Sequence[Sequence[str]]
    figures: Mapping[str, Any] = field(default_factory=dict)
    more: Callable[[Posted, Mapping[str, Any]], None] | None = None

    def fits(self, raw: Mapping[str, Any]) -> bool:
        return any(raw.keys() >= set(keys) for keys in self.keys)

    def read(self, raw: Mapping[str, Any]) -> Posted:
        posted = Posted(self.tool, self.kind)
        for key, ours in self.figures.items():
            name, factor = (ours, None) if isinstance(ours, str) else ours
            posted.put(name, raw.get(key) if factor is None else scaled(raw.get(key), factor))
        if self.more is not None:
            self.more(posted, raw)
        return posted


@dataclass(frozen=True)
class TableForm:
    """A table, recognised by its first row."""

    fits: Callable[[Head], bool]
    read: Callable[[Head, Rows], list[Posted]]


def scaled(value: object, factor: float) -> float | None:
    """A number in another unit; None for anything else."""
    number = number_of(value) if type(value) in (int, float) else None
    return None if number is None else number * factor


def latency_key(point: str, name: str) -> str:
    """ "mean", "e2el" -> "mean_e2e_ms": how the flat record spells it."""
    name = "e2e" if name.startswith("e2e") else name
    return f"{'median' if point == 'p50' else point}_{name}_ms"
