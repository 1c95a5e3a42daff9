"""What the shells complete, through their own scripts."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.run_lab import free_port
from tests.support.shell import Shell

DATA = Path(__file__).parents[1] / "data/bench/inputs"
HOST = "Host gpu1 gpu2\n  HostName 10.0.0.1\nHost $(id) `id` a*b\n"


@pytest.fixture
def asked(shell: Shell) -> Shell:
    """With a command `eagletui` on PATH, hosts, and profiles of each kind."""
    program = shell.home / "bin" / "eagletui"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m tui "$@"\n')
    program.chmod(0o755)
    (shell.home / ".ssh").mkdir()
    (shell.home / ".ssh" / "config").write_text(HOST)
    profiles = shell.cwd / "profiles"
    profiles.mkdir()
    (profiles / "zz-server.toml").write_text('kind = "launch"\ndescription = "A server"\ncommand = ["true"]\n')
    (profiles / "zz-bench.toml").write_text('kind = "bench"\n')
    (profiles / "zz $(touch owned).toml").write_text('kind = "launch"\ncommand = ["true"]\n')
    shell.env["PATH"] = f"{program.parent}{os.pathsep}{shell.env['PATH']}"
    return shell


def run(shell: Shell, argv: list[str]) -> str:
    done = subprocess.run(argv, env=shell.env, cwd=shell.cwd, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def bash(shell: Shell, line: str) -> set[str]:
    words = shlex.join(line.split(" "))
    script = (
        f'eval "$(eagletui completion bash)"; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))\n'
        "_eagletui_completion eagletui; printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    return set(run(shell, ["bash", "-c", script]).split("\n")) - {""}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("eagletui lau", {"launch"}),
        ("eagletui gp", {"gpus", "gpu1", "gpu2"}),  # commands, and hosts of the panel
        ("eagletui dem", {"demo", "demo2"}),
        ("eagletui launch zz", {"zz-server"}),
        ("eagletui bench zz", {"zz-bench"}),
        ("eagletui bench aa zz", {"zz-server"}),
        ("eagletui profiles show zz", {"zz-server", "zz-bench"}),
        ("eagletui launch zz-server --host gpu", {"gpu1", "gpu2"}),
        ("eagletui launch zz-server --set mem-f", {"mem-fraction-static="}),
        ("eagletui bench zz-bench --set duration", {"duration_s="}),
        ("eagletui gpus --file", {"--file"}),
        ("eagletui ps gpu1 gpu", {"gpu1", "gpu2"}),
        ("eagletui completion f", {"fish"}),
        ("eagletui stop nothing-like-it", set()),
    ],
)
def test_bash(asked: Shell, line: str, expected: set[str]) -> None:
    assert bash(asked, line) == expected
    assert not (asked.cwd / "owned").exists()


def test_a_run_by_its_six_digits(asked: Shell) -> None:
    argv = ["sh", "-c", "sleep 1", "sh", "--port", str(free_port())]
    (asked.cwd / "profiles" / "zz-server.toml").write_text(f'kind = "launch"\ncommand = {json.dumps(argv)}\n')
    name = asked("launch", "zz-server", "--host", "local", "--json").json["run"]
    assert bash(asked, f"eagletui stop {name[-6:-3]}") == {name[-6:]}


def test_results_by_id_and_by_profile(asked: Shell) -> None:
    asked("results", "import", str(DATA / "bench-12389-ttft-zero.log"), "--profile", "zz-server", "--host", "gpu1")
    found = bash(asked, "eagletui compare zz") | bash(asked, "eagletui compare import")
    assert {word.partition("-")[0] for word in found} == {"zz", "import"}


@pytest.mark.skipif(not shutil.which("fish"), reason="apt-get install fish")
def test_fish_says_what_each_is(asked: Shell) -> None:
    script = "eagletui completion fish | source; complete -C 'eagletui launch zz'; complete -C 'eagletui lau'"
    assert run(asked, ["fish", "-c", script]).splitlines() == [
        "zz-server\tA server",
        "launch\tStart a server from a profile.",
    ]


@pytest.mark.skipif(not shutil.which("zsh"), reason="apt-get install zsh")
def test_zsh_takes_the_script_and_gets_its_answers(asked: Shell) -> None:
    (asked.cwd / "_eagletui").write_text(run(asked, ["eagletui", "completion", "zsh"]))
    run(asked, ["zsh", "-n", "_eagletui"])
    asked.env |= {"COMP_WORDS": "eagletui launch zz", "COMP_CWORD": "2", "_EAGLETUI_COMPLETE": "zsh_complete"}
    assert run(asked, ["eagletui"]).splitlines() == ["plain", "zz-server", "A server"]


def test_another_shell_is_refused_in_a_line(shell: Shell) -> None:
    done = shell("completion", "tcsh")
    assert done.code == 2
    assert done.err.startswith("eagletui: Invalid value for '{bash|zsh|fish}': 'tcsh' is not one of")
