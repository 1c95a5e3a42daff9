"""What works on a host, what is missing, and how to fix it."""

import os
import shutil

from tui.core.config import HostKind, data_dir, load_settings
from tui.core.errors import EagletuiError
from tui.core.host.gpus import error_words
from tui.core.link.transport import Asker
from tui.core.server.finding import Finding, Findings
from tui.core.server.session import HostSession, open_session
from tui.core.sglang.patterns import patterns
from tui.core.text import one_line

_MIN_FREE_BYTES = 1_000_000


async def examine(name: str, asker: Asker) -> list[Finding]:
    """Findings in the order in which they matter; a host that can't be reached ends the list."""
    found = Findings()
    _examine_files_here(found)
    for problem in patterns().problems:
        found.warn("patterns", f"left out: {one_line(problem)}")
    if HostKind.of(name) is HostKind.SSH:
        if shutil.which("ssh"):
            found.ok("ssh", "OpenSSH's client reads ~/.ssh/config for us")
        else:
            found.warn("ssh", "no ssh command here: ~/.ssh/config is read by a simpler parser")
    try:
        session = await open_session(name, asker)
        try:
            await session.open()
            found.ok("host", f"connected to {session.transport.status().address or 'this machine'}")
            await _examine_host(session, found)
        finally:
            await session.close()
    except EagletuiError as error:
        found.block("host", error.message + (f"; {error.hint}" if error.hint else ""))
    return found


def _examine_files_here(found: Findings) -> None:
    """Launches are recorded here before they are made, so they need a directory that can be written."""
    here = data_dir()
    there = next(path for path in (here, *here.parents) if path.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        found.block("files", f"{there} cannot be written; fix its permissions, or set EAGLETUI_HOME")
    elif (free := shutil.disk_usage(there).free) < _MIN_FREE_BYTES:
        found.block("files", f"{there} has {free / 1e6:.1f} MB left; free some space")
    else:
        found.ok("files", f"records of launches are kept in {here}")


async def _examine_host(session: HostSession, found: Findings) -> None:
    facts = await session.facts(refresh=True)
    sample = await session.sample()
    if sample.error:
        detail = f" ({sample.detail})" if sample.detail else ""
        found.warn("gpus", f"{error_words(sample.error)}{detail}")
    else:
        names = ", ".join(sorted({gpu.name or "unknown" for gpu in sample.gpus}))
        found.ok("gpus", f"{len(sample.gpus)} × {names}, driver {facts.driver or '–'}, by {sample.source}")
        for gpu in sample.gpus:
            if gpu.health:
                found.warn("gpus", f"GPU {gpu.index}: {gpu.health.replace('_', ' ')}")
    if facts.persistence_mode is False:
        found.warn("driver", "persistence mode is off; `nvidia-smi -pm 1` makes starts and sampling quicker")
    entry = load_settings().host(session.entry.name)
    if facts.container is not None and facts.python_error:
        found.warn("python", f"{facts.python_error}; {facts.container} has {facts.python}, which is used instead")
    elif facts.python is None:
        reason = facts.python_error or "it does not run"
        found.block("python", f"{entry.python}: {reason}; set python in [hosts.{entry.name}] of config.toml")
    else:
        found.ok("python", f"{facts.python} runs")
    if facts.python is not None:
        if facts.container is not None:
            found.ok("sglang", f"SGLang {facts.sglang}, torch {facts.torch or '–'}, in {facts.container}")
        elif facts.sglang is None:
            fix = f"set python in [hosts.{entry.name}] to one that has"
            found.block("sglang", f"{facts.python} has no sglang; {fix}")
        else:
            found.ok("sglang", f"SGLang {facts.sglang}, torch {facts.torch or '–'}")
    runs = await session.runs()
    foreign = sum(run.foreign for run in runs)
    ours = len(runs) - foreign
    counts = f"{ours} run{'s' * (ours != 1)} of ours, {foreign} server{'s' * (foreign != 1)} of others"
    found.ok("runs", f"{counts}; the run directory is writable")
