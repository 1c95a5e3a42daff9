"""The two streams of a simulated server: log records and progress bars on stderr, access lines on stdout."""

import os
import time
from pathlib import Path


def _write(descriptor: int, data: bytes) -> None:
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except OSError:  # nobody reads, or the disk is full: a server runs on without its log
            return


class Output:
    """Writes what SGLang 0.5.23 writes. With one rank there are no rank tags."""

    def __init__(self, tp: int, site: Path) -> None:
        self.tagged = tp > 1
        self.site = site

    def raw(self, text: str) -> None:
        """Text without prefix or newline of its own: bars, tracebacks, warnings of Python."""
        _write(2, text.encode())

    def record(self, message: str, rank: int | None = None) -> None:
        """One log record; `rank` None is the main process."""
        tag = f" TP{rank}" if rank is not None and self.tagged else ""
        self.raw(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}{tag}] {message}\n")

    def uvicorn(self, message: str, level: str = "INFO") -> None:
        """A line of the HTTP server's own log."""
        self.record(f"{level + ':':<10}{message}")

    def killed_tree(self, *, include_parent: bool) -> None:
        """The record of SGLang's `kill_process_tree` of this process."""
        me = os.getpid()
        self.record(f"kill_process_tree called: parent_pid={me}, include_parent={include_parent}, pid={me}")

    def access(self, peer: str, method: str, path: str, status: str) -> None:
        """An access line; these go to stdout."""
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        _write(1, f'[{stamp}] INFO:     {peer} - "{method} {path} HTTP/1.1" {status}\n'.encode())

    def warning(self, where: str, message: str, source: str | None = None) -> None:
        """A Python warning: place, text and the source line."""
        self.raw(f"{self.site}/{where}: {message}\n" + (f"  {source}\n" if source else ""))


def weight_bar(done: int, total: int, elapsed_s: float) -> str:
    """One frame of a weight bar: since 0.5.10 frames are separated by carriage returns alone."""
    head = f"\rLoading safetensors checkpoint shards: {100 * done // total:3d}% Completed"
    return f"{head} | {_progress(done, total, elapsed_s)}"


def capture_bar(description: str, done: int, total: int, elapsed_s: float) -> str:
    """One frame of a capture bar."""
    filled = 10 * done // total
    head = f"{description}: " if description else ""
    bar = f"{'█' * filled}{' ' * (10 - filled)}"
    return f"\r{head}{100 * done // total:3d}%|{bar}| {_progress(done, total, elapsed_s)}"


def _progress(done: int, total: int, elapsed_s: float) -> str:
    per = elapsed_s / done if done else 0.0
    rate = "?it/s" if not done else (f"{per:5.2f}s/it" if per >= 1 else f"{1 / max(per, 1e-6):5.2f}it/s")
    return f"{done}/{total} [{_clock(elapsed_s)}<{_clock(per * (total - done)) if done else '?'}, {rate}]"


def _clock(seconds: float) -> str:
    whole = int(seconds)
    hours, rest = divmod(whole, 3600)
    return (f"{hours}:" if hours else "") + f"{rest // 60:02d}:{rest % 60:02d}"
