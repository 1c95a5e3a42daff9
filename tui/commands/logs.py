"""`eagletui logs`: a view on a terminal, the bytes elsewhere, records as JSON."""

import os
import sys
from contextlib import aclosing

import click

from tui.commands.named_logs import named_log, opened_log
from tui.commands.options import host_option, json_option
from tui.commands.output import emit, run_async, say
from tui.core.errors import UsageError
from tui.core.logs.named import NamedLog
from tui.core.logs.reader import LogReader
from tui.core.masking import SecretMask, mask_secrets
from tui.core.model.log import LogRecord
from tui.core.sglang.tracker import LogTracker
from tui.core.text import sanitize


@click.command()
@click.argument("what", metavar="RUN|[HOST:]FILE|docker:NAME")
@click.argument("beside", metavar="[RUN|[HOST:]FILE]", required=False)
@click.option("-f", "--follow", is_flag=True, help="Keep reading as it grows; the view on a terminal always does.")
@host_option
@json_option
def command(what: str, beside: str | None, follow: bool, host: str | None, as_json: bool) -> int:
    """The log of a run, or any log file, here or on a host.

    On a terminal it opens in a view, two logs side by side; its bytes are printed where the output goes elsewhere.
    """
    view = not as_json and sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    if view:
        from tui.panel.log_app import run_log_view

        return run_log_view(*(named_log(word, host) for word in (what, beside) if word is not None))
    if beside is not None:
        raise UsageError("two logs side by side need a terminal", "name one of them, or leave out --json")
    return run_async(_copy(named_log(what, host), follow, as_json))


async def _copy(named: NamedLog, follow: bool, as_json: bool) -> int:
    """The bytes as they are where stdout is not a terminal, except that secrets are masked; or records as JSON."""
    reader = LogReader(LogTracker())
    out = _Printer()
    async with opened_log(named) as log, aclosing(log.chunks(follow=follow)) as chunks:
        async for chunk in chunks:
            if chunk.event and chunk.event != "ended":
                say(f"[{chunk.event.replace('_', ' ')}]")
            if as_json:
                for record in reader.take(chunk).records:
                    emit(_record_json(record))
            elif chunk.data:
                out.write(chunk.data)
        if not as_json:
            out.flush()
    return 0


class _Printer:
    """Bytes of a log on stdout: as they are, or on a terminal without what could steer it; secrets are masked."""

    def __init__(self) -> None:
        self._mask = SecretMask()
        self._raw = not sys.stdout.isatty()

    def write(self, data: bytes) -> None:
        self._print(self._mask.feed(data))

    def flush(self) -> None:
        self._print(self._mask.flush())

    def _print(self, masked: bytes) -> None:
        if self._raw:
            sys.stdout.buffer.write(masked)
        else:
            text = masked.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
            sys.stdout.write(sanitize(text))
        sys.stdout.flush()


def _record_json(record: LogRecord) -> dict[str, object]:
    return {
        "line": record.number,
        "offset": record.offset,
        "time": record.time,
        "rank": record.rank,
        "kind": record.kind,
        "phase": record.phase,
        "text": mask_secrets(record.text.encode("utf-8", "replace")).decode("utf-8", "replace"),
    }
