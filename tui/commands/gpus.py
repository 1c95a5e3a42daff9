"""`eagletui gpus`: what every GPU of hosts does, now or in a saved file."""

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from tui.commands.options import all_option, hosts_argument, json_option
from tui.commands.output import emit, run_async, say
from tui.commands.sessions import session
from tui.commands.several import ask_all, error_entry, exit_code, hosts_of, report
from tui.commands.terminal import TerminalAsker
from tui.core.errors import EagletuiError, Slug, UsageError
from tui.core.host import gpu_sampler
from tui.core.host.gpu_csv import smi_text
from tui.core.host.gpus import GpuSample, gpu_table, gpus_json, sample_error
from tui.core.host.saved.reading import read_saved
from tui.core.text import one_line

_LARGEST_FILE = 16 << 20  # bytes


@click.command()
@hosts_argument
@all_option
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
    hosts: tuple[str, ...], everywhere: bool, watch: bool, file: Path | None, query: str | None, as_json: bool
) -> int:
    """Memory, utilisation, power, temperature and processes of every GPU."""
    if hosts == ("-",) and file is None:
        file = Path("-")
    if file is not None:
        return _show_file(file, query, as_json)
    names = hosts_of(hosts, everywhere)
    printing = _Printing(names, as_json)

    async def sample_all() -> list[int | EagletuiError]:
        asker = TerminalAsker()
        return await ask_all(
            names, lambda name: _watch(name, asker, printing) if watch else _once(name, asker, printing)
        )

    answers = run_async(sample_all())
    if len(names) == 1 and isinstance(answers[0], EagletuiError):
        answers[0].details = {"gpus": [], "samples": printing.count}
        raise answers[0]
    printing.finish(answers)
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
    """Samples as they are shown: of one host as they are, of several each under or with its name."""

    def __init__(self, hosts: Sequence[str], as_json: bool) -> None:
        self.count = 0  # samples of hosts that are watched
        self.as_json = as_json
        self._hosts = hosts
        self._found: dict[str, GpuSample] = {}

    def head(self, host: str, end: str = " ") -> str:
        """What names a host where there are several."""
        return f"{host}:{end}" if len(self._hosts) > 1 else ""

    def show(self, host: str, sample: GpuSample) -> None:
        """One sample, at once."""
        self.count += 1
        if self.as_json:
            emit({**({"host": host} if len(self._hosts) > 1 else {}), **gpus_json(sample, self.count)})
        else:
            print(self.head(host, "\n") + gpu_table(sample), flush=True)

    def keep(self, host: str, sample: GpuSample) -> None:
        """The only sample of a host; it is shown when all hosts have answered, in their order."""
        self._found[host] = sample
        if len(self._hosts) == 1:
            self.show(host, sample)

    def finish(self, answers: Sequence[int | EagletuiError]) -> None:
        """Shows what was kept of several hosts, and which of them failed."""
        if len(self._hosts) == 1:
            return
        documents = []
        for host, answer in zip(self._hosts, answers, strict=True):
            if isinstance(answer, EagletuiError):
                report(host, answer)
                documents.append({**error_entry(host, answer), "gpus": [], "samples": 0})
            elif (sample := self._found.get(host)) is not None:
                documents.append({"host": host, **gpus_json(sample, 1)})
                if not self.as_json:
                    print(f"{host}:\n{gpu_table(sample)}", flush=True)
        if self.as_json:
            emit(documents)


async def _once(host: str, asker: TerminalAsker, printing: _Printing) -> int:
    """One sample; the exit code. Raises EagletuiError."""
    async with session(host, asker) as opened:
        sample = await gpu_sampler.one_sample(opened.transport, opened.entry.python)
    if sample.error and not printing.as_json:
        raise _no_figures(sample, host)
    printing.keep(host, sample)
    return 1 if sample.error else 0


async def _watch(host: str, asker: TerminalAsker, printing: _Printing) -> int:
    """Samples for ever. Raises EagletuiError."""
    async with session(host, asker) as opened:
        async for sample in opened.gpus():
            if sample.error and not printing.as_json:  # asked again by itself
                say(f"{printing.head(host)}{sample.error}: {sample.detail or 'no GPU data'}")
            else:
                printing.show(host, sample)
    return 0
