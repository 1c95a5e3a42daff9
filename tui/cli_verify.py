"""What `eagletui bench verify` does: the load generator against SGLang's own benchmark on one running server."""

import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

from tui.cli_commands import session
from tui.config import default_host, profile_dirs
from tui.core import records
from tui.core.errors import EagletuiError, UsageError
from tui.core.measure.flat import flat
from tui.core.measure.model import BenchProfile, LiveRun, Result
from tui.core.measure.referee import TOOL, Agreement, agreement
from tui.core.session import HostSession
from tui.core.text import one_line
from tui.output import emit, run_async, say

_TOLD_EVERY_S = 5.0
_NAMES = {TOOL: "SGLang's benchmark"}


def verify_command(
    directory: Path | None, name: str, run: str | None, host: str | None, as_json: bool
) -> int:
    """`eagletui bench verify`: 0 where both agree at every load, else 1."""
    from tui.core.launch.profiles import load_bench

    bench = load_bench(name, profile_dirs(directory))
    if bench.driver == "command":
        raise UsageError(
            f"{bench.name} measures by a command of its own",
            "name a bench of driver eagletui or sglang",
            slug="wrong_driver",
        )
    # Under a name of their own: they are measured through another endpoint than runs that are compared.
    bench = replace(bench, name=f"{bench.name}-verify")

    async def verify() -> int:
        async with session(_host_of(run, host)) as opened:
            results = await _measured(opened, bench, run)
            found = [_agreement(point.label, results) for point in bench.points]
            passes = all(agreed.passes for agreed in found)
            if as_json:
                emit(_document(name, opened, results, found, passes))
            else:
                print("\n".join(line for agreed in found for line in _lines(agreed)))
            return 0 if passes else 1

    try:
        return run_async(verify())
    except KeyboardInterrupt:
        raise EagletuiError(
            "interrupted", "the measurement on the host goes on; eagletui ps lists it", slug="interrupted"
        ) from None


def _host_of(run: str | None, host: str | None) -> str:
    if host or run is None:
        return host or default_host()
    known = records.read_all()
    run_id = records.match_run(run, [record.run_id for record in known])
    return next((record.host for record in known if record.run_id == run_id), default_host())


async def _measured(opened: HostSession, bench: BenchProfile, run: str | None) -> list[Result]:
    from tui.core.measure import bench_run, target

    server = target.of_run(await opened.find_run(run)) if run else await target.the_ready_one(opened)
    started = await bench_run.start(opened, bench, server, verify=True)
    say(f"{started.run_id} measures {server} with both by turns")
    results: list[Result] = []
    told = 0.0
    async with aclosing(bench_run.follow_run(opened, started)) as following:
        async for news in following:
            if isinstance(news, Result):
                results.append(news)
                say(_of_result(news))
            elif time.monotonic() - told > _TOLD_EVERY_S:
                told = time.monotonic()
                say(_of_state(news, bench))
    return results


def _of_state(state: LiveRun, bench: BenchProfile) -> str:
    rate = f", {state.tok_s:.1f} tok/s" if state.tok_s is not None else ""
    return f"{state.point.label} run {state.run_index}/{bench.runs}: {state.phase}{rate}"


def _of_result(result: Result) -> str:
    rate = result.throughput.output_tok_s_full
    name = _NAMES.get(result.tool.name, result.tool.name)
    said = f"{result.point.label} run {result.run_index}: {name} {_rate(rate)} tok/s"
    doubts = [guard.text for guard in result.guards if guard.status == "failed"] or list(result.suspicious)
    return f"{said} ({one_line('; '.join(doubts), 200)})" if doubts else said


def _agreement(label: str, results: Sequence[Result]) -> Agreement:
    of_load = [result for result in results if result.point.label == label]
    referee = [result for result in of_load if result.tool.name == TOOL]
    return agreement(label, [result for result in of_load if result.tool.name != TOOL], referee)


def _lines(agreed: Agreement) -> list[str]:
    mark, word = ("✓", "agree") if agreed.passes else ("✗", "do not agree")
    return [
        f"{mark} {agreed.label}: both {word}: {agreed.difference * 100:+.2f} % (limit {agreed.limit * 100:.2f} %, the "
        f"larger of 1 % and the spread of runs, {agreed.spread * 100:.2f} %)",
        f"    load generator      {'  '.join(map(_rate, agreed.ours))} tok/s",
        f"    SGLang's benchmark  {'  '.join(map(_rate, agreed.referee))} tok/s  "
        f"(as printed {'  '.join(map(_rate, agreed.referee_raw))})",
    ]


def _rate(value: float | None) -> str:
    return "–" if value is None else f"{value:,.1f}"


def _document(
    name: str, opened: HostSession, results: Sequence[Result], found: Sequence[Agreement], passes: bool
) -> dict[str, object]:
    referee = next((result for result in results if result.tool.name == TOOL), None)
    return {
        "bench": name,
        "host": opened.entry.name,
        "run": results[0].server.run_id if results else None,
        "bench_run": results[0].bench_run_id if results else None,
        "referee": {"name": TOOL, "version": referee.tool.version if referee else None},
        "passes": passes,
        "points": [
            {
                "load": agreed.label,
                "ours_tok_s": list(agreed.ours),
                "referee_tok_s": list(agreed.referee),
                "referee_printed_tok_s": list(agreed.referee_raw),
                "difference": agreed.difference,
                "spread": agreed.spread,
                "limit": agreed.limit,
                "passes": agreed.passes,
            }
            for agreed in found
        ],
        "results": [flat(result) for result in results],
        "error": None,
    }
