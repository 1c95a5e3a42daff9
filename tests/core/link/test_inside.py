"""The way into a container, through a real dockerd and a real podman: bytes, cuts, and what is left there."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tests.support.engines import IMAGE, MOUNTS, SERVER_WORDS, docker_engine, podman_engine
from tests.support.run_lab import free_port
from tui.core.errors import HostError, Slug, TimedOut
from tui.core.link import http
from tui.core.link.inside import InsideTransport
from tui.core.link.local import LocalTransport

NAME = "place"


@pytest.fixture(scope="module")
def docker(tmp_path_factory):
    for daemon in docker_engine(tmp_path_factory.mktemp("docker")):
        daemon.engine.idle(NAME)
        yield daemon.engine


@pytest.fixture(scope="module")
def podman(tmp_path_factory):
    for engine in podman_engine(tmp_path_factory.mktemp("podman")):
        engine.idle(NAME)
        yield engine


@pytest.fixture(params=["docker", "podman"])
def engine(request):
    return request.getfixturevalue(request.param)


def entered(outer, engine, name=NAME):
    return InsideTransport(outer, (*engine.words, "exec", "-i", name), f"{engine.name}:{name}")


@pytest.fixture
async def local():
    transport = LocalTransport()
    yield transport
    await transport.close()


@pytest.fixture
def inside(local, engine):
    return entered(local, engine)


def clients(engine) -> list[int]:
    """The engine's own processes that hold a way in open."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"exec" in words and NAME.encode() in words and words[0].rsplit(b"/")[-1].decode() == engine.name:
                found.append(int(entry.name))
    return found


async def test_scripts_run_inside_and_say_how_they_end(inside):
    done = await inside.run("cat /etc/passwd; echo err >&2; exit 7")
    assert (done.exit_status, done.stdout, done.stderr) == (7, b"root:x:0:0:root:/root:/bin/sh\n", b"err\n")


async def test_three_megabytes_are_the_same_both_ways(inside):
    data = os.urandom(3_000_000)
    await inside.put(data, "/tmp/it's a $name")
    assert (await inside.run('cat "/tmp/it\'s a \\$name"')).stdout == data
    received = b""
    async with inside.stream('cat "/tmp/it\'s a \\$name"; exit 4') as stream:
        while piece := await stream.read():
            received += piece
        assert await stream.exit_status() == 4
    assert received == data


async def test_through_ssh_and_through_another_place(ssh_transport, engine):
    inside = entered(ssh_transport, engine)
    assert (await inside.run("ls /t/container_server.py")).stdout == b"/t/container_server.py\n"
    again = InsideTransport(inside, ("env", "DEEPER=1"), "deeper")
    assert (await again.run("echo $DEEPER; cat /etc/passwd")).stdout.startswith(b"1\nroot:x:0:0:root:/root:/bin/sh\n")


@pytest.mark.parametrize(
    "script",
    [
        "echo tick; sleep 1000",
        "trap '' TERM HUP; echo tick; sleep 1000; sleep 1000",
        "while echo tick; do sleep 1; done",
    ],
)
async def test_nothing_stays_inside_when_the_way_is_cut(inside, engine, until, script):
    await cut(inside, engine, until, script)


async def test_nothing_stays_of_a_flood_that_is_cut(local, docker, until):
    # podman's conmon reads no end of the input while it is flooded.
    await cut(entered(local, docker), docker, until, "while echo tick; do :; done")


async def cut(inside, engine, until, script):
    async with inside.stream(script) as stream:
        await stream.read()
        assert engine.processes(NAME)
        for pid in clients(engine):
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(HostError):
            await stream.exit_status()
    await until(lambda: engine.processes(NAME) == [])


async def test_nothing_stays_inside_of_a_call_whose_way_is_cut(inside, engine, until):
    call = asyncio.create_task(inside.run("sleep 1000"))
    await until(lambda: "sleep 1000" in engine.processes(NAME))
    for pid in clients(engine):
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(HostError):
        await call
    await until(lambda: engine.processes(NAME) == [])


async def test_nothing_stays_inside_of_a_call_that_takes_too_long(inside, engine, until):
    with pytest.raises(TimedOut):
        await inside.run("sleep 1000", timeout_s=2)
    await until(lambda: engine.processes(NAME) == [])


async def test_nothing_stays_inside_of_a_stream_that_was_left(inside, engine, until):
    async with inside.stream("while echo tick; do sleep 1; done") as stream:
        assert await stream.read() == b"tick\n"
    await until(lambda: engine.processes(NAME) == [])


async def test_no_dead_process_is_left_to_a_first_process_that_reaps_nobody(inside, engine):
    before = len(engine.processes(NAME, dead=True))
    for _ in range(3):
        assert (await inside.run("true")).exit_status == 0
    assert len(engine.processes(NAME, dead=True)) == before


@pytest.mark.parametrize(
    ("name", "says"), [("nobody", "[Nn]o such container|no container"), ("bare", "/bin/sh.*no such file|not found")]
)
async def test_where_there_is_no_way_in_one_line_says_why(local, engine, name, says):
    if name == "bare" and "bare" not in engine.names():
        engine("run", "-d", "--name", "bare", "-v", "/usr:/usr:ro", "-v", "/lib:/lib:ro", "-v", "/lib64:/lib64:ro",
               IMAGE, "/bin/sh", "-c", "mv /bin /nothing; exec /usr/bin/sleep 100000")  # fmt: skip
        while Path(f"/proc/{engine('inspect', '-f', '{{.State.Pid}}', 'bare')}/comm").read_text() != "sleep\n":
            pass
    with pytest.raises(HostError, match=says) as refused:
        await entered(local, engine, name).run("true")
    assert refused.value.message.startswith(f"local: there is no way into {engine.name}:{name}: ")
    assert "\n" not in refused.value.message
    assert refused.value.slug == Slug.UNSUPPORTED_HOST


async def test_who_may_not_ask_the_engine_is_told_so(local, docker):
    words = (
        "env",
        "HOME=/",
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        *docker.words,
        "exec",
        "-i",
        NAME,
    )
    with pytest.raises(HostError, match="no way into docker:place: permission denied while trying"):
        await InsideTransport(local, words, "docker:place").run("true")


async def test_a_port_of_a_network_of_its_own_is_reached_from_inside(local, engine, until):
    port = free_port()
    engine("run", "-d", "--name", "alone", "--network", "none", *MOUNTS, "-e", f"PORT={port}", IMAGE, *SERVER_WORDS)
    inside = entered(local, engine, "alone")
    try:
        await until(lambda: b"fired up" in engine.output("alone"))
        assert (await http.request(inside, "GET", port, "/from-inside")).status == 200
        with pytest.raises(HostError) as refused:
            await http.request(local, "GET", port, "/from-outside")
        assert refused.value.slug == Slug.REFUSED
        with pytest.raises(HostError, match=r"nothing answers on 127.0.0.1:1 there: .*refused") as refused:
            await http.request(inside, "GET", 1, "/")
        assert refused.value.slug == Slug.REFUSED
    finally:
        engine("rm", "-f", "alone")
