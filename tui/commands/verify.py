"""`eagletui bench verify`: the load generator against SGLang's own benchmark on one running server."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from tui import format as written
from tui.commands.measure import measure
from tui.commands.options import measured_server
from tui.commands.output import emit, say
from tui.core.bench.sglang_driver import NAME, Agreement, agreement
from tui.core.config import profile_dirs
from tui.core.errors import Slug, UsageError
from tui.core.model.result import Result
from tui.core.profiles.load import load_bench
from tui.core.records import picked
from tui.core.results.flat import flat


@click.command()
@measured_server()
@click.pass_obj
def command(
    directory: Path | None,
    name: str,
    run: str | None,
    url: str | None,
    host: str | None,
    sets: tuple[str, ...],
    as_json: bool,
) -> int:
    """Hold the load generator against SGLang's own benchmark, alternately on one server.

    The exit code is 0 where both agree at every load, else 1.
    """
    profile = load_bench(name, profile_dirs(directory), sets)
    if profile.driver == "command":
        raise UsageError(
            f"{profile.name} measures by a command of its own",
            "name a bench of driver eagletui or sglang",
            slug=Slug.WRONG_DRIVER,
        )
    # Under a name of their own: not of the length, nor always of the interface, of runs that are compared.
    profile = replace(profile, name=f"{profile.name}-verify", driver="eagletui")
    results: list[Result] = []
    measure(profile, run, url, host, results, None if as_json else say, verify=True)
    found = []
    for label in (point.label for point in profile.points):
        at_load = [result for result in results if result.point.label == label]
        ours, referee = ([r for r in at_load if (r.tool.name == NAME) is of_referee] for of_referee in (False, True))
        found.append(agreement(label, ours, referee))
    passes = all(agreed.passes for agreed in found)
    if as_json:
        emit(_document(name, results, found, passes))
    else:
        print("\n".join(line for agreed in found for line in _lines(agreed, _interface(results))))
    return 0 if passes else 1


def _interface(results: Sequence[Result]) -> str | None:
    """What both measured through: generate, chat."""
    return next((result.tool.backend for result in results if result.tool.name != NAME), None)


def _lines(agreed: Agreement, interface: str | None) -> list[str]:
    mark, word = ("✓", "agree") if agreed.passes else ("✗", "do not agree")
    return [
        f"{mark} {agreed.label} through {interface}: the two {word}, the load generator is {_percent(agreed.difference)} from SGLang's benchmark",
        f"  limit {_percent(agreed.limit)}: 1 %, or the spread of the runs ({_percent(agreed.spread)}) where it is larger",
        f"  load generator      {_rates(agreed.ours)} tok/s",
        f"  SGLang's benchmark  {_rates(agreed.referee)} tok/s; printed {_rates(agreed.referee_raw)}, "
        "its GET /server_info included",
    ]


def _percent(share: float) -> str:
    return f"{written.decimals(share * 100, 2)} %"


def _rates(rates: Sequence[float]) -> str:
    return " ".join(written.tok_s(rate) for rate in rates)


def _document(name: str, results: Sequence[Result], found: Sequence[Agreement], passes: bool) -> dict[str, object]:
    referee = next(result for result in results if result.tool.name == NAME)
    points = "load=label ours_tok_s=ours referee_tok_s=referee referee_printed_tok_s=referee_raw difference spread limit passes"
    return {
        "bench": name,
        "host": referee.server.host,
        "run": referee.server.run_id,
        "bench_run": referee.bench_run_id,
        "referee": {"name": NAME, "version": referee.tool.version},
        "interface": _interface(results),
        "passes": passes,
        "points": [picked(agreed, points) for agreed in found],
        "results": [flat(result) for result in results],
        "error": None,
    }
