"""What a whole log says: as `eagletui diagnose` reads it, and as the watch of a running server does."""

from pathlib import Path

from tui.core.sglang.report import Report, report_of
from tui.core.sglang.tracker import LogTracker
from tui.core.sglang.wrapping.paste import PasteTracker


def report(log: bytes | Path) -> Report:
    """As a pasted text."""
    return _report(PasteTracker(), log)


def live_report(log: bytes | Path) -> Report:
    """As the output of a server that is watched."""
    return _report(LogTracker(records=False), log)


def _report(tracker: LogTracker, log: bytes | Path) -> Report:
    tracker.feed(log.read_bytes() if isinstance(log, Path) else log)
    tracker.flush()
    return report_of(tracker)
