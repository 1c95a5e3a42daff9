"""The groups that displayed runs are members of: their other hosts are opened, all members followed, a whole one stopped.

What watches a group is the core's watcher. It is fed by what the panel reads anyway: the watch of each host's displayed
run, and a watch of its own only for a member that its host's panel does not display.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from tui.core.link.transport import LinkState, LinkStatus
from tui.core.model.group import Group, Member, group_of
from tui.core.model.phases import Outcome
from tui.panel.displayed_run import DisplayedRun
from tui.panel.host_view import Board
from tui.panel.open_group import OpenGroup
from tui.panel.open_host import OpenHost
from tui.panel.panel_host import PanelHost

if TYPE_CHECKING:
    from tui.core.groups.session import GroupSession
    from tui.core.model.run import Run
    from tui.core.server.server_state import RunUpdate
    from tui.core.server.session import HostSession

_LOOK_S = 0.1
_RUNG = (Outcome.READY, Outcome.CRASHED)


class Aside(OpenHost):
    """A run of a host that its own panel does not display: followed beside it, over the same session and samples."""

    def __init__(self, host: PanelHost, run: "Run") -> None:
        super().__init__(host.app, host.board.host)
        self._host = host
        self._named = run.run_id
        self.displayed = DisplayedRun(self)
        self.share()
        self.displayed.watch(run)

    def share(self) -> None:
        """Takes over what is known of the host itself."""
        mine, its = self.board, self._host.board
        self.session = self._host.session
        mine.link, mine.facts, mine.runs, mine.runs_read = its.link, its.facts, its.runs, its.runs_read
        mine.cluster = its.cluster
        mine.sample, mine.sample_at, mine.points, mine.own_pids = its.sample, its.sample_at, its.points, its.own_pids

    def touch(self, *, soon: bool = False) -> None:
        self._host.touch(soon=soon)


class _Unconnected:
    """Stands for the transport of a host that has no session yet."""

    def __init__(self, host: str) -> None:
        self._host = host

    def status(self) -> LinkStatus:
        """It was never heard of."""
        return LinkStatus(self._host, LinkState.CONNECTING, 0.0)


class _SharedSession:
    """The session of a host as the watcher of a group uses it."""

    def __init__(self, host: PanelHost, follow: "Callable[[PanelHost, Run], DisplayedRun]") -> None:
        self._host, self._follow = host, follow

    @property
    def transport(self) -> object:
        """Of the present session: a host that is connected again has another one."""
        session = self._host.session
        return session.transport if session is not None else _Unconnected(self._host.board.host)

    async def run_by_id(self, run_id: str) -> "Run | None":
        """As the panel knows it, once it knows the runs of the host; else as the host does."""
        board = self._host.board
        while self._host.session is None or not board.runs_read:  # noqa: ASYNC110 - what is displayed is chosen then
            await asyncio.sleep(_LOOK_S)
        known = next((run for run in board.runs if run.run_id == run_id), None)
        return known or await self._host.session.run_by_id(run_id)

    async def watch(self, run: "Run") -> "AsyncGenerator[RunUpdate]":
        """What the panel reads of a run, to its end, whatever is displayed meanwhile."""
        over = False
        while not over:
            async for update in self._follow(self._host, run).updates(run.run_id):
                over = update.state.run.over
                yield update
            await asyncio.sleep(0)  # whatever is displayed now is so from here on


class Groups:
    """All groups of which a member is displayed.

    Args:
        hosts: those that are open.
        open_host: opens another one beside them, without showing it.
        ring: called when a group becomes ready, or dies.
    """

    def __init__(
        self,
        hosts: Callable[[], Sequence[PanelHost]],
        open_host: Callable[[str], PanelHost],
        ring: Callable[[str], None],
    ) -> None:
        self._hosts, self._open_host, self._ring = hosts, open_host, ring
        self._open: dict[str, OpenGroup] = {}
        self._asides: dict[str, Aside] = {}  # by run id

    # -- which there are -------------------------------------------------------------------------------------------

    def is_open(self, name: str) -> bool:
        """Whether the panel has a host open."""
        return self._named(name) is not None

    def host(self, name: str) -> PanelHost:
        """A host that is open, else opened beside the others now."""
        return self._named(name) or self._open_host(name)

    def of(self, board: Board) -> OpenGroup | None:
        """The group of the run that a board displays."""
        return self._open.get(board.group.group_id) if board.group is not None else None

    def look(self) -> None:
        """Takes up groups that have come, and what is new of the hosts of all."""
        for host in list(self._hosts()):
            run = host.board.run
            group = group_of(run.extra) if run is not None else None
            if group is not None and group.job:  # through this host, by whatever name it was launched there
                group = replace(group, members=tuple(replace(one, host=host.board.host) for one in group.members))
            if run is None or group is None or all(one.run_id != run.run_id for one in group.members):
                host.board.group = host.board.group_state = None
                continue
            if group.group_id not in self._open:
                self._take_up(host, group)
            host.board.group, host.board.group_state = group, self._open[group.group_id].state
        displayed = {host.board.run.run_id for host in self._hosts() if host.board.run is not None}
        for run_id, aside in list(self._asides.items()):
            aside.share()
            if run_id in displayed:
                aside.end_jobs()
                aside.displayed.leave()
                del self._asides[run_id]

    def _take_up(self, host: PanelHost, group: Group) -> None:
        opened = self._open[group.group_id] = OpenGroup(group, self.board_of)
        for member in group.members:
            if self._named(member.host) is None:
                self.host(member.host).displayed.prefer(member.run_id)
        host.app.run_job(f"group {group.group_id}", lambda: self._follow(host, opened), host.tell)

    def _named(self, name: str) -> PanelHost | None:
        return next((host for host in self._hosts() if host.board.host == name), None)

    def board_of(self, member: Member) -> Board:
        """What is known of a member: the board of its host, or one of its own beside that."""
        host = self._named(member.host)
        if host is None:
            return Board(member.host)
        if host.board.run is not None and host.board.run.run_id == member.run_id:
            return host.board
        aside = self._asides.get(member.run_id)
        return aside.board if aside is not None else host.board

    # -- following -------------------------------------------------------------------------------------------------

    def session(self, *, shared: bool = False) -> "GroupSession":
        """A session with the groups of all hosts that are open; `shared` watches through the panel's own watches."""
        from tui.core.groups.session import GroupSession

        if shared:
            tees = {host.board.host: _SharedSession(host, self._displayed) for host in self._hosts()}
            return GroupSession(cast("dict[str, HostSession]", tees))
        return GroupSession({host.board.host: host.session for host in self._hosts() if host.session is not None})

    def _displayed(self, host: PanelHost, run: "Run") -> DisplayedRun:
        if host.board.run is not None and host.board.run.run_id == run.run_id:
            return host.displayed
        aside = self._asides.get(run.run_id)
        if aside is None:
            aside = self._asides[run.run_id] = Aside(host, run)
        return aside.displayed

    async def _follow(self, host: PanelHost, opened: OpenGroup) -> None:
        heard = False  # what had happened before we came is no news
        async for update in self.session(shared=True).watch(opened.group):
            before, opened.state = opened.state, update.state
            changed = before is None or (before.outcome, before.phase) != (update.state.outcome, update.state.phase)
            if heard and changed and before is not None and before.outcome is not update.state.outcome in _RUNG:
                self._ring(f"{opened.group.profile}: {update.state.outcome}")
            heard = heard or update.settled
            if changed:
                for one in opened.seen():
                    if one.member.host == host.board.host:
                        host.touch(soon=True)
            host.app.touch()
