"""Options and values that several commands share."""

import math
from collections.abc import Callable
from typing import Any

import click

from tui.commands import completing
from tui.core.text import one_line

_TINY = 1e-6  # below that nothing is measured, and dividing by it gives no figure
MAX_FIGURE = 1e6  # tokens a second, milliseconds, tokens a cycle
THREE_YEARS_S = 1e8  # beyond that, somebody mistyped


class Number(click.ParamType[float]):
    """A finite number above zero (or zero, where that has a meaning), and below a limit where there is one."""

    name = "number"

    def __init__(self, below: float = math.inf, *, zero: bool = False, what: str = "a number") -> None:
        self.below, self.zero, self.what = below, zero, what

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        shown = repr(one_line(str(value), 40))
        if 0 < number < _TINY:
            self.fail(f"{shown} is too close to 0")
        if not (0 < number < self.below or (self.zero and number == 0)):
            least = "0 or more" if self.zero else "above 0"
            limit = f" and below {self.below:g}" if self.below < math.inf else ""
            self.fail(f"{shown} is not {self.what} {least}{limit}")
        return number


SECONDS = Number(THREE_YEARS_S, zero=True, what="a number of seconds")

json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
hosts_argument = click.argument("hosts", nargs=-1, metavar="[HOST]...", shell_complete=completing.hosts)
all_option = click.option("--all", "everywhere", is_flag=True, help="Every host of config.toml.")
host_option = click.option(
    "--host", metavar="H", shell_complete=completing.hosts, help="Host, instead of EAGLETUI_HOST or default_host."
)
set_option = click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="K=V",
    shell_complete=completing.flags,
    help="Override a flag, or env.X, gpus.",
)
resume_option = click.option("--resume", is_flag=True, help="Continue the newest unfinished one of this name there.")
yes_option = click.option("--yes", is_flag=True, help="Though a server in the way is being measured.")
seed_option = click.option("--seed", type=click.IntRange(0, 2**32), metavar="N", help="Decides which arm begins.")
timeout_option = click.option("--timeout", type=SECONDS, metavar="S", help="Seconds to wait.")
bench_option = click.option(
    "--bench", metavar="B", shell_complete=completing.bench_profiles, help="Results of this bench alone."
)
concurrency_option = click.option("--concurrency", type=click.IntRange(min=1), metavar="N", help="At this load alone.")


def measured_server(name: str = "NAME") -> Callable[[Callable[..., int]], Callable[..., int]]:
    """What a measurement needs: the bench profile, shown as `name`, and which server."""

    def with_options(command: Callable[..., int]) -> Callable[..., int]:
        for parameter in (
            json_option,
            click.option(
                "--set",
                "sets",
                multiple=True,
                metavar="K=V",
                shell_complete=completing.bench_keys,
                help="Override a key of the profile.",
            ),
            host_option,
            click.option("--url", metavar="URL", help="A server at this address, as the host reaches it."),
            click.option(
                "--run",
                metavar="RUN",
                shell_complete=completing.runs,
                help="This server, instead of the one that is ready.",
            ),
            click.argument("name", metavar=name, shell_complete=completing.bench_profiles),
        ):
            command = parameter(command)
        return command

    return with_options
