"""What SGLang says of itself: its arguments as `/server_info` has them or as its log prints them, what its environment forces."""

import ast
import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from tui.core.model.result import SpecConfig
from tui.core.text import as_text, as_whole, sanitize

FORCED_ACCEPT_LENGTH = "SGLANG_SIMULATE_ACC_LEN"
_NOT_ARGUMENTS = frozenset(
    ["internal_states", "startup_time", "launch_command", "status", "version", "frontend", "kv_events"]
)
# Of the same server, another value at each launch.
_UNEVEN = frozenset(
    ["dist_init_addr", "forward_pass_metrics_ipc_name", "max_total_num_tokens", "nccl_port", "port", "random_seed"]
)

_SIMPLE = re.compile(r"(?<!\w)(\w{1,64})'?(?:=|: )('[^']{0,2000}'|-?\d{1,18}(?:\.\d{1,18})?|True|False|None)(?=[,)}])")
_SECRET = re.compile(r"api_key|token$|password|secret")


def arguments(info: Mapping[str, Any]) -> dict[str, object]:
    """The arguments that the server runs with, those that are unset left out."""
    return {
        sanitize(str(name)): value for name, value in info.items() if value is not None and name not in _NOT_ARGUMENTS
    }


def args_sha(args: Mapping[str, object]) -> str | None:
    """Tells resolved arguments of one configuration from another's; None where there are none."""
    steady = {name: value for name, value in args.items() if name not in _UNEVEN}
    return hashlib.sha256(json.dumps(steady, sort_keys=True, default=str).encode()).hexdigest()[:16] if steady else None


def speculation(info: Mapping[str, Any]) -> SpecConfig | None:
    """Speculative decoding as the server resolved it; None where it is off."""
    algorithm = as_text(info.get("speculative_algorithm"), 40)
    if algorithm is None or algorithm.upper() == "NONE":
        return None
    return SpecConfig(
        algorithm,
        steps=as_whole(info.get("speculative_num_steps")),
        topk=as_whole(info.get("speculative_eagle_topk")),
        draft_tokens=as_whole(info.get("speculative_num_draft_tokens")),
        draft_model=as_text(info.get("speculative_draft_model_path")),
    )


def forced_accept_length(env: Mapping[str, str]) -> float | None:
    """The accept length that SGLang makes up for every reply; None where it is the draft's own.

    SGLang does so above 0 (speculative/eagle_utils.py), and takes what is not a number for unset (environ.py).
    """
    try:
        length = float(env.get(FORCED_ACCEPT_LENGTH, ""))
    except ValueError:
        return None
    return length if length > 0 else None


def parse_server_args(body: str) -> dict[str, object] | None:
    """All values of a `server_args=` line: ServerArgs(a=1, ...) up to 0.5.18, a dict from 0.5.19 on.

    Secrets are "***". Of a line that was cut off only the simple ones; None where nothing can be read.
    """
    text = body.partition("server_args=")[2].strip()
    found: dict[str, object] = {}
    items: list[tuple[object, ast.expr]] = []
    try:
        tree = ast.parse(text, mode="eval").body
        if isinstance(tree, ast.Dict):
            pairs = zip(tree.keys, tree.values, strict=True)
            items = [(key.value, value) for key, value in pairs if isinstance(key, ast.Constant)]
        elif isinstance(tree, ast.Call):
            items = [(keyword.arg, keyword.value) for keyword in tree.keywords]
        for name, value in items:
            try:
                found[str(name)] = ast.literal_eval(value)
            except (ValueError, TypeError):
                found[str(name)] = ast.unparse(value)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        found = {name: ast.literal_eval(value) for name, value in _SIMPLE.findall(text)}
    for name, secret in found.items():
        if isinstance(secret, str) and _SECRET.search(name):
            found[name] = "***"
    return found or None
