"""`eagletui doctor`: what works, what is missing, and how to fix it."""

import click

from tui.commands.options import json_option
from tui.commands.output import emit, run_async
from tui.commands.terminal import TerminalAsker
from tui.core.config import default_host
from tui.core.server.doctor import examine
from tui.demo.client import register

_MARKS = {"ok": "✓", "warn": "▲", "block": "✗"}


@click.command()
@click.argument("host", required=False)
@json_option
def command(host: str | None, as_json: bool) -> int:
    """What works, what is missing, and how to fix it."""
    name = host or default_host()
    register()
    findings = run_async(examine(name, TerminalAsker()))
    failed = any(finding.level == "block" for finding in findings)
    if as_json:
        emit(
            {"host": name, "findings": [finding.json() for finding in findings], "error": "doctor" if failed else None}
        )
    else:
        for finding in findings:
            print(f"{_MARKS[finding.level]} {finding.check:<10} {finding.text}")
    return 1 if failed else 0
