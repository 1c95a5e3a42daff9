"""`eagletui results`: list, import, export and recompute what was measured."""

import gzip
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from tui import format as written
from tui.commands import completing
from tui.commands.options import json_option
from tui.commands.output import emit, say
from tui.core.bench.recompute import recompute, recompute_answer
from tui.core.config import write_whole
from tui.core.errors import EagletuiError, Slug, UsageError
from tui.core.experiment.export.formats import FORMATS, format_named
from tui.core.model.result import Result
from tui.core.results import store
from tui.core.results.external.reading import decode, read_posted
from tui.core.results.flat import SIMULATED, flat, simulated
from tui.core.text import aligned, as_number, one_line
from tui.core.verdicts.sentences import answer_words, count

_COLUMNS = ("started", "result", "host", "profile", "bench", "load", "tok/s user", "tok/s", "TTFT", "TPOT", "accept")
_LARGEST_FILE = 256 << 20  # bytes that are imported
_PROBLEMS = 10  # lines that were left out, of which each is said
_NAMED = 8  # values of a filter that fit something
_NUMBERS = 6  # columns from here on are aligned to the right


def _chosen(command: Callable[..., Any]) -> Callable[..., Any]:
    for name, text in (
        ("profile", "Only of launch profile P."),
        ("bench", "Only of bench B."),
        ("host", "Only of host H."),
    ):
        command = click.option(f"--{name}", metavar=name[0].upper(), help=text)(command)
    return json_option(command)


@click.group(invoke_without_command=True)
@click.pass_context
@_chosen
def command(ctx: click.Context, host: str | None, bench: str | None, profile: str | None, as_json: bool) -> None:
    """What was measured: list, import, export."""
    if ctx.invoked_subcommand is None:
        ctx.exit(_list(host, bench, profile, as_json))


@command.command(name="list")
@_chosen
def list_results(host: str | None, bench: str | None, profile: str | None, as_json: bool) -> int:
    """Stored results, newest first."""
    return _list(host, bench, profile, as_json)


def _list(host: str | None, bench: str | None, profile: str | None, as_json: bool) -> int:
    stored = store.read_all()
    wanted = [
        result
        for result in stored
        if (host is None or result.server.host == host)
        and (bench is None or result.bench == bench)
        and (profile is None or result.server.profile == profile)
    ]
    _say_unreadable()
    if as_json:
        emit([flat(result) for result in wanted])
    elif wanted:
        print(table(wanted))
    if not wanted:
        say(_why_none(stored, {"host": host, "bench": bench, "profile": profile}))
    return 0


def _why_none(stored: Sequence[Result], asked: Mapping[str, str | None]) -> str:
    """Which of the filters fits no result, and what would."""
    if not stored:
        return "nothing is stored; eagletui bench measures a server"
    for name, value in asked.items():
        there = sorted({str(flat(result)[name]) for result in stored if flat(result)[name] is not None})
        if value is not None and value not in there:
            others = ", ".join(one_line(other, 40) for other in there[:_NAMED]) + (", …" if len(there) > _NAMED else "")
            return f"no stored result is of {name} {one_line(value, 60)}; there are of {others or 'none'}"
    given = ", ".join(f"{name} {one_line(value, 60)}" for name, value in asked.items() if value is not None)
    return f"no stored result is of {given} together"


@command.command(name="import")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--dry-run", is_flag=True, help="Store nothing.")
@click.option("--host", metavar="H", help="Where it was measured.")
@click.option("--profile", metavar="P", help="The launch profile that it measured.")
@json_option
def import_results(file: Path, dry_run: bool, host: str | None, profile: str | None, as_json: bool) -> int:
    """Output of another benchmark (SGLang's, vLLM's, AIPerf, …), text or JSON, becomes results."""
    name = "standard input" if str(file) == "-" else one_line(str(file), 120)
    try:
        with sys.stdin.buffer if str(file) == "-" else file.open("rb") as source:
            data = source.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror}", "name a readable file", slug=Slug.UNKNOWN_FILE) from None
    if len(data) > _LARGEST_FILE:
        raise UsageError(
            f"{name} has more than {_LARGEST_FILE >> 20} MiB", "cut out the part with the results", slug=Slug.TOO_LARGE
        )
    try:
        found = read_posted(decode(data), host=host, profile=profile)
    except UsageError as error:
        raise UsageError(f"{name}: {error.message}", error.hint, slug=error.slug) from None
    for problem in found.problems[:_PROBLEMS]:
        say(problem)
    if (more := len(found.problems) - _PROBLEMS) > 0:
        say(f"… and {more} more")
    if not dry_run:
        for record in found.records:
            rows = "".join(json.dumps(row) + "\n" for row in record.rows)
            store.write(record.result, gzip.compress(rows.encode()) if rows else None)
    results = [record.result for record in found.records]
    if as_json:
        emit([flat(result) for result in results])
    else:
        print(table(results))
        many = count(len(results), "result")
        say(f"{many} found, not stored" if dry_run else f"{many} stored")
    return 0


@command.command(name="export")
@click.argument("refs", metavar="[REF]...", nargs=-1, shell_complete=completing.measured)
@click.option(
    "--format", "form", type=click.Choice([each.name for each in FORMATS]), default="markdown", show_default=True
)
@click.option("--output", metavar="F", type=click.Path(path_type=Path), help="Write a file.")
def export_results(refs: tuple[str, ...], form: str, output: Path | None) -> int:
    """A table to paste into an issue, a spreadsheet, or whole records; REF as of compare, or everything."""
    stored = store.read_all()
    chosen = _named(refs, stored)
    if not chosen:
        raise UsageError("nothing is stored", "eagletui bench measures a server", slug=Slug.UNKNOWN_RESULT)
    data = format_named(form).export(chosen, stored)
    if output is None:
        sys.stdout.buffer.write(data)
    else:
        write_whole(output, data)
        say(f"{output}: {count(len(chosen), 'result')}")
    return 0


def _named(refs: Sequence[str], stored: list[Result]) -> list[Result]:
    """What is named, each once; everything without a name."""
    named = [result for ref in refs for result in store.resolve(ref, stored)] if refs else stored
    return list({result.result_id: result for result in named}.values())


@command.command(name="recompute")
@click.argument("refs", metavar="[REF]...", nargs=-1, shell_complete=completing.measured)
@json_option
def recompute_results(refs: tuple[str, ...], as_json: bool) -> int:
    """Figures and guards anew from the raw rows, where a definition has changed; REF as of compare, or everything."""
    stored = store.read_all()
    chosen = _named(refs, stored)
    changed: list[tuple[Result, Result]] = []
    broken: list[EagletuiError] = []
    left = 0
    now = {result.result_id: result for result in stored}
    # Answers of searches come behind their loads.
    for result in sorted(chosen, key=lambda result: result.capacity is not None):
        try:
            anew = recompute_answer(result, now.get) if result.capacity else recompute(result)
            now[result.result_id] = anew or result
            if anew is not None and anew != result:
                store.write(anew)
                changed.append((result, anew))
        except EagletuiError as error:
            broken.append(error)
        else:
            left += anew is None
    if broken and len(broken) == len(chosen):
        raise broken[0]
    for problem in broken:
        say(problem.message)
    turned = [(before, after) for before, after in changed if before.valid != after.valid]
    if as_json:
        emit([{**flat(after), "before": flat(before)} for before, after in changed])
    else:
        for before, after in turned:
            turn, by = ("is valid now; it was not", before) if after.valid else ("is no longer valid", after)
            print(f"{after.result_id} {turn}: {one_line(_failed(by), 300)}")
    lost = sum(before.valid for before, _ in turned)
    counts = [
        f"{len(chosen)} looked at, {len(changed)} changed",
        f"{lost} no longer valid" if lost else "",
        f"{len(turned) - lost} valid now" if len(turned) > lost else "",
        f"{left} left alone (imports, and results without raw rows)" if left else "",
        f"{len(broken)} damaged" if broken else "",
    ]
    say(", ".join(filter(None, counts)))
    if not refs:
        _say_unreadable()
    return 1 if broken else 0


def _failed(result: Result) -> str:
    return "; ".join(guard.text for guard in result.failed_guards)


def _say_unreadable() -> None:
    if words := store.FILES.unreadable_words():
        say(words)


def table(results: list[Result]) -> str:
    """Results as aligned lines; an invalid one says why at the end of its line."""
    lines = aligned([_COLUMNS, *map(_row, results)], range(_NUMBERS))
    rows = [(line + _mark(result)).rstrip() for line, result in zip(lines, [None, *results], strict=True)]
    return "\n".join([*rows, *([f"▲ {SIMULATED}"] if any(map(simulated, results)) else [])])


def _row(result: Result) -> tuple[str, ...]:
    record = flat(result)

    def figure(*columns: str) -> float | None:
        return next((value for name in columns if (value := as_number(record[name])) is not None), None)

    latencies = [figure(f"median_{name}_ms", f"mean_{name}_ms") for name in ("ttft", "tpot")]
    return (
        result.started_at[:16].replace("T", " ") if result.started_at else written.NONE,
        one_line(result.result_id, 60),
        one_line(result.server.host, 20),
        one_line(written.configured(result.server.profile or written.NONE, result.server.sets), 60),
        one_line(result.bench, 24),
        _load(result),
        *(written.tok_s(figure(name)) for name in ("per_user_tok_s", "output_tok_s")),
        *(written.NONE if ms is None else f"{written.decimals(ms, 1)} ms" for ms in latencies),
        written.accept(figure("accept_length")),
    )


def _load(result: Result) -> str:
    load = result.load
    if result.capacity is not None:
        return answer_words(result.capacity)
    if load.rate is not None:
        return f"{load.rate:g} req/s"
    if load.concurrency is not None:
        return f"{load.concurrency} at once"
    return "all at once"


def _mark(result: Result | None) -> str:
    if result is None or (result.valid and not result.suspicious):
        return ""
    why = _failed(result) or "; ".join(result.suspicious)
    return f"  {'▲' if result.valid else '✗ invalid:'} {one_line(why, 120)}"
