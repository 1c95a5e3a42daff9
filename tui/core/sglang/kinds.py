"""What kind of trouble an exception is that no pattern knows: by its type, where it was raised, and what it says."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tui.core.model.phases import Phase
from tui.core.sglang.flags import flag_table
from tui.core.sglang.frames import module_of, place_of
from tui.core.sglang.traceback import Frame, Raised

_FLAG = re.compile(r"(?<![\w-])(?:--|(?:self\.)?server_args\.|(?=[a-z]{1,20}_))([a-z][\w-]{1,60})")
_TEXT_LIMIT = 8_000


@dataclass(frozen=True)
class Kind:
    """A kind of trouble: see tui/data/kinds.toml. What it says is the failure with the same id."""

    id: str
    type: re.Pattern[str] | None = None
    text: re.Pattern[str] | None = None
    raised_in: re.Pattern[str] | None = None
    through: re.Pattern[str] | None = None
    called_in: re.Pattern[str] | None = None
    source: re.Pattern[str] | None = None
    names_flag: bool = False
    phases: frozenset[Phase] | None = None

    def groups(self, raised: Raised, frames: Iterable[Frame], phase: Phase) -> Mapping[str, str] | None:
        """What the text's named groups found, with `message` and `flags`; None where the exception is of another kind.

        Args:
            frames: of the whole chain.
        """
        if self.phases is not None and phase not in self.phases:
            return None
        if self.type is not None and not self.type.fullmatch(raised.name):
            return None
        place = (
            self.raised_in.search(place_of(raised.frames[-1])) if self.raised_in is not None and raised.frames else None
        )
        if self.raised_in is not None and place is None:
            return None
        if self.through is not None and not any(self.through.search(place_of(frame)) for frame in frames):
            return None
        if self.called_in is not None and not self.called_in.search(_innermost_own(frames)):
            return None
        message = raised.message[:_TEXT_LIMIT]
        source = raised.frames[-1].source if raised.frames else None
        match = self.text.search(message or source or "") if self.text is not None else None
        if self.text is not None and match is None:
            return None
        if self.source is not None and source is not None and not self.source.search(source):
            return None
        flags = flags_in(message)
        if self.names_flag and not flags:
            return None
        found = {
            name: value for found in (place, match) if found is not None for name, value in found.groupdict().items()
        }
        said = {"message": _quoted(message) or source or "", "flags": ", ".join(f"--{flag}" for flag in flags), **found}
        return {name: value for name, value in said.items() if value}


def _quoted(message: str) -> str:
    """What advice repeats of a message: its first line, with the next two where it announces them."""
    first, *rest = message.split("\n")
    return "\n".join([first, *rest[:2]]) if first.rstrip().endswith(":") else first


def _innermost_own(frames: Iterable[Frame]) -> str:
    """The place of the innermost frame that is SGLang's; "" where none is."""
    own = (frame for frame in reversed(tuple(frames)) if module_of(frame.file) is not None)
    return next((place_of(frame) for frame in own), "")


def flags_in(message: str) -> tuple[str, ...]:
    """The flags of SGLang that a message names, with dashes or as the arguments are called in its code."""
    table = flag_table()
    words = (match[1].replace("_", "-") for match in _FLAG.finditer(message))
    return tuple(dict.fromkeys(word for word in words if table.known(word)))
