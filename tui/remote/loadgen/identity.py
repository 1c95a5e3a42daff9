"""What tells one server from another, and what of its process bears on its speed; without secrets."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from tui.remote.loadgen.processes import stat_of

STARTED = 19  # clock ticks since boot, of /proc/PID/stat behind the name
SECRET = re.compile(r"(api_?key|secret|passw|credential|hf_token|access_token|auth_token)", re.IGNORECASE)
SECRET_FLAG = re.compile(r"(--[\w-]*(?:api[-_]key|secret|password|token)[= ]+)('[^']*'|\"[^\"]*\"|\S+)")
ENVIRONMENT = re.compile(
    r"(NCCL|NVSHMEM|UCX|GLOO|SGLANG|SGL|VLLM|CUDA|NVIDIA|TORCH|TORCHINDUCTOR|PYTORCH|FLASHINFER|TRITON|DG|OMP)_"
    r"|(HF_HUB_OFFLINE|TRANSFORMERS_OFFLINE|LD_PRELOAD)$"
)
SECRET_VARIABLE = re.compile(r"KEY|TOKEN|SECRET|PASS|CRED", re.IGNORECASE)


def without_secrets(value: Any, key: str | None) -> Any:
    """The same document with secret members, the values of secret flags and the key itself taken out."""
    if isinstance(value, dict):
        return {
            name: None if value is None else "***" if SECRET.search(str(name)) else without_secrets(value, key)
            for name, value in value.items()
        }
    if isinstance(value, list):
        hidden = False
        parts = []
        for part in value:
            parts.append("***" if hidden else without_secrets(part, key))
            hidden = isinstance(part, str) and bool(re.match(r"--[\w-]*(api[-_]key|secret|password|token)$", part))
        return parts
    if isinstance(value, str):
        value = value.replace(key, "***") if key else value
        return SECRET_FLAG.sub(r"\1***", value)
    return value


def environment_of(pid: int | None) -> tuple[dict[str, str] | None, list[str] | None]:
    """Variables of a process that bear on its speed, and its arguments; None where they can't be read."""
    if pid is None:
        return None, None
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            pairs = [part.partition(b"=") for part in file.read().split(b"\0")]
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = [word.decode("utf-8", "replace") for word in file.read().split(b"\0")[:-1]]
    except OSError:
        return None, None
    variables = {name.decode("utf-8", "replace"): value.decode("utf-8", "replace") for name, _, value in pairs}
    return {
        name: value
        for name, value in sorted(variables.items())
        if ENVIRONMENT.match(name) and not SECRET_VARIABLE.search(name)
    }, words


def identity_of(facts: dict[str, Any], version: str | None, pid: int | None) -> dict[str, Any]:
    """What tells one server from another: also a second start of the same, where its process or its random seed shows."""
    info = facts["server_info"] if isinstance(facts["server_info"], dict) else {}
    infos = [part["server_info"] for part in facts.get("members") or ()] or [info]
    models = facts["models"].get("data") if isinstance(facts["models"], dict) else None
    listed = models if isinstance(models, list) else []
    names = [each.get("id") for each in listed if isinstance(each, dict)]
    # Rates, averages and the state of its scheduler change while it runs: what it was started with are texts and whole numbers.
    kept = [{k: v for k, v in one.items() if isinstance(v, (str, int))} for one in infos]
    said = json.dumps(kept if len(kept) > 1 else kept[0], sort_keys=True)
    return {
        "model": info.get("model_path") or (names[0] if names else None),
        "version": version,
        "args_sha": hashlib.sha256(said.encode()).hexdigest()[:16] if info else None,
        "pid_started": stat_of(pid, STARTED),
    }
