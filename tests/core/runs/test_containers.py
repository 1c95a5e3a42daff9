"""Runs in containers, with a real dockerd and a real podman: started once, followed, ended whole, never more said than is true."""

import asyncio
import os
import signal
import socket
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.engines import IMAGE, MOUNTS, Engine, docker_engine, podman_engine
from tests.support.run_lab import exited, free_port, record, request, seen, stop_over, until, write_record
from tui.core.config import HostEntry
from tui.core.errors import UsageError
from tui.core.model.phases import Outcome
from tui.core.model.run import OUT_OF_MEMORY, RunState
from tui.core.runs import control
from tui.core.runs.adopted import last_words, log_of_container, path_of_log
from tui.core.runs.control import launch
from tui.core.runs.foreign import foreign_servers, port_belongs_to
from tui.core.server.run_end import KernelWords, evidence, no_log
from tui.core.server.session import HostSession, settled_state
from tui.core.sglang.diagnose import diagnose
from tui.core.sglang.tracker import LogTracker


@pytest.fixture(scope="module")
def dockerd(tmp_path_factory):
    yield from docker_engine(tmp_path_factory.mktemp("docker"))


@pytest.fixture(scope="module")
def podman(tmp_path_factory):
    yield from podman_engine(tmp_path_factory.mktemp("podman"))


@pytest.fixture(params=["docker", "podman"])
def engine(request) -> Iterator[Engine]:
    found = (
        request.getfixturevalue("dockerd").engine if request.param == "docker" else request.getfixturevalue("podman")
    )
    yield found
    if names := found.names():  # what a failed test left would fail the next ones
        found("rm", "-f", *names, check=False)


def served(engine, *options, **fields):
    port = free_port()
    return request(engine.run_words("-e", f"PORT={port}", *options), port=port, **fields)


def log_of(run) -> bytes:
    return Path(run.log_path).read_bytes()


def own_output(run) -> bytes:
    """The log without what the engine itself said when it started the container."""
    return log_of(run)[int((Path(run.directory) / "log.from").read_text()) :]


async def started(host, wanted):
    run = await launch(host, wanted)

    async def up():
        return b"fired up" in log_of(run) and await seen(host, run)

    return await until(up, "the server's last line of its start")


async def stopped(host, run, grace=20.0):
    await control.stop(host, run.run_id, grace)
    return (await until(lambda: stop_over(host, run), "the end of the stop")).run


def ask(port: int, path: str) -> None:
    urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=10).close()


async def test_a_container_is_a_run_like_any_other(make_host, engine):
    host = make_host()
    run = await started(host, served(engine, "-e", "WORKERS=2"))
    assert run.state is RunState.RUNNING
    assert run.supervised
    assert engine.names() == [f"eagletui-{run.run_id}"]
    ask(run.port, "one")
    await until(lambda: b"asked for /one" in log_of(run), "the line of the request")
    holder = await control.listener(host, run.port)
    assert holder.run_id == run.run_id
    assert own_output(run) == engine_log(engine, run)
    assert b"\n" + b"x" * 40_000 + b"\n" in log_of(run)  # its engine keeps a line so long in pieces
    ended = await stopped(host, run)
    assert ended.state is RunState.EXITED
    assert (ended.exit_code, ended.orphans, ended.stopped_by_us) == (0, (), True)
    assert log_of(run).endswith(b"Draining requests and shutting down...\n")
    assert engine.names() == []


def engine_log(engine, run) -> bytes:
    return engine.output(f"eagletui-{run.run_id}")


async def test_what_ignores_the_signal_is_killed(make_host, engine):
    host = make_host()
    run = await started(host, served(engine, "-e", "IGNORE_TERM=1"))
    ended = await stopped(host, run, grace=1.0)
    assert (ended.exit_code, ended.orphans) == (137, ())
    assert engine.names() == []
    assert await control.listener(host, run.port) is None


async def test_its_own_exit_code_is_kept(make_host, engine):
    host = make_host()
    ended = await exited(host, await launch(host, served(engine, "-e", "EXIT=0,3")))
    assert ended.exit_code == 3
    assert b"x\n" in log_of(ended)
    await until(lambda: engine.names() == [], "the container's removal")


async def test_two_launches_at_once_start_one_container(make_host, engine):
    wanted = served(engine)
    runs = await asyncio.gather(*(launch(make_host(), wanted) for _ in range(2)))
    assert runs[0].run_id == runs[1].run_id
    run = await started(make_host(), wanted)
    assert len(engine.names()) == 1
    await stopped(make_host(), run)


@pytest.mark.parametrize("victim", ["supervisor", "copier", "both"])
async def test_whoever_follows_it_may_be_killed(make_host, engine, victim):
    host = make_host()
    run = await started(host, served(engine))
    directory = Path(run.directory)
    supervisor = int((directory / "pid").read_text().split()[4])
    copier = int((directory / "copier").read_text().split()[0])
    for pid in {"supervisor": [supervisor], "copier": [copier], "both": [supervisor, copier]}[victim]:
        os.kill(pid, signal.SIGKILL)
    for number in range(3):
        ask(run.port, f"after-{number}")

    async def caught_up():
        now = await seen(host, run)
        assert now.state is RunState.RUNNING
        return b"after-2" in log_of(run)

    await until(caught_up, "the lines after the kill")
    assert own_output(run) == engine_log(engine, run)
    ended = await stopped(host, run)
    assert (ended.state, ended.exit_code) == (RunState.EXITED, 0)
    assert log_of(run).count(b"Draining") == 1
    assert engine.names() == []


async def test_removed_by_somebody_else_it_is_lost(make_host, engine):
    host = make_host()
    run = await started(host, served(engine))
    engine("rm", "-f", f"eagletui-{run.run_id}")

    async def lost():
        now = await seen(host, run)
        return now if now.over else None

    now = await until(lost, "the end")
    # Where the engine still says how it ended before it is gone, that is known.
    assert (now.state, now.why) in ((RunState.LOST, "container removed"), (RunState.EXITED, None))
    assert now.orphans == ()


async def test_a_strangers_container_of_that_name_is_left_alone(make_host, engine):
    host = make_host()
    engine("run", "-d", "--name", "glm", "--network", "host", IMAGE, "sleep", "1000")
    ended = await exited(host, await launch(host, served(engine, "--name", "glm")))
    assert ended.exit_code == 125
    assert b"in use" in log_of(ended)
    await control.stop(host, ended.run_id)
    assert engine.names() == ["glm"]
    engine("rm", "-f", "glm")


async def test_stopped_while_its_engine_still_starts_it(make_host, engine):
    host = make_host()
    wanted = served(engine)
    run = await launch(host, wanted)
    ended = await stopped(host, run, grace=3)
    assert ended.over
    assert ended.orphans == ()
    await until(lambda: engine.names() == [], "the container's removal")


async def test_an_engine_that_is_restarted_says_how_it_ended(make_host, dockerd):
    host = make_host()
    run = await started(host, served(dockerd.engine))
    dockerd.stop()
    dockerd.start()
    ended = await exited(host, run)
    assert ended.exit_code == 0
    assert log_of(run).count(b"Draining") == 1
    await until(lambda: dockerd.engine.names() == [], "the container's removal")


async def test_a_missing_runtime_for_gpus_is_in_the_log(make_host, dockerd):
    ended = await exited(make_host(), await launch(make_host(), served(dockerd.engine, "--gpus", "all")))
    assert ended.exit_code == 125
    assert b"could not select device driver" in log_of(ended)
    await until(lambda: dockerd.engine.names() == [], "the container's removal")


async def test_out_of_memory_is_the_engines_word(make_host, dockerd):
    host, engine = make_host(), dockerd.engine
    eats = "print(len([bytearray(1 << 20) for _ in range(200)]))"
    words = (*engine.words, "run", "-m", "20m", *MOUNTS, IMAGE, "/usr/bin/python3", "-c", eats)
    ended = await exited(host, await launch(host, request(words)))
    assert (ended.exit_code, ended.why) == (137, OUT_OF_MEMORY)
    assert diagnose(LogTracker().state(), exit=evidence(ended, KernelWords()))[0].cause == "host_oom"


async def test_secrets_reach_it_and_are_in_no_argument(make_host, engine):
    host = make_host()
    wanted = replace(
        request((*engine.words, "run", "-e", "TOKEN", IMAGE, "sh", "-c", "echo got $TOKEN; cat $2", "sh")),
        secret_env={"TOKEN": "s3cret"},
        secret_args={"api-key": "k3y"},
    )
    ended = await exited(host, await launch(host, wanted))
    assert b"got s3cret" in log_of(ended)
    assert b'api-key: "k3y"' in log_of(ended)
    assert "k3y" not in " ".join(ended.argv)


def bridged(engine, inside):
    """Words of a server on a bridge, its port published by another number."""
    port = free_port()
    words = ("-p", f"{port}:{inside}", "-e", f"PORT={inside}", "-e", "HOST=0.0.0.0")
    return port, engine.run_words(*words, network=engine.bridge())


async def test_a_server_on_a_bridge_is_reached_by_what_is_published(make_host, engine):
    host = make_host()
    with socket.create_server(("127.0.0.1", 0)) as other:  # the host has somebody else on the inner port
        inside = other.getsockname()[1]
        port, words = bridged(engine, inside)
        run = await started(host, request(words, port=port))
        assert run.container.on_host(inside) == port
        assert await port_belongs_to(host, run)
        ask(port, "one")
        await until(lambda: b"asked for /one" in log_of(run), "the line of the request")
        state = await settled_state(session_of(host), run, 30)
        assert state.outcome is Outcome.READY
        ended = await stopped(host, run)
    assert (ended.exit_code, ended.orphans) == (0, ())
    assert engine.names() == []
    assert await control.listener(host, port) is None


async def test_a_strangers_server_on_a_bridge_has_the_port_of_the_host(make_host, dockerd, tmp_path):
    engine = dockerd.engine
    host = make_host(DOCKER_HOST=f"unix://{dockerd.socket}")
    port = free_port()
    words = foreign_words(
        engine, tmp_path, "--name", "theirs", "-p", f"{port}:30000", "-e", "PORT=30000", "-e", "HOST=0.0.0.0"
    )[1]
    words[words.index("host")] = engine.bridge()
    words[-1] = "30000"  # of --port
    engine(*words[words.index("run") :])
    try:
        run = await seen_by(host, engine, "theirs")
        assert (run.port, run.container.inside(port), run.container.network) == (port, 30000, engine.bridge())
        run = replace(run, log_path=await path_of_log(host, run))
        state = await until(lambda: ready(host, run), "ready")
        ask(state.run.port, "hello")
    finally:
        engine("rm", "-f", "theirs")


async def ready(host, run):
    state = await settled_state(session_of(host), run, 30)
    return state if state is not None and state.outcome is Outcome.READY else None


async def test_a_container_among_the_processes_of_its_host(make_host, engine):
    host = make_host()
    cgroups = ("--cgroups", "enabled") if engine.name == "podman" else ()  # podman needs them for this
    run = await started(host, served(engine, "--pid", "host", "-e", "WORKERS=2", *cgroups))
    assert await port_belongs_to(host, run)
    ended = await stopped(host, run)
    assert (ended.exit_code, ended.orphans) == (0, ())
    await until(lambda: engine.names() == [], "the container's removal")
    assert await control.listener(host, run.port) is None


PACKAGE = """
import runpy
runpy.run_path("/t/container_server.py", run_name="__main__")
"""


def foreign_words(engine, directory, *options):
    """A container of somebody else whose process looks like SGLang's server."""
    package = directory / "sglang"
    package.mkdir(exist_ok=True)
    (package / "__init__.py").touch()
    (package / "launch_server.py").write_text(PACKAGE)
    port = free_port()
    words = [*engine.run_words("-d", "-v", f"{directory}:/p:ro", "-e", "PYTHONPATH=/p", "-e", f"PORT={port}", *options)]
    return port, [
        *words[1 : words.index(IMAGE) + 1],
        "/usr/bin/python3",
        "-m",
        "sglang.launch_server",
        "--port",
        str(port),
    ]


async def test_a_server_in_a_strangers_container_is_watched_and_never_touched(make_host, dockerd, tmp_path):
    engine = dockerd.engine
    host = make_host(DOCKER_HOST=f"unix://{dockerd.socket}")
    port, words = foreign_words(engine, tmp_path, "--name", "theirs")
    engine(*words[words.index("run") :])
    try:

        async def found():
            return next((run for run in await foreign_servers(host) if run.port == port), None)

        run = await until(found, "the server in the table of processes")
        box = run.container
        assert (box.engine, box.name, box.image, box.restarts) == ("docker", "theirs", IMAGE, 0)
        assert run.log_path is None
        path = Path(await path_of_log(host, run))
        await until(lambda: b"fired up" in path.read_bytes(), "the copy of its output")
        ask(port, "hello")
        await until(lambda: b"asked for /hello" in path.read_bytes(), "the new line")
        assert (await found()).log_path == str(path)
        assert await log_of_container(host, "docker", "theirs") == str(path)  # one copy, however often it is asked for
        with pytest.raises(UsageError, match="not started by eagletui"):
            await control.stop(host, run.run_id)
        assert engine("inspect", "-f", "{{.State.Running}}", "theirs") == "true"
        engine("stop", "theirs")
        await until(lambda: b"Draining" in path.read_bytes(), "its last line")
        assert path.read_bytes() == engine.output("theirs")
    finally:
        engine("rm", "-f", "theirs")
    with pytest.raises(UsageError, match="No such"):
        await log_of_container(host, "docker", "nobody")


DIES = """[2026-11-30 10:00:00] server_args=ServerArgs(model_path='m', port=30000)
[2026-11-30 10:00:01] Error: loading
Traceback (most recent call last):
  File "/usr/lib/python3/dist-packages/sglang/srt/model_executor/model_runner.py", line 1, in load_model
    self.model = get_model(
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB
"""


async def seen_by(host, engine, name):
    async def found():
        runs = await foreign_servers(host)
        return next((run for run in runs if run.container is not None and run.container.name == name), None)

    return await until(found, f"the container {name}")


def session_of(host):
    return HostSession(HostEntry("local", "local"), host)


async def test_a_restart_loop_is_no_start(make_host, dockerd, tmp_path):
    engine = dockerd.engine
    host = make_host(DOCKER_HOST=f"unix://{dockerd.socket}")
    _, words = foreign_words(
        engine, tmp_path, "--name", "loop", "--restart", "always", "-e", f"SAY={DIES}", "-e", "EXIT=0,3"
    )
    engine(*words[words.index("run") :])

    async def looping():
        run = await seen_by(host, engine, "loop")
        return run if run.container.status == "restarting" and run.container.restarts > 2 else None

    run = await until(looping, "the wait between two starts")
    assert (run.pid, run.state, run.container.exit_code) == (None, RunState.FOREIGN, 3)
    assert run.run_id == f"foreign-{run.container.container_id[:12]}"
    state = await settled_state(session_of(host), run, 30)
    assert state.outcome is Outcome.RESTARTING
    assert state.diagnosis.cause == "oom_weights"
    assert state.run.container.restarts >= run.container.restarts
    words = await last_words(host, run.container)
    assert words.count(b"server_args=") == 1
    assert words.startswith(b"[2026-11-30 10:00:00] server_args=")
    engine("rm", "-f", "loop")
    ended = await control.refresh(host, run)
    assert ended.state is RunState.EXITED


async def test_a_foreign_container_that_ended_is_over_with_the_engines_exit_code(make_host, dockerd, tmp_path):
    engine = dockerd.engine
    host = make_host(DOCKER_HOST=f"unix://{dockerd.socket}")
    _, words = foreign_words(engine, tmp_path, "--name", "theirs")
    engine(*words[words.index("run") :])
    try:
        run = await seen_by(host, engine, "theirs")
        await until(lambda: b"fired up" in engine.output("theirs"), "its start")
        engine("stop", "theirs")
        assert [r for r in await foreign_servers(host) if r.container and r.container.name == "theirs"] == []
        ended = await control.refresh(host, run)
        assert (ended.state, ended.exit_code) == (RunState.EXITED, 0)
    finally:
        engine("rm", "-f", "theirs")


async def test_another_users_container_says_what_may_not_be_asked(make_host, dockerd, tmp_path, monkeypatch):
    engine = dockerd.engine
    _, words = foreign_words(engine, tmp_path, "--name", "theirs")
    engine(*words[words.index("run") :])
    monkeypatch.setattr("tui.core.link.local.COMMAND", "setpriv --reuid=65534 --regid=65534 --clear-groups /bin/sh -s")
    host = make_host(DOCKER_HOST=f"unix://{dockerd.socket}", HOME="/", EAGLETUI_STATE="")
    try:
        first = int(engine("inspect", "-f", "{{.State.Pid}}", "theirs"))

        async def found():
            return next((run for run in await foreign_servers(host) if run.pid == first), None)

        run = await until(found, "the server in the table of processes")
        box = run.container
        assert (box.engine, box.container_id) == (None, engine("inspect", "-f", "{{.Id}}", "theirs"))
        assert box.unasked.startswith("a container of docker, which this account may not ask about: ")
        assert "permission denied" in box.unasked
        assert run.owner == "root"
        assert await path_of_log(host, run) is None
        assert "may not ask" in no_log(run).message
    finally:
        engine("rm", "-f", "theirs")


async def test_a_log_that_the_engine_rotates_has_lost_its_beginning(make_host, dockerd, tmp_path):
    engine = dockerd.engine
    host = make_host(DOCKER_HOST=f"unix://{dockerd.socket}")
    small = ("--log-driver", "json-file", "--log-opt", "max-size=20k", "--log-opt", "max-file=2", "-e", "LINES=2000")
    _, words = foreign_words(engine, tmp_path, "--name", "theirs", *small, "-e", f"SAY={DIES.splitlines()[0]}\n")
    engine(*words[words.index("run") :])
    try:
        run = await seen_by(host, engine, "theirs")
        await until(lambda: b"#token: 1999" in engine.output("theirs"), "its last line")
        state = await settled_state(session_of(host), run, 30)
        assert state.startup.lost_head
        assert state.outcome is Outcome.READY
        path = Path(await path_of_log(host, run))
        await until(lambda: path.read_bytes() == engine.output("theirs"), "its copy")
        whole = LogTracker(records=False)
        whole.feed(DIES.splitlines()[0].encode() + b"\n" + path.read_bytes())
        assert not whole.state().lost_head
    finally:
        engine("rm", "-f", "theirs")


async def test_after_a_reboot_its_engine_still_says_how_it_ended(make_host, engine):
    host = make_host()
    run = await started(host, served(engine))
    directory = Path(run.directory)
    # What a reboot leaves: no process of ours, a record of another boot, a container that has ended.
    os.kill(int((directory / "pid").read_text().split()[4]), signal.SIGKILL)
    os.kill(int((directory / "copier").read_text().split()[0]), signal.SIGKILL)
    engine("stop", f"eagletui-{run.run_id}")
    await until(lambda: not Path(f"/proc/{run.pid}").exists(), "the end of the container")
    assert b"Draining" not in log_of(run)
    words = record(run)
    write_record(run, [*words[:2], "11111111-2222-3333-4444-555555555555", *words[3:]])
    found = await seen(host, run)
    assert (found.state, found.why) in ((RunState.FINISHING, "rebooted"), (RunState.EXITED, "rebooted"))
    ended = await exited(host, run)
    assert (ended.exit_code, ended.why, ended.orphans) == (0, "rebooted", ())
    assert log_of(run).count(b"Draining") == 1
    await until(lambda: engine.names() == [], "the container's removal")


async def test_a_stop_after_a_reboot_removes_the_container(make_host, engine):
    host = make_host()
    run = await started(host, served(engine))
    directory = Path(run.directory)
    os.kill(int((directory / "pid").read_text().split()[4]), signal.SIGKILL)
    engine("stop", f"eagletui-{run.run_id}")
    words = record(run)
    write_record(run, [*words[:2], "11111111-2222-3333-4444-555555555555", *words[3:]])
    await stopped(host, run)
    ended = await exited(host, run)  # its engine is being asked for the exit code
    assert (ended.state, ended.exit_code) == (RunState.EXITED, 0)
    await until(lambda: engine.names() == [], "the container's removal")


async def test_a_dockerd_that_is_killed_gives_the_exit_state_when_it_is_back(make_host, dockerd):
    host = make_host()
    run = await started(host, served(dockerd.engine))
    dockerd.stop(signal.SIGKILL)
    now = await seen(host, run)
    assert now.state in (RunState.RUNNING, RunState.FINISHING)
    dockerd.start()
    ended = await exited(host, run)
    assert ended.exit_code is not None
    await until(lambda: dockerd.engine.names() == [], "the container's removal")
