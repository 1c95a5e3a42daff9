"""The link cut at any point of a job's life, by a seed: the same state is found again, and nothing happens twice."""

import asyncio
import contextlib
import os
import random
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.core.slurm.conftest import SERVER, Lab, run_of
from tui.core.config import HostEntry
from tui.core.errors import LinkLost
from tui.core.link.local import LocalTransport
from tui.core.model.phases import Outcome
from tui.core.server.session import HostSession
from tui.core.slurm.board import JobBoard, Pace

CUT = 0.3  # of all channels


class CutChannel:
    """A channel whose link is lost after some reads; what it runs loses its input, or dies with it."""

    def __init__(self, channel: Any, reads: int, dies: bool) -> None:
        self._channel, self._reads, self._dies = channel, reads, dies
        self._lost = asyncio.Event()
        self.used = self.waits = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)

    async def read_stdout(self, max_bytes: int) -> bytes:
        if self._reads == 0:
            self._lost.set()
            self._channel.close()
            if self._dies:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._channel._child.pid, signal.SIGKILL)
            return b""
        self._reads -= 1
        return await self._channel.read_stdout(max_bytes)

    async def read_stderr(self, max_bytes: int) -> bytes:
        read, lost = asyncio.create_task(self._channel.read_stderr(max_bytes)), asyncio.create_task(self._lost.wait())
        try:
            await asyncio.wait((read, lost), return_when=asyncio.FIRST_COMPLETED)
            return read.result() if read.done() else b""
        finally:
            read.cancel()
            lost.cancel()

    async def ended(self) -> int | str | None:
        return None if self._lost.is_set() else await self._channel.ended()


class CutTransport(LocalTransport):
    def __init__(self, seed: int) -> None:
        super().__init__("login")
        self._random = random.Random(seed)
        self.cuts = 0

    @contextlib.asynccontextmanager
    async def shell(self, *, for_stream: bool = False) -> AsyncIterator[Any]:
        cut, reads, dies = self._random.random() < CUT, self._random.randrange(-1, 3), self._random.random() < 0.3
        self.cuts += cut
        if cut and reads < 0:
            raise LinkLost("login: the link is down")
        async with super().shell(for_stream=for_stream) as channel:
            yield CutChannel(channel, reads, dies) if cut else channel


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_a_link_that_is_cut_again_and_again_finds_the_same_job(lab: Lab, seed: int) -> None:
    await lab.session.close()
    link = CutTransport(seed)
    lab.session = HostSession(HostEntry("login", "login", python=str(SERVER), slurm=True), link)
    lab.session._board = JobBoard(link, Pace(files_s=0.1, starting_s=0.3, steady_s=0.5))
    group = await lab.launch()
    state = await lab.until(group, Outcome.READY)
    job = run_of(state).job
    assert job is not None
    assert lab.slurm("squeue", "-h", "-o", "%i").split() == [job.job_id]
    assert (await lab.stop(group))[-1] == "done"
    ended = lab.slurm.wait(job.job_id)
    assert (ended["JobState"], ended["ExitCode"]) == ("COMPLETED", "0:0")
    assert link.cuts > 1
    seen = await lab.end(group)
    await lab.session.close()
    lab.session = lab.new_session()  # whose link is whole
    whole = await lab.end(group)
    for one in (seen, whole):
        assert (one.outcome, [run_of(one, rank).exit_code for rank in (0, 1)]) == (Outcome.STOPPED, [0, 0])
