"""Which engine wrote a log, from lines that no other one prints (`tui/data/engines.toml`)."""

import re
import tomllib
from collections.abc import Iterable
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

SGLANG = "sglang"
_MATCHED = 600  # characters of a line


class OtherEngine(NamedTuple):
    """An engine whose logs are told from SGLang's."""

    id: str
    name: str
    log: re.Pattern[str]
    example: str


@cache
def _tables() -> dict[str, Any]:
    return tomllib.loads(resources.files("tui.data").joinpath("engines.toml").read_text(encoding="utf-8"))


@cache
def _ours() -> re.Pattern[str]:
    return re.compile(_tables()[SGLANG]["log"])


@cache
def others() -> tuple[OtherEngine, ...]:
    """The engines that are known by name, in the order in which they are tried."""
    return tuple(
        OtherEngine(table["id"], table["name"], re.compile(table["log"]), table["example"])
        for table in _tables()["engine"]
    )


def is_sglang(line: str) -> bool:
    """Whether nothing but SGLang prints this line."""
    return _ours().search(line[:_MATCHED]) is not None


def engine_of(lines: Iterable[str]) -> str | None:
    """The id of the engine that wrote these lines; None where none of them tells. A line of SGLang outweighs any other."""
    found: set[str] = set()
    for line in lines:
        if is_sglang(line):
            return SGLANG
        found.update(engine.id for engine in others() if engine.log.search(line[:_MATCHED]))
    return next((engine.id for engine in others() if engine.id in found), None)


def name_of(engine: str) -> str:
    """Its name as its makers write it."""
    return next((other.name for other in others() if other.id == engine), engine)
