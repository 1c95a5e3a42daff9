"""Hosts of the core's tests: this machine, and the simulated host in a hurry."""

import socket
from collections.abc import AsyncIterator

import pytest

from tui.core.link.local import LocalTransport
from tui.core.link.transport import SilentAsker
from tui.core.session import HostSession, open_session
from tui.demo.client import stop_demo


@pytest.fixture
async def local() -> AsyncIterator[LocalTransport]:
    transport = LocalTransport()
    yield transport
    await transport.close()


@pytest.fixture
async def demo(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HostSession]:
    monkeypatch.setenv("EAGLETUI_DEMO_SPEED", "2000")
    session = await open_session("demo", SilentAsker())
    await session.open()
    yield session
    await session.close()
    await stop_demo()


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
