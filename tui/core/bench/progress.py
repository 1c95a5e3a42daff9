"""The lines that a bench prints while it runs: the live state they give, the runs that have ended, how it ended itself."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tui.core.bench.collect import point_of
from tui.core.errors import EagletuiError
from tui.core.model.experiment import LiveRun
from tui.core.text import as_number, as_whole, one_line, read_json

_FIGURES = ["ttft_ms", "tpot_ms", "accept_length", "power_w", "memory_used_mib", "left_s"]  # as a live state names them
_SERIES = 120  # seconds of rate that a live state carries


@dataclass
class Progress:
    """What the lines have said so far."""

    sha: str | None = None  # of the program
    live: LiveRun | None = None
    ended: list[Mapping[str, Any]] = field(default_factory=list)  # of runs and searches, not taken yet
    done: bool = False
    error: EagletuiError | None = None
    _rest: bytes = b""
    _other_lines: deque[str] = field(default_factory=lambda: deque(maxlen=20))  # lines that are not events
    _series: deque[float | None] = field(default_factory=lambda: deque(maxlen=_SERIES))
    _series_of: object = None
    _second: int = -1

    def feed(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._line(line)

    def _line(self, line: bytes) -> None:
        try:
            event = read_json(line)
        except ValueError:
            event = None
        if not isinstance(event, dict) or not isinstance(event.get("event"), str):
            if words := one_line(line.decode("utf-8", "replace"), 200):
                self._other_lines.append(words)
            return
        name = event["event"]
        if name == "hello":
            self.sha = str(event.get("sha256") or "") or None
        elif name == "progress":
            self._progressed(event)
        elif name in ("run", "search"):
            self.ended.append(event)
        elif name == "done":
            self.done = True
        elif name == "error":
            hint = event.get("hint")
            self.error = EagletuiError(
                one_line(str(event.get("text")), 300),
                one_line(str(hint), 200) if hint else None,
                slug=one_line(str(event.get("slug")), 40),
            )

    def _progressed(self, event: Mapping[str, Any]) -> None:
        try:
            point, number = point_of(event["point"]), int(event["run"])
        except (KeyError, TypeError, ValueError):
            return
        phase = str(event.get("phase"))
        rate, passed = as_number(event.get("tok_s")), as_number(event.get("t")) or 0.0
        part = point, number, phase == "warmup"
        if part != self._series_of:
            self._series_of, self._second = part, -1
            self._series.clear()
        second = int(passed) if phase != "drain" else self._second + 1
        if second > self._second:
            self._second = second
            self._series.append(rate)
        elif self._series:
            self._series[-1] = rate
        self.live = LiveRun(
            point=point,
            run_index=number,
            phase=phase,
            tok_s=rate,
            series=tuple(self._series),
            **{name: as_number(event.get(name)) for name in _FIGURES},
            active=as_whole(event.get("active")),
            completed=as_whole(event.get("completed")) or 0,
            errors=as_whole(event.get("errors")) or 0,
        )

    def last_words(self) -> str:
        if self._rest.strip():
            self._other_lines.append(one_line(self._rest.decode("utf-8", "replace"), 200))
        return self._other_lines[-1] if self._other_lines else "it printed nothing"
