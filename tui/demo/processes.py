"""The processes behind a simulated server: one for each of its ranks here, one for the detokenizer.

They do nothing but be there: they belong to the process tree, hold the GPUs' memory by their numbers, and die with
their parent (their end of a pipe closes).
"""

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from tui.demo import gpus


def _title(text: str) -> None:
    """Renames this process as SGLang does (setproctitle): over its own argument area, where the system lets it."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        Path("/proc/self/comm").write_text(text[:15], encoding="utf-8")
        fields = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        start, end = int(fields[45]), int(fields[46])
        if 0 < start < end:
            data = text.encode()[: end - start - 1]
            ctypes.memset(start, 0, end - start)
            ctypes.memmove(start, data, len(data))


def spawn(titles: Sequence[str], board: gpus.Board) -> tuple[list[int], int]:
    """Forks the children; each ends when this process is gone. Returns their numbers and the end of the pipe to keep."""
    reading, writing = os.pipe()
    pids = []
    for at, title in enumerate(titles):
        pid = os.fork()
        if pid == 0:
            try:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                os.close(writing)
                _title(f"sglang::{title}")
                null = os.open(os.devnull, os.O_RDWR)
                for descriptor in (0, 1, 2):
                    os.dup2(null, descriptor)
                os.read(reading, 1)
                if at == 0:
                    board.mark_dead()
                time.sleep(0.3)
            finally:
                os._exit(0)
        pids.append(pid)
    os.close(reading)
    return pids, writing


def ended(children: list[int]) -> tuple[int, int, int] | None:
    """A child that has ended (its place, number and exit code), taken off the list; None where none has."""
    for at, pid in enumerate(children):
        with contextlib.suppress(ChildProcessError):
            gone, status = os.waitpid(pid, os.WNOHANG)
            if gone:
                children.pop(at)
                return at, pid, -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    return None


def kill(children: list[int]) -> None:
    """Ends them at once."""
    for pid in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
