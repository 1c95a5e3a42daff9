"""An experiment run by a process of its own on this machine, which outlives the terminal and the panel that started it."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tui.core.config import private_dir
from tui.core.errors import EagletuiError, Slug
from tui.core.experiment import record as experiment_record
from tui.core.text import one_line, read_json

_EVERY_S = 0.2


@dataclass(frozen=True)
class Background:
    """The driver of an experiment, once it runs it."""

    pid: int
    experiment_id: str
    log: Path  # what it says meanwhile
    output: Path  # what `--json` prints at its end


async def start(words: Sequence[str], name: str) -> Background:
    """Starts `eagletui WORDS --json`, which is to run the experiment `name`; returns when its first launch is next, its pre-flight over.

    Nobody can be asked there: a host that wants a password refuses. Cancelling it leaves the process running.

    Raises EagletuiError: as the process said, where it ended before.
    """
    stem = (
        private_dir(experiment_record.FILES.directory / "log")
        / f"{name}-{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}"
    )
    log, output = stem.with_suffix(".log"), stem.with_suffix(".out")
    argv = [sys.executable, "-m", "tui", *words, "--json"]
    with log.open("wb") as said, output.open("wb") as printed:
        process = subprocess.Popen(  # noqa: ASYNC220 - it is not waited for
            argv, stdin=subprocess.DEVNULL, stdout=printed, stderr=said, start_new_session=True
        )
    while process.poll() is None:
        driven = {pid: experiment_id for experiment_id, pid in experiment_record.drivers().items()}
        mine = driven.get(process.pid)
        if mine is not None and experiment_record.read(mine) is not None:
            return Background(process.pid, mine, log, output)
        await asyncio.sleep(_EVERY_S)
    refusal = _refusal(output, log)
    refusal.exit_code = process.returncode or 1
    raise refusal


def _refusal(output: Path, log: Path) -> EagletuiError:
    """What a process said that ended before it had begun."""
    try:
        said = read_json(output.read_text(errors="replace"))
    except (OSError, ValueError):
        said = None
    said = said if isinstance(said, dict) else {}
    message = one_line(str(said.get("message") or "it ended before its first launch"), 600)
    error = EagletuiError(message, one_line(str(said.get("hint") or f"{log} has what it said"), 300))
    slug = said.get("error")
    error.slug = Slug(slug) if slug in list(Slug) else Slug.LOST
    arms = said.get("arms")
    if isinstance(arms, list):
        error.details = {"arms": arms}
    return error
