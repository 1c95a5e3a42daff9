"""Following a file: exact bytes whatever happens to the link, and never two files in one."""

import asyncio
import contextlib
import hashlib
import os
import random
import time
from pathlib import Path

import pytest

from tui.core.errors import HostError, UsageError
from tui.core.logs import follow as follow_module
from tui.core.logs.blocks import read_block
from tui.core.logs.follow import Chunk, before_last_lines, follow


@pytest.fixture(params=["python", "dash", "busybox", "bash", "no stat"])
def host(request, make_shell_host, monkeypatch):
    """This machine with its Python, without one under three shells, and with tools that lack stat."""
    if request.param == "python":
        return make_shell_host("dash")
    monkeypatch.setattr("tui.core.link.programs.PYTHONS", ())
    few = request.param == "no stat"
    return make_shell_host("busybox" if few else request.param, ("dd", "ls", "sleep", "printf") if few else ())


class Watch:
    """Follows a file in the background and keeps what came."""

    def __init__(self, transport, path, **options) -> None:
        self.chunks: list[Chunk] = []
        self.over = False
        options.setdefault("ended", lambda: self.over)
        self._changed = asyncio.Event()
        self.task = asyncio.create_task(self._run(transport, str(path), options))

    async def _run(self, transport, path, options) -> None:
        async for chunk in follow(transport, path, **options):
            self.chunks.append(chunk)
            self._changed.set()

    def data(self, generation: int = 0) -> bytes:
        return b"".join(chunk.data for chunk in self.chunks if chunk.generation == generation)

    @property
    def events(self) -> list[str]:
        return [chunk.event for chunk in self.chunks if chunk.event]

    async def until(self, condition) -> None:
        deadline = time.monotonic() + 60
        while not condition(self):
            assert time.monotonic() < deadline, self.events
            if self.task.done():
                await self.task
                assert condition(self), (self.events, "ended")
                return
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), 0.2)

    async def end(self) -> None:
        self.over = True
        await asyncio.wait_for(self.task, 60)


async def test_a_file_to_its_end(host, tmp_path):
    log = tmp_path / "a 'log' ü"
    data = random.Random(1).randbytes(3_000_001)
    log.write_bytes(data)
    watch = Watch(host, log, ended=lambda: True)
    await asyncio.wait_for(watch.task, 60)
    assert watch.data() == data
    assert watch.events == ["ended"]
    at = 0
    for chunk in watch.chunks:
        assert chunk.offset == at
        at += len(chunk.data)


@pytest.mark.parametrize("end", [b"", b"\n", b"\n\n"])
@pytest.mark.parametrize("count", [1, 2, 40, 3_000, 100_000])
async def test_where_the_last_lines_begin(make_shell_host, tmp_path, count, end):
    log = tmp_path / "log"
    lines = [b"%d " % at + b"x" * (at % 190) for at in range(30_000)]
    data = b"\n".join(lines) + end
    log.write_bytes(data)
    host = make_shell_host("dash")
    begin = await before_last_lines(host, str(log), count)
    assert data[begin.offset :] == b"".join(data.splitlines(keepends=True)[-count:])
    watch = Watch(host, log, ended=lambda: True, after=begin)
    await asyncio.wait_for(watch.task, 60)
    assert watch.data() == data[begin.offset :]


async def test_the_last_lines_of_what_has_few_or_none(make_shell_host, tmp_path):
    log, host = tmp_path / "log", make_shell_host("dash")
    assert await before_last_lines(host, str(log), 3) is None
    log.write_bytes(b"")
    assert (await before_last_lines(host, str(log), 3)).offset == 0
    log.write_bytes(b"a" * 5_000_000 + b"\n" + b"b" * 4_300_000 + b"\nc\n")
    assert (
        await before_last_lines(host, str(log), 2)
    ).offset == 9_300_002  # the line before is longer than what is looked at


async def test_bytes_as_they_are_written(host, tmp_path):
    log = tmp_path / "log"
    log.write_bytes(b"")
    watch = Watch(host, log)
    expected = b""
    for piece in (b"one\n", b"\0\r\xff", "é".encode()[:1], "é".encode()[1:], b"x" * 100_000, b"no newline"):
        with log.open("ab") as file:
            file.write(piece)
        expected += piece
        await watch.until(lambda w: len(w.data()) >= len(expected))  # noqa: B023
    await watch.end()
    assert watch.data() == expected
    assert watch.events == ["ended"]


@pytest.mark.fault(
    "S5", "a log is truncated, rotated or replaced", sees="a line that says so", holds="two files are never mixed"
)
async def test_truncation_rotation_replacement_and_removal_begin_generations(host, tmp_path):
    log = tmp_path / "log"
    log.write_bytes(b"first file, generation 0\n")
    watch = Watch(host, log)
    await watch.until(lambda w: w.data(0))
    log.write_bytes(b"truncated\n")
    await watch.until(lambda w: w.data(1))
    with log.open("ab") as file:
        file.write(b"last words before the rotation\n")
    log.rename(tmp_path / "log.1")
    log.write_bytes(b"rotated\n")
    await watch.until(lambda w: w.data(2))
    new = tmp_path / "new"
    new.write_bytes(b"replaced by a longer file than before\n")
    new.rename(log)
    await watch.until(lambda w: w.data(3))
    log.unlink()
    await watch.until(lambda w: "gone" in w.events)
    log.write_bytes(b"back again\n")
    await watch.until(lambda w: w.data(4))
    await watch.end()
    assert watch.events == ["truncated", "replaced", "replaced", "gone", "replaced", "ended"]
    assert [watch.data(n) for n in range(5)] == [
        b"first file, generation 0\n",
        b"truncated\nlast words before the rotation\n",  # what was written before it was moved away is not lost
        b"rotated\n",
        b"replaced by a longer file than before\n",
        b"back again\n",
    ]


async def test_a_file_rewritten_to_at_least_its_old_length(host, tmp_path):
    log = tmp_path / "log"
    log.write_bytes(b"a" * 2000)
    watch = Watch(host, log)
    await watch.until(lambda w: len(w.data(0)) == 2000)
    with log.open("r+b") as file:  # as copytruncate and a quick writer do between two looks
        file.write(b"b" * 2000)
    await watch.until(lambda w: len(w.data(1)) == 2000)
    await watch.end()
    assert watch.data(1) == b"b" * 2000
    assert "truncated" in watch.events


async def test_a_file_that_is_not_there_yet(host, tmp_path):
    log = tmp_path / "log"
    watch = Watch(host, log)
    await watch.until(lambda w: w.events == ["gone"])
    log.write_bytes(b"here\n")
    await watch.until(lambda w: w.data(0) == b"here\n")
    await watch.end()
    assert watch.events == ["gone", "ended"]
    watch = Watch(host, tmp_path / "never", ended=lambda: True)
    await asyncio.wait_for(watch.task, 60)
    assert watch.events == ["gone", "ended"]


async def test_going_on_after_a_restart_of_the_app(host, tmp_path):
    log = tmp_path / "log"
    log.write_bytes(b"0123456789")
    watch = Watch(host, log, ended=lambda: True)
    await asyncio.wait_for(watch.task, 60)
    last = watch.chunks[-2]
    where = {"after": last, "ended": lambda: True}
    with log.open("ab") as file:
        file.write(b"abc")
    watch = Watch(host, log, **where)
    await asyncio.wait_for(watch.task, 60)
    assert (watch.data(0), watch.events, watch.chunks[0].offset) == (b"abc", ["ended"], 10)
    for number, replace in enumerate((lambda: log.write_bytes(b"other bytes, longer"), lambda: log.write_bytes(b"s"))):
        replace()  # in place, so the inode stays
        watch = Watch(host, log, **where)
        await asyncio.wait_for(watch.task, 60)
        assert watch.data(0) == b""
        assert watch.data(1) == log.read_bytes()
        assert watch.events == [["replaced", "truncated"][number], "ended"]


# Root may read everything.
@pytest.mark.parametrize("kind", ["directory", "fifo", *(["denied"] if os.geteuid() else [])])
async def test_what_cannot_be_followed_is_one_clear_error(local, tmp_path, kind):
    path = tmp_path / "it"
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.write_bytes(b"x")
        path.chmod(0)
    with pytest.raises(UsageError, match="local: ") as caught:
        await anext(follow(local, str(path)))
    assert str(path) in caught.value.message
    with pytest.raises(UsageError):
        await read_block(local, str(path), 0, 0)


async def test_facts_of_a_file(host, tmp_path):
    log = tmp_path / "log"
    data = random.Random(2).randbytes(2_500_000)
    log.write_bytes(data)
    info = await read_block(host, str(log), 0, 0)
    assert info.size == len(data)
    assert info.file.endswith(f":{log.stat().st_ino}")
    assert await read_block(host, str(tmp_path / "no"), 0, 0) is None


class _Stream:
    def __init__(self, blocks):
        self._blocks = list(blocks)

    async def read(self, max_bytes=1 << 18):
        return self._blocks.pop(0) if self._blocks else b""

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        return None


class _Scripted:
    """A host whose streams are given; each is told its word."""

    host = "gpu1"

    def __init__(self, *streams):
        self._streams = list(streams)
        self.scripts = []

    def stream(self, script):
        self.scripts.append(script)
        word = script.split("EF_WORD=")[1].split("\n")[0].encode()
        blocks = self._streams.pop(0)(word) if self._streams else []
        return _Stream(blocks)


async def test_a_frame_that_is_cut_short_is_read_again():
    """The file shrank between the look at its size and the read: the frame's end is not where it should be."""

    def short(word):
        whole = (
            b"O 0 3 3 1:2\nabc\n" + word + b"\nD 0 100 100 1:2\nabc\n" + word + b"\nS 100 0 3 1:2\n\n" + word + b"\n"
        )
        return [whole[n : n + 7] for n in range(0, len(whole), 7)] + [b"x" * 200]

    def good(word):
        return [b"O 0 3 3 1:2\nabc\n" + word + b"\nD 0 3 3 1:2\nabc\n" + word + b"\n"]

    chunks = follow(_Scripted(short, good), "/log")
    first = await anext(chunks)
    assert (first.offset, first.data, first.generation) == (0, b"abc", 0)
    with pytest.raises(HostError, match="cannot be followed"):
        await anext(chunks)  # a shell that ends at once, time and again


# -- over a link that is lost ---------------------------------------------------------------------------------------


async def _write_slowly(path: Path, seed: int, pieces: int) -> None:
    """Appends text with letters of several bytes, carriage returns and cuts inside letters, flushed piece by piece."""
    rng = random.Random(seed)
    with path.open("ab", buffering=0) as file:
        for number in range(pieces):
            text = f"[{number:06d}] " + "é漢🦅\r"[rng.randrange(4)] * rng.randrange(200) + "\n"
            data = text.encode() * rng.randrange(1, 40)
            cut = rng.randrange(len(data))
            file.write(data[:cut])
            await asyncio.sleep(rng.random() * 0.02)
            file.write(data[cut:])


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.fault(
    "C8", "a link dies again and again", sees="the log goes on after each", holds="every byte once, in order"
)
async def test_the_log_is_the_same_whatever_happens_to_the_link(sshd, tcp_proxy, ssh_transport, tmp_path, seed):
    log = tmp_path / "log"
    log.write_bytes(b"")
    watch = Watch(ssh_transport, log)
    writer = asyncio.create_task(_write_slowly(log, seed, 250))
    rng = random.Random(seed * 7)
    await watch.until(lambda w: w.data(0))
    faults = 0
    while not writer.done() or faults < 4:
        await asyncio.sleep(0.1 + rng.random() * 0.4)
        fault = rng.choice(["kill", "reset", "stall", "cut"])
        if fault == "kill":
            sshd.kill_sessions()
        elif fault == "reset":
            tcp_proxy.reset()
        elif fault == "cut":
            tcp_proxy.cut_after(rng.randrange(1, 60_000))
        else:
            tcp_proxy.stall()
            await asyncio.sleep(rng.random() * 2.5)
            tcp_proxy.resume()
        faults += 1
    await writer
    size = log.stat().st_size
    await watch.until(lambda w: len(w.data()) >= size)
    await watch.end()
    assert hashlib.sha256(watch.data()).hexdigest() == hashlib.sha256(log.read_bytes()).hexdigest()
    assert {chunk.generation for chunk in watch.chunks} == {0}
    assert watch.events.count("link_lost") == watch.events.count("resumed")
    assert watch.events[-1] == "ended"


async def test_a_file_replaced_while_the_link_was_lost(sshd, tcp_proxy, ssh_transport, tmp_path):
    log = tmp_path / "log"
    log.write_bytes(b"old\n" * 1000)
    watch = Watch(ssh_transport, log)
    await watch.until(lambda w: len(w.data(0)) == 4000)
    await tcp_proxy.stop()
    await watch.until(lambda w: w.events == ["link_lost"])
    with log.open("wb") as file:  # the same inode
        file.write(b"new\n" * 2000)
    await tcp_proxy.start()
    await watch.until(lambda w: len(w.data(1)) == 8000)
    await watch.end()
    assert watch.data(0) == b"old\n" * 1000
    assert watch.data(1) == b"new\n" * 2000
    assert watch.events == ["link_lost", "resumed", "replaced", "ended"]


def _senders(log: Path) -> int:
    """Shells on this machine that follow this log: each has it open."""
    found = 0
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with contextlib.suppress(OSError):
                found += any(os.path.realpath(fd) == str(log) for fd in (process / "fd").iterdir())
    return found


@pytest.mark.fault(
    "S11", "links die while a log is followed", sees="nothing", holds="what sent it ends within 5 minutes"
)
async def test_lost_links_leave_no_senders_behind(sshd, tcp_proxy, ssh_transport, tmp_path):
    log = tmp_path / "log"
    log.write_bytes(b"x\n")
    watch = Watch(ssh_transport, log)
    for drop in range(10):
        await watch.until(lambda w: w.events.count("resumed") == drop and w.data(0))  # noqa: B023
        sshd.kill_sessions()
        await watch.until(lambda w: w.events.count("link_lost") == drop + 1)  # noqa: B023
    await watch.until(lambda w: w.events.count("resumed") == 10)
    deadline = time.monotonic() + 60
    while await asyncio.to_thread(_senders, log) > 1:
        assert time.monotonic() < deadline, "senders were left behind"
        await asyncio.sleep(0.2)
    await watch.end()
    assert watch.data(0) == b"x\n"


async def test_a_sender_ends_by_itself_and_is_asked_again(local, tmp_path, monkeypatch):
    monkeypatch.setattr(follow_module, "LIFE_S", 1)
    log = tmp_path / "log"
    log.write_bytes(b"")
    scripts = []
    plain = local.stream
    monkeypatch.setattr(local, "stream", lambda script: scripts.append(script) or plain(script))
    watch = Watch(local, log)
    while len(scripts) < 3:
        with log.open("ab") as file:
            file.write(b"abc")
        await asyncio.sleep(0.1)
        assert not watch.task.done()
    size = log.stat().st_size
    await watch.until(lambda w: len(w.data()) == size)
    await watch.end()
    assert watch.data() == log.read_bytes()
    assert watch.events == ["ended"]
