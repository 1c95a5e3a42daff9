"""What all runs of a bench share."""

from __future__ import annotations

import asyncio

from tui.remote.loadgen.gpus import Gpus
from tui.remote.loadgen.http import Client
from tui.remote.loadgen.plan import Plan
from tui.remote.loadgen.server import Server


class Bench:
    """What all runs share."""

    def __init__(self, loop: asyncio.AbstractEventLoop, plan: Plan, cores: list[int] | None = None) -> None:
        """`cores`: those that this is bound to, away from the server's; None: it was not."""
        self.loop, self.plan, self.cores = loop, plan, cores
        self.client = Client(loop, plan)
        self.server = Server(self.client, plan)
        self.gpus = Gpus(loop, plan.gpus, plan.pids)
        self.left_s = 0.0  # of the runs that have not begun
