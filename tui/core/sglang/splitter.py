"""Log bytes to lines: splitting on newlines and carriage returns.

Line structure as measured in SGLang's output: Python log lines, tqdm bars whose frames are separated by carriage
returns alone (weights from 0.5.10 on, graph capture always), CRLF where the log came from a terminal.
"""

from typing import NamedTuple

from tui.core.model.log import LINE_LIMIT


class Piece(NamedTuple):
    """One line, or one frame between two carriage returns."""

    raw: bytes  # without its terminator, at most LINE_LIMIT bytes
    number: int  # 1-based line of the file
    offset: int  # byte offset of its first byte
    cut: int  # bytes left out


class LinePlace(NamedTuple):
    """Where the line that is being read begins."""

    offset: int  # byte of the file
    number: int  # as `LogRecord.number`
    within: bool = False  # a part of it is a record already, other than a provisional one


class LineSplitter:
    r"""Splits a byte stream on \n, \r and \r\n; the result does not depend on how the stream is cut into chunks.

    A line number counts \n alone, as editors and `sed -n Np` do, so the frames of a bar share a number.
    Memory is bounded: of a longer line the first LINE_LIMIT bytes are kept and the rest counted.
    """

    def __init__(self, offset: int = 0, number: int = 1) -> None:
        self.number = number  # of the line being read
        self.line_offset = offset  # of its first byte
        self.offset = offset  # of the first byte of `tail`
        self.tail = b""  # what is read of the piece that has no terminator yet
        self.tail_cut = 0  # bytes of it left out
        self._touched = False  # a piece of the line being read was given out already

    @property
    def begun(self) -> bool:
        """Whether the line being read is not whole: a piece was given out already, or bytes were left out."""
        return self._touched or self.tail_cut > 0

    @property
    def place(self) -> LinePlace:
        """How far reading has come."""
        return LinePlace(self.line_offset, self.number, self.begun)

    @property
    def lines(self) -> int:
        """Number of the newest line of which anything was given out."""
        return self.number if self._touched else self.number - 1

    def plain(self, data: bytes) -> bytes | None:
        """The fast way for data without carriage return or overlong line: the whole lines, None where it is not open.

        `number` is still that of the first of them: whoever reads them counts them, and sets it.
        """
        if self.begun or b"\r" in data:
            return None
        text = self.tail + data if self.tail else data
        at = 0
        while len(text) - at > LINE_LIMIT:  # whether a line end comes in time, wherever one looks
            at = text.rfind(b"\n", at, at + LINE_LIMIT + 1) + 1
            if at == 0:
                return None
        end = text.rfind(b"\n") + 1
        self.offset += end
        self.line_offset = self.offset
        self.tail = text[end:]
        return text[:end] if self.tail else text

    def feed(self, data: bytes) -> list[Piece]:
        """Pieces completed by `data`."""
        pieces: list[Piece] = []
        head, *lines = data.split(b"\n")
        self._extend(head, pieces)
        for line in lines:
            if self.tail or self.tail_cut or not self._touched:
                pieces.append(Piece(self.tail, self.number, self.offset, self.tail_cut))
            self.offset += len(self.tail) + self.tail_cut + 1
            self.tail, self.tail_cut, self._touched = b"", 0, False
            self.number += 1
            self.line_offset = self.offset
            self._extend(line, pieces)
        return pieces

    def skip(self, count: int) -> None:
        """Passes over bytes of the line being read that nobody needs: they count as left out."""
        self.tail_cut += count

    def flush(self) -> list[Piece]:
        """The unterminated tail as a piece: the stream has ended."""
        if not self.tail and not self.tail_cut:
            return []
        piece = Piece(self.tail, self.number, self.offset, self.tail_cut)
        self.offset += len(self.tail) + self.tail_cut
        self.tail, self.tail_cut, self._touched = b"", 0, True
        return [piece]

    def _extend(self, part: bytes, pieces: list[Piece]) -> None:
        *frames, rest = part.split(b"\r") if b"\r" in part else (part,)
        for frame in frames:
            self._grow(frame)
            if self.tail or self.tail_cut:
                pieces.append(Piece(self.tail, self.number, self.offset, self.tail_cut))
                self._touched = True
            self.offset += len(self.tail) + self.tail_cut + 1
            self.tail, self.tail_cut = b"", 0
        self._grow(rest)

    def _grow(self, part: bytes) -> None:
        room = LINE_LIMIT - len(self.tail)
        self.tail += part[:room]
        self.tail_cut += max(0, len(part) - room)
