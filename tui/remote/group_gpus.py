"""Samples the GPUs of a host on which a part of a group runs, while another host measures the group.

python3 -m tui.remote.group_gpus bench.json     (docs/load-generator.md has the formats)
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from typing import Any

from tui.remote.loadgen.gpus import Gpus
from tui.remote.loadgen.processes import family, stat_of
from tui.remote.loadgen.protocol import clock, uptime

TICK_S = 1.0


class Sampling:
    """What was sampled since the last line, and which processes are the group's."""

    def __init__(self, gpus: Gpus, pids: list[int]) -> None:
        self.gpus, self.pids = gpus, pids
        self.ours: set[int] = set()

    def line(self) -> dict[str, Any]:
        """All that came since the last one, by the clock of the host."""
        shift = uptime() - clock()
        samples, self.gpus.samples = self.gpus.samples, []
        seen, self.gpus.pids = self.gpus.pids, []
        if seen:
            self.ours = self.ours.union(*map(family, self.pids))
        return {
            "t": round(shift + clock(), 3),
            "samples": [[round(shift + at, 3), *rest] for at, *rest in samples],
            "pids": [[round(shift + at, 3), pid, pid in self.ours] for at, pid in seen],
        }

    def wanted(self) -> bool:
        """Whether something of the group still runs here, as far as that is known."""
        return not self.pids or any(stat_of(pid, 1) is not None for pid in self.pids)


async def carry_out(plan: dict[str, Any]) -> None:
    """Until it is ended, the group is gone, or it is time."""
    until = clock() + float(plan["most_s"])
    gpus = Gpus(asyncio.get_running_loop(), plan["gpus"], [])
    sampling = Sampling(gpus, plan["pids"])
    try:
        if gpus.program is None:
            print(json.dumps({"error": "there is no nvidia-smi"}), flush=True)
            return
        while clock() < until and sampling.wanted():
            await asyncio.sleep(TICK_S)
            print(json.dumps(sampling.line(), separators=(",", ":")), flush=True)
    finally:
        gpus.end()


def main(argv: list[str]) -> int:
    """Exit status 0, however it was ended."""
    with open(argv[1], "rb") as file:
        plan = json.loads(file.read())
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    task = loop.create_task(carry_out(plan))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        loop.run_until_complete(task)
    loop.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
