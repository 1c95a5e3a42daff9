"""Waiting over a protocol whose clients give up: in slices, or as a task that any later server can be asked about.

Most clients end a call after 60 s, whatever progress they hear of; so a slice ends before. A client that knows tasks
(extension io.modelcontextprotocol/tasks of protocol 2026-07-28) gets one instead: its id says what is waited for, so that
nothing is kept here, and a server that takes the place of a killed one gives the same answer.
"""

import asyncio
import contextlib
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.extension import Extension, MethodBinding
from mcp.server.mcpserver import Context
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, CallToolRequestParams, CallToolResult, RequestParams

from tui.mcp.answers import answered, chosen, on, result, run_keys
from tui.mcp.command_line import Answer, ask
from tui.mcp.documents import Experiment, Waited

SLICE_S = 45.0
TASKS = "io.modelcontextprotocol/tasks"
AGAIN = "call wait again"
AGAIN_EXPERIMENT = "call experiment_wait again"
EXPERIMENT = "experiment"  # what a task waits for that is no run
_MODERN = "2026-07-28"
_LOOK_S = 5.0  # of a question about a task
_TELL_S = 5.0
_TTL_MS = 24 * 3600 * 1000
_POLL_MS = 5_000
_NOT_YET, _HOST = 4, 3  # exit codes
_PROGRESS = ("experiment", "host", "outcome", "launches_done", "launches", "arm", "phase", "left_s", "note")


async def wait_slice(run: str, host: str | None, until: str, timeout_s: float, ctx: Context | None) -> CallToolResult:
    """Waits for a run for a while; "not yet" is an answer and no error, and so is a link that is lost."""
    words = ("wait", run, "--for", until, "--progress")
    return _waited(await _asked_for_a_while(words, host, timeout_s, ctx))


async def experiment_slice(name: str, host: str | None, timeout_s: float, ctx: Context | None) -> CallToolResult:
    """The same of an experiment, by its name or id."""
    answer = await _asked_for_a_while(("experiment", name, "--attach"), host, timeout_s, ctx)
    said = answer.document if isinstance(answer.document, dict) else {}
    if answer.code == _NOT_YET:
        return result(Experiment(done=False, next=AGAIN_EXPERIMENT, **chosen(said, _PROGRESS)))
    return answered(answer, Experiment, _ended)


def _ended(document: Mapping[str, Any]) -> dict[str, Any]:
    arms = document.get("arms") or ()
    failed = [f"{arm['arm']} {arm['profile']}: {arm['cause']}" for arm in arms if arm.get("cause")]
    verdicts = [verdict["text"] for verdict in document.get("verdicts") or ()]
    found = {"done": True, "note": document.get("message"), "verdicts": verdicts, "failed": failed or None}
    return chosen(document, ("experiment", "host", "outcome", "simulated_host")) | found


async def _asked_for_a_while(words: Sequence[str], host: str | None, timeout_s: float, ctx: Context | None) -> Answer:
    """What a command that waits has to say within a slice; its client hears how far it is."""
    news: asyncio.Queue[str] = asyncio.Queue()
    telling = asyncio.create_task(_tell(news, ctx)) if ctx is not None else None
    try:
        limit = ("--timeout", f"{min(timeout_s, SLICE_S):g}")
        return await ask(*words, *limit, *on(host), progress=news.put_nowait)
    finally:
        if telling is not None:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)


async def _tell(news: asyncio.Queue[str], ctx: Context) -> None:
    """Says what is news, and that it goes on where nothing is."""
    number, text = 0, "waiting"
    while True:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_TELL_S):
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
    """`wait` and `experiment_wait` as tasks, where the client has them."""

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
        if told is None or TASKS not in (told.extensions or {}):
            return await call_next(ctx)
        given = params.arguments or {}
        if params.name == "wait":
            task_id = json.dumps([given.get("run"), given.get("until", "ready"), given.get("host")])
        elif params.name == "experiment_wait":
            task_id = json.dumps([given.get("name"), EXPERIMENT, given.get("host")])
        else:
            return await call_next(ctx)
        return {"resultType": "task", **_task(task_id, "working", "waiting")}

    async def _get(self, ctx: ServerRequestContext[Any, Any], params: _TaskParams) -> HandlerResult:
        name, until, host = _meant(params.taskId)
        if until == EXPERIMENT:
            found = await experiment_slice(name, host, _LOOK_S, None)
        else:
            found = await wait_slice(name, host, until, _LOOK_S, None)
        said = found.structured_content or {}
        message = " ".join(str(said[key]) for key in ("outcome", "phase") if said.get(key)) or "waiting"
        if said.get("done") is False:
            return {"resultType": "complete", **_task(params.taskId, "working", message)}
        whole = found.model_dump(mode="json", by_alias=True, exclude_none=True)
        return {"resultType": "complete", **_task(params.taskId, "completed", message), "result": whole}

    async def _cancel(self, ctx: ServerRequestContext[Any, Any], params: _TaskParams) -> HandlerResult:
        _meant(params.taskId)  # nothing waits here: who stops asking has cancelled it
        return {"resultType": "complete"}


def _meant(task_id: str) -> tuple[str, str, str | None]:
    """What a task waits for. Raises MCPError."""
    try:
        run, until, host = json.loads(task_id)
    except (ValueError, TypeError):
        run = until = host = None
    texts = [text for text in (run, host) if text is not None]
    if not isinstance(run, str) or until not in ("ready", "exit", EXPERIMENT):
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
