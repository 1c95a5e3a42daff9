"""Hosts for tests of runs: this machine under three shells, each with a state directory of its own."""

import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from tests.support.run_lab import kill_all
from tui.core.link.local import LocalTransport

SHELLS = {
    "dash": ("dash", "no dash: apt-get install dash"),
    "busybox": ("busybox", "no busybox: apt-get install busybox"),
    "bash": ("bash", "no bash: apt-get install bash"),  # called as sh, so in POSIX mode
}


def shell_named(name: str, directory: Path) -> str:
    """A path `.../sh` that is the named shell."""
    program, reason = SHELLS[name]
    found = shutil.which(program, path="/bin:/usr/bin")
    if found is None:
        pytest.skip(reason)
    directory.mkdir(parents=True, exist_ok=True)
    link = directory / "sh"
    if not link.is_symlink():
        link.symlink_to(found)
    return str(link)


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    """The state directory of this test's host."""
    directory = tmp_path / "state of ü"  # blanks and letters beyond ASCII are legitimate in a home
    yield directory
    kill_all(directory)


@pytest.fixture(params=list(SHELLS))
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Path of a /bin/sh that is dash, BusyBox or bash."""
    return shell_named(request.param, tmp_path / "shells" / request.param)


@pytest.fixture
async def make_host(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Callable[..., LocalTransport]]:
    """make_host(shell=None, **environment): this machine, its runs kept in `state`."""

    def make(shell: str | None = None, **environment: str) -> LocalTransport:
        home = tmp_path / "home"
        home.mkdir(exist_ok=True)
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "EAGLETUI_STATE": str(state),
            **environment,
        }
        if shell is not None:
            monkeypatch.setattr("tui.core.link.local.COMMAND", f"{shell} -s")
            env["ER_SH"] = shell
        made.append(LocalTransport(env={name: value for name, value in env.items() if value}))
        return made[-1]

    made: list[LocalTransport] = []
    yield make
    for transport in made:
        await transport.close()
