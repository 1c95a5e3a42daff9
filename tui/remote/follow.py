"""Sends a growing file in frames, as follow.sh does and describes, without starting a program a tick: for hosts that have a Python.

Sent by `tui.core.logs.follow` as `python3 -I -S -u - PATH OFFSET FILE WORD LIFE_S`. Exit status 0 once a frame is out; any other says
that nothing was sent, and follow.sh takes its place.
"""

from __future__ import annotations

import os
import stat
import sys
import time

TICK_S = 0.1
HEAD_BYTES = 1024  # of a file, by which it is known again
FIRST_BYTES, MOST_BYTES = (
    262_144,
    4_194_304,
)  # in a frame: a slow link shows its first bytes soon, a fast one has few frames


class Ended(Exception):
    """The file is gone for good, or may not be read: what there was to say is said."""


class Sender:
    """One file by its path, and how far it is sent."""

    def __init__(self, path: bytes, offset: int, known: str, word: bytes) -> None:
        self.path, self.offset, self.known, self.word = path, offset, known, word
        self.handle = -1
        self.file, self.size = "", 0  # device:inode, bytes
        self.head = b""
        self.most = FIRST_BYTES

    def frame(self, kind: str, offset: int, size: int, file: str, data: bytes = b"") -> None:
        """One frame; a short write of a pipe is gone on with."""
        text = b"%s %d %d %d %s\n%s\n%s\n" % (
            kind.encode(), offset, len(data), size, (file or "-").encode(), data, self.word,
        )  # fmt: skip
        view = memoryview(text)
        while view:
            view = view[os.write(1, view) :]

    def named(self) -> str:
        """The file that the path names now."""
        try:
            found = os.stat(self.path)
        except OSError:
            return ""
        return f"{found.st_dev}:{found.st_ino}"

    def refuse(self, why: str) -> Ended:
        """Says why it cannot be read."""
        self.frame("X", 0, 0, why)
        return Ended()

    def open(self) -> bool:
        """Opens the path and says what it is; False where it is not there. Raises Ended."""
        try:
            found = os.stat(self.path)
        except OSError:
            return False
        if not stat.S_ISREG(found.st_mode):
            raise self.refuse("directory" if stat.S_ISDIR(found.st_mode) else "irregular")
        try:
            handle = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
        except FileNotFoundError:
            return False
        except OSError:
            raise self.refuse("denied") from None
        if self.handle >= 0:
            os.close(self.handle)
        self.handle = handle
        self.look()
        if self.known and self.known != self.file:
            self.frame("R", 0, self.size, self.file)
            self.offset = 0
        elif self.offset > self.size:
            self.frame("T", 0, self.size, self.file)
            self.offset = 0
        self.known = ""
        self.say_head("O")
        return True

    def look(self) -> None:
        """What the open file is now."""
        found = os.fstat(self.handle)
        self.file, self.size = f"{found.st_dev}:{found.st_ino}", found.st_size

    def say_head(self, kind: str) -> None:
        """A frame with the first bytes."""
        self.head = os.pread(self.handle, min(self.size, HEAD_BYTES), 0)
        self.frame(kind, self.offset, self.size, self.file, self.head)

    def rewritten(self) -> bool:
        """Whether the first bytes are others than those that were sent."""
        return bool(self.head) and os.pread(self.handle, len(self.head), 0) != self.head

    def send(self) -> None:
        """The next bytes."""
        if len(self.head) < HEAD_BYTES:
            self.say_head("I")
        data = os.pread(self.handle, min(self.size - self.offset, self.most), self.offset)
        if len(data) == self.most < MOST_BYTES:
            self.most *= 2
        if data:  # else it shrinks right now: the next look says so
            self.frame("D", self.offset, self.size, self.file, data)
            self.offset += len(data)


def wait_for(sender: Sender, end: float) -> bool:
    """Until the file is there; False where the time is over."""
    gone = False
    while not sender.open():
        if not gone:
            sender.frame("G", sender.offset, 0, "")
        gone, sender.known, sender.offset = True, "", 0
        time.sleep(2 * TICK_S)
        sender.frame("S", 0, 0, "")
        if time.monotonic() >= end:
            return False
    return True


def main(sender: Sender, life_s: float) -> None:
    """Sends until nobody reads, the file cannot be read, or for `life_s` seconds: then it is asked for again."""
    end = time.monotonic() + life_s
    if not wait_for(sender, end):
        return
    tick = idle = 0
    gone = False
    while time.monotonic() < end:
        tick += 1
        sender.look()
        due = tick % 10 == 0 or (len(sender.head) < HEAD_BYTES and sender.size > sender.offset)
        if sender.size < sender.offset or (due and sender.rewritten()):
            sender.frame("T", 0, sender.size, sender.file)
            sender.offset = 0
            if not sender.open():
                return
        elif sender.size > sender.offset:
            sender.send()
            idle = 0
        else:
            # All of this file is sent; is it still the one that the path names?
            now = sender.named()
            if now != sender.file:
                # It was moved away or removed after the look at its size; what was written before that comes first.
                sender.look()
                if sender.size > sender.offset:
                    continue
            if now and (gone or now != sender.file):
                sender.known = "" if gone else sender.file
                sender.offset, gone = 0, False
                if not sender.open():
                    return
                continue
            if not now and not gone:
                sender.frame("G", sender.offset, sender.size, sender.file)
                gone = True
            # The first word that all is sent comes at once, then one a second: it also finds out that nobody listens.
            if idle % 10 == 0:
                sender.frame("S", sender.offset, sender.size, sender.file)
            idle += 1
            time.sleep(TICK_S)


if __name__ == "__main__":
    path, offset, known, word, life_s = sys.argv[1:]
    try:  # noqa: SIM105 - contextlib is a megabyte
        main(Sender(os.fsencode(path), int(offset), known, word.encode()), float(life_s))
    except (Ended, BrokenPipeError, KeyboardInterrupt):
        pass
