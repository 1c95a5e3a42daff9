"""Waiting through lost links: calls that are made again, streams that are opened again, polling until something is over."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import TypeVar

from tui.core.errors import HostError, LinkLost, TimedOut
from tui.core.link.transport import LinkState, Transport

T = TypeVar("T")
Tell = Callable[[str], None]  # what is waited for, one sentence

_AGAIN_S = 1.0
_SOON_S = 0.3
_SETTLE_S = 0.2  # between the link's return and the next try


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


async def until_answered(transport: Transport, ask: Callable[[], Awaitable[T]], timeout_s: float) -> T:
    """The answer to what may be asked twice, asked again after each lost link; other errors are raised at once.

    Raises the last LinkLost or TimedOut after `timeout_s`, or once the transport is closed.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return await ask()
        except (LinkLost, TimedOut):
            if time.monotonic() + _SOON_S > deadline or transport.status().state is LinkState.CLOSED:
                raise
            await asyncio.sleep(_SOON_S)


async def follow_through(
    transport: Transport, open_stream: Callable[[], AsyncGenerator[T, None]]
) -> AsyncGenerator[T | HostError, None]:
    """The items of a stream, which is opened again after each lost link; the loss itself is an item, too.

    A link that needs a person (a code, a password) comes back when they connect again; it is waited for.

    Args:
        open_stream: opens it where the items so far ended.

    Raises HostError where the stream fails over a link that is up, and once the transport is closed.
    """
    while True:
        try:
            async with aclosing(open_stream()) as stream:
                async for item in stream:
                    yield item
            return
        except HostError as error:
            if not isinstance(error, LinkLost) and transport.status().state is LinkState.UP:
                raise
            lost = error
        yield lost
        async for status in transport.watch():
            if status.state is LinkState.UP:
                break
        else:  # closed
            raise lost
        await asyncio.sleep(_SETTLE_S)


async def until(
    over: Callable[[T], bool],
    look: Callable[[], Awaitable[T]],
    *,
    every_s: float = 1.0,
    transport: Transport | None = None,
) -> T:
    """Looks again and again until what is seen is over, and returns that.

    Args:
        transport: a look that fails on its host is repeated until this is closed; None: what `look` raises, this raises.
    """
    while True:
        try:
            seen = await look()
            if over(seen):
                return seen
        except HostError:
            if transport is None or transport.status().state is LinkState.CLOSED:
                raise
        await asyncio.sleep(every_s)


async def try_again(call: Callable[[], Awaitable[T]], tries: int = 3) -> T:
    """The answer of a call that changes nothing, asked a few times where the link is lost under it."""
    for _ in range(tries - 1):
        try:
            return await call()
        except LinkLost:
            await asyncio.sleep(_SETTLE_S)
    return await call()
