"""Texts that leave the panel: copies, the report of a server, faults of ours. They go to files of the state directory."""

import contextlib
import os
import shlex
import time
import traceback
from pathlib import Path

from tui.core.config import private_dir, state_dir
from tui.core.errors import EagletuiError, of_system
from tui.core.masking.known import hide
from tui.panel.host_view import Board

_recorded: set[str] = set()  # faults of this process, each written once


def recorded_fault(error: Exception) -> EagletuiError:
    """An unexpected error in one line; its traceback is in a file. What the system refused (a full disk) is not a fault."""
    if isinstance(error, OSError) and error.filename:
        return of_system(error)
    where = "not written"
    key = f"{type(error).__name__} {traceback.extract_tb(error.__traceback__)[-1:]}"
    with contextlib.suppress(OSError):
        path = private_dir(state_dir()) / "panel-errors.log"
        if key not in _recorded or not path.exists():
            with path.open("a", encoding="utf-8") as file:
                file.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S')}\n")
                file.write(hide("".join(traceback.format_exception(error))))
            _recorded.add(key)
        where = str(path)
    return EagletuiError(f"a fault of eagletui: {type(error).__name__}", f"details in {where}")


def keep_copy(text: str) -> Path | None:
    """Writes a copied text into a file that only this user reads; None where that fails."""
    try:
        path = private_dir(state_dir()) / "copied.txt"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(hide(text) + "\n")
    except OSError:
        return None
    return path


def server_report(board: Board) -> tuple[str, str] | None:
    """What is worth copying of the displayed server and what it is: the report of a crash, else its command."""
    state = board.state
    if state is None:
        return None
    diagnosis = state.diagnosis
    command = shlex.join(state.run.argv)
    if diagnosis is None:
        return (command, "command") if command else None
    lines = [
        f"{state.run.profile or ''} run {state.run.run_id} on {board.host}: {state.outcome}",
        f"{diagnosis.cause}: {diagnosis.title}",
    ]
    if diagnosis.evidence is not None:
        lines.append(f"line {diagnosis.evidence.line}: {diagnosis.evidence.text}")
        lines += [f"  {line}" for line in diagnosis.evidence.lines if line.strip() not in diagnosis.evidence.text]
    for source in diagnosis.source:
        lines.append(f"{source.file}:{source.line}")
        lines += [f"  {number} {line}" for number, line in enumerate(source.lines, source.first)]
    lines += [f"- {advice}" for advice in diagnosis.advice]
    lines += [f"set {key} = {value}" for key, value in diagnosis.set.items()]
    return "\n".join([*lines, command]), "report"
