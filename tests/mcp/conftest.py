"""A user whose simulated host runs, for the tools."""

import subprocess
import sys

import pytest

from tests.support.shell import Shell


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A home with a simulated host, whose servers take seconds to start."""
    directory = tmp_path_factory.mktemp("mcp")
    shell = Shell(directory / "home", directory, EAGLETUI_DEMO_SPEED="20", EAGLETUI_HOST="demo")
    shell.home.mkdir()
    yield shell
    code = "import asyncio; from tui.demo.client import stop_demo; asyncio.run(stop_demo())"
    subprocess.run([sys.executable, "-c", code], env=shell.env, check=True, timeout=60)
