"""`eagletui bench NAME`: measures a running server, reports how it goes, and what it found."""

import shutil
import statistics
import sys
from collections.abc import Callable, Sequence
from contextlib import aclosing
from pathlib import Path

import click

from tui import format as written
from tui.commands.groups import group_on_record, group_session
from tui.commands.options import measured_server
from tui.commands.output import Interrupted, emit, run_async, say, write_over
from tui.commands.sessions import host_of_run, raise_if_refused, session
from tui.core.bench import allreduce, bench_run, target
from tui.core.bench.drivers import VERIFY
from tui.core.bench.other_hosts import Sessions
from tui.core.bench.target import Target
from tui.core.config import default_host, profile_dirs
from tui.core.errors import EagletuiError, Slug, UsageError, of_system
from tui.core.model.experiment import LiveRun
from tui.core.model.profile import BenchProfile, Limits
from tui.core.model.result import GuardStatus, Result
from tui.core.model.run import Run
from tui.core.profiles.load import load_bench
from tui.core.records import to_json
from tui.core.results.flat import flat
from tui.core.server.session import HostSession
from tui.core.text import aligned, one_line
from tui.core.verdicts.sentences import answer_words, limits_words
from tui.core.verdicts.thresholds import breaches, threshold

_NOT_OVER_RUNS = frozenset(["run_index"])  # what the medians of several runs have not
_WORST = (GuardStatus.FAILED, GuardStatus.OK, GuardStatus.NOT_APPLICABLE)


@click.command()
@measured_server("")
@click.option(
    "--fail-if", "conditions", multiple=True, metavar="COND", help='Exit code 1 where it holds: "per_user_tok_s < 85".'
)
@click.option("--detach", is_flag=True, help="Start it and say its id; `wait ID --for exit` stores what it finds.")
@click.pass_obj
def command(
    directory: Path | None,
    name: str,
    run: str | None,
    url: str | None,
    host: str | None,
    sets: tuple[str, ...],
    conditions: tuple[str, ...],
    detach: bool,
    as_json: bool,
) -> int:
    """Measure a running server; each run is stored, with the guards that it failed."""
    profile = load_bench(name, profile_dirs(directory), sets)
    thresholds = [threshold(text) for text in conditions]
    if allreduce.is_one(profile):
        if run is not None or url is not None or thresholds:
            raise UsageError(
                f"{name} measures the host, not a server", "leave --run, --url and --fail-if out", slug=Slug.BAD_VALUE
            )
        if detach:
            raise UsageError(f"{name} takes seconds", "leave --detach out", slug=Slug.BAD_VALUE)
        return measure_allreduce(profile, host, as_json)
    if detach:
        if thresholds:
            raise UsageError("--detach and --fail-if exclude each other", "leave one out", slug=Slug.BAD_VALUE)
        begun = measure(profile, run, url, host, [], None, detach=True)
        if as_json:
            emit({"run": begun.run_id, "host": begun.host, "bench": profile.name, "error": None})
        else:
            print(begun.run_id)
        return 0
    found: list[Result] = []
    failure: EagletuiError | None = None
    try:
        measure(profile, run, url, host, found, None if as_json else say)
    except EagletuiError as error:
        if not found or isinstance(error, Interrupted):
            raise
        failure = error
    counting = [[result for result in group if result.valid] for group in _points(_deciding(found))]
    failed = breaches(thresholds, counting)
    if as_json:
        emit(document(found, failure) | {"failed_if": [str(one) for one in failed]})
    else:
        print("\n".join([summary(found, profile), *(f"✗ {one}" for one in failed)]))
        if failure is not None:
            say(f"not everything was measured: {failure.message}")
    if failure is not None:
        return failure.exit_code
    return 0 if not failed and all(result.valid for result in _deciding(found)) else 1


def measure(
    profile: BenchProfile,
    run: str | None,
    url: str | None,
    host: str | None,
    found: list[Result],
    tell: Callable[[str], None] | None,
    *,
    verify: bool = False,
    detach: bool = False,
) -> Run:
    """Measures the server that is meant; results are in `found` as they come. Raises Interrupted once it has begun.

    Returns the measurement as it was started; with `detach` it goes on by itself.
    """
    if run is not None and url is not None:
        raise UsageError("--run and --url exclude each other", "give one of the two", slug=Slug.BAD_VALUE)
    where = host_of_run(run, host) if run is not None else host or default_host()
    begun: list[Run] = []

    async def measure_on(opened: HostSession, server: Target, others: Sessions) -> None:
        driver = VERIFY if verify else None
        begun.append(await bench_run.start(opened, profile, server, driver=driver, others=others))
        if tell:
            how = "with both, alternately" if verify else written.runs_words(profile)
            tell(f"{begun[0].run_id} measures {server} on {opened.entry.name}: {how}")
        if not detach:
            await _follow(opened, begun[0], profile, found, tell, others)

    async def start_and_follow() -> None:
        if (group := group_on_record(run) if run is not None else None) is not None:
            async with group_session(group.hosts) as hosts:
                await measure_on(hosts.of(group.serving), await target.of_group(hosts, group), hosts.sessions)
            return
        async with session(where) as opened:
            await measure_on(opened, await _find_target(opened, run, url), {})

    try:
        run_async(start_and_follow())
    except KeyboardInterrupt:
        if not begun:
            raise
        raise _interrupted(begun[0], begun[0].host) from None
    return begun[0]


def _interrupted(run: Run, host: str) -> Interrupted:
    """Ctrl-C: the generator on the host keeps running."""
    return Interrupted(
        f"interrupted; {run.run_id} keeps measuring",
        f"eagletui wait {run.short_id} --for exit --host {one_line(host, 60)} stores what it finds, "
        f"eagletui stop {run.short_id} ends it",
    )


async def _find_target(opened: HostSession, run: str | None, url: str | None) -> Target:
    """The server that is meant: a run, an address, or the one that is ready. Raises UsageError."""
    if url is not None:
        return await target.of_url(opened, url)
    if run is not None:
        return await target.of_member(opened, await opened.find_run(run))
    return await target.the_ready_one(opened)


async def _follow(
    opened: HostSession,
    run: Run,
    profile: BenchProfile,
    found: list[Result],
    tell: Callable[[str], None] | None,
    others: Sessions,
) -> None:
    """Collects the results as they come. Raises EagletuiError where it does not come to its end."""
    line = _LiveLine(profile, sys.stderr.isatty()) if tell else None
    try:
        async with aclosing(bench_run.follow_run(opened, run, others)) as following:
            async for news in following:
                raise_if_refused(opened)
                if isinstance(news, Result):
                    found.append(news)
                    if line and tell:
                        line.clear()
                        tell(_result_words(news, profile))
                elif line:
                    line.show(news)
    except OSError as error:
        refused = of_system(error)
        raise EagletuiError(
            f"{run.run_id} keeps running, but is not stored: {refused.message}",
            f"{refused.hint}, then eagletui wait {run.short_id} --for exit --host {one_line(opened.entry.name, 60)}",
            slug=refused.slug,
        ) from None
    finally:
        if line:
            line.clear()


class _LiveLine:
    """How it goes, on standard error: one line that is written over on a terminal, else a line a phase."""

    def __init__(self, profile: BenchProfile, terminal: bool) -> None:
        self._profile, self._terminal = profile, terminal
        self._width = 0
        self._phase: object = None

    def show(self, live: LiveRun) -> None:
        text = live_words(live, self._profile)
        if self._terminal:
            text = text[: shutil.get_terminal_size().columns - 1]  # a line that wraps cannot be written over
            write_over(text.ljust(self._width))
            self._width = len(text)
        elif (phase := (live.point, live.run_index, live.phase)) != self._phase:
            self._phase = phase
            say(f"{live.point.label} run {live.run_index} of {self._profile.runs}: {live.phase}")

    def clear(self) -> None:
        if self._width:
            write_over(" " * self._width)
            write_over("")
            self._width = 0


def live_words(live: LiveRun, profile: BenchProfile) -> str:
    """One state as one line of at most some hundred characters."""
    words = [
        f"{live.point.label} run {live.run_index}/{profile.runs} {live.phase}",
        f"{written.tok_s(live.tok_s)} tok/s",
    ]
    if live.tpot_ms is not None:
        words.append(f"TPOT {written.decimals(live.tpot_ms, 1)} ms")
    if live.accept_length is not None:
        words.append(f"accept {written.accept(live.accept_length)}")
    if live.power_w is not None:
        words.append(f"{written.whole(live.power_w)} W")
    words.append(f"{live.completed} done" + (f", {live.errors} failed" if live.errors else ""))
    if live.left_s is not None:
        words.append(f"{written.duration(live.left_s)} left")
    return " · ".join(words)


def _result_words(result: Result, profile: BenchProfile) -> str:
    text = f"{result.point.label} run {result.run_index} of {profile.runs}: {figure_words(result)}"
    return text if result.valid else f"{text} · does not count: {_why(result)}"


def figure_words(result: Result) -> str:
    """What a run found, in a few words: of a search its answer, of a load with limits whether it holds them."""
    if result.capacity is not None:
        return answer_words(result.capacity)
    if result.slo is not None:
        return f"{_share(result)} within the limits, {'holds' if result.slo.holds else 'does not hold'}"
    return f"{written.tok_s(result.throughput.per_user_tok_s)} tok/s per user"


def _share(result: Result) -> str:
    share = result.slo.share if result.slo is not None else None
    return written.NONE if share is None else f"{share * 100:.1f} %"


def _why(result: Result) -> str:
    failed = [guard.text for guard in result.guards if guard.status is GuardStatus.FAILED]
    return one_line("; ".join(failed) or "; ".join(result.suspicious) or "its source says so", 300)


# -- what was found ---------------------------------------------------------------------------------------------------


def _deciding(results: Sequence[Result]) -> list[Result]:
    """The results that say what was asked: the answers of searches where there are any, a load beyond the end is none."""
    return [result for result in results if result.capacity is not None] or list(results)


def _points(results: Sequence[Result]) -> list[list[Result]]:
    """Results by load, in the order in which they were measured."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(result.point.label, []).append(result)
    return list(groups.values())


def medians(results: Sequence[Result]) -> dict[str, object]:
    """The flat record of several runs at one load: medians of the figures over those that count, else over all."""
    records = [flat(result) for result in ([r for r in results if r.valid] or results)]
    merged = dict(records[0])
    for key in merged:
        values = [v for r in records if isinstance(v := r.get(key), int | float) and not isinstance(v, bool)]
        if key in _NOT_OVER_RUNS:
            merged[key] = None
        elif values:
            middle = statistics.median(values)
            whole = all(isinstance(value, int) for value in values) and middle == int(middle)
            merged[key] = int(middle) if whole else middle
    return merged


def document(results: Sequence[Result], failure: EagletuiError | None = None) -> dict[str, object]:
    """What `--json` prints: the figures of the first load, or of what was found, and every run with its whole record."""
    guards = [guard for result in results for guard in result.guards]
    said = {
        "valid": all(result.valid for result in _deciding(results)),
        "guards": {
            name: next(str(s) for s in _WORST if any(g.status is s for g in guards if g.id == name))
            for name in dict.fromkeys(guard.id for guard in guards)
        },
        "results": [{**flat(result), "record": to_json(result)} for result in results],
        "error": failure.slug if failure else None,
    }
    if failure is not None:
        said |= {"message": failure.message, "hint": str(failure.hint) if failure.hint else None}
    return {**medians(_points(_deciding(results))[0]), **said}


_FIGURES = {  # column -> key of the flat record, decimals
    "tok/s user": ("per_user_tok_s", 1),
    "tok/s": ("output_tok_s", 1),
    "TTFT ms": ("median_ttft_ms", 1),
    "TPOT ms": ("median_tpot_ms", 2),
    "gap ms": ("median_itl_ms", 2),
    "accept": ("accept_length", 2),
    "J/token": ("joules_per_token", 2),
}


def summary(results: Sequence[Result], profile: BenchProfile) -> str:
    """A table of every run with the medians of those that count, and why others do not; of a search, what it found."""
    rows: list[tuple[str, ...]] = (
        [("load", "run", *_FIGURES, "")] if profile.search is None else _search_rows(results, profile.search.limits)
    )
    for group in _points(results) if profile.search is None else ():
        rows += [_row(flat(result), str(result.run_index), _mark(result)) for result in group]
        counting = [result for result in group if result.valid]
        if len(counting) > 1:
            rows.append(_row(medians(counting), "median", ""))
    lines = aligned(rows, left=(len(rows[0]) - 1,))
    for result in results:
        if result.capacity is not None:
            limits = limits_words(result.capacity.search.limits)
            lines.append(f"→ run {result.run_index}: {answer_words(result.capacity)}, with {limits}")
        elif profile.search is not None:
            continue  # its answer says what of it matters
        place = f"{result.point.label} run {result.run_index}"
        if not result.valid:
            lines.append(f"✗ {place} does not count: {_why(result)}")
        lines += [f"▲ {place}: {one_line(text, 200)}" for text in result.suspicious]
    places = dict.fromkeys(result.tool.container for result in results if result.tool.container)
    lines += [f"measured beside {one_line(place, 100)}, in a container of its image and network" for place in places]
    guards = [guard for result in results for guard in result.guards]
    unchecked = dict.fromkeys(guard.text for guard in guards if guard.status is GuardStatus.NOT_APPLICABLE)
    lines += [text if text.startswith("not checked ") else f"not checked: {text}" for text in unchecked]
    return "\n".join(lines)


def _search_rows(results: Sequence[Result], limits: Limits) -> list[tuple[str, ...]]:
    """The loads of each search under their head, the knee marked: a row a load, growing."""
    knees = {(r.capacity.found, r.run_index) for r in results if r.capacity is not None}
    loads = [r for r in results if r.capacity is None and r.slo is not None]

    def amount(result: Result) -> float:
        return float(result.load.concurrency or result.load.rate or 0)

    figures = {
        "goodput/s": ("goodput_req_s", 2),
        "tok/s user": ("per_user_tok_s", 1),
        f"TTFT {limits.tail}": (f"{limits.tail}_ttft_ms", 1),
        f"TPOT {limits.tail}": (f"{limits.tail}_tpot_ms", 2),
    }
    rows: list[tuple[str, ...]] = [("load", "run", "within limits", *figures, "")]
    for result in sorted(loads, key=lambda r: (r.run_index, amount(r))):
        record, held = flat(result), result.slo
        mark = "✓ holds" if held is not None and held.holds else "✗ fails"
        if held is not None and not held.sure:
            mark += ", just"
        if (amount(result), result.run_index) in knees:
            mark += "  ◀ highest that holds"
        shown = [_figure(record, key, places) for key, places in figures.values()]
        rows.append((_load(record), str(result.run_index), _share(result), *shown, mark))
    return rows


def _mark(result: Result) -> str:
    return "✗ invalid" if not result.valid else "▲" if result.suspicious else "✓"


def _row(record: dict[str, object], run: str, mark: str) -> tuple[str, ...]:
    return (_load(record), run, *(_figure(record, key, places) for key, places in _FIGURES.values()), mark)


def _load(record: dict[str, object]) -> str:
    users, rate = record.get("max_concurrency"), record.get("request_rate")
    return f"{rate:g}/s" if isinstance(rate, int | float) else f"{users} at once"


def _figure(record: dict[str, object], key: str, places: int) -> str:
    value = record.get(key)
    return written.decimals(value, places) if isinstance(value, int | float) else written.NONE


# -- the all-reduce micro-benchmark -----------------------------------------------------------------------------------


def measure_allreduce(profile: BenchProfile, host: str | None, as_json: bool) -> int:
    """Measures the host, not a server: 0 with figures, 1 where it failed."""

    async def measure() -> allreduce.Report:
        async with session(host or default_host()) as opened:
            run = await allreduce.start(opened, profile)
            if not as_json:
                say(f"{run.run_id} measures {opened.entry.name}")
            return await allreduce.wait(opened, run)

    report = run_async(measure())
    if as_json:
        emit({**to_json(report), "error": None})
    else:
        print(_allreduce_table(report))
    return 0


def _allreduce_table(report: allreduce.Report) -> str:
    """The figures as aligned lines."""
    with_graphs = "in CUDA graphs" if report.mode == "graph" else "call by call"
    library = f"{report.backend} {report.nccl}" if report.nccl else report.backend
    calls = f"{2 * report.layers} of them"
    rows: list[tuple[str, ...]] = [("", "users", "tokens", "bytes", "median µs", "p99 µs", f"{calls}, ms")]
    for point in report.points:
        name = point.what if point.draft_tokens is None else f"{point.what} {point.draft_tokens} drafts"
        figures = f"{point.batch} {point.tokens} {point.bytes:,} {point.median_us:,.1f} {point.p99_us:,.1f} {point.step_ms:,.2f}"
        rows.append((name, *figures.split()))
    head = (
        f"{report.ranks} ranks on {report.device or 'unknown'} ({library}, {with_graphs}), hidden {report.hidden}, "
        f"{report.layers} layers"
    )
    return "\n".join([head, *aligned(rows), *report.notes])
