"""Runs over a real sshd: what is lost with the link, and what is not."""

import asyncio
import random
import shlex
import sys
from pathlib import Path

import pytest

from tests.support.run_lab import exited, free_port, kill_all, request, seen, sh, stop_over, until
from tui.core.logs.follow import follow
from tui.core.model.run import RunState
from tui.core.runs import control
from tui.core.runs.control import launch


@pytest.fixture
def lab(start_sshd, make_tcp_proxy, make_ssh_transport, tmp_path):
    """await lab(): a connected client with (sshd, proxy, transport); every call another client of one host."""
    state = tmp_path / "state"
    server = None

    async def client():
        nonlocal server
        if server is None:
            server = start_sshd(f"SetEnv EAGLETUI_STATE={state}\n")
        proxy = await make_tcp_proxy(server.port)
        transport = make_ssh_transport(server.target(proxy.port))
        await transport.connect()
        return server, proxy, transport

    yield client
    kill_all(state)


def _counting(path: Path):
    return sh(f"echo x >> {shlex.quote(str(path))}; exec sleep 300")


@pytest.mark.fault(
    "J2",
    "the link dies at any moment of a launch",
    sees="a wait, then the run",
    holds="one start, or none and it is said",
)
async def test_a_launch_whose_link_dies_at_any_moment_starts_once(lab, tmp_path):
    server, proxy, host = await lab()
    rng = random.Random(20)
    for moment in range(12):
        count = tmp_path / f"count{moment}"
        wanted = request(_counting(count))
        task = asyncio.create_task(launch(host, wanted, timeout_s=100))
        if moment % 2:
            proxy.cut_after(rng.randrange(1, 45_000))  # in the upload, or in the answer
        else:
            await asyncio.sleep(rng.random() * 0.4)
            server.kill_sessions()
        run = await task
        assert run.state is RunState.RUNNING
        again = await launch(host, wanted, timeout_s=100)
        assert again.pid == run.pid
        await until(count.exists, "the start")
        assert count.read_text() == "x\n", moment


async def test_simultaneous_launches_of_three_clients_start_once(lab, tmp_path):
    clients = [(await lab())[2] for _ in range(3)]
    count = tmp_path / "count"
    wanted = request(_counting(count), port=free_port(), gpus=(0,))
    found = await asyncio.gather(*(launch(clients[n % 3], wanted) for n in range(12)))
    assert len({run.pid for run in found}) == 1
    await until(count.exists, "the start")
    assert count.read_text() == "x\n"


@pytest.mark.fault("U1", "several people on one host", sees="the same runs", holds="all can follow")
async def test_a_run_outlives_every_link_and_all_clients_see_the_same(lab, tmp_path):
    server, _, one = await lab()
    run = await launch(one, request(sh("echo up; exec sleep 300"), gpus=(1,)))
    server.kill_sessions()
    _, _, two = await lab()
    assert await control.list_runs(two) == await control.list_runs(one) == (run,)
    await one.close()
    data = b""
    over = False

    async def read():
        nonlocal data
        async for chunk in follow(two, run.log_path, ended=lambda: over):
            data += chunk.data

    reader = asyncio.create_task(read())
    await until(lambda: data, "the log")
    await control.stop(two, run.run_id, 5)
    await until(lambda: stop_over(two, run), "the stop")
    over = True
    await asyncio.wait_for(reader, 60)
    assert data == b"up\n"


@pytest.mark.fault("J7", "a server dies within a second", sees="exit code and last words", holds="kept on the host")
async def test_a_server_that_dies_at_once_leaves_code_and_last_words(lab):
    _, _, host = await lab()
    script = "for i in $(seq 1 200); do echo line $i; done; echo RuntimeError: CUDA >&2; exit 3"
    run = await exited(host, await launch(host, request(sh(script))))
    assert (run.exit_code, run.stopped_by_us) == (3, False)
    data = b"".join([chunk.data async for chunk in follow(host, run.log_path, ended=lambda: True)])
    assert data.splitlines()[-50:][0] == b"line 152"
    assert data.endswith(b"RuntimeError: CUDA\n")


@pytest.mark.fault(
    "P4", "the link dies during a stop", sees="how it went, once it is back", holds="the host goes on with it"
)
async def test_a_stop_goes_on_when_the_link_dies_right_after_it_was_asked_for(lab, tmp_path):
    server, proxy, host = await lab()
    up = tmp_path / "up"
    stubborn = (
        "import os, signal, time; signal.signal(15, signal.SIG_IGN); os.fork();"
        f"open({str(up)!r}, 'a').write('x'); time.sleep(300)"
    )
    run = await launch(host, request((sys.executable, "-c", stubborn)))
    await until(lambda: up.exists() and len(up.read_text()) == 2, "the server")
    assert (await control.stop(host, run.run_id, 1)).step in ("requested", "term")
    await proxy.stop()
    server.kill_sessions()
    # Seen without any link: the tree goes by itself.
    words = (Path(run.directory) / "stop").read_text

    await until(lambda: words().startswith("done"), "the stop")
    await proxy.start()
    state = await control.stop_state(host, run.run_id)
    assert (state.step, state.run.state, state.run.exit_code) == ("done", RunState.EXITED, 137)
    assert (await seen(host, run)).orphans == ()
