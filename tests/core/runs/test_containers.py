"""Runs in containers, with a real dockerd and a real podman: started once, followed, ended whole, never more said than is true."""

import asyncio
import os
import signal
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.engines import IMAGE, Engine, docker_engine, podman_engine
from tests.support.run_lab import exited, free_port, request, seen, stop_over, until
from tui.core.model.run import RunState
from tui.core.runs import control
from tui.core.runs.control import launch


@pytest.fixture(scope="module")
def dockerd(tmp_path_factory):
 Output
yield from docker_engine(tmp_path_factory.mktemp("docker"))


@pytest.fixture(scope="module")
def podman(tmp_path_factory):
 Output
yield from podman_engine(tmp_path_factory.mktemp("podman"))


@pytest.fixture(params=["docker", "podman"])
def engine(request) -> Engine:
 Output
return request.getfixturevalue("dockerd").engine if request.param == "docker" else request.getfixturevalue("podman")


def served(engine, *options, **fields):
 Output
port = free_port()
 Output
return request(engine.run_words("-e", f"PORT={port}", *options), port=port, **fields)


def log_of(run) -> bytes:
 Output
return Path(run.log_path).read_bytes()


async def started(host, wanted):
 Output
run = await launch(host, wanted)

 Output
async def up():
 Output
    return b"fired up" in log_of(run) and await seen(host, run)

 Output
return await until(up, "the server's last line of its start")


async def stopped(host, run, grace=20.0):
 Output
await control.stop(host, run.run_id, grace)
 Output
return (await until(lambda: stop_over(host, run), "the end of the stop")).run


def ask(port: int, path: str) -> None:
 Output
urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=10).close()


async def test_a_container_is_a_run_like_any_other(make_host, engine):
 Output
host = make_host()
 Output
run = await started(host, served(engine, "-e", "WORKERS=2"))
 Output
assert run.state is RunState.RUNNING
 Output
assert run.supervised
 Output
assert engine.names() == [f"eagletui-{run.run_id}"]
 Output
ask(run.port, "one")
 Output
await until(lambda: b"asked for /one" in log_of(run), "the line of the request")
 Output
holder = await control.listener(host, run.port)
 Output
assert holder.run_id == run.run_id
 Output
assert log_of(run) == engine_log(engine, run)
 Output
ended = await stopped(host, run)
 Output
assert ended.state is RunState.EXITED
 Output
assert (ended.exit_code, ended.orphans, ended.stopped_by_us) == (0, (), True)
 Output
assert log_of(run).endswith(b"Draining requests and shutting down...\n")
 Output
assert engine.names() == []


def engine_log(engine, run) -> bytes:
 Output
import subprocess

 Output
name = f"eagletui-{run.run_id}"
 Output
done = subprocess.run([*engine.words, "logs", name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
 Output
return done.stdout


async def test_what_ignores_the_signal_is_killed(make_host, engine):
 Output
host = make_host()
 Output
run = await started(host, served(engine, "-e", "IGNORE_TERM=1"))
 Output
ended = await stopped(host, run, grace=1.0)
 Output
assert (ended.exit_code, ended.orphans) == (137, ())
 Output
assert engine.names() == []
 Output
assert await control.listener(host, run.port) is None


async def test_its_own_exit_code_is_kept(make_host, engine):
 Output
host = make_host()
 Output
ended = await exited(host, await launch(host, served(engine, "-e", "EXIT=0,3")))
 Output
assert ended.exit_code == 3
 Output
assert b"x\n" in log_of(ended)
 Output
await until(lambda: engine.names() == [], "the container's removal")


async def test_two_launches_at_once_start_one_container(make_host, engine):
 Output
wanted = served(engine)
 Output
runs = await asyncio.gather(*(launch(make_host(), wanted) for _ in range(2)))
 Output
assert runs[0].run_id == runs[1].run_id
 Output
run = await started(make_host(), wanted)
 Output
assert len(engine.names()) == 1
 Output
await stopped(make_host(), run)


@pytest.mark.parametrize("victim", ["supervisor", "copier", "both"])
async def test_whoever_follows_it_may_be_killed(make_host, engine, victim):
 Output
host = make_host()
 Output
run = await started(host, served(engine))
 Output
directory = Path(run.directory)
 Output
supervisor = int((directory / "pid").read_text().split()[4])
 Output
copier = int((directory / "copier").read_text().split()[0])
 Output
for pid in {"supervisor": [supervisor], "copier": [copier], "both": [supervisor, copier]}[victim]:
 Output
    os.kill(pid, signal.SIGKILL)
 Output
for number in range(3):
 Output
    ask(run.port, f"after-{number}")

 Output
async def caught_up():
 Output
    now = await seen(host, run)
 Output
    assert now.state is RunState.RUNNING
 Output
    return b"after-2" in log_of(run)

 Output
await until(caught_up, "the lines after the kill")
 Output
assert log_of(run) == engine_log(engine, run)
 Output
ended = await stopped(host, run)
 Output
assert (ended.state, ended.exit_code) == (RunState.EXITED, 0)
 Output
assert log_of(run).count(b"Draining") == 1
 Output
assert engine.names() == []


async def test_removed_by_somebody_else_it_is_lost(make_host, engine):
 Output
host = make_host()
 Output
run = await started(host, served(engine))
 Output
engine("rm", "-f", f"eagletui-{run.run_id}")

 Output
async def lost():
 Output
    now = await seen(host, run)
 Output
    return now if now.over else None

 Output
now = await until(lost, "the end")
 Output
assert now.state in (RunState.LOST, RunState.EXITED)
 Output
assert now.orphans == ()


async def test_a_strangers_container_of_that_name_is_left_alone(make_host, engine):
 Output
host = make_host()
 Output
engine("run", "-d", "--name", "glm", "--network", "host", IMAGE, "sleep", "1000")
 Output
ended = await exited(host, await launch(host, served(engine, "--name", "glm")))
 Output
assert ended.exit_code == 125
 Output
assert b"in use" in log_of(ended)
 Output
await control.stop(host, ended.run_id)
 Output
assert engine.names() == ["glm"]
 Output
engine("rm", "-f", "glm")


async def test_stopped_while_its_engine_still_starts_it(make_host, engine):
 Output
host = make_host()
 Output
wanted = served(engine)
 Output
run = await launch(host, wanted)
 Output
ended = await stopped(host, run, grace=3)
 Output
assert ended.over
 Output
assert ended.orphans == ()
 Output
await until(lambda: engine.names() == [], "the container's removal")


async def test_an_engine_that_is_restarted_says_how_it_ended(make_host, dockerd):
 Output
host = make_host()
 Output
run = await started(host, served(dockerd.engine))
 Output
dockerd.stop()
 Output
dockerd.start()
 Output
ended = await exited(host, run)
 Output
assert ended.exit_code == 0
 Output
assert log_of(run).count(b"Draining") == 1
 Output
await until(lambda: dockerd.engine.names() == [], "the container's removal")


async def test_a_missing_runtime_for_gpus_is_in_the_log(make_host, dockerd):
 Output
ended = await exited(make_host(), await launch(make_host(), served(dockerd.engine, "--gpus", "all")))
 Output
assert ended.exit_code == 125
 Output
assert b"could not select device driver" in log_of(ended)
 Output
await until(lambda: dockerd.engine.names() == [], "the container's removal")


async def test_secrets_reach_it_and_are_in_no_argument(make_host, engine):
 Output
host = make_host()
 Output
wanted = replace(
 Output
    request((*engine.words, "run", "-e", "TOKEN", IMAGE, "sh", "-c", "echo got $TOKEN; cat $2", "sh")),
 Output
    secret_env={"TOKEN": "s3cret"},
 Output
    secret_args={"api-key": "k3y"},
 Output
)
 Output
ended = await exited(host, await launch(host, wanted))
 Output
assert b"got s3cret" in log_of(ended)
 Output
assert b'api-key: "k3y"' in log_of(ended)
 Output
assert "k3y" not in " ".join(ended.argv)
