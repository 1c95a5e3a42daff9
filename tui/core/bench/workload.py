"""What a server is asked: the bundled prompts, random token ids, or a JSONL file of the user's.

Prompts are real text with a natural end, so acceptance of a draft is what users get; random ids never end by themselves
and are for pure throughput. Temperature is 0 everywhere: both sides of a comparison answer the same.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from tui.core.errors import Slug, UsageError
from tui.core.model.profile import BenchProfile
from tui.core.text import one_line

DEFAULT_INPUT_LEN = 256  # tokens, of random-ids
_MAX_DATASET_BYTES = 3 << 20  # it travels with the launch
_MAX_ERRORS = 20
_ROLES = ("system", "user", "assistant", "tool", "developer")


@dataclass(frozen=True)
class Dataset:
    """What requests are made of.

    `kind` is prompts, random-ids or jsonl; an item is {"prompt"}, {"messages"} or {"input_ids"}, with an optional
    "output_len".
    """

    kind: str
    name: str  # as results show it
    sha: str | None = None
    items: tuple[Mapping[str, Any], ...] = ()

    @property
    def needs_chat(self) -> bool:
        return any("messages" in item for item in self.items)

    @property
    def has_ids(self) -> bool:
        return self.kind == "random-ids" or any("input_ids" in item for item in self.items)


@cache
def bundled_prompts() -> Dataset:
    """The prompts that came with the program."""
    data = resources.files("tui.data").joinpath("prompts.jsonl").read_bytes()
    items = tuple({"prompt": json.loads(line)["prompt"]} for line in data.decode("utf-8").splitlines())
    return Dataset("prompts", "prompts", hashlib.sha256(data).hexdigest(), items)


def dataset_of(profile: BenchProfile) -> Dataset:
    """The data of a profile. Raises UsageError (slug bad_dataset, unknown_file) that names each bad line of a file."""
    if profile.dataset == "prompts":
        return bundled_prompts()
    if profile.dataset == "random-ids":
        return Dataset("random-ids", "random-ids")
    return read_jsonl(_path_of(profile))


def _path_of(profile: BenchProfile) -> Path:
    """A relative name is looked for beside the profile, then here."""
    named = Path(os.path.expanduser(profile.dataset))
    if profile.path is not None and (beside := profile.path.parent / named).is_file():
        return beside
    return named


def read_jsonl(path: Path) -> Dataset:
    """A file with one request a line: {"prompt": text}, {"messages": [...]} as OpenAI has them, or {"input_ids": [...]}.

    Raises UsageError: the file cannot be read, or some lines are wrong, each with its number.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"{one_line(str(path), 200)}: {error.strerror}", "name a readable file", slug=Slug.UNKNOWN_FILE
        ) from None
    if len(data) > _MAX_DATASET_BYTES:
        raise UsageError(
            f"{one_line(str(path), 200)} has {len(data)} bytes; at most {_MAX_DATASET_BYTES} are sent",
            "take fewer lines: they go round",
            slug=Slug.BAD_DATASET,
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        at = data.count(b"\n", 0, error.start) + 1
        raise UsageError(
            f"{one_line(str(path), 200)}: line {at} is not UTF-8", "save it as UTF-8", slug=Slug.BAD_DATASET
        ) from None
    items: list[Mapping[str, Any]] = []
    wrong: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        item, problem = _parse_line(line)
        if item is not None:
            items.append(item)
        else:
            wrong.append(f"line {number}: {problem}")
    if not items and not wrong:
        wrong.append("no line holds a request")
    kinds = {key for item in items for key in item} & {"messages", "input_ids"}
    if len(kinds) == 2:
        wrong.append("some lines have messages and others input_ids, which no server takes at one address")
    if wrong:
        more = f"; and {len(wrong) - _MAX_ERRORS} more" if len(wrong) > _MAX_ERRORS else ""
        raise UsageError(
            f"{one_line(str(path), 200)}: {'; '.join(wrong[:_MAX_ERRORS])}{more}",
            'a line is {"prompt": "..."}, {"messages": [{"role": "user", "content": "..."}]} or {"input_ids": [1, 2]}',
            slug=Slug.BAD_DATASET,
        )
    return Dataset("jsonl", one_line(path.name, 100), hashlib.sha256(data).hexdigest(), tuple(items))


def _parse_line(line: str) -> tuple[Mapping[str, Any] | None, str]:
    """A line as an item, or what is wrong with it."""
    try:
        raw = json.loads(line)
    except (ValueError, RecursionError):
        return None, "is not JSON"
    if not isinstance(raw, dict):
        return None, "is not a JSON object"
    present = [key for key in ("prompt", "messages", "input_ids") if raw.get(key) is not None]
    if len(present) != 1:
        said = f"has {' and '.join(present)}" if present else "has none of prompt, messages, input_ids"
        return None, said
    (key,) = present
    value = raw[key]
    problem = {"prompt": _bad_prompt, "messages": _bad_messages, "input_ids": _bad_ids}[key](value)
    if problem:
        return None, problem
    item: dict[str, Any] = {key: value}
    length = raw.get("output_len", raw.get("max_tokens"))
    if length is not None:
        if not isinstance(length, int) or isinstance(length, bool) or length < 1:
            return None, "its output_len is not a number of tokens"
        item["output_len"] = length
    return item, ""


def _bad_prompt(value: object) -> str:
    return "" if isinstance(value, str) and value.strip() else "its prompt is not text"


def _bad_messages(value: object) -> str:
    if not isinstance(value, list) or not value:
        return "its messages are not a list"
    for number, message in enumerate(value, 1):
        if not isinstance(message, dict) or message.get("role") not in _ROLES:
            return f"its message {number} has no role ({', '.join(_ROLES)})"
        if not isinstance(message.get("content"), str):
            return f"its message {number} has no text as content"
    return "" if value[-1]["role"] != "assistant" else "its last message is the assistant's own"


def _bad_ids(value: object) -> str:
    if (
        not isinstance(value, list)
        or not value
        or not all(isinstance(token, int) and not isinstance(token, bool) and token >= 0 for token in value)
    ):
        return "its input_ids are not a list of token numbers"
    return ""


def vocabulary(size: int | None) -> tuple[int, int]:
    """Token ids to draw from, [low, high): without both ends of the vocabulary, where special tokens are.

    Where its size is not known, ids that every model of the last years has.
    """
    size = size or 22_000
    return max(1, size // 100), max(2, size * 9 // 10)
