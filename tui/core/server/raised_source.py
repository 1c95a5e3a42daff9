"""The lines of program around the place where an exception was raised, read on the host of the run: one round trip.

A log is text of others: only files that end in .py are read, a few lines of each, and shown only where the line that the
traceback printed stands there.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from shlex import quote

from tui.core.errors import EagletuiError
from tui.core.link.transport import Transport
from tui.core.server import launch_records
from tui.core.sglang.advice import with_version
from tui.core.sglang.diagnosis import Diagnosis, SourceLines
from tui.core.sglang.frames import module_of
from tui.core.sglang.traceback import Frame
from tui.core.text import sanitize

_BEFORE, _AFTER = 4, 2  # lines around
_FILES = 2
_READ_BYTES = 4 << 20  # of a file, at most
_LINE_CHARS = 200
_MARK = "@@eagletui "
_VERSION = re.compile(r"sglang-(\d[\w.]{0,40})(?:\+[\w.]+)?\.dist-info")


async def with_source(transport: Transport, found: Diagnosis | None, run_id: str | None = None) -> Diagnosis | None:
    """A diagnosis with the source around the raise, and whether the server's SGLang is the newest, as far as can be read.

    Args:
        run_id: of the run; its launch may have noted the version.
    """
    if found is None:
        return None
    known = launch_records.read(run_id) if run_id is not None else None
    found = with_version(found, known.sglang if known is not None else None)
    frames = _worth_reading(found.raised_in)
    if not frames:
        return found
    try:
        done = await transport.run(_script(frames), timeout_s=15.0, max_output_bytes=1 << 20)
    except EagletuiError:
        return found  # it explains, it decides nothing
    source, version = read_answer(done.stdout.decode("utf-8", "replace"), frames)
    return with_version(replace(found, source=source), version if known is None else None)


def _worth_reading(frames: Sequence[Frame]) -> tuple[Frame, ...]:
    """The innermost frame, and the innermost one of SGLang."""
    files = [frame for frame in reversed(frames) if frame.file.startswith("/") and frame.file.endswith(".py")]
    ours = next((frame for frame in files if module_of(frame.file) is not None), None)
    return tuple(dict.fromkeys(frame for frame in (*files[:1], ours) if frame is not None))[:_FILES]


def _script(frames: Sequence[Frame]) -> str:
    lines = ["export LC_ALL=C"]
    for at, frame in enumerate(frames):
        first, last = max(1, frame.line - _BEFORE), frame.line + _AFTER
        lines.append(
            f'f={quote(frame.file)}; if [ -f "$f" ] && [ -r "$f" ]; then printf \'{_MARK}%s\\n\' {at}; '
            f"head -c {_READ_BYTES} \"$f\" | sed -n '{first},{last}p;{last}q' | cut -c1-{_LINE_CHARS * 4}; fi"
        )
        root, found, _ = frame.file.rpartition("/sglang/srt/")
        if found:
            lines.append(f"printf '{_MARK}version\\n'; ls -d {quote(root)}/sglang-*.dist-info 2>/dev/null | head -n 1")
    return "\n".join([*lines, "exit 0"])


def read_answer(text: str, frames: Sequence[Frame]) -> tuple[tuple[SourceLines, ...], str | None]:
    """What the host answered: source lines that fit what the traceback printed, and the version of SGLang there."""
    found: list[SourceLines] = []
    version = None
    for part in f"\n{text}".split(f"\n{_MARK}")[1:]:
        head, _, body = part.partition("\n")
        if head == "version":
            match = _VERSION.search(body)
            version = match[1] if match is not None else version
        elif head.isdigit() and int(head) < len(frames):
            frame = frames[int(head)]
            first = max(1, frame.line - _BEFORE)
            lines = tuple(sanitize(line)[:_LINE_CHARS] for line in body.splitlines()[: _BEFORE + _AFTER + 1])
            raising = lines[frame.line - first].strip() if frame.line - first < len(lines) else None
            if raising is not None and (frame.source is None or frame.source[:_LINE_CHARS].startswith(raising[:80])):
                found.append(SourceLines(frame.file, frame.line, first, lines))
    return tuple(found), version
