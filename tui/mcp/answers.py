"""How an answer of the command line becomes one of a tool: few keys, since each costs an agent tokens."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mcp_types import CallToolResult, TextContent
from pydantic import BaseModel

from tui.core.errors import Slug
from tui.core.profiles.toml_text import toml_value
from tui.mcp.command_line import Answer
from tui.mcp.documents import Run

RUN_KEYS = ("run", "host", "profile", "outcome", "phase", "port", "ready_after_s", "exit_code", "diagnosis")
_DIAGNOSIS = ("cause", "title", "phase", "rank", "advice", "set")


def result(document: BaseModel, *, failed: bool = False) -> CallToolResult:
    """An answer, as structured content and as the same JSON in text; what is missing is left out."""
    content = document.model_dump(mode="json", exclude_none=True)
    text = document.model_dump_json(exclude_none=True)
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=content, is_error=failed)


def answered(answer: Answer, model: type[BaseModel], keys: Callable[[Any], Mapping[str, Any]]) -> CallToolResult:
    """What a command answered, or why it could not."""
    if answer.failed:
        said = answer.document if isinstance(answer.document, dict) else {}
        more = {key: said[key] for key in ("error", "message", "hint", "findings") if said.get(key)}
        return result(model.model_validate(more), failed=True)
    return result(model.model_validate(keys(answer.document)))


def chosen(document: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    """Some keys of a document, those that it has a value for."""
    return {key: document[key] for key in keys if document.get(key) is not None}


def run_keys(document: Mapping[str, Any]) -> dict[str, Any]:
    """A run, with what matters of its diagnosis."""
    found = chosen(document, RUN_KEYS)
    if isinstance(said := found.get("diagnosis"), dict):
        found["diagnosis"] = _diagnosis(said)
    return found


def diagnosis_keys(document: Mapping[str, Any]) -> dict[str, Any]:
    """What `diagnose` says, as `run_keys` has it of a run."""
    found = chosen(document, ("outcome", "phase", "note"))
    return found | {"diagnosis": _diagnosis(document)} if document.get("cause") else found


def _diagnosis(said: Mapping[str, Any]) -> dict[str, Any]:
    evidence = said.get("evidence") or {}
    return chosen(said, _DIAGNOSIS) | chosen({"evidence": evidence.get("text")}, ("evidence",))


def refused(*texts: str | None) -> CallToolResult | None:
    """Refuses what would be an option of the command line."""
    bad = next((text for text in texts if text is not None and (text.startswith("-") or not text)), None)
    if bad is None:
        return None
    said = {"error": str(Slug.BAD_VALUE), "message": f"{bad!r} is no name"}
    return result(Run.model_validate(said), failed=True)


def on(host: str | None) -> tuple[str, ...]:
    """The option for a host."""
    return ("--host", host) if host is not None else ()


def set_options(sets: Mapping[str, Any] | None) -> list[str]:
    """The options for overridden flags."""
    words = []
    for key, value in (sets or {}).items():
        words += ["--set", f"{key}={value if isinstance(value, str) else toml_value(value)}"]
    return words
