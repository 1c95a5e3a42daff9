"""Layers that a person's tools put around a log: quote marks, numbers, indentation, Markdown, HTML, colours.

Each `learn` looks at a sample of the lines and returns what makes the layer, or None where there is none.
"""

import html
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice, pairwise

from tui.core.sglang.boxes import Boxes
from tui.core.sglang.lineshape import EXCEPTION
from tui.core.sglang.wrapping.line import (
    HEAD,
    STAMP,
    Line,
    Maker,
    anchored,
    is_of_a_log,
    names_failure,
    starts_record,
    written,
)

_MARKS = 60  # characters in which marks are looked for
_MOST = 0.9  # of the lines: what a layer that is around all of them must show


class Cleaned:
    """A layer that changes or drops each line alone."""

    def __init__(self, clean: Callable[[str], str | None]) -> None:
        self._clean = clean

    def take(self, lines: Iterable[Line]) -> list[Line]:
        found = ((line.number, self._clean(line.text)) for line in lines)
        return [Line(number, text) for number, text in found if text is not None]

    def end(self) -> list[Line]:
        return []


# ---- colours whose escape character was lost, Ray's suffix --------------------------------------------------------------

_LOST_COLOUR = re.compile(r"(?:\x1b|\^\[|#033|\\(?:x1b|u001b|033|e)|\u241b)?\[\d{0,3}(?:;\d{1,3}){0,5}m")
_REPEATED = re.compile(r" \[repeated \d+x across (?:cluster|all processes)\](?: \(Ray [^\n]*\))?$")


def colours(lines: Sequence[Line]) -> Maker | None:
    """Colours as text: the escape character is written out, or lost."""
    seen = sum("[0m" in line.text or "[39m" in line.text for line in lines)
    return partial(Cleaned, lambda text: _LOST_COLOUR.sub("", text)) if seen else None


def repeats(lines: Sequence[Line]) -> Maker | None:
    """Ray's remark that other workers said the same."""
    found = any(_REPEATED.search(line.text[-400:]) for line in lines)
    return partial(Cleaned, lambda text: _REPEATED.sub("", text)) if found else None


# ---- HTML ---------------------------------------------------------------------------------------------------------------

_TAG = re.compile(
    r"</?(?:pre|code|div|span|p|br|details|summary|table|tbody|tr|td|ul|ol|li|b|i|em|strong|a|font|samp|html|body)"
    r"(?:\s[^<>]{0,300})?/?>",
    re.IGNORECASE,
)
_ENTITY = re.compile(r"&(?:lt|gt|quot|amp|nbsp|apos|#\d{1,5}|#x[0-9a-f]{1,4});", re.IGNORECASE)
_RAW = re.compile(r'File "|in <module>|</?[a-z_]+ object at|"(?:GET|POST) ')


def markup(lines: Sequence[Line]) -> Maker | None:
    """A part of a web page: tags, and characters written as entities."""
    texts = [line.text for line in lines]
    block = any(re.match(r"\s*<(?:pre|code|samp|div|span|p)\b[^<>]*>", text, re.IGNORECASE) for text in texts)
    escaped = any(_ENTITY.search(text) for text in texts)
    if not block and (not escaped or any(_RAW.search(text) for text in texts)):
        return None

    def clean(text: str) -> str | None:
        bare = _TAG.sub("", text) if "<" in text else text
        if bare != text and not bare.strip():
            return None
        return html.unescape(bare).replace("\xa0", " ") if "&" in bare else bare

    return partial(Cleaned, clean)


# ---- Markdown -----------------------------------------------------------------------------------------------------------

_FENCE = re.compile(r"\s{0,8}(`{3,}|~{3,})\s*(?P<rest>[^`]*?)\s*`*$")
_LANGUAGE = re.compile(r"[\w.+#-]{0,20}(?: [\w={}\"-]{1,40})?$")
_SUMMARY = re.compile(r"\s*</?(?:details|summary)\b[^>]*>", re.IGNORECASE)


class Fenced:
    """Prose around blocks of code: the blocks that hold a log are kept, and the rest where it is part of one.

    Args:
        without: blocks that hold none, counted from 0.
        outside: keep what stands outside of blocks.
    """

    def __init__(self, without: frozenset[int], outside: bool) -> None:
        self._without = without
        self._outside = outside
        self._inside = False
        self._block = -1

    def take(self, lines: Iterable[Line]) -> list[Line]:
        return [
            line for line, block in self.blocks(lines) if (self._outside if block < 0 else block not in self._without)
        ]

    def blocks(self, lines: Iterable[Line]) -> list[tuple[Line, int]]:
        """Each line with the number of its block; -1 outside."""
        found = []
        for line in lines:
            fence = _FENCE.match(line.text) if "```" in line.text or "~~~" in line.text else None
            if fence is not None:
                self._inside = not self._inside
                self._block += self._inside
                if not self._inside or _LANGUAGE.match(fence["rest"]):
                    continue
                line = line._replace(text=fence["rest"])
            found.append((line, self._block if self._inside else -1))
            if self._inside and line.text.endswith("```"):
                found[-1] = (line._replace(text=line.text.rstrip("`")), self._block)
                self._inside = False
        return found

    def end(self) -> list[Line]:
        return []


def fences(lines: Sequence[Line]) -> Maker | None:
    """A Markdown text with the log in blocks of code."""
    blocks = Fenced(frozenset(), True).blocks(lines)
    if not any(block >= 0 for _, block in blocks):
        return None
    holds = Counter(block for line, block in blocks if is_of_a_log(line.text))
    records = Counter(block for line, block in anchored_blocks(blocks))
    inside = [block for block in holds if block >= 0]
    if not inside:
        return None
    return partial(
        Fenced, frozenset(block for _, block in blocks if block >= 0 and block not in holds), records[-1] > 0
    )


def anchored_blocks(blocks: Sequence[tuple[Line, int]]) -> list[tuple[Line, int]]:
    """The lines that are surely of a log, with their blocks."""
    return [(line, block) for line, block in blocks if anchored([line])]


# ---- what chats and word processors do -------------------------------------------------------------------------------------

_TYPED = str.maketrans("\u201c\u201d\u201e\u00ab\u00bb\u2018\u2019\u201a\xa0", '"""""\'\'\' ')
_TELLS_TYPED = re.compile("File [\u201c\u201e\u00ab]|[={] ?[\u201c\u2018]|\xa0")
# A name that begins and ends with underscores is bold in Markdown, and loses them in a page.
_BOLD = re.compile(r"(\", line \d{1,9}, in )(?:\*\*(\w{1,60})\*\*|(init|call|post_init)$)")
# A traceback's own structure, wherever it stands in a line.
_STRUCTURE = re.compile(
    r'(?P<frame>File "[^"]{1,300}", line \d{1,9}, in \S{1,200})|(?<!: )Traceback \(most recent call last\):|'
    r"(?:During handling of the above exception|The above exception was the direct cause)|\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|"
    r"(?<!\S)(?P<raised>[\w.]{0,80}?(?:Error|Exception|Interrupt|OutOfResources): )"
)
_FLAT_FRAME = re.compile(r'File "[^"]{1,300}", line \d+(?:, in |$)')


def typography(lines: Sequence[Line]) -> Maker | None:
    """Straight quotes became typographic ones, blanks those that do not break, `__init__` bold text."""
    typed = any(_TELLS_TYPED.search(line.text) or _BOLD.search(line.text) for line in lines)
    return partial(Cleaned, lambda text: _BOLD.sub(_underscored, text.translate(_TYPED))) if typed else None


def _underscored(match: re.Match[str]) -> str:
    return f"{match[1]}__{match[2] or match[3]}__"


class Split:
    """Tracebacks whose line ends are lost: each frame, its source and what was raised get a line again."""

    def take(self, lines: Iterable[Line]) -> list[Line]:
        return [line._replace(text=part) for line in lines for part in _parts(line.text)]

    def end(self) -> list[Line]:
        return []


def joined(lines: Sequence[Line]) -> Maker | None:
    """Several lines of a traceback stand in one."""
    return Split if any(_joined(line.text) for line in lines) else None


def _joined(text: str) -> bool:
    found = list(islice(_STRUCTURE.finditer(text), 8)) if 'File "' in text else []
    frames = sum(cut["frame"] is not None for cut in found)
    return frames > 1 or (frames == 1 and found[-1]["raised"] is not None)


def _parts(text: str) -> list[str]:
    """The lines that a line was made of: cut at the structure of a traceback, and at what each line began with."""
    if not _joined(text):
        return [text]
    mark = _mark(text)
    found: list[str] = []
    inside = False  # behind a frame: the line of program
    for piece in text.split(mark) if mark else (text,):
        at = 0
        for cut in _STRUCTURE.finditer(piece):
            if cut["raised"] is not None and (not inside or piece.count('"', at, cut.start()) % 2):
                continue  # a part of a message, or of a text in the program
            found.append("    " * inside + piece[at : cut.start()].strip())
            inside = cut["frame"] is not None
            found.append(f"  {cut['frame']}" if inside else "")
            at = cut.end() if inside else cut.start()
        found.append("    " * inside + piece[at:].strip())
    return [mark + part for part in found if part.strip()]


def _mark(text: str) -> str:
    """What each of the lines began with that one line was made of: it stands before the first two frames."""
    second = text.find('File "', text.index('File "') + 6)
    before, other = (text[max(0, at - _MARKS) : max(0, at)] for at in (text.index('File "'), second))
    size = next(
        (at for at, pair in enumerate(zip(before[::-1], other[::-1], strict=False)) if len(set(pair)) > 1), None
    )
    alike = (
        before[-min(len(before), len(other)) if size is None else len(before) - size :] if size != 0 and other else ""
    )
    cut = [text[-len(alike) - 1 : -len(alike)] for text in (before, other)] if alike else []
    if any(map(str.isalnum, cut)):  # a part of a word is no beginning
        alike = alike.partition(" ")[2]
    return alike.strip() + " " if alike.strip() else ""


_COMPLETE_FRAME = re.compile(r'\s{0,12}File "[^"]{1,300}", line \d{1,9}, in \S')
_BEGUN_FRAME = re.compile(r'\s{0,12}File "[^"]{0,300}')
_REST_OF_A_FRAME = '", line 0, in '
_BROKEN_LINES = 4  # that a frame is broken into, at most


class Framed:
    """Frames that were broken into lines, behind `File "…",` or within the path, in one line again."""

    def __init__(self) -> None:
        self._held: list[Line] = []  # the lines of a frame that is not complete
        self._text = ""  # what they are together

    def take(self, lines: Iterable[Line]) -> list[Line]:
        found: list[Line] = []
        for line in lines:
            if self._held:
                both = [self._text + gap + line.text.strip() for gap in ("", " ")]
                whole = next((text for text in both if _COMPLETE_FRAME.match(text)), None)
                begun = next((text for text in both if _is_begun(text)), None)
                if whole is not None:
                    found.append(self._held[0]._replace(text=whole))
                    self._held = []
                    continue
                if begun is not None and len(self._held) < _BROKEN_LINES - 1:
                    self._held.append(line)
                    self._text = begun
                    continue
                found += self.end()
            if _is_begun(line.text):
                self._held, self._text = [line], line.text.rstrip()
            else:
                found.append(line)
        return found

    def end(self) -> list[Line]:
        held, self._held = self._held, []
        return held


def _is_begun(text: str) -> bool:
    begun = _BEGUN_FRAME.match(text) if 'File "' in text[:20] else None
    rest = re.sub(r"\d{1,9}$|\d{1,9}(?=,)", "0", text[begun.end() :].rstrip(), count=1) if begun is not None else None
    return rest is not None and _REST_OF_A_FRAME.startswith(rest)


def broken_frames(lines: Sequence[Line]) -> Maker | None:
    """Frames of a traceback stand in two lines and more, as where a chat or an editor fills its lines."""
    framed = Framed()
    return Framed if len(framed.take(lines) + framed.end()) < len(lines) else None


class Raised:
    """Tracebacks whose indentation is lost: frames get two blanks, the line of source below them four."""

    def __init__(self) -> None:
        self._source = False

    def take(self, lines: Iterable[Line]) -> list[Line]:
        found = []
        for line in lines:
            frame = _FLAT_FRAME.match(line.text) is not None
            source = self._source and not frame and not starts_record(line.text) and not EXCEPTION.match(line.text)
            self._source = frame
            found.append(line._replace(text="  " * frame + "    " * source + line.text))
        return found

    def end(self) -> list[Line]:
        return []


def flattened(lines: Sequence[Line]) -> Maker | None:
    """The blanks at the beginning of all lines are lost."""
    frames = sum(_FLAT_FRAME.match(line.text) is not None for line in lines)
    return Raised if frames and not any(line.text.startswith("  File ") for line in lines) else None


# ---- boxes around tracebacks -------------------------------------------------------------------------------------------


class Unboxed:
    """Tracebacks that rich drew in boxes, as Python prints them."""

    def __init__(self) -> None:
        self._boxes = Boxes()

    def take(self, lines: Iterable[Line]) -> list[Line]:
        return [
            Line(*printed)
            for line in lines
            for printed in (
                self._boxes.take(line.number, line.text, STAMP.match(line.text) is not None)
                if self._boxes.concern(line.text)
                else (line,)
            )
        ]

    def end(self) -> list[Line]:
        return [Line(*printed) for printed in self._boxes.end()]


def boxes(lines: Sequence[Line]) -> Maker | None:
    """Tracebacks in boxes."""
    return Unboxed if any(Boxes().concern(line.text) for line in lines) else None


# ---- an error within a sentence ----------------------------------------------------------------------------------------

_QUOTED_ERROR = re.compile(
    r"(?<![A-Za-z0-9.])(?P<error>(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Z]\w{0,60}(?:Error|Exception): \S.*)"
)


def sentences(lines: Sequence[Line]) -> Maker | None:
    """Prose alone that quotes one error, of a kind that is known: what stands before it in its line is no part of it."""
    if any(is_of_a_log(line.text) for line in lines):
        return None

    def clean(text: str) -> str | None:
        match = _QUOTED_ERROR.search(text[:HEAD])
        return text[match.start() :].rstrip("*_` ") if match is not None and names_failure(match["error"]) else text

    return partial(Cleaned, clean) if any(clean(line.text) != line.text for line in lines) else None


# ---- quote marks, numbers, indentation ----------------------------------------------------------------------------------

_QUOTE = re.compile(r" {0,3}(?:> ?)*>(?: |$)|(?: {0,3}>)+(?! *File )")


def quotes(lines: Sequence[Line]) -> Maker | None:
    """Quoted as in mail and Markdown, one or more deep; what stands between quotes is the answer of another person."""
    known = [line for line, _ in anchored(lines)] or [
        line for line in written(lines) if is_of_a_log(line.text.lstrip(" >"))
    ]
    known = known or written(lines)
    quoted = sum(_depth(line.text) > 0 for line in known)
    if quoted < 1 or quoted < _MOST * len(known):
        return None
    deep = Counter(_depth(line.text) for line in known)
    depth = min((level for level, count in deep.items() if level and count >= len(known) / 10), default=1)
    mark = re.compile(r" {0,3}>" * depth)
    spaced = all(mark.sub("", line.text, count=1)[:1] in ("", " ") for line in known)

    def clean(text: str) -> str | None:
        match = mark.match(text)
        if match is None:
            return None
        rest = text[match.end() :]
        return rest[1:] if spaced and rest.startswith(" ") else rest

    return partial(Cleaned, clean)


def _depth(text: str) -> int:
    match = _QUOTE.match(text[:_MARKS])
    return match.group().count(">") if match is not None else 0


_NUMBER = re.compile(r"(?P<before>[ \t]*(?:L|#)?)(?P<number>\d{1,7})(?P<mark> ?[:|\u2192\u2502.)\]-] ?|\t|  ?|$)")
_NUMBERED_MARKS = " :|\u2192\u2502.)]-\t"


def numbers(lines: Sequence[Line]) -> Maker | None:
    """Numbered lines, as of `cat -n`, `grep -n`, an editor or a web page: the numbers only grow, mostly by one."""
    texts = [line.text for line in written(lines)]
    matches = [match for text in texts if (match := _NUMBER.match(text)) is not None]
    if len(texts) < 2 or len(matches) < _MOST * len(texts):
        return None
    values = [int(match["number"]) for match in matches]
    steps = [after - before for before, after in pairwise(values)]
    signs = Counter(match["mark"].strip(" ") for match in matches if match.end() < len(match.string))
    if (
        not signs
        or sum(step > 0 for step in steps) < _MOST * len(steps)
        or sum(step == 1 for step in steps) < len(steps) / 2
    ):
        return None
    sign, count = signs.most_common(1)[0]
    if count < _MOST * sum(signs.values()):
        return None
    before = r"[ \t]*(?:L|#)?\d{1,7} ?" + re.escape(sign)
    rests = [re.sub(before, "", text, count=1) for text in texts if re.match(before, text)]
    gap = min((len(rest) - len(rest.lstrip(" ")) for rest in rests if rest.strip()), default=0)
    mark = re.compile("^" + before + f" {{0,{min(gap, 1)}}}")
    return partial(Cleaned, lambda text: mark.sub("", text, count=1))


def indentation(lines: Sequence[Line]) -> Maker | None:
    """The whole text is moved to the right."""
    texts = [line.text for line in written(lines)]
    places = [line.text[:at] for line, at in anchored(lines)]
    if places:
        first = Counter(places).most_common(1)[0]
        if first[0].strip() or first[1] < (_MOST * len(places) if len(places) > 9 else len(places) - 1):
            return None
        wide = len(first[0])
    else:
        wide = min((len(text) - len(text.lstrip(" \t")) for text in texts), default=0)
    deep = sum(not text[:wide].strip() for text in texts)
    if not wide or deep < _MOST * len(texts) - 1:
        return None
    mark = re.compile(rf"^[ \t]{{0,{wide}}}")
    return partial(Cleaned, lambda text: mark.sub("", text, count=1))


# ---- what closes a line ---------------------------------------------------------------------------------------------------

_CLOSING = "\"'`\u2502|"


def endings(lines: Sequence[Line]) -> Maker | None:
    """All lines end alike: quoted as in a table or a list of a program, or in a box."""
    ends = [line.text.rstrip() for line in written(lines)]
    if len(ends) < 3:
        return None
    for size in (3, 2, 1):
        end, count = Counter(text[-size:] for text in ends).most_common(1)[0]
        if count >= 0.8 * len(ends) and end.strip(",") and set(end) <= {*_CLOSING, ","}:
            break
    else:
        return None
    quote = next(sign for sign in end if sign in _CLOSING)

    def clean(text: str) -> str:
        bare = text.rstrip()
        if not bare.endswith(end):
            return text
        bare = bare[: -len(end)]
        return bare.replace('""', '"') if quote == '"' else bare.rstrip()

    return partial(Cleaned, clean)
