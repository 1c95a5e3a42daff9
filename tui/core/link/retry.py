"""What is asked again when the link is back."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tui.core.errors import LinkLost, TimedOut
from tui.core.link.transport import LinkState, Transport

T = TypeVar("T")
Tell = Callable[[str], None]  # what is waited for, one sentence

_AGAIN_S = 1.0


async def patiently(transport: Transport, call: Callable[[], Awaitable[T]], tell: Tell | None = None) -> T:
    """The answer of `call`, asked again after each lost link as soon as there is one again.

    Raises HostError once the transport is closed, and whatever else `call` raises.
    """
    while True:
        try:
            return await call()
        except (LinkLost, TimedOut):
            if transport.status().state is LinkState.CLOSED:
                raise
            if tell is not None:
                tell(f"waiting for the link to {transport.host}")
            await asyncio.sleep(_AGAIN_S)
            async for status in transport.watch():
                if status.state in (LinkState.UP, LinkState.CLOSED):
                    break
