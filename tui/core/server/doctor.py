"""What works on a host, what is missing, and how to fix it."""

import os
import shutil
from collections.abc import Callable

from tui.core.config import data_dir, load_settings
from tui.core.errors import EagletuiError
from tui.core.host import gpu_sampler
from tui.core.link.transport import Asker
from tui.core.server.preflight import Finding, Level
from tui.core.server.session import HostSession, open_session
from tui.core.sglang.patterns import patterns
from tui.core.text import one_line

_MIN_FREE_BYTES = 1_000_000

_Add = Callable[[str, Level, str], None]


async def examine(name: str, asker: Asker) -> list[Finding]:
    """Findings in the order in which they matter; a host that can't be reached ends the list."""
    found: list[Finding] = []

    def add(check: str, level: Level, text: str) -> None:
        found.append(Finding(check, level, text))

    _examine_files_here(add)
    for problem in patterns().problems:
        add("patterns", Level.WARN, f"left out: {one_line(problem)}")
    if name not in ("local", "demo"):
        if shutil.which("ssh"):
            add("ssh", Level.OK, "OpenSSH's client reads ~/.ssh/config for us")
        else:
            add("ssh", Level.WARN, "no ssh command here: ~/.ssh/config is read by a simpler parser")
    try:
        session = await open_session(name, asker)
    except EagletuiError as error:
        add("host", Level.BLOCK, error.message + (f"; {error.hint}" if error.hint else ""))
        return found
    try:
        await session.open()
        add("host", Level.OK, f"connected to {session.transport.status().address or 'this machine'}")
        await _examine_host(session, add)
    except EagletuiError as error:
        add("host", Level.BLOCK, error.message + (f"; {error.hint}" if error.hint else ""))
    finally:
        await session.close()
    return found


def _examine_files_here(add: _Add) -> None:
    """Launches are recorded here before they are made, so they need a directory that can be written."""
    here = data_dir()
    there = next(path for path in (here, *here.parents) if path.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        add("files", Level.BLOCK, f"{there} cannot be written; fix its permissions, or set EAGLETUI_HOME")
    elif (free := shutil.disk_usage(there).free) < _MIN_FREE_BYTES:
        add("files", Level.BLOCK, f"{there} has {free / 1e6:.1f} MB left; free some space")
    else:
        add("files", Level.OK, f"records of launches are kept in {here}")


async def _examine_host(session: HostSession, add: _Add) -> None:
    facts = await session.facts(refresh=True)
    sample = await gpu_sampler.one_sample(session.transport, session.entry.python)
    if sample.error:
        add("gpus", Level.WARN, f"{sample.error}: {sample.detail or 'no GPU data'}")
    else:
        names = sorted({gpu.name or "unknown" for gpu in sample.gpus})
        add(
            "gpus",
            Level.OK,
            f"{len(sample.gpus)} × {', '.join(names)}, driver {facts.driver or '–'}, by {sample.source}",
        )
        for gpu in sample.gpus:
            if gpu.health:
                add("gpus", Level.WARN, f"GPU {gpu.index}: {gpu.health.replace('_', ' ')}")
    if facts.persistence_mode is False:
        add("driver", Level.WARN, "persistence mode is off; `nvidia-smi -pm 1` makes starts and sampling quicker")
    entry = load_settings().host(session.entry.name)
    if facts.python is None:
        reason = facts.python_error or "it does not run"
        add("python", Level.BLOCK, f"{entry.python}: {reason}; set python in [hosts.{entry.name}] of config.toml")
    else:
        add("python", Level.OK, f"{facts.python} runs")
        if facts.sglang is None:
            add(
                "sglang",
                Level.BLOCK,
                f"{facts.python} has no sglang; set python in [hosts.{entry.name}] to one that has",
            )
        else:
            add("sglang", Level.OK, f"SGLang {facts.sglang}, torch {facts.torch or '–'}")
    runs = await session.runs()
    foreign = sum(run.state == "foreign" for run in runs)
    add(
        "runs",
        Level.OK,
        f"{len(runs) - foreign} runs of ours, {foreign} servers of others; the run directory is writable",
    )
