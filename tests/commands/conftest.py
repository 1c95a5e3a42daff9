"""A user with an empty home, one whose simulated host runs, and what they need."""

import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.shell import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A user with an empty home, in an empty directory."""
    for name in ("home", "work"):
        (tmp_path / name).mkdir()
    return Shell(tmp_path / "home", tmp_path / "work")


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A user whose simulated host runs, ended with the module."""
    shell = Shell(tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("work"), EAGLETUI_DEMO_SPEED="2000")
    yield shell
    code = "import asyncio; from tui.demo.client import stop_demo; asyncio.run(stop_demo())"
    subprocess.run([sys.executable, "-c", code], env=shell.env, check=True, timeout=60)


@pytest.fixture
def port() -> str:
    """A port that is free."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"port={probe.getsockname()[1]}"


@pytest.fixture
def command(shell: Shell) -> Callable[..., str]:
    """command(NAME, *ARGV): a profile of that name that runs any program."""

    def make(name: str, *argv: str) -> str:
        directory = shell.cwd / "profiles"
        directory.mkdir(exist_ok=True)
        (directory / f"{name}.toml").write_text(f'kind = "launch"\ncommand = {json.dumps(argv)}\n')
        return name

    return make
