"""The page for agents names only what there is."""

import re
import subprocess
from importlib import resources
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tui.cli import cli
from tui.core.errors import Slug

PAGE = resources.files("tui.data").joinpath("agents.md").read_text()
DOCS = Path(__file__).parents[2] / "docs"
(JOB,) = re.findall(r"```sh\n(eagletui launch .*?)```", (DOCS / "measuring.md").read_text(), re.DOTALL)
CALLS = [call.strip() for call in re.findall(r"(?:^|`|; )eagletui ([a-z][^`;#\n]*)", PAGE, re.MULTILINE)]


def test_the_command_prints_it():
    done = CliRunner().invoke(cli, ["agents"])
    assert (done.exit_code, done.output) == (0, PAGE)


@pytest.mark.parametrize("call", [*CALLS, *(call.partition(">")[0] for call in re.findall(r"eagletui (.*)", JOB))])
def test_a_call_of_the_page_is_one_that_the_command_line_takes(call):
    words = call.split()
    _, command, rest = cli.resolve_command(click.Context(cli, info_name="eagletui"), words)
    if isinstance(command, click.Group) and rest:
        _, command, _ = command.resolve_command(click.Context(command, info_name=words[0]), rest)
    assert command is not None
    taken = {name for parameter in command.params for name in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= taken


def test_its_slugs_are_slugs():
    assert set(re.findall(r"`error` is `(\w+)`", PAGE)) <= {str(slug) for slug in Slug}
    assert len(CALLS) > 15


@pytest.mark.parametrize(
    ("launch", "bench", "code", "asked"),
    [(0, 0, 0, ["launch", "bench"]), (0, 1, 1, ["launch", "bench"]), (1, 0, 1, ["launch"]), (4, 0, 4, ["launch"])],
)
def test_the_job_of_a_ci_fails_where_either_part_does(tmp_path, launch, bench, code, asked):
    """The exit codes themselves are tested where the commands are; here, that the lines of the page pass them on."""
    stand_in = tmp_path / "eagletui"
    stand_in.write_text(
        f'#!/bin/sh\necho "$1" >>{tmp_path}/asked\ncase $1 in launch) exit {launch};; *) exit {bench};; esac\n'
    )
    stand_in.chmod(0o755)
    done = subprocess.run(["sh", "-c", JOB], cwd=tmp_path, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, check=False)
    assert (done.returncode, (tmp_path / "asked").read_text().split()) == (code, asked)
