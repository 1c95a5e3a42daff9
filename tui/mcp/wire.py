"""Standard input and output; a request that cannot be read gets an answer too, or its client would wait for ever."""

import json
import re
from contextlib import suppress

import anyio
from mcp.server.mcpserver import MCPServer
from mcp.server.stdio import stdio_server
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.message import SessionMessage
from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError
from pydantic import ValidationError

from tui.core.text import one_line

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]')
_ID = re.compile(r'\s*:\s*("(?:[^"\\]|\\.)*"|-?\d{1,18})\s*[,}]')
_NOT_UNICODE = "unexpected end of hex escape"


async def serve_stdio(server: MCPServer) -> None:
    """Serves until standard input ends."""
    low = server._lowlevel_server  # `run_stdio_async` leaves no room for what is in between
    async with stdio_server() as (read, write), anyio.create_task_group() as tasks:
        readable, messages = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        tasks.start_soon(_relay, read, readable, write)
        await low.run(messages, write, low.create_initialization_options())
        tasks.cancel_scope.cancel()


async def _relay(
    read: ReadStream[SessionMessage | Exception],
    readable: WriteStream[SessionMessage | Exception],
    write: WriteStream[SessionMessage],
) -> None:
    """Hands messages on; of what is none the requests are answered."""
    with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
        async with readable:
            async for item in read:
                answer = unreadable(item) if isinstance(item, ValidationError) else None
                await (readable.send(item) if answer is None else write.send(SessionMessage(answer)))


def unreadable(error: ValidationError) -> JSONRPCError | None:
    """The answer to a line that is no message; None where nobody waits for one."""
    first = error.errors()[0]
    line = first["input"]
    if first["type"] != "json_invalid" or not isinstance(line, str) or (request := request_id(line)) is None:
        return None
    why = str((first.get("ctx") or {}).get("error", "not JSON"))
    if why.startswith(_NOT_UNICODE):
        why = f"a \\u escape that is half a character: {why}"
    return JSONRPCError(
        jsonrpc="2.0", id=request, error=ErrorData(code=PARSE_ERROR, message=f"not read: {one_line(why, 200)}")
    )


def request_id(line: str) -> str | int | None:
    """The id of a request by its text alone, however deep that nests; None of what is no request."""
    depth, found, asks = 0, None, False
    for token in _TOKEN.finditer(line):
        text = token.group()
        if text in "{[":
            depth += 1
        elif text in "}]":
            depth -= 1
        elif depth == 1 and text == '"method"':
            asks = True
        elif depth == 1 and text == '"id"' and (value := _ID.match(line, token.end())):
            with suppress(ValueError):
                found = json.loads(value[1])
    return found if asks else None
