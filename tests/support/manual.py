"""The reference of the command line, docs/commands.md, and the man page, docs/eagletui.1: made of the commands themselves.

python -m tests.support.manual        # writes both
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from tui.cli import cli

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/commands.md"
MAN = ROOT / "docs/eagletui.1"
HEAD = """# The command line

Every command with its options, as `--help` prints them; made of the commands themselves (`python -m tests.support.manual`), and a test
holds it to them. What they print and their exit codes: [README](../README.md#the-command-line). The same as a man page: `man eagletui`, where
pip or pipx installed it. `eagletui completion SHELL` prints what completes hosts, profiles, runs and flags in bash, zsh and fish.
"""
MAN_HEAD = r""".TH EAGLETUI 1
.SH NAME
eagletui \- control panel for people who tune SGLang servers on remote GPU hosts
.SH SYNOPSIS
.B eagletui
[\fIHOST\fR... | \fICOMMAND\fR [\fIARGS\fR]...]
.SH DESCRIPTION
"""
MAN_TAIL = r""".SH EXIT STATUS
0 done; 1 the thing asked about failed; 2 unknown run, profile, file, flag or value; 3 host; 4 timed out; 130 interrupted (the run keeps running).
.SH SEE ALSO
.BR ssh_config (5)
"""


@dataclass(frozen=True)
class Command:
    """What is said of one command."""

    name: str  # with those above it
    usage: str
    about: tuple[str, ...]  # paragraphs
    options: tuple[tuple[str, str], ...]


def commands() -> Iterator[Command]:
    """All that can be called, in the order of `--help`."""
    yield from _walk(cli, click.Context(cli, info_name="eagletui"))


def _walk(command: click.Command, context: click.Context) -> Iterator[Command]:
    pieces = command.collect_usage_pieces(context)
    about = tuple(" ".join(part.split()) for part in (command.help or "").split("\n\n") if part.strip())
    records = [param.get_help_record(context) for param in command.params if isinstance(param, click.Option)]
    options = tuple(record for record in records if record is not None and record[0] != "-h, --help")
    yield Command(context.command_path, " ".join((context.command_path, *pieces)), about, options)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from _walk(below, click.Context(below, parent=context, info_name=name))


def page() -> str:
    """docs/commands.md."""
    parts = [HEAD]
    for each in commands():
        parts.append(f"## {each.name}\n\n```\n{each.usage}\n```\n\n" + "\n\n".join(map(_markdown, each.about)) + "\n")
        if each.options:
            rows = "\n".join(f"| `{_cell(name)}` | {_markdown(_cell(text))} |" for name, text in each.options)
            parts.append(f"| option | |\n|---|---|\n{rows}\n")
    return "\n".join(parts)


def _markdown(text: str) -> str:
    return re.sub(r"(?<![`\w])(--[a-z][a-z-]+)(?!`)", r"`\1`", text)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def man() -> str:
    """docs/eagletui.1."""
    top, *others = commands()
    parts = [MAN_HEAD, _roff("\n.PP\n".join(top.about)), "\n.SH OPTIONS\n", *_options(top), ".SH COMMANDS\n"]
    for each in others:
        parts += [f".SS {_roff(each.usage)}\n", _roff("\n.PP\n".join(each.about)), "\n", *_options(each)]
    return "".join((*parts, MAN_TAIL))


def _options(command: Command) -> Iterator[str]:
    yield from (f".TP\n.B {_roff(name)}\n{_roff(text)}\n" for name, text in command.options)


def _roff(text: str) -> str:
    text = re.sub(r"(?m)^'", r"\\&'", text.replace("\\", r"\e").replace("-", r"\-"))
    return "".join(char if char.isascii() else f"\\[u{ord(char):04X}]" for char in text)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    MAN.write_text(man(), encoding="utf-8")
