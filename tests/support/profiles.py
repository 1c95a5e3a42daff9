"""Profiles for tests."""

from pathlib import Path

from tui.core.config import HostEntry
from tui.core.profiles.command import LaunchCommand, build_command
from tui.core.profiles.launch_profile import LaunchProfile
from tui.core.profiles.load import discover
from tui.core.sglang.flags import flags_of

HOST = HostEntry("gpu1", "gpu1", "/opt/sglang/bin/python", {"HF_HOME": "/data/hf"})
BASE = """
kind = "launch"
description = "base"
[env]
NCCL_DEBUG = "WARN"
[args]
model-path = "/m"
tp = 8
cuda-graph-max-bs = 512
json-model-override-args = { rope = { factor = 2.0 } }
trust-remote-code = true
"""
SPLIT = """
kind = "launch"
[args]
model-path = "/m"
tp = 2
[group.prefill]
gpus = [0, 1]
[group.decode]
gpus = [2, 3]
"""


def errors_of(directory: Path, name: str = "x") -> dict[str | None, tuple[str, str | None]]:
    entry = next(entry for entry in discover([directory]) if entry.name == name)
    return {error.key: (error.message, error.suggestion) for error in entry.errors}


def command(profile: LaunchProfile, version: str | None = "0.5.23") -> LaunchCommand:
    return build_command(profile, HOST, version, flags_of(version))
