"""What the watchdog is fed with: samples of GPUs that are there anyway, and looks at a run's processes while it is too quiet.

A host is asked at each look. A node of a job tells by itself, from one step for as long as it is too quiet: each step is a
request to the cluster's controller.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable

from tui.core.errors import EagletuiError
from tui.core.host.gpus import GpuSample
from tui.core.link.programs import program
from tui.core.link.transport import LinkState, Transport
from tui.core.model.phases import Outcome
from tui.core.model.run import Run
from tui.core.server.host_look import HostLook, head, look, read_look
from tui.core.server.watchdog import LOOK_PERIOD_S, Watchdog
from tui.core.slurm.inside import place_of, way_into

_TICK_S = 3.0
_REFUSED_S = 60.0  # until a node that let nobody in is asked again
_NO_GPUS = frozenset(("no_devices", "nvidia_smi_missing"))
_END = "eagletui-look-end"
_MAX_LOOK_BYTES = 1 << 20


class Looking:
    """Looks for one watch of a run.

    Args:
        now: the run, what it has come to, and its watchdog.
        news: called once the watchdog has been fed.
    """

    def __init__(
        self, transport: Transport, now: Callable[[], tuple[Run, Outcome, Watchdog]], news: Callable[[], None]
    ) -> None:
        self._transport, self._now, self._news = transport, now, news

    def _wanted(self) -> bool:
        """Whether it is quiet enough to look, and there is something to look at."""
        run, outcome, dog = self._now()
        is_up = self._transport.status().state is LinkState.UP
        return is_up and run.pid is not None and dog.wants_look(time.monotonic(), outcome)

    async def on_host(
        self, latest: Callable[[], GpuSample | None] | None, sample: Callable[[], Awaitable[GpuSample]] | None
    ) -> None:
        """Until the run is over; arguments as of `RunWatcher`."""
        looked_at = float("-inf")
        gpus = True  # whether this host has any
        while not self._now()[0].over:
            await asyncio.sleep(_TICK_S)
            run, _, dog = self._now()
            seen = latest() if latest is not None else None
            if seen is not None:
                dog.saw_gpus(time.monotonic(), seen)
            if not self._wanted() or run.pid is None or time.monotonic() - looked_at < LOOK_PERIOD_S:
                continue
            looked_at = time.monotonic()
            try:
                dog.saw_host(looked_at, await look(self._transport, run.pid, run.port))
                if gpus and sample is not None and seen is None:
                    taken = await sample()
                    gpus = taken.error not in _NO_GPUS
                    dog.saw_gpus(time.monotonic(), taken)
            except EagletuiError:
                continue  # asked again
            self._news()

    async def on_node(self) -> None:
        """Until the run is over; of a job, whose login host does not see its processes."""
        while not self._now()[0].over:
            await asyncio.sleep(_TICK_S)
            if not self._wanted():
                continue
            try:
                async with contextlib.aclosing(self._looks()) as looks:
                    async for seen in looks:
                        self._now()[2].saw_host(time.monotonic(), seen)
                        self._news()
                        if not self._wanted():
                            break
            except EagletuiError:  # it may not be entered, or the job is over
                await asyncio.sleep(_REFUSED_S)

    async def _looks(self) -> AsyncGenerator[HostLook]:
        """Looks from one step, to its end. Raises HostError, LinkLost."""
        run = self._now()[0]
        place = place_of(run)
        if place is None or run.pid is None:
            return
        one = f"{head(run.pid, run.port)}{program('look.sh')}"
        script = f"while :; do\n(\n{one}\n)\necho {_END}\nsleep {LOOK_PERIOD_S:g}\ndone\n"
        async with way_into(self._transport, place).stream(script) as stream:
            rest = b""
            while (chunk := await stream.read()) and len(rest) < _MAX_LOOK_BYTES:
                *whole, rest = (rest + chunk).split(f"{_END}\n".encode())
                for text in whole:
                    yield read_look(text.decode("utf-8", "replace"))
