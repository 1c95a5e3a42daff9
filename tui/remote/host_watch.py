"""Tells when a look at a host's runs and servers is worth it, so that nobody looks again and again: one process, silent while
nothing changes.

Sent by `tui.core.runs.news` as `python3 -I -S -u - LIFE_S PERIOD_S DIRECTORY...`, the directories being those that hold runs; needs
nothing but Python 3.8. The first line, `W`, says that it watches; a line `C` that files of a run were written, its main process ended, or a
process that may be a server, or is one of a run, came or went. What it was exactly the look itself finds out.

A process is read once, when its number is new, and while it is young (it forks, then becomes something else); every number is read
again once a minute, since an old process may become another program, and a number may be used again. While one of the runs
measures a server, processes are left alone: this host has better things to do.
"""

from __future__ import annotations

import os
import re
import sys
import time

SERVER = re.compile(
    rb"^(sglang|vllm|VLLM)::|sglang\.(launch_server|srt\.entrypoints)|vllm\.entrypoints|launch_server\.py"
    rb"|(sglang|vllm)(\.cli\.main)?\0serve"
)
MARK = re.compile(rb"(?:^|\0)EAGLETUI_RUN=([^\0]+)")
YOUNG_S = 10.0  # for so long a process is read at each look
SWEEP_S = 60.0  # within which every process is read again
EAGER_S = 30.0  # after a change the next one is near: looks are closer
MOST_BYTES = 4096  # of a command line


def read(path: str, most: int = MOST_BYTES) -> bytes:
    """The first bytes of a file, b"" where it cannot be read."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        return os.read(handle, most)
    except OSError:
        return b""
    finally:
        os.close(handle)


def started(pid: str) -> bytes:
    """When a process started, in ticks since boot; b"" where it has ended. No other process has both this and its number."""
    fields = read(f"/proc/{pid}/stat").rpartition(b") ")[2].split()
    return fields[19] if len(fields) > 19 and fields[0] not in b"ZXx" else b""


class Processes:
    """Those that may be servers, and the runs of which there are processes."""

    def __init__(self) -> None:
        self.known: set[str] = set()
        self.young: dict[str, float] = {}  # pid: when it was seen first
        self.servers: dict[str, bytes] = {}  # pid: start
        self.runs: dict[str, bytes] = {}  # pid: run
        self.again: list[str] = []  # still to be read in this sweep
        self.looked_at: float | None = None

    def look(self, now: float) -> tuple[frozenset[tuple[str, bytes]], frozenset[bytes]]:
        """What is there now, of those that matter."""
        listed = {name for name in os.listdir("/proc") if name.isdigit()}
        for gone in self.known - listed:
            self.young.pop(gone, None)
            self.servers.pop(gone, None)
            self.runs.pop(gone, None)
        self.young.update((pid, now) for pid in listed - self.known)
        due = {*self.young, *self.servers}
        self.young = {pid: at for pid, at in self.young.items() if now - at < YOUNG_S}
        if self.looked_at is not None:
            share = int(len(listed) * (now - self.looked_at) / SWEEP_S) + 1
            self.again = self.again or list(listed)
            due.update(self.again[-share:])
            del self.again[-share:]
        self.known, self.looked_at = listed, now
        for pid in due & listed:
            self.read(pid)
        return frozenset(self.servers.items()), frozenset(self.runs.values())

    def read(self, pid: str) -> None:
        """One process."""
        self.servers.pop(pid, None)
        self.runs.pop(pid, None)
        if SERVER.search(read(f"/proc/{pid}/cmdline")):
            self.servers[pid] = started(pid)
        mark = MARK.search(read(f"/proc/{pid}/environ", 1 << 20))
        if mark:
            self.runs[pid] = mark.group(1)


class Runs:
    """The files of runs, and whether the main processes of those that are not over live."""

    def __init__(self, directories: list[str]) -> None:
        self.directories = directories

    def look(self) -> tuple[frozenset[tuple[str, int, bool]], bool]:
        """(what is there now, whether one of them measures)"""
        found, measuring = [], False
        for directory in self.directories:
            try:
                entries = list(os.scandir(directory))
            except OSError:
                continue
            for entry in entries:
                try:
                    changed = entry.stat(follow_symlinks=False).st_mtime_ns
                    over = os.path.exists(entry.path + "/exit")
                except OSError:
                    continue
                alive = not over and self.alive(entry.path)
                found.append((entry.name, changed, alive))
                measuring |= alive and read(entry.path + "/meta").split()[1:2] == [b"bench"]
        return frozenset(found), measuring

    def alive(self, path: str) -> bool:
        """Whether main process and supervisor of a run are those that its file names."""
        words = read(path + "/pid").split()
        pairs = [words[0:2], words[4:6]]
        return all(len(pair) == 2 and started(pair[0].decode("ascii", "replace")) == pair[1] for pair in pairs)


def main(life_s: float, period_s: float, directories: list[str]) -> None:
    """Writes until nobody reads, or for `life_s` seconds: then it is asked for again."""
    runs, processes = Runs(directories), Processes()
    end = time.monotonic() + life_s
    files, measuring = runs.look()
    servers = processes.look(time.monotonic())
    os.write(1, b"W\n")
    changed_at = looked_at = time.monotonic()
    while time.monotonic() < end:
        eager = time.monotonic() - changed_at < EAGER_S
        time.sleep(period_s if eager else 2 * period_s)
        now = time.monotonic()
        before = files, servers
        files, measuring = runs.look()
        if not measuring and now - looked_at >= (2 if eager else 5) * period_s:
            servers, looked_at = processes.look(now), now
        if (files, servers) != before:
            changed_at = now
            os.write(1, b"C\n")


if __name__ == "__main__":
    try:  # noqa: SIM105 - contextlib is a megabyte
        main(float(sys.argv[1]), float(sys.argv[2]), sys.argv[3:])
    except (BrokenPipeError, KeyboardInterrupt):
        pass
