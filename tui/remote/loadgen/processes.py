"""What /proc says of processes on this host."""

from __future__ import annotations

import os


def stat_of(pid: int | str | None, place: int) -> int | None:
    """A number of /proc/PID/stat, by its place behind the name; None where there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[place])
    except (OSError, ValueError, IndexError):
        return None


def family(root: int) -> set[int]:
    """A process and all that descend from it."""
    parents = {int(entry): stat_of(entry, 1) for entry in os.listdir("/proc") if entry.isdigit()}
    found: set[int] = set()
    children = {root}
    while children:
        found |= children
        children = {pid for pid, parent in parents.items() if parent in found} - found
    return found
