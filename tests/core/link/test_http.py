"""HTTP/1.1 over a connection of the transport: every way a body may end, and what is not HTTP."""

import asyncio
import contextlib

import pytest

from tui.core.errors import HostError, LinkLost, TimedOut
from tui.core.link import http
from tui.core.link.local import LocalTransport


@pytest.fixture
async def answer():
    """answer(*pieces): a server on a free port that says the pieces and closes; `.requests` are what it was sent."""
    servers = []

    async def start(*pieces: bytes | asyncio.Event):
        requests: list[bytes] = []

        async def serve(reader, writer):
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                head = await reader.readuntil(b"\r\n\r\n")
                length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                requests.append(head + await reader.readexactly(int(length[0].split(b":")[1]) if length else 0))
                for piece in pieces:
                    if isinstance(piece, asyncio.Event):
                        await piece.wait()
                    else:
                        writer.write(piece)
                        await writer.drain()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        servers.append(server)
        port = server.sockets[0].getsockname()[1]
        return port, requests

    yield start
    for server in servers:
        server.close()


BODIES = {
    "counted": (b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nhello", b" world"),
    "chunked": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel", b"lo\r\n6\r\n world\r\n0\r\n\r\n"),
    "closed": (b"HTTP/1.1 200 OK\r\n\r\nhello", b" world"),
    "http/1.0": (b"HTTP/1.0 200 OK\r\n\r\nhello world",),
    "continued": (b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nhello world"),
}


@pytest.mark.parametrize("kind", BODIES)
async def test_every_way_a_body_may_end(answer, kind):
    port, _ = await answer(*BODIES[kind])
    response = await http.request(LocalTransport(), "GET", port, "/", timeout_s=20)
    assert (response.status, response.body) == (200, b"hello world")


async def test_what_is_sent(answer):
    port, requests = await answer(b"HTTP/1.1 204 No Content\r\nX-A: 1\r\nx-a: 2\r\n\r\n")
    response = await http.request(
        LocalTransport(), "POST", port, "/generate?x=1", headers={"Authorization": "Bearer k"}, body=b"{}", timeout_s=20
    )
    assert response.status == 204
    assert response.headers["x-a"] == "1, 2"
    head, _, body = requests[0].partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"POST /generate?x=1 HTTP/1.1"
    assert {b"authorization: Bearer k", b"content-length: 2", b"connection: close"} <= set(lines)
    assert f"host: 127.0.0.1:{port}".encode() in lines
    assert body == b"{}"


async def test_an_error_status_is_an_answer(answer):
    port, _ = await answer(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\nno")
    response = await http.request(LocalTransport(), "GET", port, "/health", timeout_s=20)
    assert (response.status, response.body) == (503, b"no")


@pytest.mark.parametrize(
    "said",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nhello",  # cut short
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",  # cut short
        b"\x15\x03\x01\x00\x02\x02\x16",  # TLS
    ],
)
async def test_what_is_not_an_answer(answer, said):
    port, _ = await answer(said)
    with pytest.raises(HostError) as caught:
        await http.request(LocalTransport(), "GET", port, "/", timeout_s=20)
    assert caught.value.slug == "bad_http"
    assert "\n" not in caught.value.message


async def test_nothing_listens(unused_tcp_port):
    with pytest.raises(HostError) as caught:
        await http.request(LocalTransport(), "GET", unused_tcp_port, "/")
    assert caught.value.slug == "refused"
    assert str(unused_tcp_port) in caught.value.message


async def test_a_server_that_hangs(answer):
    port, _ = await answer(b"HTTP/1.1 200 OK\r\n", asyncio.Event())
    with pytest.raises(TimedOut):
        await http.request(LocalTransport(), "GET", port, "/", timeout_s=0.3)


async def test_a_body_without_end_is_bounded(answer):
    port, _ = await answer(b"HTTP/1.1 200 OK\r\n\r\n", *[bytes(65_536)] * 100)
    with pytest.raises(HostError) as caught:
        await http.request(LocalTransport(), "GET", port, "/", timeout_s=20, max_body_bytes=1 << 20)
    assert caught.value.slug == "too_much_output"


async def test_a_stream_comes_piece_by_piece(answer):
    second = asyncio.Event()
    port, _ = await answer(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: text/event-stream\r\n\r\n8\r\ndata: 1\n\r\n",
        second,
        b"8\r\ndata: 2\n\r\n0\r\n\r\n",
    )
    async with http.stream(LocalTransport(), "GET", port, "/", timeout_s=20) as response:
        assert (response.status, response.headers["content-type"]) == (200, "text/event-stream")
        pieces = aiter(response)
        assert await anext(pieces) == b"data: 1\n"  # there before the server says the rest
        second.set()
        assert [piece async for piece in pieces] == [b"data: 2\n"]


async def test_through_ssh_without_a_port_here(answer, ssh_transport):
    port, _ = await answer(*BODIES["chunked"])
    response = await http.request(ssh_transport, "GET", port, "/", timeout_s=20)
    assert response.body == b"hello world"


async def test_refused_behind_ssh(ssh_transport, unused_tcp_port):
    with pytest.raises(HostError) as caught:
        await http.request(ssh_transport, "GET", unused_tcp_port, "/", timeout_s=20)
    assert caught.value.slug == "refused"
    assert str(unused_tcp_port) in caught.value.message


@pytest.mark.parametrize("how", ["reset", "kill", "close"])
async def test_a_link_that_dies_is_not_the_end_of_a_body(answer, sshd, ssh_transport, tcp_proxy, how):
    port, _ = await answer(b"HTTP/1.1 200 OK\r\n\r\nhello", asyncio.Event())
    async with http.stream(ssh_transport, "GET", port, "/", timeout_s=20) as response:
        pieces = aiter(response)
        assert await anext(pieces) == b"hello"
        if how == "kill":
            await asyncio.to_thread(sshd.kill_sessions)
        elif how == "reset":
            tcp_proxy.reset()
        else:
            await ssh_transport.close()
        with pytest.raises(LinkLost):
            await anext(pieces)
