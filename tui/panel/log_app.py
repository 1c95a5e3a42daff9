"""`eagletui logs` on a terminal: the log screen alone, over any file or run of any host, or two of them side by side."""

import asyncio
import functools
from collections.abc import Iterable

from textual import work

from tui.core.config import chosen_theme
from tui.core.errors import EagletuiError, Slug, UsageError
from tui.core.logs.blocks import read_block
from tui.core.logs.log_file import LogFile
from tui.core.logs.named import NamedLog
from tui.core.model.run import Run
from tui.core.runs.adopted import log_of_container
from tui.core.server.run_end import no_log, until_over
from tui.core.server.session import HostSession
from tui.panel.connection import Connection
from tui.panel.host_app import HostApp, OpenSession, open_real_session
from tui.panel.host_view import Board
from tui.panel.keys import Key
from tui.panel.open_host import OpenHost
from tui.panel.open_log import Beside, LogSource
from tui.panel.screens.logs import Logs


class LogApp(HostApp):
    """The log screen of the panel without the rest of it.

    Args:
        target: the displayed log.
        beside: another one, shown beside it on a common time axis.
    """

    def __init__(
        self,
        target: NamedLog,
        beside: NamedLog | None = None,
        *,
        open_session: OpenSession = open_real_session,
        theme: str = "dark",
    ) -> None:
        super().__init__(open_session=open_session, theme=theme, bell=False)
        self._host = OpenHost(self, target.host)
        self._others: dict[str, OpenHost] = {}
        self.target, self.beside = target, beside
        self.failure: EagletuiError | None = None  # why there is nothing to see
        self.board.viewing = target.label
        self._sources: list[LogSource] = []

    @property
    def board(self) -> Board:
        return self._host.board

    @property
    def session(self) -> HostSession | None:
        return self._host.session

    def show_first(self) -> None:
        """Only the log screen."""
        self.add_mode("logs", functools.partial(Logs, self.board))
        self.switch_mode("logs")

    def offers(self, command: Key) -> bool:
        """Keys of the log and those that work everywhere."""
        action = (command.command or "").partition("(")[0]
        here = action.startswith("screen.") or hasattr(self, f"action_{action}")
        return command.where in ("everywhere", "logs") and here

    def connect(self) -> None:
        """Opens the host and finds the log there; what is not there ends the app."""
        self._open_targets()

    @work(exclusive=True, group="connect", exit_on_error=False)
    async def _open_targets(self) -> None:
        try:
            for target in (self.target, self.beside):
                if target is not None:
                    self._sources.append(await self._source(target))
        except EagletuiError as error:
            self.failure = error
            self.exit(return_code=error.exit_code)
            return
        self.touch(soon=True)
        if self.beside is not None and isinstance(self.screen, Logs):
            self.screen.open()
            self.screen.show_beside(self.logs_beside()[0])

    async def _source(self, target: NamedLog) -> LogSource:
        host = self._host
        if target.host != host.board.host:
            host = self._others.setdefault(target.host, OpenHost(self, target.host))
        session = host.session
        if session is None:
            session = await host.open_session()
            if host is self._host:
                Connection(host).follow_link(session)
            await session.open()
        if target.container is not None:
            path = await log_of_container(session.transport, *target.container)
            return LogSource(target.label, LogFile(session.transport, path))
        if target.path is None:
            run = await session.with_log(await session.find_run(target.run or ""))
            file = session.open_log(run)
            if file is None:
                raise no_log(run)
            over = asyncio.Event()
            self._watch_end(session, run, over)
            return LogSource(f"run {run.short_id}", file, over.is_set)
        if await read_block(session.transport, target.path, 0, 0) is None:
            raise UsageError(f"{target.path} is not there on {target.host}", "check the path", slug=Slug.UNKNOWN_FILE)
        return LogSource(target.label, LogFile(session.transport, target.path))

    @work(group="end", exit_on_error=False)
    async def _watch_end(self, session: HostSession, run: Run, over: asyncio.Event) -> None:
        await until_over(session.transport, run)
        over.set()
        self.touch()

    def log_source(self) -> LogSource | None:
        """The log that was named."""
        return self._sources[0] if self._sources else None

    def logs_beside(self) -> list[Beside]:
        """The other one that was named."""
        return [
            Beside(
                source.name, "named on the command line", source=functools.partial(self._sources.__getitem__, number)
            )
            for number, source in enumerate(self._sources)
            if number
        ]

    def sessions(self) -> Iterable[HostSession]:
        return [host.session for host in (self._host, *self._others.values()) if host.session is not None]


def run_log_view(target: NamedLog, beside: NamedLog | None = None) -> int:
    """Opens the view; returns the exit code. Raises what kept it from showing anything."""
    app = LogApp(target, beside, theme=chosen_theme())
    app.run()
    if app.failure is not None:
        raise app.failure
    return app.return_code or 0
