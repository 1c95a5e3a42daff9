"""The HTTP/1.1 of the simulated SGLang: h11 in its server role on asyncio, whole answers and streamed ones."""

import asyncio
import email.utils
import json
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, unquote

import h11

MAX_HEAD_BYTES = 65_536
MAX_BODY_BYTES = 64 << 20


@dataclass(frozen=True)
class Query:
    """One request. `headers` has lower-case names."""

    method: str
    path: str
    params: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes
    peer: str
    received: float  # time.time()


class Exchange:
    """The answer to one request; exactly one of `answer` and `begin_stream` is called."""

    def __init__(self, connection: "Connection", query: Query) -> None:
        self.connection = connection
        self.query = query
        self.answered = False

    @property
    def gone(self) -> bool:
        return self.connection.transport is None or self.connection.transport.is_closing()

    def answer(self, status: int, body: bytes = b"", content_type: str | None = "application/json") -> None:
        """Sends a whole answer."""
        headers = [("content-length", str(len(body)))]
        if content_type and body:
            headers.append(("content-type", content_type))
        self._head(status, headers)
        if body:
            self._send(h11.Data(data=body))
        self._send(h11.EndOfMessage())

    def json(self, status: int, value: object) -> None:
        """Sends a JSON answer."""
        self.answer(status, json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode())

    def begin_stream(self, content_type: str = "text/event-stream; charset=utf-8") -> None:
        """Begins a chunked answer."""
        self._head(200, [("content-type", content_type)], [("Transfer-Encoding", "chunked")])

    def chunk(self, data: bytes) -> None:
        self._send(h11.Data(data=data))

    def end_stream(self) -> None:
        self._send(h11.EndOfMessage())

    def _head(self, status: int, headers: list[tuple[str, str]], last: Sequence[tuple[str, str]] = ()) -> None:
        self.answered = True
        phrase = HTTPStatus(status).phrase
        about = [("date", email.utils.formatdate(usegmt=True)), ("server", "uvicorn")]
        whole = [*about, *headers, ("vary", "Origin"), *last]
        self._send(h11.Response(status_code=status, reason=phrase.encode(), headers=whole))
        self.connection.log(self.query, f"{status} {phrase}")

    def _send(self, event: h11.Event) -> None:
        """Each event is a write of its own, as the real server's are."""
        if not self.gone:
            self.connection.send(event)


Handler = Callable[[Exchange], Awaitable[None]]
AccessLog = Callable[[Query, str], None]


class Connection(asyncio.Protocol):
    """One client connection: answers requests one after the other."""

    def __init__(self, handler: Handler, log: AccessLog) -> None:
        self.handler = handler
        self.log = log
        self.transport: asyncio.Transport | None = None
        self.http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
        self.request: h11.Request | None = None
        self.body = bytearray()
        self.task: asyncio.Task[None] | None = None
        self.peer = "-"
        self.closed = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        name = transport.get_extra_info("peername")
        self.peer = f"{name[0]}:{name[1]}" if isinstance(name, tuple) else "-"
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self.closed.set()

    def send(self, event: h11.Event) -> None:
        data = self.http.send(event)
        if data and self.transport is not None:
            self.transport.write(data)

    def data_received(self, data: bytes) -> None:
        self.http.receive_data(data)
        if self.task is None:
            self._next()

    def _next(self) -> None:
        """Takes what has come of the next request, and serves it when it is whole."""
        if self.transport is None:
            return
        try:
            query = self._query()
        except h11.RemoteProtocolError:
            self.transport.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            self.transport.close()
            return
        if query is not None:
            self.task = asyncio.ensure_future(self._serve(query))

    def _query(self) -> Query | None:
        while True:
            event = self.http.next_event()
            if isinstance(event, h11.Request):
                self.request, self.body = event, bytearray()
            elif isinstance(event, h11.Data):
                self.body += event.data
                if len(self.body) > MAX_BODY_BYTES:
                    raise h11.RemoteProtocolError("the body is too long")
            elif isinstance(event, h11.EndOfMessage) and self.request is not None:
                path, _, query = self.request.target.decode("latin-1").partition("?")
                headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in self.request.headers}
                method = self.request.method.decode("latin-1")
                body = bytes(self.body)
                return Query(method, unquote(path), parse_qs(query), headers, body, self.peer, time.time())
            else:
                if self.http.they_are_waiting_for_100_continue:
                    self.send(h11.InformationalResponse(status_code=100, reason=b"Continue", headers=[]))
                return None

    async def _serve(self, query: Query) -> None:
        exchange = Exchange(self, query)
        try:
            await self.handler(exchange)
        except Exception as error:  # a bug here must look like one of a server, not end it
            if not exchange.answered:
                exchange.json(500, {"error": {"message": f"Internal Server Error: {type(error).__name__}: {error}"}})
        self.task = None
        if self.transport is None:
            return
        if self.http.our_state is h11.DONE and self.http.their_state is h11.DONE:
            self.http.start_next_cycle()
            self._next()
        else:  # the client asked for the end, or the answer was not finished
            self.transport.close()


async def request(
    host: str, port: int, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
) -> int:
    """A request of our own (the warm-up); returns the status. Raises OSError where nobody answers."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        data = json.dumps(body).encode() if body is not None else b""
        head = [
            f"{method} {path} HTTP/1.1",
            f"Host: {host}:{port}",
            "Connection: close",
            f"Content-Length: {len(data)}",
        ]
        head += [f"{name}: {value}" for name, value in (headers or {}).items()]
        if body is not None:
            head.append("Content-Type: application/json")
        writer.write(("\r\n".join(head) + "\r\n\r\n").encode() + data)
        await writer.drain()
        line = await reader.readline()
        await reader.read()
        words = line.split()
        if len(words) < 2 or not words[1].isdigit():
            raise ConnectionResetError("no HTTP answer")
        return int(words[1])
    finally:
        writer.close()
