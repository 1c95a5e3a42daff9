"""HTTP/1.1 through a host: h11 on a connection that the host makes, without a port here.

One request a connection. Bodies may be chunked, counted, or end with the connection.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

import h11

from tui.core.errors import HostError, Slug, TimedOut
from tui.core.link.transport import Connection, HttpResponse, Transport
from tui.core.text import one_line

_READ_BYTES = 65_536
_MAX_HEAD_BYTES = 131_072


def _bad(transport: Transport, where: str, error: object) -> HostError:
    return HostError(
        f"{transport.host}: {where} does not answer in HTTP: {one_line(str(error), 120)}",
        "does another program listen on this port?",
        slug=Slug.BAD_HTTP,
    )


@dataclass(frozen=True)
class HttpStream:
    """An answer whose body is still coming. Iterate over it once; each item is a piece of the body as it arrived."""

    status: int
    headers: Mapping[str, str]  # names in lower case
    _chunks: AsyncIterator[bytes]

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._chunks


class _Exchange:
    """One request and its answer on one connection."""

    def __init__(self, transport: Transport, connection: Connection, where: str) -> None:
        self._transport, self._connection, self._where = transport, connection, where
        self._h11 = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_HEAD_BYTES)

    async def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> None:
        given = {name.lower(): value for name, value in headers.items()}
        given.setdefault("host", self._where)
        given.setdefault("user-agent", "eagletui")
        given["connection"] = "close"
        if body or method in ("POST", "PUT", "PATCH"):
            given["content-length"] = str(len(body))
        try:
            request = h11.Request(method=method, target=path, headers=list(given.items()))
            data = self._h11.send(request) or b""
        except h11.LocalProtocolError as error:
            raise ValueError(f"{method} {path!r}: {error}") from None
        if body:
            data += self._h11.send(h11.Data(data=body)) or b""
        data += self._h11.send(h11.EndOfMessage()) or b""
        await self._connection.write(data)

    async def next(self) -> h11.Event:
        """The next event of the answer. Raises HostError for what is not HTTP or was cut short, LinkLost."""
        while True:
            try:
                event = self._h11.next_event()
            except h11.RemoteProtocolError as error:
                raise _bad(self._transport, self._where, error) from None
            if event is h11.NEED_DATA:
                self._h11.receive_data(await self._connection.read(_READ_BYTES))
            elif isinstance(event, h11.Event) and not isinstance(event, h11.InformationalResponse):
                return event
            elif event is h11.PAUSED:  # cannot follow a request that asks to close
                raise _bad(self._transport, self._where, "it speaks after its answer")

    async def head(self) -> h11.Response:
        event = await self.next()
        if isinstance(event, h11.Response):
            return event
        raise _bad(self._transport, self._where, "it closed without an answer")


def _headers(response: h11.Response) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in response.headers:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


def _too_late(transport: Transport, where: str, seconds: float) -> TimedOut:
    return TimedOut(
        f"{transport.host}: {where} gave no answer within {seconds:g} s", "is the server busy, or does it hang?"
    )


async def request(
    transport: Transport,
    method: str,
    port: int,
    path: str,
    *,
    host: str = "127.0.0.1",
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    timeout_s: float = 10.0,
    max_body_bytes: int = 16 << 20,
) -> HttpResponse:
    """One request and its whole answer, whatever its status.

    Args:
        host, port: the server as seen from the transport's host.
        timeout_s: for everything together.

    Raises:
        HostError: slug refused where nothing listens, bad_http for what is not HTTP or was cut short,
            too_much_output for a longer body.
        LinkLost, TimedOut: as everywhere.
    """
    where = f"{host}:{port}"
    body_in = bytearray()
    asked = stream(transport, method, port, path, host=host, headers=headers, body=body, timeout_s=timeout_s)
    try:
        async with asyncio.timeout(timeout_s), asked as answer:
            async for chunk in answer:
                body_in += chunk
                if len(body_in) > max_body_bytes:
                    raise HostError(
                        f"{transport.host}: {where}{path} answers with more than {max_body_bytes >> 10} KiB",
                        "is this the right server?",
                        slug=Slug.TOO_MUCH_OUTPUT,
                    )
    except TimeoutError:
        raise _too_late(transport, where, timeout_s) from None
    return HttpResponse(answer.status, answer.headers, bytes(body_in))


@contextlib.asynccontextmanager
async def stream(
    transport: Transport,
    method: str,
    port: int,
    path: str,
    *,
    host: str = "127.0.0.1",
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    timeout_s: float = 10.0,
) -> AsyncIterator[HttpStream]:
    """One request whose answer is read piece by piece (server-sent events). Leaving the context closes it.

    Args:
        timeout_s: until the head of the answer is there; the body has no deadline.

    Raises:
        as `request`; while iterating, HostError (bad_http) where the body was cut short, LinkLost.
    """
    where = f"{host}:{port}"
    async with contextlib.AsyncExitStack() as stack:
        try:
            async with asyncio.timeout(timeout_s):
                connection = await stack.enter_async_context(transport.open_connection(host, port))
                exchange = _Exchange(transport, connection, where)
                await exchange.send(method, path, headers or {}, body)
                head = await exchange.head()
        except TimeoutError:
            raise _too_late(transport, where, timeout_s) from None

        async def chunks() -> AsyncIterator[bytes]:
            while isinstance(event := await exchange.next(), h11.Data):
                yield bytes(event.data)

        yield HttpStream(head.status_code, _headers(head), chunks())
