"""Blocks of `label: value` lines that tools print at the end of a run; which tools is data (`[[blocks]]`)."""

import re
from dataclasses import dataclass

from tui.core.results.external.labels import label_of
from tui.core.results.external.posted import DATA, TOOLS, Posted
from tui.core.results.external.shapes import take
from tui.core.text import as_text

_PAIR = re.compile(r"\s*(?P<label>[^:=]{1,120}?)\s*[:=]\s*(?P<value>\S.{0,80})")
_LINE_LIMIT = 300  # characters
_AFTER = 60  # lines behind the end of a block's figures in which the tool may still say that they don't count
_TEXTS = {"scenario": "tag", "model": "model", "result is": "verdict"}


@dataclass(frozen=True)
class BlockForm:
    """A block; `tui/data/benchmarks.toml` explains the fields."""

    tool: str
    begins: str
    gap: int
    kind: str = "serving"
    section: str = "(?!)"
    ends: str = "(?!)"
    invalid: str = "(?!)"


_FORMS = [BlockForm(**form) for form in DATA["blocks"]]
_BEGINS = [(re.compile(form.begins), form) for form in _FORMS]


class PairReader:
    """Takes lines in order; a line that it takes is no other reader's."""

    def __init__(self) -> None:
        self._posted: Posted | None = None
        self._form = _FORMS[0]
        self._section = ""
        self._gap = 0
        self._after = False  # its figures have ended

    @property
    def tool(self) -> str | None:
        """Of the block that is open."""
        return self._form.tool if self._posted is not None else None

    def feed(self, line: str) -> tuple[bool, list[Posted]]:
        """Whether the line belongs to a block that is open or begins one, and the record that it ends."""
        if len(line) > _LINE_LIMIT:
            return False, []
        form = next((form for begins, form in _BEGINS if begins.search(line)), None)
        goes_on = self._posted is not None and (
            form is None or (form.tool == self._form.tool and (form is not self._form or not self._posted.figures))
        )
        ended = [] if goes_on else self.flush()
        if form is not None and not goes_on:
            self._posted, self._form, self._section, self._gap = Posted(form.tool, form.kind), form, "", 0
            self._after = False
        if self._posted is None:
            return False, ended
        if (says := re.search(self._form.invalid, line)) is not None:
            self._posted.against = line[says.start() :].strip()[:80]
        elif self._after:
            self._gap += 1
            return False, self.flush() if self._gap > _AFTER else ended
        elif self._figure(line) or form is not None:
            self._gap = 0
        elif re.search(self._form.ends, line):
            self._after = True
        else:
            self._gap += 1
            if self._gap > self._form.gap:
                return False, ended + self.flush()
        return True, ended

    def flush(self) -> list[Posted]:
        """The record of the block that is open."""
        posted, self._posted = self._posted, None
        # Of a tool whose whole record is known, one figure is a part that can be named.
        fewest = 1 if "whole" in TOOLS.get(self._form.tool, {}) else 2
        return [posted] if posted is not None and len(posted.figures) >= fewest else []

    def _figure(self, line: str) -> bool:
        posted, form = self._posted, self._form
        assert posted is not None
        if (section := re.search(form.section, line)) is not None:
            self._section = section[1]
            return True
        if (matched := _PAIR.fullmatch(line.rstrip())) is None:
            return False
        label, value = matched["label"], matched["value"]
        read = label_of(label)
        if (text := _TEXTS.get(read.name)) is not None and not read.point:
            setattr(posted, text, getattr(posted, text) or as_text(value, 200))
            return True
        if read.point and not read.name and self._section:
            return take(posted, self._section, value, read.point, own=False)
        return take(posted, label, value, own=False)
