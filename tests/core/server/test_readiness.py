"""Ready only where the listening socket is the run's own: real processes, real sockets, this machine as host."""

import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from tui.core.link.local import LocalTransport
from tui.core.model.run import Run, RunState
from tui.core.runs import control
from tui.core.runs.foreign import listener
from tui.core.runs.request import LaunchRequest, new_run_id
from tui.core.server import readiness
from tui.core.server.readiness import ReadinessProbe
from tui.core.sglang.state import StartupState

pytestmark = pytest.mark.timeout(120)

SERVER = """
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        code = 200 if self.path.startswith(("/ready", "/model_info")) else 404
        body = b'{"model_path": "/m"}'
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
server = HTTPServer(("127.0.0.1", int(sys.argv[1])), Answer)
print("listening", flush=True)
server.serve_forever()
"""
FIRED_UP = StartupState(lines=100, fired_up=True)
SILENT = StartupState(lines=0)
LOADING = StartupState(lines=100)


@pytest.mark.parametrize("rank", ["1", "12"])
async def test_a_node_above_rank_0_is_ready_by_its_log_alone(local: LocalTransport, rank: str) -> None:
    """It answers 200 whatever it is, so nobody is asked: no port of this run is open at all."""
    argv = ("python3", "-m", "sglang.launch_server", "--nnodes", "2", "--node-rank", rank)
    run = Run("r", "server", "p", "here", RunState.RUNNING, pid=1, port=1, argv=argv)
    assert not await ReadinessProbe(local, run).check(SILENT)
    assert not await ReadinessProbe(local, run).check(FIRED_UP)
    assert await ReadinessProbe(local, run).check(replace(LOADING, follower_up=True))


async def test_rank_0_of_several_is_asked_as_any_server(local: LocalTransport, free_port: int) -> None:
    run = Run("r", "server", "p", "here", RunState.RUNNING, pid=1, port=free_port, argv=("x", "--node-rank", "0"))
    assert not await ReadinessProbe(local, run).check(replace(FIRED_UP, follower_up=True))


@pytest.fixture
async def host() -> AsyncIterator[LocalTransport]:
    transport = LocalTransport()
    await transport.connect()
    yield transport
    for run in await control.list_runs(transport):
        await control.stop(transport, run.run_id, 0)
    await transport.close()


async def started(host: LocalTransport, code: str, port: int, declared: int | None = None) -> Run:
    request = LaunchRequest(
        run_id=new_run_id("probe", time.time()),
        kind="server",
        profile="probe",
        argv=(sys.executable, "-u", "-c", code, str(port)),
        port=declared,
    )
    return replace(await control.launch(host, request), port=port)


@pytest.fixture
async def server(host: LocalTransport, free_port: int, until) -> Run:
    run = await started(host, SERVER, free_port, free_port)

    async def listening() -> bool:
        return await listener(host, free_port) is not None

    while not await listening():
        assert (await control.refresh(host, run)).state is RunState.RUNNING  # type: ignore[union-attr]
    return run


@pytest.fixture
def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def test_fired_up_and_its_own_socket_is_ready(host: LocalTransport, server: Run) -> None:
    assert await ReadinessProbe(host, server).check(FIRED_UP)


async def test_a_log_of_warnings_alone_is_ready_by_http_too(
    host: LocalTransport, server: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await ReadinessProbe(host, server).check(LOADING)
    # Until the port is there, such a look is taken now and then, and not with every line.
    looks = []

    async def nobody(*_: object) -> bool:
        looks.append(1)
        return False

    monkeypatch.setattr(readiness, "port_belongs_to", nobody)
    probe = ReadinessProbe(host, server, look_period_s=1e6)
    for _ in range(5):
        assert not await probe.check(LOADING)
    assert len(looks) == 1


async def test_fired_up_on_a_port_that_another_process_holds_is_not(host: LocalTransport, server: Run) -> None:
    other = await started(host, "import time; time.sleep(600)", server.port or 0)
    probe = ReadinessProbe(host, other)
    assert not await probe.check(FIRED_UP)
    assert probe.listener_is_ours is False
    assert not await probe.check(SILENT)  # by HTTP neither, although /ready there answers 200


async def test_a_silent_log_is_ready_by_http(host: LocalTransport, server: Run) -> None:
    assert await ReadinessProbe(host, server).check(SILENT)


@pytest.mark.fault(
    "E10",
    "the process table is hidden",
    sees="ready, once that is proved otherwise",
    holds='"fired up" alone is never ready',
)
async def test_without_a_process_table_our_word_must_come_back_in_the_log(
    host: LocalTransport, server: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cannot_tell(*_: object) -> None:
        return None

    monkeypatch.setattr(readiness, "port_belongs_to", cannot_tell)
    probe = ReadinessProbe(host, server)
    assert not await probe.check(FIRED_UP)  # asked, but nothing seen of it yet
    assert probe.canary is not None
    log = (await host.run(f"cat {server.log_path}")).stdout
    assert probe.canary.encode() in log
    half = log.index(probe.canary.encode()) + 7
    probe.saw_bytes(log[:half])
    assert not await probe.check(FIRED_UP)
    probe.saw_bytes(log[half:])
    assert await probe.check(FIRED_UP)
