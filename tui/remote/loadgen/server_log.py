"""What the server's log says of the window: decode lines with and without a graph."""

from __future__ import annotations

import os
import re


class LogSpan:
    """The part of the server's log that was written during the window."""

    GRAPH = re.compile(rb"Decode batch[^\n]*?(?:cuda|cpu|npu) graph: (True|False)")

    def __init__(self, path: str | None) -> None:
        self.path = path
        self.begin = self.end = None  # type: tuple[int, int, int] | None

    def mark(self) -> tuple[int, int, int] | None:
        """Device, inode and length now."""
        if self.path is None:
            return None
        try:
            status = os.stat(self.path)
        except OSError:
            return None
        return status.st_dev, status.st_ino, status.st_size

    def graph(self) -> dict[str, int] | None:
        """Decode lines with and without a graph; None where the log can't tell."""
        if self.path is None or self.begin is None or self.end is None or self.begin[:2] != self.end[:2]:
            return None
        left = self.end[2] - self.begin[2]
        if left < 0:
            return None
        graphs = []
        try:
            with open(self.path, "rb") as file:
                file.seek(self.begin[2])
                for line in file:
                    left -= len(line)
                    if left < 0 or not line.endswith(b"\n"):  # its end was not there yet
                        break
                    graphs += self.GRAPH.findall(line)
        except OSError:
            return None
        return {"on": graphs.count(b"True"), "off": graphs.count(b"False")}
