"""`eagletui diagnose`: how far a server came, why it died, what to change."""

import os
import sys
from contextlib import aclosing
from functools import partial
from typing import BinaryIO

import click

from tui.commands import completing
from tui.commands.groups import group_json, group_on_record, group_session, look_at, say_outcome
from tui.commands.named_logs import OpenedLog, named_log, opened_log
from tui.commands.options import host_option, json_option
from tui.commands.output import emit, run_async, say
from tui.core.config import LOCAL_HOST
from tui.core.errors import HostError, Slug, UsageError
from tui.core.groups.group_state import GroupState
from tui.core.link.retry import until_answered
from tui.core.logs.excerpt import CANNOT_PICK, read_excerpt
from tui.core.logs.follow import Chunk
from tui.core.logs.named import NamedLog
from tui.core.logs.reader import LogReader
from tui.core.model.group import Group
from tui.core.model.phases import Outcome
from tui.core.model.run import InContainer, Run
from tui.core.runs.adopted import ask_engines, last_words
from tui.core.server import launch_records
from tui.core.server.earlier_starts import times_text
from tui.core.server.forecast import prefer_worked
from tui.core.server.raised_source import with_source
from tui.core.server.run_end import LOST_HEAD, exit_evidence, outcome_of_files
from tui.core.sglang.diagnosis import Diagnosis, ExitEvidence
from tui.core.sglang.patterns import patterns
from tui.core.sglang.report import Report, report_of, report_text, report_with
from tui.core.sglang.state import StartupState
from tui.core.sglang.tracker import LogTracker
from tui.core.sglang.wrapping.engines import SGLANG
from tui.core.sglang.wrapping.paste import PasteTracker
from tui.core.text import one_line

_EVIDENCE_S = 30.0  # so long is the kernel's log asked for where the link is lost meanwhile
_HUGE_BYTES = 16 << 20  # a file here that is longer is read by grep first, as on any other host


@click.command()
@click.argument("what", metavar="[HOST:]FILE|RUN|docker:NAME|-", shell_complete=completing.runs_or_files)
@click.option("-f", "--follow", is_flag=True, help="Keep reading as it grows: again at each change.")
@host_option
@json_option
def command(what: str, follow: bool, host: str | None, as_json: bool) -> int:
    """Read any SGLang log: how far it came, why it died, what to change."""
    for problem in patterns().problems:
        say(f"pattern left out: {one_line(problem)}")
    reports = _Reports(as_json, follow)
    if what == "-":
        return _read(sys.stdin.buffer, reports, follow)
    group = None if os.path.exists(what) else group_on_record(what, whole=True)
    if group is not None:
        return run_async(_read_group(group, reports, follow))
    named = named_log(what, host)
    if named.path is not None and named.host == LOCAL_HOST and not follow:
        try:
            with open(named.path, "rb") as file:
                if os.fstat(file.fileno()).st_size <= _HUGE_BYTES:
                    return _read(file, reports, follow)
        except OSError as error:
            raise UsageError(f"{what}: {error.strerror}", "name a readable file", slug=Slug.UNKNOWN_FILE) from None
    return run_async(_read_there(named, reports, follow))


class _Reports:
    """What a log says, printed at each change.

    Attributes:
        unread_lines: so many unusual lines of a huge log were too many.
    """

    def __init__(self, as_json: bool, follow: bool) -> None:
        # A text that grows is no paste, and its first lines are to be judged as they come.
        self.tracker = LogTracker(records=False) if follow else PasteTracker()
        self.unread_lines = 0
        self.beside: dict[str, object] = {}  # further keys of the document
        self._as_json = as_json
        self._shown: list[object] = []

    def about(self, state: GroupState) -> None:
        """Of which group this is the log of one member."""
        self.beside = {"group": group_json(state)["group"]}
        if not self._as_json:
            say_outcome(state, diagnosed=False)

    @property
    def recognised(self) -> bool:
        """Whether any line is SGLang's, and the log is no other engine's."""
        return self.tracker.paste.engine in (None, SGLANG) and self.tracker.state().recognised

    def read(self, run: Run | None = None, exit: ExitEvidence | None = None) -> Report:
        """What the log says so far."""
        known = launch_records.read(run.run_id) if run is not None else None

        def prefer(found: Diagnosis, state: StartupState) -> Diagnosis:
            assert known is not None
            past = [record for record in launch_records.read_all() if record.run_id != known.run_id]
            return prefer_worked(found, state, known.host, known.args, past)

        return report_of(self.tracker, exit=exit, prefer=prefer if known is not None else None)

    def show(self, found: Report, outcome: Outcome | None = None) -> None:
        """Prints a report, where it is another than the last one."""
        if outcome is not None:  # a log may end without a word
            found["outcome"] = outcome
        key = [found[name] for name in ("phase", "outcome", "cause", "evidence")]
        if key == self._shown:
            return
        if self._as_json:
            emit({**found, "unread_lines": self.unread_lines, **self.beside})
        else:
            print(("\n" if self._shown else "") + report_text(found), flush=True)
            if self.unread_lines:
                print(
                    f"  unread    {self.unread_lines:,} lines: too many are unusual; the first and the newest were read"
                )
        self._shown = key


def _read(file: BinaryIO, reports: _Reports, follow: bool) -> int:
    # A pipe gives what it has, so that a report comes as soon as it can.
    while block := os.read(file.fileno(), 1 << 17):
        reports.tracker.feed(block)
        if follow and reports.recognised:
            reports.show(reports.read())
    reports.tracker.flush()
    reports.show(reports.read())
    return 0 if reports.recognised else UsageError.exit_code


async def _read_group(group: Group, reports: _Reports, follow: bool) -> int:
    """The member that the group died by, else the one that serves."""
    async with group_session(group.hosts) as hosts:
        state = await look_at(hosts, group)
    reports.about(state)
    member = state.failed or group.serving
    return await _read_there(NamedLog(member.host, run=member.run_id), reports, follow)


async def _read_there(named: NamedLog, reports: _Reports, follow: bool) -> int:
    """Reads by a session; with `follow` a report at each change, until the run is over."""
    async with opened_log(named) as log:
        run = log.run
        if run is not None:  # nothing stands around what we wrote
            reports.tracker = LogTracker(records=False)
        box = await _container(log, named)
        if box is not None and box.looping and not follow:
            reports.tracker.feed(await last_words(log.session.transport, box))
            reports.tracker.flush()
            found = reports.read()
            found["note"] = (
                f"{box} was started again {times_text(box.restarts or 1)} by its engine: this is how it ended last"
            )
            reports.show(found)
            return 0 if reports.recognised else UsageError.exit_code
        reader = LogReader(reports.tracker)
        last = await _picked(log, reports)
        if last is None or follow:
            if last is not None and reports.recognised:
                reports.show(reports.read(run))
            async with aclosing(log.chunks(follow=follow, after=last)) as chunks:
                async for chunk in chunks:
                    reader.take(chunk)
                    if follow and chunk.data and chunk.caught_up and reports.recognised:
                        reports.show(reports.read(run))
        else:
            reports.tracker.flush()
        exit = None
        if run is not None:
            run = await log.session.find_run(run.run_id) if follow else run
            transport = log.session.transport
            exit = await until_answered(transport, partial(exit_evidence, transport, run), _EVIDENCE_S)
        found = reports.read(run, exit)
        if found.found is not None:
            explained = await with_source(log.session.transport, found.found, run.run_id if run is not None else None)
            found = report_with(reports.tracker.state(), explained, alive=run is not None, paste=reports.tracker.paste)
        if (box is not None or (run is not None and run.foreign)) and reports.tracker.state().lost_head:
            found["note"] = LOST_HEAD
        reports.show(found, outcome_of_files(run) if run is not None else None)
    return 0 if run is not None or reports.recognised else UsageError.exit_code


async def _container(log: OpenedLog, named: NamedLog) -> InContainer | None:
    """The container whose log is read, of others alone."""
    if log.run is not None:
        return log.run.container if log.run.foreign else None
    if named.container is None:
        return None
    return (await ask_engines(log.session.transport, [named.container[1]]))[named.container[1]]


async def _picked(log: OpenedLog, reports: _Reports) -> Chunk | None:
    """What the host picks of the log, read; the last chunk of it, None where the log must travel whole."""
    try:
        excerpt = await read_excerpt(log.session.transport, log.path, tracker=reports.tracker)
    except HostError as error:
        if error.slug not in CANNOT_PICK:
            raise
        reports.tracker.reset()
        return None
    reports.unread_lines = excerpt.unread
    return excerpt.last
