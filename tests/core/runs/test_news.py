"""The host tells when a look is worth it: with its Python, and without one."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.run_lab import request, until
from tui.core.runs import control, news
from tui.core.runs.news import News, Pace
from tui.remote import host_watch


@pytest.fixture(params=["python", "dash", "busybox"])
async def hearing(request, make_host, monkeypatch):
    """(host, what is heard of it): with its Python, and without one in two shells, its pauses shortened."""
    host = make_host() if request.param == "python" else request.getfixturevalue("shell_of")(request.param)
    if request.param != "python":
        monkeypatch.setattr(news, "PYTHONS", ())
        monkeypatch.setattr(news, "PERIOD_S", 0)
    else:
        monkeypatch.setattr(news, "PERIOD_S", 0.02)
    heard = News(host)
    task = asyncio.create_task(heard.follow())
    await until(lambda: heard.live, "the watcher")
    yield host, heard
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def shell_of(make_host, tmp_path):
    """shell_of(name): a host with that shell."""
    from tests.core.runs.conftest import shell_named

    return lambda name: make_host(shell_named(name, tmp_path / "shells" / name))


async def test_a_run_that_begins_ends_and_is_stopped_is_told(hearing):
    host, heard = hearing
    at = heard.heard
    run = await control.launch(host, request(["sleep", "600"]))
    assert await heard.after(at, 60)
    await until(_quiet(heard), "no more news")
    at = heard.heard
    os.kill(run.pid, signal.SIGKILL)
    assert await heard.after(at, 60)


def _quiet(heard):
    async def quiet():
        at = heard.heard
        return not await heard.after(at, 0.6)

    return quiet


@contextlib.contextmanager
def process(*words):
    """A process with this command line."""
    code = "import os, sys; os.execv('/bin/sleep', [*sys.argv[1:-1], sys.argv[-1]])"
    with subprocess.Popen([sys.executable, "-c", code, *words, "600"], start_new_session=True) as started:
        try:
            yield started.pid
        finally:
            started.kill()


async def test_a_server_of_others_is_told_when_it_comes_and_goes(hearing):
    _, heard = hearing
    await until(_quiet(heard), "no more news")
    at = heard.heard
    with process("sglang::scheduler_TP0"):
        assert await heard.after(at, 60)
        await until(_quiet(heard), "no more news")
        at = heard.heard
    assert await heard.after(at, 60)


def test_a_process_that_becomes_a_server_late_or_with_a_used_number_is_found_within_a_sweep(monkeypatch):
    """What a number stands for is read again, not only when it is new."""
    commands = {"7": b"bash\0run.sh", "8": b"vim"}
    monkeypatch.setattr(host_watch.os, "listdir", lambda _: [*commands, "meminfo"])
    monkeypatch.setattr(host_watch, "started", lambda pid: b"1")
    read = []

    def command(path, most=0):
        pid = path.split("/")[2]
        if path.endswith("cmdline"):
            read.append(pid)
            return commands[pid]
        return b""

    monkeypatch.setattr(host_watch, "read", command)
    watched = host_watch.Processes()
    for at in range(0, 20, 5):
        assert watched.look(at) == (frozenset(), frozenset())
    read.clear()
    watched.look(20)
    assert len(read) <= 1  # they are no longer young
    commands["7"] = b"python3\0-m\0sglang.launch_server\0--port\x0030000"
    for at in range(25, 25 + int(host_watch.SWEEP_S) + 10, 5):
        found, _ = watched.look(at)
    assert found == {("7", b"1")}
    del commands["7"]
    assert watched.look(100)[0] == frozenset()


def test_what_is_no_server_is_not_told():
    for command in (b"nvcc\0-I/x/sglang/include\0a.cu", b"tail\0-f\0sglang.log", b"vim\0sglang", b"ninja\0-C\0vllm"):
        assert not host_watch.SERVER.search(command), command
    for command in (b"sglang\0serve\0m", b"/x/vllm\0serve", b"VLLM::Worker", b"python\0-m\0sglang.launch_server",
                    b"python\0/s/sglang/launch_server.py", b"python\0-m\0sglang.cli.main\0serve",
                    b"python\0-m\0vllm.entrypoints.openai.api_server"):  # fmt: skip
        assert host_watch.SERVER.search(command), command


async def test_while_a_server_is_measured_processes_are_left_alone(tmp_path):
    run = tmp_path / "runs" / "bench-1"
    run.mkdir(parents=True)
    me = host_watch.started(str(os.getpid())).decode()
    (run / "pid").write_text(f"{os.getpid()} {me} boot ns {os.getpid()} {me} 0\n")
    (run / "meta").write_text("1 bench - - -\n")
    runs = host_watch.Runs([str(tmp_path / "runs"), str(tmp_path / "none")])
    before, measuring = runs.look()
    assert measuring
    (run / "exit").write_text("0 1\n")
    after, measuring = runs.look()
    assert not measuring
    assert after != before


async def test_looks_become_rare_while_nothing_is_told_and_none_is_missed(monkeypatch):
    told = News(None)
    told.live = True
    pauses = []

    async def sleep(seconds):
        pauses.append(seconds)

    async def after(heard, timeout_s):
        pauses.append(timeout_s)
        return told.heard != heard

    monkeypatch.setattr(news.asyncio, "sleep", sleep)
    monkeypatch.setattr(told, "after", after)
    pace = Pace(told, 5.0, 60.0)

    async def pause():
        pauses.clear()
        await pace.next_look()
        return sum(pauses)

    assert await pause() == 5.0  # what was told before the first look
    assert [await pause() for _ in range(4)] == [15.0, 45.0, 60.0, 60.0]
    told.heard += 1  # while the look was under way
    assert await pause() == 60.0
    assert pauses == [5.0, 55.0]
    assert await pause() == 15.0
    told.live = False
    assert [await pause() for _ in range(2)] == [5.0, 5.0]


async def test_a_host_that_cannot_watch_is_asked_again_and_again(make_host, tmp_path, monkeypatch):
    """Its script ends at once, without a word."""
    monkeypatch.setattr(news, "helper_script", lambda *_, **__: "exit 3\n")
    heard = News(make_host())
    async with asyncio.timeout(60):
        await heard.follow()
    assert not heard.live
    assert not Pace(heard, 1, 2).hearing


def test_the_watcher_needs_nothing_but_an_old_python():
    text = Path(host_watch.__file__).read_text()
    imported = {line.split()[1] for line in text.split("\n") if line.startswith("import ")}
    assert imported <= set(sys.stdlib_module_names)
