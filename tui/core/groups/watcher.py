"""Watching a group: what is seen of each member becomes one stream of frozen states.

One task a member follows its run over its own session; a host that does not answer makes its member unknown and holds up
nobody. When a member has died, the others are stopped: they would wait for it until a time-out of theirs.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from tui.core.errors import EagletuiError
from tui.core.groups.group_state import Condition, GroupState, GroupUpdate, MemberState
from tui.core.groups.merge import merge
from tui.core.link.transport import LinkState
from tui.core.model.group import Group, Member
from tui.core.model.log import LogRecord
from tui.core.model.phases import Outcome
from tui.core.model.run import Run, RunState
from tui.core.server.server_state import RunUpdate
from tui.core.server.session import HostSession
from tui.core.text import epoch_of

_TICK_S = 1.0
_RETRY_S = 2.0
_LAUNCH_S = 120.0  # members are started one after the other
_CHECK_PERIOD_S = 2.0
_FIRST_CHECK_S = 0.2  # while the members are not heard yet
_DYING_S = 10.0  # a fatal line is followed by the end of its process within seconds
DOWN = (LinkState.LOST, LinkState.WAITING, LinkState.REFUSED, LinkState.CLOSED)
_BATCH = 64  # updates of members in one of the group

ExtraReadiness = Callable[[GroupState], Awaitable[tuple[Condition, ...]]]
EndOthers = Callable[[Member], Coroutine[Any, Any, None]]


class GroupWatcher:
    """State of one group; `updates()` is the only way to read it."""

    def __init__(
        self,
        sessions: Mapping[str, HostSession],
        group: Group,
        *,
        check: ExtraReadiness | None = None,
        end_others: EndOthers | None = None,
    ) -> None:
        """Takes a group of any state.

        Args:
            sessions: by the name of the host; a member whose host is missing is unknown.
            check: what must hold besides before the group is ready, asked again until it is.
            end_others: stops what a dead member leaves behind; None: nothing is stopped.
        """
        self._sessions = sessions
        self._group = group
        self._check, self._end_others = check, end_others
        self._news: asyncio.Queue[tuple[int, RunUpdate | None]] = asyncio.Queue(maxsize=_BATCH)
        self._seen = [MemberState(member) for member in group.members]
        self._settled = [False] * len(self._seen)
        self._ended = [False] * len(self._seen)
        self._extra: tuple[Condition, ...] = ()
        self._checked = check is None
        self._heard = False  # each member that can be asked, to its present end
        self._since: dict[str, float] = {}  # time.time() since when a condition holds
        self._ready_after_s: float | None = None
        self._saw_start = False  # that it was not ready yet
        self._failed_at: float | None = None  # time.monotonic()
        self._ending: asyncio.Task[None] | None = None
        self._state = merge(group, self._seen)

    async def updates(self) -> AsyncGenerator[GroupUpdate, None]:
        """To the end of every member; survives links. Of a member whose host cannot be asked the end is waited for."""
        tasks = [asyncio.create_task(self._follow(at)) for at in range(len(self._seen))]
        if self._check is not None:
            tasks.append(asyncio.create_task(self._keep_checking(self._check)))
        try:
            while True:
                records = await self._hear()
                for task in tasks:
                    if task.done() and not task.cancelled() and (error := task.exception()):
                        raise error
                self._look()
                over = all(self._ended) and self._news.empty()
                yield GroupUpdate(self._state, tuple(records), over or self._all_heard())
                if over and (self._ending is None or self._ending.done()):
                    return
        finally:
            if self._ending is not None and not self._ending.done():
                with contextlib.suppress(TimeoutError):  # the hosts go on by themselves once they were asked
                    async with asyncio.timeout(_RETRY_S):
                        await asyncio.shield(self._ending)
                tasks.append(self._ending)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # Members

    async def _follow(self, at: int) -> None:
        member = self._seen[at].member
        session = self._sessions.get(member.host)
        while session is not None:
            with contextlib.suppress(EagletuiError):  # the link is down, or the host cannot do it now: asked again
                run = await session.run_by_id(member.run_id)
                if run is None and self._is_launched_now():
                    await asyncio.sleep(_RETRY_S)
                    continue
                async with aclosing(session.watch(run or _missing(member, self._group))) as updates:
                    async for update in updates:
                        await self._news.put((at, update))
                await self._news.put((at, None))
                return
            await asyncio.sleep(_RETRY_S)

    def _is_launched_now(self) -> bool:
        """Whether somebody may be launching it: a member that its host does not know yet is not lost then."""
        launched_s = epoch_of("".join(self._group.group_id.rsplit("-", 2)[-2:-1]))
        return launched_s is not None and abs(time.time() - launched_s) < _LAUNCH_S

    async def _hear(self) -> list[tuple[Member, LogRecord]]:
        """Takes in what has come, or waits a moment; the new lines of all logs."""
        records: list[tuple[Member, LogRecord]] = []
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_TICK_S):
                self._take(*await self._news.get(), records)
        for _ in range(_BATCH):
            if self._news.empty():
                break
            self._take(*self._news.get_nowait(), records)
        return records

    def _take(self, at: int, update: RunUpdate | None, records: list[tuple[Member, LogRecord]]) -> None:
        if update is None:
            self._ended[at] = self._settled[at] = True
            return
        self._seen[at] = replace(self._seen[at], state=update.state)
        # Of a run that is over nothing counts before its log is read to the end.
        self._settled[at] = self._settled[at] or (update.settled and not update.state.run.over)
        records.extend((self._seen[at].member, record) for record in update.records)

    def _all_heard(self) -> bool:
        """Whether each member that can be asked was heard to its present end."""
        return self._checked and self._heard

    def _link_lost(self, at: int) -> bool:
        if self._ended[at]:
            return False
        session = self._sessions.get(self._seen[at].member.host)
        return session is None or session.transport.status().state in DOWN

    # The whole

    def _look(self) -> None:
        self._seen = [replace(one, link_lost=self._link_lost(at)) for at, one in enumerate(self._seen)]
        self._heard = all(done or one.link_lost for done, one in zip(self._settled, self._seen, strict=True))
        extra = self._extra if self._checked else (*self._extra, Condition("further checks", None))
        state = merge(self._group, self._seen, extra, ready_after_s=self._ready_after_s)
        conditions = tuple(map(self._dated, state.conditions))
        if state.outcome is Outcome.READY and self._ready_after_s is None:
            self._ready_after_s = self._took(state)
            state = replace(state, ready_after_s=self._ready_after_s)
        self._saw_start = self._saw_start or (state.outcome is Outcome.STARTING and self._all_heard())
        self._state = replace(state, conditions=conditions)
        self._stop_what_is_left()

    def _took(self, state: GroupState) -> float | None:
        """Launch to ready: by the serving member's own clock, unless we saw that something else was waited for longer."""
        if self._check is not None and self._saw_start and state.started_s is not None:
            return max(state.ready_after_s or 0.0, time.time() - state.started_s)
        return state.ready_after_s

    def _dated(self, condition: Condition) -> Condition:
        if not condition.holds:
            self._since.pop(condition.text, None)
            return condition
        return replace(condition, since_s=self._since.setdefault(condition.text, time.time()))

    async def _keep_checking(self, check: ExtraReadiness) -> None:
        while self._state.outcome is not Outcome.READY:
            with contextlib.suppress(EagletuiError):
                heard, state = self._heard, self._state
                self._extra = await check(state)
                self._checked = self._checked or heard  # what was asked before the members were heard settles nothing
            await asyncio.sleep(_CHECK_PERIOD_S if self._checked else _FIRST_CHECK_S)

    def _stop_what_is_left(self) -> None:
        """Once a member is dead; a link that is lost stops nobody."""
        failed = self._state.failed
        if failed is None or self._end_others is None or self._ending is not None:
            self._failed_at = None if failed is None else self._failed_at
            return
        self._failed_at = self._failed_at or time.monotonic()
        dead = self._seen[self._group.members.index(failed)].state
        gone = dead is not None and dead.run.over
        if gone or time.monotonic() - self._failed_at > _DYING_S:
            self._ending = asyncio.create_task(self._end_others(failed))


def _missing(member: Member, group: Group) -> Run:
    """A member that its host does not know: it was never started, or its files are gone."""
    why = "it was not started there, or its files are gone"
    return Run(member.run_id, "server", group.profile, member.host, RunState.LOST, why=why)
