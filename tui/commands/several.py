"""One command on several hosts: they are asked side by side, a host that fails is an entry, the others still answer."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from tui.commands.output import error_document, error_line, say
from tui.core.config import default_host, load_settings
from tui.core.errors import EagletuiError, Slug, UsageError

T = TypeVar("T")


def hosts_of(names: Sequence[str], everywhere: bool) -> tuple[str, ...]:
    """The hosts that a command line means, each once: those of `--all`, those it names, else the default one.

    Raises UsageError where that is none, or both.
    """
    if not everywhere:
        return tuple(dict.fromkeys(names)) or (default_host(),)
    if names:
        raise UsageError("--all and names of hosts exclude each other", "leave one of them out", slug=Slug.USAGE)
    configured = tuple(load_settings().hosts)
    if not configured:
        raise UsageError("config.toml has no [hosts.NAME]", "name the hosts instead of --all", slug=Slug.BAD_CONFIG)
    return configured


async def ask_all(hosts: Sequence[str], ask: Callable[[str], Awaitable[T]]) -> list[T | EagletuiError]:
    """The answer of each host, or why there is none, in the order of `hosts`."""

    async def answer(host: str) -> T | EagletuiError:
        try:
            return await ask(host)
        except EagletuiError as error:
            return error

    return await asyncio.gather(*map(answer, hosts))


def report(host: str, error: EagletuiError) -> None:
    """One line about a host that failed, on stderr."""
    say(error_line(error, None if host in error.message else host))


def error_entry(host: str, error: EagletuiError) -> dict[str, object]:
    """The same as an entry among the answers of the others."""
    return {"host": host, **error_document(error)}


def exit_code(answers: Sequence[object]) -> int:
    """That of the first failure; an answer that is a number is one itself."""
    codes = (answer.exit_code if isinstance(answer, EagletuiError) else answer for answer in answers)
    return next((code for code in codes if isinstance(code, int) and code), 0)
