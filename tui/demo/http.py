"""A small HTTP/1.1 server for the simulated SGLang: keep-alive, bodies by length or in chunks, streamed answers."""

import asyncio
import email.utils
import json
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, unquote

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


class BadRequest(Exception):
    """The bytes are no HTTP request that this server takes."""


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
        lines = [f"content-length: {len(body)}"]
        if content_type and body:
            lines.append(f"content-type: {content_type}")
        self._head(status, lines)
        self._write(body)

    def json(self, status: int, value: object) -> None:
        """Sends a JSON answer."""
        self.answer(status, json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode())

    def begin_stream(self, content_type: str = "text/event-stream; charset=utf-8") -> None:
        """Begins a chunked answer."""
        self._head(200, [f"content-type: {content_type}"], last="Transfer-Encoding: chunked")

    def chunk(self, data: bytes) -> None:
        self._write(b"%x\r\n%b\r\n" % (len(data), data))

    def end_stream(self) -> None:
        self._write(b"0\r\n\r\n")

    def _head(self, status: int, lines: list[str], last: str | None = None) -> None:
        self.answered = True
        phrase = HTTPStatus(status).phrase
        head = [f"HTTP/1.1 {status} {phrase}", f"date: {email.utils.formatdate(usegmt=True)}", "server: uvicorn"]
        head += [*lines, "vary: Origin"]
        if last:
            head.append(last)
        self._write(("\r\n".join(head) + "\r\n\r\n").encode())
        self.connection.log(self.query, f"{status} {phrase}")

    def _write(self, data: bytes) -> None:
        if not self.gone and self.connection.transport is not None:
            self.connection.transport.write(data)


Handler = Callable[[Exchange], Awaitable[None]]
AccessLog = Callable[[Query, str], None]


class Connection(asyncio.Protocol):
    """One client connection: parses requests one after the other."""

    def __init__(self, handler: Handler, log: AccessLog) -> None:
        self.handler = handler
        self.log = log
        self.transport: asyncio.Transport | None = None
        self.buffer = bytearray()
        self.task: asyncio.Task[None] | None = None
        self.peer = "-"
        self.closed = asyncio.Event()
        self.continued = False

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

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        if self.task is None:
            self._next()

    def _next(self) -> None:
        if self.transport is None:
            return
        try:
            query = self._parse()
        except BadRequest:
            self.transport.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            self.transport.close()
            return
        if query is not None:
            self.task = asyncio.ensure_future(self._serve(query))

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
        if query.headers.get("connection", "").lower() == "close":
            self.transport.close()
        else:
            self._next()

    def _parse(self) -> Query | None:
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self.buffer) > MAX_HEAD_BYTES:
                raise BadRequest
            return None
        lines = bytes(self.buffer[:end]).decode("latin-1").split("\r\n")
        words = lines[0].split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            raise BadRequest
        headers = {}
        for line in lines[1:]:
            name, colon, value = line.partition(":")
            if not colon:
                raise BadRequest
            headers[name.strip().lower()] = value.strip()
        body, used = self._body(headers, end + 4)
        if body is None:
            if headers.get("expect", "").lower() == "100-continue" and not self.continued and self.transport:
                self.continued = True
                self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            return None
        self.continued = False
        del self.buffer[:used]
        path, _, query = words[1].partition("?")
        return Query(words[0], unquote(path), parse_qs(query), headers, body, self.peer, time.time())

    def _body(self, headers: dict[str, str], start: int) -> tuple[bytes | None, int]:
        if headers.get("transfer-encoding", "").lower() == "chunked":
            whole = bytearray()
            at = start
            while True:
                eol = self.buffer.find(b"\r\n", at)
                if eol < 0:
                    return None, 0
                try:
                    size = int(bytes(self.buffer[at:eol]).split(b";")[0], 16)
                except ValueError:
                    raise BadRequest from None
                if len(self.buffer) < eol + 2 + size + 2:
                    return None, 0
                whole += self.buffer[eol + 2 : eol + 2 + size]
                at = eol + 2 + size + 2
                if size == 0:
                    return bytes(whole), at
                if len(whole) > MAX_BODY_BYTES:
                    raise BadRequest
        text = headers.get("content-length", "0")
        if not text.isdigit() or int(text) > MAX_BODY_BYTES:
            raise BadRequest
        size = int(text)
        if len(self.buffer) < start + size:
            return None, 0
        return bytes(self.buffer[start : start + size]), start + size


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
