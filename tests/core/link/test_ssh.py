"""The SSH transport on a link that works: scripts, streams, files, channels, login shells of all kinds."""

import asyncio
import logging
import os
import shutil

import pytest

from tui.core.errors import HostError, LinkLost, TimedOut
from tui.core.link import http
from tui.core.link.reconnect import Timing
from tui.core.link.ssh_keys import generate_key
from tui.core.link.ssh_target import SshTarget
from tui.core.link.transport import LinkState
from tui.demo.sshd import serve


async def test_status_and_outputs(ssh_transport):
    done = await ssh_transport.run("echo out; echo err >&2; exit 3")
    assert (done.exit_status, done.stdout, done.stderr) == (3, b"out\n", b"err\n")


@pytest.mark.fault(
    "S10", "the host has no SFTP", sees="nothing", holds="no SFTP is used: scripts and their input do it"
)
async def test_bytes_are_exact(ssh_transport, tmp_path):
    data = os.urandom(3_000_000)
    path = tmp_path / "it's a $name"
    await ssh_transport.put(data, str(path), mode=0o640)
    assert path.read_bytes() == data
    assert (await ssh_transport.run(f'cat "{tmp_path}/it\'s a \\$name"')).stdout == data
    received = b""
    async with ssh_transport.stream(f'cat "{tmp_path}/it\'s a \\$name"; exit 4') as stream:
        while piece := await stream.read():
            received += piece
        assert await stream.exit_status() == 4
    assert received == data


@pytest.mark.fault(
    "C15", "one channel sends what is no text", sees="that channel's text with marks", holds="the others go on"
)
async def test_invalid_text_in_one_channel_leaves_the_others_alone(ssh_transport):
    async with ssh_transport.stream("while echo tick; do sleep 0.1; done") as ticks:
        assert await ticks.read() == b"tick\n"
        bad = "printf '\\377\\376\\300\\n'; printf '\\351' >&2"
        done = await ssh_transport.run(bad)
        assert (done.stdout, done.stderr) == (b"\xff\xfe\xc0\n", b"\xe9")
        for _ in range(3):
            assert set((await ticks.read()).split()) == {b"tick"}


async def test_our_deadline_ends_the_script_on_the_host(ssh_transport, tmp_path, until, gone):
    pids = tmp_path / "pids"
    with pytest.raises(TimedOut):
        await ssh_transport.run(f"sleep 300 & echo $! > {pids}; echo $$ >> {pids}; wait", timeout_s=2)
    for pid in pids.read_text().split():
        await until(lambda pid=int(pid): gone(pid))
    assert ssh_transport.status().state is LinkState.UP


async def test_leaving_a_stream_ends_what_ignores_sigterm(ssh_transport, until, gone):
    async with ssh_transport.stream("trap '' TERM; sleep 300 & echo $! $$; sleep 300; sleep 300") as stream:
        pids = (await stream.read()).split()
    for pid in pids:
        await until(lambda pid=int(pid): gone(pid))


async def test_a_lost_link_ends_a_stream_but_not_a_script(ssh_transport, tcp_proxy, tmp_path, until, gone):
    mark = tmp_path / "mark"
    script = asyncio.create_task(ssh_transport.run(f"echo started > {mark}; sleep 2; echo done > {mark}", timeout_s=60))
    async with ssh_transport.stream("echo $$; exec tail -f /dev/null") as stream:
        pid = int(await stream.read())
        await until(lambda: mark.exists() and mark.read_text())
        tcp_proxy.reset()
        with pytest.raises(LinkLost):
            await stream.read()
    with pytest.raises(LinkLost):
        await script
    await until(lambda: gone(pid))
    await until(lambda: mark.read_text() == "done\n")  # a launch or a stop under way comes to its end


async def test_a_killed_script_is_an_error_not_a_result(ssh_transport):
    with pytest.raises(HostError) as caught:
        await ssh_transport.run("echo half; kill -9 $$")
    assert caught.value.slug == "killed"
    assert (await ssh_transport.run("echo fine")).stdout == b"fine\n"


async def test_many_calls_share_one_connection(ssh_transport, tcp_proxy):
    done = await asyncio.gather(*[ssh_transport.run(f"echo {number}", timeout_s=120) for number in range(40)])
    assert [int(one.stdout) for one in done] == list(range(40))
    assert tcp_proxy.accepted == 1


@pytest.mark.fault(
    "C10", "the host opens few sessions at once", sees="nothing but a wait", holds="calls wait, none fails"
)
async def test_max_sessions_queues_and_never_fails(start_sshd, make_ssh_transport):
    server = start_sshd("MaxSessions 2\n")
    transport = make_ssh_transport(server.target())
    await transport.connect()
    async with transport.stream("while echo tick; do sleep 0.2; done") as stream:
        done = await asyncio.gather(*[transport.run(f"echo {n}", timeout_s=120) for n in range(10)])
        assert [int(one.stdout) for one in done] == list(range(10))
        async with transport.stream("echo second; exec tail -f /dev/null") as second:
            assert await second.read() == b"second\n"
            # Both sessions are taken: connections still open, and a call waits without an error.
            web = await asyncio.start_server(_hello, "127.0.0.1", 0)
            async with web:
                port = web.sockets[0].getsockname()[1]
                assert (await http.request(transport, "GET", port, "/", timeout_s=30)).body == b"hello"
            # What only follows makes way for what is asked, the newest first, and says why.
            assert (await transport.run("echo asked", timeout_s=60)).stdout == b"asked\n"
            with pytest.raises(HostError, match="opens only 2 sessions") as caught:
                await second.read()
            assert "MaxSessions" in caught.value.hint
        assert b"tick" in await stream.read()


@pytest.mark.fault(
    "F7",
    "MaxSessions 1",
    sees="everything that is asked in turn; of the rest, that there are too few sessions",
    holds="nothing hangs",
)
async def test_one_session_only(start_sshd, make_ssh_transport):
    transport = make_ssh_transport(start_sshd("MaxSessions 1\n").target())
    await transport.connect()
    done = await asyncio.gather(*[transport.run(f"echo {n}", timeout_s=120) for n in range(5)])
    assert [int(one.stdout) for one in done] == list(range(5))
    await transport.put(b"x" * 100_000, "~/put-over-one-session")
    async with transport.stream("cat ~/put-over-one-session; rm ~/put-over-one-session") as stream:
        assert await stream.exit_status() == 0
    async with transport.stream("echo first; exec tail -f /dev/null") as first:
        assert await first.read() == b"first\n"
        with pytest.raises(HostError, match="opens only one session"):
            async with transport.stream("echo second"):
                pass
        assert (await transport.run("echo asked", timeout_s=60)).stdout == b"asked\n"
        with pytest.raises(HostError, match="opens only one session"):
            await first.read()


async def test_calls_cancelled_while_they_open_leave_no_session_behind(sshd, tcp_proxy, make_ssh_transport, until):
    transport = make_ssh_transport(sshd.target(tcp_proxy.port), timing=Timing(keepalive_s=30.0))
    await transport.connect()
    tcp_proxy.stall()  # so that no opening is answered before it is cancelled
    tasks = [asyncio.create_task(transport.run("true", timeout_s=60)) for _ in range(8)]
    await asyncio.sleep(0.1)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    tcp_proxy.resume()
    assert (await transport.run("echo x", timeout_s=60)).stdout == b"x\n"
    await until(lambda: len(sshd.shells()) <= 3)  # no more than are kept for the next scripts
    await transport.close()
    await until(lambda: not sshd.shells())
    assert tcp_proxy.accepted == 1


async def _hello(reader, writer):
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
    writer.close()


async def test_forwarding_forbidden_is_said(start_sshd, make_ssh_transport):
    transport = make_ssh_transport(start_sshd("AllowTcpForwarding no\n").target())
    with pytest.raises(HostError) as caught:
        await http.request(transport, "GET", 30000, "/", timeout_s=30)
    assert caught.value.slug == "forwarding_prohibited"
    assert "AllowTcpForwarding" in str(caught.value.hint)


NOISE = {
    "bash": (".bashrc", "echo Welcome; printf 'no newline'; echo oops >&2\n"),
    "tcsh": (".tcshrc", "echo Welcome; printf 'no newline'; sh -c 'echo oops >&2'\n"),
    "fish": (".config/fish/config.fish", "echo Welcome; printf 'no newline'; echo oops >&2\n"),
    "zsh": (".zshenv", "echo Welcome; printf 'no newline'; echo oops >&2\n"),
    "dash": (".profile", ""),
}


@pytest.mark.parametrize("shell", NOISE)
@pytest.mark.fault("S9", "a login shell prints of its own", sees="nothing of it", holds="no byte is shifted")
async def test_noise_of_any_login_shell_shifts_no_byte(start_sshd, make_ssh_transport, tmp_path, shell):
    path = shutil.which(shell) or pytest.skip(f"no {shell}: apt-get install {shell}")
    name, text = NOISE[shell]
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text(text)
    # What sshd does with a login shell: it runs `shell -c COMMAND`. bash reads .bashrc only if sshd itself runs it.
    rc = f". {tmp_path}/.bashrc; " if shell == "bash" else ""
    server = start_sshd(f'SetEnv HOME={tmp_path}\nForceCommand {rc}exec {path} -c "$SSH_ORIGINAL_COMMAND"\n')
    transport = make_ssh_transport(server.target())
    data = os.urandom(50_000)
    await transport.put(data, "~/file")
    assert (tmp_path / "file").read_bytes() == data
    done = await transport.run('printf "%s" "$HOME"; echo err >&2; exit 7')
    assert (done.exit_status, done.stdout, done.stderr) == (7, str(tmp_path).encode(), b"err\n")
    async with transport.stream('cat "$HOME/file"') as stream:
        received = b""
        while piece := await stream.read():
            received += piece
    assert received == data
    async with transport.stream("echo $$; exec tail -f /dev/null") as stream:
        pid = int(await stream.read())
    async with asyncio.timeout(60):
        while (await transport.run(f"kill -0 {pid} 2>/dev/null")).exit_status == 0:
            continue


@pytest.mark.parametrize(
    "command", ["/usr/sbin/nologin", "echo This account is not available; exit 1", "exit 0", "kill -9 $$"]
)
@pytest.mark.fault(
    "E1",
    "csh, fish, nologin, a forced command",
    sees="works, or that the account has no shell",
    holds="nothing passes through the login shell's parser",
)
@pytest.mark.fault(
    "E11", "a host without /bin/sh (Windows)", sees="that the host runs no /bin/sh", holds="refused, no half state"
)
async def test_an_account_without_a_shell_is_said(start_sshd, make_ssh_transport, command):
    transport = make_ssh_transport(start_sshd(f"ForceCommand {command}\n").target())
    await transport.connect()
    for call in (transport.run("echo hi"), transport.put(b"x", "~/x")):
        with pytest.raises(HostError) as caught:
            await call
        assert caught.value.slug == "unsupported_host"
        assert "gpu1" in caught.value.message
    with pytest.raises(HostError):
        async with transport.stream("echo hi"):
            pytest.fail("there is no stream")


async def test_scripts_never_reach_the_log(ssh_transport, caplog, tmp_path):
    caplog.set_level(logging.DEBUG)
    await ssh_transport.run("TOKEN=hunter2; export TOKEN; true")
    await ssh_transport.put(b"hunter2", str(tmp_path / "secret"))
    assert "hunter2" not in caplog.text


async def test_the_age_of_the_link_is_told(ssh_transport):
    async for status in ssh_transport.watch():
        if status.rtt_s is not None:
            break
    assert status.state is LinkState.UP
    assert status.last_byte_at is not None
    assert 0 < status.rtt_s < 30
    assert status.address is not None
    assert status.address.endswith(f"@127.0.0.1:{status.address.rsplit(':')[-1]}")
    heard = status.last_byte_at
    async for later in ssh_transport.watch():
        if later.last_byte_at is not None and later.last_byte_at > heard:
            break  # an idle link stays young


async def test_closing_leaves_no_task_and_ends_the_watchers(ssh_transport, until):
    states = []

    async def look():
        async for status in ssh_transport.watch():
            states.append(status.state)

    looking = asyncio.create_task(look())
    await ssh_transport.run("true")
    await ssh_transport.close()
    await asyncio.wait_for(looking, 30)
    assert states[0] is LinkState.UP
    assert states[-1] is LinkState.CLOSED
    with pytest.raises(LinkLost):
        await ssh_transport.run("true")
    ours = lambda: [t for t in asyncio.all_tasks() if "tui/core" in str(t.get_coro())]  # noqa: E731
    await until(lambda: not ours())


# The small server of the simulated host


@pytest.fixture
async def served(tmp_path):
    host_private, host_public = generate_key()
    private, public = generate_key()
    key = tmp_path / "key"
    key.touch(mode=0o600)
    key.write_text(private)
    counts = []
    env = {"PATH": os.environ["PATH"], "MARK": "served"}
    server = await serve(
        host_key=host_private, client_public_key=public, env=env, cwd=str(tmp_path), on_clients=counts.append
    )
    yield (
        server,
        SshTarget("127.0.0.1", server.port, "demo", identity_files=(key,), pinned_host_key=host_public),
        counts,
    )
    server.close()
    await server.wait_closed()


async def test_served_scripts_streams_files_and_ports(served, make_ssh_transport, tmp_path, until, gone):
    _, target, counts = served
    transport = make_ssh_transport(target)
    await transport.connect()
    done = await transport.run('pwd; echo "$MARK" >&2; exit 7')
    assert (done.exit_status, done.stdout.decode().strip(), done.stderr) == (7, str(tmp_path), b"served\n")
    data = os.urandom(1_000_000)
    await transport.put(data, "file")
    async with transport.stream("cat file; exit 3") as stream:
        received = b""
        while piece := await stream.read():
            received += piece
        assert await stream.exit_status() == 3
    assert received == data
    with pytest.raises(HostError, match="SIGKILL"):
        await transport.run("kill -9 $$")
    async with transport.stream("trap '' TERM; sleep 300 & echo $! $$; sleep 300; sleep 300") as stream:
        pids = (await stream.read()).split()
    for pid in pids:
        await until(lambda pid=int(pid): gone(pid))
    web = await asyncio.start_server(_hello, "127.0.0.1", 0)
    async with web:
        port = web.sockets[0].getsockname()[1]
        assert (await http.request(transport, "GET", port, "/", timeout_s=30)).body == b"hello"
    await transport.close()
    await until(lambda: counts == [1, 0])


async def test_served_to_one_key_only(served, make_ssh_transport, new_key, tmp_path):
    _, target, counts = served
    other = new_key(tmp_path / "other")
    transport = make_ssh_transport(SshTarget(**{**target.__dict__, "identity_files": (other,)}))
    with pytest.raises(HostError) as caught:
        await transport.connect()
    assert caught.value.slug == "auth_failed"
    assert counts == []


async def test_a_pinned_host_key_is_the_only_one(served, make_ssh_transport, make_asker):
    _, target, _ = served
    asker = make_asker(host_keys=True)
    transport = make_ssh_transport(SshTarget(**{**target.__dict__, "pinned_host_key": generate_key()[1]}), asker)
    with pytest.raises(HostError) as caught:
        await transport.connect()
    assert caught.value.slug == "host_key_changed"
    assert asker.host_keys == []


async def test_a_target_is_found_again_for_every_connection(served, sshd, make_ssh_transport):
    server, target, _ = served
    targets = [target, sshd.target()]

    async def find():
        return targets.pop(0)

    transport = make_ssh_transport(find)
    await transport.connect()
    assert (await transport.run("echo $MARK")).stdout == b"served\n"
    server.close()
    async with asyncio.timeout(60):
        async for status in transport.watch():
            if status.state is LinkState.LOST:
                break
        assert (await transport.run("echo $MARK", timeout_s=60)).stdout == b"\n"
