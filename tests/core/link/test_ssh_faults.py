"""What a link does to us: it is refused, says nothing, stalls, breaks, comes back."""

import asyncio
import errno
import hashlib
import os
import random
import shlex
import socket
import subprocess
import sys

import asyncssh
import pytest

from tui.core.errors import HostError, LinkLost
from tui.core.link.reconnect import Timing
from tui.core.link.ssh_target import SshTarget
from tui.core.link.transport import LinkState


def target(port: int, **changes) -> SshTarget:
    return SshTarget(**{"address": "127.0.0.1", "port": port, "user": "me", "name": "gpu1", **changes})


async def fails(transport, slug: str) -> HostError:
    with pytest.raises(HostError) as caught:
        await transport.connect()
    assert caught.value.slug == slug
    assert "\n" not in caught.value.message
    assert caught.value.hint
    return caught.value


async def reach(transport, *states: LinkState):
    """Waits until the link has gone through these states in this order."""
    wanted = list(states)
    async with asyncio.timeout(120):
        async for status in transport.watch():
            if status.state is wanted[0]:
                wanted.pop(0)
                if not wanted:
                    return status
    raise AssertionError(f"never {wanted}")


# No connection


@pytest.mark.fault(
    "C1",
    "the name does not resolve",
    sees="that it cannot be resolved, in one line",
    holds="no traceback; `r` tries again",
)
async def test_a_name_that_does_not_resolve(make_ssh_transport):
    error = await fails(make_ssh_transport(target(22, address="no-such-host.invalid")), "host_unknown")
    assert "no-such-host.invalid" in error.message


@pytest.mark.fault(
    "C2",
    "nothing listens on the port",
    sees="host and port on which nothing listens",
    holds="tried again with growing pauses",
)
async def test_nothing_listens(make_ssh_transport, unused_tcp_port):
    error = await fails(make_ssh_transport(target(unused_tcp_port)), "refused")
    assert f"127.0.0.1:{unused_tcp_port}" in error.message


@pytest.mark.fault(
    "C3",
    "packets are swallowed while it connects",
    sees='"no answer", after 10 s',
    holds="never longer, then tried again",
)
async def test_no_answer_at_all(make_ssh_transport):
    with socket.socket() as listener:
        # A full queue: the kernel drops what comes.
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        fillers = []
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(address)
            fillers.append(filler)
        transport = make_ssh_transport(target(address[1], connect_timeout_s=1.0))
        error = await fails(transport, "no_answer")
        assert f"127.0.0.1:{address[1]}" in error.message
        assert transport.status().state is LinkState.LOST  # and it is tried again
        for filler in fillers:
            filler.close()


@pytest.mark.parametrize(
    ("said", "slug"),
    [
        (None, "not_ssh"),  # takes connections and says nothing
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "not_ssh"),
        (b"220 mail\x1b[2J ESMTP\r\n", "not_ssh"),
        (b"", "dropped"),  # closes at once
        (b"Exceeded MaxStartups\r\n", "dropped"),
        (b"SSH-2.0-Fake\r\n", "dropped"),  # and closes
        (b"SSH-2.0-Fake\r\ngarbage of no protocol at all\r\n" * 50, "not_ssh"),
    ],
)
@pytest.mark.fault(
    "C4",
    "another kind of server answers, or none at all",
    sees="that it is no SSH server, with what it said, as harmless text",
    holds="at once, or by the deadline of the login",
)
@pytest.mark.fault(
    "C11",
    "MaxStartups drops the connection",
    sees="dropped, not a failed login",
    holds="tried again after pauses of random length",
)
async def test_what_is_no_ssh_server(make_ssh_transport, said, slug):
    async def serve(reader, writer):
        if said is None:
            await reader.read()
        else:
            writer.write(said)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        timing = Timing(greeting_s=0.5, login_s=5.0, backoff_s=(60.0,))
        error = await fails(make_ssh_transport(target(port), timing=timing), slug)
        assert f":{port}" in error.message or "gpu1" in error.message
        assert "\x1b" not in error.message


async def test_a_server_that_stops_in_the_middle_of_the_login(sshd, make_tcp_proxy, make_ssh_transport):
    proxy = await make_tcp_proxy(sshd.port)
    proxy.cut_after(1500)
    transport = make_ssh_transport(sshd.target(proxy.port))
    await fails(transport, "dropped")
    assert (await transport.run("echo at last", timeout_s=60)).stdout == b"at last\n"


async def test_a_server_that_stalls_in_the_middle_of_the_login(sshd, make_tcp_proxy, make_ssh_transport):
    proxy = await make_tcp_proxy(sshd.port)
    proxy.stall_after(1500)
    transport = make_ssh_transport(sshd.target(proxy.port), timing=Timing(login_s=1.0, backoff_s=(0.05,)))
    error = await fails(transport, "no_answer")
    assert "login" in error.message
    proxy.resume()
    assert (await transport.run("echo at last", timeout_s=60)).stdout == b"at last\n"


async def read_all(stream) -> bytes:
    data = b""
    while piece := await stream.read():
        data += piece
    return data


async def stream_all(transport, script: str) -> bytes:
    async with transport.stream(script) as stream:
        return await read_all(stream)


# A link that breaks


@pytest.mark.fault(
    "C5",
    "a link that stands goes silent",
    sees="LOST within 15 s; what is known stays, with its age",
    holds="nothing is sent twice; the link is renewed",
)
async def test_a_stalled_link_is_lost_and_comes_back(ssh_transport, tcp_proxy, tmp_path, until):
    mark = tmp_path / "mark"
    waiting = asyncio.create_task(ssh_transport.run(f"touch {mark}; sleep 600", timeout_s=600))
    await until(mark.exists)
    async with ssh_transport.stream("while echo tick; do sleep 0.1; done") as stream:
        assert await stream.read()
        lost = asyncio.create_task(reach(ssh_transport, LinkState.UP, LinkState.LOST))
        tcp_proxy.stall()
        with pytest.raises(LinkLost):
            await read_all(stream)
        with pytest.raises(LinkLost):
            await waiting
        status = await lost
        assert status.error is not None
        assert status.error.slug == "link_lost"
    tcp_proxy.resume()
    await reach(ssh_transport, LinkState.UP)
    assert (await ssh_transport.run("echo back")).stdout == b"back\n"


async def test_a_call_that_was_not_sent_yet_waits_for_the_next_link(ssh_transport, tcp_proxy, until):
    tcp_proxy.stall()
    waiting = asyncio.create_task(ssh_transport.run("echo sent once", timeout_s=100))
    await reach(ssh_transport, LinkState.UP, LinkState.LOST)
    tcp_proxy.resume()
    assert (await waiting).stdout == b"sent once\n"


@pytest.mark.fault("C6", "an outage of a few seconds", sees="nothing", holds="no reconnect, no gap")
async def test_a_short_outage_costs_nothing(sshd, tcp_proxy, make_ssh_transport):
    transport = make_ssh_transport(sshd.target(tcp_proxy.port), timing=Timing(keepalive_s=20.0))
    await transport.connect()
    async with transport.stream("i=0; while [ $i -lt 40 ]; do echo $i; i=$((i+1)); sleep 0.05; done") as stream:
        data = await stream.read()
        tcp_proxy.stall()
        await asyncio.sleep(1)
        tcp_proxy.resume()
        while piece := await stream.read():
            data += piece
    assert data.split() == [str(number).encode() for number in range(40)]
    assert tcp_proxy.accepted == 1


@pytest.mark.parametrize("fault", ["reset", "kill", "stall"])
@pytest.mark.fault(
    "C7",
    "a link is reset, or sshd killed, in the middle of a log",
    sees="the loss, then the log goes on",
    holds="every byte once, in order",
)
async def test_a_followed_file_is_the_same_byte_for_byte(ssh_transport, sshd, tcp_proxy, tmp_path, until, fault):
    log, stop, got = tmp_path / "log", tmp_path / "stop", bytearray()
    writer = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "import os, random, sys, time\n"
        "random.seed(7); out = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)\n"
        "i = 0\n"
        "while not os.path.exists(sys.argv[2]):\n"
        "    line = f'{i:06d} \\u65e5\\u672c \\u2603 {\"x\" * random.randint(0, 300)}\\r\\n'.encode()\n"
        "    cut = random.randint(0, len(line)); os.write(out, line[:cut]); time.sleep(0.002)\n"
        "    os.write(out, line[cut:]); time.sleep(0.003); i += 1\n",
        log,
        stop,
    )
    await until(log.exists)

    async def follow():
        while True:
            try:
                script = f"exec tail -c +{len(got) + 1} -f {shlex.quote(str(log))}"
                async with ssh_transport.stream(script) as stream:
                    while piece := await stream.read():
                        got.extend(piece)
            except LinkLost:
                continue

    following = asyncio.create_task(follow())
    for _ in range(4):
        seen = len(got)
        await until(lambda seen=seen: len(got) > seen)
        lost = asyncio.create_task(reach(ssh_transport, LinkState.UP, LinkState.LOST, LinkState.UP))
        await asyncio.sleep(0)
        if fault == "kill":
            assert await asyncio.to_thread(sshd.kill_sessions)
        elif fault == "reset":
            tcp_proxy.reset()
        else:
            tcp_proxy.stall()
            await reach(ssh_transport, LinkState.LOST)
            tcp_proxy.resume()
        await lost
    stop.touch()
    await writer.wait()
    await until(lambda: len(got) >= log.stat().st_size)
    following.cancel()
    assert hashlib.sha256(got).digest() == hashlib.sha256(log.read_bytes()).digest()


@pytest.mark.fault(
    "C9",
    "the host restarts",
    sees="LOST with the next try, at most 30 s away",
    holds="found again by itself; runs of before are lost: rebooted",
)
async def test_a_host_that_restarts(start_sshd, make_ssh_transport):
    server = start_sshd()
    transport = make_ssh_transport(server.target())
    await transport.connect()
    sessions = await asyncio.to_thread(server.sessions)
    await asyncio.to_thread(server.stop)
    for pid in sessions:
        os.kill(pid, 9)
    lost = asyncio.create_task(transport.run("echo back", timeout_s=100))  # waits for the link
    await asyncio.to_thread(server.start)
    assert (await lost).stdout == b"back\n"


async def test_calls_fail_at_once_where_only_a_person_helps(sshd, make_ssh_transport, new_key, tmp_path):
    transport = make_ssh_transport(sshd.target(identity_files=(new_key(tmp_path / "other"),)))
    with pytest.raises(HostError) as caught:
        await transport.run("true", timeout_s=60)
    assert caught.value.slug == "auth_failed"
    with pytest.raises(HostError):
        async with transport.stream("true"):
            pytest.fail("no stream")
    before = transport.status()
    assert before.state is LinkState.REFUSED
    transport.reconnect()
    assert transport.status().state is not LinkState.REFUSED
    await reach(transport, LinkState.REFUSED)


async def test_a_call_that_finds_no_link_is_lost_not_late(make_ssh_transport, unused_tcp_port):
    transport = make_ssh_transport(target(unused_tcp_port))
    with pytest.raises(LinkLost):
        await transport.run("true", timeout_s=0.5)


@pytest.mark.fault(
    "C12",
    "this machine slept, the link is dead and does not know",
    sees="LOST, then what is true now",
    holds="a call on the dead link is lost at once, never answered late",
)
async def test_a_call_on_a_dead_link_is_lost_not_late(sshd, tcp_proxy, make_ssh_transport):
    timing = Timing(keepalive_s=60.0, ping_s=0.1)
    transport = make_ssh_transport(sshd.target(tcp_proxy.port), timing=timing)
    await transport.connect()
    await transport.run("true")
    tcp_proxy.stall()
    with pytest.raises(LinkLost):
        await transport.run("true", timeout_s=2)


@pytest.mark.parametrize("number", [errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ECONNRESET])
@pytest.mark.fault(
    "C19",
    "the kernel gives the connection up (ETIMEDOUT and others)",
    sees="a lost link, not a deadline of ours",
    holds="renewed",
)
async def test_what_the_kernel_says_is_link_loss(ssh_transport, number):
    """TCP_USER_TIMEOUT ends a connection with ETIMEDOUT, which Python raises as TimeoutError, like our own deadlines."""
    running = asyncio.create_task(ssh_transport.run("sleep 600", timeout_s=600))
    async with ssh_transport.stream("echo here; sleep 600") as stream:
        assert await stream.read() == b"here\n"
        link = await ssh_transport._reconnector.ready()
        link.conn._transport._fatal_error(OSError(number, os.strerror(number)))
        with pytest.raises(LinkLost):
            await stream.read()
        with pytest.raises(LinkLost):
            await running
    assert (await ssh_transport.run("echo back", timeout_s=60)).stdout == b"back\n"


@pytest.mark.fault("C20", "quitting over a dead link", sees="nothing", holds="over within 2 s")
async def test_closing_on_a_dead_link(ssh_transport, tcp_proxy):
    running = asyncio.create_task(ssh_transport.run("sleep 600", timeout_s=600))
    async with ssh_transport.stream("echo here; sleep 600") as stream:
        assert await stream.read() == b"here\n"
        tcp_proxy.stall()
        async with asyncio.timeout(8):
            await ssh_transport.close()
        with pytest.raises(LinkLost):
            await stream.read()
    with pytest.raises(LinkLost):
        await running


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.fault(
    "C16", "connecting is given up at any moment", sees="nothing", holds="no task, no handle, no process is left"
)
async def test_cancelled_connects_leave_nothing_behind(sshd, make_asker, fast_timing, until):
    from tui.core.link.ssh import SshTransport

    rng = random.Random(1)
    to = sshd.target()
    first = SshTransport("gpu1", to, make_asker(), timing=fast_timing)
    await first.connect()  # what is opened once is open
    await first.close()
    await until(lambda: len(asyncio.all_tasks()) == 1)
    before = open_files()
    for _ in range(100):
        transport = SshTransport("gpu1", to, make_asker(), timing=fast_timing)
        connecting = asyncio.create_task(transport.connect())
        await asyncio.sleep(rng.uniform(0, 0.06))
        connecting.cancel()
        await transport.close()
        await asyncio.gather(connecting, return_exceptions=True)
    await until(lambda: len(asyncio.all_tasks()) == 1)
    await until(lambda: open_files() <= before + 2)


# Exit statuses, from a scripted server: sshd always sends one


@pytest.fixture
async def odd_server(make_ssh_transport):
    """await odd_server(handler): a transport to a server whose sessions are `handler(process)`."""
    servers = []

    async def start(handler):
        key = asyncssh.generate_private_key("ssh-ed25519")

        class Open(asyncssh.SSHServer):
            def begin_auth(self, username):
                return False

        server = await asyncssh.listen(
            "127.0.0.1", 0, server_factory=Open, server_host_keys=[key], process_factory=handler, encoding=None
        )
        servers.append(server)
        public = key.export_public_key().decode().strip()
        transport = make_ssh_transport(target(server.get_port(), pinned_host_key=public))
        await transport.connect()
        return transport

    yield start
    for server in servers:
        server.close()


async def _to_its_end(output: asyncio.StreamReader) -> bytes:
    """What a script wrote: up to its end marker, or to the end of the output."""
    said = b""
    while b" end " not in said and (piece := await output.read(65_536)):
        said += piece
    return said


async def _shell(process, *, limit: int | None = None):
    """Runs the script as sshd would, and closes without an exit status; after `limit` bytes of output in the middle."""
    child = await asyncio.create_subprocess_exec(
        "/bin/sh", "-s", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stderr is not None
    script = b""
    while not script.endswith(b"\n}\n"):
        script += await process.stdin.read(65_536)
    child.stdin.write(script)
    process.stdout.write((await _to_its_end(child.stdout))[:limit])
    if limit is None:
        process.stderr.write(await _to_its_end(child.stderr))
    await process.stdout.drain()
    process.close()
    child._transport.close()


async def test_a_server_that_never_sends_an_exit_status(odd_server):
    transport = await odd_server(_shell)
    done = await transport.run("echo out; echo err >&2; exit 3")
    assert (done.exit_status, done.stdout, done.stderr) == (3, b"out\n", b"err\n")
    async with transport.stream("echo out; exit 4") as stream:
        assert await stream.read() == b"out\n"
        assert await stream.read() == b""
        assert await stream.exit_status() == 4


@pytest.mark.parametrize("limit", [0, 30, 50, 60])
@pytest.mark.fault(
    "C18",
    "a server never sends an exit status",
    sees='a lost link, with "may or may not have happened"',
    holds="never taken for success",
)
async def test_no_exit_status_and_no_end_is_never_success(odd_server, limit):
    transport = await odd_server(lambda process: _shell(process, limit=limit))
    with pytest.raises(LinkLost):
        await transport.run("echo out; echo more")
    with pytest.raises(LinkLost):
        await stream_all(transport, "echo out; echo more")


# Ways there


RELAY = """
import os, socket, sys, threading
there = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
def back():
    while data := there.recv(65536):
        os.write(1, data)
    os._exit(0)
threading.Thread(target=back, daemon=True).start()
sys.stderr.write("hello from the proxy\\n"); sys.stderr.flush()
count = 0
while data := os.read(0, 65536):
    there.sendall(data); count += 1
    if len(sys.argv) > 2 and sys.argv[2] == "chatty":
        sys.stderr.write("a warning in mid-stream\\n"); sys.stderr.flush()
    if len(sys.argv) > 2 and sys.argv[2] == "close" and count == 5:
        os.close(2)
"""


@pytest.mark.parametrize("manner", ["quiet", "chatty", "close"])
@pytest.mark.fault("C13")
async def test_a_proxy_command_whatever_it_does_with_its_stderr(sshd, make_ssh_transport, tmp_path, manner):
    relay = tmp_path / "relay.py"
    relay.write_text(RELAY)
    command = shlex.join([sys.executable, str(relay), str(sshd.port), manner])
    transport = make_ssh_transport(sshd.target(proxy_command=command))
    data = os.urandom(300_000)
    await transport.put(data, str(tmp_path / "file"))
    assert (await transport.run(f"cat {tmp_path}/file")).stdout == data
    await transport.close()


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("/nowhere/relay --fast", ("/nowhere/relay",)),
        ("sh -c 'echo trouble; echo no route to gpu1 >&2; exit 3'", ("gpu1", "trouble")),
        ("sh -c 'echo no route to gpu1 >&2; exit 3'", ("no route to gpu1", "status 3")),
        ("false", ("status 1",)),
    ],
)
@pytest.mark.fault(
    "C13",
    "a ProxyCommand is missing, fails or talks",
    sees="what it said, with its exit status",
    holds="its words get into no data",
)
async def test_a_proxy_command_that_fails_is_quoted(sshd, make_ssh_transport, command, words):
    transport = make_ssh_transport(sshd.target(proxy_command=command))
    with pytest.raises(HostError) as caught:
        await transport.connect()
    for word in words:
        assert word in caught.value.message


async def test_a_proxy_command_that_dies_is_renewed(sshd, make_ssh_transport, tmp_path):
    relay = tmp_path / "relay.py"
    relay.write_text(RELAY.replace("count = 0", "open(sys.argv[3], 'a').write(f'{os.getpid()}\\n'); count = 0"))
    pids = tmp_path / "pids"
    command = shlex.join([sys.executable, str(relay), str(sshd.port), "quiet", str(pids)])
    transport = make_ssh_transport(sshd.target(proxy_command=command))
    await transport.connect()
    os.kill(int(pids.read_text()), 9)
    await reach(transport, LinkState.LOST)
    assert (await transport.run("echo back", timeout_s=60)).stdout == b"back\n"
    assert len(pids.read_text().split()) == 2


async def test_through_jump_hosts(sshd, start_sshd, make_ssh_transport):
    one, two = start_sshd(), start_sshd()
    way = two.target(name="inner", via=one.target(name="outer"))
    transport = make_ssh_transport(sshd.target(via=way))
    assert (await transport.run("echo through", timeout_s=60)).stdout == b"through\n"


@pytest.mark.fault("C14", "a jump host dies", sees="which hop it was", holds="renewed like any link")
async def test_a_jump_host_that_is_lost_is_named(sshd, start_sshd, make_ssh_transport):
    jump = start_sshd()
    transport = make_ssh_transport(sshd.target(via=jump.target(name="bastion")))
    await transport.connect()
    watching = asyncio.create_task(reach(transport, LinkState.UP, LinkState.LOST))
    await asyncio.sleep(0)
    assert await asyncio.to_thread(jump.kill_sessions)
    status = await watching
    assert "bastion" in str(status.error)
    assert (await transport.run("echo back", timeout_s=60)).stdout == b"back\n"


async def test_a_jump_host_that_cannot_be_reached_is_named(sshd, make_ssh_transport, unused_tcp_port):
    transport = make_ssh_transport(sshd.target(via=sshd.target(unused_tcp_port, name="bastion")))
    error = await fails(transport, "refused")
    assert f":{unused_tcp_port}" in error.message


async def test_a_host_that_its_jump_host_cannot_reach(sshd, make_ssh_transport, unused_tcp_port):
    transport = make_ssh_transport(sshd.target(unused_tcp_port, via=sshd.target(name="bastion")))
    error = await fails(transport, "refused")
    assert "bastion" in error.message
    assert f":{unused_tcp_port}" in error.message
