"""`eagletui gpus`: what every GPU of a host does, now or in a saved file."""

from pathlib import Path

import click

from tui.commands.options import json_option
from tui.commands.output import emit, run_async, say
from tui.commands.sessions import session
from tui.core.config import default_host
from tui.core.errors import EagletuiError, Slug, UsageError
from tui.core.host import gpu_sampler
from tui.core.host.gpu_csv import parse_smi, smi_text
from tui.core.host.gpus import GpuSample, gpu_table, gpus_json, sample_error


@click.command()
@click.argument("host", required=False)
@click.option("--watch", is_flag=True, help="Keep running, one sample a second.")
@click.option("--file", "file", type=click.Path(path_type=Path), help="Read saved `nvidia-smi --format=csv` output.")
@click.option("--query", metavar="LIST", help="Columns of the file, where it has no header.")
@json_option
def command(host: str | None, watch: bool, file: Path | None, query: str | None, as_json: bool) -> int:
    """Memory, utilisation, power, temperature and processes of every GPU."""
    name = host or default_host()

    def show(sample: GpuSample, samples: int) -> None:
        if as_json:
            emit(gpus_json(sample, samples))
        elif sample.error:
            raise sample_error(sample, str(file or name)) or EagletuiError("no GPU data")
        else:
            print(gpu_table(sample), flush=True)

    if file is not None:
        try:
            sample, samples = parse_smi(smi_text(file.read_bytes()), query)
        except OSError as error:
            unreadable = UsageError(f"{file}: {error.strerror}", "name a readable file", slug=Slug.UNKNOWN_FILE)
            unreadable.details = {"gpus": [], "samples": 0}
            raise unreadable from None
        show(sample, samples)
        return 1 if sample.error else 0
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
