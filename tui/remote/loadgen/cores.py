"""Cores that the server was bound to are its own: the load generator and what it starts keep off them, where there is room."""

from __future__ import annotations

import contextlib
import glob
import os

from tui.remote.loadgen.processes import family

LEAST_CORES = 2  # the generator and what samples the GPUs


def cores_of(text: str) -> set[int]:
    """Of a list as the kernel writes it, `0-3,8`."""
    found: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        with contextlib.suppress(ValueError):
            found |= set(range(int(first), int(last or first) + 1))
    return found


def with_siblings(cores: set[int]) -> set[int]:
    """The same with the hyperthreads beside them."""
    found = set(cores)
    for core in cores:
        for path in glob.glob(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list"):
            with contextlib.suppress(OSError), open(path, encoding="ascii") as file:
                found |= cores_of(file.read())
    return found


def bound(pids: list[int], ours: set[int]) -> set[int]:
    """The cores that processes of the servers were bound to; a process that may run on all of ours says nothing."""
    found: set[int] = set()
    for pid in set().union(*map(family, pids)) if pids else ():
        with contextlib.suppress(OSError):
            allowed = os.sched_getaffinity(pid)
            if not allowed >= ours:
                found |= allowed
    return found


def keep_off(pids: list[int]) -> list[int] | None:
    """Binds this process, and what it starts from now on, to cores that the servers were not bound to.

    Args:
        pids: the topmost processes of the servers.

    Returns those cores; None where nothing was changed: no server is bound, or too few are left.
    """
    ours = os.sched_getaffinity(0)
    taken = bound(pids, ours)
    left = next((rest for rest in (ours - with_siblings(taken), ours - taken) if len(rest) >= LEAST_CORES), None)
    if not taken or left is None:
        return None
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, left)
        return sorted(left)
    return None
