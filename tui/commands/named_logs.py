"""Logs that a command names: a run's, or any file here or on a host; read once, or followed until the run is over."""

import os
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from tui.commands.sessions import host_of_run, session
from tui.core.config import LOCAL_HOST, default_host
from tui.core.errors import Slug, UsageError
from tui.core.link.retry import until_answered
from tui.core.logs.follow import Chunk, before_last_lines, read_log
from tui.core.logs.named import NamedLog
from tui.core.model.run import Run
from tui.core.runs.adopted import log_of_container
from tui.core.runs.docker_run import ENGINES
from tui.core.server.run_end import no_log, until_over
from tui.core.server.session import HostSession
from tui.core.text import one_line

_FIND_S = 30.0
# user@name, user@[address], [address]; a port; the path
_SSH_FILE = re.compile(r"((?:[^/:]*@)?(?:\[[^\]/]*\]|(?<=@)[^/:]+)(?::\d+(?=:))?):(.*)", re.DOTALL)


def named_log(what: str, host: str | None) -> NamedLog:
    """The log that `what` names: RUN, FILE, HOST:FILE or docker:NAME; `local` has the files of this machine.

    Raises UsageError.
    """
    engine, _, container = what.partition(":")
    if engine in ENGINES and container and not os.path.exists(what):
        return NamedLog(host or default_host(), container=(engine, container))
    if not ("/" in what or ":" in what or os.path.isfile(what)):
        return NamedLog(host_of_run(what, host), run=what)
    where, path = _split_host(what)
    return NamedLog(where or LOCAL_HOST, path if where else os.path.abspath(path))


def _split_host(what: str) -> tuple[str | None, str]:
    """`HOST:FILE` or a file here; an existing path here is never taken for a host."""
    if os.path.exists(what):
        return None, what
    if (matched := _SSH_FILE.fullmatch(what)) is not None:
        host, path = matched.groups()
    else:
        host, colon, path = what.partition(":")
        if not colon or not host or "/" in host:
            return None, what
    if not path:
        raise UsageError(f"{one_line(what, 80)} names no file", "write HOST:FILE", slug=Slug.UNKNOWN_FILE)
    return host, path


@dataclass(frozen=True)
class OpenedLog:
    """A named log with the session it is read through."""

    session: HostSession
    path: str
    run: Run | None

    async def chunks(self, *, follow: bool, after: Chunk | None = None) -> AsyncGenerator[Chunk]:
        """The bytes and events of the file, or those after a chunk, to its end; with `follow` until the run is over.

        Raises UsageError where there is no such file.
        """
        transport = self.session.transport
        end = until_over(transport, self.run) if self.run is not None and follow else None
        async with aclosing(read_log(transport, self.path, after=after, grows=follow, end=end)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def before_last(self, lines: int) -> Chunk | None:
        """Where the last lines begin, as `chunks` takes it; None where there is no such file yet."""
        transport = self.session.transport
        return await until_answered(transport, partial(before_last_lines, transport, self.path, lines), _FIND_S)


@asynccontextmanager
async def opened_log(named: NamedLog) -> AsyncIterator[OpenedLog]:
    """The log, its session open. Raises UsageError where there is no such run, or its output goes nowhere."""
    async with session(named.host) as opened:
        if named.path is not None:
            yield OpenedLog(opened, named.path, None)
            return
        if named.container is not None:
            yield OpenedLog(opened, await log_of_container(opened.transport, *named.container), None)
            return
        run = await opened.with_log(await _run(opened, named.run or ""))
        if run.log_path is None:
            raise no_log(run)
        yield OpenedLog(opened, run.log_path, run)


async def _run(opened: HostSession, what: str) -> Run:
    try:
        return await opened.find_run(what)
    except UsageError as error:
        if error.slug != Slug.UNKNOWN_RUN:
            raise
        raise UsageError(
            f"{one_line(what, 80) or repr('')} is neither a file here nor a run on {opened.entry.name}",
            f"see eagletui ps {opened.entry.name}, or write HOST:FILE",
            slug=Slug.UNKNOWN_RUN,
        ) from None
