"""`eagletui gpus`: what every GPU of a host does, now or in a saved file."""

import sys
from pathlib import Path

import click

from tui.commands.options import json_option
from tui.commands.output import emit, run_async, say
from tui.commands.sessions import session
from tui.core.config import default_host
from tui.core.errors import EagletuiError, Slug, UsageError
from tui.core.host import gpu_sampler
from tui.core.host.gpu_csv import smi_text
from tui.core.host.gpus import GpuSample, gpu_table, gpus_json, sample_error
from tui.core.host.saved.reading import read_saved
from tui.core.text import one_line

_LARGEST_FILE = 16 << 20  # bytes


@click.command()
@click.argument("host", required=False)
@click.option("--watch", is_flag=True, help="Keep running, one sample a second.")
@click.option(
    "--file",
    "file",
    type=click.Path(path_type=Path, allow_dash=True),
    help="Read saved output of nvidia-smi, rocm-smi, …; - is standard input.",
)
@click.option("--query", metavar="LIST", help="Columns of its CSV, where it has no header.")
@json_option
def command(host: str | None, watch: bool, file: Path | None, query: str | None, as_json: bool) -> int:
    """Memory, utilisation, power, temperature and processes of every GPU."""
    if host == "-" and file is None:
        host, file = None, Path("-")
    name = host or default_host()

    def show(sample: GpuSample, samples: int) -> None:
        if as_json:
            emit(gpus_json(sample, samples))
        elif sample.error:
            raise sample_error(sample, _named(file) if file else name) or EagletuiError("no GPU data")
        else:
            print(gpu_table(sample), flush=True)

    if file is not None:
        sample, samples = read_saved(smi_text(_bytes_of(file)), query)
        show(sample, samples)
        failed = sample_error(sample, "")
        return failed.exit_code if failed else 0
    count = 0

    async def sample_host() -> int:
        nonlocal count
        async with session(name) as opened:
            if not watch:
                sample = await gpu_sampler.one_sample(opened.transport, opened.entry.python)
                show(sample, 1)
                return 1 if sample.error else 0
            async for sample in opened.gpus():
                count += 1
                if sample.error and not as_json:  # asked again by itself
                    say(f"{sample.error}: {sample.detail or 'no GPU data'}")
                else:
                    show(sample, count)
        return 0

    try:
        return run_async(sample_host())
    except EagletuiError as error:
        error.details = {"gpus": [], "samples": count}
        raise


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
