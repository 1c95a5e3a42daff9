"""Where a host has no Python of its own: a container of it that has one. Who knows the containers hands the place in."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tui.core.link.transport import Transport

CONTAINER_PYTHON = "python3"  # as images of SGLang have it


@dataclass(frozen=True)
class Inside:
    """A place inside a host, by the name that people know."""

    name: str  # docker:NAME
    transport: Transport


Elsewhere = Callable[[], Awaitable[Inside | None]]


async def nowhere() -> Inside | None:
    """There is no such place."""
    return None
