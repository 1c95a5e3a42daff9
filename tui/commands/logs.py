"""`eagletui logs`: a view on a terminal, the bytes elsewhere, records as JSON."""

import asyncio
import os
import sys
from contextlib import aclosing

import click

from tui.commands import completing
from tui.commands.groups import group_on_record
from tui.commands.named_logs import named_log, opened_log
from tui.commands.options import host_option, json_option
from tui.commands.output import emit, error_line, run_async, say
from tui.core.errors import EagletuiError, UsageError
from tui.core.logs.named import NamedLog
from tui.core.logs.reader import LogReader
from tui.core.masking.written import SecretMask, mask_secrets
from tui.core.model.group import Group, Member
from tui.core.model.log import LogRecord
from tui.core.sglang.tracker import LogTracker
from tui.core.text import sanitize


@click.command()
@click.argument("what", metavar="RUN|[HOST:]FILE|docker:NAME", shell_complete=completing.runs_or_files)
@click.argument("beside", metavar="[RUN|[HOST:]FILE]", required=False)
@click.option("-f", "--follow", is_flag=True, help="Keep reading as it grows; the view on a terminal always does.")
@click.option("-n", "--tail", type=click.IntRange(1), metavar="N", help="The last N lines, and what follows.")
@host_option
@json_option
def command(what: str, beside: str | None, follow: bool, tail: int | None, host: str | None, as_json: bool) -> int:
    """The log of a run, or any log file, here or on a host.

    On a terminal it opens in a view, two logs side by side; its bytes are printed where the output goes elsewhere.
    """
    group = group_on_record(what, whole=True) if beside is None and not os.path.exists(what) else None
    view = (
        not as_json and tail is None and sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    )
    if view:
        from tui.panel.log_app import run_log_view

        if group is not None:  # the member that serves, and the other one of two
            order = sorted(group.members, key=lambda member: member != group.serving)
            return run_log_view(*(NamedLog(one.host, run=one.run_id) for one in order[: 2 if len(order) == 2 else 1]))
        return run_log_view(*(named_log(word, host) for word in (what, beside) if word is not None))
    if beside is not None:
        raise UsageError("two logs side by side need a terminal", "name one of them, without --json and --tail")
    if group is not None:
        return run_async(_copy_all(group, follow, tail, as_json))
    return run_async(_copy(named_log(what, host), follow, tail, as_json))


async def _copy_all(group: Group, follow: bool, tail: int | None, as_json: bool) -> int:
    """The logs of all members: one after the other, each under a line with its name; with `follow` line by line as they
    come, each behind its name."""
    if not follow:
        codes = []
        for member in group.members:
            if not as_json:
                print(f"==> {member.name} on {member.host} <==", flush=True)
            codes.append(await _copied(member, False, tail, as_json))
        return max(codes)
    return max(await asyncio.gather(*(_copied(member, True, tail, as_json) for member in group.members)))


async def _copied(member: Member, follow: bool, tail: int | None, as_json: bool) -> int:
    """One member's; a host that does not answer is said, and the others go on."""
    try:
        return await _copy(NamedLog(member.host, run=member.run_id), follow, tail, as_json, member)
    except EagletuiError as error:
        say(error_line(error, f"{member.name} on {member.host}"))
        return error.exit_code


async def _copy(named: NamedLog, follow: bool, tail: int | None, as_json: bool, member: Member | None = None) -> int:
    """The bytes as they are where stdout is not a terminal, except that secrets are masked; or records as JSON.

    Args:
        member: whose log it is, of a group whose logs are read together.
    """
    out = _Printer(f"[{member.name}] ".encode() if member is not None and follow else b"")
    whose: dict[str, object] = {"member": member.name} if member is not None else {}
    async with opened_log(named) as log:
        begin = await log.before_last(tail) if tail is not None else None
        reader = LogReader(LogTracker(offset=begin.offset if begin is not None else 0))
        if begin is not None and begin.offset:
            whose["line"] = None  # nobody has counted the lines before
        async with aclosing(log.chunks(follow=follow, after=begin)) as chunks:
            async for chunk in chunks:
                if chunk.event and chunk.event != "ended":
                    say(f"[{chunk.event.replace('_', ' ')}]")
                if as_json:
                    for record in reader.take(chunk).records:
                        emit({**_record_json(record), **whose})
                elif chunk.data:
                    out.write(chunk.data)
        if not as_json:
            out.flush()
    return 0


class _Printer:
    """Bytes of a log on stdout: as they are, or on a terminal without what could steer it; secrets are masked.

    With a prefix whole lines alone, each behind it: several logs share the output then.
    """

    def __init__(self, prefix: bytes = b"") -> None:
        self._mask = SecretMask()
        self._raw = not sys.stdout.isatty()
        self._prefix = prefix
        self._rest = b""

    def write(self, data: bytes) -> None:
        self._put(self._mask.feed(data))

    def flush(self) -> None:
        self._put(self._mask.flush())
        if self._rest:
            self._put(b"\n")

    def _put(self, masked: bytes) -> None:
        if self._prefix:
            *lines, self._rest = (self._rest + masked).split(b"\n")
            masked = b"".join(self._prefix + line + b"\n" for line in lines)
        self._print(masked)

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
