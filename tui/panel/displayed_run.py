"""Which run of the host is displayed, and the worker that follows it."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from tui.core.errors import HostError
from tui.core.model.phases import ALIVE, Outcome
from tui.panel.host_view import Board, one_server
from tui.panel.open_host import OpenHost

if TYPE_CHECKING:
    from tui.core.model.run import Run
    from tui.core.server.server_state import RunUpdate
    from tui.core.server.session import HostSession


class DisplayedRun:
    """Chooses the run, shows it and follows it; rings when it becomes ready or crashes."""

    def __init__(self, host: OpenHost) -> None:
        self._host = host
        self._picked: str | None = None  # run id that a person asked to see
        self._preferred: str | None = None  # run id that is displayed first, where it is there
        self._hearing: dict[asyncio.Queue[RunUpdate | None], str] = {}  # who follows along, and which run
        self._read: str | None = None  # run id whose watch has come to its end
        self._seen: set[str] = set()  # known while the displayed run was alive: none of them takes its place
        self._rung: set[tuple[str, Outcome]] = set()
        self._node: str | None = None  # of a cluster, which the displayed run was seen on

    def forget(self) -> None:
        """Another host is displayed from now on."""
        self._picked = None
        self._seen = set()

    def choose(self) -> None:
        """Displays the newest live server, else a foreign one, else the last that ended.

        One that a person picked stays, and so does the report of a crash, until a server is launched that was not
        there before.
        """
        board = self._host.board
        servers = [run for run in board.runs if run.kind == "server"]
        present, outcome = board.run, board.state.outcome if board.state else Outcome.STARTING
        best = self._best(servers, present, outcome)
        if best is not None and (present is None or best.run_id != present.run_id):
            self.watch(best)
        elif outcome in ALIVE:
            self._seen.update(run.run_id for run in servers)

    def _best(self, servers: "list[Run]", present: "Run | None", outcome: Outcome) -> "Run | None":
        """What should be displayed now; None: what is."""
        servers = sorted(servers, key=lambda run: run.run_id != self._preferred)
        live = [run for run in servers if run.live]
        foreign = [run for run in servers if run.foreign]
        fresh = [run for run in live if run.run_id not in self._seen]
        if present is None:
            choices = [*live, *foreign, *servers]
        elif present.run_id == self._picked:
            choices = [] if outcome in ALIVE else fresh
        elif outcome in ALIVE:
            choices = live if present.foreign else fresh
        else:
            choices = fresh if outcome is Outcome.CRASHED else [*fresh, *live, *foreign]
        return next(iter(choices), None)

    def prefer(self, run_id: str) -> None:
        """Displays this run first, once the host's runs are known."""
        self._preferred = run_id

    def pick(self, run: "Run") -> None:
        """Displays a run that a person asked for; it stays."""
        self._picked = run.run_id
        self.watch(run)
        self._host.show_mode("dashboard")

    def step(self, step: int) -> None:
        """The next or previous live server of this host."""
        board = self._host.board
        live = board.live_servers()
        place, _ = board.place()
        others = [run for run in live if board.run is None or one_server(run) != one_server(board.run)]
        if not others:
            self._host.app.say("No other server runs here")
        elif place is None:  # what is displayed has ended
            self.pick(live[0 if step > 0 else -1])
        else:
            self.pick(live[(place - 1 + step) % len(live)] if place <= len(live) else others[0])

    def watch(self, run: "Run") -> None:
        """Displays a run and follows its log."""
        from tui.panel.open_log import OpenLog

        host = self._host
        file = host.session.open_log(run) if host.session is not None else None
        log = OpenLog(f"run {run.short_id}", file, touch=host.touch) if file is not None else None
        host.board.watch_run(run, log)
        host.end_job("node")
        self._read = self._node = None
        self.leave(but=run.run_id)
        self._seen = {run.run_id, *(known.run_id for known in host.board.runs)}
        if host.session is not None:
            host.read("watch", self._follow, host.session, run)
        host.touch()

    async def _follow(self, session: "HostSession", run: "Run") -> None:
        board = self._host.board
        if run.container is not None and run.log_path is None:
            reachable = await session.with_log(run)
            if reachable.log_path is not None:
                self.watch(reachable)
                return
        was_alive = False  # what had happened before we came is no news
        async for update in session.watch(run):
            if board.run is None or board.run.run_id != run.run_id:
                return
            before, now = board.state, update.state
            board.take_update(update)
            if now.run.job is not None:
                self._look_at_node(session, now.run)
            for queue, run_id in self._hearing.items():
                if run_id == run.run_id:
                    queue.put_nowait(update)
            if was_alive and before is not None and before.outcome is not now.outcome:
                self._ring(now.run.run_id, now.outcome)
            was_alive = was_alive or (update.settled and now.outcome in ALIVE)
            self._host.touch(soon=before is None or (before.outcome, before.phase) != (now.outcome, now.phase))
        board.end_log()
        self._read = run.run_id
        self.leave()
        self._host.touch()

    def _look_at_node(self, session: "HostSession", run: "Run") -> None:
        """Samples the GPUs of the node that a rank of a job runs on: one step there, as long as it is displayed."""
        from tui.core.slurm.inside import place_of

        place = place_of(run)
        if place is not None and place.node != self._node:
            self._node = place.node
            self._host.background("node", self._sample_node, session, run)

    async def _sample_node(self, session: "HostSession", run: "Run") -> None:
        from tui.core.server.node_session import node_sessions

        board = self._host.board
        (node,) = node_sessions(session, [run]).values()
        there = Board(node.place.node, link=board.link, runs=(run,))
        with contextlib.suppress(HostError):  # no way onto it, which leaves them unread, or the end of the job
            async with contextlib.aclosing(node.gpus()) as samples:
                async for sample in samples:
                    there.take_sample(sample)
                    there.link, board.on_node = board.link, there
                    self._host.touch()

    async def updates(self, run_id: str) -> "AsyncGenerator[RunUpdate]":
        """What is read of a run as long as it is the one displayed and lives, from what is known of it now on."""
        from tui.core.server.server_state import RunUpdate

        board = self._host.board
        queue: asyncio.Queue[RunUpdate | None] = asyncio.Queue()
        self._hearing[queue] = run_id
        try:
            if board.state is not None and board.state.run.run_id == run_id:
                yield RunUpdate(board.state, settled=board.caught_up)
            if self._read == run_id:
                return
            while (update := await queue.get()) is not None:
                yield update
        finally:
            del self._hearing[queue]

    def leave(self, but: str | None = None) -> None:
        """Tells those who follow along that their run is displayed no longer, or has ended."""
        for queue, run_id in self._hearing.items():
            if run_id != but:
                queue.put_nowait(None)

    def _ring(self, run_id: str, outcome: Outcome) -> None:
        if self._host.board.group is not None:  # it rings for the whole
            return
        if outcome in (Outcome.READY, Outcome.CRASHED) and (run_id, outcome) not in self._rung:
            self._rung.add((run_id, outcome))
            name = self._host.board.state.run.profile if self._host.board.state is not None else None
            self._host.app.ring(f"{name or run_id} on {self._host.board.host}: {outcome}")
