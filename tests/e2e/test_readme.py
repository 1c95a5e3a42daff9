"""The README's two commands, in a copy of the project with a new HOME and nothing else of this checkout."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
INSTALL_S = 900


@pytest.fixture(scope="module")
def commands() -> list[str]:
    """The commands of the README's first two code blocks."""
    blocks = re.findall(r"^```\w*\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    return [line for block in blocks[:2] for line in block.strip().splitlines()]


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a fresh clone would hold."""
    target = tmp_path_factory.mktemp("readme") / "eagletui"
    if (ROOT / ".git").exists():
        listed = subprocess.run(
            ["git", "-c", "safe.directory=*", "ls-files", "-co", "--exclude-standard", "-z"],
            cwd=ROOT,
            check=True,
            capture_output=True,
        )
        for name in filter(None, listed.stdout.decode().split("\0")):
            if (ROOT / name).is_file():
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, target / name)
    else:
        shutil.copytree(ROOT, target, ignore=shutil.ignore_patterns(".venv", "*cache*", "build", "dist"))
    return target


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory, kill_marked) -> Iterator[dict[str, str]]:
    home = tmp_path_factory.mktemp("home")
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "XDG_CONFIG_DIRS"))}
    yield kept | {"HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "TERM": "xterm-256color"}
    kill_marked(f"HOME={home}\0")  # the simulated host would stay for ten minutes, with its server's port


def shell(command: str, clone: Path, env: dict[str, str], timeout: float = INSTALL_S) -> str:
    done = subprocess.run(
        command,
        shell=True,
        cwd=clone,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_two_commands(commands):
    assert commands == [
        "python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/eagletui demo",
        ".venv/bin/pip install '.[test]' && .venv/bin/pytest",
    ]


@pytest.mark.timeout(INSTALL_S + 300)
def test_the_first_opens_the_panel_and_a_launch_gets_ready(commands, clone, env, terminal, launch_by_keyboard):
    install, _, panel = commands[0].rpartition(" && ")
    shell(install, clone, env)
    screen = terminal(["sh", "-c", panel], env, cwd=clone)
    screen.wait_for(r"(?s)SIMULATED.*● link.*No server runs here", 60)
    launch_by_keyboard(screen, "kimi-k2.5-baseline-bs128")
    screen.wait_for(r"READY\s+kimi-k2.5-baseline-bs128", 60)
    screen.keys("q")
    assert screen.wait_exit() == 0


@pytest.mark.timeout(INSTALL_S + 300)
def test_the_second_runs_the_tests(commands, clone, env):
    install, _, run = commands[1].rpartition(" && ")
    if not (clone / ".venv").exists():
        shell("python3 -m venv .venv", clone, env)
    shell(install, clone, env)
    # All of them are found and import; the ones that run here are the quickest.
    assert re.search(r"\d+ tests collected", shell(f"{run} --collect-only -q", clone, env))
    assert " passed" in shell(f"{run} tests/core/test_text.py", clone, env)
