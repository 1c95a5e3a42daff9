"""Readiness that can't be fooled: alive, no fatal line, ready by log or HTTP, and the listener is this run's.

Another server on the port makes SGLang print "fired up" just before it dies, `/v1/models` answers long before the engine
does, and "Uvicorn running" says nothing about the warm-up. So whoever says ready, the listening socket must belong to a
process of this run; where the process table can't be read, a request with a word of ours must appear in this run's log.
"""

import asyncio
import secrets
import time
from dataclasses import dataclass, replace

from tui.core.errors import EagletuiError, Slug
from tui.core.link.http import request
from tui.core.link.scripts import NoShell
from tui.core.link.transport import LinkState, Transport
from tui.core.model.group import Role, group_id_of, member_of
from tui.core.model.run import Run, RunState
from tui.core.runs.foreign import port_belongs_to
from tui.core.server.start_times import follows
from tui.core.sglang.engine import SGLANG
from tui.core.sglang.state import StartupState
from tui.core.slurm.inside import place_of, way_into

HTTP_PROBE_PERIOD_S = 2.0
_TALKING_LOG_PERIOD_S = 15.0
_STEP_PERIOD_S = 60.0  # between two looks by a step of a job, each of which is a request to the cluster's controller
_SILENT_LINES = 20  # a log at level info has more lines than this long before its server listens


@dataclass
class ReadinessProbe:
    """Asks as little as possible: who listens, once per answer of the log; HTTP only where the log says nothing."""

    transport: Transport
    run: Run
    listener_is_ours: bool | None = None
    ready: bool = False
    canary: str | None = None  # a word in a request of ours, to be looked for in the log's bytes
    canary_seen: bool = False
    look_period_s: float = 10.0  # between looks at the port while the log says that it is too early
    _look_again_at: float = 0.0
    _canary_tail: bytes = b""
    _http_not_before: float = 0.0  # time.monotonic()
    _first_look: "asyncio.Task[bool | None] | None" = None

    def begin(self, *, fresh: bool = False) -> None:
        """Asks who listens while the log is still on its way: over a far link the two then wait once.

        Args:
            fresh: the run is what a look saw just now; what that look says of the port is not asked again.
        """
        if (
            self.run.port is not None
            and self.run.job is None
            and self.run.state in (RunState.RUNNING, RunState.FOREIGN)
        ):
            self._first_look = asyncio.create_task(self._look(self.run.answers if fresh else None))

    async def _look(self, known: bool | None) -> bool | None:
        return known if known is not None else await port_belongs_to(self.transport, self.run)

    async def close(self) -> None:
        """Gives up what `begin` asked."""
        if self._first_look is not None:
            self._first_look.cancel()
            await asyncio.gather(self._first_look, return_exceptions=True)

    async def _owner(self, by_log: bool) -> bool | None:
        """Whether it is this run that listens; what was asked at the beginning counts once, unless the log has news since."""
        first, self._first_look = self._first_look, None
        if first is not None and ((found := await first) or not by_log):
            return found
        # What is asked on a node of a job is a step of that, whose processes have the id of the whole.
        asked = replace(self.run, run_id=group_id_of(self.run.run_id) or self.run.run_id) if self.run.job else self.run
        return await port_belongs_to(self._way(), asked)

    def _way(self) -> Transport:
        """To where the server runs."""
        place = place_of(self.run)
        return way_into(self.transport, place) if place is not None else self.transport

    def start_over(self) -> None:
        """Another process took the place of the one that was asked about."""
        self.ready, self.listener_is_ours = False, None

    @property
    def routes(self) -> bool:
        """Whether it is a router, whose log says nothing of SGLang's start; its /health is 200 from the first second on."""
        member = member_of(self.run.run_id, self.run.extra)
        return member is not None and member.role is Role.ROUTER

    def saw_bytes(self, data: bytes) -> None:
        """Log bytes of this run, as they come."""
        if self.canary and not self.canary_seen:
            window = self._canary_tail + data
            self.canary_seen = self.canary.encode() in window
            self._canary_tail = window[-64:]

    async def check(self, startup: StartupState) -> bool:
        """Whether the server is ready now; once true, it stays true until the process ends."""
        if self.ready or self.run.port is None or self.run.state not in (RunState.RUNNING, RunState.FOREIGN):
            return self.ready
        if follows(self.run):
            self.ready = startup.follower_up
            return self.ready
        by_log = startup.fired_up
        listening = by_log or startup.uvicorn_port is not None
        silent = startup.lines < _SILENT_LINES or self.routes  # log level warning: HTTP and the process table decide
        if not (listening or silent):
            # Warnings alone can fill a log that has no milestones, so now and then the port is looked at all the same.
            if time.monotonic() < self._look_again_at:
                return False
            self._look_again_at = time.monotonic() + (_STEP_PERIOD_S if self.run.job else self.look_period_s)
        try:
            if self.listener_is_ours is not True:
                # Asked at "Uvicorn running" already: when "fired up" comes, the answer is there.
                self.listener_is_ours = await self._owner(listening)
            if self.listener_is_ours is False:
                return False
            if not by_log and (self._too_soon(silent) or not await self._http_ready()):
                return False
            if self.listener_is_ours is None and not await self._canary_in_log():
                return False
        except EagletuiError as error:
            # The link or the server is not there: asked again at the next tick. A node that lets nobody in is another
            # matter: of its server nothing is known but the log.
            nobody = (
                isinstance(error, NoShell) and error.slug != Slug.LOST and self.transport.status().state is LinkState.UP
            )
            if self.run.job is None or not by_log or not nobody:
                return False
        self.ready = True
        return True

    def _too_soon(self, silent: bool) -> bool:
        """A log that talks will say "fired up" itself: each request of ours would only be a line more in it."""
        now = time.monotonic()
        if now < self._http_not_before:
            return True
        self._http_not_before = now + (0.0 if silent else _TALKING_LOG_PERIOD_S)
        return False

    async def _http_ready(self) -> bool:
        port = self.run.port or 0
        newer, older = SGLANG.endpoints.ready
        way = self._way()
        answer = await request(way, "GET", port, newer, timeout_s=5)
        if answer.status == 404:
            answer = await request(way, "GET", port, older, timeout_s=25)
        return answer.status == 200

    async def _canary_in_log(self) -> bool:
        if not self.canary:
            self.canary = "eagletui-" + secrets.token_hex(6)
            asked = f"{SGLANG.endpoints.model}?from={self.canary}"
            await request(self._way(), "GET", self.run.port or 0, asked, timeout_s=5)
        return self.canary_seen
