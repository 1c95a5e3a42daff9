"""Watching a run: this machine as host, real processes."""

import asyncio
import getpass
import os
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest

from tui.core.errors import HostError
from tui.core.link.local import LocalTransport
from tui.core.logs.log_file import LogFile
from tui.core.model.phases import Outcome, Phase
from tui.core.model.run import Run, RunState
from tui.core.runs import control
from tui.core.runs.foreign import listener
from tui.core.runs.request import LaunchRequest, new_run_id
from tui.core.server import launch_records
from tui.core.server.launch_records import LaunchRecord
from tui.core.server.run_end import outcome_of_files
from tui.core.server.server_state import RunUpdate
from tui.core.server.watch import RunWatcher

pytestmark = pytest.mark.timeout(120)

READY_SERVER = """
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *words):
        pass
HTTPServer(("127.0.0.1", int(sys.argv[1])), Answer).serve_forever()
"""


@pytest.fixture
async def host() -> AsyncIterator[LocalTransport]:
    transport = LocalTransport()
    await transport.connect()
    started: list[str] = []
    transport.started = started  # type: ignore[attr-defined]
    yield transport
    for run_id in started:
        await control.stop(transport, run_id, 0)
    await transport.close()


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def start(host: LocalTransport, port: int, *argv: str, kind: str = "server") -> Run:
    run_id = new_run_id("watched")
    host.started.append(run_id)  # type: ignore[attr-defined]
    return await control.launch(host, LaunchRequest(run_id, kind, "watched", argv, port=port))


async def until(look: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(60):
        while True:
            if await look():
                return
            await asyncio.sleep(0.05)


async def to_end(host: LocalTransport, run: Run) -> RunUpdate:
    async with asyncio.timeout(60), aclosing(RunWatcher(host, run).updates()) as updates:
        async for update in updates:
            last = update
    return last


async def until_settled(host: LocalTransport, run: Run) -> RunUpdate:
    async with asyncio.timeout(60), aclosing(RunWatcher(host, run).updates()) as updates:
        async for update in updates:
            if update.settled:
                return update
    raise AssertionError("ended before")


async def test_a_watch_can_be_cancelled_at_any_moment(host: LocalTransport, port: int) -> None:
    """Also together with an event, which wait_for of Python 3.11 takes for a reason to go on."""
    run = await start(host, port, "sh", "-c", "while :; do echo line; sleep 0.01; done")
    for number in range(30):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(number * 0.004):
                await to_end(host, run)


async def test_a_log_without_a_byte_is_settled(host: LocalTransport, port: int) -> None:
    run = await start(host, port, "sleep", "300")
    update = await until_settled(host, run)
    assert (update.state.outcome, update.state.startup.lines) == (Outcome.STARTING, 0)


async def test_a_silent_server_settles_as_ready(host: LocalTransport, port: int) -> None:
    """Whoever looks once, as `ps` does, must hear the answer about readiness too."""
    run = await start(host, port, sys.executable, "-c", READY_SERVER, str(port))
    await until(lambda: listener(host, port))
    assert (await until_settled(host, run)).state.outcome is Outcome.READY


async def test_what_is_in_the_log_when_a_watch_begins_is_in_the_first_settled_state(
    host: LocalTransport, port: int
) -> None:
    run = await start(host, port, "sh", "-c", "seq 1 200000; echo done; sleep 300")

    async def written() -> bool:
        return b"done" in (await host.run(f"tail -n 1 {run.log_path}")).stdout

    await until(written)
    assert (await until_settled(host, run)).state.startup.lines == 200_001


async def test_the_last_update_has_the_source_of_the_raise(host: LocalTransport, port: int, tmp_path: Path) -> None:
    program = tmp_path / "raises.py"
    program.write_text("def check(pool):\n    assert pool is not None\n\n\ncheck(None)\n")
    end = await to_end(host, await start(host, port, sys.executable, str(program)))
    found = end.state.diagnosis
    assert found is not None
    assert found.evidence is not None
    assert found.evidence.text == "AssertionError: assert pool is not None"
    assert [(source.line, source.lines[1]) for source in found.source] == [(2, "    assert pool is not None")]


async def test_an_ended_run_keeps_what_was_learnt_while_it_lived(host: LocalTransport, port: int) -> None:
    run = await start(host, port, "sh", "-c", "echo hello; exit 3")
    known = LaunchRecord(
        run.run_id, "local", "server", "watched", "2026-01-01T00:00:00Z", ready_after_s=12.5, phase_took_s={}
    )
    launch_records.write(known)
    end = await to_end(host, run)
    assert (end.state.outcome, end.state.run.exit_code) == (Outcome.CRASHED, 3)
    assert end.state.startup.lines == 1
    assert end.state.ready_after_s == 12.5
    record = launch_records.read(run.run_id)
    assert record is not None
    assert (record.outcome, record.phase, record.exit_code) == ("crashed", "launch", 3)
    assert record.ready_after_s == 12.5
    # The first look of another watch, before it has read the log, changes nothing.
    over = end.state.run
    launch_records.write(replace(record, cause="nccl"))
    async with aclosing(RunWatcher(host, over).updates()) as updates:
        async for update in updates:
            if not update.settled:
                kept = launch_records.read(run.run_id)
                assert kept is not None
                assert kept.cause == "nccl"


async def test_a_log_that_may_not_be_read_does_not_hide_the_server(host: LocalTransport, port: int) -> None:
    run = await start(host, port, sys.executable, "-c", READY_SERVER, str(port))
    secret = replace(run, log_path="/dev/mem" if os.geteuid() else "/dev/zero")  # refused: no regular file
    async with asyncio.timeout(60), aclosing(RunWatcher(host, secret).updates()) as updates:
        async for update in updates:
            if update.state.outcome is Outcome.READY:
                break
    await control.stop(host, run.run_id, 0)
    assert (await to_end(host, secret)).state.outcome is Outcome.STOPPED


async def test_a_watch_that_cannot_go_on_says_so(
    host: LocalTransport, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*args: object, **kwargs: object) -> AsyncIterator[object]:
        raise HostError("gpu1: no shell", "mend it", slug="unsupported_host")
        yield

    run = await start(host, port, "sleep", "300")
    monkeypatch.setattr("tui.core.server.log_feed.follow", broken)
    with pytest.raises(HostError, match="no shell"):
        await to_end(host, run)


async def test_a_foreign_server_that_ends_is_lost_unless_its_log_says_why(tmp_path: Path) -> None:
    run = Run("foreign-1", "server", None, "gpu1", RunState.EXITED, pid=1, owner=getpass.getuser())
    assert outcome_of_files(run) is Outcome.LOST
    assert outcome_of_files(replace(run, exit_code=0)) is Outcome.STOPPED
    assert outcome_of_files(replace(run, exit_code=0, kind="bench")) is Outcome.FINISHED
    assert outcome_of_files(replace(run, exit_code=143)) is Outcome.CRASHED
    assert outcome_of_files(replace(run, exit_code=143, stopped_by_us=True)) is Outcome.STOPPED
    assert outcome_of_files(replace(run, state=RunState.RUNNING)) is None

    host = LocalTransport()
    await host.connect()
    log = tmp_path / "log"
    log.write_text(
        "[2026-01-01 00:00:00 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.\n"
    )
    end = await to_end(host, replace(run, log_path=str(log)))
    assert (end.state.outcome, end.state.phase) == (Outcome.CRASHED, Phase.MEMORY_POOL)
    await host.close()


async def test_of_a_huge_log_the_middle_stays_where_it_is(
    host: LocalTransport, port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tui.core.server.log_feed._HUGE_BYTES", 2 << 20)
    monkeypatch.setattr("tui.core.server.log_feed._HEAD_BYTES", 256 << 10)
    text = [f"[2026-10-06 20:00:01] line {n}\n" for n in range(1, 200_001)]
    text[99_999] = "[2026-10-06 20:00:01 TP3] Scheduler hit an exception: Traceback (most recent call last):\n"
    text[100_000] = "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.\n"
    (tmp_path / "text").write_text("".join(text))
    run = await start(host, port, "sh", "-c", f"cat '{tmp_path}/text'; echo Traceback; exit 3")
    await until(lambda: _over(host, run))
    read: list[tuple[int, str, str]] = []
    assert run.log_path is not None
    file = LogFile(host, run.log_path)
    async with asyncio.timeout(60), aclosing(RunWatcher(host, run).updates()) as updates:
        async for update in updates:
            if update.log is not None:
                file.take(update.log)
            read += [(r.number, r.kind, r.text) for r in update.records if not r.provisional]
    assert update.state.outcome is Outcome.CRASHED
    assert update.state.startup.lines == 200_001
    assert update.state.diagnosis is not None
    assert (update.state.diagnosis.cause, update.state.diagnosis.rank) == ("oom_kv_pool", "TP3")
    assert update.state.diagnosis.evidence is not None
    assert update.state.diagnosis.evidence.line == 100_001
    left_out = [text for _, kind, text in read if kind == "marker"]
    assert len(left_out) == 1
    assert "only unusual lines were read" in left_out[0]
    lines = [(number, text) for number, kind, text in read if kind != "marker"]
    assert lines[0] == (1, "line 1")
    assert lines[-1] == (200_001, "Traceback")
    assert all(text == f"line {number}" for number, text in lines[:-1])
    assert 10_000 < len(lines) < 60_000
    # The log of a screen begins after what was left out, and can read that from the host.
    assert file.at_tail
    shown = [(file.window.number_of(record), record.text) for record in file.window.records]
    assert shown == lines[-len(shown) :]
    assert await file.load_before() > 0
    assert file.window.records[0].text == f"line {file.window.number_of(file.window.records[0])}"


async def _over(host: LocalTransport, run: Run) -> bool:
    found = await control.refresh(host, run)
    return found is not None and found.state is RunState.EXITED
