"""Groups on this machine: hosts with a state directory of their own each, servers that are shell scripts."""

import dataclasses
import os
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import pytest

from tests.support.run_lab import kill_all
from tui.core.config import HostEntry
from tui.core.errors import LinkLost
from tui.core.host.gpus import GpuSample
from tui.core.link.local import LocalTransport
from tui.core.link.transport import Completed, LinkState, LinkStatus
from tui.core.server.session import HostSession


class Wire(LocalTransport):
    """This machine behind a link that can be down."""

    down = False

    async def run(self, script: str, **options: object) -> Completed:
        if self.down:
            raise LinkLost(f"{self.host}: the link is down")
        return await super().run(script, **options)  # type: ignore[arg-type]

    def status(self) -> LinkStatus:
        status = super().status()
        return dataclasses.replace(status, state=LinkState.LOST) if self.down else status


async def _no_gpus() -> GpuSample:
    return GpuSample(0.0, (), "none", "no_devices")


@pytest.fixture
async def make_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Callable[..., Mapping[str, HostSession]]]:
    """make_hosts("gpu3", "gpu4"): sessions with these hosts, all of them this machine."""
    made: list[HostSession] = []

    def make(*names: str) -> dict[str, HostSession]:
        sessions = {}
        for name in names:
            transport = Wire(
                env={"EAGLETUI_STATE": str(tmp_path / name), "HOME": str(tmp_path), "PATH": os.environ["PATH"]}
            )
            transport.host = name
            sessions[name] = HostSession(HostEntry(name, name), transport)
            monkeypatch.setattr(sessions[name], "sample", _no_gpus)  # to look for some takes seconds
        made.extend(sessions.values())
        return sessions

    yield make
    for session in made:
        await session.close()
    for session in made:
        kill_all(tmp_path / session.entry.name)
