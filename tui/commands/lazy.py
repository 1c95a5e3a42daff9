"""Groups of commands whose modules are imported when they are called: `--help` needs their names and one line each."""

from collections.abc import Mapping
from importlib import import_module

import click
from click.shell_completion import CompletionItem


class LazyGroup(click.Group):
    """Commands by name: the line that `--help` shows, and a module of `tui.commands` whose `command` it is.

    Any other first word is the first argument of the command `otherwise`, which `called` names in its usage; under its own
    name that command takes any word.
    """

    def __init__(self, *args: object, lazy: Mapping[str, str], otherwise: str, called: str, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self._lazy, self._otherwise, self._called = lazy, otherwise, called

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._lazy and cmd_name != self._otherwise:
            return None
        command: click.Command = import_module(f"tui.commands.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self._lazy and name != self._otherwise and not name.startswith("-"):
            return self._called, self.get_command(ctx, self._otherwise), args
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Commands, or whatever may stand as the first argument of the other one."""
        if incomplete.startswith("-"):
            return click.Command.shell_complete(self, ctx, incomplete)
        found = [CompletionItem(name, help=line) for name, line in self._lazy.items() if name.startswith(incomplete)]
        otherwise = self.get_command(ctx, self._otherwise)
        assert otherwise is not None
        first = next(each for each in otherwise.params if isinstance(each, click.Argument))
        more = first.shell_complete(ctx, incomplete)
        return found + [item for item in more if item.value not in self._lazy]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(self._lazy.items()))
