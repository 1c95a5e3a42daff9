"""What a terminal shows beside its screen: the title of its window, and a notification of the desktop.

Sequences are those of xterm (OSC 2, CSI 22 and 23 t), iTerm2 (OSC 9), rxvt (OSC 777) and kitty (OSC 99).
"""

import os
from collections.abc import Callable, Mapping

from tui.core.text import one_line

_LONGEST = 120
_OSC_9 = {"iTerm.app", "WezTerm", "ghostty", "WarpTerminal", "rio"}  # by TERM_PROGRAM


class Terminal:
    """The one that the panel runs in.

    Args:
        write: sends text to it as it is.
        environ: says which one it is.
    """

    def __init__(self, write: Callable[[str], None], environ: Mapping[str, str] = os.environ) -> None:
        self._write = write
        self._title: str | None = None
        self._wrap = _notification(environ)
        self._titles = environ.get("TERM", "") not in ("", "dumb", "linux")

    def title(self, text: str) -> None:
        """Names the window; the name that it had comes back with `restore`."""
        text = one_line(text, _LONGEST)
        if text == self._title or not self._titles:
            return
        keep = "\033[22;2t" if self._title is None else ""
        self._title = text
        self._write(f"{keep}\033]2;{text}\007")

    def restore(self) -> None:
        """The window is called as before."""
        if self._title is not None:
            self._title = None
            self._write("\033[23;2t")

    def notify(self, text: str) -> None:
        """A notification of the desktop, where the terminal is known to have them."""
        if self._wrap is not None:
            self._write(self._wrap(one_line(text, _LONGEST)))


def _notification(environ: Mapping[str, str]) -> Callable[[str], str] | None:
    """How this terminal is asked for one; None where it would print what it does not know, or tmux stands before it."""
    if environ.get("TMUX") or environ.get("STY"):
        return None
    term, program = environ.get("TERM", ""), environ.get("TERM_PROGRAM", "")
    if term == "xterm-kitty":
        return lambda text: f"\033]99;;{text}\033\\"
    if program in _OSC_9:
        return lambda text: f"\033]9;{text}\033\\"
    if term.startswith(("foot", "rxvt")) or environ.get("VTE_VERSION"):
        return lambda text: f"\033]777;notify;eagletui;{text.replace(';', ',')}\033\\"
    return None
