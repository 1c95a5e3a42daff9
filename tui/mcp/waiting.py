"""Waiting over a protocol whose clients give up: in slices, or as a task that any later server can be asked about.

Most clients end a call after 60 s, whatever progress they hear of; so a slice ends before. A client that knows tasks
(extension io.modelcontextprotocol/tasks of protocol 2026-07-28) gets one instead: its id says what is waited for, so that
nothing is kept here, and a server that takes the place of a killed one gives the same answer.
"""

import asyncio
import json
from datetime import UTC, datetime
from typing import Any, Literal

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.extension import Extension, MethodBinding
from mcp.server.mcpserver import Context
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, CallToolRequestParams, CallToolResult, RequestParams

from tui.mcp.answers import answered, chosen, on, result, run_keys
from tui.mcp.command_line import Answer, ask
from tui.mcp.documents import Waited

SLICE_S = 45.0
TASKS = "io.modelcontextprotocol/tasks"
AGAIN = "call wait again"
_MODERN = "2026-07-28"
_LOOK_S = 5.0  # of a question about a task
_TTL_MS = 24 * 3600 * 1000
_POLL_MS = 5_000
_NOT_YET, _HOST = 4, 3  # exit codes


async def wait_slice(run: str, host: str | None, until: str, timeout_s: float, ctx: Context | None) -> CallToolResult:
    """Waits for a while; "not yet" is an answer and no error, and so is a link that is lost."""
    news: asyncio.Queue[str] = asyncio.Queue()
    telling = asyncio.create_task(_tell(news, ctx)) if ctx is not None else None
    try:
        words = ("wait", run, "--for", until, "--timeout", f"{min(timeout_s, SLICE_S):g}", "--progress", *on(host))
        return _waited(await ask(*words, progress=news.put_nowait))
    finally:
        if telling is not None:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)


async def _tell(news: asyncio.Queue[str], ctx: Context) -> None:
    number = 0
    while True:
        text = await news.get()
        number += 1
        await ctx.report_progress(number, None, text)


def _waited(answer: Answer) -> CallToolResult:
    said = answer.document if isinstance(answer.document, dict) else {}
    if answer.code == _NOT_YET:
        return result(Waited(done=False, next=AGAIN, **chosen(said, ("run", "host", "outcome", "phase"))))
    if answer.code == _HOST:
        return result(Waited(done=False, next=AGAIN, outcome="unknown", message=said.get("message")))
    return answered(
        answer, Waited, lambda document: {"done": True, **run_keys(document), **chosen(document, ("results",))}
    )


class _TaskParams(RequestParams):
    taskId: str


class WaitTasks(Extension):
    """`wait` as a task, where the client has them."""

    identifier = TASKS

    def methods(self) -> tuple[MethodBinding, ...]:
        """What is asked about a task."""
        modern = frozenset((_MODERN,))
        return (
            MethodBinding("tasks/get", _TaskParams, self._get, modern),
            MethodBinding("tasks/cancel", _TaskParams, self._cancel, modern),
        )

    async def intercept_tool_call(
        self, params: CallToolRequestParams, ctx: ServerRequestContext[Any, Any], call_next: CallNext
    ) -> HandlerResult:
        """A task in place of a slice."""
        told = ctx.session.client_capabilities
        if params.name != "wait" or told is None or TASKS not in (told.extensions or {}):
            return await call_next(ctx)
        given = params.arguments or {}
        task_id = json.dumps([given.get("run"), given.get("until", "ready"), given.get("host")])
        return {"resultType": "task", **_task(task_id, "working", "waiting")}

    async def _get(self, ctx: ServerRequestContext[Any, Any], params: _TaskParams) -> HandlerResult:
        run, until, host = _meant(params.taskId)
        found = await wait_slice(run, host, until, _LOOK_S, None)
        said = found.structured_content or {}
        message = " ".join(str(said[key]) for key in ("outcome", "phase") if said.get(key)) or "waiting"
        if said.get("done") is False:
            return {"resultType": "complete", **_task(params.taskId, "working", message)}
        whole = found.model_dump(mode="json", by_alias=True, exclude_none=True)
        return {"resultType": "complete", **_task(params.taskId, "completed", message), "result": whole}

    async def _cancel(self, ctx: ServerRequestContext[Any, Any], params: _TaskParams) -> HandlerResult:
        _meant(params.taskId)  # nothing waits here: who stops asking has cancelled it
        return {"resultType": "complete"}


def _meant(task_id: str) -> tuple[str, Literal["ready", "exit"], str | None]:
    """What a task waits for. Raises MCPError."""
    try:
        run, until, host = json.loads(task_id)
    except (ValueError, TypeError):
        run = until = host = None
    texts = [text for text in (run, host) if text is not None]
    if not isinstance(run, str) or until not in ("ready", "exit"):
        raise MCPError(INVALID_PARAMS, "there is no such task")
    if not all(isinstance(text, str) and text and not text.startswith("-") for text in texts):
        raise MCPError(INVALID_PARAMS, "there is no such task")
    return run, until, host


def _task(task_id: str, status: str, message: str) -> dict[str, Any]:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "taskId": task_id,
        "status": status,
        "statusMessage": message,
        "createdAt": now,
        "lastUpdatedAt": now,
        "ttlMs": _TTL_MS,
        "pollIntervalMs": _POLL_MS,
    }
