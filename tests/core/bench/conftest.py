"""What tests of whole measurements share."""

import pytest

from tui.core.link.transport import SilentAsker
from tui.core.runs import control
from tui.core.server.session import open_session


@pytest.fixture
async def local():
    """A session with this machine."""
    session = await open_session("local", SilentAsker())
    await session.open()
    yield session
    for run in await control.list_runs(session.transport):
        if run.active:
            await control.stop(session.transport, run.run_id, 0)
    await session.close()
