"""Reads replies of HTTP/1.1 and the server-sent events in them, from whatever pieces the bytes arrive in."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable

from tui.remote.loadgen.exchange import Exchange, words_of
from tui.remote.loadgen.frames import COUNT, COUNT_NAME, TEXTS, plain, text_in
from tui.remote.loadgen.protocol import clock, loads, short

MAX_HEAD = 64 * 1024
MAX_FRAME = 64 * 1024 * 1024  # an event without an end
MAX_TEXT = 64 * 1024  # of an answer that isn't a stream: an error's words
MAX_ANSWER = 16 * 1024 * 1024  # of /metrics, /server_info
SIZE = re.compile(rb"[ \t]*([0-9A-Fa-f]{1,12})[ \t]*(?:;[^\r\n]*)?\r?\n")


class Malformed(Exception):
    """The bytes are not what HTTP allows."""


class Reader:
    """Reads replies, fed with whatever bytes arrive: `exchange` takes what they say.

    The common case, whole HTTP chunks that hold one event each, is handled without copying and without reading the JSON:
    `completion_tokens` is looked for from the end of the event, behind the text.
    """

    exchange: Exchange | None = None
    heard = 0.0  # when the last byte came

    def __init__(self) -> None:
        self.smooth = False  # between two HTTP chunks and between two events of a stream
        self.buffer = bytearray()
        self.step: Callable[[], bool] = self._head
        self.left = 0  # bytes of the HTTP chunk or of the counted body
        self.chunked = False
        self.reusable = True
        self.streaming = False  # the reply is an event stream
        self.pending = bytearray()  # of an event stream: what has no end of line yet
        self.scanned = 0
        self.swallow = False  # a line ended with CR: an LF that follows belongs to it
        self.data: list[bytes] = []

    def completed(self) -> None:
        """The reply has ended, and the next one may begin on this connection."""

    def feed(self, data: bytes | bytearray, size: int) -> None:
        """Takes the first `size` bytes of `data`, which may be overwritten afterwards. Raises Malformed."""
        now = self.heard = clock()
        at = 0
        exchange = self.exchange
        if self.smooth and exchange is not None:
            while at < size:
                line = data.find(b"\r\n", at, at + 18)
                try:
                    end = line + 2 + int(data[at:line], 16)
                except ValueError:
                    break
                # One line, which ends the event, which ends the chunk.
                if end + 2 > size or data.find(b"\n", line + 2, end) != end - 2:
                    break
                if not data.startswith(b"\n\n\r\n", end - 2) or not data.startswith(b"data: {", line + 2):
                    break
                if not plain(data, line, end):
                    break
                where = data.rfind(COUNT_NAME, line, end)
                if where > 0:
                    found = COUNT.match(data, where)
                    # A first count is looked at closely, and usage behind a reply without counts is not a chunk.
                    if found is None or not exchange.exact or not exchange.tokens:
                        break
                    count = int(found[1])
                    grown = count - exchange.tokens
                    if grown <= 0:
                        break
                else:
                    for name in TEXTS:
                        where = data.find(name, line, end)
                        if where > 0 and data[where + len(name)] != 34:
                            break
                    else:
                        break
                    exchange.exact = False
                    count = exchange.tokens + 1
                    grown = 1
                if not exchange.tokens:
                    exchange.owner.first(exchange)
                exchange.owner.tokens += grown
                exchange.tokens = count
                exchange.stamps.append(now)
                exchange.counts.append(count)
                exchange.text_ends.append(len(exchange.text_raw))
                if exchange.pieces:
                    exchange.wrote(text_in(data, line, end))
                at = end + 2
            if at == size:
                return
        self._read(data[at:size])

    def _read(self, data: bytes | bytearray) -> None:
        if self.exchange is None:
            raise Malformed("bytes that nobody asked for")
        self.buffer += data
        while self.exchange is not None and self.step():
            pass
        self.smooth = (
            self.exchange is not None
            and self.streaming
            and self.step == self._size
            and not self.buffer
            and not self.pending
            and not self.data
            and not self.swallow
        )

    def end_of_file(self) -> str | None:
        """The peer has closed: None where that is how this reply ends, else the reason."""
        if self.exchange is None:
            return None
        if self.step == self._until_closed:
            self._finish()
            return None
        return "closed: the connection ended in the middle of a reply"

    # Each step reads one thing from the buffer: false where it needs more bytes.

    def _head(self) -> bool:
        match = re.search(rb"\r?\n\r?\n", self.buffer)
        if match is None:
            if len(self.buffer) > MAX_HEAD:
                raise Malformed("a head without an end")
            return False
        first, *others = bytes(self.buffer[: match.start()]).splitlines() or [b""]
        del self.buffer[: match.end()]
        status = re.match(rb"HTTP/1\.([01]) (\d{3})(?: |$)", first)
        if status is None:
            raise Malformed("not HTTP: " + short(first[:60].decode("latin-1")))
        headers: dict[bytes, bytes] = {}
        for line in others:
            name, _, value = line.partition(b":")
            headers[name.strip().lower()] = value.strip()
        exchange = self.exchange
        assert exchange is not None
        exchange.status = int(status[2])
        if exchange.status < 200:
            return True
        connection = headers.get(b"connection", b"").lower()
        self.reusable = b"close" not in connection and (status[1] == b"1" or b"keep-alive" in connection)
        kind = headers.get(b"content-type", b"").lower()
        self.streaming = exchange.stream and exchange.status == 200 and kind.startswith(b"text/event-stream")
        length = headers.get(b"content-length")
        self.chunked = headers.get(b"transfer-encoding", b"").lower().endswith(b"chunked")
        if self.chunked:
            self.step = self._size
        elif exchange.status in (204, 304):
            self._finish()
        elif length is not None:
            if not length.isdigit():
                raise Malformed("a bad Content-Length")
            self.left = int(length)
            self.step = self._counted
            if not self.left:
                self._finish()
        else:
            self.reusable = False
            self.step = self._until_closed
        return True

    def _size(self) -> bool:
        match = SIZE.match(self.buffer)
        if match is None:
            if len(self.buffer) > 1024 or b"\n" in self.buffer:
                raise Malformed("a bad chunk size: " + short(bytes(self.buffer[:40]).decode("latin-1")))
            return False
        self.left = int(match[1], 16)
        del self.buffer[: match.end()]
        self.step = self._counted if self.left else self._trailer
        return True

    def _counted(self) -> bool:
        part = self.buffer[: self.left]
        if not part:
            return False
        del self.buffer[: len(part)]
        self.left -= len(part)
        self._body(bytes(part))
        if not self.left and self.exchange is not None:
            if self.chunked:
                self.step = self._gap
            else:
                self._finish()
        return True

    def _gap(self) -> bool:
        if self.buffer.startswith(b"\r\n") or self.buffer.startswith(b"\n"):
            del self.buffer[: 2 if self.buffer[0] == 13 else 1]
            self.step = self._size
            return True
        if self.buffer and self.buffer != b"\r":
            raise Malformed("a chunk longer than it said")
        return False

    def _trailer(self) -> bool:
        end = self.buffer.find(b"\n")
        if end < 0:
            if len(self.buffer) > MAX_HEAD:
                raise Malformed("a trailer without an end")
            return False
        line = bytes(self.buffer[:end]).strip()
        del self.buffer[: end + 1]
        if not line:
            self._finish()
        return True

    def _until_closed(self) -> bool:
        part = bytes(self.buffer)
        self.buffer.clear()
        if part:
            self._body(part)
        return False

    def _finish(self) -> None:
        exchange = self.exchange
        assert exchange is not None
        if self.streaming:
            if self.pending:
                self._line(bytes(self.pending))
            self._line(b"")
        elif exchange.stream:
            text = exchange.text.decode("utf-8", "replace")
            with contextlib.suppress(ValueError):
                text = words_of(loads(exchange.text))
            if exchange.status == 200:
                exchange.error = "malformed: the reply is not an event stream: " + short(text)
            else:
                exchange.error = f"http: {exchange.status}: " + short(text)
        self.step = self._head
        self.pending.clear()
        self.data.clear()
        self.scanned = 0
        self.streaming = self.smooth = self.swallow = False
        exchange.complete()
        self.completed()

    def _body(self, part: bytes) -> None:
        exchange = self.exchange
        assert exchange is not None
        if self.streaming:
            self._events(part)
        else:
            exchange.text += part
            if len(exchange.text) > (MAX_TEXT if exchange.stream else MAX_ANSWER):
                raise Malformed("a reply without an end")

    def _events(self, part: bytes) -> None:
        if self.swallow and part:
            self.swallow = False
            if part[0] == 10:
                part = part[1:]
        pending = self.pending
        pending += part
        begin = 0
        while True:
            end = pending.find(b"\n", max(begin, self.scanned))
            carriage = pending.find(b"\r", max(begin, self.scanned), end if end >= 0 else len(pending))
            if carriage >= 0:
                end = carriage
            elif end < 0:
                break
            self._line(bytes(pending[begin:end]))
            begin = self.scanned = end + 1
            if carriage >= 0:
                if begin == len(pending):
                    self.swallow = True
                elif pending[begin] == 10:
                    begin = self.scanned = begin + 1
        del pending[:begin]
        self.scanned = len(pending)
        if len(pending) > MAX_FRAME:
            raise Malformed("an event without an end")

    def _line(self, line: bytes) -> None:
        """A line of an event stream; an empty one ends the event. Names, ids and comments don't matter here."""
        if line:
            if line.startswith(b"\xef\xbb\xbf"):
                line = line[3:]
            if line.startswith(b"data:"):
                self.data.append(line[6:] if line.startswith(b"data: ") else line[5:])
        elif self.data:
            frame = b"\n".join(self.data)
            self.data.clear()
            if self.exchange is not None:
                self.exchange.frame(frame, self.heard)
