"""A client that knows the extension for tasks, of which the SDK has no class."""

from typing import Literal

import pytest

pytest.importorskip("mcp", reason="pip install 'eagletui[mcp]'")

from mcp.client.extension import ClientExtension, ResultClaim
from mcp_types import CallToolResult, Request, RequestParams, Result
from pydantic import Field, TypeAdapter

from tui.mcp.waiting import TASKS


class Task(Result):
    """A call that became a task."""

    result_type: Literal["task"] = "task"
    task_id: str = Field(alias="taskId")
    status: str


class Question(RequestParams):
    """About a task."""

    task_id: str = Field(alias="taskId")


class Tasks(ClientExtension):
    """A client that knows tasks, and is told about one."""

    identifier = TASKS

    def __init__(self):
        self.tasks = []

    def claims(self):
        return (ResultClaim(result_type="task", model=Task, resolve=self._seen),)

    async def _seen(self, task, context):
        self.tasks.append(task)
        return CallToolResult(content=[], structured_content={})


async def asked_about(connected, task_id, method="tasks/get"):
    return await connected.session.send_request(
        Request[Question, str](method=method, params=Question(taskId=task_id)), TypeAdapter(dict)
    )
