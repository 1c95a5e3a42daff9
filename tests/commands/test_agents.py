"""The page for agents names only what there is."""

import re
from importlib import resources

import click
import pytest
from click.testing import CliRunner

from tui.cli import cli
from tui.core.errors import Slug

PAGE = resources.files("tui.data").joinpath("agents.md").read_text()
CALLS = [call.strip() for call in re.findall(r"(?:^|`|; )eagletui ([a-z][^`;#\n]*)", PAGE, re.MULTILINE)]


def test_the_command_prints_it():
    done = CliRunner().invoke(cli, ["agents"])
    assert (done.exit_code, done.output) == (0, PAGE)


@pytest.mark.parametrize("call", CALLS)
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
