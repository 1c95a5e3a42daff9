"""How much `ps` asks a host: one look at its process table serves all rows of servers that others started."""

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.support import fakes
from tui.cli import cli
from tui.commands import ps
from tui.core.config import HostEntry
from tui.core.errors import HostError
from tui.core.link.local import LocalTransport
from tui.core.link.transport import Completed
from tui.core.model.run import Run
from tui.core.server import watch
from tui.core.server.session import HostSession

pytestmark = pytest.mark.timeout(120)

SERVER = """
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *_):
        pass
server = HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Answer)
print("[2026-11-30 12:00:01] The server is fired up and ready to roll!", flush=True)
server.serve_forever()
"""


class Counting(LocalTransport):
    """This machine; what its helper is asked is counted."""

    asked: Counter[str]

    async def run(self, script: str, **options: object) -> Completed:
        self.asked.update(re.findall(r"^er_main (\w+)", script, re.MULTILINE))
        return await super().run(script, **options)  # type: ignore[arg-type]


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[int]]:
    """The pids of six servers that somebody else started, all of them ready."""
    program = tmp_path / "bin" / "sglang"
    program.parent.mkdir()
    program.write_text(SERVER)
    started = []
    for at in range(6):
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        log = tmp_path / f"{at}.log"
        with log.open("wb") as out:
            words = [sys.executable, str(program), "serve", "--port", str(port)]
            started.append(subprocess.Popen(words, stdout=out, start_new_session=True))
        while b"fired up" not in log.read_bytes():
            assert started[-1].poll() is None
    yield [process.pid for process in started]
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_one_look_serves_all_rows_and_four_are_asked_at_once(
    servers: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: Counter[str] = Counter()
    under_way, most = 0, 0
    row_of = ps._row

    @contextlib.asynccontextmanager
    async def session(host: str, asker: object) -> AsyncIterator[HostSession]:
        transport = Counting(env={"EAGLETUI_STATE": str(tmp_path / "state"), "HOME": str(tmp_path), "PATH": os.environ["PATH"]})  # fmt: skip
        transport.asked = asked
        opened = HostSession(HostEntry(host, host), transport)
        runs = await opened.heard_runs()

        async def ours() -> tuple[Run, ...]:
            """Others may run servers on this machine, too."""
            return tuple(run for run in runs if run.pid in servers)

        monkeypatch.setattr(opened, "heard_runs", ours)
        yield opened
        await transport.close()

    async def counted(*args: object) -> object:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        row = await row_of(*args)  # type: ignore[arg-type]
        under_way -= 1
        return row

    monkeypatch.setattr(watch, "_STATUS_PERIOD_S", 600.0)  # a row that takes long is looked at again
    monkeypatch.setattr(ps, "session", session)
    monkeypatch.setattr(ps, "_row", counted)
    done = CliRunner().invoke(cli, ["ps", "local", "--json"])
    assert done.exit_code == 0, done.output
    outcomes = {row["pid"]: row["outcome"] for row in json.loads(done.stdout)}
    assert [outcomes[pid] for pid in servers] == ["ready"] * 6
    assert asked["look"] == 1
    assert asked["foreign"] == asked["port"] == 0
    assert most == 4


async def test_what_a_host_cannot_answer_beside_others_is_asked_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    under_way: set[str] = set()

    async def one_session(opened: object, run: Run) -> str:
        if under_way:
            raise HostError("gpu1: the host opens only one session on a connection")
        under_way.add(run.run_id)
        await asyncio.sleep(0)
        under_way.clear()
        return run.run_id

    monkeypatch.setattr(ps, "_row", one_session)
    runs = [fakes.run(run_id=f"base-20261001T200103Z-00000{at}") for at in range(3)]
    assert await ps._rows(None, runs) == [run.run_id for run in runs]  # type: ignore[arg-type]


def test_a_row_names_what_the_launch_had_beside_its_profile(capsys: pytest.CaptureFixture[str]) -> None:
    base = {"run": "base-20261001T200103Z-4f9c2a", "profile": "base", "group": None, "container": None, "owner": None}
    rest = {"outcome": "ready", "phase": "ready", "cause": None, "why": None, "kind": "server", "pid": 1, "port": 2, "started": "x"}  # fmt: skip
    rows = [{**base, **rest, "sets": {"tp": 8, "mem-fraction-static": 0.88}}, {**base, **rest, "sets": {}}]
    ps._print("gpu1", rows, headed=False)
    head, long, short = capsys.readouterr().out.splitlines()
    assert long.startswith("base +tp=8 +mem-fraction-static=0.88 4f9c2a ready")
    assert short.startswith("base 4f9c2a  ")
    assert head.index("OUTCOME") == long.index("ready") == short.index("ready")
    hostile = ps._name({**base, "sets": {"\x1b[2J\n": "x" * 500}})
    assert "\x1b" not in hostile
    assert "\n" not in hostile
    assert len(hostile) < 100
    assert hostile.endswith(" 4f9c2a")
