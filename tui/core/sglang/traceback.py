"""A Python traceback as it stands in a log: a chain of exceptions with their frames, and every line of each message.

Read line by line, in linear time and bounded memory. Python prints the first cause of a chain first ("During handling of
the above exception …", "The above exception was the direct cause …"); Ray puts the remote traceback before its own.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from tui.core.sglang.lineshape import EXCEPTION, FRAME, THREAD, TRACEBACK

_HEAD = re.compile(r"(?P<type>[A-Za-z_][\w.]{0,200})(?:: ?(?P<message>.*)|)$")
# A frame as a person writes it down: "sglang/srt/managers/scheduler.py:1024 run_batch".
_SHORT_FRAME = re.compile(
    r"^\s{0,12}(?:at )?(?P<file>[\w./<>~+-]{1,300}\.py):(?P<line>\d{1,9}):?(?: in)? (?P<function>[\w.<>]{1,200})(?:\(\))?$"
)
_LEVEL = re.compile(r"(?:INFO|DEBUG|WARN|WARNING|ERROR|CRITICAL|FATAL|NOTE|NOTICE)\b")
_NEXT = re.compile(r"During handling of the above exception|The above exception was the direct cause")
_MARKS = re.compile(r"[\s~^]+")
# What a person would quote of a long message: the line that says what went wrong.
_TELLING = re.compile(
    r"Segmentation fault|core dumped|\b(?:[Ff]atal|FATAL)\b|\b[Ee]rror ?:|\bKilled\b|out of memory|undefined (?:symbol|reference)|"
    r"cannot find -l|multiple definition|No such file|not (?:found|supported|defined|recognized)|[Uu]nsupported|Permission denied"
)
# What a compiler's drivers say behind it: true, and no reason.
_POINTING = re.compile(r"\bat \d+:\d+:$")
_DRIVER = re.compile(
    r"ld returned \d+ exit status|build stopped|linker command failed|subcommand failed|compilation terminated"
)
_WARNING = re.compile(r"\b[Ww]arning ?:")  # of a compiler, beside its error
_COMPILER = re.compile(r"\b(?:nvcc|ptxas|cicc|ninja|gcc|g\+\+|clang|cc1plus)\b|FAILED:")
_BOILERPLATE = re.compile(
    r"^\"\"\"$|CUDA kernel errors might be asynchronously|For debugging consider passing|Compile with `TORCH_USE_CUDA_DSA`|"
    r"Search for `cuda|frame #\d+: |Exception raised from |For further information visit"
)
# Lookups whose failure is often handled by raising what is really wrong.
_LOOKUPS = ("KeyError", "AttributeError", "IndexError", "StopIteration", "LookupError")
_FRAMES_KEPT = 100  # of one exception: the outermost and the innermost half
_LINKS_KEPT = 8
_LINES_KEPT = 200
_LINE_LIMIT = 400
_QUOTED = 20


class Frame(NamedTuple):
    """One call, as the traceback names it."""

    file: str
    line: int
    function: str
    source: str | None = None  # the line of the program; None where it is not printed


class Line(NamedTuple):
    """A line of the log."""

    number: int
    text: str


@dataclass
class Raised:
    """One exception of a chain."""

    frames: list[Frame] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)  # of the message, the first begins with the type
    thread: str | None = None  # the fault handler's: "current" or "other"; the innermost frame was printed first

    @property
    def type(self) -> str | None:
        """ "torch.AcceleratorError"; None while only frames are known."""
        head = _HEAD.match(self.lines[0].text) if self.lines else None
        return head["type"] if head is not None else None

    @property
    def name(self) -> str:
        """The type without its module."""
        return (self.type or "").rpartition(".")[2]

    @property
    def message(self) -> str:
        """All lines, without the type."""
        head = _HEAD.match(self.lines[0].text) if self.lines else None
        rest = (line.text for line in self.lines[1:])
        return "\n".join(((head["message"] or "") if head is not None else "", *rest)).strip()

    @property
    def bare(self) -> bool:
        """Nothing is said beside the type."""
        return not self.message

    def has(self, number: int) -> bool:
        """Whether the line with this number is of the message."""
        return bool(self.lines) and self.lines[0].number <= number <= self.lines[-1].number

    def quote(self, line: Line | None = None) -> tuple[str, tuple[str, ...]]:
        """What a person would quote: in one line, and every line that tells something.

        Args:
            line: the line of the message that a pattern matched.
        """
        head = self.lines[0]
        said = [item for item in self.lines if item.text.strip() and not _BOILERPLATE.search(item.text)]
        if self.bare and self.frames and self.frames[-1].source is not None:
            source = self.frames[-1].source
            return f"{head.text.rstrip(': ')}: {source}", (source, head.text)
        telling = [item for item in said if item is not head and _TELLING.search(item.text)]
        if _POINTING.search(
            head.text
        ):  # Triton shows its program up to the place: what is wrong stands behind the mark
            mark = next((at for at, item in enumerate(said) if item.text.strip() == "^"), 0)
            telling = said[mark + 1 :][:1] or telling
            said = [head, *said[max(1, mark - 1) : mark], *said[mark + 1 :]] if mark else said
            return " … ".join(item.text.strip() for item in (head, *telling)), tuple(
                item.text for item in said[:_QUOTED]
            )
        telling.sort(key=lambda item: (_DRIVER.search(item.text) is not None, _WARNING.search(item.text) is not None))
        if line is not None and telling and _DRIVER.search(line.text):
            line = None
        of_text = [head, *telling[:1]]
        if head.text.rstrip().endswith(":"):
            of_text = [head, *said[1:2], *telling[:1]]
        of_text += [line] if line is not None else []
        text = " … ".join(dict.fromkeys(item.text.strip() for item in of_text))
        if len(said) > _QUOTED:
            kept = {*said[: _QUOTED // 2], *telling[: _QUOTED // 2 - 1], said[-1]}
            said = [item for item in said if item in kept][: _QUOTED + 1]
        return text, tuple(item.text for item in said)


class Traceback:
    """Reads the unstamped lines that follow "Traceback (most recent call last):"."""

    def __init__(self) -> None:
        self.chain: list[Raised] = [Raised()]  # the first cause first
        self._after_frame = False  # what is indented now is the last frame's source
        self._flat = False  # the paste lost its indentation

    def frames(self) -> Iterator[Frame]:
        """The frames of the chain as if it were one traceback: the outermost first.

        The traceback of a cause begins where the exception was caught, so it goes on where those after it end.
        """
        for raised in reversed(self.chain):
            if raised.thread != "other":
                yield from reversed(raised.frames) if raised.thread else raised.frames

    @property
    def is_fault(self) -> bool:
        """The process died in native code: the fault handler named the thread."""
        return any(raised.thread == "current" for raised in self.chain)

    def take(self, body: str, number: int) -> bool:
        """Takes a line in; True where it is a frame or its source, not a part of a message."""
        raised = self.chain[-1]
        frame = FRAME.match(body) or (_SHORT_FRAME.match(body) if not raised.lines else None)
        if frame is not None:
            if raised.lines:
                raised = self._next()
            raised.frames.append(Frame(frame["file"][-300:], int(frame["line"]), frame["function"] or ""))
            if len(raised.frames) > _FRAMES_KEPT:
                del raised.frames[_FRAMES_KEPT // 2]
            self._after_frame, self._flat = True, not body.startswith(" ")
            return True
        thread = THREAD.match(body)
        if thread is not None:
            self._next().thread = "current" if thread["current"] else "other"
            return True
        if TRACEBACK.search(body) or _NEXT.match(body.strip()):
            if raised.lines:
                self._next()
            return True
        if not raised.lines:
            return self._before_message(raised, body, number)
        if len(raised.lines) < _LINES_KEPT:
            raised.lines.append(Line(number, body[:_LINE_LIMIT]))
        return False

    def _before_message(self, raised: Raised, body: str, number: int) -> bool:
        """A line between the frames and the message."""
        is_head = EXCEPTION.match(body) is not None
        inside = body.startswith(" ") or (self._flat and self._after_frame and not is_head)
        if inside:
            if self._after_frame and raised.frames and not _MARKS.fullmatch(body):
                raised.frames[-1] = raised.frames[-1]._replace(source=body.strip()[:_LINE_LIMIT])
                self._after_frame = False
            return True
        if is_head or (_HEAD.match(body) and not _LEVEL.match(body)):
            raised.lines.append(Line(number, body[:2_000]))
        return False

    def _next(self) -> Raised:
        self._after_frame = False
        if len(self.chain) >= _LINKS_KEPT:
            del self.chain[_LINKS_KEPT // 2]
        self.chain.append(Raised())
        return self.chain[-1]

    def untake(self, number: int) -> None:
        """A line that was taken for a part of a message is a record of its own; not where a compiler's output has it."""
        lines = self.chain[-1].lines
        if any(_COMPILER.search(line.text) for line in lines[:-1]):
            return
        if lines and lines[-1].number == number:
            lines.pop()

    def first_cause(self, known: Collection[Raised | None] = ()) -> Raised | None:
        """The exception that a person would name: the first of the chain that is no mere lookup, else the first.

        Args:
            known: exceptions that are explained already.
        """
        raised = [item for item in self.chain if item.lines and not any(item is other for other in known)]
        return next((item for item in raised if item.name not in _LOOKUPS), raised[0] if raised else None)
