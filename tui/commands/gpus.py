"""`eagletui gpus`: what every GPU of hosts does, now or in a saved file."""

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path

import click

from tui.commands.options import all_option, hosts_argument, json_option
from tui.commands.output import emit, run_async, say
from tui.commands.sessions import host_of_run, session
from tui.commands.several import ask_all, error_entry, exit_code, hosts_of, report
from tui.commands.terminal import TerminalAsker
from tui.core.errors import EagletuiError, Slug, UsageError
from tui.core.host.gpu_csv import smi_text
from tui.core.host.gpus import GpuSample, gpu_table, gpus_json, sample_error
from tui.core.host.saved.reading import read_saved
from tui.core.model.group import group_of
from tui.core.server.node_session import node_sessions
from tui.core.server.session import HostSession
from tui.core.text import one_line

_LARGEST_FILE = 16 << 20  # bytes
_Opening = Callable[[str], AbstractAsyncContextManager[HostSession]]


@click.command()
@hosts_argument
@all_option
@click.option("--run", metavar="RUN", help="The GPUs of this run: of a job of Slurm, on all its nodes.")
@click.option("--watch", is_flag=True, help="Keep running, one sample a second.")
@click.option(
    "--file",
    "file",
    type=click.Path(path_type=Path, allow_dash=True),
    help="Read saved output of nvidia-smi, rocm-smi, …; - is standard input.",
)
@click.option("--query", metavar="LIST", help="Columns of its CSV, where it has no header.")
@json_option
def command(
    hosts: tuple[str, ...],
    everywhere: bool,
    run: str | None,
    watch: bool,
    file: Path | None,
    query: str | None,
    as_json: bool,
) -> int:
    """Memory, utilisation, power, temperature and processes of every GPU."""
    if hosts == ("-",) and file is None:
        file = Path("-")
    if file is not None:
        return _show_file(file, query, as_json)
    if run is not None and (hosts or everywhere):
        raise UsageError("--run and hosts exclude each other", "leave one of them out", slug=Slug.USAGE)
    return run_async(_sample(run, hosts, everywhere, watch, as_json))


async def _sample(run: str | None, hosts: tuple[str, ...], everywhere: bool, watch: bool, as_json: bool) -> int:
    """Samples of hosts, or of what a run is on; the exit code. Raises EagletuiError."""
    asker = TerminalAsker()
    if run is not None:
        async with session(host_of_run(run, None), asker) as opened:
            found = await opened.find_run(run)
            group = group_of(found.extra)
            if found.job is not None and group is not None:
                ids = {member.run_id for member in group.members}
                nodes = node_sessions(opened, [rank for rank in await opened.ranks() if rank.run_id in ids])
                return await _sample_all(tuple(nodes), watch, as_json, lambda node: nullcontext(nodes[node]))
            hosts = group.hosts if group is not None else (found.host,)
    return await _sample_all(hosts_of(hosts, everywhere), watch, as_json, lambda host: session(host, asker))


async def _sample_all(names: tuple[str, ...], watch: bool, as_json: bool, opening: _Opening) -> int:
    printing = _Printing(names, as_json)
    look = _watch if watch else _once
    answers = await ask_all(names, lambda name: look(name, opening, printing))
    if not printing.several and isinstance(answers[0], EagletuiError):
        answers[0].details = {"gpus": [], "samples": printing.counts[names[0]]}
        raise answers[0]
    if printing.several and not watch:
        printing.show_all(answers)
    return exit_code(answers)


def _show_file(file: Path, query: str | None, as_json: bool) -> int:
    sample, samples = read_saved(smi_text(_bytes_of(file)), query)
    if as_json:
        emit(gpus_json(sample, samples))
    elif sample.error:
        raise _no_figures(sample, _named(file))
    else:
        print(gpu_table(sample), flush=True)
    failed = sample_error(sample, "")
    return failed.exit_code if failed else 0


def _named(file: Path) -> str:
    return "standard input" if str(file) == "-" else one_line(str(file), 120)


def _bytes_of(file: Path) -> bytes:
    """A file, or standard input. Raises UsageError where it cannot be read or has more than 16 MiB."""
    try:
        with sys.stdin.buffer if str(file) == "-" else file.open("rb") as source:
            data = source.read(_LARGEST_FILE + 1)
    except OSError as error:
        refused = UsageError(f"{_named(file)}: {error.strerror}", "name a readable file", slug=Slug.UNKNOWN_FILE)
    else:
        if len(data) <= _LARGEST_FILE:
            return data
        what = f"{_named(file)} has more than {_LARGEST_FILE >> 20} MiB"
        refused = UsageError(what, "cut out the last samples", slug=Slug.TOO_LARGE)
    refused.details = {"gpus": [], "samples": 0}
    raise refused


def _no_figures(sample: GpuSample, where: str) -> EagletuiError:
    return sample_error(sample, where) or EagletuiError("no GPU data")


class _Printing:
    """Samples as they are shown: of one host as they are, of several each with its name."""

    def __init__(self, hosts: Sequence[str], as_json: bool) -> None:
        self.several = len(hosts) > 1
        self.as_json = as_json
        self.counts = Counter[str]()  # samples by host
        self._hosts = hosts
        self._found: dict[str, GpuSample] = {}

    def head(self, host: str, end: str = " ") -> str:
        """What names a host where there are several."""
        return f"{host}:{end}" if self.several else ""

    def show(self, host: str, sample: GpuSample) -> None:
        """One sample, at once."""
        self.counts[host] += 1
        if self.as_json:
            emit({**({"host": host} if self.several else {}), **gpus_json(sample, self.counts[host])})
        else:
            print(self.head(host, "\n") + gpu_table(sample), flush=True)

    def keep(self, host: str, sample: GpuSample) -> None:
        """The only sample of one of several hosts."""
        self._found[host] = sample

    def show_all(self, answers: Sequence[int | EagletuiError]) -> None:
        """What was kept, and which hosts failed, in the order of their names."""
        documents: list[dict[str, object]] = []
        for host, answer in zip(self._hosts, answers, strict=True):
            if isinstance(answer, EagletuiError):
                report(host, answer)
                documents.append({**error_entry(host, answer), "gpus": [], "samples": 0})
            else:
                documents.append({"host": host, **gpus_json(self._found[host], 1)})
                if not self.as_json:
                    print(self.head(host, "\n") + gpu_table(self._found[host]), flush=True)
        if self.as_json:
            emit(documents)


async def _once(host: str, opening: _Opening, printing: _Printing) -> int:
    """One sample; the exit code. Raises EagletuiError."""
    async with opening(host) as opened:
        sample = await opened.sample()
    if sample.error and not printing.as_json:
        raise _no_figures(sample, host)
    (printing.keep if printing.several else printing.show)(host, sample)
    return 1 if sample.error else 0


async def _watch(host: str, opening: _Opening, printing: _Printing) -> int:
    """Samples for ever; of several hosts the others go on where one fails. Raises EagletuiError."""
    try:
        async with opening(host) as opened:
            async for sample in opened.gpus():
                if sample.error and not printing.as_json:  # asked again by itself
                    say(f"{printing.head(host)}{sample.error}: {sample.detail or 'no GPU data'}")
                else:
                    printing.show(host, sample)
    except EagletuiError as error:
        if printing.several:
            report(host, error)
            if printing.as_json:
                emit(error_entry(host, error))
        raise
    return 0
