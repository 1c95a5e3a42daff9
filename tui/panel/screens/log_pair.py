"""A second log beside the one on the screen: another rank of it, or another run's, on a common time axis."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from tui.panel.open_log import LogSource, OpenLog
from tui.panel.widgets.log.pair import LogPair, Side
from tui.panel.widgets.log.view import LogView


@dataclass(frozen=True)
class Beside:
    """Something that can be shown beside the log."""

    name: str
    about: str
    ranks: tuple[str, str] | None = None  # two ranks of the displayed log
    source: Callable[[], LogSource | None] = lambda: None  # another log


def choices(view: LogView, others: Sequence[Beside]) -> list[Beside]:
    """What can be shown beside the log of a view: its ranks, and others."""
    row = view.current_row()
    ranks = [rank for rank in view.known_ranks() if rank != "main"]
    own = row.record.rank if row is not None and row.record.rank in ranks else next(iter(ranks), None)
    of_ranks = [
        Beside(f"{left} | {right}", "ranks of this log", ranks=(left, right))
        for rank in [*ranks, "main"]
        if own is not None and rank != own
        for left, right in [sorted((own, rank), key=["main", *ranks].index)]
    ]
    return [*of_ranks, *others]


async def show_pair(
    view: LogView, choice: Beside, put: Callable[[LogPair, float | None], Awaitable[None]], touch: Callable[[], object]
) -> None:
    """Shows two logs, and follows the other one until this is cancelled. Raises EagletuiError where it cannot be read.

    Args:
        put: puts them on the screen, with the cursor at a time of the left one.
        touch: called where something of the other one is new.
    """
    log = view.open_log
    source = choice.source()
    if log is None or (source is None and choice.ranks is None):
        return
    row = view.current_row() if not view.following else None
    stamp = row.record.stamp_s if row is not None else None
    if source is None or choice.ranks is not None:
        left, right = (Side(rank, log, rank) for rank in choice.ranks or ())
        await put(LogPair(left, right, view.filter, view.folds, relative=False), stamp)
        return
    other = OpenLog(source.name, source.file, touch=touch)
    following = asyncio.create_task(other.follow(source))
    try:
        both_ready = asyncio.ensure_future(asyncio.gather(log.ready(), other.ready()))
        await asyncio.wait((both_ready, following), return_when=asyncio.FIRST_COMPLETED)
        relative = _apart(log, other)
        if stamp is not None:
            start, zero = log.start_s or 0.0, other.start_s or 0.0
            await other.jump_to_time(stamp - start + zero if relative else stamp)
        sides = Side(log.name, log), Side(other.name, other)
        await put(LogPair(*sides, view.filter, view.folds, relative=relative), stamp)
        await following
        touch()
        await asyncio.Event().wait()  # it is displayed until somebody closes it
    finally:
        following.cancel()


def _apart(left: OpenLog, right: OpenLog) -> bool:
    """Whether two logs were written at different times, so that only the time since their starts is common to them."""
    spans = [(log.start_s or 0.0, log.last_stamp() or 0.0) for log in (left, right)]
    return spans[0][1] < spans[1][0] or spans[1][1] < spans[0][0]
