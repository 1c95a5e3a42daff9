"""What a transport does through the shells that it opens: scripts to their end, streams, files."""

import asyncio
import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

from tui.core.errors import HostError, TimedOut
from tui.core.link.scripts import (
    Explainer,
    Input,
    NoShell,
    ScriptStream,
    put_script,
    raise_for_put,
    run_script,
    shell_path,
)
from tui.core.link.transport import ByteStream, Channel, Completed

_PUT_TIMEOUT_S = 120.0


class OverShell(ABC):
    """`run`, `stream` and `put` of a `Transport`."""

    host: str
    use = Input.LINE_ENDS  # what the loss of the way there means to a script that was to run to its end

    @abstractmethod
    def shell(self, *, for_stream: bool = False) -> AbstractAsyncContextManager[Channel]:
        """See `Transport.shell`."""

    def _explainer(self) -> Explainer:
        return Explainer(self.host)

    def _too_late(self, timeout_s: float, asked_at: float) -> HostError | TimedOut:
        """What our own deadline means, which has passed; `asked_at` by `time.monotonic()`."""
        return TimedOut(
            f"{self.host}: a command gave no result within {timeout_s:g} s", "try again, or look at its load"
        )

    async def _execute(
        self, script: str, timeout_s: float, limit: int, data: bytes | None = None, *, alone: bool = False
    ) -> Completed:
        asked_at = time.monotonic()
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    async with self.shell() as channel:
                        try:
                            done = await run_script(
                                channel,
                                script,
                                explain=self._explainer(),
                                max_output_bytes=limit,
                                data=data,
                                use=self.use,
                            )
                        except NoShell:
                            if channel.used:
                                continue  # it ended while it waited, and nothing of the script ran: the next one is asked
                            raise
                        channel.waits = channel.waits and not alone
                        return done
        except TimeoutError:
            raise self._too_late(timeout_s, asked_at) from None

    async def run(
        self, script: str, *, timeout_s: float = 30.0, max_output_bytes: int = 8 << 20, alone: bool = False
    ) -> Completed:
        """See `Transport.run`. Waits for the link within `timeout_s`; never runs a script twice."""
        return await self._execute(script, timeout_s, max_output_bytes, alone=alone)

    @contextlib.asynccontextmanager
    async def stream(self, script: str) -> AsyncIterator[ByteStream]:
        """See `Transport.stream`. Waits for the link as long as it takes."""
        while True:
            async with self.shell(for_stream=True) as channel:
                stream = ScriptStream(channel, self._explainer())
                try:
                    try:
                        await stream.start(script)
                    except NoShell:
                        if channel.used:
                            continue  # as above
                        raise
                    yield stream
                    return
                finally:
                    await stream.close()

    async def put(self, data: bytes, path: str, *, mode: int = 0o600) -> None:
        """See `Transport.put`."""
        script = put_script(shell_path(path), len(data), mode)
        raise_for_put(await self._execute(script, _PUT_TIMEOUT_S, 65_536, data), self.host, path)
