"""Servers that are being measured: a stop, a launch in their place or an experiment would end the measurement too."""

from collections.abc import Iterable

from tui.core.bench.collect import measurement_of
from tui.core.errors import EagletuiError, Slug
from tui.core.model.group import group_of
from tui.core.model.run import Run
from tui.core.server.asking import url_of


class ServerMeasured(EagletuiError):
    """Nobody has said that a measurement may end with its server, which is in the way."""

    slug = Slug.MEASURED

    def __init__(self, what: str, measurement: Run) -> None:
        super().__init__(
            f"{what} is being measured by {measurement.run_id}, which would end with it",
            f"eagletui wait {measurement.short_id} --for exit waits for its end; --yes stops both",
        )
        self.what, self.measurement = what, measurement


def measured_among(servers: Iterable[Run], runs: Iterable[Run]) -> list[tuple[Run, Run]]:
    """Those that are being measured, each with its measurement.

    Args:
        runs: all of the hosts of these servers.
    """
    every, found = tuple(runs), []
    for server in servers:
        group = group_of(server.extra)
        # Of a rank of a job the address is its node's, and a member of a group answers for it elsewhere.
        url = url_of(server.argv, server.port) if server.port and server.job is None and group is None else None
        there = every if group is not None else tuple(run for run in every if run.host == server.host)
        if (run := measurement_of(there, group.group_id if group is not None else server.run_id, url)) is not None:
            found.append((server, run))
    return found
