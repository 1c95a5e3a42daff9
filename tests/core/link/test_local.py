"""This machine as a host; what is said here about scripts holds over SSH too (test_ssh.py runs them there)."""

import asyncio
import os
import stat
import subprocess

import pytest

from tui.core.config import HostEntry
from tui.core.errors import HostError, LinkLost, TimedOut
from tui.core.link import scripts
from tui.core.link.hosts import open_transport
from tui.core.link.local import LocalTransport
from tui.core.link.transport import LinkState, SilentAsker


@pytest.fixture
async def local():
    transport = LocalTransport()
    yield transport
    await transport.close()


async def test_local_is_this_machine():
    transport = open_transport(HostEntry("local", "local"), SilentAsker())
    await transport.connect()
    done = await transport.run("uname -n")
    assert done.stdout.decode().strip() == os.uname().nodename
    assert transport.status().state is LinkState.UP
    await transport.close()


async def test_status_and_outputs(local):
    done = await local.run("echo out; echo err >&2; exit 3")
    assert (done.exit_status, done.stdout, done.stderr) == (3, b"out\n", b"err\n")
    assert (await local.run("printf 'no newline'")).stdout == b"no newline"
    assert (await local.run("")).exit_status == 0


async def test_bytes_are_exact_in_both_outputs(local):
    script = "printf '\\000\\377\\n\\r\\n'; head -c 1000000 /dev/zero | tr '\\0' x >&2"
    done = await local.run(script)
    assert done.stdout == b"\0\xff\n\r\n"
    assert done.stderr == b"x" * 1_000_000


async def test_a_script_that_leaves_the_shell_in_its_own_ways(local):
    assert (await local.run("set -e; false; echo never")).exit_status == 1
    assert (await local.run("exec sh -c 'exit 9'")).exit_status == 9
    assert (await local.run("cat <<EOF\nhere\nEOF")).stdout == b"here\n"
    assert (await local.run("echo a # no newline after this")).stdout == b"a\n"
    assert (await local.run('read -r x; echo "<$x>"')).stdout == b"<>\n"  # its input is empty, not the script


async def test_a_child_that_holds_the_output_does_not_hold_the_answer(local):
    done = await local.run("sleep 300 & echo $!")
    assert done.exit_status == 0
    os.kill(int(done.stdout), 9)


async def test_our_deadline_ends_the_script_and_its_children(local, tmp_path, until, gone):
    pids = tmp_path / "pids"
    with pytest.raises(TimedOut):
        await local.run(f"trap '' HUP; sleep 300 & echo $! > {pids}; echo $$ >> {pids}; wait", timeout_s=1)
    for pid in pids.read_text().split():
        await until(lambda pid=int(pid): gone(pid))


async def test_a_cancelled_call_ends_the_script(local, tmp_path, until, gone):
    pid = tmp_path / "pid"
    task = asyncio.create_task(local.run(f"echo $$ > {pid}; sleep 300"))
    await until(lambda: pid.exists() and pid.read_text())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: gone(int(pid.read_text())))


async def test_leaving_a_stream_ends_what_ignores_sigterm(local, until, gone):
    async with local.stream("trap '' TERM; sleep 300 & echo $! $$; sleep 300; sleep 300") as stream:
        pids = (await stream.read()).split()
    for pid in pids:
        await until(lambda pid=int(pid): gone(pid))


async def test_a_stream_to_its_end(local):
    async with local.stream("printf 'a\\000b'; echo trouble >&2; exit 4") as stream:
        data = b""
        while piece := await stream.read(2):
            data += piece
        assert data == b"a\0b"
        assert await stream.read() == b""
        assert await stream.exit_status() == 4
        assert stream.stderr_tail() == b"trouble\n"


async def test_exit_status_drops_what_was_not_read(local):
    async with local.stream("head -c 3000000 /dev/zero; exit 5") as stream:
        assert await stream.exit_status() == 5


async def test_a_stream_ends_with_its_script_though_a_child_holds_the_output(local):
    async with local.stream("sleep 300 & echo $!") as stream:
        pid = await stream.read()
        async with asyncio.timeout(30):
            assert await stream.read() == b""
        assert await stream.exit_status() == 0
    os.kill(int(pid), 9)


async def test_a_killed_script_is_an_error_not_a_result(local):
    with pytest.raises(HostError) as caught:
        await local.run("echo half; kill -9 $$")
    assert caught.value.slug == "killed"
    assert "SIGKILL" in caught.value.message
    async with local.stream("echo half; kill -9 $$") as stream:
        assert await stream.read() == b"half\n"
        with pytest.raises(HostError):
            await stream.read()


async def test_too_much_output_is_bounded(local):
    with pytest.raises(HostError) as caught:
        await local.run("yes", max_output_bytes=100_000)
    assert caught.value.slug == "too_much_output"


@pytest.mark.parametrize("size", [0, 1, 3_000_000])
async def test_put(local, tmp_path, size):
    path = tmp_path / "it's a $name"
    data = os.urandom(size)
    await local.put(data, str(path), mode=0o640)
    assert path.read_bytes() == data
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert os.listdir(tmp_path) == [path.name]


async def test_put_knows_the_home_and_leaves_other_tildes_alone(local, own_home, tmp_path, monkeypatch):
    await local.put(b"x", "~/a b")
    assert (own_home / "a b").read_bytes() == b"x"


async def test_put_that_fails_leaves_the_old_file(local, tmp_path):
    (tmp_path / "directory").mkdir()
    for path in (tmp_path / "missing" / "file", tmp_path / "directory"):
        with pytest.raises(HostError) as caught:
            await local.put(b"x", str(path))
        assert caught.value.slug == "write_failed"
        assert str(path) in caught.value.message


async def test_an_upload_cut_at_any_byte_runs_nothing(tmp_path):
    mark = tmp_path / "ran"
    whole = scripts.wrap(f"touch {mark}", "etn0nce", scripts.Input.LINE_ENDS)
    for shell in ("dash", "bash", "busybox"):
        argv = [shell, "sh", "-s"] if shell == "busybox" else [shell, "-s"]
        for cut in range(0, len(whole) - 1, 7):  # the last newline may be missing
            try:
                process = await asyncio.create_subprocess_exec(
                    *argv,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=asyncio.subprocess.DEVNULL,
                )
            except FileNotFoundError:
                break
            await process.communicate(whole[:cut])
            assert not mark.exists(), (shell, cut)


async def test_a_cut_upload_of_a_file_changes_nothing(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    script = scripts.put_script(scripts.shell_path(str(path)), 100, 0o600)
    process = await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", script, stdin=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    await process.communicate(b"x" * 99)
    assert process.returncode == 74
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


async def test_closed(local):
    statuses = local.watch()
    assert (await anext(statuses)).state is LinkState.UP
    await local.close()
    assert local.status().state is LinkState.CLOSED
    assert [status.state async for status in statuses] == [LinkState.CLOSED]
    with pytest.raises(LinkLost):
        await local.run("true")


async def test_a_connection_to_a_port_of_this_machine(local, unused_tcp_port):
    async def upper(reader, writer):
        writer.write((await reader.read(100)).upper())
        writer.close()

    server = await asyncio.start_server(upper, "127.0.0.1", unused_tcp_port)
    async with server, local.open_connection("127.0.0.1", unused_tcp_port) as connection:
        await connection.write(b"hello")
        assert await connection.read() == b"HELLO"
        assert await connection.read() == b""


@pytest.mark.parametrize("shell", ["dash", "bash", "busybox"])
def test_the_end_marker_outlasts_a_reader_who_is_slow(shell):
    argv = [shell, "sh", "-s"] if shell == "busybox" else [shell, "-s"]
    fill = f"head -c {65536 - len('|word begin|')} /dev/zero"  # with the marker before it, all that a pipe holds
    sent = scripts.wrap(fill, "word", scripts.Input.LINE_ENDS)
    assert sent.index(b"word end") < sent.index(b'KILL "'), "BusyBox may lose it where a child dies meanwhile"
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdin.write(sent)
    process.stdin.flush()
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1)  # it waits for its reader
    said = process.stdout.read(65536 + len("|word end 0|"))
    assert said.endswith(b"\0\nword end 0\n")
    process.stdin.close()
    assert process.stderr.read().endswith(b"\nword end 0\n")
    assert process.wait() == 0
