"""When a look at a host's runs is worth it: the host says so itself (`tui/remote/host_watch.py`), and is left alone meanwhile."""

import asyncio
import contextlib

from tui.core.errors import HostError, LinkLost, Slug
from tui.core.link.programs import PYTHON_FLAGS, PYTHONS, program
from tui.core.link.transport import Transport
from tui.core.runs.helper import helper_script

LIFE_S = 900  # the watcher there ends by itself after this; what a dead link leaves behind is bounded
PERIOD_S = 1  # between its looks while things change; it takes longer ones by itself
_BRIEF_S = 5.0  # a watcher that ends within this, and said nothing, cannot work there
_SLOWER = 3.0  # each look without news makes the next one so many times later


class News:
    """What is heard of changes on one host.

    Attributes:
        heard: how many there were, so that none is missed between two questions.
        live: the host is being heard: what does not change is not to be asked for again.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._changed = asyncio.Event()
        self.heard = 0
        self.live = False

    async def follow(self) -> None:
        """Listens until cancelled, over lost links; ends where the host cannot watch, and then it is asked again and again."""
        variables = {"ER_WATCHER": program("host_watch.py")}
        script = helper_script(
            "watch", str(LIFE_S), str(PERIOD_S), " ".join(PYTHONS), PYTHON_FLAGS, variables=variables
        )
        loop = asyncio.get_running_loop()
        while True:
            began, words = loop.time(), 0
            try:
                async with self._transport.stream(script) as stream:
                    while await stream.read():
                        words += 1
                        self.live = True
                        self._tell()
            except LinkLost:
                words = 1
            except HostError as error:
                if error.slug != Slug.KILLED:
                    return
            finally:
                self.live = False
                self._tell()
            if not words and loop.time() - began < _BRIEF_S:
                return

    def _tell(self) -> None:
        self.heard += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def after(self, heard: int, timeout_s: float) -> bool:
        """Whether there was news since `heard`; waits for it that long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self.heard == heard:
                    await self._changed.wait()
        return self.heard != heard


class Pace:
    """How soon somebody looks again: soon after news, then more and more rarely; always soon where there is nothing to be heard.

    Args:
        shortest_s, longest_s: between two looks. What the host cannot tell (a port that opens) is seen by the later ones.
    """

    def __init__(self, news: News | None, shortest_s: float, longest_s: float) -> None:
        self._news, self._shortest_s, self._longest_s = news, shortest_s, longest_s
        self._heard = -1
        self._pause_s = shortest_s

    @property
    def hearing(self) -> bool:
        """Whether what is known still holds, though it is not asked for."""
        return self._news is not None and self._news.live

    async def next_look(self) -> None:
        """Waits until the next look is due; called after each."""
        await asyncio.sleep(self._shortest_s)
        if self._news is None or not self._news.live:
            self._pause_s = self._shortest_s
        elif await self._news.after(self._heard, self._pause_s - self._shortest_s):
            self._pause_s = _SLOWER * self._shortest_s
        else:
            self._pause_s = min(_SLOWER * self._pause_s, self._longest_s)
        self._heard = self._news.heard if self._news is not None else 0
