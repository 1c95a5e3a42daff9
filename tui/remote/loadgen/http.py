"""Connections to the server, kept alive, one request at a time on each."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import Any

from tui.remote.loadgen.exchange import Exchange, Owner
from tui.remote.loadgen.plan import Plan
from tui.remote.loadgen.protocol import VERSION, clock, dumps, short
from tui.remote.loadgen.reader import Malformed, Reader

KEEP_ALIVE_S = 4.0  # uvicorn closes after 5
# asyncio's plain protocol allocates 256 KiB for each read, which costs several times the read itself.
RECEIVED = bytearray(256 * 1024)  # shared: what came is taken before the next read


class Connection(Reader, asyncio.BufferedProtocol):
    """One connection of the pool."""

    def __init__(self, client: Client) -> None:
        super().__init__()
        self.client = client
        self.transport: Any = None
        self.fresh = True  # no reply has come on it yet

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        return RECEIVED

    def buffer_updated(self, nbytes: int) -> None:
        try:
            self.feed(RECEIVED, nbytes)
        except Malformed as error:
            self.fail(f"malformed: {error}")

    def begin(self, exchange: Exchange) -> None:
        """Sends the request."""
        self.exchange = exchange
        self.client.active.add(self)
        request = self.client.head(exchange) + exchange.body
        exchange.sent = self.heard = clock()
        if self.transport.is_closing():
            self.fail("reset: closed before the request was sent")
        else:
            self.transport.write(request)

    def completed(self) -> None:
        exchange, self.exchange = self.exchange, None
        assert exchange is not None
        self.client.active.discard(self)
        self.fresh = False
        if self.reusable and not self.buffer and not self.transport.is_closing():
            self.client.idle.append(self)
        else:
            self.transport.abort()
        exchange.end()

    def fail(self, error: str) -> None:
        """Gives the request up, and the connection with it."""
        exchange, self.exchange = self.exchange, None
        self.smooth = False
        self.client.active.discard(self)
        self.transport.abort()
        if exchange is not None:
            exchange.end(error)

    def connection_lost(self, error: Exception | None) -> None:
        with contextlib.suppress(ValueError):
            self.client.idle.remove(self)
        exchange = self.exchange
        if exchange is None:
            return
        # A server may close an idle connection in the moment it is used again: nothing was read, so it is sent once more.
        if not self.fresh and not exchange.tries and self.step == self._head and not self.buffer:
            exchange.tries += 1
            self.exchange = None
            self.client.active.discard(self)
            self.client.send(exchange, reuse=False)
            return
        reason: str | None
        if error is not None:
            reason = "reset: " + short(getattr(error, "strerror", None) or type(error).__name__)
        else:
            try:
                reason = self.end_of_file()
            except Malformed as malformed:
                reason = f"malformed: {malformed}"
        if reason is not None:
            self.fail(reason)


class Client:
    """Keep-alive connections to the server, one request at a time on each."""

    def __init__(self, loop: asyncio.AbstractEventLoop, plan: Plan) -> None:
        self.loop, self.plan = loop, plan
        self.idle: list[Connection] = []
        self.active: set[Connection] = set()
        self.opening: dict[asyncio.Task[None], Exchange] = {}
        host = f"[{plan.host}]" if ":" in plan.host else plan.host
        self.common = f"Host: {host}:{plan.port}\r\nAccept: */*\r\nUser-Agent: eagletui-loadgen/{VERSION}\r\n"
        if plan.key:
            self.common += f"Authorization: Bearer {plan.key}\r\n"

    def head(self, exchange: Exchange) -> bytes:
        """Request line and headers."""
        kind = "Content-Type: application/json\r\n" if exchange.body else ""
        return (
            f"{exchange.method} {self.plan.prefix}{exchange.path} HTTP/1.1\r\n{self.common}{kind}"
            f"Content-Length: {len(exchange.body)}\r\n\r\n"
        ).encode("latin-1", "replace")

    def send(self, exchange: Exchange, reuse: bool = True) -> None:
        """Hands a request to the newest idle connection, or to a new one."""
        now = clock()
        while reuse and self.idle:
            connection = self.idle.pop()
            if now - connection.heard < KEEP_ALIVE_S and not connection.transport.is_closing():
                connection.begin(exchange)
                return
            connection.transport.abort()
        task = self.loop.create_task(self._open(exchange))
        self.opening[task] = exchange
        task.add_done_callback(self._opened)

    def _opened(self, task: asyncio.Task[None]) -> None:
        exchange = self.opening.pop(task)
        if task.cancelled():  # perhaps before it had begun
            exchange.end("drain: not connected")

    async def _open(self, exchange: Exchange) -> None:
        connecting = self.loop.create_connection(lambda: Connection(self), self.plan.host, self.plan.port)
        limit = self.plan.limits["connect_s"]
        try:
            _, connection = await asyncio.wait_for(connecting, limit)
        except OSError as error:
            exchange.end("connect: " + short(error.strerror or str(error)))
        except Exception:  # the time-out is a class of its own before Python 3.11
            exchange.end(f"connect: no answer within {limit:g} s")
        else:
            connection.begin(exchange)

    def watch(self) -> None:
        """Ends what takes too long; called a few times a second."""
        now = clock()
        limits = self.plan.limits
        for connection in list(self.active):
            exchange = connection.exchange
            if exchange is None or exchange.sent is None or not exchange.stream:
                continue
            if now - connection.heard > limits["stall_s"]:
                connection.fail(f"stalled: no byte for {limits['stall_s']:g} s")
            elif exchange.done_at is not None and now - exchange.done_at > limits["tail_s"]:
                connection.fail(f"not_ended: the body continued {limits['tail_s']:g} s after its last event")
            elif now - exchange.sent > limits["request_s"]:
                connection.fail(f"too_slow: not ended after {limits['request_s']:g} s")
            elif len(exchange.stamps) > 2 * exchange.length + 64:
                connection.fail("too_large: more chunks than tokens were asked for")

    def abandon(self, error: str) -> None:
        """Ends every request under way."""
        for task in list(self.opening):
            task.cancel()
        for connection in list(self.active):
            connection.fail(error)

    def close(self) -> None:
        """Closes everything."""
        self.abandon("drain: closed")
        for connection in self.idle:
            connection.transport.abort()
        self.idle.clear()

    async def ask(self, method: str, path: str, document: Any = None, limit_s: float = 20.0) -> Exchange:
        """One request that isn't measured; `error` and `status` say how it went."""
        inquiry = Inquiry(self.loop.create_future())
        stream = bool(document and document.get("stream"))
        exchange = Exchange(inquiry, method, path, b"" if document is None else dumps(document), stream)
        exchange.length = sys.maxsize
        self.send(exchange)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.shield(inquiry.future), limit_s)
        if not exchange.over:
            for connection in list(self.active):
                if connection.exchange is exchange:
                    connection.fail(f"stalled: no answer within {limit_s:g} s")
            for task, opening in list(self.opening.items()):
                if opening is exchange:
                    task.cancel()
            exchange.end(f"stalled: no answer within {limit_s:g} s")
        return exchange


class Inquiry(Owner):
    """Waits for one request."""

    def __init__(self, future: asyncio.Future[None]) -> None:
        self.future = future

    def ended(self, exchange: Exchange) -> None:
        if not self.future.done():
            self.future.set_result(None)
