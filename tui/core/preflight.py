"""Before a launch: each finding one line, so that nothing comes as a surprise ten minutes later."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    BLOCK = "block"
    WARN = "warn"
    OK = "ok"


@dataclass(frozen=True)
class Finding:
    check: str  # gpus, port, model, draft, python, sglang, flags, requires, disk, rights
    level: Level
    text: str  # sanitised, one line
