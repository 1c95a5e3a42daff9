"""This machine as a host under other shells, and with few tools."""

import os
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest

from tui.core.link.local import LocalTransport


@pytest.fixture
async def make_shell_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Callable[..., LocalTransport]]:
    """make_shell_host(shell, tools=()): scripts run in this shell; with `tools`, those of it are all that there are."""
    made: list[LocalTransport] = []

    def make(shell: str, tools: Sequence[str] = ()) -> LocalTransport:
        found = shutil.which(shell, path="/bin:/usr/bin")
        if found is None:
            pytest.skip(f"no {shell}: apt-get install {shell}")
        directory = tmp_path / "shell"
        directory.mkdir()
        for name in ("sh", *tools):
            (directory / name).symlink_to(found)
        env = {**os.environ, "PATH": str(directory)} if tools else dict(os.environ)
        monkeypatch.setattr("tui.core.link.local.COMMAND", f"{directory}/sh -s")
        made.append(LocalTransport(env=env))
        return made[-1]

    yield make
    for transport in made:
        await transport.close()
