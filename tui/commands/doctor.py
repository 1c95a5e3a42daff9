"""`eagletui doctor`: what works, what is missing, and how to fix it."""

import click

from tui.commands.options import all_option, hosts_argument, json_option
from tui.commands.output import emit, run_async
from tui.commands.several import ask_all, hosts_of
from tui.commands.terminal import TerminalAsker
from tui.core.errors import EagletuiError
from tui.core.server.doctor import examine
from tui.core.server.finding import Finding
from tui.demo.client import register

_MARKS = {"ok": "✓", "warn": "▲", "block": "✗"}


@click.command()
@hosts_argument
@all_option
@json_option
def command(hosts: tuple[str, ...], everywhere: bool, as_json: bool) -> int:
    """What works, what is missing, and how to fix it."""
    names = hosts_of(hosts, everywhere)
    register()

    async def examine_all() -> list[list[Finding] | EagletuiError]:
        asker = TerminalAsker()
        return await ask_all(names, lambda name: examine(name, asker))

    documents: list[dict[str, object]] = []
    answers = run_async(examine_all())
    for name, found in zip(names, answers, strict=True):
        if isinstance(found, EagletuiError):
            raise found  # nothing of a host: this machine's own settings are wrong
        failed = any(finding.level == "block" for finding in found)
        documents.append(
            {"host": name, "findings": [finding.json() for finding in found], "error": "doctor" if failed else None}
        )
        if not as_json:
            if len(names) > 1:
                print(f"{name}:")
            for finding in found:
                print(f"{_MARKS[finding.level]} {finding.check:<10} {finding.text}")
    if as_json:
        emit(documents[0] if len(names) == 1 else documents)
    return 1 if any(document["error"] for document in documents) else 0
