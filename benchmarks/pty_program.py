"""A full-screen program in a pseudo-terminal, read by a terminal emulator, with its CPU time and bytes counted."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Mapping
from pathlib import Path

import pyte

_TICK_HZ = os.sysconf("SC_CLK_TCK")
# Queries and private sequences that pyte would print as text.
_NOT_FOR_PYTE = re.compile(rb"\x1b\[[<>=?][0-9;]*[umc]|\x1b\[\?2026\$p|\x1b\[>[0-9;]*[a-z]|\x1bP.*?\x1b\\", re.DOTALL)


def _stat(pid: int) -> tuple[int, float] | None:
    """(parent, CPU seconds of the process and its waited-for children)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None
    return int(fields[1]), sum(int(value) for value in fields[11:15]) / _TICK_HZ


def tree_cpu_s(root: int) -> float:
    """CPU seconds of a process and everything below it, ended children included."""
    seen = {int(entry.name): _stat(int(entry.name)) for entry in Path("/proc").glob("[0-9]*")}
    total, queue = 0.0, [root]
    while queue:
        pid = queue.pop()
        if (found := seen.get(pid)) is not None:
            total += found[1]
            queue += [child for child, stat in seen.items() if stat is not None and stat[0] == pid]
    return total


class PtyProgram:
    """One program. Reads only happen inside the methods: call one of them again soon, or the program blocks."""

    def __init__(
        self, argv: list[str], env: Mapping[str, str], *, cwd: str | None = None, columns: int = 160, rows: int = 48
    ) -> None:
        self.bytes = 0
        self.started = time.monotonic()
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            try:
                fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
                if cwd:
                    os.chdir(cwd)
                os.execvpe(argv[0], argv, {"TERM": "xterm-256color", "COLORTERM": "truecolor", **env})
            finally:
                os._exit(127)

    def _pump(self, timeout_s: float) -> bool:
        """Reads what is there within the timeout; False at the end of the program."""
        if not select.select([self._fd], [], [], timeout_s)[0]:
            return True
        try:
            data = os.read(self._fd, 65_536)
        except OSError:
            return False
        if not data:
            return False
        self.bytes += len(data)
        if b"\x1b[6n" in data:
            os.write(self._fd, b"\x1b[1;1R")
        if b"\x1b[c" in data:
            os.write(self._fd, b"\x1b[?62;c")
        self._stream.feed(_NOT_FOR_PYTE.sub(b"", data))
        return True

    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self._screen.display)

    def keys(self, data: bytes) -> None:
        os.write(self._fd, data)

    def wait_for(self, pattern: str, deadline_s: float) -> float:
        """Seconds from now until the pattern is on the screen, looked at after each read."""
        began = time.monotonic()
        while not re.search(pattern, self.text()):
            if time.monotonic() - began > deadline_s or not self._pump(0.02):
                raise TimeoutError(f"no {pattern!r}:\n{self.text()}")
        return time.monotonic() - began

    def run_for(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if not self._pump(min(left, 0.2)):
                raise TimeoutError(f"the program ended:\n{self.text()}")

    def cpu_s(self) -> float:
        return tree_cpu_s(self.pid)

    def close(self) -> None:
        """Hangs up as a closed terminal does, then kills."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.pid, number)
            except ProcessLookupError:
                break
            end = time.monotonic() + 3
            while time.monotonic() < end:
                self._pump(0.05)
                if os.waitpid(self.pid, os.WNOHANG)[0]:
                    os.close(self._fd)
                    return
        os.close(self._fd)
