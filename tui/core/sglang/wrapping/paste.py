"""A pasted log as a tracker reads it: what is around it is learned from its beginning, and taken off line by line."""

import codecs
from collections.abc import Callable, Sequence

from tui.core.model.log import LINE_LIMIT, LogRecord
from tui.core.sglang.boxes import BOXED
from tui.core.sglang.state import Paste
from tui.core.sglang.tracker import LogTracker
from tui.core.sglang.wrapping import engines, envelopes, layers, terminal
from tui.core.sglang.wrapping.line import Layer, Line, Maker
from tui.core.sglang.wrapping.prefixes import Containers, prefixes
from tui.core.text import sanitize

SAMPLE = 1 << 20  # bytes from which the wrapping is learned
_LINES = 4_000  # of them that are looked at
_DEEP = 8  # layers
_UTF_16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}

_LEARNERS: dict[str, Callable[[Sequence[Line]], Maker | None]] = {
    "boxes": layers.boxes,
    "endings": layers.endings,
    "terminal": terminal.breaks,
    "typography": layers.typography,
    "colours": layers.colours,
    "html": layers.markup,
    "markdown": layers.fences,
    "cri": envelopes.cri_lines,
    "json": envelopes.json_lines,
    "quote": layers.quotes,
    "numbers": layers.numbers,
    "indentation": layers.indentation,
    "ray": layers.repeats,
    "frames": layers.broken_frames,
    "joined": layers.joined,
    "flattened": layers.flattened,
    "sentences": layers.sentences,
}


class Wrapping:
    """What is around a log, learned from a sample of its lines."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self.names: list[str] = []
        self.containers = Containers()
        self._makers: list[Maker] = []
        rest = list(lines)
        self.stages = [rest]  # the sample, with fewer and fewer layers
        while len(self.names) < _DEEP:
            maker = self._next(rest)
            if maker is None:
                break
            self._makers.append(maker)
            rest = _through([maker()], rest)
            self.stages.append(rest)
        if (mended := terminal.cut_beginning(rest)) is not None:
            self.names.append("cut")
            self._makers.append(mended)

    def _next(self, lines: Sequence[Line]) -> Maker | None:
        boxed = any(BOXED in line.text for line in lines)  # its borders are no column around the text
        for name, learn in _LEARNERS.items():
            maker = learn(lines) if not (boxed and name in ("endings", "terminal")) else None
            if maker is not None:
                self.names.append(name)
                return maker
        found = prefixes(lines)
        if found is None:
            return None
        self.names.append("prefix")
        if found[1].others:
            self.containers = found[1]
        return found[0]

    def layers(self) -> list[Layer]:
        """The layers, from the outermost, at the beginning of the text."""
        return [maker() for maker in self._makers]


def _through(found: Sequence[Layer], lines: list[Line], ended: bool = True) -> list[Line]:
    for layer in found:
        lines = layer.take(lines)
        if ended:
            lines += layer.end()
    return lines


class PasteTracker(LogTracker):
    """Reads a text that somebody pasted, for the state alone: the answer is that of the log without its wrapping.

    Line numbers are those of the pasted text. A log without wrapping is handed on as it is.
    """

    def __init__(self) -> None:
        super().__init__(records=False)

    def reset(self, offset: int = 0, number: int = 1) -> None:
        super().reset(offset, number)
        self._held = b""
        self._layers: list[Layer] | None = None  # None: not known yet
        self._number = number
        self._tail = ""
        self._plain = False
        self.paste = Paste()

    def feed(self, data: bytes) -> tuple[LogRecord, ...]:
        if self._layers is None:
            self._held += data
            if len(self._held) >= SAMPLE:
                self._learn()
        else:
            self._hand_on(data)
        return ()

    def go_on_at(
        self, offset: int, number: int, *, slow_tokenizer: int = 0, retracted: tuple[int, int] = (0, 0)
    ) -> None:
        self._learn()
        if not self._plain and self._tail:
            self._take("\n")
        super().go_on_at(offset, number, slow_tokenizer=slow_tokenizer, retracted=retracted)
        self._number = number

    def flush(self) -> tuple[LogRecord, ...]:
        self._learn()
        if not self._plain:
            self._take("\n" if self._tail else "", ended=True)
        return super().flush()

    def _learn(self) -> None:
        if self._layers is not None:
            return
        held, self._held = self._held, b""
        # A mark alone may be any two bytes: Latin text in UTF-16 is half NUL.
        wide = held.count(0, 0, 4_096) * 4 > len(held[:4_096])
        encoding = next((name for mark, name in _UTF_16.items() if wide and held.startswith(mark)), "utf-8")
        held = held.removeprefix(codecs.BOM_UTF8) if encoding == "utf-8" else held[2:]
        self._decoder = codecs.getincrementaldecoder(encoding)("replace")
        found = Wrapping(_sample(codecs.getincrementaldecoder(encoding)("replace").decode(held)))
        # Of another engine's log the prefix that tells it may be all that its lines share.
        engine = engines.engine_of(line.text for stage in reversed(found.stages) for line in stage)
        self.paste = Paste(engine, tuple(found.names), found.containers.chosen, found.containers.others)
        self._layers = found.layers()
        self._plain = not self._layers and encoding == "utf-8"
        self._hand_on(held)

    def _hand_on(self, data: bytes) -> None:
        if self._plain:
            super().feed(data)
        else:
            self._take(self._decoder.decode(data))

    def _take(self, text: str, ended: bool = False) -> None:
        *rows, self._tail = (self._tail + text).split("\n")
        self._tail = self._tail[: LINE_LIMIT * 2]
        lines = [Line(self._number + at, _clean(row)) for at, row in enumerate(rows)]
        self._number += len(rows)
        for line in _through(self._layers or (), lines, ended):
            for frame in line.text[:LINE_LIMIT].split("\r"):
                self.take_line(frame, line.number)
        self._splitter.number = self._number


def _clean(row: str) -> str:
    row = row.removesuffix("\r")
    if row.isprintable():
        return row
    return "\r".join(sanitize(frame) for frame in row.split("\r"))


def _sample(text: str) -> list[Line]:
    rows = text.split("\n")
    if rows and not rows[-1]:
        rows.pop()
    return [Line(number, _clean(row)) for number, row in enumerate(rows[:_LINES], 1)]
